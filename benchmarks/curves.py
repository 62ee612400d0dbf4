#!/usr/bin/env python3
"""Draws time and peak memory over the number of tokens and over the number of pseudo-heads, as SVG pictures.

  tokens.svg        12 heads, causal*4,sliding:256*4,global*4, forward: iha, grouped, masked (to --masked-tokens)
  pseudo_heads.svg  8 interleaved causal heads, N 1024, forward + backward: iha, and einsum + interleave + torch

Paths take turns; a point is the best of the rounds, since a curve of a busy machine should bend where the work does.
Memory is the peak of one call beyond inputs and results. Needs matplotlib. --data keeps the figures as JSON; --from
draws kept ones again.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

import torch

from peer_measure import in_turns, peak_bytes
from peer_paths import Unavailable
from peer_work import STANDARD, Work

LABELS = {"iha": "iha", "grouped": "grouped and sliced, by hand", "masked": "torch, boolean mask",
          "torch": "einsum + interleave + torch"}
# Distinct in hue, lightness and mark, so that they also tell apart without colour.
STYLES = {"iha": ("#0b5fa5", "o"), "grouped": ("#d9730d", "s"), "masked": ("#767676", "^"), "torch": ("#d9730d", "s")}


def point(work: Work, at: int, names: list[str], rounds: int, dtype: str) -> list[dict]:
    skipped: dict[str, str] = {}
    points = []
    for timing in in_turns(work, dtype, names, rounds, skipped):
        try:
            memory = peak_bytes(timing.path, work, dtype)
        except Unavailable as reason:
            print(f"{timing.path} at {at}: {reason}", file=sys.stderr)
            memory = None
        points.append({"path": timing.path, "at": at, "seconds": min(timing.seconds), "extra_bytes": memory})
        print(f"  {at}: {points[-1]}", file=sys.stderr)
    return points


def over_tokens(options: argparse.Namespace) -> list[dict]:
    points, tokens = [], 512
    while tokens <= options.largest_tokens:
        work = dataclasses.replace(STANDARD["mixed"], tokens=tokens)
        names = ["iha", "grouped"] + (["masked"] if tokens <= options.masked_tokens else [])
        points += point(work, tokens, names, options.rounds, options.dtype)
        tokens *= 2
    return points


def over_pseudo_heads(options: argparse.Namespace) -> list[dict]:
    points = []
    for pseudo_heads in (1, 2, 3, 4, 6, 8):
        work = dataclasses.replace(STANDARD["interleaved-train"], tokens=1024, pseudo_heads=pseudo_heads)
        points += point(work, pseudo_heads, ["iha", "torch"], options.rounds, options.dtype)
    return points


def draw(points: list[dict], title: str, axis: str, logarithmic: bool, path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as pyplot

    # Text stays text: small files, searchable, in the reader's font. A fixed salt: the same picture, the same bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "iha", "font.size": 9})
    figure, panels = pyplot.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    kinds = (("seconds", "time, ms", 1e3), ("extra_bytes", "peak memory beyond inputs and results, MiB", 2**-20))
    for panel, (key, unit, factor) in zip(panels, kinds):
        for name in dict.fromkeys(each["path"] for each in points):
            own = [each for each in points if each["path"] == name and each[key] is not None]
            colour, mark = STYLES[name]
            panel.plot([each["at"] for each in own], [max(each[key] * factor, 0.01) for each in own],
                       color=colour, marker=mark, markersize=4, linewidth=1.5, label=LABELS[name])
        ticks = sorted({each["at"] for each in points})
        if logarithmic:
            panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(ticks, [str(tick) for tick in ticks])
        panel.minorticks_off()
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.set_xlabel(axis)
        panel.set_title(unit, fontsize=9, loc="left")
        panel.grid(color="#dddddd", linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, metadata={"Date": None, "Creator": None}, facecolor="white")
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> None:
    source = pathlib.Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/curves.py --threads 2 --data curves.json")
    parser.add_argument("--output", type=pathlib.Path, default=source / "docs" / "pictures",
                        help="default: %(default)s")
    parser.add_argument("--data", type=pathlib.Path, help="also write the figures there, as JSON")
    parser.add_argument("--from", dest="kept", type=pathlib.Path, help="draw these figures and measure nothing")
    parser.add_argument("--note", help="what a reader must know of the machine; stands under the title")
    parser.add_argument("--rounds", type=int, default=3, help="turns of all paths (default %(default)s)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="default: torch's own number")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="default: %(default)s")
    parser.add_argument("--largest-tokens", type=int, default=16384, help="default: %(default)s")
    parser.add_argument("--masked-tokens", type=int, default=4096,
                        help="largest size with masks, 170 N^2 bytes (default %(default)s)")
    options = parser.parse_args(arguments)
    try:
        import matplotlib  # noqa: F401, asked for before minutes of measuring
    except ImportError:
        parser.exit(1, "curves.py needs matplotlib: pip install matplotlib\n")
    torch.set_num_threads(options.threads)
    if options.kept:
        figures = json.loads(options.kept.read_text(encoding="utf-8"))
    else:
        figures = {"threads": options.threads, "dtype": options.dtype,
                   "tokens": over_tokens(options), "pseudo_heads": over_pseudo_heads(options)}
    if options.data:
        options.data.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    options.output.mkdir(parents=True, exist_ok=True)
    how = f"{figures['dtype']}, {figures['threads']} threads" + (f"\n{options.note}" if options.note else "")
    draw(figures["tokens"], f"12 heads, causal*4,sliding:256*4,global*4, d 64, forward, {how}", "tokens N", True,
         options.output / "tokens.svg")
    draw(figures["pseudo_heads"], f"8 interleaved causal heads, N 1024, d 64, forward + backward, {how}",
         "pseudo-heads P", False, options.output / "pseudo_heads.svg")


if __name__ == "__main__":
    main()

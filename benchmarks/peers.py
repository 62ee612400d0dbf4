#!/usr/bin/env python3
"""Times the CPU engine against what only Python has, forward unless the work's name says train.

Paths take turns within one process; the table has medians, and ratios are medians over the rounds. `iha bench` does the
same for the paths that C++ has, beside the machine's measured peak. Paths:
  iha          this library's operator
  grouped      torch, written by hand: heads grouped by pattern, keys sliced for each block of queries
  flex         FlexAttention under torch.compile, with a block mask
  masked       torch's scaled_dot_product_attention with a boolean mask
  per-head     the published loop: dense scores a head, additive masks
  torch        scaled_dot_product_attention(is_causal); after einsum and interleaving for pseudo-heads
  onnxruntime  GroupQueryAttention, float32 (needs the packages onnx and onnxruntime; skipped without them)
"""

import argparse
import json
import statistics
import sys

import torch

from peer_measure import Timing, in_turns, peak_bytes, ratio
from peer_paths import NAMES, PATHS, Unavailable
from peer_work import DTYPES, STANDARD, Work


def parse(arguments: list[str] | None) -> argparse.Namespace:
    def listed(choices):
        def parsed(text: str) -> list[str]:
            unknown = [word for word in text.split(",") if word not in choices]
            if unknown:
                raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(choices)}")
            return text.split(",")

        return parsed

    def positive(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text}: expected a positive whole number")
        return int(text)

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: python benchmarks/peers.py --work mixed,window --dtype float32 --rounds 9 --no-memory")
    works = ", ".join(f"{w.name} ({w.patterns}, N {w.tokens}, P {w.pseudo_heads})" for w in STANDARD.values())
    parser.add_argument("--work", type=listed(STANDARD), default=list(STANDARD), help=f"some of: {works}; default: all")
    parser.add_argument("--dtype", type=listed(DTYPES), default=list(DTYPES), help="float32,bfloat16 (default: both)")
    parser.add_argument("--paths", type=listed(NAMES), default=NAMES, help="only these; iha always runs; default: all")
    parser.add_argument("--rounds", type=positive, default=5, help="turns of all paths (default %(default)s)")
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads(), help="default: torch's own number")
    parser.add_argument("--tokens", type=positive, help="this many tokens instead, windows in proportion")
    parser.add_argument("--no-memory", action="store_true", help="leave out peak memory, which starts a process a path")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict:
    """{"threads", "torch", "lines": one a path, "skipped": those that could not run, with the reason}."""
    lines, skipped = [], []
    for work in (STANDARD[name] for name in options.work):
        if options.tokens:
            work = work.resized(options.tokens)
        names = [name for name in PATHS[work.name] if name == "iha" or name in options.paths]
        for dtype in options.dtype:
            reasons: dict[str, str] = {}
            print(f"{work.name}, {dtype} ...", file=sys.stderr)
            timings = in_turns(work, dtype, names, options.rounds, reasons)
            for timing in timings:
                memory = None
                if not options.no_memory:
                    try:
                        memory = peak_bytes(timing.path, work, dtype)
                    except Unavailable as reason:
                        reasons[f"memory of {timing.path}"] = str(reason)
                lines.append(line_of(work, dtype, timing, timings[0], memory))
            for path, reason in reasons.items():
                skipped.append({"work": work.name, "dtype": dtype, "path": path, "reason": reason})
    return {"threads": torch.get_num_threads(), "torch": torch.__version__, "lines": lines, "skipped": skipped}


def line_of(work: Work, dtype: str, timing: Timing, iha: Timing, memory: int | None) -> dict:
    seconds = statistics.median(timing.seconds)
    return {
        "work": work.name,
        "dtype": dtype,
        "path": timing.path,
        "tokens": work.tokens,
        "patterns": work.patterns,
        "pseudo_heads": work.pseudo_heads,
        "seconds": seconds,
        "seconds_best": min(timing.seconds),
        "seconds_over_iha": ratio(timing.seconds, iha.seconds),
        "cpu_seconds_over_iha": ratio(timing.cpu_seconds, iha.cpu_seconds),
        "flops_per_second": work.flops / seconds,
        "error": timing.error,
        "extra_bytes": memory,
    }


def table(result: dict) -> str:
    heads = ("work", "dtype", "path", "median ms", "best ms", "GFLOP/s", "iha is x as fast", "CPU x", "error",
             "extra MiB")
    rows = [heads]
    for line in result["lines"]:
        memory = line["extra_bytes"]
        other = line["path"] != "iha"
        rows.append((
            line["work"],
            line["dtype"],
            line["path"],
            f"{line['seconds'] * 1e3:.1f}",
            f"{line['seconds_best'] * 1e3:.1f}",
            f"{line['flops_per_second'] * 1e-9:.0f}",
            f"{line['seconds_over_iha']:.2f}" if other else "",
            f"{line['cpu_seconds_over_iha']:.2f}" if other else "",
            f"{line['error']:.1e}",
            "" if memory is None else f"{memory / 2**20:.1f}",
        ))
    widths = [max(len(row[at]) for row in rows) for at in range(len(heads))]
    text = [
        f"Attention on {result['threads']} threads, torch {result['torch']}. GFLOP/s count needed work. Error: from",
        "float64, over the largest value. Extra: peak memory beyond inputs and results. CPU x: the ratio in CPU time",
        "of all threads, steadier where the machine is shared; waiting threads that spin count.",
        "",
    ]
    for row in rows:
        cells = [cell.ljust(w) if at < 3 else cell.rjust(w) for at, (cell, w) in enumerate(zip(row, widths))]
        text.append("  ".join(cells).rstrip())
    for each in result["skipped"]:
        text.append(f"skipped: {each['work']}, {each['dtype']}, {each['path']}: {each['reason']}")
    return "\n".join(text)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    result = measure(options)
    print(json.dumps(result, indent=2) if options.json else table(result))


if __name__ == "__main__":
    main()

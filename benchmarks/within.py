#!/usr/bin/env python3
"""Compares the CPU engine with itself: what patterns, threads and length should cost, and what they do.

  causal      a causal head over a dense one                        N 4096
  strided     strided:8 over a dense one                            N 4096
  layer       causal*4,sliding:256*4,global*4 over the sum of its three groups of heads, each measured alone
  train-layer the same with the backward pass                       N 2048
  window      time a token of sliding:256, N 8192 to 32768 over N 4096
  threads     one thread over two, dense, causal, dense with the backward pass
  gradients   error of bfloat16 gradients over that of torch's attention, both against float64; relative L2

12 heads, d 64, batch 1, token-major. Calls take turns; figures are medians over the rounds of the turns' ratios. Freed
memory is kept, since the kernel otherwise clears the pages of large results anew for each call.
"""

import argparse
import ctypes
import sys
import time

import torch

from peer_measure import ratio
from peer_paths import iha
from peer_work import DTYPES

HEADS, DEPTH = 12, 64


def draw(tokens: int, heads: int, dtype: torch.dtype, count: int = 3) -> list[torch.Tensor]:
    return [torch.randn(1, tokens, heads, DEPTH).to(dtype).transpose(1, 2) for _ in range(count)]


def forward(patterns: str, tokens: int, dtype: torch.dtype, heads: int = HEADS):
    inputs = draw(tokens, heads, dtype)

    def call():
        with torch.no_grad():
            iha.attention(*inputs, patterns=patterns)

    return call


def training(patterns: str, tokens: int, dtype: torch.dtype, heads: int = HEADS):
    *inputs, upstream = draw(tokens, heads, dtype, 4)
    inputs = [x.requires_grad_() for x in inputs]
    return lambda: torch.autograd.grad(iha.attention(*inputs, patterns=patterns), inputs, upstream)


def seconds_in_turns(calls: list, rounds: int) -> list[list[float]]:
    """Of each call, a round each; the first, which warms up, is left out."""
    seconds = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, own in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            own.append(time.perf_counter() - start)
    return [own[1:] for own in seconds]


def pattern_over_dense(pattern: str):
    def measure(dtype: torch.dtype, options: argparse.Namespace) -> list[tuple[str, float]]:
        calls = [forward(name, options.tokens, dtype) for name in (pattern, "global")]
        return [("", ratio(*seconds_in_turns(calls, options.rounds)))]

    return measure


def layer(make, divisor: int):
    groups = ["causal", "sliding:256", "global"]

    def measure(dtype: torch.dtype, options: argparse.Namespace) -> list[tuple[str, float]]:
        tokens = options.tokens // divisor
        calls = [make(",".join(f"{group}*4" for group in groups), tokens, dtype)]
        calls += [make(group, tokens, dtype, HEADS // len(groups)) for group in groups]
        whole, *alone = seconds_in_turns(calls, options.rounds)
        return [("", ratio(whole, [sum(each) for each in zip(*alone, strict=True)]))]

    return measure


def window(dtype: torch.dtype, options: argparse.Namespace) -> list[tuple[str, float]]:
    lengths = [options.tokens * factor for factor in (1, 2, 4, 8)]
    calls = [forward("sliding:256", tokens, dtype) for tokens in lengths]
    first, *others = seconds_in_turns(calls, options.rounds)
    return [(f"N {tokens}", ratio(own, first) * lengths[0] / tokens)
            for tokens, own in zip(lengths[1:], others, strict=True)]


def threads(dtype: torch.dtype, options: argparse.Namespace) -> list[tuple[str, float]]:
    works = {"dense": forward("global", options.tokens, dtype), "causal": forward("causal", options.tokens, dtype),
             "dense, with backward": training("global", options.tokens, dtype)}
    before = torch.get_num_threads()

    def on(count: int, call):
        def run():
            torch.set_num_threads(count)
            call()

        return run

    lines = [(name, ratio(*seconds_in_turns([on(1, call), on(2, call)], options.rounds)))
             for name, call in works.items()]
    torch.set_num_threads(before)
    return lines


def gradient_errors(dtype: torch.dtype, options: argparse.Namespace) -> list[tuple[str, float]]:
    if dtype != torch.bfloat16:
        return []
    tokens = min(2048, options.tokens // 2)
    *inputs, upstream = draw(tokens, 4, dtype, 4)

    def gradients(attention, precision: torch.dtype) -> list[torch.Tensor]:
        leaves = [x.to(precision).requires_grad_() for x in inputs]
        return torch.autograd.grad(attention(*leaves), leaves, upstream.to(precision))

    lines = []
    for name, causal in (("dense", False), ("causal", True)):
        def theirs(query, key, value):
            return torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

        def ours(query, key, value):
            return iha.attention(query, key, value, patterns="causal" if causal else "global")

        right = gradients(theirs, torch.float64)
        errors = [[float((found.double() - exact).norm() / exact.norm()) for found, exact in zip(own, right, strict=True)]
                  for own in (gradients(ours, dtype), gradients(theirs, dtype))]
        lines += [(f"{name}, d{letter}", own / other) for letter, own, other in zip("qkv", *errors, strict=True)]
    return lines


MEASURES = {"causal": pattern_over_dense("causal"), "strided": pattern_over_dense("strided:8"),
            "layer": layer(forward, 1), "train-layer": layer(training, 2), "window": window, "threads": threads,
            "gradients": gradient_errors}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="example: python benchmarks/within.py --only causal,threads --rounds 9")
    parser.add_argument("--only", default=",".join(MEASURES), help="some of: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="turns (default %(default)s)")
    parser.add_argument("--tokens", type=int, default=4096, help="instead of 4096, the others in proportion")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    unknown = [name for name in names if name not in MEASURES]
    if unknown:
        parser.error(f"--only {', '.join(unknown)}: expected some of {', '.join(MEASURES)}")
    if options.rounds < 1 or options.tokens < 2:
        parser.error("--rounds and --tokens: expected at least 1 round and 2 tokens")
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD
    except (OSError, AttributeError):
        print("freed memory is not kept on this system: long sequences pay for new pages", file=sys.stderr)
    torch.manual_seed(0)
    print(f"{'measure':12} {'of':22} {'float32':>8} {'bfloat16':>8}")
    for name in names:
        columns = {dtype: dict(MEASURES[name](torch_dtype, options)) for dtype, torch_dtype in DTYPES.items()}
        for line in columns["bfloat16"]:
            figures = (f"{own[line]:8.3f}" if line in own else " " * 8 for own in columns.values())
            print(f"{name:12} {line:22} {' '.join(figures)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""benchmarks/peers.py and within.py on tiny sizes: they print what they say, and every path computes the same function."""

import json
import os
import subprocess
import sys

import pytest

from conftest import SOURCE

TOKENS, HEAD_DIM = 96, 64
UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-9}  # rounding to nearest
KEYS = {"work", "dtype", "path", "tokens", "patterns", "pseudo_heads", "seconds", "seconds_best", "seconds_over_iha",
        "cpu_seconds_over_iha", "flops_per_second", "error", "extra_bytes"}


def bound(line):
    """Of the largest error over the largest value.

    float32: dot products of d terms, then of one term a visible pseudo-key, 4 products deep with the backward pass.
    bfloat16 accumulates in float32 and rounds scores, weights, products and result, with mixing and the backward pass
    four times as many tensors; a score of size 4 rounded once moves its weight by 4 units.
    """
    if line["dtype"] == "float32":
        return 4 * (HEAD_DIM + line["tokens"] * line["pseudo_heads"]) * UNIT["float32"]
    return (8 if line["pseudo_heads"] == 1 else 32) * UNIT["bfloat16"]


def run(torch_library, *arguments, script="peers.py"):
    return subprocess.run(
        [sys.executable, str(SOURCE / "benchmarks" / script), *arguments], capture_output=True, text=True,
        timeout=300, env={**os.environ, "IHA_LIBRARY": str(torch_library)}, check=False)


@pytest.fixture(scope="module")
def result(torch_library):
    finished = run(torch_library, "--tokens", str(TOKENS), "--rounds", "1", "--paths", "grouped,masked,per-head,torch",
                   "--threads", "1", "--no-memory", "--json")
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_every_path_is_measured_in_both_dtypes(result):
    found = {(line["work"], line["dtype"], line["path"]) for line in result["lines"]}
    paths = {"mixed": ("iha", "grouped", "masked", "per-head"), "window": ("iha", "grouped", "masked", "per-head"),
             "causal": ("iha", "torch"), "interleaved": ("iha", "torch"), "interleaved-train": ("iha", "torch")}
    assert found == {(work, dtype, path) for work in paths for dtype in UNIT for path in paths[work]}
    assert result["skipped"] == [] and result["threads"] == 1


def test_lines_have_all_figures(result):
    for line in result["lines"]:
        assert set(line) == KEYS
        assert line["seconds"] >= line["seconds_best"] > 0 and line["flops_per_second"] > 0
        assert line["extra_bytes"] is None
        assert line["path"] != "iha" or line["seconds_over_iha"] == line["cpu_seconds_over_iha"] == 1


def test_every_path_is_right(result):
    for line in result["lines"]:
        assert line["error"] <= bound(line), line


def test_slices_of_keys_are_right_in_blocks_smaller_than_the_sequence(torch_library):
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from peer_measure import largest_error
from peer_paths import grouped
from peer_work import STANDARD, draw, reference
for name in ("mixed", "window"):
    work = STANDARD[name].resized(96)
    inputs = draw(work, torch.float32)
    right = reference(work, inputs, torch.arange(work.tokens))
    for block in (7, 16, 95):
        print(largest_error((grouped(work, inputs, block).forward(),), right))
"""
    finished = subprocess.run(
        [sys.executable, "-c", program, str(SOURCE / "benchmarks")], capture_output=True, text=True, timeout=300,
        env={**os.environ, "IHA_LIBRARY": str(torch_library)}, check=False)
    assert finished.returncode == 0, finished.stderr
    errors = [float(line) for line in finished.stdout.split()]
    assert len(errors) == 6
    assert max(errors) <= bound({"dtype": "float32", "tokens": 96, "pseudo_heads": 1})


def test_windows_shrink_with_the_tokens(result):
    patterns = {line["work"]: line["patterns"] for line in result["lines"]}
    assert patterns["window"] == "sliding:3*12"
    assert patterns["mixed"] == "causal*4,sliding:6*4,global*4"


def test_the_peak_of_a_mask_contains_the_mask(torch_library):
    tokens = 1024
    finished = run(torch_library, "--work", "mixed", "--dtype", "float32", "--tokens", str(tokens), "--rounds", "1",
                   "--paths", "masked", "--threads", "1", "--json")
    assert finished.returncode == 0, finished.stderr
    memory = {line["path"]: line["extra_bytes"] for line in json.loads(finished.stdout)["lines"]}
    mask = 12 * tokens * tokens  # a byte a pair
    assert memory["masked"] >= mask > memory["iha"]


@pytest.mark.parametrize("arguments", [["--work", "nothing"], ["--rounds", "0"], ["--dtype", "int8"]])
def test_wrong_arguments_are_named(torch_library, arguments):
    finished = run(torch_library, *arguments)
    assert finished.returncode == 2
    assert arguments[1] in finished.stderr and "expected" in finished.stderr


def test_within_compares_the_engine_with_itself(torch_library):
    finished = run(torch_library, "--tokens", "64", "--rounds", "1", script="within.py")
    assert finished.returncode == 0, finished.stderr
    header, *lines = finished.stdout.splitlines()
    assert header.split() == ["measure", "of", "float32", "bfloat16"]
    assert [line[:12].strip() for line in lines] == (
        ["causal", "strided", "layer", "train-layer"] + ["window"] * 3 + ["threads"] * 3 + ["gradients"] * 6)
    errors = {line[13:35].strip(): float(line.split()[-1]) for line in lines if line.startswith("gradients")}
    assert set(errors) == {f"{work}, d{letter}" for work in ("dense", "causal") for letter in "qkv"}
    # Both round the same weights and score gradients; the engine rounds sums over queries once, torch more often.
    assert all(ratio < 1.25 for ratio in errors.values()), errors
    assert all(float(figure) > 0 for line in lines for figure in line[36:].split())


def test_within_refuses_unknown_measures(torch_library):
    finished = run(torch_library, "--only", "causal,flop", script="within.py")
    assert finished.returncode == 2
    assert "--only flop: expected some of causal, strided" in finished.stderr

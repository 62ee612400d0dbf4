"""Clocks and memory of the peer benchmarks: paths in turns within one process, peaks each in a process of its own."""

import concurrent.futures
import ctypes
import dataclasses
import gc
import multiprocessing
import re
import statistics
import time

import torch

from peer_paths import PATHS, Unavailable, prepare
from peer_work import DTYPES, Work, draw, reference


@dataclasses.dataclass
class Timing:
    path: str
    error: float  # largest difference from float64, over the largest right value, of the worst result
    seconds: list[float] = dataclasses.field(default_factory=list)
    cpu_seconds: list[float] = dataclasses.field(default_factory=list)  # of all threads of the process


def largest_error(found: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> float:
    return max(float((a.double() - b).abs().max() / b.abs().max()) for a, b in zip(found, right, strict=True))


def error_rows(work: Work) -> torch.Tensor:
    """At most 64 queries, the first and the last among them."""
    return torch.linspace(0, work.tokens - 1, min(64, work.tokens)).long().unique()


def errors(work: Work, dtype: str, names: list[str]) -> dict[str, float]:
    """Of forward and backward together, on 128 tokens at most, where exact gradients are cheap."""
    small = work.resized(min(work.tokens, 128))
    inputs = draw(small, DTYPES[dtype])
    right = reference(small, inputs, torch.arange(small.tokens))
    return {name: largest_error(prepare(name, small, inputs)[1](), right) for name in names}


def in_turns(work: Work, dtype: str, names: list[str], rounds: int, skipped: dict[str, str]) -> list[Timing]:
    """Each path once a round. Errors of forward work are those of 64 queries of the very size that is timed.

    What cannot run lands in `skipped` with the reason.
    """
    inputs = draw(work, DTYPES[dtype])
    calls = {}
    for name in names:
        try:
            calls[name] = prepare(name, work, inputs)[1]
        except Unavailable as reason:
            skipped[name] = str(reason)
    rows = error_rows(work)
    known = errors(work, dtype, list(calls)) if work.backward else {}
    right = None if work.backward else reference(work, inputs, rows)
    timings = []
    for name, call in calls.items():  # also warms up
        (output, *_) = call()
        timings.append(Timing(name, known[name] if work.backward else largest_error((output[:, :, rows],), right)))
    for _ in range(rounds):
        for timing in timings:
            time.sleep(0.02)  # worker threads of the turn before stop spinning
            start, cpu_start = time.perf_counter(), time.process_time()
            calls[timing.path]()
            timing.seconds.append(time.perf_counter() - start)
            timing.cpu_seconds.append(time.process_time() - cpu_start)
    return timings


def ratio(seconds: list[float], to: list[float]) -> float:
    """Median over the rounds of one path's time over another's: noise hits both alike."""
    return statistics.median(a / b for a, b in zip(seconds, to, strict=True))


def _status(field: str) -> int:
    """A size of /proc/self/status in bytes."""
    with open("/proc/self/status", encoding="ascii") as status:
        return int(re.search(rf"^{field}:\s+(\d+) kB", status.read(), re.MULTILINE).group(1)) * 1024


def _measure_peak(name: str, work: Work, dtype: str, threads: int) -> int:
    torch.set_num_threads(threads)
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 17)  # M_MMAP_THRESHOLD, fixed: what is freed leaves the process at once
    small = work.resized(min(work.tokens, 128))
    inputs = draw(small, DTYPES[dtype])
    if not PATHS[work.name][name](small, inputs).compiles:
        prepare(name, small, inputs)[1]()  # threads and code pages, but no buffers of the full size
    inputs = draw(work, DTYPES[dtype])
    path, call = prepare(name, work, inputs)
    if path.compiles:
        call()
    gc.collect()
    libc.malloc_trim(0)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as clear:
        clear.write("5")  # the peak starts anew
    before = _status("VmRSS")
    returned = call()
    returned_bytes = sum(tensor.numel() * tensor.element_size() for tensor in returned)
    return max(0, _status("VmHWM") - before - returned_bytes) + path.held_bytes


def peak_bytes(name: str, work: Work, dtype: str) -> int:
    """Peak memory of one call beyond its inputs and what it returns; masks that a path keeps belong to it.

    In a fresh process, since allocators and thread pools keep what earlier calls took. Raises Unavailable.
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(_measure_peak, name, work, dtype, torch.get_num_threads()).result()
        except concurrent.futures.process.BrokenProcessPool:
            raise Unavailable("its process ended, most likely for lack of memory") from None
        except OSError as error:
            raise Unavailable(f"peak memory needs Linux's /proc: {error}") from None

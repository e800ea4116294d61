"""What sampling stacks costs: programs of Python, NumPy and deep calls, bare, sampled, and under pyinstrument.

A sample is the processor time of all threads of the process in a fixed piece of work, which other programs lengthen
less than the clock. Both profilers sample every millisecond. The time that flopscope attributes to the line that did
the work is checked against the clock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from harness import Report, arguments, interleave, optional, ratio, spread

from flopscope import _core

ROUNDS, LIMIT = 21, 1.02


def python() -> float:
    """A loop, with calls of a small function."""

    def square(x: int) -> int:
        return x * x

    return float(sum(square(i) for i in range(1_000_000)))


def arrays() -> float:
    """Ops of NumPy on small and on large arrays."""
    small, large = np.ones(100), np.ones((300, 300))
    for _ in range(60):
        large = large @ large / 300
        for _ in range(300):
            small = small * 1.0001
    return float(large[0, 0] + small[0])


def deep() -> float:
    """A loop below 150 calls, as below the modules of a model."""

    def call(depth: int) -> float:
        return call(depth - 1) if depth else python()

    return call(150)


WORK: dict[str, Callable[[], float]] = {"Python": python, "NumPy": arrays, "150 calls deep": deep}


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["work", "how", "ms", "low", "high", "x bare", "samples per s"]
    report = Report("stack_sampling", columns, options.out)
    peer = optional("pyinstrument")
    if peer is None:
        report.note("pyinstrument is not installed: no row for it.")
    for name, work in WORK.items():
        expected, rates = work(), list[float]()
        cases = {"bare": partial(bare, work, expected), "sampled": partial(sampled, work, expected, rates)}
        if peer is not None:
            cases["pyinstrument"] = partial(under_peer, peer, work, expected)
        samples = interleave(cases, ROUNDS)
        report.keep(name, samples, ours="sampled", time="processor")
        for who, values in samples.items():
            over = "" if who == "bare" else f"{ratio(values, samples['bare']).median:.4f}"
            rate = f"{spread(rates).median:.0f}" if who == "sampled" else ""
            report.row(name, who, *spread(values).cells(2, 1e3), over, rate)
        report.target(f"{name}: sampled / bare", ratio(samples["sampled"], samples["bare"]).median, LIMIT, "×")
    report.finish()


def timed(work: Callable[[], float], expected: float) -> float:
    begin = time.process_time()
    assert work() == expected
    return time.process_time() - begin


def bare(work: Callable[[], float], expected: float) -> float:
    return timed(work, expected)


def sampled(work: Callable[[], float], expected: float, rates: list[float]) -> float:
    sampler = _core.StackSampler()
    begin = time.perf_counter()
    sampler.start()
    took = timed(work, expected)
    sampler.stop()
    lasted = time.perf_counter() - begin
    store = _core.Store()
    sampler.pour(store, (), (), (), ())
    _, _, attributed, _, _, _ = store.lines()["groups"]["main"]
    assert 0.9 * lasted < attributed / 1e9 <= lasted, (attributed, lasted)
    rates.append(sampler.report["samples"] / lasted)
    return took


def under_peer(peer: Any, work: Callable[[], float], expected: float) -> float:
    profiler = peer.Profiler(interval=0.001)
    profiler.start()
    took = timed(work, expected)
    profiler.stop()
    return took


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    main()

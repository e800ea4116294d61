"""Overhead of recording Python stacks per function call: fs.profile(with_stack=True) and its peers.

A loop calls an empty function; the bare loop's time is subtracted per round. "an empty C function" is the time that
CPython takes to call a profile function, the minimum overhead of any tracer. torch.profiler records the same functions.
Starting and ending a profile are not timed.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from harness import Report, Sampler, arguments, interleave, optional, spread

import flopscope as fs

CALLS, ROUNDS, TORCH_CALLS, TORCH_ROUNDS = 1_000_000, 9, 200_000, 5

Opener = Callable[[], AbstractContextManager[object]]


def main() -> None:
    options = arguments(__doc__ or "")
    report = Report("stacks", ["loop", "ns per call", "low", "high", "added, ns"], options.out, options.device)
    with recorded() as prof:
        loop(nullcontext, 1000)()
    assert len(prof) >= 1000 and prof.dropped == 0, f"{len(prof)} events of 1000 calls, {prof.dropped} lost"
    fill(
        report,
        "flopscope",
        {
            "bare": loop(nullcontext, CALLS),
            "an empty C function": loop(empty_hook, CALLS),
            "fs.profile(with_stack=True)": loop(recorded, CALLS),
            "sys.setprofile, a Python function": loop(python_hook, CALLS),
        },
        ROUNDS,
    )
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: no rows for it.")
    else:
        cpu = [torch.profiler.ProfilerActivity.CPU]
        fill(
            report,
            "torch",
            {
                "bare, before torch": loop(nullcontext, TORCH_CALLS),
                "torch.profiler, with_stack": loop(
                    lambda: torch.profiler.profile(activities=cpu, with_stack=True), TORCH_CALLS
                ),
            },
            TORCH_ROUNDS,
        )
    report.finish()


def recorded() -> Any:
    return fs.profile(with_stack=True, activities=[fs.ProfilerActivity.CPU])


@contextmanager
def empty_hook() -> Iterator[None]:
    """Install libc's abs() as the profile function; given a NULL object it returns 0, which means success."""
    install = ctypes.pythonapi.PyEval_SetProfile
    install.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    install.restype = None
    install(ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p), None)
    try:
        yield
    finally:
        install(None, None)


@contextmanager
def python_hook() -> Iterator[None]:
    sys.setprofile(lambda frame, event, arg: None)
    try:
        yield
    finally:
        sys.setprofile(None)


def empty() -> None:
    pass


def loop(opener: Opener, calls: int) -> Sampler:
    """Return a sampler of the seconds per call inside the context from ``opener``."""

    def sample() -> float:
        with opener():
            start = time.perf_counter()
            for _ in range(calls):
                empty()
            elapsed = time.perf_counter() - start
        return elapsed / calls

    return sample


def fill(report: Report, case: str, cases: dict[str, Sampler], rounds: int) -> None:
    """Add a row per case. The first is the bare loop; the others' overhead over it is computed per round."""
    samples = interleave(cases, rounds, warmup=1)
    report.keep(case, samples, ours="fs.profile(with_stack=True)")
    bare = next(iter(samples))
    for who, values in samples.items():
        summary = spread(values)
        added = spread([with_it - without for with_it, without in zip(values, samples[bare], strict=True)])
        report.row(
            who,
            f"{summary.median * 1e9:.0f}",
            f"{summary.low * 1e9:.0f}",
            f"{summary.high * 1e9:.0f}",
            "" if who == bare else f"{added.median * 1e9:+.0f}",
        )


if __name__ == "__main__":
    main()

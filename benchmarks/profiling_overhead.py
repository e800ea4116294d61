"""Overhead of profiling per op: loops of small adds, bare and under fs.profile(), and torch's under torch.profiler.

Times are host times of the loop, without starting and ending the profile or waiting for the device. torch is measured
last, since its profiler leaves hooks in the driver that slow down later launches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from harness import Report, Sampler, arguments, interleave, optional, spread

import flopscope as fs

ELEMENTS, OPS, SEGMENT, ROUNDS, TORCH_ROUNDS = 1024, 2000, 500, 15, 5

Opener = Callable[[], AbstractContextManager[object]]


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    columns = ["loop", "us per op", "low", "high", "added, us"]
    report = Report("profiling_overhead", columns, options.out, options.device)
    rng = np.random.default_rng(0)
    x, y = (rng.random(ELEMENTS, dtype=np.float32) for _ in range(2))
    a, b = (fs.from_numpy(array).to(options.device) for array in (x, y))
    assert np.array_equal(fs.add(a, b).to("cpu").numpy(), x + y), "fs.add is wrong"
    wait = partial(fs.synchronize, options.device)
    measure = partial(loop, partial(fs.add, a, b), wait)
    with fs.profile() as prof:
        measure(nullcontext)()
    assert len(prof) >= OPS and prof.dropped == 0, f"{len(prof)} events of {OPS} ops, {prof.dropped} lost"
    fill(
        report,
        "flopscope",
        {
            "fs.add": measure(nullcontext),
            "fs.add, fs.profile()": measure(fs.profile),
            "fs.add, shapes and memory": measure(partial(fs.profile, record_shapes=True, profile_memory=True)),
        },
        ROUNDS,
    )
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: no rows for it.")
    else:
        add_torch(torch, report, x, y, options.device, wait)
    report.finish()


def add_torch(torch: Any, report: Report, x: Any, y: Any, device: str, wait: Callable[[], object]) -> None:
    torch.set_num_threads(fs.num_threads())
    measure = partial(loop, partial(torch.add, torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)), wait)
    kinds = torch.profiler.ProfilerActivity
    both = [kinds.CPU, kinds.CUDA] if device == "cuda" else [kinds.CPU]
    cases = {"torch.add": measure(nullcontext)}
    if device == "cuda":
        cases["torch.add, kernels only"] = measure(partial(torch.profiler.profile, activities=[kinds.CUDA]))
    cases["torch.add, torch.profiler"] = measure(partial(torch.profiler.profile, activities=both))
    cases["torch.add, shapes and memory"] = measure(
        partial(torch.profiler.profile, activities=both, record_shapes=True, profile_memory=True)
    )
    fill(report, "torch", cases, TORCH_ROUNDS)


def loop(call: Callable[[], object], wait: Callable[[], object], opener: Opener) -> Sampler:
    """Return a sampler of host seconds per op for ``OPS`` calls in ``opener``'s context, waiting every ``SEGMENT``."""

    def sample() -> float:
        elapsed = 0.0
        with opener():
            for _ in range(OPS // SEGMENT):
                start = time.perf_counter()
                for _ in repeat(None, SEGMENT):
                    call()
                elapsed += time.perf_counter() - start
                wait()
        return elapsed / OPS

    return sample


def fill(report: Report, case: str, cases: dict[str, Sampler], rounds: int) -> None:
    """Add a row per case. The first is the bare loop; the others' overhead over it is computed per round."""
    samples = interleave(cases, rounds, warmup=1)
    report.keep(case, samples, ours="fs.add, ")
    bare = next(iter(samples))
    for who, values in samples.items():
        summary = spread(values)
        added = spread([with_it - without for with_it, without in zip(values, samples[bare], strict=True)])
        report.row(
            who,
            f"{summary.median * 1e6:.2f}",
            f"{summary.low * 1e6:.2f}",
            f"{summary.high * 1e6:.2f}",
            "" if who == bare else f"{added.median * 1e6:+.2f}",
        )


if __name__ == "__main__":
    main()

"""Cost of capturing: empty kernels launched from a loop in C, bare, under fs.profile() and under torch.profiler;
the time from stop to a printed table; and ten million kernels in one profile.

Times of launches are the host's. The loop waits for the device every 500 launches, so that the queue never fills.
"CUPTI alone" is a client that requests the same records and discards them: the minimum overhead of any profiler based
on CUPTI. torch is measured last, since its profiler stays attached.
"""

from __future__ import annotations

import ctypes
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from harness import HERE, Report, Sampler, arguments, build_c_library, build_cuda_library, interleave, optional, spread

import flopscope as fs

SEGMENT, LAUNCHES, ROUNDS, TORCH_ROUNDS = 500, 20_000, 11, 5  # LAUNCHES a round: over 200 000 a case
OPS, TORCH_OPS = 200_000, 5_000
MANY = 10_000_000
Launch = Callable[[int], float]
Opener = Callable[[], AbstractContextManager[object]]


def main() -> None:
    options = arguments(__doc__ or "", ("cuda",))
    report = Report("capture", ["launch, us", "median", "low", "high", "added, us"], options.out, "cuda")
    torch = optional("torch")
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        launch = launcher(Path(folder))
        for _ in range(20):
            launch(SEGMENT)
        before = [launches(launch, nullcontext)() for _ in range(5)]
        floor = load_floor(Path(folder))
        bare = add_launches(report, launch, floor)
        add_after(report, launch, before)
        ours = add_table(report)
        add_many(report, launch)
        if torch is None:
            report.note("torch is not installed: no rows for it.")
        else:
            theirs = add_torch(report, torch, launch, bare)
            report.keep("an op, from stop to a printed table", {"flopscope": ours, "torch": theirs}, "s", "flopscope")
    report.finish()


def launcher(folder: Path) -> Launch:
    library = ctypes.CDLL(str(build_cuda_library(HERE / "bare_launch.cu", folder)))
    library.launch_empty_kernels.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_double)]

    def launch(count: int) -> float:
        seconds = ctypes.c_double()
        error = library.launch_empty_kernels(count, ctypes.byref(seconds))
        if error != 0:
            raise RuntimeError(f"launching an empty kernel failed with CUDA error {error}")
        return seconds.value

    return launch


def launches(launch: Launch, opener: Opener) -> Sampler:
    """Return a sampler of host seconds per launch inside the context from ``opener``."""

    def sample() -> float:
        with opener():
            launch(SEGMENT)  # the first launches of a profile set up CUPTI
            return sum(launch(SEGMENT) for _ in range(LAUNCHES // SEGMENT)) / LAUNCHES

    return sample


def load_floor(folder: Path) -> Any:
    from flopscope.support.package import find_library

    library = ctypes.CDLL(str(build_c_library(HERE / "cupti_floor.c", folder)))
    if library.floor_load(find_library("cupti").encode()) != 0:
        raise RuntimeError("CUPTI could not be loaded")
    return library


@contextmanager
def cupti_alone(floor: Any, calls: bool = False) -> Iterator[None]:
    if (code := floor.floor_start(calls)) != 0:
        raise RuntimeError(f"CUPTI alone failed with {code}")
    try:
        yield
    finally:
        floor.floor_stop()


def add_launches(report: Report, launch: Launch, floor: Any) -> list[float]:
    cases: dict[str, Sampler] = {
        "bare": launches(launch, nullcontext),
        "CUPTI alone, kernels": launches(launch, partial(cupti_alone, floor)),
        "fs.profile(), kernels": launches(launch, partial(fs.profile, record_api_calls=False, timer="cupti")),
        "CUPTI alone, API calls too": launches(launch, partial(cupti_alone, floor, calls=True)),
        "fs.profile(), API calls too": launches(launch, partial(fs.profile, timer="cupti")),
    }
    samples = interleave(cases, ROUNDS)
    added = fill(report, samples, "launch of an empty kernel", samples["bare"])
    report.target("fs.profile() adds to a launch, kernels only", added["fs.profile(), kernels"], 0.3, "us")
    report.target("fs.profile() adds to a launch, API calls too", added["fs.profile(), API calls too"], 0.7, "us")
    with fs.profile(timer="cupti") as prof:
        for _ in range(10):
            launch(SEGMENT)
    counts = {row.key: row.count for row in prof.key_averages(peaks="none")}
    kernels = sum(count for key, count in counts.items() if "empty_kernel" in key)
    assert kernels == counts["cudaLaunchKernel"] == 10 * SEGMENT, counts
    return samples["bare"]


def fill(report: Report, samples: dict[str, list[float]], case: str, bare: list[float]) -> dict[str, float]:
    """Add a row per case. Return each case's overhead over `bare` in µs, by round if the numbers of rounds match."""
    report.keep(case, samples, ours="fs.profile()")
    added = {}
    for who, values in samples.items():
        baseline = bare if len(values) == len(bare) else [spread(bare).median] * len(values)
        added[who] = spread([a - b for a, b in zip(values, baseline, strict=True)]).median * 1e6
        report.row(who, *spread(values).cells(3, 1e6), "" if values is bare else f"{added[who]:.3f}")
    return added


def add_after(report: Report, launch: Launch, before: list[float]) -> None:
    after = [launches(launch, nullcontext)() for _ in range(5)]
    report.keep("launches before and after profiles", {"before": before, "after": after})
    report.row("bare, before any profile", *spread(before).cells(3, 1e6), "")
    report.row("bare, after fs.profile()", *spread(after).cells(3, 1e6), "")
    over = spread(after).median / spread(before).median
    report.target("a launch after profiles, over one before", over, 1.05, "x")


def add_table(report: Report) -> list[float]:
    """Add the time from the end of a profile of small adds to its printed table. Return its seconds per op."""
    x, y = (fs.rand(1024, device="cuda") for _ in range(2))
    seconds: dict[str, list[float]] = {"stop": [], "key_averages": [], "grouping": [], "text": [], "all": []}
    for _ in range(4):
        with fs.profile(timer="cupti", record_shapes=True) as prof:
            for _ in repeat(None, OPS):
                fs.add(x, y)
            times = [time.perf_counter()]
            prof.stop()
            times.append(time.perf_counter())
        table = prof.key_averages(peaks="datasheet")
        times.append(time.perf_counter())
        text = table.table(sort_by="self_cuda_time_total", row_limit=10)
        times.append(time.perf_counter())
        counts = {row.key: row.count for row in table}
        assert counts["flopscope::add"] == counts["cudaLaunchKernel"] == OPS and prof.dropped == 0, counts
        assert "flopscope::add" in text
        for name, a, b in (("stop", 0, 1), ("key_averages", 1, 2), ("text", 2, 3), ("all", 0, 3)):
            seconds[name].append(times[b] - times[a])
        seconds["grouping"].append(table.facts.grouping_seconds)
    events = len(prof)
    report.keep("from stop to a printed table", seconds, events=events)
    for name, values in seconds.items():
        report.row(f"{events} events: {name}, ms", *spread(values).cells(1, 1e3), "")
    report.target("from stop to a printed table", spread(seconds["all"]).median, 0.5, "s")
    report.target("grouping, part of that time", spread(seconds["grouping"]).median, 0.06, "s")
    return [value / OPS for value in seconds["all"]]


def add_many(report: Report, launch: Launch) -> None:
    def used() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

    start, began = used(), time.perf_counter()
    peaks = []
    with fs.profile(timer="cupti", record_api_calls=False) as prof:
        for _ in range(10):
            launch(MANY // 10)
            peaks.append(used())
        ran = time.perf_counter()
        prof.stop()
    stopped = time.perf_counter()
    kernels = sum(row.count for row in prof.key_averages(peaks="none") if row.device_type == "cuda")
    assert kernels == MANY and prof.dropped == 0, f"{kernels} kernels, {prof.dropped} lost"
    resident = {"resident": [float(mib) for mib in peaks]}
    facts: dict[str, Any] = {
        "before": start,
        "events": len(prof),
        "seconds": ran - began,
        "stop_seconds": stopped - ran,
    }
    report.keep("ten million kernels: resident MiB after each tenth", resident, "MiB", **facts)
    times = f"{ran - began:.1f} s", f"stop {stopped - ran:.2f} s"
    report.row(f"{MANY} kernels, none lost", *times, f"{len(prof)} events", "")
    memory = f"{start} MiB", f"{peaks[-1]} MiB"
    report.row("memory before, at the end", *memory, f"{len(prof) * 51 >> 20} MiB events", "")


def add_torch(report: Report, torch: Any, launch: Launch, bare: list[float]) -> list[float]:
    """Add torch's launches and its time from stop to a printed table. Return its seconds per op."""
    kinds = torch.profiler.ProfilerActivity
    cases = {
        "torch.profiler, kernels": launches(launch, partial(torch.profiler.profile, activities=[kinds.CUDA])),
        "torch.profiler, CPU and CUDA": launches(launch, partial(torch.profiler.profile)),
    }
    fill(report, interleave(cases, TORCH_ROUNDS), "launch of an empty kernel, torch", bare)
    x, y = (torch.from_numpy(np.random.default_rng(0).random(1024, dtype=np.float32)).cuda() for _ in range(2))
    prof = torch.profiler.profile(record_shapes=True)
    prof.start()
    for _ in repeat(None, TORCH_OPS):
        torch.add(x, y)
    torch.cuda.synchronize()
    start = time.perf_counter()
    prof.stop()
    prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=10)
    elapsed = time.perf_counter() - start
    report.keep("torch: from stop to a printed table", {"seconds": [elapsed]}, ops=TORCH_OPS)
    an_op = f"{elapsed / TORCH_OPS * 1e6:.0f} us per op"
    report.row(f"torch: {TORCH_OPS} ops, stop to table", f"{elapsed:.2f} s", an_op, "", "")
    return [elapsed / TORCH_OPS]


if __name__ == "__main__":
    main()

"""Time to build a table of 10 thousand to 10 million events, and of torch.profiler's key_averages() for comparison."""

from __future__ import annotations

import time
from typing import Any

from harness import HERE, Report, arguments, optional, run_c, spread

SOURCES = [
    "csrc/base/*.c",
    "csrc/store/*.c",
    "csrc/ops/**/*.c",
    "csrc/device/*.c",
    "csrc/work/**/*.c",
    "csrc/roofline/*.c",
    "csrc/table/*.c",
    "kernels/cuda_stub.c",
]
TARGET_EVENTS, TARGET_MS = 600_000, 60
TORCH_OPS, TORCH_SAMPLES = 5000, 3


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    lines = run_c(HERE / "grouping.c", SOURCES)
    report = Report("grouping", ["events", "table, ms", "low", "high", "ns per event"], options.out, options.device)
    for events in sorted({int(line["events"]) for line in lines}):
        values = [float(line["ns"]) for line in lines if int(line["events"]) == events]
        fill(report, "flopscope", events, values)
        if events == TARGET_EVENTS:
            report.target(f"a table of {events:,} events", spread(values).median / 1e6, TARGET_MS, "ms")
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: no row for its key_averages().")
    else:
        theirs = add_torch(torch, report, options.device)
        ours = [float(line["ns"]) / TARGET_EVENTS for line in lines if int(line["events"]) == TARGET_EVENTS]
        report.keep("an event", {"flopscope": ours, "torch": theirs}, "ns", "flopscope")
    report.finish()


def add_torch(torch: Any, report: Report, device: str) -> list[float]:
    """Add torch's first key_averages() of a profile, which includes converting its records to events.

    Return its ns per event.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    x = torch.rand(1024, device=device)
    values, events = [], 0
    for turn in range(-1, TORCH_SAMPLES):
        with torch.profiler.profile(activities=activities) as prof:
            for _ in range(TORCH_OPS if turn >= 0 else 10):
                torch.add(x, x)
        start = time.perf_counter()
        prof.key_averages()
        if turn >= 0:
            values.append((time.perf_counter() - start) * 1e9)
            events = len(prof.events())
    fill(report, "torch", events, values)
    return [value / events for value in values]


def fill(report: Report, who: str, events: int, values: list[float]) -> None:
    report.keep(f"{events} events", {who: values}, "ns")
    times = spread(values)
    report.row(f"{events:,}, {who}", *times.cells(2, 1e-6), f"{times.median / events:.1f}")


if __name__ == "__main__":
    main()

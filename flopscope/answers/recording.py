"""What recording itself cost: torch.profiler slows the host, and with it a program that its host holds up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flopscope.answers.analysis import Analysis

__all__ = ["ALLOCATIONS", "LATE", "Recording", "recording_cost"]

ALLOCATIONS = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cudaMallocAsync", "cudaFreeAsync")
"""Calls of the driver that allocate and free memory of a device."""
LATE = ("host", "compile", "sync")
"""The causes of idleness of a device that waits for a host that recording slows."""

COST = {"op": 3.2, "runtime": 2.0, "memory": 1.2, "frame": 1.0}
"""µs of host time for each recorded event, on a host on which a kernel launch takes CALL µs. Fitted to the programs of
benchmarks/faults.py and their traces (docs/answers.md, "What recording costs"); right within a factor of 1.5."""
SHAPES = 0.3
"""µs for the shapes of an op."""
CALL = 8.5
"""µs of a recorded launch call on the host of that fit: a slower host records more slowly as well."""
OWN = {"op": 0.1, "runtime": 0.7, "memory": 0.0, "frame": 0.1}
"""The same for flopscope's own recording (docs/performance.md)."""


class Recording(NamedTuple):
    """µs per step."""

    host: float
    """Host time spent on recording, as estimated from the number of events."""
    slowed: float
    """Part of it by which the step is longer than without recording."""
    idle: float
    """Time in which the device waited for the profiler's own work, which the trace has as such."""
    is_bound: bool = False
    """Whether the estimate explains all idle time by the host but that of the launches, so that it is a bound."""

    @property
    def delay(self) -> float:
        """Time by which the step is longer than without recording."""
        return self.slowed + self.idle


def recording_cost(analysis: Analysis) -> Recording:
    """Estimate the cost of recording from the number of recorded events of each kind.

    The host's time becomes the program's only where the device waited for the host: it slows the step by at most the
    idle time for which the host is the cause, less what the launches that end it take themselves.
    """
    steps = analysis.alike
    recorded = "trace" in analysis.columns["timing_source"]
    costs = COST if recorded else OWN
    events = {kind: sum(step.events.get(kind, 0) for step in steps) / max(len(steps), 1) for kind in costs}
    host = sum(cost * events[kind] for kind, cost in costs.items())
    if recorded:
        shapes = SHAPES * any(step.described for step in steps)  # fitted to all ops, also to those without inputs
        host = (host + shapes * events["op"]) * _slowness(analysis)
    late = _late(analysis, costs["runtime"] * _slowness(analysis)) if analysis.on_device else 0.0
    return Recording(host, min(host, late), analysis.idle("recording"), host > late > 0)


def _late(analysis: Analysis, cost: float) -> float:
    """Return the idle time by the host, without what the driver itself takes: for the launches that end it, and to
    allocate and free memory. cost: µs of recording a call."""
    launch = 0.0 if math.isnan(analysis.launch_time) else max(analysis.launch_time - cost, 0.0)
    gaps = [gap for gap in analysis.gaps if gap.cause in LATE]
    time = sum(max(gap.time - launch * gap.count, 0.0) for gap in gaps)
    for name in ALLOCATIONS:
        time -= max(analysis.row_sum(name, "cpu_time_total") - cost * analysis.row_sum(name, "count"), 0.0)
    return max(time, 0.0)


def _slowness(analysis: Analysis) -> float:
    """Return how much slower the host is than that of the fit, by its launch calls."""
    launch = analysis.launch_time
    return 1.0 if math.isnan(launch) else min(max(launch / CALL, 0.3), 3.0)

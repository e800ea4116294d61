"""What recording itself cost: torch.profiler slows the host, and with it a program that its host holds up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

ALLOCATIONS = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cudaMallocAsync", "cudaFreeAsync")
"""Calls of the driver that allocate and free memory of a device."""
LATE = ("host", "compile", "sync")
"""The causes of idleness of a device that waits for a host that recording slows."""

COST = {"op": 3.2, "runtime": 2.0, "memory": 1.2, "frame": 1.0}
"""µs of host time for each recorded event, on a host on which a kernel launch takes CALL µs. Fitted to the programs of
docs/predicted.md and their traces (docs/answers.md, "What recording costs"); right within a factor of 1.5."""
SHAPES = 0.3
"""µs for the shapes of an op."""
CALL = 8.5
"""µs of a recorded launch call on the host of that fit: a slower host records more slowly as well."""
OWN = {"op": 0.1, "runtime": 0.7, "memory": 0.0, "frame": 0.1}
"""The same for flopscope's own recording (docs/performance.md)."""
RECORDED = tuple(COST)
"""The kinds of host events whose recording takes time."""


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


def recording_cost(
    by_torch: bool,
    events: Mapping[str, float],
    has_shapes: bool,
    launch_time: float,
    idle: float,
    late: Sequence[tuple[float, float]],
    allocations: Sequence[tuple[float, float]],
) -> Recording:
    """Estimate the cost of recording from the number of recorded events of each kind.

    The host's time becomes the program's only where the device waited for the host: it slows the step by at most the
    idle time for which the host is the cause, less what the launches that end it take themselves.

    by_torch: torch.profiler recorded, not flopscope. events: per step, by kind (RECORDED). launch_time: median of the
    calls that launch; NaN if unknown. idle: caused by the profiler's own work. late, allocations: time and number of
    the idle times that the host caused (LATE), and of the calls that allocate (ALLOCATIONS); none without a device.
    Times are in µs per step.
    """
    costs, is_known = COST if by_torch else OWN, not math.isnan(launch_time)
    slowness = min(max(launch_time / CALL, 0.3), 3.0) if is_known else 1.0  # of the host, over that of the fit
    host = sum(cost * events[kind] for kind, cost in costs.items())
    if by_torch:
        shapes = SHAPES * has_shapes  # fitted to all ops, also to those without inputs
        host = (host + shapes * events["op"]) * slowness
    # Not the idle time in which the driver itself works: for the launches that end it, and to allocate and free memory.
    call = costs["runtime"] * slowness
    launch = max(launch_time - call, 0.0) if is_known else 0.0
    waited = sum(max(time - launch * count, 0.0) for time, count in late)
    for spent, count in allocations:
        waited -= max(spent - call * count, 0.0)
    waited = max(waited, 0.0)
    return Recording(host, min(host, waited), idle, host > waited > 0)

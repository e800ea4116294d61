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


class Recorded(NamedTuple):
    """The facts of a profile from which the cost of its recording follows; times in µs per step."""

    by_torch: bool
    """Whether torch.profiler recorded, not flopscope."""
    events: Mapping[str, float]
    """Number of recorded host events per step, by kind (RECORDED)."""
    has_shapes: bool
    """Whether ops have shapes."""
    launch_time: float
    """Median time of the calls that launch; NaN if unknown."""
    idle: float
    """Idle time caused by the profiler's own work."""
    late: Sequence[tuple[float, float]]
    """Time and number of the idle times caused by the host (LATE); none without a device."""
    allocations: Sequence[tuple[float, float]]
    """Time and number of the calls that allocate (ALLOCATIONS); none without a device."""


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


def recording_cost(of: Recorded) -> Recording:
    """Estimate the cost of recording from the number of recorded events of each kind.

    The host's time becomes the program's only where the device waited for the host: it slows the step by at most the
    idle time for which the host is the cause, less what the launches that end it take themselves.
    """
    costs, is_known = COST if of.by_torch else OWN, not math.isnan(of.launch_time)
    slowness = min(max(of.launch_time / CALL, 0.3), 3.0) if is_known else 1.0  # of the host, over that of the fit
    host = sum(cost * of.events[kind] for kind, cost in costs.items())
    if of.by_torch:
        shapes = SHAPES * of.has_shapes  # fitted to all ops, also to those without inputs
        host = (host + shapes * of.events["op"]) * slowness
    # Not the idle time in which the driver itself works: for the launches that end it, and to allocate and free memory.
    call = costs["runtime"] * slowness
    launch = max(of.launch_time - call, 0.0) if is_known else 0.0
    late = sum(max(idle - launch * count, 0.0) for idle, count in of.late)
    for spent, count in of.allocations:
        late -= max(spent - call * count, 0.0)
    late = max(late, 0.0)
    return Recording(host, min(host, late), of.idle, host > late > 0)

"""The device activity of one call: the kernels that it launches, and the calls that wait for the device."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flopscope.record.profile import profile
from flopscope.record.ranges import record_function
from flopscope.results.events import Event

# CUDA calls that wait for the device: synchronization, copies to and from the host, and freeing memory.
BLOCKING = re.compile(
    r"cu(da)?(Device|Ctx|Stream|Event)Synchronize|cu(da)?Memcpy(?!.*(Async|Peer))|cu(da|Mem)Free(?!.*(Async|Host))"
)
# Names of CUPTI's synchronization records in which a thread waits.
WAITS = ("Event Sync", "Stream Sync", "Context Sync")


class Seen(NamedTuple):
    """The device activity of one call of a function, in order."""

    kernels: list[str]
    """Names of the kernels, without copies and fills."""
    waits: list[str]
    """Names of the CUDA calls that waited for the device."""


class Unseen(RuntimeError):
    """Raised if device activity cannot be recorded because CUDA or CUPTI is unavailable."""


def look(fn: Callable[..., Any], args: Sequence[Any]) -> Seen:
    """Call fn(*args) once under a profile. Raise Unseen if CUPTI is unavailable; exceptions of fn propagate."""
    prof = profile(timer="cupti")
    try:
        prof.start()
    except RuntimeError as problem:
        raise Unseen(str(problem)) from problem
    try:
        with record_function(RANGE):
            fn(*args)
    finally:
        prof.stop()
    return seen_in(prof.events())


RANGE = "flopscope.perf"  # around the call, since the profile itself waits for the device before and after


def seen_in(events: Sequence[Event]) -> Seen:
    """Return the kernels of a profile and the waits inside its range RANGE."""
    start, end = next(event for event in events if event.name == RANGE).time_range
    kernels = [event.name for event in events if event.kind == "kernel"]
    inside = [event for event in events if start <= event.time_range.start <= end]
    calls = [event.name for event in inside if event.kind == "runtime" and BLOCKING.match(event.name)]
    waits = [event.name for event in inside if event.kind == "sync" and event.name in WAITS]
    return Seen(kernels, calls or waits)

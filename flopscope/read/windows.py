"""Several recordings of one process, such as the cycles of a schedule, as one trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flopscope import _core
from flopscope.read.trace import Trace
from flopscope.results.process import base_time_of, windows_of
from flopscope.results.results import store_of


class Process(NamedTuple):
    """A process of a program, and its recordings in order of time."""

    trace: Trace
    """The events of all recordings.

    The time between them was not recorded, so that only sums over events have a meaning: tables do, but accounting and
    utilization do not.
    """
    windows: list[Trace]


def join_windows(traces: Sequence[Trace]) -> list[Process]:
    """Group the traces by process, and join the recordings of each, which windows_of() recognises.

    Raise ValueError if two traces are of one process but cannot be joined.
    """
    grouped = [[traces[place] for place in places] for places in windows_of(traces)]
    return [Process(join(windows), windows) for windows in grouped]


def join(windows: list[Trace]) -> Trace:
    """Return one trace with the events of recordings of one process, given in order of time."""
    first = windows[0]
    if len(windows) == 1:
        return first
    core = _core.Store()
    base = base_time_of(first, first.source)
    for window in windows:
        core.extend(store_of(window, "events"), base_time_of(window, window.source) - base)
    report = {name: sum(window.report[name] for window in windows) for name in first.report}
    report |= {"truncated": any(window.report["truncated"] for window in windows), "process": first._process}
    joined = Trace(f"{first.source} and {len(windows) - 1} more", core, report, dict(first.metadata))
    joined.with_stack = any(window.with_stack for window in windows)
    joined.record_shapes = any(window.record_shapes for window in windows)
    joined.profile_memory = any(window.profile_memory for window in windows)
    return joined

"""The process of a trace: its rank, the base of its clock, and whether two traces are of one process.

All of it comes from the trace's metadata, which may have been edited: invalid values raise ValueError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

from flopscope.results import head
from flopscope.results.results import store_of
from flopscope.support.core_facts import UNKNOWN_TIME

if TYPE_CHECKING:
    from flopscope.results.results import Results

Group = TypeVar("Group")


def source_of(trace: Results, place: int) -> str:
    """Return the trace's file, or its place in the arguments if it has none."""
    return str(getattr(trace, "source", f"trace {place}"))


def rank_of(trace: Results, source: str) -> int | None:
    """Return the rank that the trace names, or None. Raise ValueError if it is invalid."""
    return head.rank_of(trace.metadata, source)


def base_time_of(trace: Results, source: str | None = None) -> int:
    """Return the Unix time in ns that the trace's times count from, or 0. Raise ValueError if it is invalid."""
    return head.base_time_of(trace.metadata, source_of(trace, 0) if source is None else source)


# Recordings of one process --------------------------------------------------------------------------------------------


def require_different_processes(traces: Sequence[Results]) -> None:
    """Raise ValueError if two of the traces are recordings of one process, such as two cycles of a schedule.

    Traces of the same rank are. Traces without a rank are if they have the same process id and do not overlap in time,
    or begin at the same moment: processes of one run in several containers may share an id, but run concurrently.
    """
    for places in windows_of(traces):
        if len(places) > 1:
            sources = [source_of(trace, place) for place, trace in enumerate(traces)]
            rank = rank_of(traces[places[0]], sources[places[0]])
            what = f"process {getattr(traces[places[0]], 'process', None)}" if rank is None else f"rank {rank}"
            _refuse(what, sources, sorted(places))


def _groups(pairs: Iterable[tuple[Group, int]]) -> list[tuple[Group, list[int]]]:
    groups: dict[Group, list[int]] = {}
    for key, place in pairs:
        groups.setdefault(key, []).append(place)
    return list(groups.items())


def _span(trace: Results, source: str) -> tuple[int, int]:
    """Return when the recording of the host began and ended, in ns of Unix time if the trace has its base."""
    core = store_of(trace, "events")
    columns, _, _, _ = core.events()
    known = ~columns["on_device"].astype(bool) & (columns["start"] != UNKNOWN_TIME)
    start, duration = columns["start"][known], columns["duration"][known]
    duration[duration == UNKNOWN_TIME] = 0
    base = base_time_of(trace, source)
    return (base + int(start.min()), base + int((start + duration).max())) if len(start) else (base, base)


# Windows of one process -----------------------------------------------------------------------------------------------

WORKER = re.compile(r"(.+)\.\d+\.pt\.trace\.json(\.\w+)?")  # the name that torch gives to the file of a cycle


class _Window(NamedTuple):
    """A recording of a process: its place among the traces, and its time."""

    begin: int
    end: int
    place: int


def windows_of(traces: Sequence[Results]) -> list[list[int]]:
    """Group the traces by process: the places of each process's recordings in order of time, by their first place.

    Recordings of one process, such as the cycles of a schedule, have the same rank and process id, do not overlap, and
    have no step in common. Traces without a rank have the same process id and, if torch named their files, the same
    worker. Raise ValueError for two recordings of one rank or process that are not of this kind: a file given twice,
    two runs, windows that overlap.
    """
    sources = [source_of(trace, place) for place, trace in enumerate(traces)]
    ranks = [rank_of(trace, source) for trace, source in zip(traces, sources, strict=True)]
    pids = [getattr(trace, "process", None) for trace in traces]
    grouped: list[list[int]] = []
    for rank, places in _groups((rank, place) for place, rank in enumerate(ranks) if rank is not None):
        what = f"rank {rank}"
        for a, b in pairwise(places):
            if pids[a] is None or pids[a] != pids[b]:
                who = ["unknown" if pids[place] is None else pids[place] for place in (a, b)]
                _refuse(what, sources, [a, b], f"their process ids are {who[0]} and {who[1]}")
        grouped.append(_in_order(what, traces, sources, places))
    unranked = (place for place, rank in enumerate(ranks) if rank is None)
    for pid, places in _groups((pids[place], place) for place in unranked):
        if pid is None:
            grouped += [[place] for place in places]
        else:
            grouped += _of_one_id(f"process {pid}", traces, sources, places)
    return sorted(grouped, key=min)


def _of_one_id(what: str, traces: Sequence[Results], sources: Sequence[str], places: list[int]) -> list[list[int]]:
    """Group traces without a rank that have one process id: of one process, or of processes in several containers."""
    if len(places) == 1:
        return [places]
    windows = {place: _window(traces, sources, place) for place in places}
    ordered = sorted(windows.values())
    apart = [b.begin >= a.end for a, b in pairwise(ordered)]
    by_worker = _groups((_worker(sources[place]), place) for place in places)
    if len(by_worker) == 1 and not any(apart) and by_worker[0][0] is None:
        for a, b in pairwise(ordered):
            if a.begin == b.begin:
                _refuse(what, sources, [a.place, b.place], _SAME)
        return [[place] for place in places]  # they run at the same time: ranks in containers of their own
    found = [_in_order(what, traces, sources, group) for _, group in by_worker]
    spans = sorted(_Window(windows[one[0]].begin, windows[one[-1]].end, one[0]) for one in found)
    for a, b in pairwise(spans):
        if b.begin >= a.end:
            _refuse(what, sources, [a.place, b.place], "their files are of different workers")
        if b.begin == a.begin:
            _refuse(what, sources, [a.place, b.place], _SAME)
    return found


_SAME = "they begin at the same moment, as copies of one file do"


def _in_order(what: str, traces: Sequence[Results], sources: Sequence[str], places: list[int]) -> list[int]:
    """Return the places in order of time. Raise ValueError unless the traces can be windows of one process."""
    if len(places) == 1:
        return places
    ordered = sorted(_window(traces, sources, place) for place in places)
    for a, b in pairwise(ordered):
        if a.begin == b.begin:
            _refuse(what, sources, sorted([a.place, b.place]), _SAME)
        if b.begin < a.end:
            _refuse(what, sources, [a.place, b.place], "they overlap in time")
    seen: dict[str, int] = {}
    for window in ordered:
        for step in store_of(traces[window.place], "steps").step_breakdown()["step"]:
            if step is not None and seen.setdefault(step, window.place) != window.place:
                _refuse(what, sources, [seen[step], window.place], f"both have {step}")
    return [window.place for window in ordered]


def _window(traces: Sequence[Results], sources: Sequence[str], place: int) -> _Window:
    return _Window(*_span(traces[place], sources[place]), place)


def _worker(source: str) -> str | None:
    match = WORKER.fullmatch(os.path.basename(source))
    return None if match is None else match[1]


def _refuse(what: str, sources: Sequence[str], places: Sequence[int], why: str = "") -> NoReturn:
    a, b = (sources[place] for place in places[:2])
    joined = f" that cannot be joined, because {why}" if why else ", not two ranks of one run"
    raise ValueError(
        f"two of the traces are of {what}: {a} and {b} are recordings of one process or of two runs{joined}; give one "
        "trace of each"
    )

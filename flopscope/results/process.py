"""Which process a trace is of: its rank, the clock that its times count from, and whether two traces share a process.

All of it comes from the trace's metadata, which anyone may have edited: what makes no sense there raises ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from flopscope.results.results import Results

__all__ = ["base_time_of", "rank_of", "require_different_processes", "source_of"]

RANK = "distributedInfo"
BASE_TIME = "baseTimeNanoseconds"
MOST_RANKS = 1 << 31
LATEST = 1 << 63  # ns since 1970, which ends in 2262
SHOWN = 60  # characters of a wrong value

Group = TypeVar("Group")


def source_of(trace: Results, place: int) -> str:
    """The trace's file, or its place in what the caller was given."""
    return str(getattr(trace, "source", f"trace {place}"))


def _metadata_of(trace: Results) -> Mapping[str, Any]:
    return getattr(trace, "metadata", None) or {}


def rank_of(trace: Results, source: str) -> int | None:
    """Return the rank that the trace names, None where it names none. ValueError where that is no rank."""
    metadata = _metadata_of(trace)
    if RANK not in metadata:
        return None
    told = metadata[RANK]
    if not isinstance(told, Mapping):
        raise ValueError(_wrong(source, RANK, told, 'an object such as {"rank": 0, "world_size": 8}'))
    if "rank" not in told:
        return None
    if not _is_integer(told["rank"], MOST_RANKS):
        raise ValueError(_wrong(source, f'{RANK}"."rank', told["rank"], "an integer from 0 on"))
    return int(told["rank"])


def base_time_of(trace: Results, source: str) -> int:
    """Return the Unix time in ns that the trace's times count from, 0 without one. ValueError where that is no time."""
    told = _metadata_of(trace).get(BASE_TIME, 0)
    if not _is_integer(told, LATEST):
        raise ValueError(_wrong(source, BASE_TIME, told, "an integer of nanoseconds since 1970"))
    return int(told)


def _is_integer(value: object, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def _wrong(source: str, member: str, value: object, expected: str) -> str:
    text = repr(value)
    shown = text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
    return f'{source}: "{member}" is {shown}; it must be {expected}'


# Recordings of one process --------------------------------------------------------------------------------------------


def require_different_processes(traces: Sequence[Results]) -> None:
    """Raise ValueError where two of the traces are recordings of one process, as the cycles of a schedule are.

    They are if they name the same rank. Where neither names one, they are if their host threads are of the same process
    id and they do not overlap in time, or are the same recording: processes of one run in several containers may share
    an id, but run at the same time.
    """
    sources = [source_of(trace, place) for place, trace in enumerate(traces)]
    ranks = [rank_of(trace, source) for trace, source in zip(traces, sources, strict=True)]
    for rank, places in _groups((rank, place) for place, rank in enumerate(ranks) if rank is not None):
        if len(places) > 1:
            raise ValueError(f"two of the traces are of rank {rank}: {_recordings(sources, places)}")
    unranked = (place for place, rank in enumerate(ranks) if rank is None)
    for process, places in _groups((getattr(traces[place], "process", None), place) for place in unranked):
        if process is None or len(places) == 1:
            continue
        spans = sorted((*_span(traces[place], sources[place]), place) for place in places)
        for (begin, end, a), (later, _, b) in pairwise(spans):
            if later >= end or later == begin:
                raise ValueError(f"two of the traces are of process {process}: {_recordings(sources, [a, b])}")


def _groups(pairs: Iterable[tuple[Group, int]]) -> list[tuple[Group, list[int]]]:
    groups: dict[Group, list[int]] = {}
    for key, place in pairs:
        groups.setdefault(key, []).append(place)
    return list(groups.items())


def _recordings(sources: Sequence[str], places: Sequence[int]) -> str:
    a, b = (sources[place] for place in places[:2])
    return f"{a} and {b} are recordings of one process or of two runs, not two ranks of one run; give one trace of each"


def _span(trace: Results, source: str) -> tuple[int, int]:
    """From when to when the host was recorded, in ns of Unix time where the trace tells that."""
    from flopscope.results.events import MISSING

    core = trace._recorded("events")
    columns, _, _, _ = core.events()
    known = ~columns["on_device"].astype(bool) & (columns["start"] != MISSING)
    start, duration = columns["start"][known], columns["duration"][known]
    duration[duration == MISSING] = 0
    base = base_time_of(trace, source)
    return (base + int(start.min()), base + int((start + duration).max())) if len(start) else (base, base)

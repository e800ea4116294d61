"""The process of a trace: its rank, the base of its clock, and whether two traces are of one process.

All of it comes from the trace's metadata, which may have been edited: invalid values raise ValueError.
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
    """Return the trace's file, or its place in the arguments if it has none."""
    return str(getattr(trace, "source", f"trace {place}"))


def _metadata_of(trace: Results) -> Mapping[str, Any]:
    return getattr(trace, "metadata", None) or {}


def rank_of(trace: Results, source: str) -> int | None:
    """Return the rank that the trace names, or None. Raise ValueError if it is invalid."""
    metadata = _metadata_of(trace)
    if RANK not in metadata:
        return None
    info = metadata[RANK]
    if not isinstance(info, Mapping):
        raise ValueError(_wrong(source, RANK, info, 'an object such as {"rank": 0, "world_size": 8}'))
    if "rank" not in info:
        return None
    if not _is_integer(info["rank"], MOST_RANKS):
        raise ValueError(_wrong(source, f'{RANK}"."rank', info["rank"], "an integer of at least 0"))
    return int(info["rank"])


def base_time_of(trace: Results, source: str) -> int:
    """Return the Unix time in ns that the trace's times count from, or 0. Raise ValueError if it is invalid."""
    base = _metadata_of(trace).get(BASE_TIME, 0)
    if not _is_integer(base, LATEST):
        raise ValueError(_wrong(source, BASE_TIME, base, "an integer of nanoseconds since 1970"))
    return int(base)


def _is_integer(value: object, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def _wrong(source: str, member: str, value: object, expected: str) -> str:
    text = repr(value)
    shown = text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
    return f'{source}: "{member}" is {shown}; it must be {expected}'


# Recordings of one process --------------------------------------------------------------------------------------------


def require_different_processes(traces: Sequence[Results]) -> None:
    """Raise ValueError if two of the traces are recordings of one process, such as two cycles of a schedule.

    Traces of the same rank are. Traces without a rank are if they have the same process id and do not overlap in time,
    or begin at the same moment: processes of one run in several containers may share an id, but run concurrently.
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
    """Return when the recording of the host began and ended, in ns of Unix time if the trace has its base."""
    from flopscope.results.events import MISSING

    core = trace._recorded("events")
    columns, _, _, _ = core.events()
    known = ~columns["on_device"].astype(bool) & (columns["start"] != MISSING)
    start, duration = columns["start"][known], columns["duration"][known]
    duration[duration == MISSING] = 0
    base = base_time_of(trace, source)
    return (base + int(start.min()), base + int((start + duration).max())) if len(start) else (base, base)

"""The process of a trace: its rank, the base of its clock, and whether two traces are of one process.

All of it comes from the trace's metadata, which may have been edited: invalid values raise ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from flopscope.results import head
from flopscope.results.results import Results, store_of
from flopscope.support.core_facts import UNKNOWN_TIME


def source_of(trace: Results, place: int) -> str:
    """Return the trace's file, or its place in the arguments if it has none."""
    return str(getattr(trace, "source", f"trace {place}"))


def base_time_of(trace: Results, source: str | None = None) -> int:
    """Return the Unix time in ns that the trace's times count from, or 0. Raise ValueError if it is invalid."""
    return head.base_time_of(trace.metadata, source_of(trace, 0) if source is None else source)


def require_different_processes(traces: Sequence[Results]) -> None:
    """Raise ValueError if two of the traces are recordings of one process, such as two cycles of a schedule.

    Traces of the same rank are. Traces without a rank are if they have the same process id and do not overlap in time,
    or begin at the same moment: processes of one run in several containers may share an id, but run concurrently.
    """
    sources = [source_of(trace, place) for place, trace in enumerate(traces)]
    ranks: dict[int, int] = {}
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for place, trace in enumerate(traces):
        rank, process = head.rank_of(trace.metadata, sources[place]), getattr(trace, "process", None)
        if rank is not None and ranks.setdefault(rank, place) != place:
            raise ValueError(_not_two(f"rank {rank}", sources[ranks[rank]], sources[place]))
        if rank is None and process is not None and len(traces) > 1:
            spans.setdefault(process, []).append((*_span(trace, sources[place]), place))
    for process, found in spans.items():
        for (begin, end, first), (next_begin, _, second) in pairwise(sorted(found)):
            if next_begin >= end or next_begin == begin:
                one, other = (sources[place] for place in sorted((first, second)))
                raise ValueError(_not_two(f"process {process}", one, other))


def _not_two(what: str, one: str, other: str) -> str:
    return (
        f"two of the traces are of {what}: {one} and {other} are recordings of one process or of two runs, not two "
        "ranks of one run; give one trace of each"
    )


def _span(trace: Results, source: str) -> tuple[int, int]:
    """Return when the recording of the host began and ended, in ns of Unix time if the trace has its base."""
    columns = store_of(trace, "events").events()[0]
    known = ~columns["on_device"].astype(bool) & (columns["start"] != UNKNOWN_TIME)
    start, duration = columns["start"][known], columns["duration"][known]
    duration[duration == UNKNOWN_TIME] = 0
    base = base_time_of(trace, source)
    return (base + int(start.min()), base + int((start + duration).max())) if len(start) else (base, base)

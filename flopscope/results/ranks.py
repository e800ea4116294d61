"""One table of the ranks of a distributed program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flopscope.results.columns import COLUMNS
from flopscope.results.table import EventTable
from flopscope.support.hints import HINTS


def join_ranks(tables: Mapping[int, EventTable], sort_by: str | None = None, limit: int = -1) -> EventTable:
    """Join the tables of several ranks into one, in which the rows of the ranks for each group of events are adjacent.

    tables: by rank, at least one. sort_by: see EventTable.sorted; groups are sorted by their largest row, or appear in
    their first order if None. limit: number of groups to keep, -1 for all. The times of the table are the sums over the
    ranks, and its coverage is the mean of theirs, weighted by time.
    """
    if not tables:
        raise ValueError("join_ranks() needs at least one table")
    joined = _stacked(tables)
    ordered = joined if sort_by is None else joined.sorted(sort_by)
    groups: dict[Any, list[int]] = {}
    for place, row in enumerate(ordered):
        shapes, dtypes = str(row.input_shapes), str(row.input_dtypes)
        key = (row.key, row.device_type, row.is_user_annotation, shapes, dtypes, row.group, *row.stack)
        groups.setdefault(key, []).append(place)
    chosen = list(groups.values())[: None if limit < 0 else limit]
    return ordered.select(place for places in chosen for place in sorted(places, key=lambda i: ordered[i].rank or 0))


def _stacked(tables: Mapping[int, EventTable]) -> EventTable:
    """Return the rows of all ranks, one table after the other."""
    known = [table.facts for table in tables.values()]
    facts: dict[str, Any] = {name: sum(getattr(one, name) for one in known) for name in _SUMMED}
    facts |= {name: any(getattr(one, name) for one in known) for name in _OF_ANY}
    facts |= {name: {d: of for one in known for d, of in (getattr(one, name) or {}).items()} for name in _BY_DEVICE}
    facts["coverage"] = _coverage(tables.values())
    joint = replace(known[0], **facts, hints=HINTS, is_sorted=False, is_whole=True)
    every = list(tables.values())
    parts: dict[str, list[Any]] = {
        "ranks": [rank for rank, table in tables.items() for _ in table],
        "top_level": [row.top_level for table in every for row in table],
    }
    if any(table.stacks is not None for table in every):
        parts["stacks"] = [row.stack for table in every for row in table]
    words = dict.fromkeys(word for table in every for word in table.groups)
    groups = {
        word: [value for table in every for value in table.groups.get(word, [None] * len(table))] for word in words
    }
    columns = {c.name: [value for table in every for value in table.columns[c.name]] for c in COLUMNS}
    return EventTable(columns, joint, parts, groups)


_SUMMED = ("self_cpu_time_total", "self_device_time_total", "open_events", "dropped")
_OF_ANY = ("has_memory", "has_device", "profile_memory", "record_shapes", "has_shapes", "device_unseen")
_BY_DEVICE = ("peaks", "shares", "unknown_peaks")
_SHARES = ("bytes", "flops")


def _coverage(tables: Iterable[EventTable]) -> dict[str, Any]:
    parts = [
        (table.coverage(), table.self_device_time_total if table.has_device else table.self_cpu_time_total)
        for table in tables
    ]
    joined: dict[str, Any] = {name: _mean([(covered[name], time) for covered, time in parts]) for name in _SHARES}
    for listed in ("unmodelled", "estimated", "estimated_flops"):
        times: dict[str, float] = {}
        for covered, _ in parts:
            for name, time in covered.get(listed, ()):
                times[name] = times.get(name, 0.0) + time
        if times or listed == "unmodelled":
            joined[listed] = sorted(times.items(), key=lambda pair: -pair[1])
    for name, whole in (("bytes_source", "bytes"), ("flops_source", "flops")):
        if any(name in covered for covered, _ in parts):
            joined[name] = _sources([(covered.get(name, {"model": covered[whole]}), time) for covered, time in parts])
    misfits = {name: what for covered, _ in parts for name, what in covered.get("misfits", {}).items()}
    unseen = math.fsum(covered.get("unseen_graphs", 0.0) for covered, _ in parts)
    return joined | ({"misfits": misfits} if misfits else {}) | ({"unseen_graphs": unseen} if unseen else {})


def _sources(parts: list[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """Return the mean share of each source, weighted by the times."""
    names = dict.fromkeys(name for shares, _ in parts for name in shares)
    return {name: _mean([(shares.get(name, 0.0), time) for shares, time in parts]) for name in names}


def _mean(parts: list[tuple[float, float]]) -> float:
    """Return the mean of the known shares, weighted by their times."""
    known = [(share, time) for share, time in parts if not math.isnan(share) and time > 0]
    total = math.fsum(time for _, time in known)
    return math.fsum(share * time for share, time in known) / total if total else math.nan

"""What a table for people lists: ops in the order of what they could gain, their kernels, and ranges apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flopscope.results.columns import NO_OP, kind_of, require_kind
from flopscope.results.groups import ModuleTable
from flopscope.results.row import EventRow
from flopscope.results.table import EventTable

NEGLIGIBLE = 0.001  # of the device time
DEEPEST = 12  # levels of a tree that are indented


@dataclass(frozen=True)
class Entry:
    """A row to print; depth 1 for a kernel below its op, whose time is part of the op's; that of a module."""

    row: EventRow
    depth: int = 0


@dataclass(frozen=True)
class Listing:
    """The entries of a table for people, and its ranges, which are printed apart."""

    entries: Sequence[Entry]
    ranges: Sequence[Entry]
    count: int
    """Rows that are listed if no limit cuts them."""
    noun: str
    """What they are: "op", "kernel", "range", "module" or "row"."""
    alone: int | None = None
    """Kernels that no op launched; None if no device time is without an op."""
    alone_cut: int = 0
    """How many of them the limit cuts."""
    hidden: int = 0
    """Ops of a GPU program that are left out because they have neither device time nor work."""


def usual_order(table: EventTable) -> EventTable:
    """Return the rows in the order for people: what could be gained first.

    That is by headroom if the peaks of a device are known, with the time of rows without a known roofline as theirs;
    else by device time if there is any; else by host time. Ops and kernels together are sorted by time. Rows that are
    sorted already keep their order.
    """
    if table.is_sorted:
        return table
    columns = table.columns
    own, host = columns["self_device_time_total"], columns["self_cpu_time_total"]
    kinds = {device == "cpu" for device in columns["device_type"]}
    if len(kinds) == 1 or table.is_mixed:  # else with kernels, whose headroom is unknown
        own = _gains(own if table.has_device else host, columns["headroom"], table.has_device)
    return table.select(sorted(range(len(table)), key=lambda i: (own[i], host[i]), reverse=True))


def _gain(row: EventRow) -> tuple[float, float]:
    on_device, host = row.use_device is not None, row.self_cpu_time_total
    time = row.self_device_time_total if on_device else host
    return _gains([time], [row.headroom], on_device)[0], host


def _gains(times: Sequence[float], headrooms: Sequence[float], on_device: bool) -> list[float]:
    """Return the headroom of each row, or its time where the headroom is unknown or nothing ran on the device."""
    parts = zip(times, headrooms, strict=True)
    return [time if math.isnan(headroom) or (on_device and not time) else headroom for time, headroom in parts]


def list_entries(table: EventTable, kind: str | None = None, kernels: bool = False, limit: int = -1) -> Listing:
    """Return what to print of a table.

    kind: None for ops, with ranges apart and "(no op)" for the device time that belongs to no op; tables without ops
        list all rows.
    kernels: list the kernels of each op below it, if the table knows them.
    limit: number of rows, and of kernels that no op launched, -1 for all; kernels below their ops do not count.
    """
    require_kind(kind)
    if isinstance(table, ModuleTable):  # a tree, whose order says which module is in which
        modules = [Entry(row, min(row.module_depth, DEEPEST)) for row in table.largest(limit)]
        return Listing(modules, [], len(table), "module")
    kinds = list(map(kind_of, table.columns["device_type"], table.columns["is_user_annotation"]))
    mixed = table.is_mixed or "op" not in kinds
    shown = kind or ("all" if mixed else "op")
    ordered = usual_order(table.of_kind(shown))
    listed = len(ordered)
    if kind is None and not mixed and table.has_device and not table.is_sorted:
        names = ("self_device_time_total", "gbytes_per_s", "tflops_per_s")
        values = zip(*(ordered.columns[name] for name in names), strict=True)
        counting = [i for i, numbers in enumerate(values) if any(number > 0 for number in numbers)]
        if counting or table.is_whole:  # else what was chosen by name is shown
            ordered = ordered.select(counting)
    chosen = ordered if limit < 0 else ordered[:limit]
    below = kernels and table.parts.get("kernels") is not None
    entries = [one for row in chosen for one in (Entry(row), *(_below(table, row.kernels) if below else ()))]
    ranges = list[Entry]()
    alone, cut = None, 0
    if kind is None and not mixed:
        ranges = [Entry(row) for row in table.of_kind("range") if row.device_type == "cpu"]
        ranges.sort(key=lambda entry: -entry.row.cpu_time_total)
        if (unowned := _without_op(table, kinds)) is not None:
            left = _alone(table, _kernels_left(table, kinds))
            alone = len(left)
            cut = max(alone - limit, 0) if limit >= 0 else 0
            entries[_place(entries, unowned, table) : 0] = [Entry(unowned), *left[: alone - cut]]
    noun = "row" if shown == "all" else shown
    return Listing(entries, ranges, len(ordered), noun, alone, cut, listed - len(ordered))


def _alone(table: EventTable, kernels: Sequence[tuple[str, int, float]]) -> list[Entry]:
    """Return entries for kernels that no op launched; where counters tell the work of all of a name, with its work."""
    rows = zip(*(table.columns[name] for name in ("device_type", "bytes_source", "key", "count")), strict=True)
    counted = {tuple(of): i for i, (where, source, *of) in enumerate(rows) if where != "cpu" and source == "counted"}
    entries = _below(table, kernels)
    places = [counted.get((entry.row.key, entry.row.count)) for entry in entries]
    return [entry if at is None else Entry(table[at], 1) for entry, at in zip(entries, places, strict=True)]


def _below(table: EventTable, kernels: Sequence[tuple[str, int, float]]) -> list[Entry]:
    """Return entries for the kernels of an op: name, calls and µs of each."""
    ordered = sorted(kernels, key=lambda kernel: -kernel[2])
    rows = [_device_row(table, *kernel, timing_source="trace") for kernel in ordered]
    return [Entry(row, 1) for row in table.with_rows(rows)] if rows else []


def _device_row(table: EventTable, key: str, count: int, time: float, **more: Any) -> dict[str, Any]:
    times = dict.fromkeys(("self_device_time_total", "device_time_total"), time)
    return {"key": key, "device_type": table.device_type, "count": count, **times, **more}


def _without_op(table: EventTable, kinds: Sequence[str]) -> EventRow | None:
    """Return a row of the device time that belongs to no op, or None: if there is none, or rows are missing."""
    if not table.is_whole or not table.has_device:
        return None
    times = table.columns["self_device_time_total"]
    left = table.self_device_time_total - math.fsum(t for t, kind in zip(times, kinds, strict=True) if kind == "op")
    if left <= NEGLIGIBLE * table.self_device_time_total:
        return None
    count = sum(count for _, count, _ in _kernels_left(table, kinds))
    return table.with_rows([_device_row(table, NO_OP, count, left, device_busy_time=left)])[0]


def _kernels_left(table: EventTable, kinds: Sequence[str]) -> list[tuple[str, int, float]]:
    """Return the kernels that no op launched, as far as the table knows."""
    columns = [table.columns[name] for name in ("key", "count", "self_device_time_total")]
    rows = list(zip(kinds, *columns, strict=True))
    launched = table.parts.get("kernels")
    if launched is None:
        known = not any(time for kind, _, _, time in rows if kind == "op")
        return [(name, count, time) for kind, name, count, time in rows if kind == "kernel" and time] if known else []
    left = {name: [count, time] for kind, name, count, time in rows if kind == "kernel"}
    for kind, kernels in zip(kinds, launched, strict=True):
        for name, count, time in kernels if kind == "op" else ():
            if name in left:
                left[name] = [left[name][0] - count, left[name][1] - time]
    return [(name, count, time) for name, (count, time) in left.items() if count > 0 and time > 0.001]


def _place(entries: Sequence[Entry], row: EventRow, table: EventTable) -> int:
    """Return where a row belongs among the entries: by its gain in the usual order, else last."""
    if table.is_sorted:
        return len(entries)
    smaller = (i for i, e in enumerate(entries) if not e.depth and _gain(e.row) < _gain(row))
    return next(smaller, len(entries))

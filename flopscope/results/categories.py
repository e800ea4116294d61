"""Sums of the rows of a table by the category of their ops: matrix product, attention, convolution, …

The core assigns the categories: csrc/work/category.h.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.views.entries import NO_OP

if TYPE_CHECKING:
    from flopscope.results.table import EventRow, EventTable

__all__ = ["CATEGORIES", "OTHER", "by_category", "category_of", "sum_rows", "total_of_rows"]

CATEGORIES: tuple[str, ...] = tuple(name for name, *_ in _core.categories)
"""The names, in the order of legends; what each holds: csrc/work/category.h."""
OTHER = "other"
category_of = _core.category_of
_OWN = ("self_cpu_time_total", "self_device_time_total", "self_cpu_memory_usage", "self_device_memory_usage")
_WORK = ("flops", "bytes_read", "bytes_written", "bytes_total_moved")
_BUSY = "device_busy_time"


def by_category(table: EventTable) -> EventTable:
    """Return one row per category: the sums of the self times, memory, FLOPs and bytes of its host rows.

    Kernels count for the ops that launched them; "(no op)" is the device time that belongs to no op, such as that of
    replayed CUDA graphs. Unknown work is left out of the sums. Totals equal the self times, since categories do not
    nest; statistics per call are unknown. Rates and shares refer to the time of the rows that have them. Work that the
    program states for a range is the work of the ops in it, so it counts only if no op's work is known.
    """
    summed = sum_rows(table, table.columns["category"])
    return table.with_rows(
        [{**row, "key": NO_OP if name is None else name, "category": name} for name, row in summed.items()]
    )


def total_of_rows(table: EventTable) -> dict[str, Any]:
    """Return the sum of all rows, "Total", with total times as torch adds them: those of nested rows several times.

    Device times and their totals are those of device rows, if there are any: torch adds those of their launchers too.
    """
    host, device = ([row for row in table if (row.device_type == "cpu") == on_host] for on_host in (True, False))
    use_ranges = only_ranges_have_work((row.is_user_annotation, row.flops, row.bytes_total_moved) for row in host)
    total = _summed(host, table.has_device, use_ranges) | {"key": "Total", "count": sum(row.count for row in table)}
    for column in ("cpu_time_total", "cpu_memory_usage", "device_memory_usage"):
        total[column] = sum(getattr(row, column) for row in host)
    works = [row for row in device if not row.is_user_annotation]  # ranges enclose them
    for column in ("self_device_time_total", "device_time_total"):
        total[column] = sum(getattr(row, column) for row in works or host)
    return total


def sum_rows(table: EventTable, keys: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """Return the sum of the host's rows for each key, and for the key None the device time that belongs to no op.

    keys: one for each row of the table. The sums are as in by_category(); columns that are omitted are unknown.
    """
    cpu_rows = (row for row in table if row.device_type == "cpu")
    use_ranges = only_ranges_have_work((row.is_user_annotation, row.flops, row.bytes_total_moved) for row in cpu_rows)
    groups: dict[Any, list[EventRow]] = {}
    for row, key in zip(table, keys, strict=True):
        if row.device_type == "cpu":
            groups.setdefault(key, []).append(row)
    summed = {key: _summed(rows, table.has_device, use_ranges) for key, rows in groups.items()}
    left = table.self_device_time_total - math.fsum(row["self_device_time_total"] for row in summed.values())
    if left > 0.001 * max(1, sum(row["count"] for row in summed.values())):  # more than the ns that rounding loses
        summed[None] = _summed([], True, use_ranges) | {
            "device_type": table.device_type,
            "self_device_time_total": left,
        }
        summed[None] |= {"device_time_total": left, _BUSY: left}
    return summed


def only_ranges_have_work(parts: Iterable[tuple[bool, float, float]]) -> bool:
    """Return whether no op's work is known, so that the work stated for ranges counts.

    parts: for each row, whether it is a range, its FLOPs and its bytes.
    """
    return all(is_range or (math.isnan(flops) and math.isnan(moved)) for is_range, flops, moved in parts)


def _summed(rows: list[EventRow], on_device: bool, use_ranges: bool) -> dict[str, Any]:
    """Return the sum of rows; omitted columns are unknown. use_ranges: include the work stated for ranges."""
    total: dict[str, Any] = {"count": sum(row.count for row in rows)}
    for column in _OWN:
        total[column] = sum(getattr(row, column) for row in rows)
        total[column.removeprefix("self_")] = total[column]
    rows = [row for row in rows if use_ranges or not row.is_user_annotation]
    total[_BUSY] = sum(getattr(row, _BUSY) for row in rows)
    for column in _WORK:
        total[column] = known_sum(getattr(row, column) for row in rows)
    total["flops_total"] = total["flops"]
    total["tflops_per_s"] = _rate(rows, "flops", "tflops_per_s", 1e6, on_device)
    total["gbytes_per_s"] = _rate(rows, "bytes_total_moved", "gbytes_per_s", 1e3, on_device)
    if total["bytes_total_moved"]:
        total["arithmetic_intensity"] = total["flops"] / total["bytes_total_moved"]
    for column in ("roofline_time", "headroom"):
        total[column] = known_sum(getattr(row, column) for row in rows)
    for column in ("pct_peak_flops", "pct_peak_bandwidth", "pct_roofline"):
        total[column] = share_of_all((getattr(row, column), row.roofline_time + row.headroom) for row in rows)
    total["timing_source"] = rows[0].timing_source if rows else "trace"
    return total


def _rate(rows: list[EventRow], work: str, rate: str, per_us: float, on_device: bool) -> float:
    """Return the work of the rows with a known rate per time that it took, in units of ``per_us`` per µs."""
    rated = [(getattr(row, work), _rated_time(row, on_device)) for row in rows if not math.isnan(getattr(row, rate))]
    timed = [(done, time) for done, time in rated if time > 0]
    if not timed:
        return math.nan
    return math.fsum(done for done, _ in timed) / math.fsum(time for _, time in timed) / per_us


def _rated_time(row: EventRow, on_device: bool) -> float:
    """Return the µs that a row's rates refer to: for a range with stated work, its whole duration."""
    if on_device:
        return float(row.device_busy_time)
    return float(row.cpu_time_total if row.is_user_annotation else row.self_cpu_time_total)


def known_sum(values: Iterable[float]) -> float:
    """Return the sum of the values that are not NaN, or NaN if there are none."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) if known else math.nan


def share_of_all(parts: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (share, time) pairs, weighted by time, or NaN if no pair is known."""
    known = [(share, time) for share, time in parts if not math.isnan(share + time)]
    total = math.fsum(time for _, time in known)
    return math.fsum(share * time for share, time in known) / total if total > 0 else math.nan

"""Sums of the rows of a table by the category of their ops: matrix product, attention, convolution, …

The core assigns the categories: csrc/work/category.h.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.results.kinds import NO_OP

if TYPE_CHECKING:
    from flopscope.results.table import EventTable

    _Lists = Mapping[str, list[Any]]

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
    columns = table.columns
    host = _host_rows(table)
    is_host = set(host)
    total = _summed(columns, host, table.has_device, _use_ranges(columns, host))
    total |= {"key": "Total", "count": sum(columns["count"])}
    for column in ("cpu_time_total", "cpu_memory_usage", "device_memory_usage"):
        total[column] = sum(_picked(columns, column, host))
    ranges = columns["is_user_annotation"]  # they enclose the other work of devices
    works = [row for row in range(len(table)) if row not in is_host and not ranges[row]]
    for column in ("self_device_time_total", "device_time_total"):
        total[column] = sum(_picked(columns, column, works or host))
    return total


def sum_rows(table: EventTable, keys: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """Return the sum of the host's rows for each key, and for the key None the device time that belongs to no op.

    keys: one for each row of the table. The sums are as in by_category(); columns that are omitted are unknown.
    """
    columns = table.columns
    host = _host_rows(table)
    use_ranges = _use_ranges(columns, host)
    groups: dict[Any, list[int]] = {}
    for row in host:
        groups.setdefault(keys[row], []).append(row)
    summed = {key: _summed(columns, rows, table.has_device, use_ranges) for key, rows in groups.items()}
    left = table.self_device_time_total - math.fsum(row["self_device_time_total"] for row in summed.values())
    if left > 0.001 * max(1, sum(row["count"] for row in summed.values())):  # more than the ns that rounding loses
        summed[None] = _summed(columns, [], True, use_ranges) | {
            "device_type": table.device_type,
            "self_device_time_total": left,
        }
        summed[None] |= {"device_time_total": left, _BUSY: left}
    return summed


def _host_rows(table: EventTable) -> list[int]:
    return [row for row, device in enumerate(table.columns["device_type"]) if device == "cpu"]


def _use_ranges(columns: _Lists, rows: Sequence[int]) -> bool:
    names = ("is_user_annotation", "flops", "bytes_total_moved")
    return only_ranges_have_work(zip(*(_picked(columns, name, rows) for name in names), strict=True))


def _picked(columns: _Lists, name: str, rows: Sequence[int]) -> list[Any]:
    values = columns[name]
    return [values[row] for row in rows]


def only_ranges_have_work(parts: Iterable[tuple[bool, float, float]]) -> bool:
    """Return whether no op's work is known, so that the work stated for ranges counts.

    parts: for each row, whether it is a range, its FLOPs and its bytes.
    """
    return all(is_range or (math.isnan(flops) and math.isnan(moved)) for is_range, flops, moved in parts)


def _summed(columns: _Lists, rows: list[int], on_device: bool, use_ranges: bool) -> dict[str, Any]:
    """Return the sum of rows; omitted columns are unknown. use_ranges: include the work stated for ranges."""
    total: dict[str, Any] = {"count": sum(_picked(columns, "count", rows))}
    for column in _OWN:
        total[column] = sum(_picked(columns, column, rows))
        total[column.removeprefix("self_")] = total[column]
    ranges = columns["is_user_annotation"]
    rows = [row for row in rows if use_ranges or not ranges[row]]
    total[_BUSY] = sum(_picked(columns, _BUSY, rows))
    for column in _WORK:
        total[column] = known_sum(_picked(columns, column, rows))
    total["flops_total"] = total["flops"]
    times = _rated_times(columns, rows, on_device)
    total["tflops_per_s"] = _rate(columns, rows, "flops", "tflops_per_s", 1e6, times)
    total["gbytes_per_s"] = _rate(columns, rows, "bytes_total_moved", "gbytes_per_s", 1e3, times)
    if total["bytes_total_moved"]:
        total["arithmetic_intensity"] = total["flops"] / total["bytes_total_moved"]
    terms = [_picked(columns, column, rows) for column in ("roofline_time", "headroom")]
    total["roofline_time"], total["headroom"] = map(known_sum, terms)
    limits = [least + beyond for least, beyond in zip(*terms, strict=True)]
    for column in ("pct_peak_flops", "pct_peak_bandwidth", "pct_roofline"):
        total[column] = share_of_all(zip(_picked(columns, column, rows), limits, strict=True))
    total["timing_source"] = columns["timing_source"][rows[0]] if rows else "trace"
    return total


def _rate(columns: _Lists, rows: Sequence[int], work: str, rate: str, per_us: float, times: Sequence[float]) -> float:
    """Return the work of the rows with a known rate per time that it took, in units of ``per_us`` per µs."""
    parts = zip(_picked(columns, work, rows), _picked(columns, rate, rows), times, strict=True)
    timed = [(done, time) for done, per_time, time in parts if time > 0 and not math.isnan(per_time)]
    if not timed:
        return math.nan
    return math.fsum(done for done, _ in timed) / math.fsum(time for _, time in timed) / per_us


def _rated_times(columns: _Lists, rows: Sequence[int], on_device: bool) -> list[float]:
    """Return the µs that each row's rates refer to: for a range with stated work, its whole duration."""
    if on_device:
        return _picked(columns, _BUSY, rows)
    names = ("is_user_annotation", "cpu_time_total", "self_cpu_time_total")
    parts = zip(*(_picked(columns, name, rows) for name in names), strict=True)
    return [whole if is_range else own for is_range, whole, own in parts]


def known_sum(values: Iterable[float]) -> float:
    """Return the sum of the values that are not NaN, or NaN if there are none."""
    known = [value for value in values if value == value]  # not NaN
    return math.fsum(known) if known else math.nan


def share_of_all(parts: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (share, time) pairs, weighted by time, or NaN if no pair is known."""
    known = [(share, time) for share, time in parts if share + time == share + time]
    total = math.fsum(time for _, time in known)
    return math.fsum(share * time for share, time in known) / total if total > 0 else math.nan

"""Ops and kernels by their names: sums of the rows of a table by category or another group; short names of kernels.

The core assigns the categories (csrc/work/category.h).
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope import _core

if TYPE_CHECKING:
    from flopscope.results.table import EventTable

OTHER = "other"
COLLECTION = "Python garbage collection"
"""The range that `flopscope run` records around each collection of Python's oldest objects."""
category_of = _core.category_of


def sum_rows(table: EventTable, keys: Sequence[Hashable]) -> dict[Any, dict[str, Any]]:
    """Return the sum of the host's rows for each key, and for the key None the device time that belongs to no op.

    keys: one for each row of the table. The sums are those of EventTable.by_category(); omitted columns are unknown.
    """
    groups, devices = dict[Hashable, int](), zip(keys, table.columns["device_type"], strict=True)
    numbers = [groups.setdefault(key, len(groups)) if device == "cpu" else -1 for key, device in devices]
    return dict(zip([*groups, None], rows_of_groups(table, numbers, [-1] * len(groups)), strict=False))


def rows_of_groups(
    table: EventTable, groups: Sequence[int], parents: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Return sums_of_groups() of a table as rows, and one more for the device time of no group, if there is any."""
    device_time = math.nan if parents is None else table.self_device_time_total
    sums = sums_of_groups(table._sources, groups, parents, table.has_device, device_time)
    sources = table.columns["timing_source"]
    sums["timing_source"] = [sources[row] if row >= 0 else "trace" for row in sums["first"]]
    rows = [dict(zip(sums, values, strict=True)) for values in zip(*sums.values(), strict=True)]
    if parents is not None and len(rows) > len(parents):
        rows[-1]["device_type"] = table.device_type
    return rows


_INTEGERS = ("count", "self_cpu_memory_usage", "cpu_memory_usage", "self_device_memory_usage", "device_memory_usage")
_TIMES = ("self_cpu_time_total", "cpu_time_total", "self_device_time_total", "device_time_total")
_WORK = ("flops", "bytes_read", "bytes_written", "bytes_total_moved", "roofline_time", "headroom")
_SHARES = ("pct_peak_flops", "pct_peak_bandwidth", "pct_roofline")
_RATES = (("tflops_per_s", "flops", 1e6), ("gbytes_per_s", "bytes_total_moved", 1e3))
"""Each rate with its work and the units of its work per µs: 1e12 FLOP/s are 1e6 FLOP/µs."""
_NESTED = (
    ("cpu_time_total", "self_cpu_time_total"), ("device_time_total", "self_device_time_total"),
    ("cpu_memory_usage", "self_cpu_memory_usage"), ("device_memory_usage", "self_device_memory_usage"),
)  # fmt: skip
_ROUNDING = 0.001
"""µs: times are whole ns."""


def sums_of_groups(
    columns: Mapping[str, Any],
    groups: Sequence[int],
    parents: Sequence[int] | None = None,
    on_device: bool = False,
    device_time: float = math.nan,
) -> dict[str, list[Any]]:
    """Return the columns of the sums of each group; a column may be absent.

    A sum is that of the group's rows, without unknown values; a mean or a rate is of the rows that have it. ``first``
    is the first row whose work counts, or -1. Total times and memory, and the columns ``rows``, ``flops_total`` and
    ``pct_roofline_total`` include the groups within.

    groups: of each row; -1 for none. parents: of each group, the one around it, before it, or -1; None: there is one
    group, whose totals are the sums of those columns. on_device: rates refer to busy time. device_time: that of the
    whole profile; what the groups leave of it is one more sum.
    """
    import numpy as np

    absent = {name: np.zeros(len(groups), np.int64) for name in (*_INTEGERS, "is_user_annotation")}
    unknown = np.full(len(groups), np.nan)

    def column(name: str) -> Any:
        default = absent.get(name, unknown)
        return np.asarray(columns.get(name, default), dtype=default.dtype)

    group = np.asarray(groups, dtype=np.int64)
    count = 1 if parents is None else len(parents)
    inside, ranges, flops = group >= 0, column("is_user_annotation") != 0, column("flops")
    # What a program states for a range is the work of the ops in it: it counts only if no op of any group has work.
    ops = inside & ~ranges
    working = ops if (~np.isnan(flops[ops]) | ~np.isnan(column("bytes_total_moved")[ops])).any() else inside

    def added(values: Any, rows: Any) -> Any:
        """Return the sums of the known values of these rows; of integers as long double, which is exact for int64."""
        rows = rows & ~np.isnan(values)
        if values.dtype != np.int64:
            return np.bincount(group[rows], values[rows], count + 1).astype(float)
        sums = np.zeros(count + 1, np.longdouble)
        np.add.at(sums, group[rows], values[rows])
        return sums

    def known(sums: Any, values: Any, rows: Any) -> Any:
        return np.where(added(~np.isnan(values), rows & ~np.isnan(values)) > 0, sums, np.nan)

    first = np.full(count + 1, -1)
    rows = np.flatnonzero(working)[::-1]
    first[group[rows]] = rows  # of the rows of a group, the assignment of the first comes last
    sums: dict[str, Any] = {"first": first, "rows": added(inside, inside)}
    sums |= {name: added(column(name), inside) for name in (*_INTEGERS, *_TIMES)}
    sums["device_busy_time"] = added(column("device_busy_time"), working)
    sums |= {name: known(added(column(name), working), column(name), working) for name in _WORK}
    elapsed = column("device_busy_time")
    if not on_device:  # of a range with stated work, its whole duration
        elapsed = np.where(ranges, column("cpu_time_total"), column("self_cpu_time_total"))
    limit = column("roofline_time") + column("headroom")
    pairs = {}  # the sum of what is averaged, and its weights
    for name, work, unit in _RATES:
        rated = working & ~np.isnan(column(name)) & (elapsed > 0)
        pairs[name] = added(column(work), rated) / unit, added(elapsed, rated)
    with np.errstate(divide="ignore", invalid="ignore"):
        for name in _SHARES:
            shared = column(name) * limit
            pairs[name] = added(shared, working), added(limit, working & ~np.isnan(shared))
        sums |= {name: np.where(weights > 0, value / weights, np.nan) for name, (value, weights) in pairs.items()}
        moved = sums["bytes_total_moved"]
        sums["arithmetic_intensity"] = np.where(moved != 0, sums["flops"] / moved, np.nan)
    if parents is not None:
        sums |= {name: sums[own].copy() for name, own in _NESTED}
    flops_total, with_flops = added(flops, working), added(~np.isnan(flops), working & ~np.isnan(flops))
    shared, weights = pairs["pct_roofline"]
    totals = [sums["rows"], *(sums[name] for name, _ in _NESTED), flops_total, with_flops, shared, weights]
    for inner, outer in reversed([*enumerate(parents or ())]):  # each has the totals of all within it by then
        if outer >= 0:
            for total in totals:
                total[outer] += total[inner]
    with np.errstate(divide="ignore", invalid="ignore"):
        sums["flops_total"] = np.where(with_flops > 0, flops_total, np.nan)
        sums["pct_roofline_total"] = np.where(weights > 0, shared / weights, np.nan)
    left = device_time - sums["self_device_time_total"][:count].sum()
    for name in ("self_device_time_total", "device_time_total", "device_busy_time"):
        sums[name][count] = left
    shown = count + bool(left > _ROUNDING * max(sums["count"][:count].sum(), 1))
    whole = {"first", "rows", *_INTEGERS}
    return {name: _python_of(values[:shown], name in whole) for name, values in sums.items()}


def _python_of(values: Any, whole: bool) -> list[Any]:
    """Return a sum's values as integers within the range of int64, or as floats."""
    if not whole:
        return list(values.astype(float).tolist())
    return [max(min(int(value), 2**63 - 1), -(2**63)) for value in values]


# Names of kernels: C++ signatures, and Numba's tags -------------------------------------------------------------------

_NOISE = re.compile(
    r"^void |\(anonymous namespace\)::|\[abi:[^\]]*\]|\b(?:at::native::|at::|c10::|std::|__main__::"
    r"|cuda::(?:std::)?(?:__\d+::)?|(?:cub|thrust)::(?:(?:CUB|THRUST)_\w+::)?(?:[a-z_]+::)*)"
)


def short_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return a short name for each name; names whose short forms would be equal keep their full ones."""
    short = {name: _NOISE.sub("", _without_arguments(name)) or name for name in names}
    owners: dict[str, list[str]] = {}
    for name, one in short.items():
        owners.setdefault(one, []).append(name)
    return {name: one if len(owners[one]) == 1 else name for name, one in short.items()}


def _without_arguments(name: str) -> str:
    """Return a C++ signature without its last pair of parentheses: ``f<(int)4>(float*)`` is ``f<(int)4>``."""
    if not name.endswith(")"):
        return name
    depth = 0
    for i in range(len(name) - 1, 0, -1):
        depth += (name[i] == ")") - (name[i] == "(")
        if depth == 0:
            return name[:i] if name[i - 1] not in " :" else name  # "Memset (Device)" has no arguments
    return name


OF_TRITON = "triton::"
"""What the name of a launch of Triton begins with, unless its kernel names it."""


def is_op_of_library(name: str) -> bool:
    """Return whether a name is that of an op with arguments, such as aten::mm; a launch of Triton has none recorded."""
    return "::" in name and not name.startswith(OF_TRITON)

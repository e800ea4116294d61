"""Ops and kernels by their names: sums of the rows of a table by category or another group; short names of kernels.

The core assigns the categories (csrc/work/category.h) and sums the rows (csrc/table/group_sums.h).
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.results.columns import NO_OP

if TYPE_CHECKING:
    from flopscope.results.table import EventTable

OTHER = "other"
category_of = _core.category_of


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
    host = [device == "cpu" for device in columns["device_type"]]
    ranges = columns["is_user_annotation"]  # on devices, they enclose the other work
    works = [not (is_host or is_range) for is_host, is_range in zip(host, ranges, strict=True)]
    total = rows_of_groups(table, [is_host - 1 for is_host in host])[0]
    if any(works):
        device = rows_of_groups(table, [is_work - 1 for is_work in works])[0]
        total |= {name: device[name] for name in ("self_device_time_total", "device_time_total")}
    return {**total, "key": "Total", "count": sum(columns["count"])}


def sum_rows(table: EventTable, keys: Sequence[Hashable]) -> dict[Any, dict[str, Any]]:
    """Return the sum of the host's rows for each key, and for the key None the device time that belongs to no op.

    keys: one for each row of the table. The sums are as in by_category(); columns that are omitted are unknown.
    """
    groups: dict[Hashable, int] = {}
    devices = zip(keys, table.columns["device_type"], strict=True)
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


def sums_of_groups(
    columns: Mapping[str, Any],
    groups: Sequence[int],
    parents: Sequence[int] | None = None,
    on_device: bool = False,
    device_time: float = math.nan,
) -> dict[str, list[Any]]:
    """Return the columns of the sums of each group, as csrc/table/group_sums.h lists them; a column may be absent.

    groups: of each row; -1 for none. parents: of each group, the one around it, before it, or -1; None: there is one
    group. device_time: that of the whole profile; what the groups leave of it is one more sum.
    """
    import numpy as np

    unknown = np.zeros(len(groups), np.int64), np.full(len(groups), np.nan)
    integers, numbers = (
        np.array([columns.get(name, absent) for name in names], dtype=absent.dtype)
        for names, absent in zip(_core.summed_columns, unknown, strict=True)
    )
    around = None if parents is None else np.array(parents, dtype=np.int64)
    sums = _core.sum_rows(integers, numbers, np.array(groups, dtype=np.int64), around, on_device, device_time)
    return {name: values.tolist() for name, values in sums.items()}


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

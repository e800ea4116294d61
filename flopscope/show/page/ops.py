"""The section Ops: the rows, grouped in every way that the recording allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flopscope.results.columns import NO_MODULE
from flopscope.results.table import EventTable
from flopscope.show.page import rows
from flopscope.show.page.encode import Columns
from flopscope.show.page.profile import Profile
from flopscope.show.page.rows import encode_table, identities, longest_first, places_of_largest

_FLAT = ("dtype", "stack", "line", "step", "stream")
"""Groupings whose rows keep their names: words of key_averages()."""


def section(source: Profile, columns: Columns) -> dict[str, Any]:
    """Return the groupings of the rows. That by shape is the table of the page itself."""
    names, names_left = _largest(source.names)
    name_of = {identity: place for place, identity in enumerate(identities(names.columns))}
    named = [name_of.get(identity, -1) for identity in identities(source.rows.columns)]
    by_shape = source.has_shape_rows
    shapes = _below(named, len(names), longest_first(source.rows), "shape", columns) if by_shape else None
    groupings = [
        {**_grouping("name", "Name", names, columns, children=shapes), "left_out": names_left},
        {"id": "shape", "title": "Name and shape" if by_shape else "Name", "table": None}
        | {"names": columns.add(np.array(named, dtype=np.int64)), "hidden": not by_shape},
    ]
    for word in _FLAT:
        table = source.table(("name", word)) if _is_told(source, word) else None
        if table is not None and any(_values(table, word)):
            groupings.append(_named(word, f"Name and {word}", table, columns, name_of))
    category = source.names.by_category()
    of = {key: place for place, key in enumerate(category.columns["key"])}
    words = zip(names.columns["category"], names.columns["device_type"], strict=True)
    inside = [of.get(word, -1) if host == "cpu" else -1 for word, host in words]
    children = _below(inside, len(category), longest_first(names), "name", columns)
    groupings.append(_grouping("category", "Category", category, columns, children=children))
    groupings += _modules(source, columns, name_of)
    return {"groupings": groupings, "most_rows": rows.MOST_ROWS, **_default(source)}


def _is_told(source: Profile, word: str) -> bool:
    """Return whether the program has more than one value of a grouping, as far as that is known before it is made."""
    if word == "stream":
        return sum(stream is not None for stream in source.streams["stream"]) > 1
    return word != "step" or source.analysis.has_steps


def _values(table: EventTable, word: str) -> Sequence[Any]:
    """Return what the rows are grouped by besides the name, as values that can be compared."""
    if word == "stack":
        return [tuple(stack) for stack in table.stacks or ()]
    return table.groups.get(word) or ()


def _default(source: Profile) -> dict[str, Any]:
    """Return what the table shows first: ops, or kernels if most device time belongs to no op; longest first."""
    table = source.names
    if not table.has_device:
        return {"kind": "op", "sort": "self_cpu_time_total", "no_op": 0.0}
    names = ("self_device_time_total", "device_type", "is_user_annotation")
    timed = zip(*(table.columns[name] for name in names), strict=True)
    owned = sum(time for time, kind, is_range in timed if kind == "cpu" and not is_range)
    left = max(table.self_device_time_total - owned, 0.0)
    kind = "op" if owned >= 0.5 * table.self_device_time_total else "kernel"
    return {"kind": kind, "sort": "self_device_time_total", "no_op": left}


def _modules(source: Profile, columns: Columns, name_of: Mapping[Any, int]) -> list[dict[str, Any]]:
    """Return the tree of modules, and hidden below it the ops of each."""
    tree, inner = map(source.table, (("module",), ("name", "module", "category")))
    if tree is None or inner is None:
        return []
    of = {path: place for place, path in reversed(list(enumerate(tree.groups["module"])))}
    paths = zip(inner.groups["module"], inner.columns["device_type"], strict=True)
    inside = [of.get(path or NO_MODULE, -1) if host == "cpu" else -1 for path, host in paths]
    children = _below(inside, len(tree), longest_first(inner), "name and module", columns)
    depth = columns.add(np.array(tree.groups["module_depth"], dtype=np.int64))
    named = _named("name and module", "Name and module", inner, columns, name_of, whole=True)
    modules = _grouping("module", "Module", tree, columns, children=children)
    return [{**modules, "depth": depth}, {**named, "hidden": True}]


def _named(
    id: str, title: str, table: EventTable, columns: Columns, name_of: Mapping[Any, int], *, whole: bool = False
) -> dict[str, Any]:
    """Return a grouping whose rows have names, with the number of each row's name in the grouping by name."""
    kept, left = (table, None) if whole else _largest(table)
    numbers = np.array([name_of.get(identity, -1) for identity in identities(kept.columns)], dtype=np.int64)
    return {**_grouping(id, title, kept, columns), "names": columns.add(numbers), "left_out": left}


def _grouping(
    id: str, title: str, table: EventTable, columns: Columns, *, children: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"id": id, "title": title, "table": encode_table(table, columns), "children": children}


def _below(
    around: Sequence[int], count: int, longest: npt.NDArray[np.int64], of: str, columns: Columns
) -> dict[str, Any]:
    """Return the rows of another grouping that stand below each of ``count`` rows, longest first.

    around: for each row of the other grouping, the row that it stands below, or -1. longest: those rows by their time.
    """
    above = np.asarray(around, dtype=np.int64)[longest]
    order = np.argsort(above, kind="stable")
    begin = np.searchsorted(above[order], np.arange(count + 1))
    return {"of": of, "begin": columns.add(begin - begin[0]), "rows": columns.add(longest[order[begin[0] :]])}


def _largest(table: EventTable) -> tuple[EventTable, dict[str, Any] | None]:
    """Return the rows with the most time, in their order, and what was left out, if anything was."""
    kept = places_of_largest(table)
    if kept is None:
        return table, None
    shown = table.select(kept)
    names = {"device_time": "self_device_time_total", "host_time": "self_cpu_time_total"}
    times = {time: sum(table.columns[name]) - sum(shown.columns[name]) for time, name in names.items()}
    return shown, {"rows": len(table) - len(kept), **times}

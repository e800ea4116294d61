"""The modules (torch.nn.Module) of a program: a table of them as a tree, with what each takes with its submodules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flopscope.results.categories import known_sum, share_of_all, sum_rows
from flopscope.results.kinds import NO_MODULE, NO_OP
from flopscope.results.table import EventTable
from flopscope.support import upward
from flopscope.support.suggest import suggesting

__all__ = ["NO_MODULE", "ModuleTable", "Tree", "by_module"]

PREFIX = "nn.Module: "
MOST_PATH = 4096  # characters of a path to which a name is added
_TOTALS = {
    "cpu_time_total": "self_cpu_time_total",
    "device_time_total": "self_device_time_total",
    "cpu_memory_usage": "self_cpu_memory_usage",
    "device_memory_usage": "self_device_memory_usage",
}


class Tree:
    """The modules that the core found, by index: names, parents (-1: none) and calls. Parents come first."""

    def __init__(self, modules: Iterable[tuple[str, int, int]]) -> None:
        given = list(modules)
        self.names = [name.removeprefix(PREFIX) for name, _, _ in given]
        self.parents = [parent for _, parent, _ in given]
        self.calls = [calls for _, _, calls in given]
        self.depths: list[int] = []
        self.paths: list[str] = []
        for name, parent in zip(self.names, self.parents, strict=True):
            self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
            around = self.paths[parent] if parent >= 0 else ""
            if len(around) > MOST_PATH:  # otherwise the paths of modules nested without end would fill the memory
                around = "…"
            self.paths.append(f"{around}/{name}" if parent >= 0 else name)

    def path(self, module: int | None) -> str | None:
        """Return the names of a module and of those around it, "GPT_0/Block_0/Linear_1"; None for None."""
        return None if module is None else self.paths[module]

    def in_order(self) -> list[int]:
        """Return the modules, each followed by its submodules."""
        children: dict[int, list[int]] = {}
        for module, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(module)
        order: list[int] = []
        left = list(reversed(children.get(-1, [])))
        while left:
            order.append(left.pop())
            left += reversed(children.get(order[-1], []))
        return order


@suggesting
class ModuleTable(EventTable):
    """A table with a row for each module, followed by its submodules.

    Times, FLOPs and bytes are those of the ops in the module itself, forward and backward; the columns
    ``device_time_total``, ``cpu_time_total``, the memory and ``flops_total`` add those of its submodules. ``count`` is
    the number of ops and ranges. "(no module)" is what runs outside of all modules, or whose module is unknown;
    "(no op)" is device work of no known launch. Further columns: ``module`` (its path), ``module_depth``,
    ``module_calls`` (of the forward pass) and ``pct_roofline_total`` (with submodules).
    """

    def _depths(self) -> list[int]:
        return [int(depth) for depth in self._groups["module_depth"]]

    def sorted(self, by: str) -> ModuleTable:
        """Return the tree with the submodules of each module sorted by a column; see EventTable.sorted."""
        rank = {index: place for place, index in enumerate(self._order(by))}
        children: list[list[int]] = [[] for _ in self]
        roots: list[int] = []
        around: list[int] = []
        for i, depth in enumerate(self._depths()):
            del around[depth:]
            (children[around[-1]] if around else roots).append(i)
            around.append(i)
        order: list[int] = []
        left = sorted(roots, key=rank.__getitem__, reverse=True)
        while left:
            order.append(left.pop())
            left += sorted(children[order[-1]], key=rank.__getitem__, reverse=True)
        return self._select(order)

    def largest(self, count: int) -> ModuleTable:
        """Return the rows with the largest total times, all if ``count`` is negative; they stay in order."""
        if count < 0 or count >= len(self):
            return self
        time = "device_time_total" if self.has_device else "cpu_time_total"
        order = sorted(range(len(self)), key=lambda i: (-self.columns[time][i], i))
        return self._select(sorted(order[:count]))

    def tree(self, row_limit: int = -1, time_unit: str | None = None) -> str:
        """Return the tree as indented text: calls, self and total time, FLOPs and share of the roofline.

        row_limit: number of modules to print, those with the largest total times; -1 for all. time_unit: as in table().
        """
        return upward.rooms.tree_text(self.largest(row_limit), time_unit)

    def _select(self, indices: Iterable[int]) -> ModuleTable:
        chosen = super()._select(indices)
        assert isinstance(chosen, ModuleTable)
        return chosen

    def __str__(self) -> str:
        return self.tree()


def by_module(table: EventTable, modules: Sequence[int | None], tree: Tree) -> ModuleTable:
    """Return one row per module, of a table whose rows are separated by these modules."""
    summed = sum_rows(table, [-1 if module is None else module for module in modules])
    used = _with_parents((i for i, calls in enumerate(tree.calls) if calls or i in summed), tree)
    order = [module for module in tree.in_order() if module in used]
    rows = [dict(summed.get(module, _EMPTY)) for module in order]
    totals = {module: _Total() for module in order}
    for module, row in zip(reversed(order), reversed(rows), strict=True):
        totals[module].add(row)
        totals[module].finish(row)
        if tree.parents[module] in totals:
            totals[tree.parents[module]].add_total(totals[module])
    groups: dict[str, list[Any]] = {
        "module": [tree.paths[module] for module in order],
        "module_depth": [tree.depths[module] for module in order],
        "module_calls": [tree.calls[module] for module in order],
        "pct_roofline_total": [totals[module].share() for module in order],
    }
    for row, module in zip(rows, order, strict=True):
        row["key"] = tree.names[module]
    for key, name in ((-1, NO_MODULE), (None, NO_OP)):
        if key in summed:
            rows.append({**summed[key], "key": name})
            for column, value in zip(groups, (name, 0, 0, summed[key].get("pct_roofline", math.nan)), strict=True):
                groups[column].append(value)
    plain = table.with_rows(rows)
    return ModuleTable(plain._sources, plain.facts, groups=groups)


def _with_parents(modules: Iterable[int], tree: Tree) -> set[int]:
    """Return the modules of a list and those around them."""
    found: set[int] = set()
    for module in modules:
        while module >= 0 and module not in found:
            found.add(module)
            module = tree.parents[module]
    return found


_EMPTY: Mapping[str, Any] = {own: 0 for own in _TOTALS.values()}


class _Total:
    """What a module takes with its submodules."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(_TOTALS, 0.0)
        self.flops = math.nan
        self.shares: list[tuple[float, float]] = []

    def add(self, row: Mapping[str, Any]) -> None:
        for total, own in _TOTALS.items():
            self.sums[total] += row.get(own, 0)
        self.flops = known_sum((self.flops, row.get("flops", math.nan)))
        time = row.get("roofline_time", math.nan) + row.get("headroom", math.nan)
        self.shares.append((row.get("pct_roofline", math.nan), time))

    def add_total(self, other: _Total) -> None:
        for total in _TOTALS:
            self.sums[total] += other.sums[total]
        self.flops = known_sum((self.flops, other.flops))
        time = math.fsum(time for share, time in other.shares if not math.isnan(share + time))
        self.shares.append((other.share(), time))

    def share(self) -> float:
        return share_of_all(self.shares)

    def finish(self, row: dict[str, Any]) -> None:
        """Set the totals of a row. Memory stays a whole number."""
        for total, value in self.sums.items():
            row[total] = int(value) if total.endswith("usage") else value
        row["flops_total"] = self.flops

"""The modules (torch.nn.Module) of a program: a table of them as a tree, with what each takes with its submodules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from flopscope.results.categories import rows_of_groups
from flopscope.results.columns import NO_MODULE, NO_OP
from flopscope.results.table import EventTable
from flopscope.support import upward

PREFIXES = re.compile("nn.Module: |scope: ")  # the second: of a JAX program
MOST_PATH = 4096  # characters of a path to which a name is added


class Tree:
    """The modules that the core found, by index: names, parents (-1: none) and calls. Parents come first."""

    def __init__(self, modules: Iterable[tuple[str, int, int]]) -> None:
        given = list(modules)
        self.names = [PREFIXES.sub("", name, count=1) if PREFIXES.match(name) else name for name, _, _ in given]
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


class ModuleTable(EventTable):
    """A table with a row for each module, followed by its submodules.

    Times, FLOPs and bytes are those of the ops in the module itself, forward and backward; the columns
    ``device_time_total``, ``cpu_time_total``, the memory and ``flops_total`` add those of its submodules. ``count`` is
    the number of ops and ranges. "(no module)" is what runs outside of all modules, or whose module is unknown;
    "(no op)" is device work of no known launch. Further columns: ``module`` (its path), ``module_depth``,
    ``module_calls`` (of the forward pass) and ``pct_roofline_total`` (with submodules).
    """

    def depths(self) -> list[int]:
        """Return the number of modules around each row."""
        return [int(depth) for depth in self.groups["module_depth"]]

    def sorted(self, by: str) -> ModuleTable:
        """Return the tree with the submodules of each module sorted by a column; see EventTable.sorted."""
        rank = {index: place for place, index in enumerate(self._order(by))}
        children: list[list[int]] = [[] for _ in self]
        roots: list[int] = []
        around: list[int] = []
        for i, depth in enumerate(self.depths()):
            del around[depth:]
            (children[around[-1]] if around else roots).append(i)
            around.append(i)
        order: list[int] = []
        left = sorted(roots, key=rank.__getitem__, reverse=True)
        while left:
            order.append(left.pop())
            left += sorted(children[order[-1]], key=rank.__getitem__, reverse=True)
        return self.select(order)

    def largest(self, count: int) -> ModuleTable:
        """Return the rows with the largest total times, all if ``count`` is negative; they stay in order."""
        if count < 0 or count >= len(self):
            return self
        time = "device_time_total" if self.has_device else "cpu_time_total"
        order = sorted(range(len(self)), key=lambda i: (-self.columns[time][i], i))
        return self.select(sorted(order[:count]))

    def __str__(self) -> str:
        return upward.rooms.tree_text(self)


def by_module(table: EventTable, modules: Sequence[int | None], tree: Tree) -> ModuleTable:
    """Return one row per module, of a table whose rows are separated by these modules."""
    outside, hosts = len(tree.names), [device == "cpu" for device in table.columns["device_type"]]
    found = zip(modules, hosts, strict=True)
    groups = [-1 if not is_host else outside if module is None else module for module, is_host in found]
    rows = rows_of_groups(table, groups, [*tree.parents, -1])
    used = [row["rows"] > 0 or calls > 0 for row, calls in zip(rows, (*tree.calls, 0), strict=False)]
    for module in reversed(range(outside)):
        if used[module] and tree.parents[module] >= 0:
            used[tree.parents[module]] = True
    order = [module for module in tree.in_order() if used[module]]
    order += [group for group in range(outside, len(rows)) if group > outside or used[group]]
    labels: dict[str, list[Any]] = {
        "key": [*tree.names, NO_MODULE, NO_OP],
        "module": [*tree.paths, NO_MODULE, NO_OP],
        "module_depth": [*tree.depths, 0, 0],
        "module_calls": [*tree.calls, 0, 0],
        "pct_roofline_total": [row["pct_roofline_total"] for row in rows],
    }
    names, *columns = ([values[group] for group in order] for values in labels.values())
    plain = table.with_rows({**rows[group], "key": name} for group, name in zip(order, names, strict=True))
    return ModuleTable(plain._sources, plain.facts, groups=dict(zip(list(labels)[1:], columns, strict=True)))

"""What rows of a table are grouped by, in ``key_averages(group_by=…)`` and the command; and modules as a tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flopscope._core import Store
from flopscope.results.categories import rows_of_groups, sum_rows
from flopscope.results.columns import NO_MODULE, NO_OP
from flopscope.results.table import EventTable
from flopscope.support.suggest import did_you_mean

NOT_DTYPES = ("", "scalar")  # of arguments that are not tensors
STACK_ENTRIES = 5  # innermost Python calls, for "stack"


class Grouping(NamedTuple):
    """A way to group rows."""

    core: bool = False
    """Whether the core separates rows by it: FS_GROUPING_LIST in csrc/table/table.h."""
    sums: bool = False
    """Whether it replaces the names, unless those are requested too: a row is the sum of the rows of all names."""
    missing: str = ""
    """Why no row has it, and what records it."""


GROUPINGS: dict[str, Grouping] = {
    **dict.fromkeys(("name", "shape"), Grouping()),
    "dtype": Grouping(core=True),
    "stack": Grouping(),
    "module": Grouping(
        core=True,
        sums=True,
        missing="no modules are recorded; torch.profiler records them with with_stack=True, and ranges count that are "
        'named as modules: record_function("nn.Module: Block_0")',
    ),
    "category": Grouping(sums=True),
    "step": Grouping(core=True, missing="no steps are recorded; prof.step() ends each step"),
    "stream": Grouping(core=True, missing="no device work is recorded without ProfilerActivity.CUDA in activities"),
    "line": Grouping(core=True),
}
"""By word; key_averages() says what each is."""


def words_of(group_by: str | Iterable[str]) -> tuple[str, ...]:
    """Return the words of a grouping, each once. Raise ValueError for an unknown one or an impossible combination."""
    words = tuple(dict.fromkeys((group_by,) if isinstance(group_by, str) else group_by))
    for word in words:
        if word not in GROUPINGS:
            hint = did_you_mean(word, GROUPINGS)
            raise ValueError(f"group_by must be one or several of {', '.join(GROUPINGS)}; got {word!r}{hint}")
    if "stream" in words and sums_names(words):
        why = '"module" and "category" sum up ops, which have no stream'
        raise ValueError(f'group_by: {why}; group by ["name", "stream", …]')
    return words


def sums_names(words: Sequence[str]) -> bool:
    """Return whether the rows are sums over names."""
    keeps = {"name", "shape", "dtype", "stack"} & set(words)
    return not keeps and any(GROUPINGS[word].sums for word in words)


def require(core: Store, words: Sequence[str], shapes_option: str, has_shapes: bool, has_stacks: bool) -> None:
    """Raise ValueError if the profile lacks what the rows are to be grouped by, naming the option that records it."""
    lacking = {
        "shape": (not has_shapes, "input shapes", shapes_option),
        "dtype": (not core.has_shapes, "input dtypes", shapes_option),
        "stack": (not has_stacks, "stacks", "with_stack=True"),
        "line": (not has_stacks, "stacks", "with_stack=True"),
    }
    for word in words:
        absent, what, option = lacking.get(word, (False, "", ""))
        if absent:
            raise ValueError(f"group_by={word!r}: no {what} are recorded without {option}")
        if word == "module" and not core.has_modules:
            raise ValueError(f"group_by={word!r}: {GROUPINGS[word].missing}")


def grouped(core: Store, table: EventTable, by_row: Mapping[str, Any], words: Sequence[str]) -> EventTable:
    """Return the table of a store grouped by these words, of a table that the core has separated by them.

    by_row: as Grouped.rows.
    """
    found = {word: by_row[word] for word in ("step", "line", "stream", "module") if word in words}
    for word, values in found.items():
        if GROUPINGS[word].missing and all(value is None for value in values):
            raise ValueError(f"group_by={word!r}: {GROUPINGS[word].missing}")
    if "stream" in found:
        found["stream"] = [value and f"{core.device_name(value[0])} stream {value[1]}" for value in found["stream"]]
    if "category" in words:
        found["category"] = table.columns["category"]
    tree = Tree(by_row["modules"]) if "module" in words else None
    if sums_names(words):
        return _summed(table, found, tree)
    if tree is not None:
        found["module"] = [tree.path(module) for module in found["module"]]
    if "dtype" in words:
        known = ((one for one in dtypes if one not in NOT_DTYPES) for dtypes in table.columns["input_dtypes"])
        found["dtype"] = [", ".join(dtypes) for dtypes in known]
    return table._with_groups(found)


def _summed(table: EventTable, found: Mapping[str, list[Any]], tree: Tree | None) -> EventTable:
    """Return one row for each combination of the values found, the sum of the host's rows that have it."""
    if tree is not None and len(found) == 1:
        return by_module(table, found["module"], tree)
    sums, labels = sum_rows(table, list(zip(*found.values(), strict=True))), dict[str, list[Any]]()
    labels |= {word: [None if key is None else key[i] for key in sums] for i, word in enumerate(found)}
    if tree is not None:
        labels["module"] = [tree.path(module) for module in labels["module"]]
    categories_of = labels.pop("category", [None] * len(sums))
    if "category" in found:
        names = [NO_OP if name is None else name for name in categories_of]
    else:
        paths = zip(sums, labels["module"], strict=True)
        names = [NO_OP if key is None else path or NO_MODULE for key, path in paths]
    values = zip(sums.values(), names, categories_of, strict=True)
    named = [{**row, "key": name, "category": category} for row, name, category in values]
    return table.with_rows(named)._with_groups(labels)


# Modules (torch.nn.Module) ------------------------------------------------------------------------------------------

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


def depth_first(parents: Sequence[int], order: Iterable[int]) -> list[int]:
    """Return the nodes of a forest, each followed by those below it, which are in this order. parents: -1 for none."""
    children: dict[int, list[int]] = {}
    for node in order:
        children.setdefault(parents[node], []).append(node)
    found: list[int] = []
    left = children.get(-1, [])[::-1]
    while left:
        found.append(left.pop())
        left += reversed(children.get(found[-1], []))
    return found


class ModuleTable(EventTable):
    """A table with a row for each module, followed by its submodules.

    Times, FLOPs and bytes are those of the ops in the module itself, forward and backward; the columns
    ``device_time_total``, ``cpu_time_total``, the memory and ``flops_total`` add those of its submodules. ``count`` is
    the number of ops and ranges. "(no module)" is what runs outside of all modules, or whose module is unknown;
    "(no op)" is device work of no known launch. Further columns: ``module`` (its path), ``module_depth``,
    ``module_calls`` (of the forward pass) and ``pct_roofline_total`` (with submodules).
    """

    def _order(self, by: str) -> list[int]:
        """Return the order of the tree in which the submodules of each module are sorted by a column."""
        parents: list[int] = []
        around: list[int] = []
        for i, depth in enumerate(self.groups["module_depth"]):
            del around[depth:]
            parents.append(around[-1] if around else -1)
            around.append(i)
        return depth_first(parents, super()._order(by))

    def largest(self, count: int) -> ModuleTable:
        """Return the rows with the largest total times, all if ``count`` is negative; they stay in order."""
        if count < 0 or count >= len(self):
            return self
        time = self.own_time.removeprefix("self_")
        order = sorted(range(len(self)), key=lambda i: (-self.columns[time][i], i))
        return self.select(sorted(order[:count]))


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
    order = [module for module in depth_first(tree.parents, range(outside)) if used[module]]
    order += [group for group in range(outside, len(rows)) if group > outside or used[group]]
    named = {"key": tree.names, "module": tree.paths}
    labels: dict[str, list[Any]] = {name: [*values, NO_MODULE, NO_OP] for name, values in named.items()}
    labels |= {"module_depth": [*tree.depths, 0, 0], "module_calls": [*tree.calls, 0, 0]}
    labels["pct_roofline_total"] = [row["pct_roofline_total"] for row in rows]
    names, *columns = ([values[group] for group in order] for values in labels.values())
    plain = table.with_rows({**rows[group], "key": name} for group, name in zip(order, names, strict=True))
    return ModuleTable(plain._sources, plain.facts, groups=dict(zip(list(labels)[1:], columns, strict=True)))

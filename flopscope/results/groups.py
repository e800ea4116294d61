"""What the rows of a table are grouped by: ``key_averages(group_by=…)`` and ``flopscope table --group-by``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flopscope._core import Store
from flopscope.results import categories, modules
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
    "rank": Grouping(),
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
        raise ValueError(
            'group_by: "module" and "category" sum up ops, which have no stream; group by ["name", "stream", …]'
        )
    return words


def sums_names(words: Sequence[str]) -> bool:
    """Return whether the rows are sums over names."""
    keeps = {"name", "shape", "dtype", "stack"} & set(words)
    return not keeps and any(GROUPINGS[word].sums for word in words)


def require(
    core: Store, words: Sequence[str], shapes_option: str, has_shapes: bool, has_stacks: bool, rank: int | None
) -> None:
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
    if "rank" in words and rank is None:
        raise ValueError("group_by='rank': the profile names no rank; torch.distributed adds it to traces")


def grouped(
    core: Store, table: EventTable, by_row: Mapping[str, Any], words: Sequence[str], rank: int | None
) -> EventTable:
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
    tree = modules.Tree(by_row["modules"]) if "module" in words else None
    if sums_names(words):
        table = _summed(table, found, tree)
    else:
        if tree is not None:
            found["module"] = [tree.path(module) for module in found["module"]]
        if "dtype" in words:
            found["dtype"] = [
                ", ".join(dtype for dtype in dtypes if dtype not in NOT_DTYPES)
                for dtypes in table.columns["input_dtypes"]
            ]
        table = table._with_groups(found)
    if "rank" not in words:
        return table
    return type(table)(table._sources, table.facts, {**table.parts, "ranks": [rank] * len(table)}, table.groups)


def _summed(table: EventTable, found: Mapping[str, list[Any]], tree: modules.Tree | None) -> EventTable:
    """Return one row for each combination of the values found, the sum of the host's rows that have it."""
    if tree is not None and len(found) == 1:
        return modules.by_module(table, found["module"], tree)
    keys = list(zip(*found.values(), strict=True))
    sums = categories.sum_rows(table, keys)
    labels: dict[str, list[Any]] = {
        word: [None if key is None else key[i] for key in sums] for i, word in enumerate(found)
    }
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

"""Tables of recorded events, one row per group.

``EventTable`` and ``EventRow`` have the attributes of ``torch.profiler``'s ``key_averages()`` and its rows, and add
work and roofline. All numbers come from the C core; only averages per call are computed here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from flopscope.results.columns import COLUMNS, GROUPS, RANK, STACK, Column
from flopscope.support import units
from flopscope.views import arrow, frame, html, text

if TYPE_CHECKING:
    import pandas
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]

__all__ = ["COLUMNS", "Column", "EventRow", "EventTable"]


_COLUMN_NAMES = tuple(column.name for column in COLUMNS)


class EventRow:
    """One row of an EventTable. Every column is an attribute; times are in µs, memory in bytes.

    Attributes of torch.profiler's rows that begin with ``cuda`` work and warn: use those with ``device``.
    """

    __slots__ = ("_index", "_table")

    def __init__(self, table: EventTable, index: int) -> None:
        self._table = table
        self._index = index

    if TYPE_CHECKING:  # the columns: properties made from COLUMNS below

        def __getattr__(self, name: str) -> Any: ...

    @property
    def cpu_time(self) -> float:
        """Host time per call in µs."""
        return float(self.cpu_time_total / self.count) if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Device time per call in µs."""
        return float(self.device_time_total / self.count) if self.count else 0.0

    @property
    def top_level(self) -> bool:
        """Whether some event of the row has no parent."""
        return self._table._top_level[self._index]

    @property
    def stack(self) -> list[str]:
        """The Python calls that enclose the row's events, "path/file.py(line): function", innermost first.

        As many as the rows are grouped by; [] if they are not grouped by stack, and for rows of devices.
        """
        return self._table._stacks[self._index] if self._table._stacks is not None else []

    @property
    def rank(self) -> int | None:
        """The rank of the row's process in a table of several ranks; None in other tables."""
        return self._table._ranks[self._index] if self._table._ranks is not None else None

    @property
    def group(self) -> str:
        """What else the rows are grouped by than names, shapes and stacks: the step, the stream, the module, …"""
        groups = self._table._groups
        words = ("category", "dtype", "module", "line", "stream", "step")
        values = (groups[word][self._index] for word in words if word in groups)
        return ", ".join(value for value in values if value and value != self.key)

    @property
    def use_device(self) -> str | None:
        """The kind of device that the table has times of: "cuda" or None."""
        return "cuda" if self._table.has_device else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventRow) and self._table is other._table and self._index == other._index

    def __hash__(self) -> int:
        return hash((id(self._table), self._index))

    def __repr__(self) -> str:
        return (
            f"<EventRow {self.key!r}: {self.count} calls, self CPU {self.self_cpu_time_total_str}, "
            f"self device {self.self_device_time_total_str}>"
        )


def _column_property(column: Column) -> property:
    def value(self: EventRow) -> Any:
        values = self._table._sources[column.name]
        return values.item(self._index) if _is_array(values) else values[self._index]

    return property(value, doc=f"{column.doc}{f', in {column.unit}' if column.unit else ''}")


def _group_property(column: Column) -> property:
    def value(self: EventRow) -> Any:
        values = self._table._groups.get(column.name)
        return None if values is None else values[self._index]

    return property(value, doc=f"{column.doc}; None if rows are not grouped by it")


def _text_property(name: str) -> property:
    def text_of(self: EventRow) -> str:
        return units.time_text(getattr(self, name))

    return property(text_of, doc=f"{name} with its unit, as torch.profiler prints it.")


def _deprecated_property(name: str) -> property:
    old = name.replace("device", "cuda")

    def value(self: EventRow) -> Any:
        warnings.warn(f"`{old}` is deprecated, please use `{name}` instead.", FutureWarning, stacklevel=2)
        return getattr(self, name)

    return property(value, doc=f"Deprecated name of {name}.")


_TIMES = ("cpu_time", "device_time", *(n for n in _COLUMN_NAMES if n.endswith("_time_total")))
_OLD_NAMES = ("device_time", *(n for n in _COLUMN_NAMES if "device_" in n and n.endswith(("_total", "_usage"))))
for _column in COLUMNS:
    setattr(EventRow, _column.name, _column_property(_column))
for _column in GROUPS:
    setattr(EventRow, _column.name, _group_property(_column))
for _name in _TIMES:
    setattr(EventRow, f"{_name}_str", _text_property(_name))
for _name in _OLD_NAMES:
    setattr(EventRow, _name.replace("device", "cuda"), _deprecated_property(_name))

SORT_KEYS = (*_COLUMN_NAMES, "cpu_time", "device_time")


# The value of a column that with_rows() is given no value for.
_BLANK: dict[str, Callable[[Column], Any]] = {
    "int64": lambda c: 0,
    "float64": lambda c: math.nan,
    "bool": lambda c: False,
    "text": lambda c: {"device_type": "cpu", "bound": "unknown", "timing_source": "cpu", "unit": None}.get(c.name, ""),
    "texts": lambda c: [],
}


def _sort_value(value: Any) -> tuple[bool, Any]:
    """Return a sort key that puts unknown values last."""
    known = not (isinstance(value, float) and math.isnan(value))
    return known, value if known else 0


def _is_array(values: Any) -> bool:
    return hasattr(values, "tolist")


class _Columns(Mapping[str, "list[Any]"]):
    """The columns as lists of Python numbers; the list of an array is created at the first access."""

    def __init__(self, sources: Mapping[str, Any]) -> None:
        self._sources = sources
        self._lists: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        values = self._sources[name]
        if isinstance(values, list):
            return values
        if name not in self._lists:
            self._lists[name] = values.tolist()
        return self._lists[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


class EventTable:
    """Rows of a profile, in the order of their first events: a sequence of EventRow. A slice of it is a table too.

    It is not a subclass of collections.abc.Sequence: polars treats those as lists of objects rather than as tables.

    columns: the values of each column by name, in the order and the units of COLUMNS; all of one length.
    meta: facts about the whole table; the attributes of the same names document them. Optional entries have a value for
        each row: "top_level" (whether some event has no parent; default True), "stacks" (EventRow.stack, if rows are
        grouped by stack) and "ranks" (EventRow.rank, in a table of several ranks).
    """

    def __init__(self, columns: Mapping[str, Iterable[Any]], meta: Mapping[str, Any]) -> None:
        if tuple(columns) != _COLUMN_NAMES:
            expected = ", ".join(_COLUMN_NAMES)
            raise ValueError(f"the columns of a table must be {expected}, in this order; got {', '.join(columns)}")
        self._sources: dict[str, Any] = {
            name: values if _is_array(values) else list(values) for name, values in columns.items()
        }
        self._columns = _Columns(self._sources)
        self._meta = dict(meta)
        lengths = {len(values) for values in self._sources.values()}
        if len(lengths) > 1:
            raise ValueError(f"the columns of a table must have the same length; got {sorted(lengths)}")
        self._stacks: list[list[str]] | None = list(meta["stacks"]) if "stacks" in meta else None
        self._ranks: list[int] | None = list(meta["ranks"]) if "ranks" in meta else None
        self._groups: dict[str, list[Any]] = {word: list(values) for word, values in meta.get("groups", {}).items()}
        self._top_level: list[bool] = list(meta["top_level"]) if "top_level" in meta else [True] * lengths.pop()

    @property
    def columns(self) -> Mapping[str, list[Any]]:
        """The values of each column by name, in the order and the units of COLUMNS."""
        return self._columns

    @property
    def stacks(self) -> Sequence[list[str]] | None:
        """EventRow.stack of each row; None if rows are not grouped by stack."""
        return self._stacks

    @property
    def ranks(self) -> Sequence[int] | None:
        """EventRow.rank of each row; None if the table is of one process."""
        return self._ranks

    def typed_columns(self) -> Iterator[tuple[str, str, Any]]:
        """Yield name, type (Column.type) and values of each column of to_pandas(); numbers may be arrays."""
        if self._ranks is not None:
            yield RANK.name, RANK.type, self._ranks
        for column in COLUMNS:
            yield column.name, column.type, self._sources[column.name]
        if self._stacks is not None:
            yield STACK.name, STACK.type, self._stacks
        yield from ((column.name, column.type, self._groups[column.name]) for column in self._group_columns())

    def _group_columns(self) -> list[Column]:
        """Return the columns of what else rows are grouped by."""
        return [column for column in GROUPS if column.name in self._groups]

    def _with_groups(self, groups: Mapping[str, list[Any]]) -> EventTable:
        return EventTable(self._sources, {**self._meta, "groups": groups})

    def _with_ranks(self, rank: int) -> EventTable:
        return type(self)(self._sources, {**self._meta, "ranks": [rank] * len(self)})

    @property
    def self_cpu_time_total(self) -> float:
        """Self host time of all rows of the profile in µs: the base of "Self CPU %"."""
        return float(self._meta["self_cpu_time_total"])

    @property
    def self_device_time_total(self) -> float:
        """Device time of all work of the profile in µs: the base of "Self CUDA %"."""
        return float(self._meta["self_device_time_total"])

    @property
    def has_device(self) -> bool:
        """Whether device work was recorded."""
        return bool(self._meta["has_device"])

    @property
    def has_memory(self) -> bool:
        """Whether any change of memory was recorded."""
        return bool(self._meta["has_memory"])

    @property
    def profile_memory(self) -> bool:
        """Whether recording changes of memory was requested."""
        return bool(self._meta["profile_memory"])

    @property
    def record_shapes(self) -> bool:
        """Whether input shapes were recorded."""
        return bool(self._meta["record_shapes"])

    @property
    def lacks_shapes(self) -> bool:
        """Whether there are ops but no input shapes, so that the work of no op is known.

        flopscope's own ops always record shapes; PyTorch's do with record_shapes=True.
        """
        if self._meta.get("has_shapes", True):
            return False
        kinds = zip(self.columns["device_type"], self.columns["is_user_annotation"], strict=True)
        return any(device_type == "cpu" and not annotation for device_type, annotation in kinds)

    @property
    def device_unseen(self) -> bool:
        """Whether this is a trace of a program that used a GPU, without that GPU's activity.

        The host times of its ops are then only dispatch times, so no row has rates or a roofline.
        """
        return bool(self._meta.get("device_unseen", False))

    @property
    def open_events(self) -> int:
        """Number of events that had not ended; they are counted, and their time is unknown."""
        return int(self._meta["open_events"])

    @property
    def dropped(self) -> int:
        """Number of records lost while profiling."""
        return int(self._meta["dropped"])

    @property
    def peaks(self) -> dict[str, dict[str, Any]]:
        """By device, the peaks that rows are compared with; "source" is "measured" or "datasheet". {} if unknown."""
        return dict(self._meta["peaks"])

    @property
    def unknown_peaks(self) -> dict[str, str]:
        """By device, why its peaks are unknown. {} if they are known or were not requested."""
        return dict(self._meta.get("unknown_peaks", {}))

    def coverage(self) -> dict[str, Any]:
        """Return how much of the profile has known work.

        The result is {"bytes": share, "flops": share, "unmodelled": [(name, time in µs), …]}: the shares (0 to 1) of
        device time without communication (of the ops' host time if there is no device) in ops with known bytes and
        with known FLOPs, and the ops that take the rest of the bytes' share, longest first.
        """
        return dict(self._meta["coverage"])

    def __len__(self) -> int:
        return len(self._sources["key"])

    @overload
    def __getitem__(self, index: int) -> EventRow: ...
    @overload
    def __getitem__(self, index: slice) -> EventTable: ...
    def __getitem__(self, index: int | slice) -> EventRow | EventTable:
        if isinstance(index, slice):
            return self._select(range(len(self))[index])
        try:
            return EventRow(self, range(len(self))[index])
        except IndexError:
            raise IndexError(f"row {index} is out of range: the table has {len(self)} rows") from None
        except TypeError:
            raise TypeError(f"rows are indexed by number or slice, not by name {index!r}; search for row.key") from None

    def __iter__(self) -> Iterator[EventRow]:
        return (EventRow(self, i) for i in range(len(self)))

    def __reversed__(self) -> Iterator[EventRow]:
        return (EventRow(self, i) for i in reversed(range(len(self))))

    def index(self, row: EventRow) -> int:
        """Return the index of a row of this table; ValueError for a row of another."""
        return list(self).index(row)

    def count(self, row: EventRow) -> int:
        """Return 1 for a row of this table, 0 for a row of another."""
        return list(self).count(row)

    def _select(self, indices: Iterable[int]) -> EventTable:
        chosen = list(indices)
        columns = {
            name: values[chosen] if _is_array(values) else [values[i] for i in chosen]
            for name, values in self._sources.items()
        }
        parts: dict[str, Any] = {"top_level": [self._top_level[i] for i in chosen]}
        if self._stacks is not None:
            parts["stacks"] = [self._stacks[i] for i in chosen]
        if self._ranks is not None:
            parts["ranks"] = [self._ranks[i] for i in chosen]
        if self._groups:
            parts["groups"] = {word: [values[i] for i in chosen] for word, values in self._groups.items()}
        return type(self)(columns, {**self._meta, **parts})

    def with_rows(self, rows: Iterable[Mapping[str, Any]], **meta: Any) -> EventTable:
        """Return a table of other rows of the same profile. Columns missing from a row are unknown, empty or 0."""
        given = list(rows)
        columns = {c.name: [row[c.name] if c.name in row else _BLANK[c.type](c) for row in given] for c in COLUMNS}
        by_row = ("top_level", "stacks", "ranks", "groups")
        common = {name: value for name, value in self._meta.items() if name not in by_row}
        return EventTable(columns, {**common, **meta})

    def sorted(self, by: str) -> EventTable:
        """Return the rows sorted by a column, "cpu_time" or "device_time" (per call), largest first, unknown last.

        "cuda" in the name means "device". Raises ValueError for any other name.
        """
        return self._select(self._order(by))

    def _order(self, by: str) -> list[int]:
        name = str(by).replace("cuda", "device").replace("xpu", "device")
        if name not in SORT_KEYS:
            raise ValueError(f"cannot sort by {by!r}; choose one of {', '.join(SORT_KEYS)}")
        return sorted(range(len(self)), key=lambda i: _sort_value(getattr(self[i], name)), reverse=True)

    def _limited(self, count: int) -> EventTable:
        """Return as many rows as ``flopscope table`` prints, all if ``count`` is negative."""
        return self[: None if count < 0 else count]

    def _brief(self, all_columns: bool) -> str:
        """Return what ``flopscope table`` prints."""
        return self.table(row_limit=-1, brief=not all_columns)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
        *,
        roofline: bool = True,
        brief: bool = False,
    ) -> str:
        """Return the rows as text, with torch.profiler's arguments, columns and layout.

        sort_by: see `sorted`; None keeps the order of the first events.
        row_limit: number of rows to print, -1 for all.
        max_src_column_width: width of source locations (if rows are grouped by stack), in characters; longer ones lose
            their beginning. None for no limit.
        max_name_column_width, max_shapes_column_width: in characters; None for no limit.
        header: a line above the table.
        top_level_events_only: omit rows whose events all have parents.
        time_unit: "s", "ms" or "us" for every time; None chooses for each.
        roofline: add FLOPs, bytes, rates, share of the roofline and bound, with notes on them below the table. If
            False, the text equals torch.profiler's.
        brief: print only the columns that rate each row, in 120 characters per line.

        Raises ValueError for an unknown sort_by or time_unit.
        """
        if time_unit is not None and time_unit not in units.TIME_UNITS:
            raise ValueError(f"time_unit must be one of {', '.join(units.TIME_UNITS)} or None; got {time_unit!r}")
        return text.render(
            self,
            sort_by=sort_by,
            row_limit=row_limit,
            max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width,
            max_shapes_column_width=max_shapes_column_width,
            header=header,
            top_level_events_only=top_level_events_only,
            time_unit=time_unit,
            roofline=roofline,
            brief=brief,
        )

    def by_category(self) -> EventTable:
        """Group the host's rows by kind of op: matrix product, attention, convolution, …"""
        from flopscope.results import categories

        return categories.by_category(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with the columns of COLUMNS.

        A table of several ranks has "rank" before them, one grouped by stack has "stack" after them.
        Raises ImportError without pandas.
        """
        return frame.to_pandas(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dict per row with the columns of to_pandas(), ready for JSON: unknown numbers are None."""
        return frame.to_dicts(self)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the columns of to_pandas() as CSV; unknown values are empty, lists are JSON."""
        frame.to_csv(self, path)

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write JSON: ``device`` (kind and, if its peaks are known, name), ``coverage``, ``peaks``, ``rows``."""
        frame.to_json(self, path)

    def to_arrow(self) -> pyarrow.Table:
        """Return a pyarrow.Table with the columns of to_pandas(): int64, float64, bool, texts.

        Unknown values are null. Shapes, dtypes and stacks are lists of texts, a shape as "[64, 32]". Columns of numbers
        share the table's memory, except those with the same value in every row. Raises ImportError without pyarrow.
        """
        return arrow.to_arrow(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return the columns of to_arrow() for any Arrow reader, such as ``polars.DataFrame(table)``, without pyarrow.

        requested_schema is ignored, as Arrow allows.
        """
        return arrow.capsule(self)

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write the columns of to_arrow() as a Parquet file. Raises ImportError without pyarrow."""
        arrow.to_parquet(self, path)

    def _repr_html_(self) -> str:
        return html.render(self)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        device = f", self device {units.time_text(self.self_device_time_total)}" if self.has_device else ""
        return f"<EventTable: {len(self)} rows, self CPU {units.time_text(self.self_cpu_time_total)}{device}>"

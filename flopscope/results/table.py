"""Tables of recorded events, one row per group.

``EventTable`` and ``EventRow`` have the attributes of ``torch.profiler``'s ``key_averages()`` and its rows, and add
work and roofline. All numbers come from the C core; only averages per call are computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

from flopscope import _core
from flopscope.results.categories import is_op_of_library, rows_of_groups, sum_rows
from flopscope.results.columns import (
    COLUMNS,
    GROUPS,
    IDENTITY,
    NO_OP,
    STACK,
    TABLE,
    Column,
    kind_of,
    require_kind,
    row_id,
)
from flopscope.results.row import COLUMN_NAMES, EventRow
from flopscope.results.table_facts import Facts, Grouped, has_kernels_of_torch, kernels_of_rows
from flopscope.support import units, upward
from flopscope.support.core_facts import Numbers
from flopscope.support.documents import plain
from flopscope.support.files import write_json
from flopscope.support.hints import Hints
from flopscope.support.safe import write_csv

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Self


SORT_KEYS = (*COLUMN_NAMES, "cpu_time", "device_time")


# The value of a column that with_rows() is given no value for.
_BLANK = {"int64": 0, "float64": math.nan, "bool": False, "text": "", "texts": []}
_BLANK_ROW = {column.name: _BLANK[column.type] for column in COLUMNS}
_BLANK_ROW |= {"device_type": "cpu", "bound": "unknown", "timing_source": "cpu"}
_BLANK_ROW |= dict.fromkeys(("unit", "category", "bytes_source", "flops_source"))


def _sort_value(value: Any) -> tuple[bool, Any]:
    """Return a sort key that puts unknown values last."""
    known = not (isinstance(value, float) and math.isnan(value))
    return known, str(value) if isinstance(value, list) else value if known and value is not None else 0


def _kept(values: Any) -> Any:
    """Return the values of a column: a column of the core unchanged, others as a list of Python's values."""
    if isinstance(values, Numbers):
        return values
    return values.tolist() if hasattr(values, "tolist") else list(values)


_NAMED = ("key", "device_type", "category")

_NOTHING: Mapping[str, Any] = {}


class _Columns(Mapping[str, "list[Any]"]):
    """The columns as lists; that of a column of the core is created at the first access."""

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


def _fact(name: str, doc: str) -> Any:
    """Return an attribute of a table that is one of its facts."""
    return property(lambda table: getattr(table.facts, name), doc=doc)


class EventTable(Sequence[EventRow]):
    """Rows of a profile, in the order of their first events: a sequence of EventRow. A slice of it is a table too.

    columns: the values of each column by name, in the order and the units of COLUMNS; all of one length. A category
        that is NaN follows from the name.
    facts: about the whole table; the attributes of the same names document them.
    parts: further values for each row: "top_level" (whether some event has no parent; default True), "stacks"
        (EventRow.stack, if rows are grouped by stack), "kernels"
        (EventRow.kernels).
    groups: the same for what else rows are grouped by: "step", "stream", "module", …
    """

    def __init__(
        self,
        columns: Mapping[str, Iterable[Any]],
        facts: Facts,
        parts: Mapping[str, Iterable[Any]] = _NOTHING,
        groups: Mapping[str, Iterable[Any]] = _NOTHING,
    ) -> None:
        self._sources: dict[str, Any] = {name: _kept(values) for name, values in columns.items()}
        self._sources["category"] = [
            _core.category_of(key, device_type != "cpu") if category != category else category
            for key, device_type, category in zip(*(self._sources[name] for name in _NAMED), strict=True)
        ]
        self.columns: Mapping[str, list[Any]] = _Columns(self._sources)
        """The values of each column by name, in the order and the units of COLUMNS."""
        self.facts = facts
        """What is true of the table as a whole."""
        self.parts: dict[str, list[Any]] = {name: list(values) for name, values in parts.items()}
        """Further values for each row, by name."""
        self.stacks: Sequence[list[str]] | None = self.parts.get("stacks")
        """EventRow.stack of each row; None if rows are not grouped by stack."""
        self.groups: dict[str, list[Any]] = {word: list(values) for word, values in groups.items()}
        """What else rows are grouped by: a value for each row, by word."""
        self._top_level: list[bool] = self.parts.setdefault("top_level", [True] * len(self))

    is_sorted: bool = _fact("is_sorted", "Whether sorted() chose the order of the rows.")
    is_whole: bool = _fact("is_whole", "Whether no row of the profile was left out.")
    is_mixed: bool = _fact("is_mixed", "Whether rows are groups such as categories, and not ops, kernels and ranges.")
    program: str = _fact(
        "program", 'What ran: the name of a trace\'s file, or of the recorded script; "" where it is unknown.'
    )
    device_type: str = _fact(
        "device_type", 'torch\'s type of the devices of the profile: "cuda", also for ROCm, "xpu", "mtia", "hpu", …'
    )
    has_device: bool = _fact("has_device", "Whether device work was recorded.")
    has_memory: bool = _fact("has_memory", "Whether any change of memory was recorded.")
    profile_memory: bool = _fact("profile_memory", "Whether recording changes of memory was requested.")
    record_shapes: bool = _fact("record_shapes", "Whether input shapes were recorded.")
    hints: Hints = _fact("hints", "What to record so that more is known.")
    open_events: int = _fact(
        "open_events", "Number of events that had not ended; they are counted, and their time is unknown."
    )
    dropped: int = _fact("dropped", "Number of records lost while profiling.")
    device_unseen: bool = _fact(
        "device_unseen",
        "Whether this is a trace of a program that may have used a GPU, without that GPU's activity. The host times of"
        " its ops may then be only dispatch times, so no row has rates or a roofline.",
    )

    @property
    def self_cpu_time_total(self) -> float:
        """Self host time of all rows of the profile in µs: the base of "Self CPU %"."""
        return float(self.facts.self_cpu_time_total)

    @property
    def self_device_time_total(self) -> float:
        """Device time of all work of the profile in µs: the base of "Self CUDA %"."""
        return float(self.facts.self_device_time_total)

    @property
    def own_time(self) -> str:
        """The column of own times: those of the device if work of one was recorded, else those of the host."""
        return "self_device_time_total" if self.has_device else "self_cpu_time_total"

    def described_columns(self) -> Iterator[tuple[Column, Any]]:
        """Yield the columns of to_pandas() with their values; numbers may be Numbers."""
        for column in COLUMNS:
            yield column, self._sources[column.name]
        if self.stacks is not None:
            yield STACK, self.stacks
        yield from ((column, self.groups[column.name]) for column in GROUPS if column.name in self.groups)

    def _with_groups(self, groups: Mapping[str, list[Any]]) -> EventTable:
        return EventTable(self._sources, self.facts, self.parts, groups)

    @property
    def lacks_shapes(self) -> bool:
        """Whether there are ops but no input shapes, so that the work of no op is known.

        flopscope's own ops always record shapes; PyTorch's do with record_shapes=True. Programs without PyTorch have
        API calls of the host, which have no shapes to record.
        """
        if self.facts.has_shapes:
            return False
        kinds = zip(*(self.columns[name] for name in ("key", "device_type", "is_user_annotation")), strict=True)
        on_host = [key for key, device_type, annotation in kinds if device_type == "cpu" and not annotation]
        return any(map(is_op_of_library, on_host)) or (on_host != [] and has_kernels_of_torch(self.columns["key"]))

    @property
    def peaks(self) -> dict[str, Mapping[str, Any]]:
        """By device, the peaks that rows are compared with; "source" is "measured" or "datasheet". {} if unknown."""
        return dict(self.facts.peaks)

    @property
    def unknown_peaks(self) -> dict[str, str]:
        """By device, why its peaks are unknown. {} if they are known or were not requested."""
        return dict(self.facts.unknown_peaks)

    def coverage(self) -> dict[str, Any]:
        """Return how much of the profile has known work, as Results.coverage() does: device time is without
        communication, and "unmodelled" are the ops that take the rest of the bytes' share, longest first."""
        return dict(self.facts.coverage)

    def __len__(self) -> int:
        return len(self._sources["key"])

    @overload
    def __getitem__(self, index: int) -> EventRow: ...
    @overload
    def __getitem__(self, index: slice) -> EventTable: ...
    def __getitem__(self, index: int | slice) -> EventRow | EventTable:
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        try:
            return EventRow(self, range(len(self))[index])
        except IndexError:
            raise IndexError(f"row {index} is out of range: the table has {len(self)} rows") from None
        except TypeError:
            raise TypeError(f"rows are indexed by number or slice, not by name {index!r}; search for row.key") from None

    def __iter__(self) -> Iterator[EventRow]:
        return (EventRow(self, i) for i in range(len(self)))

    def select(self, indices: Iterable[int]) -> Self:
        """Return a table of the rows with these indices, in this order."""
        chosen = list(indices)
        columns: dict[str, Any] = {
            name: values.chosen(chosen) if isinstance(values, Numbers) else [values[i] for i in chosen]
            for name, values in self._sources.items()
        }
        more = [{name: [of[i] for i in chosen] for name, of in each.items()} for each in (self.parts, self.groups)]
        is_whole = self.is_whole and len(chosen) == len(self)
        return type(self)(columns, replace(self.facts, is_whole=is_whole), *more)

    def with_rows(self, rows: Iterable[Mapping[str, Any]]) -> EventTable:
        """Return a table of other rows of the same profile. Columns missing from a row are unknown, empty or 0."""
        given = [{**_BLANK_ROW, **row} for row in rows]
        columns = {column.name: [row[column.name] for row in given] for column in COLUMNS}
        return EventTable(columns, replace(self.facts, is_mixed=True))

    def of_kind(self, kind: str) -> EventTable:
        """Return the rows of a kind, in their order: "op", "kernel", "range", or "all" for every row.

        "op": ops and API calls of the host, whose device time is that of the kernels that they launched; "kernel":
        kernels, copies and fills on devices; "range": ranges and steps, on the host and on devices, whose total times
        include what runs in them. Raises ValueError for another kind.
        """
        require_kind(kind)
        if kind == "all":
            return self
        kinds = zip(self.columns["device_type"], self.columns["is_user_annotation"], strict=True)
        return self.select(i for i, one in enumerate(kinds) if kind_of(*one) == kind)

    def sorted(self, by: str) -> Self:
        """Return the rows sorted by a column, "cpu_time" or "device_time" (per call), largest first, unknown last.

        by: an attribute of rows or the header of a column in a printed table, in any case. "cuda" in the name means
        "device". Raises ValueError for any other name.
        """
        ordered = self.select(self._order(by))
        ordered.facts = replace(ordered.facts, is_sorted=True)
        return ordered

    def _order(self, by: str) -> list[int]:
        name = by if by in SORT_KEYS else upward.rooms.columns.sort_key(by, SORT_KEYS)
        values = [_sort_value(getattr(row, name)) for row in self]
        return sorted(range(len(self)), key=values.__getitem__, reverse=True)

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
        width: int | None = None,
        kind: str | None = None,
        kernels: bool = False,
        columns: Iterable[str] | None = None,
    ) -> str:
        """Return the rows as text, in torch.profiler's layout or, with one of the last five arguments, fitted.

        sort_by: see `sorted`; None keeps the order of the first events (in fitted text: what could be gained first).
        row_limit: number of rows to print, -1 for all.
        max_src_column_width: width of source locations (if rows are grouped by stack), in characters; longer ones lose
            their beginning. None for no limit.
        max_name_column_width, max_shapes_column_width: in characters; None for no limit.
        header: a line above the table.
        top_level_events_only: omit rows whose events all have parents.
        time_unit: "s", "ms" or "us" for every time; None chooses for each.
        roofline: add FLOPs, bytes, rates, share of the roofline and bound, with notes on them below the table. If
            False, the text equals torch.profiler's.
        brief: fit the text to the terminal, as print() of a table does: names and shapes are cut in the middle, and the
            least important columns are left out. Arguments of torch's layout are then ignored.
        width: the width of fitted text in characters, at least 40; 0 shows all columns, names and shapes in full.
        kind: the rows, see `of_kind`. None for all in torch's layout, and for ops, with ranges apart, in fitted text.
        kernels: list the kernels of each op below it (after key_averages(kernels=True)).
        columns: the columns of fitted text: attributes of rows or headers, in any case.

        Raises ValueError for an unknown sort_by, time_unit, kind or column.
        """
        if time_unit is not None and time_unit not in units.TIME_UNITS:
            raise ValueError(f"time_unit must be one of {', '.join(units.TIME_UNITS)} or None; got {time_unit!r}")
        ordered = self if sort_by is None else self.sorted(sort_by)
        if brief or width is not None or kernels or columns is not None:
            shown = upward.rooms.fitted.render(
                ordered, width=width, kind=kind, kernels=kernels, columns=columns, row_limit=row_limit
            )
            return str(shown) if len(self) else ""
        return upward.rooms.text.render(
            ordered.of_kind(kind or "all"),
            row_limit=row_limit,
            max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width,
            max_shapes_column_width=max_shapes_column_width,
            header=header,
            top_level_events_only=top_level_events_only,
            time_unit=time_unit,
            roofline=roofline,
        )

    def total_average(self) -> EventRow:
        """Return the sum of the rows as one row, "Total", like torch.profiler: total times count what they enclose.

        Device work counts once; torch adds the times of its launchers and its own.
        """
        host = [device == "cpu" for device in self.columns["device_type"]]
        ranges = self.columns["is_user_annotation"]  # on devices, they enclose the other work
        works = [not (is_host or is_range) for is_host, is_range in zip(host, ranges, strict=True)]
        total = rows_of_groups(self, [is_host - 1 for is_host in host])[0]
        if any(works):
            device = rows_of_groups(self, [is_work - 1 for is_work in works])[0]
            total |= {name: device[name] for name in ("self_device_time_total", "device_time_total")}
        return self.with_rows([{**total, "key": "Total", "count": sum(self.columns["count"])}])[0]

    def by_category(self) -> EventTable:
        """Return one row per kind of op: the sums of the self times, memory, FLOPs and bytes of its host rows.

        Kernels count for the ops that launched them; "(no op)" is the device time that belongs to no op, such as that
        of replayed CUDA graphs. Unknown work is left out of the sums. Totals equal the self times, since categories do
        not nest; statistics per call are unknown. Rates and shares refer to the time of the rows that have them. Work
        that the program states for a range is the work of the ops in it, so it counts only if no op's work is known.
        """
        summed = sum_rows(self, self.columns["category"]).items()
        return self.with_rows({**row, "key": NO_OP if of is None else of, "category": of} for of, row in summed)

    def to_pandas(self, kind: str = "all") -> pandas.DataFrame:
        """Return a DataFrame with the columns of COLUMNS. kind: see `of_kind`.

        A table grouped by stack has "stack" after them.
        """
        import numpy
        import pandas

        # Each column is a Series: given plain lists of lists, pandas would look for a second dimension.
        columns = self.of_kind(kind).described_columns()
        columns = ((c, numpy.asarray(values) if isinstance(values, Numbers) else values) for c, values in columns)
        return pandas.DataFrame({column.name: pandas.Series(values) for column, values in columns})

    def _lists(self) -> dict[str, list[Any]]:
        return {column.name: self.columns.get(column.name, values) for column, values in self.described_columns()}

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dict per row with the columns of to_pandas(), ready for JSON: unknown numbers are None."""
        columns = {name: plain(values) for name, values in self._lists().items()}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def row_records(self) -> list[dict[str, Any]]:
        """Return a dict per row with its id, as to_dict() has them; unknown numbers are NaN."""
        named = self._lists()
        telling = [values for name, values in named.items() if name in IDENTITY or name not in self.columns]
        ids = [row_id(values) for values in zip(*telling, strict=True)]
        return [dict(zip(("id", *named), values, strict=True)) for values in zip(ids, *named.values(), strict=True)]

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the columns of to_pandas() as CSV; unknown values are empty, lists are JSON, no cell is a formula."""
        write_csv(path, self._lists(), (record.values() for record in self.to_dicts()))

    def to_dict(self, **more: Any) -> dict[str, Any]:
        """Return the device, the coverage, the peaks and the rows as a document for JSON: see docs/json.md.

        more: fields that the table lacks: "files", as ``flopscope table --json`` writes them, and another "device".
        """
        coverage = self.coverage()
        for name in ("unmodelled", "estimated", "estimated_flops"):
            if name in coverage:
                coverage[name] = [{"name": op, "time": time} for op, time in coverage[name]]
        if "misfits" in coverage:
            found = coverage["misfits"].items()
            coverage["misfits"] = [{"name": op, "seen": seen, "expected": expected} for op, (seen, expected) in found]
        kind = self.device_type if self.has_device else "cpu"
        named = next((peaks["name"] for device, peaks in self.peaks.items() if device.startswith(kind)), None)
        content = {"device": {"kind": kind, "name": named}, "coverage": coverage, "peaks": self.peaks}
        return TABLE.of({**content, "rows": self.row_records(), **more})

    def to_json(self, path: str | PathLike[str]) -> None:
        """Write JSON: ``device`` (kind and, if its peaks are known, name), ``coverage``, ``peaks``, ``rows``."""
        write_json(path, self.to_dict())

    def _repr_html_(self) -> str:
        return upward.rooms.html.render(self)

    def __str__(self) -> str:
        return self.table(brief=True) or " ".join(["No ops were recorded.", *self.hints.said]) + "\n"

    def __repr__(self) -> str:
        device = f", self device {units.time_text(self.self_device_time_total)}" if self.has_device else ""
        return f"<EventTable: {len(self)} rows, self CPU {units.time_text(self.self_cpu_time_total)}{device}>"


def table_of(found: Grouped, launched: Mapping[str, Any] | None = None) -> EventTable:
    """Return the table of these rows. launched: of an accounting, for EventRow.kernels; None: they are not known."""
    parts = {name: found.rows[name] for name in ("top_level", "stacks") if name in found.rows}
    if launched is not None:
        parts["kernels"] = kernels_of_rows(found.columns["key"], launched)
    return EventTable({column.name: found.columns[column.name] for column in COLUMNS}, found.facts, parts)

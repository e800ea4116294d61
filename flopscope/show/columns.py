"""The columns that people see, one row for each: in torch's layout, in fitted text and in HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from flopscope import _core
from flopscope.support import units
from flopscope.support.safe import printable
from flopscope.support.suggest import did_you_mean

if TYPE_CHECKING:
    from flopscope.results.row import EventRow
    from flopscope.results.table import EventTable
    from flopscope.show.text import Layout

WIDTH = 12  # of torch.profiler's columns
REPEATS = 3  # equal shapes in a row that are written once


def shapes_text(
    shapes: Sequence[Any], repeated: str = "{count} × {text}", nested: Callable[[Sequence[Any]], str] | None = None
) -> str:
    """Return the shapes of tensors as ``64x32 32x16``, equal ones as ``4 × 64x32``, and a list of them in brackets.

    Arguments without dimensions, such as numbers and flags, are left out. repeated: how equal shapes are written;
    nested: writes the shapes in a list, None for this function.
    """
    texts = [_shape_text(shape, nested or shapes_text) for shape in shapes if shape not in ((), [])]
    found = []
    for text, equal in groupby(texts):
        count = len([*equal])
        found += [repeated.format(text=text, count=count)] if count >= REPEATS else [text] * count
    return " ".join(found)


def _shape_text(shape: Any, nested: Callable[[Sequence[Any]], str]) -> str:
    if not isinstance(shape, list | tuple):
        return printable(str(shape))
    if any(isinstance(part, list | tuple) for part in shape):
        return f"({nested(shape)})"
    return "x".join(printable(str(part)) for part in shape)


class Texts(NamedTuple):
    """How the values of a column are written. The functions take a value, its row and, beyond these:"""

    torch: Callable[[Any, EventRow, Layout], str]
    """In torch's layout: the layout."""
    fitted: Callable[[Any, EventRow, EventTable], str]
    """In fitted text and HTML: the table."""
    share: Callable[[Any, EventTable], float] | None = None
    """The length of a bar in HTML, 0 to 1; None for no bar. It takes no row."""


def _texts(text: Callable[[Any], str]) -> Texts:
    """Return how values are written that have one text everywhere."""
    return Texts(lambda value, row, at: text(value), lambda value, row, table: text(value))


def _part_of(whole: str) -> Texts:
    """Return how parts of a total of the table are written."""

    def share(value: float, table: EventTable) -> float:
        total = getattr(table, whole)
        return value / total if total else 0.0

    return Texts(
        lambda value, row, at: units.share_text(value, getattr(at.table, whole)),
        lambda value, row, table: units.percent_text(100 * share(value, table)),
        share,
    )


def _rate(scale: float, share: str) -> Texts:
    """Return how rates are written, with a mark where their share of the peak, an attribute of the row, is above it."""

    def text(value: float, row: EventRow, of: object) -> str:
        return units.marked(units.prefixed_text(value * scale), getattr(row, share))

    return Texts(text, text)


_CPU, _CUDA = "self_cpu_time_total", "self_device_time_total"
TIME = Texts(lambda value, row, at: at.time(value), lambda value, row, table: units.short_time_text(value))
NAME = Texts(lambda value, row, at: at.name(value), lambda value, row, table: printable(value))
MEMORY, WHOLE, PERCENT = _texts(units.memory_text), _texts(str), _texts(units.percent_text)
OF_CPU, OF_CUDA = _part_of(_CPU), _part_of(_CUDA)


@dataclass(frozen=True)
class ViewColumn:
    """A column: its header, the attribute of rows that it shows, and how.

    importance: 1 for the columns that stay longest in fitted text; the column with the largest number is left out
        first. 0: only torch's layout has the column.
    brief: the header of fitted text and HTML, if it differs.
    shown: the key of Layout.shown that enables it in torch's layout; "fitted" if that layout does not have it.
    width: in torch's layout: characters, or a key of Layout.widths.
    more: further lines of a cell of torch's layout, which are printed below the row.
    on_host: the importance in a table without device times, if it differs.
    zero_tells: whether fitted text shows a column of zeros.
    """

    header: str
    attribute: str
    texts: Texts
    importance: int = 0
    brief: str = ""
    shown: str = "always"
    width: int | str = WIDTH
    align: str = ">"
    more: Callable[[EventRow, Layout], list[str]] | None = None
    on_host: int | None = None
    zero_tells: bool = False

    @property
    def fitted_header(self) -> str:
        """The header of fitted text and HTML."""
        return self.brief or self.header

    def cell(self, row: EventRow, at: Layout) -> str:
        """Return the cell of a row in torch's layout."""
        return self.texts.torch(getattr(row, self.attribute), row, at)

    def fitted(self, row: EventRow, table: EventTable) -> str:
        """Return the cell of a row in fitted text and HTML; one of ``NOTHING`` if it is empty or zero."""
        return self.texts.fitted(getattr(row, self.attribute), row, table)


MISSING = frozenset({"", units.MISSING})
NOTHING = frozenset({*MISSING, "0", "0 B", "0.0%", "NaN"})
"""Cells that are empty or zero; a column that has no other cells is left out."""


def tells(column: ViewColumn, cells: Iterable[str]) -> bool:
    """Return whether a column with these cells has something to show."""
    return not (MISSING if column.zero_tells else NOTHING).issuperset(cells)


_GROUP = Texts(lambda value, row, at: at.end(value, "group"), NAME.fitted)
_SHAPES = Texts(lambda value, row, at: str(value)[: at.widths["shapes"]], lambda value, row, table: shapes_text(value))
_STACK = Texts(lambda value, row, at: at.end(value[0], "source") if value else "", lambda value, row, table: "")
_INTENSITY = _texts(lambda value: units.significant_text(value, 3))
_COUNTED_RATE = _texts(lambda value: units.prefixed_text(value * 1e9))
_ROOFLINE = _texts(units.roofline_text)._replace(share=lambda value, table: value / 100)


def _frames(row: EventRow, at: Layout) -> list[str]:
    return [*(at.end(frame, "source") for frame in row.stack[1:]), ""]


COLUMNS = [
    ViewColumn("Name", "key", NAME, 1, width="name"),
    ViewColumn("Group", "group", _GROUP, 1, shown="group", width="group", align="<"),
    ViewColumn("Overload Name", "overload_name", NAME, 14, "Overload", "overload", "name"),
    ViewColumn("Self CPU %", _CPU, OF_CPU, 12, "CPU %", on_host=6),
    ViewColumn("Self CPU", _CPU, TIME, 11, on_host=2),
    ViewColumn("CPU total %", "cpu_time_total", OF_CPU),
    ViewColumn("CPU total", "cpu_time_total", TIME, 16),
    ViewColumn("CPU time avg", "cpu_time", TIME, 20, "CPU avg"),
    ViewColumn("Self CUDA", _CUDA, TIME, 2, shown="device"),
    ViewColumn("Self CUDA %", _CUDA, OF_CUDA, 7, "CUDA %", "device"),
    ViewColumn("CUDA total", "device_time_total", TIME, 17, shown="device"),
    ViewColumn("CUDA time avg", "device_time", TIME, 19, "CUDA avg", "device"),
    ViewColumn("CPU Mem", "cpu_memory_usage", MEMORY, 21, "CPU mem", "memory"),
    ViewColumn("Self CPU Mem", "self_cpu_memory_usage", MEMORY, 18, "Self CPU mem", "memory"),
    ViewColumn("CUDA Mem", "device_memory_usage", MEMORY, 22, "CUDA mem", "device memory"),
    ViewColumn("Self CUDA Mem", "self_device_memory_usage", MEMORY, 15, "Self CUDA mem", "device memory"),
    ViewColumn("# of Calls", "count", WHOLE, 6, "Calls"),
    ViewColumn("Input Shapes", "input_shapes", _SHAPES, 1, "Input shapes", "shapes", "shapes"),
    ViewColumn("Source Location", "stack", _STACK, shown="source", width="source", align="<", more=_frames),
    ViewColumn("FLOPs", "flops", _texts(units.count_text), 13, shown="roofline", width=8),
    ViewColumn("Bytes", "bytes_total_moved", _texts(units.bytes_text), 13, shown="roofline", width=10),
    ViewColumn("FLOP/s", "tflops_per_s", _rate(1e12, "pct_peak_flops"), 8, shown="roofline", width=7),
    ViewColumn("B/s", "gbytes_per_s", _rate(1e9, "pct_peak_bandwidth"), 9, shown="roofline", width=7),
    ViewColumn("FLOP/B", "arithmetic_intensity", _INTENSITY, 10, shown="roofline", width=7),
    ViewColumn("Headroom", "headroom", TIME, 5, shown="fitted"),
    ViewColumn("% Roofline", "pct_roofline", _ROOFLINE, 3, "% roof", "roofline", 10, zero_tells=True),
    ViewColumn("Bound", "bound", _texts(units.bound_text), 4, shown="roofline", width=7),
    ViewColumn("DRAM B/s", "dram_gbytes_per_s", _COUNTED_RATE, 9, shown="counted", width=9),
    ViewColumn("Traffic", "traffic_ratio", _texts(units.ratio_text), 6, shown="counted", width=7),
    ViewColumn("L2 %", "pct_peak_l2", PERCENT, 10, "L2", "fitted"),
    ViewColumn("Tensor %", "tensor_active", PERCENT, 9, "Tensor", "counted", 8),
    ViewColumn("Occupancy", "theoretical_occupancy", PERCENT, 23, shown="fitted"),
    ViewColumn("Limited by", "occupancy_limit", _texts(lambda value: value or ""), 24, shown="fitted"),
    ViewColumn("Registers", "registers", _texts(units.count_text), 25, shown="fitted"),
    ViewColumn("Shared mem", "shared_memory", _texts(units.bytes_text), 26, shown="fitted"),
    ViewColumn("Waves", "waves", _texts(lambda value: units.significant_text(value, 3)), 27, shown="fitted"),
]
SEEN = [column for column in COLUMNS if column.importance]
"""The columns of fitted text and HTML."""


def tree_columns(table: EventTable) -> list[ViewColumn]:
    """Return the columns of a tree of modules."""
    kind, share = ("CUDA", OF_CUDA) if table.has_device else ("CPU", OF_CPU)
    time = table.own_time.removeprefix("self_")
    return [
        ViewColumn("Name", "key", NAME, 1, "Module"),
        ViewColumn("Calls", "module_calls", WHOLE, 4),
        ViewColumn(f"Self {kind}", f"self_{time}", TIME, 5),
        ViewColumn(f"{kind} total", time, TIME, 1),
        ViewColumn(f"{kind} total %", time, share, 3, f"{kind} %"),
        ViewColumn("FLOPs", "flops_total", _texts(units.count_text), 6),
        ViewColumn("% Roofline", "pct_roofline_total", _ROOFLINE, 2, zero_tells=True),
    ]


def columns_of(device_type: str, columns: Sequence[ViewColumn]) -> list[ViewColumn]:
    """Return columns with the headers that torch prints for devices of a type: "Self XPU" for "Self CUDA"."""

    def named(header: str) -> str:
        return header.replace("CUDA", device_type.upper())

    return [replace(one, header=named(one.header), brief=named(one.brief)) for one in columns]


def _names() -> Iterable[tuple[str, ViewColumn]]:
    for column in COLUMNS:
        for name in (column.header, column.fitted_header, column.attribute):
            yield name, column


def _plain(name: object) -> str:
    """Return a name in the form in which names are compared: "Self CUDA %", "self cuda %" and "self_device_%"."""
    text = str(name).strip().lower().replace("_", " ")
    for name in _core.device_types:
        text = text.replace(name, "device")
    return text.replace("% roofline", "% roof").replace("tflop/s", "flop/s").replace("gb/s", "b/s")


def headers_of(attributes: Sequence[str]) -> list[str]:
    """Return the headers of fitted text that show one of these attributes."""
    return [column.fitted_header for column in SEEN if column.attribute in attributes]


def sort_key(name: object, attributes: Sequence[str]) -> str:
    """Return the attribute of rows that a name means: an attribute or a header, in any case; "cuda" means "device".

    Raise ValueError for an unknown name.
    """
    shown = {text: column.attribute for text, column in _names() if column.attribute in attributes}
    known = {_plain(text): attribute for text, attribute in (shown | {one: one for one in attributes}).items()}
    if _plain(name) in known:
        return known[_plain(name)]
    hint = did_you_mean(str(name), [*attributes, *shown])
    hint = hint or f"; choose a header: {', '.join(headers_of(attributes))}; or a column of to_pandas()"
    raise ValueError(f"cannot sort by {name!r}{hint}")


def find_columns(names: Iterable[str]) -> list[ViewColumn]:
    """Return the columns of fitted text that headers or attributes name. ValueError for an unknown one."""
    shown = [(text, column) for text, column in _names() if column.importance]
    known = {_plain(text): column for text, column in reversed(shown)}  # of several, the first
    chosen = []
    for name in names:
        if _plain(name) not in known:
            hint = did_you_mean(name, [text for text, _ in shown])
            all_names = ", ".join(column.fitted_header for column in SEEN)
            raise ValueError(f"there is no column {name!r}{hint or f'; choose from {all_names}'}")
        if known[_plain(name)] not in chosen:
            chosen.append(known[_plain(name)])
    return chosen

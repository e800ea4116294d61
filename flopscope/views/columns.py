"""The columns that people see, one row for each: in torch's layout, in fitted text and in HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.support import units
from flopscope.support.safe import printable
from flopscope.support.suggest import did_you_mean

if TYPE_CHECKING:
    from flopscope.results.table import EventRow, EventTable
    from flopscope.views.text import Layout

__all__ = [
    "COLUMNS",
    "Fit",
    "ViewColumn",
    "attribute_of",
    "columns_of",
    "find_columns",
    "headers_of",
    "shapes_text",
    "sort_key",
    "tells",
]

WIDTH = 12  # of torch.profiler's columns
REPEATS = 3  # equal shapes in a row that are written once


@dataclass(frozen=True)
class Fit:
    """How fitted text and HTML show a column.

    importance: 1 for the columns that stay longest; the column with the largest number is left out first.
    cell: the text for a row; one of ``NOTHING`` if it is empty or zero.
    share: the length of a bar in HTML, 0 to 1; None for no bar.
    on_host: the importance in a table without device times, if it differs.
    zero_tells: whether a column of zeros is shown.
    """

    header: str
    importance: int
    cell: Callable[[EventRow, EventTable], str]
    share: Callable[[EventRow, EventTable], float] | None = None
    on_host: int | None = None
    zero_tells: bool = False


@dataclass(frozen=True)
class ViewColumn:
    """A column: its header, the attribute of rows that it shows, and its cells in torch's layout.

    shown: the key of Layout.shown that enables it in torch's layout; "fitted" if that layout does not have it.
    width: in torch's layout: characters, or a key of Layout.widths.
    more: further lines of a cell of torch's layout, which are printed below the row.
    fit: None if only torch's layout has the column.
    """

    header: str
    attribute: str
    cell: Callable[[EventRow, Layout], str]
    shown: str = "always"
    width: int | str = WIDTH
    align: str = ">"
    more: Callable[[EventRow, Layout], list[str]] | None = None
    fit: Fit | None = None


MISSING = frozenset({"", units.MISSING})
NOTHING = frozenset({*MISSING, "0", "0 B", "0.0%", "NaN"})
"""Cells that are empty or zero; a column that has no other cells is left out."""


def tells(column: ViewColumn, cells: Iterable[str]) -> bool:
    """Return whether a column with these cells has something to show."""
    nothing = MISSING if column.fit is not None and column.fit.zero_tells else NOTHING
    return not nothing.issuperset(cells)


def shapes_text(shapes: Sequence[Any]) -> str:
    """Return the shapes of tensors as ``64x32 32x16``, equal ones as ``4 × 64x32``, and a list of them in brackets.

    Arguments without dimensions, such as numbers and flags, are left out.
    """
    texts = [_shape_text(shape) for shape in shapes if shape not in ((), [])]
    runs = [(text, len([*equal])) for text, equal in groupby(texts)]
    return " ".join(f"{n} × {text}" if n >= REPEATS else " ".join([text] * n) for text, n in runs)


def _shape_text(shape: Any) -> str:
    if not isinstance(shape, list | tuple):
        return printable(str(shape))
    if any(isinstance(part, list | tuple) for part in shape):
        return f"({shapes_text(shape)})"
    return "x".join(printable(str(part)) for part in shape)


def _part(value: float, whole: float) -> float:
    return value / whole if whole else 0.0


def _time(name: str) -> Callable[[EventRow, EventTable], str]:
    return lambda r, t: units.short_time_text(getattr(r, name))


def _percent(name: str, whole: str) -> Callable[[EventRow, EventTable], str]:
    return lambda r, t: units.percent_text(100 * _part(getattr(r, name), getattr(t, whole)))


def _memory(name: str) -> Callable[[EventRow, EventTable], str]:
    return lambda r, t: units.memory_text(getattr(r, name))


def _flop_rate(row: EventRow) -> str:
    return units.marked(units.prefixed_text(row.tflops_per_s * 1e12), row.pct_peak_flops)


def _byte_rate(row: EventRow) -> str:
    return units.marked(units.prefixed_text(row.gbytes_per_s * 1e9), row.pct_peak_bandwidth)


_CPU, _CUDA = "self_cpu_time_total", "self_device_time_total"

COLUMNS = [
    ViewColumn(
        "Name", "key", lambda r, at: at.name(r.key), width="name", fit=Fit("Name", 1, lambda r, t: printable(r.key))
    ),
    ViewColumn(
        "Group",
        "group",
        lambda r, at: at.group(r.group),
        "group",
        "group",
        align="<",
        fit=Fit("Group", 1, lambda r, t: printable(r.group)),
    ),
    ViewColumn("Rank", "rank", lambda r, at: str(r.rank), "rank", 4, fit=Fit("Rank", 1, lambda r, t: str(r.rank))),
    ViewColumn(
        "Overload Name",
        "overload_name",
        lambda r, at: at.name(r.overload_name),
        "overload",
        "name",
        fit=Fit("Overload", 14, lambda r, t: printable(r.overload_name)),
    ),
    ViewColumn(
        "Self CPU %",
        _CPU,
        lambda r, at: units.share_text(r.self_cpu_time_total, at.table.self_cpu_time_total),
        fit=Fit("CPU %", 12, _percent(_CPU, _CPU), lambda r, t: _part(r.self_cpu_time_total, t.self_cpu_time_total), 6),
    ),
    ViewColumn(
        "Self CPU", _CPU, lambda r, at: at.time(r.self_cpu_time_total), fit=Fit("Self CPU", 11, _time(_CPU), on_host=2)
    ),
    ViewColumn(
        "CPU total %", "cpu_time_total", lambda r, at: units.share_text(r.cpu_time_total, at.table.self_cpu_time_total)
    ),
    ViewColumn(
        "CPU total",
        "cpu_time_total",
        lambda r, at: at.time(r.cpu_time_total),
        fit=Fit("CPU total", 16, _time("cpu_time_total")),
    ),
    ViewColumn(
        "CPU time avg", "cpu_time", lambda r, at: at.time(r.cpu_time), fit=Fit("CPU avg", 20, _time("cpu_time"))
    ),
    ViewColumn(
        "Self CUDA",
        _CUDA,
        lambda r, at: at.time(r.self_device_time_total),
        "device",
        fit=Fit("Self CUDA", 2, _time(_CUDA)),
    ),
    ViewColumn(
        "Self CUDA %",
        _CUDA,
        lambda r, at: units.share_text(r.self_device_time_total, at.table.self_device_time_total),
        "device",
        fit=Fit(
            "CUDA %", 7, _percent(_CUDA, _CUDA), lambda r, t: _part(r.self_device_time_total, t.self_device_time_total)
        ),
    ),
    ViewColumn(
        "CUDA total",
        "device_time_total",
        lambda r, at: at.time(r.device_time_total),
        "device",
        fit=Fit("CUDA total", 17, _time("device_time_total")),
    ),
    ViewColumn(
        "CUDA time avg",
        "device_time",
        lambda r, at: at.time(r.device_time),
        "device",
        fit=Fit("CUDA avg", 19, _time("device_time")),
    ),
    ViewColumn(
        "CPU Mem",
        "cpu_memory_usage",
        lambda r, at: units.memory_text(r.cpu_memory_usage),
        "memory",
        fit=Fit("CPU mem", 21, _memory("cpu_memory_usage")),
    ),
    ViewColumn(
        "Self CPU Mem",
        "self_cpu_memory_usage",
        lambda r, at: units.memory_text(r.self_cpu_memory_usage),
        "memory",
        fit=Fit("Self CPU mem", 18, _memory("self_cpu_memory_usage")),
    ),
    ViewColumn(
        "CUDA Mem",
        "device_memory_usage",
        lambda r, at: units.memory_text(r.device_memory_usage),
        "device memory",
        fit=Fit("CUDA mem", 22, _memory("device_memory_usage")),
    ),
    ViewColumn(
        "Self CUDA Mem",
        "self_device_memory_usage",
        lambda r, at: units.memory_text(r.self_device_memory_usage),
        "device memory",
        fit=Fit("Self CUDA mem", 15, _memory("self_device_memory_usage")),
    ),
    ViewColumn("# of Calls", "count", lambda r, at: str(r.count), fit=Fit("Calls", 6, lambda r, t: str(r.count))),
    ViewColumn(
        "Input Shapes",
        "input_shapes",
        lambda r, at: str(r.input_shapes)[: at.widths["shapes"]],
        "shapes",
        "shapes",
        fit=Fit("Input shapes", 1, lambda r, t: shapes_text(r.input_shapes)),
    ),
    ViewColumn(
        "Source Location",
        "stack",
        lambda r, at: at.source(r.stack[0]) if r.stack else "",
        "source",
        "source",
        align="<",
        more=lambda r, at: [*map(at.source, r.stack[1:]), ""],
    ),
    ViewColumn(
        "FLOPs",
        "flops",
        lambda r, at: units.count_text(r.flops),
        "roofline",
        8,
        fit=Fit("FLOPs", 13, lambda r, t: units.count_text(r.flops)),
    ),
    ViewColumn(
        "Bytes",
        "bytes_total_moved",
        lambda r, at: units.bytes_text(r.bytes_total_moved),
        "roofline",
        10,
        fit=Fit("Bytes", 13, lambda r, t: units.bytes_text(r.bytes_total_moved)),
    ),
    ViewColumn(
        "FLOP/s",
        "tflops_per_s",
        lambda r, at: _flop_rate(r),
        "roofline",
        7,
        fit=Fit("FLOP/s", 8, lambda r, t: _flop_rate(r)),
    ),
    ViewColumn(
        "B/s",
        "gbytes_per_s",
        lambda r, at: _byte_rate(r),
        "roofline",
        7,
        fit=Fit("B/s", 9, lambda r, t: _byte_rate(r)),
    ),
    ViewColumn(
        "FLOP/B",
        "arithmetic_intensity",
        lambda r, at: units.significant_text(r.arithmetic_intensity, 3),
        "roofline",
        7,
        fit=Fit("FLOP/B", 10, lambda r, t: units.significant_text(r.arithmetic_intensity, 3)),
    ),
    ViewColumn("Headroom", "headroom", lambda r, at: "", "fitted", fit=Fit("Headroom", 5, _time("headroom"))),
    ViewColumn(
        "% Roofline",
        "pct_roofline",
        lambda r, at: units.roofline_text(r.pct_roofline),
        "roofline",
        10,
        fit=Fit(
            "% roof",
            3,
            lambda r, t: units.roofline_text(r.pct_roofline),
            lambda r, t: r.pct_roofline / 100,
            zero_tells=True,
        ),
    ),
    ViewColumn(
        "Bound",
        "bound",
        lambda r, at: units.bound_text(r.bound),
        "roofline",
        7,
        fit=Fit("Bound", 4, lambda r, t: units.bound_text(r.bound)),
    ),
    ViewColumn(
        "DRAM B/s",
        "dram_gbytes_per_s",
        lambda r, at: units.prefixed_text(r.dram_gbytes_per_s * 1e9),
        "counted",
        9,
        fit=Fit("DRAM B/s", 9, lambda r, t: units.prefixed_text(r.dram_gbytes_per_s * 1e9)),
    ),
    ViewColumn(
        "Traffic",
        "traffic_ratio",
        lambda r, at: units.ratio_text(r.traffic_ratio),
        "counted",
        7,
        fit=Fit("Traffic", 6, lambda r, t: units.ratio_text(r.traffic_ratio)),
    ),
    ViewColumn(
        "Tensor %",
        "tensor_active",
        lambda r, at: units.percent_text(r.tensor_active),
        "counted",
        8,
        fit=Fit("Tensor", 9, lambda r, t: units.percent_text(r.tensor_active)),
    ),
]


def columns_of(device_type: str, columns: Sequence[ViewColumn]) -> list[ViewColumn]:
    """Return columns with the headers that torch prints for devices of a type: "Self XPU" for "Self CUDA"."""

    def named(header: str) -> str:
        return header.replace("CUDA", device_type.upper())

    return [
        replace(one, header=named(one.header), fit=one.fit and replace(one.fit, header=named(one.fit.header)))
        for one in columns
    ]


def _names() -> Iterable[tuple[str, ViewColumn]]:
    for column in COLUMNS:
        for name in (column.header, *([column.fit.header] if column.fit else []), column.attribute):
            yield name, column


def _plain(name: object) -> str:
    """Return a name in the form in which names are compared: "Self CUDA %", "self cuda %" and "self_device_%"."""
    text = str(name).strip().lower().replace("_", " ")
    for name in _core.device_types:
        text = text.replace(name, "device")
    return text.replace("% roofline", "% roof").replace("tflop/s", "flop/s").replace("gb/s", "b/s")


def attribute_of(name: object, attributes: Iterable[str]) -> str | None:
    """Return the attribute of rows that a name means: an attribute or a header, in any case; "cuda" means "device"."""
    wanted = _plain(name)
    found = {_plain(one): one for one in attributes}
    headers = {_plain(text): column.attribute for text, column in _names()}
    return found.get(wanted) or next((headers[w] for w in (wanted,) if headers.get(w) in found.values()), None)


def headers_of(attributes: Sequence[str]) -> list[str]:
    """Return the headers of fitted text that show one of these attributes."""
    return [column.fit.header for column in COLUMNS if column.fit is not None and column.attribute in attributes]


def sort_key(name: object, attributes: Sequence[str]) -> str:
    """Return the attribute that a name means, as attribute_of() does. ValueError for an unknown name."""
    found = attribute_of(name, attributes)
    if found is not None:
        return found
    shown = [text for text, column in _names() if column.attribute in attributes and text not in attributes]
    hint = did_you_mean(str(name), [*attributes, *shown])
    hint = hint or f"; choose a header: {', '.join(headers_of(attributes))}; or a column of to_pandas()"
    raise ValueError(f"cannot sort by {name!r}{hint}")


def find_columns(names: Iterable[str]) -> list[ViewColumn]:
    """Return the columns of fitted text that headers or attributes name. ValueError for an unknown one."""
    shown = [(text, column) for text, column in _names() if column.fit is not None]
    known: dict[str, ViewColumn] = {}
    for text, column in shown:
        known.setdefault(_plain(text), column)
    chosen = []
    for name in names:
        if _plain(name) not in known:
            hint = did_you_mean(name, [text for text, _ in shown])
            all_names = ", ".join(column.fit.header for column in COLUMNS if column.fit)
            raise ValueError(f"there is no column {name!r}{hint or f'; choose from {all_names}'}")
        if known[_plain(name)] not in chosen:
            chosen.append(known[_plain(name)])
    return chosen

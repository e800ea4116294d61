"""HTML tables for notebooks: self-contained fragments that follow the page's light or dark theme."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopscope.support import units
from flopscope.support.safe import markup, printable
from flopscope.views import text

if TYPE_CHECKING:
    from flopscope.results.table import EventRow, EventTable

ROWS_SHOWN = 50
NAME_SHOWN = 55  # characters of a name in the notes

STYLE = """
.flopscope {border-collapse: collapse; font-size: 0.85em; font-variant-numeric: tabular-nums}
.flopscope th, .flopscope td {padding: 0.2em 0.7em; text-align: right; white-space: nowrap}
.flopscope th {border-bottom: 1px solid color-mix(in srgb, currentColor 40%, transparent)}
.flopscope tbody tr:nth-child(even) {background: color-mix(in srgb, currentColor 6%, transparent)}
.flopscope .name {text-align: left; max-width: 28em; overflow: hidden; text-overflow: ellipsis}
.flopscope .stack {text-align: left; white-space: pre; font-size: 0.9em}
.flopscope caption {caption-side: bottom; text-align: left; padding-top: 0.4em; opacity: 0.75}
"""


@dataclass(frozen=True)
class HtmlColumn:
    """A column: its header, its cells, whether a table shows it, and the CSS class of its cells."""

    header: str
    cell: Callable[[EventRow], str]
    shown: Callable[[EventTable], bool] = lambda table: True
    style: str = ""


def _has_device(table: EventTable) -> bool:
    return table.has_device


def _has_stacks(table: EventTable) -> bool:
    return any(row.stack for row in table)


def _has_shapes(table: EventTable) -> bool:
    return any(row.input_shapes for row in table)


COLUMNS = [
    HtmlColumn("Name", lambda r: r.key, style="name"),
    HtmlColumn("Rank", lambda r: str(r.rank), lambda t: t.ranks is not None),
    HtmlColumn("Input shapes", lambda r: str(r.input_shapes), _has_shapes),
    HtmlColumn("Source location", lambda r: "\n".join(map(printable, r.stack)), _has_stacks, "stack"),
    HtmlColumn("Calls", lambda r: str(r.count)),
    HtmlColumn("Self CPU", lambda r: units.time_text(r.self_cpu_time_total)),
    HtmlColumn("CPU total", lambda r: units.time_text(r.cpu_time_total)),
    HtmlColumn("Self CUDA", lambda r: units.time_text(r.self_device_time_total), _has_device),
    HtmlColumn("CUDA total", lambda r: units.time_text(r.device_time_total), _has_device),
    HtmlColumn("CPU mem", lambda r: units.memory_text(r.self_cpu_memory_usage), lambda t: t.profile_memory),
    HtmlColumn(
        "CUDA mem",
        lambda r: units.memory_text(r.self_device_memory_usage),
        lambda t: t.profile_memory and t.has_device,
    ),
    HtmlColumn("FLOPs", lambda r: units.count_text(r.flops)),
    HtmlColumn("Bytes", lambda r: units.bytes_text(r.bytes_total_moved)),
    HtmlColumn("TFLOP/s", lambda r: units.number_text(r.tflops_per_s)),
    HtmlColumn("GB/s", lambda r: units.number_text(r.gbytes_per_s)),
    HtmlColumn("FLOP/B", lambda r: units.number_text(r.arithmetic_intensity)),
    HtmlColumn("% roofline", lambda r: units.roofline_text(r.pct_roofline)),
    HtmlColumn("Bound", lambda r: units.bound_text(r.bound)),
]


def _cell(tag: str, column: HtmlColumn, value: str) -> str:
    safe = "\n".join(map(markup, value.split("\n")))  # a stack's lines
    style = f' class="{column.style}" title="{safe}"' if column.style else ""
    return f"<{tag}{style}>{safe}</{tag}>"


def _cells(tag: str, columns: list[HtmlColumn], texts: list[str]) -> str:
    return "<tr>" + "".join(_cell(tag, column, value) for column, value in zip(columns, texts, strict=True)) + "</tr>"


def render(table: EventTable) -> str:
    """Return the rows that took longest as an HTML table with all text escaped."""
    columns = [column for column in COLUMNS if column.shown(table)]
    rows = table.sorted("self_device_time_total" if table.has_device else "self_cpu_time_total")[:ROWS_SHOWN]
    head = _cells("th", columns, [column.header for column in columns])
    body = "\n".join(_cells("td", columns, [column.cell(row) for column in columns]) for row in rows)
    caption = f"{len(rows)} of {len(table)} rows. Self CPU time total: {units.time_text(table.self_cpu_time_total)}."
    if table.has_device:
        caption += f" Self CUDA time total: {units.time_text(table.self_device_time_total)}."
    notes = "<br>".join(map(markup, text.footnotes(rows, text.Layout(table, None, NAME_SHOWN, None, None, True))))
    return (
        f'<style>{STYLE}</style>\n<table class="flopscope">\n<caption>{markup(caption)}</caption>\n'
        f"<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n<div>{notes}</div>"
    )

"""A comparison as text and as HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flopscope.support import units
from flopscope.support.columns import GAP, aligned_line, dashes
from flopscope.support.safe import markup, printable
from flopscope.views.html import STYLE

if TYPE_CHECKING:
    from flopscope.results.comparison import Comparison, ComparisonRow, Side

WIDTH = 120
LEAST_NAME = 16
HTML_ROWS = 50


@dataclass(frozen=True)
class SideColumn:
    """A number of each run, shown in two columns, or in one if ``merges`` is set and the runs never differ."""

    header: str
    cell: Callable[[Side], str]
    merges: bool = False


COLUMNS = (
    SideColumn("Calls", lambda side: str(side.count), merges=True),
    SideColumn("Time", lambda side: units.time_text(side.time)),
    SideColumn("FLOPs", lambda side: units.count_text(side.flops), merges=True),
    SideColumn("Bytes", lambda side: units.bytes_text(side.bytes), merges=True),
    SideColumn("Roof", lambda side: units.roofline_text(side.pct_roofline)),
)
RATIO_AFTER = "Time"


def _cells(rows: Sequence[ComparisonRow]) -> list[list[str]]:
    """Return the header and the cells of each column except the name."""
    columns = []
    for column in COLUMNS:
        a, b = ([column.cell(s) if s else "" for s in sides] for sides in ([r.a for r in rows], [r.b for r in rows]))
        if column.merges and all(x == y or not x or not y for x, y in zip(a, b, strict=True)):
            columns.append([column.header, *(x or y for x, y in zip(a, b, strict=True))])
        else:
            columns += [[f"{column.header} a", *a], [f"{column.header} b", *b]]
        if column.header == RATIO_AFTER:
            columns.append(["a / b", *(units.ratio_text(row.ratio) for row in rows)])
    return columns


def _names(comparison: Comparison, rows: Sequence[ComparisonRow]) -> list[str]:
    texts = []
    for row in rows:
        alone = "" if row.a and row.b else " (only a)" if row.a else " (only b)"
        shapes = f" {row.input_shapes}" if comparison.by == "shape" and row.input_shapes else ""
        texts.append(printable(f"{row.name}{shapes}{alone}" if row.name != "total" else row.name))
    return texts


def _cut(name: str, width: int) -> str:
    """Shorten a long name in the middle, since its end may tell that only one run has it."""
    tail = (width - 1) // 2
    return name if len(name) <= width else f"{name[: width - 1 - tail]}…{name[-tail:]}"


def legend(comparison: Comparison) -> list[str]:
    """Return a line for each run with its name and the kind of its times."""
    times = ["device" if there else "CPU" for there in comparison.on_device]
    named = zip("ab", comparison.names, times, strict=True)
    return [
        f"{which}: own {time} times{'' if name == which else f' of {printable(name)}'}" for which, name, time in named
    ]


def footer(comparison: Comparison, shown: int) -> list[str]:
    """Return the notes: how many rows are omitted, which rows only one run has, and what the star means."""
    lines = [f"{shown} of {len(comparison)} rows."] if shown < len(comparison) else []
    for which in ("a", "b"):
        alone = comparison.unmatched("a" if which == "a" else "b")
        time = math.fsum(side.time for row in alone if (side := row.a or row.b))
        if alone:
            lines.append(f"Only in {which}: {len(alone)} rows, {units.time_text(time)}.")
    if any(side.pct_roofline > 100 for row in comparison.rows[:shown] for side in (row.a, row.b) if side):
        lines.append("*: faster than the peaks allow: the data sat in a cache, or the peaks were measured under load.")
    return lines


def text(comparison: Comparison, row_limit: int) -> str:
    """Return the text of Comparison.table()."""
    rows = [*(comparison.rows if row_limit < 0 else comparison.rows[:row_limit]), comparison.total]
    names, columns = ["Name", *_names(comparison, rows)], _cells(rows)
    sizes = [max(map(len, column)) for column in columns]
    width = max(LEAST_NAME, min(max(map(len, names)), WIDTH - sum(sizes) - len(GAP) * len(sizes)))
    widths = [width, *sizes]
    cut = [_cut(name, width) for name in names]
    head, *body, total = (aligned_line(cells, widths).rstrip() for cells in zip(cut, *columns, strict=True))
    rule = dashes(widths)
    lines = [*legend(comparison), rule, head, rule, *body, rule, total, rule]
    return "\n".join([*lines, *footer(comparison, len(rows) - 1)]) + "\n"


def html(comparison: Comparison) -> str:
    """Return the comparison as an HTML table with all text escaped."""
    rows = [*comparison.rows[:HTML_ROWS], comparison.total]
    columns = [["Name", *_names(comparison, rows)], *_cells(rows)]
    lines = [
        "<tr>"
        + "".join(_html_cell("td" if i else "th", column[i], at == 0) for at, column in enumerate(columns))
        + "</tr>"
        for i in range(len(rows) + 1)
    ]
    caption = "; ".join(legend(comparison)) + ". " + " ".join(footer(comparison, len(rows) - 1))
    return (
        f'<style>{STYLE}</style>\n<table class="flopscope">\n<caption>{markup(caption)}</caption>\n'
        f"<thead>{lines[0]}</thead>\n<tbody>\n" + "\n".join(lines[1:]) + "\n</tbody>\n</table>"
    )


def _html_cell(tag: str, text: str, is_name: bool) -> str:
    style = f' class="name" title="{markup(text)}"' if is_name else ""
    return f"<{tag}{style}>{markup(text)}</{tag}>"

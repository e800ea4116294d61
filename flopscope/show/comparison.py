"""A comparison as text and as HTML: what changed by name, then the verdict."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from flopscope.results.comparison import Change, Comparison
from flopscope.show.fitted import LEAST_WIDTH, terminal_width
from flopscope.show.summary import Summary
from flopscope.support import units
from flopscope.support.columns import GAP, Rows, aligned_line, cut_apart, cut_end, dashes
from flopscope.support.safe import printable

LEAST_NAME, LEAST_WHY = 16, 12
HTML_ROWS = 50
PARTS_SHOWN = 3
"""Shapes shown below a name, unless all rows are."""
INDENT = "  "


def _calls(change: Change) -> str:
    a, b = (f"{calls:.4g}" for calls in (change.calls_a, change.calls_b))
    return a if a == b else f"{a} → {b}"


def _difference(change: Change) -> str:
    change_of_time = change.time_b - change.time_a
    sign = "+" if change_of_time > 0 else "-" if change_of_time < 0 else ""
    return f"{sign}{units.short_time_text(abs(change_of_time))}"


def _ratio(change: Change) -> str:
    return units.ratio_text(change.time_a / change.time_b if change.time_a and change.time_b else math.nan)


def _of(which: str, name: str, text: Callable[[float], str], change: Change) -> str:
    """Return the cell of a number of one side of a change."""
    side = getattr(change, which)
    return "" if side is None else text(getattr(side, name))


Columns = tuple[tuple[str, Callable[["Change"], str]], ...]
"""Headers and cells of columns."""
COLUMNS: Columns = (
    ("a", lambda change: units.short_time_text(change.time_a) if change.a else ""),
    ("b", lambda change: units.short_time_text(change.time_b) if change.b else ""),
    ("b - a", _difference),
    ("a / b", _ratio),
    ("Calls", _calls),
)
WORK = (
    ("FLOPs", "flops", units.count_text),
    ("Bytes", "bytes", units.bytes_text),
    ("Roof", "pct_roofline", units.roofline_text),
)
WIDE: Columns = tuple((f"{title} {of}", partial(_of, of, name, text)) for title, name, text in WORK for of in "ab")
"""The columns that only wide tables have."""
PER = {"step": "Times and calls are those of a step.", "call": "Times are those of a call.", "run": ""}


def legend(comparison: Comparison) -> list[str]:
    """Return a line for each run with its name and the kind of its times, and one on what they refer to."""
    times = ["device" if there else "CPU" for there in comparison.on_device]
    named = zip("ab", comparison.names, times, strict=True)
    lines = [f"{a}: own {time} times{'' if name == a else f' of {printable(name)}'}" for a, name, time in named]
    return list(filter(None, [*lines, PER[comparison.per]]))


def _shown(comparison: Comparison, limit: int) -> list[tuple[int, Change]]:
    """Return the changes to show with their depth: names, and the shapes that differ below them."""
    both = [change for change in comparison.changes if change.matched]
    rows = []
    for change in both if limit < 0 else both[:limit]:
        rows.append((0, change))
        parts = [part for part in change.parts if comparison.every_shape or part.differs]
        every = limit < 0 or comparison.every_shape
        rows += [(1, part) for part in (parts if every else parts[:PARTS_SHOWN])]
    return rows


def _alone(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each run with what only it has."""
    for which, cause in (("a", "only a"), ("b", "only b")):
        alone = [change for change in comparison.changes if change.cause == cause]
        if alone:
            times = [change.time_a + change.time_b for change in alone]
            names = [f"{change.name} {units.short_time_text(t)}" for change, t in zip(alone, times, strict=True)]
            total = "" if comparison.per == "call" else f", {units.short_time_text(math.fsum(times))}"
            yield printable(f"Only in {which}: {len(alone)} name{'s' * (len(alone) != 1)}{total}: {', '.join(names)}")


def _footer(comparison: Comparison, shown: int, wide: bool) -> list[str]:
    """Return the notes below the table: how many rows are omitted, what only one run has, and what the star means."""
    both = [change for change in comparison.changes if change.matched]
    lines = [f"{shown} of {len(both)} rows."] if shown < len(both) else []
    lines += _alone(comparison)
    if wide and any(s.pct_roofline > 100 for change in both[:shown] for s in (change.a, change.b) if s):
        lines.append("*: faster than the peaks allow: the data sat in a cache, or the peaks were measured under load.")
    return lines


def _cells(
    comparison: Comparison, rows: Sequence[tuple[int, Change]], wide: bool
) -> tuple[list[str], list[list[str]], list[str]]:
    """Return the names, the columns of numbers and the reasons, each with its header and without the total."""
    names = ["Name", *(printable(INDENT * depth + change.name) for depth, change in rows)]
    shown = COLUMNS + WIDE if wide else COLUMNS
    columns = [[header, *(cell(change) for _, change in rows)] for header, cell in shown]
    whys = ["Why", *(printable(f"{change.cause}: {change.why}" if change.why else change.cause) for _, change in rows)]
    if comparison.per != "call":
        for (header, cell), content in zip(shown, columns, strict=True):
            content.append(cell(comparison.total_change) if header != "Calls" else "")
        names, whys = [*names, "total"], [*whys, ""]
    return names, columns, whys


def text(comparison: Comparison, row_limit: int, width: int | None, wide: bool) -> str:
    """Return the text of Comparison.table()."""
    whole = max(terminal_width() if width is None else width, LEAST_WIDTH)
    rows = _shown(comparison, row_limit)
    names, columns, whys = _cells(comparison, rows, wide)
    sizes = [max(map(len, column)) for column in columns]
    longest, reason = max(map(len, names)), max(map(len, whys))
    if not wide:
        while len(sizes) > 1 and whole - sum(sizes) - len(GAP) * len(sizes) < LEAST_NAME:
            columns.pop()  # a narrow terminal: the calls first, then the ratios
            sizes.pop()
        left = whole - sum(sizes) - len(GAP) * len(sizes)  # for the name and the reason
        if left < LEAST_NAME + len(GAP) + LEAST_WHY:
            longest, reason = min(longest, left), 0
        else:
            whole_names = [len(INDENT) + len(change.name) for depth, change in rows if change.cause == "replaced"]
            share = max(LEAST_NAME, left - len(GAP) - reason, left // 2 - len(GAP), *whole_names)
            longest = min(longest, share, left - len(GAP) - LEAST_WHY)
            reason = min(reason, left - len(GAP) - longest)
    lines = []
    short = cut_apart(names, longest)
    for i, name in enumerate(names):
        cells = aligned_line([short[name], *(column[i] for column in columns)], [longest, *sizes])
        lines.append((cells + GAP + cut_end(whys[i], reason) if reason else cells).rstrip())
    rule = dashes([longest, *sizes, *([reason] if reason else [])])
    head, body = lines[0], lines[1:]
    total = [body.pop(), rule] if comparison.per != "call" else []
    shown = sum(depth == 0 for depth, _ in rows)
    notes = [line if wide else cut_end(line, whole) for line in _footer(comparison, shown, wide)]
    verdict = [f for line in comparison.verdict for f in textwrap.wrap(printable(line), whole)]
    first = [line if wide else cut_end(line, whole) for line in legend(comparison)]
    below = [*total, *notes, *([""] if verdict else []), *verdict]
    return "\n".join([*first, rule, head, rule, *body, rule, *below]) + "\n"


def html(comparison: Comparison) -> str:
    """Return the comparison as HTML with all text escaped: the wide table, and the verdict below it."""
    rows = _shown(comparison, HTML_ROWS)
    names, columns, whys = _cells(comparison, rows, wide=True)
    table = Rows([*zip(names, *columns, whys, strict=True)], f"<{'>' * len(columns)}<")
    notes = _footer(comparison, sum(depth == 0 for depth, _ in rows), wide=True)
    return Summary([*legend(comparison), table, *notes, *comparison.verdict], comparison.to_dict).html

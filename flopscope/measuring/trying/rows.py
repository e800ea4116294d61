"""Rows of a table in Markdown: what was predicted of changes beside what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flopscope.measuring.trying.text import span_text
from flopscope.support.units import plural

BEGIN, END = "<!-- tried -->", "<!-- end -->"
HEADER = ("program", "change", "device", "predicted", "measured", "verdict")
KEY = 3
"""Cells that name a row: the program, the change and the device."""


def with_rows(text: str, title: str, predictions: Iterable[Mapping[str, Any]]) -> str:
    """Return a text with a row for each prediction in the table between its marks.

    A row of the same program, change and device is replaced. predictions: those of Tried.predictions(). Raises
    ValueError if the text has no marks.
    """
    before, begin, rest = text.partition(f"{BEGIN}\n")
    inside, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no line {BEGIN} with a line {END} after it, between which the table belongs")
    rows = [cells_of(line) for line in inside.splitlines() if line.startswith("|")][2:]
    for one in predictions:
        cells = row_of(title, one)
        rows = [row for row in rows if row[:KEY] != cells[:KEY]] + [cells]
    table = [HEADER, ("---",) * len(HEADER), *sorted(rows, key=lambda row: row[0])]
    lines = [f"| {' | '.join(row)} |\n" for row in table]
    return "".join([before, begin, *lines, end, after])


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def row_of(title: str, one: Mapping[str, Any]) -> list[str]:
    """Return the cells of a prediction."""
    low, high = one["low"], one["high"]
    interval = "" if low is None or high is None else f" ({span_text(low, high)})"
    saved = f"{one['predicted']:.1f} %", f"{one['measured']:.1f} %{interval}"
    cells = [title, f"`{one['change']}`", one["device"], *saved, f"{one['verdict']}, {plural(one['pairs'], 'pair')}"]
    return [cell.replace("|", "/") for cell in cells]

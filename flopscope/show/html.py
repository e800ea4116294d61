"""HTML tables for notebooks: self-contained fragments that follow the page's light or dark theme."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from flopscope import _core
from flopscope.results.table import EventTable
from flopscope.show.columns import NOTHING
from flopscope.show.entries import Entry, list_entries
from flopscope.show.fitted import RANGES_SHOWN, FittedColumn, fit_columns, notes_of, range_columns
from flopscope.support.safe import markup, printable

ROWS_SHOWN = 50
PIXELS = 830
"""Width of the output of a notebook's cell on a screen of 1280 pixels."""
CHARACTERS = 102
"""Characters that fit beside the padding of the cells."""
HIGH = 30
"""Rows above which the table scrolls, below its header."""

STYLE = """
.flopscope {border-collapse: collapse; font-size: min(0.85em, 12.5px); font-variant-numeric: tabular-nums}
.flopscope th, .flopscope td {padding: 0.2em 0.5em; text-align: right; white-space: nowrap}
.flopscope th {border-bottom: 1px solid color-mix(in srgb, currentColor 40%, transparent)}
.flopscope tbody tr:nth-child(even) {background: color-mix(in srgb, currentColor 6%, transparent)}
.flopscope .name {text-align: left; white-space: pre; max-width: 28em; overflow: hidden; text-overflow: ellipsis}
.flopscope .stack {text-align: left; white-space: pre; font-size: 0.9em; opacity: 0.75}
.flopscope caption {text-align: left; padding-top: 0.6em; opacity: 0.75}
"""
# The header stays in view while the rows scroll.
FRAME = f"""
.flopscope-frame {{max-width: {PIXELS}px; overflow: auto}}
.flopscope-frame.high {{max-height: {HIGH * 1.6:.0f}em}}
.flopscope-frame .flopscope thead th {{position: sticky; top: 0; background: Canvas; color: CanvasText; z-index: 1}}
.flopscope-notes {{max-width: {PIXELS}px; font-size: 0.85em; opacity: 0.75}}
"""
BAR = "background: linear-gradient(to right, color-mix(in srgb, currentColor 18%, transparent) {0:.1f}%, transparent 0)"


def _cell(column: FittedColumn, i: int, entry: Entry, table: EventTable) -> str:
    shown, share_of = column.cells[i], column.column.texts.share
    style = ""
    if column.is_text:
        style = f' class="name" title="{markup(column.column.fitted(entry.row, table))}"'
    elif column.column.attribute == "bound":
        style = f' title="{markup(_core.bounds[entry.row.bound].meaning)}"'
    elif share_of is not None and shown not in NOTHING:
        share = min(max(100 * share_of(getattr(entry.row, column.column.attribute), table), 0.0), 100.0)
        style = f' style="{BAR.format(share)}"' if share == share else ""
    frames = "\n".join(map(markup, entry.row.stack)) if column.column.attribute == "key" else ""
    below = f'<div class="stack">{frames}</div>' if frames else ""
    return f"<td{style}>{markup(shown)}{below}</td>"


def _table(entries: Sequence[Entry], table: EventTable, names: Sequence[str] | None, caption: str = "") -> str:
    columns = fit_columns(entries, table, CHARACTERS, names)
    heads = ((' class="name"' if one.is_text else "", one.column) for one in columns)
    head = "".join(f'<th{style} title="{markup(of.header)}">{markup(of.fitted_header)}</th>' for style, of in heads)
    rows = (map(partial(_cell, i=i, entry=entry, table=table), columns) for i, entry in enumerate(entries))
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    title = f"<caption>{markup(caption)}</caption>\n" if caption else ""
    high = " high" if len(entries) > HIGH else ""
    return (
        f'<div class="flopscope-frame{high}"><table class="flopscope">\n{title}'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def texts_table(rows: Sequence[Sequence[str]], align: str = "<>") -> str:
    """Return rows of texts as a table, the first as its header. align: as in support.columns.Rows."""
    looks = [" class=name" if side == "<" else "" for side in align.ljust(len(rows[0]), align[-1])]

    def line(tag: str, texts: Sequence[str]) -> str:
        cells = zip(looks, texts, strict=True)
        return f"<tr>{''.join(f'<{tag}{look}>{markup(text)}</{tag}>' for look, text in cells)}</tr>"

    body = "\n".join(line("td", row) for row in rows[1:])
    return f'<table class="flopscope"><thead>{line("th", rows[0])}</thead><tbody>\n{body}\n</tbody></table>'


def render(table: EventTable, limit: int = ROWS_SHOWN) -> str:
    """Return the fitted table as HTML with all text escaped: the rows that print() shows first, and ranges apart.

    limit: number of rows, -1 for all.
    """
    listing = list_entries(table, limit=limit)
    parts = [f"<style>{STYLE}{FRAME}</style>", _table(listing.entries, table, None)]
    if listing.ranges:
        shown = listing.ranges[:RANGES_SHOWN]
        parts.append(_table(shown, table, range_columns(shown, table), "Ranges (times include the ops above)"))
    words = re.findall(r"(?<=>)[^<>]+(?=</td>)", parts[1])
    notes = notes_of(table, listing, ".table(row_limit=-1, brief=True)", limit, words=words)
    parts.append(f'<div class="flopscope-notes">{"<br>".join(markup(printable(note)) for note in notes)}</div>')
    return "\n".join(parts)

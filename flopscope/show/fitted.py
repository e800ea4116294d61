"""Tables as text for people: fitted to a width, the columns that matter first."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TextIO

from flopscope import _core
from flopscope.results.categories import short_names
from flopscope.results.columns import NO_OP
from flopscope.results.groups import ModuleTable
from flopscope.results.table import EventTable
from flopscope.show.columns import NOTHING, SEEN, ViewColumn, columns_of, find_columns, tells, tree_columns
from flopscope.show.entries import Entry, Listing, list_entries
from flopscope.show.notes import footnotes
from flopscope.support import units
from flopscope.support.columns import GAP, aligned_line, cut_apart, cut_middle, dashes
from flopscope.support.safe import printable

UNKNOWN_WIDTH = 100
LEAST_WIDTH = 40
LEAST_NAME = 16
TEXT_SHARES = {1: 0.36, 2: 0.23, 3: 0.18}
"""Share of the width that each column of text, names or names and shapes, gets before another column is added."""
NOTE_NAME = 40  # characters of a name in the notes
INDENT = "  "
RANGES_SHOWN = 8
RANGE_COLUMNS = ("Name", "Group", "Calls", "CPU total", "CUDA total", "FLOP/s", "B/s", "% roof", "Bound")
NO_BREAK = "\u00a0"
STACK_INDENT = "    "
WHOLE_WIDTH = 10**6

EXPLAINED = ("launch", "latency", "inefficient", "other", "l2", "alu", "issue")
"""Bounds whose names do not say what they are."""


def terminal_width(stream: TextIO | None = None) -> int:
    """Return COLUMNS, or else the width of the terminal that a stream is, standard output if None; 100 if it is none.

    It is at least 40.
    """
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return max(LEAST_WIDTH, int(stated))
    try:
        columns = os.get_terminal_size((stream or sys.stdout).fileno()).columns
    except (AttributeError, OSError, ValueError):  # no stream, no terminal, or one that is closed
        return UNKNOWN_WIDTH
    return max(LEAST_WIDTH, columns or UNKNOWN_WIDTH)


def print_coloured(text: str) -> None:
    """Print a table on standard output, with bounds in colour on terminals that have it, unless NO_COLOR is set."""
    if not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.console import Console
    from rich.text import Text

    shown = Text(text, end="")
    for name, bound in _core.bounds.items():
        if bound.terminal:
            shown.highlight_regex(rf"(?<={GAP}){name}(?=\s)", bound.terminal)
    Console(file=sys.stdout, highlight=False).print(shown, soft_wrap=True)


TEXTS = ("key", "group", "input_shapes")


class FittedColumn:
    """A column of a table that is fitted: what it shows, its text for each entry, and its width."""

    def __init__(self, column: ViewColumn, cells: list[str]) -> None:
        self.column, self.cells = column, cells
        self.width = max([len(column.fitted_header), *map(len, cells)])
        self.is_text = column.attribute in TEXTS
        """Whether the cells are names or shapes, which are cut and aligned to the left."""

    def cut(self, width: int) -> None:
        """Shorten the cells to this width."""
        short = cut_apart(self.cells, width)
        self.cells, self.width = [short[text] for text in self.cells], width


def fit_columns(
    entries: Sequence[Entry], table: EventTable, width: int, names: Iterable[str] | None = None
) -> list[FittedColumn]:
    """Choose the columns of a table of ``width`` characters, and cut its names and shapes.

    width: 0 for all columns in full. names: the columns to show, None for those that fit.
    """
    usual = tree_columns(table) if isinstance(table, ModuleTable) else SEEN
    found = columns_of(table.device_type, usual if names is None else find_columns(["Name", *names]))
    cells = {column.header: [_cell(column, e, table) for e in entries] for column in found}
    short = short_names(c for e, c in zip(entries, cells["Name"], strict=True) if width and e.row.device_type != "cpu")
    cells["Name"] = [INDENT * e.depth + short.get(c, c) for e, c in zip(entries, cells["Name"], strict=True)]
    if names is None:
        found = [column for column in found if column.header == "Name" or tells(column, cells[column.header])]
    fitted = [FittedColumn(column, cells[column.header]) for column in found]
    if names is None and width:
        fitted = _chosen(fitted, table, width)
    texts = [one for one in fitted if one.is_text]
    fixed = sum(one.width for one in fitted if not one.is_text) + len(GAP) * (len(fitted) - 1)
    shared = _shared([one.width for one in texts], (width or WHOLE_WIDTH) - fixed)
    for one, room in zip(texts, shared, strict=True):
        one.cut(room)
    return sorted(fitted, key=lambda one: not one.is_text)


def _cell(column: ViewColumn, entry: Entry, table: EventTable) -> str:
    cell = column.fitted(entry.row, table)
    # Most columns do not apply to kernels, nor to what is in no module.
    bare = entry.depth or entry.row.key == NO_OP or isinstance(table, ModuleTable)
    return "" if bare and cell in NOTHING else cell


def _chosen(found: Sequence[FittedColumn], table: EventTable, width: int) -> list[FittedColumn]:
    """Return the columns that fit beside names of a reasonable width, in the order of COLUMNS."""

    def importance(one: FittedColumn) -> int:
        on_host = None if table.has_device else one.column.on_host
        return one.column.importance if on_host is None else on_host

    share = TEXT_SHARES[sum(one.is_text for one in found)]
    kept: list[FittedColumn] = []
    used = 0
    for one in sorted(found, key=importance):
        needed = min(one.width, max(LEAST_NAME, int(width * share))) if one.is_text else one.width
        if importance(one) > 1:
            if any(one.cells == other.cells for other in kept if not other.is_text):
                continue
            if used + needed > width:
                break
        kept.append(one)
        used += needed + len(GAP)
    return [one for one in found if one in kept]


def _shared(natural: Sequence[int], room: int) -> list[int]:
    """Divide a room between texts of these widths: what one does not need, the others get."""
    widths = [0] * len(natural)
    left, open_ = room, sorted(range(len(natural)), key=lambda i: natural[i])
    for done, i in enumerate(open_):
        widths[i] = max(min(natural[i], left // (len(open_) - done)), LEAST_NAME // 2)
        left -= widths[i]
    return widths


def _block(entries: Sequence[Entry], table: EventTable, width: int, names: Iterable[str] | None) -> list[str]:
    columns = fit_columns(entries, table, width, names)
    widths, align = [c.width for c in columns], "".join("<" if c.is_text else ">" for c in columns)
    lines = [aligned_line((c.column.fitted_header for c in columns), widths, align).rstrip(), dashes(widths)]
    for i, entry in enumerate(entries):
        lines.append(aligned_line((c.cells[i] for c in columns), widths, align).rstrip())
        for frame in entry.row.stack if not entry.row.is_user_annotation else ():
            shown = f"{STACK_INDENT}{printable(frame)}"
            lines.append(cut_middle(shown, width) if width else shown)
    return lines


def render(
    table: EventTable,
    *,
    width: int | None = None,
    kind: str | None = None,
    kernels: bool = False,
    columns: Iterable[str] | None = None,
    row_limit: int = -1,
    more: str = "row_limit=-1",
    listing: Listing | None = None,
) -> str:
    """Return a table of lines of at most ``width`` characters.

    width: None for that of the terminal (terminal_width()), 0 for all columns, names and shapes in full.
    kind, kernels, row_limit: see list_entries().
    columns: headers or attributes of the columns to show; None for those that fit.
    more: how to print the rows that are omitted. listing: what list_entries() returns, or other entries.
    """
    fitted = terminal_width() if width is None else width
    if fitted and fitted < LEAST_WIDTH:
        raise ValueError(f"width must be 0 or at least {LEAST_WIDTH}; got {width}")
    names = None if columns is None else list(columns)
    if names is not None:
        find_columns(names)
    found = list_entries(table, kind, kernels, row_limit) if listing is None else listing
    if not found.count and not found.entries and not found.ranges:
        return "No rows.\n"
    empty = ["No rows." if found.count else "No ops."]
    lines = _block(found.entries, table, fitted, names) if found.entries else empty
    words = {word for line in lines[2:] for word in line.split()}
    if found.ranges:
        shown = found.ranges[:RANGES_SHOWN]
        left = f", {RANGES_SHOWN} of {len(found.ranges)}" if len(found.ranges) > RANGES_SHOWN else ""
        lines += ["", f"Ranges{left} (times include the ops above)"]
        lines += _block(shown, table, fitted, range_columns(shown, table))
    lines += ["", *wrapped(notes_of(table, found, more, row_limit, words=words), fitted)]
    return "".join(f"{line}\n" for line in lines)


def wrapped(sentences: Iterable[str], width: int) -> list[str]:
    """Return one paragraph of lines of at most ``width`` characters."""
    text = " ".join(sentences).replace(" %", f"{NO_BREAK}%")
    for word in ("roof", "Roof"):
        text = text.replace(f"% {word}", f"%{NO_BREAK}{word}")
    lines = textwrap.wrap(text, width or UNKNOWN_WIDTH, break_on_hyphens=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def range_columns(entries: Sequence[Entry], table: EventTable) -> list[str]:
    """Return the columns of RANGE_COLUMNS that are not empty for ranges."""
    return [
        column.fitted_header
        for column in find_columns(RANGE_COLUMNS)
        if column.header == "Name" or tells(column, (column.fitted(entry.row, table) for entry in entries))
    ]


def notes_of(
    table: EventTable, listing: Listing, more: str, row_limit: int, *, words: Collection[str]
) -> Iterator[str]:
    """Yield the sentences below a table: totals, omitted rows, what is shown twice, and footnotes().

    words: those of its cells.
    """
    time = units.short_time_text
    host = f"{time(table.self_cpu_time_total)} on the CPU"
    yield f"Total: {time(table.self_device_time_total)} on the GPU, {host}." if table.has_device else f"Total: {host}."
    if 0 <= row_limit < listing.count:
        yield f"{row_limit} of {listing.count} {listing.noun}s; {more} shows all."
    if listing.hidden:
        ops = "op has" if listing.hidden == 1 else "ops have"
        yield f"{listing.hidden} more {ops} no GPU time."
    if listing.alone is not None:
        yield f"{NO_OP}: kernels that no recorded op launched, such as those of CuPy, Triton or CUDA graphs."
    if listing.alone is not None and listing.alone_cut:
        yield f"{listing.alone - listing.alone_cut} of these {listing.alone} kernels are listed; {more} shows all."
    if listing.noun != "module" and any(entry.depth for entry in listing.entries):
        yield "Indented: kernels, whose time is that of the row above."
    timed = [entry.row for entry in listing.entries if entry.row.self_device_time_total > 0]
    kinds = {(row.device_type == "cpu", row.is_user_annotation) for row in timed}
    if listing.noun == "row" and {(True, False), (False, False)} <= kinds:
        yield "The time of a kernel is also that of its op."
    rows = [entry.row for entry in (*listing.entries, *listing.ranges)]
    if any(row.is_user_annotation and row.device_type != "cpu" and row.self_device_time_total > 0 for row in rows):
        yield "Ranges of the GPU last from the start of their first kernel to the end of their last; no total has them."
    for note in footnotes(rows, table, lambda name: cut_middle(printable(name), NOTE_NAME), time):
        yield " ".join(note.split()).replace("% Roofline:", "% roof:")
    for bound in EXPLAINED:
        if bound in words:
            yield f"{bound}: {_core.bounds[bound].meaning}."
    coverage = table.coverage()
    if coverage.get("estimated"):
        return
    if min(coverage["bytes"], coverage["flops"]) < 1 or table.lacks_shapes or table.device_unseen:
        return
    if not any(row.flops > 0 or row.bytes_total_moved > 0 or row.self_device_time_total > 0 for row in rows):
        return
    if units.MISSING not in words:
        yield "All FLOPs and bytes are known."
    elif listing.noun == "op":
        yield "--: the row has no work of its own (the ops inside it have), or no known limit."

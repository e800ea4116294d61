"""Text in columns: rows of cells become aligned lines, and long texts are cut to a width.

An alignment is a text with ``<`` (left) or ``>`` (right) for each column; its last character holds for all further
columns. Lines keep their trailing blanks: strip them where they are unwanted.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

GAP = "  "


def column_widths(rows: Iterable[Sequence[str]]) -> list[int]:
    """Return the width of the widest cell of each column. ValueError for rows of different lengths."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned_line(cells: Iterable[str], widths: Sequence[int], align: str = "<>") -> str:
    """Return one row, with cells padded to these widths. A cell that is wider keeps its width."""
    sides = align.ljust(len(widths), align[-1])
    return GAP.join(f"{cell:{side}{width}}" for cell, side, width in zip(cells, sides, widths, strict=True))


def dashes(widths: Iterable[int]) -> str:
    """Return a line of dashes below or above each column."""
    return GAP.join("-" * width for width in widths)


def aligned_lines(rows: Sequence[Sequence[str]], align: str = "<>") -> list[str]:
    """Return a line for each row, with columns as wide as their widest cells."""
    widths = column_widths(rows)
    return [aligned_line(row, widths, align) for row in rows]


@dataclass(frozen=True)
class Rows:
    """A table of text that is fitted to a width when it is printed. The first row is the header."""

    rows: Sequence[Sequence[str]]
    align: str = "<>"

    def lines(self, width: int) -> list[str]:
        """Return the lines. Columns that do not fit follow below the others, beside the first column once more."""
        blocks, widths = [[0]], column_widths(self.rows)
        for place in range(1, len(widths)):
            taken = sum(widths[i] + len(GAP) for i in blocks[-1])
            if taken + widths[place] > width and len(blocks[-1]) > 1:
                blocks.append([0])
            blocks[-1].append(place)
        sides = self.align.ljust(len(widths), self.align[-1])
        texts = [
            aligned_lines([[row[i] for i in block] for row in self.rows], "".join(sides[i] for i in block))
            for block in blocks
        ]
        return [line.rstrip() for text in texts for line in text]


# Long texts; cut in the middle, without making different texts equal --------------------------------------------------

ELLIPSIS = "…"
ROUNDS = 8  # in which texts that became equal are cut elsewhere
CONTEXT = 2  # characters kept before the first difference


def cut_end(text: str, width: int) -> str:
    """Return the text, without its end if it is longer than ``width``."""
    return text if len(text) <= width else f"{text[: width - 1]}{ELLIPSIS}"


def cut_start(text: str, width: int) -> str:
    """Return the text, without its beginning if it is longer than ``width``."""
    return text if len(text) <= width else f"{ELLIPSIS}{text[1 - width :]}"


def cut_middle(text: str, width: int) -> str:
    """Return the text, without its middle if it is longer than ``width``."""
    if len(text) <= width:
        return text
    tail = max(0, width - len(ELLIPSIS)) // 2
    head = max(0, width - len(ELLIPSIS) - tail)
    return f"{text[:head]}{ELLIPSIS}{text[len(text) - tail :]}"


def cut_apart(texts: Iterable[str], width: int) -> Mapping[str, str]:
    """Return the text of at most ``width`` characters for each text; those of different texts differ, if they can.

    Texts are cut in the middle. Those that this makes equal keep the place where they differ instead.
    """
    cut = {text: cut_middle(text, width) for text in texts}
    for _ in range(ROUNDS):
        groups: dict[str, list[str]] = {}
        for text, short in cut.items():
            groups.setdefault(short, []).append(text)
        alike = [group for group in groups.values() if len(group) > 1]
        if not alike:
            break
        for group in alike:
            place = len(os.path.commonprefix(group))  # noqa: RUF071  # of texts, not of paths
            cut.update({text: _cut_around(text, place, width) for text in group})
    return cut


def _cut_around(text: str, place: int, width: int) -> str:
    """Return the beginning of a text and its part from ``place`` on."""
    if len(text) <= width:
        return text
    head = max(0, width // 3)
    begin = max(head, place - CONTEXT)
    rest = text[begin:]
    room = width - head - len(ELLIPSIS)
    if len(rest) > room:
        rest = f"{rest[: max(0, room - len(ELLIPSIS))]}{ELLIPSIS}"
    elif len(rest) < room:  # the end is reached: keep more of the beginning
        head = width - len(ELLIPSIS) - len(rest)
    return f"{text[:head]}{ELLIPSIS}{rest}"[:width]

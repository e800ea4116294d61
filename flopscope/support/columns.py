"""Tables of text: rows of cells become lines in which the columns are aligned.

An alignment is a text with ``<`` (left) or ``>`` (right) for each column; its last character holds for all further
columns. Lines keep their trailing blanks: strip them where they are unwanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        texts = [aligned_lines([[row[i] for i in block] for row in self.rows], self._align(block)) for block in blocks]
        return [line.rstrip() for text in texts for line in text]

    def _align(self, block: Sequence[int]) -> str:
        return "".join(self.align[min(place, len(self.align) - 1)] for place in block)

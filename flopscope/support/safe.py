"""Text that came from a trace, made safe for where it is shown: a trace may hold any name, and come from anyone."""

from __future__ import annotations

import csv
import html
import json
import re
from collections.abc import Iterable
from os import PathLike
from typing import Any

from flopscope.support.files import replacing

__all__ = ["markup", "printable", "write_csv"]

# C0 and C1 controls and DEL, which terminals act on; separators that end a line; marks that turn the direction of text
# (Unicode's Bidi_Control); halves of surrogate pairs, which cannot be encoded.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMULA = re.compile("[=+\\-@\t\r]")  # how a cell begins that spreadsheets evaluate


def printable(text: str) -> str:
    """Return the text with control characters escaped as Python writes them: ESC as ``\\x1b``, a line's end as ``\\n``.

    Text without any is returned as it is.
    """
    return text if text.isprintable() else _CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def markup(text: str) -> str:
    """Return the text for HTML: control characters escaped as ``printable`` does, then what HTML would interpret."""
    return html.escape(printable(text))


def write_csv(path: str | PathLike[str], header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file: what is None is empty, lists are JSON, and no text is a formula.

    A text that spreadsheets would evaluate, since it begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage
    return, gets an apostrophe before it, which they take for the mark of a text. Numbers stay numbers.
    """
    with replacing(path, newline="", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text, re.ASCII) is not None

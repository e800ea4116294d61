"""Escaping of text from traces for terminals, HTML and CSV: a trace is untrusted and may contain any name."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable
from os import PathLike
from typing import Any

from flopscope.support.files import replacing

# C0 and C1 controls and DEL, which terminals interpret; line separators; lone surrogates, which cannot be encoded; and
# what is not seen: Unicode's category Cf, among it what changes the direction of text, variation selectors and fillers.
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = 16
_SHORT.maxstring = _SHORT.maxother = 80
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # first characters of a cell that spreadsheets evaluate


def printable(text: str) -> str:
    """Return the text with control and invisible characters escaped as in Python: ESC as ``\\x1b``, a line feed as
    ``\\n``. Other text is returned unchanged."""
    return text if text.isascii() and text.isprintable() else _CONTROLS.sub(lambda one: ascii(one[0])[1:-1], text)


def shorten(text: str, longest: int) -> str:
    """Return printable text of at most ``longest`` characters."""
    shown = printable(text[: longest + 1])
    return shown if len(shown) <= longest and len(text) <= longest else f"{shown[: longest - 3]}..."


def shown(value: object) -> str:
    """Return a short repr of any value, printable: of deep, cyclic and long ones, and of those without one, too."""
    try:
        return printable(_SHORT.repr(value))
    except Exception:  # the value's own, or its depth
        return f"<{type(value).__name__}>"


def error_text(error: BaseException) -> str:
    """Return the class and the message of an exception, printable, whatever its ``__str__`` does."""
    name = printable(type(error).__name__)
    try:
        message = printable(str(error))
    except Exception:
        return name
    return f"{name}: {message}" if message else name


def markup(text: str) -> str:
    """Return the text escaped for HTML: control characters as ``printable`` does, then HTML's special characters."""
    import html

    return html.escape(printable(text))


def write_csv(path: str | PathLike[str], header: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file in which None is an empty cell, lists are JSON, and no cell is evaluated as a formula.

    Text that spreadsheets would evaluate, because it begins with ``=``, ``+``, ``-``, ``@``, the wide form of one, a
    tab or the end of a line, is prefixed with an apostrophe, which marks it as text. Numbers are not changed.
    """
    import csv

    with replacing(path, newline="", errors="backslashreplace") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value) else value

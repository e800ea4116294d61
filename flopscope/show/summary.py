"""Summaries: paragraphs, tables and bars that print fitted to the terminal, and as HTML in notebooks."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from flopscope import _core
from flopscope.show.fitted import terminal_width
from flopscope.show.html import PIXELS, STYLE, texts_table
from flopscope.show.looks import background
from flopscope.support.columns import Rows
from flopscope.support.core_facts import parts_of
from flopscope.support.safe import markup
from flopscope.support.units import percent_text, short_time_text

WIDTH = 100
"""Characters of a line, also on wider terminals."""
INDENT = "  "
LEAST_SHARE = 0.004  # of the bar: smaller parts are summed up
SUMMARY_STYLE = f"""
.flopscope-summary {{max-width: {PIXELS}px; line-height: 1.4}}
.flopscope-summary .title {{font-weight: 600; margin-top: 0.8em}}
.flopscope-summary .quiet {{opacity: 0.75; font-size: 0.9em}}
.flopscope-summary .part {{overflow-x: auto; margin: 0.2em 0}}
.flopscope-summary .bar {{display: flex; height: 1.3em; border-radius: 3px; overflow: hidden}}
.flopscope-summary .bar span {{display: block; min-width: 1px}}
.flopscope-summary .legend {{margin: 0.35em 0 0.6em; font-size: 0.9em}}
.flopscope-summary .legend span {{display: inline-block; margin-right: 1.1em; white-space: nowrap}}
.flopscope-summary .legend i {{display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.35em}}
.flopscope-summary td.name {{white-space: normal; max-width: none}}
"""


class Shown(Protocol):
    """A part of a summary that is more than a paragraph."""

    def lines(self, width: int) -> Iterable[str]:
        """Return the part as lines of at most ``width`` characters."""

    def _repr_html_(self) -> str: ...


class Bars:
    """Shares of a whole: lines of text, and in HTML one bar of several colours."""

    def __init__(
        self, lines: Sequence[str], parts: Mapping[str, float], causes: Sequence[str] = (), on_device: bool = True
    ) -> None:
        """lines: the text. parts: µs by part of the accounting. causes: sentences below the bar."""
        self._lines, self._parts, self._causes, self._on_device = list(lines), dict(parts), list(causes), on_device

    def lines(self, width: int) -> Iterator[str]:
        """Yield the lines; bars are cut at the width, which only narrow terminals reach."""
        for line in self._lines:
            yield line[:width] if line.endswith("█") else line

    def _repr_html_(self) -> str:
        """Return a bar of segments, a legend with times, shares and what the parts are, and the causes."""
        total = sum(self._parts[part] for part in _core.parts)
        segments, entries, rest = [], [], 0.0
        for part, row in parts_of(self._on_device).items():
            us = self._parts[part]
            if us < LEAST_SHARE * total:
                rest += us
                continue
            text = f"{row.label} {short_time_text(us)} {percent_text(100 * us / total)}"
            style = f"background: {background(row.light, row.hatch, 'Canvas')}"
            segments.append(f'<span style="width: {100 * us / total:.2f}%; {style}" title="{markup(text)}"></span>')
            gloss = f' <small class="quiet">{markup(row.gloss)}</small>'
            entries.append(f'<span><i style="{style}"></i>{markup(text)}{gloss}</span>')
        if rest > 0:
            entries.append(f"<span>others {short_time_text(rest)}</span>")
        below = "".join(f'<div class="quiet">{markup(cause)}</div>' for cause in self._causes)
        return f'<div class="bar">{"".join(segments)}</div>\n<div class="legend">{"".join(entries)}</div>{below}'


class Summary:
    """A summary, which prints as text, and as HTML as the last expression of a notebook's cell.

    ``str()`` and ``repr()`` give the text, fitted to the terminal, of at most 100 columns.
    """

    def __init__(self, parts: Iterable[str | Rows | Shown], document: Callable[[], dict[str, Any]]) -> None:
        """parts: paragraphs, "" for an empty line, and parts that show themselves. document: returns the facts."""
        self._parts, self._document = list(parts), document
        while self._parts and self._parts[-1] == "":
            self._parts.pop()

    @property
    def text(self) -> str:
        """The text, fitted to the terminal."""
        return self.fitted()

    @property
    def html(self) -> str:
        """The HTML that a notebook shows."""
        return self._repr_html_()

    def fitted(self, width: int | None = None) -> str:
        """Return the text in lines of at most ``width`` characters, and 100; None for the terminal's width."""
        whole = min(terminal_width() if width is None else width, WIDTH)
        return "\n".join(line for part in self._parts for line in _lines(part, whole))

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as a document for JSON, as --json of the commands writes it: see docs/json.md."""
        return self._document()

    def __str__(self) -> str:
        return self.fitted()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return summary_html(self._parts)


def summary_html(parts: Sequence[str | Rows | Shown]) -> str:
    """Return the parts of a summary as HTML."""
    body = [_html(part, after) for part, after in zip_longest(parts, parts[1:], fillvalue="")]
    style = f"<style>{STYLE}{SUMMARY_STYLE}</style>"
    return "\n".join([style, '<div class="flopscope-summary">', *filter(None, body), "</div>"])


def _wrapped(line: str, width: int) -> list[str]:
    """Return a paragraph as lines, which keep its indentation; those of a numbered one begin below its text."""
    if len(line) <= width:
        return [line]
    begin = re.match(r"\s*(?:\d+\. )?", line)
    hanging = " " * len(begin[0]) if begin else ""
    return textwrap.wrap(line, width, subsequent_indent=hanging, break_on_hyphens=False)


def _lines(part: str | Rows | Shown, width: int) -> list[str]:
    """Return a part as lines of at most ``width`` characters."""
    if isinstance(part, str):
        return _wrapped(part, width)
    lines = part.lines(width - len(INDENT))
    return [line for one in lines for line in _wrapped(f"{INDENT}{one}".rstrip(), width)]


def _html(part: str | Rows | Shown, after: str | Rows | Shown) -> str:
    if isinstance(part, Rows):
        return f'<div class="part">{texts_table(part.rows, part.align)}</div>'
    if not isinstance(part, str):
        return f'<div class="part">{part._repr_html_()}</div>'
    if not part:
        return ""
    kind = "title" if not isinstance(after, str) else "quiet" if part.startswith(" ") else "text"
    return f'<div class="{kind}">{markup(part.strip())}</div>'

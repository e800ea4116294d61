"""Docstrings in plain prose as reStructuredText.

Docstrings of flopscope are written to be read with ``help()``. Three of their forms mean something else in
reStructuredText, or nothing:

* an indented block after a blank line is code;
* a paragraph whose lines begin with ``name: text`` describes arguments, and becomes a list;
* names that end in an underscore, single backticks, asterisks and bars are text.
"""

from __future__ import annotations

import re
from itertools import groupby, pairwise
from typing import Any

ENTRY = re.compile(r"(\*{0,2}[a-z_]\w*(?:, \*{0,2}[a-z_]\w*)*): (.*)")
LITERAL = re.compile(r"(``.+?``)")


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = converted(lines)


def converted(lines: list[str]) -> list[str]:
    """Return the lines of a plain docstring as lines of reStructuredText."""
    made: list[str] = []
    after_code = False
    for blank, block in groupby(lines, lambda line: not line.strip()):
        paragraph = list(block)
        if blank:
            made.append("")
            continue
        if paragraph[0].startswith("    "):
            language = "text" if any("…" in line for line in paragraph) else "python"
            made += ([] if after_code else [f".. code-block:: {language}", ""]) + [f"    {line}" for line in paragraph]
            after_code = True
            continue
        after_code = False
        made += _entries(paragraph) if _has_entries(paragraph) else [_escaped(line) for line in paragraph]
    return [*made, ""]


def _has_entries(paragraph: list[str]) -> bool:
    """Whether a paragraph describes arguments: its first line does, or one that indented lines follow."""
    following = pairwise(paragraph)
    described = any(ENTRY.match(line) and after.startswith("    ") for line, after in following)
    return ENTRY.match(paragraph[0]) is not None or described


def _entries(paragraph: list[str]) -> list[str]:
    made: list[str] = []
    in_list = False
    for line in paragraph:
        entry = ENTRY.match(line)
        if entry:
            made += [] if in_list else [""]
            names = ", ".join(f"**{_escaped(name)}**" for name in entry[1].split(", "))
            made.append(f"* {names}: {_escaped(entry[2])}")
            in_list = True
        elif in_list:
            made.append(f"  {_escaped(line.strip())}")
        else:
            made.append(_escaped(line))
    return [*made, ""]


def _escaped(line: str) -> str:
    """Outside of literals, quotes of one backtick are literals; other marks of reStructuredText are text."""
    if line.startswith((":", "..")):
        return line  # a field list or a directive
    parts = LITERAL.split(line)
    for place in range(0, len(parts), 2):
        text = re.sub(r"`([^`]+)`", r"``\1``", parts[place])
        pieces = LITERAL.split(text)
        pieces[::2] = [re.sub(r"([*|])|(?<=\w)(_)(?!\w)", r"\\\1\2", piece) for piece in pieces[::2]]
        parts[place] = "".join(pieces)
    return "".join(parts)

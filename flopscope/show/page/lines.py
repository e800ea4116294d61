"""The section Lines: where the program was, by line, as sampled stacks have it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from flopscope.answers.lines import GROUPS, WAITING, Line, place_text, places_of, titles
from flopscope.show.page.encode import Columns, sentence, text_table
from flopscope.support.columns import Rows
from flopscope.support.hints import LINES_ALONE
from flopscope.support.units import percent_text, plural, short_time_text

if TYPE_CHECKING:
    from flopscope.show.page.profile import Profile

MOST_LINES = 40
"""Lines of each group."""
LEAST = 0.001
"""Share of the time of a group from which a line is listed."""


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return a table of the lines of each group of threads, those with the most time first; None without samples."""
    found = source.lines
    waits = any(one.idle[part] for one in found.lines for part in WAITING)
    waited = "device waited" if source.analysis.on_device else "no op ran"
    head = ["line", "within it", "time", "share", "CPU time", *([waited] if waits else [])]
    tables = []
    for name, (title, time) in GROUPS.items():
        lines = sorted((one for one in found.lines if one.group == name), key=time, reverse=True)
        total = sum(map(time, lines))
        shown = [one for one in lines[:MOST_LINES] if time(one) >= LEAST * total]
        more = len(lines) - len(shown)
        if lines:
            note = f"{plural(more, 'other line')} with less time; lines() has all." if more else ""
            rows = [head, *(_cells(one, time(one), total, waits) for one in shown)]
            heading = sentence(title(found.groups[name]))
            tables.append(text_table(heading[:1].upper() + heading[1:], [Rows(rows), note], left=2))
    if not tables:
        return None
    notes = [
        "Python stacks were sampled in the whole recording. A line has the time of what it called; within it: the line "
        "of a library that ran."
    ]
    if waits:
        notes.append(f"{waited}: while the thread was in this line, in the steps that are alike.")
    return {"notes": notes, "tables": tables}


def _cells(one: Line, time: float, total: float, waits: bool) -> list[str]:
    share = percent_text(100 * time / total if total > 0 else math.nan)
    waited = [short_time_text(sum(one.idle[part] for part in WAITING))] if waits else []
    inside = "" if one.inside == one.line else place_text(one.inside)
    return [place_text(one.line), inside, short_time_text(time), share, short_time_text(one.cpu), *waited]


def headline_of(source: Profile) -> str:
    """Return the sentence that a page without ops begins with: the line with most of the main thread's time."""
    main = [one for one in source.lines.lines if one.group == "main"]
    places = places_of(main, lambda one: one.time)
    return f"{percent_text(places[0].share)} of the main thread's time is in {places[0].line}" if places else ""


def lead_of(source: Profile) -> str:
    """Return what the threads did in all, and how to learn more."""
    found = "; ".join(titles(source.lines).values())
    return f"{found[:1].upper()}{found[1:]}. {LINES_ALONE}"

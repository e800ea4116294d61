"""The section Lines: where the program was, by line, as sampled stacks have it."""

from __future__ import annotations

from typing import Any

from flopscope.answers.lines import GROUPS, TOTAL, WAITING, Place, places_of, titles
from flopscope.show.page.encode import Columns, sentence, text_table
from flopscope.show.page.profile import Profile
from flopscope.support.columns import Rows
from flopscope.support.units import percent_text, plural, short_time_text

MOST_LINES = 40
"""Lines of each group."""
MOST_WITHIN = 3
LEAST_WITHIN = 5.0
"""Functions that a line called which are named, and percent of its time from which one is."""
LEAST = 0.001
"""Share of the time of a group from which a line is listed."""


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return a table of the lines of each group of threads, those with the most time first; None without samples."""
    found = source.lines
    waits = any(one.idle[part] for one in found.lines for part in WAITING)
    waited = "device waited" if source.analysis.on_device else "no op ran"
    head = ["line", "within it", "own time", "share", TOTAL, "CPU time", *([waited] if waits else [])]
    tables = []
    for name, (title, time, in_all) in GROUPS.items():
        lines = [one for one in found.lines if one.group == name]
        shown = places_of(lines, time, in_all, len(lines), 100 * LEAST)
        more = len({one.line for one in lines}) - len(shown[:MOST_LINES])
        if lines:
            note = f"{plural(more, 'other line')} with less time; lines() has all." if more else ""
            rows = [head, *(_cells(one, waits) for one in shown[:MOST_LINES])]
            heading = sentence(title(found.groups[name]))
            tables.append(text_table(heading[:1].upper() + heading[1:], [Rows(rows), note], left=2))
    if not tables:
        return None
    notes = [
        "Python stacks were sampled in the whole recording. A line's own time and CPU time are with libraries that it "
        f"called, {TOTAL} with other lines of the program, too; within it: the functions of libraries in which it was."
    ]
    if waits:
        notes.append(f"{waited}: while the thread was in this line, in the steps that are alike.")
    return {"notes": notes, "tables": tables}


def _cells(place: Place, waits: bool) -> list[str]:
    most = [(name, share) for name, share in place.within[:MOST_WITHIN] if share >= LEAST_WITHIN]
    shown = [f"{name.partition(' ')[2] or name} {percent_text(share)}" for name, share in most]
    within = ", ".join([*shown, *["…"][: len(place.within) - len(shown)]]) if shown else ""
    waited = [short_time_text(place.waited)] if waits else []
    times = short_time_text(place.time), percent_text(place.share), *map(short_time_text, (place.total, place.cpu))
    return [place.line, within, *times, *waited]


def headline_of(source: Profile) -> str:
    """Return the sentence that a page without ops begins with: the line with most of the main thread's time."""
    main = [one for one in source.lines.lines if one.group == "main"]
    _, own, total = GROUPS["main"]
    places = places_of(main, own, total)
    return f"{percent_text(places[0].share)} of the main thread's time is in {places[0].line}" if places else ""


def lead_of(source: Profile) -> str:
    """Return what the threads did in all."""
    found = "; ".join(titles(source.lines).values())
    return f"{found[:1].upper()}{found[1:]}."

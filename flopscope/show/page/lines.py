"""The section Lines: where the program was, by line, as sampled stacks have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopscope.answers.lines import GROUPS, WAITING, Line, place_text, places_of, titles
from flopscope.show.page.encode import Columns, cut
from flopscope.support.hints import LINES_ALONE
from flopscope.support.units import percent_text

if TYPE_CHECKING:
    from flopscope.show.page.profile import Profile

MOST_LINES = 40
"""Lines of each group."""
LEAST = 0.001
"""Share of the time of a group from which a line is listed."""


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the lines of each group of threads, those with the most time first; None if no stack was sampled."""
    found = source.lines
    groups = []
    for name, (title, time) in GROUPS.items():
        lines = sorted((one for one in found.lines if one.group == name), key=time, reverse=True)
        if lines:
            total = sum(map(time, lines))
            shown = [_record(one, time(one)) for one in lines[:MOST_LINES] if time(one) >= LEAST * total]
            groups.append(
                {"title": title(found.groups[name]), "lines": shown, "total": total, "more": len(lines) - len(shown)}
            )
    if not groups:
        return None
    waits = any(one.idle[part] for one in found.lines for part in WAITING)
    return {"groups": groups, "waits": waits, "on_device": source.main.analysis.on_device, "steps": source.steps}


def _record(one: Line, time: float) -> dict[str, Any]:
    return {
        "line": cut(place_text(one.line)),
        "inside": "" if one.inside == one.line else cut(place_text(one.inside)),
        "time": time,
        "cpu": one.cpu,
        "waited": sum(one.idle[part] for part in WAITING),
    }


def headline_of(source: Profile) -> str:
    """Return the sentence that a page without ops begins with: the line with most of the main thread's time."""
    main = [one for one in source.lines.lines if one.group == "main"]
    places = places_of(main, lambda one: one.time)
    return f"{percent_text(places[0].share)} of the main thread's time is in {places[0].line}" if places else ""


def lead_of(source: Profile) -> str:
    """Return what the threads did in all, and how to learn more."""
    found = "; ".join(titles(source.lines).values())
    return f"{found[:1].upper()}{found[1:]}. {LINES_ALONE}"

"""The section Lines: where the program was, by line, as sampled stacks have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flopscope.answers.line_sections import GROUPS, WAITING
from flopscope.answers.lines import Line, place_text
from flopscope.report.encode import Columns, cut

if TYPE_CHECKING:
    from flopscope.report.profile import Profile

__all__ = ["section"]

MOST_LINES = 40
"""Of each group."""


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the lines of each group of threads, those with the most time first; None if no stack was sampled."""
    found = source.lines
    groups = []
    for name, (title, time) in GROUPS.items():
        lines = sorted((one for one in found.lines if one.group == name), key=time, reverse=True)
        if lines:
            shown = [_record(one, time(one)) for one in lines[:MOST_LINES]]
            total = sum(map(time, lines))
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

"""Where the program was, by line, as the sections of a summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from flopscope.results.lines import Group, Line, Lines, place_text
from flopscope.support.columns import aligned_lines
from flopscope.support.units import percent_text, short_time_text

__all__ = ["Place", "host_lines", "places_of", "waiting_lines"]

SHOWN = 5
LEAST = 1.0
"""Percent of the time below which a line is left out."""
MOSTLY = 0.5
"""Share of the time of a line from which what it called is named."""
WIDTH = 80
FEWEST = 0.05
"""Share of a step from which the lines that the device waited for are shown."""


class Place(NamedTuple):
    """A line of the program, with its time."""

    line: str
    inside: str
    """What it called and was in for most of the time; the same as the line, or the function of another."""
    time: float
    """µs."""
    share: float
    """Percent of all lines."""

    @property
    def text(self) -> str:
        """The line, and what it called."""
        inside = self.inside if self.inside == "importing" else f"in {self.inside}"
        return self.line if self.inside in ("", self.line) else f"{self.line}, {inside}"


def places_of(lines: Sequence[Line], time: Callable[[Line], float]) -> list[Place]:
    """Return the lines with the most of a time; what is below LEAST percent, or beyond the first few, is left out."""
    sums: dict[str, dict[str, float]] = {}
    for one in lines:
        inside = sums.setdefault(one.line, {})
        inside[one.inside] = inside.get(one.inside, 0.0) + time(one)
    total = sum(sum(inside.values()) for inside in sums.values())
    if total <= 0:
        return []
    found = []
    for line, inside in sums.items():
        whole = sum(inside.values())
        most = max(inside, key=lambda name: inside[name])
        named = _called(most) if inside[most] > MOSTLY * whole else ""
        found.append(Place(place_text(line), named, whole, 100 * whole / total))
    found.sort(key=lambda one: -one.time)
    return [one for one in found[:SHOWN] if one.share >= LEAST]


def _called(name: str) -> str:
    return "importing" if name.startswith("<frozen importlib") else place_text(name)


def host_lines(found: Lines) -> list[str]:
    """Return where the time of the program went: of the main thread, and the CPU time of all others."""
    if not found.groups:
        return []
    titles: Mapping[str, Callable[[Group], str]] = {"main": _of_main, "threads": _of_threads, "processes": _of_children}
    sections = ["Where the time went, by line"]
    for name, title in titles.items():
        group = found.groups.get(name)
        if group is None:
            continue
        is_main = name == "main"
        places = places_of(
            [one for one in found.lines if one.group == name], lambda one: one.time if is_main else one.cpu
        )
        if places and (is_main or group.cpu > FEWEST * found.groups["main"].lasted if "main" in found.groups else True):
            sections += [f"  {title(group)}", *_rows(places, 1.0)]
    return [*sections, ""] if len(sections) > 1 else []


def waiting_lines(found: Lines, parts: Sequence[str], total: float, steps: int, on_device: bool) -> list[str]:
    """Return the lines that the host was in while a device waited for it, or while no op ran on a CPU.

    ``parts`` are those of the accounting; ``total`` µs is the time of the steps that are alike, of all devices.
    """
    places = places_of(found.lines, lambda one: sum(one.idle[part] for part in parts))
    waited = sum(one.idle[part] for one in found.lines for part in parts)
    if not places or waited < FEWEST * total:
        return []
    per = max(steps, 1)
    of = f"{short_time_text(waited / per)} {'a step' if steps else 'in all'}"
    what = "the device waited for it" if on_device else "no op ran"
    return [f"What the host was in while {what} ({of} of samples)", *_rows(places, 1 / per), ""]


def _rows(places: Sequence[Place], scale: float) -> list[str]:
    rows = [(short_time_text(one.time * scale), percent_text(one.share)) for one in places]
    heads = [f"    {line}" for line in aligned_lines([("", ""), *rows])[1:]]
    return [f"{head}  {_shorten(one, WIDTH - len(head) - 2)}" for head, one in zip(heads, places, strict=True)]


def _shorten(place: Place, width: int) -> str:
    """Shorten in what is called first: its path, then all of it, then the line's path."""
    if len(place.text) <= width:
        return place.text
    shorter = place._replace(inside=place.inside.rpartition(" ")[2])
    if len(shorter.text) <= width:
        return shorter.text
    if len(place.line) <= width:
        return place.line
    return f"…{place.line[1 - width :]}"


def _of_main(group: Group) -> str:
    share = percent_text(100 * min(group.cpu / group.lasted, 1.0))
    return f"Main thread: {short_time_text(group.lasted)}, {share} of it on a CPU"


def _of_threads(group: Group) -> str:
    count = f"{group.threads} other thread{'s' if group.threads != 1 else ''}"
    return f"{count}: {short_time_text(group.cpu)} of CPU time"


def _of_children(group: Group) -> str:
    count = f"{group.processes} child process{'es' if group.processes != 1 else ''}"
    return f"{count}: {short_time_text(group.cpu)} of CPU time"

"""Where the program was, by line: sums of sampled stacks, and the sections of a summary about them."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from flopscope import _core
from flopscope.support.columns import Rows, cut_start
from flopscope.support.safe import printable
from flopscope.support.units import percent_text, plural, short_time_text

if TYPE_CHECKING:
    from flopscope._core import Store

NAME = re.compile(r"(.*)\((\d+)\): (.*)", re.DOTALL)
"""A line as the core names it: file, number and function."""
IDLE_PARTS = tuple(dict.fromkeys(_core.idle_parts))
COLUMNS = ("group", "line", "inside", "time", "own_time", "cpu_time", "own_cpu_time", *IDLE_PARTS)


class Line(NamedTuple):
    """A line of the program, and where in what it called it was. Times in µs."""

    group: str
    """ "main": the main thread; "threads": other threads; "processes": child processes."""
    line: str
    inside: str
    """A line of the program that it called; or the innermost one, of a library; the same where it called neither."""
    time: float
    """With what it called in the program."""
    own: float
    """Without; in what it called of libraries, too."""
    cpu: float
    own_cpu: float
    idle: dict[str, float]
    """In which a device waited for the thread in this line itself, by part of the accounting."""


class Group(NamedTuple):
    """What the threads of a group did in all; times in µs."""

    processes: int
    threads: int
    time: float
    cpu: float
    lasted: float


class Lines(NamedTuple):
    """The lines of a profile and the sums of their groups."""

    lines: Sequence[Line]
    groups: dict[str, Group]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each line, as Results.lines() describes them, the longest time first."""
        rows = []
        for one in sorted(self.lines, key=lambda one: (-one.own, -one.time)):
            texts = one.group, place_text(one.line), place_text(one.inside)
            values = (*texts, one.time, one.own, one.cpu, one.own_cpu, *(one.idle[part] for part in IDLE_PARTS))
            rows.append(dict(zip(COLUMNS, values, strict=True)))
        return rows


def lines_of(core: Store, first_step: int = 0, least: int = 0, *between: int) -> Lines:
    """Return the lines that were sampled, ``between`` two times in ns since 1970, or with the idle times of later steps
    that last more than ``least`` ns."""
    columns = core.lines(first_step, least, *between)
    idle = dict(zip(_core.idle_causes, _core.idle_parts, strict=True))
    found = []
    for i, group in enumerate(columns["group"]):
        parts = dict.fromkeys(IDLE_PARTS, 0.0)
        for cause, part in idle.items():
            parts[part] += columns["idle"][cause][i] / 1000
        time, own, cpu, own_cpu = (columns[name][i] / 1000 for name in ("time", "own", "cpu", "own_cpu"))
        found.append(Line(group, columns["line"][i], columns["inside"][i], time, own, cpu, own_cpu, parts))
    groups = {
        name: Group(processes, threads, time / 1000, cpu / 1000, (end - begin) / 1000)
        for name, (processes, threads, time, cpu, begin, end) in columns["groups"].items()
    }
    return Lines(found, groups)


def function_text(name: str) -> str:
    """Return "train.py step" for "train.py(12): step"."""
    match = NAME.fullmatch(name)
    return printable(f"{match[1]} {match[3]}" if match else name)


def place_text(name: str) -> str:
    """Return "train.py:12 step" for "train.py(12): step", and "In[3]:12 step" of a cell of this notebook."""
    match = NAME.fullmatch(name)
    return printable(f"{_cell(match[1]) or match[1]}:{match[2]} {match[3]}" if match else name)


def _cell(path: str) -> str:
    """Return "In[3]" for the file that stands for a cell of this notebook or IPython, "" for another."""
    with suppress(Exception):  # no IPython, no shell, or one that names no cells
        shell: Any = sys.modules["IPython"].get_ipython()
        return str(shell.compile.format_code_name(path)[1])
    return ""


# Sections of a summary ------------------------------------------------------------------------------------------------

SHOWN = 5
LEAST = 1.0
"""Percent of the time below which a line is left out."""
MOSTLY = 0.5
"""Share of the time of a line from which what it called is named."""
LINE_WIDTH, INSIDE_WIDTH, NARROWER = 34, 25, 6  # the last: of each, for one more column
FEWEST = 0.05
"""Share of a step from which the lines that the device waited for are shown."""
WAITING = ("host", "sync")
"""Parts of the accounting in which the device waited for what the host does."""


class Place(NamedTuple):
    """A line of the program in one of its functions or in several, with its time."""

    line: str
    inside: str
    """What it called and was in for most of the time, a line or a function; "" for itself or many."""
    time: float
    """µs of its own."""
    share: float
    """Percent of all lines."""
    total: float
    """µs with what it called in the program."""
    cpu: float
    waited: float
    """µs of CPU time, and in which a device waited for it."""
    within: Sequence[tuple[str, float]]
    """The functions that it called, and their shares of its time in percent, the largest first."""


def places_of(
    lines: Sequence[Line],
    time: Callable[[Line], float],
    total: Callable[[Line], float],
    most: int | None = None,
    least: float = LEAST,
) -> list[Place]:
    """Return the lines with the most of a time, each once; what is below ``least`` percent, or beyond ``most``
    (None: the first few), is left out. total: the same time with what a line called in the program."""
    grouped: defaultdict[str, list[Line]] = defaultdict(list)
    for one in lines:
        grouped[one.line.rpartition(": ")[0] or one.line].append(one)
    everything = sum(map(time, lines))
    found = []
    for same in grouped.values() if everything > 0 else ():
        whole = sum(map(time, same))
        names, insides, functions = (defaultdict[str, float](float) for _ in range(3))
        for one in same:
            names[one.line] += time(one)
            insides[one.inside if one.inside != one.line else ""] += time(one)
            functions[function_text(one.inside) if one.inside != one.line else ""] += time(one)
        largest = [max(times.items(), key=lambda one: one[1]) for times in (insides, functions)]
        named = next((name for name, part in largest if part > MOSTLY * whole), "")
        first, *others = (place_text(name) for name in _longest(names))
        line = ", ".join([first, *(other.partition(" ")[2] for other in others)])
        within = [(_called(name), 100 * functions[name] / whole) for name in _longest(functions) if name and whole > 0]
        cpu, waited = sum(one.own_cpu for one in same), sum(map(waited_for, same))
        share, with_calls = 100 * whole / everything, sum(map(total, same))
        found.append(Place(line, _called(named), whole, share, with_calls, cpu, waited, within))
    found.sort(key=lambda one: -one.time)
    return [one for one in found[: SHOWN if most is None else most] if one.share >= least]


def _longest(times: Mapping[str, float]) -> list[str]:
    return sorted(times, key=lambda name: -times[name])


def _called(name: str) -> str:
    return "importing" if name.startswith("<frozen importlib") else place_text(name)


def waited_for(line: Line) -> float:
    """Return the time in which a device waited for what the host did in a line."""
    return sum(line.idle[part] for part in WAITING)


def host_lines(found: Lines) -> list[str | Rows]:
    """Return where the time of the program went: of the main thread, and the CPU time of all others."""
    sections: list[str | Rows] = []
    for name, title in titles(found).items():
        _, own, total = GROUPS[name]
        places = places_of([one for one in found.lines if one.group == name], own, total)
        if places:
            sections += [f"Where the time went, by line: {title}", _rows(places, 1.0, TOTAL), ""]
    return sections


def titles(found: Lines) -> dict[str, str]:
    """Return what each group did in all: the main thread, and others that computed for a while."""
    whole = found.groups["main"].lasted if "main" in found.groups else 0.0
    shown = {name for name, group in found.groups.items() if name == "main" or group.cpu >= FEWEST * whole}
    return {name: title(found.groups[name]) for name, (title, *_) in GROUPS.items() if name in shown}


def waiting_lines(found: Lines, total: float, steps: int, on_device: bool) -> list[str | Rows]:
    """Return the lines that the host was in while a device waited for it, or while no op ran on a CPU.

    ``total`` µs is the time of the steps that are alike, of all devices.
    """
    whole = sum(map(waited_for, found.lines))
    places = places_of(found.lines, waited_for, waited_for)
    if not places or whole < FEWEST * total:
        return []
    time = f"{short_time_text(whole / max(steps, 1))}{' a step' if steps else ''}"
    what = "Where the program was while no op ran"
    if on_device:
        what = "What the host was in while the device waited for it"
    return [f"{what}, by line: {time}, sampled", _rows(places, 1 / max(steps, 1)), ""]


TOTAL = "with calls"  # the time of a line with what it called in the program; its own is beside it


def _rows(places: Sequence[Place], scale: float, total: str = "") -> Rows:
    """Return the rows, which fit 80 columns. total: the name of that column, if it is wanted."""
    rows = [("own" if total else "time", "share", *([total] if total else []), "line", "within it")]
    for one in places:
        with_calls, narrower = ([short_time_text(one.total * scale)], NARROWER) if total else ([], 0)
        texts = _cut(one.line, LINE_WIDTH - narrower), _cut_inside(one.inside, INSIDE_WIDTH - narrower)
        rows.append((short_time_text(one.time * scale), percent_text(one.share), *with_calls, *texts))
    return Rows(rows, ">>><<" if total else ">><<")


def _cut(place: str, width: int) -> str:
    """Shorten a place: the folders of its file first."""
    path, _, rest = place.rpartition("/")
    if len(place) <= width or (path and len(rest) < width):
        return cut_start(place, width)
    return f"{rest[: width - 1]}…"


def _cut_inside(place: str, width: int) -> str:
    """Shorten a place of a library; its function is the most informative part."""
    name = place.rpartition(" ")[2]
    short = _cut(place, width)
    return short if short.endswith(name) else _cut(name, width)


def _of_main(group: Group) -> str:
    share = percent_text(100 * min(group.cpu / group.lasted, 1.0))
    return f"the main thread, {short_time_text(group.lasted)}, {share} of it on a CPU"


def _of_others(count: str, group: Group) -> str:
    return f"{count}, {short_time_text(group.cpu)} of CPU time"


Time = Callable[[Line], float]
_CPU: tuple[Time, Time] = (lambda line: line.own_cpu, lambda line: line.cpu)
GROUPS: Mapping[str, tuple[Callable[[Group], str], Time, Time]] = {
    "main": (_of_main, lambda line: line.own, lambda line: line.time),
    "threads": (lambda one: _of_others(plural(one.threads, "other thread"), one), *_CPU),
    "processes": (lambda one: _of_others(plural(one.processes, "child process", "child processes"), one), *_CPU),
}
"""Title of each group, the time by which its lines are listed, and the same with what they called."""

"""Where the program was, by line: sums of sampled stacks."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from flopscope import _core
from flopscope.support.safe import printable

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store

NAME = re.compile(r"(.*)\((\d+)\): (.*)", re.DOTALL)
"""A line as the core names it: file, number and function."""
IDLE_PARTS = tuple(dict.fromkeys(_core.idle_parts))


class Line(NamedTuple):
    """A line of the program, and where in what it called it was."""

    group: str
    """ "main": the main thread; "threads": other threads; "processes": child processes."""
    line: str
    inside: str
    """The same where it called no other Python function."""
    time: float
    """µs."""
    cpu: float
    """µs of CPU time."""
    idle: dict[str, float]
    """µs in which a device waited for the thread, by part of the accounting."""


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
        """Return a dict for each line, of values that JSON can hold, the longest time first."""
        columns = columns_of(self)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def lines_of(core: Store, first_step: int = 0) -> Lines:
    """Return the lines that were sampled. Idle times are those of the steps from ``first_step`` on."""
    columns = core.lines(first_step)
    idle = dict(zip(_core.idle_causes, _core.idle_parts, strict=True))
    found = []
    for i, group in enumerate(columns["group"]):
        parts = dict.fromkeys(IDLE_PARTS, 0.0)
        for cause, part in idle.items():
            parts[part] += columns["idle"][cause][i] / 1000
        time, cpu = columns["time"][i] / 1000, columns["cpu"][i] / 1000
        found.append(Line(group, columns["line"][i], columns["inside"][i], time, cpu, parts))
    groups = {
        name: Group(processes, threads, time / 1000, cpu / 1000, (end - begin) / 1000)
        for name, (processes, threads, time, cpu, begin, end) in columns["groups"].items()
    }
    return Lines(found, groups)


def lines_frame(found: Lines) -> pandas.DataFrame:
    """Return the frame that Results.lines() describes."""
    import pandas

    return pandas.DataFrame(columns_of(found))


def columns_of(found: Lines) -> dict[str, list[Any]]:
    """Return the columns that Results.lines() describes."""
    rows = sorted(found.lines, key=lambda one: -one.time)
    fixed: dict[str, list[Any]] = {
        "group": [one.group for one in rows],
        "line": [place_text(one.line) for one in rows],
        "inside": [place_text(one.inside) for one in rows],
        "time": [one.time for one in rows],
        "cpu_time": [one.cpu for one in rows],
    }
    return {**fixed, **{part: [one.idle[part] for one in rows] for part in IDLE_PARTS}}


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
    ipython: Any = sys.modules.get("IPython")
    with suppress(Exception):  # no shell, or one that names no cells
        found = ipython and ipython.get_ipython().compile.format_code_name(path)
        return str(found[1]) if found else ""
    return ""

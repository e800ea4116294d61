"""The columns of ``flopscope perf``, and tables that fit the terminal."""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from flopscope.measuring.perf.runs import GROUPINGS, Row
from flopscope.support.columns import GAP, aligned_line, column_widths
from flopscope.support.cutting import cut_end, cut_start
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import MISSING, long_time_text, si_text, significant_text

UNKNOWN_WIDTH = 100  # of what is not a terminal
MIN_TEST, MIN_RUN = 20, 9  # characters of a shortened test or run


class Column(NamedTuple):
    """A column of the tables."""

    title: str
    value: Callable[[Row], float | str]
    text: Callable[[Row], str]
    falls: bool = False
    """Whether sorting puts the largest value first."""


def _of(name: str, title: str, write: Callable[[float], str], falls: bool = False) -> Column:
    return Column(title, lambda row: row.entry.numbers[name], lambda row: write(row.entry.numbers[name]), falls)


def _count(value: float) -> str:
    return MISSING if math.isnan(value) else f"{value:.0f}"


def _rate(value: float) -> str:
    return MISSING if math.isnan(value) else si_text(value, "").strip()


# In the order in which a narrow terminal keeps them, after the test and the run.
COLUMNS: dict[str, Column] = {
    "verdict": Column("verdict", lambda row: row.verdict, lambda row: row.verdict or MISSING),
    "ratio": Column("ratio", lambda row: row.ratio, lambda row: significant_text(row.ratio), falls=True),
    "median": _of("median", "median", long_time_text),
    "min": _of("min", "min", long_time_text),
    "iqr": _of("iqr", "IQR", long_time_text),
    "ops": _of("ops", "OPS", _rate, falls=True),
    "rounds": _of("n", "rounds", _count, falls=True),
    "mean": _of("mean", "mean", long_time_text),
    "max": _of("max", "max", long_time_text),
    "stddev": _of("std", "stddev", long_time_text),
    "outliers": _of("outliers", "outliers", _count, falls=True),
    "iterations": _of("batch", "iterations", _count, falls=True),
    "gbytes_per_s": _of("gbytes_per_s", "GB/s", significant_text, falls=True),
    "tflops_per_s": _of("tflops_per_s", "TFLOP/s", significant_text, falls=True),
    "pct_roofline": _of("pct_roofline", "% roofline", significant_text, falls=True),
    "clock": _of("clock_mhz", "MHz", _count, falls=True),
    "device": Column("device", lambda row: row.entry.conditions[0], lambda row: row.entry.conditions[0] or MISSING),
}


def columns_of(text: str) -> list[str]:
    """Return the columns in a list such as "min,median". Raise ValueError for an unknown one."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"--columns {text!r} names no column; the columns are {', '.join(COLUMNS)}")
    for name in names:
        _require("column", name, COLUMNS)
    return list(dict.fromkeys(names))


def grouping_of(text: str) -> str:
    """Return what to group by. Raise ValueError if it is unknown."""
    if not text.startswith("param:"):
        _require("grouping", text, [*GROUPINGS, "param:NAME"])
    elif text == "param:":
        raise ValueError("--group param: lacks the name of a parameter, as in param:size")
    return text


def _require(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known or name == "param:NAME":
        names = list(known)
        raise ValueError(f"there is no {what} {name!r}{did_you_mean(name, names)}; the {what}s are {', '.join(names)}")


def sorted_by(tests: Iterable[Sequence[Row]], name: str | None) -> list[Sequence[Row]]:
    """Sort the rows of tests by a column of their last run, or by "name"; None: keep the order.

    Times rise, and ratios, counts and rates fall. Unknown numbers come last. Raise ValueError for an unknown column.
    """
    ordered = list(tests)
    if name is None:
        return ordered
    name = name.lower()
    if name == "name":
        return sorted(ordered, key=lambda rows: rows[0].entry.label)
    _require("column", name, ["name", *COLUMNS])
    column = COLUMNS[name]

    def place(rows: Sequence[Row]) -> tuple[bool, float | str]:
        value = column.value(rows[-1])
        if isinstance(value, str):
            return False, value
        return math.isnan(value), 0.0 if math.isnan(value) else -value if column.falls else value

    return sorted(ordered, key=place)


# Text -----------------------------------------------------------------------------------------------------------------


def terminal_width() -> int:
    """Return the width of the terminal; UNKNOWN_WIDTH without one."""
    return max(shutil.get_terminal_size((UNKNOWN_WIDTH, 24)).columns, 20)


def wrapped(text: str, indent: str = "  ") -> str:
    """Break a text into lines that fit the terminal; further lines are indented."""
    return "\n".join(textwrap.wrap(text, terminal_width(), subsequent_indent=indent)) or text


def table(groups: Mapping[str, Sequence[Sequence[Row]]], columns: Sequence[str], with_run: bool) -> list[str]:
    """Return the lines of a table of tests, of at most the width of the terminal.

    with_run: add a column of the run; the name of a test is on the first of its rows only. The run is shortened first,
    then the test, then columns are left out, which a last line says.
    """
    every = [row for tests in groups.values() for rows in tests for row in rows]
    kept, fixed = list(columns), ["test", "run"] if with_run else ["test"]
    while True:
        cells = [[COLUMNS[name].title for name in kept], *([COLUMNS[name].text(row) for name in kept] for row in every)]
        widths = column_widths(cells) if kept else []
        names = [max(map(len, ["test", *(row.entry.label for row in every)]))]
        names += [max(map(len, ["run", *(row.run for row in every)]))] * with_run
        room = terminal_width() - sum(widths) - len(GAP) * (len(widths) + len(fixed) - 1)
        least = [min(width, at_least) for width, at_least in zip(names, (MIN_TEST, MIN_RUN), strict=False)]
        if sum(least) <= room or not kept:
            break
        kept.remove(max(kept, key=list(COLUMNS).index))
    for at in reversed(range(len(names))):
        names[at] = max(least[at], names[at] - max(0, sum(names) - room))
    head = aligned_line([*fixed, *cells[0]], [*names, *widths], "<" * len(fixed) + ">").rstrip()
    lines: list[str] = []
    for title, tests in groups.items():
        lines += ([""] if lines and title else []) + ([cut_start(title, terminal_width())] if title else []) + [head]
        for rows in tests:
            for number, row in enumerate(rows):
                start = ["" if number else cut_start(row.entry.label, names[0])]
                start += [cut_end(row.run, names[-1])] if with_run else []
                texts = [COLUMNS[name].text(row) for name in kept]
                lines.append(aligned_line([*start, *texts], [*names, *widths], "<" * len(fixed) + ">").rstrip())
    left_out = [name for name in columns if name not in kept]
    if left_out:
        lines.append(wrapped(f"the terminal is too narrow for {', '.join(left_out)}; choose with --columns"))
    return lines

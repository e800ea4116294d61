"""The commands ``flopscope table`` and ``flopscope compare``."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flopscope.cli.parser import add_captures, add_files, add_limit, add_peaks, add_traces, parsed, whole
from flopscope.read.trace import Trace, load_traces
from flopscope.results.columns import KINDS
from flopscope.results.comparison import Comparison
from flopscope.results.groups import GROUPINGS, ModuleTable
from flopscope.results.results import device_of, store_of
from flopscope.results.table import SORT_KEYS
from flopscope.show.columns import find_columns, headers_of
from flopscope.show.fitted import LEAST_WIDTH, print_coloured, render
from flopscope.support.files import write_json
from flopscope.support.safe import printable
from flopscope.support.units import percent_text, short_time_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "each has a table")
    headers = ", ".join(headers_of(SORT_KEYS)).replace("%", "%%")
    text = f"header in any case: {headers}; or a column of --json (default: Headroom, what could be gained; without "
    parser.add_argument("--sort-by", metavar="HEADER", help=f"{text}known peaks, the time)")
    add_limit(parser)
    parser.add_argument("--kind", choices=KINDS, help="rows to print and write (default: ops, with ranges apart)")
    parser.add_argument("--kernels", action="store_true", help="print the kernels of each op below it")
    parser.add_argument("--filter", metavar="REGEX", help="only rows whose name contains a match, printed and written")
    parser.add_argument("--columns", nargs="+", metavar="COLUMN", help="columns to print, by name or header")
    width = whole(LEAST_WIDTH, f"a width of at least {LEAST_WIDTH}")
    parser.add_argument("--width", type=width, metavar="N", help="width of the table (default: the terminal's)")
    parser.add_argument("--wide", action="store_true", help="print all columns, and names in full, at any width")
    text = f"one or several, separated by commas, of {', '.join(GROUPINGS)}"
    parser.add_argument("--group-by", metavar="WORDS", default="name", help=text)
    add_files(parser, csv="all rows", json="the device and all rows")
    parser.set_defaults(run=_table)


def _table(options: argparse.Namespace) -> None:
    _matcher(options.filter)  # what is wrong is said before a trace is read
    columns = [name for text in options.columns or () for name in text.split(",") if name.strip()] or None
    if columns is not None:
        find_columns(columns)
    if options.kind is None and "stream" in options.group_by:  # ops have none
        options.kind = "kernel"
    traces = load_traces(*options.traces, captures=options.captures)
    if len(traces) > 1 and (options.csv or options.json):
        given = "csv" if options.csv else "json"
        raise ValueError(f"--{given} writes the table of one trace, not of {len(traces)}; see flopscope ranks")
    for place, trace in enumerate(traces):
        if len(traces) > 1:
            print("\n" * (place > 0) + printable(trace.source))
        _print_table(trace, columns, options)


def _print_table(trace: Trace, columns: Sequence[str] | None, options: argparse.Namespace) -> None:
    words = [word.strip() for word in options.group_by.split(",")]
    table = trace.key_averages(group_by=words, peaks=options.peaks, kernels=options.kernels)
    given = [name for name, value in (("--columns", options.columns), ("--kernels", options.kernels)) if value]
    if isinstance(table, ModuleTable) and given:
        raise ValueError(f"the tree of modules has no {' and '.join(given)}; --group-by name,module prints a table")
    by = options.sort_by or (table.own_time.removeprefix("self_") if isinstance(table, ModuleTable) else None)
    every, matches = table if by is None else table.sorted(by), _matcher(options.filter)
    every = every if options.kind is None else every.of_kind(options.kind)
    if options.filter is not None:
        every = every.select(i for i, key in enumerate(every.columns["key"]) if matches(key))
    if len(every):
        shown: dict[str, Any] = {"kernels": options.kernels, "columns": columns, "row_limit": options.limit}
        shown |= {"kind": options.kind, "width": 0 if options.wide else options.width}
        print_coloured(render(every, **shown, more="--limit -1"))
    elif options.kind is None and options.filter is None and store_of(trace, "table").lines()["groups"]:
        source = printable(trace.source)
        print(f"No ops were recorded. For the lines that the program was in: flopscope summary {source}")
    else:
        print("No rows.")
    written = every if every.is_sorted else every.sorted(every.own_time)
    if options.csv:
        written.to_csv(options.csv)
    if options.json:
        write_json(options.json, written.to_dict(device=device_of(trace), files=[trace.source]))


def _matcher(pattern: str | None) -> Callable[[str], object]:
    """Return a function that returns whether a name contains a match. Raise ValueError for an invalid pattern."""
    if pattern is None:
        return bool
    try:
        return re.compile(pattern).search
    except re.error as problem:
        raise ValueError(f"--filter is not a regular expression: {problem}") from None


# compare --------------------------------------------------------------------------------------------------------------


def add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a trace, or a folder or quoted pattern with one")
    parser.add_argument("b", metavar="B", help="the trace to compare it with, likewise")
    text = "what rows are matched by; the table groups them by name and shows the shapes that differ, or all with "
    parser.add_argument("--by", choices=("name", "shape"), help=f"{text}--by shape")
    text = "what is compared (default: %(default)s, with its kernels)"
    parser.add_argument("--kind", choices=("op", "kernel"), default="op", help=text)
    add_captures(parser)
    add_peaks(parser)
    add_limit(parser)
    percent = parsed(
        lambda text: float(text.removesuffix("%")), lambda value: 0 <= value < math.inf, "a percentage such as 5%"
    )
    text = "exit with status 1 if B takes more time (of a step) than A by more than this: 5%%"
    parser.add_argument("--fail-over", type=percent, metavar="PERCENT", help=text)
    add_files(parser, output="an HTML page of both, which opens from disk", csv="all rows")
    add_files(parser, json="the devices, the verdict, what changed and all rows")
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    from flopscope.answers.comparing import compare

    a, b = (_one_trace(source, options.captures) for source in (options.a, options.b))
    names = (Path(options.a).name, Path(options.b).name)
    if names[0] == names[1] or not all(names):
        names = (options.a, options.b)
    comparison = compare(a, b, by=options.by, kind=options.kind, names=names, peaks=options.peaks)
    print(comparison.table(options.limit), end="")
    if options.output:
        comparison.write_report(options.output)
    if options.csv:
        comparison.to_csv(options.csv)
    if options.json:
        devices = {"a": device_of(a), "b": device_of(b)}
        write_json(options.json, comparison.to_dict(device=devices, files=[a.source, b.source]))
    if options.fail_over is not None:
        _fail_over(comparison, options.fail_over)


def _fail_over(comparison: Comparison, most: float) -> None:
    """Raise RuntimeError if b takes too long, and ValueError if that is unknown."""
    slower = comparison.slowdown_pct
    if math.isnan(slower):
        why = "they differ in length and have no steps" if comparison.per == "call" else "one has no time"
        raise ValueError(f"--fail-over: the times of the runs cannot be compared, because {why}")
    if slower > most:
        what = "a step of B" if comparison.per == "step" else "B"
        a, b = (short_time_text(time) for time in comparison.unrecorded)
        estimated = " without recording" if comparison.unrecorded != comparison.time else ""
        raise RuntimeError(
            f"{what} takes {b}{estimated}, {percent_text(slower)} more than A ({a}); --fail-over {most:g}%"
        )


def _one_trace(source: str, captures: list[str] | None) -> Trace:
    """Return the trace of a file, or of a folder or a pattern with one file."""
    first, *others = load_traces(source, captures=captures)
    if others:
        several = f"{source} has {1 + len(others)} traces, but compare takes one"
        raise ValueError(f"{several}: name a file, such as {first.source}")
    return first

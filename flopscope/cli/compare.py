"""The command ``flopscope compare``."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from flopscope.answers.comparing import compare
from flopscope.cli.parser import add_captures, add_files, add_limit, add_peaks, parsed
from flopscope.read.trace import Trace, load_traces
from flopscope.results.comparison import Comparison
from flopscope.results.results import device_of
from flopscope.support.files import write_json
from flopscope.support.units import percent_text, short_time_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a trace, or a folder or quoted pattern with one")
    parser.add_argument("b", metavar="B", help="the trace to compare it with, likewise")
    parser.add_argument(
        "--by",
        choices=("name", "shape"),
        help="what rows are matched by; the table groups them by name and shows the shapes that differ, "
        "or all with --by shape",
    )
    text = "what is compared (default: %(default)s, with its kernels)"
    parser.add_argument("--kind", choices=("op", "kernel"), default="op", help=text)
    add_captures(parser)
    add_peaks(parser)
    add_limit(parser)
    text = "also print FLOPs, bytes and roofline, and long names in full"
    parser.add_argument("--wide", action="store_true", help=text)
    percent = parsed(
        lambda text: float(text.removesuffix("%")), lambda value: 0 <= value < math.inf, "a percentage such as 5%"
    )
    text = "exit with status 1 if B takes more time (of a step) than A by more than this: 5%%"
    parser.add_argument("--fail-over", type=percent, metavar="PERCENT", help=text)
    add_files(parser, output="an HTML page of both, which opens from disk", csv="all rows")
    add_files(parser, json="the devices, the verdict, what changed and all rows")
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    a, b = (_one_trace(source, options.captures) for source in (options.a, options.b))
    names = (Path(options.a).name, Path(options.b).name)
    if names[0] == names[1] or not all(names):
        names = (options.a, options.b)
    comparison = compare(a, b, by=options.by, kind=options.kind, names=names, peaks=options.peaks)
    print(comparison.table(options.limit, wide=options.wide), end="")
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
    traces = load_traces(source, captures=captures)
    if len(traces) > 1:
        raise ValueError(
            f"{source} has {len(traces)} traces, but compare takes one: name a file, such as {traces[0].source}"
        )
    return traces[0]

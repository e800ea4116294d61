"""The command ``flopscope summary``."""

from __future__ import annotations

import argparse

from flopscope.cli.parser import add_captures, add_peaks, whole
from flopscope.read.find import load_traces
from flopscope.show.budget import LEAST
from flopscope.show.documents import SUMMARIES
from flopscope.support.files import write_json
from flopscope.support.safe import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``summary`` to its parser."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="trace, or folder or quoted pattern of traces")
    add_captures(parser)
    add_peaks(parser)
    text = "fit the text of all traces in this many words, the most valuable first; it says what is left out"
    words = whole(LEAST, f"a number of words of at least {LEAST}")
    parser.add_argument("--budget", type=words, metavar="WORDS", help=text)
    parser.add_argument("--json", metavar="FILE", help="write the accounting and the advice")
    parser.set_defaults(run=_summary)


def _summary(options: argparse.Namespace) -> None:
    traces = load_traces(*options.traces, captures=options.captures)
    budget = _budget_of_each(options.budget, [printable(trace.source) for trace in traces])
    summaries = []
    for number, trace in enumerate(traces):
        summaries.append(trace.summary(peaks=options.peaks, budget=budget))
        if len(traces) > 1:
            print(f"{chr(10) * (number > 0)}{printable(trace.source)}\n")
        print(summaries[-1])
    if options.json:
        content = [summary.to_dict() for summary in summaries]
        write_json(options.json, content[0] if len(content) == 1 else SUMMARIES.of({"traces": content}))


def _budget_of_each(budget: int | None, names: list[str]) -> int | None:
    """Return the words of each trace; of several, their names are above them. Raise ValueError if they are too few."""
    if budget is None or len(names) == 1:
        return budget
    each = (budget - sum(len(name.split()) for name in names)) // len(names)
    if each < LEAST:
        raise ValueError(f"--budget {budget}: {len(names)} traces need at least {LEAST} words each")
    return each

"""The command ``flopscope summary``."""

from __future__ import annotations

import argparse

from flopscope.cli.parser import add_captures, add_peaks
from flopscope.results.find import load_traces
from flopscope.support.files import write_json
from flopscope.support.safe import printable
from flopscope.views.documents import SUMMARIES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``summary`` to its parser."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="trace, or folder or quoted pattern of traces")
    add_captures(parser)
    add_peaks(parser)
    parser.add_argument("--json", metavar="FILE", help="write the accounting and the advice")
    parser.set_defaults(run=_summary)


def _summary(options: argparse.Namespace) -> None:
    traces = load_traces(*options.traces, captures=options.captures)
    summaries = []
    for number, trace in enumerate(traces):
        summaries.append(trace.summary(peaks=options.peaks))
        if len(traces) > 1:
            print(f"{chr(10) * (number > 0)}{printable(trace.source)}\n")
        print(summaries[-1])
    if options.json:
        content = [summary.to_dict() for summary in summaries]
        write_json(options.json, content[0] if len(content) == 1 else SUMMARIES.of({"traces": content}))

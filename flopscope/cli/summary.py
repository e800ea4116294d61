"""The command ``flopscope summary``."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from flopscope.cli.tables import add_captures, add_peaks, device_of
from flopscope.support.files import write_json
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope.sources.load import Trace

__all__ = ["add_summary"]


def add_summary(commands: Any) -> None:
    """Add ``summary`` to the commands of the parser."""
    parser = commands.add_parser("summary", help="say where the time of recorded traces went, and what to change first")
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="trace, or folder or quoted pattern of traces")
    add_captures(parser)
    add_peaks(parser)
    parser.add_argument("--json", metavar="FILE", help="write the accounting and the advice")
    parser.set_defaults(run=_summary)


def _summary(options: argparse.Namespace) -> None:
    from flopscope.sources.find import load_traces

    traces = load_traces(*options.traces, captures=options.captures)
    for number, trace in enumerate(traces):
        if len(traces) > 1:
            print(f"{chr(10) * (number > 0)}{printable(trace.source)}\n")
        trace.summary(peaks=options.peaks)
    if options.json:
        content = [_content(trace, options.peaks) for trace in traces]
        write_json(options.json, content[0] if len(content) == 1 else {"traces": content})


def _content(trace: Trace, peaks: str) -> dict[str, Any]:
    """Return accounting and advice of a trace as JSON: missing numbers are null."""
    frame = trace.accounting(peaks=peaks).astype(object)
    rows = [{name: _known(value) for name, value in row.items()} for row in frame.to_dict("records")]
    advice = trace.advice(peaks=peaks)
    return {
        "file": trace.source,
        "device": device_of(trace),
        "accounting": rows,
        "advice": advice.to_dicts(),
        "notes": advice.notes,
    }


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value

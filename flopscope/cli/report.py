"""The commands ``flopscope summary``, ``report`` and ``ranks``: where the time of traces went, as text and as a page,
and which rank is slow."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flopscope.cli.parser import add_files, add_traces
from flopscope.read.trace import Trace, load_traces
from flopscope.results.process import require_different_processes
from flopscope.support.files import write_json
from flopscope.support.safe import printable
from flopscope.support.units import bytes_text

if TYPE_CHECKING:
    from flopscope.show.page.page import Page

_KINDS = r"(\.pt)?(\.trace)?(\.json)?|\.sqlite|\.db|\.nsys-rep|\.xplane\.pb|\.pftrace"
_SUFFIX = re.compile(rf"({_KINDS})(\.gz|\.zst)?$", re.IGNORECASE)
_NO_NAME = re.compile(r"[*?\[\]]+")


def add_summary(parser: argparse.ArgumentParser) -> None:
    add_traces(parser)
    add_files(parser, json="the accounting and the advice")
    parser.set_defaults(run=_summary)


def _summary(options: argparse.Namespace) -> None:
    from flopscope.show.advice import SUMMARIES

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


# report ---------------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_traces(parser, "ranks of a run")
    text = "file to write (default: NAME.report.html in the current folder, NAME being that of the first TRACE)"
    parser.add_argument("-o", "--output", metavar="FILE", help=text)
    parser.add_argument("--title", help="title of the page (default: the name of the trace)")
    parser.set_defaults(run=_report)


def default_path(source: str) -> str:
    """Return the file that the page of a trace, a folder or a pattern is written to: NAME.report.html.

    NAME is that of the file without .json, .pt.trace, .sqlite, .db, .nsys-rep, .xplane.pb, .pftrace, .gz and .zst,
    of the folder, or of the pattern without its wildcards; "traces" if nothing is left.
    """
    name = os.path.basename(os.path.abspath(source))
    if not os.path.lexists(source):
        name = _NO_NAME.sub("", name)
    if not os.path.isdir(source):
        name = _SUFFIX.sub("", name)
    return f"{name.strip(' ._-') or 'traces'}.report.html"


def _report(options: argparse.Namespace) -> None:
    from flopscope.show.page.page import write

    path = options.output or default_path(options.traces[0])
    traces = load_traces(*options.traces, captures=options.captures)
    require_different_processes(traces)
    write(path, _page(traces, options))
    print(f"Wrote {printable(path)} ({bytes_text(Path(path).stat().st_size)}): open it in a browser.")


def _page(traces: Sequence[Trace], options: argparse.Namespace) -> Page:
    from flopscope.show.page.page import profile_page

    if len(traces) == 1:
        return profile_page(traces[0], peaks=options.peaks, title=options.title)
    ranks = {trace.rank: trace for trace in traces}
    if None in ranks:
        a, b = (trace.source for trace in traces[:2])
        raise ValueError(
            f"these are traces of {len(traces)} programs, and not all of them name a rank of one run. "
            f"One page for each: flopscope report {a}. What changed between two: flopscope compare {a} {b} -o page.html"
        )
    from flopscope.ranks.digest import digests_of
    from flopscope.ranks.page import report_of_ranks
    from flopscope.ranks.ranks import Ranks

    known = {rank: trace for rank, trace in ranks.items() if rank is not None}
    compared = Ranks(digests_of(known, options.peaks))
    return report_of_ranks(compared, known, peaks=options.peaks, title=options.title)


# ranks ----------------------------------------------------------------------------------------------------------------


def add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare the traces of the ranks of a distributed program: which rank, host or link is slow, and why. "
        "Processes of this machine read the traces."
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="traces, folders or quoted patterns")
    parser.add_argument("--workers", type=int, metavar="N", help="number of processes (default: by cores and memory)")
    add_files(parser, json="the findings, the ranks and the files", output="the report, an HTML page")
    parser.set_defaults(run=_ranks)


def _ranks(options: argparse.Namespace) -> None:
    from flopscope.ranks.load import load_ranks

    ranks = load_ranks(options.paths, workers=options.workers)
    print(ranks.summary())
    if options.json:
        write_json(options.json, ranks.to_dict())
    if options.output:
        ranks.write_report(options.output)

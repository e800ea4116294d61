"""The command ``flopscope ranks``."""

from __future__ import annotations

import argparse

from flopscope.cli.parser import add_files
from flopscope.support.files import write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``ranks`` to its parser."""
    parser.description = (
        "Compare the traces of the ranks of a distributed program: which rank, host or link is slow, and why. Each "
        "trace is read by a process of its own, or by a worker of a Dask cluster."
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="traces, folders, quoted patterns, or URLs such as s3://bucket/*.json.gz",
    )
    parser.add_argument("--scheduler", metavar="ADDRESS", help="read on the workers of this Dask scheduler")
    parser.add_argument("--workers", type=int, metavar="N", help="number of processes (default: by cores and memory)")
    add_files(parser, json="the findings, the ranks and the files")
    parser.add_argument("--parquet", metavar="FOLDER", help="write all tables")
    add_files(parser, output="the report, an HTML page")
    parser.set_defaults(run=_ranks)


def _ranks(options: argparse.Namespace) -> None:
    from flopscope.ranks.load import load_ranks

    ranks = load_ranks(options.paths, options.scheduler, workers=options.workers)
    print(ranks.summary())
    if options.json:
        write_json(options.json, ranks.to_dict())
    if options.parquet:
        ranks.to_parquet(options.parquet)
    if options.output:
        ranks.write_report(options.output)

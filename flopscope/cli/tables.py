"""The commands that read traces: ``flopscope table`` and ``flopscope compare``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopscope.support.files import write_json
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope.results.table import EventTable
    from flopscope.sources.load import Trace

__all__ = ["add_compare", "add_peaks", "add_table", "device_of"]

LIMIT = 30
WORDS = "name, shape, dtype, stack, module, category, step, stream, rank, line"


def limit(text: str) -> int:
    """Parse a number of rows, -1 for all."""
    try:
        number = int(text)
    except ValueError:
        number = -2
    if number < -1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rows; -1 means all")
    return number


def add_peaks(parser: argparse.ArgumentParser) -> None:
    """Add ``--peaks`` to a command."""
    text = "base of shares; measured: on this machine if it has the device, else datasheet (default: %(default)s)"
    parser.add_argument("--peaks", choices=("datasheet", "measured", "none"), default="datasheet", help=text)


# table ----------------------------------------------------------------------------------------------------------------


def add_table(commands: Any) -> None:
    """Add ``table`` to the commands of the parser."""
    parser = commands.add_parser("table", allow_abbrev=False, help="show the ops and kernels of recorded traces")
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="trace of torch.profiler; several: ranks of one run")
    parser.add_argument("--sort-by", help="column, as in torch (default: self device time, or self CPU time)")
    parser.add_argument("--limit", type=limit, default=LIMIT, help="rows to print, -1 for all (default: %(default)s)")
    parser.add_argument(
        "--group-by", metavar="WORDS", default="name", help=f"one or several, separated by commas, of {WORDS}"
    )
    add_peaks(parser)
    parser.add_argument(
        "--all-columns", action="store_true", help="print all of torch's columns, not only those that fit"
    )
    parser.add_argument("--steps", action="store_true", help="also print utilization, step times and launches")
    parser.add_argument("--csv", metavar="FILE", help="write all rows")
    parser.add_argument("--json", metavar="FILE", help="write the device and all rows")
    parser.add_argument("--parquet", metavar="FILE", help="write all rows; needs pyarrow")
    parser.set_defaults(run=_table)


def _table(options: argparse.Namespace) -> None:
    from flopscope.sources.load import load_trace

    traces = [load_trace(path) for path in options.traces]
    ranks = _ranks(traces) if len(traces) > 1 else []
    tables = [_grouped(trace, options.group_by, options.peaks, several=bool(ranks)) for trace in traces]
    sort_by = options.sort_by or _longest(tables)
    if len(tables) == 1:
        every = tables[0].sorted(sort_by)
        shown = every._limited(options.limit)
    else:
        from flopscope.results.ranks import join_ranks

        ranked = dict(zip(ranks, tables, strict=True))
        every, shown = (join_ranks(ranked, sort_by, count) for count in (-1, options.limit))
        for rank, trace in zip(ranked, traces, strict=True):
            print(f"rank {rank}: {printable(trace.source)}")
        print()
    print(shown._brief(options.all_columns) if len(shown) else "No rows.\n", end="")
    if len(shown) < len(every):
        print(f"{len(shown)} of {len(every)} rows; --limit -1 prints all.")
    _print_unmodelled(every)
    if options.steps:
        for trace in traces:
            print(f"\n{printable(trace.source)}" if len(traces) > 1 else "")
            trace.summary()
    _write(every, traces, options)


def _grouped(trace: Trace, group_by: str, peaks: str, *, several: bool) -> EventTable:
    words = [word.strip() for word in group_by.split(",")]
    if several:  # the rows of several traces are always those of one rank
        words = [word for word in words if word != "rank"] or ["name"]
    return trace.key_averages(group_by=words, peaks=peaks)


def _longest(tables: list[EventTable]) -> str:
    """Return the column to sort by: own times, or in a tree of modules their total times."""
    from flopscope.results.modules import ModuleTable

    time = "device_time_total" if any(table.has_device for table in tables) else "cpu_time_total"
    return time if isinstance(tables[0], ModuleTable) else f"self_{time}"


def _ranks(traces: list[Trace]) -> list[int]:
    """Return the ranks that the traces name, or the positions of the files if some name none.

    Raise ValueError for two traces of one process.
    """
    from flopscope.results.process import require_different_processes

    require_different_processes(traces)
    ranks = [trace.rank for trace in traces if trace.rank is not None]
    return ranks if len(ranks) == len(traces) else list(range(len(traces)))


def _print_unmodelled(table: EventTable) -> None:
    """Print the part of the coverage that the notes below the table omit."""
    from flopscope.support import units
    from flopscope.views import text

    if min(table.coverage()["bytes"], table.coverage()["flops"]) >= 1:
        print("Coverage: all bytes and FLOPs are known.")
    rest = table.coverage()["unmodelled"][text.UNMODELLED_SHOWN :]
    if rest and not table.lacks_shapes:
        print(f"Also not modelled: {len(rest)} names, {units.time_text(sum(time for _, time in rest))}.")


def device_of(trace: Trace) -> dict[str, Any]:
    """Return the device that the trace names, or the CPU if no device was used."""
    named = next(iter(trace.devices.values()), None)
    return {"kind": "cpu" if named is None else "cuda", "name": named}


def _write(table: EventTable, traces: list[Trace], options: argparse.Namespace) -> None:
    if options.csv:
        table.to_csv(options.csv)
    if options.json:
        from flopscope.views import frame

        files = [trace.source for trace in traces]
        write_json(options.json, {**frame.json_content(table), "device": device_of(traces[0]), "files": files})
    if options.parquet:
        table.to_parquet(options.parquet)


# compare --------------------------------------------------------------------------------------------------------------


def add_compare(commands: Any) -> None:
    """Add ``compare`` to the commands of the parser."""
    parser = commands.add_parser("compare", allow_abbrev=False, help="compare two recorded traces row by row")
    parser.add_argument("a", metavar="A", help="a trace")
    parser.add_argument("b", metavar="B", help="the trace to compare it with")
    parser.add_argument(
        "--by", choices=("name", "shape"), help="what rows are matched by (default: shape, if both have shapes)"
    )
    parser.add_argument(
        "--kind",
        choices=("op", "kernel"),
        default="op",
        help="what is compared (default: %(default)s, with its kernels)",
    )
    add_peaks(parser)
    parser.add_argument("--limit", type=limit, default=LIMIT, help="rows to print, -1 for all (default: %(default)s)")
    parser.add_argument("--csv", metavar="FILE", help="write all rows")
    parser.add_argument("--json", metavar="FILE", help="write the devices and all rows")
    parser.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    from flopscope.results.comparison import compare
    from flopscope.sources.load import load_trace

    a, b = (load_trace(path) for path in (options.a, options.b))
    names = (Path(options.a).name, Path(options.b).name)
    if names[0] == names[1]:
        names = (options.a, options.b)
    comparison = compare(a, b, by=options.by, kind=options.kind, names=names, peaks=options.peaks)
    print(comparison.table(options.limit), end="")
    if options.csv:
        comparison.to_csv(options.csv)
    if options.json:
        devices = {"a": device_of(a), "b": device_of(b)}
        write_json(options.json, {"device": devices, "files": [options.a, options.b], "rows": comparison.to_dicts()})

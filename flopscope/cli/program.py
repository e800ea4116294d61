"""The command line: ``flopscope bench | devices | table TRACE… | summary TRACE… | report TRACE… | compare A B |
ranks PATH… | measure OP | perf ACTION | run SCRIPT``."""

from __future__ import annotations

import argparse
import gc
import io
import os
import re
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from flopscope import _core
from flopscope.cli.compare import add_compare
from flopscope.cli.measure import add_measure, shape
from flopscope.cli.parser import Parser, whole
from flopscope.cli.perf import add_perf
from flopscope.cli.ranks import add_ranks
from flopscope.cli.report import add_report
from flopscope.cli.run import add_run
from flopscope.cli.summary import add_summary
from flopscope.cli.tables import add_table
from flopscope.support.files import write_json
from flopscope.support.safe import printable

COLLECT_AFTER = 1_000_000
"""Objects that a command makes before Python looks for cycles: most of them stay, and looking takes a fifth of a long
command."""


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names no op")
    return names


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with those of its commands."""
    from flopscope.support.package import VERSION

    parser = Parser(prog="flopscope", description="How fast is every op, and how fast could it be?")
    parser.add_argument("--version", action="version", version=f"flopscope {VERSION}")
    commands: Any = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    positive = whole(1, "a whole number of at least 1")
    bench = commands.add_parser("bench", help="run ten ops on one matrix and report what bounds each")
    bench.add_argument("--device", help='"cpu", "cuda" or "cuda:N" (default: the first GPU, or the CPU without one)')
    bench.add_argument(
        "--dtype", default="float32", choices=_core.float_dtypes, help="dtype of the matrix (default: %(default)s)"
    )
    bench.add_argument("--size", type=positive, help="side of the square matrix (default: chosen for the device)")
    bench.add_argument("--ops", type=_names, help="ops to run, separated by commas (default: all)")
    bench.add_argument("--repeat", type=positive, default=10, help="number of runs of each op (default: %(default)s)")
    bench.add_argument("--sort-by", help="column to sort the table by, as in torch (default: the order of the program)")
    bench.add_argument("--csv", metavar="FILE", help="write the rows of the table")
    bench.add_argument("--json", metavar="FILE", help="write the device, its peaks and the rows of the table")
    bench.add_argument("--against", choices=("torch",), help="run the program in torch as well, and compare")
    bench.set_defaults(run=_bench)

    devices = commands.add_parser("devices", help="list the devices, with datasheet and measured peaks")
    devices.add_argument("--measure", action="store_true", help="measure the peaks and keep the best of all runs")
    devices.add_argument("--reset", action="store_true", help="with --measure: discard the stored peaks")
    devices.add_argument("--json", metavar="FILE", help="write the properties and peaks of the devices")
    devices.set_defaults(run=_devices)

    add_table(commands)
    add_summary(commands)
    add_report(commands)
    add_compare(commands)
    add_ranks(commands)
    add_measure(commands)
    add_perf(commands)
    add_run(commands)
    for listed in commands._choices_actions:  # so that `flopscope table --help` says what the list of commands says
        command = commands.choices[listed.dest]
        if command.description is None:
            command.description = f"{listed.help[0].upper()}{listed.help[1:]}."
    return parser


def _bench(options: argparse.Namespace) -> None:
    from flopscope.cli import bench
    from flopscope.sentences.comparison import compare

    result = bench.run(options.device, options.dtype, options.size, options.ops, options.repeat, progress=True)
    result.text(options.sort_by).print()
    content = result.to_json()
    if options.against:
        ops = options.ops or list(bench.OPS)
        theirs = bench.run_in_torch(str(result.device), result.dtype, result.size, ops, result.repeat)
        comparison = compare(result.table, theirs, by="name", names=("flopscope", "torch"))
        print(f"\n{comparison}", end="")
        content["against_torch"] = comparison.to_dicts()
    if options.csv:
        result.table.to_csv(options.csv)
    if options.json:
        write_json(options.json, content)


def _devices(options: argparse.Namespace) -> None:
    from dataclasses import asdict

    from flopscope.hardware.device import devices, measure_peaks

    if options.reset and not options.measure:
        raise ValueError("--reset replaces the stored peaks by measured ones: add --measure")
    found = devices()
    for device in found:
        if options.measure:
            measure_peaks(device, force=True, reset=options.reset)
        print(device.report())
    _explain_no_cuda(found)
    if options.json:
        write_json(
            options.json,
            {
                "devices": [
                    {
                        "kind": d.kind,
                        "name": d.name,
                        "properties": dict(d.properties),
                        "datasheet": d.datasheet and asdict(d.datasheet),
                        "measured": d.measured and asdict(d.measured),
                    }
                    for d in found
                ]
            },
        )


def _explain_no_cuda(found: Sequence[Any]) -> None:
    if all(device.kind == "cpu" for device in found):
        try:
            _core.cuda_device_count()
        except RuntimeError as why:
            print(f"no CUDA device: {why}")


def _take_shapes(options: argparse.Namespace, rest: Sequence[str]) -> None:
    """Append the remaining arguments to the shapes; end with an error if the command takes none, or if they are not
    shapes."""
    unknown = [text for text in rest if re.match("-[^0-9]", text)] if hasattr(options, "shapes") else rest
    if unknown:
        options.parser.refuse(unknown)
    try:
        options.shapes += map(shape, rest)
    except argparse.ArgumentTypeError as problem:
        options.parser.error(str(problem))


def _complain(command: str, problem: object) -> None:
    """Print a message on stderr; control characters from a trace or a file name are escaped."""
    if isinstance(problem, OSError) and problem.strerror and problem.filename is not None:
        problem = f"{os.fsdecode(problem.filename)}: {problem.strerror}"
    text = "\n".join(map(printable, str(problem).split("\n")))
    print(f"flopscope {command}: {text}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and print errors as one line on stderr.

    Return the exit status: 0, 1 for failures, 2 for wrong arguments; of ``run``, that of the program.
    """
    parser = make_parser()
    own_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options, rest = parser.parse_known_args(arguments)
    if rest:  # argparse does not accept shapes after an option: measure add --dtype float16 64,64
        _take_shapes(options, rest)
    if getattr(options, "owns_process", False):  # the program has the streams, the warnings and the exceptions
        status: int = options.run(options)
        return status
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may not support "µ"
    thresholds = gc.get_threshold()
    gc.set_threshold(thresholds[0] and max(COLLECT_AFTER, thresholds[0]), *thresholds[1:])  # 0: none
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: _complain(options.command, message)  # one line, as errors
            failed: int | None = options.run(options)
        if sys.stdout is not None:
            sys.stdout.flush()  # a full disk is an error of the command
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    except ValueError as problem:
        _complain(options.command, problem)
        return 2
    except (RuntimeError, MemoryError, OverflowError, OSError, ImportError) as problem:
        _complain(options.command, problem)
        return 1
    finally:
        gc.set_threshold(*thresholds)
        if own_process:
            gc.freeze()  # else Python would look at every object again as it ends
        _drop_unwritable()
    return failed or 0


def _drop_unwritable() -> None:
    """Drop what cannot be written, because the reader of a pipe has gone or a disk is full.

    Python would write it again at its exit, report the failure, and change the exit status to 120.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
        except (AttributeError, ValueError):  # there is no such stream, or it is closed
            continue

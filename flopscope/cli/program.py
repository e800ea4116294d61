"""The command line: its commands, and how one is run."""

from __future__ import annotations

import argparse
import gc
import io
import os
import re
import sys
import warnings
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

from flopscope.cli.parser import Parser


class Command(NamedTuple):
    """A command: the module of flopscope.cli, what it does, and the function that adds its arguments to a parser."""

    module: str
    help: str
    add: str = "add_arguments"


COMMANDS = {
    "bench": Command("bench", "run ten ops on one matrix and report what bounds each"),
    "devices": Command("measure", "list the devices, with datasheet and measured peaks", "add_devices"),
    "table": Command("tables", "show the ops and kernels of recorded traces"),
    "summary": Command("report", "show where the time of traces went, and what to change first", "add_summary"),
    "report": Command("report", "write one HTML page of recorded traces, which opens from disk"),
    "compare": Command("tables", "show what changed between two recorded traces, and why", "add_compare"),
    "ranks": Command("report", "compare the ranks of a distributed program: who is slow, and why", "add_ranks"),
    "measure": Command("measure", "measure the time of an op or a function"),
    "check": Command("check", "check that a kernel computes what a reference does, and compare their times"),
    "schema": Command("schema", "print the JSON Schema of what --json writes"),
    "run": Command("run", "run a Python program and profile it"),
    "try": Command("trying", "try changes on a Python program without editing it, and measure them"),
    "ab": Command("trying", "measure two versions of a program or of its tests in turns", "add_ab"),
    "mcp": Command("server", "serve these answers to agents by the Model Context Protocol"),
    "skill": Command("server", "print the folder of the skill that teaches agents these commands", "add_skill"),
}

COLLECT_AFTER = 1_000_000
"""Objects that a command makes before Python looks for cycles: most of them stay, and looking takes a fifth of a long
command."""


def make_parser(wanted: Collection[str] = COMMANDS.keys()) -> argparse.ArgumentParser:
    """Return the parser of the command line. Its commands have arguments if they are wanted, else only names."""
    from flopscope.support.package import DISTRIBUTION, VERSION

    parser = Parser(prog="flopscope", description="How fast is every op, and how fast could it be?")
    parser.add_argument("--version", action="version", version=f"flopscope {VERSION} ({DISTRIBUTION})")
    commands: Any = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, row in COMMANDS.items():
        command = commands.add_parser(name, help=row.help, description=f"{row.help[0].upper()}{row.help[1:]}.")
        if name in wanted:
            getattr(import_module(f"flopscope.cli.{row.module}"), row.add)(command)
    return parser


def _take_shapes(options: argparse.Namespace, rest: Sequence[str]) -> None:
    """Append the remaining arguments to the shapes; end with an error if the command takes none, or if they are not
    shapes."""
    unknown = [text for text in rest if re.match("-[^0-9]", text)] if hasattr(options, "shapes") else rest
    if unknown:
        options.parser.refuse(unknown)
    from flopscope.cli.measure import shape

    try:
        options.shapes += map(shape, rest)
    except argparse.ArgumentTypeError as problem:
        options.parser.error(str(problem))


def told(problem: object) -> str:
    """Return the text of an exception or a warning; control characters from a trace or a file name are escaped."""
    from flopscope.support.safe import printable

    if isinstance(problem, OSError) and problem.strerror and problem.filename is not None:
        problem = f"{os.fsdecode(problem.filename)}: {problem.strerror}"
    return "\n".join(map(printable, str(problem).split("\n")))


def _complain(command: str, problem: object) -> None:
    print(f"flopscope {command}: {told(problem)}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and print errors as one line on stderr.

    Return the exit status: 0, 1 for failures, 2 for wrong arguments; of ``run``, that of the program.
    """
    own_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    at = arguments.index("--") if arguments and arguments[0] == "ab" and "--" in arguments else len(arguments)
    arguments, words = arguments[:at], arguments[at + 1 :]
    parser = make_parser(arguments)
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options, rest = parser.parse_known_args(arguments)
    options.words = words  # what ab runs on both sides
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
    except (RuntimeError, MemoryError, OverflowError, OSError, ImportError) as problem:  # a file is absent, NoFiles too
        _complain(options.command, problem)
        return 1
    except ValueError as problem:
        _complain(options.command, problem)
        return 2
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

"""The commands that run a program again and again: ``flopscope try`` tries changes on it, ``flopscope ab`` measures two
versions of it or of its tests.

The command line of ``ab`` has two parts: what comes before ``--`` is of flopscope, what comes after it is run on both
sides. Its exit status is 1 if a row is slower by more than ``--fail-over``, and 2 if a side cannot be measured.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from flopscope.cli.parser import add_files, add_program, names, parsed
from flopscope.support.files import require_writable, write_json

EXAMPLES = """\
examples:
  flopscope try train.py --epochs 1               what the advice and the program propose
  flopscope try --changes compile,autocast train.py
  flopscope try --all --max-time 1800 train.py    all that can apply
  flopscope try --launcher "torchrun --nproc-per-node 8" train.py
"""
FIRST_SCREEN = """\
flopscope try runs {title} again and again, for up to {time}: once to look at its first steps, once to record
some, then pairs of runs without and with each change. Each run does all that the program does until its last measured
step, and is then ended: also what it writes, uploads or logs until then. Switch that off where FLOPSCOPE_TRY=1 is set
in the environment. Ctrl-C ends it with what was measured so far.
"""
AB_EXAMPLES = """\
examples:
  flopscope ab main -- pytest -m perf        the working tree against main
  flopscope ab HEAD~1 HEAD --setup 'pip install .' -- pytest -m perf
  flopscope ab old/ new/ -- python bench.py  two folders
"""

positive = parsed(float, lambda number: 0 < number < math.inf, "a positive number")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "flopscope try [options] (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]", EXAMPLES, needed=False)
    parser.description = (
        "Run a Python program with and without changes that need no edit, measure its steps, and say which to keep."
    )
    parser.add_argument("--changes", type=names, metavar="NAME,…", help="try these; --list names them all")
    parser.add_argument("--all", action="store_true", help="try all that can apply, not only what something proposes")
    parser.add_argument("--list", action="store_true", help="list the changes, and what each may change, and end")
    text = "end after this time (default: %(default)s)"
    parser.add_argument("--max-time", type=positive, default=600.0, metavar="SECONDS", help=text)
    text = "percent within which times count as the same (default: %(default)s)"
    parser.add_argument("--margin", type=positive, default=2.0, metavar="PERCENT", help=text)
    text = 'command that starts the processes of the program, as "torchrun --nproc-per-node 8"; rank 0 is timed'
    parser.add_argument("--launcher", metavar="COMMAND", help=text)
    add_files(parser, json="all numbers")
    parser.add_argument("--job", dest="owns_process", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> Any:
    if options.owns_process:
        from flopscope.measuring.trying.inside import run_job

        return run_job(options.script)
    if options.list:
        from flopscope.measuring.trying.switches import SWITCHES

        for one in SWITCHES.values():
            print(f"{one.name}: {one.what}\n    may change: {one.effect}\n    {one.source}")
        return 0
    if options.script is None:
        options.parser.error("the following arguments are required: SCRIPT")
    return _try(options)


def _try(options: argparse.Namespace) -> int:
    from flopscope.measuring.trying.result import text_of
    from flopscope.measuring.trying.switches import named
    from flopscope.measuring.trying.trial import Program, Trial
    from flopscope.show.fitted import terminal_width
    from flopscope.support.process import rank_in

    if (rank_in(os.environ) or {}).get("world_size", 1) > 1:
        raise ValueError("this process is one rank of several: run flopscope try by itself, with --launcher COMMAND")
    if options.script == "-":
        raise ValueError("a program from standard input cannot be run several times; save it to a file")
    if not options.kind:
        with open(options.script, "rb"):
            pass
    if options.json:
        require_writable(options.json)
    named(options.changes)
    launcher = tuple(shlex.split(options.launcher or ""))
    program = Program(options.script, tuple(options.arguments), options.kind, launcher)
    seconds = options.max_time
    limit = f"{seconds / 60:.3g} min" if seconds >= 60 else f"{seconds:.3g} s"
    print(FIRST_SCREEN.format(title=program.title, time=limit), file=sys.stderr)
    tell = _teller("try")
    tried = Trial(program, options.changes, options.all, options.max_time, options.margin / 100, tell).run()
    print(text_of(tried, terminal_width()), end="")
    if options.json:
        write_json(options.json, tried.to_dict())
    return 0


def _teller(command: str) -> Callable[[object], None]:
    """Prepare for running programs: daemons of theirs can be waited for, and a signal ends them before this process.
    Return what prints a line with the time since then."""
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    begin = time.monotonic()

    def tell(text: object) -> None:
        print(f"flopscope {command}: {time.monotonic() - begin:4.0f} s  {text}", file=sys.stderr, flush=True)

    return tell


def _end(number: int, frame: object) -> None:
    """End the program before this process ends by a signal."""
    raise SystemExit(128 + number)


# Two versions ---------------------------------------------------------------------------------------------------------


def add_ab(parser: argparse.ArgumentParser) -> None:
    parser.usage = "flopscope ab BASE [HEAD] [options] -- (pytest | python PROGRAM) [ARGUMENT ...]"
    parser.epilog, parser.formatter_class = AB_EXAMPLES, argparse.RawDescriptionHelpFormatter
    parser.description = "Run base and head in turns, in fresh processes, and say which is faster, with an interval."
    parser.add_argument("base", metavar="BASE", help="revision of git, folder, or interpreter")
    parser.add_argument("head", metavar="HEAD", nargs="?", help="the same; by default the working tree")
    text = "command that installs what is measured, run in the tree of each side, in a virtual environment of its own"
    parser.add_argument("--setup", default="", metavar="COMMAND", help=text)
    share = parsed(lambda text: float(text.removesuffix("%")) / 100, lambda of: 0 < of < math.inf, "a percentage")
    text = "percent within which times count as the same, and intervals are narrow enough (default: 1%%)"
    parser.add_argument("--resolution", type=share, default=0.01, metavar="PERCENT", help=text)
    text = "start no process that may end after this time (default: %(default)s)"
    parser.add_argument("--max-time", type=positive, default=300.0, metavar="SECONDS", help=text)
    text = "exit with status 1 if a whole interval is above this"
    parser.add_argument("--fail-over", type=share, metavar="PERCENT", help=text)
    add_files(parser, json="all numbers", markdown="the table for a pull request")
    text = "write the times of both sides as pytest-benchmark does"
    parser.add_argument("--pytest-benchmark", metavar="FILE", help=text)
    parser.set_defaults(run=_ab)


def _ab(options: argparse.Namespace) -> int:
    """Make the sides ready, measure them, and write what was found. Nothing of the sides is left when it is written."""
    from flopscope.measuring.trying.sides import made_ready
    from flopscope.measuring.trying.turns import COMPARED, measure, text_of
    from flopscope.show.fitted import terminal_width
    from flopscope.support.files import replacing

    for one in filter(None, (options.json, options.markdown, options.pytest_benchmark)):
        require_writable(one)
    kind, what = command(options.words)
    tell = _teller("ab")
    with made_ready(options.base, options.head, options.setup) as (base, head, folder):
        labels = base.label, head.label
        tell(f"base {labels[0]}, head {labels[1]}")
        run = kind(what, (base, head), folder, options.max_time)
        found = measure(run, labels, options.resolution, options.max_time, tell)
    print(text_of(found, terminal_width()), end="")
    if options.json:
        write_json(options.json, COMPARED.of(found))
    if options.markdown:
        with replacing(options.markdown) as stream:
            stream.write(text_of(found))
    if options.pytest_benchmark:
        from flopscope.measuring.perf import stored

        write_json(options.pytest_benchmark, stored.content_of_sides(found["rows"]))
    slower = [row["name"] for row in found["rows"] if options.fail_over and row["low"] > 1 + options.fail_over]
    if slower:
        tell(f"over {100 * options.fail_over:g} % slower: {', '.join(slower)}")
    return int(bool(slower))


def command(words: Sequence[str]) -> tuple[Any, Any]:
    """Return what measures a command, and the command without the interpreter, which is that of each side.

    ``pytest`` does not put the current folder on the path, as ``python -m pytest`` does: an installed package is
    measured, not the sources beside the tests. Raises ValueError for another command, or for options of Python.
    """
    from flopscope.measuring.trying.trial import Program
    from flopscope.measuring.trying.turns import steps, tests

    name = os.path.basename(words[0]) if words else ""
    match ["python" if name.startswith("python") else name, *words[1:]]:
        case ["pytest", *rest]:
            return tests, ["-c", "import sys; del sys.path[0]; import pytest; sys.exit(pytest.console_main())", *rest]
        case ["python", "-m", "pytest", *rest]:
            return tests, ["-m", "pytest", *rest]
        case ["python", "-m" | "-c" as option, target, *rest]:
            return steps, Program(target, tuple(rest), option)
        case ["python", target, *rest] if not target.startswith("-"):
            return steps, Program(target, tuple(rest))
    raise ValueError("name what to run after --: pytest, python -m pytest, or python with a program, without options")

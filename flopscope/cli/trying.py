"""The command ``flopscope try``, which tries changes on a program and measures them."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flopscope.support.files import replacing, require_writable, write_json
from flopscope.support.suggest import did_you_mean

EXAMPLES = """\
examples:
  flopscope try train.py --epochs 1               what the advice and the program propose
  flopscope try --changes compile,autocast train.py
  flopscope try --all --max-time 1800 train.py    all that can apply
  flopscope try --launcher "torchrun --nproc-per-node 8" train.py

Options of flopscope come before SCRIPT, -m or -c; everything after them belongs to the program.
"""
FIRST_SCREEN = """\
flopscope try runs {title} again and again, for up to {time}: once to look at its first steps, once to record
some, then pairs of runs without and with each change. Each run does all that the program does until its last measured
step, and is then ended: also what it writes, uploads or logs until then. Switch that off where FLOPSCOPE_TRY=1 is set
in the environment{workdir}. Ctrl-C ends it with what was measured so far.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``try`` to its parser."""
    parser.usage = "flopscope try [options] (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]"
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Run a Python program with and without changes that need no edit, measure its steps, and say which to keep."
    )
    parser.add_argument("--changes", type=_names, metavar="NAME,…", help="try these; --list names them all")
    parser.add_argument("--all", action="store_true", help="try all that can apply, not only what something proposes")
    parser.add_argument("--list", action="store_true", help="list the changes, and what each may change, and end")
    text = "end after this time (default: %(default)s)"
    parser.add_argument("--max-time", type=_positive, default=600.0, metavar="SECONDS", help=text)
    text = "percent within which times count as no difference (default: %(default)s)"
    parser.add_argument("--margin", type=_positive, default=2.0, metavar="PERCENT", help=text)
    text = "compare what this module of the model returns, as layers.3, instead of losses"
    parser.add_argument("--compare", metavar="MODULE", default="", help=text)
    parser.add_argument("--no-combination", action="store_true", help="do not try the faster ones together")
    text = "run each process in a temporary copy of DIR as its current folder, so that DIR stays as it is"
    parser.add_argument("--workdir", metavar="DIR", help=text)
    text = 'command that starts the processes of the program, as "torchrun --nproc-per-node 8"; rank 0 is timed'
    parser.add_argument("--launcher", metavar="COMMAND", help=text)
    text = "runs that get ready side by side; one at a time is timed, with the others stopped (default: %(default)s)"
    parser.add_argument("--jobs", type=_count, default=1, metavar="N", help=text)
    parser.add_argument("-o", "--output", metavar="FILE", help="write an HTML page, which opens from disk")
    parser.add_argument("--json", metavar="FILE", help="write all numbers")
    text = "append a line of JSON for each change to FILE: predicted and measured saving, and no name of the program"
    parser.add_argument("--keep", metavar="FILE", help=text)
    text = "add such rows, with the name of the program, to the table of FILE between <!-- tried --> and <!-- end -->"
    parser.add_argument("--report", metavar="FILE", help=text)
    parser.add_argument("--job", dest="owns_process", action="store_true", help=argparse.SUPPRESS)
    kind = parser.add_mutually_exclusive_group()
    for option, what in (("-m", "a module"), ("-c", "code")):
        text = f"the program is {what}, as in python {option}"
        kind.add_argument(option, dest="kind", action="store_const", const=option, default="", help=text)
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help=argparse.SUPPRESS)
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False
    parser.set_defaults(run=_run)


def _names(text: str) -> tuple[str, ...]:
    from flopscope.measuring.trying.switches import SWITCHES

    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in SWITCHES:
            raise argparse.ArgumentTypeError(f"there is no change {name!r}{did_you_mean(name, SWITCHES)}; see --list")
    if not names:
        raise argparse.ArgumentTypeError("no change is named; see --list")
    return names


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _run(options: argparse.Namespace) -> Any:
    if options.owns_process:
        from flopscope.measuring.trying.inside import run_job

        return run_job(options.script)
    if options.list:
        return _list()
    if options.script is None:
        options.parser.error("the following arguments are required: SCRIPT")
    return _try(options)


def _list() -> None:
    from flopscope.measuring.trying.switches import SWITCHES

    for one in SWITCHES.values():
        print(f"{one.name}: {one.what}\n    may change: {one.effect}\n    {one.source}")


def _try(options: argparse.Namespace) -> int:
    from flopscope.measuring.trying.processes import Program, launcher_words
    from flopscope.measuring.trying.text import text_of
    from flopscope.measuring.trying.trial import Options, Trial
    from flopscope.show.fitted import terminal_width
    from flopscope.support.launchers import rank_in
    from flopscope.support.progress import time_bar

    if (rank_in(os.environ) or {}).get("world_size", 1) > 1:
        raise ValueError("this process is one rank of several: run flopscope try by itself, with --launcher COMMAND")
    if options.launcher and options.jobs > 1:
        raise ValueError("--jobs stops runs while another is timed, which processes of a --launcher may not survive")
    if options.script == "-":
        raise ValueError("a program from standard input cannot be run several times; save it to a file")
    if not options.kind:
        with open(options.script, "rb"):
            pass
    for path in (options.output, options.json, options.keep, options.report):
        if path:
            require_writable(path)
    if options.report:
        _add_rows(options.report, "", [])  # an error comes before the runs
    launcher = launcher_words(options.launcher)
    program = Program(
        options.script, tuple(options.arguments), options.kind, launcher, options.workdir, options.compare
    )
    settings = Options(
        options.changes, options.all, options.max_time, options.margin / 100, not options.no_combination, options.jobs
    )
    workdir = ", or keep it in a copy by --workdir" if options.workdir is None else f"; {options.workdir} is copied"
    print(FIRST_SCREEN.format(title=program.title, time=_time(options.max_time), workdir=workdir), file=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    begin = time.monotonic()
    with time_bar(f"trying changes on {program.title}", options.max_time) as advance:
        tell = _teller(begin)
        tried = Trial(program, settings, tell, advance).run()
    print(text_of(tried, terminal_width()), end="")
    if options.json:
        write_json(options.json, tried.to_dict())
    if options.keep:
        with open(options.keep, "a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in tried.predictions())
    if options.report:
        _add_rows(options.report, tried.title, tried.predictions())
    if options.output:
        tried.write_report(options.output)
    return 0


def _add_rows(path: str, title: str, predictions: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the table of a file. Raise ValueError if it has none."""
    from flopscope.measuring.trying.rows import with_rows

    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        text = with_rows(text, title, predictions)
    except ValueError as problem:
        raise ValueError(f"--report {path}: {problem}") from None
    if predictions:
        with replacing(path, encoding="utf-8") as file:
            file.write(text)


def _end(number: int, frame: object) -> None:
    """End the program before this process ends by a signal."""
    raise SystemExit(128 + number)


def _teller(begin: float) -> Any:
    def tell(text: object) -> None:
        print(f"flopscope try: {time.monotonic() - begin:4.0f} s  {text}", file=sys.stderr, flush=True)

    return tell


def _time(seconds: float) -> str:
    return f"{seconds / 60:.3g} min" if seconds >= 60 else f"{seconds:.3g} s"

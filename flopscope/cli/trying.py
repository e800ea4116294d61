"""The command ``flopscope try``, which tries changes on a program and measures them."""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import shlex
import signal
import sys
import time
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "flopscope try [options] (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]", EXAMPLES, needed=False)
    parser.description = (
        "Run a Python program with and without changes that need no edit, measure its steps, and say which to keep."
    )
    text = "try these; --list names them all"
    parser.add_argument("--changes", type=names, metavar="NAME,…", help=text)
    parser.add_argument("--all", action="store_true", help="try all that can apply, not only what something proposes")
    parser.add_argument("--list", action="store_true", help="list the changes, and what each may change, and end")
    positive = parsed(float, lambda number: 0 < number < math.inf, "a positive number")
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
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: the program's daemons can be waited for
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    begin = time.monotonic()

    def tell(text: object) -> None:
        print(f"flopscope try: {time.monotonic() - begin:4.0f} s  {text}", file=sys.stderr, flush=True)

    tried = Trial(program, options.changes, options.all, options.max_time, options.margin / 100, tell).run()
    print(text_of(tried, terminal_width()), end="")
    if options.json:
        write_json(options.json, tried.to_dict())
    return 0


def _end(number: int, frame: object) -> None:
    """End the program before this process ends by a signal."""
    raise SystemExit(128 + number)

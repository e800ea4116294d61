"""The command ``flopscope run``, which profiles a program in its own process, and has another one report."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from socket import socket
from sys import getswitchinterval, setswitchinterval
from time import monotonic
from types import FrameType
from typing import Any

from flopscope import _core
from flopscope.cli.parser import add_program
from flopscope.cli.reporter import Reporter, told_warnings
from flopscope.cli.reporting import Outputs, tell
from flopscope.record.windows import Window
from flopscope.record.work_rules import Notes, noted, registered
from flopscope.results.exports import send as send_text
from flopscope.support import own_path
from flopscope.support.python_program import PythonProgram, exit_status, wait_for_threads

EXAMPLES = """\
examples:
  flopscope run train.py --epochs 1             the whole program; its report is train.report.html
  flopscope run --steps 10:15 train.py          steps 10 to 14 of torch's optimizer, or of flopscope.step()
  flopscope run --seconds 30:35 -m vllm serve   from second 30 to second 35
  torchrun --nproc-per-node 8 -m flopscope run --trace trace.json.gz train.py
"""
DEADLY = (signal.SIGTERM, signal.SIGHUP)  # signals whose default action ends a program without a trace
AS_RECORDED = ("record_shapes", "profile_memory", "with_stack", "_timing", "_cpu_alone")
"""Attributes of a recording that are passed on."""
SWITCH = 1e-4
"""s after which a busy thread must let go of the interpreter while the results are handed over."""
SAME_SIGNAL = 1.0
"""Seconds in which signals are one: `timeout` sends its signal to the process and to the process's group."""


def _window(unit: str, number: str, examples: str, text: str) -> Window:
    match = re.fullmatch(rf"({number})?:({number})?", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of {unit} such as {examples}")
    window = Window(unit, float(match[1] or 0), float(match[2] or "inf"))
    if window.begin >= window.end:
        raise argparse.ArgumentTypeError(f"{text!r} is empty: it must end after it begins; the end is not part of it")
    return window


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_program(parser, "flopscope run [options] (SCRIPT | -m MODULE | -c CODE | -) [ARGUMENT ...]", EXAMPLES)
    parser.description = (
        "Run a Python program as `python SCRIPT`, `-m MODULE`, `-c CODE` and `-` (standard input) do, and profile it."
    )
    window = parser.add_mutually_exclusive_group()
    steps = partial(_window, "steps", r"\d+", "10:15, :5 or 10:")
    seconds = partial(_window, "seconds", r"\d+(?:\.\d*)?|\.\d+", "2:4.5, :5 or 10:")
    text = "record steps A to B-1, counted from 0 (default: all)"
    window.add_argument("--steps", type=steps, metavar="A:B", help=text)
    text = "record from second A to second B of the program"
    window.add_argument("--seconds", type=seconds, metavar="A:B", help=text)
    window.add_argument("--whole", action="store_true", help="record all steps (default: the first, and some later)")
    text = "end the program where the window of --steps or --seconds ends, with status 0"
    parser.add_argument("--stop", action="store_true", help=text)
    text = "record the shapes of inputs, from which FLOPs and bytes of torch's ops follow (default: on)"
    parser.add_argument("--shapes", action=argparse.BooleanOptionalAction, default=True, help=text)
    parser.add_argument("--stacks", action="store_true", help="record Python calls, and torch's modules")
    parser.add_argument("--memory", action="store_true", help="record memory that is allocated and freed")
    parser.add_argument("--counters", action="store_true", help="record hardware counters of NVIDIA GPUs")
    parser.add_argument("--stalls", action="store_true", help="sample what the warps of a GPU wait for, in later steps")
    parser.add_argument("--no-samples", action="store_true", help="do not sample the lines that the program is in")
    report = parser.add_mutually_exclusive_group()
    text = (
        "report to write, or to replace (default: SCRIPT.report.html, or the first of SCRIPT.report-2.html, … "
        "that is free)"
    )
    report.add_argument("-o", "--output", metavar="FILE", help=text)
    report.add_argument("--no-report", action="store_true", help="write no report")
    parser.add_argument("--trace", metavar="FILE", help="also write the trace: .json or .json.gz")
    parser.add_argument("--json", metavar="FILE", help="write the summary as JSON")
    parser.add_argument("--no-summary", action="store_true", help="print no summary")
    parser.set_defaults(run=run, owns_process=True)


def run(options: argparse.Namespace) -> Any:
    """Run the program, and return the argument of sys.exit() that it ended with.

    Return 2 without running it if it or a file to be written cannot be opened. Raise KeyboardInterrupt, already
    printed, if it ended with one.
    """
    if options.stop and not (options.steps or options.seconds):
        options.parser.error("--stop needs --steps or --seconds")
    try:
        program = PythonProgram(options.script, options.arguments, options.kind)
    except OSError as problem:
        tell(f"can't open file {os.path.abspath(options.script)!r}: [Errno {problem.errno}] {problem.strerror}")
        return 2
    try:
        outputs = Outputs.of(options, program.name)
    except OSError as problem:
        tell(problem)
        return 2
    return Run(program, outputs, options).run()


# Running --------------------------------------------------------------------------------------------------------------


class Run:
    """A program and its recording."""

    def __init__(self, program: PythonProgram, outputs: Outputs, options: argparse.Namespace) -> None:
        settings = {"record_shapes": options.shapes, "with_stack": options.stacks, "profile_memory": options.memory}
        settings |= {"counters": options.counters, "sample_stacks": not options.no_samples, "stalls": options.stalls}
        self._program, self._outputs, self._options = program, outputs, options
        self._reporter = Reporter()
        from flopscope.cli.recording import Recording  # while that process starts

        self._pid, self._finished, self._writing = os.getpid(), False, False
        self._ended: tuple[int, float] | None = None  # the first signal that ended the program, and when it came
        self._forking = threading.local()  # the signal mask of a thread that forks
        window, told = options.steps or options.seconds, self._reporter.tell
        self._recording = Recording(window, settings, told, rank=outputs.rank, stops=options.stop, whole=options.whole)
        own_path.restore()

    def run(self) -> Any:
        """Run the program to its end, have the results written, and return the program's exit status."""
        self._handle_signals()
        with told_warnings(self._reporter.tell):
            self._recording.begin()
        problem = self._run_program()
        if problem is None or isinstance(problem, SystemExit):
            try:
                wait_for_threads()
            except BaseException as interruption:  # Ctrl-C, or what a signal handler of the program raised
                problem = interruption
        status = exit_status(problem)
        if os.getpid() == self._pid:
            self._finish(measures=problem is None or isinstance(problem, SystemExit))
            if self._ended is not None and self._ended[0] != signal.SIGINT:
                _end_by(self._ended[0])
        if type(problem) is KeyboardInterrupt:
            sys.excepthook = lambda *_: None  # it is printed already; the interpreter shall end by SIGINT
            raise KeyboardInterrupt
        return status

    def _run_program(self) -> BaseException | None:
        """Run the program, and return what ended it. After Ctrl-C its copies are ignored, even one that comes while
        this is being arranged."""
        program, has_begun = self._program, False
        while True:
            try:
                if not has_begun:
                    has_begun = True
                    program.run()
                if isinstance(program.problem, KeyboardInterrupt):
                    self._ended = signal.SIGINT, monotonic()
                    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
                        signal.signal(signal.SIGINT, self._end_by_signal)
                return program.problem
            except KeyboardInterrupt as copy:
                if not isinstance(program.problem, KeyboardInterrupt):
                    program.problem = copy

    # Signals ----------------------------------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        """Have the results written when a signal ends the program. A program with a handler of its own keeps it."""
        for number in DEADLY:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._end_by_signal)
        os.register_at_fork(
            before=self._block_signals, after_in_parent=self._unblock_signals, after_in_child=self._reset_signals
        )

    def _block_signals(self) -> None:
        """Delay signals until a forked child has the default actions again: Python forgets those that come earlier."""
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, DEADLY)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _reset_signals(self) -> None:
        for number in DEADLY:
            if signal.getsignal(number) == self._end_by_signal:
                signal.signal(number, signal.SIG_DFL)
        self._unblock_signals()

    def _end_by_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid or self._finished:
            return _end_by(number)
        first, interrupts = self._ended, number == signal.SIGINT
        if not interrupts:
            self._ended = first or (number, monotonic())
        if self._writing or first is not None:
            is_copy = first is not None and monotonic() - first[1] < SAME_SIGNAL
            if not is_copy and (interrupts or first is not None):
                self._reporter.stop(number)
            return
        sys.settrace(None)
        self._finish()
        if self._recording.has_stopped:
            with suppress(Exception):  # closed, or of the program
                sys.stdout.flush()
            os._exit(0)
        _end_by(number)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Delay signals that the program handles or that timers send; let Ctrl-C end the report."""
        interrupted = signal.getsignal(signal.SIGINT)
        if interrupted not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGINT, self._end_by_signal)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGINT, *DEADLY})
        try:
            yield
        finally:
            if interrupted is not None:
                signal.signal(signal.SIGINT, interrupted)
            with suppress(BaseException):  # of a handler of the program, which has ended
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    # Results ----------------------------------------------------------------------------------------------------------

    def _finish(self, measures: bool = False) -> None:
        """End the recording and have the results written. A failure prints a message and has no other effect.

        measures: measure the CPU first, if its peaks are needed and unknown.
        """
        if self._finished or self._writing:
            return
        self._writing = True
        before = getswitchinterval()
        setswitchinterval(SWITCH)  # daemon threads run on, and after each call of the system they all come first
        with suppress(Exception):  # closed, or of the program
            sys.stderr.flush()
        try:
            with self._undisturbed(), told_warnings(self._reporter.tell):
                self._hand_over(measures)
        except BaseException as problem:
            self._reporter.tell(f"{type(problem).__name__}: {problem}")
        finally:
            self._finished, self._writing = True, False
            setswitchinterval(before)

    def _hand_over(self, measures: bool) -> None:
        prof: Any = self._recording.end()
        title, rank = self._program.title, self._outputs.rank  # without arguments, which may be secret
        about = {
            "outputs": asdict(self._outputs),
            "program": self._program.argv[0].rpartition(os.sep)[2],
            "title": title if rank is None else f"{title}, rank {rank['rank']}",
            "summary": not self._options.no_summary,
            "measures": measures,
            "texts": [],
            "rules": {},
            **self._recording.about(),
        }
        source, texts = prof, []
        if prof is not None:
            about |= {"recorded": _described(prof), "rules": _rules_of(prof)}
        if hasattr(prof, "profiler"):  # torch's
            # What the core knows of graphs is known in this process alone; nothing else of the trace is read here.
            source = prof.trace() if _core.watch_state()["kept"] else None
            texts = [of._finished("trace") for of in (prof, *self._recording.long_steps)]
            about["texts"] = [text.complete() for text in texts]

        def send(connection: socket) -> None:
            for text in texts:
                text.send(connection)
            if source is not None:
                send_text(source, connection.sendall)

        self._reporter.report(about, send, prof._release if texts else bool)


def _described(prof: Any) -> dict[str, Any]:
    by_torch = hasattr(prof, "profiler")
    return {
        **{name: getattr(prof, name) for name in AS_RECORDED},
        **{"hlo": dict(prof.hlo), "_by_torch": by_torch, "_lost": 0 if by_torch else prof.dropped},
        "_energy": {device: (one.joules, one.seconds, one.missing) for device, one in prof.energy.items()},
    }


def _rules_of(prof: Any) -> Notes:
    """Return what the program's rules of work say of its calls."""
    with suppress(ValueError):  # nothing was recorded
        return noted(lambda: prof.key_averages(True, peaks="none", kernels=True)) if registered() else {}
    return {}


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

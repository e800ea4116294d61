"""The command ``flopscope run``, which profiles a program in its own process."""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NoReturn

from flopscope.cli.recording import Recording, Window
from flopscope.support import own_path
from flopscope.support.files import require_writable, write_json
from flopscope.support.imports import after_import
from flopscope.support.messages import Messages
from flopscope.support.process import rank_in
from flopscope.support.python_program import PythonProgram, exit_status, wait_for_threads
from flopscope.support.start import Start

if TYPE_CHECKING:
    from types import FrameType

EXAMPLES = """\
examples:
  flopscope run train.py --epochs 1             the whole program; its report is train.report.html
  flopscope run --steps 10:15 train.py          steps 10 to 14 of torch's optimizer, or of flopscope.step()
  flopscope run --seconds 30:35 -m vllm serve   from second 30 to second 35
  torchrun --nproc-per-node 8 -m flopscope run --trace trace.json.gz train.py

Options of flopscope come before SCRIPT, -m or -c; everything after them belongs to the program.
"""
DEADLY = (signal.SIGTERM, signal.SIGHUP)  # signals whose default action ends a program without a trace
SAME_SIGNAL = 1.0
"""Seconds in which signals are one: `timeout` sends its signal to the process and to the process's group."""
SECOND_COPY = 0.1
"""Seconds in which such a copy arrives."""
MOST_REPORTS = 10_000


def _window(unit: str, number: str, examples: str, text: str) -> Window:
    match = re.fullmatch(rf"({number})?:({number})?", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of {unit} such as {examples}")
    window = Window(unit, float(match[1] or 0), float(match[2] or "inf"))
    if window.begin >= window.end:
        raise argparse.ArgumentTypeError(f"{text!r} is empty: it must end after it begins; the end is not part of it")
    return window


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run`` to its parser."""
    parser.usage = "flopscope run [options] (SCRIPT | -m MODULE | -c CODE | -) [ARGUMENT ...]"
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
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
    text = "end the program where the window of --steps or --seconds ends, with status 0"
    parser.add_argument("--stop", action="store_true", help=text)
    parser.add_argument(
        "--shapes",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="record the shapes of inputs, from which FLOPs and bytes of torch's ops follow (default: on)",
    )
    parser.add_argument("--stacks", action="store_true", help="record Python calls, and torch's modules")
    parser.add_argument("--memory", action="store_true", help="record memory that is allocated and freed")
    parser.add_argument("--counters", action="store_true", help="record hardware counters of NVIDIA GPUs")
    parser.add_argument("--no-samples", action="store_true", help="do not sample the lines that the program is in")
    report = parser.add_mutually_exclusive_group()
    report.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="report to write, or to replace (default: SCRIPT.report.html, or the first of SCRIPT.report-2.html, … "
        "that is free)",
    )
    report.add_argument("--no-report", action="store_true", help="write no report")
    parser.add_argument("--trace", metavar="FILE", help="also write the trace: .json or .json.gz")
    parser.add_argument("--json", metavar="FILE", help="write the summary as JSON")
    parser.add_argument("--no-summary", action="store_true", help="print no summary")
    kind = parser.add_mutually_exclusive_group()
    for option, what in (("-m", "a module"), ("-c", "code")):
        text = f"the program is {what}, as in python {option}"
        kind.add_argument(option, dest="kind", action="store_const", const=option, default="", help=text)
    parser.add_argument("script", metavar="SCRIPT", help=argparse.SUPPRESS)
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    rest.required = False  # else an error about a missing SCRIPT names it too
    parser.set_defaults(run=run, owns_process=True)


def run(options: argparse.Namespace) -> Any:
    """Run the program, and return the argument of sys.exit() that it ended with.

    Return 2 without running it if it or a file to be written cannot be opened. Raise KeyboardInterrupt, already
    printed, if it ended with one.
    """
    own_path.restore()
    if options.stop and not (options.steps or options.seconds):
        options.parser.error("--stop needs --steps or --seconds")
    messages = Messages("flopscope run")
    try:
        program = PythonProgram(options.script, options.arguments, options.kind)
    except OSError as problem:
        path = os.path.abspath(options.script)
        messages.tell(f"can't open file {path!r}: [Errno {problem.errno}] {problem.strerror}")
        return 2
    try:
        outputs = Outputs(options, program.name)
    except OSError as problem:
        messages.tell(problem)
        return 2
    return Run(program, outputs, options, messages).run()


# Files ----------------------------------------------------------------------------------------------------------------


def rank_of(environment: Mapping[str, str]) -> dict[str, int] | None:
    """Return the rank and the number of processes, or None if the program is one process."""
    rank = rank_in(environment)
    return None if rank is None or rank.get("world_size") == 1 else rank


def with_rank(path: str, rank: Mapping[str, int] | None) -> str:
    """Insert the rank before the suffix: trace.rank3.json.gz."""
    if rank is None:
        return path
    folder, name = os.path.split(path)
    match = re.fullmatch(r"(.+?)((\.json)?\.gz|\.[^.]*)", name)
    stem, suffix = (name, "") if match is None else (match[1], match[2])
    return os.path.join(folder, f"{stem}.rank{rank['rank']}{suffix}")


class Outputs:
    """The files to write, as absolute paths, because the program may change its folder.

    Raise OSError if one cannot be written.
    """

    def __init__(self, options: argparse.Namespace, name: str) -> None:
        self.rank = rank_of(os.environ)
        self.report: str | None = None if options.output is None else self._path(options.output)
        self.trace: str | None = None if options.trace is None else self._path(options.trace)
        self.json: str | None = None if options.json is None else self._path(options.json)
        self._free = None if options.no_report or options.output else self._path(f"{name}.report.html")
        for path in (self.report, self.trace, self.json, self._free):
            if path is not None:
                require_writable(path)

    def _path(self, path: str) -> str:
        return os.path.abspath(with_rank(path, self.rank))

    def write_report(self, prof: Any, title: str) -> None:
        """Write the report, if one is wanted. A path that was not chosen by the user is created, and kept if all goes
        well."""
        path = self.report or (self._free and self._reserve(self._free))
        if path is None:
            return
        try:
            prof.write_report(path, title=title)
        except BaseException:
            if self.report is None:
                with suppress(OSError):
                    os.unlink(path)
            raise
        self.report = path

    def _reserve(self, path: str) -> str:
        stem, mark, suffix = path.rpartition(".report")
        for number in range(1, MOST_REPORTS):
            name = path if number == 1 else f"{stem}{mark}-{number}{suffix}"
            with suppress(FileExistsError):
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
                return name
        raise FileExistsError(f"{path} and {MOST_REPORTS - 2:,} more reports exist; name another with -o")


# Running --------------------------------------------------------------------------------------------------------------


class Stopped(BaseException):
    """A deadly signal while results are written."""


class Run:
    """A program, its recording and its results."""

    def __init__(
        self, program: PythonProgram, outputs: Outputs, options: argparse.Namespace, messages: Messages
    ) -> None:
        settings = {
            "record_shapes": options.shapes,
            "with_stack": options.stacks,
            "profile_memory": options.memory,
            "counters": options.counters,
            "sample_stacks": not options.no_samples,
        }
        self._program = program
        self._outputs = outputs
        self._options = options
        self._messages = messages
        self._tell = messages.tell
        self._start = Start([self._end_by_signal])
        self._start.set_arguments(program.argv)
        self._pid = os.getpid()
        self._finished = False
        self._writing = False
        self._interrupted = -math.inf  # when Ctrl-C ended the program
        self._signalled: tuple[int, float] | None = None  # the first deadly signal, and when it came
        self._forking = threading.local()  # the signal mask of a thread that forks
        self._recording = Recording(
            options.steps or options.seconds,
            settings,
            self._torch_profile,
            self._tell,
            rank=self._outputs.rank,
            stops=options.stop,
        )

    def run(self) -> Any:
        """Run the program to its end, write the results, and return the program's exit status."""
        self._handle_signals()
        with _told_warnings(self._tell):
            self._recording.begin()
        after_import("numpy", self._start.keep)  # the report needs it
        problem = self._run_program()
        if problem is None or isinstance(problem, SystemExit):
            try:
                wait_for_threads()
            except BaseException as interruption:  # Ctrl-C, or what a signal handler of the program raised
                problem = interruption
        status = exit_status(problem)
        if os.getpid() == self._pid:
            self._finish(measures=problem is None or isinstance(problem, SystemExit))
            if self._signalled is not None:
                _end_by(self._signalled[0])
        if type(problem) is KeyboardInterrupt:
            _end_by_interrupt()
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
                    self._interrupted = monotonic()
                    _set_interrupt(self._interrupt)
                return program.problem
            except KeyboardInterrupt as copy:
                if not isinstance(program.problem, KeyboardInterrupt):
                    program.problem = copy

    def _torch_profile(self) -> Any:
        self._start.keep(sys.modules["torch"])
        return self._start.import_module("flopscope.torch").profile

    def _handle_signals(self) -> None:
        """Write the results when a signal ends the program. A program with a handler of its own keeps it."""
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
        if os.getpid() == self._pid and not self._finished:
            first, self._signalled = self._signalled, self._signalled or (number, monotonic())
            if first is None and not self._writing:
                sys.settrace(None)
                self._finish()
            elif first is None or monotonic() - first[1] < SAME_SIGNAL:
                return  # the results are being written
            else:
                raise Stopped
            if self._recording.has_stopped:
                with suppress(Exception):  # closed, or of the program
                    sys.stdout.flush()
                os._exit(0)
        _end_by(number)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Let Ctrl-C end the writing of results, but not as a copy of the one that ended the program."""
        if monotonic() - self._interrupted >= SAME_SIGNAL:
            raise KeyboardInterrupt

    # Results ----------------------------------------------------------------------------------------------------------

    def _finish(self, measures: bool = False) -> None:
        """End the recording and write the results. A failure prints a message and has no other effect.

        measures: measure the CPU first, if its peaks are needed and unknown.
        """
        if self._finished or self._writing:
            return
        self._writing = True
        try:
            self._recording.end_samples()
            with self._start, _interruptible(self._interrupt), _told_warnings(self._tell):
                if self._signalled is not None:
                    sleep(SECOND_COPY)
                Context().run(self._write, measures)  # without the program's settings of NumPy and decimal
        except KeyboardInterrupt:
            self._tell("interrupted: the results are incomplete")
        except Stopped:
            self._tell("stopped by a signal: the results are incomplete")
        except BaseException as problem:
            self._tell(_described(problem))
        finally:
            self._finished, self._writing = True, False

    def _write(self, measures: bool) -> None:
        prof = self._recording.end()
        if prof is None:
            self._tell(f"nothing was recorded: {self._recording.why_nothing}")
            return
        if measures and self._outputs.rank is None:
            self._attempt("measurement of this CPU's peaks", lambda: _measure_cpu(prof, self._tell))
        self._hand_over(prof)

    def _hand_over(self, prof: Any) -> None:
        rank = self._outputs.rank
        leads = rank is None or rank["rank"] == 0
        if leads and not self._options.no_summary and self._messages.is_open:
            self._attempt("summary", lambda: self._print_summary(prof))
        trace, json = self._outputs.trace, self._outputs.json
        if json is not None and self._attempt("JSON", lambda: write_json(json, prof.summary().to_dict())) and leads:
            self._tell(f"JSON: {json}")
        if trace is not None and self._attempt("trace", lambda: prof.export_chrome_trace(trace)) and leads:
            self._tell(f"trace: {trace}")
        written = self._attempt("report", lambda: self._outputs.write_report(prof, self._title()))
        if written and leads and self._outputs.report is not None:
            self._tell(f"report: {self._outputs.report}")
        if leads and rank is not None:
            self._say_how_to_join()

    def _print_summary(self, prof: Any) -> None:
        from flopscope.show.fitted import terminal_width

        self._messages.write(f"{prof.summary().fitted(terminal_width(self._messages))}\n")

    def _title(self) -> str:
        """Return the title of the report: the program's and the rank. Arguments may be secret."""
        name, rank = self._program.title, self._outputs.rank
        return name if rank is None else f"{name}, rank {rank['rank']}"

    def _say_how_to_join(self) -> None:
        trace = self._options.trace
        if trace is None:
            self._tell("each rank has its own results; with --trace FILE.json.gz, `flopscope ranks` joins them")
        else:
            pattern = with_rank(trace, {"rank": 0}).replace(".rank0", ".rank*")
            self._tell(f"all ranks together: flopscope ranks {pattern}")

    def _attempt(self, what: str, act: Callable[[], object]) -> bool:
        """Make one of the results. If it fails, print why and return False."""
        try:
            act()
        except (KeyboardInterrupt, Stopped):
            raise
        except BaseException as problem:
            self._tell(f"there is no {what}: {_described(problem)}")
            return False
        return True


def _measure_cpu(prof: Any, tell: Callable[[str], object]) -> None:
    """Measure the peaks of this CPU if they rate work of the profile and were never measured."""
    from flopscope.answers.analysis import analysis_of
    from flopscope.answers.sentences.notes import without_peaks
    from flopscope.results.results import forget
    from flopscope.support.device import measure_peaks

    analysis = analysis_of(prof, "summary")
    if analysis.on_device or not without_peaks(analysis):
        return
    tell("this CPU's peaks are measured now, once for this machine, which takes about 5 s")
    try:
        measure_peaks("cpu")
        forget(prof)
    except (KeyboardInterrupt, RuntimeError) as problem:
        tell(f"this CPU's peaks are not measured: {problem or 'interrupted'}")


def _described(problem: BaseException) -> str:
    """Return what a failure says, never nothing."""
    kind, text = type(problem).__name__, ""
    with suppress(Exception):
        text = str(problem)
    if not text:
        return kind
    ours = isinstance(problem, (OSError, ValueError, RuntimeError, MemoryError))
    return text if ours else f"{kind}: {text}"


def _set_interrupt(handler: Any) -> Any:
    """Set the handler of Ctrl-C, unless it is ignored, and return the one before, None if nothing was set."""
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, None):
        return None
    with suppress(ValueError):  # outside of the main thread
        signal.signal(signal.SIGINT, handler)
        return before
    return None


@contextmanager
def _interruptible(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, whatever the program made of it."""
    before = _set_interrupt(handler)
    try:
        yield
    finally:
        if before is not None:
            _set_interrupt(before)


@contextmanager
def _told_warnings(tell: Callable[[object], None]) -> Iterator[None]:
    """Print warnings of flopscope as messages."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: tell(message)
        warnings.simplefilter("default")
        yield


def _end_by(number: int) -> None:
    """End the process by a signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _end_by_interrupt() -> NoReturn:
    """Raise KeyboardInterrupt so that the interpreter ends by SIGINT; it has been printed already."""
    sys.excepthook = lambda *_: None
    raise KeyboardInterrupt

"""The process that reports what ``flopscope run`` recorded: it prints the summary and writes the files."""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import re
import select
import shutil
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from flopscope.cli.reporter import DONE, LISTENER, STOPS
from flopscope.record.kineto_text import add_member
from flopscope.results.head import RUN_MEMBER
from flopscope.support.files import COMPRESSION, replacing, require_writable, write_json
from flopscope.support.process import rank_in
from flopscope.support.safe import printable
from flopscope.support.statistics import median

if TYPE_CHECKING:
    from flopscope.cli.recorded import Recorded

NAME = "flopscope run"
MOST_REPORTS = 10_000
PAUSE = 0.1  # seconds for the program before each import
PIECE = 1 << 20  # bytes that are copied at once
CREDENTIALS = struct.Struct("3i")  # process, user and group at the other end of a Unix socket
ROOMS = ("cli.recorded", "answers.analysis", "show.summary", "show.page.page")
"""Modules that a report needs; they are imported while the program runs."""


def tell(message: object) -> None:
    """Print a message as a line on standard error, if somebody still reads that: of `| head`, nobody may."""
    with suppress(OSError):
        write(f"{NAME}: {printable(str(message))}\n")


def write(text: str) -> None:
    """Print a text on standard error. Raise OSError if that fails."""
    if sys.stderr is not None:
        os.set_blocking(sys.stderr.fileno(), True)  # the program has the same open file
        sys.stderr.write(text)
        sys.stderr.flush()


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


@dataclass
class Outputs:
    """The files to write, as absolute paths."""

    rank: dict[str, int] | None
    report: str | None
    trace: str | None
    json: str | None
    free: str | None
    """The report to write if no other one has the name."""
    pattern: str | None
    """The traces of all ranks, as the user named them."""

    @classmethod
    def of(cls, options: argparse.Namespace, name: str) -> Outputs:
        """Return the files that are wanted of a program. Raise OSError if one cannot be written."""
        rank = rank_of(os.environ)
        free = None if options.no_report or options.output else f"{name}.report.html"
        pattern = options.trace and with_rank(options.trace, {"rank": 0}).replace(".rank0", ".rank*")
        paths = {"report": options.output, "trace": options.trace, "json": options.json, "free": free}
        for what, path in paths.items():
            if path is not None:
                paths[what] = os.path.abspath(with_rank(path, rank))
                require_writable(paths[what])
        return cls(rank, **paths, pattern=pattern)

    def write_report(self, prof: Any, title: str) -> None:
        """Write the report, if one is wanted. A path that was not chosen by the user is created, and kept if all goes
        well."""
        path = self.report or (self.free and _reserve(self.free))
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


def _reserve(path: str) -> str:
    stem, mark, suffix = path.rpartition(".report")
    for number in range(1, MOST_REPORTS):
        name = path if number == 1 else f"{stem}{mark}-{number}{suffix}"
        with suppress(FileExistsError):
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            return name
    raise FileExistsError(f"{path} and {MOST_REPORTS - 2:,} more reports exist; name another with -o")


# The process ----------------------------------------------------------------------------------------------------------


class Stopped(BaseException):
    """The program's process was told to end while results are written."""


def main(pid: int) -> None:
    """Report for a process, which calls at the descriptor LISTENER, or end with it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number, stop in STOPS.items():
        signal.signal(number, signal.SIG_IGN)  # one for all processes; the program's process decides what becomes of it
        signal.signal(stop, _stop)
    warnings.showwarning = lambda message, *_: tell(message)
    warnings.simplefilter("default")
    gc.disable()
    with suppress(ProcessLookupError, ConnectionError), socket.socket(fileno=LISTENER) as listener:  # it is gone
        _serve(listener, os.pidfd_open(pid), pid)
    os._exit(0)  # what was read of a long recording would be released piece by piece


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt if number == signal.SIGUSR1 else Stopped


def _serve(listener: socket.socket, process: int, pid: int) -> None:
    waited_for = [listener.fileno(), process]
    for room in ROOMS:
        if not select.select(waited_for, [], [], PAUSE)[0]:  # a short program needs none of them
            import_module(f"flopscope.{room}")
    while listener.fileno() in select.select(waited_for, [], [])[0]:
        with listener.accept()[0] as connection, connection.makefile("rb") as file:
            peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
            if CREDENTIALS.unpack(peer)[0] != pid:
                continue
            about: dict[str, Any] = {}
            try:
                about = json.loads(file.readline() or b"{}")
                if "tell" in about:
                    tell(about["tell"])
                if "outputs" in about:
                    Report(about, file).make()
            except KeyboardInterrupt:
                tell("interrupted: the results are incomplete")
            except Stopped:
                tell("stopped by a signal: the results are incomplete")
            except BaseException as problem:
                tell(_described(problem))
            if "outputs" in about:
                connection.sendall(DONE)
                return


class Report:
    """What becomes of a recording."""

    def __init__(self, about: Mapping[str, Any], file: IO[bytes]) -> None:
        steps = _run_steps(about["steps"]) if about["steps"] else {}
        self._about = {**about, "steps": steps}
        self._outputs = Outputs(**about["outputs"])
        rank = self._outputs.rank
        self._leads = rank is None or rank["rank"] == 0
        self._kineto, *long = [_kept(file, size) for size in about["texts"]] or [None]  # as torch writes them
        if long:
            _attempt("account of long steps", lambda: steps.update(_of_long_steps(long, self._about)))
        steps.pop("recorded_long", None)
        if self._kineto is not None and steps:
            add_member(self._kineto, RUN_MEMBER, steps)
        self._text = _kept(file)

    def make(self) -> None:
        """Make all results; a failure of one prints a message and has no other effect."""
        about, prof, why = self._about, None, self._about["why_nothing"]
        path = self._text or self._kineto
        if path is not None:
            from flopscope.cli.recorded import read_recorded

            prof, why = read_recorded(path, about)
        if prof is None:
            lost = "the program's process had no memory left, or was ended, to hand over what was recorded"
            return tell(f"nothing was recorded: {why or lost}")
        if about["measures"] and self._outputs.rank is None:
            _attempt("measurement of this CPU's peaks", lambda: _measure_cpu(prof))
        outputs, leads = self._outputs, self._leads
        trace, path = outputs.trace, outputs.json
        if leads and about["summary"] and sys.stderr is not None:
            from flopscope.show.fitted import terminal_width

            _attempt("summary", lambda: write(f"{prof.summary().fitted(terminal_width(sys.stderr))}\n"))
        if path is not None and _attempt("JSON", lambda: write_json(path, prof.summary().to_dict())) and leads:
            tell(f"JSON: {path}")
        if trace is not None and _attempt("trace", lambda: self._write_trace(prof, trace)) and leads:
            tell(f"trace: {trace}")
        if _attempt("report", lambda: outputs.write_report(prof, about["title"])) and leads and outputs.report:
            tell(f"report: {outputs.report}")
        if leads and outputs.rank is not None:
            alone = "each rank has its own results; with --trace FILE.json.gz, `flopscope ranks` joins them"
            tell(f"all ranks together: flopscope ranks {outputs.pattern}" if outputs.pattern else alone)

    def _write_trace(self, prof: Recorded, path: str) -> None:
        if self._kineto is None:
            prof.export_chrome_trace(path)
            return
        with replacing(path, "wb") as file, open(self._kineto, "rb") as text:
            name, suffix = os.path.splitext(os.path.basename(path))
            packed = suffix == ".gz"
            with gzip.GzipFile(name, "wb", COMPRESSION, file) if packed else nullcontext(file) as target:
                shutil.copyfileobj(text, target)


def _run_steps(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of RunSteps, by what Windows.facts() has."""
    from flopscope.measuring.distribution import median_interval
    from flopscope.results.head import LONG

    # There, "bare" is the times themselves; a trace has no NaN, which is not JSON.
    found = {name: value for name, value in facts.items() if name != "bare" and value == value}
    if len(times := facts["bare"]) > 2:  # fewer have no interval
        low, high = median_interval(times)
        found |= {"bare": (usual := median(times)), "low": low, "high": high}
        if long := [time for time in times if time >= LONG * usual]:
            count = round(len(long) / len(times) * facts["bare_steps"])  # of more steps than are kept, as many
            found |= {"long_steps": count, "long": median(long), "long_share": sum(long) / sum(times)}
    return found


def _of_long_steps(paths: Sequence[Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of RunSteps on the long steps in recordings."""
    from flopscope.answers.accounting import of_long_step
    from flopscope.answers.analysis import analysis_of
    from flopscope.cli.recorded import read_recorded

    most = list[tuple[float, str, float]]()
    for path, took in zip(paths, about["steps"]["recorded_long"], strict=True):
        prof, why = read_recorded(path, about)
        if prof is None:
            raise ValueError(why)
        most += [(took, *one) for one in of_long_step(analysis_of(prof, "summary"))]
    return {"long_most": most}


def _kept(file: IO[bytes], size: int = -1) -> str | None:
    """Return the path of a file in memory that holds the next bytes, or all, of another; None if there are none."""
    memory, left = os.memfd_create("flopscope"), size
    while left and (part := file.read(PIECE if size < 0 else min(left, PIECE))):
        os.write(memory, part)
        left -= len(part)
    return f"/proc/self/fd/{memory}" if os.fstat(memory).st_size else None


def _attempt(what: str, act: Callable[[], object]) -> bool:
    """Make one of the results. If it fails, print why and return False."""
    try:
        act()
    except (KeyboardInterrupt, Stopped):
        raise
    except BaseException as problem:
        tell(f"there is no {what}: {_described(problem)}")
        return False
    return True


def _measure_cpu(prof: Recorded) -> None:
    """Measure the peaks of this CPU if they rate work of the profile and were never measured."""
    from flopscope.answers.analysis import analysis_of
    from flopscope.answers.notes import without_peaks
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
    kind, text = type(problem).__name__, str(problem)
    if not text:
        return kind
    ours = isinstance(problem, (OSError, ValueError, RuntimeError, MemoryError))
    return text if ours else f"{kind}: {text}"

"""Starting the program in fresh processes, waiting for what they find, and ending them."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flopscope.measuring.trying.inside import TRY, Job, Kind, Record
from flopscope.measuring.trying.look import Seen
from flopscope.measuring.trying.switches import SWITCHES
from flopscope.support.files import write_json
from flopscope.support.safe import printable

GRACE = 5.0
"""Seconds that a process may take to end after its record is written, or after it was told to."""
POLL = 0.02
INTERPRETERS = ("torchrun", "accelerate")
"""Launchers that start Python themselves."""


@dataclass(frozen=True)
class Program:
    """A program as it stands on the command line."""

    target: str
    arguments: tuple[str, ...] = ()
    option: str = ""
    """ "-m", "-c" or ""."""
    launcher: tuple[str, ...] = ()
    """The command that starts its processes, such as torchrun."""

    @property
    def title(self) -> str:
        """Return its name, without arguments, which may be secret."""
        return "python -c" if self.option == "-c" else os.path.basename(self.target)


class Processes:
    """Runs of a program, one after the other. Their files are in ``folder``, which is temporary."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.count = 0
        """Processes that were started, launches of several ranks counted once."""

    def run(
        self, kind: Kind, switches: Sequence[str], seen: Seen, warm: int = 0, steps: int = 0, limit: float = 600.0
    ) -> Record:
        """Run the program once. The record says what failed, if something did. limit: in seconds."""
        path = self._folder / f"record-{self.count}.json"
        target, arguments, option = self._program.target, list(self._program.arguments), self._program.option
        job = Job(target, arguments, option, str(path), kind, list(switches), asdict(seen), warm, steps)
        written = self._folder / f"job-{self.count}.json"
        write_json(written, asdict(job))
        begin = time.monotonic()
        status, log = self._run(["try", "--job", str(written)], self._environment(switches, seen), limit, path)
        if not path.exists():
            return Record(problem=explained(status, limit, log), lasted=time.monotonic() - begin)
        record = Record(**json.loads(path.read_text(encoding="utf-8")))
        record.lasted = time.monotonic() - begin
        return record

    def trace(self, steps: tuple[int, int] | None, limit: float, seen: Seen) -> tuple[Path | None, str]:
        """Record a trace of some steps, or of the whole program; return its file, or None and why there is none."""
        path = self._folder / "trace.json"
        window = [] if steps is None else ["--steps", f"{steps[0]}:{steps[1]}", "--stop"]
        words = ["run", *window, "--no-report", "--no-summary", "--no-samples", "--trace", str(path)]
        words += [self._program.option] if self._program.option else []
        words += [self._program.target, *self._program.arguments]
        status, log = self._run(words, self._environment((), seen), limit, None)
        found = [one for one in (path, path.with_name("trace.rank0.json")) if one.exists()]
        return (found[0], "") if found else (None, explained(status, limit, log))

    def _environment(self, switches: Sequence[str], seen: Seen) -> dict[str, str]:
        environment = {**os.environ, TRY: "1"}
        environment.setdefault("PYTHONHASHSEED", "0")
        for name in switches:
            environment.update(SWITCHES[name].environment(seen, environment))
        return environment

    def _run(
        self, words: Sequence[str], environment: Mapping[str, str], limit: float, record: Path | None
    ) -> tuple[int | None, Path]:
        """Run a command of flopscope; return its status, None if it was ended at the limit, and its output."""
        launcher = list(self._program.launcher)
        runs_python = bool(launcher) and os.path.basename(launcher[0]) in INTERPRETERS
        command = [*launcher, *([] if runs_python else [sys.executable]), "-m", "flopscope", *words]
        log = self._folder / f"log-{self.count}.txt"
        with open(log, "wb") as output:
            self.count += 1
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=dict(environment), start_new_session=True,
            )  # fmt: skip
            try:
                return waited(process, record, limit), log
            finally:
                end(process, gently=bool(launcher))


def waited(process: subprocess.Popen[Any], record: Path | None, limit: float) -> int | None:
    """Wait for a process to end, for GRACE after its record is there. Return its status, 0 if it goes on, None at the
    limit."""
    begin, written = time.monotonic(), math.inf
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(POLL)
        now = time.monotonic()
        if record is not None and record.exists():
            written = min(written, now)
        if now - written >= GRACE:
            return 0
        if now - begin > limit:
            return None


def end(process: subprocess.Popen[Any], gently: bool) -> None:
    """End a process and those that it has started. gently: let a launcher end its own first."""
    if gently and process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def explained(status: int | None, limit: float, log: Path) -> str:
    """Return why a process has left no record."""
    if status is None:
        return f"it did not get to its last measured step within {limit:.0f} s"
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = f": {printable(lines[-1][:300])}" if lines else ""
    if status < 0:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(-status).name}{last}"
    return f"it ended with status {status}{last}"


def launcher_words(text: str | None) -> tuple[str, ...]:
    """Return the words of a launcher's command. Raise ValueError if there is none of this name."""
    words = tuple(shlex.split(text or ""))
    if text is not None and (not words or shutil.which(words[0]) is None):
        raise ValueError(f"--launcher {text!r}: there is no command {words[0] if words else ''!r}")
    return words

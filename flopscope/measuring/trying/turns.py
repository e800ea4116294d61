"""Whose turn it is: several runs get ready side by side, and one at a time is timed, while the others are stopped.

Most of a run is its start: Python, imports, the building of a model, compiling. The starts of several runs can overlap,
if nothing of them happens during measured steps. A run that is ready waits at its gate, a file that this process has
locked. When its turn comes, the process groups of all other runs are stopped by SIGSTOP, and the gate is unlocked. Runs
that are ready meanwhile are timed next. Then all go on, for some time at least: it takes long to stop a process that a
driver works for, as it creates or destroys a context.

A program that computes on a GPU leaves most CPUs idle while it is timed. Runs of it that have not used the GPU yet,
which import and build, go on then, as far as there are CPUs. Before a run initializes CUDA, it passes the door: a file
that is locked while another is timed.
"""

from __future__ import annotations

import fcntl
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flopscope.support.lock import alone

SETTLED = 0.05
"""Seconds for what stopped processes had begun on a GPU to end. The run that is timed then makes another warm step."""
FREE = 1.5
"""Seconds for which runs go on before they are stopped again: more of them get ready, and are timed one by one."""
MOST_STOPPING = 5.0
"""Seconds to wait for a process to stop or to have ended: one that gives back a GPU's memory ends late."""


class Turns:
    """At most ``jobs`` runs at once, of one trial or of several. One at a time is timed.

    tell: prints a line.
    """

    def __init__(self, jobs: int = 1, tell: Callable[[str], object] | None = None) -> None:
        self.jobs = jobs
        self._tell = tell
        self._slots = threading.Semaphore(jobs)
        self._turn = threading.Lock()  # of the run that is timed
        self._still = threading.Lock()  # held while runs are stopped, and while one begins
        self._changing = threading.Lock()
        self._ready = 0  # runs that wait for their turn, and the one that has it
        self._held: set[int] = set()  # process groups that are stopped
        self._held_at, self._free_until = 0.0, 0.0
        self._under_way: dict[int, Path | None] = {}  # and the file that a run touches before it passes the door
        self._door = tempfile.NamedTemporaryFile(prefix="flopscope-try-")  # noqa: SIM115  # as long as this object
        self._over = False
        self._stopped = 0.0

    @property
    def door(self) -> str:
        """The file that runs lock for a moment before they use the GPU."""
        return self._door.name

    def clock(self) -> float:
        """Return the seconds that have gone by, without those for which runs were stopped."""
        return (self._held_at or time.monotonic()) - self._stopped

    @contextmanager
    def run(
        self, start: Callable[[], subprocess.Popen[Any]], latest: float = math.inf, passed: Path | None = None
    ) -> Iterator[subprocess.Popen[Any]]:
        """Start a process, of which the block waits for the end.

        passed: the file that it touches before it passes the door; None: it does not wait there.

        Raise Ended if all runs have been ended, Late if it cannot start before ``latest``, a time.monotonic().
        """
        with self._slots:
            with self._still:
                if self._over:
                    raise Ended
                if time.monotonic() > latest:
                    raise Late
                process = start()
                self._under_way[process.pid] = passed
                if self._over:  # since the look above
                    _signal(process.pid, signal.SIGKILL)
            try:
                yield process
            finally:
                self._under_way.pop(process.pid, None)
            if self._over:
                raise Ended

    @contextmanager
    def timed(self, process: subprocess.Popen[Any], spare: int = 0) -> Iterator[None]:
        """Have the other runs stopped during the block, but for ``spare`` that have not passed the door.

        It holds the lock of measurements. All runs that are ready by then have their turns before the others go on.
        """
        with self._changing:
            self._ready += 1
        with self._turn:
            try:
                if not self._held_at:
                    self._hold(process, spare)
                self._held.discard(process.pid)
                _signal(process.pid, signal.SIGCONT)
                with alone(self._tell):
                    if self._held:
                        time.sleep(SETTLED)
                    yield
            finally:
                with self._changing:
                    self._ready -= 1
                if self._ready:
                    self._stop({process.pid})
                else:
                    self._release()

    def _hold(self, process: subprocess.Popen[Any], spare: int) -> None:
        """Stop the other runs, after they had some time."""
        if len(self._under_way) > self._ready:
            time.sleep(max(self._free_until - time.monotonic(), 0.0))
        self._still.acquire()
        fcntl.flock(self._door, fcntl.LOCK_EX)
        self._held_at = time.monotonic()
        runs = list(self._under_way.items())
        before = [pid for pid, passed in runs if passed is not None and not passed.exists()]
        self._stop({pid for pid, _ in runs} - {process.pid, *before[:spare]})

    def _stop(self, groups: Set[int]) -> None:
        self._held |= groups
        for group in groups:
            _signal(group, signal.SIGSTOP)
        for group in groups:
            _await_stopped(group)

    def _release(self) -> None:
        """Let all runs go on."""
        for group in self._held:
            _signal(group, signal.SIGCONT)
        self._held.clear()
        if self._held_at:
            now = time.monotonic()
            self._stopped += now - self._held_at
            self._held_at, self._free_until = 0.0, now + FREE
            fcntl.flock(self._door, fcntl.LOCK_UN)
            self._still.release()

    def side_by_side(self, calls: Sequence[Callable[[], object]]) -> None:
        """Make calls, which run programs: each in a thread of its own if several runs may be under way at once."""
        if self.jobs == 1 or len(calls) < 2:
            for call in calls:
                call()
            return
        with ThreadPoolExecutor(len(calls)) as threads:
            made = [threads.submit(call) for call in calls]
            try:
                for one in made:
                    one.result()
            except (KeyboardInterrupt, SystemExit):
                self.end()
                raise

    def end(self) -> None:
        """End all runs, and let no further ones begin."""
        self._over = True
        for group in list(self._under_way):
            _signal(group, signal.SIGKILL)


class Ended(RuntimeError):
    """All runs have been ended."""


class Late(RuntimeError):
    """The time in which a run was to start is over."""


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _await_stopped(pid: int) -> None:
    """Wait until a process is stopped or has ended."""
    end = time.monotonic() + MOST_STOPPING
    while _state(pid) not in ("T", "Z", "") and time.monotonic() < end:
        time.sleep(0.002)


def _state(pid: int) -> str:
    """Return the letter of a process's state; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""

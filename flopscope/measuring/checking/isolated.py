"""A bench in a process of its own, in which nothing but the kernel is: it may crash, hang or print.

The other process is started, not forked: libraries of GPUs do not survive a fork, and nothing of the parent's memory,
in which the reference and what is expected are, is there. It is given values and returns values and times; what it says
of its times is believed, as it times by the clock of flopscope, which was imported before the kernel.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from flopscope.measuring.checking.bench import Bench
from flopscope.measuring.sampling import NoTime

LOADING = 300.0
"""Seconds in which the libraries and the kernel are imported, at most."""


class Crashed(Exception):
    """Raised if the process of a kernel ended or did not answer. The text says how."""


class Raised(RuntimeError):
    """Raised if a kernel raises an exception in its process. The text has its class."""


class Isolated:
    """The methods of a Bench of one function, called in another process.

    load, name: ``load(name)`` returns the function there. seconds: the longest time of a call.
    """

    def __init__(
        self, load: Callable[[str], Any], name: str, args: Sequence[Any], without: frozenset[int], seconds: float
    ) -> None:
        self._seconds = max(seconds, LOADING)
        self._ours, theirs = multiprocessing.Pipe()
        start = (theirs, load, name, pickle.dumps(args), [without])
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=start, daemon=True)
        self._process.start()
        theirs.close()
        try:
            self._answer()  # once the kernel is loaded
        except Crashed as problem:
            raise RuntimeError(f"{name} cannot be loaded: {problem}") from None
        self._seconds = seconds

    def __getattr__(self, method: str) -> Any:
        if method not in ("outcome", "begin", "end", "sample", "keep", "kept", "counted", "read"):
            raise AttributeError(method)
        return partial(self._ask, method)

    def close(self) -> None:
        self._ours.close()
        self._process.kill()
        self._process.join()

    def _ask(self, method: str, *arguments: Any) -> Any:
        if not self._process.is_alive() and method == "end":
            return None
        with suppress(OSError):  # it has ended, as _answer() says
            self._ours.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            if not self._ours.poll(self._seconds):
                self.close()
                raise Crashed(f"it did not return within {self._seconds:g} s")
            answer = self._ours.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            raise Crashed(f"its process {how}") from None
        if isinstance(answer, (NoTime, Raised)):
            raise answer
        return answer


def _serve(connection: Any, load: Callable[[str], Any], name: str, args: bytes, without: Any) -> None:
    """Answer the calls of an Isolated, until it closes the connection."""
    os.dup2(2, 1)  # what the kernel prints is no output of ours
    bench: Any = None
    method, arguments, mine = "", (), os.getpid()
    answer: Any
    while True:
        try:
            if bench is None:
                answer, bench = None, Bench([load(name)], pickle.loads(args), without)
            else:
                answer = getattr(bench, method)(*arguments)
            if os.getpid() != mine:  # the kernel has forked: only one of the two may answer
                os._exit(0)
            answer = None if method == "begin" else answer
        except NoTime as problem:
            answer = NoTime(str(problem))
        except Exception as problem:
            answer = Raised(f"{type(problem).__name__}: {problem}" if bench is not None else str(problem))
        try:
            connection.send(answer)
            method, arguments = connection.recv()
        except (EOFError, OSError):
            return

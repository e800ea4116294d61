"""The process that reports what ``flopscope run`` recorded, as the program's process sees it.

It is started before the program, and so inherits nothing of it. It is no child of the program's process, is in a
session of its own, and has no standard input. No descriptor of it is open in the program's process: that calls an
abstract Unix socket, whatever the program has done to its files, its folder and its user.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from flopscope._core import Store

LISTENER = 3
"""The descriptor at which the process listens."""
STOPS = {signal.SIGINT: signal.SIGUSR1, signal.SIGTERM: signal.SIGUSR2, signal.SIGHUP: signal.SIGUSR2}
"""What the process is sent to end its work, by the signal that the program's process has received."""
DONE = b"."
"""The answer once all results are out."""
NO_OPS = "the program ran no op of torch or flopscope in this process"
LEAST_SAMPLED = 10_000_000
"""ns; shorter lines are not significant."""


def why_no_lines(samples: Store | None) -> str:
    """Return why a recording without ops has no lines either, as a clause; "" if it has some."""
    if samples is None:
        return "; without --no-samples, the summary says where its time went, by line"
    if sum(time for _, _, time, *_ in samples.lines()["groups"].values()) < LEAST_SAMPLED:
        return f", and took less than {LEAST_SAMPLED // 1_000_000} ms"
    return ""


class Reporter:
    """The process that reports for this one."""

    def __init__(self) -> None:
        self._address = f"\0flopscope-{os.urandom(16).hex()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._address)
            listener.listen()
            self._pid = _start(listener)

    def tell(self, message: object) -> None:
        """Have a message printed. Do nothing in a forked child of the program."""
        with suppress(Exception), self._call() as connection:
            connection.sendall(json.dumps({"tell": str(message)}).encode())

    def report(
        self, about: Mapping[str, Any], send: Callable[[socket.socket], object], release: Callable[[], object]
    ) -> None:
        """Pass on what was recorded, and wait until the results are out.

        ``send`` writes the text of the recording; ``release`` lets go of it, while the results are made.
        """
        try:
            with self._call() as connection:
                connection.sendall(json.dumps(about).encode() + b"\n")
                send(connection)
                connection.shutdown(socket.SHUT_WR)
                release()
                done = connection.recv(1) == DONE
        except ConnectionError:
            done = False
        if not done:
            with suppress(OSError):
                os.write(2, b"flopscope run: the process that reports has ended: the results are incomplete\n")

    def stop(self, number: int) -> None:
        """Have the results left incomplete, because of a signal."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, STOPS[signal.Signals(number)])

    @contextmanager
    def _call(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._address)
            yield connection


def _start(listener: socket.socket) -> int:
    """Start the process with this one's search path, which is flopscope's own, and return its id."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from flopscope.cli.reporting import main; main({os.getpid()})"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            grandchild = os.fork()
            if grandchild == 0:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 0)
                os.dup2(nothing, 1)
                os.dup2(listener.fileno(), LISTENER)
                os.set_inheritable(LISTENER, True)
                os.closerange(LISTENER + 1, 1 << 16)
                os.execv(sys.executable, [sys.executable, "-c", code])
            os.write(writing, str(grandchild).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        number = int(file.read() or -1)
    os.waitpid(child, 0)
    return number


@contextmanager
def told_warnings(tell: Callable[[str], None]) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: tell(str(message))
        warnings.simplefilter("default")
        yield

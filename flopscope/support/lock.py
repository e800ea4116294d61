"""Locks between processes, by flock(2): one process at a time holds the lock of a file or a folder."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SILENT_SECONDS = 1.0  # of waiting, before it is reported
POLL_SECONDS = 0.05  # between attempts to take a lock that is not waited for without end


@contextmanager
def locked(
    descriptor: int, report: Callable[[], object] | None = None, *, most_seconds: float | None = None
) -> Iterator[None]:
    """Hold the lock of an open file or folder during the block, and wait for it before.

    report: called from another thread once the wait takes longer than a second. most_seconds: to wait, where other
    users can take the lock and keep it; then TimeoutError. OSError where the file system has no locks. A process that
    ends gives its locks back. A process that is forked in the block does not hold the lock.
    """
    if most_seconds is None:
        _wait(descriptor, report)
    else:
        _poll(descriptor, time.monotonic() + most_seconds)
    owner = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == owner:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough: a forked process has the file open still


def _wait(descriptor: int, report: Callable[[], object] | None) -> None:
    """Take the lock. It is not polled: polling would disturb what its holder measures."""
    if report is None:
        return fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    timer = threading.Timer(SILENT_SECONDS, report)
    timer.daemon = True
    timer.start()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        timer.cancel()
        timer.join()


def _poll(descriptor: int, deadline: float) -> None:
    """Take the lock, or raise TimeoutError at the deadline."""
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError("another process holds the lock") from None
        time.sleep(POLL_SECONDS)

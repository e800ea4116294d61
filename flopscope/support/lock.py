"""Locks between processes, by flock(2): one process at a time holds the lock of a file or a folder.

alone() allows one measurement at a time on this machine, also among the workers of pytest-xdist.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

SILENT_SECONDS = 1.0  # of waiting, before it is reported
_owner = threading.local()  # whether this thread measures: waiting for itself would be a deadlock


@contextmanager
def locked(descriptor: int, report: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold the lock of an open file or folder during the block, and wait for it before.

    report: called from another thread once the wait takes longer than a second; the lock is not polled, which would
    disturb what its holder measures. OSError where the file system has no locks. A process that ends gives its locks
    back. A process that is forked in the block does not hold the lock.
    """
    timer = threading.Timer(SILENT_SECONDS, report or bool)
    timer.daemon = True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        timer.start()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        finally:
            timer.cancel()
            timer.join()
    owner = os.getpid()
    try:
        yield
    finally:
        if os.getpid() == owner:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing is not enough: a forked process has the file open still


# The lock for measurements --------------------------------------------------------------------------------------------


@contextmanager
def alone(write_line: Callable[[str], object] | None = None) -> Iterator[None]:
    """Hold the lock in the block, after waiting for other processes of this user that measure.

    The lock is released at the end of the block, or of the process if that ends before.

    write_line: called with a message when the wait takes longer than a second.

    Raises RuntimeError inside another such block, OSError if the lock file cannot be opened. A symbolic link is not
    followed, and nothing is written to the file.
    """
    import tempfile

    if getattr(_owner, "pid", None) == os.getpid():
        raise RuntimeError("perf(…) was called inside a function that perf(…) measures; call one after the other")
    path = os.path.join(tempfile.gettempdir(), f"flopscope-perf-{os.getuid()}.lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with locked(handle, write_line and partial(write_line, "waiting for another measurement …")):
            _owner.pid = os.getpid()
            yield
    finally:
        _owner.pid = None
        os.close(handle)

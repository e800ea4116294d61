"""One measurement at a time on this machine, also among the workers of pytest-xdist, by flock(2)."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SILENT_SECONDS = 1.0  # of waiting, before it is reported
_owner = threading.local()  # whether this thread measures: waiting for itself would be a deadlock


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
    timer = threading.Timer(SILENT_SECONDS, write_line or bool, ["waiting for another measurement …"])
    timer.daemon = True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            timer.start()  # the lock is not polled, which would disturb what its holder measures
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            finally:
                timer.cancel()
                timer.join()
        pid = _owner.pid = os.getpid()
        try:
            yield
        finally:
            if os.getpid() == pid:
                fcntl.flock(handle, fcntl.LOCK_UN)  # closing is not enough: a forked process has the file open still
    finally:
        _owner.pid = None
        os.close(handle)

"""Locks between processes, by flock(2): one process at a time holds the lock of a file or a folder.

alone() allows one measurement at a time on this machine, also among the workers of pytest-xdist.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

SILENT_SECONDS = 1.0  # of waiting, before it is reported
POLL_SECONDS = 0.05  # between attempts to take a lock that is not waited for without end
_owner = threading.local()  # whether this thread measures: waiting for itself would be a deadlock


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


# The lock for measurements --------------------------------------------------------------------------------------------


@contextmanager
def alone(write_line: Callable[[str], object] | None = None) -> Iterator[None]:
    """Hold the lock in the block, after waiting for other processes of this user that measure.

    The lock is released at the end of the block, or of the process if that ends before.

    write_line: called with a message when the wait takes longer than a second.

    Raises RuntimeError inside another such block. Raises OSError, naming the lock file, if the file is a symbolic link,
    a folder, a file of another user, or one with a second name, whose content would be lost.
    """
    import tempfile

    if getattr(_owner, "pid", None) == os.getpid():
        raise RuntimeError("perf(…) was called inside a function that perf(…) measures; call one after the other")
    handle = _open(Path(tempfile.gettempdir()) / f"flopscope-perf-{os.getuid()}.lock")
    try:
        with locked(handle, None if write_line is None else partial(_report, handle, write_line)):
            _owner.pid = os.getpid()
            with suppress(OSError):  # on a full disk, waiting processes cannot name the owner
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
    finally:
        _owner.pid = None
        os.close(handle)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as problem:
        _refuse(path, problem.errno or 0, "cannot be opened")
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_nlink > 1:
        os.close(handle)
        _refuse(path, errno.EPERM, "cannot be used")
    return handle


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    """Raise OSError with the reason why the path is not a lock file of this user."""
    why = os.strerror(number)
    with suppress(OSError):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            why = "it is a symbolic link; remove it"
        elif not stat.S_ISREG(status.st_mode):
            why = "it is not a regular file; remove it"
        elif status.st_uid != os.geteuid():
            why = f"it belongs to user {status.st_uid}; have it removed, or set TMPDIR to a folder of your own"
        elif status.st_nlink > 1:
            why = "the file has other names (hard links); remove it"
    raise OSError(number, f"the lock file for measurements {what}: {why}", str(path)) from None


def _report(handle: int, write_line: Callable[[str], object]) -> None:
    """Report that this process waits, and for which one."""
    owner = os.pread(handle, 20, 0)
    pid = f" (pid {owner.decode()})" if owner.isdigit() else ""
    write_line(f"waiting for another measurement{pid} …")

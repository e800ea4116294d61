"""A lock that allows one measurement at a time on this machine, also among the workers of pytest-xdist."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from flopscope.support.lock import locked

_owner = threading.local()  # whether this thread has the lock: waiting for itself would be a deadlock


@contextmanager
def alone(write_line: Callable[[str], object] | None = None) -> Iterator[None]:
    """Hold the lock in the block, after waiting for other processes of this user that measure.

    The lock is released at the end of the block, or of the process if that ends before.

    write_line: called with a message when the wait takes longer than a second.

    Raises RuntimeError inside another such block. Raises OSError, naming the lock file, if the file is a symbolic link,
    a folder, a file of another user, or one with a second name, whose content would be lost.
    """
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

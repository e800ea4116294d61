"""One measurement at a time on this machine, also among the workers of pytest-xdist."""

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

__all__ = ["alone"]

_held_here = threading.local()  # by this thread: to wait for oneself takes for ever


@contextmanager
def alone(tell: Callable[[str], object] | None = None) -> Iterator[None]:
    """Wait until no other process of this user measures in such a block. A process that ends gives its turn back.

    tell: called with a line once the wait takes longer than a second. RuntimeError inside of such a block. OSError,
    naming the lock file, where that is not a file of this user's: a symbolic link, a folder, somebody else's.
    """
    if getattr(_held_here, "pid", None) == os.getpid():
        raise RuntimeError("what perf(…) measures may not measure by perf(…) itself: measure one after the other")
    handle = _open(Path(tempfile.gettempdir()) / f"flopscope-perf-{os.getuid()}.lock")
    try:
        with locked(handle, None if tell is None else partial(_report, handle, tell)):
            _held_here.pid = os.getpid()
            with suppress(OSError):  # a full disk: those that wait then cannot say for whom
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            yield
    finally:
        _held_here.pid = None
        os.close(handle)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as problem:
        _refuse(path, problem.errno or 0, "cannot be opened")
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(handle)
        _refuse(path, errno.EPERM, "cannot be used")
    return handle


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    """Raise OSError that says what is there instead of a lock file of this user's."""
    why = os.strerror(number)
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            why = "it is a symbolic link; remove it"
        elif not stat.S_ISREG(found.st_mode):
            why = "it is not a regular file; remove it"
        elif found.st_uid != os.geteuid():
            why = f"it belongs to user {found.st_uid}; have it removed, or set TMPDIR to a folder of your own"
    raise OSError(number, f"the lock of measurements {what}: {why}", str(path)) from None


def _report(handle: int, tell: Callable[[str], object]) -> None:
    """Say that this process waits, and for whom."""
    holder = os.pread(handle, 20, 0)
    pid = f" (pid {holder.decode()})" if holder.isdigit() else ""
    tell(f"waiting for another measurement{pid} …")

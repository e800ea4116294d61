"""One measurement at a time on this machine, also among the workers of pytest-xdist."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["alone"]

_held_here = threading.local()  # by this thread: to wait for oneself takes for ever


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process of this user measures in such a block. A process that ends gives its turn back.

    RuntimeError inside of such a block.
    """
    if getattr(_held_here, "pid", None) == os.getpid():
        raise RuntimeError("what perf(…) measures may not measure by perf(…) itself: measure one after the other")
    path = Path(tempfile.gettempdir()) / f"flopscope-perf-{os.getuid()}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        _held_here.pid = os.getpid()
        yield
    finally:
        if getattr(_held_here, "pid", None) == os.getpid():
            _held_here.pid = None
            fcntl.flock(handle, fcntl.LOCK_UN)  # not by closing: a process forked meanwhile has the file open still
        os.close(handle)

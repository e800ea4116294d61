"""One measurement at a time on this machine, also among the workers of pytest-xdist."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["alone"]


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other process of this user measures in such a block. A process that ends gives its turn back."""
    path = Path(tempfile.gettempdir()) / f"flopscope-perf-{os.getuid()}.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

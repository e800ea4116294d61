"""A fork waits while another thread imports a module of flopscope.

Names and rooms are imported on first use, in whichever thread that is. An importing thread holds the module's lock, and
in a child that is forked meanwhile nobody would ever release it: the child's own first use would wait forever.
"""

from __future__ import annotations

import _frozen_importlib  # importlib._bootstrap, whose module locks have no public name
import _imp
import _thread
import os
import time

importing = _thread.allocate_lock()
"""Held while a module of another package is imported on first use."""
MOST_SECONDS = 10  # an import that itself waits for the fork must not hold it up for longer


def _others_import() -> bool:
    locks = list(getattr(_frozen_importlib, "_module_locks", {}).items())
    held = (lock() for name, lock in locks if name.partition(".")[0] == "flopscope")
    return any(getattr(lock, "owner", None) not in (None, _thread.get_ident()) for lock in held)


def _before() -> None:
    """Hold the lock that every import needs to begin, with none of flopscope's under way in another thread."""
    end = time.monotonic() + MOST_SECONDS
    importing.acquire()
    _imp.acquire_lock()
    while _others_import() and time.monotonic() < end:
        _imp.release_lock()
        time.sleep(0.001)
        _imp.acquire_lock()


def _after() -> None:
    if _imp.lock_held():
        _imp.release_lock()
    importing.release()


def watch_forks() -> None:
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)

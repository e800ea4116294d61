"""A process that reads files for load_ranks(), and does nothing else."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import parent_process
from multiprocessing.connection import wait

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of mallopt(3)
KEPT_BYTES = 32 << 20  # the largest threshold that glibc takes


def begin() -> None:
    """Prepare this process for its tasks: it ends with the process that started it, which also handles Ctrl-C, and
    keeps memory for the next file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (parent := parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _keep_memory()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def _keep_memory() -> None:
    """Keep blocks of up to 32 MB that are freed, for all threads alike, where the C library can: of a small file, a
    quarter of the time goes into pages that the system maps and clears again for each."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_ARENA_MAX, 1)
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
    mallopt(M_TRIM_THRESHOLD, 4 * KEPT_BYTES)

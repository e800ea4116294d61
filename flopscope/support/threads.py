"""Threads of flopscope in the process of a program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP}
"""Signals of a thread's own errors."""


def start_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread that receives no signals of the program.

    Python runs signal handlers in the main thread. A signal that the kernel delivers to another thread, as it may with
    the second of two, does not wake the main thread, whose time.sleep() then goes on to its end.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - FAULTS)  # may raise KeyboardInterrupt
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread

"""What a process is told and knows of itself: its rank, its threads, its memory, and how long it waited for a CPU."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flopscope.support.units import percent_text, short_time_text

RANK_VARIABLES = (  # torchrun; Open MPI; MPICH and Intel MPI; SLURM
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def rank_in(environment: Mapping[str, Any]) -> dict[str, int] | None:
    """Return {"rank": …, "world_size": …} from the environment of a process (untrusted); None if it names no rank.

    "world_size" is missing if the launcher does not provide it. Of several launchers, the first with several processes
    counts.
    """
    found = []
    for names in RANK_VARIABLES:
        known = [str(environment.get(name, "")) for name in names]
        numbers = [int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None for text in known]
        if numbers[0] is not None:
            pairs = zip(("rank", "world_size"), numbers, strict=True)
            found.append({name: number for name, number in pairs if number is not None})
    return next((one for one in found if one.get("world_size") != 1), found[0] if found else None)


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


_pending: list[Any] = []  # the interpreter may still call them


def call_in_main_thread(act: Callable[[], object]) -> None:
    """Let the main thread call a function, soon, between two of its instructions.

    Of the threads of a program it may be the only one that can: torch stops a profiler on the thread that started it.
    """
    call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: bool(act()) and 0)
    _pending.append(call)
    while ctypes.pythonapi.Py_AddPendingCall(call, None) != 0:  # it keeps 32 of them at most
        time.sleep(0.05)


WORTH = 0.2
"""Share of a time from which the wait is worth a sentence."""


def seconds_waited() -> float | None:
    """Return for how long the main thread was ready to run while no CPU was free; None if that is unknown."""
    try:
        return int(_text(f"/proc/self/task/{os.getpid()}/schedstat").split()[1]) / 1e9
    except (ValueError, IndexError):  # a kernel without these statistics
        return None


def wait_text(waited: float, lasted: float) -> str:
    """Return a sentence for a program that waited for CPUs, in seconds; "" if that is little."""
    if waited <= WORTH * lasted:
        return ""
    share = percent_text(100 * min(waited / lasted, 1.0))
    return (
        f"The main thread waited {short_time_text(1e6 * waited)} for a free CPU, {share} of its time: other programs, "
        "or more threads than CPUs, made the times longer."
    )


# files of a control group of version 2: the limit, what is used, and in memory.stat the page cache that it can drop
_FILES = "memory.max", "memory.current", "inactive_file"


def available_memory(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int | None:
    """Return the bytes that this process may still use: the machine's, or those of its container if they are fewer.

    None if the system does not say.
    """
    found = re.search(r"MemAvailable:\s+(\d+) kB", _text(f"{proc}/meminfo"))
    bounds = [] if found is None else [int(found[1]) << 10]
    return min([*bounds, *_left_in_groups(proc, groups)], default=None)


def private_growth(proc: str = "/proc/self") -> float:
    """Return a number of bytes of which only differences have a meaning: how much the process grew by itself.

    That is the memory it shares with no file or process, less what came from files: what it has read, and what it has
    mapped, of which the copies are its own. 0 if the system does not say.
    """
    pages = _text(f"{proc}/statm").split()
    if len(pages) < 3:
        return 0.0
    resident, shared = int(pages[1]), int(pages[2])
    read = re.search(r"rchar: (\d+)", _text(f"{proc}/io"))
    return float((resident - 2 * shared) * os.sysconf("SC_PAGE_SIZE") - (int(read[1]) if read else 0))


def _left_in_groups(proc: str, groups: str) -> Iterator[int]:
    """Yield what each control group around this process has left; page cache that it can drop counts as left."""
    for line in _text(f"{proc}/self/cgroup").splitlines():
        parts = [part for part in line.rpartition(":")[2].split("/") if part]
        for depth in range(len(parts) + 1):  # in a container, the path may be the host's: the root is its own
            folder = "/".join([groups, *parts[:depth]])
            most, used = (_text(f"{folder}/{name}").strip() for name in _FILES[:2])
            if most.isdigit() and used.isdigit():
                cache = re.search(rf"^{_FILES[2]} (\d+)$", _text(f"{folder}/memory.stat"), re.MULTILINE)
                yield max(0, int(most) - int(used) + (int(cache[1]) if cache else 0))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

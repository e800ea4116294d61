"""How long this process's main thread waited for a CPU."""

from __future__ import annotations

import os

from flopscope.support.units import percent_text, short_time_text

WORTH = 0.2
"""Share of a time from which the wait is worth a sentence."""


def seconds_waited() -> float | None:
    """Return for how long the main thread was ready to run while no CPU was free; None if that is unknown."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # a kernel without these statistics
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

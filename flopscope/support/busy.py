"""The load that other processes put on the CPU, which slows down measurements."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flopscope.support.device import Device

MAX_PROCESSORS = 0.3  # used by others: sharing one processor half of the time halves the rate of all
IDLE, IOWAIT, GUEST = 3, 4, 8  # columns of /proc/stat; those from GUEST on are included in others


def processors() -> int:
    """Return the number of processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def busy_meter(device: Device) -> Callable[[], float | None]:
    """Start to observe the CPU; return a function to call at the end, which returns the share of it, 0 to 1, that other
    processes used between the two calls. None if it is unknown, as that of a GPU is."""
    begin = _busy_ticks() if device.kind == "cpu" else None
    own = sum(os.times()[:4])  # with the processes that it has waited for

    def share() -> float | None:
        end = _busy_ticks()
        if begin is None or end is None or end[1] <= begin[1]:
            return None
        others = (end[0] - begin[0]) / os.sysconf("SC_CLK_TCK") - (sum(os.times()[:4]) - own)
        return min(max(others / ((end[1] - begin[1]) / os.sysconf("SC_CLK_TCK")), 0.0), 1.0)

    return share


def why_busy(busy: float | None) -> str | None:
    """Return why a measurement under these conditions may be too slow, or None if nothing suggests that."""
    if busy is not None and busy * processors() > MAX_PROCESSORS:
        return f"other processes used {busy * processors():.1f} of {processors()} processors"
    return None


def _busy_ticks(file: str = "/proc/stat") -> tuple[int, int] | None:
    """Return the busy ticks of the processors of this process, including steal time, and their total ticks."""
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        lines = [line.split() for line in Path(file).read_text(encoding="ascii").splitlines()]
        ticks = [[int(cell) for cell in cells[:GUEST]] for name, *cells in lines if name in own]
    except (OSError, ValueError):
        return None
    if not ticks:
        return None
    total = sum(map(sum, ticks))
    return total - sum(cells[IDLE] + cells[IOWAIT] for cells in ticks), total

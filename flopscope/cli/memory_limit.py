"""How much memory a recording takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from flopscope.record.profile import profile
from flopscope.support.process import available_memory, private_growth
from flopscope.support.units import memory_text

MOST = 0.5  # share of the memory that was available at the start
AT_END = 5.0
"""What a recording takes while its results are written, in multiples of what it takes while it runs."""
TORCHS_AT_END = 11.0
"""The same of torch's profiler: docs/running.md."""
Reads = Callable[[], float]
PARTS = 6  # of the last two thirds of the time
MOST_SAMPLES = 1000


class Records:
    """What a profile that has just begun records. steady: s after which growth of a process is called steady."""

    def __init__(self, prof: Any, steady: float) -> None:
        self._prof, self._available = prof, available_memory()
        self._growth = None if isinstance(prof, profile) else SteadyGrowth(steady)
        self.nbytes = 0.0  # at the last look; of torch an estimate

    def look(self) -> str:
        """Return why it must end, as its end would take half of the memory that was available; "" if it need not."""
        core, growth = self._prof._core, self._growth
        if growth is not None:
            self.nbytes, factor = growth.look(), TORCHS_AT_END
        else:
            self.nbytes, factor = 0.0 if core is None else core.nbytes, AT_END
        taken = factor * self.nbytes  # what is read again, and torch's own events
        if self._available is None or taken < MOST * self._available:
            return ""
        how = "" if growth is None else ", by the growth of this process"
        return (
            f"the recording would take about {memory_text(int(taken))} of memory at its end{how}, more than half of "
            f"the {memory_text(self._available)} that were free at its start"
        )


class SteadyGrowth:
    """How much a process has grown since now at a steady rate, as it does by the records of torch's profiler.

    torch does not expose how much it has recorded. Records grow as long as ops run, while the data of a program comes
    at once or in its own time. So the rate is the least one of several parts of the last two thirds of the time; the
    size of a part is its least, as tensors come and go.
    """

    def __init__(self, steady: float, size: Reads = private_growth, clock: Reads = time.monotonic) -> None:
        self._steady, self._size, self._clock = steady, size, clock
        self._samples = [(clock(), size())]  # the least size of each interval, and when that began
        self._interval = 0.0

    def look(self) -> float:
        """Return the bytes."""
        samples, now, size = self._samples, self._clock(), self._size()
        began, first = samples[0]
        if now - samples[-1][0] < self._interval:
            samples[-1] = samples[-1][0], min(samples[-1][1], size)
        else:
            samples.append((now, size))
        if now - began < self._steady:
            return 0.0
        part = (now - began) * 2 / 3 / PARTS
        least = [float("inf")] * PARTS
        for moment, bytes_then in samples:
            place = min(int((moment - now) // part) + PARTS, PARTS - 1)
            if place >= 0:
                least[place] = min(least[place], bytes_then)
        if len(samples) > MOST_SAMPLES:
            self._interval = 2 * (now - began) / MOST_SAMPLES
            pairs = zip(samples[1::2], samples[2::2], strict=False)
            self._samples = [samples[0], *((a[0], min(a[1], b[1])) for a, b in pairs)]
        growth = min(b - a for a, b in pairwise(least))
        rate = max(growth, 0.0) / part if growth < float("inf") else 0.0
        return min(rate * (now - began), max(size - first, 0.0))

"""A limit to the memory that a recording takes, watched from a thread: the recording itself pays nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from flopscope.record.profile import profile
from flopscope.support.process import available_memory, private_growth, start_thread
from flopscope.support.units import memory_text

WARNS, STOPS = 0.25, 0.5  # shares of the memory that was available at the start
INTERVAL = 0.3  # seconds
AT_END = 5.0
"""What a recording takes while its results are written, in multiples of what it takes while it runs."""
TORCHS_AT_END = 11.0
"""The same of torch's profiler: docs/running.md."""
LEAST_TIME = 6.0  # seconds, in which growth is not yet called steady
PARTS = 6  # of the last two thirds of the time
MOST_SAMPLES = 1000


class MemoryLimit:
    """Calls ``warn`` or ``stop``, each once, when a recording would take a quarter and half of the available memory.

    ``taken`` returns the bytes that the recording would take if it ended now, and what to say of them: "the recording".
    The functions are called on a thread of this object, with a sentence.
    """

    def __init__(
        self, taken: Callable[[], tuple[float, str]], warn: Callable[[str], object], stop: Callable[[str], object]
    ) -> None:
        self._taken = taken
        self._acts = [(WARNS, "a quarter", warn), (STOPS, "half", stop)]
        self._available = available_memory()
        self._over = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        if self._available is not None:
            start_thread(self._watch, "flopscope-memory")

    def end(self) -> None:
        """End, without waiting for a call that is under way."""
        self._over.set()

    def _watch(self) -> None:
        while self._acts and not self._over.wait(INTERVAL):
            self.look()

    def look(self) -> None:
        """Compare, and act."""
        available = self._available
        if available is None or not self._acts:
            return
        taken, what = self._taken()
        reached = [act for act in self._acts if taken >= act[0] * available]
        self._acts = self._acts[len(reached) :]
        for _, share, act in reached[-1:]:
            act(
                f"{what} would take about {memory_text(int(taken))} of memory at its end, more than {share} "
                f"of the {memory_text(available)} that were free at its start"
            )


class SteadyGrowth:
    """How much a process has grown since now at a steady rate, as it does by the records of torch's profiler.

    torch does not expose how much it has recorded. Records grow as long as ops run, while the data of a program comes
    at once or in its own time. So the rate is the least one of several parts of the last two thirds of the time; the
    size of a part is its least, as tensors come and go.
    """

    def __init__(self, size: Callable[[], float] = private_growth, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._clock = size, clock
        self._samples = [(clock(), size())]  # the least size of each interval, and when that began
        self._interval = 0.0
        self.rate = 0.0
        """Bytes per second."""

    def look(self) -> float:
        """Return the bytes."""
        samples, now, size = self._samples, self._clock(), self._size()
        began, first = samples[0]
        if now - samples[-1][0] < self._interval:
            samples[-1] = samples[-1][0], min(samples[-1][1], size)
        else:
            samples.append((now, size))
        if now - began < LEAST_TIME:
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
        self.rate = max(growth, 0.0) / part if growth < float("inf") else 0.0
        return min(self.rate * (now - began), max(size - first, 0.0))


def recording_limit(prof: Any, warn: Callable[[str], object], stop: Callable[[str], object]) -> MemoryLimit:
    """Return the limit of a profile that has just begun to record."""
    growth = None if isinstance(prof, profile) else SteadyGrowth()

    def taken() -> tuple[float, str]:
        if growth is None:
            return 0.0 if prof._core is None else AT_END * prof._core.nbytes, "the recording"
        nbytes = TORCHS_AT_END * growth.look()
        rate = memory_text(int(growth.rate))
        return nbytes, f"the memory of this process grows by {rate}/s; a recording that grows at this rate"

    return MemoryLimit(taken, lambda what: warn(f"{what}; at half of it, the recording ends"), stop)

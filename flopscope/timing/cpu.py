"""Timing on the CPU: the monotonic clock, several calls in a sample where one is too short for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import repeat
from math import ceil
from typing import Any

from flopscope.timing.sampling import Sample

__all__ = ["CpuClock", "flusher"]

RESOLUTIONS = 500  # that a sample is long, in steps of the clock: it is told to 0.2 %
MOST_CALLS = 1 << 20  # in a sample


class CpuClock:
    """A Clock of functions that are done when they return.

    flush: called before each sample, which is of a single call then; None: caches stay as the calls leave them.
    now: the clock, in integer nanoseconds.
    """

    coarse = False

    def __init__(
        self,
        functions: Sequence[Callable[[], Any]],
        flush: Callable[[], object] | None = None,
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._functions, self._flush, self._now = functions, flush, now
        self.batches = [1] * len(functions)
        """Calls in a sample of each function; see settle()."""

    def settle(self, per_call: Sequence[float]) -> None:
        """Let samples have as many calls as it takes to be long against the clock's steps.

        per_call: rough times of a call of each function, in seconds.
        """
        if self._flush is not None:
            return
        enough = RESOLUTIONS * self._step()
        self.batches = [max(1, min(MOST_CALLS, ceil(enough / max(1e9 * seconds, 1e-3)))) for seconds in per_call]

    def seconds(self) -> float:
        return self._now() / 1e9

    def run(self, which: int, count: int) -> float:
        return self._time(which, count) / 1e9

    def sample(self, which: Sequence[int]) -> list[Sample]:
        samples = []
        for function in which:
            if self._flush is not None:
                self._flush()
            count = self.batches[function]
            samples.append(Sample(self._time(function, count) / 1e3 / count))
        return samples

    def _time(self, which: int, count: int) -> int:
        function, now = self._functions[which], self._now
        begin = now()
        for _ in repeat(None, count):
            function()
        return now() - begin

    def _step(self) -> int:
        """The least time that the clock tells apart, its own reading included, in ns."""
        steps = []
        for _ in range(50):
            begin = end = self._now()
            while end == begin:
                end = self._now()
            steps.append(end - begin)
        return min(steps)


def flusher(cache_bytes: int) -> Callable[[], object]:
    """A function that fills the CPU's caches with other data: it writes to twice `cache_bytes`, at least 64 MiB."""
    import numpy

    buffer = numpy.zeros(max(2 * cache_bytes, 64 << 20) // 8)

    def flush() -> None:
        numpy.add(buffer, 1.0, out=buffer)

    return flush

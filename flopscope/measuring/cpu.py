"""Timing on the CPU by the monotonic clock, with several calls per sample if a call is short."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import repeat
from math import ceil
from typing import Any

from flopscope.measuring.sampling import Sample

RESOLUTIONS = 500  # minimum length of a sample in steps of the clock, for a resolution of 0.2 %
MAX_CALLS = 1 << 20  # per sample


class CpuClock:
    """A Clock for functions whose work is complete when they return.

    flush: called before each sample, which then consists of a single call; None: the caches are not flushed.
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
        """Calls per sample of each function; see settle()."""

    def settle(self, per_call: Sequence[float]) -> None:
        """Choose the number of calls per sample such that a sample is long compared with the clock's resolution.

        per_call: approximate time of a call of each function, in seconds.
        """
        if self._flush is not None:
            return
        min_ns = RESOLUTIONS * self._step()
        self.batches = [max(1, min(MAX_CALLS, ceil(min_ns / max(1e9 * seconds, 1e-3)))) for seconds in per_call]

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
        """Return the resolution of the clock in ns, including the time of reading it."""
        steps = []
        for _ in range(50):
            begin = end = self._now()
            while end == begin:
                end = self._now()
            steps.append(end - begin)
        return min(steps)


def flusher(cache_bytes: int) -> Callable[[], object]:
    """Return a function that evicts the CPU's caches by writing to 2 * cache_bytes, at least 64 MiB."""
    import numpy

    buffer = numpy.zeros(max(2 * cache_bytes, 64 << 20) // 8)

    def flush() -> None:
        numpy.add(buffer, 1.0, out=buffer)

    return flush

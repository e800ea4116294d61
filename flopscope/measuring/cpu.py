"""Timing on the CPU by the monotonic clock, with several calls per sample if a call is short."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import ceil
from resource import RUSAGE_SELF, RUSAGE_THREAD, getrusage
from statistics import median
from typing import Any, ClassVar

from flopscope.measuring.sampling import Sample

RESOLUTIONS = 500  # minimum length of a sample in steps of the clock, for a resolution of 0.2 %
MAX_CALLS = 1 << 20  # per sample
KNOWN_WORK = 100_000  # rounds of an empty loop, about a millisecond


@dataclass
class Beside:
    """What a thread and the machine did while samples were taken, by block of samples."""

    cpu: list[float] = field(default_factory=list)
    """CPU time of a call, in µs."""
    machine: list[float] = field(default_factory=list)
    """CPU time of KNOWN_WORK before the block, in µs: how fast the processor is just now."""
    waits: int = 0

    def times(self) -> dict[str, float]:
        """Return "cpu", the median CPU time of a call, and "steady", that in times of KNOWN_WORK; {} if it waits."""
        if not self.cpu or not computes(self.waits, len(self.cpu)):
            return {}
        steady = [one / other for one, other in zip(self.cpu, self.machine, strict=True)]
        return {"cpu": median(self.cpu), "steady": median(steady)}


def computes(waits: int, times: int) -> bool:
    """Return whether a thread only computes that waited so often in ``times`` blocks or steps. Alone on the machine, it
    would take its CPU time, whatever else runs now."""
    return 2 * waits <= times and getrusage(RUSAGE_SELF).ru_nvcsw > 0  # some sandboxes count no waits


def thread_use() -> tuple[float, int]:
    """Return the CPU time of this thread in seconds, and how often it gave up its processor to wait."""
    return time.thread_time(), getrusage(RUSAGE_THREAD).ru_nvcsw


class CpuClock:
    """A Clock for functions whose work is complete when they return.

    flush: called before each sample, which then consists of a single call; None: the caches are not flushed.
    now: the clock, in integer nanoseconds.
    """

    coarse = False
    beside: ClassVar[Beside | None] = None
    """What is watched, in processes of ``flopscope ab``."""

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
        beside = self.beside
        if beside is None or self._flush is not None:
            return self._samples(which)
        start, _ = thread_use()
        for _ in repeat(None, KNOWN_WORK):
            pass
        begin, before = thread_use()
        samples = self._samples(which)
        end, after = thread_use()
        beside.machine.append(1e6 * (begin - start))
        beside.cpu.append(1e6 * (end - begin) / sum(self.batches[one] for one in which))
        beside.waits += after - before
        return samples

    def _samples(self, which: Sequence[int]) -> list[Sample]:
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

"""Warm-up until times no longer fall, and sampling until the median is precise enough; timing on the CPU by the
monotonic clock, with several calls per sample if a call is short."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from resource import RUSAGE_SELF, RUSAGE_THREAD, getrusage
from statistics import fmean, median
from typing import Any, ClassVar, NamedTuple, Protocol

from flopscope.measuring.distribution import between_steps, median_interval

BLOCK_SECONDS = 0.002  # minimum length of a block of calls in the warm-up
BLOCKS = 4
STEADY = 0.02  # relative decrease of the times at which the warm-up ends
LONGEST_BATCH = 0.1  # seconds between two checks of the criterion
GROWTH, MAX_GROWTH = 1.5, 10.0  # of the number of samples from one check to the next
MIN_SAMPLES, MIN_SAMPLES_LATE = 10, 3  # before and after max_time
PATIENCE = 4  # multiple of max_time after which one sample is enough

RESOLUTIONS = 500  # minimum length of a sample in steps of the clock, for a resolution of 0.2 %
MAX_CALLS = 1 << 20  # per sample


Watch = Callable[[int], object]


class NoTime(RuntimeError):
    """Raised if the time of a call is no time of its work: it returns earlier results, or before its work is over."""


class Sample(NamedTuple):
    """The time of one call in µs, and the clock of the device in MHz, NaN where it is unknown."""

    us: float
    mhz: float = math.nan


class Clock(Protocol):
    """A timer of functions, numbered from 0, on one device."""

    coarse: bool
    """Whether the steps of the clock show in the times; see between_steps()."""

    def seconds(self) -> float:
        """Return the time of a monotonic clock."""

    def run(self, which: int, count: int) -> float:
        """Call a function count times in a row and return the seconds until the device is idle."""

    def sample(self, which: Sequence[int]) -> list[Sample]:
        """Take one sample of each of these functions, in this order."""


@dataclass(frozen=True)
class Rule:
    """The criterion that ends sampling."""

    spread: float
    """Maximum of half of the median's confidence interval, relative to the median."""
    min_time: float
    """Minimum sampling time in seconds."""
    max_time: float
    """Maximum sampling time in seconds."""

    def met(self, samples: Sequence[float], seconds: float) -> str:
        """Return the reason to stop now, or ""."""
        n = len(samples)
        if seconds >= self.max_time and (n >= MIN_SAMPLES_LATE or (n and seconds >= PATIENCE * self.max_time)):
            return f"max_time, {self.max_time:g} s, was reached"
        if n < MIN_SAMPLES or seconds < self.min_time:
            return ""
        low, high = median_interval(samples)
        middle = median(samples)
        drift = abs(median(samples[: n // 2]) - median(samples[n // 2 :]))
        if high - low <= 2 * self.spread * middle and drift <= 2 * self.spread * middle:
            return f"the median was known to ±{100 * self.spread:g} %"
        return ""

    def missing(self, samples: Sequence[float], seconds: float) -> int:
        """Estimate the number of missing samples: the interval narrows with the square root of their number."""
        n = len(samples)
        if n < MIN_SAMPLES_LATE:
            return 1
        low, high = median_interval(samples)
        excess = (high - low) / 2 / max(self.spread * median(samples), 1e-12)
        wanted = max(MIN_SAMPLES, GROWTH * n, n * excess**2, n * self.min_time / max(seconds, 1e-9))
        return math.ceil(min(wanted, MAX_GROWTH * n)) - n


@dataclass(frozen=True)
class Series:
    """Samples in the order of measurement: times in µs, clocks in MHz, and the criterion that ended them."""

    times: list[float]
    clocks: list[float]
    discarded: int
    """Number of samples on a throttled clock, which are not in times."""
    throttled_throughout: bool
    """Whether most samples were throttled; then none are discarded."""
    stopped: str


@contextmanager
def no_collector() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def warm_up(clock: Clock, which: int, min_time: float, max_time: float, watch: Watch = bool) -> float:
    """Call a function until its times no longer fall, for min_time to about max_time seconds.

    watch: called between calls with their number so far; its exceptions propagate.

    Returns the seconds per call in the last block.
    """
    begin, count, calls = clock.seconds(), 1, 0
    blocks: list[float] = []
    while True:
        took = clock.run(which, count)
        calls += count
        watch(calls)
        elapsed = clock.seconds() - begin
        if took < BLOCK_SECONDS and elapsed < max_time:
            count *= 2
            continue
        blocks.append(took / count)
        steady = len(blocks) >= BLOCKS and sum(blocks[-2:]) >= (1 - STEADY) * sum(blocks[-BLOCKS:-2])
        if elapsed >= max_time or (elapsed >= min_time and steady):
            return blocks[-1]


def batch_size(wanted: int, done: int, elapsed: float, max_time: float) -> int:
    """Return how many of the wanted samples to take next, by the seconds that those before took.

    They stay close to the remaining time, and the criterion and the memory are checked at least every LONGEST_BATCH.
    """
    left = min(max(max_time - elapsed, 0.0), LONGEST_BATCH)
    return max(1, min(wanted, int(left / max(elapsed / done, 1e-9))))


def collect(
    clock: Clock, rule: Rule, per_call: float, throttled_below: float = math.nan, watch: Watch = bool
) -> Series:
    """Sample function 0 until the rule is met.

    per_call: approximate time of a call in seconds.
    throttled_below: samples on a clock below this, in MHz, are discarded, unless they are the majority.
    watch: called between batches with the number of samples; its exceptions propagate.
    """
    every: list[Sample] = []
    begin = clock.seconds()
    count = max(1, min(MIN_SAMPLES, int(LONGEST_BATCH / max(per_call, 1e-9))))
    while True:
        every += clock.sample([0] * count)
        watch(len(every))
        elapsed = clock.seconds() - begin
        good = [sample for sample in every if not sample.mhz < throttled_below]
        throughout = len(every) > 2 * len(good)
        counted = every if throughout else good
        times = [sample.us for sample in counted]
        fine = between_steps(times) if clock.coarse else times
        if stopped := rule.met(fine, elapsed):
            clocks = [sample.mhz for sample in counted]
            return Series(times, clocks, len(every) - len(counted), throughout, stopped)
        count = batch_size(rule.missing(fine, elapsed), len(every), elapsed, rule.max_time)


# Timing on the CPU ----------------------------------------------------------------------------------------------------


def _loop() -> None:
    for _ in repeat(None, 100_000):
        pass


def _allocate() -> None:
    {number: (number, str(number)) for number in range(3000)}


FIXED_WORK = (_loop, _allocate)
"""Each of about a millisecond; what shares the processor slows them down by different factors."""
LEAST = 1e-3  # µs, where the clock did not advance


@dataclass
class Beside:
    """What a thread and the machine did while samples were taken, by block of samples."""

    cpu: list[float] = field(default_factory=list)
    """CPU time of a call, in µs."""
    fixed: list[tuple[float, ...]] = field(default_factory=list)
    """CPU times of FIXED_WORK before the block, in µs: how fast the processor is just now."""
    waits: int = 0

    def times(self) -> dict[str, Any]:
        """Return "cpu", the median CPU time of a call, and "logs", the means of the logarithms of that and of the times
        of FIXED_WORK; {} if it waits."""
        if not self.cpu or not computes(self.waits, len(self.cpu)):
            return {}
        logs = [fmean(math.log(max(time, LEAST)) for time in one) for one in (self.cpu, *zip(*self.fixed, strict=True))]
        return {"cpu": median(self.cpu), "logs": logs}


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
        self.batches = [max(1, min(MAX_CALLS, math.ceil(min_ns / max(1e9 * seconds, 1e-3)))) for seconds in per_call]

    def seconds(self) -> float:
        return self._now() / 1e9

    def run(self, which: int, count: int) -> float:
        return self._time(which, count) / 1e9

    def sample(self, which: Sequence[int]) -> list[Sample]:
        beside = self.beside
        if beside is None or self._flush is not None:
            return self._samples(which)
        starts = [thread_use()[0]]
        for work in FIXED_WORK:
            work()
            starts.append(thread_use()[0])
        begin, before = thread_use()
        samples = self._samples(which)
        end, after = thread_use()
        beside.fixed.append(tuple(1e6 * (later - earlier) for earlier, later in pairwise(starts)))
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

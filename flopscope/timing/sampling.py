"""How often to call: warm-up until times no longer fall, samples until the median is known well enough."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from flopscope.timing.distribution import between_steps, median, median_interval

__all__ = ["Clock", "Rule", "Sample", "Series", "collect", "no_collector", "warm_up"]

BLOCK_SECONDS = 0.002  # of calls whose time is looked at as one, while warming up
BLOCKS = 4
STEADY = 0.02  # by which share times may still fall after warming up
LONGEST_BATCH = 0.1  # seconds between two looks at the criterion
GROWTH, MOST_GROWTH = 1.5, 10.0  # of the number of samples from one look to the next
LEAST_SAMPLES, VERY_LEAST = 10, 3
PATIENCE = 4  # times max_time, after which even one sample is enough


Watch = Callable[[int], object]


def _nothing(calls: int) -> None:
    pass


class Sample(NamedTuple):
    """The time of one call, in µs, and the clock that the device ran it at, in MHz or NaN."""

    us: float
    mhz: float = math.nan


class Clock(Protocol):
    """Calls functions, numbered from 0, on one device, and tells their times."""

    coarse: bool
    """Whether times go by steps that may be seen: see between_steps()."""

    def seconds(self) -> float:
        """Now, by a clock that only goes forward."""

    def run(self, which: int, count: int) -> float:
        """Call that function so often without more ado; seconds until the device is done."""

    def sample(self, which: Sequence[int]) -> list[Sample]:
        """Call these functions in this order, one sample of each."""


@dataclass(frozen=True)
class Rule:
    """When to stop."""

    spread: float
    """Half of the median's confidence interval over the median."""
    min_time: float
    max_time: float
    """Seconds of sampling."""

    def met(self, samples: Sequence[float], seconds: float) -> str:
        """Why to stop now, or ""."""
        n = len(samples)
        if seconds >= self.max_time and (n >= VERY_LEAST or (n and seconds >= PATIENCE * self.max_time)):
            return f"max_time, {self.max_time:g} s, was over"
        if n < LEAST_SAMPLES or seconds < self.min_time:
            return ""
        low, high = median_interval(samples)
        middle = median(samples)
        drift = abs(median(samples[: n // 2]) - median(samples[n // 2 :]))
        if high - low <= 2 * self.spread * middle and drift <= 2 * self.spread * middle:
            return f"the median was known to ±{100 * self.spread:g} %"
        return ""

    def missing(self, samples: Sequence[float], seconds: float) -> int:
        """About how many more samples it takes: the interval narrows with the square root of their number."""
        n = len(samples)
        if n < VERY_LEAST:
            return 1
        low, high = median_interval(samples)
        wide = (high - low) / 2 / max(self.spread * median(samples), 1e-12)
        wanted = max(LEAST_SAMPLES, GROWTH * n, n * wide**2, n * self.min_time / max(seconds, 1e-9))
        return math.ceil(min(wanted, MOST_GROWTH * n)) - n


@dataclass(frozen=True)
class Series:
    """Samples in their order, in µs, and how they came about."""

    times: list[float]
    clocks: list[float]
    discarded: int
    """Under a throttled clock, and not in times."""
    throttled_throughout: bool
    """Most were throttled: then all are in times."""
    stopped: str


@contextmanager
def no_collector() -> Iterator[None]:
    """Python's cyclic garbage collector stands still in the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def warm_up(clock: Clock, which: int, least: float, most: float, watch: Watch = _nothing) -> float:
    """Call until times no longer fall, for `least` to about `most` seconds; seconds of a call in the last block.

    watch: called between calls with their number so far; what it raises passes.
    """
    begin, count, calls = clock.seconds(), 1, 0
    blocks: list[float] = []
    while True:
        took = clock.run(which, count)
        calls += count
        watch(calls)
        elapsed = clock.seconds() - begin
        if took < BLOCK_SECONDS and elapsed < most:
            count *= 2
            continue
        blocks.append(took / count)
        steady = len(blocks) >= BLOCKS and sum(blocks[-2:]) >= (1 - STEADY) * sum(blocks[-BLOCKS:-2])
        if elapsed >= most or (elapsed >= least and steady):
            return blocks[-1]


def collect(
    clock: Clock,
    rule: Rule,
    per_call: float,
    throttled_below: float = math.nan,
    watch: Watch = _nothing,
) -> Series:
    """Sample function 0 until the rule is met.

    per_call: seconds, roughly. throttled_below: samples at a clock of less MHz do not count, unless most are such.
    watch: called between batches with the number of samples; what it raises passes.
    """
    good: list[Sample] = []
    slow: list[Sample] = []
    every: list[Sample] = []
    begin = clock.seconds()
    count = max(1, min(LEAST_SAMPLES, int(LONGEST_BATCH / max(per_call, 1e-9))))
    while True:
        batch = clock.sample([0] * count)
        every += batch
        for sample in batch:
            (slow if sample.mhz < throttled_below else good).append(sample)
        watch(len(every))
        elapsed = clock.seconds() - begin
        counts = every if len(slow) > len(good) else good
        times = [sample.us for sample in counts]
        times = between_steps(times) if clock.coarse else times
        stopped = rule.met(times, elapsed)
        if stopped:
            break
        # Not much beyond the time that is left, nor so many that nobody looks at the criterion or the memory.
        left = min(max(rule.max_time - elapsed, 0.0), LONGEST_BATCH)
        missing = rule.missing(times, elapsed)
        count = max(1, min(missing, int(left / max(elapsed / len(every), 1e-9))))
    throughout = len(slow) > len(good)
    kept = every if throughout else good
    return Series(
        times=[sample.us for sample in kept],
        clocks=[sample.mhz for sample in kept],
        discarded=0 if throughout else len(slow),
        throttled_throughout=throughout,
        stopped=stopped,
    )

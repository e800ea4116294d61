"""Statistics of a list of times, and of pairs of them: medians, ratios, their confidence intervals, and the verdict.

compare_times(), no_slower_than(), ``flopscope try`` and ``flopscope ab`` have the same intervals of ratios and words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles
from typing import Literal, NamedTuple

from flopscope import _core

Word = Literal["faster", "slower", "same", "unclear"]

CONFIDENCE = 0.95
STEPS = 0.004, 0.064  # µs: the clocks of GPUs have steps of 32 ns, ± 1 ns from conversion
GOLDEN = (math.sqrt(5) - 1) / 2
FAR = 3.0  # distance of an outlier from the quartiles, in interquartile ranges


@dataclass(frozen=True)
class Distribution:
    """Statistics of samples, in the unit of the samples."""

    n: int
    """Number of samples, without discarded ones."""
    median: float
    mean: float
    min: float
    max: float
    std: float
    """Standard deviation of the samples, with n - 1; NaN for one sample."""
    iqr: float
    """Interquartile range."""
    ci: tuple[float, float]
    """Bootstrap confidence interval of the median, 95 %, wider if successive samples are correlated; NaN for one
    sample. It covers the state of the machine during the measurement; a later measurement may differ by more."""
    outliers: int
    """Samples more than 3 interquartile ranges beyond the quartiles; they are not discarded."""


def between_steps(samples: Sequence[float], phase: float = 0.0) -> list[float]:
    """Return the samples, in µs, each shifted by up to half a step of the clock in either direction.

    A GPU's clock has steps of 32 ns: 1 % of a kernel of 3 µs. After shifting, the median lies between two steps and is
    more precise than either, provided that the samples vary (dithering; statistics.median_grouped uses the same idea).
    The shifts are the fractional parts of multiples of the golden ratio, starting at ``phase``: they are spread evenly
    for any number of samples. Samples without such steps are returned unchanged.
    """
    distinct = sorted(set(samples))
    gaps = (above - below for below, above in pairwise(distinct))
    step = min((gap for gap in gaps if gap >= STEPS[0]), default=0.0)
    if not 0 < step <= STEPS[1]:
        return list(samples)
    return [us + step * ((phase + GOLDEN * number) % 1 - 0.5) for number, us in enumerate(samples)]


def describe(samples: Sequence[float], coarse: bool = False) -> Distribution:
    """Return the statistics of at least one sample. coarse: compute median and ci from between_steps()."""
    n, ordered = len(samples), sorted(samples)
    fine = between_steps(samples) if coarse else samples
    mean = math.fsum(ordered) / n
    low, _, high = quantiles(ordered, n=4, method="inclusive") if n > 1 else ordered * 3
    far = FAR * (high - low)
    interval = median_interval(fine)
    return Distribution(
        n=n,
        median=_within(ordered, median(fine)),
        mean=mean,
        min=ordered[0],
        max=ordered[-1],
        std=math.sqrt(math.fsum((x - mean) ** 2 for x in ordered) / (n - 1)) if n > 1 else math.nan,
        iqr=high - low,
        ci=(_within(ordered, interval[0]), _within(ordered, interval[1])),
        outliers=sum(not low - far <= x <= high + far for x in ordered),
    )


def _within(ordered: Sequence[float], value: float) -> float:
    return min(max(value, ordered[0]), ordered[-1])


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap percentile interval of the median of samples in order; NaN for one sample.

    It is exact, over all resamples. Correlated samples count as fewer samples: see csrc/base/confidence.c.
    """
    return _core.median_interval(samples, CONFIDENCE)[1:]


# Ratios ---------------------------------------------------------------------------------------------------------------


class Ratio(NamedTuple):
    """A time over another one, of pairs that were measured in turns: a slowdown of the machine affects both of a pair.

    The interval is a confidence sequence. It holds at any number of pairs, so pairs can be added until it is narrow
    enough, or the time is over. Its method and sources are in csrc/base/confidence.c.
    """

    value: float = math.nan
    """Geometric mean or median over the pairs, whichever the interval is of; NaN without pairs."""
    low: float = math.nan
    high: float = math.nan
    """Confidence interval; NaN with too few pairs."""
    pairs: int = 0

    @property
    def gain(self) -> float:
        """Percent of the time that is saved; negative if it is longer."""
        return 100 * (1 - self.value)

    def word(self, margin: float) -> Word:
        """Return what the whole interval shows, up to ``margin`` of which times count as the same."""
        if self.low > 1 + margin:
            return "slower"
        if self.high < 1 / (1 + margin):  # symmetric: exchanging the two inverts the ratio
            return "faster"
        return "same" if self.low >= 1 / (1 + margin) and self.high <= 1 + margin and margin > 0 else "unclear"


def ratio_of(ratios: Sequence[float], confidence: float) -> Ratio:
    """Return the ratio of times by those of pairs, in order."""
    return Ratio(*_core.ratio_interval(ratios, confidence), len(ratios))

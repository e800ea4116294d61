"""Pairs of runs without and with a change: the ratio of their step times, its interval, and what that shows.

Each pair is two fresh processes, one after the other, so that a slow change of the machine affects both. Their ratios
are few; the interval is that of Student's t for the mean of their logarithms. A few runs may be far slower than the
others. Of many pairs, the interval of the median, between two of the sorted ratios, is therefore taken if it is the
narrower one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import Literal, NamedTuple

Word = Literal["faster", "no difference", "slower", "unclear"]

CONFIDENCE = 0.95
"""Of a verdict, all of its checks together."""
CHECKS = (3, 4, 6, 9, 13, 19, 28, 42)
"""Numbers of pairs after which there may be a verdict."""
FEWEST, MOST = CHECKS[0], CHECKS[-1]
LEAST_GAIN = 0.01
"""A change is faster or slower if its whole interval is beyond this."""
MARGIN = 0.02
"""Relative difference within which the whole interval must lie for "no difference"."""


class Ratio(NamedTuple):
    """Time with the change over time without it."""

    value: float
    """Geometric mean over the pairs, or their median where its interval is the narrower one; NaN without pairs."""
    low: float
    high: float
    """Confidence interval; NaN with a single pair."""
    pairs: int

    @property
    def gain(self) -> float:
        """Percent of the step time that the change saves; negative if it is slower."""
        return 100 * (1 - self.value)


def ratio_of(pairs: Sequence[tuple[float, float]], confidence: float = CONFIDENCE) -> Ratio:
    """Return the ratio for pairs of times (without, with)."""
    logs = sorted(math.log(changed / plain) for plain, changed in pairs)
    if not logs:
        return Ratio(math.nan, math.nan, math.nan, 0)
    if len(logs) < 2:
        return Ratio(math.exp(logs[0]), math.nan, math.nan, 1)
    error = 1 - confidence
    left_out = outside(len(logs), error / 2)
    found = mean_of(logs, error if left_out < 0 else error / 2)
    if left_out >= 0:
        of_median = logs[left_out], median(logs), logs[-1 - left_out]
        found = min(found, of_median, key=lambda one: one[2] - one[0])
    low, value, high = map(math.exp, found)
    return Ratio(value, low, high, len(logs))


def mean_of(logs: Sequence[float], error: float) -> tuple[float, float, float]:
    """Return the mean between the ends of its interval."""
    mean = fmean(logs)
    half = t_quantile(1 - error / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return mean - half, mean, mean + half


def outside(count: int, error: float) -> int:
    """Return how many of so many sorted values lie on either side of the median's interval; -1 if it has no ends.

    The number of values below the median has a binomial distribution, whatever theirs is. The interval by resampling
    of flopscope.measuring.distribution always has ends, and errs more often than so few checks may.
    """
    total, tail = 0.0, -1
    while 2 * (total := total + math.comb(count, tail + 1) / 2**count) <= error:
        tail += 1
    return tail


def checked(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio at the check after this many pairs, or at the last look, where the time ended between checks.

    The shares of the checks in the error probability fall with the square of their number, so that all of them together
    err as rarely as a single one (the sum of 1 / n^2 is pi^2 / 6).
    """
    number = max(1, sum(one < len(pairs) for one in CHECKS) + 1)
    return ratio_of(pairs, 1 - (1 - CONFIDENCE) * 6 / (math.pi * number) ** 2)


def word_of(ratio: Ratio, margin: float = MARGIN) -> Word:
    """Return what an interval shows; "unclear" if it shows nothing yet."""
    if ratio.pairs < FEWEST:
        return "unclear"
    if ratio.high < 1 / (1 + LEAST_GAIN):
        return "faster"
    if ratio.low > 1 + LEAST_GAIN:
        return "slower"
    return "no difference" if ratio.low >= 1 / (1 + margin) and ratio.high <= 1 + margin else "unclear"


def t_quantile(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution, for a probability above 0.5."""
    low, high = 0.0, 1.0
    while t_distribution(high, freedom) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_distribution(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def t_distribution(t: float, freedom: int) -> float:
    """Return P(T <= t) for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    square = math.cos(angle) ** 2
    if freedom == 1:
        return 0.5 + angle / math.pi
    odd = freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    inner = math.sin(angle) * total
    return 0.5 + ((angle + inner) / math.pi if odd else inner / 2)

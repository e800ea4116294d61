"""Pairs of runs without and with a change: the ratio of their step times, its interval, and what that shows.

Each pair is two fresh processes, one after the other, so that a slow change of the machine affects both. Their ratios
are few; the interval is that of Student's t for the mean of their logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from flopscope.measuring.distribution import confidence_of_check
from flopscope.measuring.paired import verdict_of

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
    """Geometric mean over the pairs; NaN without pairs."""
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
    logs = [math.log(changed / plain) for plain, changed in pairs]
    if not logs:
        return Ratio(math.nan, math.nan, math.nan, 0)
    mean, half = fmean(logs), math.nan
    if len(logs) > 1:
        half = t_quantile((1 + confidence) / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def checked(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio at the check after this many pairs, or at the last look, where the time ended between checks."""
    return ratio_of(pairs, confidence_of_check(max(1, sum(one < len(pairs) for one in CHECKS) + 1), CONFIDENCE))


def word_of(ratio: Ratio, margin: float = MARGIN) -> Word:
    """Return what an interval shows; "unclear" if it shows nothing yet."""
    if ratio.pairs < FEWEST:
        return "unclear"
    beyond = verdict_of(ratio.low, ratio.high, LEAST_GAIN)
    if beyond == "faster" or beyond == "slower":
        return beyond
    return "no difference" if verdict_of(ratio.low, ratio.high, margin) == "same" else "unclear"


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

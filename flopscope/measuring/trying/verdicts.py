"""What runs without and with a change show: the ratio of their step times, and how far their results are apart.

Each pair is two fresh processes, one after the other, so that a slow change of the machine affects both. Their ratios
are few; the interval is that of Student's t for the mean of their logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal, NamedTuple

from flopscope.measuring.paired import verdict_of

Word = Literal["faster", "no difference", "slower", "unclear"]

CHECKS = {3: 5.6041, 4: 6.4378, 6: 5.2316, 9: 4.5398, 13: 4.2074, 19: 3.9976, 28: 3.8720, 42: 3.7976}
"""Numbers of pairs after which there may be a verdict, and the quantile of Student's t for each: all checks together
err in 5 % of cases, of which the n-th has a share as confidence_of_check() gives it."""
FEWEST, MOST = min(CHECKS), max(CHECKS)
LEAST_GAIN = 0.01
"""A change is faster or slower if its whole interval is beyond this."""
MARGIN = 0.02
"""Relative difference within which the whole interval must lie for "no difference"."""
SPREAD = 3.0
"""Times the distance of unchanged runs within which a further one may lie: there are few of them."""
USELESS = 0.1
"""Relative spread of unchanged runs from which a comparison says nothing."""


class Ratio(NamedTuple):
    """Time with the change over time without it."""

    value: float = math.nan
    """Geometric mean over the pairs; NaN without pairs."""
    low: float = math.nan
    high: float = math.nan
    """Confidence interval; NaN with a single pair."""
    pairs: int = 0

    @property
    def gain(self) -> float:
        """Percent of the step time that the change saves; negative if it is slower."""
        return 100 * (1 - self.value)

    def word(self, margin: float = MARGIN) -> Word:
        """Return what the interval shows; "unclear" if it shows nothing yet."""
        if self.pairs < FEWEST:
            return "unclear"
        beyond = verdict_of(self.low, self.high, LEAST_GAIN)
        if beyond == "faster" or beyond == "slower":
            return beyond
        return "no difference" if verdict_of(self.low, self.high, margin) == "same" else "unclear"


def ratio_of(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the ratio for pairs of times (without, with), those up to the last check if the time ended after it."""
    count = max((one for one in CHECKS if one <= len(pairs)), default=len(pairs))
    logs = [math.log(changed / plain) for plain, changed in pairs[:count]]
    if not logs:
        return Ratio()
    half = CHECKS[count] * stdev(logs) / math.sqrt(count) if count in CHECKS else math.nan
    return Ratio(math.exp(fmean(logs)), math.exp(fmean(logs) - half), math.exp(fmean(logs) + half), count)


class Parity(NamedTuple):
    """How far the results of a changed run are from those of unchanged ones, relative to the latter."""

    of: str = ""
    """ "losses", "outputs" or "returned values"; "" if nothing was recorded in both."""
    values: int = 0
    """Values that were compared."""
    difference: float = math.nan
    """Largest relative difference beyond what unchanged runs gave; NaN if there is nothing to compare."""
    own: float = math.nan
    """Largest relative distance of an unchanged run from the first one; NaN with fewer than two of them."""
    tolerance: float = math.nan
    """Difference up to which the results count as kept; NaN if the change draws other random numbers."""

    @property
    def kept(self) -> bool | None:
        """Whether the results are kept; None if that is unknown."""
        if not self.values or self.own > USELESS or math.isnan(self.tolerance):
            return None
        return self.difference <= max(self.tolerance, SPREAD * self.own if self.own == self.own else 0.0)


def parity_of(of: str, plain: Sequence[Sequence[float]], changed: Sequence[float], tolerance: float) -> Parity:
    """Compare the values of a changed run with those of unchanged runs."""
    count = min([len(changed), *map(len, plain)]) if plain else 0
    if not count:
        return Parity(tolerance=tolerance)
    difference = own = 0.0
    for value, *ones in zip(changed[:count], *plain, strict=False):
        scale = max(map(abs, ones))
        difference = max(difference, _apart(value, min(ones), max(ones), scale))
        own = max(own, *(_apart(one, ones[0], ones[0], scale) for one in ones))
    return Parity(of, count, difference, own if len(plain) > 1 else math.nan, tolerance)


def _apart(value: float, low: float, high: float, scale: float) -> float:
    """Return the relative distance of a value from an interval; infinite for a NaN where there was none."""
    if math.isnan(value) and math.isnan(low):
        return 0.0
    if math.isnan(value) or math.isnan(low) or math.isnan(high):
        return math.inf
    beyond = max(low - value, value - high, 0.0)
    return 0.0 if beyond == 0 else beyond / scale if scale > 0 and math.isfinite(scale) else math.inf

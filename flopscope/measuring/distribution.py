"""Statistics of a list of times: median and its confidence interval, quartiles, outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

CONFIDENCE = 0.95
STEPS = 0.004, 0.064  # µs: the clocks of GPUs have steps of 32 ns, ± 1 ns from conversion
GOLDEN = (math.sqrt(5) - 1) / 2
BLOCKS, BY_CHANCE = 10, 2.0  # see independent(); chi square with 9 degrees of freedom exceeds 9 * 2.0 in 3.5 % of cases
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


def describe(samples: Sequence[float], confidence: float = CONFIDENCE, coarse: bool = False) -> Distribution:
    """Return the statistics of at least one sample. coarse: compute median and ci from between_steps()."""
    n, ordered = len(samples), sorted(samples)
    fine = between_steps(samples) if coarse else samples
    mean = math.fsum(ordered) / n
    low, _, high = quantiles(ordered, n=4, method="inclusive") if n > 1 else ordered * 3
    far = FAR * (high - low)
    interval = median_interval(fine, confidence)
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


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the bootstrap percentile interval of the median of samples in their order; NaN for one sample.

    The interval is exact, over all resamples. For odd n, the median of a resample is at most the k-th smallest sample
    if at least m = (n + 1) / 2 of its n draws are, each with probability k / n: a tail of the binomial distribution
    (Efron, "Bootstrap methods", 1979, 3). For even n, the lower of the two middle draws (m = n / 2) gives the lower
    end, and the upper one the upper end. Correlated samples count as fewer samples; see independent().
    """
    ordered, n = sorted(samples), independent(samples)
    if n < 2:
        return math.nan, math.nan
    rest = (1 - confidence) / 2
    low, high = _rank(n, (n + 1) // 2, rest), _rank(n, n // 2 + 1, 1 - rest)
    step = (len(ordered) - 1) / (n - 1)  # distance of n evenly spaced ranks among all samples
    return ordered[math.floor((low - 1) * step)], ordered[math.ceil((high - 1) * step)]


def confidence_of_check(number: int, confidence: float) -> float:
    """Return the confidence level of check 1, 2, 3, … such that all checks together err as often as a single one.

    Their shares of the error probability fall with the square of the number; the sum of 1 / n^2 is pi^2 / 6.
    """
    return 1 - (1 - confidence) * 6 / (math.pi * number) ** 2


def independent(samples: Sequence[float]) -> int:
    """Return the effective sample size for the median: the number of independent samples, at least 2 of 2 or more.

    The speed of a machine can change slowly compared with the length of a sample. Then the means of blocks of
    successive samples vary more than those of shuffled samples (batch means; e.g. Alexopoulos and Seila, "Output data
    analysis", 1998), and the sample size shrinks by that factor. The blocks contain the signs of samples, above or
    below the median, since these determine the variance of the median. A factor below BY_CHANCE, which independent
    samples exceed in one case of thirty, counts as 1. So do blocks of a single sample.
    """
    n = len(samples)
    length = n // BLOCKS
    if length < 2:
        return n
    middle = median(samples)
    signs = [1 if x > middle else -1 if x < middle else 0 for x in samples]
    power = sum(map(abs, signs)) / n
    sums = [sum(signs[at : at + length]) for at in range(0, length * BLOCKS, length)]
    mean = sum(sums) / BLOCKS
    factor = sum((x - mean) ** 2 for x in sums) / (BLOCKS - 1) / length / power if power else 1.0
    return n if factor < BY_CHANCE else max(2, int(n / factor))


def _rank(n: int, m: int, probability: float) -> int:
    """Return the smallest k of 1 … n for which P(Binomial(n, k / n) >= m) reaches the probability."""
    low, high = 1, n
    while low < high:
        k = (low + high) // 2
        if _tail(n, k / n, m) >= probability:
            high = k
        else:
            low = k + 1
    return low


def _tail(n: int, p: float, m: int) -> float:
    """Return P(Binomial(n, p) >= m) for p < 1 and m >= 1."""
    log_choices = math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)
    first = log_choices + m * math.log(p) + (n - m) * math.log1p(-p)
    term = total = 1.0
    for count in range(m, n):  # terms relative to the first, which may be too small for a float
        term *= (n - count) / (count + 1) * p / (1 - p)
        total += term
        if term < 1e-17 * total:
            break
    return math.exp(min(first + math.log(total), 0.0))

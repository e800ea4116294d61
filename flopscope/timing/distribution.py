"""What a list of times says: median and its confidence interval, quartiles, outliers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Distribution", "between_steps", "describe", "independent", "median", "median_interval"]

CONFIDENCE = 0.95
STEPS = 0.004, 0.064  # µs: GPUs' clocks go by 32 ns, give or take 1 from being converted
GOLDEN = (math.sqrt(5) - 1) / 2
BLOCKS, BY_CHANCE = 10, 2.0  # see independent(); 9 * 2.0 is exceeded by chi square of 9 in 3.5 % of all cases
FAR = 3.0  # interquartile ranges beyond the quartiles, from where a sample is an outlier


@dataclass(frozen=True)
class Distribution:
    """Of samples, in their unit."""

    n: int
    """Samples that count."""
    median: float
    mean: float
    min: float
    max: float
    std: float
    """Of the samples, with n - 1; NaN of one."""
    iqr: float
    """Between the quartiles."""
    ci: tuple[float, float]
    """Bootstrap confidence interval of the median, 95 %, wider where successive samples resemble each other; NaN of one
    sample. It tells of the time in which they were taken: at another the machine may be in another state."""
    outliers: int
    """Samples beyond 3 interquartile ranges from the quartiles; they count."""


def between_steps(samples: Sequence[float], phase: float = 0.0) -> list[float]:
    """The samples, in µs, each moved by up to half a step of the clock that took them, evenly to both sides.

    A GPU's clock goes by steps of 32 ns: 1 % of a kernel of 3 µs. Between two steps the median of such samples tells
    more than the one or the other, as long as they vary (dithering; the same idea as statistics.median_grouped). The
    moves are multiples of the golden ratio, from ``phase`` on, less their integer part: as even as can be for any
    number of them. Samples without such steps are returned as they are.
    """
    distinct = sorted(set(samples))
    gaps = (above - below for below, above in pairwise(distinct))
    step = min((gap for gap in gaps if gap >= STEPS[0]), default=0.0)
    if not 0 < step <= STEPS[1]:
        return list(samples)
    return [us + step * ((phase + GOLDEN * number) % 1 - 0.5) for number, us in enumerate(samples)]


def describe(samples: Sequence[float], confidence: float = CONFIDENCE, coarse: bool = False) -> Distribution:
    """All of it, of at least one sample. coarse: median and ci from between_steps()."""
    n, ordered = len(samples), sorted(samples)
    fine = between_steps(samples) if coarse else samples
    mean = math.fsum(ordered) / n
    low, high = _quantile(ordered, 0.25), _quantile(ordered, 0.75)
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


def median(samples: Sequence[float]) -> float:
    """Of at least one sample; the mean of the middle two where their number is even."""
    ordered, half = sorted(samples), len(samples) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The bootstrap percentile interval of the median of samples in their order; NaN of one, which tells no spread.

    It is that of all resamples, not of some drawn: the median of a resample of odd n is at most the k-th smallest
    sample where at least m = (n + 1) / 2 of its n draws are, each with probability k / n: a tail of the binomial
    distribution (Efron, "Bootstrap methods", 1979, 3). Of even n the lower of the two middle draws (m = n / 2) gives
    the lower end, and the upper one the upper end. Samples that resemble those before them count as fewer, see
    independent().
    """
    ordered, n = sorted(samples), independent(samples)
    if n < 2:
        return math.nan, math.nan
    rest = (1 - confidence) / 2
    low, high = _rank(n, (n + 1) // 2, rest), _rank(n, n // 2 + 1, 1 - rest)
    step = (len(ordered) - 1) / (n - 1)  # from one of n ranks to the next, among all samples
    return ordered[math.floor((low - 1) * step)], ordered[math.ceil((high - 1) * step)]


def independent(samples: Sequence[float]) -> int:
    """As how many independent samples these tell of their median, at least 2 of 2 or more.

    A machine has slow and fast moments that are longer than a sample. Then means of blocks of successive samples vary
    more than those of as many shuffled ones (batch means; e.g. Alexopoulos and Seila, "Output data analysis", 1998):
    by the factor by which there are fewer. Blocks of signs, above or below the median, are what its variance is of. A
    factor that independent samples reach in one case of thirty counts as 1, and so do blocks of a single sample.
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
    """The least k of 1 … n such that P(Binomial(n, k / n) >= m) reaches the probability."""
    low, high = 1, n
    while low < high:
        k = (low + high) // 2
        if _tail(n, k / n, m) >= probability:
            high = k
        else:
            low = k + 1
    return low


def _tail(n: int, p: float, m: int) -> float:
    """P(Binomial(n, p) >= m), for p below 1 and m at least 1."""
    log_choices = math.lgamma(n + 1) - math.lgamma(m + 1) - math.lgamma(n - m + 1)
    first = log_choices + m * math.log(p) + (n - m) * math.log1p(-p)
    term = total = 1.0
    for count in range(m, n):  # terms relative to the first, which may be too small for a float
        term *= (n - count) / (count + 1) * p / (1 - p)
        total += term
        if term < 1e-17 * total:
            break
    return math.exp(min(first + math.log(total), 0.0))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between the samples, as numpy.quantile does by default."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])

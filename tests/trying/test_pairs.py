"""Pairs of runs: the interval of their ratio, and when a verdict is said."""

from __future__ import annotations

import math
import random

import pytest

from flopscope.measuring.trying.pairs import (
    CHECKS,
    FEWEST,
    LEAST_GAIN,
    MOST,
    Ratio,
    checked,
    ratio_of,
    t_quantile,
    word_of,
)

# Critical values of Student's t as tables print them: probability, degrees of freedom, value.
TABLE = [
    (0.975, 1, 12.706),
    (0.995, 1, 63.657),
    (0.975, 2, 4.303),
    (0.995, 2, 9.925),
    (0.95, 3, 2.353),
    (0.995, 4, 4.604),
    (0.975, 5, 2.571),
    (0.995, 10, 3.169),
    (0.975, 29, 2.045),
]


@pytest.mark.parametrize("probability, freedom, value", TABLE)
def test_quantiles_are_those_of_printed_tables(probability: float, freedom: int, value: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(value, abs=6e-4)


def test_the_interval_is_that_of_the_mean_logarithm() -> None:
    pairs = [(100.0, 50.0), (200.0, 104.0), (50.0, 24.0)]
    logs = [math.log(0.5), math.log(0.52), math.log(0.48)]
    mean = sum(logs) / 3
    deviation = math.sqrt(sum((one - mean) ** 2 for one in logs) / 2)
    half = 4.3027 * deviation / math.sqrt(3)
    ratio = ratio_of(pairs, confidence=0.95)
    assert ratio.value == pytest.approx(math.exp(mean))
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(mean - half), math.exp(mean + half)), rel=1e-4)
    assert ratio.gain == pytest.approx(100 * (1 - math.exp(mean)))


def test_without_or_with_one_pair_nothing_is_known_of_the_interval() -> None:
    assert ratio_of([]).pairs == 0 and math.isnan(ratio_of([]).value)
    one = ratio_of([(2.0, 1.0)])
    assert one.value == pytest.approx(0.5) and math.isnan(one.low) and word_of(one) == "unclear"
    assert word_of(ratio_of([(2.0, 1.0), (2.0, 1.0)])) == "unclear"  # two equal pairs prove nothing


@pytest.mark.parametrize(
    "low, high, word",
    [
        (0.90, 0.95, "faster"),
        (0.90, 0.9950, "unclear"),
        (0.985, 1.015, "no difference"),
        (1.012, 1.019, "slower"),
        (1.005, 1.019, "no difference"),
        (0.97, 1.03, "unclear"),
        (math.nan, math.nan, "unclear"),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float, high: float, word: str) -> None:
    assert word_of(Ratio(1.0, low, high, FEWEST), margin=0.02) == word


def verdicts(effect: float, noise: float, times: int) -> list[str]:
    """Return the first verdict of simulated trials whose pairs vary by ``noise``."""
    draw, found = random.Random(7), []
    for _ in range(times):
        pairs: list[tuple[float, float]] = []
        word = "unclear"
        while word == "unclear" and len(pairs) < MOST:
            pairs.append((draw.lognormvariate(0, noise), effect * draw.lognormvariate(0, noise)))
            word = word_of(checked(pairs)) if len(pairs) in CHECKS else "unclear"
        found.append(word)
    return found


def test_repeated_checks_rarely_find_a_difference_where_there_is_none() -> None:
    found = verdicts(1.0, 0.03, 400)
    assert found.count("faster") + found.count("slower") <= 0.05 * 400 + 5


def test_steps_that_vary_by_one_percent_are_told_to_be_alike() -> None:
    assert verdicts(1.0, 0.01, 100).count("no difference") >= 90


def test_a_large_effect_is_found_in_few_pairs_and_a_small_one_is_never_reversed() -> None:
    assert verdicts(0.6, 0.03, 100).count("faster") == 100
    assert "slower" not in verdicts(1 - 3 * LEAST_GAIN, 0.03, 100)

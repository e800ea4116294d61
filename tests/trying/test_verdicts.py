"""Pairs of runs, the interval of their ratio and its verdict; results with a change beside those without."""

import math
import random

import pytest

from flopscope.measuring.distribution import confidence_of_check
from flopscope.measuring.trying.result import (
    CHECKS,
    FEWEST,
    LEAST_GAIN,
    MOST,
    USELESS,
    Ratio,
    parity_of,
    ratio_of,
)


def test_quantiles_are_those_of_students_t() -> None:
    scipy = pytest.importorskip("scipy.stats")
    for number, (pairs, quantile) in enumerate(CHECKS.items(), 1):
        probability = (1 + confidence_of_check(number, 0.95)) / 2
        assert quantile == pytest.approx(scipy.t.ppf(probability, pairs - 1), abs=1e-4)


def test_the_interval_is_that_of_the_mean_logarithm_at_the_last_check() -> None:
    pairs = [(100.0, 50.0), (200.0, 104.0), (50.0, 24.0)]
    logs = [math.log(0.5), math.log(0.52), math.log(0.48)]
    mean = sum(logs) / 3
    half = CHECKS[3] * math.sqrt(sum((one - mean) ** 2 for one in logs) / 2) / math.sqrt(3)
    ratio = ratio_of(pairs)
    assert ratio.value == pytest.approx(math.exp(mean)) and ratio.gain == pytest.approx(100 * (1 - math.exp(mean)))
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(mean - half), math.exp(mean + half)))
    four = [*pairs, (1.0, 1.0)]
    assert ratio_of([*four, (1.0, 9.0)]) == ratio_of(four) != ratio


def test_without_or_with_one_pair_nothing_is_known_of_the_interval() -> None:
    assert ratio_of([]).pairs == 0 and math.isnan(ratio_of([]).value)
    one = ratio_of([(2.0, 1.0)])
    assert one.value == pytest.approx(0.5) and math.isnan(one.low) and one.word() == "unclear"
    assert ratio_of([(2.0, 1.0), (2.0, 1.0)]).word() == "unclear"  # two equal pairs prove nothing


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
    assert Ratio(1.0, low, high, FEWEST).word(margin=0.02) == word


def verdicts(effect: float, noise: float, times: int) -> list[str]:
    """Return the first verdict of simulated trials whose pairs vary by ``noise``."""
    draw, found = random.Random(7), []
    for _ in range(times):
        pairs: list[tuple[float, float]] = []
        word = "unclear"
        while word == "unclear" and len(pairs) < MOST:
            pairs.append((draw.lognormvariate(0, noise), effect * draw.lognormvariate(0, noise)))
            word = ratio_of(pairs).word() if len(pairs) in CHECKS else "unclear"
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


# Results --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plain", "changed", "tolerance", "kept", "values", "difference"),
    [
        ([[2.0, 1.0], [2.0, 1.0]], [2.0, 1.0], 1e-4, True, 2, 0.0),
        ([[2.0, 1.00], [2.0, 1.02]], [2.0, 1.09], 1e-4, False, 2, 0.07 / 1.02),  # beyond what unchanged runs gave
        ([[1.00], [1.02]], [1.07], 1e-4, True, 1, 0.05 / 1.02),  # within three times their own spread
        ([[1.00], [1.02]], [1.01], 0.0, True, 1, 0.0),
        ([[1.0], [1.0 + 2 * USELESS]], [3.0], 1e-4, None, 1, 1.5),  # they vary too much
        ([[1.0, 2.0, 3.0], [1.0, 2.0]], [1.0, 2.0, 9.0], 1e-4, True, 2, 0.0),  # the results that all have
        ([[1.0], [1.0]], [math.nan], 1e-2, False, 1, math.inf),
        ([[math.nan], [math.nan]], [math.nan], 1e-4, True, 1, 0.0),
        ([[math.nan], [math.nan]], [1.0], 1e-4, False, 1, math.inf),
        ([[0.0], [0.0]], [0.0], 1e-4, True, 1, 0.0),
        ([[0.0], [0.0]], [1e-9], 1e-4, False, 1, math.inf),
        ([[1.0], [1.0]], [1.5], math.nan, None, 1, 0.5),  # other random numbers
        ([], [1.0], 1e-4, None, 0, math.nan),
        ([[]], [1.0], 1e-4, None, 0, math.nan),
        ([[1.0]], [], 1e-4, None, 0, math.nan),
    ],
)
def test_results_are_kept_within_the_tolerance_or_the_spread_of_unchanged_runs(
    plain: list[list[float]], changed: list[float], tolerance: float, kept: bool | None, values: int, difference: float
) -> None:
    parity = parity_of("losses", plain, changed, tolerance)
    assert (parity.kept, parity.values, parity.of) == (kept, values, "losses" if values else "")
    assert parity.difference == pytest.approx(difference, nan_ok=True)
    if plain == [[1.00], [1.02]]:
        assert parity.own == pytest.approx(0.02 / 1.02)

"""Pairs of runs, the interval of their ratio and its verdict; results with a change beside those without."""

import math
import random

import pytest

from flopscope.measuring.distribution import Ratio, ratio_of
from flopscope.measuring.trying.result import CONFIDENCE, FEWEST, LEAST_GAIN, MOST, USELESS, Change, parity_of


def mixture(logs: list[float], effect: float) -> float:
    """Return the likelihood ratio of samples for a mean effect that is normal around ``effect``, over that of the mean
    ``effect``, both with any standard deviation: by a sum over effects of Student's t of a non-central mean."""
    n, squares = len(logs), sum((one - effect) ** 2 for one in logs)
    shrunk = squares - (sum(one - effect for one in logs)) ** 2 * 30 / (1 + 30 * n)
    return (1 + 30 * n) ** -0.5 * (squares / shrunk) ** (n / 2)


def test_the_interval_of_few_pairs_is_where_a_mixture_of_effects_is_not_more_likely() -> None:
    logs = [math.log(0.5), math.log(0.52), math.log(0.48), math.log(0.51)]
    ratio = ratio_of([*map(math.exp, logs)], 0.95)
    assert ratio.value == pytest.approx(math.exp(sum(logs) / 4)) and ratio.pairs == 4
    assert ratio.gain == pytest.approx(100 * (1 - ratio.value))
    for end in (ratio.low, ratio.high):
        assert mixture(logs, math.log(end)) == pytest.approx(2 / 0.05)  # half of the error is of the ranks


def test_the_interval_of_many_pairs_with_outliers_is_that_of_ranks() -> None:
    ratios = [1 + 0.001 * (at % 5) + 9 * (at % 10 == 0) for at in range(40)]
    ratio = ratio_of(ratios, 0.99)
    assert {ratio.low, ratio.high} <= set(ratios) and ratio.value == pytest.approx(1.003, abs=0.001)


def test_with_a_pair_or_equal_ones_nothing_is_known_of_the_interval() -> None:
    assert ratio_of([], 0.95).pairs == 0 and math.isnan(ratio_of([], 0.95).value)
    one = ratio_of([0.5], 0.95)
    assert one.value == pytest.approx(0.5) and math.isnan(one.low) and one.word(0.02) == "unclear"
    assert ratio_of([0.5, 0.5, 0.5], 0.95).word(0.02) == "unclear"  # equal pairs prove nothing


@pytest.mark.parametrize(
    "low, high, word",
    [
        (0.90, 0.95, "faster"), (0.90, 0.9950, "unclear"), (0.985, 1.015, "same"), (1.012, 1.019, "slower"),
        (1.005, 1.019, "same"), (0.97, 1.03, "unclear"), (math.nan, math.nan, "unclear"),
    ],
)  # fmt: skip
def test_a_verdict_needs_the_whole_interval(low: float, high: float, word: str) -> None:
    assert Change("one", ratio=Ratio(1.0, low, high, FEWEST)).verdict == word


def verdicts(effect: float, noise: float, times: int) -> list[str]:
    """Return the first verdict of simulated trials whose pairs vary by ``noise``, sought after each pair."""
    draw, found = random.Random(7), []
    for _ in range(times):
        ratios: list[float] = []
        word = "unclear"
        while word == "unclear" and len(ratios) < MOST:
            ratios.append(effect * draw.lognormvariate(0, math.sqrt(2) * noise))
            word = Change("one", ratio=ratio_of(ratios, CONFIDENCE)).verdict if len(ratios) >= FEWEST else "unclear"
        found.append(word)
    return found


def test_repeated_checks_rarely_find_a_difference_where_there_is_none() -> None:
    found = verdicts(1.0, 0.03, 400)
    assert found.count("faster") + found.count("slower") <= 0.05 * 400


def test_steps_that_vary_by_one_percent_are_told_to_be_alike() -> None:
    assert verdicts(1.0, 0.01, 100).count("same") >= 90


def test_a_large_effect_is_found_in_few_pairs_and_a_small_one_is_never_reversed() -> None:
    assert verdicts(0.6, 0.03, 100).count("faster") == 100 and "slower" not in verdicts(1 - 3 * LEAST_GAIN, 0.03, 100)


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
        ([[math.nan], [math.nan]], [1.0], 1e-4, False, 1, math.inf), ([[0.0], [0.0]], [0.0], 1e-4, True, 1, 0.0),
        ([[0.0], [0.0]], [1e-9], 1e-4, False, 1, math.inf),
        ([[1.0], [1.0]], [1.5], math.nan, None, 1, 0.5),  # other random numbers
        ([], [1.0], 1e-4, None, 0, math.nan), ([[]], [1.0], 1e-4, None, 0, math.nan),
        ([[1.0]], [], 1e-4, None, 0, math.nan),
    ],
)  # fmt: skip
def test_results_are_kept_within_the_tolerance_or_the_spread_of_unchanged_runs(
    plain: list[list[float]], changed: list[float], tolerance: float, kept: bool | None, values: int, difference: float
) -> None:
    parity = parity_of("losses", plain, changed, tolerance)
    assert (parity.kept, parity.values, parity.of) == (kept, values, "losses" if values else "")
    assert parity.difference == pytest.approx(difference, nan_ok=True)
    if plain == [[1.00], [1.02]]:
        assert parity.own == pytest.approx(0.02 / 1.02)

"""Results of changed runs beside those of unchanged ones."""

from __future__ import annotations

import math

import pytest

from flopscope.measuring.trying.losses import USELESS, Parity, parity_of


def test_equal_results_are_kept() -> None:
    parity = parity_of("losses", [[2.0, 1.0], [2.0, 1.0]], [2.0, 1.0], 1e-4)
    assert parity == Parity("losses", 2, 0.0, 0.0, 1e-4) and parity.kept is True


def test_the_difference_is_relative_and_beyond_what_unchanged_runs_gave() -> None:
    parity = parity_of("losses", [[2.0, 1.00], [2.0, 1.02]], [2.0, 1.09], 1e-4)
    assert parity.difference == pytest.approx(0.07 / 1.02) and parity.own == pytest.approx(0.02 / 1.02)
    assert parity.kept is False


def test_a_difference_within_three_times_the_own_spread_is_kept() -> None:
    assert parity_of("losses", [[1.00], [1.02]], [1.07], 1e-4).kept is True
    assert parity_of("losses", [[1.00], [1.02]], [1.01], 0.0).difference == 0


def test_a_program_that_varies_too_much_is_not_judged() -> None:
    parity = parity_of("losses", [[1.0], [1.0 + 2 * USELESS]], [3.0], 1e-4)
    assert parity.own > USELESS and parity.kept is None


@pytest.mark.parametrize("plain, changed", [([], [1.0]), ([[]], [1.0]), ([[1.0]], [])])
def test_without_results_of_both_nothing_is_compared(plain: list[list[float]], changed: list[float]) -> None:
    parity = parity_of("losses", plain, changed, 1e-4)
    assert parity.values == 0 and parity.of == "" and parity.kept is None and math.isnan(parity.difference)


def test_only_the_first_results_that_all_have_are_compared() -> None:
    assert parity_of("losses", [[1.0, 2.0, 3.0], [1.0, 2.0]], [1.0, 2.0, 9.0], 1e-4).values == 2


def test_a_nan_changes_results_unless_it_was_there() -> None:
    assert parity_of("losses", [[1.0], [1.0]], [math.nan], 1e-2).kept is False
    assert parity_of("losses", [[math.nan], [math.nan]], [math.nan], 1e-4).kept is True
    assert parity_of("losses", [[math.nan], [math.nan]], [1.0], 1e-4).kept is False


def test_zero_results_that_stay_zero_are_kept() -> None:
    assert parity_of("losses", [[0.0], [0.0]], [0.0], 1e-4).kept is True
    assert parity_of("losses", [[0.0], [0.0]], [1e-9], 1e-4).kept is False

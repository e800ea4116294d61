"""Text tables and numbers: the layout and units shared by all views."""

from __future__ import annotations

import math

import pytest

from flopscope.support.columns import aligned_line, aligned_lines, column_widths, dashes
from flopscope.support.units import flop_rate_text, long_time_text, percent_text, short_time_text, si_text

ROWS = [("name", "n", "of"), ("add", "12345", "a"), ("reciprocal", "6", "bc")]


def test_the_first_column_is_left_aligned_and_the_others_right() -> None:
    assert aligned_lines(ROWS) == ["name            n  of", "add         12345   a", "reciprocal      6  bc"]


def test_the_last_alignment_applies_to_all_further_columns() -> None:
    assert aligned_lines(ROWS, ">")[1] == "       add  12345   a"
    assert aligned_lines(ROWS, "><")[2] == "reciprocal  6      bc"


def test_a_rule_is_as_wide_as_a_line() -> None:
    widths = column_widths(ROWS)
    assert widths == [10, 5, 2] and dashes(widths) == "----------  -----  --"
    assert len(dashes(widths)) == len(aligned_line(ROWS[0], widths))


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError):
        aligned_lines([("a", "b"), ("c",)])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 B"), (999.0, "999 B"), (1e3, "1 kB"), (4.652e12, "4.652 TB"), (2.5e15, "2,500 TB"), (math.nan, "nan B")],
)
def test_quantities_have_the_largest_prefix_that_they_reach(value: float, text: str) -> None:
    assert si_text(value, "B") == text


def test_a_quantity_below_the_smallest_prefix_uses_it() -> None:
    assert si_text(5e5, "FLOP/s", prefixes="TG") == "0.0005 GFLOP/s"


def test_unknown_values_are_marked_as_missing() -> None:
    texts = [write(math.nan) for write in (short_time_text, long_time_text, percent_text, flop_rate_text)]
    assert texts == ["--"] * 4


def test_a_time_has_its_most_readable_unit() -> None:
    assert [short_time_text(us) for us in (0.25, 999.5, 4560, 2e6)] == ["0.25us", "1.00ms", "4.56ms", "2.00s"]
    assert [long_time_text(us) for us in (0.25, 999.5, 4560, 2e6)] == ["250 ns", "999.5 µs", "4.56 ms", "2 s"]

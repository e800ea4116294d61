"""Numbers in texts: the units shared by all views."""

import math

from flopscope.support.units import flop_rate_text, long_time_text, percent_text, short_time_text, si_text


def test_quantities_have_the_largest_prefix_that_they_reach() -> None:
    values = (0.0, 999.0, 1e3, 4.652e12, 2.5e15, math.nan)
    texts = ["0 B", "999 B", "1 kB", "4.652 TB", "2,500 TB", "nan B"]
    assert [si_text(value, "B") for value in values] == texts
    assert si_text(5e5, "FLOP/s", prefixes="TG") == "0.0005 GFLOP/s"


def test_times_have_three_digits_and_their_most_readable_unit() -> None:
    short = {0.0: "0", 0.25: "0.25us", 9.994: "9.99us", 9.996: "10.0us", 99.96: "100us", 999.4: "999us",
             999.6: "1.00ms", 12_345.0: "12.3ms", 2_500_000.0: "2.50s", -3.0: "-3.00us"}  # fmt: skip
    assert {us: short_time_text(us) for us in short} == short
    assert [long_time_text(us) for us in (0.25, 999.5, 4560, 2e6)] == ["250 ns", "999.5 µs", "4.56 ms", "2 s"]
    texts = [write(math.nan) for write in (short_time_text, long_time_text, percent_text, flop_rate_text)]
    assert texts == ["--"] * 4

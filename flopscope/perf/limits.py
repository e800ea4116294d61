"""What can be limited, and when a limit is kept: a row for each quantity of a measurement."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from flopscope.support.units import exact_text
from flopscope.support.units import significant_text as number

__all__ = ["QUANTITIES", "Held", "LimitError", "PerfFailure", "Quantity", "Verdict", "hold", "hold_exactly", "known"]

__tracebackhide__ = True  # pytest shows the line of the test instead

Verdict = Literal["passed", "failed", "unclear"]


class PerfFailure(AssertionError):
    """A limit that was not kept. The message says what was measured, the limit, the roofline and the likely reason."""


class LimitError(ValueError):
    """A limit that makes no sense: of something that is not known, or that there is not."""


@dataclass(frozen=True)
class Quantity:
    """A number of a Measurement that comes from its median time, and so has a confidence interval."""

    attribute: str
    unit: str
    needs: tuple[str, ...] = ()
    """Of WORK; any of them will do."""
    needs_peaks: bool = False

    @property
    def is_time(self) -> bool:
        """Whether it grows with the time; all others fall with it."""
        return self.attribute == "median"


# What work must be known, and how to say it where it is not.
WORK = {"flops": ("flops", "FLOPs", "flops=…"), "bytes": ("bytes_total_moved", "bytes", "bytes=…")}

QUANTITIES = {
    "us": Quantity("median", "µs"),
    "gbytes_per_s": Quantity("gbytes_per_s", "GB/s", ("bytes",)),
    "tflops_per_s": Quantity("tflops_per_s", "TFLOP/s", ("flops",)),
    "pct_roofline": Quantity("pct_roofline", "% of the roofline", ("bytes", "flops"), True),
    "pct_peak_bandwidth": Quantity("pct_peak_bandwidth", "% of the peak bandwidth", ("bytes",), True),
    "pct_peak_flops": Quantity("pct_peak_flops", "% of the peak FLOP/s", ("flops",), True),
}

COMPARISONS = {"equal_to": operator.eq, "at_least": operator.ge, "at_most": operator.le}


@dataclass(frozen=True)
class Held:
    """A limit and what became of it."""

    limit: str
    """"at least 80 % of the roofline"."""
    measured: str
    """"71.2 % of the roofline (70.9 to 71.6)"."""
    verdict: Verdict
    beyond: bool = False
    """Whether the roofline itself does not keep the limit."""
    moved: bool = False
    """Whether it is unclear since the last two measurements disagree."""


def known(value: Any) -> bool:
    """Whether a number of a measurement is there: neither None nor NaN."""
    return value is not None and not math.isnan(value)


def hold(measurement: Any, name: str, comparison: str, limit: float) -> Held:
    """Hold the quantity of that name, with its confidence interval, against "at least" or "at most" the limit.

    LimitError where there is no such quantity, or where what it comes from is not known, naming that.
    """
    if name not in QUANTITIES:
        raise LimitError(f"there is no limit {name!r}; there are {', '.join(QUANTITIES)}")
    require_number(f"{name}=", limit)
    quantity = QUANTITIES[name]
    value = getattr(measurement, quantity.attribute)
    if not known(value):
        raise LimitError(f"{name}={limit:g} makes no sense here: {_why_unknown(measurement, quantity)}")
    low, high = interval(measurement, quantity)
    measured = f"{number(value)} {quantity.unit} ({number(low)} to {number(high)})"
    text = f"{comparison} {number(limit)} {quantity.unit}"
    return Held(
        text, measured, verdict(low, high, comparison, limit), _beyond(measurement, quantity, comparison, limit)
    )


def is_of_cache(measurement: Any, name: str) -> bool:
    """Whether the quantity of that name is a share of what memory can do, and more than that came out of a cache."""
    return name in ("pct_roofline", "pct_peak_bandwidth") and measurement.bound == "cache"


def interval(measurement: Any, quantity: Quantity) -> tuple[float, float]:
    """The confidence interval of the median, in the quantity's unit; NaN where there is none."""
    low, high = measurement.ci
    if quantity.is_time:
        return low, high
    value, median = getattr(measurement, quantity.attribute), measurement.median
    return value * median / high, value * median / low


def verdict(low: float, high: float, comparison: str, limit: float) -> Verdict:
    """Whether all of low to high keeps the limit, none of it does, or that is unclear (as with NaN)."""
    if comparison == "at least":
        low, high, limit = -high, -low, -limit
    return "passed" if high <= limit else "failed" if low > limit else "unclear"


def _beyond(measurement: Any, quantity: Quantity, comparison: str, limit: float) -> bool:
    share, value = measurement.pct_roofline, float(getattr(measurement, quantity.attribute))
    if not known(share) or not 0 < share <= 100 or quantity.is_time != (comparison == "at most"):
        return False
    return bool(limit < value * share / 100 if quantity.is_time else limit > value / share * 100)


def hold_exactly(what: str, value: float, limits: Mapping[str, float | None]) -> Held:
    """Hold a count against equal_to, at_least and at_most, as given. LimitError where none is."""
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if not given:
        raise LimitError(f"a limit of {what} says equal_to, at_least or at_most")
    for name, limit in given.items():
        require_number(f"{name}=", limit)
    kept = all(COMPARISONS[name](value, limit) for name, limit in given.items())
    text = " and ".join(f"{name.replace('_', ' ')} {exact_text(limit)}" for name, limit in given.items())
    return Held(f"{text} {what}", f"{exact_text(value)} {what}", "passed" if kept else "failed")


def work(measurement: Any, which: str) -> float:
    """The measurement's "flops" or "bytes". LimitError, saying what to give, where they are not known."""
    value = getattr(measurement, WORK[which][0])
    if not known(value):
        raise LimitError(_unknown_work((which,)))
    return float(value)


def check_bound(measurement: Any) -> str:
    """What bounds it. LimitError, naming the missing numbers, where that is not known."""
    if measurement.bound == "unknown":
        reason = _why_unknown(measurement, QUANTITIES["pct_roofline"])
        raise LimitError(f"what bounds it is not known: {reason}")
    return str(measurement.bound)


def require_number(name: str, limit: Any) -> None:
    """LimitError unless the limit is a finite number of at least 0."""
    if isinstance(limit, bool) or not isinstance(limit, Real) or not 0 <= float(limit) < math.inf:
        raise LimitError(f"{name}{limit!r}: a limit is a number of at least 0")


def _why_unknown(measurement: Any, quantity: Quantity) -> str:
    if quantity.needs and not any(known(getattr(measurement, WORK[which][0])) for which in quantity.needs):
        return _unknown_work(quantity.needs)
    if quantity.needs_peaks and measurement.why_unknown:
        return str(measurement.why_unknown)
    return f"the measurement has no {quantity.attribute}"


def _unknown_work(needs: tuple[str, ...]) -> str:
    names = " nor ".join(WORK[which][1] for which in needs)
    negated = f"neither {names} are" if len(needs) > 1 else f"its {names} are not"
    return f"{negated} known; say them: perf(fn, …, {' or '.join(WORK[which][2] for which in needs)})"

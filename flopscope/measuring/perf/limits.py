"""Limits on a measurement: a row for each quantity, the checks, and the marker that names limits."""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import pytest

from flopscope import _core
from flopscope.support.device import devices, find_device
from flopscope.support.suggest import did_you_mean
from flopscope.support.units import exact_text
from flopscope.support.units import significant_text as number

if TYPE_CHECKING:
    from flopscope.measuring.perf.check import Check

__tracebackhide__ = True  # pytest shows the line of the test instead

Verdict = Literal["passed", "failed", "unclear"]


class PerfFailure(AssertionError):
    """Raised if a limit is not met. The message has the measurement, the limit, the roofline and the likely reason."""

    def __init__(self, text: str, summary: str = "") -> None:
        super().__init__(text)
        self.perf_summary = summary or text
        """What was measured, the limit, and the call that set it, in one line."""


class LimitError(ValueError):
    """Raised for an invalid limit, or a limit of a quantity that is unknown."""


@dataclass(frozen=True)
class Quantity:
    """A number of a Measurement that is derived from its median time, and so has a confidence interval."""

    attribute: str
    unit: str
    needs: tuple[str, ...] = ()
    """Keys of WORK, at least one of which must be known."""
    size: float = 1.0
    """Size of the unit, in that of the attribute."""

    @property
    def is_time(self) -> bool:
        """Whether the quantity is the time itself; all others fall with the time."""
        return self.attribute == "median"


# Work that a quantity may need: the attribute, its name in messages, and the option that states it.
WORK = {"flops": ("flops", "FLOPs", "flops=…"), "bytes": ("bytes_total_moved", "bytes", "bytes=…")}

QUANTITIES = {
    "s": Quantity("median", "s", size=1e6),
    "ms": Quantity("median", "ms", size=1e3),
    "us": Quantity("median", "µs"),
    "ns": Quantity("median", "ns", size=1e-3),
    "gbytes_per_s": Quantity("gbytes_per_s", "GB/s", ("bytes",)),
    "tflops_per_s": Quantity("tflops_per_s", "TFLOP/s", ("flops",)),
    "pct_roofline": Quantity("pct_roofline", "% of the roofline", ("bytes", "flops")),
    "pct_peak_bandwidth": Quantity("pct_peak_bandwidth", "% of the peak bandwidth", ("bytes",)),
    "pct_peak_flops": Quantity("pct_peak_flops", "% of the peak FLOP/s", ("flops",)),
}

BOUNDS = tuple(bound for bound in _core.bounds if bound != "unknown")

NOISY = 0.1  # interquartile range over median
MOVED = "the last two measurements disagree by more than their intervals: other programs are running, or clocks vary"
_NO_ROOM = "the limit lies inside the confidence interval, even after longer measurements: choose a less tight limit"
_NO_INTERVAL = "a single sample has no confidence interval: measure for longer, perf(fn, …, max_time=…)"
_BEYOND = "the limit is beyond this device's roofline for this work and cannot be met"
_TOO_FAST = "the call is faster than the limit allows: the limit was written for more work, or for another device"
_NOISY = "some samples meet the limit, and they vary widely: other programs are running, or clocks vary"

COMPARISONS = {"equal_to": operator.eq, "at_least": operator.ge, "at_most": operator.le}


@dataclass(frozen=True)
class LimitResult:
    """The result of checking a limit."""

    limit: str
    """The limit, as "at least 80 % of the roofline"."""
    measured: str
    """The measured value, as "71.2 % of the roofline (70.9 to 71.6)"."""
    verdict: Verdict
    call: str
    """The limit as it was written: "at_least(pct_roofline=80)"."""
    likely: str = ""
    """Why it is not met, unless the bound of the measurement says so."""

    @property
    def summary(self) -> str:
        """One line for pytest's short test summary."""
        unclear = self.verdict == "unclear"
        found = f"unclear: {self.measured}" if unclear else self.measured.partition(" (")[0]
        return f"{found} measured, {self.limit} ({self.call})"


def known(value: Any) -> bool:
    """Return whether a number of a measurement is known: neither None nor NaN."""
    return value is not None and not math.isnan(value)


def is_noisy(measurement: Any) -> bool:
    return known(measurement.iqr) and bool(measurement.iqr > NOISY * measurement.median)


def check_quantity(measurement: Any, name: str, comparison: str, limit: float) -> LimitResult:
    """Check that the quantity of this name, with its confidence interval, is "at least" or "at most" the limit.

    Raises LimitError if the work or the peaks that it needs are unknown.
    """
    quantity = QUANTITIES[name]
    value = getattr(measurement, quantity.attribute)
    if not known(value):
        raise LimitError(f"{name}={limit:g} cannot be checked: {why_unknown(measurement, quantity)}")
    low, high = measurement.ci
    if quantity.is_time:
        value, low, high = (us / quantity.size for us in (value, low, high))
    else:
        low, high = value * measurement.median / high, value * measurement.median / low
    slow = quantity.is_time != (comparison == "at most")  # the limit asks for a long time
    share = measurement.pct_roofline
    sample = (measurement.max if slow else measurement.min) / measurement.median
    most = value * sample if quantity.is_time else value / sample if sample else math.nan
    reach = (operator.lt, value * share / 100) if quantity.is_time else (operator.gt, value / share * 100)
    found = verdict(low, high, comparison, limit)
    if found == "unclear":
        likely = _NO_ROOM if all(map(known, measurement.ci)) else _NO_INTERVAL
    elif slow:
        likely = _TOO_FAST
    elif 0 < share <= 100 and reach[0](limit, reach[1]):
        likely = _BEYOND
    else:
        likely = _NOISY if is_noisy(measurement) and verdict(most, most, comparison, limit) == "passed" else ""
    return LimitResult(
        limit=f"{comparison} {number(limit)} {quantity.unit}",
        measured=f"{number(value)} {quantity.unit} ({number(low)} to {number(high)})",
        verdict=found,
        call=f"{comparison.replace(' ', '_')}({name}={exact_text(limit)})",
        likely="" if found == "passed" else likely,
    )


def verdict(low: float, high: float, comparison: str, limit: float) -> Verdict:
    """Return "passed" or "failed" if all or none of the interval meets the limit, else "unclear", as for NaN."""
    if comparison == "at least":
        low, high, limit = -high, -low, -limit
    return "passed" if high <= limit else "failed" if low > limit else "unclear"


def check_count(what: str, value: float, limits: Mapping[str, float | None], method: str) -> LimitResult:
    """Compare a count with equal_to, at_least and at_most, for this method of Check. LimitError: all are None."""
    passed = {name: limit for name, limit in limits.items() if limit is not None}
    if not passed:
        raise LimitError(f"a limit on {what} needs equal_to, at_least or at_most")
    for name, limit in passed.items():
        require_number(f"{name}=", limit)
    met = all(COMPARISONS[name](value, limit) for name, limit in passed.items())
    text = " and ".join(f"{name.replace('_', ' ')} {exact_text(limit)}" for name, limit in passed.items())
    call = ", ".join(f"{name}={exact_text(limit)}" for name, limit in passed.items())
    verdict: Verdict = "passed" if met else "failed"
    return LimitResult(f"{text} {what}", f"{exact_text(value)} {what}", verdict, call=f"{method}({call})")


def work(measurement: Any, which: str) -> float:
    """Return the measurement's "flops" or "bytes". Raise LimitError, naming the option to pass, if unknown."""
    value = getattr(measurement, WORK[which][0])
    if not known(value):
        raise LimitError(_unknown_work((which,)))
    return float(value)


def require_limits(wanted: Mapping[str, Any]) -> None:
    """Raise LimitError unless all names are those of quantities, and their limits are numbers."""
    for name, limit in wanted.items():
        if name not in QUANTITIES:
            hint = did_you_mean(name, QUANTITIES)
            raise LimitError(f"there is no limit {name!r}{hint}; the limits are {', '.join(QUANTITIES)}")
        require_number(f"{name}=", limit)


def require_bounds(kinds: Sequence[Any]) -> None:
    """Raise LimitError unless there are kinds, and each is a bound."""
    wrong = [kind for kind in kinds if kind not in BOUNDS]
    if wrong or not kinds:
        hint = did_you_mean(wrong[0], BOUNDS) if wrong else ""
        named = ", ".join(map(repr, wrong))
        raise LimitError(f"bound({named}): the bound must be one of {', '.join(BOUNDS)}{hint}")


def require_number(name: str, limit: Any) -> None:
    """Raise LimitError unless the limit is a finite number of at least 0."""
    if isinstance(limit, bool) or not isinstance(limit, Real) or not 0 <= float(limit) < math.inf:
        raise LimitError(f"{name}{limit!r}: a limit must be a finite number of at least 0")


def why_unknown(measurement: Any, quantity: Quantity) -> str:
    if quantity.needs and not any(known(getattr(measurement, WORK[which][0])) for which in quantity.needs):
        return _unknown_work(quantity.needs)
    if quantity.attribute.startswith("pct_") and measurement.why_unknown:
        return str(measurement.why_unknown)
    return f"the measurement has no {quantity.attribute}"


def _unknown_work(needs: tuple[str, ...]) -> str:
    names = " nor ".join(WORK[which][1] for which in needs)
    negated = f"neither {names} are" if len(needs) > 1 else f"its {names} are not"
    return f"{negated} known; pass them: perf(fn, …, {' or '.join(WORK[which][2] for which in needs)})"


# The marker ``@pytest.mark.perf(…)``: limits by name, each a method of Check -----------------------------------------

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

# Methods of Check. The value in a marker is a dict of keyword arguments, one argument, a sequence of them, or True.
CHECKS = ("at_least", "at_most", "bound", "no_slower_than", "matches")
LIMITS = (*CHECKS, "flops", "bytes", "traffic", "kernels", "spills", "occupancy", "stalls", "no_sync")

_NAME = re.compile(r"cpu|cuda(:\d+)?")
_EXAMPLES = {"at_least": '; example: at_least={"pct_roofline": 80}', "at_most": '; example: at_most={"us": 20}'}


def limits_of(item: pytest.Item, checks: type[Check]) -> dict[str, Arguments]:
    """Return the arguments of the limits of an item's markers by name, without limits that are False.

    The marker closest to the test overrides the others. Raises LimitError, before anything is measured, for a name
    other than those of LIMITS and "device", and for arguments that the method of ``checks`` does not accept.
    """
    limits = {}
    for name, given in _merged(item).items():
        if name not in (*LIMITS, "device"):
            hint = did_you_mean(name, LIMITS)
            raise LimitError(f"@pytest.mark.perf has no argument {name!r}; it takes device, {', '.join(LIMITS)}{hint}")
        if name != "device" and given is not False:
            limits[name] = _checked(checks, name, given)
    return limits


def _checked(checks: type[Check], name: str, given: Any) -> Arguments:
    """Return the positional and the keyword arguments that a marker's value stands for."""
    by_name = dict(given) if isinstance(given, Mapping) else {}
    several = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    in_order = () if given is True or by_name else several
    try:
        bound = inspect.signature(getattr(checks, name)).bind(None, *in_order, **by_name)
    except TypeError as problem:
        raise LimitError(f"@pytest.mark.perf({name}={given!r}): {problem}{_EXAMPLES.get(name, '')}") from None
    if name in ("at_least", "at_most"):
        require_limits(by_name)
    elif name == "bound":
        require_bounds(bound.arguments.get("kinds", ()))
    return in_order, by_name


def check_unused(item: pytest.Item) -> None:
    """Fail an item whose own marker has limits but which does not use the fixture.

    Markers of a class or module are ignored, since they apply to those of its tests that use the fixture.
    """
    if any(mark.name == "perf" and set(mark.kwargs) & set(LIMITS) for mark in item.own_markers):
        pytest.fail("@pytest.mark.perf needs the perf fixture: add the argument `perf` to the test", pytrace=False)


def skip_without_device(item: pytest.Item) -> None:
    """Skip an item whose marker names a missing device, by "cpu", "cuda", "cuda:1" or a part of its name."""
    wanted = _merged(item).get("device")
    if wanted is None:
        return
    if not _NAME.fullmatch(str(wanted)):
        names = [device.name for device in devices()]
        if not any(str(wanted).lower() in name.lower() for name in names):
            pytest.skip(f"no device of this machine matches {wanted!r}; its devices are {', '.join(names)}")
    skip_unless_here(wanted)


def skip_unless_here(device: Any) -> None:
    """Skip a test of "cpu", "cuda" or "cuda:1" if that device is missing. measure() checks all other values."""
    if not _NAME.fullmatch(str(device)):
        return
    try:
        find_device(str(device))
    except (RuntimeError, ValueError) as reason:
        pytest.skip(str(reason))


def _merged(item: pytest.Item) -> dict[str, Any]:
    return dict(ChainMap(*(dict(mark.kwargs) for mark in item.iter_markers("perf"))))

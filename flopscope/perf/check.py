"""The ``perf`` fixture: measure a call, and hold limits against what was measured."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import pytest

from flopscope import _core
from flopscope.perf import limits, marker, store
from flopscope.perf.explain import explain
from flopscope.perf.kernels import Seen, Unseen, look
from flopscope.perf.limits import Held, LimitError, PerfFailure
from flopscope.perf.lock import alone
from flopscope.support.safe import printable
from flopscope.support.units import significant_text

__all__ = ["Check", "Perf", "Settings"]

__tracebackhide__ = True  # pytest shows the line of the test instead

LONGER = (3.0, 9.0)  # times as long, while a verdict is unclear
USUAL_SECONDS = 1.0  # where measure() does not say how long it goes on


@dataclass(frozen=True)
class Settings:
    """What the command line said."""

    unclear: str = "fail"
    """"fail", "skip" or "pass"."""
    compare: str = ""
    """The name of the stored run to compare with; "": none."""
    ratio: float = 1.05
    """How many times as long as there a median may take."""
    stored: Mapping[str, Any] = field(default_factory=dict)
    """That run, as store.load gives it."""
    tell: Callable[[str], object] | None = None
    """Shows a line to the user while tests run."""


class Perf:
    """The ``perf`` fixture of one test: ``perf(fn, *args)`` measures and gives what limits are chained to."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self.settings = settings
        self.passed = False  # whether the test's own code has
        self._test = item.nodeid
        self._marked = marker.limits_of(item)
        self._checks: list[Check] = []

    def __call__(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Check:
        """Measure ``fn(*args)``, alone on this machine, and hold the marker's limits against it.

        options: flopscope.measure's: ``flops`` and ``bytes`` of a call where they cannot be known, ``max_time`` in s, …
        What fn raises passes. Skips the test where ``device`` is not here.
        """
        marker.skip_unless_here(options.get("device"))
        check = Check(self.settings, fn, args, options)
        key = f"{self._test}#{len(self._checks)}"
        self._checks.append(check)
        for name, arguments in self._marked.items():
            marker.apply(check, name, arguments)
        if self.settings.compare:
            check._no_slower_than_stored(key)
        return check

    def close(self) -> None:
        """At the test's end: fails a test that passed, but whose marker's limits nothing was held against."""
        if self.passed and self._marked and not self._checks:
            reason = "the limits of @pytest.mark.perf were held against nothing: the test never calls perf(…)"
            pytest.fail(reason, pytrace=False)

    def records(self) -> list[dict[str, Any]]:
        """Of each measurement, ready for JSON: see store.write."""
        return [{"test": self._test, "key": f"{self._test}#{i}", **c.record()} for i, c in enumerate(self._checks)]


class Check:
    """One measurement, and the limits that were held against it. Each method returns the Check, for the next limit.

    A limit that is not kept raises PerfFailure; one that makes no sense, LimitError.
    """

    def __init__(
        self, settings: Settings, fn: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
    ) -> None:
        self._settings = settings
        self._fn, self._args, self._options = fn, args, dict(options)
        self._held: list[Held] = []
        self._against: float | None = None  # times the stored run's median
        self.name = _name_of(fn)
        self.measurement = self._measure(1)
        """The flopscope.Measurement; of a longer run where a first verdict was unclear."""

    def at_least(self, **least: float) -> Check:
        """Limits from below: us (the median, in µs), gbytes_per_s, tflops_per_s, pct_roofline, pct_peak_bandwidth,
        pct_peak_flops."""
        return self._hold_all("at least", least)

    def at_most(self, **most: float) -> Check:
        """Limits from above, of what at_least takes."""
        return self._hold_all("at most", most)

    def bound(self, *kinds: str) -> Check:
        """What bounds it is one of these: "memory", "compute", "cache", "launch", "latency"."""
        wrong = [kind for kind in kinds if kind not in BOUNDS]
        if wrong or not kinds:
            raise LimitError(f"bound({', '.join(map(repr, wrong))}): what bounds is one of {', '.join(BOUNDS)}")
        found = limits.check_bound(self.measurement)
        kept = found in kinds
        return self._settle(Held(f"bound by {' or '.join(kinds)}", f"bound by {found}", "passed" if kept else "failed"))

    def no_slower_than(self, other: Callable[..., Any], *args: Any, ratio: float = 1.05) -> Check:
        """The median takes at most ``ratio`` times that of ``other``, measured anew in turns with it.

        other: called with the same arguments, or with ``args`` where given. The ratio's confidence interval decides.
        """
        limits.require_number("ratio=", ratio)
        from flopscope.timing.paired import compare_times

        def mine() -> Any:
            return self._fn(*self._args)

        def theirs() -> Any:
            return other(*(args or self._args))

        name = _name_of(other)
        margin = max(ratio, 1 / ratio) - 1 if ratio > 0 else 0.0  # rounds go on until the limit is on one side
        for times in (1.0, *LONGER):
            with alone(self._settings.tell):
                compared = compare_times(mine, theirs, **_longer(compare_times, {"margin": margin}, times))
            low, high = compared.ci
            held = _held_ratio(compared.ratio, low, high, ratio, f"the time of {name}")
            if held.verdict != "unclear":
                break
        likely = f"it and {name} were timed in turns, so that what slows the device down slows both: it is the code"
        return self._settle(held, likely if held.verdict == "failed" else "")

    def flops(
        self, equal_to: float | None = None, *, at_least: float | None = None, at_most: float | None = None
    ) -> Check:
        """FLOPs of a call: a FLOP as everywhere in flopscope, a multiply-add being two."""
        return self._count("FLOPs", limits.work(self.measurement, "flops"), _SHAPES, equal_to, at_least, at_most)

    def bytes(
        self, equal_to: float | None = None, *, at_least: float | None = None, at_most: float | None = None
    ) -> Check:
        """Bytes that a call must read and write."""
        return self._count("bytes", limits.work(self.measurement, "bytes"), _SHAPES, equal_to, at_least, at_most)

    def kernels(
        self, equal_to: float | None = None, *, at_least: float | None = None, at_most: float | None = None
    ) -> Check:
        """Kernels that a call launches, seen by CUPTI; copies and fills are none.

        The test is skipped where there is no CUDA device or no CUPTI. A call without a kernel keeps no at_most: what
        launches nothing has fused nothing.
        """
        names = self._look("kernels()").kernels
        if not names and at_most is not None:
            raise PerfFailure(f"{self.name} launched no kernel at all, so kernels(at_most={at_most:g}) says nothing")
        likely = "it launched " + (", ".join(names) or "nothing")
        return self._count("kernels", len(names), likely, equal_to, at_least, at_most)

    def no_sync(self) -> Check:
        """A call does not wait for the device: no synchronising CUDA call, blocking copy or cudaFree, seen by CUPTI.

        The test is skipped where there is no CUDA device or no CUPTI.
        """
        waits = self._look("no_sync()").waits
        held = Held("no waiting for the device", f"{len(waits)} waits", "failed" if waits else "passed")
        return self._settle(held, f"it called {', '.join(waits)}; item(), .cpu(), print and cudaFree do so")

    def record(self) -> dict[str, Any]:
        """The measurement and the limits, ready for JSON."""
        device = store.device_of(self.measurement)
        return {
            "name": self.name,
            "device": device,
            "machine": store.fingerprint(device),
            "measurement": self.measurement.to_dict(),
            "limits": [asdict(held) for held in self._held],
            "ratio_to_stored": self._against,
        }

    def _measure(self, times: float) -> Any:
        from flopscope.timing.measuring import measure

        with alone(self._settings.tell):
            return measure(self._fn, *self._args, **_longer(measure, self._options, times))

    def _hold_all(self, comparison: str, wanted: Mapping[str, float]) -> Check:
        if not wanted:
            raise LimitError(f"{comparison.replace(' ', '_')}() says what: {', '.join(limits.QUANTITIES)}")
        for name, limit in wanted.items():
            self._settle(self._until_clear(partial(self._hold, name, comparison, limit)))
            if comparison == "at least" and limits.is_of_cache(self.measurement, name):
                warnings.warn(_OF_CACHE.format(what=self.name, name=name, limit=limit), stacklevel=3)
        return self

    def _hold(self, name: str, comparison: str, limit: float) -> Held:
        return limits.hold(self.measurement, name, comparison, limit)

    def _until_clear(self, hold: Callable[[], Held]) -> Held:
        """What hold() says, measuring for longer while that is unclear.

        A longer measurement settles a limit only if its interval meets that of the one before: where they lie apart,
        the machine changed in between, and the limit lies inside what was seen.
        """
        held = hold()
        for times in LONGER:
            if held.verdict != "unclear":
                break
            before = self.measurement.ci
            self.measurement = self._measure(times)
            held = hold()
            if held.verdict != "unclear" and _apart(before, self.measurement.ci):
                held = replace(held, verdict="unclear", moved=True)
        return held

    def _count(self, what: str, value: float, likely: str, *wanted: float | None) -> Check:
        return self._settle(
            limits.hold_exactly(what, value, dict(zip(limits.COMPARISONS, wanted, strict=True))), likely
        )

    def _look(self, limit: str) -> Seen:
        try:
            with alone(self._settings.tell):
                return look(self._fn, self._args)
        except Unseen as reason:
            pytest.skip(f"{limit} needs to see what the device does: {reason}")

    def _no_slower_than_stored(self, key: str) -> None:
        then = store.median_of(self._settings.stored, key, store.device_of(self.measurement))
        if then is None:
            return  # the summary says so

        def hold() -> Held:
            now = self.measurement
            self._against = now.median / then.median
            low, high = now.ci[0] / then.high, now.ci[1] / then.low
            return _held_ratio(self._against, low, high, self._settings.ratio, f"the time in {self._settings.compare}")

        held = self._until_clear(hold)
        likely = (
            f"it took {significant_text(then.median)} µs in {self._settings.compare}: code, libraries or clocks changed"
        )
        self._settle(held, likely if held.verdict == "failed" else "")

    def _settle(self, held: Held, likely: str = "") -> Check:
        """Remember what became of a limit, and raise unless it is kept."""
        self._held.append(held)
        if held.verdict == "passed" or (held.verdict == "unclear" and self._settings.unclear == "pass"):
            return self
        self._refuse(held, explain(self.name, self.measurement, held, likely))

    def _refuse(self, held: Held, text: str) -> NoReturn:
        if held.verdict == "unclear" and self._settings.unclear == "skip":
            pytest.skip(f"unclear: {held.measured}; the limit is {held.limit}")
        raise PerfFailure(text)


_OF_CACHE = (
    "{what} keeps at_least({name}={limit:g}) since its data sat in cache, which is faster than memory: that says "
    'nothing of memory; measure it with cache="cold", or a larger size'
)
BOUNDS = tuple(bound for bound in _core.bounds() if bound != "unknown")
_SHAPES = "the work is that of the call's shapes and dtypes: other ones, or another op, than the limit was written for"


def _apart(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Whether two intervals have nothing in common; NaN has no such bounds."""
    return a[1] < b[0] or b[1] < a[0]


def _held_ratio(value: float, low: float, high: float, limit: float, of_what: str) -> Held:
    text = f"at most {significant_text(limit)} × {of_what}"
    measured = f"{significant_text(value)} × ({significant_text(low)} to {significant_text(high)})"
    return Held(text, measured, limits.verdict(low, high, "at most", limit))


def _longer(function: Callable[..., Any], options: Mapping[str, Any], times: float) -> dict[str, Any]:
    """The options of measure() or compare_times() to go on `times` as long, and not to stop before at less spread."""
    if times == 1:
        return dict(options)
    usual = inspect.signature(function).parameters
    given = {name: usual[name].default for name in ("max_time", "spread") if name in usual} | dict(options)
    given["max_time"] = times * (given.get("max_time") or USUAL_SECONDS)
    return given | ({"spread": given["spread"] / times} if "spread" in given else {})


def _name_of(fn: Callable[..., Any]) -> str:
    return printable(str(getattr(fn, "__name__", None) or type(fn).__name__))

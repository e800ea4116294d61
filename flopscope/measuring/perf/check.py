"""The ``perf`` fixture: measures a call and checks limits on the measurement."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pytest

from flopscope.measuring import measuring, paired
from flopscope.measuring.perf import facts, limits, marker, store
from flopscope.measuring.perf.explain import explain
from flopscope.measuring.perf.kernels import Seen, Unseen, look
from flopscope.measuring.perf.limits import LimitError, LimitResult, PerfFailure
from flopscope.measuring.perf.lock import alone
from flopscope.measuring.perf.runs import Run
from flopscope.measuring.perf.store import Median
from flopscope.measuring.stage import name_of
from flopscope.support.safe import printable
from flopscope.support.units import significant_text

__tracebackhide__ = True  # pytest shows the line of the test instead

LONGER = (3.0, 9.0)  # factors by which measurements are extended while a verdict is unclear
LONGEST_PARAM = 100  # characters
USUAL_SECONDS = 1.0  # if measure() has no default of max_time


@dataclass(frozen=True)
class Settings:
    """Options of the command line."""

    unclear: str = "fail"
    """Outcome of an unclear limit: "fail", "skip" or "pass"."""
    compare: str = ""
    """Name of the stored run to compare with; "": none."""
    ratio: float = 1.05
    """Maximum ratio of a median to the stored one."""
    stored: Run | None = None
    """The stored run."""
    write_line: Callable[[str], object] | None = None
    """Writes a line to the terminal while tests run."""


class Perf:
    """The ``perf`` fixture of one test: ``perf(fn, *args)`` measures a call and returns a Check to chain limits to."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self.settings = settings
        self.passed = False  # whether the test function has passed
        self._test = item.nodeid
        self._params = _params_of(item)
        self._marked = marker.limits_of(item, Check)
        self._checks: list[Check] = []

    def __call__(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Check:
        """Measure ``fn(*args)`` and check the marker's limits. Only one process of a user measures at a time.

        options: those of flopscope.measure, as ``flops`` and ``bytes`` where they are unknown, ``max_time`` in s, …

        Exceptions of fn propagate. Skips the test if ``device`` is not available.
        """
        marker.skip_unless_here(options.get("device"))
        check = Check(self.settings, fn, args, options)
        key = f"{self._test}#{len(self._checks)}"
        self._checks.append(check)
        for name, (in_order, by_name) in self._marked.items():
            getattr(check, name)(*in_order, **by_name)
        if self.settings.compare:
            check._no_slower_than_stored(key)
        return check

    def close(self) -> None:
        """Fail a test that passed although its marker has limits and it has measured nothing."""
        if self.passed and self._marked and not self._checks:
            reason = "the limits of @pytest.mark.perf were not checked: the test never calls perf(…)"
            pytest.fail(reason, pytrace=False)

    def records(self) -> list[dict[str, Any]]:
        """Return one record per measurement, ready for JSON; see store.write."""
        test = {"test": self._test, "params": self._params, "versions": facts.versions() if self._checks else {}}
        return [{**test, "key": f"{self._test}#{i}", **c.record()} for i, c in enumerate(self._checks)]


class Check:
    """One measurement and the limits checked on it. Each method returns the Check, for the next limit.

    A method raises PerfFailure if the limit is exceeded, and LimitError if the limit is invalid.
    """

    def __init__(
        self, settings: Settings, fn: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
    ) -> None:
        self._settings = settings
        self._fn, self._args, self._options = fn, args, dict(options)
        self._results: list[LimitResult] = []
        self._ratio_to_stored: float | None = None
        self.name = name_of(fn)
        self.measurement = self._measure(1)
        """The flopscope.Measurement; the last one if a limit was unclear."""

    def at_least(self, **least: float) -> Check:
        """Check lower limits of the median (s, ms, us or ns), gbytes_per_s, tflops_per_s, pct_roofline,
        pct_peak_bandwidth, pct_peak_flops."""
        return self._check_all("at least", least)

    def at_most(self, **most: float) -> Check:
        """Check upper limits of the same quantities as at_least."""
        return self._check_all("at most", most)

    def bound(self, *kinds: str) -> Check:
        """Check that the call is bound by one of these: "memory", "compute", "cache", "launch", "latency",
        "inefficient"."""
        limits.require_bounds(kinds)
        actual = limits.check_bound(self.measurement)
        verdict: limits.Verdict = "passed" if actual in kinds else "failed"
        limit, found = f"bound by {' or '.join(kinds)}", f"bound by {actual}"
        call = f"bound({', '.join(map(repr, kinds))})"
        return self._settle(LimitResult(limit, found, verdict, call=call))

    def no_slower_than(self, other: Callable[..., Any], *args: Any, ratio: float = 1.05) -> Check:
        """Check that the call takes at most ``ratio`` times as long as ``other``, by timing both alternately.

        other: called with the same arguments, or with ``args`` if there are any. The limit is compared with the
        confidence interval of the ratio of medians.
        """
        limits.require_number("ratio=", ratio)

        def mine() -> Any:
            return self._fn(*self._args)

        def theirs() -> Any:
            return other(*(args or self._args))

        name = name_of(other)
        margin = max(ratio, 1 / ratio) - 1 if ratio > 0 else 0.0  # rounds continue until the limit is on one side
        for times in (1.0, *LONGER):
            with alone(self._settings.write_line):
                options = _longer(paired.compare_times, {"margin": margin}, times)
                compared = paired.compare_times(mine, theirs, **options)
            low, high = compared.ci
            call = f"no_slower_than({name}, ratio={significant_text(ratio)})"
            result = _check_ratio(Median(compared.ratio, low, high), ratio, f"the time of {name}", call)
            if result.verdict != "unclear":
                break
        likely = f"the code: it and {name} were timed alternately, so a slowdown of the device affects both"
        return self._settle(result, likely if result.verdict == "failed" else "")

    def flops(
        self, equal_to: float | None = None, *, at_least: float | None = None, at_most: float | None = None
    ) -> Check:
        """Check the FLOPs of a call. A multiply-add counts as two FLOPs."""
        return self._count("FLOPs", limits.work(self.measurement, "flops"), _SHAPES, equal_to, at_least, at_most)

    def bytes(
        self, equal_to: float | None = None, *, at_least: float | None = None, at_most: float | None = None
    ) -> Check:
        """Check the bytes that a call must read and write."""
        return self._count("bytes", limits.work(self.measurement, "bytes"), _SHAPES, equal_to, at_least, at_most)

    def traffic(self, *, at_most: float | None = None, at_least: float | None = None) -> Check:
        """Check the bytes that the GPU's counters see a call move, over the bytes that it must read and write.

        1.1 allows a tenth more. Skips the test if counters are unavailable.
        """
        ratio = self._counted().traffic_ratio
        if not limits.known(ratio):
            raise LimitError(f"traffic() needs the bytes that {self.name} must move; pass them: perf(fn, …, bytes=…)")
        wanted = {"equal_to": None, "at_least": at_least, "at_most": at_most}
        result = limits.check_count("× the bytes it must move", round(ratio, 3), wanted)
        given = ", ".join(f"{name}={limit:g}" for name, limit in wanted.items() if limit is not None)
        return self._settle(replace(result, call=f"traffic({given})"), self._counted().traffic)

    def kernels(
        self, equal_to: float | None = None, *, at_least: float | None = None, at_most: float | None = None
    ) -> Check:
        """Check the number of kernels that a call launches, without copies and fills, as recorded by CUPTI.

        Skips the test if CUDA or CUPTI is unavailable. A call without kernels fails at_most, since at_most is meant to
        check that kernels were fused.
        """
        names = self._look("kernels()").kernels
        if not names and at_most is not None:
            raise PerfFailure(
                f"{self.name} launched no kernel at all, so kernels(at_most={at_most:g}) has nothing to check"
            )
        likely = "it launched " + (", ".join(names) or "nothing")
        return self._count("kernels", len(names), likely, equal_to, at_least, at_most)

    def no_sync(self) -> Check:
        """Check that a call does not wait for the device: no synchronizing CUDA call, blocking copy or cudaFree.

        The calls are recorded by CUPTI. Skips the test if CUDA or CUPTI is unavailable.
        """
        waits = self._look("no_sync()").waits
        verdict: limits.Verdict = "failed" if waits else "passed"
        result = LimitResult("no waiting for the device", f"{len(waits)} waits", verdict, call="no_sync()")
        return self._settle(result, f"it called {', '.join(waits)}; item(), .cpu(), print and cudaFree wait")

    def record(self) -> dict[str, Any]:
        """Return the measurement and the limits, ready for JSON."""
        device = store.device_of(self.measurement)
        return {
            "name": self.name,
            "device": device,
            "machine": store.fingerprint(device),
            "measurement": facts.rounded(self.measurement.record()),
            "ops": facts.calls_per_second(self.measurement.mean),
            "limits": [asdict(result) for result in self._results],
            "ratio_to_stored": self._ratio_to_stored,
        }

    def _measure(self, times: float) -> Any:
        with alone(self._settings.write_line):
            return measuring.measure(self._fn, *self._args, **_longer(measuring.measure, self._options, times))

    def _counted(self) -> Any:
        """Return the measurement with its counters, measured again with them the first time."""
        if not self.measurement.counters:
            self._options["counters"] = "require"
            try:
                self.measurement = self._measure(1)
            except RuntimeError as problem:
                if "hardware counters are unavailable" not in str(problem):
                    raise
                pytest.skip(f"traffic() needs {problem}")
            finally:
                self._options["counters"] = False
        return self.measurement

    def _check_all(self, comparison: str, wanted: Mapping[str, float]) -> Check:
        if not wanted:
            raise LimitError(f"{comparison.replace(' ', '_')}() needs a limit: {', '.join(limits.QUANTITIES)}")
        limits.require_limits(wanted)  # before the first one is checked, which may measure for longer
        for name, limit in wanted.items():
            self._settle(self._until_clear(partial(self._check, name, comparison, limit)))
            if comparison == "at least" and limits.is_of_cache(self.measurement, name):
                warnings.warn(_OF_CACHE.format(what=self.name, name=name, limit=limit), stacklevel=3)
        return self

    def _check(self, name: str, comparison: str, limit: float) -> LimitResult:
        return limits.check_quantity(self.measurement, name, comparison, limit)

    def _until_clear(self, check: Callable[[], LimitResult]) -> LimitResult:
        """Return the result of check(), measuring for longer while it is unclear.

        A longer measurement decides only if its interval overlaps the previous one. Otherwise the machine has changed
        in between, and the result stays unclear.
        """
        result = check()
        for times in LONGER:
            if result.verdict != "unclear":
                break
            before = self.measurement.ci
            self.measurement = self._measure(times)
            result, (low, high) = check(), self.measurement.ci
            if result.verdict != "unclear" and (before[1] < low or high < before[0]):
                result = replace(result, verdict="unclear", moved=True)
        return result

    def _count(self, what: str, value: float, likely: str, *wanted: float | None) -> Check:
        return self._settle(limits.check_count(what, value, dict(zip(limits.COMPARISONS, wanted, strict=True))), likely)

    def _look(self, limit: str) -> Seen:
        try:
            with alone(self._settings.write_line):
                return look(self._fn, self._args)
        except Unseen as reason:
            pytest.skip(f"{limit} needs records of the device's activity: {reason}")

    def _no_slower_than_stored(self, key: str) -> None:
        run = self._settings.stored
        stored = None if run is None else run.median_of(key, store.device_of(self.measurement))
        if stored is None:
            return  # reported in the summary

        def check() -> LimitResult:
            ratio = store.ratio_of(Median(self.measurement.median, *self.measurement.ci), stored)
            self._ratio_to_stored = ratio.median
            name = self._settings.compare
            return _check_ratio(ratio, self._settings.ratio, f"the time in {name}", f"--perf-compare {name}")

        result = self._until_clear(check)
        before = f"it took {significant_text(stored.median)} µs in {self._settings.compare}"
        likely = f"{before}: code, libraries or clocks changed"
        self._settle(result, likely if result.verdict == "failed" else "")

    def _settle(self, result: LimitResult, likely: str = "") -> Check:
        """Record the result of a limit, and raise unless it passed."""
        self._results.append(result)
        if result.verdict == "passed" or (result.verdict == "unclear" and self._settings.unclear == "pass"):
            return self
        if result.verdict == "unclear" and self._settings.unclear == "skip":
            pytest.skip(f"unclear: {result.measured}; the limit is {result.limit}")
        raise PerfFailure(explain(self.name, self.measurement, result, likely), result.summary)


_OF_CACHE = (
    "{what} meets at_least({name}={limit:g}) only because its data was in cache, which is faster than memory; to test "
    'the memory bandwidth, measure with cache="cold" or a larger size'
)
_SHAPES = "the work follows from the shapes and dtypes of the call: these, or the op, differ from the limit's"


def _check_ratio(ratio: Median, limit: float, of_what: str, call: str) -> LimitResult:
    text = f"at most {significant_text(limit)} × {of_what}"
    value, low, high = map(significant_text, ratio)
    verdict = limits.verdict(ratio.low, ratio.high, "at most", limit)
    return LimitResult(text, f"{value} × ({low} to {high})", verdict, found=f"{value} × measured", call=call)


def _longer(function: Callable[..., Any], options: Mapping[str, Any], times: float) -> dict[str, Any]:
    """Return options of measure() or compare_times() for `times` the duration, with the spread reduced to match."""
    if times == 1:
        return dict(options)
    parameters = inspect.signature(function).parameters
    longer = {name: parameters[name].default for name in ("max_time", "spread") if name in parameters} | dict(options)
    longer["max_time"] = times * (longer.get("max_time") or USUAL_SECONDS)
    return longer | ({"spread": longer["spread"] / times} if "spread" in longer else {})


def _params_of(item: pytest.Item) -> dict[str, str]:
    """Return the parameters of a test as texts: of other values than numbers and texts, the name or the type."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    return {name: printable(_text_of(value))[:LONGEST_PARAM] for name, value in params.items()}


def _text_of(value: Any) -> str:
    plain = value is None or isinstance(value, (str, int, float, complex))
    return str(value) if plain else str(getattr(value, "__name__", None) or type(value).__name__)

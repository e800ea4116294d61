"""The ``perf`` fixture: measures a call, looks at the device activity of one, and checks limits on both."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pytest

from flopscope.measuring import measuring, paired
from flopscope.measuring.checking.check import check
from flopscope.measuring.measurement import IMPOSSIBLE
from flopscope.measuring.perf import limits
from flopscope.measuring.perf.limits import LimitError, LimitResult, PerfFailure
from flopscope.measuring.perf.report import bound_reason, explain
from flopscope.measuring.sampling import Beside, CpuClock
from flopscope.measuring.stage import name_of
from flopscope.measuring.why import Launch, waiting
from flopscope.record.counters import STALLS
from flopscope.record.profile import profile
from flopscope.record.ranges import record_function
from flopscope.results.events import Event
from flopscope.support.lock import alone
from flopscope.support.units import significant_text

__tracebackhide__ = True  # pytest shows the line of the test instead

LONGER = (3.0, 9.0)  # factors by which measurements are extended while a verdict is unclear
Limit = float | None
PLAIN = (str, int, float, type(None))  # parameters that are stored as they are
LONGEST_PAIRS = 30.0  # seconds for which calls are compared while that is unclear
RANGE = "flopscope.perf"  # around the call, since the profile itself waits for the device before and after
# CUDA calls that wait for the device: synchronization, copies to and from the host, and freeing memory.
BLOCKING = re.compile(
    r"cu(da)?(Device|Ctx|Stream|Event)Synchronize|cu(da)?Memcpy(?!.*(Async|Peer))|cu(da|Mem)Free(?!.*(Async|Host))"
)
# Names of CUPTI's synchronization records in which a thread waits.
WAITS = ("Event Sync", "Stream Sync", "Context Sync")


@dataclass(frozen=True)
class Settings:
    """Options of the command line."""

    unclear: str = "fail"
    """Outcome of an unclear limit: "fail", "skip" or "pass"."""
    write_line: Callable[[str], object] | None = None
    """Writes a line to the terminal while tests run."""
    seconds: float = 0.0
    """How long each call is timed for ``flopscope ab``, whatever its limits are; 0: it is not that which runs."""


class Perf:
    """The ``perf`` fixture of one test: ``perf(fn, *args)`` measures a call and returns a Check to chain limits to."""

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self.settings = settings
        self.passed = False  # whether the test function has passed
        self._test = item.nodeid
        self._params, self._param = _params_of(item), getattr(getattr(item, "callspec", None), "id", None)
        self._marked = limits.limits_of(item, Check)
        self._checks: list[Check] = []

    def __call__(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Check | Unlimited:
        """Measure ``fn(*args)`` and check the marker's limits. Only one process of a user measures at a time.

        options: those of flopscope.measure, as ``flops`` and ``bytes`` where they are unknown, ``max_time`` in s, …

        Exceptions of fn propagate. Skips the test if ``device`` is not available.
        """
        limits.skip_unless_here(options.get("device"))
        if self.settings.seconds:
            options |= {"max_time": self.settings.seconds, "spread": 0.0}
        check = Check(self.settings, fn, args, options)
        self._checks.append(check)
        if self.settings.seconds:
            return Unlimited(check)
        for limit, (in_order, by_name) in self._marked.items():
            getattr(check, limit)(*in_order, **by_name)
        return check

    def close(self) -> None:
        """Fail a test that passed although its marker has limits and it has measured nothing."""
        if self.passed and self._marked and not self._checks:
            reason = "the limits of @pytest.mark.perf were not checked: the test never calls perf(…)"
            pytest.fail(reason, pytrace=False)

    def records(self) -> list[dict[str, Any]]:
        """Return one record per measurement, ready for JSON; see stored.content_of."""
        test = {"test": self._test, "params": self._params, "param": self._param}
        return [{**test, "number": number, **check.record()} for number, check in enumerate(self._checks)]


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
        self.name = name_of(fn)
        self._beside = CpuClock.beside = Beside() if settings.seconds else None
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
        actual = self.measurement.bound
        if actual == "unknown":
            why = limits.why_unknown(self.measurement, limits.QUANTITIES["pct_roofline"])
            raise LimitError(f"the bound is unknown: {why}")
        verdict: limits.Verdict = "passed" if actual in kinds else "failed"
        limit, found = f"bound by {' or '.join(kinds)}", f"bound by {actual}"
        call = f"bound({', '.join(map(repr, kinds))})"
        return self._settle(LimitResult(limit, found, verdict, call=call), bound_reason(self.measurement))

    def no_slower_than(self, other: Callable[..., Any], *args: Any, ratio: float = 1.05) -> Check:
        """Check that the call takes at most ``ratio`` times as long as ``other``, by timing both alternately.

        other: called with the same arguments, or with ``args`` if there are any. The limit is compared with the
        confidence interval of the ratio; they are timed until it is clear, or for half a minute.
        """
        limits.require_number("ratio=", ratio)
        mine, theirs = partial(self._fn, *self._args), partial(other, *(args or self._args))
        name = name_of(other)
        margin = max(ratio, 1 / ratio) - 1 if ratio > 0 else 0.0  # rounds continue until the limit is on one side
        with alone(self._settings.write_line):
            compared = paired.compare_times(mine, theirs, margin=margin, max_time=LONGEST_PAIRS)
        call = f"no_slower_than({name}, ratio={significant_text(ratio)})"
        value, (low, high) = significant_text(compared.ratio), map(significant_text, compared.ci)
        verdict = "failed" if compared.impossible else limits.verdict(*compared.ci, "at most", ratio)
        text = f"at most {significant_text(ratio)} × the time of {name}"
        result = LimitResult(text, f"{value} × ({low} to {high})", verdict, call=call)
        in_turns = f"the code: it and {name} were timed alternately, so a slowdown of the device affects both"
        likely = compared.impossible or in_turns
        return self._settle(result, likely if result.verdict == "failed" else "")

    def matches(self, reference: Callable[..., Any], *args: Any, **options: Any) -> Check:
        """Check that the call computes what ``reference`` does, and that its time is that of its work.

        reference: called with the same arguments, or both with ``args`` if there are any. options: flopscope.check's.
        """
        with alone(self._settings.write_line):
            found = check(self._fn, reference, *(args or self._args), **{"peaks": "none", "max_time": 0.5, **options})
        right = found.verdict not in ("wrong", "invalid")
        limit, call = f"the outputs of {found.reference}", f"matches({found.reference})"
        measured = f"right for {len(found.cases)} inputs" if right else found.verdict
        return self._settle(LimitResult(limit, measured, "passed" if right else "failed", call=call), found.reason)

    def flops(self, equal_to: Limit = None, *, at_least: Limit = None, at_most: Limit = None) -> Check:
        """Check the FLOPs of a call. A multiply-add counts as two FLOPs."""
        return self._count("FLOPs", limits.work(self.measurement, "flops"), _SHAPES, equal_to, at_least, at_most)

    def bytes(self, equal_to: Limit = None, *, at_least: Limit = None, at_most: Limit = None) -> Check:
        """Check the bytes that a call must read and write."""
        return self._count("bytes", limits.work(self.measurement, "bytes"), _SHAPES, equal_to, at_least, at_most)

    def traffic(self, *, at_most: Limit = None, at_least: Limit = None) -> Check:
        """Check the bytes that the GPU's counters see a call move, over the bytes that it must read and write.

        1.1 allows a tenth more. Skips the test if counters are unavailable.
        """
        ratio = self._counted().traffic_ratio
        if not limits.known(ratio):
            raise LimitError(f"traffic() needs the bytes that {self.name} must move; pass them: perf(fn, …, bytes=…)")
        what, likely = "× the bytes it must move", self._counted().traffic
        return self._count(what, round(ratio, 3), likely, None, at_least, at_most, name="traffic")

    def kernels(self, equal_to: Limit = None, *, at_least: Limit = None, at_most: Limit = None) -> Check:
        """Check the number of kernels that a call launches, without copies and fills, as recorded by CUPTI.

        Skips the test if CUDA or CUPTI is unavailable. A call without kernels fails at_most, since at_most is meant to
        check that kernels were fused.
        """
        names = self._look().kernels
        if not names and at_most is not None:
            raise PerfFailure(f"{self.name} launched no kernel at all, so at_most={at_most:g} has nothing to check")
        likely = "it launched " + (", ".join(names) or "nothing")
        return self._count("kernels", len(names), likely, equal_to, at_least, at_most)

    def spills(self, at_most: float) -> Check:
        """Check the percent of a call's instructions that access local memory, to which registers spill.

        Skips the test if counters are unavailable.
        """
        counts = self._counted().counters
        percent = 100 * counts.get("local_requests", math.nan) / (counts.get("instructions") or math.nan)
        what, likely = "% of the instructions on local memory", self.measurement.explanation
        return self._count(what, round(percent, 2), likely, None, None, at_most, name="spills")

    def occupancy(self, at_least: float) -> Check:
        """Check the theoretical occupancy, in percent, of the kernel that takes most of a call's time."""
        launch: Launch | None = self.measurement.launch
        if launch is None and self.measurement.kernels is None:
            pytest.skip("occupancy() needs records of the device's activity")
        if launch is None:
            raise PerfFailure(f"{self.name} launched no kernel at all, so there is nothing to check")
        likely, percent = f"{launch.kernel} is limited by {launch.limit}", round(launch.theoretical_occupancy, 1)
        return self._count("% occupancy", percent, likely, None, at_least, None, name="occupancy")

    def stalls(self, what: str, at_most: float) -> Check:
        """Check the percent of their time for which warps of a call wait for something, as "memory" or "a barrier".

        Skips the test if counters are unavailable. Raises LimitError, which names what is known, for anything else.
        """
        if what not in STALLS:
            raise LimitError(f"stalls() knows the waits for {', '.join(map(repr, STALLS))}, not {what!r}")
        percent = round(100 * waiting(self._counted().counters, what), 1)
        return self._count(f"% waits for {what}", percent, self.measurement.explanation, None, None, at_most)

    def no_sync(self) -> Check:
        """Check that a call does not wait for the device: no synchronizing CUDA call, blocking copy or cudaFree.

        The calls are recorded by CUPTI. Skips the test if CUDA or CUPTI is unavailable.
        """
        waits = self._look().waits
        verdict: limits.Verdict = "failed" if waits else "passed"
        result = LimitResult("no waiting for the device", f"{len(waits)} waits", verdict, call="no_sync()")
        return self._settle(result, f"it called {', '.join(waits)}; item(), .cpu(), print and cudaFree wait")

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "device": self.measurement.device,
            "measurement": self.measurement.record(),
            "limits": [asdict(result) for result in self._results],
            **(self._beside.times() if self._beside else {}),
        }

    def _measure(self, times: float) -> Any:
        with alone(self._settings.write_line):
            return measuring.measure(self._fn, *self._args, **_longer(self._options, times))

    def _counted(self) -> Any:
        """Return the measurement with its counters, measured again with them the first time."""
        if not self.measurement.counters:
            self._options["counters"] = "require"
            try:
                self.measurement = self._measure(1)
            except RuntimeError as problem:
                if "hardware counters are unavailable" not in str(problem):
                    raise
                pytest.skip(str(problem))
            finally:
                self._options["counters"] = False
        return self.measurement

    def _check_all(self, comparison: str, wanted: Mapping[str, float]) -> Check:
        if not wanted:
            raise LimitError(f"{comparison.replace(' ', '_')}() needs a limit: {', '.join(limits.QUANTITIES)}")
        limits.require_limits(wanted)  # before the first one is checked, which may measure for longer
        for name, limit in wanted.items():
            check = partial(limits.check_quantity, name=name, comparison=comparison, limit=limit)
            self._settle(self._until_clear(check))
        return self

    def _until_clear(self, check: Callable[[Any], LimitResult]) -> LimitResult:
        """Return the result of check(measurement), measuring for longer while it is unclear.

        A longer measurement decides only if its interval overlaps the previous one. Otherwise the machine has changed
        in between, and the result stays unclear.
        """
        result = check(self.measurement)
        for times in LONGER:
            if result.verdict != "unclear":
                break
            before = self.measurement.ci
            self.measurement = self._measure(times)
            result, (low, high) = check(self.measurement), self.measurement.ci
            if result.verdict != "unclear" and (before[1] < low or high < before[0]):
                result = replace(result, verdict="unclear", likely=limits.MOVED)
        return result

    def _count(self, what: str, value: float, likely: str, *wanted: Limit, name: str = "") -> Check:
        if not limits.known(value):
            raise LimitError(f"the {what} of {self.name} are unknown here")
        each = dict(zip(limits.COMPARISONS, wanted, strict=True))
        return self._settle(limits.check_count(what, value, each, name or what.lower()), likely)

    def _look(self) -> Seen:
        with alone(self._settings.write_line):
            return look(self._fn, self._args)

    def _settle(self, result: LimitResult, likely: str = "") -> Check:
        """Record the result of a limit, and raise unless it passed."""
        if self.measurement.bound == "impossible":
            result, likely = replace(result, verdict="failed"), f"{IMPOSSIBLE} in this time"
        self._results.append(result)
        if result.verdict == "passed" or (result.verdict == "unclear" and self._settings.unclear == "pass"):
            return self
        if result.verdict == "unclear" and self._settings.unclear == "skip":
            pytest.skip(f"unclear: {result.measured}; the limit is {result.limit}")
        raise PerfFailure(explain(self.name, self.measurement, result, likely or result.likely), result.summary)


class Unlimited:
    """A Check for which every limit holds: two versions are compared, on a machine for which no limit was written."""

    def __init__(self, check: Check) -> None:
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return (lambda *_, **__: self) if name in limits.LIMITS else getattr(self._check, name)


_SHAPES = "the work follows from the shapes and dtypes of the call: these, or the op, differ from the limit's"


def _longer(options: Mapping[str, Any], times: float) -> dict[str, Any]:
    """Return options of measure() for `times` the duration, with the spread reduced to match."""
    usual = {**(measuring.measure.__kwdefaults__ or {}), **options}
    longer = {"max_time": times * usual["max_time"], "spread": usual["spread"] / times} if times > 1 else {}
    return {**options, **longer}


def _params_of(item: pytest.Item) -> dict[str, Any]:
    """Return the parameters of a test as JSON can hold them: of others than numbers and texts the name or the type."""
    params = getattr(getattr(item, "callspec", None), "params", {}).items()
    names = {name: str(getattr(value, "__name__", type(value).__name__)) for name, value in params}
    return {name: value if isinstance(value, PLAIN) else names[name] for name, value in params}


# Device activity ------------------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """The device activity of one call of a function, in order; waits are the CUDA calls that waited for the device."""

    kernels: list[str]
    """Names of the kernels, without copies and fills."""
    waits: list[str]


def look(fn: Callable[..., Any], args: Sequence[Any]) -> Seen:
    """Call fn(*args) once under a profile. Skips the test if CUPTI is unavailable; exceptions of fn propagate."""
    prof = profile(timer="cupti")
    try:
        prof.start()
    except RuntimeError as problem:
        pytest.skip(f"kernels() and no_sync() need records of the device's activity: {problem}")
    try:
        with record_function(RANGE):
            fn(*args)
    finally:
        prof.stop()
    return seen_in(prof.events())


def seen_in(events: Sequence[Event]) -> Seen:
    """Return the kernels of a profile and the waits inside its range RANGE."""
    start, end = next(event for event in events if event.name == RANGE).time_range
    kernels = [event.name for event in events if event.kind == "kernel"]
    inside = [event for event in events if start <= event.time_range.start <= end]
    calls = [event.name for event in inside if event.kind == "runtime" and BLOCKING.match(event.name)]
    waits = [event.name for event in inside if event.kind == "sync" and event.name in WAITS]
    return Seen(kernels, calls or waits)

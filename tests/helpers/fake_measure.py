"""Stand-ins for flopscope.measure and compare_times with predefined times, and a runner for tests that use them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pytest

from flopscope.measuring import measuring, paired

# Not imported in runner(): pytester forgets modules that are first imported in one of its runs.
from flopscope.measuring.perf import check  # noqa: F401

PEAK_FLOPS, PEAK_BYTES = 1e12, 100e9  # of the simulated device, per second


@dataclass
class Times:
    """The result of a call of measure(): µs, and the work of a call."""

    median: float
    half: float = 0.0
    """Half of the confidence interval."""
    flops: float | None = 1e6
    bytes: float | None = 1e6
    bound: str = "memory"
    peaks: bool = True


class Measurement:
    """A Measurement with the attributes of flopscope's, computed by the documented formulas."""

    def __init__(self, times: Times) -> None:
        us = times.median
        self.n, self.median, self.mean, self.min, self.max = 12, us, us, us - times.half, us + times.half
        self.std, self.iqr, self.ci = times.half, times.half, (us - times.half, us + times.half)
        self.timing_source, self.device, self.bound = "cpu", "cpu", times.bound
        self.flops, self.bytes_total_moved = times.flops, times.bytes
        moved, done = times.bytes or 0.0, times.flops or 0.0
        self.gbytes_per_s = None if times.bytes is None else moved / us / 1e3
        self.tflops_per_s = None if times.flops is None else done / us / 1e6
        roofline_us = max(moved / PEAK_BYTES, done / PEAK_FLOPS) * 1e6
        known = times.peaks and (times.bytes is not None or times.flops is not None)
        self.pct_roofline = roofline_us / us * 100 if known else None
        self.pct_peak_bandwidth = moved / us / PEAK_BYTES * 1e8 if times.peaks and times.bytes is not None else None
        self.pct_peak_flops = done / us / PEAK_FLOPS * 1e8 if times.peaks and times.flops is not None else None
        self.why_unknown = (
            ""
            if known
            else "the peaks of the device are unknown"
            if times.bytes is not None or times.flops is not None
            else "its work is unknown; pass flops= and bytes="
        )
        self.verdict = "the sentence of the measurement"

        self.batch, self.samples, self.clocks = 1, tuple(np.linspace(self.min, self.max, self.n).tolist()), ()

    def record(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass
class Compared:
    ratio: float
    ci: tuple[float, float]
    verdict: str = "slower"


class Clock:
    """A stand-in for flopscope: predefined results, of which the last one repeats, and the recorded calls."""

    def __init__(self, *times: Times, compared: tuple[Compared, ...] = ()) -> None:
        self.times, self.compared = list(times), list(compared)
        self.calls: list[dict[str, Any]] = []

    def measure(self, fn: Any, *args: Any, max_time: float = 1.0, spread: float = 0.005, **options: Any) -> Measurement:
        fn(*args)
        self.calls.append({"max_time": max_time, **({} if spread == 0.005 else {"spread": spread}), **options})
        times = self.times.pop(0) if len(self.times) > 1 else self.times[0]
        overrides = {name: value for name, value in options.items() if name in ("flops", "bytes")}
        return Measurement(Times(**{**asdict(times), **overrides}))

    def compare_times(self, f: Any, g: Any, *, margin: float = 0.01, max_time: float = 3.0) -> Compared:
        self.calls.append({"f": f(), "g": g(), "max_time": max_time, "margin": margin})
        return self.compared.pop(0) if len(self.compared) > 1 else self.compared[0]


Run = Callable[..., tuple[pytest.RunResult, Clock]]


def runner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs the text of a test module in this process with predefined times."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # others' plugins take a second to load

    def run(
        body: str, *times: Times, options: tuple[str, ...] = (), compared: tuple[Compared, ...] = ()
    ) -> tuple[pytest.RunResult, Clock]:
        clock = Clock(*times or (Times(20, 0.1),), compared=compared)
        monkeypatch.setattr(measuring, "measure", clock.measure)
        monkeypatch.setattr(paired, "compare_times", clock.compare_times)
        pytester.makepyfile(test_it="import pytest\ndef fn(*args): return args\n" + textwrap.dedent(body))
        return pytester.runpytest_inprocess("-p", "pytest_flopscope", "-p", "no:cacheprovider", *options), clock

    return run

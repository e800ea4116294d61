"""Stand-ins for flopscope.measure and compare_times with predefined times, and a runner for tests that use them."""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from flopscope.measuring import measuring, paired
from flopscope.measuring.measurement import Measurement

# Not imported in runner(): pytester forgets modules that are first imported in one of its runs.
from flopscope.measuring.perf import check  # noqa: F401
from helpers.fake_sweep import measurement


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
    least: float | None = None
    """The fastest sample; None: an end of the interval."""
    launches: dict[str, Any] = field(default_factory=dict)
    """Fields of the measurement that say what was launched."""

    def measurement(self) -> Measurement:
        us, half = self.median, self.half
        flops, moved = (math.nan if work is None else work for work in (self.flops, self.bytes))
        times = {
            "min": self.least or us - half, "max": us + half, "std": half, "iqr": half, "ci": (us - half, us + half),
        }  # fmt: skip
        samples = tuple(np.linspace(us - half, us + half, 12).tolist())
        known = {} if self.peaks else {"peaks": {}}
        return measurement(us, flops, moved, bound=self.bound, samples=samples, **times, **known, **self.launches)


@dataclass
class Compared:
    ratio: float
    ci: tuple[float, float]
    verdict: str = "slower"
    impossible: str = ""


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
        return replace(times, **overrides).measurement()

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

"""The pytest plugin: every limit, option and outcome, with predefined times. The imagined device has 100 GB/s and
1 TFLOP/s, and the imagined call moves 1 MB and does 1 MFLOP: 10 µs is its roofline."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.fake_measure import Compared, Run, Times, runner

from flopscope.measuring.perf import check
from flopscope.measuring.why import Launch
from flopscope.results.events import Interval

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(pytester, monkeypatch)


def chain(limits: str) -> str:
    return f"def test_it(perf): perf(fn, 1){limits}\n"


# At 20 µs (19.9 to 20.1): 50 GB/s, 0.05 TFLOP/s, half of the roofline, 5 % of the FLOP/s.
@pytest.mark.parametrize(
    "limits",
    [
        "",
        ".at_least(gbytes_per_s=49, tflops_per_s=0.049, pct_roofline=49, pct_peak_bandwidth=49, pct_peak_flops=4.9)",
        ".at_most(us=20.2, ms=0.0202, s=20.2e-6, ns=20200).at_least(ms=0.0198, s=19.8e-6, ns=19800)",
        ".at_most(gbytes_per_s=51, pct_roofline=51)",
        '.bound("cache", "memory")',
        ".flops(equal_to=1000000).flops(1e6).bytes(equal_to=10**6)",
        ".at_most(us=__import__('numpy').float32(21)).flops(__import__('numpy').int64(10**6))",
        ".flops(at_least=1e6, at_most=1e6).bytes(at_most=1e6)",
    ],
)
def test_limits_that_pass(run: Run, limits: str) -> None:
    result, _ = run(chain(limits))
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("limits", "measured", "limit"),
    [
        (".at_least(gbytes_per_s=51)", "50 GB/s (49.75 to 50.25)", "at least 51 GB/s"),
        (".at_least(tflops_per_s=0.051)", "0.05 TFLOP/s", "at least 0.051 TFLOP/s"),
        (".at_least(pct_roofline=80)", "50 % of the roofline", "at least 80 % of the roofline"),
        (".at_least(pct_roofline=40, pct_peak_flops=6)", "5 % of the peak FLOP/s (4.975 to 5.025)", "at least 6 %"),
        (".at_most(us=19)", "20 µs (19.9 to 20.1)", "at most 19 µs (at_most(us=19))"),
        (".at_most(ms=0.019)", "0.02 ms (0.0199 to 0.0201)", "at most 0.019 ms (at_most(ms=0.019))"),
        (".at_least(s=1)", "2.000e-05 s (1.990e-05 to 2.010e-05)", "at least 1 s (at_least(s=1))"),
        (".at_most(pct_peak_bandwidth=49)", "50 % of the peak bandwidth", "at most 49 %"),
        ('.bound("compute")', "bound by memory", "bound by compute"),
        (".flops(equal_to=7)", "1000000 FLOPs", "equal to 7 FLOPs (flops(equal_to=7))"),
        (".bytes(at_most=999999)", "1000000 bytes", "at most 999999 bytes"),
        (".no_slower_than(print)", "1.5 × (1.4 to 1.6)", "at most 1.05 × the time of print (no_slower_than(print, "),
    ],
)
def test_failed_limits_report_the_measurement(run: Run, limits: str, measured: str, limit: str) -> None:
    result, clock = run(chain(limits), compared=(Compared(1.5, (1.4, 1.6)),), options=("-rf",))
    result.assert_outcomes(failed=1)
    message = result.stdout.str()
    for part in (measured, limit.partition(" (")[0], "fn does not meet its limit", "roofline", "likely", "12 samples"):
        assert part in message
    # The line of the test, not of the plugin.
    assert f"def test_it(perf): perf(fn, 1){limits}" in message and "check.py" not in message
    (summary,) = [line for line in result.stdout.lines if line.startswith("FAILED")]
    assert summary.startswith(f"FAILED test_it.py::test_it - {measured.partition(' (')[0]} measured, {limit}")
    assert len([call for call in clock.calls if "f" not in call]) == 1  # a clear verdict is not measured again


@pytest.mark.parametrize(
    ("times", "limits", "reason"),
    [
        (Times(20), ".at_least(gbytes_per_s=101)", "beyond this device's roofline"),
        (Times(20), ".at_most(us=9.9)", "beyond this device's roofline"),
        (Times(20), ".at_least(pct_roofline=80)", "far below the roofline: more bytes"),
        (Times(12), ".at_least(pct_roofline=90)", "only fewer bytes"),
        (Times(12, bound="compute"), ".at_least(pct_roofline=90)", "only fewer FLOPs"),
        (Times(20, bound="compute"), ".at_least(pct_roofline=90)", "the shapes do not fill"),
        (Times(20, bound="launch"), ".at_least(pct_roofline=90)", "launch-bound"),
        (Times(5, bound="cache"), ".at_least(gbytes_per_s=1000)", "was in cache"),  # 200 GB/s, twice the roofline
        (Times(20, half=4), ".at_least(pct_roofline=90)", "the samples vary widely"),
        (Times(20, half=4), ".at_least(pct_roofline=90)", "far below the roofline: more bytes"),  # no sample meets it
        (Times(20, half=4, least=11), ".at_least(pct_roofline=90)", "some samples meet the limit"),
        (Times(20, bound="launch"), ".at_least(us=30)", "faster than the limit allows"),
        (Times(20, bound="launch"), ".at_most(gbytes_per_s=3)", "faster than the limit allows"),
        (Times(20, half=4), '.bound("compute")', "bytes 10 µs at the peak bandwidth and FLOPs 1 µs at the peak FLOP/s"),
        (Times(20, half=4), '.bound("compute")', "the bytes at the peak bandwidth take longest (memory)"),
        (Times(20, bound="latency"), '.bound("memory")', "as short as a few dependent steps (latency)"),
        (Times(20, bound="unknown"), ".at_most(us=19)", "unknown from these numbers"),
        (Times(20), ".flops(equal_to=7)", "shapes and dtypes"),
    ],
)
def test_failures_report_the_likely_reason(run: Run, times: Times, limits: str, reason: str) -> None:
    result, _ = run(chain(limits), times)
    assert reason in result.stdout.str()


def test_failures_omit_unknown_values_and_fit_a_terminal(run: Run) -> None:
    unknown = Times(20, flops=None, bytes=None, bound="unknown", peaks=False)
    slower = Compared(1.5, (1.4, 1.6))
    for limits in (".at_most(us=19)", ".no_slower_than(print)"):
        result, _ = run(chain(limits), unknown, compared=(slower,))
        lines = [line for line in result.stdout.lines if line.startswith("E  ")]
        assert not any(text in line for line in lines for text in ("--", "None", "nan"))
        assert any(line.endswith("unknown: its work is unknown; pass flops= and bytes=") for line in lines)
        assert [line.split()[1] for line in lines[1:]] == ["measured", "time", "roofline", "likely"]
        assert max(map(len, lines)) <= 124  # pytest adds a margin of four


@pytest.mark.parametrize(
    ("call", "limits", "message"),
    [
        ("fn, flops=1e6", ".at_least(gbytes_per_s=1)", "its bytes are not known; pass them: perf(fn, …, bytes=…)"),
        ("fn, bytes=1e6", ".at_least(tflops_per_s=1)", "its FLOPs are not known"),
        ("fn", ".at_least(pct_roofline=1)", "neither bytes nor FLOPs are known"),
        ("fn", ".bytes(at_most=1)", "its bytes are not known"),
        ("fn", '.bound("memory")', "the bound is unknown: neither bytes nor FLOPs are known"),
        ("fn, bytes=1e6", ".at_least(pct_roofline=1)", "the peaks of the device are unknown"),
        ("fn", ".at_least(speed=1)", "there is no limit 'speed'; the limits are s, ms, us, ns, gbytes_per_s"),
        ("fn", ".at_most(gbyte_per_s=3)", "there is no limit 'gbyte_per_s'; did you mean 'gbytes_per_s'?"),
        ("fn", ".at_least()", "at_least() needs a limit: s, ms, us, ns, gbytes_per_s"),
        ("fn", ".at_most(us='fast')", "us='fast': a limit must be a finite number of at least 0"),
        ("fn", ".at_most(us=float('nan'))", "us=nan: a limit must be a finite number"),
        ("fn", ".bound('disk')", "bound('disk'): the bound must be one of compute, memory"),
        ("fn", ".no_slower_than(fn, ratio=True)", "ratio=True: a limit must be a finite number"),
        ("fn, flops=3", ".flops()", "a limit on FLOPs needs equal_to, at_least or at_most"),
    ],
)
def test_invalid_limits_are_errors_that_name_what_is_missing(run: Run, call: str, limits: str, message: str) -> None:
    unknown = Times(20, flops=None, bytes=None, bound="unknown", peaks=False)
    result, _ = run(f"def test_it(perf): perf({call}){limits}\n", unknown)
    result.assert_outcomes(failed=1)
    assert "LimitError" in result.stdout.str() and message in result.stdout.str()
    assert "limits.py" not in result.stdout.str()


def test_exceptions_of_the_callable_propagate(run: Run) -> None:
    result, _ = run("def test_it(perf): perf(lambda: 1 / 0)")
    result.assert_outcomes(failed=1)
    assert "ZeroDivisionError" in result.stdout.str()


def test_options_are_passed_to_measure(run: Run) -> None:
    result, clock = run("def test_it(perf): assert perf(fn, 1, flops=5, max_time=0.25).measurement.flops == 5")
    result.assert_outcomes(passed=1)
    assert clock.calls == [{"max_time": 0.25, "flops": 5}]


# Unclear: the limit lies inside of the confidence interval ------------------------------------------------------------


def test_an_unclear_limit_is_measured_for_longer_until_it_is_clear(run: Run) -> None:
    result, clock = run(chain(".at_most(us=20.5)"), Times(20, 1), Times(20, 0.8), Times(20, 0.4))
    result.assert_outcomes(passed=1)
    seconds = [call["max_time"] for call in clock.calls]
    assert len(seconds) == 3 and seconds == sorted(set(seconds)) and seconds[1] >= 2 * seconds[0]
    spreads = [call.get("spread", 0.005) for call in clock.calls]
    assert spreads == sorted(spreads, reverse=True) and spreads[1] <= spreads[0] / 2  # or it would stop as early again


@pytest.mark.parametrize(
    ("limits", "calls"),  # at 20 µs (19 to 21): 50 GB/s (47.6 to 52.6)
    [
        (".at_least(gbytes_per_s=47.5).at_most(gbytes_per_s=52.7).at_least(us=18.9).at_most(us=21.1)", 1),
        (".at_least(gbytes_per_s=47.7)", 3), (".at_most(gbytes_per_s=52.5)", 3), (".at_least(us=19.1)", 3),
        (".at_most(us=20.9)", 3),
    ],
)  # fmt: skip
def test_a_limit_inside_the_interval_is_unclear(run: Run, limits: str, calls: int) -> None:
    result, clock = run(chain(limits), Times(20, 1), options=("--perf-unclear", "pass"))
    result.assert_outcomes(passed=1)
    assert len(clock.calls) == calls


@pytest.mark.parametrize("half", [1.0, float("nan")], ids=["wide", "none"])
@pytest.mark.parametrize("policy", ["fail", "skip", "pass", None])
def test_a_limit_that_stays_unclear_follows_the_option(run: Run, policy: str | None, half: float) -> None:
    options = ("--perf-unclear", policy) if policy else ()
    result, clock = run(chain(".at_most(us=20.5)"), Times(20, half), options=("-rsf", *options))
    result.assert_outcomes(**{{"fail": "failed", "skip": "skipped", "pass": "passed"}[policy or "fail"]: 1})
    assert len(clock.calls) == 3 and "unclear" in result.stdout.str()
    if policy in (None, "fail"):
        interval = "19 to 21" if half > 0 else "-- to --"
        assert f"- unclear: 20 µs ({interval}) measured, at most 20.5 µs (at_most(us=20.5))" in result.stdout.str()
        reason = "inside the confidence interval" if half > 0 else "a single sample has no confidence interval"
        assert "may or may not meet" in result.stdout.str() and reason in result.stdout.str()
        assert "does not meet" not in result.stdout.str()


@pytest.mark.parametrize(
    ("times", "outcome"),  # against at most 20.5 µs, which the first interval holds
    [
        ((Times(20, 1), Times(30, 0.1), Times(22, 0.1)), "unclear"),  # three measurements disagree
        ((Times(20, 1), Times(30, 0.1), Times(30, 0.2)), "does not meet"),  # the last two agree
        ((Times(20, 1), Times(21, 0.1)), "does not meet"),
        ((Times(20, 1), Times(15, 0.1), Times(12, 0.1)), "unclear"),
        ((Times(20, 1), Times(15, 0.1)), "meets"),
    ],
)
def test_a_limit_is_decided_by_measurements_that_agree(run: Run, times: tuple[Times, ...], outcome: str) -> None:
    result, _ = run(chain(".at_most(us=20.5)"), *times)
    result.assert_outcomes(**{"passed" if outcome == "meets" else "failed": 1})
    output = result.stdout.str()
    assert ("does not meet" in output) == (outcome == "does not meet")
    disagree = "may or may not meet" in output and "the last two measurements disagree" in output
    assert disagree == (outcome == "unclear")


# Against another function ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("compared", "limit", "outcome"),
    [
        (Compared(1.0, (0.99, 1.01)), "", "passed"), (Compared(1.1, (1.09, 1.11)), "", "failed"),
        (Compared(1.1, (1.09, 1.11)), ", ratio=1.2", "passed"), (Compared(1.05, (1.0, 1.1)), "", "failed"),
        (Compared(1.0, (0.99, 1.01)), ", 2, 3", "passed"),
    ],
)  # fmt: skip
def test_no_slower_than_another(run: Run, compared: Compared, limit: str, outcome: str) -> None:
    body = f"def other(*args): return 'other', *args\ndef test_it(perf): perf(fn, 1).no_slower_than(other{limit})\n"
    result, clock = run(body, compared=(compared,))
    result.assert_outcomes(**{outcome: 1})
    (call,) = [call for call in clock.calls if "f" in call]
    own = (2, 3) if limit == ", 2, 3" else (1,)  # else with the same arguments
    assert call["f"] == (1,) and call["g"] == ("other", *own)
    ratio = float(limit.partition("=")[2] or 1.05)
    assert call["margin"] == pytest.approx(ratio - 1) and call["max_time"] >= 20  # else it may stop short of clear
    if outcome == "failed":
        assert "the time of other" in result.stdout.str()


# Kernels and waiting --------------------------------------------------------------------------------------------------


@pytest.fixture
def set_activity(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the activity of one call on an imagined GPU."""

    def activity(kernel_names: list[str], waits: list[str] | None = None) -> None:
        monkeypatch.setattr(check, "look", lambda fn, args: check.Seen(kernel_names, waits or []))

    return activity


@pytest.mark.parametrize(
    ("names", "limits", "outcome", "message"),
    [
        (["fused"], ".kernels(at_most=1)", "passed", ""),
        (["mul", "add"], ".kernels(at_most=1)", "failed", "it launched mul, add"),
        (["mul", "add"], ".kernels(2)", "passed", ""),
        ([], ".kernels(at_most=1)", "failed", "launched no kernel at all"),
        ([], ".kernels(equal_to=0)", "passed", ""),
    ],
)
def test_kernels_are_counted(
    run: Run, set_activity: Callable[..., None], names: list[str], limits: str, outcome: str, message: str
) -> None:
    set_activity(names)
    result, _ = run(chain(limits))
    result.assert_outcomes(**{outcome: 1})
    assert message in result.stdout.str()


LONG = {"kernels": 2, "launch": Launch("long", 168, 0, 18.75, "registers", 4.0)}
WAITING = {"counters": {"warps_per_issue": 10.0, "stall_barrier": 4.0, "instructions": 800.0, "local_requests": 72.0}}


@pytest.mark.parametrize(
    ("launches", "limits", "outcome", "message"),
    [
        (LONG | WAITING, ".spills(9).occupancy(18)", "passed", ""),
        (LONG | WAITING, ".spills(0)", "failed", "9 % of the instructions on local memory measured, at most 0 %"),
        (LONG, ".occupancy(at_least=50)", "failed", "long is limited by registers"),
        ({"kernels": 0}, ".occupancy(9)", "failed", "launched no kernel at all"),
        ({}, ".occupancy(9)", "skipped", "needs records of the device's activity"),
        (WAITING, ".stalls('a barrier', at_most=40)", "passed", ""),
        (
            LONG | WAITING, ".stalls('a barrier', at_most=39)", "failed",
            "access local memory, to which registers spill. Of their",
        ),
        (WAITING, ".stalls('memory', at_most=0)", "passed", ""),
        (WAITING, ".stalls('long_scoreboard', at_most=9)", "failed", "stalls() knows the waits for 'memory',"),
    ],
)  # fmt: skip
def test_launches_and_waits_of_warps_have_limits(
    run: Run, launches: dict[str, Any], limits: str, outcome: str, message: str
) -> None:
    result, _ = run(chain(limits), Times(20, 0.1, launches=launches), options=("-rfs",))
    result.assert_outcomes(**{outcome: 1})
    assert message in result.stdout.str()


def test_waiting_for_the_device_fails_no_sync(run: Run, set_activity: Callable[..., None]) -> None:
    set_activity(["add"])
    run(chain(".no_sync()"))[0].assert_outcomes(passed=1)
    set_activity(["add"], ["cudaStreamSynchronize"])
    result, _ = run(chain(".no_sync()"))
    result.assert_outcomes(failed=1)
    assert "it called cudaStreamSynchronize" in result.stdout.str()


def test_limits_on_device_activity_are_skipped_without_a_gpu(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopscope.support.capture.why_no_cupti", lambda: "there is no CUDA device")
    body = "def test_a(perf): perf(fn).kernels(at_most=1)\ndef test_b(perf): perf(fn).no_sync()\n"
    result, _ = run(body, options=("-rs",))
    result.assert_outcomes(skipped=2)
    assert "need records of the device's activity" in result.stdout.str() and "no CUDA device" in result.stdout.str()


def event(kind: str, name: str, start: float) -> Any:
    return SimpleNamespace(kind=kind, name=name, time_range=Interval(start, start + 1))


def test_kernels_and_waits_are_found_among_the_events_of_a_profile() -> None:
    waits = ["cudaDeviceSynchronize", "cuStreamSynchronize", "cudaMemcpy", "cuMemcpyDtoH_v2", "cudaFree", "cuMemFree"]
    others = ["cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaLaunchKernel", "cudaFreeAsync", "cuMemFreeAsync"]
    others += ["cudaMalloc"]
    events = [event("runtime", "cudaDeviceSynchronize", 0), event("range", check.RANGE, 10)]
    events[-1].time_range = Interval(10, 90)
    events += [event("runtime", name, 20) for name in (*others, *waits)]
    events += [event("kernel", "add", 95), event("memcpy", "Memcpy HtoD", 96), event("sync", "Stream Sync", 97)]
    events += [event("runtime", "cuCtxSynchronize", 98)]
    assert check.seen_in(events) == check.Seen(["add"], waits)


# The marker -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marker", "outcome"),
    [
        ('at_least={"gbytes_per_s": 49}, bound="memory", flops=1000000, no_sync=False', "passed"),
        ('at_most={"us": 19}', "failed"), ('bound=["compute", "memory"], bytes={"at_most": 1e6}', "passed"),
        ('bytes={"at_most": 7}', "failed"), ('no_slower_than={"other": print, "ratio": 2}', "passed"),
        ("kernels=1, no_sync=True", "passed"), ("kernels={'at_least': 2}", "failed"),
    ],
)  # fmt: skip
def test_limits_of_markers_are_checked(run: Run, set_activity: Callable[..., None], marker: str, outcome: str) -> None:
    set_activity(["add"])
    body = f"@pytest.mark.perf({marker})\ndef test_it(perf): perf(fn)\n"
    result, _ = run(body, compared=(Compared(1.5, (1.4, 1.6)),))
    result.assert_outcomes(**{outcome: 1})


def test_the_closest_marker_overrides_others_and_those_of_a_class_need_no_fixture(run: Run) -> None:
    body = """
    pytestmark = pytest.mark.perf(at_most={"us": 1}, bound="memory")
    @pytest.mark.perf(at_most={"us": 30})
    def test_near(perf): perf(fn)
    def test_far(perf): perf(fn)
    @pytest.mark.perf(at_most={"us": 30})
    class TestIt:
        def test_fast(self, perf): perf(fn)
        def test_right(self): pass
    """
    run(body)[0].assert_outcomes(passed=3, failed=1)


def test_unused_markers_are_errors(run: Run) -> None:
    body = """
    @pytest.mark.perf(at_most={"us": 30})
    def test_never_measures(perf): pass
    @pytest.mark.perf(at_most={"us": 30})
    def test_without_the_fixture(): pass
    @pytest.mark.perf(speed=3)
    def test_of_no_limit(perf): perf(fn)
    @pytest.mark.perf
    def test_of_somebody_else(): pass
    @pytest.mark.perf(team="storage")
    def test_of_somebody_else_with_words(): pass
    @pytest.mark.perf(at_most={"us": 30})
    def test_that_fails_itself(perf): assert False
    """
    result, _ = run(body)
    message = result.stdout.str()
    result.assert_outcomes(passed=3, failed=1, errors=3)
    assert "the test never calls perf" in message and "add the argument `perf` to the test" in message
    assert "has no argument 'speed'; it takes device, at_least" in message
    assert "request: pytest.FixtureRequest" not in message  # the source of the plugin is not shown


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("at_most=5", 'perf(at_most=5): too many positional arguments; example: at_most={"us": 20}'),
        ('flops={"equals": 7}', "unexpected keyword argument 'equals'"), ("no_sync=3", "too many positional arguments"),
        ('at_most={"us": 30, "mss": 5}', "there is no limit 'mss'; did you mean 'ms'"),
        ('at_least={"us": "fast"}', "us='fast': a limit must be a finite number"),
        ('bound=["memory", "memroy"]', "did you mean 'memory'?"), ('at_mots={"us": 30}', "did you mean 'at_most'?"),
    ],
)  # fmt: skip
def test_invalid_arguments_of_a_marker_are_named_before_measuring(run: Run, marker: str, message: str) -> None:
    result, clock = run(f"@pytest.mark.perf({marker})\ndef test_it(perf): perf(fn)\n")
    result.assert_outcomes(errors=1)
    assert message in result.stdout.str() and clock.calls == []


def test_names_of_limits_are_checked_before_longer_measurements(run: Run) -> None:
    body = "def test_it(perf): perf(fn).at_most(us=20, mss=5)\n"  # 20 µs are inside of the interval
    result, clock = run(body, Times(20, 1))
    result.assert_outcomes(failed=1)
    assert "there is no limit 'mss'; did you mean 'ms'" in result.stdout.str() and len(clock.calls) == 1


def test_a_missing_device_skips_before_other_fixtures_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
    @pytest.fixture
    def tensor(): raise RuntimeError("needs a GPU")
    @pytest.mark.perf(device="cuda:99")
    def test_gpu(tensor, perf): perf(fn)
    @pytest.mark.perf(device="NVIDIA Z9000")
    def test_model(tensor, perf): perf(fn)
    @pytest.mark.perf(device="cpu")
    def test_here(perf): perf(fn)
    """
    result, _ = run(body, options=("-rs",))
    result.assert_outcomes(passed=1, skipped=2)
    assert "no device of this machine matches 'NVIDIA Z9000'; its devices are" in result.stdout.str()

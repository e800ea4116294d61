"""The roofline in the core: times, shares and bounds, by the formulas of this file, and consistency of its users."""

import math
import random
from typing import Any

import pytest
from helpers.hand_traces import event, load

import flopscope as fs
from flopscope import _core
from flopscope.support.peaks import Peaks

NAN = math.nan
PEAKS: dict[str, Any] = {
    "flops": {"fp32": 1e12, "bf16_tensor": 10e12}, "bandwidth": 100e9, "launch_ns": 5000.0, "kernel_ns": 1000.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("flops", "moved", "unit", "expected"),
    [
        (1e6, 1e6, "fp32", (1.0, 10.0, 10.0)),  # 1e6 / 1e12 s and 1e6 / 100e9 s
        (1e8, 1e6, "fp32", (100.0, 10.0, 100.0)), (1e8, 1e6, "bf16_tensor", (10.0, 10.0, 10.0)),
        (1e8, 1e6, "fp64", (NAN, 10.0, NAN)),  # the peak of this unit is unknown
        (1e6, 1e6, None, (NAN, 10.0, 10.0)),  # bound by its bytes on any unit
        (1e8, 1e6, None, (NAN, 10.0, NAN)), (NAN, 1e6, None, (NAN, 10.0, 10.0)),
        (1e8, NAN, "fp32", (100.0, NAN, 100.0)), (1e8, NAN, None, (NAN, NAN, NAN)), (0.0, 1e6, None, (0.0, 10.0, 10.0)),
        (0.0, NAN, None, (0.0, NAN, NAN)),  # no FLOPs, and unknown bytes
        (NAN, 0.0, None, (NAN, 0.0, NAN)),
    ],
)  # fmt: skip
def test_roofline_time_of_given_work(flops: float, moved: float, unit: str | None, expected: tuple[float, ...]) -> None:
    roof = _core.roof(flops, moved, unit, PEAKS)
    assert [ns / 1e3 for ns in (roof.compute_ns, roof.memory_ns, roof.least_ns)] == pytest.approx(expected, nan_ok=True)
    assert roof.unit == (unit if flops > 0 else None)


@pytest.mark.parametrize(
    ("timing", "bound", "flops", "moved", "times"),
    [
        ("cupti", "memory", 1e6, 1e7, (200.0, 96.0, 999.0)),  # 100 µs of memory; 104 %: within the error; 10.01 %
        ("cupti", "memory", NAN, 1e7, (200.0,)), ("cupti", "compute", 1e8, 1e6, (200.0,)),
        ("cupti", "compute", 1e8, NAN, (200.0,)),
        ("cupti", "cache", 1e6, 1e7, (80.0, 10.1)),  # up to 990 %
        ("cupti", "cache", 1e3, 3e5, (2.0,)),  # 150 %, as short as a launch
        ("cupti", "inefficient", 1e6, 1e7, (1001.0,)), ("cupti", "inefficient", 1e8, 1e6, (1001.0,)),
        ("cupti", "latency", 1e6, 4e5, (49.0,)),  # 8.2 % of the roofline
        ("cupti", "inefficient", 1e6, 4e5, (51.0,)),  # over 50 µs
        ("cupti", "launch", 1e3, 1e3, (1.9,)),  # less than twice the shortest kernel
        ("cupti", "latency", 1e3, 1e3, (2.1,)),
        ("cupti", "unknown", 1e6, 1e7, (9.9, 0.0, NAN)),  # 1010 %: the bytes are wrong
        ("cpu", "cache", 1e6, 1e7, (9.9,)),  # the caches of all cores may be that fast
        ("event", "launch", 1e3, 1e3, (9.9,)),  # less than twice an empty launch, timed from the host
        ("cpu", "launch", 1e3, 1e3, (1.9,)), ("cupti", "unknown", NAN, NAN, (200.0,)),
        ("cupti", "unknown", 0.0, 0.0, (200.0,)),
    ],
)  # fmt: skip
def test_the_bound_of_a_time(timing: str, bound: str, flops: float, moved: float, times: tuple[float, ...]) -> None:
    roof = _core.roof(flops, moved, "fp32", PEAKS)
    assert [_core.rate(roof, flops, moved, us, timing)["bound"] for us in times] == [bound] * len(times)


def test_rates_and_shares_are_the_work_over_the_time() -> None:
    rated = _core.rate(_core.roof(1e8, 1e6, "fp32", PEAKS), 1e8, 1e6, 200.0, "cupti")
    assert rated == pytest.approx(
        {
            **{"tflops_per_s": 1e8 / 200e-6 / 1e12, "gbytes_per_s": 1e6 / 200e-6 / 1e9, "arithmetic_intensity": 100.0},
            **{"pct_peak_flops": 50.0, "pct_peak_bandwidth": 5.0, "pct_roofline": 50.0},
            **{"roofline_time": 100.0, "headroom": 100.0, "bound": "compute"},
        }
    )


def test_a_sum_of_calls_is_bound_by_the_largest_term() -> None:
    """A term that is unknown for one call is unknown for the sum; known terms decide only if they are large."""
    x = fs.rand((64, 64), device="cpu")
    works: dict[str, list[dict[str, Any]]] = {
        "memory first": [{"flops": 1e6, "bytes": 4e6, "unit": "fp32"}, {"flops": 1e6, "unit": "fp32"}],
        "FLOPs first": [{"flops": 9e8, "bytes": 4e3, "unit": "fp32"}, {"flops": 1e6, "unit": "fp32"}],
        "bytes alone": [{"flops": 9e8, "bytes": 4e3, "unit": "fp32"}, {"bytes": 4e6}],
        "mostly bytes": [{"flops": 1e6, "bytes": 4e6, "unit": "fp32"}, {"bytes": 4e6}],
        "apart": [{"flops": 9e8, "unit": "fp32"}, {"bytes": 4e6}],
    }
    with fs.profile() as prof:
        for name, calls in works.items():
            for work in calls:
                with fs.record_function(name, **work):
                    fs.sin(x)

    def rows(slower: float) -> dict[str, dict[str, Any]]:
        peaks = {"flops": {"fp32": 1e12 / slower}, "bandwidth": 1e10 / slower, "launch_ns": 0.0, "kernel_ns": 0.0}
        columns, _ = prof._core.table(False, 0, {"cpu": peaks})  # type: ignore[union-attr]
        return {key: {name: columns[name][at] for name in columns} for at, key in enumerate(columns["key"])}

    for name, bound in zip(works, ("unknown", "compute", "unknown", "memory", "unknown"), strict=True):
        half = rows(50 / rows(1)[name]["pct_roofline"])[name]  # half of the roofline
        assert half["pct_roofline"] == pytest.approx(50)
        assert half["bound"] == bound, name


def test_the_times_of_launches_add_up() -> None:
    three = _core.roof(1e3, 1e3, "fp32", PEAKS, 3)
    assert (three.launch_ns, three.kernel_ns) == (15000.0, 3000.0)
    # Work of 0.1 µs at the peaks: 100 launches of 49 µs each are short, those of 51 µs are not.
    many = _core.roof(1e5, 1e3, "fp32", PEAKS, 100)
    assert many.launches == 100
    for roof, us, bound in (
        (three, 5.9, "launch"), (three, 6.1, "latency"), (many, 4900.0, "latency"), (many, 5100.0, "inefficient"),
    ):  # fmt: skip
        assert _core.rate(roof, 1e3 if roof is three else 1e5, 1e3, us, "cupti")["bound"] == bound
    assert _core.rate(three, 1e3, 1e3, 99.0, "cupti", 50.0)["bound"] == "launch", "the caller states the launch time"


def test_as_an_op_grows_its_bound_changes_once() -> None:
    """With a fixed cost and a rate, the bound is launch or latency, then memory, also with times a third longer."""
    draw = random.Random(0)
    for fixed, first, noise in [(3.0, "latency", 1.0), *[(1.2, "launch", 4 / 3)] * 200]:
        sizes = [2.0**n for n in range(10, 33)]
        roofs = [_core.roof(0.0, moved, None, PEAKS) for moved in sizes]
        times = [(fixed + moved / 90e3) * draw.uniform(1, noise) for moved in sizes]
        bounds = [_core.rate(*case, "cupti")["bound"] for case in zip(roofs, [0.0] * 23, sizes, times, strict=True)]
        assert list(dict.fromkeys(bounds)) == [first, "memory"] and bounds == sorted(bounds)


# The users of the roofline --------------------------------------------------------------------------------------------


def test_a_unit_must_exist_and_needs_flops() -> None:
    with pytest.raises(ValueError, match="unit='fp31' is not a compute unit"):
        fs.record_function("mine", flops=1, unit="fp31")
    with pytest.raises(ValueError, match="unit='fp32' of the range 'mine' needs flops="):
        fs.record_function("mine", bytes=1, unit="fp32")
    assert fs.record_function("mine", flops=lambda x: x, unit="fp32").unit == "fp32"


@pytest.mark.parametrize("unit", ["fp31", "a unit whose name no unit has", 7, None])
def test_an_unknown_unit_in_a_trace_is_none(unit: Any) -> None:
    (row,) = load(event("user_annotation", "mine", 1, 5, flops=10, unit=unit)).key_averages()
    assert (row.flops, row.unit) == (10, None)


def test_a_datasheet_borrows_the_measured_times_of_launches_and_l2() -> None:
    datasheet = Peaks("datasheet", {"fp32": 2e12}, bandwidth=200e9)
    measured = Peaks("measured", {"fp32": 1e12}, 100e9, l2_bandwidth=9e11, launch_ns=5000.0, kernel_ns=1000.0)
    borrowed = {"l2_bandwidth": 9e11, "launch_ns": 5000.0, "kernel_ns": 1000.0}
    limits = {"flops": {"fp32": 2e12}, "bandwidth": 200e9, **borrowed}
    assert datasheet.for_core(measured) == limits and datasheet.for_core() == {**limits, **dict.fromkeys(borrowed)}
    stated = Peaks("stated", {"fp32": 2e12}, bandwidth=200e9)
    assert stated.for_core(measured) == {**limits, "l2_bandwidth": None}, "rates that are not stated are unknown"
    assert measured.for_core() == {**limits, "flops": {"fp32": 1e12}, "bandwidth": 100e9}

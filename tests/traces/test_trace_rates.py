"""Rates of recorded traces: missing GPU activity, shares of the peaks, launches, and sums."""

import math
from typing import Any

import pytest
from helpers.hand_traces import call, event, kernel, memory, op, text_of

import flopscope as fs

H200 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}]}
N = 1 << 20  # elements of a tensor
BYTES, FLOPS = 2 * 4 * N, N  # of sin
BANDWIDTH = 4800e9  # of the H200's datasheet


def sin(ts: float, dur: float, number: int = 1, **more: Any) -> dict[str, Any]:
    dims = {"Input Dims": [[N]], "Input type": ["float"], "Input Strides": [[1]], "Concrete Inputs": [""]}
    return op("aten::sin", ts, dur, External_id=number, **dims, **more)


def unknown(name: str, ts: float, dur: float, number: int = 1) -> dict[str, Any]:
    return op(name, ts, dur, External_id=number, Input_Dims=[[N]], Input_type=["float"])


RUN = [
    unknown("another", 100, 10, 2),
    call("cudaLaunchKernel", 101, 2, External_id=2, correlation=2),
    kernel("k", 120, 5, External_id=2, correlation=2),
]


def load(*events: dict[str, Any], **head: Any) -> dict[str, fs.EventRow]:
    return {row.key: row for row in fs.load_trace(text_of(*events, **head)).key_averages()}


# Missing GPU activity -------------------------------------------------------------------------------------------------


ON_GPU: dict[str, tuple[list[Any], Any]] = {
    "launch": ([call("cudaLaunchKernel", 11, 2, External_id=1, correlation=1)], {}),
    "hip": ([call("hipExtModuleLaunchKernel", 11, 2)], {}),
    "copy": ([call("cudaMemcpyAsync", 11, 2)], {}),
    "memory": ([memory(12, 1024)], {}),
    "attention": ([op("aten::_flash_attention_forward", 30, 5)], {}),
    "cudnn": ([op("aten::cudnn_convolution", 30, 5)], {}),
    "properties": ([], H200),
}
ON_CPU: dict[str, tuple[list[Any], Any]] = {
    "plain": ([], {}),
    "memory of the host": ([memory(12, 1024, device_type=0)], {}),
    "attention of the host": ([op("aten::_scaled_dot_product_flash_attention_for_cpu", 30, 5)], {}),
    "synchronize": ([call("cudaDeviceSynchronize", 50, 2)], H200),  # the profiler itself calls it in any program
}


@pytest.mark.parametrize("case", [*ON_GPU, *ON_CPU])
def test_a_gpu_program_without_gpu_activity_has_no_rates(case: str) -> None:
    more, head = (ON_GPU | ON_CPU)[case]
    table = fs.load_trace(text_of(sin(10, 10), *more, **head)).key_averages()
    row = next(row for row in table if row.key == "aten::sin")
    assert (row.flops, row.bytes_total_moved) == (FLOPS, BYTES), "the work is known in any case"
    if case in ON_CPU:
        assert row.gbytes_per_s == pytest.approx(BYTES / 10e-6 / 1e9)
        assert row.tflops_per_s == pytest.approx(FLOPS / 10e-6 / 1e12)
        return
    rates = ("tflops_per_s", "gbytes_per_s", "pct_peak_flops", "pct_peak_bandwidth", "pct_roofline")
    assert all(math.isnan(getattr(row, name)) for name in (*rates, "roofline_time", "headroom"))
    assert row.bound == "unknown" and table.device_unseen
    assert "no activity of it" in table.table() and "no activity of it" in table._repr_html_()
    assert "no activity" not in table.table(roofline=False)


def test_ops_captured_into_a_graph_have_no_rates() -> None:
    """During graph capture an op launches but no kernel runs, so its host time is not the time of its work."""
    captured = [sin(0, 10, 1), call("hipExtModuleLaunchKernel", 2, 2, External_id=1, correlation=1)]
    row = load(*captured, *RUN, **H200)["aten::sin"]
    assert (row.flops, row.bytes_total_moved, row.bound) == (FLOPS, BYTES, "unknown")
    rates = (row.tflops_per_s, row.gbytes_per_s, row.pct_roofline, row.roofline_time, row.headroom)
    assert all(math.isnan(rate) for rate in rates)
    both = load(*captured, *RUN, *launched(3, 1000, 10.0), **H200)["aten::sin"]
    assert both.flops == 2 * FLOPS
    assert both.gbytes_per_s == pytest.approx(BYTES / 10e-6 / 1e9), "only the call with a kernel is rated"
    assert both.pct_roofline == pytest.approx(100 * BYTES / BANDWIDTH / 10e-6)


def test_a_stated_range_around_graph_capture_has_no_rates() -> None:
    stated = event("user_annotation", "mine", 0, 20, flops=1e9, bytes=1e6)
    captured = [stated, unknown("other", 5, 5, 1), call("cudaLaunchKernel", 6, 2, External_id=1)]
    row = load(*captured, *RUN, **H200)["mine"]
    assert row.flops == 1e9 and math.isnan(row.tflops_per_s) and math.isnan(row.headroom)


# Shares ---------------------------------------------------------------------------------------------------------------


def launched(number: int, ts: float, *durations: float) -> list[dict[str, Any]]:
    """Return an op that launches successive kernels with these times."""
    events = [sin(ts, 10, number)]
    for i, us in enumerate(durations):
        ids = {"External id": number, "correlation": 100 * number + i}
        events += [call("cudaLaunchKernel", ts + 1 + 0.4 * i, 0.2, **ids), kernel("k", ts + 50 + 200 * i, us, **ids)]
    return events


def test_an_op_of_many_small_kernels_is_launch_bound() -> None:
    """The shortest kernel of a trace, here 1 µs, is the estimate of an empty kernel."""
    many = [us for _ in range(9) for us in (1.0, 1.5)]
    row = load(*launched(1, 0, *many), **H200)["aten::sin"]
    assert row.device_busy_time == pytest.approx(sum(many)) and row.bound == "launch"
    alone = load(*launched(1, 0, 1.0), *launched(2, 9000, 900.0), **H200)["aten::sin"]
    assert alone.bound == "inefficient", "launches explain 2 of 901 µs, and the bytes 4"


# Sums -----------------------------------------------------------------------------------------------------------------


def test_a_list_of_unknown_tensors_has_no_share_of_the_roofline() -> None:
    """Kineto does not record lists of tensors. Without a kernel that implies them, the work is unknown."""
    cat = op("aten::cat", 10, 10, External_id=1, Input_Dims=[[], []], Input_type=["TensorList", "Scalar"])
    row = load(cat, *launched(1, 11, 30)[1:], **H200)["aten::cat"]
    assert row.device_busy_time == 30
    assert all(math.isnan(v) for v in (row.bytes_total_moved, row.roofline_time, row.headroom, row.pct_roofline))


def test_total_flops_are_unknown_if_no_enclosed_work_is_known() -> None:
    view = op("aten::view", 12, 1, External_id=3, Input_Dims=[[N], []], Input_type=["float", ""])
    rows = load(
        op("outer", 10, 20), view, unknown("mine::op", 15, 5), op("viewing", 40, 20), {**view, "ts": 45},
        op("both", 70, 40), unknown("mine::op", 75, 5), sin(85, 5), op("nothing", 120, 5),
    )  # fmt: skip
    assert math.isnan(rows["outer"].flops_total), "mine::op is unknown although the view has 0 FLOPs"
    assert rows["viewing"].flops_total == 0 and rows["both"].flops_total == FLOPS
    assert math.isnan(rows["nothing"].flops_total) and math.isnan(rows["mine::op"].flops_total)


def test_wrappers_of_autograd_are_excluded_from_coverage_and_functions_named_like_them_are_not() -> None:
    wrappers = ("autograd::engine::evaluate_function: SinBackward0", "SinBackward0", "AddmmBackward")
    for name in (*wrappers, "torch::autograd::AccumulateGrad", "torch::autograd::CopySlices"):
        coverage = fs.load_trace(text_of(op(name, 10, 100), sin(20, 10), unknown("mine::op", 200, 30))).coverage()
        assert coverage["bytes"] == pytest.approx(10 / 40) and coverage["unmodelled"] == [("mine::op", 30.0)]
    trace = fs.load_trace(text_of(op("MyBackwardPass", 10, 30), sin(50, 10)))
    assert trace.coverage()["bytes"] == pytest.approx(10 / 40)


def test_ops_are_not_rated_by_host_time_if_kernels_lack_owners() -> None:
    row = load(sin(5, 10), kernel("k", 7, 10), **H200)["aten::sin"]
    assert row.flops == FLOPS and math.isnan(row.tflops_per_s) and math.isnan(row.gbytes_per_s)

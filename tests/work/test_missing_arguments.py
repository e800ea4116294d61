"""Ops in traces without non-tensor arguments (torch up to 1.12): shapes and dtypes inferred from other events."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import flopscope as fs

torch = pytest.importorskip("torch")

Shape = list[int]


class Trace:
    """A trace of successive or nested ops, in which each leaf op has a kernel."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.now = 0

    def op(self, name: str, shapes: list[Shape], *inner: tuple[str, list[Shape]]) -> Trace:
        begin = self.now
        self.now += 1
        for inner_name, inner_shapes in inner:
            self.op(inner_name, inner_shapes)
        if not inner:
            ids = {"correlation": len(self.events), "External id": begin + 1}
            call = {"ph": "X", "cat": "cuda_runtime", "pid": 1, "tid": 1, "ts": self.now, "dur": 1, "args": ids}
            kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": self.now + 1, "dur": 5}
            self.events.append({**call, "name": "cudaLaunchKernel"})
            self.events.append({**kernel, "name": "k", "args": {**ids, "device": 0, "stream": 7}})
            self.now += 10
        types = ["float" if shape else "GenericList" for shape in shapes]
        args = {"External id": begin + 1, "Input Dims": shapes, "Input type": types}
        self.events.append(
            {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "name": name, "ts": begin, "dur": self.now - begin,
             "args": args}
        )  # fmt: skip
        self.now += 1
        return self

    def profile(self) -> fs.Profile:
        return fs.load_trace(json.dumps({"traceEvents": self.events}).encode())


def rows(trace: Trace) -> dict[str, fs.EventRow]:
    return {row.key: row for row in trace.profile().key_averages(peaks="none") if row.device_type == "cpu"}


def numbers(row: fs.EventRow) -> tuple[float, float, float]:
    return row.flops, row.bytes_read, row.bytes_written


def is_unknown(row: fs.EventRow) -> bool:
    return math.isnan(row.flops) and math.isnan(row.bytes_total_moved)


def gradient(name: str, image: Shape, out: Shape, weight: Shape) -> tuple[str, list[Shape]]:
    return f"aten::{name}_backward", [image, out, weight, [], [], [], []]


def parts(name: str, image: Shape, out: Shape, weight: Shape) -> list[tuple[str, list[Shape]]]:
    transposed = "transpose" in name
    sizes: list[Shape] = [] if transposed else [[]]
    return [
        (f"aten::{name}_backward_input", [*sizes, out, weight, [], []]),
        (f"aten::{name}_backward_weight", [[], out, image, [], []]),
    ]


@pytest.mark.parametrize("stride, padding, groups", [(1, 1, 1), (2, 3, 1), (1, 0, 2)])
def test_old_convolutions_infer_the_output_shape_from_their_gradient(stride: int, padding: int, groups: int) -> None:
    image, weight = [2, 4, 11, 13], [6, 4 // groups, 3, 3]
    keywords = {"stride": stride, "padding": padding, "groups": groups}
    meta = torch.empty(image, device="meta"), torch.empty(weight, device="meta")
    out = list(torch.nn.functional.conv2d(*meta, **keywords).shape)
    trace = Trace().op("aten::cudnn_convolution", [image, weight, [], [], [], [], [], [], []])
    name, shapes = gradient("cudnn_convolution", image, out, weight)
    trace.op(name, shapes, *parts("cudnn_convolution", image, out, weight))
    flops = 2 * math.prod(out) * weight[1] * 9
    i, o, w = (4 * math.prod(shape) for shape in (image, out, weight))
    actual = rows(trace)
    assert numbers(actual["aten::cudnn_convolution"]) == (flops, i + w, o)
    assert numbers(actual["aten::cudnn_convolution_backward_input"]) == (flops, o + w, i)
    assert numbers(actual["aten::cudnn_convolution_backward_weight"]) == (flops, o + i, w)
    coverage = trace.profile().coverage()
    assert coverage["bytes"] == 1 and coverage["flops"] == 1


def test_old_transposed_convolutions_infer_the_output_shape() -> None:
    image, weight = [2, 4, 5, 5], [4, 6, 3, 3]
    meta = torch.empty(image, device="meta"), torch.empty(weight, device="meta")
    out = list(torch.nn.functional.conv_transpose2d(*meta, stride=2).shape)
    trace = Trace().op("aten::cudnn_convolution_transpose", [image, weight, [], [], [], [], [], [], []])
    name, shapes = gradient("cudnn_convolution_transpose", image, out, weight)
    trace.op(name, shapes, *parts("cudnn_convolution_transpose", image, out, weight))
    flops = 2 * math.prod(image) * 6 * 9  # each input element is multiplied with the kernel of each output channel
    i, o, w = (4 * math.prod(shape) for shape in (image, out, weight))
    actual = rows(trace)
    assert numbers(actual["aten::cudnn_convolution_transpose"]) == (flops, i + w, o)
    assert numbers(actual["aten::cudnn_convolution_transpose_backward_input"]) == (flops, o + w, i)
    assert numbers(actual["aten::cudnn_convolution_transpose_backward_weight"]) == (flops, o + i, w)


def test_a_convolution_ignores_the_gradient_of_another() -> None:
    trace = Trace().op("aten::cudnn_convolution", [[2, 4, 11, 13], [6, 4, 3, 3], [], [], [], [], [], [], []])
    assert is_unknown(rows(trace)["aten::cudnn_convolution"])
    trace.op(*gradient("cudnn_convolution", [2, 4, 11, 13], [2, 6, 11, 13], [6, 4, 5, 5]))
    assert is_unknown(rows(trace)["aten::cudnn_convolution"])
    assert trace.profile().coverage()["bytes"] == 0


def test_contradicting_gradients_leave_a_convolution_unknown() -> None:
    image, weight = [2, 4, 11, 13], [6, 4, 1, 1]
    trace = Trace().op("aten::cudnn_convolution", [image, weight, [], [], [], [], [], [], []])
    trace.op(*gradient("cudnn_convolution", image, [2, 6, 11, 13], weight))
    assert rows(trace)["aten::cudnn_convolution"].flops == 2 * 2 * 6 * 11 * 13 * 4
    trace.op(*gradient("cudnn_convolution", image, [2, 6, 6, 7], weight))
    assert math.isnan(rows(trace)["aten::cudnn_convolution"].flops)


def test_gradients_without_a_convolution_are_unknown() -> None:
    trace = Trace()
    for name, shapes in parts("cudnn_convolution", [2, 4, 8, 8], [2, 6, 8, 8], [6, 4, 3, 3]):
        trace.op(name, shapes)
    assert all(is_unknown(row) for row in rows(trace).values())


def test_pools_without_windows_infer_bytes_from_their_gradient() -> None:
    image, out = [2, 3, 8, 8], [2, 3, 4, 4]
    trace = Trace().op("aten::max_pool2d_with_indices", [image, [], [], [], [], []])
    trace.op("aten::max_pool2d_with_indices_backward", [out, image, [], [], [], [], [], out])
    row = rows(trace)["aten::max_pool2d_with_indices"]
    assert (row.bytes_read, row.bytes_written) == (4 * math.prod(image), (4 + 8) * math.prod(out))
    assert math.isnan(row.flops)


# Kernels without an op in the trace -----------------------------------------------------------------------------------


def rocm_trace(shapes: list[list[Shape]]) -> fs.Profile:
    """Return a trace with aten::add for each list of shapes, then a kernel that was launched before the profile began.
    ROCm's profiler takes the grid of a kernel from the launching call, so the last kernel has no grid."""
    trace = Trace()
    for inputs in shapes:
        trace.op("aten::add", inputs)
        trace.events[-2]["args"] |= {"grid": [2, 1, 1], "block": [256, 1, 1]}
    early = {"correlation": 999, "device": 0, "stream": 7}
    trace.events.append({"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 0, "dur": 5, "name": "k", "args": early})
    return trace.profile()


def test_kernels_from_before_a_profile_are_known_if_all_of_that_name_are() -> None:
    known, unknown = [[6, 10], [6, 10]], [[], [], []]
    assert rocm_trace([known]).coverage()["bytes"] == 1
    assert rocm_trace([known, unknown]).coverage()["bytes"] == pytest.approx(1 / 3)
    assert rocm_trace([]).coverage()["bytes"] == 0


# Algorithms with fewer multiplications --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "direct"),
    [
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(x)", False),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v0", False),
        ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)", False),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5>(int)", True),
    ],
)
def test_algorithms_with_fewer_multiplications_have_no_roofline_share(kernel: str, direct: bool) -> None:
    image, weight = [2, 4, 12, 12], [6, 4, 3, 3]
    trace = Trace().op("aten::cudnn_convolution", [image, weight, [], [], [], [], [], [], []])
    trace.events[1]["name"] = kernel
    trace.op(*gradient("cudnn_convolution", image, [2, 6, 12, 12], weight))
    head = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}]}
    prof = fs.load_trace(json.dumps({**head, "traceEvents": trace.events}).encode())
    row = next(r for r in prof.key_averages() if r.key == "aten::cudnn_convolution")
    assert row.flops == 2 * 2 * 6 * 12 * 12 * 4 * 9
    assert math.isnan(row.pct_roofline) != direct and math.isnan(row.pct_peak_flops) != direct


# Dtypes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "item"),
    [
        ("volta_scudnn_128x64_relu_interior_nn_v1", 4),
        ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", 2),
        ("void implicit_convolve_sgemm<__half, float, 1024, 5, 5>(int)", 2),
        ("void cudnn::cnn::im2col4d_kernel<double, long>(x)", 8),
        ("unknown_kernel", None),
    ],
)
def test_a_missing_dtype_is_inferred_from_kernels(kernel: str, item: int | None) -> None:
    image, weight = [2, 4, 12, 12], [6, 4, 3, 3]
    out = [2, 6, 12, 12]
    trace = Trace().op("aten::cudnn_convolution", [image, weight, [], [], [], [], [], [], []])
    name, shapes = gradient("cudnn_convolution", image, out, weight)
    trace.op(name, shapes, *parts("cudnn_convolution", image, out, weight))
    trace.op("aten::add_", [out, out, []])
    for event in trace.events:
        event["args"].pop("Input type", None)
        event["name"] = kernel if event["cat"] == "kernel" else event["name"]
    actual = rows(trace)
    i, o, w = (math.prod(shape) for shape in (image, out, weight))
    moved = {"": i + w + o, "_backward_input": o + w + i, "_backward_weight": o + i + w}
    for part, elements in moved.items():
        row = actual[f"aten::cudnn_convolution{part}"]
        assert row.bytes_total_moved == elements * item if item else math.isnan(row.bytes_total_moved)
        assert row.flops == 2 * o * 4 * 9 or item is None
    add = actual["aten::add_"].bytes_total_moved
    assert add == 3 * o * item if item else math.isnan(add)
    coverage = trace.profile().coverage()
    assert coverage["bytes"] == (1 if item else 0) and ("estimated" in coverage) == (item is not None)


def test_no_dtype_is_inferred_from_kernels_of_several_dtypes() -> None:
    trace = Trace()
    for kernel in ("volta_scudnn_128x64", "volta_h884cudnn_256x64"):
        trace.op("aten::mm", [[8, 16], [16, 4]])
        trace.events[-2]["name"] = kernel + "_x"
        trace.events[-1]["args"].pop("Input type")
    assert math.isnan(rows(trace)["aten::mm"].bytes_total_moved)


def test_a_range_without_numbers_is_unknown() -> None:
    trace = Trace().op("aten::arange", [[], [], [], [0]])
    trace.events[-1]["args"].pop("Input type")
    assert math.isnan(rows(trace)["aten::arange"].bytes_total_moved)


# Missing values of arguments ------------------------------------------------------------------------------------------


def test_missing_axes_count_all_elements_as_an_upper_bound() -> None:
    trace = Trace().op("aten::mean", [[6, 10], [], [], []])
    row = rows(trace)["aten::mean"]
    assert (row.flops, row.bytes_read, row.bytes_written) == (60, 240, 240)
    assert trace.profile().coverage()["estimated"] == [("aten::mean", 5.0)]


def test_a_missing_mode_leaves_the_flops_of_a_norm_unknown() -> None:
    shapes = [[2, 3, 10], [3], [3], [3], [3], [], [], []]
    row = rows(Trace().op("aten::cudnn_batch_norm", shapes))["aten::cudnn_batch_norm"]
    assert math.isnan(row.flops) and row.bytes_read == 4 * (60 + 4 * 3)
    assert row.bytes_written == 4 * (60 + 4 * 3)  # statistics of the batch and running statistics, at most


@pytest.mark.parametrize(
    ("image", "weight", "keywords"),
    [
        ([2, 4, 12, 12], [6, 4, 3, 3], {"stride": 2}),
        ([2, 4, 12, 12], [4, 4, 3, 3], {"stride": 2}),  # equal numbers of input and output channels
        ([2, 4, 12, 12], [4, 1, 3, 3], {"padding": 1, "groups": 4}),
        ([2, 4, 6, 6], [4, 6, 3, 3], {"stride": 2, "transposed": True}),
        ([2, 4, 6, 6], [4, 4, 3, 3], {"stride": 2, "transposed": True}),
    ],
)
def test_missing_output_masks_count_all_gradients_as_an_upper_bound(
    image: Shape, weight: Shape, keywords: dict[str, Any]
) -> None:
    """torch 1.11 to 2.0 has one op for all gradients and records only its tensors."""
    transposed = keywords.pop("transposed", False)
    convolve = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    out = list(convolve(torch.empty(image, device="meta"), torch.empty(weight, device="meta"), **keywords).shape)
    trace = Trace().op("aten::convolution_backward", [out, image, weight, [], [], [], [], [], [], [], []])
    row = rows(trace)["aten::convolution_backward"]
    assert row.flops == 2 * 2 * math.prod(image if transposed else out) * math.prod(weight[1:])
    i, o, w = (4 * math.prod(shape) for shape in (image, out, weight))
    assert (row.bytes_read, row.bytes_written) == (o + w + i, i + w + 4 * out[1])
    assert trace.profile().coverage()["estimated"]


def test_missing_groups_and_counts_use_their_maximum() -> None:
    trace = Trace().op("aten::native_group_norm", [[2, 6, 5], [6], [6], [], [], [], [], []])
    trace.op("aten::topk", [[6, 10], [], [], [], []])
    actual = rows(trace)
    assert actual["aten::native_group_norm"].bytes_written == 4 * 60 + 2 * 4 * 2 * 6
    assert actual["aten::topk"].bytes_written == 12 * 60
    assert {name for name, _ in trace.profile().coverage()["estimated"]} == {"aten::native_group_norm", "aten::topk"}


@pytest.mark.parametrize(
    ("op", "dtype", "scalars", "item"),
    [("_softmax", "c10::Half", 2, 4), ("_softmax", "float", 2, 4), ("cumsum", "long int", 2, 8)],
)
def test_a_missing_dtype_is_the_widest(op: str, dtype: str, scalars: int, item: int) -> None:
    trace = Trace().op(f"aten::{op}", [[6, 10], *([] for _ in range(scalars))])
    trace.events[-1]["args"]["Input type"] = [dtype] + ["Scalar"] * scalars
    assert rows(trace)[f"aten::{op}"].bytes_written == 60 * item
    assert ("estimated" in trace.profile().coverage()) == (dtype != "float")

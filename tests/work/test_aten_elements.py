"""FLOPs and bytes of torch's elementwise ops and reductions, compared with counts made here and torch's results."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from flopscope import _core

SIZES = {"float": 4, "double": 8, "c10::Half": 2, "c10::BFloat16": 2, "long int": 8, "int": 4, "bool": 1}


class T(NamedTuple):
    """A tensor argument: dtype as in a trace, shape, strides (C order by default)."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None


def F(*shape: int) -> T:
    return T("float", shape)


def H(*shape: int) -> T:
    return T("c10::BFloat16", shape)


def I(*shape: int) -> T:  # noqa: E743 - as short as the others
    return T("long int", shape)


def B(*shape: int) -> T:
    return T("bool", shape)


def work(name: str, *arguments: Any) -> dict[str, Any]:
    dims: list[Any] = []
    types, strides, concrete = [], [], []
    for a in arguments:
        tensor, several = isinstance(a, T), isinstance(a, list)
        text = "" if tensor or several or a is None else str(a)
        dims.append(list(a.shape) if tensor else [list(t.shape) for t in a] if several else [])
        of_text = "ScalarList" if text.startswith("[") else "Scalar"
        types.append(a.dtype if tensor else "TensorList" if several else "" if a is None else of_text)
        steps = np.empty(a.shape, np.int8).strides if tensor and a.strides is None else getattr(a, "strides", None)
        strides.append(list(steps or ()))
        concrete.append(text)
    return _core._work_of_torch(name, dims, types, strides, concrete)


N = 6 * 10  # elements of a (6, 10) tensor

# name, arguments, FLOPs, bytes read, bytes written
CASES: list[tuple[str, tuple[Any, ...], float, float, float]] = [
    ("aten::add", (F(6, 10), F(6, 10), 1), N, 8 * N, 4 * N),
    ("aten::add", (F(6, 10), F(10), 1), N, 4 * N + 40, 4 * N),
    ("aten::add", (F(6, 1), F(1, 10), 1), N, 4 * 6 + 4 * 10, 4 * N),
    ("aten::add", (F(6, 10), T("float", (6, 10), (0, 1)), 1), N, 4 * N + 40, 4 * N),
    ("aten::add_", (H(6, 10), F(6, 10), 1), N, 6 * N, 2 * N),
    ("aten::add", (H(6, 10), F(6, 10), 1), N, 6 * N, 4 * N),
    ("aten::add", (I(6, 10), I(6, 10), 1), 0, 16 * N, 8 * N),
    ("aten::add.Tensor", (F(6, 10), F(6, 10), 1), N, 8 * N, 4 * N),
    ("aten::mul", (H(6, 10), T("double", ())), N, 2 * N, 2 * N),
    ("aten::mul", (I(6, 10), T("double", ())), N, 8 * N, 4 * N),
    ("aten::mul", (F(6, 10), T("double", ()), F(6, 10)), N, 4 * N, 4 * N),
    ("aten::mul", (F(), T("double", ())), 1, 12, 4),
    ("aten::div", (I(6, 10), I(6, 10)), N, 16 * N, 4 * N),
    ("aten::div_", (F(6, 10), I()), N, 4 * N, 4 * N),
    ("aten::div", (F(6, 10), F(6, 10), F(6, 10)), N, 8 * N, 4 * N),
    ("aten::div", (F(6, 10), F(6, 10), "floor"), N, 8 * N, 4 * N),
    ("aten::sqrt", (I(6, 10),), N, 8 * N, 4 * N),
    ("aten::abs", (T("c10::complex<float>", (6, 10)),), N, 8 * N, 4 * N),
    ("aten::pow", (F(6, 10), 3.14), N, 4 * N, 4 * N),
    ("aten::eq", (F(6, 10), F(6, 10)), 0, 8 * N, N),
    ("aten::isnan", (F(6, 10),), 0, 4 * N, N),
    ("aten::where", (B(6, 10), F(6, 10), F(6, 10)), 0, 9 * N, 4 * N),
    ("aten::masked_fill_", (F(6, 10), B(6, 10), 0), 0, 5 * N, 4 * N),
    ("aten::clamp", (F(6, 10), 0, 1), N, 4 * N, 4 * N),
    ("aten::clamp_min_", (H(6, 10), 0), N, 2 * N, 2 * N),
    ("aten::addcmul_", (F(6, 10), F(6, 10), F(6, 10), 1), N, 12 * N, 4 * N),
    ("aten::gelu_backward", (H(6, 10), H(6, 10), None), N, 4 * N, 2 * N),
    ("aten::native_dropout", (F(6, 10), 0.1, True), N, 4 * N, 5 * N),
    ("aten::native_dropout_backward", (H(6, 10), B(6, 10), 1.1), N, 3 * N, 2 * N),
    ("aten::copy_", (H(6, 10), F(6, 10), False), 0, 4 * N, 2 * N),
    ("aten::copy_", (F(6, 10), T("float", (6, 10), (0, 1)), False), 0, 40, 4 * N),
    ("aten::_to_copy", (F(6, 10), 15, None, None, None, False, None), 0, 4 * N, 2 * N),
    ("aten::quantize_per_tensor", (F(6, 10), 0.1, 0, 12), 0, 4 * N, N),
    ("aten::fill_", (F(6, 10), 1.0), 0, 0, 4 * N),
    ("aten::zero_", (F(6, 10),), 0, 0, 4 * N),
    ("aten::normal_", (F(6, 10), 0, 1, None), 0, 0, 4 * N),
    ("aten::bernoulli_", (F(6, 10), 0.5, None), 0, 0, 4 * N),
    ("aten::sum", (F(6, 10), "[1]", False, None), N, 4 * N, 24),
    ("aten::sum", (F(6, 10), "[-2]", True, None), N, 4 * N, 40),
    ("aten::sum", (H(6, 10), "[]", False, 6), N, 2 * N, 4),
    ("aten::sum", (B(6, 10), None), 0, N, 8),
    ("aten::mean", (F(6, 10), None), N, 4 * N, 4),
    ("aten::max", (F(6, 10), 1, False), N, 4 * N, 6 * 12),
    ("aten::max", (F(6, 10),), N, 4 * N, 4),
    ("aten::max", (F(6, 10), F(6, 10)), N, 8 * N, 4 * N),
    ("aten::argmax", (F(6, 10), 1, False), 0, 4 * N, 48),
    ("aten::any", (B(6, 10),), 0, N, 1),
    ("aten::var", (F(6, 10), "[1]", 1, False), 4 * N, 4 * N, 24),
    ("aten::linalg_vector_norm", (F(6, 10), 2, None, False, None), 2 * N, 4 * N, 4),
    ("aten::logsumexp", (F(6, 10), "[1]", False), 4 * N, 4 * N, 24),
    ("aten::cumsum", (F(6, 10), 1, None), N, 4 * N, 4 * N),
    ("aten::cummax", (F(6, 10), 1), N, 4 * N, 12 * N),
    ("aten::_softmax", (H(6, 10), 1, True), 5 * N, 2 * N, 4 * N),
    ("aten::_log_softmax", (H(6, 10), 1, False), 5 * N, 2 * N, 2 * N),
    ("aten::_softmax_backward_data", (F(6, 10), F(6, 10), 1, 6), 4 * N, 8 * N, 4 * N),
    ("aten::native_layer_norm", (F(6, 10), "[10]", F(10), F(10), 1e-5), 7 * N, 4 * N + 80, 4 * N + 48),
    ("aten::native_layer_norm", (H(6, 10), "[10]", None, None, 1e-5), 5 * N, 2 * N, 2 * N + 48),
    ("aten::native_layer_norm_backward",
     (F(6, 10), F(6, 10), "[10]", F(6, 1), F(6, 1), F(10), F(10), "[True, True, True]"),
     13 * N, 8 * N + 48 + 40, 4 * N + 80),
    ("aten::native_layer_norm_backward",
     (F(6, 10), F(6, 10), "[10]", F(6, 1), F(6, 1), None, None, "[True, False, False]"), 9 * N, 8 * N + 48, 4 * N),
    ("aten::_fused_rms_norm", (F(6, 10), "[10]", F(10), 1e-6), 4 * N, 4 * N + 40, 4 * N + 24),
    ("aten::native_batch_norm", (H(2, 3, 10), F(3), F(3), F(3), F(3), True, 0.1, 1e-5),
     7 * N, 2 * N + 48, 2 * N + 24 + 24),
    ("aten::native_batch_norm", (H(2, 3, 10), F(3), F(3), F(3), F(3), False, 0.1, 1e-5), 4 * N, 2 * N + 48, 2 * N),
    ("aten::native_group_norm", (F(2, 6, 5), F(6), F(6), 2, 6, 5, 3, 1e-5), 7 * N, 4 * N + 48, 4 * N + 2 * 2 * 3 * 4),
    ("aten::mse_loss", (F(6, 10), F(6, 10), 1), N, 8 * N, 4 * N),
    ("aten::mse_loss", (F(6, 10), F(6, 10), 0), N, 8 * N, 4 * N),
    ("aten::nll_loss_forward", (F(6, 10), I(6), None, 1, -100), 6, 24 + 48, 8),
    ("aten::max_pool2d_with_indices",
     (H(2, 3, 8, 8), "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", False), 96 * 9, 2 * 384, 96 * 10),
    ("aten::avg_pool2d", (F(2, 3, 8, 8), "[2, 2]", "[]", "[0, 0]", False, True, None), 384, 4 * 384, 4 * 96),
    ("aten::avg_pool2d", (F(2, 3, 9, 9), "[2, 2]", "[2, 2]", "[0, 0]", True, True, None),
     2 * 3 * 25 * 4, 4 * 486, 4 * 150),
    ("aten::max_pool2d_with_indices_backward",
     (F(2, 3, 4, 4), F(2, 3, 8, 8), "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", False, I(2, 3, 4, 4)),
     96, 96 * 12, 4 * 384),
    ("aten::_adaptive_avg_pool2d", (F(2, 3, 8, 8), "[1, 1]"), 384, 4 * 384, 24),
    ("aten::upsample_nearest2d", (F(2, 3, 4, 4), "[8, 8]", None, None), 0, 4 * 96, 4 * 384),
    ("aten::upsample_bilinear2d", (F(2, 3, 4, 4), "[8, 8]", False, None, None), 8 * 384, 4 * 96, 4 * 384),
    ("aten::embedding", (F(100, 8), I(6, 10), -1, False, False), 0, 4 * N * 8 + 8 * N, 4 * N * 8),
    ("aten::embedding", (F(5, 8), I(6, 10), -1, False, False), 0, 4 * 40 + 8 * N, 4 * N * 8),
    ("aten::embedding_dense_backward", (F(6, 10, 8), I(6, 10), 100, -1, False), 8 * N, 32 * N + 8 * N, 32 * N),
    ("aten::index_select", (F(6, 10), 0, I(4)), 0, 4 * 40 + 32, 4 * 40),
    ("aten::gather", (F(100, 8), 0, T("long int", (6, 8), (1, 0)), False, F(6, 8)), 0, 4 * 48 + 48, 4 * 48),
    ("aten::scatter_add_", (F(6, 10), 1, I(6, 2), F(6, 2)), 12, 96 + 48 + 48, 48),
    ("aten::index_add", (F(6, 10), 0, I(2), F(2, 10), 1), 20, 4 * N + 16 + 80, 4 * N),
    ("aten::topk", (F(6, 10), 3, -1, True, True), 0, 4 * N, 18 * 12),
    ("aten::sort", (F(6, 10), False, -1, False), 0, 4 * N, 12 * N),
    ("aten::arange", (0, 511, 1, I(0)), 0, 0, 8 * 511),
    ("aten::constant_pad_nd", (F(6, 10), "[1, 2]", 0), 0, 4 * N, 4 * 6 * 13),
    ("aten::view", (F(6, 10), "[60]"), 0, 0, 0),
    ("aten::some_gelu_backward", (F(6, 10),), math.nan, math.nan, math.nan),
    ("aten::sinh_backward", (F(6, 10), F(6, 10)), N, 8 * N, 4 * N),  # does not exist: the rule covers any gradient
    ("aten::special_bessel_j0", (F(6, 10),), N, 4 * N, 4 * N),
    ("c10d::scatter_", (F(6, 10), 1, I(6, 2), F(6, 2)), math.nan, math.nan, math.nan),
    ("AddmmBackward0", (F(6, 10),), math.nan, math.nan, math.nan),
    ("add", (F(6, 10), F(6, 10), 1), math.nan, math.nan, math.nan),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "flops", "read", "written"), CASES)
def test_work_follows_from_the_arguments(
    name: str, arguments: tuple[Any, ...], flops: float, read: float, written: float
) -> None:
    got = work(name, *arguments)
    assert (got["flops"], got["bytes_read"], got["bytes_written"]) == pytest.approx((flops, read, written), nan_ok=True)
    assert got["bytes_moved"] == pytest.approx(read + written, nan_ok=True)
    assert not got["of_launched"]


def test_the_unit_follows_the_compute_dtype() -> None:
    assert work("aten::add", H(4), H(4), 1)["unit"] == "fp32"
    assert work("aten::add", T("double", (4,)), T("double", (4,)), 1)["unit"] == "fp64"
    assert work("aten::add", I(4), I(4), 1)["unit"] is None


def test_data_dependent_ops_have_no_flops_and_unknown_bytes() -> None:
    got = work("aten::bincount", I(60), None)
    assert got["flops"] == 0 and math.isnan(got["bytes_moved"])


# Lists: per element of one of the lists, in elements ------------------------------------------------------------------

LISTS = [
    ("aten::_foreach_add_", ([], 1.0), 1, 1, 1),
    ("aten::_foreach_add_", ([], [], 1.0), 1, 2, 1),
    ("aten::_foreach_sqrt", ([],), 1, 1, 1),
    ("aten::_foreach_addcdiv_", ([], [], [], None), 1, 3, 1),
    ("aten::_foreach_lerp_", ([], [], 0.1), 1, 2, 1),
    ("aten::_foreach_copy_", ([], [], False), 0, 1, 1),
    ("aten::_foreach_zero_", ([],), 0, 0, 1),
    ("aten::_foreach_norm", ([], 2, None), 2, 1, 0),
    ("aten::_amp_foreach_non_finite_check_and_unscale_", ([], F(1), F(1)), 1, 1, 1),
    # lerp, mul, addcmul, sqrt, div, add, addcdiv, and the decay; p, g, m, v read and p, m, v written
    ("aten::_fused_adamw_", ([], [], [], [], [], [], 1e-3, 0.9, 0.99, 0.1, 1e-8, False, False, None, None), 8, 4, 3),
    ("aten::_fused_adam_", ([], [], [], [], [], [], 1e-3, 0.9, 0.99, 0.0, 1e-8, True, False, None, None), 8, 5, 4),
    ("aten::_fused_sgd_", ([], [], [], 0.0, 0.9, 0.1, 0.0, False, False, True, None, None), 3, 3, 2),
    ("aten::_fused_sgd_", ([], [], [], 0.1, 0.0, 0.1, 0.0, False, False, True, None, None), 2, 2, 1),
]


@pytest.mark.parametrize(("name", "arguments", "flops", "read", "written"), LISTS)
def test_work_of_lists_is_per_element(
    name: str, arguments: tuple[Any, ...], flops: float, read: float, written: float
) -> None:
    got = work(name, *arguments)
    assert got["of_launched"]
    assert (got["flops"], got["bytes_read"], got["bytes_written"]) == (flops, read, written)


# Triton ---------------------------------------------------------------------------------------------------------------


def test_a_triton_kernel_moves_each_distinct_element_of_its_tensors() -> None:
    got = work("triton_poi_fused_add_0", F(6, 10), T("c10::BFloat16", (6, 10), (0, 1)), F(6, 10), 60)
    assert got["bytes_moved"] == 4 * N + 2 * 10 + 4 * N
    assert got["flops"] == 60 and math.isnan(got["bytes_read"]) and math.isnan(got["bytes_written"])


def test_a_triton_gather_touches_at_most_one_element_per_point() -> None:
    got = work("triton_poi_fused_embedding_1", I(60), F(50257, 8), F(60, 8), 480)
    assert got["bytes_moved"] == 8 * 60 + 4 * 480 + 4 * 480


def test_a_triton_copy_reads_at_most_one_element_per_point() -> None:
    split = work("triton_poi_fused_cat_split_transpose_view_5", F(8, 96), F(8, 32), 256)
    assert split["bytes_moved"] == 4 * 256 + 4 * 256
    both_halves = work("triton_poi_fused_mul_silu_split_5", F(8, 64), F(8, 32), 256)
    assert both_halves["bytes_moved"] == 4 * 512 + 4 * 256


def moved_by(name: str, *arguments: Any) -> float:
    return float(work(name, *arguments)["bytes_moved"])


def test_in_place_triton_kernels_read_and_write_their_buffer() -> None:
    """Inductor's KernelArgs lists in-place buffers first, then inputs, then outputs."""
    big, bias = F(6, 10), F(10)
    # A convolution's bias: in_out_ptr0, in_ptr0. The bias is too small to be the output of 60 points.
    assert moved_by("triton_poi_fused_convolution_0", big, bias, 60) == 2 * 4 * N + 40
    assert moved_by("triton_poi_fused_add_0", big, bias, big, 60) == 2 * 4 * N + 40  # in_ptr0, in_ptr1, out_ptr0
    # Masks and statistics of a norm, as in GPT-2's first layer.
    assert moved_by("triton_poi_fused_add_native_layer_norm_8", big, B(6, 10), F(6, 1), F(6, 1), 60) == 9 * N + 48
    # A single tensor is both input and output, unless the kernel only fills it.
    assert moved_by("triton_poi_fused_relu_0", big, 60) == 2 * 4 * N
    assert moved_by("triton_poi_fused_zeros_0", big, 60) == 4 * N
    assert moved_by("triton_poi_fused_embedding_dense_backward_9", big, 60) == 4 * N
    # The gradient of tanh needs the incoming gradient and the saved output; of two tensors, one is also the result.
    assert moved_by("triton_poi_fused_mul_tanh_backward_3", big, big, 60) == 3 * 4 * N
    assert moved_by("triton_poi_fused_mul_tanh_backward_3", big, big, big, 60) == 3 * 4 * N
    assert moved_by("triton_poi_fused_div_expand_tanh_backward_3", big, big, 60) == 2 * 4 * N
    # A row-wise norm in place: x, weight, bias; then out of place.
    assert moved_by("triton_per_fused_native_layer_norm_0", big, F(10), F(10), 6, 10) == 2 * 4 * N + 80
    assert moved_by("triton_per_fused_native_layer_norm_0", big, F(10), F(10), big, 6, 10) == 2 * 4 * N + 80
    assert moved_by("triton_red_fused_sum_0", big, F(6), 6, 10) == 4 * N + 24
    # Partial sums (one axis, of a size unrelated to the grid) are not inputs.
    assert moved_by("triton_per_fused_mul_sum_2", F(64, 8), F(64, 8), F(128), 64, 8) == 2 * 4 * 512 + 4 * 128


def test_operands_that_no_result_can_be_prove_an_in_place_triton_kernel() -> None:
    """in_out_ptr0, in_ptr0, …: a mask, or a float narrower than the first, is not what the ops give."""
    big, narrow, mask, N = F(6, 10), T("c10::BFloat16", (6, 10)), B(6, 10), 60
    assert moved_by("triton_poi_fused_add_0", big, narrow, 60) == (2 * 4 + 2) * N
    assert moved_by("triton_poi_fused_add_mul_0", big, narrow, narrow, 60) == (2 * 4 + 2 * 2) * N
    assert moved_by("triton_poi_fused_add_native_dropout_backward_1", big, narrow, mask, 60) == (2 * 4 + 2 + 1) * N
    assert moved_by("triton_poi_fused_masked_fill_mul_1", big, mask, 60) == (2 * 4 + 1) * N
    for name, last, each in (
        ("triton_poi_fused__to_copy_add_0", narrow, 2),  # the result is cast
        ("triton_poi_fused_native_layer_norm_0", narrow, 2),  # statistics are float32 whatever the input
        ("triton_poi_fused_add_0", big, 4),  # the result, or an operand
        ("triton_poi_fused_gt_0", mask, 1),
        ("triton_poi_fused_native_dropout_0", mask, 1),
        ("triton_poi_fused_full_like_0", mask, 1),
    ):
        assert moved_by(name, big, last, 60) == (4 + each) * N, name
    assert moved_by("triton_poi_fused_add_0", narrow, big, 60) == (2 + 4) * N  # bfloat16 plus a float32 number


def test_the_last_scalars_are_the_points_of_a_triton_kernel() -> None:
    table, rows = F(50257, 8), F(60, 8)
    assert moved_by("triton_poi_fused_embedding_1", I(60), table, rows, 480) == 8 * 60 + 2 * 4 * 480
    # An offset of the random number generator, or a dynamic size, may precede them.
    for before in (0, 12, 60):
        assert moved_by("triton_per_fused_embedding_norm_1", I(60), table, rows, before, 60, 8) == 8 * 60 + 2 * 4 * 480
    assert moved_by("triton_poi_fused_embedding_1", I(60), table, rows, 8, 60) == 8 * 60 + 2 * 4 * 480  # tiles: y, x


def test_a_triton_kernel_reads_one_element_per_point_by_default() -> None:
    padded = work("triton_poi_fused_add_mm_20", F(16, 10), F(6, 10), F(6, 10), 60)
    assert padded["bytes_moved"] == 3 * 4 * N and not padded["at_most"]
    picked = work("triton_red_fused_nll_loss_forward_sub_2", F(6, 1000), I(6), F(), 1, 6)
    assert picked["bytes_moved"] == 4 * 6 + 8 * 6 + 4
    for ops in ("mul_silu_split", "avg_pool2d_relu", "add_mean"):
        halves = work(f"triton_poi_fused_{ops}_5", F(6, 20), F(6, 10), 60)
        assert halves["bytes_moved"] == 2 * 4 * N + 4 * N and halves["at_most"]


# torch itself ---------------------------------------------------------------------------------------------------------


def _recorded(tmp_path: Path, run: Callable[[], Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the recorded arguments of each op, by name."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        run()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    calls: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            calls.setdefault(event["name"], []).append(event["args"])
    return calls


def _work_of(name: str, args: dict[str, Any]) -> dict[str, Any]:
    return _core._work_of_torch(
        name, args["Input Dims"], args["Input type"], args.get("Input Strides"), args["Concrete Inputs"]
    )


def test_bytes_match_the_inputs_and_outputs_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn.functional
    x, y, row = torch.rand(6, 10), torch.rand(6, 10), torch.rand(10)
    image, counts, mask = torch.rand(2, 3, 9, 11), torch.arange(60).reshape(6, 10), torch.rand(6, 10) > 0.5
    index = torch.tensor([1, 3])
    # op that does the work, inputs it reads, call
    runs: list[tuple[str, list[Any], Callable[[], Any]]] = [
        ("aten::add", [x, row], lambda: x + row),
        ("aten::mul", [x], lambda: x * 2.5),
        ("aten::div", [counts], lambda: counts / 3),
        ("aten::pow", [x], lambda: x.pow(2)),
        ("aten::where", [mask, x, y], lambda: torch.where(mask, x, y)),
        ("aten::lt", [x, y], lambda: x < y),
        ("aten::sum", [x], lambda: x.sum(0, dtype=torch.float64)),
        ("aten::mean", [x], lambda: x.mean((0, 1), keepdim=True)),
        ("aten::amax", [x], lambda: x.amax(1)),
        ("aten::max", [x], lambda: torch.max(x, 1)),
        ("aten::var_mean", [x], lambda: torch.var_mean(x, 1)),
        ("aten::argmin", [x], lambda: x.argmin(0)),
        ("aten::all", [mask], lambda: mask.all(1)),
        ("aten::logsumexp", [x], lambda: x.logsumexp(1)),
        ("aten::cumprod", [x], lambda: x.cumprod(1)),
        ("aten::cummin", [x], lambda: x.cummin(1)),
        ("aten::sort", [x], lambda: torch.sort(x, stable=True)),
        ("aten::topk", [x], lambda: x.topk(4, 0)),
        ("aten::kthvalue", [x], lambda: x.kthvalue(2, 1)),
        ("aten::_softmax", [x], lambda: x.softmax(1)),
        ("aten::gelu", [x], lambda: nn.gelu(x, approximate="tanh")),
        ("aten::glu", [x], lambda: nn.glu(x, 1)),
        ("aten::native_group_norm", [image], lambda: torch.native_group_norm(image, None, None, 2, 3, 99, 3, 1e-5)),
        ("aten::max_pool2d_with_indices", [image], lambda: nn.max_pool2d(image.requires_grad_(), 3, 2, 1)),
        ("aten::avg_pool2d", [image], lambda: nn.avg_pool2d(image, (3, 2), (2, 3), (1, 1), ceil_mode=True)),
        ("aten::_adaptive_avg_pool2d", [image], lambda: nn.adaptive_avg_pool2d(image, (4, 5))),
        ("aten::upsample_bilinear2d", [image], lambda: nn.interpolate(image, scale_factor=2, mode="bilinear")),
        ("aten::reflection_pad2d", [image], lambda: nn.pad(image, (1, 2, 3, 4), mode="reflect")),
        ("aten::im2col", [image], lambda: nn.unfold(image, (3, 2), padding=1, stride=2)),
        ("aten::index_select", [x[:2], index], lambda: x.index_select(0, index)),
        ("aten::gather", [x[:, :2], counts[:, :2]], lambda: x.gather(1, counts[:, :2] % 10)),
        ("aten::embedding", [x[:2], index], lambda: nn.embedding(index, x)),
        ("aten::flip", [x], lambda: x.flip(1)),
        ("aten::roll", [x], lambda: x.roll(2, 1)),
        ("aten::bucketize", [x, row], lambda: torch.bucketize(x, row)),
        ("aten::hypot", [x, y], lambda: torch.hypot(x, y)),
    ]
    for name, inputs, run in runs:
        result = run()
        outputs = list(result) if isinstance(result, tuple) else [result]
        if name == "aten::max_pool2d_with_indices":
            outputs.append(torch.empty(result.shape, dtype=torch.int64))
        if name == "aten::native_group_norm":
            assert [t.dtype for t in outputs] == [torch.float32] * 3
        calls = _recorded(tmp_path, run)[name]
        works = [_work_of(name, args) for args in calls]
        read, written = (sum(t.numel() * t.element_size() for t in ts) for ts in (inputs, outputs))
        assert (read, written) in [(w["bytes_read"], w["bytes_written"]) for w in works], (name, works, read, written)


def test_every_pointwise_op_of_torch_has_a_rule() -> None:
    torch = pytest.importorskip("torch")
    without = []
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in getattr(packet, "overloads", list)():
            op = getattr(packet, overload)
            if torch.Tag.pointwise in op.tags and math.isnan(work(f"aten::{name}", F(6, 10), F(6, 10))["bytes_moved"]):
                without.append(name)
    assert without == []


def test_images_are_resized_by_size_or_by_scale_factors() -> None:
    def work(*texts: str) -> tuple[float, float]:
        dims, types = (
            [[2, 3, 10, 12], *([] for _ in texts)],
            ["float", *("ScalarList" if t[:1] == "[" else "Scalar" for t in texts)],
        )
        result = _core._work_of_torch("aten::upsample_bilinear2d", dims, types, [[] for _ in dims], ["", *texts])
        return result["bytes_read"], result["bytes_written"]

    assert work("[20, 30]", "False") == (4 * 2 * 3 * 10 * 12, 4 * 2 * 3 * 20 * 30)
    assert work("", "False", "[2., 2.5]") == (4 * 2 * 3 * 10 * 12, 4 * 2 * 3 * 20 * 30)

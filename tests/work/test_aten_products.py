"""FLOPs and bytes of torch's products, compared with formulas, hardware counters and torch's own counter."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import flopscope as fs
from flopscope import _core

F32, BF16, HALF, I8, FP8 = "float", "c10::BFloat16", "c10::Half", "signed char", "c10::Float8_e4m3fn"
SIZES = {F32: 4, BF16: 2, HALF: 2, I8: 1, FP8: 1, "long int": 8, "int": 4}


def work(name: str, *arguments: Any) -> dict[str, Any]:
    """Return the work of a call: tensors are (dtype, shape), None is missing, scalars are written as by Kineto."""
    dims, types, concrete = [], [], []
    for argument in arguments:
        tensor = isinstance(argument, tuple)
        dims.append(list(argument[1]) if tensor else [])
        types.append(
            argument[0] if tensor else "" if argument is None else "ScalarList" if argument[:1] == "[" else "Scalar"
        )
        concrete.append("" if tensor or argument is None else argument)
    return _core._work_of_torch(name, dims, types, [[] for _ in dims], concrete)


def check(result: dict[str, Any], flops: float, read: float, written: float) -> None:
    assert (result["flops"], result["bytes_read"], result["bytes_written"]) == (flops, read, written)


def bytes_of(dtype: str, *shapes: tuple[int, ...]) -> int:
    return sum(SIZES[dtype] * math.prod(shape) for shape in shapes)


# Matrix products ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_products_multiply_and_add_each_pair_once(dtype: str) -> None:
    a, b, row, batch = (dtype, (64, 48)), (dtype, (48, 80)), (dtype, (80,)), 5
    size = SIZES[dtype]
    flops, read, written = 2 * 64 * 48 * 80, bytes_of(dtype, (64, 48), (48, 80)), bytes_of(dtype, (64, 80))
    check(work("aten::mm", a, b), flops, read, written)
    check(work("aten::matmul", a, b), flops, read, written)
    check(work("aten::addmm", row, a, b, "1", "1"), flops, read + 80 * size, written)
    check(work("aten::addmm", row, a, b, "0", "1"), flops, read, written)  # beta is 0, so the added matrix is not read
    check(work("aten::_addmm_activation", row, a, b, "1", "1", "False"), flops, read + 80 * size, written)
    left, right, added = (dtype, (batch, 64, 48)), (dtype, (batch, 48, 80)), (dtype, (64, 80))
    check(work("aten::bmm", left, right), batch * flops, batch * read, batch * written)
    check(work("aten::baddbmm", added, left, right, "1", "1"), batch * flops, batch * read + written, batch * written)
    check(work("aten::addbmm", added, left, right, "1", "1"), batch * flops, batch * read + written, written)
    check(
        work("aten::linear", (dtype, (7, 64, 48)), (dtype, (80, 48)), row),
        7 * flops,
        bytes_of(dtype, (7, 64, 48), (80, 48), (80,)),
        7 * written,
    )


def test_vectors_are_rows_and_columns() -> None:
    a, v, w = (F32, (64, 48)), (F32, (48,)), (F32, (64,))
    check(work("aten::mv", a, v), 2 * 64 * 48, bytes_of(F32, (64, 48), (48,)), bytes_of(F32, (64,)))
    check(
        work("aten::addmv", w, a, v, "1", "1"), 2 * 64 * 48, bytes_of(F32, (64, 48), (48,), (64,)), bytes_of(F32, (64,))
    )
    check(work("aten::matmul", w, a), 2 * 64 * 48, bytes_of(F32, (64, 48), (64,)), bytes_of(F32, (48,)))
    check(work("aten::dot", v, v), 2 * 48, 2 * 48 * 4, 4)
    check(work("aten::ger", w, v), 64 * 48, bytes_of(F32, (64,), (48,)), bytes_of(F32, (64, 48)))
    check(
        work("aten::addr", a, w, v, "1", "1"),
        2 * 64 * 48,
        bytes_of(F32, (64, 48), (64,), (48,)),
        bytes_of(F32, (64, 48)),
    )


def test_narrow_dtypes_write_the_requested_dtype() -> None:
    a, b, scale = (FP8, (64, 48)), (FP8, (48, 80)), (F32, ())
    read = bytes_of(FP8, (64, 48), (48, 80))
    bfloat16 = work("aten::_scaled_mm", a, b, scale, scale, None, None, "15", "False")
    check(bfloat16, 2 * 64 * 48 * 80, read, bytes_of(BF16, (64, 80)))
    assert bfloat16["unit"] == "fp8_tensor"
    check(work("aten::_int_mm", (I8, (64, 48)), (I8, (48, 80))), 2 * 64 * 48 * 80, read, 4 * 64 * 80)
    groups = work("aten::_grouped_mm", (BF16, (640, 48)), (BF16, (4, 48, 80)), ("int", (4,)), None, None)
    check(groups, 2 * 640 * 48 * 80, bytes_of(BF16, (640, 48), (4, 48, 80)) + 4 * 4, bytes_of(BF16, (640, 80)))


def test_the_work_of_invalid_calls_is_unknown() -> None:
    for name, *arguments in (
        ("aten::mm", (F32, (3, 4)), (F32, (5, 6))),
        ("aten::mm", (F32, (3, 4))),
        ("aten::mm",),
        ("aten::cudnn_convolution", (F32, (3, 4)), (F32, (5, 6))),
        ("aten::_cudnn_attention_forward", (F32, (3,)), None, None),
    ):
        assert math.isnan(work(name, *arguments)["flops"]), (name, arguments)
        assert math.isnan(work(name, *arguments)["bytes_read"])


# Convolutions ---------------------------------------------------------------------------------------------------------


def test_a_convolution_applies_each_kernel_at_each_position() -> None:
    image, kernel = (BF16, (64, 128, 56, 56)), (BF16, (256, 128, 3, 3))
    flops, read, written = 2 * 64 * 256 * 56 * 56 * 128 * 9, bytes_of(BF16, image[1], kernel[1]), 64 * 256 * 56 * 56 * 2
    ones, zeros = "[1, 1]", "[0, 0]"
    tail = ("1", "False", "False", "True")
    check(work("aten::cudnn_convolution", image, kernel, ones, ones, ones, *tail), flops, read, written)
    check(work("aten::convolution", image, kernel, None, ones, ones, ones, "False", zeros, "1"), flops, read, written)
    check(work("aten::conv2d", image, kernel, None, ones, "same", ones, "1"), flops, read, written)
    strided = work("aten::convolution", image, kernel, (BF16, (256,)), "[2, 2]", ones, ones, "False", zeros, "1")
    check(strided, flops / 4, read + 512, written / 4)
    dilated = work("aten::convolution", image, kernel, None, ones, zeros, "[2, 2]", "False", zeros, "1")
    check(dilated, flops / 56**2 * 52**2, read, written / 56**2 * 52**2)
    depthwise = work("aten::convolution", image, (BF16, (128, 1, 3, 3)), None, ones, ones, ones, "False", zeros, "128")
    check(depthwise, 2 * 64 * 128 * 56 * 56 * 9, bytes_of(BF16, image[1], (128, 1, 3, 3)), 64 * 128 * 56 * 56 * 2)


def test_a_transposed_convolution_applies_a_kernel_to_each_element() -> None:
    sound, kernel = (F32, (8, 32, 100)), (F32, (32, 16, 5))  # two groups: 2 x 16 output channels
    result = work("aten::convolution", sound, kernel, None, "[2]", "[1]", "[1]", "True", "[1]", "2")
    length = (100 - 1) * 2 - 2 + 5 - 1 + 1 + 1
    check(result, 2 * 8 * 32 * 100 * 16 * 5, bytes_of(F32, sound[1], kernel[1]), 8 * 32 * length * 4)


def test_gradients_of_a_convolution_follow_the_mask() -> None:
    gradient, image, kernel = (F32, (8, 64, 28, 28)), (F32, (8, 32, 28, 28)), (F32, (64, 32, 3, 3))
    once, sizes = 2 * 8 * 64 * 28 * 28 * 32 * 9, {"g": bytes_of(F32, gradient[1]), "x": bytes_of(F32, image[1])}
    weight = bytes_of(F32, kernel[1])
    for mask, flops, read, written in (
        ("[True, True, True]", 2 * once, sizes["g"] + sizes["x"] + weight, sizes["x"] + weight + 64 * 4),
        ("[False, True, False]", once, sizes["g"] + sizes["x"], weight),
        ("[True, False, False]", once, sizes["g"] + weight, sizes["x"]),
        ("[False, False, True]", 0, sizes["g"], 64 * 4),
    ):
        result = work(
            "aten::convolution_backward",
            gradient,
            image,
            kernel,
            "[64]",
            "[1, 1]",
            "[1, 1]",
            "[1, 1]",
            "False",
            "[0, 0]",
            "1",
            mask,
        )
        check(result, flops, read, written)


# Attention ------------------------------------------------------------------------------------------------------------

Q = (BF16, (8, 16, 4096, 128))
FULL = 2 * 8 * 16 * 4096 * 4096 * (128 + 128)
CAUSAL = (4096 + 1) / 2 / 4096  # the share of the pairs on and below the diagonal


def attention(causal: str, query: Any = Q, key: Any = Q, value: Any = Q) -> dict[str, Any]:
    return work("aten::_scaled_dot_product_flash_attention", query, key, value, "0.", causal, "False", None)


def test_attention_is_two_products_and_a_causal_mask_leaves_the_pairs_up_to_its_diagonal() -> None:
    log_sum_exp = 8 * 16 * 4096 * 4
    check(attention("False"), FULL, 3 * bytes_of(BF16, Q[1]), bytes_of(BF16, Q[1]) + log_sum_exp)
    assert attention("True")["flops"] == FULL * CAUSAL
    longer = (BF16, (8, 16, 8192, 128))  # the last query attends to all keys, here in flash attention on CUDA
    pairs = 4096 * 8192 - 4096 * 4095 / 2
    assert attention("True", key=longer, value=longer)["flops"] == 4 * 8 * 16 * pairs * 128


def visible(lengths: tuple[int, int]) -> int:
    """Count the pairs of queries and keys with a non-zero weight in torch's own causal attention."""
    torch = pytest.importorskip("torch")
    rows, columns = lengths
    query, key = (torch.randn(1, 1, n, columns, dtype=torch.float64) for n in lengths)
    value = torch.eye(columns, dtype=torch.float64)[None, None]  # the result has the weights
    result = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert result.shape[2:] == (rows, columns)
    return int((result != 0).sum())


@pytest.mark.parametrize("lengths", [(128, 256), (256, 128), (64, 64), (1, 7)])
def test_causal_masks_of_torch_begin_at_the_first_query_and_key(lengths: tuple[int, int]) -> None:
    query, key = ((F32, (4, 8, length, 64)) for length in lengths)
    flops = 4 * 4 * 8 * visible(lengths) * 64
    three = (query, key, key)
    aten, scaled = "aten::scaled_dot_product_attention", "aten::_scaled_dot_product"
    assert work(aten, *three, None, "0.", "True", None, "False")["flops"] == flops
    assert work(f"{scaled}_attention_math", *three, None, "0.", "True", None, None, "False")["flops"] == flops
    cpu = f"{scaled}_flash_attention_for_cpu"
    assert work(cpu, *three, "0.", "True", None, None)["flops"] == flops
    back = work(f"{cpu}_backward", query, *three, query, (F32, (4, 8, lengths[0])), "0.", "True", None, None)
    assert back["flops"] == 2.5 * flops
    for name in ("efficient", "cudnn"):
        rest = ("0.", "True", "False", None) if name == "cudnn" else ("0.", "True", None)
        assert work(f"{scaled}_{name}_attention", *three, None, "True", *rest)["flops"] == flops
    packed = [(F32, (4, length, 8, 64)) for length in (lengths[0], lengths[1], lengths[1])]
    kernel = [*packed, *[None] * 5, "0.", "1", "True", None, None, None]
    assert work("aten::_efficient_attention_forward", *kernel)["flops"] == flops
    kernel[9] = "2"  # causal_lower_right
    assert work("aten::_efficient_attention_forward", *kernel)["flops"] == 4 * 4 * 8 * windowed(*lengths, -1, 0) * 64


def test_keys_of_grouped_queries_are_read_once() -> None:
    few = (BF16, (8, 2, 4096, 128))
    result = attention("False", key=few, value=few)
    assert result["flops"] == FULL and result["bytes_read"] == bytes_of(BF16, Q[1], few[1], few[1])


def test_the_gradients_of_attention_are_five_products() -> None:
    log_sum_exp = (F32, (8, 16, 4096))
    result = work(
        "aten::_cudnn_attention_backward",
        Q,
        Q,
        Q,
        Q,
        Q,
        log_sum_exp,
        None,
        None,
        None,
        None,
        None,
        "4096",
        "4096",
        "0.",
        "False",
    )
    assert result["flops"] == FULL * 5 / 2
    assert result["bytes_read"] == 5 * bytes_of(BF16, Q[1]) + bytes_of(F32, log_sum_exp[1])
    assert result["bytes_written"] == 3 * bytes_of(BF16, Q[1])


def test_packed_sequences_are_counted_if_their_lengths_are_recorded() -> None:
    packed, offsets = (BF16, (8 * 4096, 16, 128)), ("int", (9,))
    call = (
        "aten::_flash_attention_forward",
        packed,
        packed,
        packed,
        offsets,
        offsets,
        "4096",
        "4096",
        "0.",
        "False",
        "False",
    )
    assert work(*call)["flops"] == FULL
    uneven = (BF16, (5 * 4096, 16, 128))
    result = work(call[0], uneven, uneven, uneven, *call[4:])
    # Each sum over sequences is at most a total times the longest: 5 sequences of 4096.
    assert result["flops"] == FULL * 5 / 8 and result["at_most"]
    assert result["bytes_read"] == 3 * bytes_of(BF16, uneven[1])


def test_some_versions_record_the_dtype_of_the_result() -> None:
    a, b, added = (BF16, (64, 48)), (BF16, (48, 80)), (BF16, (80,))
    assert work("aten::mm", a, b, "6")["bytes_written"] == 4 * 64 * 80
    assert work("aten::addmm", added, a, b, "6", "1", "1")["bytes_written"] == 4 * 64 * 80
    assert work("aten::addmm", added, a, b, "1", "1")["bytes_written"] == 2 * 64 * 80
    scale, narrow, other = (F32, ()), (FP8, a[1]), (FP8, b[1])
    older = work("aten::_scaled_mm", narrow, other, None, "15", scale, scale, None, "False")
    assert older["bytes_written"] == 2 * 64 * 80
    assert work("aten::_scaled_mm", narrow, other, scale, scale)["bytes_written"] == 64 * 80


def test_packed_weights_have_as_many_outputs_as_their_scales() -> None:
    x, outputs = (BF16, (7, 64, 256)), 96
    flops, written = 2 * 7 * 64 * 256 * outputs, 2 * 7 * 64 * outputs
    check(
        work("aten::_weight_int8pack_mm", x, (I8, (outputs, 256)), (BF16, (outputs,))),
        flops,
        bytes_of(BF16, x[1], (outputs,)) + outputs * 256,
        written,
    )
    four_bits, scales = ("int", (outputs // 8, 2, 32, 4)), (BF16, (2, outputs, 2))
    check(
        work("aten::_weight_int4pack_mm", x, four_bits, "128", scales),
        flops,
        bytes_of(BF16, x[1], scales[1]) + outputs * 256 // 2,
        written,
    )


def test_flops_are_unknown_if_a_flag_was_not_recorded() -> None:
    """Older traces record no values of arguments; newer ones omit strings, such as the padding "same"."""
    image, kernel, ones = (F32, (2, 4, 9, 9)), (F32, (6, 4, 3, 3)), "[1, 1]"
    result = work("aten::conv2d", image, kernel, None, ones, None, ones, "1")
    assert math.isnan(result["flops"]) and result["bytes_read"] == bytes_of(F32, image[1], kernel[1])
    no_values = [[], [], [], [], [], []]
    call = ([list(image[1]), list(kernel[1]), *no_values], [F32, F32, *["ScalarList"] * 3, *["Scalar"] * 3])
    assert math.isnan(_core._work_of_torch("aten::cudnn_convolution", *call, [[]] * 8, [""] * 8)["flops"])
    dims, types = [list(Q[1])] * 3 + [[]] * 4, [BF16] * 3 + ["Scalar"] * 4
    result = _core._work_of_torch("aten::_scaled_dot_product_flash_attention", dims, types, [[]] * 7, [""] * 7)
    assert math.isnan(result["flops"]) and result["bytes_read"] == 3 * bytes_of(BF16, Q[1])


def test_positions_of_flags_depend_on_the_version_of_the_op() -> None:
    """torch 2.0 had no bias; torch 2.13 can take scales first."""
    small = (BF16, (2, 4, 64, 32))
    log_sum_exp = 2 * 4 * 64 * 4
    for causal in ("False", "True"):
        flops = 2 * 2 * 2 * 4 * (64 * 65 / 2 if causal == "True" else 64 * 64) * 32
        name = "aten::_scaled_dot_product_efficient_attention"
        old = work(name, small, small, small, "True", causal)
        assert (old["flops"], old["bytes_written"]) == (flops, bytes_of(BF16, small[1]) + log_sum_exp)
        assert work(name, small, small, small, None, "False", "0.", causal, None)["flops"] == flops
        name = "aten::_scaled_dot_product_flash_attention"
        scales = [(F32, (2, 4))] * 3
        assert work(name, small, small, small, *scales, "0.", causal, "False", None)["flops"] == flops


def windowed(rows: int, columns: int, before: int, after: int) -> int:
    """Count the pairs of a query and a key in its window, one by one; queries and keys end together."""
    pairs = 0
    for row in range(rows):
        here = row + columns - rows
        first = here - before if before >= 0 else 0
        last = here + after if after >= 0 else columns - 1
        pairs += len(range(max(first, 0), min(last, columns - 1) + 1))
    return pairs


@pytest.mark.parametrize("sizes", [(64, 64), (40, 96), (96, 40)])
@pytest.mark.parametrize("window", [(16, 0), (16, 8), (0, 0), (-1, 8), (16, -1), (500, 500)])
def test_sliding_windows_count_the_keys_inside_them(sizes: tuple[int, int], window: tuple[int, int]) -> None:
    rows, columns = sizes
    query, key = (BF16, (2, rows, 4, 32)), (BF16, (2, columns, 1, 32))
    before, after = str(window[0]), str(window[1])
    torchs = ("aten::_flash_attention_forward", query, key, key, None, None, str(rows), str(columns), "0.", "False",
              "False", None, before, after)  # fmt: skip
    own = ("flash_attn::_flash_attn_forward", query, key, key, "0.", "0.1", "False", before, after, "0.", None, "False")
    for call in (torchs, own):
        assert work(*call)["flops"] == 2 * 2 * 2 * 4 * 32 * windowed(rows, columns, *window)


@pytest.mark.parametrize("causal", ["True", "False"])
def test_flash_attention_is_counted_under_its_own_names(causal: str) -> None:
    query, packed = (BF16, (8, 4096, 16, 128)), (BF16, (8 * 4096, 16, 128))
    offsets, log_sum_exp, all_keys = ("int", (9,)), (F32, (8, 16, 4096)), ("-1", "-1")
    three, five = [query] * 3, [query] * 5
    part = CAUSAL if causal == "True" else 1
    scale = ("0.", "0.08")
    calls = {
        "flash_attn::_flash_attn_forward": (*three, *scale, causal, *all_keys),
        "flashattn::_flash_attn_varlen_forward": (*[packed] * 3, offsets, offsets, "4096", "4096", *scale, causal),
        "flash_attn_3::_flash_attn_forward": (*three, *[None] * 20, "0.08", causal, *all_keys),
    }
    for name, arguments in calls.items():
        result = work(name, *arguments)
        assert result["flops"] == FULL * part, name
        assert result["bytes_read"] == 3 * bytes_of(BF16, Q[1])
    gradients = {
        "flash_attn::_flash_attn_backward": (*five, log_sum_exp, *three, *scale, causal, *all_keys),
        "flash_attn_3::_flash_attn_backward": (*five, log_sum_exp, *[None] * 6, *three, "0.08", causal, *all_keys),
        "flash_attn::_flash_attn_varlen_backward": (
            *[packed] * 5, log_sum_exp, *[packed] * 3, offsets, offsets, "4096", "4096", *scale, causal,
        ),
    }  # fmt: skip
    for name, arguments in gradients.items():
        result = work(name, *arguments)
        assert result["flops"] == FULL * 5 / 2 * part, name
        assert result["bytes_written"] == 3 * bytes_of(BF16, Q[1])


# Oracles --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counted", "result"),
    [  # tensor-core FLOPs of single ops on an H200, by Nsight Compute (sm__ops_path_tensor_src_bf16_dst_fp32.sum)
        (1099511627776, lambda: work("aten::mm", (BF16, (8192, 8192)), (BF16, (8192, 8192)))),
        (
            118380036096,
            lambda: work(
                "aten::cudnn_convolution",
                (BF16, (64, 128, 56, 56)),
                (BF16, (256, 128, 3, 3)),
                "[1, 1]",
                "[1, 1]",
                "[1, 1]",
                "1",
                "False",
                "False",
                "True",
            ),
        ),
        (566935683072, lambda: attention("True")),
        (1099511627776, lambda: attention("False")),
    ],
    ids=["mm", "convolution", "causal attention", "attention"],
)
def test_flops_match_hardware_counters(counted: int, result: Any) -> None:
    assert result()["flops"] == pytest.approx(counted, rel=0.04)


def programs(torch: Any) -> dict[str, Any]:
    nn = torch.nn.functional
    r = torch.randn
    image, kernel, grown = r(4, 8, 20, 20, requires_grad=True), r(12, 4, 3, 3, requires_grad=True), r(8, 3, 4, 4)
    a, b, q = r(30, 20, requires_grad=True), r(20, 40, requires_grad=True), r(2, 4, 64, 32, requires_grad=True)
    return {
        "mm": lambda: a @ b,
        "linear, gradients": lambda: nn.linear(a, b.t(), r(40)).sum().backward(),
        "bmm": lambda: torch.bmm(r(3, 10, 20), r(3, 20, 5)),
        "baddbmm": lambda: torch.baddbmm(r(3, 10, 5), r(3, 10, 20), r(3, 20, 5)),
        "einsum": lambda: torch.einsum("bij,bjk->bik", r(3, 10, 20), r(3, 20, 5)),
        "convolution in groups": lambda: nn.conv2d(image, kernel, stride=2, padding=1, groups=2),
        "convolution, gradients": lambda: nn.conv2d(image, kernel, padding=1, groups=2).sum().backward(),
        "convolution, transposed": lambda: nn.conv_transpose2d(image, grown, stride=2, output_padding=1),
        "attention, gradients": lambda: nn.scaled_dot_product_attention(q, q, q).sum().backward(),
    }


@pytest.mark.parametrize(
    "name",
    [
        "mm",
        "linear, gradients",
        "bmm",
        "baddbmm",
        "einsum",
        "convolution in groups",
        "convolution, gradients",
        "convolution, transposed",
        "attention, gradients",
    ],
)
def test_flops_match_torchs_counter(name: str, tmp_path: Path) -> None:
    """FlopCounterMode counts the gradients of weights once for each group (torch 2.13), two here. It does not count
    attention on the CPU: with five products backward, the total is 3.5 times forward."""
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter")
    run = programs(torch)[name]
    with counter.FlopCounterMode(display=False) as mode:
        run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        run()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    rows = fs.load_trace(tmp_path / "trace.json").key_averages(peaks="none")
    multiplied = ("mm", "bmm", "convolution", "attention", "linear", "matmul", "dot")
    ours = sum(row.flops for row in rows if any(word in row.key for word in multiplied) and not math.isnan(row.flops))
    theirs = mode.get_total_flops()
    if name == "convolution, gradients":
        forward = theirs - sum(f for op, f in mode.get_flop_counts()["Global"].items() if "backward" in str(op))
        theirs = forward + (theirs - forward) * 2 // 3
    if name == "attention, gradients":
        theirs = 7 * 2 * 2 * 4 * 64 * 64 * (32 + 32) // 2
    assert ours == theirs > 0


def test_strides_wider_than_the_kernel_skip_input() -> None:
    image, kernel, ones, zeros = (BF16, (8, 64, 56, 56)), (BF16, (128, 64, 1, 1)), "[1, 1]", "[0, 0]"
    result = work("aten::convolution", image, kernel, None, "[2, 2]", zeros, ones, "False", zeros, "1")
    read, weight = bytes_of(BF16, (8, 64, 28, 28)), bytes_of(BF16, kernel[1])
    check(result, 2 * 8 * 128 * 28 * 28 * 64, read + weight, bytes_of(BF16, (8, 128, 28, 28)))
    gradient = (BF16, (8, 128, 28, 28))
    tail = ("[2, 2]", zeros, ones, "False", zeros, "1", "[False, True, False]")
    result = work("aten::convolution_backward", gradient, image, kernel, None, *tail)
    assert result["bytes_read"] == bytes_of(BF16, gradient[1]) + read

"""Products of vLLM, SGLang and aiter, by version, against first principles."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.library_calls import N4, ONE, B, F, I, Q, Tensor, U, lists, numbers, size, work

M, N, K = 32, 512, 256
FLOPS = 2 * M * N * K
HALF = "15"  # bfloat16 as a ScalarType


# Products -------------------------------------------------------------------------------------------------------------

X, W, WT, OUT = Q(M, K), Q(N, K), Q(K, N), B(M, N)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("vllm::w8a8_block_fp8_matmul_deepgemm", [X, W, ONE, ONE, "[128, 128]", HALF]),
        ("vllm::w8a8_triton_block_scaled_mm_func", [X, W, ONE, ONE, "[128, 128]", HALF]),
        ("vllm::padded_cutlass", [X, WT, ONE, ONE, "[128, 128]", HALF]),
        ("vllm::rocm_aiter_gemm_w8a8_blockscale", [X, W, ONE, ONE, "[128, 128]", HALF]),
        ("vllm::rocm_aiter_gemm_a8w8_blockscale", [X, W, ONE, ONE, HALF]),
        ("vllm::rocm_aiter_triton_gemm_a8w8_blockscale", [X, W, ONE, ONE, HALF]),
        ("vllm::rocm_aiter_gemm_w8a8", [X, W, ONE, ONE, None, HALF]),
        ("vllm::rocm_aiter_gemm_a8w8", [X, W, ONE, ONE, None, HALF]),
        ("vllm::rocm_aiter_w8a8_gemm", [X, W, ONE, ONE, None, HALF]),
        ("vllm::rocm_per_tensor_w8a8_scaled_mm_impl", [X, WT, HALF, ONE, ONE, None]),
        ("vllm::rocm_per_tensor_float_w8a8_scaled_mm_impl", [X, WT, HALF, ONE, ONE, None]),
        ("vllm::fp8_gemm_nt_op", [X, ONE, W, ONE, OUT, "True"]),
        ("vllm::mm_mxfp8", [X, WT, ONE, ONE, HALF, "cutlass"]),
        ("vllm::mm_mxfp8", [X, WT, ONE, ONE, HALF, "cutlass", "False"]),
        ("vllm::int8_scaled_mm_func", [X, W, ONE, ONE, HALF, None]),
        ("_C::cutlass_scaled_mm_dq", [OUT, X, WT, ONE, ONE]),
        ("_rocm_C::wvSplitKQ", [W, X, OUT, ONE, ONE, "304"]),
        ("_rocm_C::wvSplitKQ", [W, X, None, OUT, ONE, ONE, "304"]),
        ("sgl_kernel::fp8_scaled_mm", [X, WT, ONE, ONE, HALF, None, None]),
        ("sglang::deep_gemm_fp8_fp8_bf16_nt", [X, ONE, W, ONE, OUT]),
        ("sglang::flashinfer_gemm_fp8_nt_groupwise", [X, W, ONE, ONE, HALF]),
        ("sglang::triton_mxfp8_block_scaled_matmul", [X, ONE, W, ONE, HALF, "128", "128", "128", "4"]),
        ("aiter::gemm_a8w8_asm", [X, W, ONE, ONE, OUT, "", None, "True", "0"]),
        ("aiter::_gemm_a8w8_asm", [X, W, ONE, ONE, OUT, "", None, "True", "0"]),
        ("aiter::gemm_a8w8_blockscale_bpreshuffle", [X, W, ONE, ONE, HALF]),
        ("aiter::_gemm_a8w8_blockscale_bpreshuffle_asm", [X, W, OUT, ONE, ONE, None, "1", "", "True", None]),
        ("aiter::hipb_mm", [X, WT, "-1", None, HALF, ONE, ONE, None]),
    ],
)
def test_products_of_8_bits_write_16(name: str, arguments: list[Any]) -> None:
    found = work(name, *arguments)
    assert numbers(found) == (FLOPS, size(X, W, ONE, ONE), size(OUT)), name
    assert found["unit"] == "fp8_tensor"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("_C::dsv3_fused_a_gemm", [OUT, B(M, K), B(K, N), "True"]),
        ("_moe_C::dsv3_router_gemm", [OUT, B(M, K), B(N, K)]),
        ("vllm::min_latency_fused_qkv_a_proj", [B(M, K), B(N, K)]),
        ("_rocm_C::wvSplitKrc", [B(M, K), B(N, K), None, "304"]),
        ("_rocm_C::wvSplitK", [B(N, K), B(M, K), None, "304"]),
        ("sglang::flashinfer_dsv3_router_gemm", [OUT, B(M, K), B(N, K)]),
        ("aiter::gemm_a16w16_asm", [B(M, K), B(N, K), OUT, None, "1", ""]),
        ("aiter::gemm_a16w16_asm", [B(M, K), B(N, K), OUT, U(64), None, "1", "", "False"]),
        ("aiter::_gemm_a16w16_asm", [B(M, K), B(N, K), OUT, U(64), None, "1", "", "False"]),
    ],
)
def test_products_of_16_bits(name: str, arguments: list[Any]) -> None:
    assert numbers(work(name, *arguments)) == (FLOPS, size(B(M, K), B(N, K)), size(OUT)), name


@pytest.mark.parametrize(
    ("name", "arguments", "scales"),
    [
        ("vllm::flashinfer_mm_fp4", [U(M, K // 2), U(K // 2, N), ONE, ONE, None, HALF, "cutlass"], 2),
        ("sglang::fp4_gemm", [U(M, K // 2), U(N, K // 2), ONE, ONE, ONE, HALF, str(N)], 3),
        ("aiter::gemm_a4w4_asm", [U(M, K // 2), U(N, K // 2), ONE, ONE, OUT, "", None, "1", "0", "True", None], 2),
        ("aiter::gemm_a4w4_blockscale", [U(M, K // 2), U(N, K // 2), ONE, ONE, OUT, "0"], 2),
        ("_C::cutlass_scaled_fp4_mm", [OUT, U(M, K // 2), U(N, K // 2), ONE, ONE, None], 2),
    ],
)
def test_two_numbers_a_byte_are_no_integers(name: str, arguments: list[Any], scales: int) -> None:
    found = work(name, *arguments)
    assert numbers(found) == (FLOPS, size(U(M, K // 2), U(N, K // 2)) + 4 * scales, size(OUT)), name
    assert found["unit"] is None  # a trace of packed bytes does not tell a peak


SPACE, QW, SCALES = N4(99), N4(K // 16, N * 2), B(K // 128, N)
INDEX = [N4(2), N4(K), N4(K)]  # zeros, the index of the groups, its order
MNK = [str(M), str(N), str(K)]


@pytest.mark.parametrize(
    ("name", "arguments", "more"),
    [
        ("_C::marlin_gemm", [B(M, K), QW, SCALES, SPACE, *MNK], []),
        ("_C::marlin_gemm", [B(M, K), None, QW, None, SCALES, *[None] * 5, SPACE, "1", *MNK, *"0000"], []),
        ("_C::marlin_gemm", [B(M, K), None, QW, B(N), SCALES, *[None] * 3, SPACE, "1", *MNK, *"000"], [B(N)]),
        ("vllm::marlin_gemm", [B(M, K), QW, B(N), SCALES, *[None] * 4, "1", *MNK, *"000"], [B(N)]),
        ("_C::fp8_marlin_gemm", [B(M, K), QW, SCALES, SPACE, "8", *MNK], []),
        ("_C::gptq_marlin_gemm", [B(M, K), QW, SCALES, *INDEX, SPACE, "1", *MNK, *"000"], INDEX),
        ("_C::gptq_marlin_gemm", [B(M, K), QW, SCALES, *INDEX, SPACE, "1", *MNK, *"00000"], INDEX),
        ("_C::gptq_marlin_gemm", [B(M, K), None, QW, SCALES, *[None] * 3, SPACE, "1", *MNK, *"0000"], []),
        ("_C::gptq_marlin_gemm", [B(M, K), None, QW, SCALES, *[None] * 4, SPACE, "1", *MNK, *"0000"], []),
        ("_C::gptq_marlin_gemm", [B(M, K), None, QW, B(N), SCALES, *[None] * 4, SPACE, "1", *MNK, *"0000"], [B(N)]),
        ("_C::gptq_marlin_gemm", [B(M, K), None, QW, B(N), SCALES, *[None] * 5, SPACE, "1", *MNK, *"0000"], [B(N)]),
        ("sglang::unified_apply_gptq_marlin_gemm", [B(M, K), QW, SCALES, *INDEX, SPACE, *MNK[1:], *"000"], INDEX),
        ("sglang::apply_fp8_marlin_linear", [B(M, K), QW, SCALES, SPACE, *MNK[1:], None, "1"], []),
    ],
)  # fmt: skip
def test_marlins_versions_agree(name: str, arguments: list[Any], more: list[Tensor]) -> None:
    found = work(name, *arguments)
    assert numbers(found) == (FLOPS, size(B(M, K), QW, SCALES, *more), size(OUT)), (name, found["expected"])


def test_packed_weights_with_8_bit_activations_write_16_bits() -> None:
    weight = N4(K // 8, N)
    found = work("_C::machete_mm", Q(M, K), weight, "1", None, SCALES, None, "128", None, None, None)
    assert found["bytes_written"] == size(OUT) and found["unit"] == "fp8_tensor"
    wide = work("_C::machete_mm", Q(M, K), weight, "1", "6", SCALES, None, "128", None, None, None)
    assert wide["bytes_written"] == 4 * M * N
    mixed = work("_C::cutlass_w4a8_mm", Q(M, K), N4(N, K // 8), Q(2, N), "128", F(N), F(M), None, None)
    assert numbers(mixed) == (FLOPS, size(Q(M, K), N4(N, K // 8), Q(2, N), F(N), F(M)), size(OUT))
    qqq = work("_C::marlin_qqq_gemm", ("signed char", (M, K)), QW, F(M), F(N), B(2, N), SPACE, *MNK)
    assert numbers(qqq) == (FLOPS, size(U(M, K), QW, F(M), F(N), B(2, N)), 2 * M * N)
    assert qqq["unit"] == "int8_tensor"


def test_gptqs_versions_agree() -> None:
    weight, zeros, scales, index = N4(K // 8, N), N4(2, N // 8), B(2, N), N4(K)
    plain = (FLOPS, size(B(M, K), weight, zeros, scales), size(OUT))
    indexed = (FLOPS, plain[1] + size(index), size(OUT))
    head = [B(M, K), weight, zeros, scales]
    assert numbers(work("_C::gptq_gemm", *head, index, "True", "4")) == indexed
    assert numbers(work("_C::gptq_gemm", *head, index, "True", "False", "4")) == indexed
    assert numbers(work("_C::gptq_gemm", *head, "True", "False", "4")) == plain
    assert numbers(work("_rocm_C::gptq_gemm_rdna3", *head, index, "True")) == indexed
    assert numbers(work("_rocm_C::gptq_gemm_rdna3_wmma", *head, "True")) == plain


def test_matrices_in_a_batch() -> None:
    a, b = Q(4, M, K), Q(4, K, N)
    for name, *arguments in [
        ("vllm::bmm_fp8", a, b, ONE, ONE, HALF, "cublas"),
        ("sglang::_bmm_fp8_op", a, b, B(4, M, N), ONE, ONE),
    ]:
        assert numbers(work(name, *arguments)) == (4 * FLOPS, size(a, b, ONE, ONE), size(B(4, M, N))), name


# Experts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "extra", "tail"),
    [
        ("_moe_C", [], ["1", "1", *MNK, *"0000"]),
        ("_moe_C", [None], ["1", "1", *MNK, *"0000"]),
        ("_moe_C", [None, None], ["1", "1", *MNK, *"0000"]),
        ("_moe_C", [None, None, None], ["1", "1", *MNK, *"0000", *"111"]),
        ("_moe_C", [None, None, None], ["1", *MNK, *"0000", *"111"]),
        ("_moe_C", "no index", ["1", *MNK, *"000", *"111"]),
        ("sgl_kernel", [], ["1", "1", *MNK, *"0000"]),
        ("sgl_kernel", [None, None], ["1", "1", *MNK, *"0000"]),
    ],
)
def test_experts_of_few_bits_multiply_the_chosen_rows(library: str, extra: Any, tail: list[str]) -> None:
    weight, scales, sorted_ids = N4(8, K // 16, N * 2), B(8, K // 128, N), N4(256)
    chosen = F(M, 2)
    index = [None] * 3  # zeros, the index and its order
    if extra == "no index":
        middle = [None, scales, None, None, None]
    elif len(extra) == 0:
        middle = [scales, *index]
    elif len(extra) == 1:
        middle = [scales, None, *index]
    else:
        middle = [None, scales, *extra[1:], *index]
    found = work(f"{library}::moe_wna16_marlin_gemm", B(M, K), None, weight, *middle, SPACE, sorted_ids, N4(16), N4(1),
                 chosen, "16", "2", "False", *tail)  # fmt: skip
    assert numbers(found) == (2 * FLOPS, size(B(M, K), weight, scales, sorted_ids, N4(16), N4(1), chosen),
                              size(B(2 * M, N))), found["expected"]  # fmt: skip
    assert found["at_most"]


def test_experts_of_8_bits_are_multiplied_in_8_bits() -> None:
    experts, inner = 4, 128
    x, w1, w2 = B(M, K), Q(experts, 2 * inner, K), Q(experts, K, inner)
    for name in ("vllm::fused_experts", "vllm::rocm_aiter_fused_moe", "sglang::outplace_fused_experts"):
        found = work(name, x, w1, w2, F(M, 2), N4(M, 2), None)
        assert found["flops"] == 2 * M * 2 * 3 * inner * K and found["unit"] == "fp8_tensor", name
    assert work("vllm::fused_experts", x, B(*w1[1]), B(*w2[1]), F(M, 2), N4(M, 2))["unit"] == "bf16_tensor"


@pytest.mark.parametrize(
    ("name", "arguments", "read"),
    [
        ("_C::cutlass_blockwise_scaled_grouped_mm", [OUT, X, Q(8, N, K), ONE, ONE, N4(8, 3), N4(8)], [N4(8, 4)]),
        ("sgl_kernel::es_fp8_blockwise_scaled_grouped_mm",
         [OUT, X, Q(8, K, N), ONE, ONE, I(8), I(8), I(8), N4(8, 3), N4(8)], []),
        ("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_mm",
         [X, Q(8, K, N), ONE, ONE, OUT, N4(8, 3), N4(8), N4(8)], []),
        ("sgl_kernel::fp8_blockwise_scaled_grouped_mm",
         [OUT, X, Q(8, K, N), ONE, ONE, I(8), I(8), I(8), N4(8, 5), N4(8, 5), N4(8, 3), N4(8)], [N4(8, 4)]),
    ],
)  # fmt: skip
def test_rows_in_the_order_of_their_experts_are_a_bound(name: str, arguments: list[Any], read: list[Tensor]) -> None:
    found = work(name, *arguments)
    assert numbers(found) == (FLOPS, size(X, Q(8, N, K), ONE, ONE, *read), size(OUT)), name
    assert found["at_most"] and found["unit"] == "fp8_tensor"


def test_rows_of_4_bits_in_the_order_of_their_experts() -> None:
    a, b, scale, offsets = U(M, K // 2), U(8, N, K // 2), Q(8, 16), N4(8)
    alphas, strides = F(8), I(8)
    read = size(a, b, scale, scale)
    nv = work("_C::cutlass_fp4_group_mm", OUT, a, b, scale, scale, alphas, N4(8, 3), offsets, offsets)
    assert numbers(nv) == (FLOPS, read + size(alphas), size(OUT)) and nv["unit"] is None
    mx = work("_C::cutlass_mxfp4_group_mm", OUT, a, b, scale, scale, N4(8, 3), offsets, offsets)
    assert numbers(mx) == (FLOPS, read + size(N4(8, 3), offsets, offsets), size(OUT)) and mx["unit"] is None
    sgl = work("sgl_kernel::cutlass_fp4_group_mm", OUT, a, b, scale, scale, alphas, strides, strides, N4(8, 3), offsets,
               offsets)  # fmt: skip
    assert sgl["flops"] == FLOPS and sgl["unit"] is None
    mixed = work("_C::cutlass_w4a8_moe_mm", OUT, X, N4(8, N, K // 8), ONE, ONE, Q(8, 4), "128", offsets, N4(8, 3),
                 strides, strides, strides, strides, None)  # fmt: skip
    assert numbers(mixed) == (FLOPS, size(X, N4(8, N, K // 8), ONE, ONE, Q(8, 4), offsets, N4(8, 3)), size(OUT))


EXPERTS, INNER, TOP = 8, 128, 2
UP, DOWN = Q(EXPERTS, 2 * INNER, K), Q(EXPERTS, K, INNER)
ROUTING = [str(EXPERTS), str(TOP), "1", "1", str(INNER), "0", str(EXPERTS)]


@pytest.mark.parametrize(
    ("name", "arguments", "scales"),
    [
        ("vllm::flashinfer_fused_moe_blockscale_fp8",
         [F(M, EXPERTS), F(EXPERTS), B(M, K), UP, ONE, DOWN, ONE, *ROUTING, "[128, 128]", "2", "2.5"], 2),
        ("vllm::flashinfer_fused_moe_per_tensor_scale_fp8",
         [F(M, EXPERTS), F(EXPERTS), B(M, K), ONE, UP, DOWN, ONE, ONE, ONE, *ROUTING, "True", "2", "1.0"], 4),
        ("vllm::fi_trtllm_fp8_per_tensor_moe",
         [F(M, EXPERTS), F(EXPERTS), B(M, K), ONE, UP, DOWN, ONE, ONE, ONE, *ROUTING, "True", "2", "3", "1.0"], 4),
        ("sglang::trtllm_fp8_block_scale_moe_wrapper",
         [F(M, EXPERTS), F(EXPERTS), Q(M, K), ONE, UP, ONE, DOWN, ONE, *ROUTING, "2.5", "2", "True"], 3),
        ("sglang::trtllm_fp8_per_tensor_scale_moe_wrapper",
         [F(M, EXPERTS), F(EXPERTS), Q(M, K), UP, ONE, ONE, DOWN, ONE, *ROUTING, "2.5", "True", "2", "", "8192"], 3),
    ],
)  # fmt: skip
def test_layers_of_experts_in_one_kernel_are_a_bound(name: str, arguments: list[Any], scales: int) -> None:
    found = work(name, *arguments)
    flops = 2 * M * TOP * 3 * INNER * K
    read = size(arguments[0], arguments[1], arguments[2], UP, DOWN) + 4 * scales
    assert numbers(found) == (flops, read, size(B(M, K))), name
    assert found["at_most"] and found["unit"] == "fp8_tensor"


def test_layers_of_experts_in_two_kernels() -> None:
    rows = [N4(512), N4(16), N4(1)]
    between = B(M, TOP, INNER)
    whole = 2 * M * TOP * 2 * INNER * K
    first = work("aiter::moe_stage1_g1u1", Q(M, K), UP, DOWN, *rows, between, str(INNER), "", "32", "0", "1", "2", None,
                 None, None)  # fmt: skip
    assert numbers(first) == (whole, size(Q(M, K), UP, *rows), size(between))
    tiles = work("aiter::moe_cktile2stages_gemm1_ck", B(M, K), B(*UP[1]), between, *rows, "2", "0", "0", None, None,
                 None, None, "32")  # fmt: skip
    assert numbers(tiles) == (whole, size(B(M, K), B(*UP[1]), *rows), size(between))
    second = work("aiter::moe_cktile2stages_gemm2_ck", between, B(*DOWN[1]), B(M, K), *rows, "2", "0", "0", None, None,
                  None, None, "32")  # fmt: skip
    assert numbers(second) == (whole / 2, size(between, B(*DOWN[1]), *rows), size(B(M, K)))
    assert first["at_most"] and tiles["at_most"] and second["at_most"]


def test_adapters_of_low_rank_count_each_projection() -> None:
    rank, slices, ids = 16, 2, N4(M)
    down = [B(4, 1, rank, K)] * slices
    up = [B(4, 1, N, rank)] * slices
    starts, flag, few = N4(6), ("bool", (1,)), N4(5)
    tail = [ids, ids, few, starts, few, flag]
    shrink = lists("vllm::lora_shrink", B(M, K), down, F(slices, M, rank), *tail, "1.0")
    small = size(ids, ids, few, starts, few)
    assert numbers(shrink) == (
        2 * M * K * rank * slices,
        size(B(M, K), *down) + small,
        size(F(slices, M, rank)),
    )
    expand = lists("vllm::lora_expand", F(slices, M, rank), up, B(M, slices * N), *tail, few, "0", "True")
    assert numbers(expand) == (
        2 * M * rank * slices * N,
        size(F(slices, M, rank), *up, B(M, slices * N)) + small,
        size(B(M, slices * N)),
    )
    assert shrink["at_most"] and expand["at_most"]


# Unknown --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("_C::gptq_marlin_gemm", [B(M, K), None, QW, SCALES, *[None] * 3, SPACE, "1", str(M), str(N), "99", *"0000"]),
        ("_C::cutlass_blockwise_scaled_grouped_mm", [B(M + 1, N), X, Q(8, N, K), ONE, ONE, N4(8, 3), N4(8)]),
        ("vllm::w8a8_triton_block_scaled_mm_func", [X, Q(N, K + 1), ONE, ONE, "[128, 128]", HALF]),
        ("_moe_C::moe_sum", [B(4, 2, 8), B(4, 8), "1"]),
        ("sgl_kernel::top_p_sampling_from_probs", [F(8, 9), F(8), N4(8), "0.9"]),
    ],
)
def test_arguments_of_no_version_give_no_work(name: str, arguments: list[Any]) -> None:
    found = work(name, *arguments)
    assert math.isnan(found["flops"]) and math.isnan(found["bytes_moved"])

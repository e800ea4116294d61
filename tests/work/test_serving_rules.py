"""Norms, caches, attention and exchange of vLLM, SGLang, FlashInfer and aiter, against first principles."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.hand_traces import BF16, Program
from helpers.library_calls import INT, N4, ONE, STEP, B, F, I, Q, Tensor, U, numbers, size, work

import flopscope as fs

# Norms, activations, quantization -------------------------------------------------------------------------------------

ROWS, WIDTH = 32, 4096
WIDE, WEIGHT, NARROW = B(ROWS, WIDTH), B(WIDTH), Q(ROWS, WIDTH)
EACH = ROWS * WIDTH


def test_norms_without_a_weight_count_no_product_with_it() -> None:
    assert numbers(work("_C::rms_norm", WIDE, WIDE, None, "1e-6")) == (3 * EACH, size(WIDE), size(WIDE))
    added = work("_C::fused_add_rms_norm", WIDE, WIDE, None, "1e-6")
    assert numbers(added) == (4 * EACH, size(WIDE, WIDE), size(WIDE, WIDE))
    assert work("_C::rms_norm", WIDE, WIDE, WEIGHT, "1e-6")["flops"] == 4 * EACH


@pytest.mark.parametrize(
    ("name", "arguments", "flops", "read", "written"),
    [
        ("aiter::rmsnorm", [WIDE, WIDE, WEIGHT, "1e-6", "False"], 4, [WIDE, WEIGHT], [WIDE]),
        ("aiter::rmsnorm2d_fwd_ck", [WIDE, WEIGHT, "1e-6", "0"], 4, [WIDE, WEIGHT], [WIDE]),
        ("aiter::rmsnorm2d_fwd_with_add", [WIDE, WIDE, WIDE, WIDE, WEIGHT, "1e-6", "False", "0"], 5,
         [WIDE, WIDE, WEIGHT], [WIDE, WIDE]),
        ("aiter::fused_add_rms_norm_cu", [WIDE, WIDE, WEIGHT, "1e-6"], 5, [WIDE, WIDE, WEIGHT], [WIDE, WIDE]),
        ("aiter::rmsnorm_quant", [NARROW, WIDE, F(ROWS), WEIGHT, "1e-6", "0", "False"], 6, [WIDE, WEIGHT],
         [NARROW, F(ROWS)]),
        ("aiter::add_rmsnorm_quant", [NARROW, WIDE, WIDE, WIDE, F(ROWS), WEIGHT, "1e-6", "0", "False"], 7,
         [WIDE, WIDE, WEIGHT], [NARROW, WIDE, F(ROWS)]),
        ("aiter::rmsnorm2d_fwd_with_smoothquant", [U(ROWS, WIDTH), WIDE, F(WIDTH), F(ROWS), WEIGHT, "1e-6", "0"], 7,
         [WIDE, F(WIDTH), WEIGHT], [NARROW, F(ROWS)]),
        ("vllm::rocm_aiter_rmsnorm_fp8_group_quant", [WIDE, WEIGHT, "1e-6", "128"], 6, [WIDE, WEIGHT],
         [NARROW, F(ROWS, WIDTH // 128)]),
        ("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", [WIDE, WIDE, WEIGHT, "1e-6", "128"], 7,
         [WIDE, WIDE, WEIGHT], [NARROW, WIDE, F(ROWS, WIDTH // 128)]),
        ("vllm::rocm_aiter_rmsnorm_fused_add_dynamic_quant", [WIDE, WIDE, WEIGHT, "1e-6", "24"], 7,
         [WIDE, WIDE, WEIGHT], [NARROW, WIDE, F(ROWS)]),
        ("vllm::rocm_aiter_rmsnorm_fused_dynamic_quant", [WIDE, WEIGHT, "1e-6", "24"], 6, [WIDE, WEIGHT],
         [NARROW, F(ROWS)]),
        ("vllm::triton_per_token_group_quant_fp8", [WIDE, "128"], 2, [WIDE], [NARROW, F(ROWS, WIDTH // 128)]),
        ("vllm::rocm_aiter_group_fp8_quant", [WIDE, "128", "False"], 2, [WIDE], [NARROW, F(ROWS, WIDTH // 128)]),
        ("vllm::rocm_aiter_per_token_quant", [WIDE, "24", None], 2, [WIDE], [NARROW, F(ROWS)]),
        ("vllm::flashinfer_nvfp4_quantize", [WIDE, ONE], 2, [WIDE, ONE], [U(ROWS, WIDTH // 2), U(ROWS, WIDTH // 16)]),
        ("vllm::flashinfer_mxfp4_quantize", [WIDE], 2, [WIDE], [U(ROWS, WIDTH // 2), U(ROWS, WIDTH // 32)]),
        ("vllm::mxfp8_quantize", [WIDE, "True"], 2, [WIDE], [NARROW, U(ROWS, WIDTH // 32)]),
        ("sglang::per_token_group_quant_8bit", [WIDE, NARROW, F(ROWS, 32), "128", "1e-10", "-448", "448", "False"], 2,
         [WIDE], [NARROW, F(ROWS, 32)]),
        ("_C::dynamic_per_token_scaled_fp8_quant", [NARROW, WIDE, F(ROWS, 1)], 2, [WIDE], [NARROW, F(ROWS, 1)]),
        ("_C::static_scaled_int8_quant", [U(ROWS, WIDTH), WIDE, ONE], 1, [WIDE, ONE], [NARROW]),
        ("_C::relu_squared", [WIDE, WIDE], 2, [WIDE], [WIDE]),
        ("_C::silu_and_mul_with_clamp", [WIDE, B(ROWS, 2 * WIDTH), "7.0"], 2, [WIDE, WIDE], [WIDE]),
        ("_C::silu_and_mul_with_clamp", [WIDE, B(ROWS, 2 * WIDTH), "7.0", "1.0", "0.0"], 2, [WIDE, WIDE], [WIDE]),
        ("_C::merge_attn_states", [WIDE, None, WIDE, F(8, 32), WIDE, F(8, 32), "5", None], 5,
         [WIDE, WIDE, F(8, 32), F(8, 32)], [WIDE]),
        ("flashinfer::top_k_renorm_probs", [F(ROWS, WIDTH), None, "40"], 2, [F(ROWS, WIDTH)], [F(ROWS, WIDTH)]),
    ],
)  # fmt: skip
def test_norms_and_quantization_by_element(
    name: str, arguments: list[Any], flops: int, read: list[Tensor], written: list[Tensor]
) -> None:
    assert numbers(work(name, *arguments)) == (flops * EACH, size(*read), size(*written)), name


def test_an_activation_before_quantization_counts_by_its_result() -> None:
    both, half = B(ROWS, 2 * WIDTH), EACH
    scales = F(ROWS, WIDTH // 128)
    head = [both, NARROW, scales, "128", "1e-10", "-448", "448", "False"]
    for name in ("sgl_kernel::sgl_per_token_group_quant_8bit", "sgl_kernel::sgl_per_token_group_quant_8bit_v2"):
        assert numbers(work(name, *head, "True", None)) == (4 * half, size(both), size(NARROW, scales)), name
    alone = work("sgl_kernel::sgl_per_token_group_quant_8bit_v2", WIDE, *head[1:], "False", None)
    assert numbers(alone) == (2 * half, size(WIDE), size(NARROW, scales))
    rocm = work("vllm::rocm_aiter_act_mul_and_fp8_group_quant", both, "128")
    assert numbers(rocm) == (4 * half, size(both), size(NARROW, scales))
    counts, shaped, out = N4(4), B(4, 8, 2 * WIDTH), Q(4, 8, WIDTH)
    masked = work("_C::persistent_masked_m_silu_mul_quant", shaped, counts, out, scales, "True")
    assert numbers(masked) == (4 * half, size(shaped, counts), size(out, scales)) and masked["at_most"]
    packed, small, offsets = U(ROWS, WIDTH // 2), Q(ROWS, WIDTH // 16), N4(9)
    four = work("_C::silu_and_mul_scaled_fp4_experts_quant", packed, small, both, F(8), offsets, offsets)
    assert numbers(four) == (4 * half, size(both, F(8), offsets, offsets), size(packed, small))
    plain = work("_C::scaled_fp4_experts_quant", packed, small, WIDE, F(8), offsets, offsets)
    assert numbers(plain) == (2 * half, size(WIDE, F(8), offsets, offsets), size(packed, small))
    old = work("sgl_kernel::silu_and_mul_scaled_fp4_experts_quant", packed, small, both, F(8), offsets, "True")
    assert numbers(old) == (4 * half, size(both, F(8), offsets), size(packed, small))


def test_samplers_write_the_samples_in_each_version() -> None:
    probs, uniform, samples = F(ROWS, WIDTH), F(ROWS), N4(ROWS)
    moved = (2 * EACH, size(probs), size(samples))
    for name, limits in [
        ("top_k_top_p", [None, "40", None, "0.9"]),
        ("top_p", [None, "0.9"]),
        ("min_p", [None, "0.1"]),
    ]:
        op = f"sgl_kernel::{name}_sampling_from_probs"
        late = work(op, probs, samples, None, *limits, "True", None)
        assert numbers(late) == moved, op
        outputs = [samples] if name == "min_p" else [samples, N4(ROWS)]
        early = work(op, probs, uniform, *outputs, *limits, "True", "0")
        assert numbers(early) == (2 * EACH, size(probs, uniform), size(*outputs)), op


# Attention and caches -------------------------------------------------------------------------------------------------


def paged(name: str, *between: Any) -> dict[str, Any]:
    q, keys, values = B(8, 16, 64), B(500, 4, 8, 16, 8), B(500, 4, 64, 16)
    return work(name, q, *between, q, keys, values, "4", "0.1", N4(8, 20), N4(8), "16", "300", None, "auto")


def test_attention_to_pages_is_at_most_that_of_the_longest_sequence() -> None:
    flops, cache = 4 * 8 * 16 * 64 * 300, 2 * 8 * 300 * 4 * 64 * 2
    own = size(B(8, 16, 64), N4(8, 20), N4(8)) + cache
    tmp = [F(8, 16, 2), F(8, 16, 2), B(8, 16, 2, 64)]
    for found in (
        paged("_C::paged_attention_v1"),
        paged("_C::paged_attention_v2", *tmp),
        paged("_rocm_C::paged_attention", *tmp),
        paged("aiter::paged_attention_rocm", *tmp),
    ):
        assert numbers(found) == (flops, own, size(B(8, 16, 64))) and found["at_most"]


def test_attention_to_pages_takes_the_lengths_from_the_annotation_of_the_step() -> None:
    program = Program()
    program.add("user_annotation", STEP, 0, 90)
    q, keys, values = [8, 16, 64], [500, 4, 8, 16, 8], [500, 4, 64, 16]
    types = [BF16] * 4 + ["Scalar"] * 2 + [INT] * 2 + ["Scalar"] * 2
    program.op("_C::paged_attention_v1", 10, 30, q, q, keys, values, [], [], [8, 20], [8], [], [], dtype=types,
               Concrete_Inputs=["", "", "", "", "4", "0.1", "", "", "16", "300"])  # fmt: skip
    program.call("cudaLaunchKernel", 12, 1, correlation=9)
    program.work("paged", 20, 5, correlation=9)
    row = next(r for r in fs.load_trace(program.text()).key_averages() if r.key.startswith("_C::"))
    assert row.flops == 4 * 16 * 64 * ((45 - 5 * 4 / 2) + 33)
    assert row.bytes_total_moved == 2 * 2 * 8 * 16 * 64 + 4 * (8 * 20 + 8) + 2 * 42 * 4 * 64 * 2


HEADS, SIZE = 8, 64


@pytest.mark.parametrize("causal", ["True", "False"])
def test_concatenated_sequences_of_one_length_are_a_batch(causal: str) -> None:
    q, k, cu = B(4 * 128, HEADS, SIZE), B(4 * 128, 2, SIZE), N4(5)
    pairs = 128 * 129 / 2 if causal == "True" else 128 * 128
    limits = ["128", "128"]
    for name, *arguments in [
        ("_vllm_fa2_C::varlen_fwd", q, k, k, q, cu, cu, None, None, None, None, *limits, "0.", "0.1", "False", causal,
         "-1", "-1", "0.", "False", "0"),
        ("aiter::mha_varlen_fwd", q, k, k, cu, cu, *limits, "0", "0.", "0.1", "0.", "False", causal, "-1", "-1",
         "False", "False", None, None, None, None, None),
        ("aiter::mha_varlen_fwd", q, k, k, cu, cu, *limits, "0", "0.", "0.1", "0.", "False", causal, "-1", "-1", "0",
         "False", "False", None, None, None, None, None, None, None, None, None, None, None),
        ("aiter::fmha_v3_varlen_fwd", q, k, k, cu, cu, *limits, "0", "0.", "0.1", "0.", "False", causal, "-1", "-1",
         "False", "False", "1", None, None, None, None, None, None, None),
        ("_vllm_fa3_C::fwd", q, k, k, None, None, None, None, cu, cu, None, None, None, *limits, *[None] * 9, "0.1",
         causal, "-1", "-1", "0.", "True", None, "1", None, "0", None, "1", "0", None),
        ("_vllm_fa3_C::fwd", q, k, k, None, None, None, None, cu, cu, None, None, None, *limits, *[None] * 10, "0.1",
         causal, "-1", "-1", "0.", "True", None, "1", None, "0", None, "1", "0", None),
        ("sgl_kernel::fwd", q, k, k, None, None, None, None, cu, cu, None, None, None, *limits, *[None] * 9, "0.1",
         causal, "-1", "-1", "0.", "True", None, "1", None, "0"),
    ]:  # fmt: skip
        found = work(name, *arguments)
        assert found["flops"] == 4 * 4 * HEADS * SIZE * pairs, name
        assert found["bytes_written"] >= size(q) and not found["at_most"]
    dout = [q, q, k, k, q, F(HEADS, 512), cu, cu, *limits, "0.", "0.1", "False", causal, "-1", "-1", "False"]
    back = work("aiter::mha_varlen_bwd", *dout)
    assert back["flops"] == 2.5 * found["flops"]
    assert work("aiter::fmha_v3_varlen_bwd", *dout, "True", "1")["flops"] == back["flops"]


def test_sequences_in_pages_are_bounded_by_the_longest() -> None:
    q, cache, table, cu = B(8, HEADS, SIZE), B(5000, 16, 2, SIZE), N4(8, 100), N4(9)
    rows = 2 * 8 * 333 * 2 * SIZE * 2
    vllm = work("_vllm_fa2_C::varlen_fwd", q, cache, cache, q, cu, cu, N4(8), None, table, None, "1", "333", "0.",
                "0.1", "False", "True", "-1", "-1", "0.", "False", "0")  # fmt: skip
    aiter = work("aiter::fmha_v3_varlen_fwd", q, cache, cache, cu, cu, "1", "333", "0", "0.", "0.1", "0.", "False",
                 "True", "-1", "-1", "False", "False", "1", None, table, None, None, None)  # fmt: skip
    for found in (vllm, aiter):
        assert found["flops"] == 4 * 8 * HEADS * SIZE * 333 and found["bytes_read"] == size(q) + rows
        assert found["at_most"]


@pytest.mark.parametrize("library", ["_C_cache_ops", "aiter"])
def test_compressed_caches_are_written_in_their_own_format(library: str) -> None:
    kv, rope, slots = B(ROWS, 512), B(ROWS, 64), I(ROWS)
    for cache, row in [(B(900, 64, 576), 1152), (U(900, 64, 576), 576), (U(900, 64, 656), 656)]:
        found = work(f"{library}::concat_and_cache_mla", kv, rope, cache, slots, "auto", ONE)
        assert numbers(found) == (0, size(kv, rope, slots), ROWS * row), cache
    if library == "_C_cache_ops":
        assert work("_C_cache_ops::concat_and_cache_mla", kv, rope, cache, slots, "fp8", ONE, "True")["flops"] == 0
        q = B(ROWS, 16, 64)
        fused = work("_C_cache_ops::concat_and_cache_mla_rope_fused", I(ROWS), q, rope, kv, B(4096, 64), "True", slots,
                     U(900, 64, 576), "fp8", ONE)  # fmt: skip
        read = size(I(ROWS), q, rope, kv, slots) + ROWS * 64 * 2
        assert numbers(fused) == (3 * ROWS * 17 * 64, read, size(q, rope) + ROWS * 576)


def test_caches_count_the_tokens_that_are_written() -> None:
    key, cache, slots = B(ROWS, 8, 64), U(10000, 16, 8, 64), I(ROWS)
    ours = (0, size(key, key, slots), 2 * ROWS * 512)
    assert (
        numbers(work("_C_cache_ops::reshape_and_cache", key, key, cache, cache, slots, "fp8", ONE, ONE, "True")) == ours
    )
    q, k, table, positions = B(ROWS, 1024), B(ROWS, 512), F(4096, 64), I(ROWS)
    rows = ROWS * 64 * 4
    rope = work("sglang::apply_rope_inplace_with_kvcache", q, k, k, B(900, 512), B(900, 512), table, positions, slots,
                "True", "64")  # fmt: skip
    assert numbers(rope) == (3 * ROWS * 1536, size(q, k, k, positions, slots) + rows, size(q, k, k, k))
    fused = work("vllm::fused_rope_and_unified_kv_cache_update", q, k, k, positions, table, "True", "model.layers.0")
    assert numbers(fused) == (3 * ROWS * 1536, size(q, k, k, positions) + rows, size(q, k, k, k))
    for name in ("vllm::flashinfer_rotary_embedding", "sglang::rotary_embedding_with_key"):
        found = work(name, positions, q, k, "64", table, "True")
        assert numbers(found) == (3 * ROWS * 1536, size(positions, q, k) + rows, size(q, k)), name


def test_pages_are_copied_by_their_bytes() -> None:
    src = I(100)
    read = size(src, src)
    for name, arguments, moved in [
        ("transfer_kv_per_layer_mla", [src, src, src, src, "1152", "2", "32"], 100 * 1152),
        ("transfer_kv_all_layer_mla", [src, src, src, src, "1152", "61", "2", "32"], 100 * 1152 * 61),
        ("transfer_kv_per_layer_pf_lf", [src] * 6 + ["3", "1152", "70272", "2", "32"], 2 * 100 * 1152),
        ("transfer_kv_all_layer_lf_pf", [src] * 6 + ["1152", "70272", "61", "2", "32"], 2 * 100 * 1152 * 61),
    ]:
        assert numbers(work(f"sgl_kernel::{name}", *arguments)) == (0, read + moved, moved), name


def test_states_of_convolutions_and_scans_are_written() -> None:
    x, weight, state, slots = B(8, 512), B(512, 4), B(1000, 512, 3), N4(8)
    found = work("_C::causal_conv1d_update", x, state, weight, None, "True", None, slots, "-1")
    states = 8 * 512 * 3 * 2
    assert numbers(found) == (2 * 8 * 512 * 4, size(x, weight, slots) + states, size(x) + states)
    tokens, starts = B(512, 300), N4(9)
    whole = work("sgl_kernel::causal_conv1d_fwd", tokens, weight, None, state, starts, slots, None, "True", "-1")
    assert numbers(whole) == (2 * 512 * 300 * 4, size(tokens, weight, starts, slots), size(tokens))
    u, a, b = B(512, 300), F(512, 16), B(1, 16, 300)
    scan = work("_C::selective_scan_fwd", u, u, a, b, b, F(512), u, F(512), "True", starts, slots, None, state, "-1")
    assert numbers(scan) == (9 * 512 * 300 * 16, size(u, u, a, b, b, F(512), u, F(512)), size(u, u))


# Exchange -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "read", "written"),
    [
        ("_C_custom_ar::all_reduce_reg", ["7", WIDE, WIDE], [WIDE], [WIDE]),
        ("_C_custom_ar::all_reduce_unreg", ["7", WIDE, U(99), WIDE], [WIDE], [WIDE]),
        ("sgl_kernel::all_reduce", ["7", WIDE, WIDE], [WIDE], [WIDE]),
        ("sgl_kernel::all_reduce", ["7", WIDE, WIDE, "0", "0"], [WIDE], [WIDE]),
        ("sglang::inplace_all_reduce", [WIDE, "tp"], [WIDE], [WIDE]),
        ("sglang::outplace_all_reduce", [WIDE, "tp", "ca"], [WIDE], [WIDE]),
        ("sglang::reg_all_gather_into_tensor", [B(4 * ROWS, WIDTH), WIDE, "tp"], [WIDE], [B(4 * ROWS, WIDTH)]),
        ("vllm::flashinfer_trtllm_fused_allreduce_norm",
         [WIDE, WIDE, WEIGHT, "1e-6", "8", "True", "True", "1024", "1", WIDE, None, None, None],
         [WIDE, WIDE, WEIGHT], [WIDE, WIDE, WIDE]),
        ("vllm::rocm_aiter_fused_allreduce_rmsnorm", [WIDE, WIDE, WEIGHT, "1e-6"], [WIDE, WIDE, WEIGHT], [WIDE, WIDE]),
    ],
)  # fmt: skip
def test_reductions_across_devices_move_their_tensors(
    name: str, arguments: list[Any], read: list[Tensor], written: list[Tensor]
) -> None:
    found = work(name, *arguments)
    assert math.isnan(found["flops"]), name
    assert (found["bytes_read"], found["bytes_written"]) == (size(*read), size(*written)), name


def test_attention_whose_cache_the_op_hides_has_unknown_flops() -> None:
    q, rope, out = B(8, 128, 512), B(8, 128, 64), B(8, 128, 512)
    found = work("_C::sm100_cutlass_mla_decode", out, F(8, 128), q, rope, B(900, 64, 576), N4(8), N4(8, 40), U(99),
                 "0.1", "1")  # fmt: skip
    assert math.isnan(found["flops"]) and found["at_most"]
    assert (found["bytes_read"], found["bytes_written"]) == (size(q, rope, N4(8), N4(8, 40)), size(out, F(8, 128)))

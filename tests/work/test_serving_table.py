"""The remaining ops of vLLM, SGLang, FlashInfer and aiter: FLOPs, and bytes by what is read and written."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.library_calls import N4, ONE, B, F, I, Q, Tensor, U, numbers, size, work

T, D = 16, 256  # tokens, width
X, XQ, GAIN = B(T, D), Q(T, D), B(D)
QUERY, KEY, ROPE, POSITIONS, SLOTS = B(T, 8, 64), B(T, 2, 64), F(4096, 64), I(T), I(T)
TURNED = 3 * T * 10 * 64  # by rotary embedding, of queries and keys
TABLE = F(T, 64)  # the rows that positions select
GATES, CHOSEN, PLACES = F(T, 32), F(T, 4), N4(T, 4)
EXPERTS = [B(T, D), B(8, 256, D), B(8, D, 128), F(T, 4), N4(T, 4)]
LAYER = 6 * T * 4 * 128 * D
PACKED, FOUR, EIGHT = U(T, D // 2), Q(T, D // 16), F(8)
ENDS = N4(9)
UNKNOWN = math.nan

Case = tuple[str, list[Any], float, list[Tensor], list[Tensor]]

NORMS: list[Case] = [
    ("_C::scaled_rms_norm", [XQ, X, GAIN, ONE, "1e-6"], 5 * T * D, [X, GAIN, ONE], [XQ]),
    ("_C::scaled_fused_add_rms_norm", [XQ, X, X, GAIN, ONE, "1e-6"], 6 * T * D, [X, X, GAIN, ONE], [XQ, X]),
    ("_C::poly_norm", [X, X, B(3), B(1), "1e-6"], UNKNOWN, [X, B(3), B(1)], [X]),
    ("_C::situ_and_mul", [X, B(T, 2 * D), "4.0", "25.0"], 2 * T * D, [X, X], [X]),
    ("_C::scaled_silu_and_mul", [XQ, B(T, 2 * D), ONE], 3 * T * D, [X, X, ONE], [XQ]),
    ("sgl_kernel::gelu_quick", [X, X], T * D, [X], [X]),
    ("aiter::rms_norm_cu", [X, X, GAIN, "1e-6"], 4 * T * D, [X, GAIN], [X]),
    ("sgl_kernel::fast_hadamard_transform", [X, "1.0"], UNKNOWN, [X], [X]),
    *[
        (f"aiter::rmsnorm2d_fwd_with_dynamicquant{end}", [XQ, X, F(T), GAIN, "1e-6", "0"], 6 * T * D, [X, GAIN],
         [XQ, F(T)])
        for end in ("", "_ck")
    ],
    *[
        (f"aiter::rmsnorm2d_fwd_with_add_dynamicquant{end}", [XQ, X, X, X, F(T), GAIN, "1e-6", "0"], 7 * T * D,
         [X, X, GAIN], [XQ, X, F(T)])
        for end in ("", "_ck")
    ],
    ("aiter::rmsnorm2d_fwd_with_add_smoothquant", [XQ, X, X, X, F(D), F(T), GAIN, "1e-6", None, "0"], 8 * T * D,
     [X, X, F(D), GAIN], [XQ, X, F(T)]),
    ("sgl_kernel::fused_qk_norm_rope",
     [B(T, 640), "8", "1", "1", "64", "1e-6", B(64), B(64), "1e4", "True", N4(T), "1.", "1.", "1.", "1.", "64"],
     7 * T * 640, [B(T, 640), B(64), B(64), N4(T)], [B(T, 640)]),
    ("sglang::fused_qk_norm_rope_out",
     [B(T, 640), B(64), B(64), N4(T), "8", "1", "1", "64", "1e-6", "1e4", "True", "1.", "1.", "1.", "1.", "64"],
     7 * T * 640, [B(T, 640), B(64), B(64), N4(T)], [B(T, 640)]),
    ("sglang::fused_inplace_qknorm_rope", [QUERY, KEY, B(64), B(64), ROPE, POSITIONS, "True", "1e-6", "64", "64"],
     7 * T * 640, [QUERY, KEY, B(64), B(64), TABLE, POSITIONS], [QUERY, KEY]),
]  # fmt: skip

ROTATIONS: list[Case] = [
    ("_C::batched_rotary_embedding", [POSITIONS, QUERY, KEY, "64", ROPE, "True", "64", I(T)], TURNED,
     [POSITIONS, QUERY, KEY, TABLE, I(T)], [QUERY, KEY]),
    ("vllm::rocm_aiter_triton_rotary_embedding", [POSITIONS, QUERY, KEY, "64", ROPE, "True", None], TURNED,
     [POSITIONS, QUERY, KEY, TABLE], [QUERY, KEY]),
    ("sglang::apply_rope_inplace", [QUERY, KEY, ROPE, POSITIONS, "True", "64"], TURNED, [QUERY, KEY, TABLE, POSITIONS],
     [QUERY, KEY]),
    ("sglang::rotary_embedding_without_key", [POSITIONS, QUERY, "64", ROPE, "True"], 3 * T * 512,
     [POSITIONS, QUERY, TABLE], [QUERY]),
    ("aiter::rope_cached_positions_fwd_impl", [QUERY, QUERY, ROPE, ROPE, POSITIONS, "0", "True", "False"], 3 * T * 512,
     [QUERY, TABLE, TABLE, POSITIONS], [QUERY]),
    ("aiter::rope_cached_positions_2c_fwd_impl", [QUERY, KEY, QUERY, KEY, ROPE, ROPE, POSITIONS, "0", "True", "False"],
     TURNED, [QUERY, KEY, TABLE, TABLE, POSITIONS], [QUERY, KEY]),
    ("flashinfer::apply_rope", [QUERY, KEY, QUERY, KEY, ENDS, N4(8), "64", "False", "1.", "1e4"], TURNED,
     [QUERY, KEY, ENDS, N4(8)], [QUERY, KEY]),
    ("flashinfer::apply_llama31_rope",
     [QUERY, KEY, QUERY, KEY, ENDS, N4(8), "64", "False", "8.", "5e5", "1.", "4.", "8192"], TURNED,
     [QUERY, KEY, ENDS, N4(8)], [QUERY, KEY]),
    ("flashinfer::apply_rope_pos_ids_cos_sin_cache", [QUERY, KEY, QUERY, KEY, ROPE, ROPE, POSITIONS, "False"], TURNED,
     [QUERY, KEY, TABLE, TABLE, POSITIONS], [QUERY, KEY]),
    ("flashinfer::merge_states", [B(T, 3, 8, 64), F(T, 3, 8)], 5 * T * 3 * 512, [B(T, 3, 8, 64), F(T, 3, 8)],
     [B(T, 8, 64), F(T, 8)]),
]  # fmt: skip

QUANTIZED: list[Case] = [
    ("sglang::per_tensor_quant_fp8", [X, XQ, ONE, "False"], 2 * T * D, [X, ONE], [XQ, ONE]),
    ("sglang::scaled_fp4_quant", [X, PACKED, FOUR, ONE], 2 * T * D, [X, ONE], [PACKED, FOUR]),
    ("vllm::dequant_mxfp4", [PACKED, U(T, D // 32), "15"], 0, [PACKED, U(T, D // 32)], [X]),
    ("sgl_kernel::downcast_fp8", [X, X, XQ, XQ, ONE, ONE, I(T), "1", "0"], 2 * T * D, [X, X, ONE, ONE, I(T)], [XQ, XQ]),
    ("_C::mxfp4_experts_quant", [PACKED, FOUR, X, ENDS, ENDS, "8"], 2 * T * D, [X, ENDS, ENDS], [PACKED, FOUR]),
    ("_C::silu_and_mul_mxfp4_experts_quant", [PACKED, FOUR, B(T, 2 * D), ENDS, ENDS, "8"], 4 * T * D,
     [X, X, ENDS, ENDS], [PACKED, FOUR]),
    ("_C::mxfp8_experts_quant", [X, N4(8, 3), ENDS, ENDS, XQ, FOUR], 2 * T * D, [X, N4(8, 3), ENDS, ENDS], [XQ, FOUR]),
    ("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_quant", [X, N4(8, 3), ENDS, ENDS, XQ, FOUR], 2 * T * D,
     [X, N4(8, 3), ENDS, ENDS], [XQ, FOUR]),
    ("_C::silu_mul_fp8_quant_deep_gemm_cuda", [B(2, 8, 2 * D), N4(2), Q(2, 8, D), F(2, 8, 2), "128", "True", "4"],
     4 * T * D, [X, X, N4(2)], [XQ, F(T, 2)]),
    *[(f"{library}::scaled_fp4_experts_quant", [PACKED, FOUR, X, EIGHT, ENDS, ENDS], 2 * T * D, [X, EIGHT, ENDS, ENDS],
       [PACKED, FOUR]) for library in ("sgl_kernel", "sglang")],
    ("sglang::silu_and_mul_scaled_fp4_grouped_quant", [B(T, 2 * D), PACKED, FOUR, EIGHT, N4(8)], 4 * T * D,
     [X, X, EIGHT, N4(8)], [PACKED, FOUR]),
    ("sglang::scaled_fp4_grouped_quant", [X, PACKED, FOUR, EIGHT, N4(8)], 2 * T * D, [X, EIGHT, N4(8)], [PACKED, FOUR]),
    ("aiter::indexer_k_quant_and_cache", [B(T, 128), U(90, 64, 132), I(T), "128", "ue8m0", "True"], 2 * T * 128,
     [B(T, 128), I(T)], [Q(T, 128), F(T)]),
    ("aiter::cp_gather_indexer_k_quant_cache", [U(90, 64, 132), Q(T, 128), F(T), N4(2, 9), N4(3)], 0,
     [Q(T, 128), F(T), N4(2, 9), N4(3)], [Q(T, 128), F(T)]),
    ("aiter::reshape_and_cache_with_block_quant", [KEY, KEY, U(90, 16, 2, 64), U(90, 16, 2, 64), F(90), F(90), I(T)],
     2 * 2 * T * 128, [KEY, KEY, I(T)], [Q(T, 128), Q(T, 128)]),
]  # fmt: skip

ROUTING: list[Case] = [
    *[(name, [CHOSEN, PLACES, PLACES, GATES, "True", *more], 5 * T * 32, [GATES], [CHOSEN, PLACES, PLACES])
      for name, more in [("vllm::rocm_aiter_topk_softmax", []), ("_moe_C::topk_softmax", [None, None])]],
    ("_moe_C::topk_softplus_sqrt", [CHOSEN, PLACES, PLACES, GATES, "True", "2.5", None, None, None], 2 * T * 32,
     [GATES],
     [CHOSEN, PLACES, PLACES]),
    ("vllm::rocm_aiter_topk_sigmoid", [CHOSEN, PLACES, GATES], 2 * T * 32, [GATES], [CHOSEN, PLACES]),
    ("aiter::topk_softplus", [CHOSEN, PLACES, GATES, F(32), "True", "2.5"], 2 * T * 32, [GATES, F(32)], [CHOSEN,
     PLACES]),
    *[(name, [GATES, CHOSEN, PLACES, "8", "4", "True", "True", "2.5"], 5 * T * 32, [GATES], [CHOSEN, PLACES])
      for name in ("vllm::rocm_aiter_grouped_topk", "aiter::grouped_topk")],
    *[(name, [GATES, F(32), CHOSEN, PLACES, "8", "4", "4", "2.5"], 5 * T * 32, [GATES, F(32)], [CHOSEN, PLACES])
      for name in ("vllm::rocm_aiter_biased_grouped_topk", "aiter::biased_grouped_topk_hip", "aiter::moe_fused_gate")],
    ("_moe_C::grouped_topk", [GATES, GATES, "8", "4", "4", "True", "2.5"], 5 * T * 32, [GATES, GATES], [CHOSEN,
     PLACES]),
    ("_C::moe_align_block_size", [PLACES, "32", "16", N4(512), N4(32), N4(1)], 0, [PLACES], [N4(512), N4(32), N4(1)]),
    ("_moe_C::batched_moe_align_block_size", ["64", "16", N4(8), N4(512), N4(32), N4(1)], 0, [N4(8)],
     [N4(512), N4(32), N4(1)]),
    ("sgl_kernel::moe_align_block_size", [PLACES, "32", "16", N4(512), N4(32), N4(1), N4(99), N4(33), "True"], 0,
     [PLACES], [N4(512), N4(32), N4(1), N4(99), N4(33)]),
    ("sgl_kernel::moe_align_block_size", [PLACES, "32", "16", N4(512), N4(32), N4(1), N4(33), "True", "False"], 0,
     [PLACES], [N4(512), N4(32), N4(1), N4(33)]),
    ("aiter::moe_sorting_opus_fwd", [PLACES, CHOSEN, N4(512), F(512), N4(32), N4(2), X, "32", "16", None, None, "0"], 0,
     [PLACES, CHOSEN], [N4(512), F(512), N4(32), N4(2), X]),
    ("_moe_C::shuffle_rows", [X, N4(4 * T), B(4 * T, D)], 0, [X, N4(4 * T)], [B(4 * T, D)]),
    ("_moe_C::moe_permute_with_scratch",
     [X, PLACES, PLACES, None, "32", "32", "4", B(4 * T, D), I(33), PLACES, PLACES, U(9), N4(9), N4(9), N4(9)], 0,
     [X, PLACES, PLACES], [B(4 * T, D), I(33), PLACES]),
    ("_moe_C::moe_unpermute", [B(4 * T, D), CHOSEN, PLACES, PLACES, I(33), "32", "32", "4", X], 2 * 4 * T * D,
     [B(4 * T, D), CHOSEN, PLACES, PLACES, I(33)], [X]),
    ("_moe_C::moe_sum", [B(T, 4, D), X, PLACES, None], 4 * T * D, [B(T, 4, D), PLACES], [X]),
    *[(name, [*EXPERTS, *more], LAYER, EXPERTS, [X]) for name, more in [
        ("vllm::rocm_aiter_ck_moe", []), ("vllm::rocm_aiter_asm_moe", [None, None, None, None, "False", "silu"]),
        ("vllm::rocm_aiter_asm_moe_tkw1", [None, None, None, None, "False", None, None, "0"])]],
    ("vllm::flashinfer_fused_moe_bf16", [F(T, 8), F(8), *EXPERTS[:3], "8", "4", "1", "1", "128", "0", "8", "2"], LAYER,
     [F(T, 8), F(8), *EXPERTS[:3]], [X]),
    ("vllm::moe_forward_shared", [X, GATES, "model.layers.0"], UNKNOWN, [X, GATES], [X, X]),
    *[(name, [Q(T, D), Q(T, D), Q(8, 256, D), Q(8, D, 128), N4(9), F(9), N4(9), N4(1), "4", *[ONE] * count], LAYER,
       [Q(T, D), Q(8, 256, D), Q(8, D, 128), N4(9), F(9), N4(9), N4(1), *[ONE] * counted], [Q(T, D)])
      for name, count, counted in [("aiter::fmoe_g1u1_a16", 4, 0), ("aiter::fmoe_int8_g1u0", 4, 3)]],
    *[(f"sglang::{name}", [F(T, 8), None, XQ, ONE, Q(8, 256, D), ONE, Q(8, D, 128), ONE, "8", "4", "1"], LAYER,
       [F(T, 8), XQ, ONE, Q(8, 256, D), ONE, Q(8, D, 128), ONE], [X])
      for name in ("trtllm_fp8_block_scale_routed_moe_wrapper", "sgl_trtllm_fp8_block_scale_moe_wrapper",
                   "sgl_trtllm_fp8_block_scale_routed_moe_wrapper")],
]  # fmt: skip

SCORES = F(T, 9000)
CHOICES: list[Case] = [
    ("_C::top_k_per_row", [SCORES, N4(T), N4(T), N4(T, 64), F(T, 64), "16", "1", "1"], 0, [SCORES, N4(T), N4(T)],
     [N4(T, 64), F(T, 64)]),
    ("_C::top_k_per_row_prefill", [SCORES, N4(T), N4(T), N4(T, 64), "16", "1", "1", "64"], 0, [SCORES, N4(T), N4(T)],
     [N4(T, 64)]),
    ("_C::top_k_per_row_decode", [SCORES, "1", N4(T), N4(T, 64), "16", "1", "1", "64"], 0, [SCORES, N4(T)], [N4(T,
     64)]),
    *[(f"_C::{name}_topk", [SCORES, N4(T), N4(T, 64), U(99), "64", "9000"], 0, [SCORES, N4(T)], [N4(T, 64)])
      for name in ("persistent", "cooperative")],
    *[(name, [SCORES, N4(T, 64), N4(T), None], 0, [SCORES, N4(T)], [N4(T, 64)])
      for name in ("_C::large_context_topk", "sgl_kernel::fast_topk")],
    ("sgl_kernel::fast_topk_transform_fused", [SCORES, N4(T), N4(T, 64), N4(T, 99), ENDS, None], 0,
     [SCORES, N4(T), ENDS], [N4(T, 64)]),
    ("sgl_kernel::fast_topk_transform_ragged_fused", [SCORES, N4(T), N4(T, 64), N4(T), None], 0,
     [SCORES, N4(T), N4(T)], [N4(T, 64)]),
    ("sgl_kernel::top_k_mask_logits", [SCORES, SCORES, None, "40"], T * 9000, [SCORES], [SCORES]),
]  # fmt: skip

MLA = [B(T, 16, 512), B(T, 16, 64)]
CACHES: list[Case] = [
    ("vllm::unified_mla_kv_cache_update", [B(T, 512), B(T, 64), "layer", "auto", ONE], 0, [B(T, 512), B(T, 64)],
     [B(T, 512), B(T, 64)]),
    *[(name, [B(T, 8, 192), B(T, 8, 128), B(T, 1, 64)], 0, [B(T, 8, 128), B(T, 1, 64)], [B(T, 8, 192)])
      for name in ("vllm::flashinfer_concat_mla_k", "sgl_kernel::concat_mla_k")],
    ("sgl_kernel::concat_mla_absorb_q", [*MLA, B(T, 16, 576)], 0, MLA, [B(T, 16, 576)]),
    ("sgl_kernel::copy_to_gpu_no_ce", [N4(64), N4(64)], 0, [N4(64)], [N4(64)]),
    ("_C_cache_ops::cp_fused_concat_and_cache_mla",
     [B(99, 512), B(99, 64), I(T), U(90, 64, 576), I(99), "fp8", ONE], 0, [B(T, 512), B(T, 64), I(T), I(99)],
     [Q(T, 576)]),
    *[(f"sgl_kernel::transfer_kv_{name}", [I(9)] * 4 + numbers_of_it, 0, [I(9), I(9), U(9 * 1152 * layers)],
       [U(9 * 1152 * layers)]) for name, numbers_of_it, layers in [
        ("per_layer_mla_pf_lf", ["3", "1152", "70272", "2", "32"], 1), ("per_layer_mla_pf_lf", ["1152", "70272", "2",
         "32"], 1),
        ("all_layer_mla_lf_pf", ["1152", "70272", "61", "2", "32"], 61)]],
    ("_C::cutlass_mla_decode", [MLA[0], *MLA, B(90, 64, 576), N4(T), N4(T, 9), "0.1"], UNKNOWN,
     [*MLA, N4(T), N4(T, 9)], [MLA[0]]),
    ("sgl_kernel::cutlass_mla_decode", [MLA[0], B(T, 16, 576), B(90, 64, 576), N4(T), N4(T, 9), U(9), "1"], UNKNOWN,
     [B(T, 16, 576), N4(T), N4(T, 9)], [MLA[0]]),
    ("sgl_kernel::cutlass_mla_decode", [MLA[0], *MLA, B(90, 64, 576), N4(T), N4(T, 9), U(9), "0.1", "1"], UNKNOWN,
     [*MLA, N4(T), N4(T, 9)], [MLA[0]]),
    ("vllm::rocm_aiter_mla_decode_fwd", [B(T, 16, 576), B(900, 1, 1, 576), MLA[0], ENDS, "1", N4(9)], UNKNOWN,
     [B(T, 16, 576), ENDS], [MLA[0]]),
    ("vllm::linear_attention", [X, X, POSITIONS, "layer"], UNKNOWN, [X, POSITIONS], [X]),
    ("vllm::kda_attention", [X, X, X, F(T, D), F(T, 8), X, "layer"], UNKNOWN, [X, X, X, F(T, D), F(T, 8)], [X]),
    *[(f"vllm::{name}", [X, X, "layer"], UNKNOWN, [X], [X]) for name in ("gdn_attention", "short_conv",
      "plamo2_mamba_mixer")],
    ("sglang::unified_linear_attention_with_output", [X, F(T, 8), F(T, 8), X, "3"], UNKNOWN, [X, F(T, 8), F(T, 8)],
     [X]),
    ("_C::causal_conv1d_fwd", [X, B(T, 4), None, None, None, None, "True"], 2 * T * D * 4, [X, B(T, 4)], [X]),
    ("sgl_kernel::causal_conv1d_update", [X, B(90, D, 3), B(D, 4), None, "True", None, N4(T), "-1"], 2 * T * D * 4,
     [X, B(D, 4), N4(T), B(T, D, 3)], [X, B(T, D, 3)]),
]  # fmt: skip

GEMM = 2 * T * 64 * D
PRODUCTS: list[Case] = [
    ("_moe_C::gpt_oss_router_gemm", [B(T, 64), X, B(64, D), B(64)], GEMM, [X, B(64, D), B(64)], [B(T, 64)]),
    ("_moe_C::router_gemm_bf16_fp32", [X, B(64, D)], GEMM, [X, B(64, D)], [F(T, 64)]),
    ("aiter::_gemm_a4w4_asm", [PACKED, U(64, D // 2), FOUR, Q(64, 16), B(T, 64), "", None, "1", "0", "True", None],
     GEMM,
     [PACKED, U(64, D // 2), FOUR, Q(64, 16)], [B(T, 64)]),
    ("sglang::unified_apply_gptq_marlin_gemm_with_wtype",
     [X, N4(16, 128), B(2, 64), N4(2), N4(D), N4(D), N4(9), "1", "64", str(D), "True", "0", "1", "0"], GEMM,
     [X, N4(16, 128), B(2, 64), N4(2), N4(D), N4(D)], [B(T, 64)]),
    ("sglang::apply_fp4_marlin_linear", [X, N4(16, 128), Q(16, 64), ONE, N4(9), "64", str(D), None, "True"], GEMM,
     [X, N4(16, 128), Q(16, 64), ONE], [B(T, 64)]),
    *[(f"sgl_kernel::ggml_mul_mat_{name}", [U(64, 144), X, "12", "64"], GEMM, [U(64, 144), X], [B(T, 64)])
      for name in ("a8", "vec_a8")],
    ("sgl_kernel::ggml_dequantize", [U(64, 144), "12", "64", str(D), None], 0, [U(64, 144)], [B(64, D)]),
    ("sgl_kernel::qserve_w4a8_per_group_gemm",
     [U(T, D), U(64, D // 2), U(2, 64), U(2, 64), B(64), B(T), B(T, 64)], GEMM,
     [U(T, D), U(64, D // 2), U(2, 64), U(2, 64), B(64), B(T)], [B(T, 64)]),
    ("sglang::cutlass_fp4_group_mm", [B(T, 64), PACKED, U(8, 64, D // 2), FOUR, FOUR, EIGHT, I(8), I(8)], GEMM,
     [PACKED, U(8, 64, D // 2), FOUR, FOUR, EIGHT], [B(T, 64)]),
]  # fmt: skip

EXCHANGES: list[Case] = [
    ("vllm::inplace_all_reduce", [X, "tp"], UNKNOWN, [X], [X]),
    ("vllm::outplace_all_reduce", [X, "tp"], UNKNOWN, [X], [X]),
    ("vllm::all_reduce_symmetric_with_copy", [X], UNKNOWN, [X], [X]),
    ("_C_custom_ar::custom_all_gather", ["7", X, B(4 * T, D), "0", "0"], UNKNOWN, [X], [B(4 * T, D)]),
    ("_C_custom_ar::custom_reduce_scatter", ["7", B(4 * T, D), X, "0", "0"], UNKNOWN, [B(4 * T, D)], [X]),
    *[(f"sgl_kernel::{name}_reg", ["7", X, X], UNKNOWN, [X], [X]) for name in ("all_reduce",
      "deterministic_all_reduce")],
    *[(f"sgl_kernel::{name}_unreg", ["7", X, U(9), X], UNKNOWN, [X], [X])
      for name in ("all_reduce", "deterministic_all_reduce")],
    ("sgl_kernel::qr_all_reduce", ["7", X, X, "2", "True"], UNKNOWN, [X], [X]),
    ("sglang::reg_reduce_scatter_tensor", [X, B(4 * T, D), "tp"], UNKNOWN, [B(4 * T, D)], [X]),
    ("sglang::flashinfer_allreduce_residual_rmsnorm", [X, X, GAIN, "1e-6", "2048", "None", "False", "True"], UNKNOWN,
     [X, X, GAIN], [X, X]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "flops", "read", "written"),
    [*NORMS, *ROTATIONS, *QUANTIZED, *ROUTING, *CHOICES, *CACHES, *PRODUCTS, *EXCHANGES],
)
def test_an_op_moves_the_sum_of_its_tensors(
    name: str, arguments: list[Any], flops: float, read: list[Tensor], written: list[Tensor]
) -> None:
    found = work(name, *arguments)
    assert found["expected"] is None, found["expected"]
    assert numbers(found) == pytest.approx((flops, size(*read), size(*written)), nan_ok=True)


def test_group_norms_of_aiter_with_and_without_a_given_result() -> None:
    x, w, work_space = B(4, 64, 32, 32), B(64), F(8192)
    given = (7 * 4 * 64 * 32 * 32, size(x, w, w), size(x))
    assert numbers(work("aiter::_groupnorm_run", x, "8", w, w, "1e-05")) == given
    assert numbers(work("aiter::_groupnorm_run", x, work_space, x, "8", w, w, "1e-05")) == given


def test_cached_keys_in_any_order_are_bounded_by_new_tokens() -> None:
    q, cache, ends = B(T, 8, 64), B(9000, 2, 64), N4(3)
    numbers_of_it = ["8", "99", "0.", "0.1", "0.", "False", "True"]
    found = work("aiter::mha_batch_prefill", q, cache, cache, ends, ends, N4(99), *numbers_of_it)
    assert found["flops"] == 4 * 8 * 64 * T and found["at_most"]
    assert found["bytes_read"] == size(q, ends, ends) + 2 * T * 2 * 64 * 2 and found["bytes_written"] == size(q)

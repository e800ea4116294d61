"""Work of the norms, caches, attention and exchange of vLLM, SGLang, FlashInfer and aiter, by version.

FLOPs are those of torch's ops of the same kind; what is read and written is marked (docs/counting.md). What each
argument is, is in the library's source of that version.
"""

from helpers.work_cases import AT_MOST, N4, NAN, ONE, UNKNOWN, B, F, I, Q, U, rows

T, D = 16, 256  # tokens, width
X, XQ, GAIN, TWO = B(T, D), Q(T, D), B(D), B(T, 2 * D)
EACH = T * D
TOKENS, BLOCKS = F(T), F(T, D // 128)
EPS = 1e-6
QK = [B(T, 640), B(64), B(64), N4(T)]
GROUP = B(4, 64, 32, 32)
NORMS = rows(
    "RMS norms: square, mean, scale, and 1 for the weight; a sum first 1",
    ("_C::rms_norm aiter::rms_norm_cu", [+X, X, GAIN, EPS], 4 * EACH),
    ("_C::rms_norm", [+X, X, None, EPS], 3 * EACH),
    ("_C::rms_norm", [X, X, GAIN, GAIN, EPS], UNKNOWN),
    ("_C::fused_add_rms_norm aiter::fused_add_rms_norm_cu", [~X, ~X, GAIN, EPS], 5 * EACH),
    ("_C::fused_add_rms_norm", [~X, ~X, None, EPS], 4 * EACH),
    ("aiter::rms_norm aiter::rmsnorm2d_fwd_ck", [X, GAIN, EPS, 0], 4 * EACH, X),
    ("aiter::rmsnorm", [+X, X, GAIN, EPS, False], 4 * EACH),
    ("aiter::rmsnorm2d_fwd_with_add", [+X, X, X, +X, GAIN, EPS, False, 0], 5 * EACH),
    ("aiter::add_rmsnorm", [+X, X, X, +X, GAIN, EPS], 5 * EACH),
    ("_C::poly_norm", [+X, X, B(3), B(1), EPS], NAN),
    ("aiter::_groupnorm_run", [GROUP, 8, B(64), B(64), 1e-5], 7 * 4 * 64 * 1024, GROUP),
    ("aiter::_groupnorm_run", [GROUP, -F(8192), +GROUP, 8, B(64), B(64), 1e-5], 7 * 4 * 64 * 1024),  # it is given
    "and quantized: 1 by a scale that is given, 2 by one of the row or the block, 3 with another",
    ("_C::scaled_rms_norm", [+XQ, X, GAIN, ONE, EPS], 5 * EACH),
    ("_C::scaled_fused_add_rms_norm", [+XQ, X, ~X, GAIN, ONE, EPS], 6 * EACH),
    ("aiter::rmsnorm_quant", [+XQ, X, +TOKENS, GAIN, EPS, 0, False], 6 * EACH),
    ("aiter::add_rmsnorm_quant", [+XQ, X, X, +X, +TOKENS, GAIN, EPS, 0, False], 7 * EACH),
    ("aiter::rmsnorm2d_fwd_with_smoothquant", [+U(T, D), X, F(D), +TOKENS, GAIN, EPS, 0], 7 * EACH),
    ("aiter::rmsnorm2d_fwd_with_add_smoothquant", [+XQ, X, X, +X, F(D), +TOKENS, GAIN, EPS, None, 0], 8 * EACH),
    ("aiter::rmsnorm2d_fwd_with_dynamicquant", [+XQ, X, +TOKENS, GAIN, EPS, 0], 6 * EACH),
    ("aiter::rmsnorm2d_fwd_with_dynamicquant_ck", [+XQ, X, +TOKENS, GAIN, EPS, 0], 6 * EACH),
    ("aiter::rmsnorm2d_fwd_with_add_dynamicquant", [+XQ, X, X, +X, +TOKENS, GAIN, EPS, 0], 7 * EACH),
    ("aiter::rmsnorm2d_fwd_with_add_dynamicquant_ck", [+XQ, X, X, +X, +TOKENS, GAIN, EPS, 0], 7 * EACH),
    ("vllm::rocm_aiter_rmsnorm_fp8_group_quant", [X, GAIN, EPS, 128], 6 * EACH, XQ, BLOCKS),
    ("vllm::rocm_aiter_rmsnorm_with_add_fp8_group_quant", [X, X, GAIN, EPS, 128], 7 * EACH, XQ, X, BLOCKS),
    ("vllm::rocm_aiter_rmsnorm_fused_add_dynamic_quant", [X, X, GAIN, EPS, 24], 7 * EACH, XQ, X, TOKENS),
    ("vllm::rocm_aiter_rmsnorm_fused_dynamic_quant", [X, GAIN, EPS, 24], 6 * EACH, XQ, TOKENS),
    "of each head, and turned: 4 and 3",
    ("sgl_kernel::fused_qk_norm_rope", [~QK[0], 8, 1, 1, 64, EPS, *QK[1:3], 1e4, True, QK[3], 1.0, 1.0, 1.0, 1.0, 64],
     7 * T * 640),
    ("sglang::fused_qk_norm_rope_out", [~QK[0], *QK[1:], 8, 1, 1, 64, EPS, 1e4, True, 1.0, 1.0, 1.0, 1.0, 64],
     7 * T * 640),
)  # fmt: skip

PACKED, FOUR, EIGHT, ENDS, BOTH, SCALED = U(T, D // 2), Q(T, D // 16), F(8), N4(9), [XQ, BLOCKS], B(4, T // 4, 2 * D)
HEAD = [+XQ, +BLOCKS, 128, 1e-10, -448, 448, False]
ELEMENTS = rows(
    "activations: 1, and a product 1; clamping is part of it",
    ("_C::silu_and_mul sgl_kernel::silu_and_mul flashinfer::gelu_and_mul", [+X, TWO], 2 * EACH),
    ("_C::silu_and_mul", [TWO], UNKNOWN),  # the result is not an argument
    ("_C::silu_and_mul_with_clamp", [+X, TWO, 7.0], 2 * EACH),
    ("_C::silu_and_mul_with_clamp", [+X, TWO, 7.0, 1.0, 0.0], 2 * EACH),
    ("_C::situ_and_mul", [+X, TWO, 4.0, 25.0], 2 * EACH),
    ("_C::scaled_silu_and_mul", [+XQ, TWO, ONE], 3 * EACH),
    ("_C::relu_squared", [+X, X], 2 * EACH),
    ("sgl_kernel::gelu_quick", [+X, X], EACH),
    ("sgl_kernel::fast_hadamard_transform", [X, 1.0], NAN, X),
    ("LigerSiLUMulFunction", [X], UNKNOWN),
    "quantization: 1 by a scale that is given, else 2",
    ("_C::static_scaled_int8_quant", [+U(T, D), X, ONE], EACH),
    ("_C::dynamic_per_token_scaled_fp8_quant", [+XQ, X, +F(T, 1)], 2 * EACH),
    ("vllm::triton_per_token_group_quant_fp8", [X, 128], 2 * EACH, *BOTH),
    ("vllm::rocm_aiter_group_fp8_quant", [X, 128, False], 2 * EACH, *BOTH),
    ("vllm::rocm_aiter_per_token_quant", [X, 24, None], 2 * EACH, XQ, TOKENS),
    ("sglang::per_tensor_quant_fp8", [X, +XQ, ~ONE, False], 2 * EACH),
    ("sglang::per_token_group_quant_8bit", [X, *HEAD], 2 * EACH),
    ("sgl_kernel::sgl_per_token_group_quant_8bit_v2", [X, *HEAD, False, None], 2 * EACH, AT_MOST),
    ("sgl_kernel::downcast_fp8", [X, X, +XQ, +XQ, ONE, ONE, I(T), 1, 0], 2 * EACH),
    ("vllm::rocm_aiter_act_mul_and_fp8_group_quant", [TWO, 128], 4 * EACH, *BOTH),  # and activated
    ("vllm::mxfp8_quantize", [X, True], 2 * EACH, XQ, U(T, D // 32)),
    ("vllm::flashinfer_nvfp4_quantize", [X, ONE], 2 * EACH, PACKED, U(T, D // 16)),
    ("vllm::flashinfer_mxfp4_quantize", [X], 2 * EACH, PACKED, U(T, D // 32)),
    ("vllm::dequant_mxfp4", [PACKED, U(T, D // 32), 15], 0, X),
    ("sglang::scaled_fp4_quant", [X, +PACKED, +FOUR, ONE], 2 * EACH),
    ("_C::scaled_fp4_quant", [+PACKED, X, +FOUR, ONE], 2 * EACH),
    ("_C::scaled_fp4_quant", [X, ONE, True], 2 * EACH, PACKED, FOUR),
    "of the rows of experts, at most all",
    AT_MOST,
    ("_C::mxfp4_experts_quant", [+PACKED, +FOUR, X, ENDS, ENDS, 8], 2 * EACH),
    ("_C::scaled_fp4_experts_quant sgl_kernel::scaled_fp4_experts_quant sglang::scaled_fp4_experts_quant",
     [+PACKED, +FOUR, X, EIGHT, ENDS, ENDS], 2 * EACH),
    ("sglang::scaled_fp4_grouped_quant", [X, +PACKED, +FOUR, EIGHT, N4(8)], 2 * EACH),
    ("_C::mxfp8_experts_quant", [X, N4(8, 3), ENDS, ENDS, +XQ, +FOUR], 2 * EACH),
    ("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_quant", [X, N4(8, 3), ENDS, ENDS, +XQ, +FOUR], 2 * EACH),
    "both at once: 2 and 2 a result, of at most all rows of experts",
    AT_MOST,
    *((f"sgl_kernel::sgl_per_token_group_quant_8bit{end}", [TWO, *HEAD, True, None], 4 * EACH)
      for end in ("", "_v2")),
    ("_C::persistent_masked_m_silu_mul_quant", [SCALED, N4(4), +Q(4, T // 4, D), +BLOCKS, True], 4 * EACH),
    ("_C::silu_mul_fp8_quant_deep_gemm_cuda", [B(2, 8, 2 * D), N4(2), +Q(2, 8, D), +F(2, 8, 2), 128, True, 4],
     4 * EACH),
    ("_C::silu_and_mul_scaled_fp4_experts_quant", [+PACKED, +FOUR, TWO, EIGHT, ENDS, ENDS], 4 * EACH),
    ("sgl_kernel::silu_and_mul_scaled_fp4_experts_quant", [+PACKED, +FOUR, TWO, EIGHT, ENDS, True], 4 * EACH),
    ("_C::silu_and_mul_mxfp4_experts_quant", [+PACKED, +FOUR, TWO, ENDS, ENDS, 8], 4 * EACH),
    ("sglang::silu_and_mul_scaled_fp4_grouped_quant", [TWO, +PACKED, +FOUR, EIGHT, N4(8)], 4 * EACH),
)  # fmt: skip

PROBS, SCORES, PICKED = F(32, 4096), F(T, 9000), N4(T, 64)
CHOICES = rows(
    "sampling: a sum and a comparison a number, in each version",
    *(case for name, limits, outputs in (
        ("top_k_top_p", [None, 40, None, 0.9], 2), ("top_p", [None, 0.9], 2), ("min_p", [None, 0.1], 1)) for case in (
        (f"sgl_kernel::{name}_sampling_from_probs", [PROBS, +N4(32), None, *limits, True, None], 2 * 32 * 4096),
        (f"sgl_kernel::{name}_sampling_from_probs", [PROBS, F(32), *[+N4(32)] * outputs, *limits, True, 0],
         2 * 32 * 4096))),
    ("sgl_kernel::top_p_sampling_from_probs", [F(8, 9), F(8), N4(8), 0.9], UNKNOWN),
    ("flashinfer::top_k_renorm_probs", [PROBS, None, 40], 2 * 32 * 4096, PROBS),
    ("sgl_kernel::top_k_mask_logits", [SCORES, +SCORES, None, 40], T * 9000),
    "choosing compares, of at most all scores",
    AT_MOST,
    ("_C::top_k_per_row", [SCORES, N4(T), N4(T), +PICKED, +F(T, 64), 16, 1, 1], 0),
    ("_C::top_k_per_row_prefill", [SCORES, N4(T), N4(T), +PICKED, 16, 1, 1, 64], 0),
    ("_C::top_k_per_row_decode", [SCORES, 1, N4(T), +PICKED, 16, 1, 1, 64], 0),
    *((f"_C::{name}_topk", [SCORES, N4(T), +PICKED, -U(99), 64, 9000], 0)
      for name in ("persistent", "cooperative")),
    *((name, [SCORES, +PICKED, N4(T), None], 0)
      for name in ("_C::large_context_topk", "sgl_kernel::fast_topk")),
    ("sgl_kernel::fast_topk_transform_fused", [SCORES, N4(T), +PICKED, -N4(T, 99), ENDS, None], 0),
    ("sgl_kernel::fast_topk_transform_ragged_fused", [SCORES, N4(T), +PICKED, N4(T), None], 0),
)  # fmt: skip

# Rotations and caches -------------------------------------------------------------------------------------------------

QUERY, KEY, AT = B(T, 8, 64), B(T, 2, 64), I(T)
TURNED = 3 * T * 10 * 64  # 3 a number of queries and keys
TABLE = F(4096, 64)[T, 64]  # the rows that positions select
FLAT, CACHE = B(T, 128), B(900, 128)[T, 128]
ROTATIONS = rows(
    "queries and keys, with the rows of the table at their positions",
    ("_C::rotary_embedding", [AT, ~QUERY, ~KEY, 64, TABLE, True], TURNED),
    ("_C::rotary_embedding", [AT, ~QUERY, ~KEY, 64, TABLE, True, 0, False], TURNED),
    ("_C::rotary_embedding", [AT, QUERY, KEY, 64, TABLE, True, 0], UNKNOWN),
    ("_C::rotary_embedding", [I(10**5), ~B(10**5, 64), None, 64, B(10, 64), True], 3 * 10**5 * 64),  # all of a table
    ("_C::batched_rotary_embedding", [AT, ~QUERY, ~KEY, 64, TABLE, True, 64, I(T)], TURNED),
    ("vllm::rocm_aiter_triton_rotary_embedding", [AT, ~QUERY, ~KEY, 64, TABLE, True, None], TURNED),
    *((name, [AT, ~QUERY, ~KEY, 64, TABLE, True], TURNED)
      for name in ("vllm::flashinfer_rotary_embedding", "sglang::rotary_embedding_with_key")),
    ("sglang::apply_rope_inplace", [~QUERY, ~KEY, TABLE, AT, True, 64], TURNED),
    ("sglang::rotary_embedding_without_key", [AT, ~QUERY, 64, TABLE, True], 3 * T * 512),
    ("aiter::rope_cached_positions_fwd_impl", [+QUERY, QUERY, TABLE, TABLE, AT, 0, True, False], 3 * T * 512),
    ("aiter::rope_cached_positions_2c_fwd_impl", [+QUERY, +KEY, QUERY, KEY, TABLE, TABLE, AT, 0, True, False], TURNED),
    ("flashinfer::apply_rope_pos_ids_cos_sin_cache", [QUERY, KEY, +QUERY, +KEY, TABLE, TABLE, AT, False], TURNED),
    ("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", [QUERY, KEY, +QUERY, +KEY, TABLE, AT, False, 0], TURNED),
    ("sglang::fused_inplace_qknorm_rope", [~QUERY, ~KEY, B(64), B(64), TABLE, AT, True, EPS, 64, 64], 7 * T * 640),
    "without a table",
    ("flashinfer::apply_rope", [QUERY, KEY, +QUERY, +KEY, ENDS, N4(8), 64, False, 1.0, 1e4], TURNED),
    ("flashinfer::apply_llama31_rope", [QUERY, KEY, +QUERY, +KEY, ENDS, N4(8), 64, False, 8.0, 5e5, 1.0, 4.0, 8192],
     TURNED),
    "keys and values are written to a cache, too",
    ("sgl_kernel::apply_rope_pos_ids_cos_sin_cache",
     [QUERY, KEY, +QUERY, +KEY, TABLE, AT, False, False, 0, KEY, +Q(10**6, 128)[T, 128], +Q(10**6, 128)[T, 128], I(T)],
     TURNED),
    ("sglang::apply_rope_inplace_with_kvcache", [~QUERY, ~KEY, KEY, +CACHE, +CACHE, TABLE, AT, I(T), True, 64], TURNED),
    ("vllm::fused_rope_and_unified_kv_cache_update", [~QUERY, ~KEY, KEY, AT, TABLE, True, "model.layers.0"],
     TURNED, KEY, KEY),
)  # fmt: skip

LATENT, SMALL, MLA = B(T, 512), B(T, 64), [B(T, 16, 512), B(T, 16, 64)]
WIDE, PAGES, STORED = B(T, 16, 576), U(10000, 16, 8, 64)[T, 8, 64], B(T, 8, 64)
LATENTS = [B(900, 64, 576)[T, 576], U(900, 64, 576)[T, 576], U(900, 64, 656)[T, 656]]
CACHES = rows(
    "what is written to a cache counts, in its dtype",
    ("_C_cache_ops::reshape_and_cache_flash", [STORED, STORED, +PAGES, +PAGES, AT, "fp8", None, None], 0),
    ("_C_cache_ops::reshape_and_cache", [STORED, STORED, +PAGES, +PAGES, AT, "fp8", -ONE, -ONE, True], 0),
    *((f"{library}::concat_and_cache_mla", [LATENT, SMALL, +cache, AT, "auto", -ONE], 0)
      for library in ("_C_cache_ops", "aiter") for cache in LATENTS),
    ("_C_cache_ops::concat_and_cache_mla", [LATENT, SMALL, +LATENTS[2], AT, "fp8", -ONE, True], 0),
    ("_C_cache_ops::concat_and_cache_mla_rope_fused",
     [AT, ~MLA[1], ~SMALL, LATENT, B(4096, 64)[T, 64], True, AT, +LATENTS[1], "fp8", -ONE], 3 * T * 17 * 64),
    ("_C_cache_ops::cp_fused_concat_and_cache_mla",
     [B(99, 512)[T, 512], B(99, 64)[T, 64], AT, +LATENTS[1], I(99), "fp8", -ONE], 0),
    ("vllm::unified_mla_kv_cache_update", [LATENT, SMALL, "layer", "auto", -ONE], 0, LATENT, SMALL),
    ("aiter::indexer_k_quant_and_cache", [FLAT, +U(90, 64, 132)[T, 132], AT, 128, "ue8m0", True], 2 * T * 128),
    ("aiter::cp_gather_indexer_k_quant_cache", [-U(90, 64, 132), ~Q(T, 128), ~TOKENS, N4(2, 9), N4(3)], 0, AT_MOST),
    ("aiter::reshape_and_cache_with_block_quant", [KEY, KEY, +U(90, 16, 128)[T, 128], +U(90, 16, 128)[T, 128],
     -F(90), -F(90), AT], 2 * 2 * T * 128),
    "concatenation and copies",
    *((name, [+B(T, 8, 192), B(T, 8, 128), B(T, 1, 64)], 0)
      for name in ("vllm::flashinfer_concat_mla_k", "sgl_kernel::concat_mla_k")),
    ("sgl_kernel::concat_mla_absorb_q", [*MLA, +WIDE], 0),
    ("sgl_kernel::copy_to_gpu_no_ce", [N4(64), +N4(64)], 0),
    "pages of 1152 bytes, of one or 61 layers, of keys and values or of both in one",
    *((f"sgl_kernel::transfer_kv_{name}", [*[-I(9)] * (count - 2), I(9), I(9), *sizes], 0,
       {"read": [I(9), I(9), U(pages, 9, 1152)], "written": [U(pages, 9, 1152)]}) for name, count, sizes, pages in (
        ("per_layer_mla", 4, [1152, 2, 32], 1), ("all_layer_mla", 4, [1152, 61, 2, 32], 61),
        ("per_layer_mla_pf_lf", 4, [3, 1152, 70272, 2, 32], 1), ("per_layer_mla_pf_lf", 4, [1152, 70272, 2, 32], 1),
        ("all_layer_mla_lf_pf", 4, [1152, 70272, 61, 2, 32], 61),
        ("per_layer_pf_lf", 6, [3, 1152, 70272, 2, 32], 2),
        ("all_layer_lf_pf", 6, [1152, 70272, 61, 2, 32], 2 * 61))),
)  # fmt: skip

# Attention ------------------------------------------------------------------------------------------------------------

PAGED = [B(500, 4, 8, 16, 8)[8, 300, 4, 64], B(500, 4, 64, 16)[8, 300, 4, 64], 4, 0.1, N4(8, 20), N4(8), 16, 300]
ROWS, LATER = B(8, 16, 64), [-F(8, 16, 2), -F(8, 16, 2), -B(8, 16, 2, 64)]
SEQS, KEYS, CU = B(4 * 128, 8, 64), B(4 * 128, 2, 64), -N4(5)
FEW, STORE, LIST = B(8, 8, 64), B(5000, 16, 2, 64), -N4(8, 100)


def _sequences(mask: bool) -> tuple:
    """Return the rows of four concatenated sequences of 128, with and without a causal mask."""
    sizes, flags, more = [128, 128], [0.0, 0.1, 0.0, False, mask, -1, -1], [mask, -1, -1, 0.0, True, None, 1, None, 0]
    flops = 4 * 4 * 8 * 64 * (128 * 129 / 2 if mask else 128 * 128)
    given = [*[None] * 4, CU, CU, *[None] * 3, *sizes, *[None] * 9]
    back = [SEQS, SEQS, KEYS, KEYS, SEQS, F(8, 512), CU, CU, *sizes, 0.0, 0.1, False, mask, -1, -1, False]
    return (
        *((name, [SEQS, KEYS, KEYS, *arguments], flops, SEQS, F(8, 512)) for name, *arguments in (
            ("_vllm_fa2_C::varlen_fwd", -SEQS, CU, CU, *[None] * 4, *sizes, 0.0, 0.1, False, *more[:4], False, 0),
            ("aiter::mha_varlen_fwd", CU, CU, *sizes, 0, *flags, False, False, *[None] * 5),
            ("aiter::mha_varlen_fwd", CU, CU, *sizes, 0, *flags, 0, False, False, *[None] * 11),
            ("aiter::fmha_v3_varlen_fwd", CU, CU, *sizes, 0, *flags, False, False, 1, *[None] * 7),
            ("_vllm_fa3_C::fwd", *given, 0.1, *more, None, 1, 0, None),
            ("_vllm_fa3_C::fwd", *given, None, 0.1, *more, None, 1, 0, None),
            ("sgl_kernel::fwd", *given, 0.1, *more))),
        ("aiter::mha_varlen_bwd", back, 2.5 * flops, {"written": ..., "read": ...}),
        ("aiter::fmha_v3_varlen_bwd", [*back, True, 1], 2.5 * flops, {"written": ..., "read": ...}),
    )  # fmt: skip


ATTENTION = rows(
    "sequences of one length are a batch",
    *_sequences(True),
    *_sequences(False),
    "pages: at most those of the longest sequence, 300 keys",
    AT_MOST,
    *((name, [+ROWS, *between, ROWS, *PAGED, None, "auto"], 4 * 8 * 16 * 64 * 300) for name, between in (
        ("_C::paged_attention_v1", []), ("_C::paged_attention_v2", LATER), ("_rocm_C::paged_attention", LATER),
        ("aiter::paged_attention_rocm", LATER))),
    ("_vllm_fa2_C::varlen_fwd",
     [FEW, STORE[8, 333, 2, 64], STORE[8, 333, 2, 64], -FEW, -ENDS, -ENDS, -N4(8), None, LIST, None, 1, 333, 0.0, 0.1,
      False, True, -1, -1, 0.0, False, 0], 4 * 8 * 8 * 64 * 333, {"written": ...}),
    ("aiter::fmha_v3_varlen_fwd",
     [FEW, STORE[8, 333, 2, 64], STORE[8, 333, 2, 64], -ENDS, -ENDS, 1, 333, 0, 0.0, 0.1, 0.0, False, True, -1, -1,
      False, False, 1, None, LIST, None, None, None], 4 * 8 * 8 * 64 * 333, {"written": ...}),
    ("aiter::mha_batch_prefill",
     [QUERY, B(9000, 2, 64)[T, 2, 64], B(9000, 2, 64)[T, 2, 64], N4(3), N4(3), -N4(99), 8, 99, 0.0, 0.1, 0.0, False,
      True], 4 * 8 * 64 * T, QUERY),
    "partial results are scaled and added: 5 a number",
    ("_C::merge_attn_states", [+X, None, X, F(8, 32), X, F(8, 32), 5, None], 5 * EACH),
    ("flashinfer::merge_states", [B(T, 3, 8, 64), F(T, 3, 8)], 5 * T * 3 * 512, B(T, 8, 64), F(T, 8)),
    "caches and states that the op hides: no FLOPs, and at least its own bytes",
    AT_MOST,
    ("_C::sm100_cutlass_mla_decode", [+B(8, 128, 512), +F(8, 128), B(8, 128, 512), B(8, 128, 64), -B(900, 64, 576),
     N4(8), N4(8, 40), -U(99), 0.1, 1], NAN),
    ("_C::cutlass_mla_decode", [+MLA[0], *MLA, -B(90, 64, 576), N4(T), N4(T, 9), 0.1], NAN),
    ("sgl_kernel::cutlass_mla_decode", [+MLA[0], WIDE, -B(90, 64, 576), N4(T), N4(T, 9), -U(9), 1], NAN),
    ("sgl_kernel::cutlass_mla_decode", [+MLA[0], *MLA, -B(90, 64, 576), N4(T), N4(T, 9), -U(9), 0.1, 1], NAN),
    ("vllm::rocm_aiter_mla_decode_fwd", [WIDE, -B(900, 1, 1, 576), +MLA[0], ENDS, 1, -N4(9)], NAN),
    ("vllm::linear_attention", [X, +X, AT, "layer"], NAN),
    ("vllm::kda_attention", [X, X, X, F(T, D), F(T, 8), +X, "layer"], NAN),
    *((f"vllm::{name}", [X, +X, "layer"], NAN)
      for name in ("gdn_attention", "short_conv", "plamo2_mamba_mixer")),
    ("sglang::unified_linear_attention_with_output", [X, F(T, 8), F(T, 8), +X, 3], NAN),
    "not the arguments of any version",
    ("vllm::unified_attention_with_output", [1, B(8, 4, 64), B(8, 4, 64), B(8, 4, 64)], UNKNOWN),
)  # fmt: skip

CONV, U_, A_, B_ = B(512, 4), B(512, 300), F(512, 16), B(1, 16, 300)
SCANS = rows(
    "4 multiply-adds; the states of the sequences are read and written",
    ("_C::causal_conv1d_update", [~B(8, 512), ~B(1000, 512, 3)[8, 512, 3], CONV, None, True, None, N4(8), -1],
     2 * 8 * 512 * 4),
    ("sgl_kernel::causal_conv1d_update", [~X, ~B(90, D, 3)[T, D, 3], B(D, 4), None, True, None, N4(T), -1],
     2 * EACH * 4),
    ("sgl_kernel::causal_conv1d_fwd", [~U_, CONV, None, -B(1000, 512, 3), N4(9), N4(8), None, True, -1],
     2 * 512 * 300 * 4),
    ("_C::causal_conv1d_fwd", [~X, B(T, 4), *[None] * 4, True], 2 * EACH * 4),
    "9 an element of the state",
    ("_C::selective_scan_fwd",
     [U_, ~U_, A_, B_, B_, F(512), ~U_, F(512), True, -N4(9), -N4(8), None, -B(1000, 512, 3), -1], 9 * 512 * 300 * 16),
)  # fmt: skip

FOURFOLD = B(4 * T, D)
EXCHANGES = rows(
    "over links: each tensor once",
    ("_C_custom_ar::all_reduce_reg sgl_kernel::all_reduce", [7, X, +X], NAN),
    ("_C_custom_ar::all_reduce_unreg", [7, X, -U(99), +X], NAN),
    ("_C_custom_ar::custom_all_gather", [7, X, +FOURFOLD, 0, 0], NAN),
    ("_C_custom_ar::custom_reduce_scatter", [7, FOURFOLD, +X, 0, 0], NAN),
    ("sgl_kernel::all_reduce", [7, X, +X, 0, 0], NAN),
    *((f"sgl_kernel::{name}_reg", [7, X, +X], NAN) for name in ("all_reduce", "deterministic_all_reduce")),
    *((f"sgl_kernel::{name}_unreg", [7, X, -U(9), +X], NAN)
      for name in ("all_reduce", "deterministic_all_reduce")),
    ("sgl_kernel::qr_all_reduce", [7, X, +X, 2, True], NAN),
    ("sglang::inplace_all_reduce vllm::inplace_all_reduce", [~X, "tp"], NAN),
    ("sglang::outplace_all_reduce", [X, "tp", "ca"], NAN, X),
    ("sglang::reg_all_gather_into_tensor", [+FOURFOLD, X, "tp"], NAN),
    ("sglang::reg_reduce_scatter_tensor", [+X, FOURFOLD, "tp"], NAN),
    ("vllm::outplace_all_reduce", [X, "tp"], NAN, X),
    ("vllm::all_reduce_symmetric_with_copy", [X], NAN, X),
    "with a norm, which also keeps the sum",
    ("vllm::flashinfer_trtllm_fused_allreduce_norm",
     [~X, ~X, GAIN, EPS, 8, True, True, 1024, 1, +X, None, None, None], NAN),
    ("vllm::rocm_aiter_fused_allreduce_rmsnorm", [X, X, GAIN, EPS], NAN, X, X),
    ("sglang::flashinfer_allreduce_residual_rmsnorm", [X, X, GAIN, EPS, 2048, "None", False, True], NAN, X, X),
)  # fmt: skip

CASES = [*NORMS, *ELEMENTS, *CHOICES, *ROTATIONS, *CACHES, *ATTENTION, *SCANS, *EXCHANGES]

"""Work of the products, experts and routers of vLLM, SGLang, FlashInfer and aiter, by version.

A product of m rows, k inputs and n outputs is 2 m n k; what is read and written is marked (docs/counting.md). What
each argument is, is in the library's source of that version.
"""

from helpers.work_cases import AT_MOST, N4, NAN, ONE, UNKNOWN, B, F, I, P, Q, S, U, rows

M, N, K = 32, 512, 256
FLOPS = 2 * M * N * K
HALF = 15  # bfloat16 as a ScalarType
X, W, WT, OUT = Q(M, K), Q(N, K), Q(K, N), B(M, N)
XB, WB = B(M, K), B(N, K)
XP, WP = U(M, K // 2), U(N, K // 2)  # two numbers a byte
BLOCK = [128, 128]
PLAIN = rows(
    "8 bits write 16",
    {"unit": "fp8_tensor"},
    ("vllm::w8a8_block_fp8_matmul_deepgemm", [X, W, ONE, ONE, BLOCK, HALF], FLOPS, OUT),
    ("vllm::w8a8_triton_block_scaled_mm_func", [X, W, ONE, ONE, BLOCK, HALF], FLOPS, OUT),
    ("vllm::padded_cutlass", [X, WT, ONE, ONE, BLOCK, HALF], FLOPS, OUT),
    ("vllm::rocm_aiter_gemm_w8a8_blockscale", [X, W, ONE, ONE, BLOCK, HALF], FLOPS, OUT),
    ("vllm::rocm_aiter_gemm_a8w8_blockscale", [X, W, ONE, ONE, HALF], FLOPS, OUT),
    ("vllm::rocm_aiter_triton_gemm_a8w8_blockscale", [X, W, ONE, ONE, HALF], FLOPS, OUT),
    ("vllm::rocm_aiter_gemm_w8a8 vllm::rocm_aiter_gemm_a8w8 vllm::rocm_aiter_w8a8_gemm",
     [X, W, ONE, ONE, None, HALF], FLOPS, OUT),
    ("vllm::rocm_per_tensor_w8a8_scaled_mm_impl", [X, WT, HALF, ONE, ONE, None], FLOPS, OUT),
    ("vllm::rocm_per_tensor_float_w8a8_scaled_mm_impl", [X, WT, HALF, ONE, ONE, None], FLOPS, OUT),
    ("vllm::fp8_gemm_nt_op", [X, ONE, W, ONE, +OUT, True], FLOPS),
    ("vllm::mm_mxfp8", [X, WT, ONE, ONE, HALF, "cutlass"], FLOPS, OUT),
    ("vllm::mm_mxfp8", [X, WT, ONE, ONE, HALF, "cutlass", False], FLOPS, OUT),
    ("vllm::int8_scaled_mm_func", [X, W, ONE, ONE, HALF, None], FLOPS, OUT),
    ("_C::cutlass_scaled_mm", [+OUT, X, WT, ONE, ONE, None], FLOPS),
    ("_C::cutlass_scaled_mm_dq", [+OUT, X, WT, ONE, ONE], FLOPS),
    ("_rocm_C::wvSplitKQ", [W, X, +OUT, ONE, ONE, 304], FLOPS),
    ("_rocm_C::wvSplitKQ", [W, X, None, +OUT, ONE, ONE, 304], FLOPS),
    ("sgl_kernel::fp8_scaled_mm", [X, WT, ONE, ONE, HALF, None], FLOPS, OUT),
    ("sgl_kernel::fp8_scaled_mm", [X, WT, ONE, ONE, HALF, None, None], FLOPS, OUT),
    ("sglang::deep_gemm_fp8_fp8_bf16_nt", [X, ONE, W, ONE, +OUT], FLOPS),
    ("sglang::flashinfer_gemm_fp8_nt_groupwise", [X, W, ONE, ONE, HALF], FLOPS, OUT),
    ("sglang::triton_mxfp8_block_scaled_matmul", [X, ONE, W, ONE, HALF, 128, 128, 128, 4], FLOPS, OUT),
    ("aiter::gemm_a8w8_asm aiter::_gemm_a8w8_asm", [X, W, ONE, ONE, +OUT, "", None, True, 0], FLOPS),
    ("aiter::gemm_a8w8_blockscale_bpreshuffle", [X, W, ONE, ONE, HALF], FLOPS, OUT),
    ("aiter::_gemm_a8w8_blockscale_bpreshuffle_asm", [X, W, +OUT, ONE, ONE, None, 1, "", True, None], FLOPS),
    ("aiter::hipb_mm", [X, WT, -1, None, HALF, ONE, ONE, None], FLOPS, OUT),
    "16 bits",
    {"unit": "bf16_tensor"},
    ("_C::dsv3_fused_a_gemm", [+OUT, XB, B(K, N), True], FLOPS),
    ("_moe_C::dsv3_router_gemm sglang::flashinfer_dsv3_router_gemm", [+OUT, XB, WB], FLOPS),
    ("vllm::min_latency_fused_qkv_a_proj", [XB, WB], FLOPS, OUT),
    ("vllm::rocm_unquantized_gemm", [XB, WB, None], FLOPS, OUT),
    ("_rocm_C::wvSplitKrc", [XB, WB, None, 304], FLOPS, OUT),
    ("_rocm_C::wvSplitK", [WB, XB, None, 304], FLOPS, OUT),
    ("aiter::gemm_a16w16", [XB, WB, None, 15, None, None, None], FLOPS, OUT),
    ("aiter::gemm_a16w16_asm", [XB, WB, +OUT, None, 1, ""], FLOPS),
    ("aiter::gemm_a16w16_asm aiter::_gemm_a16w16_asm", [XB, WB, +OUT, -U(64), None, 1, "", False], FLOPS),
    "two numbers a byte, which do not tell a peak",
    {"unit": None},
    ("vllm::flashinfer_mm_fp4", [XP, U(K // 2, N), ONE, ONE, None, HALF, "cutlass"], FLOPS, OUT),
    ("sglang::fp4_gemm", [XP, WP, ONE, ONE, ONE, HALF, N], FLOPS, OUT),
    ("aiter::gemm_a4w4_asm", [XP, WP, ONE, ONE, +OUT, "", None, 1, 0, True, None], FLOPS),
    ("aiter::_gemm_a4w4_asm", [XP, WP, Q(M, 16), Q(N, 16), +OUT, "", None, 1, 0, True, None], FLOPS),
    ("aiter::gemm_a4w4_blockscale", [XP, WP, ONE, ONE, +OUT, 0], FLOPS),
    ("_C::cutlass_scaled_fp4_mm", [+OUT, XP, WP, ONE, ONE, None], FLOPS),
    "matrices in a batch",
    ("vllm::bmm_fp8", [Q(4, M, K), Q(4, K, N), ONE, ONE, HALF, "cublas"], 4 * FLOPS, B(4, M, N)),
    ("sglang::_bmm_fp8_op", [Q(4, M, K), Q(4, K, N), +B(4, M, N), ONE, ONE], 4 * FLOPS),
    "a dtype or a bias of its own",
    ("_moe_C::gpt_oss_router_gemm", [+OUT, XB, WB, B(N)], FLOPS),
    ("_moe_C::router_gemm_bf16_fp32", [XB, WB], FLOPS, F(M, N)),
    ("vllm::w8a8_triton_block_scaled_mm_func", [X, Q(N, K + 1), ONE, ONE, BLOCK, HALF], UNKNOWN),
    ("_C::cutlass_scaled_mm", [B(8, 8), Q(8, 16), Q(17, 8), ONE, ONE], UNKNOWN),
)  # fmt: skip

SPACE, QW, SCALES = -N4(99), N4(K // 16, N * 2), B(K // 128, N)
INDEX = [N4(2), N4(K), N4(K)]  # zeros, the index of the groups, its order
ZEROS = [0, 0, 0, 0]
MARLIN = [XB, QW, SCALES]
GPTQ = [XB, N4(K // 8, N), N4(2, N // 8), B(2, N)]
MACHETE = [Q(M, K), N4(K // 8, N), SCALES]
PACKED = rows(
    "Marlin, by version",
    {"unit": "bf16_tensor"},
    ("_C::marlin_gemm", [*MARLIN, SPACE, M, N, K], FLOPS, OUT),
    ("_C::marlin_gemm", [XB, None, QW, None, SCALES, *[None] * 5, SPACE, 1, M, N, K, *ZEROS], FLOPS, OUT),
    ("_C::marlin_gemm", [XB, None, QW, B(N), SCALES, *[None] * 3, SPACE, 1, M, N, K, 0, 0, 0], FLOPS, OUT),
    ("vllm::marlin_gemm", [XB, QW, B(N), SCALES, *[None] * 4, 1, M, N, K, 0, 0, 0], FLOPS, OUT),
    ("_C::fp8_marlin_gemm", [*MARLIN, SPACE, 8, M, N, K], FLOPS, OUT),
    *(("_C::gptq_marlin_gemm", [*MARLIN, *INDEX, SPACE, 1, M, N, K, *flags], FLOPS, OUT)
      for flags in ([0] * 3, [0] * 5)),
    *(("_C::gptq_marlin_gemm", [XB, None, QW, *bias, SCALES, *none, SPACE, 1, M, N, K, *ZEROS], FLOPS, OUT)
      for bias, none in (([], [None] * 3), ([], [None] * 4), ([B(N)], [None] * 4), ([B(N)], [None] * 5))),
    ("_C::gptq_marlin_gemm", [XB, None, QW, SCALES, *[None] * 3, SPACE, 1, M, N, 99, *ZEROS], UNKNOWN, {"unit": None}),
    ("sglang::unified_apply_gptq_marlin_gemm", [*MARLIN, *INDEX, SPACE, N, K, 0, 0, 0], FLOPS, OUT),
    ("sglang::unified_apply_gptq_marlin_gemm_with_wtype", [*MARLIN, *INDEX, SPACE, 1, N, K, True, 0, 1, 0], FLOPS, OUT),
    ("sglang::apply_fp8_marlin_linear", [*MARLIN, SPACE, N, K, None, 1], FLOPS, OUT),
    ("sglang::apply_fp4_marlin_linear", [XB, QW, Q(16, N), ONE, SPACE, N, K, None, True], FLOPS, OUT),
    "activations of 8 bits write 16, or what is asked for",
    {"unit": "fp8_tensor"},
    ("_C::machete_mm", [*MACHETE[:2], 1, None, SCALES, None, 128, *[None] * 3], FLOPS, OUT),
    ("_C::machete_mm", [*MACHETE[:2], 1, 6, SCALES, None, 128, *[None] * 3], FLOPS, F(M, N)),
    ("_C::cutlass_w4a8_mm", [X, N4(N, K // 8), Q(2, N), 128, F(N), F(M), None, None], FLOPS, OUT),
    "int8",
    {"unit": "int8_tensor"},
    ("_C::marlin_qqq_gemm", [S(M, K), QW, F(M), F(N), B(2, N), SPACE, M, N, K], FLOPS, OUT),
    "GPTQ and AWQ, by version",
    *((name, [*GPTQ, N4(K), *flags], FLOPS, OUT) for name, flags in (
        ("_C::gptq_gemm", [True, 4]), ("_C::gptq_gemm", [True, False, 4]), ("_rocm_C::gptq_gemm_rdna3", [True]))),
    *((name, [*GPTQ, *flags], FLOPS, OUT)
      for name, flags in (("_C::gptq_gemm", [True, False, 4]), ("_rocm_C::gptq_gemm_rdna3_wmma", [True]))),
    ("_C::awq_gemm", [XB, N4(K, N // 8), SCALES, N4(K // 128, N // 8), 8], FLOPS, OUT),
    "other formats",
    ("sgl_kernel::ggml_mul_mat_a8 sgl_kernel::ggml_mul_mat_vec_a8", [U(N, 144), XB, 12, N], FLOPS, OUT),
    ("sgl_kernel::ggml_dequantize", [U(N, 144), 12, N, K, None], 0, WB),
    ("sgl_kernel::qserve_w4a8_per_group_gemm", [U(M, K), WP, U(2, N), U(2, N), B(N), B(M), +OUT], FLOPS),
)  # fmt: skip

# Experts --------------------------------------------------------------------------------------------------------------

E, TOP, INNER = 8, 2, 128
UP, DOWN = Q(E, 2 * INNER, K), Q(E, K, INNER)
UPB, DOWNB = B(E, 2 * INNER, K), B(E, K, INNER)
CHOICE = [F(M, TOP), N4(M, TOP)]
LAYER = 2 * M * TOP * 3 * INNER * K
LOGITS, GATES, PLACES = F(M, E), F(M, TOP), N4(M, TOP)
SORTED = [N4(512), N4(16), N4(1)]
BETWEEN = B(M, TOP, INNER)
ENDS, SIZES, ALPHAS, STRIDES = N4(E), N4(E, 3), F(E), -I(E)
EXPERTS_8 = Q(E, N, K)
ROUTE = [E, TOP, 1, 1, INNER, 0, E]
MOE_W, MOE_S, IDS = N4(E, K // 16, N * 2), B(E, K // 128, N), [N4(256), N4(16), N4(1), F(M, 2)]
ONES = [ONE] * 4
GROUPS_4, SCALE_4 = U(E, N, K // 2), Q(E, 16)
LORA = [N4(M), N4(M), N4(5), N4(6), N4(5)]
DOWNS, UPS = [B(4, 1, 16, K)] * 2, [B(4, 1, N, 16)] * 2


def _marlin(library: str, middle: list, tail: list) -> tuple:
    arguments = [XB, None, MOE_W, *middle, SPACE, *IDS, 16, 2, False, *tail]
    return f"{library}::moe_wna16_marlin_gemm", arguments, 2 * FLOPS, B(2 * M, N)


EXPERTS = rows(
    "each token with those that it chose: up, gate and down; two tokens may choose the same",
    ("vllm::fused_experts", [XB, UPB, DOWNB, *CHOICE, None], LAYER, XB, {"unit": "bf16_tensor"}),
    ("vllm::fused_experts", [B(1, K), UPB[TOP, 256, K], DOWNB[TOP, K, 128], F(1, 2), N4(1, 2), "silu"], LAYER / M,
     B(1, K), AT_MOST),
    ("vllm::fused_experts", [XB, B(E, 2 * INNER, 99), DOWNB, *CHOICE], UNKNOWN),
    *((name, [XB, UP, DOWN, *CHOICE, None], LAYER, XB, {"unit": "fp8_tensor"})
      for name in ("vllm::fused_experts", "vllm::rocm_aiter_fused_moe", "sglang::outplace_fused_experts")),
    *((f"vllm::{name}", [XB, UPB, DOWNB, *CHOICE, *more], LAYER, XB)
      for name, more in (("rocm_aiter_ck_moe", []), ("rocm_aiter_asm_moe", [*[None] * 4, False, "silu"]),
                         ("rocm_aiter_asm_moe_tkw1", [*[None] * 4, False, None, None, 0]))),
    ("vllm::moe_forward_shared", [XB, F(M, 32), "model.layers.0"], NAN, XB, XB, AT_MOST),
    "layers in one kernel: at most all experts",
    {"at_most": True, "unit": "fp8_tensor"},
    ("vllm::flashinfer_fused_moe_blockscale_fp8",
     [LOGITS, F(E), XB, UP, ONE, DOWN, ONE, *ROUTE, BLOCK, 2, 2.5], LAYER, XB),
    ("vllm::flashinfer_fused_moe_per_tensor_scale_fp8",
     [LOGITS, F(E), XB, ONE, UP, DOWN, *ONES[:3], *ROUTE, True, 2, 1.0], LAYER, XB),
    ("vllm::fi_trtllm_fp8_per_tensor_moe",
     [LOGITS, F(E), XB, ONE, UP, DOWN, *ONES[:3], *ROUTE, True, 2, 3, 1.0], LAYER, XB),
    ("sglang::trtllm_fp8_block_scale_moe_wrapper",
     [LOGITS, F(E), X, ONE, UP, ONE, DOWN, ONE, *ROUTE, 2.5, 2, True], LAYER, XB),
    ("sglang::trtllm_fp8_per_tensor_scale_moe_wrapper",
     [LOGITS, F(E), X, UP, ONE, ONE, DOWN, ONE, *ROUTE, 2.5, True, 2, "", 8192], LAYER, XB),
    *((f"sglang::{name}", [LOGITS, None, X, ONE, UP, ONE, DOWN, ONE, *ROUTE[:3]], LAYER, XB) for name in (
        "trtllm_fp8_block_scale_routed_moe_wrapper", "sgl_trtllm_fp8_block_scale_moe_wrapper",
        "sgl_trtllm_fp8_block_scale_routed_moe_wrapper")),
    "16 bits, or 8 with the scales that count",
    AT_MOST,
    ("vllm::flashinfer_fused_moe_bf16", [LOGITS, F(E), XB, UPB, DOWNB, *ROUTE[:4], INNER, 0, E, 2], LAYER, XB),
    ("aiter::fmoe_g1u1_a16", [+X, X, UP, DOWN, N4(9), F(9), N4(9), N4(1), TOP, *[-ONE] * 4], LAYER),
    ("aiter::fmoe_int8_g1u0", [+X, X, UP, DOWN, N4(9), F(9), N4(9), N4(1), TOP, *ONES[:3], -ONE], LAYER),
    ("aiter::fmoe", [+XB, XB, UPB, DOWNB, I(9), F(9), I(9), I(1), TOP], LAYER),
    "layers in two kernels",
    AT_MOST,
    ("aiter::moe_stage1_g1u1", [X, UP, -DOWN, *SORTED, +BETWEEN, INNER, "", 32, 0, 1, 2, None, None, None],
     LAYER * 2 / 3),
    ("aiter::moe_cktile2stages_gemm1_ck", [XB, UPB, +BETWEEN, *SORTED, 2, 0, 0, *[None] * 4, 32], LAYER * 2 / 3),
    ("aiter::moe_cktile2stages_gemm2_ck", [BETWEEN, DOWNB, +XB, *SORTED, 2, 0, 0, *[None] * 4, 32], LAYER / 3),
    "Marlin's experts, by version: two rows a token",
    AT_MOST,
    *(_marlin("_moe_C", [*scales, *[None] * 3], [1, 1, M, N, K, *ZEROS])
      for scales in ([MOE_S], [MOE_S, None], [None, MOE_S, None])),
    _marlin("_moe_C", [None, MOE_S, None, None, *[None] * 3], [1, 1, M, N, K, *ZEROS, 1, 1, 1]),
    _marlin("_moe_C", [None, MOE_S, None, None, *[None] * 3], [1, M, N, K, *ZEROS, 1, 1, 1]),
    _marlin("_moe_C", [None, MOE_S, *[None] * 3], [1, M, N, K, 0, 0, 0, 1, 1, 1]),  # no index
    _marlin("sgl_kernel", [MOE_S, *[None] * 3], [1, 1, M, N, K, *ZEROS]),
    _marlin("sgl_kernel", [None, MOE_S, *[None] * 4], [1, 1, M, N, K, *ZEROS]),
    "rows in the order of their experts: at most all matrices",
    {"at_most": True, "unit": "fp8_tensor"},
    ("_C::cutlass_blockwise_scaled_grouped_mm", [+OUT, X, EXPERTS_8, ONE, ONE, SIZES, ENDS], FLOPS),
    ("sgl_kernel::es_fp8_blockwise_scaled_grouped_mm",
     [+OUT, X, Q(E, K, N), ONE, ONE, *[STRIDES] * 3, -SIZES, -ENDS], FLOPS),
    ("sgl_kernel::es_sm100_mxfp8_blockscaled_grouped_mm",
     [X, Q(E, K, N), ONE, ONE, +OUT, -SIZES, -ENDS, -ENDS], FLOPS),
    ("sgl_kernel::fp8_blockwise_scaled_grouped_mm",
     [+OUT, X, Q(E, K, N), ONE, ONE, *[STRIDES] * 3, -N4(E, 5), -N4(E, 5), SIZES, ENDS], FLOPS),
    ("_C::cutlass_moe_mm", [+OUT, X, Q(E, K, N), ONE, ONE, ENDS, ENDS, *[-ENDS] * 3, True, True], FLOPS),
    ("_C::cutlass_w4a8_moe_mm",
     [+OUT, X, N4(E, N, K // 8), ONE, ONE, Q(E, 4), 128, ENDS, SIZES, *[STRIDES] * 4, None], FLOPS),
    "of 4 bits",
    {"at_most": True, "unit": None},
    ("_C::cutlass_fp4_group_mm", [+OUT, XP, GROUPS_4, SCALE_4, SCALE_4, ALPHAS, -SIZES, -ENDS, -ENDS], FLOPS),
    ("_C::cutlass_mxfp4_group_mm", [+OUT, XP, GROUPS_4, SCALE_4, SCALE_4, SIZES, ENDS, ENDS], FLOPS),
    ("sgl_kernel::cutlass_fp4_group_mm",
     [+OUT, XP, GROUPS_4, SCALE_4, SCALE_4, ALPHAS, STRIDES, STRIDES, -SIZES, -ENDS, -ENDS], FLOPS),
    ("sglang::cutlass_fp4_group_mm", [+OUT, XP, GROUPS_4, SCALE_4, SCALE_4, ALPHAS, STRIDES, STRIDES], FLOPS),
    "sizes that do not fit",
    ("_C::cutlass_blockwise_scaled_grouped_mm", [B(M + 1, N), X, EXPERTS_8, ONE, ONE, SIZES, ENDS], UNKNOWN),
    "adapters of rank 16, two projections",
    AT_MOST,
    ("vllm::lora_shrink", [XB, DOWNS, +F(2, M, 16), *LORA, -P(1), 1.0], 2 * M * K * 16 * 2),
    ("vllm::lora_expand", [F(2, M, 16), UPS, ~B(M, 2 * N), *LORA, -P(1), -N4(5), 0, True],
     2 * M * 16 * 2 * N),
)  # fmt: skip

# Routing --------------------------------------------------------------------------------------------------------------

T, D = 16, 256
Y, FIRST, CHOSEN, PLACED = B(T, D), F(T, 32), F(T, 4), N4(T, 4)
ROWS, OFFSETS, BIAS = B(4 * T, D), I(33), F(32)
CHOSEN_ALL = [+CHOSEN, +PLACED, +PLACED]
ALIGNED = [+N4(512), +N4(32), +N4(1)]
ROUTING = rows(
    "a softmax of the gates 5, a sigmoid 2",
    *((name, [*CHOSEN_ALL, FIRST, True, *more], 5 * T * 32)
      for name, more in (("vllm::rocm_aiter_topk_softmax", []), ("_moe_C::topk_softmax", [None, None]))),
    ("sgl_kernel::topk_softmax", [+CHOSEN, +PLACED, FIRST, True], 5 * T * 32),
    ("sgl_kernel::topk_softmax", [*CHOSEN_ALL, FIRST], 5 * T * 32),
    ("_moe_C::topk_softplus_sqrt", [*CHOSEN_ALL, FIRST, True, 2.5, None, None, None], 2 * T * 32),
    ("vllm::rocm_aiter_topk_sigmoid", [+CHOSEN, +PLACED, FIRST], 2 * T * 32),
    ("aiter::topk_softplus", [+CHOSEN, +PLACED, FIRST, BIAS, True, 2.5], 2 * T * 32),
    *((name, [FIRST, +CHOSEN, +PLACED, 8, 4, True, True, 2.5], 5 * T * 32)
      for name in ("vllm::rocm_aiter_grouped_topk", "aiter::grouped_topk")),
    *((name, [FIRST, BIAS, +CHOSEN, +PLACED, 8, 4, 4, 2.5], 5 * T * 32) for name in
      ("vllm::rocm_aiter_biased_grouped_topk", "aiter::biased_grouped_topk_hip", "aiter::moe_fused_gate")),
    ("_moe_C::grouped_topk", [FIRST, FIRST, 8, 4, 4, True, 2.5], 5 * T * 32, CHOSEN, PLACED),
    "places of rows in the order of their experts",
    ("_C::moe_align_block_size", [PLACED, 32, 16, *ALIGNED], 0),
    ("_moe_C::batched_moe_align_block_size", [64, 16, N4(8), *ALIGNED], 0),
    ("sgl_kernel::moe_align_block_size", [PLACED, 32, 16, *ALIGNED, +N4(99), +N4(33), True], 0),
    ("sgl_kernel::moe_align_block_size", [PLACED, 32, 16, *ALIGNED, +N4(33), True, False], 0),
    ("aiter::moe_sorting_opus_fwd", [PLACED, CHOSEN, +N4(512), +F(512), +N4(32), +N4(2), +Y, 32, 16, None, None, 0], 0),
    "rows are moved, and added with their weights",
    ("_moe_C::shuffle_rows", [Y, N4(4 * T), +ROWS], 0),
    ("_moe_C::moe_permute_with_scratch",
     [Y, PLACED, PLACED, None, 32, 32, 4, +ROWS, +OFFSETS, +PLACED, -PLACED, -U(9), *[-N4(9)] * 3], 0, AT_MOST),
    ("_moe_C::moe_unpermute", [ROWS, CHOSEN, PLACED, PLACED, OFFSETS, 32, 32, 4, +Y], 2 * 4 * T * D),
    ("_moe_C::moe_sum", [B(T, 4, D), +Y, PLACED, None], 4 * T * D),
    ("_moe_C::moe_sum", [B(4, 2, 8), B(4, 8), 1], UNKNOWN),
)  # fmt: skip

CASES = [*PLAIN, *PACKED, *EXPERTS, *ROUTING]

"""Work of the ops of libraries for training, graphs, tables of embeddings and images, by version.

Their numbers are those of torch's ops of the same kind (docs/counting.md); what each argument is, is in the library's
source of that version.
"""

from helpers.work_cases import AT_MOST, E8M0, N4, NAN, ONE, UNKNOWN, UNSAID, B, F, H, I, Q, S, Tensor, U, rows

# Graph networks -------------------------------------------------------------------------------------------------------

SRC, INDEX, OUT, PLACES, SUMS = F(1000, 16), I(1000), F(50, 16), I(50, 16), 1000 * 16
ROWPTR, COL, VALUE = I(41), I(200), F(200)
LEFT, RIGHT = [B(10, 64), B(20, 64)], [B(64, 32), B(64, 32)]
GRAPHS = rows(
    *(row for library in ("torch_scatter", "pyg") for row in (
        "1 a source, to as many rows as an argument says; places of maxima are int64",
        (f"{library}::scatter_sum {library}::scatter_mean {library}::scatter_mul",
         [SRC, INDEX, 0, None, 50], SUMS, OUT),
        (f"{library}::scatter_max", [SRC, INDEX, -2, None, 50], SUMS, OUT, PLACES),
        (f"{library}::scatter_sum", [SRC, INDEX, 0, None, None], SUMS, {"written": NAN}),
        (f"{library}::scatter_sum", [SRC, INDEX, 0, ~OUT, None], SUMS),
        (f"{library}::segment_min_coo", [SRC, INDEX, None, 50], SUMS, OUT, PLACES),
        (f"{library}::gather_coo", [OUT, INDEX, None], 0, SRC))),
    "segments between pointers",
    ("torch_scatter::segment_sum_csr", [SRC, I(11), None], SUMS, F(10, 16), AT_MOST),
    ("torch_scatter::segment_max_csr", [SRC, I(11), None], SUMS, F(10, 16), I(10, 16), AT_MOST),
    ("torch_scatter::segment_mean_csr", [F(3, 1000, 16), I(3, 11), None], 3 * SUMS, F(3, 10, 16), AT_MOST),
    ("torch_scatter::segment_sum_csr", [I(11), I(3, 11), None], ..., {"read": ..., "written": NAN}),
    ("fbgemm::segment_sum_csr", [4, I(11), F(1000)], 1000, F(10, 4)),
    "a multiply-add an entry and column; a row an entry, at most all",
    ("torch_sparse::spmm_sum", [None, ROWPTR, COL, VALUE, None, None, F(6000, 8)[200, 8]], 2 * 200 * 8, F(40, 8)),
    ("torch_sparse::spmm_max", [ROWPTR, COL, None, F(60, 8)], 2 * 200 * 8, F(40, 8), I(40, 8)),
    ("torch_sparse::spmm_sum", [None, ROWPTR, COL, VALUE, None, None, F(3, 60, 8)], UNKNOWN),  # a batch
    "pairs of lists, whose dtypes a trace does not tell",
    ("fbgemm::bf16bf16bf16_grouped", [LEFT, [B(32, 64), B(32, 64)]], 2 * 30 * 64 * 32, B(30, 32)),
    ("pyg::grouped_matmul", [LEFT, RIGHT], 2 * 30 * 64 * 32, {"read": NAN, "written": NAN}),
    ("pyg::grouped_matmul", [LEFT, [B(63, 32), B(63, 32)]], NAN, UNSAID),
    ("pyg::grouped_matmul", [[], []], UNKNOWN),
)  # fmt: skip

# Tables of embeddings -------------------------------------------------------------------------------------------------

GIVEN = [I(300), I(401)]  # 300 indices in 401 - 1 = 4 x 100 bags
QUANTIZED_TABLES = "fbgemm::int_nbit_split_embedding_codegen_lookup_function"
UNWEIGHTED = "fbgemm::split_embedding_codegen_forward_unweighted_cuda"
NOBAG = "fbgemm::split_embedding_nobag_codegen_forward_unweighted_cuda"
BACKWARD = "fbgemm::split_embedding_backward_codegen_{}_unweighted_exact_cuda"
WEIGHTS, OF_TABLES = F(10**6)[300, 64], [-F(0), -F(0), -N4(4), -I(4)]
JAGGED, ENDS = F(500, 32), I(17)
LENGTHS, VALUES = I(40), I(1000)


def _bits(row: int, *widths: int) -> list:
    """Return the first arguments of a lookup in tables of so many numbers of 2, 4, 8, 16 and 32 bits a row."""
    return [U(10**6)[300, row], -U(0), -N4(4), -I(4), -U(4), -N4(5), 256, *widths, *GIVEN]


EMBEDDINGS = rows(
    "rows of the widest type, of 64 numbers with a scale and a bias in half, are pooled",
    (QUANTIZED_TABLES, [*_bits(32 + 4, 0, 64, 0, 0, 0), 0, None, 1], 300 * 64, H(100, 256)),
    (QUANTIZED_TABLES, [*_bits(64 + 4, 0, 0, 64, 0, 0), 0, None, 0], 300 * 64, F(100, 256)),
    (QUANTIZED_TABLES, [*_bits(64 + 4, 0, 0, 64, 0, 0), 2, None, 1], 0, H(300, 64)),
    (QUANTIZED_TABLES, [*_bits(64 + 4, 0, 64, 64, 0, 0), 0, None, 1], 300 * 64, H(100, 256), AT_MOST),
    "a row an index, in the dtype that is asked for",
    (UNWEIGHTED, [WEIGHTS, *OF_TABLES, -N4(5), 256, 64, *GIVEN, 0, -N4(300), 1, False], 300 * 64, H(100, 256)),
    (UNWEIGHTED, [WEIGHTS, *OF_TABLES, -N4(5), 256, 64, *GIVEN, 0, -N4(300), -N4(6), 1, False], 300 * 64, H(100, 256)),
    (NOBAG, [WEIGHTS, *OF_TABLES, 64, I(300), I(301), -N4(300), -N4(6), 1, False], 0, H(300, 64)),
    (NOBAG, [WEIGHTS, *OF_TABLES, 64, I(300), I(301), -N4(300), 1, False], 0, H(300, 64)),
    ("fbgemm::split_embedding_codegen_lookup_sgd_function",
     [-F(0), F(640649648)[768, 128], -F(0), -F(0, 0), -N4(3), -I(3), -N4(4), 384, 128, -I(4), 0, I(768), I(385), 0,
      None], 768 * 128, F(384 // 3, 384)),
    "rows and the optimizer's state of each, at most one an index",
    AT_MOST,
    *((BACKWARD.format(optimizer),
       [F(100, 256), ~F(10**6)[300, state], *OF_TABLES, -N4(5), 64, *mixed, -I(5), 20, *GIVEN, 0, -I(1), 32], 300 * 64)
      for mixed in ([True], []) for optimizer, state in (
        ("sgd", 64), ("rowwise_adagrad", 65), ("adagrad", 128), ("adam", 192))),
    ("fbgemm::split_embedding_nobag_backward_codegen_rowwise_adagrad_unweighted_exact_cuda",
     [F(300, 64), ~F(10**6)[300, 65], *OF_TABLES, 64, -I(5), 20, I(300), I(301), -N4(300), 32], 300 * 64),
    "jagged tensors are padded to their longest",
    ("fbgemm::jagged_2d_to_dense", [JAGGED, ENDS, 100], 0, F(16, 100, 32)),
    ("fbgemm::jagged_to_padded_dense_forward", [JAGGED, [ENDS], [100], 0.0], 0, F(16, 100, 32)),
    ("fbgemm::jagged_to_padded_dense_forward", [JAGGED, [ENDS, ENDS], [100, 3], 0.0], UNKNOWN),
    ("fbgemm::dense_to_jagged_forward", [F(16, 100, 32)[500, 32], [ENDS], 500], 0, JAGGED),
    ("fbgemm::jagged_dense_bmm_forward", [JAGGED, ENDS, F(16, 32, 24), 100], 2 * 500 * 32 * 24, F(500, 24)),
    "features are bucketized with what is asked for",
    ("fbgemm::block_bucketize_sparse_features", [LENGTHS, VALUES, False, False, I(2), 4, None], 0,
     *[LENGTHS] * 4, VALUES),
    ("fbgemm::block_bucketize_sparse_features", [LENGTHS, VALUES, True, True, I(2), 4, F(1000)], 0,
     *[LENGTHS] * 4, *[VALUES] * 3, F(1000)),
    "features are permuted with their weights, as many as an argument says, or at most all",
    ("fbgemm::permute_2D_sparse_data", [N4(4), I(6, 32), VALUES[700], F(1000)[700], 700], 0, I(4, 32), I(700), F(700)),
    ("fbgemm::permute_sparse_data", [N4(4), I(6, 32), VALUES[700], F(1000)[700], 700], 0, I(4, 32), I(700), F(700)),
    ("fbgemm::permute_2D_sparse_data", [N4(2), N4(3, 16), I(96)[50], None, 50], 0, N4(2, 16), I(50)),
    ("fbgemm::permute_2D_sparse_data", [N4(2), N4(3, 16), I(96), F(96), None], 0, N4(2, 16), I(96), F(96), AT_MOST),
    "a scale and a bias end a row of 8 bits in float, of fewer in half; 2 a number",
    ("fbgemm::FloatToFused8BitRowwiseQuantized", [F(7, 64)], 2 * 7 * 64, U(7, 72)),
    ("fbgemm::Fused8BitRowwiseQuantizedToFloat", [U(7, 72)], 0, F(7, 64)),
    ("fbgemm::FloatToFusedNBitRowwiseQuantizedSBHalf", [F(7, 64), 4], 2 * 7 * 64, U(7, 36)),
    ("fbgemm::FusedNBitRowwiseQuantizedSBHalfToFloat", [U(7, 36), 4], 0, F(7, 64)),
    ("fbgemm::quantize_fp8_per_row", [B(7, 64), None, None, None, False], 2 * 7 * 64, Q(7, 64), F(7)),
)  # fmt: skip

# Quantized products ---------------------------------------------------------------------------------------------------

X, GEMM = B(128, 256), 2 * 128 * 256 * 512
E8, SPARSE = [Q(128, 256), U(128, 8)], Tensor("short", (16, 1024))
QUANTIZED = rows(
    *(row for library in ("fbgemm", "mslk") for row in (
        "two names: 2 m n k",
        (f"{library}::f8f8bf16_groupwise", [Q(128, 256), Q(512, 256), ONE, ONE], GEMM, B(128, 512)),
        (f"{library}::f4f4bf16", [U(128, 128), U(512, 128), ONE, ONE, None, ONE], GEMM, B(128, 512)),
        (f"{library}::scatter_add_along_first_dim", [~B(1000, 64)[30, 64], B(30, 64), I(30)], 30 * 64, AT_MOST))),
    ("fbgemm::f8f8bf16_rowwise", [Q(32, 256), Q(512, 256), ONE, ONE, None, True], 2 * 32 * 256 * 512, B(32, 512),
     {"unit": "fp8_tensor"}),
    "packed weights have the shape that an argument says, whatever their dtype: half a byte a number",
    ("bitsandbytes::gemm_4bit", [B(16, 256), U(65536, 1), [512, 256], F(2048), 64, "nf4", *[None] * 4],
     2 * 16 * 512 * 256, B(16, 512)),
    *(("bitsandbytes::dequantize_4bit", [packed, F(2048), 64, "nf4", [512, 256], 15], 512 * 256, B(512, 256))
      for packed in (U(65536, 1), B(32768, 1), F(16384, 1))),
    ("bitsandbytes::dequantize_4bit", [U(4 * 65536, 1), F(9), 64, "nf4", [4, 512, 256], 15], 4 * 512 * 256,
     B(4, 512, 256)),
    ("bitsandbytes::int8_linear_matmul", [S(16, 64), S(32, 64)], 2 * 16 * 32 * 64, F(16, 32)),
    ("bitsandbytes::int8_linear_matmul", [S(8, 256), S(512, 256), +N4(8, 512)], 2 * 8 * 512 * 256),
    ("torchao::marlin_24_gemm", [H(8, 256), N4(8, 1024), SPARSE, H(2, 512), -N4(64), 4, 8, 512, 256],
     2 * 8 * 512 * 256, H(8, 512)),
    "blocks of 32 numbers share a scale of 8 bits; 2 a number",
    ("torchao::triton_to_mxfp8_dim0", [X, 32, "rceil"], 2 * 128 * 256, *E8),
    ("torchao::triton_to_mxfp8_dim0", [B(64, 96), 32, None], 2 * 64 * 96, Q(64, 96), U(64, 3)),
    ("torchao::mxfp8_quantize", [X, True, True, 32, 32, "e4m3", "floor"], 4 * 128 * 256, *E8, *E8),
    ("torchao::triton_mxfp8_dequant_dim0", [*E8, 15, 32], 128 * 256, X),
    "scales are padded to tiles of 128 x 4; of each group, at most a tile more",
    ("torchao::triton_mx_block_rearrange_per_group_3d", [Tensor(E8M0, (4, 200, 6))], 0, U(4, 256, 8)),
    ("torchao::mx_block_rearrange_2d_M_groups", [Tensor(E8M0, (512, 4)), -N4(3), 3], 0, U(512 + 3 * 128, 4), AT_MOST),
)  # fmt: skip

# Transformer Engine ---------------------------------------------------------------------------------------------------

HIDDEN, GAIN = B(2, 64, 256), B(256)
BETWEEN = [  # the weights of an MLP: b, the bias; c, a copy of the weight
    ["b"], ["b", True],  # 2.2, 2.0
    [None, "b"], ["c", "b"],  # 2.15
    [None, "b", True], ["c", "b", True],  # 1.8
    [None, None, "b", True], ["c", "c", "b", True],  # 1.0
    [None], [None, None],  # without a bias: 2.2, 2.15
]  # fmt: skip
LONG, WEIGHT, BIAS, COPY = B(128, 256), B(1024, 256), B(1024), -B(256, 1024)
LINEAR, LINEAR_OUT = 2 * 128 * 256 * 1024, B(128, 1024)
WIDE_Q, WIDE_V, LIMITS = B(1024, 2, 16, 192), B(1024, 2, 16, 128), [-N4(3), -N4(3)]


def _mlp(inner: int, between: list, w1: Tensor) -> list:
    kinds = {"b": B(inner), "c": -w1}
    return [w1, *(kinds.get(each, each) for each in between), B(256, inner), None, None]


ENGINE = rows(
    "two products of 128 rows",
    *(("_LayerNormMLP", [HIDDEN, GAIN, norm, *_mlp(inner, between, B(inner, 256))], 2 * 2 * 128 * 256 * inner, HIDDEN)
      for inner in (1024, 256) for between in BETWEEN for norm in (GAIN, None)),
    *(("_LayerNormMLP", [HIDDEN, GAIN, None, *_mlp(1024, between, B(1024, 99))], UNKNOWN) for between in BETWEEN),
    *(("_LayerNormMLP", [HIDDEN, GAIN, GAIN, WEIGHT, *between, B(256, 512), *after], 2 * 128 * (1024 + 512) * 256,
       B(128, 256)) for between, after in (
        ([BIAS], [None]), ([None, BIAS], [None]), ([-B(1), BIAS, True], []))),  # a gate halves the first
    ("_LayerNormMLP", [HIDDEN, GAIN, GAIN, B(1024, 99), BIAS, B(256, 512), None], UNKNOWN),
    "a product; the weight has copies in some versions",
    ("_LayerNormLinear", [HIDDEN, GAIN, GAIN, WEIGHT, -BIAS, None], LINEAR, LINEAR_OUT),
    *(("_Linear", [WEIGHT, *between, HIDDEN, None], LINEAR, LINEAR_OUT)
      for between in ([], [-WEIGHT], [-WEIGHT, COPY], [None], [None, None])),
    ("_Linear", [WEIGHT, None, HIDDEN, -BIAS], LINEAR, LINEAR_OUT),
    ("_GroupedLinear", [HIDDEN, -I(4), *[None] * 3, *[WEIGHT] * 4, *[None] * 4], LINEAR, LINEAR_OUT),
    *(("_GroupedLinear", [LONG, *before, *[WEIGHT] * 4, *[-BIAS] * 4], LINEAR, LINEAR_OUT)
      for before in ([[32, 32, 32, 32], True, None, False], [], [-I(4)], [-I(4), None, None])),
    *(("_GroupedLinear", [LONG, I(4), *given, *[WEIGHT] * 4], UNKNOWN)  # results that are given look like weights
      for given in ([B(128, 1024), None], [None, LONG], [B(128, 1024), LONG])),
    "fused attention takes the sizes of values too; masks and lengths are unknown",
    AT_MOST,
    *(("FusedAttnFunc", [True, 1024, 1024, *LIMITS, *between, WIDE_Q, WIDE_Q, WIDE_V, None, 0.1],
       2 * 2 * 16 * 1024 * 1024 * (192 + 128), WIDE_V) for between in ([*LIMITS, None, None], [None, None], [])),
    "rows to their experts and back: a product with each probability",
    AT_MOST,
    ("te_moe::permute_index_map", [B(64, 256), N4(64, 2), 128, 0], 0, B(128, 256), N4(64, 2)),
    ("te_moe::unpermute_mask_map_fwd", [B(128, 256), N4(64, 17), None, 64, 8, 256, None], 2 * 128 * 256, B(64, 256)),
    "3 a turned number",
    ("FusedRoPEFunc", [B(512, 2, 16, 128), F(512, 1, 1, 64), None, False], 3 * 512 * 2 * 16 * 64, B(512, 2, 16, 128)),
)  # fmt: skip

# Attention ------------------------------------------------------------------------------------------------------------

QUERY, KEY, LSE, FAR = B(2, 512, 16, 64), B(2, 512, 4, 64), F(2, 16, 512), B(2, 1024, 4, 64)
EACH = 4 * 2 * 16 * 64  # FLOPs a pair
ALL, HALF = EACH * 512 * 512, EACH * 512 * 513 / 2
QKV, FLAT, RESULT = B(2, 512, 3, 16, 64), B(1024, 16, 64), [QUERY, LSE]
CAPPED, MASKED = [None, None, None, 512, 512], [0.0, 0.125, True]  # lengths of xformers; dropout, scale and mask
PAGES, TABLE, BLOCKS = B(99, 64, 4, 64)[2, 512, 4, 64], -N4(2, 8), -N4(2, 32)
STATS, AFTER = [*[QUERY] * 5, LSE], [*LIMITS, 512, 512, *MASKED, -1, -1, -I(2)]
NEW, CACHE, LATER = B(2, 16, 64), B(999, 16, 4, 64)[2, 300, 4, 64], B(5000, 16, 4, 64)[8, 333, 4, 64]
ATTENTION = rows(
    "the mask elsewhere in each version: 4 size a pair",
    *(("FlashAttnFunc", [QUERY, KEY, KEY, *between], flops, *RESULT) for between, flops in (
        (["0.", "0.125", "True", None], HALF), (["0.", "1.", "False", None], ALL),  # version 2
        (["0.125", "True", None, None, None], HALF), (["1.", "False", None], ALL),  # 3
        (["0.125", "True"], HALF),  # 3, its first
        ([None, "True", "0.125"], HALF),  # the kernel in Triton
        ([None, None, None, "True", None], HALF), ([None, None, "0.125", "False", None], ALL))),  # 4
    ("FlashAttnQKVPackedFunc", [QKV, *MASKED], HALF, *RESULT),
    ("FlashAttnQKVPackedFunc", [QKV, 0.125, True, None], HALF, *RESULT),
    ("FlashAttnFunc", [FLAT, FLAT, FLAT], NAN, UNSAID),  # concatenated sequences
    ("FlashAttnFunc", [FLAT, FLAT, FLAT, *LIMITS, 512, 512, *MASKED, False], HALF, UNSAID),  # version 1 of varlen
    ("FlashAttnVarlenFunc", [FLAT, FLAT, FLAT, *LIMITS, None, None, 512, 512, None, True], HALF, UNSAID),
    "sequences of the longest, at most",
    AT_MOST,
    ("FlashAttnVarlenQKVPackedFunc", [B(1024, 3, 16, 64), N4(3), 512, 0.0, 0.125, False], ALL, *RESULT),
    ("FlashAttnFunc", [QUERY, FAR, FAR], 2 * ALL, *RESULT),
    "xformers, by version",
    *((name, [QUERY, QUERY, QUERY, *arguments], HALF, *RESULT) for name, *arguments in (
        ("xformers_flash::flash_fwd", *CAPPED, *MASKED, -1, -1, True),
        ("xformers_flash::flash_fwd", *CAPPED, *MASKED, -1, -1, True, None),
        ("xformers_flash3::flash_fwd", *CAPPED, *MASKED),
        ("xformers_flash3::flash_fwd", *CAPPED, *MASKED, -1, -1, *[None] * 4, False),
        ("xformers_flash3::flash_fwd", None, *CAPPED, *MASKED, *[None] * 4, False, -1, -1),
        ("mslk_flash::flash_fwd", *CAPPED, *MASKED, -1, -1, True, None),
        ("mslk_flash3::flash_fwd", None, *CAPPED, *MASKED, *[None] * 4, False, -1, -1))),
    ("xformers_flash::flash_bwd", [*STATS, *[+QUERY] * 3, *AFTER], 2.5 * HALF),
    ("xformers_flash::flash_bwd", [True, *STATS, *AFTER], 2.5 * HALF, *[QUERY] * 3),
    ("xformers_flash3::flash_bwd", [True, *STATS, *AFTER[:4], 0.125, True], 2.5 * HALF, *[QUERY] * 3),
    ("xformers_flash3::flash_bwd", [True, *STATS, *AFTER[:4], 0.125, True, -1, -1], 2.5 * HALF, *[QUERY] * 3),
    ("xformers::efficient_attention_backward_ck",
     [*[QUERY] * 4, *[None] * 6, LSE, QUERY, 0.0, 0, 0, 2, 0.125, None], 2.5 * HALF, *[QUERY] * 3),
    "pages: at most those of the longest sequence",
    {"written": ..., **AT_MOST},
    *((name, [QUERY, PAGES, PAGES, *arguments, TABLE], HALF) for name, *arguments in (
        ("xformers_flash::flash_fwd", *CAPPED, *MASKED, -1, -1, True),
        ("xformers_flash3::flash_fwd", *CAPPED, *MASKED, -1, -1, None, None, None),
        ("xformers_flash3::flash_fwd", None, *CAPPED, *MASKED, None, None, None))),
    ("flash_attn::_flash_attn_varlen_forward",
     [B(8, 16, 64), LATER, LATER, -N4(9), -N4(9), 1, 333, 0.0, 0.1, True, -1, -1, 0.0, None, False, -N4(8, 100)],
     4 * 8 * 16 * 64 * 333),
    ("_vllm_fa2_C::varlen_fwd",
     [NEW, CACHE, CACHE, -NEW, *LIMITS, -N4(2), None, BLOCKS, None, 1, 300, 0.0, 0.125, False, True, -1, -1, 0.0, False,
      0], EACH * 300),
    *(("_vllm_fa3_C::fwd",
       [NEW, CACHE, CACHE, None, None, None, -NEW, LIMITS[0], None, None, None, -N4(2), 1, 300, BLOCKS, *between, True,
        -1, -1, 0.0], EACH * 300) for between in ([*[None] * 8, 0.125], [*[None] * 9, 1.0])),
)  # fmt: skip

# Norms, losses, scans -------------------------------------------------------------------------------------------------

Y, YW, RESIDUAL, GATED = B(64, 256), F(256), F(64, 256), B(64, 512)
FLAGS, ROPE, HEADS = [1e-05, True, True, False], B(2, 512, 16, 64), B(512, 2, 16, 128)
CONV, CONV_W, STEP, CONVOLVED = B(2, 512, 128), B(512, 4), B(8, 512), 2 * 2 * 512 * 128 * 4
CHUNKS = [B(2, 512, 8, 64), B(2, 512, 8), F(8), B(2, 512, 2, 128), B(2, 512, 2, 128)]  # x, dt, heads, B, C
WITHIN = 2 * (2 * 512 // 64) * 64 * 64 * (2 * 128 + 8 * 64)  # C with B, and that with x, in chunks of 64
SCAN = WITHIN + 2 * 2 * 2 * 512 * 8 * 64 * 128  # x with B, states with C
MIXED = 8 * 64 + 2 * 2 * 128  # channels of x, B and C
FUNCTIONS = rows(
    "layer norms: 7 with a weight and a bias, 6 with one; a residual is added, 1, and kept; a gate is only read",
    ("LayerNormFn", [Y, B(256), None, RESIDUAL, *FLAGS], ..., Y, RESIDUAL),
    ("LayerNormFn", [Y, B(256), None, Y, 1e-05, None, True, True], ..., Y, {"read": ...}),
    ("LayerNormFn", [Y, B(256), B(256), RESIDUAL, Y, B(256), B(256), 1e-05, 0.0, None, True, True, True, False], ...,
     Y, Y, RESIDUAL, {"read": ...}),  # two norms of the sum
    ("LayerNormFn", [Y, B(256), None, None, *FLAGS], ..., Y, RESIDUAL, AT_MOST),  # a sum in float32 is asked for
    ("FusedLayerNormAffineMixedDtypesFunction", [Y, YW, YW, None, 1e-05, False], 7 * 64 * 256, RESIDUAL),
    ("apex::fused_rms_norm_affine_bwd", [Y, F(64), Y, [256], B(256), 1e-05, False], 9 * 64 * 256, Y, B(256)),
    ("LigerRMSNormFunction", [GATED, B(512)], 4 * 64 * 512, GATED, {"written": ...}),  # a record of tensors alone
    "products and activations",
    ("FusedDenseFunc", [Y, B(512, 256), B(512)], 2 * 64 * 256 * 512, GATED),
    ("LigerFusedGateUpSiLUMulFunction", [GATED, False], 2 * 64 * 256, Y),
    ("LigerEmbeddingFunction", [F(32000, 256)[64, 256], I(64)], 0, RESIDUAL),
    ("LigerFusedMoEFunction", [B(512, 256), B(8, 1024, 256), B(8, 256, 512), I(512, 2), F(512, 2)],
     6 * 512 * 2 * 256 * 512, B(512, 256)),
    ("Fast_CrossEntropyLoss", [B(64, 32000), I(64), 0, 0], ..., F(64), F(64)),
    "3 a turned number; half a row of both tables for each position",
    ("Fast_RoPE_Embedding", [~ROPE, B(32768, 64)[512, 32], B(32768, 64)[512, 32]], 3 * 2 * 512 * 16 * 64),
    ("ApplyRotaryEmb", [HEADS, B(512, 32), B(512, 32), False, False], 3 * 512 * 2 * 16 * 64, HEADS),
    "scans: 9 an element of the state; convolutions of 4",
    ("SelectiveScanFn", [CONV, CONV, F(512, 16), B(2, 16, 128), B(2, 16, 128), F(512), CONV], 9 * 2 * 512 * 128 * 16,
     CONV),
    ("DaoAILab::_causal_conv1d_fwd_cpp", [CONV, CONV_W, B(512), None, None, +CONV, None, True], CONVOLVED),
    ("CausalConv1dFn", [CONV, CONV_W, None, True], CONVOLVED, CONV),
    ("DaoAILab::_causal_conv1d_update_cpp",
     [STEP, ~B(10000, 512, 4)[8, 512, 4], CONV_W, None, +STEP, True, None, N4(8)], 2 * 8 * 512 * 4),
    "scans in chunks: products within and between them",
    AT_MOST,
    ("MambaChunkScanCombinedFn", [*CHUNKS, 64, None, None], SCAN, B(2, 512, 8, 64)),
    ("MambaSplitConv1dScanCombinedFn",
     [B(2, 512, MIXED + 8 * 64 + 8), -B(MIXED, 4), None, F(8), F(8), F(8), 64, None, None, None, False, None, 1e-05,
      None, None, 64, 2, True], SCAN, B(2, 512, 8, 64)),
)  # fmt: skip

# Images ---------------------------------------------------------------------------------------------------------------

PICTURE, ROIS, POOL, CHOICE = F(2, 8, 160, 160), F(300, 5), F(300, 8, 7, 7), N4(300, 8, 7, 7)
SCALE, SHAPE, STRIDES = [0.25, 7, 7], [2, 8, 160, 160], [1, 1, 0, 0, 1, 1, 2, 2]
TAPS, SAMPLES = 300 * 8 * 49, 8 * 300 * 8 * 49 * 4
IMAGE, KERNEL, SHIFTS, MASK = F(2, 8, 16, 16), F(6, 4, 3, 3), F(2, 36, 14, 14), F(2, 18, 14, 14)
COLUMNS = F(2 * 14 * 14 * 8 * 9)  # of the 8 channels, whatever the groups
DEFORMED, TWICE = [F(2, 6, 14, 14), -KERNEL, -F(6)], {"written": [COLUMNS, IMAGE, SHIFTS]}
BOXES = (640 * 640 + 640 * 63) // 8  # a bit for each pair, of whole words
VISION = rows(
    "a region of an image is sampled at 4 points a result, of 4 neighbours each",
    AT_MOST,
    ("torchvision::roi_align", [F(1, 256, 200, 200), F(100, 5), 0.25, 7, 7, 2, True], 8 * 100 * 256 * 49 * 4,
     F(100, 256, 49)),
    ("torchvision::roi_align", [PICTURE, ROIS, *SCALE, 2, True], SAMPLES, POOL),
    ("torchvision::roi_align", [PICTURE, ROIS, *SCALE, 0, True], NAN, POOL),  # as many as the region is large
    ("torchvision::roi_align", [PICTURE, ROIS, *SCALE, -1, True], NAN, POOL),
    ("torchvision::ps_roi_align", [F(2, 98, 160, 160)[300 * 2 * 49 * 4, 4], ROIS, *SCALE, 2], 8 * 300 * 2 * 49 * 4,
     F(300, 2, 49), N4(300, 2, 49)),
    ("torchvision::ps_roi_align", [F(2, 98, 160, 160), ROIS, *SCALE, 0], NAN, F(300, 2, 49), N4(300, 2, 49)),
    "gradients add to the image, those of pools an element each",
    AT_MOST,
    *(("torchvision::_roi_align_backward", [POOL, ROIS, *SCALE, *SHAPE, ratio, True], flops, PICTURE,
       {"read": [POOL, ROIS, PICTURE]}) for ratio, flops in ((2, SAMPLES), (0, NAN), (-1, NAN))),
    ("torchvision::_roi_pool_backward", [POOL, ROIS, CHOICE, *SCALE, *SHAPE], TAPS, POOL,
     {"read": [POOL, ROIS, CHOICE, POOL]}),
    ("torchvision::_ps_roi_pool_backward", [POOL, ROIS, CHOICE, *SCALE, *SHAPE], NAN, PICTURE, {"read": ...}),
    ("torchvision::_roi_pool_backward", [POOL, ROIS, N4(1, 8, 7, 7), *SCALE, *SHAPE], UNKNOWN, {"at_most": False}),
    "12 a pair of boxes, whose bits are written and read",
    ("torchvision::nms", [F(640, 4), -F(640), 0.5], 12 * 640 * 639 / 2, U(BOXES),
     {"read": [F(640, 4), U(BOXES)], **AT_MOST}),
    "columns of 9 FLOPs a number, apart from their products",
    ("torchvision::deform_conv2d", [IMAGE, -KERNEL, SHIFTS, MASK, -F(6), *STRIDES, True], 9 * 28224, COLUMNS),
    ("torchvision::deform_conv2d", [IMAGE, -KERNEL, SHIFTS, -F(2, 1), -F(6), *STRIDES, False], 9 * 28224, COLUMNS),
    *(("torchvision::_deform_conv2d_backward",
       [F(2, 6, 14, 14), IMAGE, KERNEL, SHIFTS, mask, F(6), *STRIDES, bool(used)], NAN,
       {"read": [*[IMAGE] * 2, *[SHIFTS] * 3, *used * 3, *[COLUMNS] * 2], "written": [COLUMNS, IMAGE, SHIFTS, *used]})
      for mask, used in ((MASK, [MASK]), (F(2, 1), []))),
)  # fmt: skip

PART, WHOLE = B(1024), B(4096)
EXCHANGES = rows(
    "what this device holds is read, what it gets is written",
    ("_c10d_functional::reduce_scatter_tensor_out", [WHOLE, "sum", 4, 0, +PART], NAN),
    ("symm_mem::multimem_one_shot_reduce_out", [WHOLE, "sum", 0, 0, +PART], NAN),
    ("symm_mem::tile_reduce", [WHOLE, +PART, 0, 0, "sum"], NAN),
    ("symm_mem::nvshmem_all_to_all", [WHOLE, +PART, 0], 0),
    ("_c10d_functional::isend", [PART, 1, 0, 0], 0),
    ("_c10d_functional::irecv", [+PART, 1, 0, 0], 0),
    ("symm_mem::all_to_all_vdev", [WHOLE, +WHOLE, I(4), +I(2, 4), 0], 0, {"read": ..., "written": ..., **AT_MOST}),
)

MEGATRON = "LinearWithGradAccumulationAndAsyncCommunication"
GRADIENTS = [  # by the forward pass: the Function, its arguments, FLOPs, bytes moved
    ("_Linear", [B(1024, 256), B(512, 256), ""], 2 * 2 * 512 * 256 * 1024,
     2 * (1024 * 256 + 512 * 256) * 2 + 512 * 1024 * 2),  # both read and their gradients written; the incoming one
    ("LigerRMSNormFunction", [B(512, 256), B(256), ""], 9 * 512 * 256, 2 * (3 * 512 * 256 + 2 * 256)),
    ("LigerRMSNormFunction", [B(512, 256), ""], NAN, ...),
    ("FusedAttnFunc", [True, 1024, 1024, *LIMITS, None, None, WIDE_Q, WIDE_Q, WIDE_V, None],
     2 * 2 * 16 * 1024 * 1024 * (3 * 192 + 2 * 128), ...),  # the scores again; of queries and keys; of values
    ("FlashAttnFunc", [QUERY, FAR, FAR], 2.5 * 2 * ALL, 4 * QUERY.bytes + 4 * FAR.bytes + LSE.bytes),
    ("FlashAttnQKVPackedFunc", [QKV, *MASKED], 2.5 * HALF, 2 * QKV.bytes + 2 * QUERY.bytes + LSE.bytes),
    # The product that is added to a float32 gradient has no op; without fusion, both products are ops inside.
    (MEGATRON, [B(512, 256), B(1024, 256), None, True, False, False], 2 * 512 * 1024 * 256, ...),
    (MEGATRON, [B(512, 256), B(1024, 256), None, False, False, False], NAN, ...),
]  # fmt: skip

CASES = [*GRAPHS, *EMBEDDINGS, *QUANTIZED, *ENGINE, *ATTENTION, *FUNCTIONS, *VISION, *EXCHANGES]

"""Work of torch's products, convolutions, attention, recurrent cells, transforms and factorisations.

A multiply-add is 2 FLOPs, of complex numbers 8. Operands are read once, the result is written (docs/counting.md).
"""

from helpers.work_cases import AT_MOST, BF16, FLOAT, N4, NAN, UNKNOWN, UNSAID, B, C, F, H, I, Q, S, Tensor, rows

FLOPS = 2 * 64 * 48 * 80


def _products(dtype: str, unit: str) -> tuple:
    def T(*shape: int) -> Tensor:
        return Tensor(dtype, shape)

    a, b, row, left, right, added = T(64, 48), T(48, 80), T(80), T(5, 64, 48), T(5, 48, 80), T(64, 80)
    return (
        "2 m n k, and what is added is read",
        {"unit": unit},
        ("aten::mm aten::matmul", [a, b], FLOPS, added),
        ("aten::addmm", [row, a, b, 1, 1], FLOPS, added),
        ("aten::addmm", [-row, a, b, 0, 1], FLOPS, added),  # beta is 0
        ("aten::_addmm_activation", [row, a, b, 1, 1, False], FLOPS, added),
        ("aten::bmm", [left, right], 5 * FLOPS, T(5, 64, 80)),
        ("aten::baddbmm", [added, left, right, 1, 1], 5 * FLOPS, T(5, 64, 80)),
        ("aten::addbmm", [added, left, right, 1, 1], 5 * FLOPS, added),
        ("aten::linear", [T(7, 64, 48), T(80, 48), row], 7 * FLOPS, T(7, 64, 80)),
        ("aten::mm", [a, b, 6], FLOPS, F(64, 80)),  # some versions have the dtype of the result
        ("aten::addmm", [row, a, b, 6, 1, 1], FLOPS, F(64, 80)),
    )


A, V, W = F(64, 48), F(48), F(64)
X8, W8, META = Q(64, 48), Q(48, 80), Tensor("short", (64, 3))
PACKED, FOUR_BITS, ROWS = B(7, 64, 256), N4(12, 2, 32, 4), 2 * 7 * 64 * 256 * 96
MATRICES = rows(
    *_products(FLOAT, "fp32"),
    *_products(BF16, "bf16_tensor"),
    "vectors are rows and columns",
    ("aten::mv", [A, V], 2 * 64 * 48, W),
    ("aten::addmv", [W, A, V, 1, 1], 2 * 64 * 48, W),
    ("aten::matmul", [W, A], 2 * 64 * 48, V),
    ("aten::dot", [V, V], 2 * 48, F()),
    ("aten::ger", [W, V], 64 * 48, A),
    ("aten::addr", [A, W, V, 1, 1], 2 * 64 * 48, A),
    "the result has the dtype asked for, or that of the factors",
    {"unit": "fp8_tensor"},
    ("aten::_scaled_mm", [X8, W8, -F(), -F(), None, None, 15, False], FLOPS, B(64, 80)),
    ("aten::_scaled_mm", [X8, W8, None, 15, -F(), -F(), None, False], FLOPS, B(64, 80)),
    ("aten::_scaled_mm", [X8, W8, -F(), -F()], FLOPS, Q(64, 80)),
    ("aten::_int_mm", [S(64, 48), S(48, 80)], FLOPS, N4(64, 80), {"unit": "int8_tensor"}),
    "each row with one of the matrices, at most all of which are read; of batches each with its own",
    ("aten::_grouped_mm", [B(512, 256), B(4, 256, 128), N4(4), None, None], 2 * 512 * 256 * 128, B(512, 128), AT_MOST),
    ("aten::_grouped_mm", [B(4, 512, 256), B(4, 256, 128), None, None, None], 8 * 512 * 256 * 128, B(4, 512, 128)),
    "packed weights have as many outputs as scales",
    ("aten::_weight_int8pack_mm", [PACKED, S(96, 256), B(96)], ROWS, B(7, 64, 96)),
    ("aten::_weight_int4pack_mm", [PACKED, FOUR_BITS, 128, B(2, 96, 2)], ROWS, B(7, 64, 96)),
    "2 of 4 elements are kept and multiplied; with their places, 16 take the room of 9, of int8 of 10",
    ("aten::_cslt_sparse_mm", [H(64 * 48 * 9 // 16), H(48, 80)], FLOPS / 2, H(64, 80)),
    ("aten::_cslt_sparse_mm", [S(64 * 48 * 10 // 16), S(48, 80), None, None, 3, True], FLOPS / 2, N4(64, 80),
     {"unit": "int8_tensor"}),
    ("aten::_sparse_semi_structured_linear", [B(5, 64, 48), B(80, 24), META, B(80), None, None], 5 * FLOPS / 2,
     B(5, 64, 80)),
    ("aten::_sparse_semi_structured_mm", [S(64, 24), N4(64, 2), S(48, 80), 3], FLOPS / 2, N4(64, 80)),
    ("aten::_sparse_semi_structured_addmm", [B(64), B(64, 24), META, B(48, 80), 1, 1, None], FLOPS / 2,
     B(64, 80)),
    ("aten::_sparse_semi_structured_mm", [B(64, 48), META, B(48, 80)], UNKNOWN),  # not halved
    "9 rows, 4 outputs: the first input times the weight, that times the second",
    ("aten::bilinear", [F(3, 3, 5), F(3, 3, 7), F(4, 5, 7), F(4)], 2 * 9 * 4 * 7 * (5 + 1), F(3, 3, 4)),
    ("aten::bilinear", [F(3, 5), F(3, 7), F(4, 7, 5)], UNKNOWN),
    "no work: sizes do not fit, or are not there",
    ("aten::mm aten::cudnn_convolution", [F(3, 4), F(5, 6)], UNKNOWN),
    ("aten::mm", [F(3, 4)], UNKNOWN),
    ("aten::mm", [], UNKNOWN),
    ("aten::_cudnn_attention_forward", [F(3), None, None], UNKNOWN),
    ("aten::_cudnn_attention_backward", [*[F(8, 8)] * 11, 1, 1, 1, False, 1], NAN, UNSAID),  # on offsets
)  # fmt: skip

IMAGE, KERNEL, OUT = B(64, 128, 56, 56), B(256, 128, 3, 3), B(64, 256, 56, 56)
CONVOLVED, DEPTHWISE = 2 * 64 * 256 * 56 * 56 * 128 * 9, B(128, 1, 3, 3)
Z, J, T, TAIL = [0, 0], [1, 1], [2, 2], [False, [0, 0], 1]
CUDNN = [IMAGE, KERNEL, J, J, J, 1, False, False, True]
SMALL, FEW = F(2, 4, 9, 9), F(6, 4, 3, 3)
GRADIENT, GIVEN, FILTERS = F(8, 64, 28, 28), F(8, 32, 28, 28), F(64, 32, 3, 3)
PASS = 2 * 8 * 64 * 28 * 28 * 32 * 9
POINTS, POINTWISE, SKIPPED = B(8, 64, 56, 56)[8, 64, 28, 28], B(128, 64, 1, 1), B(8, 128, 28, 28)
AT = [[64], J, J, J, *TAIL]
CONVOLUTIONS = rows(
    "each kernel at each position: 2 n k p q c r s",
    ("aten::cudnn_convolution", CUDNN, CONVOLVED, OUT),
    ("aten::convolution", [IMAGE, KERNEL, None, J, J, J, *TAIL], CONVOLVED, OUT),
    ("aten::conv2d", [IMAGE, KERNEL, None, J, "same", J, 1], CONVOLVED, OUT),
    ("aten::convolution", [IMAGE, KERNEL, B(256), T, J, J, *TAIL], CONVOLVED / 4, B(64, 256, 28, 28)),
    ("aten::convolution", [IMAGE, KERNEL, None, J, Z, T, *TAIL], CONVOLVED / 56**2 * 52**2, B(64, 256, 52, 52)),
    ("aten::convolution", [IMAGE, DEPTHWISE, None, J, J, J, False, Z, 128], 2 * 64 * 128 * 56 * 56 * 9, IMAGE),
    "transposed: a kernel at each input; (100 - 1) 2 - 2 + 5 - 1 + 1 + 1 = 202 outputs of 2 x 16 channels",
    ("aten::convolution", [F(8, 32, 100), F(32, 16, 5), None, [2], [1], [1], True, [1], 2],
     2 * 8 * 32 * 100 * 16 * 5, F(8, 32, 202)),
    "a gradient each of the mask: of the input, of the weight, of the bias",
    ("aten::convolution_backward", [GRADIENT, GIVEN, FILTERS, *AT, [True] * 3], 2 * PASS, GIVEN, FILTERS, F(64)),
    ("aten::convolution_backward", [GRADIENT, GIVEN, -FILTERS, *AT, [False, True, False]], PASS, FILTERS),
    ("aten::convolution_backward", [GRADIENT, -GIVEN, FILTERS, *AT, [True, False, False]], PASS, GIVEN),
    ("aten::convolution_backward", [GRADIENT, -GIVEN, -FILTERS, *AT, [False, False, True]], 0, F(64)),
    "a stride wider than the kernel skips inputs: a quarter is read",
    ("aten::convolution", [POINTS, POINTWISE, None, T, Z, J, *TAIL], 2 * 8 * 128 * 28 * 28 * 64, SKIPPED),
    ("aten::convolution_backward", [SKIPPED, POINTS, -POINTWISE, None, T, Z, J, *TAIL, [False, True, False]],
     2 * 8 * 128 * 28 * 28 * 64, POINTWISE),
    "a flag is not recorded: values, or texts such as 'same'",
    ("aten::conv2d", [SMALL, FEW, None, J, None, J, 1], NAN, {"written": NAN}),
    ("aten::cudnn_convolution", [SMALL, FEW, *[""] * 6], NAN, {"written": NAN}),
)  # fmt: skip


def causal(rows: int, columns: int) -> int:
    """Count the pairs under a mask that begins at the first query and key."""
    return sum(min(row + 1, columns) for row in range(rows))


def windowed(rows: int, columns: int, before: int, after: int) -> int:
    """Count the pairs of a query and a key in its window, one by one; queries and keys end together."""
    pairs = 0
    for row in range(rows):
        here = row + columns - rows
        first = here - before if before >= 0 else 0
        last = here + after if after >= 0 else columns - 1
        pairs += len(range(max(first, 0), min(last, columns - 1) + 1))
    return pairs


QUERY, LSE = B(8, 16, 4096, 128), F(8, 16, 4096)
FULL = 2 * 8 * 16 * 4096 * 4096 * (128 + 128)
HALF = FULL * (4096 + 1) / 2 / 4096  # the pairs on and below the diagonal
LONGER, GROUPED, STATES = B(8, 16, 8192, 128), B(8, 2, 4096, 128), B(2, 4, 64, 32)
SDPA = "aten::_scaled_dot_product"
UNEVEN, PACKS, ENDS = B(5 * 4096, 16, 128), B(8 * 4096, 16, 128), -N4(9)


def _masked(queries: int, keys: int) -> tuple:
    """Return the rows of ops whose mask begins at the first query and key, but one, from the last."""
    q, k, lse = F(4, 8, queries, 64), F(4, 8, keys, 64), F(4, 8, queries)
    p, r, tail = F(4, queries, 8, 64), F(4, keys, 8, 64), [True, *[None] * 3]
    flops, last = (4 * 4 * 8 * pairs * 64 for pairs in (causal(queries, keys), windowed(queries, keys, -1, 0)))
    return (
        ("aten::scaled_dot_product_attention", [q, k, k, None, 0.0, True, None, False], flops, q),
        (f"{SDPA}_attention_math", [q, k, k, None, 0.0, True, None, None, False], flops, q),
        (f"{SDPA}_flash_attention_for_cpu", [q, k, k, 0.0, True, None, None], flops, q, lse),
        (f"{SDPA}_flash_attention_for_cpu_backward", [q, q, k, k, q, lse, 0.0, True, None, None], 2.5 * flops, q, k, k),
        (f"{SDPA}_efficient_attention", [q, k, k, None, True, 0.0, True, None], flops, q, lse),
        (f"{SDPA}_cudnn_attention", [q, k, k, None, True, 0.0, True, False, None], flops, q, lse),
        ("aten::_efficient_attention_forward", [p, r, r, *[None] * 5, 0.0, 1, *tail], flops, p, lse),
        ("aten::_efficient_attention_forward", [p, r, r, *[None] * 5, 0.0, 2, *tail], last, p, lse),
    )


def _windows(queries: int, keys: int, *window: int) -> tuple:
    q, k, lse = B(2, queries, 4, 32), B(2, keys, 1, 32), F(2, 4, queries)
    flops, none = 2 * 2 * 2 * 4 * 32 * windowed(queries, keys, *window), [None, None]
    of_torch = [q, k, k, *none, queries, keys, 0.0, False, False, None, *window]
    return (
        ("aten::_flash_attention_forward", of_torch, flops, q, lse),
        ("flash_attn::_flash_attn_forward", [q, k, k, 0.0, 0.1, False, *window, 0.0, None, False], flops, q, lse),
    )


def _flash(mask: bool) -> tuple:
    """Return the rows of flash attention's own names, with and without a causal mask."""
    q, once, rest, ends = B(8, 4096, 16, 128), HALF if mask else FULL, [mask, -1, -1], [ENDS, ENDS, 4096, 4096]
    three, five = [q, q, q], [*[q] * 5, LSE]
    packs = [PACKS, PACKS, PACKS]
    return (
        ("flash_attn::_flash_attn_forward", [*three, 0.0, 0.08, *rest], once, q, LSE),
        ("flashattn::_flash_attn_varlen_forward", [*packs, *ends, 0.0, 0.08, mask], once, q, LSE),
        ("flash_attn_3::_flash_attn_forward", [*three, *[None] * 20, 0.08, *rest], once, q, LSE),
        ("flash_attn::_flash_attn_backward", [*five, *[+q] * 3, 0.0, 0.08, *rest], 2.5 * once),
        ("flash_attn_3::_flash_attn_backward", [*five, *[None] * 6, *[+q] * 3, 0.08, *rest], 2.5 * once),
        ("flash_attn::_flash_attn_varlen_backward",
         [*[PACKS] * 5, LSE, *[+PACKS] * 3, *ends, 0.0, 0.08, mask], 2.5 * once),
    )  # fmt: skip


def _places(mask: bool) -> tuple:
    """Return the rows of versions with the mask elsewhere: torch 2.0 had no bias, torch 2.13 can take scales first."""
    states, lse, flops = [STATES] * 3, F(2, 4, 64), 4 * 2 * 4 * (64 * 65 / 2 if mask else 64 * 64) * 32
    return (
        (f"{SDPA}_efficient_attention", [*states, True, mask], flops, STATES, lse),
        (f"{SDPA}_efficient_attention", [*states, None, False, 0.0, mask, None], flops, STATES),
        (f"{SDPA}_flash_attention", [*states, *[-F(2, 4)] * 3, 0.0, mask, False, None], flops, STATES, lse),
    )


ATTENTION = rows(
    "two products, 2 b h s t (d + e), five backward; a causal mask ends at the last key",
    (f"{SDPA}_flash_attention", [*[QUERY] * 3, 0.0, False, False, None], FULL, QUERY, LSE),
    (f"{SDPA}_flash_attention", [*[QUERY] * 3, 0.0, True, False, None], HALF, QUERY, LSE),
    (f"{SDPA}_flash_attention", [QUERY, LONGER, LONGER, 0.0, True, False, None],
     4 * 8 * 16 * (4096 * 8192 - 4096 * 4095 / 2) * 128, QUERY, LSE),
    (f"{SDPA}_flash_attention", [QUERY, GROUPED, GROUPED, 0.0, False, False, None], FULL, QUERY, LSE),
    (f"{SDPA}_flash_attention", [*[QUERY] * 3, *[""] * 4], NAN, QUERY, LSE),  # no flag is recorded
    ("aten::_cudnn_attention_backward", [*[QUERY] * 5, LSE, *[None] * 5, 4096, 4096, 0.0, False], 2.5 * FULL,
     *[QUERY] * 3),
    ("aten::_flash_attention_forward", [*[PACKS] * 3, ENDS, ENDS, 4096, 4096, 0.0, False, False], FULL, PACKS, LSE),
    "a sum over sequences is at most a total times the longest: 5 of 4096",
    ("aten::_flash_attention_forward", [*[UNEVEN] * 3, ENDS, ENDS, 4096, 4096, 0.0, False, False], FULL * 5 / 8,
     {"written": ..., **AT_MOST}),
    "4 size an unmasked pair; 2.5 times backward",
    *(row for sizes in ((128, 256), (256, 128), (64, 64), (1, 7)) for row in _masked(*sizes)),
    *(row for sizes in ((64, 64), (40, 96), (96, 40)) for window in ((16, 0), (16, 8), (0, 0), (-1, 8), (16, -1),
      (500, 500)) for row in _windows(*sizes, *window)),
    *(row for mask in (True, False) for row in (*_flash(mask), *_places(mask))),
)  # fmt: skip

# Tensor-core FLOPs of single ops on an H200, by Nsight Compute: sm__ops_path_tensor_src_bf16_dst_fp32.sum
COUNTED = [
    ("aten::mm", [B(8192, 8192)] * 2, 1099511627776),
    ("aten::cudnn_convolution", CUDNN, 118380036096),
    (f"{SDPA}_flash_attention", [*[QUERY] * 3, 0.0, True, False, None], 566935683072),
    (f"{SDPA}_flash_attention", [*[QUERY] * 3, 0.0, False, False, None], 1099511627776),
]

CELLS, STATE, FOUR, THREE, BIAS4, BIAS3 = 20 * 64, F(20, 64), F(20, 256), F(20, 192), F(256), F(192)
LAYER = [F(5, 3, 16), F(128, 16), F(128, 32), F(128), F(128), F(3, 32), F(3, 32)]
STEPS, PROJECTED = 2 * 5 * 3 * 128 * (16 + 32), [F(128, 16), F(128, 8), F(128), F(128), F(8, 32)]
RECURRENT = rows(
    "LSTM: i, f, g, o = function(a + b); c' = f c + i g; h' = o tanh(c'), and 8 for biases",
    ("aten::_thnn_fused_lstm_cell", [FOUR, FOUR, STATE, None, None], 13 * CELLS, FOUR, STATE, STATE),
    ("aten::_thnn_fused_lstm_cell", [FOUR, FOUR, STATE, BIAS4, BIAS4], 21 * CELLS, FOUR, STATE, STATE),
    ("aten::_thnn_fused_lstm_cell_backward_impl", [STATE, None, STATE, STATE, FOUR, True], 23 * CELLS, FOUR, STATE),
    "GRU: r, z = function(a + b); n = tanh(a + r b); h' = n + z (h - n), and 6 for biases",
    ("aten::_thnn_fused_gru_cell", [THREE, THREE, STATE, BIAS3, BIAS3], 16 * CELLS, F(20, 320), STATE),
    ("aten::_thnn_fused_gru_cell_backward", [STATE, F(20, 320), True], 16 * CELLS, THREE, THREE, STATE),
    "one layer of one direction: both matrices each step",
    ("aten::mkldnn_rnn_layer", [*LAYER, False], STEPS, F(5 + 2, 3, 32)),
    ("aten::mkldnn_rnn_layer_backward", [*LAYER, F(5, 3, 32), F(3, 32), F(3, 32), F(5, 3, 32), None, None], 2 * STEPS,
     *LAYER, {"read": [*LAYER, F(2 * 5 + 2, 3, 32)]}),
    "each matrix at each of the steps: 4 gates of 32 from 16 and from the state",
    ("aten::lstm", [F(5, 3, 16), [F(2, 3, 8), F(2, 3, 32)], PROJECTED * 2, True, 1, 0.0, False, True, False],
     2 * 2 * 15 * (128 * (16 + 8) + 8 * 32), F(5, 3, 16), F(2, 3, 8), F(2, 3, 32)),
    ("aten::lstm", [F(15, 16), -I(5), [F(1, 3, 32)] * 2, LAYER[1:5], True, 1, 0.0, False, False], STEPS, F(15, 32),
     F(1, 3, 32), F(1, 3, 32)),
    ("aten::gru", [F(5, 3, 16), F(1, 3, 32), [F(96, 16), F(96, 32)], False, 1, 0.0, False, False, False],
     STEPS * 3 / 4, F(5, 3, 32), F(1, 3, 32)),
    ("aten::rnn_relu", [F(5, 3, 16), F(1, 3, 32), [F(32, 16), F(32, 32)], False, 1, 0.0, False, None, False], STEPS / 4,
     {"written": NAN}),
    ("aten::lstm_cell", [F(3, 16), [F(3, 32)] * 2, *LAYER[1:5]], STEPS / 5, F(3, 32), F(3, 32)),
    ("aten::gru_cell", [F(16), F(32), F(96, 16), F(96, 32)], STEPS / 20, F(32)),
    ("aten::lstm", [F(5, 3, 16)], UNKNOWN),
)  # fmt: skip

CUBE = 400**3
BATCH, RIGHT, TRIANGLE = F(3, 50, 50), F(3, 50, 7), 3 * 50 * 50 * 7
SQUARES, TALL = F(3, 400, 400), F(3, 60, 40)
SOLVERS = rows(
    "transforms: 5 n log2 n of n complex points, half of it of real ones (benchFFT)",
    ("aten::_fft_c2c", [C(6, 64), [1], 0, True], 6 * 5 * 64 * 6, C(6, 64)),
    ("aten::_fft_c2c", [C(6, 32, 64), [1, -1], 0, True], 6 * 5 * 32 * 64 * 11, C(6, 32, 64)),
    ("aten::_fft_r2c", [F(6, 64), [1], 0, True], 6 * 2.5 * 64 * 6, C(6, 33)),
    ("aten::_fft_r2c", [F(6, 64), [1], 0, False], 6 * 2.5 * 64 * 6, C(6, 64)),
    ("aten::_fft_c2r", [C(6, 33), [1], 2, 64], 6 * 2.5 * 64 * 6, F(6, 64)),
    ("aten::_fft_c2c", [C(6, 64), [4], 0, True], NAN, UNSAID),  # no such axis
    "leading terms of LAPACK (test_factorisations_are_the_leading_terms_of_their_loops)",
    ("aten::linalg_cholesky_ex", [SQUARES], 3 * CUBE / 3, SQUARES),
    ("aten::linalg_lu_factor_ex", [SQUARES], 3 * CUBE * 2 / 3, SQUARES),
    ("aten::linalg_inv_ex", [SQUARES], 3 * CUBE * 2, SQUARES),
    ("aten::geqrf", [SQUARES], 3 * CUBE * 4 / 3, SQUARES),
    "n^2 k for each triangle",
    ("aten::linalg_solve_triangular", [BATCH, RIGHT, True, True, False], TRIANGLE, RIGHT),
    ("aten::triangular_solve", [RIGHT, BATCH, True, False, False], TRIANGLE, RIGHT),
    ("aten::linalg_lu_solve", [BATCH, -N4(3, 50), RIGHT, True, False], 2 * TRIANGLE, RIGHT),
    ("aten::_cholesky_solve_helper", [RIGHT, BATCH, False], 2 * TRIANGLE, RIGHT),
    ("aten::linalg_lu_solve", [C(3, 50, 50), -N4(3, 50), C(3, 50, 7), True, False], 8 * TRIANGLE, C(3, 50, 7)),
    ("aten::linalg_lu_solve", [BATCH, N4(3, 50)], NAN, UNSAID),
    "iterations have no number of FLOPs",
    ("aten::_linalg_svd", [TALL, False, True, None], NAN, F(3, 60 * 40 + 40 + 40 * 40)),
    ("aten::_linalg_svd", [TALL, True, True, None], NAN, F(3, 60 * 60 + 40 + 40 * 40)),
    ("aten::_linalg_svd", [TALL, False, False, None], NAN, F(3, 40)),
    ("aten::_linalg_eigh", [F(3, 40, 40), None, True], NAN, F(3, 40 + 40 * 40)),
    ("aten::_linalg_eigh", [F(3, 40, 40), None, False], NAN, F(3, 40)),
    ("aten::linalg_eig", [F(3, 40, 40)], NAN, C(3, 40 + 40 * 40)),
    "3 for each element of each pair; 435 pairs of 30 rows",
    ("aten::_cdist_forward", [F(2, 30, 8), F(2, 20, 8), "1.", None], 3 * 2 * 30 * 20 * 8, F(2, 30, 20)),
    ("aten::_pdist_forward", [F(30, 8), "2."], 3 * 8 * 435, F(435)),
)  # fmt: skip

CASES = [*MATRICES, *CONVOLUTIONS, *ATTENTION, *RECURRENT, *SOLVERS]

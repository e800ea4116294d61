"""Work of torch's elementwise ops, reductions, copies and lists: 60 elements of (6, 10), unless a row says otherwise.

A pointwise function is 1 FLOP an element, of booleans and integers 0; moving is 0; a reduction is 1 an input. Each
distinct element is read once (docs/counting.md).
"""

from typing import Any

from helpers.work_cases import AT_MOST, FLOAT, N4, NAN, UNKNOWN, UNSAID, B, C, D, F, H, I, P, Tensor, U, rows

N = 60
X, Y, L, M, ROW = F(6, 10), B(6, 10), I(6, 10), P(6, 10), F(10)
SPREAD = Tensor(FLOAT, (6, 10), (0, 1))[10]  # ROW, broadcast by its strides
TWICE = D()  # a number of the host, as a tensor without dimensions
IMAGE, MAP = F(2, 3, 8, 8), F(2, 3, 4, 4)  # 384 and 96 elements
FEW = [F(6, 10), F(4)]  # a list

POINTWISE = rows(
    "1 a result",
    ("aten::add aten::add.Tensor", [X, X, 1], N, X),
    ("aten::add", [X, ROW, 1], N, X),
    ("aten::add", [F(6, 1), F(1, 10), 1], N, X),
    ("aten::add", [X, SPREAD, 1], N, X),
    ("aten::add", [Y, X, 1], N, X),  # the wider dtype
    ("aten::add_", [~Y, X, 1], N),  # in place
    ("aten::mul", [Y, -TWICE], N, Y),
    ("aten::mul", [L, -TWICE], N, X),  # true numbers make it float32
    ("aten::mul", [X, -TWICE, +X], N),  # the result is given
    ("aten::mul", [F(), TWICE], 1, F()),
    ("aten::div", [L, L], N, X),
    ("aten::div", [X, X, +X], N),
    ("aten::div", [X, X, "floor"], N, X),
    ("aten::div_", [~X, -I()], N),
    ("aten::sqrt", [L], N, X),
    ("aten::abs", [C(6, 10)], N, X),
    ("aten::pow", [X, 3.14], N, X),
    ("aten::clamp", [X, 0, 1], N, X),
    ("aten::clamp_min_", [~Y, 0], N),
    ("aten::addcmul_", [~X, X, X, 1], N),
    ("aten::hypot", [X, X], N, X),
    ("aten::gelu", [X, "tanh"], N, X),
    ("aten::glu", [X, 1], 30, F(6, 5)),
    ("aten::gelu_backward", [Y, Y, None], N, Y),
    ("aten::sinh_backward", [X, X], N, X),  # does not exist: the rule covers any gradient
    ("aten::special_bessel_j0", [X], N, X),
    ("aten::native_dropout", [X, 0.1, True], N, X, M),
    ("aten::native_dropout_backward", [Y, M, 1.1], N, Y),
    ("aten::mse_loss", [X, X, 0], N, X),
    ("aten::mse_loss", [X, X, 1], N, X),  # the mean is of the op inside
    ("aten::smooth_l1_loss", [X, X, 2], N, X),
    ("aten::huber_loss", [X, X, 1, 1.0], N, X),
    ("aten::binary_cross_entropy", [X, X, None, 1], N, X),
    "booleans and integers count nothing",
    ("aten::add", [L, L, 1], 0, L),
    ("aten::eq aten::lt", [X, X], 0, M),
    ("aten::isnan", [X], 0, M),
    ("aten::bucketize", [X, ROW, False, False], 0, L),
    ("aten::where", [M, X, X], 0, X),
    ("aten::masked_fill_", [~X, M, 0], 0),
    "copies, fills and random numbers",
    ("aten::copy_", [+Y, X, False], 0),
    ("aten::copy_", [+X, SPREAD, False], 0),
    ("aten::_to_copy", [X, 15, None, None, None, False, None], 0, Y),
    ("aten::quantize_per_tensor", [X, 0.1, 0, 12], 0, U(6, 10)),
    ("aten::fill_", [+X, 1.0], 0),
    ("aten::zero_", [+X], 0),
    ("aten::normal_", [+X, 0, 1, None], 0),
    ("aten::bernoulli_", [+X, 0.5, None], 0),
    ("aten::arange", [0, 511, 1, -I(0)], 0, I(511)),
    ("aten::view", [-X, "[60]"], 0),
    ("aten::flip", [X, [1]], 0, X),
    ("aten::roll", [X, [2], [1]], 0, X),
    ("aten::constant_pad_nd", [X, [1, 2], 0], 0, F(6, 13)),
    ("aten::reflection_pad2d", [IMAGE, [1, 2, 3, 4]], 0, F(2, 3, 15, 11)),
    "float32 computes for narrower dtypes, nothing for integers",
    ("aten::add", [B(4), B(4), 1], 4, B(4), {"unit": "fp32"}),
    ("aten::add", [D(4), D(4), 1], 4, D(4), {"unit": "fp64"}),
    ("aten::add", [I(4), I(4), 1], 0, I(4), {"unit": None}),
    "no rule",
    ("aten::some_gelu_backward AddmmBackward0", [X], UNKNOWN),
    ("c10d::scatter_", [X, 1, I(6, 2), F(6, 2)], UNKNOWN),
    ("add", [X, X, 1], UNKNOWN),
)  # fmt: skip

REDUCTIONS = rows(
    "1 an input",
    ("aten::sum", [X, [1], False, None], N, F(6)),
    ("aten::sum", [X, [-2], True, None], N, ROW),
    ("aten::sum", [Y, "[]", False, 6], N, F()),
    ("aten::sum", [X, [0], False, 7], N, D(10)),
    ("aten::sum", [M, None], 0, I()),
    ("aten::mean", [X, None], N, F()),
    ("aten::mean", [X, [0, 1], True, None], N, F()),
    ("aten::amax", [X, [1], False], N, F(6)),
    ("aten::max", [X, 1, False], N, F(6), I(6)),
    ("aten::max", [X], N, F()),
    ("aten::max", [X, X], N, X),
    ("aten::kthvalue", [X, 2, 1, False], N, F(6), I(6)),
    ("aten::argmax", [X, 1, False], 0, I(6)),
    ("aten::argmin", [X, 0, False], 0, I(10)),
    ("aten::any", [M], 0, P()),
    ("aten::all", [M, 1, False], 0, P(6)),
    "passes: mean, subtract, square, mean; power, sum; max, subtract, exp, sum",
    ("aten::var", [X, [1], 1, False], 4 * N, F(6)),
    ("aten::var_mean", [X, [1], 1, False], 4 * N, F(6), F(6)),
    ("aten::linalg_vector_norm", [X, 2, None, False, None], 2 * N, F()),
    ("aten::logsumexp", [X, [1], False], 4 * N, F(6)),
    "scans",
    ("aten::cummax aten::cummin", [X, 1], N, X, L),
    ("aten::cumsum aten::cumprod", [X, 1, None], N, X),
    ("aten::cumsum", [X, 1, 7], N, D(6, 10), {"read": 480}),  # of the input converted to float64
    ("aten::cumprod", [N4(6, 10), 1, None], 0, L, {"read": 480}),
    ("aten::cumsum_", [~N4(6, 10), 1, None], 0),  # keeps its dtype
    "sorting compares",
    ("aten::topk", [X, 3, -1, True, True], 0, F(6, 3), I(6, 3)),
    ("aten::topk", [X, 4, 0, True, True], 0, F(4, 10), I(4, 10)),
    ("aten::sort", [X, False, -1, False], 0, X, L),
    ("aten::sort", [X, True, -1, False], 0, X, L),
    "what is counted decides",
    ("aten::bincount", [I(60), None], 0, {"read": NAN, "written": NAN}),
    "losses of classes: one element of each row",
    ("aten::nll_loss_forward", [X[6], I(6), None, 1, -100], 6, F(), F()),
)  # fmt: skip

NORMS = rows(
    "softmax: max, subtract, exp, sum, divide; its gradient: multiply, sum, subtract, multiply",
    ("aten::_softmax", [Y, 1, True], 5 * N, X),  # half to float
    ("aten::_softmax", [X, 1, False], 5 * N, X),
    ("aten::_log_softmax", [Y, 1, False], 5 * N, Y),
    ("aten::_softmax_backward_data", [X, X, 1, 6], 4 * N, X),
    "norms: mean, subtract, square, mean, scale, and 1 each for weight and bias",
    ("aten::native_layer_norm", [X, [10], ROW, ROW, 1e-5], 7 * N, X, F(6), F(6)),
    ("aten::native_layer_norm", [Y, [10], None, None, 1e-5], 5 * N, Y, F(6), F(6)),
    ("aten::native_layer_norm", [F(6, 5, 4), [5, 4], F(5, 4), F(5, 4), 1e-5], 840, F(120), F(12)),
    ("aten::native_layer_norm", [F(6, 5, 4), "", F(5, 4), F(5, 4), ""], 840, F(120), F(12)),
    ("aten::native_layer_norm", [F(6, 5, 4), "", None, None, ""], ..., {"read": ..., "written": NAN}),
    ("aten::native_layer_norm_backward", [X, X, [10], F(6, 1), F(6, 1), ROW, -ROW, [True, True, True]], 13 * N,
     X, ROW, ROW),
    ("aten::native_layer_norm_backward", [X, X, [10], F(6, 1), F(6, 1), None, None, [True, False, False]], 9 * N, X),
    ("aten::_fused_rms_norm", [X, [10], ROW, 1e-6], 4 * N, X, F(6)),
    ("aten::native_batch_norm", [B(2, 3, 10), *[F(3)] * 4, True, 0.1, 1e-5], 7 * N, Y, *[F(3)] * 4),
    ("aten::native_batch_norm", [B(2, 3, 10), *[F(3)] * 4, False, 0.1, 1e-5], 4 * N, Y),
    ("aten::native_group_norm", [F(2, 6, 5), F(6), F(6), 2, 6, 5, 3, 1e-5], 7 * N, X, F(2, 6)),
    "bias of all, scale of the queries",
    ("aten::_transform_bias_rescale_qkv", [F(2, 5, 24), F(24), 2], 240 + 80, F(240)),
)  # fmt: skip

WINDOWS = rows(
    "1 an element of a window",
    ("aten::max_pool2d_with_indices", [B(2, 3, 8, 8), [3, 3], [2, 2], [1, 1], [1, 1], False], 96 * 9, B(96), I(96)),
    ("aten::avg_pool2d", [IMAGE, [2, 2], "[]", [0, 0], False, True, None], 384, MAP),
    ("aten::avg_pool2d", [F(2, 3, 9, 9), [2, 2], [2, 2], [0, 0], True, True, None], 150 * 4, F(150)),
    ("aten::avg_pool2d", [F(2, 3, 9, 11), [3, 2], [2, 3], [1, 1], True, True, None], 120 * 6, F(2, 3, 5, 4)),
    ("aten::max_pool2d_with_indices_backward", [MAP, -IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False, I(2, 3, 4, 4)],
     96, IMAGE),
    ("aten::_adaptive_avg_pool2d", [IMAGE, [1, 1]], 384, F(6)),
    "windows of 3, 3, 3 of 7 and of 2, 3, 3, 3, 2 of 8 elements; of 1, 2, 1, 1, 2, 1 of 4",
    ("aten::_adaptive_avg_pool2d", [F(2, 3, 7, 8), [3, 5]], 6 * 9 * 12, F(6 * 15)),
    ("aten::adaptive_max_pool2d", [F(2, 3, 4, 4), [6, 6]], 6 * 8 * 8, F(6 * 36), I(6 * 36)),
    ("aten::_adaptive_avg_pool2d_backward", [F(2, 3, 3, 5), -F(2, 3, 7, 8)], 6 * 9 * 12, F(2, 3, 7, 8)),
    ("aten::max_unpool2d", [MAP, I(2, 3, 4, 4), [8, 8]], 0, IMAGE),
    "resizing: 4 neighbours, multiplied and added",
    ("aten::upsample_nearest2d", [MAP, [8, 8], None, None], 0, IMAGE),
    ("aten::upsample_bilinear2d", [MAP, [8, 8], False, None, None], 8 * 384, IMAGE),
    ("aten::upsample_bilinear2d", [F(2, 3, 10, 12), [20, 30], False], 8 * 3600, F(3600)),
    ("aten::upsample_bilinear2d", [F(2, 3, 10, 12), "", False, "[2., 2.5]"], 8 * 3600, F(3600)),
    "each pixel of each window",
    ("aten::im2col", [F(2, 3, 9, 11), [3, 2], [1, 1], [1, 1], [2, 2]], 0, F(2, 18, 30)),
)  # fmt: skip

ROWS, PICKED = F(100, 8), F(6, 10, 8)
INDEXED = rows(
    "a row or an element an index, at most the whole table; additions 1 each",
    ("aten::embedding", [ROWS[6, 10, 8], L, -1, False, False], 0, PICKED),
    ("aten::embedding", [F(5, 8), L, -1, False, False], 0, PICKED),
    ("aten::embedding_dense_backward", [PICKED, L, 100, -1, False], 480, PICKED),
    ("aten::index_select", [X[4, 10], 0, I(4)], 0, F(4, 10)),
    ("aten::gather", [ROWS[6, 8], 0, Tensor("long int", (6, 8), (1, 0))[6], False, +F(6, 8)], 0),
    ("aten::scatter_add_", [~X[6, 2], 1, I(6, 2), F(6, 2)], 12),
    ("aten::index_add", [X, 0, I(2), F(2, 10), 1], 20, X),
    ("aten::segment_reduce", [F(10, 3), "sum", I(3), None, None, 0, False, None], 30, F(3, 3)),
    "indices broadcast; a list does not record the axis",
    ("aten::index", [F(50, 60)[21], [I(7, 1), I(3)]], 0, F(21), AT_MOST),
    ("aten::index", [F(50, 60), [I(7, 1)]], ..., {"of_launched": True, **UNSAID}),
    "sizes from numbers",
    ("aten::histc", [F(600), 12, 0, 1], 0, F(12)),
    ("aten::nonzero_static", [X, 7, -1], 0, I(7, 2)),
    ("aten::narrow_copy", [X[6, 5], -1, 2, 5], 0, F(6, 5)),
    ("aten::repeat_interleave", [I(4), 10], 0, I(10), {"read": 2 * 8 * 4}),
    ("aten::repeat_interleave", [I(4), None], 0, {"read": 2 * 8 * 4, "written": NAN}),
    ("aten::repeat_interleave", [F(4), I(4), 0], 0, {"read": ..., "written": NAN}),
    "all elements are selected and differ, at most",
    AT_MOST,
    ("aten::nonzero", [X], 0, I(60, 2)),
    ("aten::masked_select", [X, M], 0, X),
    ("aten::_unique2", [X, True, True, True], 0, X, L, L),
    ("aten::_unique2", [X, True, False, True], 0, X, L),
    ("aten::unique_consecutive", [X, True, True, None], 0, X, L, L),
    ("aten::tril", [F(5, 5), ""], 0, F(25)),  # of an unknown triangle
)  # fmt: skip


def each(read: int, written: int) -> dict[str, Any]:
    return {"read": read, "written": written, "of_launched": True}


LISTED = rows(
    "per element of a list, whose dtype its kernels tell",
    ("aten::_foreach_add_", [[], 1.0], 1, each(1, 1)),
    ("aten::_foreach_add_", [[], [], 1.0], 1, each(2, 1)),
    ("aten::_foreach_sqrt", [[]], 1, each(1, 1)),
    ("aten::_foreach_addcdiv_", [[], [], [], None], 1, each(3, 1)),
    ("aten::_foreach_lerp_", [[], [], 0.1], 1, each(2, 1)),
    ("aten::_foreach_copy_", [[], [], False], 0, each(1, 1)),
    ("aten::_foreach_zero_", [[]], 0, each(0, 1)),
    ("aten::_foreach_norm", [[], 2, None], 2, each(1, 0)),
    ("aten::_amp_foreach_non_finite_check_and_unscale_", [[], F(1), F(1)], 1, each(1, 1)),
    "lerp, mul, addcmul, sqrt, div, add, addcdiv, and the decay; p, g, m, v are read and p, m, v written",
    ("aten::_fused_adamw_", [*[[]] * 6, 1e-3, 0.9, 0.99, 0.1, 1e-8, False, False, None, None], 8, each(4, 3)),
    ("aten::_fused_adam_", [*[[]] * 6, 1e-3, 0.9, 0.99, 0.0, 1e-8, True, False, None, None], 8, each(5, 4)),
    ("aten::_fused_sgd_", [*[[]] * 3, 0.0, 0.9, 0.1, 0.0, False, False, True, None, None], 3, each(3, 2)),
    ("aten::_fused_sgd_", [*[[]] * 3, 0.1, 0.0, 0.1, 0.0, False, False, True, None, None], 2, each(2, 1)),
    "and the elements, where a list is recorded",
    ("aten::_foreach_mul_", [FEW, 2], 1, {**each(1, 1), "list_elements": 64}),
    ("aten::cat", [[X, F(4, 10)], 0], 0, {**each(1, 1), "list_elements": 100}),
    ("aten::cat", [[X, F(4, 10)], 0, +H(10, 10)], 0, {"read": 200, "of_launched": False}),  # the result has a dtype
    ("aten::_chunk_cat", [[F(5, 3), F(4, 2)], 0, 2], ..., {"list_elements": 23, **UNSAID}),
    "parts of a tensor",
    ("aten::split_with_sizes_copy", [X, [3, 7], 1], 0, X),
    ("aten::split_with_sizes_copy fsdp::split_with_sizes_copy", [X, [3, 7], 1, [+F(6, 3), +F(6, 7)]], 0),
    ("aten::split_copy", [X, 4, 1], 0, X),
    ("aten::unbind_copy", [X, 1], 0, X),
    "chunks are padded: (5, 3) and (4, 2) to two of 3 x 3 and 2 x 2",
    AT_MOST,
    ("aten::_chunk_cat fsdp::chunk_cat", [[F(5, 3), F(4, 2)], 0, 2, +F(2, 13)], 0),
    ("aten::_chunk_cat fsdp::chunk_cat", [[], 0, 2, ~F(2, 13)], 0),
    "ragged rows are padded to the longest",
    ("aten::_jagged_to_padded_dense_forward", [F(500, 32), [I(17)], [100], 0.0], 0, F(16, 100, 32)),
    ("aten::_jagged_to_padded_dense_forward", [F(500, 32), [I(17), I(17)], "[100, 3]", 0.0], UNKNOWN),
)  # fmt: skip

CASES = [*POINTWISE, *REDUCTIONS, *NORMS, *WINDOWS, *INDEXED, *LISTED]

"""Ops of other libraries, each version with the arguments that its source has, against first principles."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.hand_traces import BF16
from helpers.library_calls import BYTE, FP8, INT, B, F, H, I, gradient, numbers, size, work


@pytest.mark.parametrize(
    "between",
    [
        ["b"], ["b", "True"],  # 2.2, 2.0
        [None, "b"], ["copy", "b"],  # 2.15
        [None, "b", "True"], ["copy", "b", "True"],  # 1.8
        [None, None, "b", "True"], ["copy", "copy", "b", "True"],  # 1.0
        [None], [None, None],  # without a bias: 2.2, 2.15
    ],
)  # fmt: skip
@pytest.mark.parametrize("inner", [1024, 256])
def test_the_weights_of_transformer_engines_mlp_are_found_in_each_version(between: list[Any], inner: int) -> None:
    x, norm, w1, w2, bias = B(2, 64, 256), B(256), B(inner, 256), B(256, inner), B(inner)
    args = [{"b": bias, "copy": w1}.get(a, a) for a in between]
    for of_norm in (norm, None):
        found = work("_LayerNormMLP", x, norm, of_norm, w1, *args, w2, None, None)
        read = size(x, norm, w1, w2) + (size(norm) if of_norm else 0) + (size(bias) if "b" in between else 0)
        assert numbers(found) == (2 * 2 * 128 * 256 * inner, read, size(x)), args
    assert math.isnan(work("_LayerNormMLP", x, norm, None, B(inner, 99), *args, w2)["flops"])


def test_weights_of_groups_are_found_in_each_version() -> None:
    x, w, sizes, out, bias = B(128, 256), B(1024, 256), I(4), B(128, 1024), B(1024)
    flops = 2 * 128 * 256 * 1024
    for before in (["[32, 32, 32, 32]", "True", None, "False"], [], [sizes], [sizes, None, None]):
        found = work("_GroupedLinear", x, *before, *[w] * 4, *[bias] * 4)
        assert numbers(found) == (flops, size(x, *[w] * 4), size(out)), before
    for given in ([sizes, out, None], [sizes, None, x], [sizes, out, x]):  # results that are given look like weights
        assert math.isnan(work("_GroupedLinear", x, *given, *[w] * 4)["flops"]), given


def test_fused_attention_takes_the_sizes_of_values_too() -> None:
    q, k, v, offsets = B(1024, 2, 16, 192), B(1024, 2, 16, 192), B(1024, 2, 16, 128), ("int", (3,))
    head = ["True", "1024", "1024", offsets, offsets]
    pairs = 2 * 16 * 1024 * 1024
    for between in ([offsets, offsets, None, None], [None, None], []):
        found = work("FusedAttnFunc", *head, *between, q, k, v, None, "0.1")
        assert numbers(found) == (2 * pairs * (192 + 128), size(q, k, v), size(v)) and found["at_most"], between
    shapes = [[], [], [], [3], [3], [], [], *[list(t[1]) for t in (q, k, v)], []]
    types = ["Scalar"] * 3 + ["int"] * 2 + ["", ""] + [BF16] * 3 + [""]
    row = gradient("FusedAttnFunc", shapes, types, ["True", "1024", "1024"])
    assert row.flops == 2 * pairs * (3 * 192 + 2 * 128)  # the scores again; gradients of queries and keys; of values


@pytest.mark.parametrize(
    ("between", "causal"),
    [
        (["0.", "0.125", "True", None], True),  # version 2
        (["0.", "1.", "False", None], False),
        (["0.125", "True", None, None, None], True),  # 3
        (["1.", "False", None], False),
        (["0.125", "True"], True),  # 3, its first
        ([None, "True", "0.125"], True),  # the kernel in Triton
        ([None, None, None, "True", None], True),  # 4
        ([None, None, "0.125", "False", None], False),
    ],
)
def test_flash_attentions_functions_have_the_mask_elsewhere_in_each_version(between: list[Any], causal: bool) -> None:
    q, k = B(2, 512, 16, 64), B(2, 512, 4, 64)
    pairs = 512 * 513 / 2 if causal else 512 * 512
    found = work("FlashAttnFunc", q, k, k, *between)
    assert found["flops"] == 4 * 2 * 16 * pairs * 64 and found["bytes_read"] == size(q, k, k)


def test_flash_attention_that_is_recorded_without_numbers_is_bounded() -> None:
    q, k = B(2, 512, 16, 64), B(2, 1024, 4, 64)
    full, stats = 4 * 2 * 16 * 512 * 1024 * 64, 4 * 2 * 16 * 512
    found = work("FlashAttnFunc", q, k, k)
    assert numbers(found) == (full, size(q, k, k), size(q) + stats) and found["at_most"]
    back = gradient("FlashAttnFunc", [list(t[1]) for t in (q, k, k)], [BF16] * 3)
    assert back.flops == 2.5 * full and back.bytes_total_moved == 2 * size(q, k, k) + 2 * size(q) + stats
    assert math.isnan(work("FlashAttnFunc", *[B(512, 16, 64)] * 3)["flops"])  # concatenated sequences


def test_flash_attention_of_packed_tensors() -> None:
    qkv, offsets = B(2, 512, 3, 16, 64), ("int", (3,))
    full, causal, row = 4 * 2 * 16 * 512 * 512 * 64, 4 * 2 * 16 * 512 * 513 / 2 * 64, 2 * 512 * 16
    result = row * 64 * 2 + row * 4
    for between in (["0.", "0.125", "True"], ["0.125", "True", None]):
        assert numbers(work("FlashAttnQKVPackedFunc", qkv, *between)) == (causal, size(qkv), result), between
    packed = work("FlashAttnVarlenQKVPackedFunc", B(1024, 3, 16, 64), offsets, "512", "0.", "0.125", "False")
    assert numbers(packed) == (full, size(qkv, offsets), result) and packed["at_most"]
    args = [[2, 512, 3, 16, 64], [], [], []], [BF16, "Scalar", "Scalar", "Scalar"], ["", "0.", "0.125", "True"]
    back = gradient("FlashAttnQKVPackedFunc", *args)
    assert back.flops == 2.5 * causal and back.bytes_total_moved == 2 * size(qkv) + 2 * row * 64 * 2 + row * 4
    ends = [offsets, offsets]
    first = work("FlashAttnFunc", *[B(1024, 16, 64)] * 3, *ends, "512", "512", "0.", "0.125", "True", "False")
    assert first["flops"] == causal  # version 1 has the offsets of version 2's other function
    three = work("FlashAttnVarlenFunc", *[B(1024, 16, 64)] * 3, *ends, None, None, "512", "512", None, "True")
    assert three["flops"] == causal


def test_xformers_masks_are_found_in_each_version() -> None:
    q, offsets = B(2, 512, 16, 64), ("int", (3,))
    causal = 4 * 2 * 16 * 512 * 513 / 2 * 64
    lengths = [None, None, None, "512", "512"]
    for name, args in (
        ("xformers_flash::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", "True"]),
        ("xformers_flash::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", "True", None]),
        ("xformers_flash3::flash_fwd", [*lengths, "0.", "0.125", "True"]),
        ("xformers_flash3::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", None, None, None, None, "False"]),
        ("xformers_flash3::flash_fwd", [None, *lengths, "0.", "1.", "True", *[None] * 4, "False", "-1", "-1"]),
        ("mslk_flash::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", "True", None]),
        ("mslk_flash3::flash_fwd", [None, *lengths, "0.", "1.", "True", *[None] * 4, "False", "-1", "-1"]),
    ):
        assert work(name, q, q, q, *args)["flops"] == causal, args
    stats = F(2, 16, 512)
    tail = [offsets, offsets, "512", "512", "0.", "0.125", "True", "-1", "-1", I(2)]
    for name, args in (
        ("xformers_flash::flash_bwd", [q, q, q, q, q, stats, q, q, q, *tail]),
        ("xformers_flash::flash_bwd", ["True", q, q, q, q, q, stats, *tail]),
        ("xformers_flash3::flash_bwd", ["True", q, q, q, q, q, stats, *tail[:4], "0.125", "True"]),
        ("xformers_flash3::flash_bwd", ["True", q, q, q, q, q, stats, *tail[:4], "0.125", "True", "-1", "-1"]),
    ):
        assert work(name, *args)["flops"] == 2.5 * causal, args
    for name, args in (
        ("xformers_flash::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", "True"]),
        ("xformers_flash3::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", None, None, None]),
        ("xformers_flash3::flash_fwd", [None, *lengths, "0.", "1.", "True", None, None, None]),
    ):
        paged = work(name, q, B(99, 64, 4, 64), B(99, 64, 4, 64), *args, ("int", (2, 8)))
        assert paged["bytes_read"] == size(q) + 2 * size(B(2, 512, 4, 64)) and paged["at_most"], args
    masked = work("xformers::efficient_attention_backward_ck", q, q, q, q, None, None, None, None, None, None, stats, q,
                  "0.", "0", "0", "2", "0.125", None)  # fmt: skip
    assert masked["flops"] == 2.5 * causal


def test_vllms_builds_of_flash_attention_have_the_mask_elsewhere() -> None:
    q, cache, table, offsets = B(2, 16, 64), B(999, 16, 4, 64), ("int", (2, 32)), ("int", (3,))
    for name, args in (
        ("_vllm_fa2_C::varlen_fwd", [q, offsets, offsets, ("int", (2,)), None, table, None, "1", "300", "0.", "0.125",
                                     "False", "True", "-1", "-1", "0.", "False", "0"]),
        ("_vllm_fa3_C::fwd", [None, None, None, q, offsets, None, None, None, ("int", (2,)), "1", "300", table,
                              *[None] * 8, "0.125", "True", "-1", "-1", "0."]),
        ("_vllm_fa3_C::fwd", [None, None, None, q, offsets, None, None, None, ("int", (2,)), "1", "300", table,
                              *[None] * 9, "1.", "True", "-1", "-1", "0."]),
    ):  # fmt: skip
        found = work(name, q, cache, cache, *args)
        assert found["flops"] == 4 * 2 * 16 * 64 * 300 and found["at_most"], name
        assert found["bytes_read"] == size(q) + 2 * 2 * 300 * 4 * 64 * 2, name


def test_norms_with_a_residual_are_told_from_gated_ones() -> None:
    x, w, residual = B(64, 256), B(256), F(64, 256)
    flags = ["1e-05", "True", "True", "False"]
    added = work("LayerNormFn", x, w, None, residual, *flags)
    assert (added["bytes_read"], added["bytes_written"]) == (size(x, w, residual), size(x, residual))
    first = work("LayerNormFn", x, w, None, None, *flags)
    assert first["bytes_written"] == size(x, residual) and first["at_most"]  # float32 is asked for
    gated = work("LayerNormFn", x, w, None, x, "1e-05", None, "True", "True")
    assert gated["bytes_written"] == size(x)
    whole = work("LayerNormFn", x, w, w, residual, x, w, w, "1e-05", "0.", None, "True", "True", "True", "False")
    assert whole["bytes_written"] == 2 * size(x) + size(residual)  # two norms of the sum


def test_a_scan_in_chunks_multiplies_within_and_between_them() -> None:
    b, rows, h, p, g, n, chunk = 2, 512, 8, 64, 2, 128, 64
    x, dt, heads, states = B(b, rows, h, p), B(b, rows, h), F(h), B(b, rows, g, n)
    chunks = b * rows // chunk
    within = 2 * chunks * chunk * chunk * (g * n + h * p)  # C with B, and that with x
    between = 2 * 2 * b * rows * h * p * n  # x with B, states with C
    found = work("MambaChunkScanCombinedFn", x, dt, heads, states, states, str(chunk), None, None)
    assert numbers(found) == (within + between, size(x, dt, heads, states, states), size(x)) and found["at_most"]
    width = h * p + 2 * g * n
    zxbcdt, conv = B(b, rows, width + h * p + h), B(width, 4)
    tail = [str(chunk), None, None, None, "False", None, "1e-05", None, None, str(p), str(g), "True"]
    split = work("MambaSplitConv1dScanCombinedFn", zxbcdt, conv, None, heads, heads, heads, *tail)
    assert split["flops"] == within + between and split["bytes_written"] == size(x)


def test_the_state_of_a_convolution_is_a_row_for_each_sequence() -> None:
    x, states, w = B(8, 512), B(10000, 512, 4), B(512, 4)
    found = work("DaoAILab::_causal_conv1d_update_cpp", x, states, w, None, x, "True", None, ("int", (8,)))
    row = 8 * 512 * 4 * 2
    assert numbers(found) == (2 * 8 * 512 * 4, size(x, w) + 8 * 4 + row, size(x) + row)
    function = work("CausalConv1dFn", B(2, 512, 128), w, None, "True")
    assert numbers(function) == (2 * 2 * 512 * 128 * 4, size(B(2, 512, 128), w), size(B(2, 512, 128)))


def test_packed_weights_of_any_dtype_are_as_many_as_their_shape_says() -> None:
    n, k = 512, 256
    absmax = F(n * k // 64)
    for packed in ((BYTE, (n * k // 2, 1)), B(n * k // 4, 1), F(n * k // 8, 1)):
        found = work("bitsandbytes::dequantize_4bit", packed, absmax, "64", "nf4", f"[{n}, {k}]", "15")
        assert numbers(found) == (n * k, n * k // 2 + size(absmax), 2 * n * k), packed
    many = (BYTE, (4 * n * k // 2, 1))
    experts = work("bitsandbytes::dequantize_4bit", many, F(9), "64", "nf4", f"[4, {n}, {k}]", "15")
    assert experts["flops"] == 4 * n * k
    out = ("int", (8, n))
    given = work("bitsandbytes::int8_linear_matmul", ("signed char", (8, k)), ("signed char", (n, k)), out)
    assert numbers(given) == (2 * 8 * n * k, (8 + n) * k, size(out))


def test_numbers_in_blocks_of_8_bits() -> None:
    x = B(128, 256)
    both = 128 * 256 + 128 * 256 // 32
    assert numbers(work("torchao::triton_to_mxfp8_dim0", x, "32", "rceil")) == (2 * 128 * 256, size(x), both)
    found = work("torchao::mxfp8_quantize", x, "True", "True", "32", "32", "e4m3", "floor")
    assert numbers(found) == (2 * 2 * 128 * 256, size(x), 2 * both)
    back = work("torchao::triton_mxfp8_dequant_dim0", (FP8, (128, 256)), (BYTE, (128, 8)), "15", "32")
    assert numbers(back) == (128 * 256, both, size(x))
    sparse = work("torchao::marlin_24_gemm", (H, (8, 256)), ("int", (8, 1024)), ("short", (16, 1024)), (H, (2, 512)),
                  ("int", (64,)), "4", "8", "512", "256")  # fmt: skip
    assert sparse["flops"] == 2 * 8 * 512 * 256 and sparse["bytes_written"] == 2 * 8 * 512


def test_rows_of_tables_without_bags() -> None:
    head = [F(10**6), F(0), F(0), (INT, (4,)), I(4), "64", I(300), I(301)]
    name, locations = "fbgemm::split_embedding_nobag_codegen_forward_unweighted_cuda", ("int", (300,))
    for rest in ([locations, ("int", (6,)), "1", "False"], [locations, "1", "False"]):
        found = work(name, *head, *rest)
        assert numbers(found) == (0, 300 * 64 * 4 + size(I(300), I(301)), 300 * 64 * 2) and not found["at_most"]
    args = [F(300, 64), F(10**6), F(0), F(0), (INT, (4,)), I(4), "64", I(5), "20", I(300), I(301), (INT, (300,)), "32"]
    back = work("fbgemm::split_embedding_nobag_backward_codegen_rowwise_adagrad_unweighted_exact_cuda", *args)
    assert numbers(back) == (300 * 64, size(F(300, 64), I(300), I(301)) + 4 * 300 * 65, 4 * 300 * 65)


def test_sparse_features_are_permuted() -> None:
    lengths, values, weights = I(6, 32), I(1000), F(1000)
    for name in ("permute_2D_sparse_data", "permute_sparse_data"):
        found = work(f"fbgemm::{name}", ("int", (4,)), lengths, values, weights, "700")
        assert numbers(found) == (0, 4 * 4 + size(lengths) + 700 * 12, 4 * 32 * 8 + 700 * 12), name


def test_apexs_norms_of_mixed_dtypes_write_that_of_the_weight() -> None:
    x, w = B(64, 256), F(256)
    found = work("FusedLayerNormAffineMixedDtypesFunction", x, w, w, None, "1e-05", "False")
    assert numbers(found) == (7 * 64 * 256, size(x, w, w), size(F(64, 256)))
    dense = work("FusedDenseFunc", x, B(512, 256), B(512))
    assert numbers(dense) == (2 * 64 * 256 * 512, size(x, B(512, 256), B(512)), size(B(64, 512)))
    op = work("apex::fused_rms_norm_affine_bwd", x, F(64), x, "[256]", B(256), "1e-05", "False")
    assert numbers(op) == (9 * 64 * 256, size(x, F(64), x, B(256)), size(x, B(256)))


def test_tokens_are_put_in_the_order_of_their_experts() -> None:
    x, choice = B(64, 256), ("int", (64, 2))
    permuted = work("te_moe::permute_index_map", x, choice, "128", "0")
    assert numbers(permuted) == (0, size(x, choice), 2 * size(x) + size(choice))
    back = work("te_moe::unpermute_mask_map_fwd", B(128, 256), ("int", (64, 17)), None, "64", "8", "256", None)
    assert numbers(back) == (2 * 128 * 256, size(B(128, 256), ("int", (64, 17))), size(x))


def test_a_record_of_a_function_has_tensors_numbers_and_none() -> None:
    """What versions of Transformer Engine pass, as the profiler records it: dtypes, texts and objects are left out."""
    torch = pytest.importorskip("torch")
    x, w = torch.randn(8, 64, requires_grad=True), torch.randn(32, 64, requires_grad=True)

    class _Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            return x.new_empty(8, 32)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return (None,) * 99

    versions: list[list[Any]] = [
        [w, None, x, None, False, None, True, False, {}, False, None, 1, False, False, torch.float32, None, True],
        [w, x, None, True, False, False, object(), [object()], None, torch.bfloat16, "row", True],
        [w, x, None, object()],
    ]
    from flopscope.torch import from_profile

    for version in versions:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
            _Linear.apply(*version)
        row = next(r for r in from_profile(prof).key_averages() if r.key == "_Linear")
        assert row.flops == 2 * 8 * 32 * 64


def test_rows_of_fewer_bits_end_with_a_scale_and_a_bias_in_half() -> None:
    x, row = F(7, 64), 64 * 4 // 8 + 4
    assert numbers(work("fbgemm::FloatToFusedNBitRowwiseQuantizedSBHalf", x, "4")) == (2 * 7 * 64, size(x), 7 * row)
    back = work("fbgemm::FusedNBitRowwiseQuantizedSBHalfToFloat", (BYTE, (7, row)), "4")
    assert numbers(back) == (0, 7 * row, size(x))
    assert numbers(work("fbgemm::segment_sum_csr", "4", I(11), F(1000))) == (1000, 8 * 11 + 4000, 4 * 10 * 4)


@pytest.mark.parametrize("library", ["fbgemm", "mslk"])
def test_products_have_two_names(library: str) -> None:
    x, w, scales = (FP8, (128, 256)), (FP8, (512, 256)), F(1)
    found = work(f"{library}::f8f8bf16_groupwise", x, w, scales, scales)
    assert numbers(found) == (2 * 128 * 256 * 512, size(x, w, scales, scales), 2 * 128 * 512)
    half = work(f"{library}::f4f4bf16", (BYTE, (128, 128)), (BYTE, (512, 128)), scales, scales, None, scales)
    assert half["flops"] == found["flops"]
    added = work(f"{library}::scatter_add_along_first_dim", B(1000, 64), B(30, 64), I(30))
    assert numbers(added) == (30 * 64, 2 * size(B(30, 64)) + size(I(30)), size(B(30, 64)))


def test_unsloths_rope_reads_the_rows_of_its_tables_that_the_sequence_has() -> None:
    q, table = B(2, 512, 16, 64), B(32768, 64)
    found = work("Fast_RoPE_Embedding", q, table, table)
    rows = 2 * 512 * (64 // 2) * 2  # of both tables
    assert numbers(found) == (3 * 2 * 512 * 16 * 64, size(q) + rows, size(q))
    loss = work("Fast_CrossEntropyLoss", B(64, 32000), I(64), "0", "0")
    assert (loss["bytes_read"], loss["bytes_written"]) == (size(B(64, 32000), I(64)), 2 * 4 * 64)


def test_a_weights_gradient_is_an_ops_without_fusion() -> None:
    """The product that is added to a float32 gradient has no op; without fusion, both products are ops inside."""
    name, shapes = "LinearWithGradAccumulationAndAsyncCommunication", [[512, 256], [1024, 256], [], [], [], []]
    types = [BF16, BF16, "", "Scalar", "Scalar", "Scalar"]
    fused = gradient(name, shapes, types, ["", "", "", "True", "False", "False"])
    assert fused.flops == 2 * 512 * 1024 * 256
    assert math.isnan(gradient(name, shapes, types, ["", "", "", "False", "False", "False"]).flops)


def test_ligers_functions_that_came_later() -> None:
    x, half = B(64, 512), 64 * 256
    gate = work("LigerFusedGateUpSiLUMulFunction", x, "False")
    assert numbers(gate) == (2 * half, size(x), 2 * half)
    table, indices = F(32000, 256), I(64)
    assert numbers(work("LigerEmbeddingFunction", table, indices)) == (0, size(indices) + 4 * 64 * 256, 4 * 64 * 256)
    tokens, w1, w2 = B(512, 256), B(8, 1024, 256), B(8, 256, 512)
    chosen = (I(512, 2), F(512, 2))
    experts = work("LigerFusedMoEFunction", tokens, w1, w2, *chosen)
    assert numbers(experts) == (6 * 512 * 2 * 256 * 512, size(tokens, w1, w2, *chosen), size(tokens))
    assert numbers(work("LigerRMSNormFunction", x, B(512)))[0] == 4 * 64 * 512  # a record of tensors alone


def test_rotary_embeddings_rotate_a_part_of_a_head() -> None:
    t, freqs, cos = B(512, 2, 16, 128), F(512, 1, 1, 64), B(512, 32)
    rotated = 512 * 2 * 16 * 64
    assert numbers(work("FusedRoPEFunc", t, freqs, None, "False")) == (3 * rotated, size(t, freqs), size(t))
    assert numbers(work("ApplyRotaryEmb", t, cos, cos, "False", "False")) == (3 * rotated, size(t, cos, cos), size(t))


def test_exchanges_move_what_this_device_holds() -> None:
    part, whole = B(1024), B(4096)
    for name, *args in (
        ("_c10d_functional::reduce_scatter_tensor_out", whole, "sum", "4", "0", part),
        ("symm_mem::multimem_one_shot_reduce_out", whole, "sum", "0", "0", part),
        ("symm_mem::tile_reduce", whole, part, "0", "0", "sum"),
        ("symm_mem::nvshmem_all_to_all", whole, part, "0"),
    ):
        found = work(name, *args)
        assert (found["bytes_read"], found["bytes_written"]) == (size(whole), size(part)), name
    assert numbers(work("_c10d_functional::isend", part, "1", "0", "0")) == (0, size(part), 0)
    assert numbers(work("_c10d_functional::irecv", part, "1", "0", "0")) == (0, 0, size(part))
    assert work("symm_mem::all_to_all_vdev", whole, whole, I(4), I(2, 4), "0")["at_most"]

"""Rules that rows of other libraries' ops write as sizes, against first principles; gradients; collectives."""

from __future__ import annotations

import math
from typing import Any

import pytest
from helpers.hand_traces import BF16, FLOAT, NCCL, Program
from helpers.library_calls import BYTE, FP8, INT, B, F, I, gradient, lists, numbers, size, work

import flopscope as fs
from flopscope import _core

# Graph networks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["torch_scatter", "pyg"])
def test_scattered_rows_are_as_many_as_an_argument_says(library: str) -> None:
    src, index = F(1000, 16), I(1000)
    for name in ("sum", "mean", "mul"):
        found = work(f"{library}::scatter_{name}", src, index, "0", None, "50")
        assert numbers(found) == (1000 * 16, size(src, index), 4 * 50 * 16), name
    with_places = work(f"{library}::scatter_max", src, index, "-2", None, "50")
    assert with_places["bytes_written"] == 4 * 50 * 16 + 8 * 50 * 16
    assert math.isnan(work(f"{library}::scatter_sum", src, index, "0", None, None)["bytes_written"])
    given = work(f"{library}::scatter_sum", src, index, "0", F(50, 16), None)
    assert given["bytes_written"] == 4 * 50 * 16 and given["bytes_read"] == size(src, index, F(50, 16))
    sorted_rows = work(f"{library}::segment_min_coo", src, index, None, "50")
    assert numbers(sorted_rows) == (1000 * 16, size(src, index), 12 * 50 * 16)
    gathered = work(f"{library}::gather_coo", F(50, 16), index, None)
    assert numbers(gathered) == (0, size(F(50, 16), index), 4 * 1000 * 16)


def test_a_sparse_product_reads_a_row_per_entry_at_most_once() -> None:
    rowptr, col, value, dense = I(41), I(200), F(200), F(6000, 8)
    found = work("torch_sparse::spmm_sum", None, rowptr, col, value, None, None, dense)
    assert numbers(found) == (2 * 200 * 8, size(rowptr, col, value) + 200 * 8 * 4, 40 * 8 * 4)
    few = work("torch_sparse::spmm_max", rowptr, col, None, F(60, 8))
    assert numbers(few) == (2 * 200 * 8, size(rowptr, col, F(60, 8)), 40 * 8 * (4 + 8))
    batched = work("torch_sparse::spmm_sum", None, rowptr, col, value, None, None, F(3, 60, 8))
    assert math.isnan(batched["bytes_moved"]) and batched["expected"]


def test_pairs_of_lists_are_multiplied_each() -> None:
    x, w = [B(10, 64), B(20, 64)], [B(64, 32), B(64, 32)]
    found = lists("fbgemm::bf16bf16bf16_grouped", x, [B(32, 64), B(32, 64)])
    assert numbers(found) == (2 * 30 * 64 * 32, size(*x, *w), size(B(30, 32)))
    untyped = lists("pyg::grouped_matmul", x, w)  # a trace does not tell the dtypes in a list
    assert untyped["flops"] == found["flops"] and math.isnan(untyped["bytes_moved"])
    assert math.isnan(lists("pyg::grouped_matmul", x, [B(63, 32), B(63, 32)])["flops"])
    assert math.isnan(lists("pyg::grouped_matmul", [], [])["bytes_moved"])  # a trace may omit lists


# FBGEMM ---------------------------------------------------------------------------------------------------------------


def bags(pooling: str, output: str, **widest: int) -> dict[str, Any]:
    most = [str(widest.get(kind, 0)) for kind in ("int2", "int4", "int8", "float16", "float32")]
    empty = (BYTE, (0,))
    head = [(BYTE, (10**6,)), empty, (INT, (4,)), I(4), (BYTE, (4,)), (INT, (5,)), "256"]
    return work(
        "fbgemm::int_nbit_split_embedding_codegen_lookup_function", *head, *most, I(300), I(401), pooling, None, output
    )


def test_quantized_tables_read_the_rows_of_their_type() -> None:
    given = size(I(300), I(401))
    found = bags("0", "1", int4=64)
    assert numbers(found) == (300 * 64, 300 * (64 // 2 + 4) + given, 100 * 256 * 2) and not found["at_most"]
    assert bags("0", "0", int8=64)["bytes_read"] == 300 * (64 + 4) + given
    assert bags("0", "0", int8=64)["bytes_written"] == 100 * 256 * 4
    both = bags("0", "1", int8=64, int4=64)
    assert both["at_most"] and both["bytes_read"] == 300 * (64 + 4) + given
    rows = bags("2", "1", int8=64)  # not pooled: a row per index
    assert (rows["flops"], rows["bytes_written"]) == (0, 300 * 64 * 2)


def test_jagged_tensors_are_padded_to_their_longest() -> None:
    values, offsets = F(500, 32), I(17)
    assert numbers(work("fbgemm::jagged_2d_to_dense", values, offsets, "100")) == (
        0, size(values, offsets), 4 * 16 * 100 * 32)  # fmt: skip
    for name in ("fbgemm::jagged_to_padded_dense_forward", "aten::_jagged_to_padded_dense_forward"):
        found = lists(name, values, [offsets], "[100]", "0.")
        assert numbers(found) == (0, size(values, offsets), 4 * 16 * 100 * 32), name
        assert math.isnan(lists(name, values, [offsets, offsets], "[100, 3]", "0.")["bytes_moved"])
    back = lists("fbgemm::dense_to_jagged_forward", F(16, 100, 32), [offsets], "500")
    assert numbers(back) == (0, size(values, offsets), size(values))
    product = work("fbgemm::jagged_dense_bmm_forward", values, offsets, F(16, 32, 24), "100")
    assert numbers(product) == (2 * 500 * 32 * 24, size(values, offsets, F(16, 32, 24)), size(F(500, 24)))


def test_rows_of_eight_bits_end_with_a_scale_and_a_bias() -> None:
    assert numbers(work("fbgemm::FloatToFused8BitRowwiseQuantized", F(7, 64))) == (2 * 7 * 64, 4 * 7 * 64, 7 * 72)
    assert work("fbgemm::Fused8BitRowwiseQuantizedToFloat", (BYTE, (7, 72)))["bytes_written"] == 4 * 7 * 64
    quantized = work("fbgemm::quantize_fp8_per_row", B(7, 64), None, None, None, "False")
    assert numbers(quantized) == (2 * 7 * 64, size(B(7, 64)), 7 * 64 + 4 * 7)


def test_sparse_features_are_bucketized_with_what_is_asked_for() -> None:
    lengths, indices, weights = I(40), I(1000), F(1000)
    head = [lengths, indices]
    plain = work("fbgemm::block_bucketize_sparse_features", *head, "False", "False", I(2), "4", None)
    assert numbers(plain) == (0, size(lengths, indices, I(2)), 4 * size(lengths) + size(indices))
    more = work("fbgemm::block_bucketize_sparse_features", *head, "True", "True", I(2), "4", weights)
    assert more["bytes_written"] == plain["bytes_written"] + size(weights) + 2 * size(indices)


@pytest.mark.parametrize("mixed", [["True"], []])
@pytest.mark.parametrize(
    ("optimizer", "state"), [("sgd", 64), ("rowwise_adagrad", 65), ("adagrad", 128), ("adam", 192)]
)
def test_gradients_of_tables_read_and_write_rows_and_their_state(optimizer: str, state: int, mixed: list[str]) -> None:
    grad, indices, offsets = F(100, 256), I(300), I(401)
    head = [grad, F(10**6), F(0), F(0), (INT, (4,)), I(4), (INT, (5,)), "64", *mixed, I(5), "20", indices, offsets, "0"]
    found = work(f"fbgemm::split_embedding_backward_codegen_{optimizer}_unweighted_exact_cuda", *head, I(1), "32")
    rows = 4 * 300 * state
    assert numbers(found) == (300 * 64, size(grad, indices, offsets) + rows, rows) and found["at_most"]


def test_lookups_of_tables_write_the_dtype_that_is_asked_for() -> None:
    head = [F(10**6), F(0), F(0), (INT, (4,)), I(4), (INT, (5,)), "256", "64", I(300), I(401), "0", (INT, (300,))]
    read = 300 * 64 * 4 + size(I(300), I(401))
    for rest in (["1", "False"], [(INT, (6,)), "1", "False"]):
        found = work("fbgemm::split_embedding_codegen_forward_unweighted_cuda", *head, *rest)
        assert numbers(found) == (300 * 64, read, 100 * 256 * 2)


# Versions -------------------------------------------------------------------------------------------------------------


def test_versions_of_an_op_have_rows_of_their_own() -> None:
    positions, q, k, table = I(32), B(32, 4096), B(32, 1024), B(41216, 128)
    own = (3 * 32 * 5120, size(positions, q, k) + 32 * 128 * 2, size(q, k))
    head = [positions, q, k, "128", table, "True"]
    assert numbers(work("_C::rotary_embedding", *head)) == own
    assert numbers(work("_C::rotary_embedding", *head, "0", "False")) == own
    assert work("_C::rotary_embedding", *head, "0")["expected"]
    x, logits = F(32, 8), F(32, 64)
    for arguments in ([x, (INT, (32, 8)), logits, "True"], [x, (INT, (32, 8)), (INT, (32, 8)), logits]):
        assert work("sgl_kernel::topk_softmax", *arguments)["flops"] == 5 * 32 * 64
    quantized = size(B(32, 256)) // 4, size(B(32, 256)) // 32
    packed, scales = (BYTE, (32, 128)), (BYTE, (32, 16))
    early = work("_C::scaled_fp4_quant", packed, B(32, 256), scales, F(1))
    late = work("_C::scaled_fp4_quant", B(32, 256), F(1), "True")
    assert early["bytes_written"] == late["bytes_written"] == sum(quantized) == size(packed, scales)
    assert early["bytes_read"] == late["bytes_read"] == size(B(32, 256), F(1))


def test_a_rope_with_a_cache_writes_keys_and_values_there() -> None:
    q, k, table, positions = B(32, 4096), B(32, 1024), F(40960, 128), I(32)
    head = [q, k, q, k, table, positions, "False"]
    rows = 32 * 128 * 4
    first = work("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", *head, "0")
    assert numbers(first) == (3 * 32 * 5120, size(q, k, positions) + rows, size(q, k))
    cache, slots = (FP8, (10**6, 1024)), I(32)
    later = work("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", *head, "False", "0", k, cache, cache, slots)
    assert later["bytes_read"] == first["bytes_read"] + size(k, slots)
    assert later["bytes_written"] == first["bytes_written"] + 2 * 32 * 1024


# Products -------------------------------------------------------------------------------------------------------------


def test_transformer_engines_functions_find_their_weights_in_each_version() -> None:
    x, norm, w1, w2 = B(2, 64, 256), B(256), B(1024, 256), B(256, 512)
    space, bias = B(1), B(1024)
    for arguments in ([x, norm, norm, w1, bias, w2, None], [x, norm, norm, w1, None, bias, w2, None],
                      [x, norm, norm, w1, space, bias, "True", w2]):  # fmt: skip
        assert work("_LayerNormMLP", *arguments)["flops"] == 2 * 128 * (1024 * 256 + 256 * 512), arguments
    fused = work("_LayerNormLinear", x, norm, norm, w1, bias, None)
    assert numbers(fused) == (2 * 128 * 256 * 1024, size(x, norm, norm, w1), size(B(128, 1024)))
    old = work("_Linear", w1, None, x, bias)
    assert numbers(old)[0] == 2 * 128 * 256 * 1024
    many = work("_GroupedLinear", x, I(4), None, None, None, *[w1] * 4, *[None] * 4)
    assert numbers(many) == (2 * 128 * 256 * 1024, size(x, *[w1] * 4), size(B(128, 1024)))
    assert work("_LayerNormMLP", x, norm, norm, B(1024, 99), bias, w2, None)["expected"]


def test_groups_of_experts_are_a_bound() -> None:
    out, a, b = B(512, 1024), (FP8, (512, 256)), (FP8, (8, 256, 1024))
    scale, offsets = F(1), (INT, (8,))
    found = work(
        "_C::cutlass_moe_mm", out, a, b, scale, scale, offsets, offsets, offsets, offsets, offsets, "True", "True"
    )
    assert numbers(found) == (2 * 512 * 256 * 1024, size(a, b, scale, scale, offsets, offsets), size(out))
    assert found["at_most"] and found["unit"] == "fp8_tensor"
    x, gate, down = B(64, 256), B(8, 1024, 256), B(8, 256, 512)
    fused = work("aiter::fmoe", x, x, gate, down, I(9), F(9), I(9), I(1), "2")
    assert fused["flops"] == 2 * 64 * 2 * (1024 * 256 + 256 * 512)


DEEP = "void deep_gemm::{}<(cute::UMMA::Major)0, (cute::UMMA::Major)0, {}, (deep_gemm::GemmType)0>(int*)"


@pytest.mark.parametrize(
    ("kernel", "numbers_of_it", "weights"),
    [
        ("sm90_fp8_gemm_1d2d_impl", "0u, 7168u, 2048u, 1u, 64u, 112u, 128u, 128u, 4u, 1u", 1),
        ("sm90_bf16_gemm_impl", "0u, 7168u, 2048u, 8u, 64u, 112u, 128u, 128u, 4u, 1u", 8),
        ("sm100_bf16_gemm_impl", "0u, 7168u, 2048u, 64u, 112u, 128u, 8u, 128u, 4u, 1u", 8),
        ("sm100_fp8_fp4_gemm_1d1d_impl", "128u, 128u, 0u, 7168u, 2048u, 64u, 112u, 128u, 1u, 4u", 1),
        ("sm100_fp8_fp4_gemm_1d1d_impl", "128u, 128u, 32u, 0u, 7168u, 2048u, 64u, 112u, 128u, 1u", 1),
        ("sm100_tf32_hc_prenorm_gemm_impl", "24u, 7168u, 64u, 112u, 128u, 1u, 4u, 1u, 2u, 3u", None),
    ],
)
def test_deep_gemms_constants_are_found_by_kernel(kernel: str, numbers_of_it: str, weights: int | None) -> None:
    program = Program()
    program.run(
        "mylib::product", 0, 10, 50, [300, 2048], [7168, 2048], kernel=DEEP.format(kernel, numbers_of_it), dtype=FP8
    )
    row = next(r for r in fs.load_trace(program.text()).key_averages() if r.key == "mylib::product")
    if weights is None:
        assert math.isnan(row.flops)
        return
    item = 2 if "bf16" in kernel else 1
    assert row.flops == 2 * 300 * 7168 * 2048
    assert row.bytes_total_moved == (300 * 2048 + weights * 7168 * 2048) * item + 300 * 7168 * 2


# Gradients ------------------------------------------------------------------------------------------------------------


def test_a_gradient_takes_its_shapes_from_the_forward_pass() -> None:
    found = gradient("_Linear", [[1024, 256], [512, 256], []], [BF16, BF16, ""])
    moved = 2 * (1024 * 256 + 512 * 256) * 2 + 512 * 1024 * 2  # both read and their gradients written; the incoming one
    assert found.flops == 2 * 2 * 512 * 256 * 1024 and found.bytes_total_moved == moved
    norm = gradient("LigerRMSNormFunction", [[512, 256], [256], []], [BF16, BF16, "Scalar"])
    assert norm.flops == 9 * 512 * 256 and norm.bytes_total_moved == 2 * (3 * 512 * 256 + 2 * 256)
    other = gradient("LigerRMSNormFunction", [[512, 256], []], [BF16, "Scalar"])
    assert math.isnan(other.flops)


def test_the_product_of_a_weights_gradient_counts_apart_from_the_ops_inside() -> None:
    program = Program()
    name, x, w, flag = "LinearWithGradAccumulationAndAsyncCommunication", [512, 256], [1024, 256], "Scalar"
    args = {"Input_Dims": [x, w, [], [], [], []], "Input_type": [BF16, BF16, "", flag, flag, flag]}
    program.add(
        "cpu_op", name, 0, 10, Concrete_Inputs=["", "", "", "True", "False", "False"], Sequence_number=3, **args
    )
    program.add("cpu_op", f"{name}Backward", 50, 20, tid=2, Sequence_number=3, Fwd_thread_id=1,
                Input_Dims=[[512, 1024]], Input_type=[BF16])  # fmt: skip
    program.run("aten::mm", 52, 80, 10, [512, 1024], w, kernel="dgrad", dtype=BF16, tid=2)
    program.call("cudaLaunchKernel", 60, 1, tid=2, correlation=7)
    program.work("wgrad", 95, 10, correlation=7)
    rows = {r.key: r for r in fs.load_trace(program.text()).key_averages()}
    assert rows["aten::mm"].flops == rows[f"{name}Backward"].flops == 2 * 512 * 1024 * 256
    own = 2 * (512 * 256 + 512 * 1024) + 2 * 4 * 1024 * 256  # both factors, and the sum read and written
    assert rows[f"{name}Backward"].bytes_total_moved == own


def test_a_gradient_without_its_forward_pass_is_unknown() -> None:
    program = Program()
    program.run("LigerRMSNormFunctionBackward", 0, 10, 5, [512, 256], dtype=BF16)
    trace = fs.load_trace(program.text())
    assert math.isnan(next(r for r in trace.key_averages() if r.key.endswith("Backward")).flops)
    assert trace.coverage()["unmodelled"][0][0] == "LigerRMSNormFunctionBackward"


# Collectives ----------------------------------------------------------------------------------------------------------


def recorded(name: str, sent: int, received: int, dtype: str = "BFloat16") -> Any:
    program = Program()
    more = {"Collective_name": name, "In_msg_nelems": sent, "Out_msg_nelems": received, "dtype": dtype, "Group_size": 4}
    program.add("cpu_op", "record_param_comms", 0, 10, **more)
    program.call("cudaLaunchKernel", 2, 1, correlation=1)
    program.work(NCCL, 5, 10, correlation=1)
    return next(r for r in fs.load_trace(program.text()).key_averages() if r.key == "record_param_comms")


@pytest.mark.parametrize(
    ("name", "sent", "received", "moved"),
    [
        ("allreduce", 1000, 1000, 2000),
        ("_allgather_base", 1000, 4000, 5000),
        ("_reduce_scatter_base", 4000, 1000, 5000),
        ("all_to_all", 1000, 1200, 2200),
        ("broadcast", 1000, 1000, 1000),
        ("send", 1000, 0, 1000),
        ("recv", 0, 1000, 1000),
    ],
)
def test_a_collective_moves_what_it_sends_and_receives(name: str, sent: int, received: int, moved: int) -> None:
    row = recorded(name, sent, received)
    assert row.bytes_total_moved == 2 * moved
    assert math.isnan(row.pct_roofline)  # its time is that of the links, not of this device's memory


def test_collectives_without_sizes_take_them_from_what_calls_them() -> None:
    def moved(
        outer: str, shapes: list[list[int]], own: list[int], annotated: list[int] | None, apart: bool = False
    ) -> float:
        program = Program()
        program.op(outer, 0, 40, *shapes, dtype=[FLOAT if shape else "TensorList" for shape in shapes])
        program.op("record_param_comms", 1, 30, own, dtype=[FLOAT if own else "TensorList"])
        if annotated is not None:
            name = "nccl:" + outer.split("::")[1].rstrip("_")
            program.op(name, 2, 80 if apart else 20, annotated)
            program.events[-1]["cat"] = "user_annotation"
        program.call("cudaLaunchKernel", 5, 1, correlation=1)
        program.work(NCCL, 10, 10, correlation=1)
        rows = fs.load_trace(program.text()).key_averages()
        return next(r for r in rows if r.key == "record_param_comms").bytes_total_moved

    assert moved("c10d::alltoall_base_", [[600], [500], []], [500], None) == 4 * 1100
    assert moved("c10d::_allgather_base_", [[800], [200], []], [200], None) == 4 * 1000
    assert moved("c10d::allreduce_", [[], []], [], [394241]) == 4 * 2 * 394241
    assert moved("c10d::allreduce_", [[], []], [], [394241], apart=True) == 4 * 2 * 394241
    assert math.isnan(moved("c10d::allgather_", [[], []], [100], [100]))  # how many ranks there are is unknown


def test_real_ops_of_torch_scatter_have_work() -> None:
    torch, scatter = pytest.importorskip("torch"), pytest.importorskip("torch_scatter")
    src, index = torch.randn(1000, 16), torch.randint(0, 50, (1000,)).sort().values
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        scatter.scatter(src, index, dim=0, dim_size=50, reduce="max")
        scatter.segment_coo(src, index, dim_size=50, reduce="sum")
        scatter.gather_coo(src[:50], index)
    from flopscope.torch import from_profile

    rows = {row.key: row for row in from_profile(prof).key_averages()}
    read = 4 * 1000 * 16 + 8 * 1000
    assert rows["torch_scatter::scatter_max"].bytes_total_moved == read + 12 * 50 * 16
    assert rows["torch_scatter::segment_sum_coo"].bytes_total_moved == read + 4 * 50 * 16
    assert rows["torch_scatter::gather_coo"].bytes_total_moved == 4 * 50 * 16 + 8 * 1000 + 4 * 1000 * 16


# torch ----------------------------------------------------------------------------------------------------------------


def test_products_with_sparse_matrices_are_not_those_of_dense_ones() -> None:
    dims, types = [[40, 8], [40, 40], [40, 8], [], []], [FLOAT] * 3 + ["Scalar"] * 2
    strides = [[8, 1], [40, 1], [8, 1], [], []]
    dense = _core._work_of_torch("aten::addmm", dims, types, strides, ["", "", "", "0", "1"])
    assert dense["flops"] == 2 * 40 * 40 * 8
    strides[1] = []  # only strided tensors have strides
    sparse = _core._work_of_torch("aten::addmm", dims, types, strides, ["", "", "", "0", "1"])
    assert math.isnan(sparse["flops"]) and math.isnan(sparse["bytes_moved"])


def test_attention_on_offsets_needs_queries_of_three_axes() -> None:
    dims = [[8, 8]] * 11 + [[]] * 5
    types = [FLOAT] * 11 + ["Scalar"] * 5
    found = _core._work_of_torch(
        "aten::_cudnn_attention_backward", dims, types, [[]] * 16, [""] * 11 + ["1", "1", "1", "False", "1"]
    )
    assert math.isnan(found["flops"])


def test_ops_by_formula_match_torch() -> None:
    torch = pytest.importorskip("torch")
    pooled, where = torch.nn.functional.max_pool2d(torch.randn(2, 3, 8, 8), 2, return_indices=True)
    whole = torch.nn.functional.max_unpool2d(pooled, where, 2)
    found = work("aten::max_unpool2d", F(*pooled.shape), I(*where.shape), "[8, 8]")
    assert numbers(found) == (0, size(F(*pooled.shape), I(*where.shape)), 4 * whole.numel())
    data, lengths = torch.randn(10, 3), torch.tensor([2, 3, 5])
    reduced = torch.segment_reduce(data, "sum", lengths=lengths)
    found = work("aten::segment_reduce", F(10, 3), "sum", I(3), None, None, "0", "False", None)
    assert numbers(found) == (30, size(F(10, 3), I(3)), 4 * reduced.numel())


# Without a program ----------------------------------------------------------------------------------------------------


def test_dtypes_and_tensors_are_taken_as_they_are() -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    shapes = [(512, 256), (256, 128)]
    wanted = fs.work("aten::mm", shapes, "bfloat16")
    assert fs.work("aten::mm", shapes, torch.bfloat16) == fs.work("aten::mm", shapes, "torch.bfloat16") == wanted
    assert fs.work("aten::mm", [torch.empty(*s, dtype=torch.bfloat16) for s in shapes]) == wanted
    single = fs.work("aten::mm", shapes)
    for dtype in (numpy.float32, numpy.dtype("float32"), torch.float32, [torch.float32] * 2):
        assert fs.work("aten::mm", shapes, dtype) == single
    assert fs.work("_C::rms_norm", [(4, 8), (4, 8), (8,), 1e-6]).flops == 4 * 4 * 8


def test_unknown_work_says_why() -> None:
    assert fs.work("aten::mm", [(4, 8), (8, 4)]).why is None
    assert fs.work("mm", [(4, 8), (8, 4)]).why == "there is no rule for mm; did you mean 'aten::mm'?"
    assert "expects: result! input weight epsilon#" in str(fs.work("_C::rms_norm", [(4, 8), (4, 8)]).why)
    assert "8 ≠ 9 in (4, 8) and (9, 4)" in str(fs.work("aten::mm", [(4, 8), (9, 4)]).why)
    with pytest.raises(ValueError, match="did you mean 'NVIDIA H200'"):
        fs.roofline_time(1e9, 1e6, device="H200")

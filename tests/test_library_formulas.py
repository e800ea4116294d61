"""Rules that rows of other libraries' ops write as sizes, against first principles; gradients; collectives."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hand_traces import BF16, FLOAT, NCCL, Program
from test_library_rules import BYTE, FP8, INT, LONG, B, Tensor, numbers, size, work

import flopscope as fs
from flopscope import _core

H = "c10::Half"


def F(*shape: int) -> Tensor:
    return FLOAT, shape


def I(*shape: int) -> Tensor:  # noqa: E743
    return LONG, shape


def lists(name: str, *arguments: Any) -> dict[str, Any]:
    """Return the work of a call in which a list is a list of tensors."""
    dims = [
        [list(t[1]) for t in a] if isinstance(a, list) else list(a[1]) if isinstance(a, tuple) else []
        for a in arguments
    ]
    types = [
        "TensorList" if isinstance(a, list) else a[0] if isinstance(a, tuple) else "" if a is None else "Scalar"
        for a in arguments
    ]
    concrete = [a if isinstance(a, str) else "" for a in arguments]
    result: dict[str, Any] = _core._work_of_torch(name, dims, types, [[] for _ in dims], concrete)
    return result


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


def gradient(
    forward: str, shapes: list[list[int]], types: list[str], concrete: list[str] | None = None, node: int = 7
) -> Any:
    """Return the row of the gradient of an autograd Function, whose own record has only the incoming gradient."""
    program = Program()
    args = {"Input_Dims": shapes, "Input_type": types, "Concrete_Inputs": ["" for _ in shapes]}
    for place, text in enumerate(concrete or []):
        args["Concrete_Inputs"][place] = text
    program.add("cpu_op", forward, 0, 10, **args, Sequence_number=node, Fwd_thread_id=0)
    program.call("cudaLaunchKernel", 2, 1, correlation=1)
    program.work("k1", 5, 10, correlation=1)
    program.add("cpu_op", f"{forward}Backward", 50, 10, tid=2, Sequence_number=node, Fwd_thread_id=1,
                Input_Dims=[shapes[0]], Input_type=types[:1])  # fmt: skip
    program.call("cudaLaunchKernel", 52, 1, tid=2, correlation=2)
    program.work("k2", 60, 10, correlation=2)
    return next(r for r in fs.load_trace(program.text()).key_averages() if r.key == f"{forward}Backward")


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
    assert fs.work("mm", [(4, 8), (8, 4)]).why == "there is no rule for mm; did you mean aten::mm?"
    assert "expects: result! input weight epsilon#" in str(fs.work("_C::rms_norm", [(4, 8), (4, 8)]).why)
    assert "gives no work for these arguments" in str(fs.work("aten::mm", [(4, 8), (9, 4)]).why)
    with pytest.raises(ValueError, match="did you mean 'NVIDIA H200'"):
        fs.roofline_time(1e9, 1e6, device="H200")


# Versions of a library ------------------------------------------------------------------------------------------------


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
    full = 4 * 2 * 16 * 512 * 512 * 64
    found = work("FlashAttnFunc", q, k, k, *between)
    assert found["flops"] == (full / 2 if causal else full) and found["bytes_read"] == size(q, k, k)


def test_flash_attention_of_packed_tensors() -> None:
    qkv, offsets = B(2, 512, 3, 16, 64), ("int", (3,))
    full, row = 4 * 2 * 16 * 512 * 512 * 64, 2 * 512 * 16
    result = row * 64 * 2 + row * 4
    for between in (["0.", "0.125", "True"], ["0.125", "True", None]):
        assert numbers(work("FlashAttnQKVPackedFunc", qkv, *between)) == (full / 2, size(qkv), result), between
    packed = work("FlashAttnVarlenQKVPackedFunc", B(1024, 3, 16, 64), offsets, "512", "0.", "0.125", "False")
    assert numbers(packed) == (full, size(qkv, offsets), result) and packed["at_most"]
    args = [[2, 512, 3, 16, 64], [], [], []], [BF16, "Scalar", "Scalar", "Scalar"], ["", "0.", "0.125", "True"]
    back = gradient("FlashAttnQKVPackedFunc", *args)
    assert back.flops == 2.5 * full / 2 and back.bytes_total_moved == 2 * size(qkv) + 2 * row * 64 * 2 + row * 4
    first = work("FlashAttnFunc", *[B(1024, 16, 64)] * 3, offsets, offsets, "512", "512", "0.", "0.125", "True", "False")
    assert first["flops"] == full / 2  # version 1 has the offsets of version 2's other function
    three = work("FlashAttnVarlenFunc", *[B(1024, 16, 64)] * 3, offsets, offsets, None, None, "512", "512", None, "True")
    assert three["flops"] == full / 2


def test_xformers_masks_are_found_in_each_version() -> None:
    q, offsets = B(2, 512, 16, 64), ("int", (3,))
    full = 4 * 2 * 16 * 512 * 512 * 64
    lengths = [None, None, None, "512", "512"]
    for name, args in (
        ("xformers_flash::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", "True"]),
        ("xformers_flash::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", "True", None]),
        ("xformers_flash3::flash_fwd", [*lengths, "0.", "0.125", "True"]),
        ("xformers_flash3::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", None, None, None, None, "False"]),
        ("xformers_flash3::flash_fwd", [None, *lengths, "0.", "1.", "True", None, None, None, None, "False", "-1", "-1"]),
    ):
        assert work(name, q, q, q, *args)["flops"] == full / 2, args
    stats = F(2, 16, 512)
    tail = [offsets, offsets, "512", "512", "0.", "0.125", "True", "-1", "-1", I(2)]
    for name, args in (
        ("xformers_flash::flash_bwd", [q, q, q, q, q, stats, q, q, q, *tail]),
        ("xformers_flash::flash_bwd", ["True", q, q, q, q, q, stats, *tail]),
        ("xformers_flash3::flash_bwd", ["True", q, q, q, q, q, stats, *tail[:4], "0.125", "True"]),
        ("xformers_flash3::flash_bwd", ["True", q, q, q, q, q, stats, *tail[:4], "0.125", "True", "-1", "-1"]),
    ):
        assert work(name, *args)["flops"] == 2.5 * full / 2, args
    for name, args in (
        ("xformers_flash::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", "True"]),
        ("xformers_flash3::flash_fwd", [*lengths, "0.", "0.125", "True", "-1", "-1", None, None, None]),
        ("xformers_flash3::flash_fwd", [None, *lengths, "0.", "1.", "True", None, None, None]),
    ):
        paged = work(name, q, B(99, 64, 4, 64), B(99, 64, 4, 64), *args, ("int", (2, 8)))
        assert paged["bytes_read"] == size(q) + 2 * size(B(2, 512, 4, 64)) and paged["at_most"], args
    masked = work("xformers::efficient_attention_backward_ck", q, q, q, q, None, None, None, None, None, None, stats, q,
                  "0.", "0", "0", "2", "0.125", None)  # fmt: skip
    assert masked["flops"] == 2.5 * full / 2


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
        assert found["flops"] == 4 * 2 * 16 * 64 * (300 - 0.5) and found["at_most"], name
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
    b, l, h, p, g, n, chunk = 2, 512, 8, 64, 2, 128, 64
    x, dt, heads, states = B(b, l, h, p), B(b, l, h), F(h), B(b, l, g, n)
    chunks = b * l // chunk
    within = 2 * chunks * chunk * chunk * (g * n + h * p)  # C with B, and that with x
    between = 2 * 2 * b * l * h * p * n  # x with B, states with C
    found = work("MambaChunkScanCombinedFn", x, dt, heads, states, states, str(chunk), None, None)
    assert numbers(found) == (within + between, size(x, dt, heads, states, states), size(x)) and found["at_most"]
    width = h * p + 2 * g * n
    zxbcdt, conv = B(b, l, width + h * p + h), B(width, 4)
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
    experts = work("bitsandbytes::dequantize_4bit", (BYTE, (4 * n * k // 2, 1)), F(9), "64", "nf4", f"[4, {n}, {k}]", "15")
    assert experts["flops"] == 4 * n * k
    out = ("int", (8, n))
    given = work("bitsandbytes::int8_linear_matmul", ("signed char", (8, k)), ("signed char", (n, k)), out)
    assert numbers(given) == (2 * 8 * n * k, (8 + n) * k, size(out))


def test_numbers_in_blocks_of_8_bits() -> None:
    x = B(128, 256)
    both = (128 * 256 + 128 * 256 // 32)
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

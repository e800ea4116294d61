"""Work of ops that use parts of their arguments, and of ops for which only an upper limit is known."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import flopscope as fs
from flopscope import _core

torch = pytest.importorskip("torch")

Tensor = tuple[str, list[int]]
KINETO = {
    "float64": "double", "float32": "float", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "bool": "bool",
    "int64": "long int", "int32": "int", "int16": "short int", "uint8": "unsigned char",
}  # fmt: skip


def T(dtype: str, *shape: int) -> Tensor:
    return KINETO.get(dtype, dtype), list(shape)


def F(*shape: int) -> Tensor:
    return T("float32", *shape)


def work(name: str, *arguments: Any) -> dict[str, Any]:
    """Return the work of a call: tensors are (type, shape), tensor lists lists of shapes, None is missing."""
    dims, types, concrete = [], [], []
    for value in arguments:
        tensor, tensors = isinstance(value, tuple), isinstance(value, list)
        dims.append(value[1] if tensor else value if tensors else [])
        types.append(value[0] if tensor else "TensorList" if tensors else "" if value is None else "Scalar")
        if isinstance(value, str) and value.startswith("["):
            types[-1] = "ScalarList"
        concrete.append("" if tensor or tensors or value is None else str(value))
    result: dict[str, Any] = _core._work_of_torch(name, dims, types, None, concrete)
    return result


def moved(result: dict[str, Any]) -> tuple[float, float]:
    return result["bytes_read"], result["bytes_written"]


# Triangles ------------------------------------------------------------------------------------------------------------

TRIANGLES = [(rows, columns, k) for rows, columns in ((5, 5), (3, 7), (7, 3), (1, 4)) for k in range(-8, 9)]


@pytest.mark.parametrize(("rows", "columns", "diagonal"), TRIANGLES)
@pytest.mark.parametrize("op", ["tril", "triu"])
def test_triangular_parts_read_only_the_elements_they_keep(op: str, rows: int, columns: int, diagonal: int) -> None:
    kept = int(getattr(torch.ones(rows, columns), op)(diagonal).sum())
    all_of_it = 2 * rows * columns
    x = F(2, rows, columns)
    assert moved(work(f"aten::{op}", x, diagonal)) == pytest.approx((4 * 2 * kept, 4 * all_of_it))
    assert moved(work(f"aten::{op}_", x, diagonal)) == pytest.approx((0, 4 * (all_of_it - 2 * kept)))
    indices = getattr(torch, f"{op}_indices")(rows, columns, diagonal)
    assert moved(work(f"aten::{op}_indices", rows, columns, diagonal, 4, None, None, False)) == (0, 8 * indices.numel())


def test_a_triangle_with_an_unknown_diagonal_reads_at_most_every_element() -> None:
    result = work("aten::tril", F(5, 5), "")
    assert moved(result) == (100, 100) and result["at_most"]


# Losses and scans exclude the work of the ops inside them -------------------------------------------------------------


def recorded(run: Any) -> list[dict[str, Any]]:
    """Run a program and return its ops with their arguments."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        run()
    return [
        {"name": e.name, "inside": [c.name for c in e.cpu_children], "shapes": e.input_shapes} for e in prof.events()
    ]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("op", ["mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"])
def test_losses_write_the_input_of_their_inner_reduction(op: str, reduction: str) -> None:
    x, y = torch.rand(6, 10), torch.rand(6, 10)
    events = recorded(lambda: getattr(torch.nn.functional, op)(x, y, reduction=reduction))
    inside = next(e["inside"] for e in events if e["name"] == f"aten::{op}")
    assert (f"aten::{reduction}" in inside) == (reduction != "none")
    code = ["none", "mean", "sum"].index(reduction)
    more = [None, code] if op == "binary_cross_entropy" else [code]
    result = work(f"aten::{op}", F(6, 10), F(6, 10), *more)
    assert moved(result) == (2 * 240, 240) and result["flops"] == 60


def test_a_loss_and_its_mean_are_both_counted() -> None:
    x, y = torch.rand(64, 100), torch.rand(64, 100)
    from flopscope.torch import profile

    with profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        torch.nn.functional.mse_loss(x, y, reduction="sum")
    rows = {row.key: row for row in prof.key_averages(peaks="none")}
    assert (rows["aten::mse_loss"].flops, rows["aten::sum"].flops) == (6400, 6400)
    assert rows["aten::mse_loss"].bytes_total_moved == 3 * 4 * 6400


SCANS = [
    (source, target)
    for source in ("float16", "bfloat16", "float32", "float64", "bool", "uint8", "int16", "int32", "int64")
    for target in (None, "float32", "int64", "float64")
]


@pytest.mark.parametrize(("source", "target"), SCANS)
@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
def test_scans_read_the_converted_input_and_write_their_result(op: str, source: str, target: str | None) -> None:
    codes = {None: None, "float32": 6, "int64": 4, "float64": 7}
    x = torch.ones(6, 10).to(getattr(torch, source))
    out = getattr(x, op)(1, dtype=getattr(torch, target) if target else None)
    result = work(f"aten::{op}", T(source, 6, 10), 1, codes[target])
    assert moved(result) == (out.numel() * out.element_size(),) * 2
    assert result["flops"] == (60 if out.dtype.is_floating_point else 0)
    if x.dtype != out.dtype:
        events = recorded(lambda: getattr(x, op)(1, dtype=out.dtype))
        assert "aten::to" in next(e["inside"] for e in events if e["name"] == f"aten::{op}")


def test_a_scan_in_place_keeps_its_dtype() -> None:
    assert moved(work("aten::cumsum_", T("int32", 6, 10), 1, None)) == (240, 240)


# Sizes from numbers ---------------------------------------------------------------------------------------------------


def test_sizes_follow_from_numbers() -> None:
    assert moved(work("aten::histc", F(600), 12, 0, 1)) == (2400, 4 * torch.rand(600).histc(12, 0, 1).numel())
    assert moved(work("aten::nonzero_static", F(6, 10), 7, -1)) == (240, 8 * 7 * 2)
    narrowed = torch.rand(6, 10).narrow_copy(1, 2, 5)
    assert moved(work("aten::narrow_copy", F(6, 10), -1, 2, 5)) == (4 * narrowed.numel(),) * 2
    repeats = torch.tensor([1, 2, 3, 4])
    out = torch.repeat_interleave(repeats, output_size=10)
    assert moved(work("aten::repeat_interleave", T("int64", 4), 10)) == (2 * 8 * 4, 8 * out.numel())
    assert math.isnan(work("aten::repeat_interleave", T("int64", 4), None)["bytes_moved"])
    assert math.isnan(work("aten::repeat_interleave", F(4), T("int64", 4), 0)["bytes_moved"])


@pytest.mark.parametrize(
    ("name", "arguments", "results"),
    [
        ("nonzero", (), 1), ("masked_select", (), 1), ("_unique2", (True, True, True), 3),
        ("_unique2", (True, False, True), 3), ("unique_consecutive", (True, True, None), 3),
    ],
)  # fmt: skip
def test_data_dependent_sizes_are_upper_limits(name: str, arguments: tuple[Any, ...], results: int) -> None:
    """torch reaches the limit if every element is selected and all elements differ."""
    x = torch.arange(1, 61, dtype=torch.float32).reshape(6, 10)
    mask = [torch.ones(6, 10, dtype=torch.bool)] if name == "masked_select" else []
    if name.startswith("_unique") or name.startswith("unique"):
        out = getattr(torch.ops.aten, name)(x, *arguments)
    else:
        out = getattr(x, name)(*mask)
    out = out if isinstance(out, tuple) else (out,)
    result = work(f"aten::{name}", F(6, 10), *([T("bool", 6, 10)] if mask else []), *arguments)
    assert result["at_most"] and len(out) == results
    assert moved(result) == (240 + 60 * len(mask), sum(t.numel() * t.element_size() for t in out))


# Lists of copies ------------------------------------------------------------------------------------------------------


def test_copies_of_all_parts_move_every_element() -> None:
    x = torch.rand(6, 10)
    for name, run, arguments in (
        ("split_with_sizes_copy", lambda: torch.split_with_sizes_copy(x, [3, 7], 1), ("[3, 7]", 1)),
        ("split_copy", lambda: torch.split_copy(x, 4, 1), (4, 1)),
        ("unbind_copy", lambda: torch.unbind_copy(x, 1), (1,)),
    ):
        assert moved(work(f"aten::{name}", F(6, 10), *arguments)) == (240, sum(4 * t.numel() for t in run()))
    assert moved(work("aten::split_with_sizes_copy", F(6, 10), "[3, 7]", 1, [[6, 3], [6, 7]])) == (240, 240)
    assert moved(work("fsdp::split_with_sizes_copy", F(6, 10), "[3, 7]", 1, [[6, 3], [6, 7]])) == (240, 240)


def test_chunks_are_padded() -> None:
    tensors = [torch.rand(5, 3), torch.rand(4, 2)]
    out = torch._chunk_cat(tensors, 0, 2)
    shapes = [list(t.shape) for t in tensors]
    for name in ("aten::_chunk_cat", "fsdp::chunk_cat"):
        result = work(name, shapes, 0, 2, F(*out.shape))
        assert result["at_most"] and moved(result) == (4 * (15 + 8), 4 * out.numel())
        assert moved(work(name, [], 0, 2, F(*out.shape))) == (4 * out.numel(), 4 * out.numel())
    assert work("aten::_chunk_cat", shapes, 0, 2)["list_elements"] == 23


# Norms ----------------------------------------------------------------------------------------------------------------


def test_the_weight_gives_the_normalized_shape() -> None:
    explicit = work("aten::native_layer_norm", F(6, 5, 4), "[5, 4]", F(5, 4), F(5, 4), 1e-5)
    assert moved(explicit) == moved(work("aten::native_layer_norm", F(6, 5, 4), "", F(5, 4), F(5, 4), ""))
    assert moved(explicit)[1] == 4 * (120 + 2 * 6)
    assert math.isnan(work("aten::native_layer_norm", F(6, 5, 4), "", None, None, "")["bytes_written"])


def test_queries_are_scaled_and_all_have_a_bias() -> None:
    qkv, bias, heads = torch.rand(2, 5, 24), torch.rand(24), 2
    out = torch.ops.aten._transform_bias_rescale_qkv(qkv, bias, heads)
    result = work("aten::_transform_bias_rescale_qkv", F(2, 5, 24), F(24), heads)
    assert moved(result) == (4 * (240 + 24), sum(4 * t.numel() for t in out))
    assert result["flops"] == pytest.approx(240 + 80)


# Other libraries ------------------------------------------------------------------------------------------------------


def test_permuted_features_include_their_values() -> None:
    """FBGEMM, sparse_ops: lengths of 3 features in batches of 16, 96 values; 2 of them selected, 50 values."""
    arguments = T("int32", 2), T("int32", 3, 16), T("int64", 96)
    result = work("fbgemm::permute_2D_sparse_data", *arguments, None, 50)
    assert moved(result) == (8 + 4 * 48 + 8 * 50, 4 * 32 + 8 * 50) and not result["at_most"]
    weighted = work("fbgemm::permute_2D_sparse_data", *arguments, F(96), None)
    assert moved(weighted) == (8 + 4 * 48 + 12 * 96, 4 * 32 + 12 * 96) and weighted["at_most"]


def test_microscaled_numbers_have_a_scale_for_each_block() -> None:
    result = work("torchao::triton_to_mxfp8_dim0", T("bfloat16", 64, 96), 32, None)
    assert moved(result) == (2 * 64 * 96, 64 * 96 + 64 * 3) and result["flops"] == 2 * 64 * 96


def test_scales_are_padded_to_tiles() -> None:
    swizzled = work("torchao::triton_mx_block_rearrange_per_group_3d", T("c10::Float8_e8m0fnu", 4, 200, 6))
    assert moved(swizzled) == (4 * 200 * 6, 4 * 256 * 8) and not swizzled["at_most"]
    grouped = work("torchao::mx_block_rearrange_2d_M_groups", T("c10::Float8_e8m0fnu", 512, 4), T("int32", 3), 3)
    assert moved(grouped) == (512 * 4, (512 + 3 * 128) * 4) and grouped["at_most"]


def test_upper_limits_are_estimates_on_a_cpu_as_well() -> None:
    args = {"Input Dims": [[6, 10]], "Input type": ["float"], "Concrete Inputs": [""]}
    event = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "name": "aten::nonzero", "ts": 0, "dur": 9, "args": args}
    prof = fs.load_trace(json.dumps({"traceEvents": [event]}).encode())
    assert prof.coverage()["estimated"] == [("aten::nonzero", 9)]


# Upper limits in tables -----------------------------------------------------------------------------------------------

INDEX = (
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<"
    "at::native::OpaqueType<4> >(at::TensorIteratorBase&)::{lambda(char*, char const*, long)#1}>(x)>(x)"
)
GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"


def table_of(name: str, args: dict[str, Any], kernel: str, grid: list[int], us: float) -> tuple[Any, dict[str, Any]]:
    """Return the op's row and the coverage of an H200 trace in which the op launched that kernel."""
    ids = {"External id": 7, "correlation": 1}
    event = {"ph": "X", "pid": 1, "tid": 1}
    launch = {**ids, "device": 0, "stream": 7, "grid": grid, "block": [128, 1, 1]}
    events = [
        {**event, "cat": "cpu_op", "name": name, "ts": 0, "dur": 90, "args": {**args, "External id": 7}},
        {**event, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 2, "args": ids},
        {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": 20, "dur": us, "args": launch},
    ]
    head = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0}]}
    prof = fs.load_trace(json.dumps({**head, "traceEvents": events}).encode())
    row = next(r for r in prof.key_averages() if r.key == name and r.device_type == "cpu")
    return row, prof.coverage()


@pytest.mark.parametrize(
    ("kernel", "grid", "elements"), [(INDEX, [3, 1, 1], 3 * 512), (GATHER, [5, 2, 1], 5 * 2 * 128)]
)
def test_kernel_grids_limit_the_elements_that_an_index_selects(kernel: str, grid: list[int], elements: int) -> None:
    args = {"Input Dims": [[1000, 8], []], "Input type": ["float", ""], "Concrete Inputs": ["", ""]}
    row, coverage = table_of("aten::index", args, kernel, grid, 10)
    assert (row.flops, row.bytes_read, row.bytes_written) == (0, 4 * elements, 4 * elements)
    assert coverage["bytes"] == 1 and coverage["estimated"] == [("aten::index", 10)]
    small = {**args, "Input Dims": [[100], []]}  # each element counts once, however often it is read
    assert table_of("aten::index", small, kernel, grid, 10)[0].bytes_read == 400


def test_the_work_of_an_index_is_unknown_without_a_known_kernel() -> None:
    args = {"Input Dims": [[1000, 8], []], "Input type": ["float", ""], "Concrete Inputs": ["", ""]}
    row, coverage = table_of("aten::index", args, "somebodys_kernel", [3, 1, 1], 10)
    assert math.isnan(row.bytes_total_moved) and coverage["bytes"] == 0


def test_recorded_indices_broadcast() -> None:
    picked = torch.rand(50, 60)[torch.zeros(7, 1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)]
    result = work("aten::index", F(50, 60), [[7, 1], [3]])
    assert moved(result) == (4 * 21 + 8 * (7 + 3), 4 * picked.numel()) and result["at_most"]
    assert work("aten::index", F(50, 60), [[7, 1]])["of_launched"]  # the list does not record the axis


def test_a_grouped_product_is_bounded_by_the_product_of_all_rows() -> None:
    e, m, k, n = 4, 512, 256, 128
    offsets = T("int32", e)
    rows = work("aten::_grouped_mm", T("bfloat16", m, k), T("bfloat16", e, k, n), offsets, None, None)
    assert rows["flops"] == 2 * m * k * n and rows["at_most"]
    assert moved(rows) == (2 * (m * k + e * k * n) + 4 * e, 2 * m * n)
    batches = work("aten::_grouped_mm", T("bfloat16", e, m, k), T("bfloat16", e, k, n), None, None, None)
    assert batches["flops"] == e * 2 * m * k * n and not batches["at_most"]


@pytest.mark.parametrize(("us", "has_rate"), [(100, True), (1, False)])
def test_an_upper_limit_above_the_roofline_has_no_rate(us: float, has_rate: bool) -> None:
    """2 · 4096 · 4096 · 2048 FLOPs take 70 µs at the 989 TFLOP/s of an H200."""
    shapes = [[4096, 4096], [8, 4096, 2048], [8], [], []]
    types = ["c10::BFloat16", "c10::BFloat16", "int", "", ""]
    args = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": [""] * 5}
    row, coverage = table_of("aten::_grouped_mm", args, "kernel", [1, 1, 1], us)
    assert row.flops == 2 * 4096 * 4096 * 2048 and coverage["estimated"]
    assert math.isnan(row.pct_roofline) != has_rate and (row.bound == "compute") == has_rate
    assert math.isnan(row.tflops_per_s) != has_rate

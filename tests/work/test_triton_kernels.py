"""Triton kernels: what inductor's names and arguments tell, and what the code of a kernel does with its pointers, by IR
that Triton 3.6 wrote for compute capability 9.0, without places."""

import math
from typing import Any

import pytest
from helpers import TESTS
from helpers.work_cases import NAN, B, F, I, P, Tensor, work

from flopscope.record.triton_launches import READ, WRITTEN, accesses, units

N = 60
BIG, ROW, NARROW, MASK, TABLE, ROWS = F(6, 10), F(10), B(6, 10), P(6, 10), F(50257, 8), F(60, 8)
SPREAD = Tensor("c10::BFloat16", (6, 10), (0, 1))
# Inductor's KernelArgs lists in-place buffers first, then inputs, then outputs; the last numbers are the points.
MOVED: list[tuple[str, list[Any], float]] = [
    # Each distinct element of a tensor, at most one a point
    ("poi_fused_add_0", [BIG, SPREAD, BIG, 60], 4 * N + 20 + 4 * N),
    ("poi_fused_embedding_1", [I(60), TABLE, ROWS, 480], 8 * 60 + 2 * 4 * 480),
    ("poi_fused_embedding_1", [I(60), TABLE, ROWS, 8, 60], 8 * 60 + 2 * 4 * 480),  # tiles: y, x
    # An offset of the random number generator, or a dynamic size, may precede them.
    *(("per_fused_embedding_norm_1", [I(60), TABLE, ROWS, before, 60, 8], 8 * 60 + 2 * 4 * 480)
      for before in (0, 12, 60)),
    ("poi_fused_cat_split_transpose_view_5", [F(8, 96), F(8, 32), 256], 2 * 4 * 256),
    ("poi_fused_mul_silu_split_5", [F(8, 64), F(8, 32), 256], 4 * 512 + 4 * 256),  # both halves
    ("poi_fused_add_mm_20", [F(16, 10), BIG, BIG, 60], 3 * 4 * N),  # padded
    ("red_fused_nll_loss_forward_sub_2", [F(6, 1000), I(6), F(), 1, 6], 4 * 6 + 8 * 6 + 4),
    # A convolution's bias: in_out_ptr0, in_ptr0. The bias is too small to be the output of 60 points.
    ("poi_fused_convolution_0", [BIG, ROW, 60], 2 * 4 * N + 40),
    ("poi_fused_add_0", [BIG, ROW, BIG, 60], 2 * 4 * N + 40),  # in_ptr0, in_ptr1, out_ptr0
    # Masks and statistics of a norm, as in GPT-2's first layer
    ("poi_fused_add_native_layer_norm_8", [BIG, MASK, F(6, 1), F(6, 1), 60], 9 * N + 48),
    # A single tensor is both input and output, unless the kernel only fills it.
    ("poi_fused_relu_0", [BIG, 60], 2 * 4 * N),
    ("poi_fused_zeros_0", [BIG, 60], 4 * N),
    ("poi_fused_embedding_dense_backward_9", [BIG, 60], 4 * N),
    # The gradient of tanh needs the incoming gradient and the saved output; of two tensors, one is also the result.
    ("poi_fused_mul_tanh_backward_3", [BIG, BIG, 60], 3 * 4 * N),
    ("poi_fused_mul_tanh_backward_3", [BIG, BIG, BIG, 60], 3 * 4 * N),
    ("poi_fused_div_expand_tanh_backward_3", [BIG, BIG, 60], 2 * 4 * N),
    # A row-wise norm in place: x, weight, bias; then out of place
    ("per_fused_native_layer_norm_0", [BIG, ROW, ROW, 6, 10], 2 * 4 * N + 80),
    ("per_fused_native_layer_norm_0", [BIG, ROW, ROW, BIG, 6, 10], 2 * 4 * N + 80),
    ("red_fused_sum_0", [BIG, F(6), 6, 10], 4 * N + 24),
    # Partial sums (one axis, of a size unrelated to the grid) are not inputs.
    ("per_fused_mul_sum_2", [F(64, 8), F(64, 8), F(128), 64, 8], 2 * 4 * 512 + 4 * 128),
    # What no result can be proves that the kernel is in place: a mask, or a float narrower than the first.
    ("poi_fused_add_0", [BIG, NARROW, 60], (2 * 4 + 2) * N),
    ("poi_fused_add_mul_0", [BIG, NARROW, NARROW, 60], (2 * 4 + 2 * 2) * N),
    ("poi_fused_add_native_dropout_backward_1", [BIG, NARROW, MASK, 60], (2 * 4 + 2 + 1) * N),
    ("poi_fused_masked_fill_mul_1", [BIG, MASK, 60], (2 * 4 + 1) * N),
    ("poi_fused__to_copy_add_0", [BIG, NARROW, 60], (4 + 2) * N),  # the result is cast
    ("poi_fused_native_layer_norm_0", [BIG, NARROW, 60], (4 + 2) * N),  # statistics are float32 whatever the input
    ("poi_fused_add_0", [BIG, BIG, 60], (4 + 4) * N),  # the result, or an operand
    ("poi_fused_gt_0", [BIG, MASK, 60], (4 + 1) * N),
    ("poi_fused_native_dropout_0", [BIG, MASK, 60], (4 + 1) * N),
    ("poi_fused_full_like_0", [BIG, MASK, 60], (4 + 1) * N),
    ("poi_fused_add_0", [NARROW, BIG, 60], (2 + 4) * N),  # bfloat16 plus a float32 number
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "moved"), MOVED)
def test_a_generated_kernel_moves_each_element_of_its_tensors(name: str, arguments: list[Any], moved: float) -> None:
    found = work(f"triton_{name}", *arguments)
    assert found["bytes_moved"] == moved and math.isnan(found["bytes_read"]) and math.isnan(found["bytes_written"])


def test_a_generated_kernel_that_may_read_half_is_bounded() -> None:
    assert not work("triton_poi_fused_add_mm_20", F(16, 10), BIG, BIG, 60)["at_most"]
    for ops in ("mul_silu_split", "avg_pool2d_relu", "add_mean"):
        halves = work(f"triton_poi_fused_{ops}_5", F(6, 20), BIG, 60)
        assert halves["bytes_moved"] == 2 * 4 * N + 4 * N and halves["at_most"]


@pytest.mark.parametrize(
    ("name", "arguments", "flops"),
    [
        ("poi_fused_add_0", [BIG, SPREAD, BIG, 60], 60),
        ("poi_fused_add_mul_0", [*[B(64, 64)] * 3, 4096], 2 * 4096),
        ("poi_fused__to_copy_clone_1", [*[B(64, 64)] * 2, 4096], 0),
        ("per_fused__softmax_2", [*[B(64, 64)] * 2, 64, 64], 5 * 4096),
        ("poi_fused_add_unheard_of_3", [*[B(64, 64)] * 2, 4096], NAN),
        ("poi_fused_0", [*[B(64, 64)] * 2, 4096], NAN),
        ("tem_fused_mm_4", [B(64, 32), B(32, 16), B(64, 16)], 2 * 64 * 32 * 16),
        ("tem_fused_bmm_5", [B(8, 64, 32), B(8, 32, 16), B(8, 64, 16)], 2 * 8 * 64 * 32 * 16),
        ("tem_fused_flex_attention_6", [B(2, 8, 64, 32)] * 4, 4 * 2 * 8 * 64 * 64 * 32),
    ],
)
def test_generated_kernels_count_the_ops_in_their_names(name: str, arguments: list[Any], flops: float) -> None:
    assert work(f"triton_{name}", *arguments)["flops"] == pytest.approx(flops, nan_ok=True)


# Code -----------------------------------------------------------------------------------------------------------------

BOTH = READ | WRITTEN


def ir(name: str) -> str:
    return (TESTS / "data" / "triton" / f"{name}.ttir").read_text()


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("add_relu", [READ, READ, WRITTEN]),
        ("in_place", [BOTH]),
        ("matmul", [READ, READ, WRITTEN]),  # pointers that a loop moves
        ("histogram", [READ, BOTH]),  # atomic additions
        ("choose", [READ, READ, WRITTEN]),  # x or y is read
        ("branch", [BOTH, BOTH, WRITTEN]),  # an `if` chooses x or y, which is read, and then written
        ("swap", [BOTH, BOTH, WRITTEN]),  # each pass of a loop swaps x, which it reads, with y, which it writes
        ("rows", [READ, WRITTEN]),  # a `while` loop
        ("blockptr", [READ, WRITTEN]),  # a block pointer; a descriptor made on the device
        ("desc", [READ, WRITTEN]),  # a descriptor made on the host
        ("grouped", None),  # it loads addresses
    ],
)
def test_what_a_kernel_does_with_its_pointers(name: str, done: list[int] | None) -> None:
    assert accesses(ir(name)) == done


def test_places_in_the_code_and_attributes_of_loops_change_nothing() -> None:
    given = ir("swap").replace("%y_ptr: !tt.ptr<f32>", '%y_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("y"(#1))')
    looped = ir("swap").replace("    }\n", "    } {tt.num_stages = 3 : i32}\n")
    nested = looped.replace("    scf.yield", "      %9 = scf.if %n -> (i32) {\n      }\n    scf.yield")
    assert "loc" in given and "num_stages" in looped and "scf.if" in nested
    for text in ("\n".join(f"{line} loc(#loc7)" for line in given.splitlines()), looped, nested):
        assert accesses(text) == [BOTH, BOTH, WRITTEN]


@pytest.mark.parametrize(
    "line",
    [
        "tt.call @helper(%x_ptr) : (!tt.ptr<f32>) -> ()",
        "%9 = tt.ptr_to_int %x_ptr : !tt.ptr<f32> -> i64",
        "%9 = tt.int_to_ptr %n : i64 -> !tt.ptr<f32>",
        '%9 = tt.extern_elementwise %x_5 {symbol = "peek"} : (tensor<1024x!tt.ptr<f32>>) -> tensor<1024xf32>',
    ],
)
def test_pointers_that_go_elsewhere_make_it_unknown(line: str) -> None:
    assert accesses(ir("add_relu").replace("    tt.return", f"    {line}\n    tt.return")) is None


@pytest.mark.parametrize("text", ["", "module {\n}", "tt.func private @f(%x: !tt.ptr<f32>) {\n}"])
def test_code_without_a_kernel_is_unknown(text: str) -> None:
    assert accesses(text) is None


PLAIN = {16: "fp16", 32: "fp32", 64: "fp64"}


@pytest.mark.parametrize(
    ("instruction", "tensor"),
    [
        ("fma.rn.f32 \t%f1, %f2, %f3, %f4;", {}),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 \t{%f1};", {16: "fp16_tensor"}),
        ("@%p1 mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { %r1 };", {16: "bf16_tensor"}),
        ("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%f1};", {32: "tf32_tensor"}),
        ("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%f1};", {8: "fp8_tensor"}),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%r1};", {8: "int8_tensor"}),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1};", {64: "fp64_tensor"}),
        ("tcgen05.mma.cta_group::1.kind::f16 [ %r1 ], %rd1;", {16: "fp16_tensor"}),
        ("wgmma.fence.sync.aligned;", {}),
        ("// gemma.mma.sync.f16 is a name", {}),
    ],
)
def test_the_units_of_ptx(instruction: str, tensor: dict[int, str]) -> None:
    assert units({"ptx": f".version 8.6\n\t{instruction}\n\tret;\n"}) == {**PLAIN, **tensor}


def test_the_units_of_other_code() -> None:
    assert units({"amdgcn": "\tv_mfma_f32_32x32x16_bf16 a[0:15], v[0:3]\n"}) == {**PLAIN, 16: "bf16_tensor"}
    for code in ({}, {"ttir": "x"}, {"ptx": b"\0"}):
        assert units(code) == {}, "without assembly no unit is known"

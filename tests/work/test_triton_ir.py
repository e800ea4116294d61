"""What the code of Triton kernels tells: their IR as Triton 3.6 wrote it for compute capability 9.0, without places."""

from __future__ import annotations

import pytest
from helpers import TESTS

from flopscope.record.triton_ir import READ, WRITTEN, accesses, units

BOTH = READ | WRITTEN


def ir(name: str) -> str:
    return (TESTS / "data" / "triton" / f"{name}.ttir").read_text()


@pytest.mark.parametrize(
    "name, done",
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


def test_places_in_the_code_change_nothing() -> None:
    placed = ir("swap").replace(
        "%y_ptr: !tt.ptr<f32>", '%y_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32} loc("y"(#1))'
    )
    assert "loc" in placed
    assert accesses("\n".join(f"{line} loc(#loc7)" for line in placed.splitlines())) == [BOTH, BOTH, WRITTEN]


def test_loops_may_have_attributes() -> None:
    text = ir("swap").replace("    }\n", "    } {tt.num_stages = 3 : i32}\n")
    assert "num_stages" in text and accesses(text) == [BOTH, BOTH, WRITTEN]
    nested = text.replace("    scf.yield", "      %9 = scf.if %n -> (i32) {\n      }\n    scf.yield")
    assert accesses(nested) == [BOTH, BOTH, WRITTEN]


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
    text = ir("add_relu")
    assert accesses(text.replace("    tt.return", f"    {line}\n    tt.return")) is None


@pytest.mark.parametrize("text", ["", "module {\n}", "tt.func private @f(%x: !tt.ptr<f32>) {\n}"])
def test_code_without_a_kernel_is_unknown(text: str) -> None:
    assert accesses(text) is None


PLAIN = {16: "fp16", 32: "fp32", 64: "fp64"}


@pytest.mark.parametrize(
    "instruction, tensor",
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


def test_the_units_of_amd_code() -> None:
    assert units({"amdgcn": "\tv_mfma_f32_32x32x16_bf16 a[0:15], v[0:3]\n"}) == {**PLAIN, 16: "bf16_tensor"}


@pytest.mark.parametrize("code", [{}, {"ttir": "x"}, {"ptx": b"\0"}])
def test_without_assembly_no_unit_is_known(code: dict[str, object]) -> None:
    assert units(code) == {}

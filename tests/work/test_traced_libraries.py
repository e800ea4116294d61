"""Work that other events of a trace tell, of libraries' ops: gradients, kernels, annotations of steps, collectives."""

import math
from typing import Any

import pytest
from cases_libraries import GRADIENTS
from helpers.hand_traces import BF16, FLOAT, NCCL, Program
from helpers.work_cases import FP8, INT, LONG, STEP, gradient, is_unknown, numbers, rows_of

import flopscope as fs

Shape = list[int]


# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("forward", "arguments", "flops", "moved"), GRADIENTS)
def test_a_gradient_has_shapes_of_its_forward_op(forward: str, arguments: list[Any], flops: float, moved: Any) -> None:
    row = gradient(forward, *arguments)
    assert row.flops == pytest.approx(flops, rel=1e-12, nan_ok=True)
    assert moved is ... or row.bytes_total_moved == moved


def test_the_product_of_a_weights_gradient_counts_apart_from_the_ops_inside() -> None:
    program = Program()
    name, x, w, flag = "LinearWithGradAccumulationAndAsyncCommunication", [512, 256], [1024, 256], "Scalar"
    program.op(name, 0, 10, x, w, [], [], [], [], dtype=[BF16, BF16, "", flag, flag, flag], Sequence_number=3,
               values=["", "", "", "True", "False", "False"])  # fmt: skip
    program.op(f"{name}Backward", 50, 20, [512, 1024], dtype=BF16, tid=2, Sequence_number=3, Fwd_thread_id=1)
    program.run("aten::mm", 52, 80, 10, [512, 1024], w, kernel="dgrad", dtype=BF16, tid=2)
    program.call("cudaLaunchKernel", 60, 1, tid=2, correlation=7)
    program.work("wgrad", 95, 10, correlation=7)
    found = rows_of(program)
    assert found["aten::mm"].flops == found[f"{name}Backward"].flops == 2 * 512 * 1024 * 256
    own = 2 * (512 * 256 + 512 * 1024) + 2 * 4 * 1024 * 256  # both factors, and the sum read and written
    assert found[f"{name}Backward"].bytes_total_moved == own


def test_an_autograd_function_counts_only_if_nothing_in_it_does() -> None:
    program, q = Program(), [2, 64, 4, 64]
    program.op("FlashAttnFunc", 0, 30, q, q, q, [], [], [], dtype=[BF16] * 3 + ["Scalar"] * 3,
               values=["", "", "", "0.", "0.1", "False"])  # fmt: skip
    program.run("flash_attn::_flash_attn_forward", 5, 50, 9, q, q, q, dtype=BF16)
    found = rows_of(program)
    assert found["FlashAttnFunc"].flops == 0 and found["flash_attn::_flash_attn_forward"].bytes_total_moved > 0


# Tables of embeddings -------------------------------------------------------------------------------------------------
#
# FBGEMM's lookups of 2022, with the arguments of its codegen/embedding_backward_split_host_template.cpp before 0.8. The
# gradient tells the width of a lookup, and the lookup its indices.

TABLES, BATCH, WIDTH = 3, 128, 16
OPTIMIZERS = {  # numbers read and written for each number of a row and for each row
    "sgd": (1, 0), "rowwise_adagrad": (1, 1), "adagrad": (2, 0), "adam": (3, 0), "partial_rowwise_adam": (2, 1),
}  # fmt: skip


def looked_up(optimizer: str, *indices: int, gradients: list[tuple[str, Shape]]) -> Program:
    """Return lookups of a shape that PARAM's benchmark recorded, whose values are not recorded, and gradients."""
    program, types = Program(), [FLOAT] * 4 + [INT, LONG, INT, "Scalar", "Scalar", LONG, "Scalar", LONG, LONG, "Scalar"]
    for place, count in enumerate(indices):
        shapes = [[0], [10**6], [0], [0, 0], [TABLES], [TABLES], [TABLES + 1], [], [], [TABLES + 1], [], [count],
                  [TABLES * BATCH + 1], [], [], [], [0], [], [], []]  # fmt: skip
        program.run(f"fbgemm::split_embedding_codegen_lookup_{optimizer}_function", 10 + 30 * place, 30 + 30 * place,
                    10, *shapes, dtype=[*types, "", "", INT, *["Scalar"] * 3])  # fmt: skip
    for place, (name, shape) in enumerate(gradients):
        at = 100 + 130 * place
        program.run(f"torch::autograd::CppNode<SplitLookupFunction_{name}_Op>", at, at + 20, 100, shape)
    return program


def lookups(program: Program) -> list[fs.EventRow]:
    return [row for row in program.load().key_averages(group_by_input_shape=True) if "::" in row.key]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_lookup_and_its_gradient_tell_each_other_their_sizes(optimizer: str) -> None:
    indices, pooled = 768, [BATCH, TABLES * WIDTH]
    program = looked_up(optimizer, indices, gradients=[(optimizer, pooled)])
    forward, backward = lookups(program)
    given, result = 8 * (indices + TABLES * BATCH + 1), 4 * BATCH * TABLES * WIDTH
    assert numbers(forward) == (indices * WIDTH, 4 * indices * WIDTH + given, result)
    of_number, of_row = OPTIMIZERS[optimizer]
    updated = 4 * indices * (WIDTH * of_number + of_row)
    assert (backward.bytes_read, backward.bytes_written) == (result + given + updated, updated)
    assert len(program.load().coverage()["estimated"]) == 2, "tables may differ in width, and indices may be equal"
    unpooled, _ = lookups(looked_up(optimizer, 700, gradients=[(optimizer, [700, WIDTH])]))
    assert (unpooled.flops, unpooled.bytes_written) == (0, 4 * 700 * WIDTH)


def test_of_several_lookups_the_one_with_most_indices_bounds_the_gradient() -> None:
    *_, backward = lookups(looked_up("adagrad", 700, 800, gradients=[("adagrad", [BATCH, TABLES * WIDTH])]))
    assert backward.bytes_written == 4 * 800 * WIDTH * 2


@pytest.mark.parametrize(
    "gradients",
    [
        [("sgd", [BATCH, 48])],
        [("adagrad_with_a_future", [BATCH, 48])],
        [("adagrad", [BATCH + 1, 48])],
        [("adagrad", [48])],
        [("adagrad", [BATCH, 48]), ("adagrad", [BATCH, 96])],  # they disagree
    ],
)
def test_a_lookup_is_unknown_without_a_gradient_that_fits(gradients: list[tuple[str, Shape]]) -> None:
    forward, *others = lookups(looked_up("adagrad", 768, gradients=gradients))
    assert is_unknown(forward) and (len(others) > 1 or all(is_unknown(row) for row in others))


# Kernels --------------------------------------------------------------------------------------------------------------


def test_products_of_experts_are_found_by_the_names_and_grids_of_kernels() -> None:
    tokens, hidden, experts, chosen, inner, tile = 8192, 3072, 32, 4, 2944, 128
    program = Program()
    program.op("vllm::moe_forward", 0, 50, [tokens, hidden], [tokens, experts], [], dtype=[BF16, BF16, ""])
    pairs = tokens * chosen
    tiles = math.ceil((pairs - experts + 1) / tile) + experts - 1
    for at, columns, end in ((10, 2 * inner, "_swiglu"), (20, hidden, "")):
        program.call("cudaLaunchKernel", at, 2, 1, at)
        name = f"_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1{end}"
        program.work(name, 100 + at, 9, correlation=at, blocks=tiles * columns // tile)
    row, coverage = rows_of(program)["vllm::moe_forward"], program.load().coverage()
    assert row.flops == 2 * pairs * hidden * (2 * inner + inner)
    weights = experts * hidden * 3 * inner * (4 + 8 / 32) / 8
    moved = 2 * (tokens * hidden + pairs * inner) + 2 * (pairs * inner + pairs * hidden)
    assert row.bytes_total_moved == moved + weights
    assert coverage["bytes"] == 1 and coverage["estimated"] == [("vllm::moe_forward", 18.0)]


DEEP = "void deep_gemm::{}<(cute::UMMA::Major)0, {}, (deep_gemm::GemmType)0>(int*)"


@pytest.mark.parametrize(
    ("kernel", "constants", "weights"),
    [
        ("sm90_fp8_gemm_1d2d_impl", "0u, 7168u, 2048u, 1u, 64u, 112u, 128u, 128u, 4u, 1u", 1),
        ("sm90_bf16_gemm_impl", "0u, 7168u, 2048u, 8u, 64u, 112u, 128u, 128u, 4u, 1u", 8),
        ("sm100_bf16_gemm_impl", "0u, 7168u, 2048u, 64u, 112u, 128u, 8u, 128u, 4u, 1u", 8),
        ("sm100_fp8_fp4_gemm_1d1d_impl", "128u, 128u, 0u, 7168u, 2048u, 64u, 112u, 128u, 1u, 4u", 1),
        ("sm100_fp8_fp4_gemm_1d1d_impl", "128u, 128u, 32u, 0u, 7168u, 2048u, 64u, 112u, 128u, 1u", 1),
        ("sm100_tf32_hc_prenorm_gemm_impl", "24u, 7168u, 64u, 112u, 128u, 1u, 4u, 1u, 2u, 3u", None),
    ],
)
def test_deep_gemms_kernels_have_their_sizes_in_their_names(kernel: str, constants: str, weights: int | None) -> None:
    program, name = Program(), DEEP.format(kernel, constants)
    program.run("mylib::product", 0, 10, 50, [300, 2048], [7168, 2048], kernel=name, dtype=FP8)
    row = rows_of(program)["mylib::product"]
    if weights is None:
        assert math.isnan(row.flops)
        return
    item = 2 if "bf16" in kernel else 1
    assert row.flops == 2 * 300 * 7168 * 2048 and dict(program.load().coverage()["estimated"])
    assert row.bytes_total_moved == (300 * 2048 + weights * 7168 * 2048) * item + 300 * 7168 * 2


# Steps of a server ----------------------------------------------------------------------------------------------------

OF_STEP = (45 - 5 * 4 / 2) + 33  # pairs of queries and keys that STEP names, and 42 keys


@pytest.mark.parametrize("label", [STEP, "execute_8", None])
def test_attention_to_a_cache_takes_the_lengths_from_the_annotation_of_the_step(label: str | None) -> None:
    program = Program()
    if label:
        program.add("user_annotation", label, 0, 90)
    q, k = [8, 16, 64], [8, 4, 64]
    types = [BF16] * 4 + ["", "", "", ""]
    program.run("vllm::unified_attention_with_output", 10, 20, 5, q, k, k, q, [], [], [], [], dtype=types)
    row, keys = rows_of(program)["vllm::unified_attention_with_output"], 42 if label == STEP else 8
    assert row.flops == 4 * 16 * 64 * (OF_STEP if label == STEP else 8)
    assert row.bytes_total_moved == 2 * 2 * 8 * 16 * 64 + 2 * keys * 4 * 64 * 2
    assert dict(program.load().coverage()["estimated"])


# Another version ------------------------------------------------------------------------------------------------------


def test_another_version_of_an_op_is_told_with_both_argument_lists() -> None:
    program = Program()
    program.run("_C::rms_norm", 0, 10, 5, [8, 16], [16], dtype=BF16)
    trace = program.load()
    assert trace.coverage()["misfits"]["_C::rms_norm"] == (
        "bfloat16[8, 16], bfloat16[16]", "result! input weight epsilon#")  # fmt: skip
    assert trace.coverage()["unmodelled"] == [("_C::rms_norm", 5.0)]
    assert "Another version of _C::rms_norm" in trace.key_averages().table()
    for place, name in enumerate(("silu_and_mul", "rotary_embedding", "fused_add_rms_norm", "gelu_and_mul")):
        program.run(f"_C::{name}", 20 * place + 20, 20 * place + 30, 5, [8, 16], dtype=BF16)
    text, found = program.load().key_averages().table(), len(program.load().coverage()["misfits"])
    assert found > 3 and text.count("Another version of") == 3
    assert f'coverage()["misfits"] has {found - 3} more ops of another version.' in text


# Collectives ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sent", "received", "moved"),
    [
        ("allreduce", 1000, 1000, 2000), ("_allgather_base", 1000, 4000, 5000),
        ("_reduce_scatter_base", 4000, 1000, 5000), ("all_to_all", 1000, 1200, 2200), ("broadcast", 1000, 1000, 1000),
        ("send", 1000, 0, 1000), ("recv", 0, 1000, 1000),
    ],
)  # fmt: skip
def test_a_collective_moves_what_it_sends_and_receives(name: str, sent: int, received: int, moved: int) -> None:
    program = Program()
    program.add("cpu_op", "record_param_comms", 0, 10, Collective_name=name, In_msg_nelems=sent, Group_size=4,
                Out_msg_nelems=received, dtype="BFloat16")  # fmt: skip
    program.call("cudaLaunchKernel", 2, 1, correlation=1)
    program.work(NCCL, 5, 10, correlation=1)
    row = rows_of(program)["record_param_comms"]
    assert row.bytes_total_moved == 2 * moved
    assert math.isnan(row.pct_roofline)  # its time is that of the links, not of this device's memory


@pytest.mark.parametrize(
    ("outer", "shapes", "own", "annotated", "elements"),
    [
        ("c10d::alltoall_base_", [[600], [500], []], [500], None, 1100),
        ("c10d::_allgather_base_", [[800], [200], []], [200], None, 1000),
        ("c10d::allreduce_", [[], []], [], 20, 2 * 394241),
        ("c10d::allreduce_", [[], []], [], 80, 2 * 394241),  # the annotation ends after the op
        ("c10d::allgather_", [[], []], [100], 20, math.nan),  # how many ranks there are is unknown
    ],
)
def test_collectives_without_sizes_take_them_from_what_calls_them(
    outer: str, shapes: list[Shape], own: Shape, annotated: float | None, elements: float
) -> None:
    program = Program()
    program.op(outer, 0, 40, *shapes, dtype=[FLOAT if shape else "TensorList" for shape in shapes])
    program.op("record_param_comms", 1, 30, own, dtype=[FLOAT if own else "TensorList"])
    if annotated is not None:
        program.op("nccl:" + outer.split("::")[1].rstrip("_"), 2, annotated, own or [394241])
        program.events[-1]["cat"] = "user_annotation"
    program.call("cudaLaunchKernel", 5, 1, correlation=1)
    program.work(NCCL, 10, 10, correlation=1)
    assert rows_of(program)["record_param_comms"].bytes_total_moved == pytest.approx(4 * elements, nan_ok=True)

"""Premises of attention, cast and fuse: programs in which a rule holds, and the same with one fact changed."""

import math
from typing import Any

import pytest
from helpers.advice_cases import inside, told
from helpers.faulty_programs import SIZE
from helpers.hand_traces import BF16, FLOAT, HALF, Program, in_a_row

LONG = "long int"


# attention ------------------------------------------------------------------------------------------------------------

SDPA = "aten::scaled_dot_product_attention"
HEADS, SCORES = [32, 1024, 64], [32, 1024, 1024]


def written_out(*around: str) -> Program:
    """Return a program of attention in products and softmax, within other ops."""
    program = Program(step=60)
    for place, name in enumerate(around):
        if name.startswith("aten::"):
            program.op(name, 1 + place, 50 - 2 * place, *[[4, 8, 1024, 64]] * 3)
        else:
            program.add("python_function", name, 1 + place, 50 - 2 * place)
    ops = [
        ("aten::bmm", (HEADS, [32, 64, 1024])), ("aten::_softmax", (SCORES,)), ("aten::mean", ([4, 8, 1024, 1024],)),
        ("aten::bmm", (SCORES, HEADS)),
    ]  # fmt: skip
    for place, (name, shapes) in enumerate(ops):
        program.run(name, 10 + 3 * place, 70 + 900 * place, 890, *shapes, kernel=f"kernel_{place}")
    return program


def test_attention_that_is_written_out_is_told_of_sdpa() -> None:
    (row,) = told(written_out(), "attention")
    assert row.what.startswith("Use torch.nn.functional.scaled_dot_product_attention") and "math path" not in row.what


def scored(before: Any = (), after: Any = (), *, cpu: bool = False) -> Program:
    """Return a program of attention with these ops before and after its softmax."""
    ops: list[Any] = [("aten::bmm", 900.0, (HEADS, [32, 64, 1024])), *before, ("aten::_softmax", 900.0, (SCORES,))]
    ops += [*after, ("aten::bmm", 900.0, (SCORES, HEADS))]
    if not cpu:
        return in_a_row(*ops)
    program = Program(devices=0, step=4000)
    for place, (name, _, shapes, *_) in enumerate(ops):
        program.op(name, 10 + 900 * place, 890, *shapes)
    return program


@pytest.mark.parametrize(
    ("between", "named"),
    [
        ([], "written out in bmm and softmax, which"),
        (["div"], "in bmm, div and softmax"),
        (["div", "masked_fill"], "in bmm, div, masked_fill and softmax"),
        *(([name], "in bmm and softmax") for name in ("gelu", "fill_", "index_put_", "mean")),
    ],
)
def test_attention_names_the_ops_that_are_part_of_it(between: list[str], named: str) -> None:
    (row,) = told(scored([(f"aten::{name}", 900.0, (SCORES, [])) for name in between]), "attention")
    assert named in row.what and "32 matrices of 1024 x 1024 scores" in row.what
    part = [f"aten::{name}" for name in between if name in row.what]
    assert {entry["op"] for entry in row.evidence} == {"aten::bmm", "aten::_softmax", *part}


@pytest.mark.parametrize(
    ("cpu", "key", "columns", "said"),
    [
        (True, "aten::mul", 1024, True),
        (True, "aten::bernoulli_", 1024, False),  # the CPU has no fused kernel with dropout
        (True, "aten::bernoulli_", 512, True),
        (False, "aten::bernoulli_", 1024, True),
    ],
)
def test_dropout_on_the_scores_leaves_a_cpu_no_fused_kernel(cpu: bool, key: str, columns: int, said: bool) -> None:
    program = scored(after=[(key, 900.0, ([32, 1024, columns],))], cpu=cpu)
    assert bool(told(program, "attention")) == said


@pytest.mark.parametrize(
    ("dims", "said"),
    [("[1]", True), ("[-1]", False), ("[0]", False)],  # over the heads, or over something else
)
def test_a_mean_of_the_scores_over_the_heads_needs_the_weights(dims: str, said: bool) -> None:
    kinds = {"dtype": [FLOAT, "ScalarList"], "values": ["", dims]}
    (row,) = told(scored(after=[("aten::mean", 300.0, ([4, 8, 1024, 1024], []), kinds)]), "attention")
    assert ("need_weights=False in nn.MultiheadAttention" in row.what) == said


def test_multihead_attention_that_returns_weights_is_told_so() -> None:
    (row,) = told(written_out("nn.Module: MultiheadAttention_0"), "attention")
    assert row.what.startswith("Pass need_weights=False to nn.MultiheadAttention")


def test_the_math_path_is_named() -> None:
    (row,) = told(written_out(SDPA, "aten::_scaled_dot_product_attention_math"), "attention")
    assert "took its math path in 1 call a step" in row.what and "sdpa_kernel" in row.what
    assert "Use torch.nn" not in row.what and "device" not in row.what


def test_products_without_scores_are_no_attention() -> None:
    program = in_a_row(("aten::bmm", 900.0, (HEADS, [32, 64, 1024])), ("aten::_softmax", 900.0, ([32, 1024, 1023],)))
    assert not told(program, "attention")


# cast -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dtype": [BF16, FLOAT]}, True), ({"dtype": [HALF, FLOAT]}, True), ({"dtype": [FLOAT, FLOAT]}, False),
        ({"dtype": [LONG, FLOAT]}, False),
        ({"dtype": [FLOAT, "double"], "shapes": ([], [])}, False),  # a number
        ({"dtype": [FLOAT, "double"], "shapes": ([1], [1])}, False), ({"dtype": [BF16, FLOAT], "shapes": ()}, False),
    ],
)  # fmt: skip
def test_cast_needs_two_float_dtypes_and_more_than_a_number(changed: dict[str, Any], said: bool) -> None:
    assert bool(told(inside("aten::to", **changed), "cast")) == said


@pytest.mark.parametrize(
    ("around", "dtype", "phrase"),
    [
        (("aten::linear", "aten::to", "aten::_to_copy"), [BF16, FLOAT], "Where autocast casts weights"),
        (("aten::to", "aten::_to_copy"), [BF16, FLOAT], ".to(torch.bfloat16)"),
        (("aten::to", "aten::_to_copy"), [HALF, FLOAT], ".to(torch.float16)"),
        (("aten::to", "aten::_to_copy"), [FLOAT, BF16], "a fused op"),
    ],
)
def test_cast_names_autocast_and_dtypes_only_where_they_are(around: Any, dtype: Any, phrase: str) -> None:
    (row,) = told(inside(*around, dtype=dtype), "cast")
    phrases = {"Where autocast casts weights", ".to(torch.bfloat16)", ".to(torch.float16)"}
    assert phrase in row.what and not any(other in row.what for other in phrases - {phrase})


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("around", [("aten::linear", "aten::to"), ("aten::to",)])
def test_weights_are_converted_once_only_without_a_backward_pass(trained: bool, around: tuple[str, ...]) -> None:
    program = inside(*around, dtype=[BF16, FLOAT])
    if trained:
        program.op("autograd::engine::evaluate_function: AddBackward0", 39, 0.5)
    (row,) = told(program, "cast")
    assert ("once" in row.what) != trained and "cache" not in row.what and "a fused op or torch.compile" in row.what


@pytest.mark.parametrize(
    ("around", "gradients", "said"),
    [
        (("ToCopyBackward0", "aten::linear"), 0, True),
        (("ToCopyBackward0", "aten::linear"), 1, False),  # a parameter and its gradient
        (("aten::linear",) * 2, 0, True), (("aten::linear",) * 2, 1, False), (("aten::linear",) * 3, 1, True),
    ],
)  # fmt: skip
def test_a_parameter_cast_once_there_and_back_is_no_finding(
    around: tuple[str, ...], gradients: int, said: bool
) -> None:
    program, shape = Program(), [512, 512]
    program.step(0, 0, 60)
    for place, name in enumerate(around):
        dtypes = [FLOAT, BF16] if "Backward" in name else [BF16, FLOAT]
        program.op(name, 1 + 10 * place, 8, shape)
        program.op("aten::to", 2 + 10 * place, 6, shape)
        program.run("aten::copy_", 3 + 10 * place, 70 + 200 * place, 200, shape, shape, dtype=dtypes)
    if gradients:
        program.op("torch::autograd::AccumulateGrad", 50, 0.5, shape)
    assert bool(told(program, "cast")) == said


def test_a_program_of_the_cpu_is_told_of_its_casts_without_a_device() -> None:
    program = Program(devices=0, step=1000)
    program.op("aten::copy_", 10, 500, [8192], [8192], dtype=[BF16, FLOAT])
    (row,) = told(program, "cast")
    assert "1 cast a step takes 500us (float32" in row.what and "device" not in row.what and "host" not in row.what


# fuse -----------------------------------------------------------------------------------------------------------------


def pair(first: str, second: str, around: str | None = None, shape: list[int] | None = None) -> Program:
    program, shape = Program(), shape or [SIZE]
    program.step(0, 0, 60)
    if around:
        program.op(around, 1, 50)
    time = max(3.0, 8e6 * math.prod(shape) / 4.8e12 * 1.2)
    program.run(first, 5, 70, time, shape)
    program.run(second, 10, 70 + time, time, shape)
    return program


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (pair("aten::sin", "aten::cos"), True),
        (pair("aten::sin", "aten::cos", around="aten::block"), True),
        (pair("aten::sin", "aten::cos", around="Torch-Compiled Region: 0/0"), False),
        (pair("aten::sin", "aten::fill_"), False),  # reads nothing
        (pair("aten::sin", "aten::sort"), False),
        (pair("aten::sin", "aten::cos", shape=[16]), False),  # bound by its launch
    ],
)
def test_fuse_needs_an_op_that_reads_and_that_nothing_compiled(program: Program, said: bool) -> None:
    assert bool(told(program, "fuse")) == said


def test_a_chain_is_named_in_its_order() -> None:
    times = (("aten::sin", 1.2), ("aten::cos", 1.4), ("aten::tanh", 1.6))
    (row,) = told(in_a_row(*((name, 8e6 * SIZE / 4.8e12 * time, ([SIZE],)) for name, time in times)), "fuse")
    assert ": the ops sin, cos and tanh run one after another over equally many elements. What" in row.what


def test_of_several_chains_one_is_named() -> None:
    time = 8e6 * SIZE / 4.8e12 * 1.2
    other = ("aten::sort", 500.0, ([SIZE],))
    chains = [("aten::sin", SIZE), ("aten::cos", SIZE), None, ("aten::exp", SIZE // 2), ("aten::neg", SIZE // 2)]
    ops = [other if one is None else (one[0], time, ([one[1]],)) for one in chains]
    (row,) = told(in_a_row(*ops), "fuse")
    assert ": the ops sin and cos run one after another over equally many elements, as do other ops." in row.what


def test_copies_by_the_copy_engine_are_no_link_of_a_chain() -> None:
    time = 8e6 * SIZE / 4.8e12 * 1.2
    for kernel, said in (("direct_copy_kernel", True), ("Memcpy DtoD (Device -> Device)", False)):
        program = in_a_row(("aten::sin", time, ([SIZE],)), ("aten::copy_", time, ([SIZE], [SIZE]), {"kernel": kernel}))
        assert bool(told(program, "fuse")) == said, kernel


def test_what_attention_removes_is_no_chain() -> None:
    chain: list[Any] = [("aten::div", 200.0, (SCORES,)), ("aten::add", 200.0, (SCORES, SCORES))]
    assert told(in_a_row(*chain, ("aten::_softmax", 200.0, (SCORES,))), "fuse")
    program = scored(chain)
    assert told(program, "attention") and not told(program, "fuse")


def test_a_program_that_compiles_is_not_told_to_begin_with_it() -> None:
    program = pair("aten::sin", "aten::cos")
    program.op("Torch-Compiled Region: 0/0", 30, 5)
    (row,) = told(program, "fuse")
    assert "that torch.compile did not compile:" in row.what and "with torch.compile" not in row.what

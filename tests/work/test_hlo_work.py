"""FLOPs and bytes of HLO's instructions, fusions and schedules: a row each in cases_hlo.py, and what fits in no row."""

import math
from typing import Any

import cases_hlo as cases
import pytest
from helpers.hlo_texts import ADD, fused, module, of, step, steps

from flopscope import _core


def check(row: Any, *wanted: float) -> None:
    """Compare FLOPs, those of products, bytes read and written."""
    found = row.flops, row.product_flops, row.bytes_read, row.bytes_written
    assert found == pytest.approx(wanted, 1e-12, nan_ok=True)


@pytest.mark.parametrize(("call", "flops", "read", "written"), [*cases.INSTRUCTIONS, *cases.LIBRARY])
def test_an_instruction_counts_as_by_hand(call: str, flops: float, read: float, written: float) -> None:
    check(of(call, cases.FUNCTIONS), flops, 0, read, written)


@pytest.mark.parametrize(("call", "flops", "read", "written"), cases.PRODUCTS)
def test_a_product_is_two_flops_a_multiply_add(call: str, flops: float, read: float, written: float) -> None:
    check(of(call), flops, flops, read, written)


def test_a_convolution_is_outputs_times_taps_without_the_zeros_between_elements() -> None:
    for call, flops in cases.convolutions():
        assert of(call).flops == pytest.approx(flops), call


@pytest.mark.parametrize(("body", "operands", "result", "flops", "read", "written"), cases.FUSIONS)
def test_fusion_by_hand(body: list[str], operands: str, result: str, flops: float, read: float, written: float) -> None:
    check(fused(body, operands, result, cases.FUNCTIONS + cases.INNER), flops, 0, read, written)


@pytest.mark.parametrize(("body", "operands", "result", "products", "others", "read", "written"), cases.FUSED_PRODUCTS)
def test_products_within_a_fusion_are_product_flops(
    body: list[str], operands: str, result: str, products: float, others: float, read: float, written: float
) -> None:
    check(fused(body, operands, result, kind="kCustom"), products + others, products, read, written)


def test_a_product_of_vectors_that_xla_made_sums_of_is_one() -> None:
    """Scores of one query, as XLA's GPU compiler writes a small dot: both parts keep its name. A sum that the program
    itself wrote is none, with the same instructions."""
    named = ', metadata={op_name="jit(f)/attention/bqhd,bkhd->bhqk/dot_general"}'
    body = [
        "wide = f32[8,16,64] convert(q)",
        "each = f32[8,16,256,64] broadcast(wide), dimensions={0,1,3}",
        f"keys = f32[8,16,256,64] convert(k){named}",
        f"p = f32[8,16,256,64] multiply(each, keys){named}",
        "zero = f32[] constant(0)",
        f"s = f32[8,16,256] reduce(p, zero), dimensions={{3}}, to_apply=add{named}",
        "t = f32[8,16,256] tanh(s)",
    ]
    halves = [
        *body[:5],
        "halves = f32[8,16,256,2,32] bitcast(p)",
        f"s = f32[8,16,256,2] reduce(halves, zero), dimensions={{4}}, to_apply=add{named}",
        f"r = f32[8,16,256] reduce(s, zero), dimensions={{3}}, to_apply=add{named}",
    ]
    own = [line.replace("dot_general", "reduce_sum") for line in body]
    shapes, scores = "q: bf16[8,16,64], k: bf16[8,16,256,64]", 8 * 16 * 256
    for lines, products, others in (
        (body, 2 * scores * 64, scores),
        (halves, 2 * scores * 64, 2 * scores),  # sums of two sums
        (own, 0, 2 * scores * 64 + scores),
    ):
        row = fused(lines, shapes, "f32[8,16,256]", ADD)
        assert (row.product_flops, row.flops) == (products, products + others)


@pytest.mark.parametrize(
    ("config", "remark"),
    [
        ('"operand_precision":["HIGHEST","HIGHEST"],"algorithm":"ALG_UNSET"', "precision=highest"),
        ('"operand_precision":["DEFAULT","HIGH"],"algorithm":"ALG_UNSET"', "precision=high"),
        ('"operand_precision":["DEFAULT","DEFAULT"],"algorithm":"ALG_DOT_F32_F32_F32"', "precision=highest"),
        ('"operand_precision":["DEFAULT","DEFAULT"],"algorithm":"ALG_UNSET"', None),
    ],
)
def test_the_precision_that_a_library_was_asked_for(config: str, remark: str | None) -> None:
    text = """a = f32[8,8] parameter(0)
    c = (f32[8,8], s8[64]) custom-call(a, a), custom_call_target="__cublas$gemm", """
    text += f'backend_config={{"gemm_backend_config":{{"selected_algorithm":"2","precision_config":{{{config}}}}}}}'
    ((_, instructions),) = _core._read_hlo(module(text))["computations"]
    assert instructions[-1]["remark"] == remark


# Operands and updates -------------------------------------------------------------------------------------------------


def test_scatters_and_updates_without_a_fusion_are_in_place() -> None:
    parameters = "\n".join(f"{name} = {shape} parameter({i})" for i, (name, shape) in enumerate(
        each.split(": ") for each in cases.ROWS.split(", ")))  # fmt: skip
    check(step(f"{parameters}\n{cases.SCATTERED}add", ADD), 640, 0, 2 * 2560 + 40, 2560)
    check(of("f32[8,16] dynamic-update-slice(f32[8,16], f32[1,16], i: s32[], i)"), 0, 0, 64 + 4, 64)


@pytest.mark.parametrize(
    ("body", "entry"),
    [
        ("b = f32[8] parameter(1)\nROOT c = f32[8] multiply(a, b)", "y = f32[8] fusion(x, x)"),
        ("b = f32[2,4] parameter(1)\nc = f32[2,4] bitcast(a)\nROOT d = f32[2,4] add(b, c)",
         "z = f32[2,4] bitcast(x)\ny = f32[2,4] fusion(x, z)"),
    ],
)  # fmt: skip
def test_an_operand_that_is_passed_twice_or_as_a_bitcast_is_read_once(body: str, entry: str) -> None:
    fused = f"body {{\na = f32[8] parameter(0)\n{body}\n}}\n"
    row = step(f"x = f32[8] parameter(0)\n{entry}, kind=kLoop, calls=body", fused)
    assert (row.bytes_read, row.bytes_written) == (32, 32)


def test_a_fusion_whose_body_is_missing_has_unknown_flops_and_at_most_all_bytes() -> None:
    check(of("f32[4] fusion(f32[8]), kind=kLoop, calls=nowhere"), math.nan, 0, 32, 16)


# Schedules ------------------------------------------------------------------------------------------------------------

SLICED = "body {\n  a = f32[8,16] parameter(0)\n  ROOT s = f32[1,16] slice(a), slice={[0:1], [0:16]}\n}\n"
WRAPPED = "wrapped {\n  p = f32[8] parameter(0)\n  ROOT r = f32[8] sine(p)\n}\n"


def test_asynchronous_instructions_count_at_their_start_and_computations_once() -> None:
    rows = steps("""x = f32[64] parameter(0)
        s = (f32[64], f32[512]) all-gather-start(x), dimensions={0}
        y = f32[512] all-gather-done(s)
        z = f32[512] negate(y)""")
    assert [row.opcode for row in rows] == ["all-gather-start", "negate"]
    (row,) = steps("""x = f32[8,16] parameter(0)
        s = ((f32[8,16]), f32[1,16], u32[]) fusion-start(x), kind=kLoop, calls=body
        y = f32[1,16] fusion-done(s)""", SLICED)  # fmt: skip
    assert (row.opcode, row.bytes_read, row.bytes_written) == ("fusion-start", 64, 64)
    (row,) = steps("""x = f32[8] parameter(0)
        s = ((f32[8]), f32[8], s32[]) async-start(x), calls=wrapped
        u = ((f32[8]), f32[8], s32[]) async-update(s)
        y = f32[8] async-done(u)""", WRAPPED)  # fmt: skip
    assert (row.name, row.calls) == ("r", 1)


BODIES = """
cond {
  c = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT
}
loop {
  s = (s32[], f32[8]) parameter(0)
  j = s32[] get-tuple-element(s), index=0
  v = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  k = s32[] add(j, one)
  w = f32[8] tanh(v)
  ROOT t = (s32[], f32[8]) tuple(k, w)
}
"""
CARRY = "x = (s32[], f32[8]) parameter(0)\n"
COUNTED = ', backend_config={{"known_trip_count":{{"n":"{}"}}}}'


def repeated(name: str, body: str, count: int) -> str:
    """Return a computation that runs a loop."""
    return (
        f"{name} {{\n  p{name} = (s32[], f32[8]) parameter(0)\n  ROOT q{name} = (s32[], f32[8]) while(p{name}), "
        f"condition=cond, body={body}{COUNTED.format(count)}\n}}\n"
    )


def test_a_loop_runs_its_body_as_often_as_the_compiler_counted() -> None:
    """The condition is not computed then: a recorded program launched no kernel of it."""
    loop = CARRY + "y = (s32[], f32[8]) while(x), condition=cond, body=loop"
    rows = steps(loop + COUNTED.format(5), BODIES)
    assert [(row.name, row.calls, row.flops) for row in rows] == [("k", 5, 0), ("w", 5, 40)]
    assert [row.bytes_read for row in rows] == [5 * 8, 5 * 32]
    unknown = steps(loop, BODIES)
    assert [row.name for row in unknown] == ["l", "k", "w"]
    assert all(math.isnan(row.calls) and math.isnan(row.flops) for row in unknown)
    nested = steps(loop.replace("loop", "again") + COUNTED.format(7), BODIES + repeated("again", "loop", 5))
    assert [(row.name, row.calls) for row in nested] == [("k", 35), ("w", 35)]


def test_numbers_beyond_any_program_are_unknown() -> None:
    """Loops of 2^62 trips, twelve deep, and a map of as many elements."""
    count, bodies = 2**62, BODIES
    for i in range(12):
        bodies += repeated(f"w{i}", f"w{i - 1}" if i else "loop", count)
    rows = steps(CARRY + "y = (s32[], f32[8]) call(x), to_apply=w11", bodies)
    assert [row.name for row in rows] == ["k", "w"] and all(math.isnan(row.flops) for row in rows)
    maps = "f {\n  fp = f32[] parameter(0)\n  ROOT fr = f32[] tanh(fp)\n}\n"
    for i in range(7):
        maps += f"m{i} {{\n  a{i} = f32[{count}] parameter(0)\n  ROOT b{i} = f32[{count}] map(a{i}), to_apply="
        maps += f"{f'm{i - 1}' if i else 'f'}\n}}\n"
    check(of(f"f32[{count}] map(f32[{count}]), to_apply=m6", maps), math.nan, 0, 4.0 * count, 4.0 * count)


def test_branches_and_calls_are_listed_where_they_run() -> None:
    bodies = "\n".join(f"f{i} {{\n  p{i} = f32[8] parameter(0)\n  ROOT r{i} = f32[8] {opcode}(p{i})\n}}"
                       for i, opcode in enumerate(["sine", "cosine", "tanh"]))  # fmt: skip
    rows = steps("""i = s32[] parameter(0)
        x = f32[8] parameter(1)
        a = f32[8] call(x), to_apply=f2
        b = f32[8] conditional(i, a, a), branch_computations={f0, f1}
        c = f32[8] call(b), to_apply=f2""", bodies)  # fmt: skip
    assert [(row.name, row.calls) for row in rows] == [("r2", 1), ("r0", 1), ("r1", 1), ("r2", 1)]


def test_a_schedule_without_end_is_refused_and_empty_computations_are_not_walked() -> None:
    """Computations that call the one before twice, forty times over: 2^40 instructions, or none."""

    def doubled(first: str) -> str:
        return f"f0 {{\n  {first}\n}}\n" + "".join(
            f"f{i} {{\n  p{i} = f32[8] parameter(0)\n  a{i} = f32[8] call(p{i}), to_apply=f{i - 1}\n"
            f"  ROOT b{i} = f32[8] call(a{i}), to_apply=f{i - 1}\n}}\n"
            for i in range(1, 41)
        )

    entry = "x = f32[8] parameter(0)\ny = f32[8] call(x), to_apply=f40"
    sines = doubled("p0 = f32[8] parameter(0)\n  ROOT r0 = f32[8] sine(p0)")
    with pytest.raises(ValueError, match=r"the schedule has 1\.1e\+12 instructions"):
        steps(entry, sines)
    assert of("f32[8] fusion(f32[8]), kind=kLoop, calls=f40", sines).flops == 2**40 * 8
    assert steps(entry, doubled("ROOT p0 = f32[8] parameter(0)")) == []

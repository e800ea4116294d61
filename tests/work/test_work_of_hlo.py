"""fs.work_of_hlo: the rows of a schedule, and what it is given."""

import math
from pathlib import Path

import numpy as np
import pytest
from helpers import DATA
from helpers.processes import output_of

import flopscope as fs

pandas = pytest.importorskip("pandas")

HLO = DATA / "hlo"
NUMBERS = ["calls", "flops", "product_flops", "bytes_read", "bytes_written"]
COLUMNS = ["module", "name", "opcode", "scope", "source", *NUMBERS]
LOOP = """HloModule jit_loop, is_scheduled=true

FileNames
1 "/home/user/train.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=40}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%inner (a: f32[8,16]) -> f32[8,16] {
  %a = f32[8,16]{1,0} parameter(0)
  ROOT %t = f32[8,16]{1,0} tanh(%a), metadata={op_name="jit(loop)/while/body/tanh" stack_frame_id=1}
}

%body (c: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %c = (s32[], f32[8,16]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %x = f32[8,16]{1,0} get-tuple-element(%c), index=1
  %y = f32[8,16]{1,0} call(%x), to_apply=%inner
  ROOT %r = (s32[], f32[8,16]{1,0}) tuple(%i, %y)
}

%condition (d: (s32[], f32[8,16])) -> pred[] {
  %d = (s32[], f32[8,16]{1,0}) parameter(0)
  ROOT %p = pred[] constant(true)
}

ENTRY %main (x: f32[8,16], w: f32[16,32]) -> f32[8,32] {
  %x.1 = f32[8,16]{1,0} parameter(0)
  %w = f32[16,32]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %s = (s32[], f32[8,16]{1,0}) tuple(%zero, %x.1)
  %l = (s32[], f32[8,16]{1,0}) while(%s), condition=%condition, body=%body, backend_config={COUNT}
  %y.1 = f32[8,16]{1,0} get-tuple-element(%l), index=1
  ROOT %dot = f32[8,32]{1,0} dot(%y.1, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
COUNTED = LOOP.replace("{COUNT}", '{"known_trip_count":{"n":"12"}}')


def test_loops_are_multiplied_out() -> None:
    frame = fs.work_of_hlo(COUNTED)
    assert list(frame) == COLUMNS
    tanh, dot = frame.to_dict("records")
    assert [tanh[name] for name in COLUMNS[:5]] == [
        "jit_loop", "t", "tanh", "jit(loop)/while/body/tanh", "/home/user/train.py:40"]  # fmt: skip
    assert [tanh[name] for name in NUMBERS] == [12, 12 * 128, 0, 12 * 512, 12 * 512]
    product = 2 * 8 * 32 * 16
    assert [dot[name] for name in NUMBERS] == [1, product, product, 4 * (8 * 16 + 16 * 32), 4 * 8 * 32]
    assert pandas.isna(dot["scope"]) and pandas.isna(dot["source"])
    tanh, dot = fs.work_of_hlo(LOOP.replace("{COUNT}", "{}")).to_dict("records")
    assert all(math.isnan(tanh[name]) for name in NUMBERS if name != "product_flops") and dot["calls"] == 1


def test_bytes_and_several_modules_are_read_as_texts_are() -> None:
    pandas.testing.assert_frame_equal(fs.work_of_hlo(COUNTED), fs.work_of_hlo(COUNTED.encode()))
    scope = (HLO / "scope.hlo").read_text()
    frame = fs.work_of_hlo([COUNTED, scope])
    assert list(frame.index) == [0, 1, 2] and list(frame["module"]) == ["jit_loop", "jit_loop", "jit_scoped"]
    named = fs.work_of_hlo({"first": COUNTED, "second": scope})
    assert list(named["module"]) == ["first", "first", "second"]
    pandas.testing.assert_frame_equal(frame.drop(columns="module"), named.drop(columns="module"))
    for nothing in ([], {}):
        assert list(fs.work_of_hlo(nothing)) == COLUMNS and len(fs.work_of_hlo(nothing)) == 0


LINE = COUNTED[: COUNTED.index("parameter(1)")].count("\n") + 1


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        *((given, TypeError, "must be") for given in (None, 3, [3], {"a": None}, Path("a.hlo"))),
        ("module @jit_f {\n}", ValueError, "^line 1 of the HLO text: it must begin with 'HloModule'.*not 'module @jit"),
        (COUNTED.replace("parameter(1)", "parameter(one)"), ValueError, rf"^line {LINE} of the HLO text: a number is"),
        ({"a": COUNTED, "b": ""}, ValueError, "^module 'b': line 1 of the HLO text"),
    ],
)
def test_what_is_no_module_is_refused(given: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fs.work_of_hlo(given)  # type: ignore[arg-type]


def test_recorded_programs_have_rows_with_known_work() -> None:
    for path in sorted(HLO.glob("*.hlo")):
        frame = fs.work_of_hlo(path.read_text())
        assert len(frame) > 0 and frame[["name", "opcode"]].notna().all(axis=None), path.name
        numbers = frame[NUMBERS].to_numpy()
        assert numbers.dtype == np.float64 and not (numbers < 0).any() and not np.isinf(numbers).any(), path.name


def test_a_program_without_jax_reads_hlo() -> None:
    code = f"import flopscope as fs, sys; fs.work_of_hlo(open({str(HLO / 'scan.hlo')!r}).read())"
    code += "; assert not {'jax', 'jaxlib', 'torch'} & {*sys.modules}"
    output_of(code)

"""Reading HLO: forms of GPUs, frames and errors of its text; protobuf, which gives the same modules; damaged ones."""

import json
import random
import re
import time
from typing import Any

import pytest
from helpers import DATA
from helpers.hlo_texts import PAIRS, check_same, pair
from helpers.protobufs import field, message

import flopscope as fs
from flopscope import _core


def forms() -> dict[str, dict[str, Any]]:
    module = _core._read_hlo((DATA / "hlo" / "gpu_forms.hlo").read_bytes())
    assert (module["partitions"], module["replicas"]) == (4, 2)
    return {one["name"]: one for _, instructions in module["computations"] for one in instructions}


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("x.1", {"PARAMETER": (0,)}),
        ("gemm", {"LHS_CONTRACTING": (1,), "RHS_CONTRACTING": (0,), "LHS_BATCH": (), "RHS_BATCH": ()}),
        ("all-reduce-start", {"CHANNEL": (1,), "GROUP_SIZE": (4,), "GLOBAL_IDS": (1,)}),
        ("gathered", {"CHANNEL": (2,), "GROUP_SIZE": (2,), "GLOBAL_IDS": (1,), "DIMENSIONS": (0,)}),
        ("while.1", {"TRIP_COUNT": (12,)}),
        ("window", {"WINDOW_SIZE": (2, 1), "WINDOW_STRIDE": (2, 1), "WINDOW_PAD_LOW": (-1, 0),
                    "WINDOW_PAD_HIGH": (1, 0), "WINDOW_LHS_DILATE": (1, 2), "WINDOW_RHS_DILATE": (1, 3)}),
        ("padded", {}),
        ("cut", {}),
        ("convolved", {"WINDOW_SIZE": (3, 3), "WINDOW_PAD_LOW": (1, 1), "WINDOW_PAD_HIGH": (1, 1),
                       "LHS_LABELS": (-1, 0, 1, -2), "RHS_LABELS": (0, 1, -2, -1), "OUT_LABELS": (-1, 0, 1, -2)}),
    ],
)  # fmt: skip
def test_attributes_become_numbers(name: str, attributes: dict[str, tuple[int, ...]]) -> None:
    assert forms()[name]["attributes"] == attributes


def test_shapes_have_layouts_limits_and_spaces_and_texts_are_kept() -> None:
    read = forms()
    assert read["host_copy"]["shape"] == ("f32", (8, 16), (1, 0), 5, (), 512.0)
    assert read["p"]["shape"][3] == 0  # tiles only
    assert read["n"]["shape"] == ("s32", (4,), (0,), 0, (), 16.0)
    kind, _, _, _, parts, size = read["start"]["shape"]
    assert (kind, [part[0] for part in parts], size) == ("tuple", ["tuple", "f32", "u32"], 512.0 + 512.0 + 4.0)
    assert (parts[1][3], parts[0][4][0][3]) == (5, 0)
    assert [read[name]["kind"] for name in ("zero", "limit", "less", "fusion.1", "table", "w")] == [
        "0", "12", "LT", "kInput", None, "{...}",
    ]  # fmt: skip
    assert json.loads(read["all-reduce-start"]["config"]) == {"collective": {"is_sync": "true"}, "text": 'a"b'}
    assert json.loads(read["gemm"]["config"])["gemm_backend_config"]["epilogue"] == "DEFAULT"
    assert read["y"]["kernel"] == "loop_tanh_fusion"


def in_entry(line: str) -> str:
    return f"HloModule m\nENTRY e {{\n  p = f32[4]{{0}} parameter(0)\n  {line}\n}}\n"


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("a b", "a b"), (r"\"\\\"", '"\\"'), (r"\316\262\n\ty\'", "β\n\ty'"), ("β/{,}(", "β/{,}("), (r"\\", "\\"),
        ("", ""),
    ],
)  # fmt: skip
def test_escapes_are_undone(written: str, text: str) -> None:
    whole = in_entry(f'x = f32[4] add(p), metadata={{op_type="t" op_name="{written}"}}')
    ((_, (_, instruction)),) = _core._read_hlo(whole)["computations"]
    assert instruction["op_name"] == text


@pytest.mark.parametrize(
    ("printed", "lines"),
    [((1, 2, 3), [3, 2, 1]), ((0, 1, 2), [3, 2, 1]), ((9, 9, 9), [3])],  # parents that do not precede are none
)
def test_parents_of_frames_are_numbers_or_one_more(printed: tuple[int, ...], lines: list[int]) -> None:
    rows = "\n".join(f"{i} {{file_location_id={i} parent_frame_id={parent}}}" for i, parent in enumerate(printed, 1))
    places = "\n".join(f"{i} {{file_name_id=1 function_name_id=1 line={i}}}" for i in (1, 2, 3))
    text = f'HloModule m\nFileNames\n1 "a.py"\nFunctionNames\n1 "f"\nFileLocations\n{places}\nStackFrames\n{rows}\n'
    text += "ENTRY e { ROOT x = f32[] parameter(0), metadata={stack_frame_id=3} }"
    ((_, (instruction,)),) = _core._read_hlo(text)["computations"]
    assert [source for source, _ in instruction["stack"]] == [f"a.py:{line}" for line in lines]


TWICE = "HloModule m\na { x = f32[] parameter(0) }\na { x = f32[] parameter(0) }\nENTRY b { y = f32[] call() }"
CIRCLE = "HloModule m\na { x = f32[] call(), to_apply=b }\nENTRY b { y = f32[] call(), to_apply=a }"
WRONG = [
    ("", 1, "must begin with 'HloModule'"),
    ("module @jit_f attributes {", 1, "compile().as_text()"),
    ("HloModule", 1, "a name is missing"),
    ("HloModule m", 1, "no computation is the ENTRY"),
    ("HloModule m, a={\n\n", 1, "do not close"),
    ("HloModule m\nENTRY e {\n", 2, "does not end"),
    ("HloModule m\nENTRY e {\n}\n", 2, "no instructions"),
    ("HloModule m\na { x = f32[] parameter(0) }\nb { x = f32[] parameter(0) }", 3, "no computation is the ENTRY"),
    (TWICE, 3, "a second computation"),
    ("HloModule m\nENTRY a { x = f32[] parameter(0) }\nHloModule n", 3, "a second module"),
    ('HloModule m\nFileNames\n1 "a"\n3 "b"', 4, "row 2 of a table"),
    ("HloModule m\nENTRY a { x = f32[] parameter(0) }\n\0", 3, "zero byte"),
    (CIRCLE, 3, "calls itself"),
    (in_entry("x = f32[4] call(p), to_apply=e"), 2, "calls itself"),
    *((in_entry(line), 4, message) for line, message in (
        ("x = f32[4] add(p, q)", "'q' is an operand"),
        ("x = f32[4] add(p, x)", "'x' is an operand"),
        ("p = f32[4] add(p, p)", "'p' stands twice"),
        ("x = f32[4", "a shape is missing or unfinished"),
        ("x = [4] add(p)", "no type"),
        ("x = f32[-4] add(p)", "negative size"),
        ("x = f32[99999999999999999999] add(p)", "64 bits"),
        (f"x = f32[{2**31},{2**31},2] add(p)", "more than 2^62 elements"),
        (f"x = f32[{'1,' * 64}1] add(p)", "more than 64 dimensions"),
        ("x = f32[4]{1} add(p)", "a dimension that its shape lacks"),
        ("x = f32[4]{0,0} add(p)", "a dimension that its shape lacks"),
        ("x = " + "(" * 65 + ")" * 65 + " tuple()", "nested deeper than 64"),
        ("x = f32[4] (p)", "an opcode is missing"),
        ("x = f32[4] add p", "expected '(', not 'p'"),
        ("x = f32[4] add(p), metadata={op_name=b}", "expected '\"', not 'b}'"),
        ('x = f32[4] add(p), metadata={op_name="abc', "does not end"),
        ("x = f32[4] add(p), sharding={{{", "do not close"),
        ("x = f32[4] add(p), dimensions={0,a}", "a number is missing"),
        ("x = f32[4] add(p), dim_labels=b01f", "b01f_01io->b01f"),
        ("x = f32[4] constant({1, 2", "do not close"))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^line {line} of the HLO text: .*{re.escape(message)}"):
        _core._read_hlo(text)


def chain(length: int) -> str:
    calls = "".join(f"c{i} {{ x = f32[] call(), to_apply=c{i + 1} }}\n" for i in range(length - 1))
    return f"HloModule m\n{calls}ENTRY c{length - 1} {{ x = f32[] parameter(0) }}"


def test_calls_are_nested_to_a_depth() -> None:
    assert len(_core._read_hlo(chain(64))["computations"]) == 64
    with pytest.raises(ValueError, match=r"^line \d+ of .*: calls are nested deeper than 64"):
        _core._read_hlo(chain(65))


K = 1000
HOSTILE = [
    (in_entry("x = f32[4] constant({" + "1, " * K * K + "1})"), None),
    (in_entry("x = " + "(" * 3 * K * K), "nested deeper"),
    (in_entry("x = f32[4] constant(" + "{" * 3 * K * K), "do not close"),
    (in_entry("x = f32[4] add(" + "p, " * K * K + "p)"), None),
    (in_entry('x = f32[4] add(p), backend_config="' + '\\"' * 1500 * K + '"'), None),
    (in_entry('x = f32[4] add(p), backend_config="' + "\\" * (3 * K * K + 1) + '"'), "does not end"),
    (in_entry("x = f32[4] add(p), a={" + '"' * 3 * K * K + "}"), None),
    (in_entry("x = f32[4] add(p)" + ", a=b" * 600 * K), None),
    (in_entry("/*" + " /* " * 750 * K + "*/ x = f32[4] add(p)"), None),
    (in_entry("x = f32[4] custom-call(p), backend_config=" + '{"dot_dimension_numbers":' * 120 * K), "do not close"),
    ("HloModule m\n" + "\n" * 3 * K * K, "no computation is the ENTRY"),
    (chain(70 * K), "nested deeper"),
    ("HloModule m\nENTRY e {\n" + "".join(f"x{i} = f32[{i}] iota()\n" for i in range(120 * K)) + "}", None),
]


@pytest.mark.parametrize(("text", "error"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_take_time_in_proportion(text: str, error: str | None) -> None:
    """Some 3 MB, read in less than a second of the processor; with its square it would be hours."""
    begin, found = time.process_time(), ""
    try:
        _core._work_of_hlo(text)
    except ValueError as problem:
        found = str(problem)
    assert (error is None) == (found == "") and (error or "") in found and time.process_time() - begin < 60


@pytest.mark.parametrize("name", PAIRS)
def test_text_and_protobuf_give_the_same_module_and_work(name: str) -> None:
    text, proto = pair(name)
    check_same(text, proto)
    ours, theirs, wrapped = (fs.work_of_hlo(one) for one in (proto, text, field(1, proto)))
    assert ours.to_csv() == theirs.to_csv() == wrapped.to_csv()


def _shape(kind: int = 11, *sizes: int) -> bytes:
    return message((2, kind), *((3, size) for size in sizes))


def _instruction(number: int, opcode: str = "parameter", *fields: tuple[int, Any], shape: bytes | None = None) -> bytes:
    return message((1, f"i{number}"), (2, opcode), (3, _shape() if shape is None else shape), (35, number), *fields)


def _computation(number: int, *instructions: bytes) -> bytes:
    return message((1, f"c{number}"), *((2, one) for one in instructions), (5, number))


def _module(*computations: bytes, schedule: bytes | None = None) -> bytes:
    return message((1, "jit_f"), *((3, one) for one in computations), (6, 0), (7, schedule))


def _lone(*fields: Any, **more: Any) -> bytes:
    """Return a module of one instruction."""
    return _module(_computation(0, _instruction(1, *fields, **more)))


def _nested(depth: int) -> bytes:
    shape = _shape()
    for _ in range(depth):
        shape = message((2, 13), (4, shape))
    return shape


_USER = _instruction(2, "negate", (36, 1))


@pytest.mark.parametrize(
    ("module", "what"),
    [
        (_module(), "no computation is the entry"),
        (_module(_computation(0)), "the computation has no instructions"),
        (_module(_computation(0, _USER, _instruction(1))), "1 is an operand, and no instruction before it"),
        (_module(_computation(0, _USER)), "1 is an operand"),
        (_module(_computation(0, _instruction(1), _instruction(1))), "two instructions have the number 1"),
        (_module(*[_computation(0, _instruction(1))] * 2), "two computations have the number 0"),
        (_module(_computation(0, message((1, "x"), (35, 1)))), "has no name, no opcode or no shape"),
        (_lone("call", (38, 0)), "the computation calls itself"),
        (_module(*(_computation(i, _instruction(1, "call", (38, 1 - i))) for i in (0, 1))), "calls itself"),
        (_module(*(_computation(i, _instruction(1, "call", (38, i + 1))) for i in range(99))), "deeper than 64"),
        (_lone(shape=_nested(64)), "tuples are nested deeper than 64"),
        (_lone(shape=_shape(11, *[2] * 65)), "more than 64 dimensions"),
        (_lone(shape=_shape(11, 1 << 62, 1 << 62)), "more than 2\\^62 elements"),
        (_lone(shape=_shape(11, -5)), "a negative size"),
        (_lone(shape=_shape(11, 2) + field(5, field(1, 7))), "a layout has a dimension that its shape lacks"),
        (_module(_computation(0, _instruction(1)), schedule=field(1, field(2, field(1, 9)))), "9 is in the schedule"),
        (_lone("convolution", (16, field(11, 9))), "contradictory"),
        (_module(_computation(0, _instruction(1) + b"\x0f")), "a field is of an unknown type"),
        (_lone()[:-3], "a field is longer than what holds it"),
    ],
)
def test_what_is_no_module_is_an_error_with_the_byte(module: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=rf"byte \d+.*{what}"):
        _core._read_hlo(module)


def test_instructions_are_in_the_order_of_the_schedule() -> None:
    entry = field(1, message((1, 0), (2, b"".join(field(1, number) for number in (3, 1)) + field(1, 2))))
    module = _module(_computation(0, _instruction(1), _USER, _instruction(3)), schedule=entry)
    read = _core._read_hlo(module)
    assert [one["name"] for one in read["computations"][0][1]] == ["i3", "i1", "i2"] and read["scheduled"]


def test_changed_bytes_are_an_error_or_a_module() -> None:
    source = random.Random(35)
    _, whole = pair("scan")
    for _ in range(200):
        changed = bytearray(whole)
        for _ in range(source.randint(1, 4)):
            changed[source.randrange(len(changed))] = source.randrange(256)
        try:
            fs.work_of_hlo(bytes(changed))
        except ValueError as problem:
            assert str(problem)

"""Reading HLO text: what was read, beside what regular expressions find in each line of recorded and live programs."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from helpers import DATA, ROOT, TESTS
from helpers.once import Once

from flopscope import _core

RECORDED = sorted((DATA / "hlo").glob("*.hlo"))
FORMS = DATA / "hlo" / "gpu_forms.hlo"
LIVE = 29  # programs of tests/helpers/hlo_programs.py
BITS = {
    "pred": 8,
    "s4": 4,
    "s8": 8,
    "u8": 8,
    "f8e4m3fn": 8,
    "bf16": 16,
    "u16": 16,
    "s32": 32,
    "u32": 32,
    "f32": 32,
    "u64": 64,
}
BITS |= {"c64": 64, "f64": 64, "s64": 64, "token": 0}
NAMED = ["dimensions", "lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims", "index"]
NAMED += ["dynamic_slice_sizes", "offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim"]
NAMED += ["slice_sizes", "update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims", "fft_length"]
CALLING = ("calls", "to_apply", "body", "condition", "select", "scatter", "true_computation", "false_computation")
KEYS = {name: name.upper().removesuffix("_DIMS") if "_contracting_" in name or "_batch_" in name else name.upper()
        for name in NAMED}  # fmt: skip
KEYS["scatter_dims_to_operand_dims"] = "SCATTER_DIMS"


def integers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in re.findall(r"-?\d+", text))


def unescaped(text: str | None) -> str | None:
    return None if text is None else re.sub(r"\\(.)", r"\1", text)


def split_shape(text: str) -> tuple[str, str]:
    """Return the shape before an opcode, and the rest."""
    depth = 0
    for at, each in enumerate(text):
        depth += (each in "([{") - (each in ")]}")
        if depth == 0 and each == " ":
            return text[:at], text[at + 1 :]
    raise AssertionError(text)


def bytes_of(shape: str) -> float:
    arrays = re.findall(r"(\w+)\[([^\]]*)\]", shape)
    return sum(math.ceil(math.prod(integers(sizes)) * BITS[dtype] / 8) for dtype, sizes in arrays)


def quoted(name: str, text: str) -> str | None:
    found = re.search(name + r'="((?:[^"\\]|\\.)*)"', text)
    return unescaped(found[1]) if found else None


def stacks(text: str) -> dict[int, list[tuple[str | None, str | None]]]:
    """Return the places of each frame: a frame's parent is printed as its number plus 1."""
    tables = {}
    for table in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
        block = re.search(rf"^{table}\n((?:\d.*\n)*)", text, re.MULTILINE)
        tables[table] = block[1].splitlines() if block else []
    names = {table: [row.split('"')[1] for row in tables[table]] for table in ("FileNames", "FunctionNames")}
    places: list[tuple[str | None, str | None]] = []
    for row in tables["FileLocations"]:
        fields = dict(re.findall(r"(\w+)=(\d+)", row))
        file, function = int(fields["file_name_id"]), int(fields["function_name_id"])
        known = file <= len(names["FileNames"])
        places.append(
            (f"{names['FileNames'][file - 1]}:{fields['line']}", names["FunctionNames"][function - 1])
            if known
            else (None, None)
        )
    found: dict[int, list[tuple[str | None, str | None]]] = {}
    for number, row in enumerate(tables["StackFrames"], 1):
        location, parent = integers(row)[1:]
        found[number] = [places[location - 1], *found.get(parent - 1, [])]
    return found


def expected(text: str) -> list[dict[str, Any]]:
    """Return the instructions of a text, as regular expressions find them line by line."""
    found: list[dict[str, Any]] = []
    computation, frames = "", stacks(text)
    for line in text.splitlines():
        if head := re.match(r"(?:ENTRY )?%?([\w.\-]+) (?:\(.*)?\{$", line):
            computation = head[1]
            continue
        parts = re.match(r"\s+(ROOT )?%?([\w.\-]+) = (.*)", line)
        if parts is None:
            continue
        shape, rest = split_shape(parts[3])
        opcode, rest = rest.split("(", 1)
        plain = opcode not in ("constant", "parameter")
        operands = re.sub(r"/\*.*?\*/|\S+\[[^\]]*\]\S* ", "", rest[: rest.index(")")]) if plain else ""
        frame = re.search(r"stack_frame_id=(\d+)", rest)
        old = re.search(r'source_file="(.*?)" source_line=(\d+)', rest)
        # Nothing in quotes, and nothing in braces but lists of numbers.
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", rest)
        called = [re.search(rf"\b{name}=%?([\w.\-]+)", bare) for name in CALLING]
        branches = re.search(r"(?:branch|called)_computations=\{(.*?)\}", bare)
        attributes = {}
        for name in NAMED:
            values = re.search(rf", {name}=(\{{[\d,]*\}}|\d+)", bare)
            if values:
                attributes[KEYS[name]] = integers(values[1])
        found.append(
            {
                "computation": computation,
                "name": parts[2],
                "opcode": opcode,
                "root": parts[1] is not None,
                "operands": tuple(name.strip().lstrip("%") for name in operands.split(",") if name.strip()),
                "called": tuple(each[1] for each in called if each)
                + tuple(re.findall(r"[\w.\-]+", branches[1]) if branches else ()),
                "bytes": bytes_of(shape),
                "op_name": quoted("op_name", re.sub(r"sharding=\{.*?\}\}", "", rest)),
                "kernel": quoted("deduplicated_name", rest),
                "target": quoted("custom_call_target", rest),
                "stack": frames[int(frame[1])] if frame else [(f"{old[1]}:{old[2]}", None)] if old else [],
                "attributes": attributes,
            }
        )
    return found


def check(text: str) -> None:
    """Compare what is read of a text with what regular expressions find."""
    module = _core._read_hlo(text)
    known = {name for name, _ in module["computations"]}
    read = []
    for computation, instructions in module["computations"]:
        for one in instructions:
            same = {key: one[key] for key in ("name", "opcode", "root", "operands", "called", "op_name", "kernel")}
            same |= {"target": one["target"], "stack": one["stack"], "bytes": one["shape"][-1]}
            attributes = {key: one["attributes"][key] for key in KEYS.values() if key in one["attributes"]}
            if one["config"] is not None and "dot_dimension_numbers" in one["config"]:
                attributes = {}  # made from the config
            read.append({"computation": computation, **same, "attributes": attributes})
    wanted = expected(text)
    for one in wanted:
        one["called"] = tuple(name if name in known else None for name in one["called"])
    assert len(read) == len(wanted) > 0
    for got, want in zip(read, wanted, strict=True):
        assert got == want
    assert module["name"] == re.match(r"HloModule ([\w.\-]+)", text)[1]  # type: ignore[index]
    assert module["entry"] == re.search(r"^ENTRY %?([\w.\-]+)", text, re.MULTILINE)[1]  # type: ignore[index]
    assert module["scheduled"] == ("is_scheduled=true" in text)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_line_of_a_recorded_program_is_read(path: Path) -> None:
    check(path.read_text(encoding="utf-8"))


@pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")
def test_every_line_of_programs_compiled_here_is_read(once: Once) -> None:
    program = TESTS / "helpers" / "hlo_programs.py"

    def compile_all(folder: Path) -> None:
        names = re.findall(r'^    "(\w+)": \(', program.read_text(encoding="utf-8"), re.MULTILINE)
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        subprocess.run([sys.executable, str(program), str(folder), *names], check=True, env=environment, cwd=ROOT)

    texts = sorted(once("hlo_programs", compile_all).glob("*.hlo"))
    assert len(texts) == 2 * LIVE
    for path in texts:
        check(path.read_text(encoding="utf-8"))


def forms() -> dict[str, dict[str, Any]]:
    module = _core._read_hlo(FORMS.read_bytes())
    assert (module["partitions"], module["replicas"]) == (4, 2)
    return {one["name"]: one for _, instructions in module["computations"] for one in instructions}


@pytest.mark.parametrize(
    "name, attributes",
    [
        ("x.1", {"PARAMETER": (0,)}),
        ("gemm", {"LHS_CONTRACTING": (1,), "RHS_CONTRACTING": (0,), "LHS_BATCH": (), "RHS_BATCH": ()}),
        ("fusion.1", {"ALIASED_OPERANDS": (1, 0, -1, 0, 0, 2)}),
        ("all-reduce-start", {"CHANNEL": (1,), "GROUP_SIZE": (4,), "GLOBAL_IDS": (1,)}),
        ("gathered", {"CHANNEL": (2,), "GROUP_SIZE": (2,), "GLOBAL_IDS": (1,), "DIMENSIONS": (0,)}),
        ("while.1", {"TRIP_COUNT": (12,)}),
        (
            "window",
            {
                "WINDOW_SIZE": (2, 1),
                "WINDOW_STRIDE": (2, 1),
                "WINDOW_PAD_LOW": (-1, 0),
                "WINDOW_PAD_HIGH": (1, 0),
                "WINDOW_LHS_DILATE": (1, 2),
                "WINDOW_RHS_DILATE": (1, 3),
                "WINDOW_REVERSAL": (0, 1),
            },
        ),
        ("padded", {"PADDING_LOW": (1, 0), "PADDING_HIGH": (2, 0), "PADDING_INTERIOR": (0, 0)}),
        ("cut", {"SLICE_STARTS": (0, 0), "SLICE_LIMITS": (9, 16), "SLICE_STRIDES": (3, 1)}),
        (
            "convolved",
            {
                "WINDOW_SIZE": (3, 3),
                "WINDOW_PAD_LOW": (1, 1),
                "WINDOW_PAD_HIGH": (1, 1),
                "LHS_LABELS": (-1, 0, 1, -2),
                "RHS_LABELS": (0, 1, -2, -1),
                "OUT_LABELS": (-1, 0, 1, -2),
                "FEATURE_GROUPS": (2,),
            },
        ),
    ],
)
def test_attributes_become_numbers(name: str, attributes: dict[str, tuple[int, ...]]) -> None:
    assert forms()[name]["attributes"] == attributes


def test_shapes_have_layouts_limits_and_spaces() -> None:
    read = forms()
    assert read["host_copy"]["shape"] == ("f32", (8, 16), (1, 0), 5, (), 512.0)
    assert read["p"]["shape"][3] == 0  # tiles only
    assert read["n"]["shape"] == ("s32", (4,), (0,), 0, (), 16.0)
    kind, _, _, _, parts, size = read["start"]["shape"]
    assert (kind, [part[0] for part in parts], size) == ("tuple", ["tuple", "f32", "u32"], 512.0 + 512.0 + 4.0)
    assert (parts[1][3], parts[0][4][0][3]) == (5, 0)


def test_texts_are_kept() -> None:
    read = forms()
    assert [read[name]["kind"] for name in ("zero", "limit", "less", "fusion.1", "table", "w")] == [
        "0", "12", "LT", "kInput", None, "{...}",
    ]  # fmt: skip
    assert json.loads(read["all-reduce-start"]["config"]) == {"collective": {"is_sync": "true"}, "text": 'a"b'}
    assert json.loads(read["gemm"]["config"])["gemm_backend_config"]["epilogue"] == "DEFAULT"
    assert (read["y"]["kernel"], read["y"]["scheduled"]) == ("loop_tanh_fusion", "y.1")


@pytest.mark.parametrize(
    "written, text",
    [
        ("a b", "a b"),
        (r"\"\\\"", '"\\"'),
        (r"\316\262\n\ty\'", "β\n\ty'"),
        ("β/{,}(", "β/{,}("),
        (r"\\", "\\"),
        ("", ""),
    ],
)
def test_escapes_are_undone(written: str, text: str) -> None:
    whole = in_entry(f'x = f32[4] add(p), metadata={{op_type="t" op_name="{written}"}}')
    ((_, (_, instruction)),) = _core._read_hlo(whole)["computations"]
    assert instruction["op_name"] == text


@pytest.mark.parametrize("printed, parents", [((1, 2, 3), (None, 0, 1)), ((0, 1, 2), (None, 0, 1)), ((9, 9, 9), ())])
def test_parents_of_frames_are_numbers_or_one_more(printed: tuple[int, ...], parents: tuple[int | None, ...]) -> None:
    rows = "\n".join(f"{i} {{file_location_id={i} parent_frame_id={parent}}}" for i, parent in enumerate(printed, 1))
    places = "\n".join(f"{i} {{file_name_id=1 function_name_id=1 line={i}}}" for i in (1, 2, 3))
    text = f'HloModule m\nFileNames\n1 "a.py"\nFunctionNames\n1 "f"\nFileLocations\n{places}\nStackFrames\n{rows}\n'
    text += "ENTRY e { ROOT x = f32[] parameter(0), metadata={stack_frame_id=3} }"
    ((_, (instruction,)),) = _core._read_hlo(text)["computations"]
    lines = [3, 2, 1] if parents else [3]  # parents that do not precede are none
    assert [source for source, _ in instruction["stack"]] == [f"a.py:{line}" for line in lines]


def in_entry(line: str) -> str:
    return f"HloModule m\nENTRY e {{\n  p = f32[4]{{0}} parameter(0)\n  {line}\n}}\n"


WRONG = {
    "": (1, "must begin with 'HloModule'"),
    "module @jit_f attributes {": (1, "compile().as_text()"),
    "HloModule": (1, "a name is missing"),
    "HloModule m": (1, "no computation is the ENTRY"),
    "HloModule m, a={\n\n": (1, "do not close"),
    "HloModule m\nENTRY e {\n": (2, "does not end"),
    "HloModule m\nENTRY e {\n}\n": (2, "no instructions"),
    "HloModule m\na { x = f32[] parameter(0) }\nb { x = f32[] parameter(0) }": (3, "no computation is the ENTRY"),
    "HloModule m\na { x = f32[] parameter(0) }\na { x = f32[] parameter(0) }\nENTRY b { y = f32[] call() }": (
        3,
        "a second computation",
    ),
    "HloModule m\nENTRY a { x = f32[] parameter(0) }\nHloModule n": (3, "a second module"),
    'HloModule m\nFileNames\n1 "a"\n3 "b"': (4, "row 2 of a table"),
    "HloModule m\nENTRY a { x = f32[] parameter(0) }\n\0": (3, "zero byte"),
    in_entry("x = f32[4] add(p, q)"): (4, "'q' is an operand"),
    in_entry("x = f32[4] add(p, x)"): (4, "'x' is an operand"),
    in_entry("p = f32[4] add(p, p)"): (4, "'p' stands twice"),
    in_entry("x = f32[4"): (4, "a shape is missing or unfinished"),
    in_entry("x = [4] add(p)"): (4, "no type"),
    in_entry("x = f32[-4] add(p)"): (4, "negative size"),
    in_entry("x = f32[99999999999999999999] add(p)"): (4, "64 bits"),
    in_entry(f"x = f32[{2**31},{2**31},2] add(p)"): (4, "more than 2^62 elements"),
    in_entry(f"x = f32[{'1,' * 64}1] add(p)"): (4, "more than 64 dimensions"),
    in_entry("x = f32[4]{1} add(p)"): (4, "a dimension that its shape lacks"),
    in_entry("x = f32[4]{0,0} add(p)"): (4, "a dimension that its shape lacks"),
    in_entry("x = " + "(" * 65 + ")" * 65 + " tuple()"): (4, "nested deeper than 64"),
    in_entry("x = f32[4] (p)"): (4, "an opcode is missing"),
    in_entry("x = f32[4] add p"): (4, "expected '(', not 'p'"),
    in_entry("x = f32[4] add(p), metadata={op_name=b}"): (4, "expected '\"', not 'b}'"),
    in_entry('x = f32[4] add(p), metadata={op_name="abc'): (4, "does not end"),
    in_entry("x = f32[4] add(p), sharding={{{"): (4, "do not close"),
    in_entry("x = f32[4] add(p), dimensions={0,a}"): (4, "a number is missing"),
    in_entry("x = f32[4] add(p), dim_labels=b01f"): (4, "b01f_01io->b01f"),
    in_entry("x = f32[4] constant({1, 2"): (4, "do not close"),
    in_entry("x = f32[4] call(p), to_apply=e"): (2, "calls itself"),
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_is_told_with_its_line(text: str) -> None:
    line, message = WRONG[text]
    with pytest.raises(ValueError, match=rf"^line {line} of the HLO text: .*{re.escape(message)}"):
        _core._read_hlo(text)


def chain(length: int) -> str:
    calls = "".join(f"c{i} {{ x = f32[] call(), to_apply=c{i + 1} }}\n" for i in range(length - 1))
    return f"HloModule m\n{calls}ENTRY c{length - 1} {{ x = f32[] parameter(0) }}"


def test_calls_are_nested_to_a_depth() -> None:
    assert len(_core._read_hlo(chain(64))["computations"]) == 64
    with pytest.raises(ValueError, match=r"^line \d+ of .*: calls are nested deeper than 64"):
        _core._read_hlo(chain(65))
    circle = "HloModule m\na { x = f32[] call(), to_apply=b }\nENTRY b { y = f32[] call(), to_apply=a }"
    with pytest.raises(ValueError, match="calls itself"):
        _core._read_hlo(circle)


@pytest.mark.parametrize(
    "text, error",
    [
        (in_entry("x = f32[4] constant({" + "1, " * 3_000_000 + "1})"), None),
        (in_entry("x = " + "(" * 9_000_000), "nested deeper"),
        (in_entry("x = f32[4] constant(" + "{" * 9_000_000), "do not close"),
        (in_entry("x = f32[4] add(" + "p, " * 3_000_000 + "p)"), None),
        (in_entry('x = f32[4] add(p), backend_config="' + '\\"' * 4_500_000 + '"'), None),
        (in_entry('x = f32[4] add(p), backend_config="' + "\\" * 9_000_001 + '"'), "does not end"),
        (in_entry("x = f32[4] add(p), a={" + '"' * 9_000_000 + "}"), None),
        (in_entry("x = f32[4] add(p)" + ", a=b" * 1_800_000), None),
        (in_entry("/*" + " /* " * 2_250_000 + "*/ x = f32[4] add(p)"), None),
        (
            in_entry("x = f32[4] custom-call(p), backend_config=" + '{"dot_dimension_numbers":' * 360_000),
            "do not close",
        ),
        ("HloModule m\n" + "\n" * 9_000_000, "no computation is the ENTRY"),
        (chain(200_000), "nested deeper"),
        ("HloModule m\nENTRY e {\n" + "".join(f"x{i} = f32[{i}] iota()\n" for i in range(360_000)) + "}", None),
    ],
    ids=range(13),
)
def test_hostile_texts_take_time_in_proportion(text: str, error: str | None) -> None:
    begin = time.process_time()
    try:
        _core._work_of_hlo(text)
        found = None
    except ValueError as problem:
        found = str(problem)
    assert (error is None) == (found is None) and (error or "") in (found or "")
    assert time.process_time() - begin < 5  # some 9 MB, read in 0.1 s; twice the length took four times as long

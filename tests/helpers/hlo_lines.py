"""What regular expressions find in each line of a module of HLO, beside which its reader is held."""

from __future__ import annotations

import math
import re
from typing import Any

from flopscope import _core

BITS = {"pred": 8, "s4": 4, "s8": 8, "u8": 8, "f8e4m3fn": 8, "bf16": 16, "u16": 16, "s32": 32, "u32": 32, "f32": 32}
BITS |= {"u64": 64, "c64": 64, "f64": 64, "s64": 64, "token": 0}
NAMED = ["dimensions", "lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims"]
NAMED += ["slice_sizes", "fft_length"]
CALLING = ("calls", "to_apply", "body", "condition", "select", "scatter", "true_computation", "false_computation")
KEYS = {name: name.upper().removesuffix("_DIMS") if "_contracting_" in name or "_batch_" in name else name.upper()
        for name in NAMED}  # fmt: skip


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

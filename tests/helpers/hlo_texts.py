"""Modules of HLO as text, and the rows of their work."""

import json
import re
import tarfile
from typing import IO, Any, cast

import flopscope as fs
from flopscope import _core
from helpers import DATA

ADD = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
"""
PAIRS = ("mlp", "conv", "convgrad", "scan", "misc", "linalg", "collectives")
"""Modules from JAX 0.10.2 on a CPU: products, convolutions and their gradients, a scan, gathers, scatters, sorts,
branches, loops, FFTs and solvers."""
SHAPE = r"[a-z]+\d*\w*\[[^\]]*\](?:\{[^}]*\})?"


def pair(name: str) -> tuple[str, bytes]:
    """Return the text and the protobuf of a module that JAX compiled, one of PAIRS."""
    with tarfile.open(DATA / "hlo" / "pairs.tar.xz") as archive:
        text, proto = (cast(IO[bytes], archive.extractfile(f"{name}.{kind}")).read() for kind in ("hlo", "pb"))
    return text.decode(), proto


def _instructions(module: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what is compared, by computation and instruction, in their order."""
    found = {}
    for computation, instructions in module.pop("computations"):
        for one in instructions:
            config = one["config"]
            one["config"] = json.loads(config) if config and config.startswith('{"') else config
            one["attributes"] = {key: tuple(values) for key, values in one["attributes"].items()}
            if one["opcode"] == "constant":  # the protobuf's literals are not read
                one["kind"] = None
            found[computation, one["name"]] = one
    return found


def check_same(text: str, proto: bytes) -> None:
    """Check that the text and the protobuf of a module, whose readers share nothing, give the same."""
    ours, theirs = _core._read_hlo(proto), _core._read_hlo(text)
    instructions = [_instructions(ours), _instructions(theirs)]
    assert ours == theirs and instructions[0] == instructions[1] and len(instructions[0]) > 0
    for computation in {computation for computation, _ in instructions[0]}:
        orders = [[key for key in found if key[0] == computation] for found in instructions]
        assert orders[0] == orders[1]


def module(instructions: str, computations: str = "") -> str:
    """Return a module whose entry has these instructions, one a line; the last is the root."""
    lines = [line.strip() for line in instructions.strip().splitlines()]
    entry = "\n".join("  " + ("ROOT " if line is lines[-1] else "") + line for line in lines)
    return f"HloModule tested, is_scheduled=true\n{computations}\nENTRY main {{\n{entry}\n}}\n"


def steps(instructions: str, computations: str = "") -> list[Any]:
    """Return the rows of the instructions that run."""
    return list(fs.work_of_hlo(module(instructions, computations)).itertuples())


def step(instructions: str, computations: str = "") -> Any:
    """Return the row of the only instruction that runs."""
    (row,) = steps(instructions, computations)
    return row


def of(call: str, computations: str = "") -> Any:
    """Return the row of one instruction, written with the shapes of its operands: "f32[8] add(f32[8], f32[8])". Each
    shape is a parameter; ``name: shape`` gives it a name, by which it may be passed again."""
    parameters: list[str] = []

    def named(match: re.Match[str]) -> str:
        name = match["name"] or f"x{len(parameters)}"
        parameters.append(f"{name} = {match['shape']} parameter({len(parameters)})")
        return name

    head, rest = re.fullmatch(r"(.*? [a-z][\w-]*)\((.*)", call, re.S).groups()  # type: ignore[union-attr]
    operands, end = re.fullmatch(r"((?:[^()]|\([^()]*\))*)\)(.*)", rest, re.S).groups()  # type: ignore[union-attr]
    operands = re.sub(rf"(?:(?P<name>\w+): )?(?P<shape>{SHAPE})", named, operands)
    return step("\n".join([*parameters, f"y = {head}({operands}){end}"]), computations)


def fused(body: list[str], operands: str, result: str, computations: str = "", kind: str = "kLoop") -> Any:
    """Return the row of a fusion: the lines of its body, and its operands as "x: f32[8], y: s32[]"."""
    shapes = [each.split(": ") for each in re.findall(r"\w+: [^,]*\[[^\]]*\]", operands)]
    lines = [f"{name} = {shape} parameter({place})" for place, (name, shape) in enumerate(shapes)]
    names = ", ".join(name for name, _ in shapes)
    entry = "\n".join([*lines, f"fused = {result} fusion({names}), kind={kind}, calls=body"])
    text = "\n".join("  " + ("ROOT " if line is body[-1] else "") + line for line in [*lines, *body])
    return step(entry, f"{computations}\nbody {{\n{text}\n}}\n")

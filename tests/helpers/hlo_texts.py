"""Modules of HLO as text, and the rows of their work."""

from __future__ import annotations

from typing import Any

import flopscope as fs

ADD = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}
"""


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


def fused(body: str, operands: dict[str, str], result: str, computations: str = "", kind: str = "kLoop") -> Any:
    """Return the row of a fusion: the lines of its body, whose parameters are its operands by name and shape."""
    lines = [f"{name} = {shape} parameter({place})" for place, (name, shape) in enumerate(operands.items())]
    entry = "\n".join([*lines, f"fused = {result} fusion({', '.join(operands)}), kind={kind}, calls=body"])
    lines += [line.strip() for line in body.strip().splitlines()]
    text = "\n".join("  " + ("ROOT " if line is lines[-1] else "") + line for line in lines)
    return step(entry, f"{computations}\nbody {{\n{text}\n}}\n")

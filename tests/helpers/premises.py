"""Programs of one op, and the advice of one rule."""

from __future__ import annotations

from typing import Any

from helpers.hand_traces import FLOAT, Program


def told(program: Program, rule: str) -> list[Any]:
    return [row for row in program.load().advice() if row.rule == rule]


def inside(*names: str, program: Program | None = None, **run: Any) -> Program:
    """Return a program of one op of 200 µs within others, outermost first."""
    program = program or Program()
    program.step(0, 0, 40)
    for place, name in enumerate(names):
        program.op(name, 1 + place, 38 - 2 * place, [64])
    given = {"name": "aten::copy_", "shapes": ([8192, 8192], [8192, 8192]), "dtype": FLOAT} | run
    name, shapes = given.pop("name"), given.pop("shapes")
    program.run(name, 10, 14, 200, *shapes, **given)
    return program

"""Advice of recorded and hand-written programs."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import flopscope as fs
from flopscope.answers.advice import RULES, Advice
from flopscope.answers.analysis import analysis_of
from flopscope.show.advice import AdviceTable
from flopscope.support.safe import printable
from helpers.hand_traces import FLOAT, Program
from helpers.recordings import FAULTS

PAIRS = json.loads((FAULTS / "measured.json").read_text(encoding="utf-8"))
TRACES = sorted(path.name[:-8] for path in FAULTS.glob("*.json.gz"))


@cache
def recorded(name: str, folder: Path = FAULTS) -> fs.Trace:
    return fs.load_trace(folder / f"{name}.json.gz")


def savings(advice: AdviceTable) -> dict[str, float]:
    """Return the savings by rule, in µs."""
    sums: dict[str, float] = {}
    for row in advice:
        sums[row.rule] = sums.get(row.rule, 0.0) + row.saving_us
    return sums


def check(trace: Any) -> AdviceTable:
    """Return the advice. Check what holds for all advice."""
    advice, unobserved = trace.advice(), analysis_of(trace, "advice").unobserved
    each, alone = [row.saving_us for row in advice], [row.saving_alone_us for row in advice]
    assert each == sorted(each, reverse=True) or 0 in alone, "after what it needs, a change may gain more than that"
    assert alone[:1] == sorted(alone)[-1:], "first comes what gains most alone"
    assert all(least <= most * (1 + 1e-9) or most == 0 for least, most in zip(each, alone, strict=True))
    assert sum(each) <= unobserved * (1 + 1e-9)
    for row in advice:
        assert row.rule in RULES and row.what == f"{row.action}: {row.what[len(row.action) + 2 :]}"
        assert row.reason.lower() == row.what[len(row.action) + 2 :].lower() and row.reason.endswith((".", ".)"))
        assert row.action[0].isupper() and 10 <= len(row.action) <= 76 and not re.search(r": |\.$", row.action)
        assert row.saving_us >= 0.01 * unobserved * (1 - 1e-9)
        assert row.saving_pct == pytest.approx(100 * row.saving_us / unobserved) and row.evidence
        for entry in row.evidence:
            assert set(entry) == {"op", "shapes", "dtypes", "time", "calls", "row", "event"} and entry["calls"] != 0
        assert [entry["time"] for entry in row.evidence] == sorted((e["time"] for e in row.evidence), reverse=True)
    text = str(advice)
    assert all(len(line) <= 78 for line in text.splitlines())
    for number, row in enumerate(advice, 1):
        words = re.search(rf"^{number}\. (.*?): saves", text, re.MULTILINE | re.DOTALL)
        assert words and " ".join(words[1].split()) == printable(row.action)
        assert f"(rule: {row.rule})" in " ".join(text.split())
    written = json.loads(json.dumps(advice.to_dicts(), allow_nan=False))
    assert [row["rule"] for row in written] == [row.rule for row in advice]
    return advice


def told(program: Program, rule: str) -> list[Advice]:
    return [row for row in check(program.load()) if row.rule == rule]


def inside(*names: str, **run: Any) -> Program:
    """Return a program of one op of 200 µs within others, outermost first."""
    program = Program(step=40)
    for place, name in enumerate(names):
        program.op(name, 1 + place, 38 - 2 * place, [64])
    given = {"name": "aten::copy_", "shapes": ([8192, 8192], [8192, 8192]), "dtype": FLOAT} | run
    name, shapes = given.pop("name"), given.pop("shapes")
    program.run(name, 10, 14, 200, *shapes, **given)
    return program


def only(program: Program, rule: str) -> Advice:
    (row,) = told(program, rule)
    assert row.facts
    return row

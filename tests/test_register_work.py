"""fs.register_work: rules from Python for the ops of a trace."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import flopscope as fs
from flopscope.sources.work_rules import WorkCall, register_work

NAME = "mylib::scale"


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    yield
    for name in (NAME, "aten::mul"):
        register_work(name, None)


def trace(*calls: dict[str, Any]) -> fs.Trace:
    """A trace of CPU ops of 10 µs, one after another."""
    events = [
        {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 100 * i, "dur": 10, **call}
        for i, call in enumerate(calls)
    ]
    return fs.load_trace(json.dumps({"traceEvents": events}).encode())


def scale(*shape: int, name: str = NAME) -> dict[str, Any]:
    return {
        "name": name,
        "args": {
            "Input Dims": [list(shape), [], [[2, 3], [4]], [], []],
            "Input type": ["c10::BFloat16", "Scalar", "TensorList", "ScalarList", ""],
            "Input Strides": [[0] * len(shape), [], [[3, 1], [1]], [], []],
            "Concrete Inputs": ["", "0.5", "", "[1, True]", ""],
        },
    }


def rows(prof: fs.Trace, name: str = NAME) -> list[fs.EventRow]:
    return [r for r in prof.key_averages(group_by_input_shape=True, peaks="none") if r.key == name]


def test_a_rule_gives_the_work_of_each_distinct_call() -> None:
    asked: list[WorkCall] = []

    def rule(call: WorkCall) -> dict[str, float]:
        asked.append(call)
        elements = math.prod(call.shapes[0])
        return {"flops": 3 * elements, "bytes_read": 2 * elements, "bytes_written": elements}

    prof = trace(scale(4, 5), scale(4, 5), scale(7), scale(9, name="mylib::other"))
    register_work(NAME, rule)
    got = {tuple(r.input_shapes[0]): r for r in rows(prof)}
    assert got[4, 5].flops == 2 * 60 and got[4, 5].bytes_read == 2 * 40 and got[4, 5].bytes_written == 2 * 20
    assert got[7,].flops == 21 and got[7,].bytes_total_moved == 21
    assert len(asked) == 2
    first = next(call for call in asked if call.shapes[0] == (4, 5))
    assert first == WorkCall(
        name=NAME,
        shapes=[(4, 5), None, [(2, 3), (4,)], None, None],
        dtypes=["bfloat16", None, ["", ""], None, None],
        strides=[(0, 0), None, [(3, 1), (1,)], None, None],
        values=[None, 0.5, None, [1, True], None],
    )


def test_a_rule_comes_before_flopscopes_own_and_goes_away() -> None:
    call = {"name": "aten::mul", "args": {"Input Dims": [[8]], "Input type": ["float"], "Concrete Inputs": [""]}}
    prof = trace(call)
    assert rows(prof, "aten::mul")[0].flops == 8
    register_work("aten::mul", lambda call: (5, 6, 7))
    row = rows(prof, "aten::mul")[0]
    assert (row.flops, row.bytes_read, row.bytes_written) == (5, 6, 7)
    register_work("aten::mul", None)
    assert rows(prof, "aten::mul")[0].flops == 8


@pytest.mark.parametrize("given", [None, {}, {"flops": None}, (math.nan, None, math.nan)])
def test_what_a_rule_leaves_out_is_unknown(given: Any) -> None:
    register_work(NAME, lambda call: given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row = rows(trace(scale(4)))[0]
    assert math.isnan(row.flops) and math.isnan(row.bytes_read) and math.isnan(row.bytes_written)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda call: 1 / 0, "ZeroDivisionError"),
        (lambda call: call.shapes[99], "IndexError"),
        (lambda call: 17, "not flops, bytes_read, bytes_written"),
        (lambda call: (1, 2), "not flops, bytes_read, bytes_written"),
        (lambda call: {"flop": 1}, "the unknown keys flop; use flops"),
        (lambda call: (-1, 0, 0), "flops must be finite and at least 0, not -1"),
        (lambda call: (0, math.inf, 0), "bytes_read must be finite and at least 0, not inf"),
        (lambda call: ("many", 0, 0), "flops must be a number, not 'many'"),
    ],
)
def test_a_rule_that_fails_is_told_once_and_its_work_is_unknown(rule: Any, said: str) -> None:
    register_work(NAME, rule)
    prof = trace(scale(4), scale(5))
    with pytest.warns(UserWarning, match=said) as caught:
        assert [math.isnan(r.flops) for r in rows(prof)] == [True, True]
        rows(prof)
    assert len(caught) == 1 and NAME in str(caught[0].message)


@pytest.mark.parametrize(
    ("name", "fn", "error"), [("", len, ValueError), (3, len, TypeError), ("mylib::scale", 3, TypeError)]
)
def test_what_is_no_rule_is_an_error(name: Any, fn: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"name|fn"):
        register_work(name, fn)

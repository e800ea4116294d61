"""register_work(): work rules written in Python for the ops of a trace."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.hand_traces import BF16, Program

import flopscope as fs
from flopscope.record.work_rules import WorkCall, register_work

NAME = "mylib::scale"
KERNELS = ("sometimes", "always", "shared")


@pytest.fixture(autouse=True)
def _remove_rules() -> Iterator[None]:
    yield
    for name in (NAME, "aten::mul", *KERNELS):
        register_work(name, None)


def trace(*shapes: list[int]) -> fs.Trace:
    """Return a trace of successive calls, and of one of another op."""
    program = Program(0)
    for i, (name, shape) in enumerate([*((NAME, shape) for shape in shapes), ("mylib::other", [9])]):
        program.op(name, 100 * i, 10, shape, [], [[2, 3], [4]], [], [],
                   dtype=[BF16, "Scalar", "TensorList", "ScalarList", ""], values=["", "0.5", "", "[1, True]", ""],
                   strides=[[0] * len(shape), [], [[3, 1], [1]], [], []])  # fmt: skip
    return program.load()


def rows(prof: fs.Trace, name: str = NAME) -> list[fs.EventRow]:
    return [r for r in prof.key_averages(group_by_input_shape=True, peaks="none") if r.key == name]


def test_a_rule_is_called_once_per_distinct_call() -> None:
    calls: list[WorkCall] = []

    def rule(call: WorkCall) -> dict[str, float]:
        calls.append(call)
        elements = math.prod(call.shapes[0])
        return {"flops": 3 * elements, "bytes_read": 2 * elements, "bytes_written": elements}

    prof = trace([4, 5], [4, 5], [7])
    register_work(NAME, rule)
    by_shape = {tuple(r.input_shapes[0]): r for r in rows(prof)}
    twice = by_shape[4, 5]
    assert (twice.flops, twice.bytes_read, twice.bytes_written) == (2 * 60, 2 * 40, 2 * 20)
    assert by_shape[7,].flops == 21 and by_shape[7,].bytes_total_moved == 21 and len(calls) == 2
    assert next(call for call in calls if call.shapes[0] == (4, 5)) == WorkCall(
        name=NAME, shapes=[(4, 5), None, [(2, 3), (4,)], None, None], dtypes=["bfloat16", None, ["", ""], None, None],
        strides=[(0, 0), None, [(3, 1), (1,)], None, None], values=[None, 0.5, None, [1, True], None],
    )  # fmt: skip


def test_a_rule_overrides_the_built_in_one_until_removed() -> None:
    program = Program(0)
    program.op("aten::mul", 0, 10, [8])
    prof = program.load()
    assert rows(prof, "aten::mul")[0].flops == 8
    register_work("aten::mul", lambda call: (5, 6, 7))
    row = rows(prof, "aten::mul")[0]
    assert (row.flops, row.bytes_read, row.bytes_written) == (5, 6, 7)
    register_work("aten::mul", None)
    assert rows(prof, "aten::mul")[0].flops == 8


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("result", [None, {}, {"flops": None}, (math.nan, None, math.nan)])
def test_values_that_a_rule_omits_are_unknown(result: Any) -> None:
    register_work(NAME, lambda call: result)
    row = rows(trace([4]))[0]
    assert math.isnan(row.flops) and math.isnan(row.bytes_read) and math.isnan(row.bytes_written)


@pytest.mark.parametrize(
    ("rule", "message"),
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
def test_a_failing_rule_is_reported_once_and_its_work_is_unknown(rule: Any, message: str) -> None:
    register_work(NAME, rule)
    prof = trace([4], [5])
    with pytest.warns(UserWarning, match=message) as caught:
        assert [math.isnan(r.flops) for r in rows(prof)] == [True, True]
        rows(prof)
    assert len(caught) == 1 and NAME in str(caught[0].message)


@pytest.mark.parametrize("name, fn, error", [("", len, ValueError), (3, len, TypeError), ("lib::scale", 3, TypeError)])
def test_invalid_names_and_rules_are_errors(name: Any, fn: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"name|fn"):
        register_work(name, fn)


def test_a_kernels_row_is_unknown_if_that_of_one_of_its_kernels_is() -> None:
    register_work("sometimes", lambda call: (7, 3, 4) if call.grid[0] == 11 else None)
    for name in ("always", "shared"):
        register_work(name, lambda call: (7, 3, 4))
    program = Program()
    for i, blocks in enumerate((11, 12, 11)):
        for name in ("sometimes", "always"):
            program.work(name, 10 * i, 5, blocks=blocks)
    program.work("shared", 30, 5, blocks=11)
    program.run("mylib::op", 40, 10, 5, [8], kernel="shared")
    table = {(row.key, row.device_type): row for row in program.load().key_averages(peaks="none")}
    always, sometimes, shared = (table[name, "cuda"] for name in ("always", "sometimes", "shared"))
    assert always.flops == 21 and always.tflops_per_s == pytest.approx(21 / 15e6)
    assert math.isnan(sometimes.flops) and math.isnan(sometimes.tflops_per_s)
    assert math.isnan(sometimes.bytes_total_moved) and sometimes.flops_total == 14
    # One of the kernels belongs to an op: the time of the row is that of more work than its FLOPs.
    op = table["mylib::op", "cpu"]
    assert (op.flops, op.bytes_total_moved) == (7, 7) and op.tflops_per_s == pytest.approx(7 / 5e6)
    assert shared.flops == 7 and math.isnan(shared.tflops_per_s)
    assert program.load().coverage()["bytes"] == 1 - 5 / 40, "one kernel of 5 µs, of eight, is unknown"

"""FBGEMM's lookups of 2022 and their gradients, in traces without numbers: fbgemm_gpu's
codegen/embedding_backward_split_host_template.cpp before 0.8 has their arguments."""

from __future__ import annotations

import math

import pytest
from helpers.hand_traces import Program

import flopscope as fs

TABLES, BATCH, WIDTH = 3, 128, 16
LONG = "long int"
OPTIMIZERS = {  # numbers read and written for each number of a row and for each row
    "sgd": (1, 0), "rowwise_adagrad": (1, 1), "adagrad": (2, 0), "adam": (3, 0), "partial_rowwise_adam": (2, 1),
}  # fmt: skip


def lookup(program: Program, optimizer: str, indices: int, launched: float, batch: int = BATCH) -> None:
    """Add a lookup of a shape that PARAM's benchmark recorded; its values are not recorded."""
    shapes = [[0], [10**6], [0], [0, 0], [TABLES], [TABLES], [TABLES + 1], [], [], [TABLES + 1], [], [indices],
              [TABLES * batch + 1], [], [], [], [0], [], [], []]  # fmt: skip
    types = ["float"] * 4 + ["int", LONG, "int", "Scalar", "Scalar", LONG, "Scalar", LONG, LONG, "Scalar", "", "",
                             "int", "Scalar", "Scalar", "Scalar"]  # fmt: skip
    name = f"fbgemm::split_embedding_codegen_lookup_{optimizer}_function"
    program.run(name, launched, launched + 20, 10, *shapes, dtype=types)


def gradient(program: Program, optimizer: str, shape: list[int], launched: float) -> None:
    name = f"torch::autograd::CppNode<SplitLookupFunction_{optimizer}_Op>"
    program.run(name, launched, launched + 20, 100, shape)


def rows_of(program: Program) -> dict[str, fs.EventRow]:
    return {row.key: row for row in fs.load_trace(program.text()).key_averages(group_by_input_shape=True)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_gradient_tells_the_width_of_a_lookup_and_the_lookup_its_indices(optimizer: str) -> None:
    program, indices = Program(), 768
    lookup(program, optimizer, indices, 10)
    gradient(program, optimizer, [BATCH, TABLES * WIDTH], 50)
    forward, backward = (row for row in rows_of(program).values() if row.flops > 0)
    given, result = 8 * (indices + TABLES * BATCH + 1), 4 * BATCH * TABLES * WIDTH
    assert (forward.flops, forward.bytes_read, forward.bytes_written) == (
        indices * WIDTH, 4 * indices * WIDTH + given, result)  # fmt: skip
    of_number, of_row = OPTIMIZERS[optimizer]
    updated = 4 * indices * (WIDTH * of_number + of_row)
    assert (backward.bytes_read, backward.bytes_written) == (result + given + updated, updated)
    estimated = dict(fs.load_trace(program.text()).coverage()["estimated"])
    assert len(estimated) == 2, "tables may differ in width, and indices may be equal"


def test_without_pooling_each_index_has_a_row_of_the_gradient() -> None:
    program = Program()
    lookup(program, "sgd", 700, 10)
    gradient(program, "sgd", [700, WIDTH], 50)
    forward = next(iter(rows_of(program).values()))
    assert (forward.flops, forward.bytes_written) == (0, 4 * 700 * WIDTH)


def test_of_several_lookups_the_one_with_most_indices_bounds_the_gradient() -> None:
    program = Program()
    lookup(program, "adagrad", 700, 10)
    lookup(program, "adagrad", 800, 40)
    gradient(program, "adagrad", [BATCH, TABLES * WIDTH], 70)
    backward = next(row for key, row in rows_of(program).items() if "CppNode" in key)
    assert backward.bytes_written == 4 * 800 * WIDTH * 2


@pytest.mark.parametrize(
    ("optimizer", "shape"),
    [("sgd", [BATCH, 48]), ("adagrad_with_a_future", [BATCH, 48]), ("adagrad", [BATCH + 1, 48]), ("adagrad", [48])],
)
def test_the_work_is_unknown_without_a_gradient_that_fits(optimizer: str, shape: list[int]) -> None:
    program = Program()
    lookup(program, "adagrad", 768, 10)
    gradient(program, optimizer, shape, 50)
    for row in rows_of(program).values():
        assert math.isnan(row.bytes_total_moved) and math.isnan(row.flops), row.key


def test_gradients_that_disagree_leave_the_width_unknown() -> None:
    program = Program()
    lookup(program, "adagrad", 768, 10)
    gradient(program, "adagrad", [BATCH, 48], 50)
    gradient(program, "adagrad", [BATCH, 96], 180)
    forward = next(row for key, row in rows_of(program).items() if "lookup" in key)
    assert math.isnan(forward.bytes_total_moved)

"""Columns of the core: numbers that NumPy is not needed for, held against lists and NumPy's own arrays."""

import copy
import math
import pickle
from array import array
from typing import Any

import numpy as np
import pytest

from flopscope.support.core_facts import Numbers


def column_of(values: list[Any], integers: bool) -> Numbers:
    stored = array("q" if integers else "d", values).tobytes()
    same = len(values) > 1 and stored == stored[:8] * len(values)
    return Numbers("q" if integers else "d", stored[:8] if same else stored, len(values))


COLUMNS = {
    "integers": ([3, -1, 2**63 - 1, -(2**63)], True), "doubles": ([0.5, -0.0, math.inf, 1e-300], False),
    "one value": ([7] * 5, True), "one double": ([2.5] * 3, False), "one row": ([4], True), "no row": ([], False),
}  # fmt: skip


@pytest.mark.parametrize("values, integers", COLUMNS.values(), ids=COLUMNS)
def test_a_column_is_a_sequence_of_the_numbers_and_a_buffer(values: list[float], integers: bool) -> None:
    column = column_of(values, integers)
    assert len(column) == len(values) and column.tolist() == list(column) == values
    assert all(type(value) is (int if integers else float) for value in column)
    array = np.asarray(column)
    assert array.dtype == (np.int64 if integers else np.float64) and array.tolist() == values
    assert not array.flags.writeable
    for copied in (copy.deepcopy(column), pickle.loads(pickle.dumps(column))):
        assert copied.tolist() == values


@pytest.mark.parametrize("values", [[10, 20, 30, 40], [5, 5, 5, 5]])
def test_rows_are_chosen_as_those_of_a_list(values: list[int]) -> None:
    column = column_of(values, True)
    for rows in ([], [2], [3, 0, 0], [-1, -4], range(4)):
        assert column.chosen(rows).tolist() == [values[row] for row in rows]
    with pytest.raises(IndexError):
        column[4]

"""Columns of the core: numbers that NumPy is not needed for, held against lists and NumPy's own arrays."""

from __future__ import annotations

import copy
import io
import math
import pickle
import struct

import numpy as np
import pytest

from flopscope._core import Numbers

COLUMNS = {
    "integers": ([3, -1, 2**63 - 1, -(2**63)], True),
    "doubles": ([0.5, -0.0, math.inf, 1e-300], False),
    "one value": ([7] * 5, True),
    "one double": ([2.5] * 3, False),
    "one row": ([4], True),
    "no row": ([], False),
}


@pytest.mark.parametrize("values, integers", COLUMNS.values(), ids=COLUMNS)
def test_a_column_is_a_sequence_of_the_numbers_and_a_buffer(values: list[float], integers: bool) -> None:
    column = Numbers(values, integers)
    assert len(column) == len(values) and column.tolist() == list(column) == values
    assert all(type(value) is (int if integers else float) for value in column)
    array = np.asarray(column)
    assert array.dtype == (np.int64 if integers else np.float64) and array.tolist() == values
    assert not array.flags.writeable
    for copied in (copy.deepcopy(column), pickle.loads(pickle.dumps(column))):
        assert copied.tolist() == values


def test_equal_values_are_stored_once() -> None:
    assert np.asarray(Numbers([1.5] * 1000, False)).strides == (0,)
    assert np.asarray(Numbers([1.5, 2.5], False)).strides == (8,)
    assert np.asarray(Numbers([math.nan] * 9, False)).strides == (0,)
    assert np.asarray(Numbers([0.0, -0.0], False)).strides == (8,)  # equal, but not the same number


def test_a_contiguous_buffer_of_a_shared_value_is_refused() -> None:
    with pytest.raises(BufferError, match="not contiguous"):
        struct.unpack("2q", Numbers([1, 1], True))  # type: ignore[arg-type]
    column = Numbers([1, 2], True)
    assert struct.unpack("2q", column) == (1, 2)  # type: ignore[arg-type]
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(b"0123456789012345").readinto(column)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[10, 20, 30, 40], [5, 5, 5, 5]])
def test_rows_are_chosen_as_those_of_a_list(values: list[int]) -> None:
    column = Numbers(values, True)
    for rows in ([], [2], [3, 0, 0], [-1, -4], range(4)):
        assert column.chosen(rows).tolist() == [values[row] for row in rows]
    for wrong in ([4], [-5], [0, 2**70]):
        with pytest.raises(IndexError):
            column.chosen(wrong)
    with pytest.raises(TypeError):
        column.chosen(["0"])  # type: ignore[list-item]
    with pytest.raises(IndexError):
        column[4]


def test_what_is_no_number_is_an_error() -> None:
    with pytest.raises(TypeError):
        Numbers(["1"], True)  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        Numbers([2**63], True)

"""Tensors whose elements share memory: writing to them is an error, and shared memory is read once."""

from typing import Any

import numpy as np
import pytest
from helpers.ops_layouts import distinct_bytes
from helpers.profiled import rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import flopscope as fs


@st.composite
def strided_arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    ndim = draw(st.integers(0, 4))
    shape = draw(st.tuples(*[st.integers(0, 6)] * ndim))
    step = st.integers(-12, 12) | st.sampled_from([0, 1, 2, 3, 6, 24, 36]) | st.integers(-3000, 3000)
    steps = draw(st.tuples(*[step] * ndim))
    before = sum(max(size - 1, 0) * -step for size, step in zip(shape, steps, strict=True) if step < 0)
    after = sum(max(size - 1, 0) * step for size, step in zip(shape, steps, strict=True) if step > 0)
    memory = np.arange(before + after + 1, dtype=np.float32)
    return as_strided(memory[before:], shape, [4 * step for step in steps])


@settings(max_examples=100)
@given(strided_arrays())
def test_shared_elements_are_read_once_and_never_written(array: np.ndarray[Any, Any]) -> None:
    target, values = fs.from_numpy(array), np.arange(array.size, dtype=np.float32).reshape(array.shape)
    with fs.profile() as prof:
        negated = fs.neg(target)
    assert (negated.numpy() == -array).all()
    count = distinct_bytes(array) // 4
    assert rows_of(prof)["flopscope::neg"].bytes_read == 4 * count
    for write in (
        lambda: fs.neg(fs.from_numpy(values), out=target),
        lambda: fs.fill_(target, 3),
        lambda: fs.copy_(target, fs.from_numpy(values)),
    ):
        if count == array.size:
            write()
        else:
            with pytest.raises(ValueError, match="the output overlaps itself"):
                write()
    if count == array.size:
        assert (array == values).all()


def test_a_rejected_output_is_unchanged() -> None:
    memory = np.arange(20, dtype=np.float32)
    target = fs.from_numpy(as_strided(memory, (5, 3), (12, 12)))
    assert target.strides == (3, 3)
    with pytest.raises(ValueError, match=r"neg\(float32 \(5, 3\) on cpu, out=.*the output overlaps itself"):
        fs.neg(fs.ones((5, 3)), out=target)
    for in_place in (lambda: fs.add_(target, 1), lambda: fs.uniform_(target, 0, 1), lambda: fs.relu_(target)):
        with pytest.raises(ValueError, match="the output overlaps itself"):
            in_place()
    assert (memory == np.arange(20)).all()
    # Large coprime strides over many elements make an exact check too expensive. The memory is never accessed.
    vast = as_strided(np.zeros(1, dtype=np.int8), (70_000, 70_000), (1_000_000_007, 998_244_353))
    with pytest.raises(ValueError, match="cannot determine whether elements of the output share memory"):
        fs.fill_(fs.from_numpy(vast), 1)

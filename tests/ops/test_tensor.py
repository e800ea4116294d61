"""Tensor: attributes, to(), memory accounting, and threads."""

import gc
import sys
import threading

import numpy as np
import pytest
from helpers.processes import output_of
from helpers.tensors import DTYPES, SIZES, numbers

import flopscope as fs

# Attributes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_attributes(dtype: str) -> None:
    for shape in ((), (3,), (2, 3, 4), (0, 5), (1,) * 8):
        x = fs.zeros(shape, dtype=dtype)
        count = int(np.prod(shape, dtype=np.int64))
        assert (x.shape, x.ndim, x.size, x.dtype, x.device) == (shape, len(shape), count, dtype, "cpu")
        assert x.nbytes == count * SIZES[dtype]
        if count:
            assert x.strides == tuple(s // SIZES[dtype] for s in np.zeros(shape, f"V{SIZES[dtype]}").strides)
        assert isinstance(x.data_ptr, int) and (x.data_ptr % 64 == 0 or not count)
    item = fs.ones((1, 1), dtype=dtype).item()
    assert item == 1 and type(item) is (bool if dtype == "bool" else float if "float" in dtype else int)


def test_attributes_are_read_only_and_tensor_has_no_constructor() -> None:
    x, y = fs.ones((2,)), fs.ones((2,))
    for name in ("shape", "dtype", "device", "nbytes", "T", "no_such_attribute"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)
    with pytest.raises(TypeError, match="Tensor"):
        fs.Tensor()
    with pytest.raises(TypeError):
        type("Mine", (fs.Tensor,), {})
    assert {x: 1}[x] == 1 and x == x and x != y, "hashable, and equal to itself only"


def test_repr_shows_the_elements_of_small_tensors_only() -> None:
    assert repr(fs.full((2, 2), 1.5)) == "tensor(float32 (2, 2) on cpu)\n[[1.5 1.5]\n [1.5 1.5]]"
    assert repr(fs.ones((), dtype="bool")) == "tensor(bool () on cpu)\nTrue"
    assert repr(fs.ones((1,), dtype="bfloat16")) == "tensor(bfloat16 (1,) on cpu)\n[1.]"
    assert repr(fs.zeros((0, 3))).startswith("tensor(float32 (0, 3) on cpu)\n[]")
    assert repr(fs.zeros((5000, 5000), dtype="uint8")) == "tensor(uint8 (5000, 5000) on cpu)"
    assert str(fs.ones((2,))) == repr(fs.ones((2,)))


def test_item_and_bool_and_float_need_one_element_and_len_an_axis() -> None:
    assert fs.full((), -2.5).item() == -2.5
    assert fs.from_numpy(np.array([2**62 + 1])).item() == 2**62 + 1, "int64 is not rounded through a float"
    assert bool(fs.ones((1,))) and not bool(fs.zeros(())) and bool(fs.full((), float("nan")))
    assert float(fs.full((1, 1), 0.5, dtype="bfloat16")) == 0.5 and type(float(fs.ones((), dtype="int32"))) is float
    assert len(fs.zeros((7, 2))) == 7 and len(fs.zeros((0,))) == 0
    for shape in ((2,), (0,), (3, 0)):
        for wrong in (fs.Tensor.item, bool, float):
            with pytest.raises(ValueError, match=r"item\(\).*float32 \(" + str(shape[0])):
                wrong(fs.zeros(shape))
    with pytest.raises(TypeError, match="len"):
        len(fs.ones(()))


def test_transposing_shares_memory() -> None:
    values = numbers((2, 3, 4))
    x = fs.from_numpy(values)
    assert x.T.shape == (4, 3, 2) and x.T.data_ptr == x.data_ptr and (x.T.numpy() == values.T).all()
    assert x.T.T.strides == x.strides
    fs.mul_(x.T, 2)
    assert values[0, 0, 1] == 2, "an in-place op on a transposed view writes the base"
    y = fs.ones((3, 2)).T
    assert (y.numpy() == 1).all(), "the view keeps its memory alive"
    assert fs.full((), 3.0).T.item() == 3


# to() -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", DTYPES)
def test_to_casts_between_all_dtypes_in_either_order_of_arguments(source: str) -> None:
    values = np.array([[0, 1, 2], [96, 64, 3]])
    x = fs.from_numpy(values).to(source)
    assert x.to() is x.to("cpu") is x.to(device="cpu") is x
    for target in DTYPES:
        want = values != 0 if "bool" in (source, target) else values
        for result in (
            x.to(target), x.to(target, "cpu"), x.to("cpu", target), x.to(target, device="cpu"), x.to(dtype=target),
            x.to(device="cpu", dtype=target),
        ):  # fmt: skip
            assert result.dtype == target and result.device == "cpu" and (result is x) == (source == target)
            assert (result.to("float64").numpy() == want).all()


# Memory ---------------------------------------------------------------------------------------------------------------


def test_allocated_and_freed_memory_is_counted() -> None:
    gc.collect()
    fs.empty_cache("cpu")
    allocated, reserved = fs.memory_allocated("cpu"), fs.memory_reserved("cpu")
    assert reserved >= allocated >= 0
    small, large = fs.empty((10, 10)), fs.empty((4 << 20,))
    assert fs.memory_allocated("cpu") == allocated + 400 + (16 << 20)
    assert fs.memory_reserved("cpu") >= reserved + 400 + (16 << 20)
    view, pointer = large.T, large.data_ptr
    del large
    assert fs.memory_allocated("cpu") == allocated + 400 + (16 << 20), "a view keeps the memory alive"
    del view, small
    assert fs.memory_allocated("cpu") == allocated
    assert fs.memory_reserved("cpu") > reserved and fs.empty((4 << 20,)).data_ptr == pointer, "it is used again"
    fs.empty_cache("cpu")
    assert fs.memory_reserved("cpu") == reserved


def test_memory_of_other_libraries_is_not_counted() -> None:
    before = fs.memory_allocated("cpu")
    x = fs.from_numpy(np.ones(1000))
    assert fs.memory_allocated("cpu") == before
    y = fs.sin(x)
    assert fs.memory_allocated("cpu") == before + 8000
    del y
    with pytest.raises(ValueError):
        fs.add(x, fs.ones((3,), dtype="float64"))
    assert fs.memory_allocated("cpu") == before, "a failed op keeps no memory"
    for function in (fs.memory_allocated, fs.memory_reserved, fs.empty_cache, fs.synchronize):
        function(), function("cpu"), function(None)
        with pytest.raises(ValueError, match="unknown device 'gpu'"):
            function("gpu")
        with pytest.raises(TypeError):
            function(0)


def test_scratch_memory_of_overlapping_and_strided_outputs_is_freed() -> None:
    x = fs.from_numpy(np.ones((64, 64), np.float32))
    before = fs.memory_allocated("cpu")
    fs.add(x, x.T, out=x)
    fs.softmax(x.T, out=x.T)
    fs.matmul(x.T, x, out=x)
    fs.matmul(fs.from_numpy(np.ones((64, 128), np.float32)[:, ::2]), x)
    assert fs.memory_allocated("cpu") == before


# Threads and forks ----------------------------------------------------------------------------------------------------


def test_a_forked_child_runs_large_ops() -> None:
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, flopscope as fs
fs.set_num_threads(2)
x, y = fs.ones((3000, 1000), device="cpu"), fs.ones((512, 512), device="cpu")
assert fs.sum(fs.add(x, x)).item() == 6e6
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        with fs.profile() as prof:
            good = fs.sum(fs.add(x, x)).item() == 6e6 and fs.sum(fs.matmul(y, y)).item() == 2**27
        os._exit(0 if good and len(prof) == 4 else 1)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert fs.sum(fs.add(x, x)).item() == 6e6
sys.exit(max(codes, key=abs))
"""
    output_of(code)


def test_the_last_reference_can_be_dropped_on_another_thread() -> None:
    array = numbers((100,), "float64")
    before, counted = sys.getrefcount(array), fs.memory_allocated("cpu")
    tensors = [fs.from_numpy(array), fs.sin(fs.from_numpy(array))]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(array) == before and fs.memory_allocated("cpu") == counted

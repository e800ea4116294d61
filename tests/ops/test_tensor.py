"""Tensor: attributes, to(), memory shared with NumPy, memory accounting, and threads."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from helpers.tensors import DTYPES, OF_NUMPY, SIZES, address, numbers

import flopscope as fs

FLOATS = ("float64", "float32", "float16", "bfloat16")


# Attributes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 5), (1,) * 8], ids=str)
def test_attributes(dtype: str, shape: tuple[int, ...]) -> None:
    x = fs.zeros(shape, dtype=dtype)
    count = int(np.prod(shape, dtype=np.int64))
    assert (x.shape, x.ndim, x.size, x.dtype, x.device) == (shape, len(shape), count, dtype, "cpu")
    assert x.nbytes == count * SIZES[dtype]
    if count:
        assert x.strides == tuple(s // SIZES[dtype] for s in np.zeros(shape, f"V{SIZES[dtype]}").strides)
    assert isinstance(x.data_ptr, int) and (x.data_ptr % 64 == 0 or not count)


def test_attributes_are_read_only_and_tensor_has_no_constructor() -> None:
    x = fs.ones((2,))
    for name in ("shape", "dtype", "device", "nbytes", "T", "no_such_attribute"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)
    with pytest.raises(TypeError, match="Tensor"):
        fs.Tensor()
    with pytest.raises(TypeError):
        type("Mine", (fs.Tensor,), {})


def test_repr_shows_the_elements_of_small_tensors_only() -> None:
    assert repr(fs.full((2, 2), 1.5)) == "tensor(float32 (2, 2) on cpu)\n[[1.5 1.5]\n [1.5 1.5]]"
    assert repr(fs.ones((), dtype="bool")) == "tensor(bool () on cpu)\nTrue"
    assert repr(fs.ones((1,), dtype="bfloat16")) == "tensor(bfloat16 (1,) on cpu)\n[1.]"
    assert repr(fs.zeros((0, 3))).startswith("tensor(float32 (0, 3) on cpu)\n[]")
    assert repr(fs.zeros((5000, 5000), dtype="uint8")) == "tensor(uint8 (5000, 5000) on cpu)"
    assert str(fs.ones((2,))) == repr(fs.ones((2,)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_item_returns_a_python_number(dtype: str) -> None:
    item = fs.ones((1, 1), dtype=dtype).item()
    assert item == 1 and type(item) is (bool if dtype == "bool" else float if "float" in dtype else int)


def test_item_needs_one_element() -> None:
    assert fs.full((), -2.5).item() == -2.5
    for shape in ((2,), (0,), (3, 0)):
        with pytest.raises(ValueError, match=r"item\(\).*float32 \(" + str(shape[0])):
            fs.zeros(shape).item()
    assert fs.from_numpy(np.array([2**62 + 1])).item() == 2**62 + 1, "int64 is not rounded through a float"


def test_bool_and_float_and_len() -> None:
    assert bool(fs.ones((1,))) and not bool(fs.zeros(())) and bool(fs.full((), float("nan")))
    assert float(fs.full((1, 1), 0.5, dtype="bfloat16")) == 0.5
    assert type(float(fs.ones((), dtype="int32"))) is float
    assert len(fs.zeros((7, 2))) == 7 and len(fs.zeros((0,))) == 0
    for wrong in (bool, float):
        with pytest.raises(ValueError, match=r"item.*\(2,\)"):
            wrong(fs.ones((2,)))
    with pytest.raises(TypeError, match="len"):
        len(fs.ones(()))


def test_a_tensor_is_hashable_and_equal_to_itself_only() -> None:
    x, y = fs.ones((2,)), fs.ones((2,))
    assert {x: 1}[x] == 1 and x == x and x != y


def test_transposing_shares_memory() -> None:
    values = numbers((2, 3, 4))
    x = fs.from_numpy(values)
    assert x.T.shape == (4, 3, 2) and x.T.data_ptr == x.data_ptr and (x.T.numpy() == values.T).all()
    assert x.T.T.strides == x.strides
    fs.mul_(x.T, 2)
    assert values[0, 0, 1] == 2, "an in-place op on a transposed view writes the base"
    y = fs.ones((3, 2)).T
    gc.collect()
    assert (y.numpy() == 1).all(), "the view keeps its memory alive"
    assert fs.full((), 3.0).T.item() == 3


# to() -----------------------------------------------------------------------------------------------------------------


def test_to_returns_the_same_tensor_if_nothing_changes() -> None:
    x = fs.ones((2,))
    for same in (
        x.to("float32"),
        x.to("cpu"),
        x.to("cpu", "float32"),
        x.to("float32", "cpu"),
        x.to(),
        x.to(dtype="float32"),
        x.to(device="cpu"),
        x.to(device="cpu", dtype="float32"),
        x.to("float32", device="cpu"),
    ):
        assert same is x


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_to_casts_between_all_dtypes_in_either_order_of_arguments(source: str, target: str) -> None:
    values = np.array([[0, 1, 2], [96, 64, 3]])
    x = fs.from_numpy(values).to(source)
    want = values != 0 if "bool" in (source, target) else values
    for result in (
        x.to(target),
        x.to(target, "cpu"),
        x.to("cpu", target),
        x.to(dtype=target),
        x.to(device="cpu", dtype=target),
    ):
        assert result.dtype == target and result.device == "cpu" and (result is x) == (source == target)
        assert (result.to("float64").numpy() == want).all()


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [(("float33",), {}), (("gpu",), {}), ((3,), {}), ((None,), {}), (("float32", "cpu", "cpu"), {}), ((), {"wrong": 1}),
     ((np.float32,), {}), (("cuda:",), {}), (("cuda:-1",), {}), ((), {"device": 0}), ((), {"dtype": float})],
    ids=str,
)  # fmt: skip
def test_to_rejects_invalid_arguments(arguments: Any, keywords: Any) -> None:
    x = fs.ones((2,))
    with pytest.raises((TypeError, ValueError)):
        x.to(*arguments, **keywords)
    assert x.to("float64").dtype == "float64"


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (("float64", "float16"), {}),
        (("cpu", "cpu"), {}),
        (("float64",), {"dtype": "float16"}),
        (("cpu",), {"device": "cpu"}),
    ],
    ids=str,
)
def test_to_rejects_repeated_arguments(arguments: Any, keywords: Any) -> None:
    with pytest.raises(TypeError, match=r"dtype|device|twice"):
        fs.ones((2,)).to(*arguments, **keywords)


# NumPy ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", OF_NUMPY)
def test_numpy_shares_memory_both_ways(dtype: str) -> None:
    values = numbers((3, 4), dtype)
    x = fs.from_numpy(values)
    back = x.numpy()
    assert (
        x.data_ptr == address(values) == address(back) and back.dtype == values.dtype and back.strides == values.strides
    )
    values[1, 2] = 0
    assert back[1, 2] == 0
    back[0, 0] = 1
    assert values[0, 0] == 1
    result = fs.ones((3,), dtype=dtype)
    result.numpy()[1] = 0
    assert result.to("float64").numpy().tolist() == [1, 0, 1]


def test_bfloat16_is_converted_to_float32_for_numpy() -> None:
    x = fs.full((2,), 1.5, dtype="bfloat16")
    array = x.numpy()
    assert array.dtype == np.float32 and array.tolist() == [1.5, 1.5]
    array[0] = 9
    assert x.numpy()[0] == 1.5


@pytest.mark.parametrize(
    "view",
    [lambda a: a[::-1], lambda a: a[:, ::-2], lambda a: a.T, lambda a: a[1:1], lambda a: a[2], lambda a: a[2, 3, ...],
     lambda a: a[:, None, :], lambda a: np.broadcast_to(a[:1], (5, 6)), lambda a: np.broadcast_to(a[0, 0], (2, 3))],
    ids=["negative", "step", "transposed", "empty", "row", "scalar", "axis of one", "broadcast", "all broadcast"],
)  # fmt: skip
@pytest.mark.parametrize("share", [fs.from_numpy, fs.from_dlpack], ids=["numpy", "dlpack"])
def test_views_with_any_strides_are_shared(view: Any, share: Any) -> None:
    array = view(numbers((5, 6), "float64"))
    x = share(array)
    assert x.shape == array.shape and (x.numpy() == array).all()
    if array.size:
        assert x.data_ptr == address(array) == address(x.numpy())
        shared = [(s, n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1]
        assert [(s * 8, n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1] == shared
        assert x.numpy().flags.writeable == array.flags.writeable


def test_from_numpy_accepts_what_asarray_accepts() -> None:
    assert fs.from_numpy([[1.0, 2.0]]).shape == (1, 2) and fs.from_numpy([1, 2]).dtype == "int64"
    assert fs.from_numpy(3.5).item() == 3.5 and fs.from_numpy(True).dtype == "bool"
    assert fs.from_numpy(array=np.ones(2), device="cpu").dtype == "float64"
    assert fs.from_numpy(np.ma.array([1.0])).shape == (1,)


@pytest.mark.parametrize(
    ("array", "kind", "pattern"),
    [
        (np.ones(2, complex), TypeError, "complex128.*float64"),
        (np.ones(2, np.uint16), TypeError, "uint16"),
        (np.ones(2, np.longdouble), TypeError, "longdouble|float128"),
        (np.ones(2, ">f4"), TypeError, ">f4"),
        (np.array(["a"]), TypeError, "<U1"),
        (None, TypeError, "object|dtype\\('O'\\)"),
        ({"a": 1}, TypeError, "dtype\\('O'\\)"),
        (np.ones((1,) * 9), ValueError, "8 dimensions, not 9"),
        (np.frombuffer(b"123456789", np.uint8)[1:].view(np.float64), ValueError, "aligned"),
        (np.zeros(2, [("a", "f4"), ("b", "u1")])["a"], ValueError, "aligned"),
        (np.array(["2020-01-01"], "datetime64[D]"), TypeError, "M8"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else None,
)
def test_from_numpy_rejects_unsupported_arrays(array: Any, kind: type[Exception], pattern: str) -> None:
    with pytest.raises(kind, match=pattern):
        fs.from_numpy(array)


def test_from_numpy_rejects_a_tensor() -> None:
    with pytest.raises(TypeError, match="Tensor already"):
        fs.from_numpy(fs.ones((2,)))


def test_array_protocol_copies_only_if_requested_or_required() -> None:
    x = fs.from_numpy(numbers((2, 3)))
    assert (
        address(np.asarray(x))
        == address(np.asarray(x, dtype="float32"))
        == address(np.array(x, copy=False))
        == x.data_ptr
    )
    assert (
        address(x.__array__())
        == address(x.__array__("float32"))
        == address(x.__array__("float32", copy=False))
        == x.data_ptr
    )
    for result in (
        np.array(x),
        np.array(x, copy=True),
        np.asarray(x, dtype="float64"),
        x.__array__(copy=True),
        x.__array__("float32", copy=True),
    ):
        assert address(result) != x.data_ptr and (result == x.numpy()).all() and result.flags.writeable
    assert x.__array__("int64").dtype == np.int64 and x.__array__(dtype=None, copy=None).dtype == np.float32


def test_array_protocol_with_copy_false_rejects_required_copies() -> None:
    with pytest.raises(ValueError, match=r"bfloat16.*copy"):
        np.array(fs.ones((2,), dtype="bfloat16"), copy=False)
    with pytest.raises(ValueError, match="copy"):
        np.array(fs.ones((2,)), dtype="float64", copy=False)
    with pytest.raises(ValueError, match="copy"):
        fs.ones((2,)).__array__("float64", copy=False)
    with pytest.raises(TypeError):
        fs.ones((2,)).__array__("no such dtype")


def test_numpy_leaves_operators_to_the_tensor() -> None:
    x = fs.full((2,), 3.0)
    for scalar in (np.float64(2), np.float32(2), np.float16(2), np.int64(2), np.int8(2), np.uint64(2)):
        for result in (x * scalar, scalar * x):
            assert isinstance(result, fs.Tensor) and result.dtype == "float32" and result.numpy().tolist() == [6, 6]
    assert (x + np.bool_(True)).numpy().tolist() == [4, 4]
    for operation in (lambda a: a + x, lambda a: x + a, lambda a: a @ x, lambda a: np.sin(x)):
        with pytest.raises(TypeError):
            operation(np.ones(2))


def test_read_only_arrays_stay_read_only() -> None:
    array = numbers((4,), "float64")
    array.flags.writeable = False
    for x in (fs.from_numpy(array), fs.from_dlpack(array)):
        assert x.data_ptr == address(array) and not x.numpy().flags.writeable and memoryview(x).readonly
        for write in (
            lambda x=x: fs.mul_(x, 2),
            lambda x=x: fs.sin(x, out=x),
            lambda x=x: fs.fill_(x, 0),
            lambda x=x: fs.zeros((4,), out=x),
            lambda x=x: fs.uniform_(x, 0, 1),
            lambda x=x: fs.copy_(x, x),
        ):
            with pytest.raises(ValueError, match="read-only"):
                write()
        with pytest.raises(BufferError, match=r"DLPack|read-only"):
            x.__dlpack__()
        assert not np.from_dlpack(x).flags.writeable
    assert array.tolist() == [0, 1, 2, 3]


def test_from_numpy_keeps_the_array_alive_until_released() -> None:
    array = numbers((1000,), "float64")
    before = sys.getrefcount(array)
    x = fs.from_numpy(array)
    view, y = x.T, x.numpy()
    assert sys.getrefcount(array) == before + 1
    del x
    assert sys.getrefcount(array) == before + 1
    del view, y
    gc.collect()
    assert sys.getrefcount(array) == before
    x = fs.from_numpy(numbers((1000,), "float64"))
    del array
    gc.collect()
    assert fs.sum(x).item() == sum(i % 100 for i in range(1000))


# Memory ---------------------------------------------------------------------------------------------------------------


def test_allocated_and_freed_memory_is_counted() -> None:
    gc.collect()
    fs.empty_cache("cpu")
    allocated, reserved = fs.memory_allocated("cpu"), fs.memory_reserved("cpu")
    assert reserved >= allocated >= 0
    small, large = fs.empty((10, 10)), fs.empty((4 << 20,))
    assert fs.memory_allocated("cpu") == allocated + 400 + (16 << 20)
    assert fs.memory_reserved("cpu") >= reserved + 400 + (16 << 20)
    view = large.T
    del large
    assert fs.memory_allocated("cpu") == allocated + 400 + (16 << 20), "a view keeps the memory alive"
    del view, small
    assert fs.memory_allocated("cpu") == allocated
    fs.empty_cache("cpu")
    assert fs.memory_reserved("cpu") == reserved


def test_memory_of_other_libraries_is_not_counted() -> None:
    gc.collect()
    before = fs.memory_allocated("cpu")
    x = fs.from_numpy(np.ones(1000))
    assert fs.memory_allocated("cpu") == before
    y = fs.sin(x)
    assert fs.memory_allocated("cpu") == before + 8000
    del y
    with pytest.raises(ValueError):
        fs.add(x, fs.ones((3,), dtype="float64"))
    assert fs.memory_allocated("cpu") == before, "a failed op keeps no memory"


def test_memory_functions_accept_a_device() -> None:
    for function in (fs.memory_allocated, fs.memory_reserved, fs.empty_cache, fs.synchronize):
        function(), function("cpu"), function(None)
        with pytest.raises(ValueError, match="unknown device 'gpu'"):
            function("gpu")
        with pytest.raises(TypeError):
            function(0)


def test_scratch_memory_of_overlapping_and_strided_outputs_is_freed() -> None:
    gc.collect()
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
x = fs.ones((3000, 1000), device="cpu")
assert fs.sum(fs.add(x, x)).item() == 6e6
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        with fs.profile() as prof:
            good = fs.sum(fs.add(x, x)).item() == 6e6 and fs.matmul(x.T, x).shape == (1000, 1000)
        os._exit(0 if good and len(prof) == 3 else 1)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert fs.sum(fs.add(x, x)).item() == 6e6
sys.exit(max(codes, key=abs))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_threads_run_ops_concurrently() -> None:
    values = numbers((300, 300), "float64")
    failures: list[str] = []
    start = threading.Barrier(8)

    def work(seed: int) -> None:
        start.wait()
        for step in range(10):
            x = fs.full((300, 300), float(seed + step), dtype="float64")
            y = fs.add(x, fs.from_numpy(values))
            if not (y.numpy() == values + seed + step).all() or fs.sum(x).item() != 90000.0 * (seed + step):
                failures.append(f"thread {seed}, step {step}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_last_reference_can_be_dropped_on_another_thread() -> None:
    array = numbers((100,), "float64")
    before, counted = sys.getrefcount(array), fs.memory_allocated("cpu")
    tensors = [fs.from_numpy(array), fs.sin(fs.from_numpy(array))]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert sys.getrefcount(array) == before and fs.memory_allocated("cpu") == counted

"""Sharing memory with other libraries: the buffer protocol and DLPack, with NumPy and torch."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import sys
from typing import Any

import numpy as np
import pytest
from helpers.tensors import DTYPES, OF_NUMPY, SIZES, address, numbers

import flopscope as fs

# The buffer protocol --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "form"), list(zip(OF_NUMPY, "dfeqibB?", strict=True)))
def test_memoryview(dtype: str, form: str) -> None:
    x = fs.ones((2, 3), dtype=dtype)
    view = memoryview(x)
    size = SIZES[dtype]
    assert (view.format, view.itemsize, view.shape, view.strides) == (form, size, (2, 3), (3 * size, size))
    assert view.nbytes == x.nbytes and not view.readonly and view.c_contiguous and view.obj is x
    assert bytes(x) == x.numpy().tobytes() == view.tobytes()
    flat = view.cast("B")
    flat[5 * size : 6 * size] = bytes(size)
    assert x.to("float64").numpy().tolist() == [[1, 1, 1], [1, 1, 0]]


def test_memoryview_of_strided_and_zero_dimensional_tensors() -> None:
    values = numbers((4, 6), "float64")
    view = memoryview(fs.from_numpy(values[::-1, ::2]))
    assert view.strides == (-48, 16) and view.tolist() == values[::-1, ::2].tolist() and not view.c_contiguous
    assert memoryview(fs.full((), 2.0, dtype="float64")).tolist() == 2
    assert memoryview(fs.zeros((0, 3), dtype="float64")).tolist() == []
    assert bytes(fs.from_numpy(values).T) == values.T.tobytes()


def test_unsupported_buffers_are_errors() -> None:
    with pytest.raises(BufferError, match=r"bfloat16 \(2,\) on cpu.*float32"):
        memoryview(fs.ones((2,), dtype="bfloat16"))
    array = np.ones(2)
    array.flags.writeable = False
    with pytest.raises((BufferError, TypeError)):
        (ctypes.c_char * 16).from_buffer(fs.from_numpy(array))
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        hashlib.sha256(fs.ones((2, 3)).T)


def test_a_memoryview_keeps_the_memory_alive() -> None:
    gc.collect()
    before = fs.memory_allocated("cpu")
    view = memoryview(fs.full((1000,), 7.0))
    gc.collect()
    assert view[999] == 7 and fs.memory_allocated("cpu") == before + 4000
    view.release()
    assert fs.memory_allocated("cpu") == before


# DLPack ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", OF_NUMPY)
def test_dlpack_with_numpy_shares_memory_both_ways(dtype: str) -> None:
    x = fs.ones((2, 3), dtype=dtype)
    array = np.from_dlpack(x)
    assert address(array) == x.data_ptr and array.dtype == dtype and array.shape == (2, 3)
    array[0, 1] = 0
    assert x.to("float64").numpy()[0, 1] == 0
    values = numbers((3, 4), dtype)[:, ::-1]
    y = fs.from_dlpack(values)
    assert y.data_ptr == address(values) and y.dtype == dtype and (y.numpy() == values).all()
    fs.fill_(y, 1)
    assert (values == 1).all()
    z = fs.from_dlpack(y)
    assert z is not y and z.data_ptr == y.data_ptr and z.strides == y.strides


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (None, '"dltensor"'),
        ((0, 8), '"dltensor"'),
        ((1, 0), '"dltensor_versioned"'),
        ((2, 5), '"dltensor_versioned"'),
    ],
)
def test_capsules_of_both_versions_can_be_used_once(version: Any, name: str) -> None:
    gc.collect()
    before = fs.memory_allocated("cpu")
    x = fs.full((3,), 5.0)
    capsule = x.__dlpack__(max_version=version)
    assert name in repr(capsule)
    y = fs.from_dlpack(capsule)
    assert y.data_ptr == x.data_ptr and "used_" in repr(capsule)
    with pytest.raises((ValueError, BufferError, TypeError), match=r"used|consumed"):
        fs.from_dlpack(capsule)
    del x, capsule
    gc.collect()
    assert y.numpy().tolist() == [5, 5, 5]
    del y
    assert fs.memory_allocated("cpu") == before
    unused = fs.ones((3,)).__dlpack__(max_version=version)
    assert fs.memory_allocated("cpu") == before + 12
    del unused
    assert fs.memory_allocated("cpu") == before


def test_dlpack_arguments() -> None:
    x = fs.ones((3,))
    assert x.__dlpack_device__() == (1, 0)
    x.__dlpack__(stream=None, max_version=(1, 1), dl_device=(1, 0), copy=False)
    copied = fs.from_dlpack(x.__dlpack__(max_version=(1, 0), copy=True))
    assert copied.data_ptr != x.data_ptr and copied.numpy().tolist() == [1, 1, 1]
    with pytest.raises(BufferError, match="CPU"):
        x.__dlpack__(dl_device=(2, 0))
    for wrong in ({"max_version": 1}, {"max_version": (1,)}, {"dl_device": "cpu"}, {"stream": "x"}, {"no": 1}):
        with pytest.raises(TypeError):
            x.__dlpack__(**wrong)


def test_from_dlpack_accepts_a_library_without_versions() -> None:
    class Old:
        def __init__(self) -> None:
            self.array = numbers((4,), "float64")
            self.streams: list[Any] = []

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

        def __dlpack__(self, stream: Any = None) -> Any:
            self.streams.append(stream)
            return self.array.__dlpack__()

    old = Old()
    x = fs.from_dlpack(old)
    assert x.data_ptr == address(old.array) and old.streams == [None]


def test_from_dlpack_propagates_errors() -> None:
    class Broken:
        def __dlpack_device__(self) -> Any:
            return (1, 0)

        def __dlpack__(self, **keywords: Any) -> Any:
            raise ZeroDivisionError("no tensor today")

    class Elsewhere(Broken):
        def __dlpack_device__(self) -> Any:
            raise RuntimeError("lost")

    class NoCapsule(Broken):
        def __dlpack__(self, **keywords: Any) -> Any:
            return 42

    class NoPair(Broken):
        def __dlpack_device__(self) -> Any:
            return ()

    for wrong, kind in (
        (Broken(), ZeroDivisionError),
        (Elsewhere(), RuntimeError),
        (NoCapsule(), (TypeError, ValueError)),
        (NoPair(), (TypeError, ValueError, IndexError)),
    ):
        with pytest.raises(kind):
            fs.from_dlpack(wrong)
    for wrong in (None, 3, [1.0], "text", {}):
        with pytest.raises(TypeError, match=r"from_dlpack.*__dlpack__"):
            fs.from_dlpack(wrong)
    for dtype in ("complex64", "uint16"):
        with pytest.raises(TypeError, match=r"from_dlpack.*bits"):
            fs.from_dlpack(np.ones(2, dtype))
    with pytest.raises(ValueError, match="8 dimensions, not 9"):
        fs.from_dlpack(np.ones((1,) * 9))


def test_from_dlpack_keeps_the_array_alive_until_released() -> None:
    array = numbers((100,), "float64")
    before = sys.getrefcount(array)
    x = fs.from_dlpack(array)
    assert sys.getrefcount(array) > before
    y = x.T
    del x
    assert sys.getrefcount(array) > before
    del y
    gc.collect()
    assert sys.getrefcount(array) == before
    for wrong in (np.ones(2, "complex64"), np.ones((1,) * 9)):
        count = sys.getrefcount(wrong)
        with pytest.raises((TypeError, ValueError)):
            fs.from_dlpack(wrong)
        gc.collect()
        assert sys.getrefcount(wrong) == count, "a rejected array is released"


def test_arrays_keep_the_memory_of_a_tensor_alive() -> None:
    gc.collect()
    before = fs.memory_allocated("cpu")
    x = fs.full((1000,), 2.0)
    shared, exported = x.numpy(), np.from_dlpack(x)
    del x
    gc.collect()
    junk = [fs.full((1000,), 9.0) for _ in range(10)]
    assert (shared == 2).all() and (exported == 2).all() and junk
    del junk, shared
    assert fs.memory_allocated("cpu") == before + 4000
    del exported
    assert fs.memory_allocated("cpu") == before


@pytest.mark.parametrize("dtype", [*DTYPES])
def test_dlpack_with_torch_shares_memory_both_ways(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x = fs.ones((2, 3), dtype=dtype)
    shared = torch.from_dlpack(x)
    assert shared.data_ptr() == x.data_ptr and shared.dtype == getattr(torch, dtype) and shared.shape == (2, 3)
    shared[0, 1] = 0
    assert x.to("float64").numpy().tolist() == [[1, 0, 1], [1, 1, 1]]
    source = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype)).t()
    y = fs.from_dlpack(source)
    assert y.data_ptr == source.data_ptr() and y.dtype == dtype and y.shape == (4, 3) and y.strides == source.stride()
    assert y.to("float64").numpy().tolist() == source.double().tolist()
    fs.fill_(y, 1)
    assert bool((source == 1).all())
    del source
    gc.collect()
    assert (y.to("float64").numpy() == 1).all()


def test_torch_tensors_that_broadcast_or_require_grad() -> None:
    torch = pytest.importorskip("torch")
    wide = fs.from_dlpack(torch.ones(3, 1).expand(3, 4))
    assert wide.strides == (1, 0) and fs.sum(wide).item() == 12
    with pytest.raises(ValueError, match="broadcast"):
        fs.mul_(wide, 2)
    with pytest.raises((BufferError, RuntimeError), match="grad"):
        fs.from_dlpack(torch.ones(2, requires_grad=True))

"""Sharing memory with other libraries: the buffer protocol, NumPy's protocol and DLPack, with NumPy and torch."""

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


def test_unsupported_buffers_are_errors() -> None:
    with pytest.raises(BufferError, match=r"bfloat16 \(2,\) on cpu.*float32"):
        memoryview(fs.ones((2,), dtype="bfloat16"))
    array = np.ones(2)
    array.flags.writeable = False
    with pytest.raises((BufferError, TypeError)):
        (ctypes.c_char * 16).from_buffer(fs.from_numpy(array))
    with pytest.raises((BufferError, ValueError), match="contiguous"):
        hashlib.sha256(fs.ones((2, 3)).T)


# NumPy and DLPack -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", OF_NUMPY)
@pytest.mark.parametrize("by", [(fs.from_numpy, np.asarray), (fs.from_dlpack, np.from_dlpack)], ids=["numpy", "dlpack"])
def test_numpy_shares_memory_both_ways(dtype: str, by: Any) -> None:
    take, give = by
    values = numbers((3, 4), dtype)[:, ::-1]
    x = take(values)
    back = give(x)
    assert x.data_ptr == address(values) == address(back) and x.dtype == dtype
    assert back.dtype == values.dtype and back.strides == values.strides and (x.numpy() == values).all()
    values[1, 2] = 0
    assert back[1, 2] == 0
    back[0, 0] = 1
    assert values[0, 0] == 1
    fs.fill_(x, 1)
    assert (values == 1).all()
    result = fs.ones((3,), dtype=dtype)
    give(result)[1] = 0
    assert result.to("float64").numpy().tolist() == [1, 0, 1]
    again = take(back)
    assert again.data_ptr == x.data_ptr and again.strides == x.strides


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


class Foreign:
    """An object of another library, whose methods return or raise what they are told to."""

    def __init__(self, capsule: Any, device: Any = (1, 0)) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack_device__(self) -> Any:
        if isinstance(self.device, Exception):
            raise self.device
        return self.device

    def __dlpack__(self, **keywords: Any) -> Any:
        if isinstance(self.capsule, Exception):
            raise self.capsule
        return self.capsule


@pytest.mark.parametrize(
    ("share", "given", "kind", "pattern"),
    [
        (fs.from_numpy, np.ones(2, complex), TypeError, "complex128.*float64"),
        (fs.from_numpy, np.ones(2, np.uint16), TypeError, "uint16"),
        (fs.from_numpy, np.ones(2, np.longdouble), TypeError, "longdouble|float128"),
        (fs.from_numpy, np.ones(2, ">f4"), TypeError, ">f4"),
        (fs.from_numpy, np.array(["a"]), TypeError, "<U1"),
        (fs.from_numpy, None, TypeError, "object|dtype\\('O'\\)"),
        (fs.from_numpy, {"a": 1}, TypeError, "dtype\\('O'\\)"),
        (fs.from_numpy, np.ones((1,) * 9), ValueError, "8 dimensions, not 9"),
        (fs.from_numpy, np.frombuffer(b"123456789", np.uint8)[1:].view(np.float64), ValueError, "aligned"),
        (fs.from_numpy, np.zeros(2, [("a", "f4"), ("b", "u1")])["a"], ValueError, "aligned"),
        (fs.from_numpy, np.array(["2020-01-01"], "datetime64[D]"), TypeError, "M8"),
        (fs.from_numpy, fs.ones((2,), device="cpu"), TypeError, "Tensor already"),
        *((fs.from_dlpack, given, TypeError, r"from_dlpack.*__dlpack__") for given in (None, 3, [1.0], "text", {})),
        (fs.from_dlpack, np.ones(2, "complex64"), TypeError, r"from_dlpack.*bits"),
        (fs.from_dlpack, np.ones(2, "uint16"), TypeError, r"from_dlpack.*bits"),
        (fs.from_dlpack, np.ones((1,) * 9), ValueError, "8 dimensions, not 9"),
        (fs.from_dlpack, Foreign(ZeroDivisionError("no tensor")), ZeroDivisionError, "no tensor"),
        (fs.from_dlpack, Foreign(None, RuntimeError("lost")), RuntimeError, "lost"),
        (fs.from_dlpack, Foreign(42), (TypeError, ValueError), None),
        (fs.from_dlpack, Foreign(None, ()), (TypeError, ValueError, IndexError), None),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else None,
)  # fmt: skip
def test_unsupported_arrays_are_refused_and_released(share: Any, given: Any, kind: Any, pattern: str | None) -> None:
    count, calls = sys.getrefcount(given), 20 if given is None else 1  # references to None vary by themselves
    for _ in range(calls):
        with pytest.raises(kind, match=pattern):
            share(given)
    gc.collect()
    assert sys.getrefcount(given) < count + max(calls // 2, 2)


def test_array_protocol_copies_only_if_requested_or_required() -> None:
    x = fs.from_numpy(numbers((2, 3)))
    for result in (
        np.asarray(x), np.asarray(x, dtype="float32"), np.array(x, copy=False), x.__array__(), x.__array__("float32"),
        x.__array__("float32", copy=False),
    ):  # fmt: skip
        assert address(result) == x.data_ptr
    for result in (
        np.array(x), np.array(x, copy=True), np.asarray(x, dtype="float64"), x.__array__(copy=True),
        x.__array__("float32", copy=True),
    ):  # fmt: skip
        assert address(result) != x.data_ptr and (result == x.numpy()).all() and result.flags.writeable
    assert x.__array__("int64").dtype == np.int64 and x.__array__(dtype=None, copy=None).dtype == np.float32
    for call in (
        lambda: np.array(fs.ones((2,), dtype="bfloat16"), copy=False),
        lambda: np.array(x, dtype="float64", copy=False),
        lambda: x.__array__("float64", copy=False),
    ):
        with pytest.raises(ValueError, match="copy"):
            call()
    with pytest.raises(TypeError):
        x.__array__("no such dtype")


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
            lambda x=x: fs.mul_(x, 2), lambda x=x: fs.sin(x, out=x), lambda x=x: fs.fill_(x, 0),
            lambda x=x: fs.zeros((4,), out=x), lambda x=x: fs.uniform_(x, 0, 1), lambda x=x: fs.copy_(x, x),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="read-only"):
                write()
        with pytest.raises(BufferError, match=r"DLPack|read-only"):
            x.__dlpack__()
        assert not np.from_dlpack(x).flags.writeable
    assert array.tolist() == [0, 1, 2, 3]


# Lifetimes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [fs.from_numpy, fs.from_dlpack], ids=["numpy", "dlpack"])
def test_a_tensor_keeps_the_array_alive_until_released(share: Any) -> None:
    array = numbers((1000,), "float64")
    before = sys.getrefcount(array)
    x = share(array)
    view, back = x.T, x.numpy()
    assert sys.getrefcount(array) > before
    del x
    assert sys.getrefcount(array) > before
    del view, back
    assert sys.getrefcount(array) == before
    x = share(numbers((1000,), "float64"))
    del array
    gc.collect()
    assert fs.sum(x).item() == sum(i % 100 for i in range(1000))


def test_arrays_keep_the_memory_of_a_tensor_alive() -> None:
    before = fs.memory_allocated("cpu")
    x = fs.full((1000,), 2.0)
    shared, exported, view = x.numpy(), np.from_dlpack(x), memoryview(x)
    del x
    junk = [fs.full((1000,), 9.0) for _ in range(10)]
    assert (shared == 2).all() and (exported == 2).all() and view[999] == 2 and junk
    del junk, shared, exported
    assert fs.memory_allocated("cpu") == before + 4000
    view.release()
    assert fs.memory_allocated("cpu") == before


@pytest.mark.parametrize(("version", "name"), [(None, "dltensor"), ((0, 8), "dltensor"), ((1, 0), "dltensor_versioned"),
                                               ((2, 5), "dltensor_versioned")])  # fmt: skip
def test_capsules_of_both_versions_can_be_used_once(version: Any, name: str) -> None:
    before = fs.memory_allocated("cpu")
    x = fs.full((3,), 5.0)
    capsule = x.__dlpack__(max_version=version)
    assert f'"{name}"' in repr(capsule)
    y = fs.from_dlpack(capsule)
    assert y.data_ptr == x.data_ptr and "used_" in repr(capsule)
    with pytest.raises((ValueError, BufferError, TypeError), match=r"used|consumed"):
        fs.from_dlpack(capsule)
    del x, capsule
    assert y.numpy().tolist() == [5, 5, 5]
    del y
    assert fs.memory_allocated("cpu") == before
    unused = fs.ones((3,)).__dlpack__(max_version=version)
    assert fs.memory_allocated("cpu") == before + 12
    del unused
    assert fs.memory_allocated("cpu") == before


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
    assert fs.from_dlpack(old).data_ptr == address(old.array) and old.streams == [None]
    assert fs.ones((3,)).__dlpack_device__() == (1, 0)


# torch ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
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
    assert (y.to("float64").numpy() == 1).all()


def test_torch_tensors_that_broadcast_or_require_grad() -> None:
    torch = pytest.importorskip("torch")
    wide = fs.from_dlpack(torch.ones(3, 1).expand(3, 4))
    assert wide.strides == (1, 0) and fs.sum(wide).item() == 12
    with pytest.raises(ValueError, match="broadcast"):
        fs.mul_(wide, 2)
    with pytest.raises((BufferError, RuntimeError), match="grad"):
        fs.from_dlpack(torch.ones(2, requires_grad=True))

"""Invalid DLPack capsules, and consumers that break the protocol. The capsules are built with ctypes."""

from __future__ import annotations

import ctypes
import gc
import itertools
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flopscope as fs

FLOAT, INT, CPU, CUDA = 2, 0, 1, 2
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class Plain(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


class Producer:
    """A capsule over its own memory, with a count of the calls of its deleter."""

    def __init__(self, *, versioned: bool = False, delete: Any = None, **fields: Any) -> None:
        self.memory = np.arange(64, dtype="float32")
        shape, strides = fields.pop("shape", (2, 3)), fields.pop("strides", None)
        offset, data = fields.pop("byte_offset", 0), fields.pop("data", self.memory.ctypes.data)
        self.deleted = 0
        self.arrays = [None if of is None else (ctypes.c_int64 * max(len(of), 1))(*of) for of in (shape, strides)]
        self.managed = Versioned(major=1) if versioned else Plain()
        tensor = self.managed.tensor
        tensor.data, tensor.byte_offset = data, offset
        tensor.device_type, tensor.code, tensor.bits, tensor.lanes = CPU, FLOAT, 32, 1
        tensor.ndim = fields.pop("ndim", len(shape or ()))
        for name, array in zip(("shape", "strides"), self.arrays, strict=True):
            if array is not None:
                setattr(tensor, name, array)
        for name, value in fields.items():
            setattr(tensor, name, value)

        def deleter(managed: int) -> None:
            self.deleted += 1
            if delete is not None:
                delete()

        self.deleter = DELETER(deleter)
        self.managed.deleter = self.deleter
        name = b"dltensor_versioned" if versioned else b"dltensor"
        self.capsule = new_capsule(ctypes.addressof(self.managed), name, None)


@pytest.fixture(params=[False, True], ids=["plain", "versioned"])
def versioned(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# Import ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((2, 3), None, 0),
        ((2, 3), (3, 1), 8),
        ((3, 2), (1, 3), 4),
        ((4,), (-1,), 16),
        ((4, 2), (0, 1), 0),
        ((), None, 12),
        ((0, 3), (2**62, -(2**62)), 0),
        ((1, 3), (2**63 - 1, 2), 0),
        ((1,), (-(2**63),), 0),
        ((0, 2**62, 2**62), None, 0),
    ],
)
def test_valid_capsules_are_imported(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, offset: int, versioned: bool
) -> None:
    producer = Producer(versioned=versioned, shape=shape, strides=strides, byte_offset=offset)
    x = fs.from_dlpack(producer.capsule)
    assert x.shape == shape and "used_dltensor" in repr(producer.capsule)
    assert x.size == np.prod(shape, dtype=object)
    if x.size > 0:
        steps = strides if strides is not None else [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
        for at in itertools.product(*map(range, shape)):
            place = offset // 4 + sum(i * step for i, step in zip(at, steps, strict=True))
            assert x.numpy()[at] == producer.memory[place]
    assert producer.deleted == 0
    del x
    gc.collect()
    assert producer.deleted == 1


@pytest.mark.parametrize(
    ("fields", "error", "match"),
    [
        ({"data": None}, BufferError, "its data pointer is NULL"),
        ({"data": None, "byte_offset": 64}, BufferError, "its data pointer is NULL"),
        ({"byte_offset": 2}, BufferError, r"not aligned: the address 0x[0-9a-f]+ is not a multiple of 4"),
        ({"byte_offset": 4, "bits": 64, "shape": (2,)}, BufferError, "is not a multiple of 8"),
        ({"byte_offset": 2**64 - 4}, BufferError, "byte_offset 18446744073709551612 reaches beyond"),
        ({"shape": None, "ndim": 2}, BufferError, "has 2 dimensions, but its shape is NULL"),
        ({"shape": (2, -3)}, ValueError, r"the shape \(2, -3\) has a negative dimension"),
        ({"shape": (-(2**63),)}, ValueError, "has a negative dimension"),
        ({"ndim": 9, "shape": (1,) * 9}, ValueError, "at most 8 dimensions, not 9"),
        ({"ndim": 2**31 - 1}, ValueError, "at most 8 dimensions, not 2147483647"),
        ({"ndim": -1}, ValueError, "at most 8 dimensions, not -1"),
        ({"lanes": 4}, TypeError, "of 32 bits and 4 lanes"),
        ({"lanes": 0}, TypeError, "of 32 bits and 0 lanes"),
        ({"bits": 24}, TypeError, "of 24 bits"),
        ({"bits": 0}, TypeError, "of 0 bits"),
        ({"code": 200}, TypeError, "type code 200"),
        ({"shape": (2**62, 2**62)}, MemoryError, "larger than the address space"),
        ({"shape": (2**61,)}, (MemoryError, ValueError), "larger than the address space|beyond the address space"),
        ({"shape": (2, 2), "strides": (2**62, 1)}, ValueError, "beyond the address space"),
        ({"shape": (2, 2), "strides": (-(2**63), 1)}, ValueError, "beyond the address space"),
        ({"shape": (3, 3), "strides": (2**60, 2**60)}, ValueError, "beyond the address space"),
        ({"shape": (2**40,), "strides": (2**22,)}, ValueError, "beyond the address space"),
        ({"shape": (2,), "strides": (-(2**50),)}, ValueError, "beyond the address space"),
        ({"device_type": 99}, ValueError, "device type 99"),
        ({"device_type": -1}, ValueError, "device type -1"),
    ],
)
def test_invalid_fields_are_named(fields: dict[str, Any], error: type[Exception], match: str, versioned: bool) -> None:
    producer = Producer(versioned=versioned, **fields)
    with pytest.raises(error, match=match):
        fs.from_dlpack(producer.capsule)
    # If refused before it was consumed, the capsule stays the producer's; if refused afterwards, it was released once.
    assert producer.deleted == (1 if "used" in repr(producer.capsule) else 0)


@pytest.mark.parametrize("device", [-1, 10**6, 255, 256])
def test_a_missing_cuda_device_is_refused(device: int) -> None:
    producer = Producer(device_type=CUDA, device_id=device)
    with pytest.raises((ValueError, RuntimeError), match=r"on CUDA device -?\d+, but the number of|CUDA"):
        fs.from_dlpack(producer.capsule)
    assert producer.deleted == 0


def test_a_newer_major_version_is_refused() -> None:
    producer = Producer(versioned=True)
    producer.managed.major = 2
    with pytest.raises(BufferError, match=r"DLPack 2.0 is not supported, only 1.x"):
        fs.from_dlpack(producer.capsule)
    assert producer.deleted == 0


def test_memory_without_a_deleter_is_left_alone() -> None:
    producer = Producer()
    producer.managed.deleter = ctypes.cast(None, DELETER)
    x = fs.from_dlpack(producer.capsule)
    assert x.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    del x


# Deleters -------------------------------------------------------------------------------------------------------------


def test_a_deleter_runs_without_the_pending_exception(versioned: bool) -> None:
    """Objects on the interpreter's stack are dropped while the exception is set."""
    occurred = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_Occurred", ctypes.pythonapi))
    calls: list[Any] = []
    producer = Producer(versioned=versioned, delete=lambda: calls.append((occurred(), sum(i for i in range(10)))))
    with pytest.raises(ZeroDivisionError):
        _ = (fs.from_dlpack(producer.capsule), 1 // len(calls))
    assert calls == [(None, 45)] and producer.deleted == 1


def test_an_exception_of_a_deleter_replaces_no_other(versioned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: unraisable.append(problem.exc_type))

    def delete() -> None:
        raise KeyError("in the deleter")

    producer, empty = Producer(versioned=versioned, delete=delete), ()
    with pytest.raises(ZeroDivisionError):
        _ = (fs.from_dlpack(producer.capsule), 1 // len(empty))
    assert producer.deleted == 1 and unraisable == [KeyError]


def test_a_deleter_runs_on_any_thread(versioned: bool) -> None:
    producer = Producer(versioned=versioned)
    held = [fs.from_dlpack(producer.capsule)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert producer.deleted == 1


# Export ---------------------------------------------------------------------------------------------------------------


def consumer(x: fs.Tensor, versioned: bool) -> tuple[Any, Any, bytes]:
    capsule = x.__dlpack__(max_version=(1, 0) if versioned else None)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    kind = Versioned if versioned else Plain
    return capsule, ctypes.cast(pointer_of(capsule, name), ctypes.POINTER(kind)), name


def test_a_consumer_that_does_not_rename_the_capsule_releases_once(versioned: bool) -> None:
    before = fs.memory_allocated("cpu")
    for _ in range(3):
        x = fs.ones(100)
        capsule, managed, _ = consumer(x, versioned)
        del x
        assert fs.memory_allocated("cpu") == before + 400
        managed.contents.deleter(ctypes.addressof(managed.contents))
        assert fs.memory_allocated("cpu") == before
        del capsule, managed
    assert fs.memory_allocated("cpu") == before


def test_a_consumer_that_deletes_twice_releases_once(versioned: bool) -> None:
    before = fs.memory_allocated("cpu")
    second = fs.ones(100)
    x = fs.ones(100)
    capsule, managed, name = consumer(x, versioned)
    used = ctypes.create_string_buffer(b"used_" + name)
    set_name = ctypes.pythonapi.PyCapsule_SetName
    set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
    set_name(capsule, ctypes.cast(used, ctypes.c_char_p))
    del capsule
    delete, address = managed.contents.deleter, ctypes.addressof(managed.contents)
    for _ in range(3):
        delete(address)
        others = [consumer(second, versioned) for _ in range(20)]
        delete(address)
        del others
    assert x.numpy().tolist() == [1.0] * 100 and second.numpy().tolist() == [1.0] * 100
    del x, second
    gc.collect()
    assert fs.memory_allocated("cpu") == before


def test_a_consumer_that_never_deletes_keeps_the_memory(versioned: bool) -> None:
    before = fs.memory_allocated("cpu")
    x = fs.full((10,), 3.0)
    capsule, managed, name = consumer(x, versioned)
    used = ctypes.create_string_buffer(b"used_" + name)
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), used)
    del capsule, x
    gc.collect()
    tensor = managed.contents.tensor
    values = ctypes.cast(tensor.data, ctypes.POINTER(ctypes.c_float))
    assert [values[i] for i in range(10)] == [3.0] * 10 and fs.memory_allocated("cpu") == before + 40
    managed.contents.deleter(ctypes.addressof(managed.contents))
    assert fs.memory_allocated("cpu") == before


def test_exports_come_and_go_on_many_threads() -> None:
    before = fs.memory_allocated("cpu")

    def work(x: fs.Tensor) -> None:
        for _ in range(2000):
            y = np.from_dlpack(x)
            z = fs.from_dlpack(x.__dlpack__())
            assert y[0] == 1 and z.data_ptr == x.data_ptr

    threads = [threading.Thread(target=work, args=(fs.ones(4),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads, thread
    gc.collect()
    assert fs.memory_allocated("cpu") == before


# Arguments of __dlpack__ ----------------------------------------------------------------------------------------------


def arguments() -> Iterator[dict[str, Any]]:
    for version, copy, device in itertools.product([None, (0, 8), (1, 0), (1, 1), (9, 0)], [None, False, True],
                                                   [None, (1, 0)]):  # fmt: skip
        yield {"max_version": version, "copy": copy, "dl_device": device}


@pytest.mark.parametrize("keywords", list(arguments()))
def test_supported_requests_succeed(keywords: dict[str, Any]) -> None:
    x = fs.from_numpy(np.arange(6.0).reshape(2, 3).T)
    version = keywords["max_version"]
    capsule = x.__dlpack__(**keywords)
    is_versioned = version is not None and version[0] >= 1
    assert ("dltensor_versioned" in repr(capsule)) == is_versioned
    if is_versioned:
        managed = ctypes.cast(pointer_of(capsule, b"dltensor_versioned"), ctypes.POINTER(Versioned)).contents
        assert (managed.major, managed.flags) == (1, 2 if keywords["copy"] else 0)
    y = fs.from_dlpack(capsule)
    assert (y.data_ptr != x.data_ptr) == (keywords["copy"] is True) and (y.numpy() == x.numpy()).all()


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"copy": 1}, TypeError),
        ({"copy": "yes"}, TypeError),
        ({"dl_device": (1, 1)}, BufferError),
        ({"dl_device": (2, 0)}, BufferError),
        ({"dl_device": (2**40, 0)}, OverflowError),
        ({"dl_device": (1,)}, TypeError),
        ({"dl_device": [1, 0]}, TypeError),
        ({"max_version": (1, 0, 0)}, TypeError),
        ({"max_version": (None, 0)}, TypeError),
        ({"max_version": (2**70, 0)}, OverflowError),
        ({"stream": 2**70}, OverflowError),
    ],
)
def test_unsupported_requests_are_refused(keywords: dict[str, Any], error: type[Exception]) -> None:
    before = fs.memory_allocated("cpu")
    x = fs.ones(3)
    with pytest.raises(error):
        x.__dlpack__(**keywords)
    del x
    assert fs.memory_allocated("cpu") == before

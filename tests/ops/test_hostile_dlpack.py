"""Invalid DLPack capsules, and consumers that break the protocol. The capsules are built with ctypes."""

import ctypes
import gc
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import flopscope as fs

FLOAT, CPU, CUDA = 2, 1, 2
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
DELETER = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Plain(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", DELETER),
        ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    ]  # fmt: skip


class Producer:
    """A capsule over its own memory, with a count of the calls of its deleter."""

    def __init__(self, *, versioned: bool = False, delete: Any = None, **fields: Any) -> None:
        self.memory = np.arange(64, dtype="float32")
        shape, strides = fields.pop("shape", (2, 3)), fields.pop("strides", None)
        self.deleted = 0
        self.arrays = [None if of is None else (ctypes.c_int64 * max(len(of), 1))(*of) for of in (shape, strides)]
        self.managed = Versioned(major=1) if versioned else Plain()
        tensor = self.managed.tensor
        tensor.data, tensor.ndim = self.memory.ctypes.data, len(shape or ())
        tensor.device_type, tensor.code, tensor.bits, tensor.lanes = CPU, FLOAT, 32, 1
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
        ((2, 3), None, 0), ((2, 3), (3, 1), 8), ((3, 2), (1, 3), 4), ((4,), (-1,), 16), ((4, 2), (0, 1), 0),
        ((), None, 12), ((0, 3), (2**62, -(2**62)), 0), ((1, 3), (2**63 - 1, 2), 0), ((1,), (-(2**63),), 0),
        ((0, 2**62, 2**62), None, 0),
    ],
)  # fmt: skip
def test_valid_capsules_are_imported(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, offset: int, versioned: bool
) -> None:
    producer = Producer(versioned=versioned, shape=shape, strides=strides, byte_offset=offset)
    t = fs.from_dlpack(producer.capsule)
    assert t.shape == shape and "used_dltensor" in repr(producer.capsule) and t.size == np.prod(shape, dtype=object)
    if t.size > 0:
        steps = strides if strides is not None else [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
        for at in itertools.product(*map(range, shape)):
            place = offset // 4 + sum(i * step for i, step in zip(at, steps, strict=True))
            assert t.numpy()[at] == producer.memory[place]
    assert producer.deleted == 0
    del t
    assert producer.deleted == 1


BEYOND = "beyond the address space"


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
        ({"shape": (2**61,)}, (MemoryError, ValueError), f"larger than the address space|{BEYOND}"),
        ({"shape": (2, 2), "strides": (2**62, 1)}, ValueError, BEYOND),
        ({"shape": (2, 2), "strides": (-(2**63), 1)}, ValueError, BEYOND),
        ({"shape": (3, 3), "strides": (2**60, 2**60)}, ValueError, BEYOND),
        ({"shape": (2**40,), "strides": (2**22,)}, ValueError, BEYOND),
        ({"shape": (2,), "strides": (-(2**50),)}, ValueError, BEYOND),
        ({"device_type": 99}, ValueError, "device type 99"),
        ({"device_type": -1}, ValueError, "device type -1"),
        *(({"device_type": CUDA, "device_id": device}, (ValueError, RuntimeError), r"on CUDA device -?\d+, but|CUDA")
          for device in (-1, 10**6, 255, 256)),
    ],
)  # fmt: skip
def test_invalid_fields_are_named(fields: dict[str, Any], error: type[Exception], match: str, versioned: bool) -> None:
    producer = Producer(versioned=versioned, **fields)
    with pytest.raises(error, match=match):
        fs.from_dlpack(producer.capsule)
    # If refused before it was consumed, the capsule stays the producer's; if refused afterwards, it was released once.
    assert producer.deleted == (1 if "used" in repr(producer.capsule) else 0)


def test_a_newer_major_version_is_refused_and_memory_without_a_deleter_is_left_alone() -> None:
    newer, lent = Producer(versioned=True), Producer()
    newer.managed.major = 2
    with pytest.raises(BufferError, match=r"DLPack 2.0 is not supported, only 1.x"):
        fs.from_dlpack(newer.capsule)
    assert newer.deleted == 0
    lent.managed.deleter = ctypes.cast(None, DELETER)
    assert fs.from_dlpack(lent.capsule).numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


# Deleters -------------------------------------------------------------------------------------------------------------


def test_a_deleter_runs_without_the_pending_exception_and_its_own_replaces_no_other(
    versioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects on the interpreter's stack are dropped while the exception is set."""
    occurred = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_Occurred", ctypes.pythonapi))
    calls: list[Any] = []
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: unraisable.append(problem.exc_type))

    def delete() -> None:
        calls.append((occurred(), sum(i for i in range(10))))
        raise KeyError("in the deleter")

    producer, empty = Producer(versioned=versioned, delete=delete), ()
    with pytest.raises(ZeroDivisionError):
        _ = (fs.from_dlpack(producer.capsule), 1 // len(empty))
    assert calls == [(None, 45)] and producer.deleted == 1 and unraisable == [KeyError]


# Export ---------------------------------------------------------------------------------------------------------------


def consumer(t: fs.Tensor, versioned: bool) -> tuple[Any, Any, bytes]:
    capsule = t.__dlpack__(max_version=(1, 0) if versioned else None)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    kind = Versioned if versioned else Plain
    return capsule, ctypes.cast(pointer_of(capsule, name), ctypes.POINTER(kind)), name


def take(capsule: Any, name: bytes) -> Any:
    """Rename a capsule as its consumer does. Return the new name, which must live as long as the capsule."""
    used = ctypes.create_string_buffer(b"used_" + name)
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), used)
    return used


def test_a_consumer_that_does_not_rename_the_capsule_releases_once(versioned: bool) -> None:
    before = fs.memory_allocated("cpu")
    for _ in range(3):
        t = fs.ones(100)
        capsule, managed, _ = consumer(t, versioned)
        del t
        assert fs.memory_allocated("cpu") == before + 400
        managed.contents.deleter(ctypes.addressof(managed.contents))
        assert fs.memory_allocated("cpu") == before
        del capsule, managed
    assert fs.memory_allocated("cpu") == before


def test_a_consumer_that_deletes_twice_releases_once(versioned: bool) -> None:
    before = fs.memory_allocated("cpu")
    first, second = fs.ones(100), fs.ones(100)
    capsule, managed, name = consumer(first, versioned)
    used = take(capsule, name)
    del capsule, used
    delete, address = managed.contents.deleter, ctypes.addressof(managed.contents)
    for _ in range(3):
        delete(address)
        others = [consumer(second, versioned) for _ in range(20)]
        delete(address)
        del others
    assert first.numpy().tolist() == [1.0] * 100 and second.numpy().tolist() == [1.0] * 100
    del first, second
    assert fs.memory_allocated("cpu") == before


def test_exports_come_and_go_on_many_threads() -> None:
    before = fs.memory_allocated("cpu")

    def work(_: int) -> None:
        t = fs.ones(4)
        for _ in range(1000):
            array, shared = np.from_dlpack(t), fs.from_dlpack(t.__dlpack__())
            assert array[0] == 1 and shared.data_ptr == t.data_ptr

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    gc.collect()
    assert fs.memory_allocated("cpu") == before


# Arguments of __dlpack__ ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 1), (9, 0)])
@pytest.mark.parametrize("copy", [None, False, True])
@pytest.mark.parametrize("device", [None, (1, 0)])
def test_supported_requests_succeed(version: Any, copy: bool | None, device: Any) -> None:
    t = fs.from_numpy(np.arange(6.0).reshape(2, 3).T)
    capsule = t.__dlpack__(max_version=version, copy=copy, dl_device=device)
    is_versioned = version is not None and version[0] >= 1
    assert ("dltensor_versioned" in repr(capsule)) == is_versioned
    if is_versioned:
        managed = ctypes.cast(pointer_of(capsule, b"dltensor_versioned"), ctypes.POINTER(Versioned)).contents
        assert (managed.major, managed.flags) == (1, 2 if copy else 0)
    shared = fs.from_dlpack(capsule)
    assert (shared.data_ptr != t.data_ptr) == (copy is True) and (shared.numpy() == t.numpy()).all()


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"copy": 1}, TypeError), ({"copy": "yes"}, TypeError), ({"dl_device": (1, 1)}, BufferError),
        ({"dl_device": (2, 0)}, BufferError), ({"dl_device": (2**40, 0)}, OverflowError),
        ({"dl_device": (1,)}, TypeError), ({"dl_device": [1, 0]}, TypeError), ({"dl_device": "cpu"}, TypeError),
        ({"max_version": 1}, TypeError), ({"max_version": (1,)}, TypeError), ({"max_version": (1, 0, 0)}, TypeError),
        ({"max_version": (None, 0)}, TypeError), ({"max_version": (2**70, 0)}, OverflowError),
        ({"stream": 2**70}, OverflowError), ({"stream": "x"}, TypeError), ({"no": 1}, TypeError),
    ],
)  # fmt: skip
def test_unsupported_requests_are_refused(keywords: dict[str, Any], error: type[Exception]) -> None:
    before = fs.memory_allocated("cpu")
    t = fs.ones(3)
    with pytest.raises(error):
        t.__dlpack__(**keywords)
    del t
    assert fs.memory_allocated("cpu") == before

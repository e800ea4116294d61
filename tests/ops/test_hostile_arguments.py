"""Arguments that change, drop or replace data while it is read must not crash the binding."""

import ctypes
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import load, op

import flopscope as fs
from flopscope import _core


class Shrinking:
    """A number that empties the list that contains it, and does what else is asked for, when it is read."""

    def __init__(self, items: list[Any], value: int = 2, then: Callable[[], object] = lambda: None) -> None:
        self.items, self.value, self.then = items, value, then

    def __index__(self) -> int:
        self.items.clear()
        self.then()
        return self.value

    def __float__(self) -> float:
        return float(self.__index__())

    def __bool__(self) -> bool:
        return bool(self.__index__())


def shrinking(count: int, value: int = 2) -> list[Any]:
    items: list[Any] = []
    items.extend(Shrinking(items, value) for _ in range(count))
    return items


@pytest.mark.parametrize("make", [fs.empty, fs.zeros, fs.ones, fs.rand, fs.randn, lambda shape: fs.full(shape, 1.0)])
def test_a_shape_that_changes_itself_keeps_its_original_items(make: Callable[[Any], fs.Tensor]) -> None:
    for _ in range(3):
        assert make(shrinking(5)).shape == (2,) * 5
    growing: list[Any] = []
    growing.extend(Shrinking([], 2, lambda: growing.extend([3] * 1000)) for _ in range(3))
    assert make(growing).shape == (2, 2, 2)


def test_an_argument_that_drops_the_other_arguments_is_read() -> None:
    values = shrinking(1, 3)
    assert fs.full(*[(4,), values[0]]).numpy().tolist() == [3.0] * 4


# Buffers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (5,), (1, 1), (3, 4), (3, 1, 4), (0, 3), (1, 5)])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_buffers_have_the_requested_layout(shape: tuple[int, ...], order: str) -> None:
    """Consumers that request contiguous memory get it or an error, never the wrong elements."""
    array = np.zeros(shape, order="F" if order == "F" else "C")
    if order == "strided" and shape:
        array = np.zeros((*shape[:-1], 2 * shape[-1]))[..., ::2]
    tensor, flags = fs.from_numpy(array), array.flags
    simple, strided, c_order, fortran, either = 0, 0x18, 0x38, 0x58, 0x98
    expected = {
        simple: flags.c_contiguous, strided: True, c_order: flags.c_contiguous, fortran: flags.f_contiguous,
        either: flags.c_contiguous or flags.f_contiguous,
    }  # fmt: skip
    buffer = (ctypes.c_byte * 256)()  # larger than a Py_buffer
    for flag, allowed in expected.items():
        try:
            ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(tensor), buffer, flag)
        except BufferError as problem:
            assert not allowed, (hex(flag), problem)
        else:
            ctypes.pythonapi.PyBuffer_Release(buffer)
            assert allowed, hex(flag)


# Peaks, stated work, ranges -------------------------------------------------------------------------------------------


def stopped() -> Any:
    core = _core.Profiler()
    core.start()
    fs.sin(fs.ones(8))
    core.stop()
    return core


def test_peaks_that_drop_themselves_while_they_are_read() -> None:
    peaks: dict[str, Any] = {}

    class Mapping(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: str) -> Any:
            peaks.clear()
            for i in range(100):
                peaks[f"cpu{i}"] = Mapping()
            return {} if key == "flops" else None

    for i in range(4):
        peaks[f"cuda:{i}"] = Mapping(flops={}, bandwidth=None)
    assert stopped().store.table(False, 0, peaks)


def test_objects_that_are_not_initialised_or_are_replaced_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def __getitem__(self, index: int) -> int:
            return 1

        def __len__(self) -> int:
            raise ZeroDivisionError

    for dims in (Endless(), [Endless()]):
        with pytest.raises(ZeroDivisionError):
            _core._work_of_torch("aten::add", dims, ["float"] * 1)
    part = fs.record_function.__new__(fs.record_function)
    for call in (part.__enter__, lambda: part.__exit__(None, None, None)):
        with pytest.raises(RuntimeError, match="call its __init__"):
            call()
    assert repr(part)
    monkeypatch.setattr(fs.Tensor, "to", lambda self, *args: 5)
    with pytest.raises(TypeError, match=r"Tensor.to\(\) was overridden: it returned a int"):
        fs.ones(3).numpy()


# A profile that is being read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda core: core.start(), lambda core: _core._append(core.store, "op", "x", start=1, duration=1),
        lambda core: _core._set_window(core.store, 1, 2), lambda core: _core._set_device(core.store, 0, {}),
        lambda core: _core.TraceReader().finish(core.store),
    ],
)  # fmt: skip
def test_nothing_changes_a_profile_while_it_is_read(change: Callable[[Any], object]) -> None:
    core, refused = stopped(), []

    def attempt(*given: Any) -> None:
        with pytest.raises(RuntimeError, match="this profile is being read"):
            change(core)
        refused.append(given)

    core.store.write_trace(attempt, "1")
    assert refused
    _core._set_window(core.store, 1, 2), core.start(), core.stop()


def test_a_rule_cannot_change_the_store_whose_table_calls_it() -> None:
    refused: list[Any] = []
    core: Any = load(op("mine::op", 1, 2, Input_Dims=[[2]], Input_type=["float"]))._core

    def rule(*call: Any) -> None:
        with pytest.raises(RuntimeError, match="being read"):
            _core._set_window(core, 1, 2)
        refused.append(call)

    _core._set_work_rule(rule)
    try:
        core.table(False, 0, {})
    finally:
        _core._set_work_rule(None)
    assert refused


def test_threads_that_read_and_change_one_profile_do_not_crash() -> None:
    core, done = stopped(), threading.Event()

    def attempt(*calls: Callable[[], object]) -> None:
        for call in calls:
            with suppress(RuntimeError):  # it is being read, or it is recording
                call()

    def read() -> None:
        for _ in range(300):
            attempt(lambda: core.store.table(False, 0, {}), lambda: core.store.write_trace(len, "1"), core.store.events)

    def change() -> None:
        while not done.is_set():
            attempt(core.start, core.restart, core.stop)

    with ThreadPoolExecutor(3) as pool:
        changing, reading = pool.submit(change), [pool.submit(read) for _ in range(2)]
        wait(reading)
        done.set()
    assert [one.exception() for one in (changing, *reading)] == [None] * 3
    attempt(core.stop)
    assert core.store.table(False, 0, {})


@pytest.mark.parametrize("token", [0, 1, 2**31, 2**32 - 1, 2**40, 2**64 - 1])
def test_unknown_range_tokens_end_nothing(token: int) -> None:
    core = stopped()
    before = core.store.events()[0]["duration"].tolist()
    try:
        core.end_range(token)
    except ValueError as problem:
        assert "no event" in str(problem) or "not a range" in str(problem)
    assert core.store.events()[0]["duration"].tolist() == before


@pytest.mark.parametrize(("what", "value"), [("parent", 7), ("launcher", 2**32 - 2), ("device", 128), ("device", -2)])
def test_appended_events_must_refer_to_existing_events_and_devices(what: str, value: int) -> None:
    core = _core.Store()
    with pytest.raises(ValueError, match=r"no event \d+: the profile has 0|no device -?\d+"):
        _core._append(core, "op", "x", start=1, duration=1, **{what: value})
    with pytest.raises(ValueError, match="no device"):
        _core._set_device(core, -1, {})


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ requires Python 3.12")
def test_a_reader_that_finishes_while_it_requests_the_text_refuses_it() -> None:
    reader = _core.TraceReader()

    class Text:
        def __buffer__(self, flags: int) -> memoryview:
            reader.feed(b'{"traceEvents":[]}')
            reader.finish(_core.Store())
            return memoryview(b"[]")

    for feed in (reader.feed, reader.scan_bytes):
        with pytest.raises(RuntimeError, match="has finished"):
            feed(Text())

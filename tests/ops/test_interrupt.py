"""Long work in C is interrupted promptly and without leaks, by whatever a signal's handler raises; its objects are
unchanged or report the interrupt. A timer sends SIGALRM to this process, whatever SIGINT does in it."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import load, op

import flopscope as fs
from flopscope import _core
from flopscope.read import database

AFTER = 0.1  # seconds until the signal
RESPONSE_TIME = 1.0  # seconds of processor time of each core: the machine may have other work


class Interrupt(Exception):
    """What the handler raises."""


def stop(number: int, frame: object) -> None:
    raise Interrupt


@pytest.fixture
def interrupted() -> Iterator[Callable[..., None]]:
    """Return a function that repeats work until the signal interrupts it, and checks how soon that is."""

    def run(work: Callable[[], object], handler: Any = stop, raised: type[BaseException] = Interrupt) -> None:
        signal.signal(signal.SIGALRM, handler)
        used = time.process_time()
        signal.setitimer(signal.ITIMER_REAL, AFTER)
        with pytest.raises(raised):
            while True:  # a fast machine finishes a call before the signal
                work()
        used = time.process_time() - used
        limit = (AFTER + RESPONSE_TIME) * len(os.sched_getaffinity(0))
        assert used < limit, f"interrupted after {used:.2f} s of processor time"

    before = signal.getsignal(signal.SIGALRM)
    yield run
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = fs.num_threads()
    fs.set_num_threads(request.param)
    yield request.param
    fs.set_num_threads(before)


# Ops ------------------------------------------------------------------------------------------------------------------


def half(*shape: int) -> fs.Tensor:
    return fs.ones(shape, dtype="float16")


@pytest.mark.parametrize(
    ("make", "work"),
    [
        (lambda: fs.ones((4096, 4096), dtype="bfloat16"), lambda x: fs.matmul(x, x)),
        (lambda: half(1 << 26), lambda x: fs.pow_(x, 1.7)), (lambda: half(1 << 26), lambda x: x.to("float32")),
        (lambda: half(1 << 24), fs.sum), (lambda: fs.ones((1 << 14, 1 << 10)), fs.softmax),
        (lambda: None, lambda x: fs.randn((1 << 25,))),
    ],
    ids=["product", "in place", "cast", "sum", "softmax", "random"],
)  # fmt: skip
def test_an_op_can_be_interrupted(make: Any, work: Any, threads: int, interrupted: Any) -> None:
    x = make()
    before = fs.memory_allocated("cpu")
    interrupted(lambda: work(x))
    assert fs.memory_allocated("cpu") == before and fs.add(fs.ones(3), 1).numpy().tolist() == [2, 2, 2]
    assert fs.sum(fs.ones(1 << 20)).item() == 1 << 20


def test_a_handler_decides_and_the_work_of_another_thread_continues(interrupted: Any) -> None:
    x, signals, done = fs.ones((4096, 4096), dtype="bfloat16"), [], []

    def handler(number: int, frame: object) -> None:
        signals.append(number)
        if len(signals) == 1:
            signal.setitimer(signal.ITIMER_REAL, AFTER / 2)  # the first signal is ignored: the work continues
            return
        raise ZeroDivisionError("by the handler")

    thread = threading.Thread(target=lambda: done.extend(fs.sum(fs.ones(1 << 24)).item() for _ in range(3)))
    thread.start()
    interrupted(lambda: fs.matmul(x, x), handler, ZeroDivisionError)
    thread.join()
    assert len(signals) == 2 and done == [1 << 24] * 3


def test_ctrl_c_interrupts_an_op_which_is_recorded_as_failed(interrupted: Any) -> None:
    x = fs.ones((4096, 4096), dtype="bfloat16")
    before = (
        signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT]),
    )
    keys: set[str] = set()
    try:
        for _ in range(20):  # a signal may come before the op has begun
            with fs.profile() as prof:
                interrupted(lambda: fs.matmul(x, x), lambda *_: signal.raise_signal(signal.SIGINT), KeyboardInterrupt)
            keys |= {row.key for row in prof.key_averages(peaks="none")}
            if "flopscope::matmul (failed)" in keys:
                break
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before[0] is None else before[0])
        signal.pthread_sigmask(signal.SIG_SETMASK, before[1])
    assert "flopscope::matmul (failed)" in keys


def test_a_product_computed_in_parts_is_correct() -> None:
    """1.3e10 FLOPs need two calls of the BLAS, for either layout of the first matrix; a vector times it tells."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3000, 1300), dtype=np.float32), rng.standard_normal((1300, 1700), dtype=np.float32)
    vector = rng.standard_normal(1700)
    expected = a.astype(np.float64) @ (b.astype(np.float64) @ vector)
    for left in (a, np.asfortranarray(a)):
        product = fs.matmul(fs.from_numpy(left), fs.from_numpy(b)).numpy().astype(np.float64)
        assert np.abs(product @ vector - expected).max() < 1e-2


# Traces ---------------------------------------------------------------------------------------------------------------

EVENT = '{"ph":"X","cat":"cpu_op","name":"aten::add_%d","pid":1,"tid":1,"ts":%d,"dur":5,"args":{"External id":%d}}'


def read(text: bytes) -> Any:
    core, reader = _core.Store(), _core.TraceReader()
    reader.feed(text)
    reader.finish(core)
    return core


@pytest.fixture(scope="module")
def events() -> str:
    return ",".join(EVENT % (i % 97, 10 * i, i) for i in range(200_000))


@pytest.fixture(scope="module")
def core(events: str) -> Any:
    return read(f'{{"traceEvents":[{events}]}}'.encode())


def columns(core: Any) -> dict[str, Any]:
    found = core.table(False, 0, {})[0]
    return {name: list(found[name]) for name in ("key", "count", "cpu_time_total")}


@pytest.mark.parametrize(
    "work",
    [
        lambda core: core.table(False, 0, {}), lambda core: core.table(True, 3, {}),
        lambda core: core.write_trace(lambda piece: None, "1"),
        lambda core: core.timeline(True, 0, {}, False, (), True, 1000), lambda core: core.events(),
        lambda core: core.gpu_summary(), lambda core: core.step_breakdown(), lambda core: core.launch_summary(),
        lambda core: core.collectives(), lambda core: core.stream_summary(),
    ],
)  # fmt: skip
def test_reading_a_profile_can_be_interrupted_and_leaves_it_intact(work: Any, core: Any, interrupted: Any) -> None:
    expected = columns(core)
    interrupted(lambda: work(core))
    assert columns(core) == expected
    _core._set_device(core, 0, {})  # which is refused while it is read


@pytest.mark.parametrize("how", ["feed", "scan_bytes"])
def test_a_reader_that_is_interrupted_reports_it(how: str, threads: int, events: str, interrupted: Any) -> None:
    text = f'{{"traceEvents":[{events},{events}]}}'.encode()
    readers = [_core.TraceReader()]

    def work() -> None:
        readers[0] = _core.TraceReader()
        getattr(readers[0], how)(text)

    interrupted(work)
    with pytest.raises((RuntimeError, ValueError)) as problem:
        readers[0].feed(b"x")
    assert problem.type is ValueError or "was interrupted" in str(problem.value)  # between two readers, or in one
    assert read(b'{"traceEvents":[]}').event_count == 0


def test_finishing_a_trace_can_be_interrupted_and_leaves_the_profile_empty(events: str, interrupted: Any) -> None:
    text = f'{{"traceEvents":[{",".join([events] * 2)}]}}'.encode()
    stores = []

    def work() -> None:
        reader = _core.TraceReader()
        reader.feed(text)
        stores.append(_core.Store())
        reader.finish(stores[-1])

    interrupted(work)
    again = _core.TraceReader()
    again.feed(b'{"traceEvents":[]}')
    if stores and stores[-1].event_count == 0:
        again.finish(stores[-1])


def test_an_interrupted_work_rule_ends_the_table(interrupted: Any) -> None:
    calls: list[str] = []
    given: Any = {"Input_Dims": [[2]], "Input_type": ["float"]}
    core: Any = load(*(op(f"mine::op{i}", 10 * i, 2, **given) for i in range(1000)))._core

    def rule(name: str, arguments: object, launch: object) -> None:
        calls.append(name)
        time.sleep(0.01)

    _core._set_work_rule(rule)
    try:
        interrupted(lambda: core.table(False, 0, {}))
    finally:
        _core._set_work_rule(None)
    assert len(calls) < 200 and len(core.table(False, 0, {})[0]["key"]) == 1000


@pytest.mark.parametrize("condition", ["1", "a.start + b.start + c.start < 0"], ids=["many rows", "no rows"])
def test_reading_a_database_can_be_interrupted(condition: str, tmp_path: Path, interrupted: Any) -> None:
    if not database._library():
        pytest.skip("no library of SQLite")
    file = sqlite3.connect(tmp_path / "x.sqlite")
    file.execute("CREATE TABLE t (start)")
    file.executemany("INSERT INTO t VALUES (?)", ((i,) for i in range(5000)))
    file.commit()
    file.close()
    sql = f"SELECT 1, 1, 1 FROM t a, t b, t c WHERE {condition}"
    reader = _core.DatabaseReader()
    query = ("device", sql, None, 0, 0, ("process", "device", "id"))
    interrupted(lambda: reader.read(f"file:{tmp_path}/x.sqlite?mode=ro", [query] * 4))
    with pytest.raises(RuntimeError, match="was interrupted"):
        reader.read("file:x", [])

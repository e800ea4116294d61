"""record_function(): nested and overlapping ranges, decorators, and stated work."""

import asyncio
import gc
import inspect
import math
import threading
import weakref
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.profiled import counts, rows_of, table_of

import flopscope as fs


def test_each_call_of_a_decorated_function_is_a_range(x: fs.Tensor) -> None:
    @fs.record_function("step")
    def step(n: int, *, by: int = 1) -> int:
        """Doc."""
        fs.sin(x)
        return n if n <= 0 else step(n - by)

    assert (step.__name__, step.__doc__) == ("step", "Doc.") and step(0) == 0
    with fs.profile() as prof:
        assert step(3) == 0 and step(4, by=4) == 0
    rows = rows_of(prof)
    assert rows["step"].count == 6 and rows["flopscope::sin"].count == 6
    # The calls are recursive: step(3) encloses 4, 3, 2 and 1 sines, and step(4, by=4) encloses 2 and 1.
    assert rows["step"].flops_total == 64 * (4 + 3 + 2 + 1 + 2 + 1)


class Model:
    @fs.record_function("static")
    @staticmethod
    def static(y: fs.Tensor) -> fs.Tensor:
        return fs.sin(y)

    @fs.record_function("of the class")
    @classmethod
    def of_the_class(cls, y: fs.Tensor) -> type:
        fs.sin(y)
        return cls


def test_static_and_class_methods_can_be_decorated(x: fs.Tensor) -> None:
    with fs.profile() as prof:
        assert fs._core.is_recording()
        Model().static(x)
        Model.static(x)
        assert Model().of_the_class(x) is Model
    assert counts(prof) == {"static": 2, "flopscope::sin": 3, "of the class": 1} and not fs._core.is_recording()


def test_a_range_object_can_be_entered_by_several_threads(x: fs.Tensor) -> None:
    part = fs.record_function("part")
    entered, released = threading.Event(), threading.Event()

    def second() -> None:
        with part:
            entered.set()
            released.wait(60)
            fs.sin(x)

    with fs.profile() as prof:
        thread = threading.Thread(target=second)
        with part:
            thread.start()
            entered.wait(60)
        released.set()
        thread.join()
    rows = rows_of(prof)
    assert rows["part"].count == 2 and rows["part"].flops_total == 64 and not rows["flopscope::sin"].top_level


def test_ranges_outside_a_profile_do_nothing(x: fs.Tensor) -> None:
    with fs.record_function("before"), fs.profile() as prof:
        fs.sin(x)
    with fs.record_function("after"):
        pass
    assert counts(prof) == {"flopscope::sin": 1}


def test_a_range_left_open_ends_with_the_profile(x: fs.Tensor) -> None:
    prof = fs.profile()
    prof.start()
    with fs.record_function("open"):
        fs.sin(x)
        prof.stop()
        rows = rows_of(prof)
        assert rows["open"].count == 1 and rows["open"].cpu_time_total >= rows["flopscope::sin"].cpu_time_total
        assert table_of(prof).open_events == 0
        fs.cos(x)
        with fs.profile() as other, fs.record_function("inside"):
            fs.exp(x)
    assert rows_of(prof)["open"].cpu_time_total == rows["open"].cpu_time_total, "a later exit changes nothing"
    assert counts(prof) == {"open": 1, "flopscope::sin": 1} and counts(other) == {"inside": 1, "flopscope::exp": 1}
    assert [row.key for row in table_of(other) if row.top_level] == ["inside"]


def test_a_range_that_ends_early_ends_the_ranges_inside(x: fs.Tensor) -> None:
    outer, inner = fs.record_function("outer"), fs.record_function("inner")
    with fs.profile() as prof:
        outer.__enter__()
        inner.__enter__()
        fs.sin(x)
        outer.__exit__(None, None, None)
        fs.cos(x)
        inner.__exit__(None, None, None)
        fs.exp(x)
    assert counts(prof) == {"outer": 1, "inner": 1, "flopscope::sin": 1, "flopscope::cos": 1, "flopscope::exp": 1}
    assert {row.key for row in table_of(prof) if row.top_level} >= {"outer", "flopscope::exp"}
    for row in table_of(prof):
        assert 0 <= row.self_cpu_time_total <= row.cpu_time_total


def test_a_generator_can_keep_a_range_open(x: fs.Tensor) -> None:
    def batches() -> Iterator[int]:
        for i in range(3):
            with fs.record_function(f"batch {i}"):
                yield i

    with fs.profile() as prof:
        for _ in batches():
            fs.sin(x)
        unfinished = batches()
        next(unfinished)
        unfinished.close()
        fs.cos(x)
    rows = rows_of(prof)
    assert [rows[f"batch {i}"].count for i in range(3)] == [2, 1, 1]
    assert all(rows[f"batch {i}"].flops_total == 64 for i in range(3)) and rows["flopscope::cos"].top_level


def test_a_range_can_end_on_another_thread(x: fs.Tensor) -> None:
    part = fs.record_function("part")
    with fs.profile() as prof:
        part.__enter__()
        thread = threading.Thread(target=part.__exit__, args=(None, None, None))
        thread.start()
        thread.join()
        fs.sin(x)
    assert counts(prof) == {"part": 1, "flopscope::sin": 1} and table_of(prof).open_events == 0


@pytest.mark.parametrize("name", ["", "a" * 5000, "µs → 🚀", "aten::add", "flopscope::sin", "new\nline", "%s%n"])
def test_a_range_can_have_any_name(name: str, x: fs.Tensor) -> None:
    with fs.profile() as prof, fs.record_function(name):
        fs.cos(x)
    (row,) = (row for row in table_of(prof) if row.is_user_annotation)
    assert row.key == name and row.count == 1 and row.flops_total == 64
    assert table_of(prof).table() and math.isnan(row.flops + row.bytes_total_moved), "a range has no work of its own"


def test_exits_of_a_range_match_its_entries(x: fs.Tensor) -> None:
    part = fs.record_function("part")
    with fs.profile() as prof:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="'part' was exited more often than it was entered"):
                part.__exit__(None, None, None)
            for _ in range(9):
                part.__enter__()
            fs.sin(x)
            for _ in range(9):
                part.__exit__(None, None, None)
    assert counts(prof) == {"part": 18, "flopscope::sin": 2} and rows_of(prof)["part"].flops_total == 2 * 9 * 64


# Decorated generators and coroutines ----------------------------------------------------------------------------------


def test_each_resumption_of_a_decorated_generator_is_a_range(x: fs.Tensor) -> None:
    @fs.record_function("part")
    def part(first: int) -> Generator[int, int, str]:
        fs.sin(x)
        sent = yield first
        try:
            yield sent + 1
        except KeyError:
            fs.sin(x)
            yield -1
        return "end"

    assert inspect.isgeneratorfunction(part)
    with fs.profile() as prof:
        run = part(5)
        assert next(run) == 5
        fs.cos(x)
        assert run.send(7) == 8 and run.throw(KeyError()) == -1
        with pytest.raises(StopIteration) as end:
            next(run)
    assert end.value.value == "end"
    rows = rows_of(prof)
    assert rows["part"].count == 4 and rows["part"].flops_total == 2 * 64 and rows["flopscope::cos"].top_level


def test_a_deleted_decorated_generator_is_closed(x: fs.Tensor) -> None:
    closed = []

    @fs.record_function("part")
    def part() -> Iterator[int]:
        try:
            yield 1
        finally:
            fs.sin(x)
            closed.append(True)

    with fs.profile() as prof:
        run = part()
        assert next(run) == 1
        run.close()  # type: ignore[attr-defined]
        with pytest.raises(ZeroDivisionError):
            for _ in part():
                raise ZeroDivisionError
        del run
        gc.collect()
    assert closed == [True, True] and rows_of(prof)["part"].count == 4 and rows_of(prof)["part"].flops_total == 2 * 64


def test_decorated_coroutines_have_separate_work(x: fs.Tensor) -> None:
    def make(name: str, op: Any, times: int) -> Any:
        @fs.record_function(name)
        async def run() -> str:
            for _ in range(times):
                op(x)
                await asyncio.sleep(0)
            return name

        return run

    async def both() -> list[str]:
        return await asyncio.gather(make("a", fs.sin, 3)(), make("b", lambda t: fs.matmul(t, t), 2)())

    with fs.profile() as prof:
        assert asyncio.run(both()) == ["a", "b"]
    rows = rows_of(prof)
    assert (rows["a"].count, rows["b"].count) == (4, 3), "one range more than there are suspensions"
    assert rows["a"].flops_total == 3 * 64 and rows["b"].flops_total == 2 * 2 * 8**3
    assert asyncio.iscoroutinefunction(make("c", fs.sin, 1))


def test_exceptions_of_decorated_coroutines_propagate(x: fs.Tensor) -> None:
    @fs.record_function("part")
    async def part() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            fs.sin(x)
            raise KeyError("cancelled") from None

    async def cancel() -> None:
        task = asyncio.ensure_future(part())
        await asyncio.sleep(0)
        task.cancel()
        await task

    with fs.profile() as prof, pytest.raises(KeyError, match="cancelled"):
        asyncio.run(cancel())
    assert rows_of(prof)["part"].count == 2 and table_of(prof).open_events == 0


async def asynchronous_rows() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        *((lambda name=name: fs.record_function(name), TypeError, "string") for name in (None, 3, b"bytes", ["x"])),
        (lambda: fs.record_function("lone \udc80 surrogate"), ValueError, "surrogates"),
        (lambda: fs.record_function("nul \0 inside"), ValueError, "character NUL: 'nul"),
        (lambda: fs.record_function("part", None, 5), TypeError, ""),
        (lambda: fs.record_function("a")(3), TypeError, "the range 'a' decorates functions, not 3"),
        (lambda: fs.record_function("a")(asynchronous_rows), TypeError, r"'a' cannot decorate .*rows\(\), an asynch"),
        (lambda: fs.record_function("a", flops=lambda: -5)(int)(), ValueError, r"flops of the range 'a' .*not -5"),
    ],
)
def test_wrong_names_and_functions_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with fs.profile(), pytest.raises(error, match=message):
        make()


# Stated work ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["flops", "bytes"])
def test_stated_work_is_a_number_of_at_least_0(what: str) -> None:
    for error, values in (
        (ValueError, (-1, math.nan, math.inf)),
        (TypeError, ("1e9", [1])),
        (OverflowError, (10**400,)),
    ):
        message = "too large" if error is OverflowError else f"{what} of the range 'part' must be a"
        for value in values:
            with pytest.raises(error, match=message):
                fs.record_function("part", **{what: value})  # type: ignore[arg-type]
    for good in (0, 7, 2.5, np.float32(3), np.int64(4), None):
        part = fs.record_function("part", "args of torch", **{what: good})  # type: ignore[arg-type]
        assert getattr(part, what) is good and part.name == "part"
        assert repr(part) == "<flopscope.record_function 'part'>"


def test_a_work_function_is_called_only_while_recording(x: fs.Tensor) -> None:
    calls: list[tuple[Any, ...]] = []

    def flops(a: fs.Tensor, times: int = 1) -> float:
        calls.append((a, times))
        return 1000.0 * times

    @fs.record_function("part", flops=flops, bytes=64)
    def part(a: fs.Tensor, times: int = 1) -> int:
        return times

    assert part(x) == 1 and calls == []
    with fs.profile() as prof:
        assert part(x) == 1 and part(x, times=3) == 3
    assert calls == [(x, 1), (x, 3)] and counts(prof) == {"part": 2}
    row = rows_of(prof)["part"]
    assert row.flops == row.flops_total == 4000 and row.bytes_total_moved == 128
    with fs.profile(), pytest.raises(TypeError, match="'part' is a function of the arguments of the function"):
        fs.record_function("part", flops=flops).__enter__()


def test_stated_work_counts_once_for_a_decorated_generator(x: fs.Tensor) -> None:
    @fs.record_function("part", flops=lambda n: 10 * n)
    def part(n: int) -> Iterator[int]:
        yield from range(n)

    with fs.profile() as prof:
        assert list(part(3)) == [0, 1, 2]
    assert rows_of(prof)["part"].count == 4 and rows_of(prof)["part"].flops == 30


# Lifetime -------------------------------------------------------------------------------------------------------------


def test_ranges_are_garbage_collected() -> None:
    def work() -> float:
        return 1.0

    part = fs.record_function("part" * 3, flops=work)
    work.part = part  # type: ignore[attr-defined]
    reference = weakref.ref(work)
    del part, work
    gc.collect()
    assert reference() is None


def test_record_function_can_be_subclassed(x: fs.Tensor) -> None:
    class Layer(fs.record_function):
        def __init__(self, number: int) -> None:
            super().__init__(f"layer {number}", flops=number)
            self.number = number

    class Unmade(fs.record_function):
        def __init__(self) -> None: ...

    with fs.profile() as prof:
        with Layer(3) as layer:
            assert layer.number == 3
        with pytest.raises(RuntimeError, match="the range is not initialized"):
            Unmade().__enter__()
    assert counts(prof) == {"layer 3": 1}

"""Ranges that coroutines keep open across an await: each contains only the work of its own task."""

import asyncio
import contextvars
import random
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import rewritten
from helpers.profiled import counts, rows_of, table_of

import flopscope as fs

SIN = 64  # FLOPs of one sine


@pytest.mark.parametrize("with_stack", [False, True])
def test_ranges_of_interleaved_tasks_have_own_work_and_time(x: fs.Tensor, with_stack: bool, tmp_path: Path) -> None:
    spans: dict[str, int] = {}

    async def work(name: str, op: Any, times: int, pause: float) -> None:
        start = time.monotonic_ns()
        with fs.record_function(name):
            for _ in range(times):
                op(x)
                await asyncio.sleep(pause)
        spans[name] = time.monotonic_ns() - start

    async def main() -> None:
        await asyncio.gather(work("a", fs.sin, 3, 0.004), work("b", fs.cos, 5, 0.006), work("c", fs.exp, 1, 0))

    with fs.profile(with_stack=with_stack) as prof, fs.record_function("main"):
        asyncio.run(main())
    rows, pauses = rows_of(prof), {"a": 12_000_000, "b": 30_000_000, "c": 0}
    assert counts(prof) == {"main": 1, "a": 1, "b": 1, "c": 1, "flopscope::sin": 3, "flopscope::cos": 5,
                            "flopscope::exp": 1}  # fmt: skip
    assert [rows[name].flops_total for name in ("a", "b", "c", "main")] == [3 * SIN, 5 * SIN, SIN, 9 * SIN]
    for name, span in spans.items():
        duration = rows[name].cpu_time_total * 1000
        assert pauses[name] <= duration <= span, name  # a busy machine may stop the task before its range begins
        # Time in which ranges of several tasks overlap is self time of the range that encloses them all.
        assert name == "c" or rows[name].self_cpu_time_total == 0
    self_time = sum(row.self_cpu_time_total for row in table_of(prof))
    assert self_time == pytest.approx(rows["main"].cpu_time_total)
    assert all(row.self_cpu_time_total >= 0 for row in rows.values()) and table_of(prof).open_events == 0
    again = {row.key: row for row in rewritten(prof, tmp_path).key_averages()}
    for name, row in rows.items():
        assert again[name].count == row.count and again[name].cpu_time_total == pytest.approx(row.cpu_time_total)


def test_work_of_randomly_nested_tasks_equals_an_independent_count(x: fs.Tensor) -> None:
    draw = random.Random(5)
    expected: dict[str, int] = {}

    async def nest(name: str, depth: int) -> int:
        count = 0
        with fs.record_function(f"{name}/{depth}"):
            for _ in range(draw.randrange(4)):
                if draw.random() < 0.5:
                    await asyncio.sleep(draw.random() / 500)
                fs.sin(x)
                count += 1
            if depth < 3:
                count += await nest(name, depth + 1)
            if draw.random() < 0.5:
                await asyncio.sleep(0)
            fs.sin(x)
            count += 1
        expected[f"{name}/{depth}"] = count * SIN
        return count

    async def main() -> None:
        await asyncio.gather(*[nest(f"task {i}", 0) for i in range(20)])

    with fs.profile() as prof:
        asyncio.run(main())
    rows = rows_of(prof)
    assert {name: row.flops_total for name, row in rows.items() if "task" in name} == expected
    assert all(row.count == 1 for name, row in rows.items() if "task" in name)
    assert all(row.self_cpu_time_total >= 0 for row in rows.values())


def test_a_range_object_shared_by_tasks_ends_in_each_task(x: fs.Tensor) -> None:
    part = fs.record_function("part")
    spans: list[int] = []

    async def work(pause: float) -> None:
        start = time.monotonic_ns()
        with part:
            await asyncio.sleep(pause)
            fs.sin(x)
        spans.append(time.monotonic_ns() - start)

    async def main() -> None:
        await asyncio.gather(work(0.03), work(0.001), work(0.015))

    with fs.profile() as prof:
        asyncio.run(main())
    row = rows_of(prof)["part"]
    assert row.count == 3 and row.flops_total == 3 * SIN and 46e6 <= row.cpu_time_total * 1000 <= sum(spans)
    assert 30e6 <= row.time_max * 1000 <= max(spans) and 1e6 <= row.time_min * 1000 <= min(spans)


def test_ranges_entered_before_the_profile_end_no_recorded_range(x: fs.Tensor) -> None:
    part = fs.record_function("part")

    async def work(prof: Any, first: bool, started: asyncio.Event) -> None:
        if not first:
            await started.wait()
        with part:
            if first:
                await asyncio.sleep(0)
                prof.start()
                started.set()
                await asyncio.sleep(0.005)
            else:
                await asyncio.sleep(0.02)
                fs.sin(x)

    async def main(prof: Any) -> None:
        started = asyncio.Event()
        await asyncio.gather(work(prof, True, started), work(prof, False, started))

    prof = fs.profile()
    asyncio.run(main(prof))
    prof.stop()
    row = rows_of(prof)["part"]
    assert row.count == 1 and row.flops_total == SIN and row.cpu_time_total >= 15_000


def test_work_in_a_copied_context_belongs_to_the_open_range(x: fs.Tensor) -> None:
    """Running code in another context does not switch tasks, because nothing was suspended."""
    value: contextvars.ContextVar[int] = contextvars.ContextVar("value")
    with fs.profile() as prof, fs.record_function("outer"):
        fs.sin(x)
        contextvars.copy_context().run(fs.sin, x)
        value.set(5)
        fs.sin(x)

        async def work() -> None:
            with fs.record_function("inner"):
                fs.sin(x)
                contextvars.copy_context().run(fs.sin, x)

        asyncio.run(work())
        fs.sin(x)
    rows = rows_of(prof)
    assert rows["outer"].flops_total == 6 * SIN and rows["inner"].flops_total == 2 * SIN
    assert rows["inner"].self_cpu_time_total > 0, "no other task ran at the same time"


def test_a_cancelled_task_ends_its_range(x: fs.Tensor) -> None:
    async def forever(name: str) -> None:
        with fs.record_function(name):
            fs.sin(x)
            await asyncio.sleep(60)

    async def main() -> None:
        tasks = [asyncio.ensure_future(forever(name)) for name in ("a", "b")]
        await asyncio.sleep(0.001)
        fs.cos(x)
        tasks[0].cancel()
        await asyncio.sleep(0.001)
        prof.stop()
        tasks[1].cancel()

    prof = fs.profile()
    prof.start()
    asyncio.run(main())
    rows = rows_of(prof)
    assert rows["a"].flops_total == rows["b"].flops_total == SIN and rows["flopscope::cos"].top_level
    assert rows["a"].cpu_time_total < rows["b"].cpu_time_total and table_of(prof).open_events == 0

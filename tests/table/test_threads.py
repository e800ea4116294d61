"""A table of many events is the same for any number of threads, and its times are those that NumPy computes from the
events. The events of these traces nest across the borders of the pieces that threads work on."""

from __future__ import annotations

import math
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import call, kernel, memory, text_of
from helpers.hand_traces import event as trace_event
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope import _core
from flopscope.support.peaks import stated_peaks

OPS = ["aten::linear", "aten::mm", "aten::add", "aten::_foreach_add_", "aten::sum", "custom::op"]
SHAPES = {"aten::mm": [[64, 32], [32, 16]], "aten::add": [[64, 32], [64, 32]], "aten::sum": [[64, 32]]}
KERNELS = ["gemm", "void add_kernel<float>", "flash_fwd_kernel", "ncclDevKernel_AllReduce"]
DEEPEST, CALL = 12, 0.25


@dataclass
class Event:
    """An event of the host with what it encloses and launches."""

    name: str
    start: int
    end: int = 0
    children: list[Event] = field(default_factory=list)
    work: list[tuple[int, str, int, int, int]] = field(default_factory=list)  # call; kernel, start, duration, stream


@dataclass
class Program:
    rng: random.Random
    streams: int
    kinds: list[str]
    events: list[dict[str, Any]] = field(default_factory=list)
    roots: list[Event] = field(default_factory=list)
    links: int = 0
    left: int = 0

    def run(self, tid: int, count: int) -> None:
        """Record so many events on a thread, all within the first."""
        self.left = count
        self.roots.append(self.enclose("whole", 1000, tid))

    def enclose(self, name: str, now: int, tid: int, *around: str) -> Event:
        """Record an event that begins now, what it launches, and others within it."""
        rng, event = self.rng, Event(name, now)
        self.left -= 1
        # Kernels belong to no annotation or frame, but to the op around it.
        frame = "frames" in self.kinds and name == "custom::op"
        for _ in range(rng.choice([0, 0, 0, 1, 2]) if name in OPS and not frame else 0):
            now += 1
            start, lasts, stream = now + rng.randrange(40), rng.randrange(1, 60), rng.randrange(self.streams)
            event.work.append((now, rng.choice(KERNELS), start, lasts, stream))
        if "memory" in self.kinds and rng.random() < 0.05:
            self.events.append(memory(now + 0.5, rng.randrange(-999, 999), tid))
        # torch merges an op with the op around it if both have one name; "custom::op" may be a frame between them.
        above = next((each for each in (name, *reversed(around)) if each != "custom::op"), "")
        while self.left > 0 and (not around or (len(around) < DEEPEST - 1 and rng.random() < 0.45)):
            inner = rng.choice([each for each in OPS if each not in (above, name)])
            inner = f"ProfilerStep#{self.left}" if self.left % 9001 == 0 else inner
            event.children.append(self.enclose(inner, now + rng.randrange(1, 9), tid, *around, name))
            now = event.children[-1].end
        event.end = now + rng.randrange(1, 9)
        self.record(event, tid, frame)
        return event

    def record(self, event: Event, tid: int, frame: bool) -> None:
        self.links += 1
        own = {"External id": self.links}
        shapes = SHAPES.get(event.name, [[[8], [8]], [[8], [8]]] if "foreach" in event.name else [[]])
        kind = "python_function" if frame else "cpu_op" if event.name in OPS else "user_annotation"
        typed = {"Input Dims": shapes, "Input type": ["float"] * len(shapes)} if kind == "cpu_op" else {}
        self.events.append(trace_event(kind, event.name, event.start, event.end - event.start, tid, **own, **typed))
        for called, name, start, lasts, stream in event.work:
            self.links += 1
            link = {**own, "correlation": self.links, "grid": [4, 1, 1]}
            self.events.append(call("cudaLaunchKernel", called, CALL, tid, **link))
            self.events.append(kernel(name, start, lasts, stream, **link, block=[128, 1, 1]))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    rng = random.Random(draw(st.integers(0, 2**32)))
    program = Program(rng, draw(st.integers(1, 4)), draw(st.lists(st.sampled_from(["memory", "frames"]), unique=True)))
    threads = draw(st.integers(1, 3))
    for tid in range(1, threads + 1):
        program.run(tid, draw(st.sampled_from([20, 90_000])) // threads)
    return program


@contextmanager
def loaded(program: Program) -> Iterator[fs.Trace]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_bytes(text_of(*program.events))
        yield fs.load_trace(path)


def plain(value: Any) -> Any:
    """Return columns of numbers, wherever they stand, as lists."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else value


def everything(core: Any) -> list[str]:
    """Return the tables of a store in full: repr() tells every bit of a number."""
    stated = stated_peaks("memory=3e12,fp32=6e13")
    assert stated is not None
    limits = {"cuda:0": stated.for_core(None)}
    requests: list[tuple[Any, ...]] = [
        (core.table, False, 0, {}), (core.table, True, 2, limits), (core.accounting, True, 0, limits, False, (), True),
        (core.accounting, False, 0, limits, False, ("step", "stream", "dtype"), False),
    ]  # fmt: skip
    told = []
    for ask, *request in requests:
        columns, meta = ask(*request)
        told.append(repr(plain((columns, {name: meta[name] for name in meta if name != "grouping_seconds"}))))
    return told


@settings(max_examples=4, phases=[Phase.generate])
@given(programs())
def test_tables_are_the_same_for_any_number_of_threads(program: Program) -> None:
    before = _core.num_threads()
    try:
        with loaded(program) as trace:
            found = []
            for threads in (1, 2, 3, 16):
                _core.set_num_threads(threads)
                found.append(everything(trace._core))
    finally:
        _core.set_num_threads(before)
    assert found[1:] == found[:1] * 3


def union(spans: list[tuple[int, int]]) -> int:
    busy, latest = 0, -1
    for start, end in sorted(spans):
        busy += max(0, end - max(start, latest))
        latest = max(latest, end)
    return busy


@settings(max_examples=3, phases=[Phase.generate])
@given(programs())
def test_times_are_those_of_the_events(program: Program) -> None:
    total: dict[str, list[int]] = defaultdict(list)
    own: dict[str, float] = defaultdict(float)
    launched: dict[str, int] = defaultdict(int)
    kernels: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def visit(event: Event) -> tuple[float, int]:
        """Return the time that the event takes from its parent, and the device time launched in it."""
        inner = [visit(child) for child in event.children]
        device = sum(one[1] for one in inner) + sum(lasts for *_, lasts, _ in event.work)
        for _, name, start, lasts, _ in event.work:
            kernels[name].append((start, start + lasts))
        taken = sum(one[0] for one in inner) + CALL * len(event.work)
        if "frames" in program.kinds and event.name == "custom::op":
            return taken, device
        name = "ProfilerStep*" if event.name.startswith("ProfilerStep") else event.name
        total[name].append(event.end - event.start)
        own[name] += event.end - event.start - taken
        launched[name] += device
        return event.end - event.start, device

    for root in program.roots:
        visit(root)
    with loaded(program) as trace:
        rows = {row.key: row for row in trace.key_averages(peaks="none")}
    for name, durations in total.items():
        row = rows[name]
        assert row.count == len(durations) and row.cpu_time_total == pytest.approx(sum(durations), rel=1e-12)
        assert row.self_cpu_time_total == pytest.approx(own[name], rel=1e-12)
        assert row.device_time_total == pytest.approx(launched[name], rel=1e-12)
    for name, spans in kernels.items():
        row, durations = rows[name], [end - start for start, end in spans]
        assert row.count == len(spans) and row.self_device_time_total == pytest.approx(sum(durations), rel=1e-12)
        assert row.device_busy_time == pytest.approx(union(spans), rel=1e-12)
        assert [row.time_min, row.time_max] == [min(durations), max(durations)]
        assert [row.time_median, row.time_p95] == pytest.approx(np.percentile(durations, [50, 95]).tolist())
        if len(durations) > 1:
            assert row.time_std == pytest.approx(np.std(durations, ddof=1))


@pytest.mark.parametrize("order", ["random", "alike", "ascending", "descending", "organ pipe"])
@pytest.mark.parametrize("count", [1, 2, 7, 100, 4999])
def test_order_statistics_of_times_in_any_order(order: str, count: int) -> None:
    rng = np.random.default_rng(count)
    times = {
        "random": rng.integers(1, 1_000_003, count), "alike": rng.integers(1, 4, count),
        "ascending": 1 + np.arange(count), "descending": count - np.arange(count),
        "organ pipe": 1 + np.minimum(np.arange(count), count - np.arange(count)),
    }[order]  # fmt: skip
    core = _core.Store()
    for at, time in enumerate(times.tolist()):
        _core._append(core, "op", "x::op", 2_000_000 * at, time)
    columns, _ = core.table(False, 0, {})
    found = [columns[name][0] * 1000 for name in ("time_min", "time_median", "time_p95", "time_max", "time_std")]
    expected = [*np.percentile(times, [0, 50, 95, 100]), np.std(times, ddof=1) if count > 1 else math.nan]
    assert found == pytest.approx(expected, nan_ok=True)

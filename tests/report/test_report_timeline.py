"""The data of the report's timeline, against the events themselves and the accounting."""

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers import TRACES
from helpers.hand_traces import Program, load, op, quietly
from helpers.report_pages import PageRead, written

import flopscope as fs
from flopscope import _core
from flopscope.answers.analysis import analysis_of
from flopscope.results.results import store_of
from flopscope.show.page import timeline as timeline_module
from flopscope.show.page.encode import Columns
from flopscope.show.page.page import Page, write
from flopscope.show.page.timeline import Part, rows_in, timeline_of

NONE = -1
MISSING = -(2**63)


def names_page(folder: Path, names: int) -> PageRead:
    """Return the page of ops of different names, each longer than the one before."""
    return written(load(*(op(f"op{i}", 100 * i, i + 1) for i in range(names))), folder)


def test_names_past_the_limit_are_one_and_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Drawn(names_page(tmp_path, 8)).data["facts"]["names_left_out"] == 0
    monkeypatch.setattr(timeline_module, "MOST_LABELS", 3)
    page = Drawn(names_page(tmp_path, 8))
    assert [page.name(i) for i in page.blocks("host")] == ["(another name)"] * 5 + ["op5", "op6", "op7"]
    assert page.data["facts"]["names_left_out"] == 5


class Drawn:
    """The timeline of a page, decoded as its script does."""

    def __init__(self, page: PageRead) -> None:
        self.page, self.data = page, page.data["sections"]["timeline"]
        self.lanes = self.data["lanes"]
        firsts = np.cumsum([0, *(lane["count"] for lane in self.lanes)])
        self.spans = list(zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True))
        self.pairs = list(zip(self.spans, self.lanes, strict=True))
        steps = self.amounts(self.data["start"])
        self.start = np.concatenate([np.cumsum(steps[a:b]) for a, b in self.spans])
        self.duration = self.amounts(self.data["duration"])
        self.busy = self.duration if self.data["busy"] is None else self.amounts(self.data["busy"])
        count = self.data["count"]
        self.count = np.ones(len(self.start)) if count is None else page.column(count)
        self.link = np.cumsum(page.column(self.data["link"]).astype(np.uint64)) % 2**32 - 1.0
        self.row = page.column(self.data["row"]).astype(int) - 1
        self.label = page.column(self.data["label"]).astype(int) - 1
        labels = self.data["labels"]
        self.names = [
            name if name is not None else labels["kinds"][kind]
            for name, kind in zip(page.texts(labels["name"]), page.column(labels["kind"]), strict=True)
        ]
        self.kinds = [labels["kinds"][kind] for kind in page.column(labels["kind"])]
        self.label_rows = page.column(labels["row"]).astype(int)

    def amounts(self, encoded: dict[str, Any]) -> npt.NDArray[np.float64]:
        values = self.page.column(encoded["values"]).astype(np.float64)
        values[self.page.column(encoded["large"]).astype(int)] = self.page.column(encoded["apart"])
        return values

    def blocks(self, *roles: str) -> list[int]:
        return [i for (a, b), lane in self.pairs if lane["role"] in roles for i in range(a, b)]

    def lane_of(self, block: int) -> dict[str, Any]:
        return next(lane for (a, b), lane in self.pairs if a <= block < b)

    def name(self, block: int) -> str:
        return self.names[self.label[block]]


def drawn(trace: Any, tmp_path: Path) -> Drawn:
    return Drawn(written(trace, tmp_path))


def drawn_parts(parts: list[Part], tmp_path: Path, limit: int) -> Drawn:
    page = Page("parts")
    page.sections["timeline"] = timeline_of(parts, page.columns, limit)
    write(tmp_path / "parts.html", page)
    return Drawn(PageRead(tmp_path / "parts.html"))


RECORDED = sorted(TRACES.glob("*.json.gz"))


@pytest.fixture(scope="module", params=RECORDED, ids=lambda path: path.name.split(".")[0])
def trace(request: pytest.FixtureRequest) -> fs.Trace:
    return quietly(request.param)


@pytest.fixture(scope="module")
def timeline(trace: fs.Trace, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    return drawn(trace, tmp_path_factory.mktemp("page"))


def test_every_event_is_drawn_once_in_a_lane(trace: fs.Trace, timeline: Drawn) -> None:
    events = trace.events()
    begin = events._begin
    expected: Counter[Any] = Counter()
    for event in events:
        start, duration = (event._value(name) for name in ("start", "duration"))
        if event.kind != "memory" and start != MISSING:
            expected[event.kind, event.name, start - begin, max(duration, 0) if duration != MISSING else None] += 1
    found = Counter(
        (timeline.kinds[timeline.label[i]], timeline.name(i), int(timeline.start[i]), int(timeline.duration[i]))
        for i in range(len(timeline.start))
        if timeline.label[i] >= 0
    )
    open_events = sum(count for key, count in expected.items() if key[3] is None)
    missing = expected - found
    assert sum(missing.values()) == open_events == timeline.data["facts"]["open"]
    assert found.total() == expected.total() and timeline.data["facts"]["deep"] == 0
    for a, b in timeline.spans:  # no two blocks of a lane overlap
        assert (timeline.start[a + 1 : b] >= timeline.start[a : b - 1] + timeline.duration[a : b - 1]).all()


def test_idle_times_are_those_of_the_accounting(trace: fs.Trace, timeline: Drawn) -> None:
    gaps = analysis_of(trace, "test").gap_cells
    expected: dict[Any, int] = defaultdict(int)
    for device, cause, time in zip(gaps["device"].tolist(), gaps["cause"].tolist(), gaps["time"].tolist(), strict=True):
        expected[device, _core.idle_causes[cause]] += time
    found = {
        (lane["device"], list(_core.idle_causes)[lane["depth"]]): int(timeline.duration[a:b].sum())
        for (a, b), lane in timeline.pairs
        if lane["role"] == "idle"
    }
    assert found == {key: time for key, time in expected.items() if time}


def test_idle_times_are_where_no_work_is(timeline: Drawn) -> None:
    for device in {lane["device"] for lane in timeline.lanes if lane["device"] >= 0}:
        work, idle = (
            sorted(
                (timeline.start[i], timeline.start[i] + timeline.duration[i])
                for i in timeline.blocks(role)
                if timeline.lane_of(i)["device"] == device
            )
            for role in ("work", "idle")
        )
        reached, place = -math.inf, 0
        for begin, end in idle:
            assert begin >= reached  # disjoint among all causes
            reached = end
            while place < len(work) and work[place][1] <= begin:
                place += 1
            assert all(a >= end or b <= begin for a, b in work[place : place + 50])


def test_rows_and_launches_are_those_of_the_events(trace: fs.Trace, timeline: Drawn) -> None:
    keys = timeline.page.texts(timeline.page.data["rows"]["columns"]["key"])
    for label, row in enumerate(timeline.label_rows):
        kind, name = timeline.kinds[label], timeline.names[label]
        if kind in ("frame", "interval"):
            assert row == NONE
        else:
            assert keys[row] == ("ProfilerStep*" if name.startswith("ProfilerStep#") else name)
    calls: dict[int, tuple[int, str, int]] = {}
    for event in trace.events():
        if event.kind == "runtime" and event.correlation >= 0:
            found = (event._value("start"), event.name, event._value("duration"))
            calls[event.correlation] = min(calls.get(event.correlation, found), found, key=lambda call: call[0])
    begin = trace.events()._begin
    expected = Counter(
        (event._value("start") - begin, calls[event.correlation][1], calls[event.correlation][0] - begin)
        for event in trace.events()
        if event.kind in ("kernel", "memcpy", "memset") and event.correlation in calls
    )
    linked = [i for i in timeline.blocks("work") if timeline.link[i] >= 0]
    found_links = Counter(
        (int(timeline.start[i]), timeline.name(int(timeline.link[i])), int(timeline.start[int(timeline.link[i])]))
        for i in linked
        if timeline.kinds[timeline.label[int(timeline.link[i])]] == "runtime"
    )
    assert found_links == expected
    ops = {i for i in timeline.blocks("work") if timeline.row[i] != NONE}
    assert all(timeline.row[i] < len(keys) for i in ops)


def many(calls: int) -> Program:
    program = Program()
    for i in range(calls):
        program.op("aten::add", 10 * i, 8, [64, 64], [64, 64])
        program.call("cudaLaunchKernel", 10 * i + 1, 2, correlation=i + 1)
        program.add("kernel", f"kernel{i % 3}", 10 * i + 5 + i % 2, 3, 7, 0, correlation=i + 1, device=0, stream=7)
    program.add("kernel", "long", 10 * calls + 50, 500, 7, 0, device=0, stream=7)
    return program


@pytest.mark.parametrize("limit", [2000, 300, 40])
def test_past_a_limit_neighbours_are_merged_and_no_time_is_lost(tmp_path: Path, limit: int) -> None:
    trace = many(1000).load()
    whole = drawn_parts([Part(store_of(trace, "test"))], tmp_path, 10**6)
    timeline = drawn_parts([Part(store_of(trace, "test"))], tmp_path, limit)
    facts = timeline.data["facts"]
    assert len(timeline.start) == facts["blocks"] <= limit and facts["merged_ns"] > 0
    assert timeline.count.sum() == len(whole.start) == facts["events"]
    for lane, before in zip(timeline.lanes, whole.lanes, strict=True):
        assert (lane["role"], lane["id"], lane["depth"]) == (before["role"], before["id"], before["depth"])
    for (a, b), (c, d) in zip(timeline.spans, whole.spans, strict=True):
        assert timeline.busy[a:b].sum() == whole.duration[c:d].sum()
        assert (timeline.duration[a:b][timeline.count[a:b] > 1] < 2 * facts["merged_ns"]).all()
    long = [timeline.duration[i] for i in timeline.blocks("work") if timeline.name(i) == "long"]
    assert long == [500_000] or facts["merged_ns"] > 500_000


def test_times_that_exceed_32_bits_are_exact(tmp_path: Path) -> None:
    program = Program()
    program.op("aten::first", 0, 1)
    program.op("aten::long", 9_000_000, 7_000_000)  # 9 s later, 7 s long
    program.op("aten::last", 20_000_000, 1)
    timeline = drawn(program.load(), tmp_path)
    hosts = sorted(timeline.blocks("host"), key=lambda i: timeline.start[i])
    first = timeline.start[hosts[0]]
    assert [timeline.start[i] - first for i in hosts] == [0, 9_000_000_000, 20_000_000_000]
    assert [timeline.duration[i] for i in hosts] == [1000, 7_000_000_000, 1000]


def test_steps_launches_and_bytes_are_described(tmp_path: Path) -> None:
    program = Program()
    program.step(3, 0, 100)
    program.op("aten::add", 10, 20, [64, 64], [64, 64])
    program.call("cudaLaunchKernel", 12, 5, correlation=1)
    grid = {"grid": [4, 2, 1], "block": [128, 1, 1], "registers_per_thread": 22, "shared_memory": 1024}
    program.add("kernel", "k", 40, 10, 7, 0, correlation=1, device=0, stream=7, **grid)
    program.add("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 60, 10, 7, 0, device=0, stream=7, bytes=4096)
    timeline = drawn(program.load(), tmp_path)
    steps = timeline.data["steps"]
    assert timeline.page.texts(steps["name"]) == ["ProfilerStep#3"]
    assert (timeline.page.column(steps["end"]) - timeline.page.column(steps["begin"])).tolist() == [100_000]
    kernel, copy = timeline.blocks("work")
    places, values = (timeline.page.column(timeline.data["bytes"][name]) for name in ("places", "values"))
    assert dict(zip(places.tolist(), values.tolist(), strict=True)) == {copy: 4096.0}
    launch = timeline.page.column(timeline.data["labels"]["launch"])[timeline.label[kernel]]
    described = {"grid": "4×2×1", "block": "128×1×1", "registers": 22, "shared": 1024, "graph": 0}
    assert timeline.data["labels"]["launches"][launch] == described


def test_ranks_share_a_clock_and_the_rows_of_the_page(tmp_path: Path) -> None:
    traces = [many(5).load(), many(3).load()]
    columns = traces[0].key_averages(group_by_input_shape=True).columns
    parts = [
        Part(store_of(one, "test"), f"Rank {i}", 1_000_000 * i, rows_in(columns, True)) for i, one in enumerate(traces)
    ]
    timeline = drawn_parts(parts, tmp_path, 10**6)
    names = [timeline.page.strings[lane["part"]] for lane in timeline.lanes]
    assert list(dict.fromkeys(names)) == ["Rank 0", "Rank 1"]
    begins = {name: math.inf for name in names}
    for (a, _), name in zip(timeline.spans, names, strict=True):
        begins[name] = min(begins[name], timeline.start[a])
    assert begins["Rank 1"] - begins["Rank 0"] == 1_000_000
    for i in timeline.blocks("work"):
        assert columns["key"][timeline.label_rows[timeline.label[i]]] == timeline.name(i)
        if timeline.link[i] >= 0:
            assert timeline.lane_of(int(timeline.link[i]))["part"] == timeline.lane_of(i)["part"]
            assert columns["key"][timeline.row[i]] == "aten::add"


def test_past_a_limit_threads_with_fewest_events_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_module, "MOST_PLACES", 3)
    program = many(20)
    for thread in range(2, 10):
        for i in range(thread):
            program.op("aten::relu", 20 * i, 10, [64, 64], tid=thread)
    timeline = drawn(program.load(), tmp_path)
    shown = {(lane["device"], None if lane["device"] >= 0 else lane["id"]) for lane in timeline.lanes}
    assert shown == {(0, None), (-1, "1"), (-1, "9")}
    facts = timeline.data["facts"]
    assert (facts["places_left_out"], facts["events_left_out"]) == (7, sum(range(2, 9)))
    linked = [i for i in timeline.blocks("work") if timeline.link[i] >= 0]
    assert len(linked) == 20
    for i in linked:
        call = int(timeline.link[i])
        assert timeline.name(call) == "cudaLaunchKernel" and timeline.start[call] < timeline.start[i]


def test_events_without_times_are_counted(tmp_path: Path) -> None:
    assert timeline_of([Part(_core.Store())], Columns()) is None
    program = Program()
    for depth in range(70):
        program.op(f"aten::op{depth}", depth, 200 - 2 * depth)
    timeline = drawn(program.load(), tmp_path)
    assert timeline.data["facts"]["deep"] == 6 and len(timeline.blocks("host")) == 64

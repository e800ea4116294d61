"""Rare causes of idle time, and calls that waited, in stores filled event by event. Times are ns."""

import math
from collections import Counter
from typing import Any

import pytest

from flopscope import _core

CAUSES = _core.idle_causes
MS = 1_000_000


class Host:
    """A program of one thread and its devices."""

    def __init__(self, end: int = 0) -> None:
        self.core = _core.Store()
        self.correlation = 100
        if end:
            self.add("step", "ProfilerStep#0", 0, end)

    def add(self, kind: str, name: str, begin: int, end: int, parent: int | None = None, **more: Any) -> int:
        return _core._append(self.core, kind, name, begin, end - begin, parent, **more)

    def op(self, name: str, begin: int, end: int) -> int:
        return self.add("op", name, begin, end)

    def call(self, name: str, begin: int, end: int, parent: int | None = None, **more: Any) -> int:
        return self.add("runtime", name, begin, end, parent, **more)

    def work(self, name: str, begin: int, end: int, *, kind: str = "kernel", **more: Any) -> None:
        self.add(kind, name, begin, end, **{"device": 0, **more})

    def launch(
        self, launched: int, returned: int, begin: int, end: int, owner: str = "", kernel: str = "k", **more: Any
    ) -> None:
        """Launch a kernel, in an op around the call if that has a name."""
        self.correlation += 1
        op = self.op(owner, launched - 10, returned + 10) if owner else None
        self.call("cudaLaunchKernel", launched, returned, op, correlation=self.correlation)
        self.work(kernel, begin, end, correlation=self.correlation, launcher=op, **more)

    def account(self) -> Any:
        return self.core.accounting(True, 0, {})[1]["accounting"]

    def idle(self) -> dict[str, int]:
        """Return the idle time by cause."""
        gaps = self.account()["gaps"]
        found: Counter[str] = Counter()
        for cause, time in zip(gaps["cause"].tolist(), gaps["time"].tolist(), strict=True):
            found[CAUSES[cause]] += time
        return dict(found)

    def calls(self, asked: Any, name: str) -> list[tuple[int, ...]]:
        """Return the columns of named_calls() of a name, row by row."""
        flags = bytes(text == name for text in self.core.names())
        found = self.core.named_calls(flags, asked)
        return list(zip(*(found[column].tolist() for column in ("start", "duration", "idle")), strict=True))


def test_waits_are_named_and_counted_with_the_work_that_they_delay() -> None:
    host = Host(1000)
    host.launch(20, 30, 50, 100, "first")
    wait = host.call("cudaStreamSynchronize", 95, 240, host.op("aten::item", 90, 250))
    host.launch(270, 290, 300, 400, "third")
    host.launch(540, 560, 570, 600, "fourth")  # late because of the wait too
    account = host.account()
    gaps = account["gaps"]
    for cause, waited, count in zip(gaps["cause"].tolist(), gaps["wait"].tolist(), gaps["count"].tolist(), strict=True):
        assert waited == (wait if CAUSES[cause] == "sync" else -1)
        assert count == 2 or CAUSES[cause] != "sync"
    assert host.idle()["sync"] == 200 + 170  # launches take 10 to arrive
    ((_, _, _, _, _, waits, events, _),) = account["steps"]
    assert (waits, events["runtime"], events["op"]) == (145, 4, 4)
    assert account["launch_median"] == 0.020  # 10, 20 and 20 ns


def test_what_the_host_does_while_it_is_late() -> None:
    host = Host(10_000)
    host.launch(0, 0, 0, 100)
    host.add("range", "_compile.compile_inner (dynamo_timed)", 200, 1000)
    host.add("overhead", "Activity Buffer Request", 300, 400)
    host.add("overhead", "Runtime Triggered Module Loading", 500, 600)
    host.add("range", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 900, 1200)
    host.call("cuModuleLoadData", 1300, 1400)
    host.call("cudaLibraryLoadData", 1500, 1600)
    host.add("range", "gloo:barrier", 1600, 1700)  # on a thread of its own, while the program waits for it
    host.add("range", "nccl:all_reduce", 1700, 1800)  # ends with its kernel: nobody waits in it
    host.launch(2000, 2000, 2000, 2100)
    host.add("overhead", "Activity Buffer Request", 2500, 2600)
    host.launch(1900, 1950, 2700, 2800)  # in time: what the profiler did delayed nothing
    known = {"recording": 100, "loading": 300, "compile": 800 - 200, "data": 200, "collective": 100}
    assert host.idle() == known | {"host": 100 + 500 + (10_000 - 2800), "other": 600}


def with_short_launches() -> Host:
    host = Host(20 * MS)
    for i in range(4):
        host.launch(1000 * i, 1000 * i + 100, 1000 * i + 100, 1000 * i + 200)
    return host


def test_a_first_launch_and_a_call_that_blocked_and_a_stream_that_waited() -> None:
    host = with_short_launches()
    host.launch(5000, 5000 + 5 * MS, 5000 + 5 * MS, 6 * MS, kernel="new")
    idle = host.idle()
    assert idle["first_launch"] == 5 * MS and "blocked" not in idle
    host = with_short_launches()
    host.launch(5000, 5000 + 5 * MS, 5000 + 5 * MS, 5100 + 5 * MS)
    host.call("cudaStreamWaitEvent", 5 * MS + 5000, 5 * MS + 5050)
    host.launch(5 * MS + 5050, 5 * MS + 5080, 7 * MS, 7 * MS + 100)
    host.call("cudaStreamWaitEvent", 7 * MS + 200, 7 * MS + 250)
    host.call("cudaEventDestroy", 7 * MS + 250, 7 * MS + 300)
    host.launch(7 * MS + 300, 7 * MS + 500, 8 * MS + 100, 8 * MS + 200)  # late, and then held up by the event
    idle = host.idle()
    assert idle["blocked"] == 5 * MS and "other" not in idle
    assert idle["stream_wait"] == 7 * MS - (5 * MS + 5100) + MS - 400


@pytest.mark.parametrize("changed", ["", "had waited", "ran before", "short", "another device", "cudaLaunchHostFunc"])
def test_a_stream_may_be_at_work_on_what_was_not_recorded(changed: str) -> None:
    host, begin = Host(10 * MS), 50_000 if changed == "short" else 5 * MS
    host.launch(50, 100, 100, 2000)
    host.call("cudaStreamSynchronize", 300, 400 if changed == "had waited" else 7 * MS)
    host.launch(300, 400, 400, 500, stream=8 if changed == "ran before" else 7)
    host.call(changed or "cudaEventRecord", 500, 510)
    host.call("cudaStreamWaitEvent", 550, 600)
    host.launch(600, 1000, begin, 6 * MS, stream=8)
    host.work("k", 7 * MS, 8 * MS, device=int(changed == "another device"))
    idle, cause = host.idle(), "stream_wait" if changed else "edges"
    assert idle[cause] == begin - 2000 and {"edges", "stream_wait"} & {*idle} == {cause}
    assert changed == "another device" or sum(idle.values()) == 9 * MS - (1900 + 6 * MS - begin)


def test_waits_are_cut_at_the_steps_of_the_host() -> None:
    host = Host(100)
    host.add("step", "ProfilerStep#1", 50, 200)  # overlaps: it begins at 100
    host.add("step", "ProfilerStep#2", 250, 300)
    host.work("k", 0, 10)
    host.op("op", 255, 260)
    host.add("sync", "wait", 80, 270)
    host.add("sync", "wait", 260, 280, thread=2)
    steps = host.account()["steps"]
    assert [step[3:6] for step in steps] == [(0, 100, 20), (100, 100, 100), (250, 50, 30)]
    assert [step[6]["sync"] for step in steps] == [1, 0, 1]
    assert steps[0][6]["step"] == 2, "the second began in the first"


def test_pairs_are_neighbours_on_a_stream() -> None:
    host = Host()
    owners = [host.op("a", 0, 10), host.op("b", 10, 20)]
    for at in (0, 100, 200):
        host.work("ka", at + 20, at + 30, launcher=owners[0])
        host.work("kb", at + 40, at + 50, launcher=owners[1])
        host.work("ka", at + 45, at + 60, launcher=owners[0], stream=8)
    columns, facts = host.core.accounting(True, 0, {})
    pairs = facts["accounting"]["pairs"]
    found: Counter[tuple[str, str]] = Counter()
    for before, after, count in zip(*(pairs[name].tolist() for name in ("before", "after", "count")), strict=True):
        found[columns["key"][before], columns["key"][after]] += count
    assert found == {("a", "b"): 3, ("b", "a"): 2, ("a", "a"): 2}


def test_without_a_device_the_ops_of_the_cpu_are_the_work() -> None:
    host = Host()
    host.op("add", 0, 40)
    host.add("range", "wait", 30, 100)
    host.op("DataLoader.next", 35, 95)
    host.op("mul", 110, 150)
    host.add("range", "wait", 160, 210)  # after the start of the last op
    assert host.calls("cpu", "wait") == [(30, 70, 60), (160, 50, 0)]


@pytest.mark.parametrize(
    ("begin", "end", "waited"),
    [
        *[(0, 50, True), (60, 61, True), (61, 40_249, False), (62, 40_250, True), (50_251, 79_999, False)],
        *[(50_252, 80_000, True), (55_000, 99_000, True), (90_001, 200_000, False)],
    ],
)
def test_a_call_waited_if_work_of_a_device_ended_within_it(begin: int, end: int, waited: bool) -> None:
    """Of work that ends at 60, 50,250 and 90,000, the last on another device; 10 µs later counts too."""
    host = Host()
    add = host.op("add", 0, 300_000)
    host.call("cudaStreamSynchronize", begin, end, add)
    host.call("cudaMalloc", 0, 300_000, add)
    host.add("range", "cudaStreamSynchronize", 0, 300_000, add)  # not an API call
    _core._append(host.core, "runtime", "cudaStreamSynchronize", 20, None, add)
    host.work("k", 20, 60, launcher=add)
    host.work("k", 215, 50_250, launcher=add)
    host.work("c", 70_000, 90_000, kind="memcpy", device=1, launcher=add)
    found = host.calls("waiting", "cudaStreamSynchronize")
    assert [(start, duration) for start, duration, _ in found] == [(begin, end - begin)] * waited
    assert host.calls("waiting", "add") == []


def test_what_has_no_work_has_no_account() -> None:
    host = Host()
    with pytest.raises(ValueError, match="no event has a time, so there is no window of time"):
        host.core.accounting(True, 0, {}, False, (), False, (0.0, 1.0))
    for _ in range(2):
        account = host.account()
        assert len(account["cells"]["step"]) == len(account["gaps"]["step"]) == 0
        assert math.isnan(account["launch_median"])
        host.add("range", "range", 0, 100)  # no op, no device
    assert len(account["steps"]) == 1

"""What advice gains by a replay of the steps, in programs whose answers follow from their times, in µs."""

from collections.abc import Callable
from functools import partial

import pytest
from helpers.advice_cases import check, savings
from helpers.hand_traces import Program

from flopscope.answers.analysis import analysis_of


class Clocked(Program):
    """A program of one thread and one stream, as they would run: work begins 6 µs after its launch, if that is free."""

    def __init__(self, step: Callable[["Clocked"], None], steps: int = 4) -> None:
        super().__init__()
        self.now = self.free = 0.0
        for number in range(steps):
            begin = self.now
            step(self)
            self.step(number, begin, self.now - begin)

    def launch(self, gap: float, time: float, name: str = "made::op", *shapes: list[int], **more: str) -> None:
        begin = max(self.now + gap + 6, self.free + 1)
        self.run(name, self.now + gap, begin, time, *shapes, **more)
        self.now, self.free = self.now + gap + 2, begin + time

    def wait(self, name: str) -> None:
        over = max(self.now + 5, self.free + 3)
        self.op(name, self.now + 1, over - self.now)
        self.call("cudaStreamSynchronize", self.now + 2, over - self.now - 2)
        self.now = over + 1


def products(of: Clocked, gap: float = 5) -> None:
    """Launch eight products of float32 that take 400 µs each, and would take 50 in TF32."""
    for _ in range(8):
        of.launch(gap, 400, "aten::mm", [2048, 2048], [2048, 2048], kernel="volta_sgemm_128x64_nn")


@pytest.mark.parametrize(("gap", "gained"), [(500, 0), (10, 8 * 350), (300, 8 * 99)])
def test_faster_kernels_gain_until_the_host_sets_the_pace(gap: float, gained: float) -> None:
    found = savings(check(Clocked(partial(products, gap=gap)).load()))
    assert found.get("tf32", 0.0) == pytest.approx(gained, rel=0.03)


@pytest.mark.parametrize(("drained", "gained"), [(700, 3210 - 700), (1200, 3210 - 1200)])
def test_steps_after_a_recording_tell_how_fast_the_host_is(drained: float, gained: float) -> None:
    """Recorded, the host sets the pace; bare steps take as long as the products, and say nothing of the host."""

    def step(of: Clocked) -> None:
        for _ in range(8):
            for number in range(20):
                of.op("aten::view", of.now + 20 * number, 10)
            of.launch(500, 400, "aten::mm", [2048, 2048], [2048, 2048], kernel="volta_sgemm_128x64_nn")

    program = Clocked(step)
    program.head["flopscopeRun"] = {"kind": "optimizer", "bare": 3210.0, "bare_steps": 100, "drained": drained}
    assert savings(check(program.load())).get("tf32", 0.0) == pytest.approx(gained, rel=0.03)


def test_idle_times_are_told_as_in_steps_that_nothing_recorded() -> None:
    program = Clocked(partial(products, gap=1000))
    stalls = [["k<1>", 80.0, "issues 7 %"], ["k", "wrong"]]
    program.head["flopscopeRun"] = {"kind": "optimizer", "bare": 4200.0, "bare_steps": 100, "stalls": stalls}
    trace = program.load()
    found = next(row for row in check(trace) if row.rule == "launch")
    assert "waits 1.00ms a step for the host" in found.what and found.evidence[0]["time"] == pytest.approx(1000, abs=10)
    assert "samples of their instructions\n  80 %  k<1>: issues 7 %\n" in str(trace.summary())
    (row,) = trace.summary().to_dict()["recording"]["stalls"]
    assert row == {"kernel": "k<1>", "share_pct": 80.0, "waits": "issues 7 %"}


@pytest.mark.parametrize(
    ("loader", "time", "silent"),
    [
        ("_MultiProcessingDataLoaderIter", 6000, True),
        ("_MultiProcessingDataLoaderIter", 300, False),  # to fetch a batch that is ready
        ("_SingleProcessDataLoaderIter", 6000, False),
    ],
)
def test_a_loader_with_workers_that_sets_the_pace_silences_all_else(loader: str, time: float, silent: bool) -> None:
    def step(of: Clocked) -> None:
        of.add("user_annotation", f"enumerate(DataLoader)#{loader}.__next__", of.now, time)
        of.now += time
        products(of)
        of.wait("aten::item")

    rules = set(savings(check(Clocked(step).load())))
    assert "data" in rules and (rules == {"data"}) == silent


@pytest.mark.parametrize("waits", [1, 2])
def test_a_wait_that_only_moves_to_the_next_one_gains_nothing(waits: int) -> None:
    """The host takes 300 µs after a wait, in which the device idles, unless another wait follows the first."""

    def step(of: Clocked) -> None:
        of.launch(5, 1000)
        for name in ("aten::item", "made::wait")[:waits]:
            of.wait(name)
        of.launch(300, 1000)

    gained = savings(check(Clocked(step).load())).get("sync", 0.0)
    assert gained == pytest.approx(300, rel=0.1) if waits == 1 else gained == 0


def test_a_graph_needs_the_waits_gone() -> None:
    """Six waits a step beside 30 launches that come late, which take 936 µs of the device after each other."""

    def step(of: Clocked, *, waits: bool = True) -> None:
        for place in range(36):
            of.launch(30, 100 if place < 6 else 10)
            if waits and place < 6:
                of.wait("aten::item")

    waiting, without = Clocked(step).load(), Clocked(partial(step, waits=False)).load()
    now, then = (analysis_of(one, "advice").unobserved for one in (waiting, without))
    sync, launch = check(waiting)
    assert (sync.rule, launch.rule) == ("sync", "launch")
    assert sync.saving_us == sync.saving_alone_us == pytest.approx(now - then, rel=0.03)
    assert 0 < launch.saving_us <= then - 930 and launch.saving_alone_us == 0

"""Which marks are steps, which steps the means are of, and what recording them cost, beside times that are known."""

import importlib.util
import random
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from helpers.advice_cases import PAIRS, TRACES, recorded
from helpers.graph_programs import Capture, Replay
from helpers.graph_programs import step as captured_step
from helpers.hand_traces import Program, in_a_row, rewritten
from helpers.run_programs import run, script

import flopscope as fs
from flopscope.answers.analysis import analysis_of
from flopscope.answers.notes import step_notes
from flopscope.answers.pieces import first_apart
from flopscope.ranks.digest import digest_of

LENGTH = 1000


def loop(lengths: list[int], idle: int = 500) -> Program:
    """Return a program whose steps take these µs: an op in each, whose kernel begins after ``idle`` and ends last."""
    program, at = Program(), 0
    for number, length in enumerate(lengths):
        program.step(number, at, length)
        program.run("made::op", at + idle, at + idle + 10, length - idle - 10, [8])
        at += length
    return program


def names(*numbers: int) -> list[str]:
    return [f"ProfilerStep#{number}" for number in numbers]


def steps_of(trace: fs.Trace) -> list[Any]:
    return [step for step in trace.accounting()["step"] if isinstance(step, str)]


# Marks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("category", ["Operator", "operator", "cpu_op", "user_annotation"])
def test_marks_of_old_traces_are_steps(category: str) -> None:
    program = loop([LENGTH] * 3)
    for event in program.events:
        if event["name"].startswith("ProfilerStep"):
            event["cat"] = category
    trace = program.load()
    assert steps_of(trace) == names(0, 1, 2)
    assert {event.kind for event in trace.events() if event.name.startswith("ProfilerStep")} == {"step"}
    for event in program.events:
        event["name"] = re.sub("^ProfilerStep#.*", "ProfilerStep*", event["name"])
    assert steps_of(program.load()) == ["ProfilerStep*"] * 3


EMPTY = {
    "nothing": lambda program, at: None,
    "calls that launch nothing": lambda program, at: program.call("cudaDeviceSynchronize", at + 1, 100),
    "the end of a DataLoader": lambda program, at: program.add(
        "user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 1, 100
    ),
    "Python": lambda program, at: program.add("python_function", "train.py(3): save", at + 1, 100),
}
FULL = {
    "an op": lambda program, at: program.op("aten::item", at + 1, 5),
    "work": lambda program, at: (
        program.call("cudaLaunchKernel", at + 1, 2, correlation=99),
        program.work("kernel", at + 20, 50, correlation=99),
    ),
    "declared work": lambda program, at: program.add("user_annotation", "numpy", at + 1, 5, flops=1e9),
}


def with_last(fill: Any) -> Program:
    program = loop([LENGTH] * 6)
    program.step(6, 6 * LENGTH, 300)
    fill(program, 6 * LENGTH)
    return program


@pytest.mark.parametrize("fill", EMPTY.values(), ids=EMPTY)
def test_a_last_mark_without_work_is_no_step(fill: Any) -> None:
    trace = with_last(fill).load()
    frame = trace.accounting()
    assert steps_of(trace) == names(*range(6))
    assert frame["total"].tolist() == [LENGTH] * 6 + [6 * LENGTH], "its time lies outside of the steps"
    assert list(trace.step_breakdown()["step"]) == names(*range(6))
    grouped = trace.key_averages(group_by=["name", "step"]).to_pandas()
    assert set(grouped["step"].dropna()) == set(names(*range(6)))
    with pytest.raises(ValueError, match="6 steps"):
        trace.gpu_summary("ProfilerStep#6")
    assert digest_of(trace, "trace.json", 0).steps == 6 and fs.compare(trace, trace).time == (LENGTH, LENGTH)
    assert str(trace.summary()).startswith("1.00ms a step")
    savings = [[row.saving_us for row in one.advice()] for one in (trace, loop([LENGTH] * 6).load())]
    assert savings[0] == pytest.approx(savings[1])


@pytest.mark.parametrize("fill", FULL.values(), ids=FULL)
def test_a_last_mark_with_work_is_a_step(fill: Any) -> None:
    assert steps_of(with_last(fill).load()) == names(*range(7))


def test_a_first_mark_without_work_is_no_step_but_one_between_others_and_marks_alone_are() -> None:
    program = loop([LENGTH] * 3)
    program.step(100, -50, 50)
    assert steps_of(program.load()) == names(0, 1, 2)
    program = loop([LENGTH] * 3)
    program.events = [event for event in program.events if event["name"].startswith("Prof") or event["ts"] // 1000 != 1]
    assert list(program.load().step_breakdown()["step"]) == names(0, 1, 2)
    program.events = [event for event in program.events if event["name"].startswith("Prof")]
    program.run("made::op", 4000, 4020, 10)
    assert list(program.load().step_breakdown()["step"]) == names(0, 1, 2)


TRAIN = """
import sys, torch, flopscope
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for i in range(6):
    loss = model(torch.rand(16, 64)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
TAIL = "with torch.no_grad():\n    print(loss.item(), [model(torch.rand(16, 64)).sum().item() for _ in range(20)])\n"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
@pytest.mark.parametrize("tail", ["", TAIL], ids=["nothing", "an evaluation"])
def test_six_steps_of_an_optimizer_are_six_steps(tail: str, tmp_path: Path) -> None:
    result = run(tmp_path, "--no-report", "--trace", "t.json", script(tmp_path, TRAIN + tail))
    assert result.returncode == 0 and "ProfilerStep#5" in result.stderr and "ProfilerStep#6" not in result.stderr
    trace = fs.load_trace(tmp_path / "t.json")
    assert steps_of(trace) == names(*range(6))
    assert steps_of(rewritten(trace, tmp_path)) == names(*range(6))


def test_the_end_of_a_program_of_flopscope_is_no_step(tmp_path: Path) -> None:
    program = "import flopscope as fs\nx = fs.ones((9,), device='cpu')\n"
    program += "for i in range(3):\n    fs.exp(x)\n    fs.step()\nfs.sin(x)\n"
    result = run(tmp_path, "--no-report", "--steps", "0:", "--trace", "t.json", script(tmp_path, program))
    assert "ProfilerStep#2" in result.stderr and "ProfilerStep#3" not in result.stderr
    assert steps_of(fs.load_trace(tmp_path / "t.json")) == names(0, 1, 2)


def test_hostile_names_of_unfinished_steps_are_ignored() -> None:
    for value in (3, ["\ud800", 7, None, "ProfilerStep#9"], {"a": 1}):
        program = loop([LENGTH] * 3)
        program.head["unfinishedSteps"] = value
        assert steps_of(program.load()) == names(0, 1, 2)


# Means ----------------------------------------------------------------------------------------------------------------


def test_a_long_first_step_is_left_out_of_the_means() -> None:
    trace, alike = loop([12_000] + [LENGTH] * 5).load(), loop([LENGTH] * 5).load()
    frame = trace.accounting()
    assert frame["total"].tolist() == [12_000] + [LENGTH] * 5 + [17_000], "each step is listed; the whole is their sum"
    wanted = [(row.rule, pytest.approx(row.saving_us)) for row in alike.advice()]
    assert [(row.rule, row.saving_us) for row in trace.advice()] == wanted
    text = str(trace.summary())
    assert text.startswith("1.00ms a step (mean of 5 of 6 steps)") and "mean of the last 5" in text
    (note,) = (note for note in trace.advice().notes if "means of" in note)
    assert note.startswith("Times of a step are means of 5 steps: ProfilerStep#0 took 12 times as long")
    analysis = analysis_of(trace, "means")
    assert (analysis.total, analysis.step_count) == (LENGTH, 6)
    assert analysis.recording == pytest.approx(analysis_of(alike, "means").recording)
    (op,) = analysis.ops
    assert (op.count, op.calls, op.time) == (1, 1, pytest.approx(490))
    after = trace.what_if(rule="launch")
    assert len(after) == 7 and after["total"].iloc[-1] == pytest.approx(after["total"].iloc[:-1].sum())


def test_ops_of_the_first_step_alone_have_no_part_in_the_means() -> None:
    program = loop([12_000] + [LENGTH] * 5)
    program.run("made::setup", 600, 620, 100, [4])
    trace = program.load()
    assert [op.key for op in analysis_of(trace, "means").ops] == ["made::op"]
    assert trace.what_if(peaks={"memory": 1e12})["total"].iloc[0] == pytest.approx(12_000, abs=10)
    setup = trace.what_if(rule="launch").iloc[0]
    assert setup["unmodelled"] + setup["latency"] + setup["memory"] + setup["launch"] + setup["ideal"] == 11_490


def test_many_first_steps_are_looked_at_once() -> None:
    """As by the definition, for each count alone."""
    draw = random.Random(1)
    for _ in range(2000):
        times = [draw.choice([0, 1, 1.4, 3, 5, 9, 80, 300]) * 1.6 ** (8 - i) for i in range(draw.randrange(30))]
        apart = [
            count
            for count in range(1, len(times) // 3 + 1)
            if median(times[count:]) > 0
            and min(times[:count]) > max(3 * median(times[count:]), 1.5 * max(times[count:]))
        ]
        assert first_apart(times) == max(apart, default=0), times


@pytest.mark.parametrize(
    ("times", "noted"),
    [
        ([1, 1, 1, 9, 1, 1, 1, 9], False),  # each fourth step
        ([9, 1, 1, 1, 9, 1, 1, 1, 9], False), ([1, 1, 9, 1, 1, 1, 1, 1, 9, 1], True),
        ([9, 1, 1, 1, 1, 1, 1, 9], True),  # the first and the last
        ([1, 1, 1, 1, 9, 1, 1], True), ([1, 2, 1, 2, 1, 2], False),
    ],
)  # fmt: skip
def test_long_steps_that_recur_regularly_are_no_outliers(times: list[float], noted: bool) -> None:
    notes = list(step_notes([f"step {i}" for i in range(len(times))], times))
    assert bool(notes) == noted
    if noted:
        assert f"step {times.index(9)} (9.00us)" in notes[0] and "median step takes 1.00us" in notes[0]


def test_steps_that_alternate_are_means_of_all() -> None:
    trace = loop([3000, 600] * 3).load()
    assert str(trace.summary()).startswith("1.80ms a step")
    assert not [note for note in trace.advice().notes if "means" in note]


# What recording cost --------------------------------------------------------------------------------------------------


def test_the_trace_of_a_capture_does_not_change_what_recording_cost(tmp_path: Path) -> None:
    replay = Replay()
    for number in range(3):
        replay.step(number, 100 * number, 100)
        replay.op("made::op", 100 * number + 5, 5)
        replay.replay(100 * number + 40, "gemm_a", "relu_kernel", "gemm_b")
    path = tmp_path / "capture.json"
    path.write_bytes(captured_step(Capture()).text())
    alone, joined = fs.load_trace(replay.text()), fs.load_trace(replay.text(), captures=path)
    assert {row.key for row in joined.key_averages()} > {"aten::mm", "aten::relu"}
    costs = [analysis_of(trace, "cost").recording for trace in (alone, joined)]
    assert costs[0] == costs[1] and costs[0].host == pytest.approx((3.2 + 2.0) * 5 / 8.5), "an op and a call"


SHORTEST = 1.0
"""ms: of shorter steps, what a step costs the profiler is a large part, which is not estimated."""
HOST_BOUND = 0.2
"""Share of the step for which the device of a host-bound program waits for the host."""


def measured_ms(name: str) -> float:
    program, when = name.rsplit("_", 1)
    return float(PAIRS[program][f"{when}_ms"])


@pytest.mark.parametrize("name", TRACES)
def test_the_delay_is_at_most_the_idle_time(name: str) -> None:
    analysis = analysis_of(recorded(name), "cost")
    assert 0 <= analysis.recording.delay <= analysis.idle("host", "sync") + 1e-6
    assert analysis.recording.delay <= analysis.recording.host


@pytest.mark.parametrize("name", [name for name in TRACES if measured_ms(name) >= SHORTEST])
def test_steps_of_host_bound_programs_are_estimated_without_recording(name: str) -> None:
    analysis = analysis_of(recorded(name), "cost")
    if analysis.idle("host", "sync") < HOST_BOUND * analysis.total:
        return
    assert analysis.unobserved == pytest.approx(1000 * measured_ms(name), rel=0.45)


@pytest.mark.parametrize("shapes", [False, True])
def test_a_hand_made_trace_costs_what_its_events_cost(shapes: bool) -> None:
    """A step of two ops and two calls, on a host that launches in 1 µs: as fast as hosts are assumed to be at most."""
    size = [[8]] if shapes else []
    program = in_a_row(("made::a", 10.0, size), ("made::b", 10.0, size), host=30)
    recording = analysis_of(program.load(), "cost").recording
    assert recording.host == pytest.approx(0.3 * (2 * (3.2 + 0.3 * shapes) + 2 * 2.0))
    assert recording.delay == recording.host  # of 10 µs without work


def test_recording_of_a_cpu_program_by_flopscope_delays_nothing() -> None:
    x = fs.ones((8,))
    with fs.profile() as prof:
        for _ in range(20):
            fs.sin(x)
    analysis = analysis_of(prof, "cost", "none")
    assert analysis.recording.delay == 0 and analysis.unobserved == analysis.total


# Work from before the recording ---------------------------------------------------------------------------------------


def queued(after: float | None = None) -> Program:
    """Two steps of 100 µs whose first begins while kernels of the step before it still run, for 40 µs."""
    program = Program()
    for number in range(2):
        program.step(number, 100 * number, 100)
        program.run("made::op", 100 * number + 5, 100 * number + 45, 50)
    program.work("from_before", -5, 25)
    program.work("from_before", 20, 20)
    if after is not None:
        program.work("from_before", after, 1)
    return program


def test_the_first_step_begins_when_work_from_before_the_recording_ends() -> None:
    frame = queued().load().accounting()
    assert frame["total"].tolist() == [60, 100, 160] and frame["unmodelled"].tolist() == [50, 50, 100]
    # Launches of a kind that is not recorded are no work from before.
    assert queued(after=96).load().accounting()["total"].tolist() == [100, 100, 200]

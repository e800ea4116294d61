"""The premises of the rule about launches and pauses: each fails by one fact of a hand-written program."""

import pytest
from helpers.advice_cases import check, only, savings, told
from helpers.faulty_programs import generating, late, piecewise
from helpers.hand_traces import Program

from flopscope.answers.analysis import Analysis
from flopscope.show.advice import AdviceTable


def test_launches_are_counted_and_not_gaps() -> None:
    row = only(piecewise(8), "launch")
    assert row.facts["launches"] == pytest.approx(8) and row.facts["late"] == 100
    assert "8 launches a step, 100.0% of them late" in row.what and "CUDA graph" in row.what
    assert {entry["op"]: entry["calls"] for entry in row.evidence} == {"made::op": 7, "made::first": 1}


def in_time() -> Program:
    """Return a program whose launches come before the kernel in front has ended."""
    program = piecewise()
    for event in program.events:
        if event["name"] in ("made::op", "cudaLaunchKernel"):
            event["ts"] -= 45
    return program


def two_steps() -> Program:
    """Return a program of 16 launches."""
    program = piecewise(8)
    program.events = [event for event in program.events if event["ts"] < 50 * 9 * 2]
    return program


def with_a_graph() -> Program:
    program = piecewise(12)
    program.call("cudaGraphLaunch", 100, 2)
    return program


@pytest.mark.parametrize(
    "program",
    [
        *(piecewise(count, graph=True) for count in (8, 40)),  # a graph of many kernels is one launch
        *(piecewise(count) for count in (2, 5)),  # a handful needs no graph
        piecewise(calls=False),  # launches that were not recorded are not judged
        *(in_time(), two_steps(), with_a_graph()),
    ],
)
def test_these_launches_need_no_graph(program: Program) -> None:
    assert not told(program, "launch")


def test_graphs_are_for_the_accelerators_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, named in (("mtia", False), ("hip", True), ("cuda", True)):
        monkeypatch.setattr(Analysis, "accelerator", name, raising=False)
        assert bool(told(piecewise(), "launch")) == named


def pause(name: str, length: float) -> Program:
    program = late()
    for at in (0, 2000):
        program.op(name, at + 520, 5)
        program.op(name, at + 530, length)
    for event in program.events:  # idle for 900 µs in each of two late launches; 2 ms are too long for launching
        if event["ts"] % 2000 >= 1390 and event["name"] not in ("ProfilerStep#0", "ProfilerStep#1"):
            event["ts"] += 600
    for event in program.events:
        if event["ts"] >= 2000:
            event["ts"] += 1000
        if event["name"].startswith("ProfilerStep"):
            event["dur"] = 2990
    return program


def test_other_work_of_the_host_is_told_by_what_was_recorded() -> None:
    row = only(pause("made::tokenize", 1000), "launch")
    assert "the host was in made::tokenize for 972us of it" in row.what and "DataLoader" not in row.what
    assert row.evidence[0]["op"] == "made::tokenize" and row.saving_us <= 0.95 * 972.5


def test_what_the_host_did_unrecorded_is_only_noted() -> None:
    advice = check(pause("made::tokenize", 5).load())
    assert "launch" not in savings(advice)
    (note,) = [note for note in advice.notes if "long pauses" in note]
    assert "was not recorded (with_stack=True records it)" in note


def test_the_evidence_of_launches_is_the_time_that_launching_explains() -> None:
    """The long pauses before made::op are no launches, so their time is in no row."""
    program = Program()
    for number in range(3):
        at = 20_000 * number
        program.step(number, at, 19_990)
        for place in range(30):
            begin = at + 60 + 50 * place + (5000 if place > 20 else 0)
            program.run("made::op" if place == 21 else f"made::{place}", begin - 5, begin, 10)
    (row,) = (row for row in told(program, "launch") if "launches" in row.facts)
    assert sum(entry["time"] for entry in row.evidence) <= row.facts["idle"] * (1 + 1e-9)
    assert "those for which the device waited" in row.what
    assert row.facts["late"] == program.load()._core.launch_summary()["launch_bound_pct"][0]


@pytest.mark.parametrize(("kernels", "named"), [(3, True), (40, False)])
def test_a_first_pass_is_not_judged(kernels: int, named: bool) -> None:
    program = Program()
    for place in range(40):
        at = 50 * place
        program.run("made::op", at, at + 5, 10, kernel=f"kernel_{place % kernels}")
    advice = check(program.load())
    assert ("launch" in savings(advice)) == named
    assert any("ran for the first time" in note for note in advice.notes) != named


def test_the_end_of_a_long_place_is_shown() -> None:
    row = only(pause("made::tokenize", 1000), "launch")._replace(where="/" + 40 * "folder/" + "train.py(12): main")
    (line,) = [one for one in AdviceTable([row], False, []).lines(98) if one.startswith("     at ")]
    assert line.endswith("train.py(12): main") and len(line) <= 98


def test_only_work_in_the_pauses_themselves_is_told() -> None:
    program = pause("made::tokenize", 1000)
    program.events = [
        {**e, "name": "enumerate(DataPipe)#x"} if e["name"] == "made::tokenize" else e for e in program.events
    ]
    text = str(check(program.load()))
    assert "tokenize" not in text and "the host was in enumerate" not in text


def frames(name: str, encloses: bool) -> Program:
    """Return a program whose pauses lie in a call of Python, which may enclose the launch after it."""
    program = pause("made::pad", 1)
    for at in (0, 3000):
        program.add("python_function", name, at + 525, 1480 if encloses else 1400)
    return program


def test_a_line_that_launches_stays_on_its_thread() -> None:
    name = "train.py(7): prepare"
    assert name in only(frames(name, False), "launch").what
    program = frames(name, True)
    assert not told(program, "launch")
    (note,) = [note for note in check(program.load()).notes if "long pauses" in note]
    assert name in note and "not recorded" not in note


def test_addresses_are_not_shown() -> None:
    row = only(frames("<built-in method astype of numpy.ndarray object at 0x7f709c2f2010>", False), "launch")
    assert "<built-in method astype of numpy.ndarray object>" in row.what and "0x7f" not in str(row)


def test_nothing_is_said_of_what_was_not_recorded_where_lines_were() -> None:
    program = pause("made::tokenize", 5)
    program.add("python_function", "train.py(3): main", 1, 50)
    assert not [note for note in check(program.load()).notes if "long pauses" in note]


def sampled(*stack: str, length: float = 1400) -> Program:
    program = pause("made::tokenize", 5)
    for at in (540, 3540):
        program.sample(at, length, *stack)
    return program


def test_a_sampled_line_is_told() -> None:
    row = only(sampled("train.py(12): main", "json.py(7): loads"), "launch")
    assert "the host was in train.py:12 main (json.py loads) for" in row.what and row.evidence[0]["calls"] is None
    assert row.saving_us <= 0.95 * row.facts["covered"] and row.facts["covered"] == pytest.approx(1000, rel=0.1)
    assert "the host was in train.py:12 main for" in only(sampled("train.py(12): main"), "launch").what


@pytest.mark.parametrize(("line", "length"), [("a/torch/functional.py(7): linear", 1400), ("json.py(7): loads", 40)])
def test_lines_that_launch_are_not_told(line: str, length: float) -> None:
    advice = check(sampled("train.py(12): main", line, length=length).load())
    assert "launch" not in savings(advice) and not [note for note in advice.notes if "not recorded" in note]


def test_plans_take_what_others_do_not() -> None:
    row = only(generating(), "plan")
    assert (row.facts["took"], row.facts["usual"]) == (3004, 24) and "enable_cudnn_sdp(False)" in row.what
    assert row.saving_us == pytest.approx(row.facts["time"], rel=0.01) and row.facts["time"] <= 2980
    assert not [note for note in generating().load().advice().notes if "long pauses" in note]
    convolved = generating(name="aten::cudnn_convolution")
    for event in convolved.events:
        if dims := event["args"].get("Input Dims"):
            event["args"]["Input Dims"] = [[8, 64, dims[1][2], 9], [64, 64, 3, 3]]
    assert "Pad or crop inputs to a few sizes" in only(convolved, "plan").what

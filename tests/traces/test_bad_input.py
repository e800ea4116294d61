"""Traces in which the profiler took the whole time, of overlong durations, and those in which nothing is understood."""

import gzip
import json
from pathlib import Path

import pytest
from helpers.hand_traces import Json, Program, event, op, text_of

import flopscope as fs
from flopscope.answers.analysis import PARTS, analysis_of
from flopscope.answers.recording import Recording
from flopscope.cli.program import main
from flopscope.read.formats import NotATrace
from flopscope.show.advice import advise


def test_a_time_that_is_all_the_recordings_own_gets_no_advice() -> None:
    program = Program()
    for number in range(20):
        program.run("aten::add", 10 * number, 10 * number + 3, 2, [64, 64], [64, 64])
    trace = program.load()
    analysis = analysis_of(trace, "advice")
    for delay in (analysis.total, analysis.total * (1 + 1e-15)):
        analysis.__dict__ |= {"recording": Recording(delay, delay, 0.0), "unobserved": None}
        del analysis.__dict__["unobserved"]
        assert analysis.unobserved == 0 and not advise(analysis)
    text = str(trace.summary())
    assert "which is all of its time: its time without recording is unknown." in " ".join(text.split())
    assert "Nothing was found that saves" in text


def test_overlong_durations_add_up() -> None:
    """Sums of these, over steps and devices, have more than 64 bits."""
    program = Program(4)
    for number in range(3):
        program.step(number, 1e15 * number, 1e15)
        for device in range(4):
            program.work("k", 1e15 * number, 2.3e15, device=device)
    frame = program.load().accounting()
    for row in frame.to_dict("records"):
        assert min(row[part] for part in PARTS) >= 0
        assert sum(row[part] for part in PARTS) == pytest.approx(row["total"], rel=1e-9)
    assert frame.total.iloc[-1] == pytest.approx(frame.total.iloc[:-1].sum(), rel=1e-9)
    assert frame.total.iloc[-1] > 2**63 / 1000


# What is not understood -----------------------------------------------------------------------------------------------

X: Json = {"name": "x", "pid": 1, "tid": 1, "ts": 1}
PHASES: dict[str, tuple[list[Json], str]] = {
    "begin and end": ([{"ph": "B", **X}, {"ph": "E", **X}], r"2 events, none of them an op"),
    "asynchronous": ([{"ph": p, "cat": "resnet50", "id": 1, **X} for p in "bne"], r"3 events, none of them an op"),
    "a server's records": (
        [{"id": 1, "model_name": "resnet50", "timestamps": [{"name": "REQUEST_START", "ns": 5}]}],
        r"1 event, which is not an op",
    ),
    "another tracer's": ([event("v8", "x", 1, 1)], r"1 event, which is not an op"),
    "named": ([{"ph": "M", "name": "process_name", "pid": 1}, {"ph": "B", **X}], r"2 events, none of them an op"),
    "flows": ([{"ph": p, "cat": "c", "id": 1, "ts": 1} for p in "sf"], r"2 events, none of them an op"),
}


@pytest.mark.parametrize("kind", PHASES)
@pytest.mark.parametrize("form", ["array", "object", "cut", "packed"])
def test_a_trace_in_which_nothing_is_understood_is_refused(
    kind: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(PHASES[kind][0]).encode()
    made = {"array": text, "object": b'{"traceEvents":' + text + b"}", "cut": text[:-1], "packed": gzip.compress(text)}
    path = tmp_path / "named.json"
    path.write_bytes(made[form])
    with pytest.raises(NotATrace, match=rf"named\.json: not a trace that flopscope reads: {PHASES[kind][1]}"):
        fs.load_trace(path)
    for command in ("summary", "table", "report"):
        assert main([command, str(path)]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"flopscope {command}: ") and "not a trace that flopscope reads" in error


EMPTY = {
    "an array": [],
    "names": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}],
    "the span of the recording": [{"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 1, "dur": 9}],
    "an op that tables omit": [op("aten::is_leaf", 1, 1)],
    "an op without a time": [{"ph": "X", "cat": "cpu_op", "name": "aten::add"}],
    "counters": [{"ph": "C", "name": "c", "pid": 0, "ts": t, "args": {"c": 1}} for t in (1, 2)],
}
TORCH = [{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 7}]


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.filterwarnings("ignore:.*events were omitted")
def test_a_genuine_empty_trace_is_empty(kind: str) -> None:
    for head in ({}, {"schemaVersion": 1, "deviceProperties": []}):
        trace = fs.load_trace(text_of(*EMPTY[kind], **head))
        assert len(trace.key_averages()) == 0 and not trace.advice()


def test_torchs_trace_of_nothing_is_empty() -> None:
    head = {"schemaVersion": 1, "deviceProperties": [], "traceName": "trace.json"}
    text = text_of(*EMPTY["names"], *TORCH, **head)
    assert len(fs.load_trace(text)) == 0 and str(fs.load_trace(text).summary()) == "Nothing was recorded."
    with pytest.raises(NotATrace):
        fs.load_trace(json.dumps(TORCH).encode())

"""Small hostile traces: every answer of them adds up, and none is an exception.

Traces of microseconds, of one event, of devices without launches, of overlapping and overlong durations, in which the
profiler took the whole time, and texts in which nothing is understood.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import H200, Program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.answers.analysis import PARTS, analysis_of
from flopscope.answers.recording import Recording
from flopscope.answers.rules import RULES
from flopscope.cli.program import main
from flopscope.read.load import NotATrace
from flopscope.show.advice import advise

Json = dict[str, Any]
EXAMPLES = int(os.environ.get("FLOPSCOPE_TEST_EXAMPLES", "150"))
LONGEST = 2.3e15  # µs that are still read as a time; more is none
NAMES = {
    "cpu_op": ("aten::mm", "aten::add", "aten::copy_", "aten::item", "mystery::op"),
    "user_annotation": ("ProfilerStep#1", "ProfilerStep#2", "nccl:all_reduce", "enumerate(DataLoader)#_Iter.__next__"),
    "cuda_runtime": ("cudaLaunchKernel", "cudaDeviceSynchronize", "cudaGraphLaunch", "cudaMemcpyAsync"),
    "overhead": ("Activity Buffer Request", "Buffer Flush", "Lazy Function Loading"),
    "kernel": ("k", "ncclDevKernel_AllReduce_Sum_f32", "ampere_sgemm_128x64_nn"),
    "gpu_memcpy": ("Memcpy HtoD (Pageable -> Device)", "Memcpy DtoD (Device -> Device)"),
    **{name: ("x",) for name in ("gpu_memset", "cuda_sync", "python_function", "gpu_user_annotation", "Trace")},
}
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync")
times = st.one_of(
    st.integers(0, 40).map(float),
    st.sampled_from([0.001, 0.5, 100.0, 1e6, LONGEST, LONGEST / 2, 1.8446744073709552e16, -5.0]),
)


@st.composite
def events(draw: st.DrawFn) -> Json:
    cat = draw(st.sampled_from([*NAMES, "kernel", "kernel", "cpu_op"]))
    args: Json = {"correlation": draw(st.integers(1, 3))}
    if cat in ON_DEVICE:
        args |= {"device": draw(st.sampled_from([0, 0, 0, 1, 127])), "stream": draw(st.integers(7, 8))}
    if cat == "gpu_memcpy":
        args["bytes"] = draw(st.sampled_from([0, 1, 10**12]))
    if cat == "cpu_op" and draw(st.booleans()):
        args |= {"Input Dims": [[4, 4], [4, 4]], "Input type": ["float", "float"], "External id": 1}
    place = {"pid": args.get("device", 1), "tid": draw(st.sampled_from([1, 2]))}
    event = {"ph": "X", "cat": cat, "name": draw(st.sampled_from(NAMES[cat])), **place, "args": args}
    event["ts"] = draw(times)
    if draw(st.integers(0, 19)):
        event["dur"] = draw(times)
    return event


texts = st.builds(
    lambda known, listed: json.dumps(
        {"schemaVersion": 1, "traceEvents": listed} | ({"deviceProperties": [{"id": 0, **H200}]} if known else {})
    ).encode(),
    st.booleans(),
    st.lists(events(), min_size=1, max_size=7),
)


def loaded(text: bytes) -> fs.Trace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fs.load_trace(text)


def check_accounting(rows: list[Json]) -> None:
    for row in rows:
        assert all(row[part] >= 0 for part in PARTS), row
        assert sum(row[part] for part in PARTS) == pytest.approx(row["total"], rel=1e-9, abs=1e-6)
    if rows:
        ways = [row for row in rows if isinstance(row["step"], str)] or rows[:-1] or rows
        assert rows[-1]["total"] == pytest.approx(sum(row["total"] for row in ways), rel=1e-9, abs=1e-6)


def quietly(call: Any) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        call()
    return printed.getvalue()


relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@settings(relaxed, max_examples=EXAMPLES)
@given(texts)
def test_every_answer_adds_up(text: bytes) -> None:
    trace = loaded(text)
    check_accounting(trace.accounting().to_dict("records"))
    check_accounting(trace.what_if().to_dict("records"))
    advice, left = trace.advice(), analysis_of(trace, "advice").unobserved
    assert sum(row.saving_us for row in advice) <= left * (1 + 1e-9)
    assert all(0 <= row.saving_pct <= 100 * (1 + 1e-9) for row in advice)
    quietly(trace.summary)
    for view in (
        advice,
        trace.key_averages(kernels=True),
        fs.compare(trace, trace),
        trace.key_averages().by_category(),
    ):
        assert isinstance(str(view), str) and view._repr_html_()
    assert trace._repr_html_()
    for frame in (
        trace.gpu_summary,
        trace.step_breakdown,
        trace.launch_summary,
        trace.stream_summary,
        trace.collectives,
    ):
        frame()
    for rule in RULES:
        check_accounting(trace.what_if(rule=rule).to_dict("records"))


@settings(relaxed, max_examples=30)
@given(texts, texts)
def test_two_of_them_are_compared(a: bytes, b: bytes) -> None:
    for kind in ("op", "kernel"):
        comparison = fs.compare(loaded(a), loaded(b), kind=kind)  # type: ignore[arg-type]
        assert str(comparison) and comparison._repr_html_()


@settings(relaxed, max_examples=15)
@given(texts)
@pytest.mark.filterwarnings("ignore")
def test_the_command_line_prints_them(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    page, table = str(tmp_path / "page.html"), str(tmp_path / "table.json")
    for command in (["summary", str(path)], ["table", str(path), "--steps", "--json", table]):
        assert quietly(lambda: main(command)) and main([*command[:2]]) == 0  # noqa: B023
    assert main(["report", str(path), "-o", page]) == 0 and main(["compare", str(path), str(path)]) == 0
    assert "NaN" not in Path(table).read_text()


# A profile of the profiler --------------------------------------------------------------------------------------------


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
            program.work("k", 1e15 * number, LONGEST, device=device)
    frame = program.load().accounting()
    check_accounting(frame.to_dict("records"))
    assert frame.total.iloc[-1] > 2**63 / 1000


# What is not understood -----------------------------------------------------------------------------------------------

PHASES = {
    "begin and end": [{"ph": "B", "name": "x", "pid": 1, "tid": 1, "ts": 1}, {"ph": "E", "pid": 1, "tid": 1, "ts": 2}],
    "asynchronous": [
        {"ph": p, "cat": "resnet50", "name": "x", "id": 1, "pid": 1, "ts": t} for t, p in enumerate("bne")
    ],
    "a server's records": [{"id": 1, "model_name": "resnet50", "timestamps": [{"name": "REQUEST_START", "ns": 5}]}],
    "another tracer's": [{"ph": "X", "cat": "v8", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1}],
    "named": [{"ph": "M", "name": "process_name", "pid": 1}, {"ph": "B", "name": "x", "pid": 1, "tid": 1, "ts": 1}],
    "flows": [{"ph": "s", "cat": "c", "id": 1, "ts": 1}, {"ph": "f", "cat": "c", "id": 1, "ts": 2}],
}
KINDS = {
    "begin and end": r'2 events, none of them .*\(phases "B", "E"\)',
    "asynchronous": r'3 events, none of them .*\(phases "b", "n", "e"; category "resnet50"\)',
    "a server's records": r'1 event, which is not .*\(without a member "ph"\)',
    "another tracer's": r'1 event, which is not .*\(phase "X"; category "v8"\)',
    "named": r'2 events, none of them .*\(phases "M", "B"\)',
    "flows": r'2 events, none of them .*\(phases "s", "f"; category "c"\)',
}


@pytest.mark.parametrize("kind", PHASES)
@pytest.mark.parametrize("form", ["array", "object", "cut", "packed"])
def test_a_trace_in_which_nothing_is_understood_is_refused(
    kind: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps(PHASES[kind]).encode()
    made = {"array": text, "object": b'{"traceEvents":' + text + b"}", "cut": text[:-1], "packed": gzip.compress(text)}
    path = tmp_path / "named.json"
    path.write_bytes(made[form])
    with pytest.raises(NotATrace, match=rf"named\.json: not a trace that flopscope reads: {KINDS[kind]}"):
        fs.load_trace(path)
    for command in ("summary", "table", "report"):
        assert main([command, str(path)]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"flopscope {command}: ") and "not a trace that flopscope reads" in error


EMPTY = {
    "an array": [],
    "names": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}],
    "the span of the recording": [{"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 1, "dur": 9}],
    "an op that tables omit": [{"ph": "X", "cat": "cpu_op", "name": "aten::is_leaf", "ts": 1, "dur": 1}],
    "an op without a time": [{"ph": "X", "cat": "cpu_op", "name": "aten::add"}],
    "counters": [{"ph": "C", "name": "c", "pid": 0, "ts": t, "args": {"c": 1}} for t in (1, 2)],
}
TORCH = [{"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 7}]


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.filterwarnings("ignore:.*events were omitted")
def test_a_genuine_empty_trace_is_empty(kind: str) -> None:
    for head in ({}, {"schemaVersion": 1, "deviceProperties": []}):
        trace = fs.load_trace(json.dumps({**head, "traceEvents": EMPTY[kind]}).encode())
        assert len(trace.key_averages()) == 0 and not trace.advice()


def test_torchs_trace_of_nothing_is_empty() -> None:
    head = {"schemaVersion": 1, "deviceProperties": [], "traceName": "trace.json"}
    text = json.dumps({**head, "traceEvents": [*EMPTY["names"], *TORCH]}).encode()
    assert len(fs.load_trace(text)) == 0 and str(fs.load_trace(text).summary()) == "Nothing was recorded."
    with pytest.raises(NotATrace):
        fs.load_trace(json.dumps(TORCH).encode())


def test_ranks_count_what_is_not_a_trace(tmp_path: Path) -> None:
    program = Program()
    program.step(0, 0, 40)
    program.run("aten::add", 1, 5, 20, [64, 64], [64, 64])
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(program.text())
    (tmp_path / "rank2.json").write_text(json.dumps(PHASES["asynchronous"]))
    with pytest.warns(
        UserWarning, match=r"1 file is left out of 3: rank2\.json \(not a trace that flopscope reads: 3 ev"
    ):
        ranks = fs.load_ranks([str(tmp_path / f"rank{rank}.json") for rank in range(3)])
    (left_out,) = ranks.files[ranks.files.source.str.endswith("rank2.json")].problem
    assert left_out.startswith("not a trace that flopscope reads: 3 events, none of them")

"""Every tool of flopscope mcp, against what the Python interface answers; wrong, large and random arguments."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.mcp import Session, session
from helpers.recordings import FAULTS

import flopscope as fs
from flopscope.cli.program import main
from flopscope.cli.schema import schema

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

jsonschema = pytest.importorskip("jsonschema")

BEFORE, AFTER = "vocab_before.json.gz", "vocab_after.json.gz"
STEPS = "small_before.json.gz"
"""A recording of three steps."""
TOOLS = ["open", "summary", "advice", "accounting", "what_if", "rows", "explain", "compare", "ranks"]


@pytest.fixture(scope="module")
def server() -> Iterator[Session]:
    with session(FAULTS) as one:
        yield one


@pytest.fixture(scope="module")
def trace() -> fs.Trace:
    return fs.load_trace(FAULTS / BEFORE)


def test_the_tools_are_listed_with_schemas_and_lessons(server: Session) -> None:
    tools = server.tools()
    assert [tool.name for tool in tools] == TOOLS
    for tool in tools:
        assert len(tool.description) > 80 and tool.annotations.read_only_hint
        for one in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(one)
            assert one["type"] == "object"
        assert all(one["description"] for one in tool.input_schema["properties"].values())
        assert tool.input_schema["additionalProperties"] is False
    assert str(FAULTS) in server.client.instructions and "Unknown tool" in server.refused("try", script=sys.argv[0])


def require_valid(found: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema(found["format"].removeprefix("flopscope."))).validate(found)


def test_open_lists_traces_and_says_what_was_recorded(server: Session, trace: fs.Trace) -> None:
    files = {one["file"]: one["size_bytes"] for one in server.call("open")["files"]}
    assert files == {one.name: one.stat().st_size for one in FAULTS.iterdir() if one.name.endswith((".json", ".gz"))}
    facts = server.call("open", path=BEFORE)["trace"]
    assert facts["events"] == len(trace.events()) and facts["steps"] == 1 and facts["devices"] == ["NVIDIA H200"]
    assert {"shapes", "memory"} <= {*facts["recorded"]}
    facts = server.call("open", path=STEPS)["trace"]
    durations = sorted(fs.load_trace(FAULTS / STEPS).step_breakdown()["total"])
    assert facts["steps"] == 3 and facts["step_us"] == pytest.approx(durations[1])


def test_the_summary_is_that_of_the_trace(server: Session, trace: fs.Trace) -> None:
    assert "Pad the vocabulary" in server.text("summary", path=BEFORE)
    assert server.call("summary", path=BEFORE)["advice"] == trace.summary().to_dict()["advice"]


def test_rows_are_filtered_sorted_and_named_as_the_evidence(server: Session, trace: fs.Trace) -> None:
    found = server.call("rows", path=BEFORE, filter="MM", top=3)["rows"]
    frame = trace.key_averages(group_by="shape").to_pandas()
    longest = frame[(frame.device_type == "cpu") & frame.key.str.contains("mm")]
    longest = longest.sort_values("self_device_time_total", ascending=False).self_device_time_total[:3]
    assert [row["self_device_time_total_us"] for row in found] == pytest.approx(longest.tolist())
    evidence = server.call("advice", path=BEFORE)["advice"][0]["evidence"]
    assert {one["row"] for one in evidence} <= {row["id"] for row in found}
    by_count = server.call("rows", path=BEFORE, kind="kernel", sort_by="count", group_by="name", top=5)["rows"]
    counts = trace.key_averages().of_kind("kernel").to_pandas()["count"].sort_values(ascending=False)
    assert [row["count"] for row in by_count] == counts[:5].tolist()
    steps = server.call("rows", path=STEPS, group_by="name,step", filter="aten::cumsum", top=9)["rows"]
    assert {row["step"] for row in steps} == {"ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"}
    assert "No rows match" in server.text("rows", path=BEFORE, filter="no such op")


def test_the_ops_that_launched_a_kernel_are_found(server: Session, trace: fs.Trace) -> None:
    launched = [event for event in trace.events() if event.kind == "kernel" and event.launcher is not None]
    for name in {event.name for event in launched}:
        found = server.call("rows", path=BEFORE, kernel=name.upper(), group_by="name", top=200)["rows"]
        ops = {event.launcher.name for event in launched if name in event.name and event.launcher is not None}
        assert {row["key"] for row in found if row["device_type"] == "cpu"} == ops


def test_a_row_is_explained_with_its_kernels_and_its_advice(server: Session, trace: fs.Trace) -> None:
    first = trace.advice()[0]
    row = first.evidence[0]["row"]
    found = server.call("explain", path=BEFORE, row=row)
    assert found["row"]["id"] == row and found["advice"][0]["rule"] == first.rule
    assert found["op"]["time_us"] == pytest.approx(first.evidence[0]["time"]) and found["op"]["part"] == "compute"
    assert sum(one["time_us"] for one in found["kernels"]) == pytest.approx(found["row"]["self_device_time_total_us"])
    assert ("op", "aten::linear") in {(one["kind"], one["name"]) for one in found["around"]}
    assert trace.events()[found["op"]["event"]].name == "aten::mm"


def test_an_event_is_explained_with_what_launched_it(server: Session, trace: fs.Trace) -> None:
    kernel = next(event for event in trace.events() if event.kind == "kernel" and event.launcher is not None)
    found = server.call("explain", path=BEFORE, event=kernel.id)
    assert (found["event"]["name"], found["event"]["thread"]) == (kernel.name, kernel.thread)
    assert found["event"]["duration_us"] == pytest.approx(kernel.time_range.elapsed_us())
    assert kernel.launcher is not None and found["launcher"]["id"] == kernel.launcher.id
    op = server.call("explain", path=BEFORE, event=kernel.launcher.id)
    assert kernel.name in {one["name"] for one in op["kernels"]}


def test_the_accounting_of_chosen_steps_adds_up(server: Session) -> None:
    steps = ["ProfilerStep#2", "ProfilerStep#3"]
    *rows, whole = server.call("accounting", path=STEPS, steps=steps)["accounting"]
    frame = fs.load_trace(FAULTS / STEPS).accounting().set_index("step")
    assert [row["step"] for row in rows] == steps and whole["step"] is None
    for part in ("total", "ideal", "compute", "host"):
        assert whole[f"{part}_us"] == pytest.approx(frame.loc[steps, part].sum())
    mean = sum(frame.loc[step, "mfu"] * frame.loc[step, "total"] for step in steps) / frame.loc[steps, "total"].sum()
    assert whole["mfu_pct"] == pytest.approx(mean)
    every = server.call("accounting", path=STEPS, top=1)["accounting"]
    assert [row["step"] for row in every] == ["ProfilerStep#1", None]


def test_the_accounting_of_a_window_is_that_of_python(server: Session, trace: fs.Trace) -> None:
    begin, end = 1000.25, 5000
    found = server.call("accounting", path=BEFORE, begin_us=begin, end_us=end)
    (row,), expected = found["accounting"], trace.accounting(window=(begin, end)).to_dict("records")[-1]
    assert (found["begin_us"], found["end_us"], row["total_us"]) == (begin, end, end - begin)
    assert row["ideal_us"] == expected["ideal"] > 0 and row["mfu_pct"] == expected["mfu"]
    whole = server.call("accounting", path=BEFORE)
    assert whole["begin_us"] is None and "not a window" in whole["why"]["begin_us"]


def test_what_if_is_compared_with_no_change(server: Session, trace: fs.Trace) -> None:
    found = server.call("what_if", path=BEFORE, rules=["align"])
    require_valid(found)
    totals = [trace.what_if(**change).total.iloc[-1] for change in ({}, {"rule": ["align"]})]
    assert [found["before"]["total_us"], found["after"]["total_us"]] == pytest.approx(totals)
    assert found["saving_pct"] == pytest.approx(100 * (1 - totals[1] / totals[0])) and found["steps"] == 1
    both = server.call("what_if", path=BEFORE, device="NVIDIA B200", dtype="bfloat16")
    assert both["change"] == {"device": "NVIDIA B200", "dtype": "bfloat16"}


def test_compare_gives_the_changes_of_the_command(server: Session, tmp_path: Path) -> None:
    assert main(["compare", str(FAULTS / BEFORE), str(FAULTS / AFTER), "--json", str(tmp_path / "c.json")]) == 0
    expected = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    found = server.call("compare", a=BEFORE, b=AFTER, top=3)
    require_valid(found)
    assert found["changes"] == expected["changes"][:3] and found["rows"] == expected["rows"][:3]
    assert found["slowdown_pct"] == expected["slowdown_pct"] < -50 and found["files"] == [BEFORE, AFTER]


OTHERS = {
    "a program without a GPU": "tests/data/well_made/cpu_products.json.gz",
    "JAX, without shapes": "tests/data/jax/callback.json.gz",
    "Nsight Systems": "tests/data/captures/rtx3080.sqlite.gz",
    "XLA on a CPU": "tests/data/traces/jax_cpu.xplane.pb.gz",
    "Python stacks": "tests/data/traces/tutorial_naive_stack.json.gz",
}


@pytest.mark.parametrize("path", OTHERS.values(), ids=list(OTHERS))
def test_traces_of_all_kinds_are_answered(path: str) -> None:
    with session(ROOT) as server:
        for tool in ("open", "summary", "advice", "accounting", "rows"):
            require_valid(server.call(tool, path=path))
        rows = server.call("rows", path=path, kind="all", top=5)["rows"]
        assert rows
        for row in rows:
            found = server.call("explain", path=path, row=row["id"])
            require_valid(found)
            assert found["row"] == row
        totals = [row["total_us"] for row in server.call("accounting", path=path)["accounting"]]
        assert totals == pytest.approx(fs.load_trace(ROOT / path).accounting().total.tolist())


def test_ranks_are_compared() -> None:
    run = ROOT / "tests" / "data" / "run7"
    with session(run) as server:
        content = server.call("ranks", paths=["."], top=2)
        assert "2 of" in server.text("ranks", paths=["."], top=2)
    require_valid(content)
    expected = fs.load_ranks(run, workers=1).to_dict()
    assert content["findings"] == expected["findings"] and len(content["ranks"]) == 2 < len(expected["ranks"])


# Wrong, large and random arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tool, arguments, said",
    [
        ("open", {"path": 7}, "valid string"), ("open", {"path": "a\0b"}, "null byte"),
        ("open", {"path": "none.json"}, "there is no 'none.json'"),
        ("open", {"path": "vocab_befor.json.gz"}, "did you mean 'vocab_before.json.gz'"),
        ("open", {"path": "measured.json"}, "not a trace"), ("open", {"pth": "x"}, "pth"), ("summary", {}, "path"),
        ("summary", {"path": "."}, "is a folder"), ("rows", {"path": BEFORE, "top": 0}, "greater than or equal to 1"),
        ("rows", {"path": BEFORE, "kind": "opp"}, "'op', 'kernel', 'range' or 'all'"),
        ("rows", {"path": BEFORE, "group_by": "shap"}, "did you mean 'shape'"),
        ("rows", {"path": BEFORE, "group_by": "module"}, "no modules are recorded"),
        ("rows", {"path": BEFORE, "sort_by": "flopps"}, "cannot sort by"),
        ("rows", {"path": BEFORE, "top": 200, "kind": "all"}, "100,000 are sent. Ask for less by filter or top"),
        ("explain", {"path": BEFORE}, "name one of row and event"),
        ("explain", {"path": BEFORE, "row": "a", "event": 1}, "name one of row and event"),
        ("explain", {"path": BEFORE, "row": "aten::mn"}, "no row"),
        ("explain", {"path": BEFORE, "event": 10**9}, "there is no event"),
        ("what_if", {"path": BEFORE}, "name a change"), ("what_if", {"path": BEFORE, "rules": ["fusee"]}, "fuse"),
        ("what_if", {"path": BEFORE, "device": "NVIDIA H2000"}, "H2000"),
        ("what_if", {"path": BEFORE, "peaks": {"memory": "much"}}, "valid number"),
        ("compare", {"a": BEFORE, "b": "none"}, "there is no 'none'"), ("ranks", {"paths": []}, "at least one file"),
        ("accounting", {"path": STEPS, "steps": ["ProfilerStep2"]}, "did you mean 'ProfilerStep#2'"),
        ("accounting", {"path": BEFORE, "begin_us": 5}, "both limits"),
        ("accounting", {"path": BEFORE, "begin_us": 5, "end_us": 4}, "ends after it begins"),
        ("accounting", {"path": BEFORE, "begin_us": 0, "end_us": 1e308}, "lies in the recording, from 0 to"),
        ("accounting", {"path": BEFORE, "begin_us": 0, "end_us": 4, "steps": ["ProfilerStep#2"]}, "not both"),
    ],
)  # fmt: skip
def test_a_wrong_argument_says_what_to_do(server: Session, tool: str, arguments: dict[str, Any], said: str) -> None:
    assert said in server.refused(tool, **arguments)


def test_warnings_of_a_trace_precede_the_text(tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2},')
    with session(tmp_path) as server:
        first = server.text("open", path="cut.json")
        assert first.startswith("Warning: ") and "truncated" in first
        assert not server.text("open", path="cut.json").startswith("Warning: ")  # it stays open


TEXTS = (BEFORE, AFTER, "measured.json", ".", "..", "aten::mm", "fuse", "flops", "ProfilerStep#2", "a,b")
texts = st.sampled_from(TEXTS)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | texts
arguments = st.fixed_dictionaries(
    {"path": texts},
    optional={
        "top": st.integers(-1, 300), "row": scalars, "event": st.integers(-1, 10**6), "filter": st.text(max_size=4),
        "steps": st.lists(texts, max_size=2), "sort_by": scalars, "b": texts,
        "rules": st.lists(texts, max_size=2), "dtype": scalars, "host_us_per_launch": st.floats(), "begin_us": scalars,
        "peaks": st.dictionaries(texts, scalars, max_size=2), "group_by": st.sampled_from(("name", "step", "a,b")),
    },
)  # fmt: skip


@settings(max_examples=int(os.environ.get("FLOPSCOPE_TEST_EXAMPLES", "100")), deadline=None)
@given(st.sampled_from(TOOLS[:-1]), arguments)
def test_random_arguments_are_answered_or_refused(server: Session, tool: str, given_: dict[str, Any]) -> None:
    known = {one.name: {*one.input_schema["properties"]} for one in server.tools()}[tool]
    chosen = {name: value for name, value in given_.items() if name in known}
    chosen |= {"a": given_["path"]} if tool == "compare" else {}
    result = server.begin(tool, **chosen).result(timeout=60)
    assert result.is_error == (result.structured_content is None) and result.content[0].text
    assert "unexpected" not in result.content[0].text and result.content[0].text != f"Error executing tool {tool}"

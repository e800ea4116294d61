"""A session with every tool of flopscope mcp in a process of its own, against what the Python interface answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.mcp import Client, client

import flopscope as fs
from flopscope.cli.program import main
from flopscope.cli.schema import schema

jsonschema = pytest.importorskip("jsonschema")

FAULTS = ROOT / "benchmarks" / "results" / "nvidia-h200" / "faults"
BEFORE, AFTER = "vocab_before.json.gz", "vocab_after.json.gz"
TOOLS = ["open", "summary", "advice", "accounting", "what_if", "rows", "kernels", "explain", "compare", "ranks"]
CALLS: dict[str, dict[str, Any]] = {
    "open a folder": {},
    "open": {"path": BEFORE},
    "summary": {"path": BEFORE, "budget": 100},
    "advice": {"path": BEFORE},
    "accounting": {"path": BEFORE},
    "accounting of a window": {"path": BEFORE, "begin_us": 10, "end_us": 1500.5},
    "what_if": {"path": BEFORE, "rules": ["align"]},
    "rows": {"path": BEFORE, "filter": "MM", "top": 3},
    "kernels": {"path": BEFORE, "top": 4},
    "explain": {"path": BEFORE, "row": "aten::mm"},
    "explain an event": {"path": BEFORE, "event": 100},
    "compare": {"a": BEFORE, "b": AFTER, "top": 3},
}


@pytest.fixture(scope="module")
def server() -> Iterator[Client]:
    with client(str(FAULTS)) as one:
        yield one


@pytest.fixture(scope="module")
def trace() -> fs.Trace:
    return fs.load_trace(FAULTS / BEFORE)


def document(server: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = server.call(tool, **arguments)
    assert not result["isError"], result["content"][0]["text"]
    found: dict[str, Any] = result["structuredContent"]
    return found


def test_the_tools_are_listed_with_schemas_and_lessons(server: Client) -> None:
    tools = server.ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == TOOLS
    for tool in tools:
        assert len(tool["description"]) > 80 and tool["annotations"]["readOnlyHint"]
        for one in (tool["inputSchema"], tool["outputSchema"]):
            jsonschema.Draft202012Validator.check_schema(one)
            assert one["type"] == "object"
        assert all(one["description"] for one in tool["inputSchema"]["properties"].values())
    with client("--allow-try", str(FAULTS)) as allowed:
        (last,) = allowed.ask("tools/list")["result"]["tools"][len(TOOLS) :]
    assert last["name"] == "try" and not last["annotations"]["readOnlyHint"]


@pytest.mark.parametrize("name", CALLS)
def test_each_tool_answers_with_a_valid_document(server: Client, name: str) -> None:
    tool, arguments = name.split()[0], CALLS[name]
    tools = {one["name"]: one for one in server.ask("tools/list")["result"]["tools"]}
    jsonschema.Draft202012Validator(tools[tool]["inputSchema"]).validate(arguments)
    found = document(server, tool, **arguments)
    jsonschema.Draft202012Validator(tools[tool]["outputSchema"]).validate(found)
    jsonschema.Draft202012Validator(schema(found["format"].removeprefix("flopscope."))).validate(found)


def test_open_lists_traces_and_says_what_was_recorded(server: Client, trace: fs.Trace) -> None:
    files = {one["file"]: one["size_bytes"] for one in document(server, "open")["files"]}
    assert files == {one.name: one.stat().st_size for one in FAULTS.iterdir() if one.name.endswith((".json", ".gz"))}
    facts = document(server, "open", path=BEFORE)["trace"]
    assert facts["events"] == len(trace.events()) and facts["steps"] == 3 and facts["devices"] == ["NVIDIA H200"]
    assert {"shapes", "memory"} <= {*facts["recorded"]}
    durations = sorted(trace.step_breakdown()["total"])
    assert facts["step_us"] == pytest.approx(durations[1])


def test_the_summary_keeps_to_its_words(server: Client, trace: fs.Trace) -> None:
    result = server.call("summary", path=BEFORE, budget=100)
    text = result["content"][0]["text"]
    assert len(text.split()) <= 100 and "Pad the vocabulary" in text and "Left out" in text
    assert result["structuredContent"]["advice"] == trace.summary().to_dict()["advice"]


def test_rows_are_filtered_sorted_and_named_as_the_evidence(server: Client, trace: fs.Trace) -> None:
    found = document(server, "rows", path=BEFORE, filter="MM", top=3)["rows"]
    frame = trace.key_averages(group_by="shape").to_pandas()
    longest = frame[(frame.device_type == "cpu") & frame.key.str.contains("mm")]
    longest = longest.sort_values("self_device_time_total", ascending=False).self_device_time_total[:3]
    assert [row["self_device_time_total_us"] for row in found] == pytest.approx(longest.tolist())
    evidence = document(server, "advice", path=BEFORE)["advice"][0]["evidence"]
    assert {one["row"] for one in evidence} <= {row["id"] for row in found}
    by_count = document(server, "rows", path=BEFORE, kind="kernel", sort_by="count", group_by="name", top=5)["rows"]
    counts = trace.key_averages().of_kind("kernel").to_pandas()["count"].sort_values(ascending=False)
    assert [row["count"] for row in by_count] == counts[:5].tolist()
    steps = document(server, "rows", path=BEFORE, group_by="name,step", filter="aten::mm", top=9)["rows"]
    assert {row["step"] for row in steps} == {"ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"}
    assert "No rows match" in server.call("rows", path=BEFORE, filter="no such op")["content"][0]["text"]


def test_kernels_name_the_ops_that_launched_them(server: Client, trace: fs.Trace) -> None:
    events = trace.events()
    times: dict[str, float] = {}
    launchers: dict[str, set[str]] = {}
    for event in events:
        if event.kind in ("kernel", "memcpy", "memset"):
            times[event.name] = times.get(event.name, 0.0) + event.time_range.elapsed_us()
            if event.launcher is not None:
                launchers.setdefault(event.name, set()).add(event.launcher.name)
    found = document(server, "kernels", path=BEFORE, top=8)["kernels"]
    assert [one["name"] for one in found] == sorted(times, key=times.__getitem__, reverse=True)[:8]
    for one in found:
        assert one["time_us"] == pytest.approx(times[one["name"]])
        assert {op["op"] for op in one["ops"]} == launchers[one["name"]]
        assert sum(op["count"] for op in one["ops"]) + one["unowned"] == one["count"]


def test_a_row_is_explained_with_its_kernels_and_its_advice(server: Client, trace: fs.Trace) -> None:
    first = trace.advice()[0]
    row = first.evidence[0]["row"]
    found = document(server, "explain", path=BEFORE, row=row)
    assert found["row"]["id"] == row and found["advice"][0]["rule"] == first.rule
    assert found["op"]["time_us"] == pytest.approx(first.evidence[0]["time"]) and found["op"]["part"] == "compute"
    assert sum(one["time_us"] for one in found["kernels"]) == pytest.approx(found["row"]["self_device_time_total_us"])
    assert ("op", "aten::linear") in {(one["kind"], one["name"]) for one in found["around"]}
    assert trace.events()[found["op"]["event"]].name == "aten::mm"


def test_an_event_is_explained_with_what_launched_it(server: Client, trace: fs.Trace) -> None:
    kernel = next(event for event in trace.events() if event.kind == "kernel" and event.launcher is not None)
    found = document(server, "explain", path=BEFORE, event=kernel.id)
    assert (found["event"]["name"], found["event"]["thread"]) == (kernel.name, kernel.thread)
    assert found["event"]["duration_us"] == pytest.approx(kernel.time_range.elapsed_us())
    assert kernel.launcher is not None and found["launcher"]["id"] == kernel.launcher.id
    op = document(server, "explain", path=BEFORE, event=kernel.launcher.id)
    assert kernel.name in {one["name"] for one in op["kernels"]}


def test_the_accounting_of_chosen_steps_adds_up(server: Client, trace: fs.Trace) -> None:
    steps = ["ProfilerStep#2", "ProfilerStep#3"]
    *rows, whole = document(server, "accounting", path=BEFORE, steps=steps)["accounting"]
    frame = trace.accounting().set_index("step")
    assert [row["step"] for row in rows] == steps and whole["step"] is None
    for part in ("total", "ideal", "compute", "host"):
        assert whole[f"{part}_us"] == pytest.approx(frame.loc[steps, part].sum())
    mean = sum(frame.loc[step, "mfu"] * frame.loc[step, "total"] for step in steps) / frame.loc[steps, "total"].sum()
    assert whole["mfu_pct"] == pytest.approx(mean)
    every = document(server, "accounting", path=BEFORE, top=1)["accounting"]
    assert [row["step"] for row in every] == ["ProfilerStep#1", None]
    assert "did you mean 'ProfilerStep#2'" in server.refused("accounting", path=BEFORE, steps=["ProfilerStep2"])


def test_the_accounting_of_a_window_is_that_of_python(server: Client, trace: fs.Trace) -> None:
    begin, end = 1000.25, 5000
    found = document(server, "accounting", path=BEFORE, begin_us=begin, end_us=end)
    (row,), expected = found["accounting"], trace.accounting(window=(begin, end)).to_dict("records")[-1]
    assert (found["begin_us"], found["end_us"], row["total_us"]) == (begin, end, end - begin)
    assert row["ideal_us"] == expected["ideal"] > 0 and row["mfu_pct"] == expected["mfu"]
    whole = document(server, "accounting", path=BEFORE)
    assert whole["begin_us"] is None and "not a window" in whole["why"]["begin_us"]
    assert "both limits" in server.refused("accounting", path=BEFORE, begin_us=5)
    assert "ends after it begins" in server.refused("accounting", path=BEFORE, begin_us=5, end_us=4)
    assert "lies in the recording, from 0 to" in server.refused("accounting", path=BEFORE, begin_us=5, end_us=1e12)
    assert "not both" in server.refused("accounting", path=BEFORE, begin_us=0, end_us=4, steps=["ProfilerStep#2"])


def test_what_if_is_compared_with_no_change(server: Client, trace: fs.Trace) -> None:
    found = document(server, "what_if", path=BEFORE, rules=["align"])
    totals = [trace.what_if(**change).total.iloc[-1] for change in ({}, {"rule": ["align"]})]
    assert [found["before"]["total_us"], found["after"]["total_us"]] == pytest.approx(totals)
    assert found["saving_pct"] == pytest.approx(100 * (1 - totals[1] / totals[0])) and found["steps"] == 3
    both = document(server, "what_if", path=BEFORE, device="NVIDIA B200", dtype="bfloat16")
    assert both["change"] == {"device": "NVIDIA B200", "dtype": "bfloat16"}
    assert "name a change" in server.refused("what_if", path=BEFORE)


def test_compare_gives_the_changes_of_the_command(server: Client, tmp_path: Path) -> None:
    assert main(["compare", str(FAULTS / BEFORE), str(FAULTS / AFTER), "--json", str(tmp_path / "c.json")]) == 0
    expected = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    found = document(server, "compare", a=BEFORE, b=AFTER, top=3)
    assert found["changes"] == expected["changes"][:3] and found["rows"] == expected["rows"][:3]
    assert found["slowdown_pct"] == expected["slowdown_pct"] < -50 and found["files"] == [BEFORE, AFTER]


OTHERS = {
    "a program without a GPU": "benchmarks/results/nvidia-h200/well_made/cpu_products.json.gz",
    "JAX, without shapes": "benchmarks/results/nvidia-h200/jax/callback.json.gz",
    "Nsight Systems": "tests/data/captures/rtx3080.sqlite.gz",
    "XLA on a CPU": "tests/data/traces/jax_cpu.xplane.pb.gz",
    "Python stacks": "tests/data/traces/tutorial_naive_stack.json.gz",
}


@pytest.mark.parametrize("path", OTHERS.values(), ids=list(OTHERS))
def test_traces_of_all_kinds_are_answered(path: str) -> None:
    with client(str(ROOT)) as server:
        for tool in ("open", "summary", "advice", "accounting", "rows", "kernels"):
            found = document(server, tool, path=path)
            jsonschema.Draft202012Validator(schema(found["format"].removeprefix("flopscope."))).validate(found)
        rows = document(server, "rows", path=path, kind="all", top=5)["rows"]
        assert rows
        for row in rows:
            found = document(server, "explain", path=path, row=row["id"])
            jsonschema.Draft202012Validator(schema("explained")).validate(found)
            assert found["row"] == row
        totals = [row["total_us"] for row in document(server, "accounting", path=path)["accounting"]]
        assert totals == pytest.approx(fs.load_trace(ROOT / path).accounting().total.tolist())


def test_ranks_are_compared() -> None:
    pytest.importorskip("dask")
    run = ROOT / "tests" / "data" / "run7"
    with client(str(run)) as server:
        result = server.call("ranks", paths=["."], top=2)
        content = result["structuredContent"]
        jsonschema.Draft202012Validator(schema("ranks")).validate(content)
    expected = fs.load_ranks(run, workers=1).to_dict()
    assert content["findings"] == expected["findings"] and len(content["ranks"]) == 2 < len(expected["ranks"])
    assert "2 of" in result["content"][0]["text"]


def test_try_measures_a_program(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "import torch\nm = torch.nn.Linear(64, 64)\no = torch.optim.SGD(m.parameters(), 1e-3)\n"
        "for i in range(40):\n    m(torch.randn(8, 64)).square().mean().backward()\n    o.step()\n    o.zero_grad()\n"
    )
    with client("--allow-try", str(tmp_path)) as server:
        found = server.call("try", script="train.py", changes=["threads"], max_time=40)
        assert "at most 3600" in server.refused("try", script="train.py", max_time=1e9)
        assert "there is no change 'thread'" in server.refused("try", script="train.py", changes=["thread"])
    content = found["structuredContent"]
    jsonschema.Draft202012Validator(schema("tried")).validate(content)
    assert content["title"] == "train.py" and content["runs"] >= 1 and content["seconds"] > 0


def test_a_program_prints_nothing_into_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text("import os\nprint('hello')\nos.write(1, b'raw\\n')\nraise SystemExit(3)\n")
    with client("--allow-try", str(tmp_path)) as server:
        assert "status" in server.refused("try", script="prints.py", max_time=20)
        assert server.ask("ping")["result"] == {}


def test_without_permission_there_is_no_try(server: Client) -> None:
    error = server.ask("tools/call", {"name": "try", "arguments": {"script": sys.argv[0]}})["error"]
    assert error["code"] == -32602 and "--allow-try" in error["message"]

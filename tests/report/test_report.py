"""The report page: what it holds equals the results of the profile, whatever the names, and the file is never half."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import DATA
from helpers.hand_traces import Program, memory
from helpers.recordings import FAULTS
from helpers.report_pages import PageRead, handlers, sha256_source, written

import flopscope as fs
from flopscope.results.columns import COLUMNS
from flopscope.show.page import page, profile
from flopscope.show.page import rows as page_rows
from flopscope.show.page.encode import MOST_TEXT

FOLDER = DATA / "traces"
TRACES = [*sorted(FOLDER.glob("*.json.gz")), FAULTS / "pointwise_before.json.gz", FAULTS / "graph_after.json.gz"]
NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e'\"`${1}{{ 7 * 7 }}<!--\u2028\x1b[31m"


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.name.split(".")[0])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[fs.Trace, PageRead]:
    """Each recorded trace and its page."""
    trace = fs.load_trace(request.param)
    return trace, written(trace, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def stacked() -> fs.Trace:
    return fs.load_trace(FOLDER / "tutorial_naive_stack.json.gz")


@pytest.fixture(scope="module")
def read(stacked: fs.Trace, tmp_path_factory: pytest.TempPathFactory) -> PageRead:
    """The page of this trace."""
    return written(stacked, tmp_path_factory.mktemp("page"))


def grouping(read: PageRead, name: str) -> dict[str, Any]:
    return next(one for one in read.data["sections"]["ops"]["groupings"] if one["id"] == name)


def same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(np.asarray(a, dtype=float), np.asarray(b, dtype=float), equal_nan=True))


# The page -------------------------------------------------------------------------------------------------------------


def test_a_page_runs_the_scripts_that_its_policy_names(read: PageRead) -> None:
    assert read.html.startswith("<!DOCTYPE html>")
    early, script = read.scripts
    (style,) = [text for tag, _, text in read.content if tag == "style"]
    rules = dict(rule.strip().split(" ", 1) for rule in read.policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == f"{sha256_source(early)} {sha256_source(script)}"
    assert rules["style-src"] == sha256_source(style) and rules["img-src"] == "data: blob:"
    places = [i for i, (tag, a) in enumerate(read.tags) if a.get("http-equiv") or tag in ("script", "style")]
    assert read.tags[places[0]][1].get("http-equiv") == "Content-Security-Policy"  # before all that it governs


def test_a_page_asks_for_nothing(read: PageRead) -> None:
    assert handlers(read) == []
    links = [a[name] for _, a in read.tags for name in ("src", "href", "action", "data", "poster") if name in a]
    assert all(link is not None and link.startswith("#") for link in links)
    assert not re.search(r"url\(|@import|https?:", next(text for tag, _, text in read.content if tag == "style")[200:])
    for script in read.scripts:
        assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|importScripts|eval)\b", script)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|new Function", script)


def test_every_script_and_style_is_in_the_page() -> None:
    folder = Path(page.__file__).parent / "assets"
    names = {path.name for path in folder.iterdir()}
    assert names == {"theme.js", *page.SCRIPTS, "start.js", *page.STYLES, "print.css", "page.html"}
    for path in folder.glob("*.js"):
        assert "</script" not in path.read_text() and "<!--" not in path.read_text()


# Its data equals the results ------------------------------------------------------------------------------------------


def test_rows_equal_the_table_by_shape_and_take_at_most_a_megabyte(each: tuple[fs.Trace, PageRead]) -> None:
    trace, read = each
    assert len(trace) < 5000 and len(read.html.encode()) <= 1_000_000
    words = ("name", "shape") if trace.record_shapes else "name"
    table = trace.key_averages(group_by=words, kernels=True)
    rows = read.data["rows"]
    assert rows["count"] == len(table) and {column.name for column in COLUMNS} <= rows["columns"].keys()
    for column in COLUMNS:
        expected = table.columns[column.name]
        if column.type in ("int64", "float64", "bool"):
            assert same(read.column(rows["columns"][column.name]), expected), column.name
        elif column.type == "text":
            assert read.texts(rows["columns"][column.name]) == expected, column.name
    kinds = ["range" if row.is_user_annotation else "op" if row.device_type == "cpu" else "kernel" for row in table]
    assert [("op", "kernel", "range")[i] for i in read.column(rows["columns"]["kind"])] == kinds
    for row, kernels in zip(table, read.kernels(rows), strict=True):
        assert sorted(kernels) == sorted(row.kernels) and kernels == sorted(kernels, key=lambda k: -k[2])
    assert rows["totals"]["self_cpu_time_total"] == table.self_cpu_time_total
    assert rows["totals"]["self_device_time_total"] == table.self_device_time_total


def test_shapes_are_texts(tmp_path: Path) -> None:
    program = Program()
    program.op("aten::mm", 0, 10, [8, 16], [16, 4])
    program.op("aten::cat", 20, 10, [3], [], [5, 5], [5, 5], [5, 5])
    read = written(program.load(), tmp_path)
    assert read.texts(read.data["rows"]["columns"]["input_shapes"]) == ["8x16 16x4", "3 5x5 (3 times), 1 other"]


def test_the_overview_equals_accounting_and_advice(each: tuple[fs.Trace, PageRead]) -> None:
    trace, read = each
    overview = read.data["sections"]["overview"]
    frame = trace.accounting()
    content = overview["accounting"]
    for name in frame.columns:
        if name in ("device", "step"):
            assert (
                read.texts(content["columns"][name])
                == frame[name].astype(object).where(frame[name].notna(), None).tolist()
            )
        else:
            assert same(read.column(content["columns"][name]), frame[name]), name
    whole = frame.iloc[-1]
    assert content["whole"]["total"] == whole["total"]
    assert sum(content["whole"][part["name"]] for part in content["parts"]) == pytest.approx(whole["total"])
    steps = [name for name in frame["step"] if isinstance(name, str)]
    assert overview["steps"] == len(steps) and content["per"] == max(len(steps), 1)
    advice = trace.advice()
    assert [(row["rule"], row["saving_us"], row["saving_pct"], row["what"]) for row in overview["advice"]] == [
        (row.rule, row.saving_us, row.saving_pct, row.what) for row in advice
    ]
    table = trace.key_averages(group_by=("name", "shape") if trace.record_shapes else "name", kernels=True)
    for row, expected in zip(overview["advice"], advice, strict=True):
        for entry, own in zip(row["evidence"], expected.evidence, strict=True):
            assert entry["time"] == own["time"]
            if entry["row"] != -1:
                assert table[entry["row"]].key == entry["op"]
                assert not own["shapes"] or [list(one) for one in table[entry["row"]].input_shapes] == own["shapes"]
    assert set(advice.notes) <= set(overview["notes"])
    # The tiles are of what the bars show: the time of what computes, without copies and each instant once.
    whole, known = overview["accounting"]["whole"], overview["coverage"]
    work = sum(whole[part] for part in ("ideal", "compute", "memory", "latency", "launch", "unmodelled"))
    assert known["limit"] == (pytest.approx(1 - whole["unmodelled"] / work) if work else None)
    assert not work or known["limit"] <= max(known["flops"], known["bytes"]) + 1e-9
    partly = known["limit"] is not None and known["limit"] < 0.99
    assert ("the known work, at the peaks" in str(trace.summary())) == (partly and whole["ideal"] > 0)


def test_groupings_equal_tables(stacked: fs.Trace, read: PageRead) -> None:
    words = {
        "name": "name", "category": "category", "module": "module", "dtype": ("name", "dtype"),
        "stack": ("name", "stack"), "line": ("name", "line"), "step": ("name", "step"),
        "name and module": ("name", "module"),
    }  # fmt: skip
    assert {one["id"] for one in read.data["sections"]["ops"]["groupings"]} == {*words, "shape"}
    for name, group_by in words.items():
        table = stacked.key_averages(group_by=group_by)
        found = grouping(read, name)["table"]
        assert found["count"] == len(table), name
        assert read.texts(found["columns"]["key"]) == table.columns["key"]
        for column in COLUMNS:
            if column.type == "float64":
                assert same(read.column(found["columns"][column.name]), table.columns[column.name]), column.name
    frame = stacked.key_averages(group_by=("name", "step")).to_pandas()
    steps = frame["step"].astype(object).where(frame["step"].notna(), None)
    assert read.texts(grouping(read, "step")["table"]["columns"]["step"]) == steps.tolist()


@pytest.mark.parametrize("streams", [1, 2])
def test_rows_by_stream_where_there_are_several(streams: int, tmp_path: Path) -> None:
    program = Program()
    for i in range(4):
        program.run("aten::mm", 10 * i, 100 * (i + 1), 50, [64, 64], [64, 64], stream=7 + i % streams)
    trace = program.load()
    read = written(trace, tmp_path)
    found = {one["id"]: one["table"] for one in read.data["sections"]["ops"]["groupings"]}
    assert ("stream" in found) == (streams > 1)
    if "stream" in found:
        frame = trace.key_averages(group_by=("name", "stream")).to_pandas()
        values = frame["stream"].astype(object).where(frame["stream"].notna(), None).tolist()
        assert read.texts(found["stream"]["columns"]["stream"]) == values


def test_rows_stand_below_their_names(stacked: fs.Trace, read: PageRead) -> None:
    names, by_shape = grouping(read, "name"), stacked.key_averages(group_by=("name", "shape"))
    table = stacked.key_averages()
    below = read.lists(names["children"])
    assert sorted(row for rows in below for row in rows) == list(range(len(by_shape)))
    for name, rows in zip(table, below, strict=True):
        assert {by_shape[row].key for row in rows} == {name.key}
        assert sum(by_shape[row].count for row in rows) == name.count
        times = [by_shape[row].self_device_time_total for row in rows]
        assert times == sorted(times, reverse=True)
    assert read.column(grouping(read, "shape")["names"]).tolist() == [
        next(i for i, rows in enumerate(below) if row in rows) for row in range(len(by_shape))
    ]


def test_modules_and_categories_have_their_ops_below(stacked: fs.Trace, read: PageRead) -> None:
    tree, inner = grouping(read, "module"), grouping(read, "name and module")
    table = stacked.key_averages(group_by="module")
    assert read.column(tree["depth"]).tolist() == [row.module_depth for row in table] and inner["hidden"] is True
    categories, names = grouping(read, "category"), grouping(read, "name")
    keys, of = read.texts(categories["table"]["columns"]["key"]), read.texts(names["table"]["columns"]["category"])
    for key, rows in zip(keys, read.lists(categories["children"]), strict=True):
        assert {of[row] for row in rows} <= {key}
    paths = read.texts(inner["table"]["columns"]["module"])
    for row, ops_below in zip(table, read.lists(tree["children"]), strict=True):
        assert {paths[i] for i in ops_below} <= {row.module, None}


def test_devices_are_those_of_the_summary(stacked: fs.Trace, read: PageRead) -> None:
    tables = {table["title"]: table for table in read.data["sections"]["devices"]["tables"]}
    assert list(tables) == ["GPUs", "Time", "Launches", "Streams"]
    text = " ".join(str(stacked.summary()).split())
    for title in ("GPUs", "Time", "Launches"):
        for row in tables[title]["rows"]:
            assert " ".join(row).replace("\u202f", "").replace("µs", "us").replace("–", "--") in text
    head, *rows = tables["Streams"]["rows"]
    expected = stacked.stream_summary()
    assert [row[head.index("kernels")] for row in rows] == [f"{count:.0f}" for count in expected["kernels"]]


def test_a_live_profile_has_a_page(tmp_path: Path) -> None:
    x = fs.rand((64, 64), device="cpu")
    with fs.profile(record_shapes=True) as prof:
        fs.matmul(x, x)
        fs.add(x, x)
    read = written(prof, tmp_path, peaks="none", title="Two ops")
    assert read.data["title"] == "Two ops" and "Two ops" in read.text
    rows = read.data["rows"]
    assert read.texts(rows["columns"]["key"]) == prof.key_averages(True, peaks="none").columns["key"]
    assert "devices" not in read.data["sections"]  # it has no device


def test_a_profile_without_shapes_has_names(x: fs.Tensor, tmp_path: Path) -> None:
    with fs.profile() as prof:
        fs.add(x, x)
    read = written(prof, tmp_path, peaks="none")
    assert read.data["rows"]["count"] == 1
    assert grouping(read, "shape")["hidden"] is True and grouping(read, "name")["children"] is None


def test_peaks_choose_the_shares(tmp_path: Path) -> None:
    trace = fs.load_trace(FOLDER / "tutorial_naive.json.gz")
    read = written(trace, tmp_path, peaks="none")
    assert np.isnan(read.column(read.data["rows"]["columns"]["pct_roofline"])).all()
    assert read.data["sections"]["overview"]["accounting"]["whole"]["mfu"] is None
    with pytest.raises(ValueError, match="peaks"):
        trace.write_report(tmp_path / "other.html", peaks="best")
    assert not (tmp_path / "other.html").exists()


# Any input ------------------------------------------------------------------------------------------------------------


def hostile() -> fs.Trace:
    program = Program()
    program.head["deviceProperties"][0]["name"] = f"GPU {NASTY}"
    program.head["pytorch_version"] = NASTY
    program.head["with_stack"] = 1
    program.add("user_annotation", f"ProfilerStep#1 {NASTY}", 0, 2000)
    program.add("python_function", f"{NASTY}.py(1): f", 0, 1990, Python_id=1)
    program.add("python_function", f"nn.Module: {NASTY}", 1, 1900, Python_id=2, Python_parent_id=1)
    for i, name in enumerate((NASTY, "long" * 250_000, "\x1b]0;x\x07", "=cmd()", "__proto__", "constructor", "\ud800")):
        start = 10 + 100 * i
        program.run(name, start, start + 20, 30, [4, 4], kernel=f"kernel {name}", dtype=NASTY)
    return program.load()


def test_hostile_names_are_text_and_long_ones_are_cut_with_their_length(tmp_path: Path) -> None:
    read = written(hostile(), tmp_path, title=f"{NASTY}\ud800")
    assert read.data["title"].endswith("\\ud800")
    kinds = {tag: sum(one == tag for one, _ in read.tags) for tag in ("img", "script", "style")}
    plain = written(fs.load_trace(FOLDER / "square.json.gz"), tmp_path)
    assert kinds["img"] == 0 and kinds["style"] == 1 and len(read.scripts) == 2
    assert read.scripts == plain.scripts and handlers(read) == []
    assert not re.search("<script>alert|<img|\u202e|\u2028|\x1b|\x07|\ud800", read.html)
    assert "{{ 7 * 7 }}" in read.data["title"] and "49" not in read.data["title"]
    keys = read.texts(read.data["rows"]["columns"]["key"])
    assert any(key is not None and key.startswith("</script><script>alert(1)") and "\\u202e" in key for key in keys)
    assert {"__proto__", "constructor"} <= set(keys) and max(map(len, read.strings)) < MOST_TEXT + 100
    assert any(text.endswith("… (1,000,000 characters)") for text in read.strings) and len(read.html) < 1_000_000


def test_what_is_unknown_or_absent_is_null_not_zero(tmp_path: Path) -> None:
    program = Program(0)
    program.add("cpu_op", "mystery::op", 0, 10)
    columns = written(program.load(), tmp_path).data["rows"]["columns"]
    read = PageRead(tmp_path / "report.html")
    for name in ("flops", "bytes_total_moved", "pct_roofline", "headroom", "tflops_per_s"):
        assert np.isnan(read.column(columns[name])).all(), name
    with fs.profile() as prof:
        pass
    assert len(prof.key_averages(group_by="category", peaks="none")) == 0
    read = written(prof, tmp_path, peaks="none")
    assert read.data["rows"]["count"] == 0 and read.data["sections"]["overview"]["accounting"] is None
    assert "No op and no work of a device was recorded." in read.text
    assert read.data["sections"]["overview"]["coverage"]["bytes"] is None
    assert written(fs.load_trace(b'{"traceEvents": []}'), tmp_path).data["rows"]["count"] == 0


def test_rows_past_the_limit_are_counted(stacked: fs.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = stacked.key_averages(group_by=("name", "step"))
    kept = 20
    monkeypatch.setattr(page_rows, "MOST_ROWS", kept)
    found = grouping(written(stacked, tmp_path), "step")
    assert found["table"]["count"] == kept and found["left_out"]["rows"] == len(whole) - kept
    times = sorted((row.self_device_time_total, row.self_cpu_time_total) for row in whole)
    left = times[: len(whole) - kept]
    assert found["left_out"]["device_time"] == pytest.approx(sum(device for device, _ in left))
    assert found["left_out"]["host_time"] == pytest.approx(sum(host for _, host in left))


def test_names_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(0)
    program.head = {}
    times = [3, 50, 2, 40, 1, 30]
    for number, time in enumerate(times):
        program.op(f"op_{number}", 100.0 * number, time)
        change = {"Device Id": -1, "Addr": number + 1}
        program.events.append(memory(100.0 * number + 0.5, 64 << number, device_type=0, **change))
    trace = program.load()
    whole = written(trace, tmp_path).data["sections"]
    monkeypatch.setattr(page_rows, "MOST_ROWS", 3)
    read = written(trace, tmp_path)
    assert read.texts(read.data["rows"]["columns"]["key"]) == ["op_1", "op_3", "op_5"]
    by_name = grouping(read, "name")
    others = len(trace.key_averages()) - 3
    assert by_name["table"]["count"] == 3 and by_name["left_out"]["rows"] == others
    assert by_name["left_out"]["host_time"] == pytest.approx(3 + 2 + 1)
    device = read.data["sections"]["memory"]["devices"][0]
    assert sorted(read.column(device["rows"])) == [-1, 0, 1, 2]
    assert device["peak"]["row"] == 2 and device["peak_reserved"] is None
    timeline, before = read.data["sections"]["timeline"], whole["timeline"]
    assert [lane["count"] for lane in timeline["lanes"]] == [lane["count"] for lane in before["lanes"]]
    labels = zip(read.texts(timeline["labels"]["name"]), read.column(timeline["labels"]["row"]), strict=True)
    assert {name: int(row) for name, row in labels if name in ("op_0", "op_1", "op_5")} == {
        "op_0": -1, "op_1": 0, "op_5": 2,
    }  # fmt: skip


def test_too_many_shapes_leave_names(stacked: fs.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_shape = len(stacked.key_averages(group_by=("name", "shape")))
    monkeypatch.setattr(profile, "MOST_ROWS", by_shape - 1)
    read = written(stacked, tmp_path)
    assert read.data["rows"]["count"] == len(stacked.key_averages())
    assert any(f"by name and shape they are {by_shape:,}" in one for one in read.data["sections"]["overview"]["notes"])
    monkeypatch.setattr(profile, "MOST_ROWS", by_shape)
    assert written(stacked, tmp_path).data["rows"]["count"] == by_shape


def test_rows_of_the_core_lead_to_the_names_of_a_page_without_shapes(
    each: tuple[fs.Trace, PageRead], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "MOST_ROWS", 0)
    source = profile.Profile(each[0], blocks=1000)
    own, row_of = source.shaped.columns, source.row_of
    assert row_of is not None and len(row_of) == len(own["key"])
    for name in ("key", "device_type", "is_user_annotation"):
        assert [source.rows.columns[name][row] for row in row_of.tolist()] == list(own[name])

"""The data of the pages of comparisons and ranks, read from the HTML."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import H200, NCCL, Program, in_a_row, quietly
from helpers.ranks_cases import stragglers_of
from helpers.recordings import FAULTS
from helpers.report_pages import PageRead, handlers, written

import flopscope as fs
from flopscope.answers.analysis import PARTS
from flopscope.ranks.digest import digests_of
from flopscope.ranks.page import opened, report_of_ranks
from flopscope.show.page import compare
from flopscope.show.page.page import write


def page_of(traces: dict[int, Any], folder: Path) -> PageRead:
    """Write the page of these ranks and read it."""
    write(folder / "page.html", report_of_ranks(fs.Ranks(digests_of(traces)), traces))
    return PageRead(folder / "page.html")


NASTY = "</script><script>alert(1)</script>\u202e<img src=x onerror=alert(2)>"


def load(name: str) -> fs.Trace:
    return quietly(FAULTS / f"{name}.json.gz")


def numbers(page: PageRead, columns: dict[str, Any]) -> dict[str, list[float]]:
    return {name: page.column(reference).tolist() for name, reference in columns.items()}


def same(a: Any, b: Any) -> bool:
    return bool(np.allclose(np.asarray(a, dtype=float), np.asarray(b, dtype=float), rtol=1e-6, equal_nan=True))


# Comparisons ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def comparison() -> fs.Comparison:
    return fs.compare(load("compile_fuse_before"), load("compile_fuse_after"), names=("eager", "compiled"))


@pytest.fixture(scope="module")
def compared(comparison: fs.Comparison, tmp_path_factory: pytest.TempPathFactory) -> PageRead:
    return written(comparison, tmp_path_factory.mktemp("compare"))


def test_a_comparison_has_its_changes_with_their_parts(comparison: fs.Comparison, compared: PageRead) -> None:
    rows = compared.data["sections"]["compare"]["changes"]
    found = numbers(compared, rows["numbers"])
    expected = [(change, -1) for change in comparison.changes]
    place = 0
    for change in comparison.changes:
        expected[place + 1 : place + 1] = [(part, place) for part in change.parts]
        place += 1 + len(change.parts)
    assert compared.texts(rows["name"]) == [change.name for change, _ in expected]
    assert compared.column(rows["parent"]).tolist() == [parent for _, parent in expected]
    assert compared.texts(rows["cause"]) == [change.cause for change, _ in expected]
    assert compared.texts(rows["why"]) == [change.why for change, _ in expected]
    assert same(found["time_a"], [change.time_a if change.a else math.nan for change, _ in expected])
    assert same(found["calls_b"], [change.calls_b if change.b else math.nan for change, _ in expected])
    assert same(found["flops_b"], [change.b.flops if change.b else math.nan for change, _ in expected])
    assert same(found["pct_roofline_a"], [change.a.pct_roofline if change.a else math.nan for change, _ in expected])
    assert same(found["difference"], [change.time_b - change.time_a for change, _ in expected])
    both = [change.a and change.b and change.time_b > 0 for change, _ in expected]
    pairs = zip(both, (change for change, _ in expected), strict=True)
    ratios = [change.time_a / change.time_b if in_both else math.nan for in_both, change in pairs]
    assert same(found["ratio"], ratios) and any(both)


def test_a_comparison_has_the_accounting_of_both(comparison: fs.Comparison, compared: PageRead) -> None:
    data = compared.data["sections"]["compare"]
    assert data["time"] == pytest.approx(comparison.time)
    unspaced = [text.replace("\u202f", "").replace("µs", "us") for text in data["verdict"]]
    assert unspaced == comparison.verdict != data["verdict"]
    assert [sum(part[run] for part in data["parts"]) for run in "ab"] == pytest.approx(comparison.time)
    for which, name in enumerate(("compile_fuse_before", "compile_fuse_after")):
        frame = load(name).accounting()
        steps = frame[frame["step"].notna()]
        shown = data["steps"][which]
        assert compared.texts(shown["names"]) == list(steps["step"])
        for part in PARTS:
            assert same(compared.column(shown["parts"][part]), steps[part])
        middle = steps.sort_values("total").iloc[(len(steps) - 1) // 2]
        run = "ab"[which]
        shares = {part["name"]: part[run] for part in data["parts"]}
        assert shares == pytest.approx({part: middle[part] for part in shares})
        assert comparison.parts[which] == pytest.approx({part: middle[part] for part in PARTS})
        assert data["overviews"][which]["steps"] == len(steps)


def test_overviews_of_a_comparison_refer_to_no_rows(compared: PageRead) -> None:
    def rows(content: Any) -> list[int]:
        if isinstance(content, dict):
            return [n for key, value in content.items() for n in ([value] if key == "row" else rows(value))]
        return [n for one in content for n in rows(one)] if isinstance(content, list) else []

    found = rows(compared.data["sections"]["compare"]["overviews"])
    assert found and set(found) == {-1} and compared.data["rows"] is None


def test_tables_and_frames_have_a_page_too(tmp_path: Path) -> None:
    table = load("pointwise_before").key_averages()
    compared = fs.compare(table, load("pointwise_after").key_averages().to_pandas())
    data = written(compared, tmp_path).data["sections"]["compare"]
    assert data["time"] == [None, None] and data["parts"] == [] and data["overviews"] == data["steps"] == [None, None]
    assert data["changes"]["count"] > 3


def test_hostile_names_of_runs_and_ops_are_text(tmp_path: Path) -> None:
    runs = [in_a_row((f"aten::{NASTY}", 10 * factor, ([64, 64],))).load() for factor in (1, 2)]
    page = written(fs.compare(*runs, names=(NASTY, "b")), tmp_path)
    assert "<script>alert" not in page.html and "<img" not in page.html and not handlers(page)
    assert any("\\u202e" in text for text in page.strings)


def test_rows_past_limits_count(comparison: fs.Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every = sum(1 + len(change.parts) for change in comparison.changes)
    monkeypatch.setattr(compare, "MOST_ROWS", 5)
    changes = written(comparison, tmp_path).data["sections"]["compare"]["changes"]
    assert (changes["count"], changes["left_out"]) == (5, every - 5)


def test_a_comparison_of_nothing_has_a_page(tmp_path: Path) -> None:
    empty = fs.load_trace(b'{"traceEvents": []}')
    page = written(fs.compare(empty, empty, peaks="none"), tmp_path, title="nothing")
    assert page.data["sections"]["compare"]["changes"]["count"] == 0 and page.data["title"] == "nothing"


# Ranks ----------------------------------------------------------------------------------------------------------------


def rank(number: int, steps: int = 3, late: float = 0.0) -> fs.Trace:
    program = Program()
    program.head["distributedInfo"] = {"rank": number, "world_size": 3}
    for step in range(steps):
        at = 2000.0 * step
        program.step(step, at, 1900)
        program.run("aten::mm", at + 5, at + 20, 300 + late, [512, 512], [512, 512])
        program.op("record_param_comms", at + 9, 2)
        program.correlation += 1
        program.call("cudaLaunchKernel", at + 10, 1, correlation=program.correlation)
        recorded = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Seq": step}
        recorded |= {"dtype": "Float", "Group size": 3, "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2]"}
        begin = at + 330 + late
        program.work(NCCL, begin, at + 900 - begin, stream=17, correlation=program.correlation, **recorded)
    return program.load()


@pytest.fixture(scope="module")
def three() -> dict[int, fs.Trace]:
    return {2: rank(2), 0: rank(0, steps=2), 1: rank(1, late=250.0)}


def test_a_page_has_parts_of_ranks_beside_those_of_others_and_shows_the_slow_one(
    three: dict[int, fs.Trace], tmp_path: Path
) -> None:
    page = page_of(three, tmp_path)
    data = page.data["sections"]["ranks"]
    assert [page.strings[one] for one in page.column(data["device"]).astype(int)] == [H200["name"]] * 3
    frames = {number: trace.accounting().dropna(subset="step") for number, trace in three.items()}
    assert {*data["parts"]} == {*data["others"]} == {part for part in PARTS if frames[1][part].sum() > 0}
    for number, frame in frames.items():
        for part, times in data["parts"].items():
            assert page.column(times)[number] == pytest.approx(frame[part].mean())
            means = [frames[other][part].mean() for other in three if other != number]
            assert page.column(data["others"][part])[number] == pytest.approx(np.median(means))
        assert page.column(data["time"])[number] == pytest.approx(frame["total"].mean())
    assert next(iter(page.data["sections"])) == "ranks"
    assert {"overview", "ops", "devices", "timeline"} <= set(page.data["sections"])
    assert "show rank 1, that of the first finding" in page.text and data["opened"]["place"] == 1
    assert page.column(data["rank"]).tolist() == [0, 1, 2]
    lanes = page.data["sections"]["timeline"]["lanes"]
    assert page.strings[lanes[0]["part"]] == "Rank 1"
    expected = stragglers_of(three).ranks
    for name, reference in data["waits"].items():
        assert same(page.column(reference), expected[name])
    tables = {table["title"]: table["rows"] for table in data["tables"]}
    assert list(tables) == ["Process groups", "Collectives by size", "Largest waits in single collectives"]
    assert [row[5] for row in tables["Process groups"]] == ["most often last", "rank 1"]
    assert len(tables["Largest waits in single collectives"]) == 1 + 3


def test_ranks_without_collectives_say_why(tmp_path: Path) -> None:
    programs = {n: in_a_row(("aten::mm", 10.0 + n, ([64, 64], [64, 64]))).load() for n in range(2)}
    for number, trace in programs.items():
        trace.metadata["distributedInfo"] = {"rank": number, "world_size": 2}
    data = page_of(programs, tmp_path).data["sections"]["ranks"]
    assert data["waits"] is None and data["tables"] == [] and "No collective" in data["why"]


def test_a_rank_with_invalid_metadata_is_left_out(three: dict[int, fs.Trace], tmp_path: Path) -> None:
    wrong = rank(3)
    wrong.metadata["baseTimeNanoseconds"] = "noon"
    page = page_of({**three, 3: wrong}, tmp_path)
    data = page.data["sections"]["ranks"]
    assert page.column(data["rank"]).tolist() == [0, 1, 2]
    assert any(note.startswith("Left out: ") and '"baseTimeNanoseconds"' in note for note in data["notes"])
    with pytest.raises(ValueError, match="baseTimeNanoseconds"):
        page_of({3: wrong}, tmp_path)


def test_a_page_opens_on_the_first_finding_else_the_most_awaited_else_the_first(three: dict[int, fs.Trace]) -> None:
    ranks = fs.Ranks(digests_of(three))
    found = [SimpleNamespace(ranks=one) for one in ((9, 2), (0,), ())]
    for findings, place in ((found, 2), (found[2:], 1), ([], 1)):
        ranks.findings = findings
        assert opened(ranks)[0] == place
    ranks.ranks["awaited"] = 0.0
    assert opened(ranks)[0] == 0


def test_one_rank_has_a_page_that_compares_nothing(three: dict[int, fs.Trace], tmp_path: Path) -> None:
    page = page_of({1: three[1]}, tmp_path)
    assert page.data["title"] == "1 rank" and "One rank: there is no other to compare it with." in page.text
    data = page.data["sections"]["ranks"]
    assert all(np.isnan(page.column(one)).all() for one in data["others"].values()) and data["why"] == ""

"""The tables, notes and the page of many ranks, against the traces and plain sums."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers import ROOT
from helpers.ranks_cases import edited, reloaded, simulated, simulated_ranks, small_rank, waits_of, without_collectives
from helpers.report_pages import PageRead, written
from ranks_simulator import Simulated

import flopscope as fs
from flopscope.answers.analysis import PARTS
from flopscope.cli.program import main
from flopscope.ranks.digest import digest_of
from flopscope.ranks.ranks import Ranks
from flopscope.ranks.schema import SCHEMA
from flopscope.show.page.encode import sentence
from flopscope.support.units import short_time_text


def test_rows_have_statistics_over_the_ranks(ranks: fs.Ranks, slow: tuple[Path, Simulated]) -> None:
    traces = fs.load_traces(slow[0])
    frame = ranks.key_averages()
    row = frame[(frame["key"] == "aten::mm") & (frame["device_type"] == "cpu")].iloc[0]
    times = {}
    for trace in traces:
        for one in trace.key_averages(group_by_input_shape=True):
            if one.key == "aten::mm" and one.device_type == "cpu" and one.input_shapes == row["input_shapes"]:
                times[trace.rank] = one.self_device_time_total / len(trace.step_breakdown())
    assert row["ranks"] == len(times) == 8
    assert [row["time_min"], row["time_max"]] == pytest.approx([min(times.values()), max(times.values())])
    assert row["time_median"] == pytest.approx(np.median(list(times.values())))
    assert row["rank_max"] == max(times, key=lambda rank: times[rank] or 0) == 5
    assert row["rank_min"] == min(times, key=lambda rank: times[rank] or 0)


def test_rows_with_little_time_are_summed(slow: tuple[Path, Simulated], monkeypatch: pytest.MonkeyPatch) -> None:
    path = min(slow[0].iterdir())
    trace = fs.load_trace(path)
    whole = digest_of(trace, str(path), 0)
    monkeypatch.setattr("flopscope.ranks.digest.ROWS", 20)
    cut = digest_of(trace, str(path), 0)
    table = trace.key_averages(group_by_input_shape=True).to_pandas()
    assert len(whole.table["key"]) == len(table) > 21 == len(cut.table["key"])
    time = table["self_device_time_total"].fillna(0) + 1e-3 * table["self_cpu_time_total"]
    assert sorted(cut.table["key"][:20]) == sorted(table["key"][time.nlargest(20).index])
    assert cut.table["key"][20] == "(other ops)"
    for name in ("count", "self_device_time_total", "flops"):
        assert np.nansum(cut.table[name]) == pytest.approx(table[name].sum())
    frame = Ranks([cut]).key_averages()
    assert len(frame) == 21 and frame["input_shapes"].map(type).eq(list).all()


def test_steps_are_the_accounting_of_each_rank(ranks: fs.Ranks, slow: tuple[Path, Simulated]) -> None:
    steps = ranks.steps()
    for trace in fs.load_traces(slow[0])[:2]:
        expected = trace.accounting().dropna(subset="step")
        mine = steps[steps["rank"] == trace.rank]
        np.testing.assert_allclose(mine["total"], expected["total"])
        np.testing.assert_allclose(mine["communication"], expected["communication"])
        np.testing.assert_allclose(mine["own"], expected["total"] - expected["communication"])


def test_steps_of_one_name_are_one_step_everywhere(tmp_path: Path) -> None:
    simulated(tmp_path / "run", dp=2, tp=1, slow_gpu={1: 1.3}, events=6000)

    def again(_: int, trace: dict[str, Any]) -> None:
        for event in trace["traceEvents"]:
            if event["name"] == "ProfilerStep#2":
                event["name"] = "ProfilerStep#1"

    edited(tmp_path / "run", again)
    expected = [trace.accounting().dropna(subset="step") for trace in fs.load_traces(tmp_path / "run")]
    assert [list(frame["step"]).count("ProfilerStep#1") for frame in expected] == [2, 2]
    sums = [frame.groupby("step")[["total", *PARTS]].sum() for frame in expected]
    ranks = fs.load_ranks(tmp_path / "run", workers=1)
    steps = ranks.steps().set_index("step")
    page = written(ranks, tmp_path)
    data = page.data["sections"]["ranks"]
    count = len(sums[0])
    names = [f"ProfilerStep#{number}" for number in range(count + 1) if number != 2]
    for rank, own in enumerate(sums):
        for part in ("total", *PARTS):
            np.testing.assert_allclose(steps[steps["rank"] == rank][part], own[part].reindex(names))
        assert page.column(data["time"])[rank] == pytest.approx(own["total"].mean())
    middle = np.median([own["compute"].reindex(names) for own in sums])
    assert f"2 ranks, {count} steps; " in str(ranks) and set(ranks.ranks["steps"]) == {count}
    assert re.search(rf"compute +{re.escape(short_time_text(middle))} ", str(ranks))
    flops = fs.load_traces(tmp_path / "run")[0].key_averages(group_by_input_shape=True).to_pandas()["flops"]
    assert ranks.ranks["flops"][0] == pytest.approx(flops.sum() / count)


@pytest.mark.parametrize("by_group", [True, False])
def test_collectives_by_size_are_those_of_the_single_calls(ranks: fs.Ranks, by_group: bool) -> None:
    found = ranks.stragglers()
    calls = found.collectives.assign(size=2.0 ** np.floor(np.log2(found.collectives["message_bytes"])))
    waits = waits_of(found).groupby("call").agg(time=("duration", "sum"), waited=("wait", "sum"))
    calls = calls.join(waits)
    keys = ["collective", "size", "count", *(["group"] if by_group else [])]
    frame = ranks.collectives(by_group=by_group)
    assert frame["calls"].sum() == len(calls) and len(frame) == calls.groupby(keys).ngroups
    steps = ranks.steps()["step"].nunique()
    for _, row in frame.iterrows():
        mine = calls[(calls["size"] == row["bytes_from"]) & (calls["count"] == row["ranks"])]
        mine = mine[mine["group"] == row["group"]] if by_group else mine
        assert row["calls"] == len(mine) and row["groups"] == mine["group"].nunique() and row["hosts"] == 1
        assert row["bytes_to"] == 2 * row["bytes_from"] and row["skew_median"] == np.median(mine["skew"])
        assert row["skew_p95"] == pytest.approx(np.percentile(mine["skew"], 95))
        assert row["skew_uncertainty"] == np.median(mine["skew_uncertainty"])
        assert row["transfer_median"] == np.median(mine["transfer"])
        assert row["bus_gbytes_per_s"] == np.median(mine["bus_gbytes_per_s"])
        members = row["ranks"] * row["groups"]
        assert row["time"] == pytest.approx(mine["time"].sum() / members / steps)
        assert row["waited"] == pytest.approx(mine["waited"].sum() / members / steps)
        assert 0 < row["exposed"] <= row["time"] + 1e-6


def test_exposed_time_is_that_of_the_traces(ranks: fs.Ranks, slow: tuple[Path, Simulated]) -> None:
    expected = sum(trace.collectives()["exposed"].sum() for trace in fs.load_traces(slow[0]))
    frame = ranks.collectives()
    steps = ranks.steps()["step"].nunique()
    assert (frame["exposed"] * frame["ranks"]).sum() * steps == pytest.approx(expected)


def test_hosts_and_groups_are_sums_of_their_ranks_and_calls(tmp_path: Path) -> None:
    ranks = simulated_ranks(tmp_path, dp=8, late_data={12: 2000.0})
    frame, hosts = ranks.ranks, ranks.hosts()
    assert list(hosts["host"]) == ["#1", "#0"] and list(hosts["first_rank"]) == [8, 0]
    for name in ("waited", "awaited", "times_last"):
        np.testing.assert_allclose(hosts[name], [frame[name][8:].sum(), frame[name][:8].sum()])
    groups = ranks.groups().set_index("group")
    waits = waits_of(ranks.stragglers()).merge(ranks.stragglers().collectives, left_on="call", right_index=True)
    for name, mine in waits.groupby("group"):
        assert groups["waited"][name] == pytest.approx(mine["wait"].sum())
        assert groups["waited_pct"][name] == pytest.approx(100 * mine["wait"].sum() / mine["duration"].sum())
        last = mine[mine["last"]]["rank"].value_counts()
        assert groups["times_last"][name] == last.max() == last[groups["most_last"][name]]
        behind = mine[mine["straggler"] == groups["most_last"][name]]
        assert groups["awaited"][name] == pytest.approx(behind["wait"].sum())
    assert "Hosts that others waited for longest" in str(ranks)


def test_each_rank_has_its_facts(ranks: fs.Ranks) -> None:
    frame, steps = ranks.ranks, ranks.steps()
    assert list(frame["rank"]) == list(range(8)) and set(frame["device"]) == {"NVIDIA H200"}
    for name in ("total", "own", "communication", "data"):
        np.testing.assert_allclose(frame[name], steps.groupby("rank")[name].median())
    assert frame["slowness"].idxmax() == 5 and frame["flops"].nunique() == 1
    for name in ranks.stragglers().ranks:
        pd.testing.assert_series_equal(frame[name], ranks.stragglers().ranks[name])


def test_every_printed_skew_has_its_uncertainty(ranks: fs.Ranks) -> None:
    table = str(ranks.stragglers()).partition("Largest skews")[2].splitlines()[2:]
    assert len(table) == 5 and all(" ± " in line for line in table)
    for row, line in zip(ranks.stragglers().collectives.nlargest(5, "skew").to_dict("records"), table, strict=True):
        assert f"± {row['skew_uncertainty']:.2f}us" in line


def test_ranks_of_other_programs_and_steps_are_noted(tmp_path: Path) -> None:
    assert simulated_ranks(tmp_path, dp=6, tp=1, events=4000).notes == []

    def cut(rank: int, trace: dict[str, Any]) -> None:
        steps = sorted(e["ts"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep"))
        if rank == 4:
            trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ts"] < steps[1]]

    steps = reloaded(tmp_path, cut)
    count = steps.steps()["step"].nunique()
    assert steps.notes == [f"Rank 4: up to {count - 1} of the {count} steps are not recorded there."]

    def other(rank: int, trace: dict[str, Any]) -> None:
        for e in trace["traceEvents"] if rank < 3 else ():
            e["name"] = re.sub("^(aten::|ProfilerStep)", r"\1other", e["name"])
            if "Process Group Name" in e["args"]:
                e["args"]["Process Group Name"] += "x"

    ranks = reloaded(tmp_path, other)
    text = " ".join(str(ranks).split())
    assert "2 different programs, with less than half of their ops in common: ranks 0, 1, 2; ranks 3, 4, 5" in text
    assert any("none that most ranks share" in note for note in ranks.notes)
    assert any("2 sets that share no collective" in note for note in ranks.notes)
    assert ranks.findings == []  # rank 4 recorded less, which is no imbalance of the program


@pytest.mark.filterwarnings("error")
def test_a_rank_without_events_is_noted(tmp_path: Path) -> None:
    simulated(tmp_path, dp=4, tp=1)
    edited(tmp_path, lambda rank, trace: trace.update(traceEvents=[] if rank == 1 else trace["traceEvents"]))
    ranks = fs.load_ranks(tmp_path, workers=1)
    text = str(ranks)
    ranks.tables()
    assert "Rank 1: no op with work is recorded." in text and ranks.findings == []
    assert "The clock of rank 1 is not aligned" in text


@pytest.mark.filterwarnings("error")
def test_ranks_without_events_have_empty_tables_and_a_page(tmp_path: Path, capsys: Any) -> None:
    for rank in (0, 1):
        small_rank(tmp_path / f"{rank}.json", rank, 2, events=0)
    ranks = fs.load_ranks(tmp_path, workers=1)
    tables, text = ranks.tables(), str(ranks)
    page, json_file = tmp_path / "page.html", tmp_path / "out.json"
    main(["ranks", str(tmp_path / "0.json"), str(tmp_path / "1.json"), "-o", str(page), "--json", str(json_file)])
    assert {name: set(frame) for name, frame in tables.items()} == {name: set(SCHEMA[name]) for name in SCHEMA}
    counts = {name: len(frame) for name, frame in tables.items() if len(frame)}
    assert counts == {"files": 2, "ranks": 2, "steps": 2} and tables["steps"].drop(columns="rank").isna().all(axis=None)
    assert "no work of a device is recorded" in text and text.split("\n\n")[0] in capsys.readouterr().out
    assert "no work of a device is recorded" in PageRead(page).text
    assert [row["events"] for row in json.loads(json_file.read_text())["files"]] == [0, 0]


def test_one_rank_is_not_compared(tmp_path: Path) -> None:
    ranks = simulated_ranks(tmp_path, dp=1, tp=1)
    assert str(ranks).startswith("One rank: there is no other to compare it with.\n\n1 rank, ")
    assert all(
        len(frame) or name in ("findings", "groups", "calls", "collectives", "hosts", "last_calls")
        for name, frame in ranks.tables().items()
    )


@pytest.mark.parametrize(
    ("fault", "culprit"),
    [
        ({"slow_gpu": {5: 1.3}}, 5), ({"late_data": {3: 3000.0}}, 3), ({"imbalance": {2: 1.3}}, 2),
        ({"stops": {6: 1}}, 6),
    ],
)  # fmt: skip
def test_report_finds_what_ranks_finds(fault: dict[str, Any], culprit: int, tmp_path: Path, capsys: Any) -> None:
    simulated(tmp_path / "run", **fault)
    main(["ranks", str(tmp_path / "run"), "--workers", "1", "-o", str(tmp_path / "ranks.html")])
    main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "report.html")])
    few, full = PageRead(tmp_path / "ranks.html"), PageRead(tmp_path / "report.html")
    a, b = few.data["sections"]["ranks"], full.data["sections"]["ranks"]
    assert a["findings"] == b["findings"] and a["notes"] == b["notes"]
    first = a["findings"][0]
    assert first["what"].startswith(f"Rank {culprit} ") and first["what"] in few.text and first["what"] in full.text
    printed = sentence(" ".join(capsys.readouterr().out.split()))
    assert printed.startswith(f"{first['what']} What to do: {first['action']}")
    assert a["opened"] == b["opened"] and few.column(a["rank"])[a["opened"]["place"]] == culprit
    assert f"the other sections show rank {culprit}" in full.text
    for name in ("own", "waits", "parts", "others"):
        for column, reference in a[name].items():
            np.testing.assert_allclose(few.column(reference), full.column(b[name][column]), err_msg=column)


def test_the_page_has_the_findings_and_opens_on_the_first(ranks: fs.Ranks, tmp_path: Path) -> None:
    """What the page says that a rank has more of adds up to its own work beyond the others'."""
    page = written(ranks, tmp_path, title="Run 7")
    found = ranks.findings[0]
    assert all(text in page.html for text in ("Run 7", sentence(found.what), sentence(found.action)))
    data = page.data["sections"]["ranks"]
    assert data["opened"]["place"] == 5
    assert ranks.ranks.set_index("rank")["awaited"].idxmax() == 4  # it waits for rank 5 in its group of two
    more = {name: page.column(data["parts"][name])[5] - page.column(data["others"][name])[5] for name in data["parts"]}
    steps = ranks.steps()
    excess = steps.loc[steps["rank"] == 5, "excess"].mean()
    assert sum(time for name, time in more.items() if name != "communication") == pytest.approx(excess, rel=0.05)
    assert more["communication"] == pytest.approx(-excess, rel=0.05)  # it waits for nobody


def test_a_file_with_a_hostile_name_is_text(tmp_path: Path) -> None:
    simulated(tmp_path, dp=4, tp=1, slow_gpu={2: 1.3})
    for place, path in enumerate(sorted(tmp_path.glob("*.gz"))):
        path.rename(tmp_path / f"<script>alert(1)<!--&amp;_{place}.{place}.pt.trace.json.gz")
    page = written(fs.load_ranks(tmp_path, workers=1), tmp_path)
    assert page.data["sections"]["ranks"]["findings"][0]["what"].startswith("Rank 2 (host <script>alert(1)<!--&amp;,")
    assert len(page.scripts) == 2 and not any("alert(1)" in script for script in page.scripts)


def documented_columns() -> dict[str, dict[str, str]]:
    """Return the types of the columns of each table, as docs/ranks.md lists them."""
    text = (ROOT / "docs" / "ranks.md").read_text("utf-8")
    head, _, *rows = re.search(r"(?m)^\| table \| string .*\n(?:\|.*\n)+", text)[0].splitlines()  # type: ignore[index]
    types = [cell.strip() for cell in head.split("|")[2:5]]
    found = {}
    for row in rows:
        name, *cells, other = (cell.strip() for cell in row.strip("|").split("|"))
        columns = {one: kind for kind, cell in zip(types, cells, strict=True) for one in re.findall("`(.*?)`", cell)}
        columns |= dict(re.findall(r"`(.*?)` \((.*?)\)", other))
        found[name.strip("`")] = columns
    return found


def test_tables_have_the_documented_columns_whatever_the_rows(ranks: fs.Ranks, tmp_path: Path) -> None:
    simulated(tmp_path / "one", dp=1, tp=1)

    def bare(rank: int, trace: dict[str, Any]) -> None:
        without_collectives(rank, trace)
        trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("ProfilerStep")]
        trace["deviceProperties"] = []

    edited(tmp_path / "one", bare)
    for some in (fs.load_ranks(tmp_path / "one", workers=1), ranks):
        types = {name: {one: str(kind) for one, kind in table.dtypes.items()} for name, table in some.tables().items()}
        assert types == documented_columns()
    pd.testing.assert_frame_equal(ranks.tables()["steps"], ranks.steps(), check_dtype=False)

"""The report's counters: tracks of the timeline, sums in the Overview, and what files of other profilers name."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.captures import Nsys
from helpers.graph_programs import KERNELS, Capture, replayed, step
from helpers.hand_traces import Program
from helpers.report_pages import PageRead, written
from hypothesis import given
from hypothesis import strategies as st

from flopscope.cli.program import main
from flopscope.show.page import counters
from flopscope.support.nvml import Energy
from flopscope.support.units import number_text

POINTS = [5.0, 0.0, 1.5, 7.25, 2.0]  # µs apart, in GB/s
BEGIN = 1000.0


def sampled(devices: int = 1, points: list[float] = POINTS) -> Program:
    """Return a program of one kernel a device, whose traffic was sampled every µs from its begin on."""
    program = Program(devices)
    for device in range(devices):
        program.run("aten::relu", BEGIN + 10 * device, BEGIN + 20, 5, [64, 64], kernel="relu_kernel", device=device)
        for i, value in enumerate(points):
            program.count("dram_bytes_read", BEGIN + i, value, "GB/s", device)
        program.count("dram_bytes_read", BEGIN + len(points), 0, "GB/s", device, missing=1)
    return program


def overview_of(trace: Any, tmp_path: Path) -> dict[str, Any]:
    return dict(written(trace, tmp_path).data["sections"]["overview"])


def devices_of(trace: Any, tmp_path: Path) -> dict[str, Any]:
    return {table["title"]: table for table in written(trace, tmp_path).data["sections"]["devices"]["tables"]}


# Tracks ---------------------------------------------------------------------------------------------------------------


def test_tracks_have_the_rates_and_times_of_the_trace(tmp_path: Path) -> None:
    page = written(sampled(2).load(), tmp_path)
    found = page.data["sections"]["timeline"]["counters"]
    assert [track["device"] for track in found["tracks"]] == [0, 1] and found["left_out"] == 0
    for track in found["tracks"]:
        names = [page.strings[track[name]] for name in ("name", "label", "unit")]
        assert names == ["dram_bytes_read", "DRAM read", "GB/s"]
        assert np.cumsum(page.column(track["start"])).tolist() == [1000.0 * i for i in range(5)]  # the page begins then
        assert page.column(track["duration"]).tolist() == [1000.0] * 5 and page.column(track["mean"]).tolist() == POINTS
        assert track["low"] is None and track["high"] is None and track["top"] == 7.25


def test_the_axis_of_shares_ends_at_100_percent_and_unknown_counters_keep_their_names(tmp_path: Path) -> None:
    trace = sampled().load()
    times = np.array([2_000_000, 2_000_010, 2_000_020], np.int64)
    for name, values in (("tensor_active", [10.0, 20.0]), ("power.W", [1e300, -5.0])):
        trace._core.add_samples(0, name, times[:-1], times[1:], np.array(values))
    page = written(trace, tmp_path)
    tracks = {page.strings[one["label"]]: one for one in page.data["sections"]["timeline"]["counters"]["tracks"]}
    assert list(tracks) == ["DRAM read", "tensor active", "power.W"]
    assert tracks["tensor active"]["top"] == 100 and page.strings[tracks["tensor active"]["unit"]] == "%"
    assert page.column(tracks["power.W"]["mean"]).tolist() == [1e300, -5.0]  # beyond 32 bits


def test_tracks_past_the_limit_are_counted(tmp_path: Path) -> None:
    program = sampled()
    for name in range(counters.MOST_TRACKS + 3):
        for i in range(2):
            program.count(f"c{name}", BEGIN + i, name)
    found = written(program.load(), tmp_path).data["sections"]["timeline"]["counters"]
    assert len(found["tracks"]) == counters.MOST_TRACKS and found["left_out"] == 4


def test_pages_without_counters_have_no_tracks(tmp_path: Path) -> None:
    trace = sampled(points=[]).load()
    page = written(trace, tmp_path)
    assert page.data["sections"]["timeline"]["counters"]["tracks"] == []
    overview = page.data["sections"]["overview"]
    assert overview["hfu"] is None and "Counters" not in devices_of(trace, tmp_path)
    found = recorded(overview)["Counters"]
    assert (found["present"], found["option"]) == (False, "counters=True")
    assert recorded(overview_of(sampled().load(), tmp_path))["Counters"]["present"] is True


SAMPLES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 40), st.floats(-10, 1000)), min_size=1, max_size=80)


@given(SAMPLES, st.integers(1, 30))
def test_buckets_keep_the_mean_the_least_and_the_largest(steps: list[tuple[int, int, float]], most: int) -> None:
    """Each step is the gap before a sample, its duration and its value."""
    ends = np.cumsum([gap + length for gap, length, _ in steps])
    duration = np.array([length for _, length, _ in steps])
    start, value = ends - duration, np.array([one for _, _, one in steps])
    found = counters.bucketed(counters.Buckets(start, duration, value, value, value), most)
    if len(steps) <= most:
        assert found.mean.tolist() == value.tolist()
        return
    assert len(found.start) <= most
    parts_per_ns = most / max(float(start[-1] - start[0]), 1.0)
    parts: dict[int, list[int]] = {}
    for i in range(len(steps)):
        parts.setdefault(min(int((start[i] - start[0]) * parts_per_ns), most - 1), []).append(i)
    assert found.start.tolist() == [start[of[0]] for of in parts.values()]
    for bucket, of in enumerate(parts.values()):
        time = sum(int(duration[i]) for i in of)
        weights = [int(duration[i]) if time else 1 for i in of]
        mean = math.fsum(value[i] * w for i, w in zip(of, weights, strict=True)) / sum(weights)
        assert found.mean[bucket] == pytest.approx(mean, rel=1e-9, abs=1e-9)
        assert (found.low[bucket], found.high[bucket]) == (min(value[i] for i in of), max(value[i] for i in of))
        assert found.start[bucket] + found.duration[bucket] == ends[of[-1]]


def test_a_long_track_is_merged_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters.bucketed, "__defaults__", (2,))
    page = written(sampled().load(), tmp_path)
    (track,) = page.data["sections"]["timeline"]["counters"]["tracks"]
    assert track["samples"] == 5 and track["top"] == 7.25
    assert page.column(track["mean"]).tolist() == [2.5, np.float32((1.5 + 7.25 + 2) / 3)]
    assert page.column(track["low"]).tolist() == [0.0, 1.5] and page.column(track["high"]).tolist() == [5.0, 7.25]


# Overview -------------------------------------------------------------------------------------------------------------


def test_the_overview_has_the_sums_that_the_summary_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = sampled()  # its kernel runs from 20 to 25 µs, of 25
    for ts, share, more in ((18, 0.0, {}), (20, 90.0, {}), (21, 60.0, {}), (22, 0, {"missing": 1})):
        program.count("tensor_active", BEGIN + ts, share, "%", **more)
    trace = program.load()
    assert overview_of(trace, tmp_path)["hfu"] == pytest.approx((90 + 60) / 2 * 5 / 25)
    head, row = devices_of(trace, tmp_path)["Counters"]["rows"]
    shown = dict(zip(head, row, strict=True))
    assert shown["tensor active"] == "37.5%" and shown["read"] == "–"  # it was counted before the kernel began
    text = str(trace.summary())
    assert "HFU 15.0% (counted in 40.0% of the work)" in " ".join(text.split()) and "--" in text.split("Counters")[1]


def test_energy_is_that_of_the_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = sampled().load()
    trace._energy = {"cuda:0": Energy(2.0, 0.5)}
    _, row = devices_of(trace, tmp_path)["Energy in J, W"]["rows"]
    assert row == ["cuda:0", *map(number_text, (2.0, 4.0, 64 * 64 / 2 / 1e9))]
    trace._energy = {"cuda:0": Energy(2.0, 0.01)}
    table = devices_of(trace, tmp_path)["Energy in J, W"]
    assert table["rows"][1][1] == "–" and "10 ms" in table["notes"]


def recorded(overview: dict[str, Any]) -> dict[str, Any]:
    return {one["what"]: one for one in overview["missing"]}


def test_files_of_other_profilers_name_their_own_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = Nsys()
    export.call("cudaLaunchKernel_v7000", 1000, 2000, 1)
    export.kernel("void kernel(int)", 3000, 5000, 1)
    path = export.write(tmp_path / "capture.sqlite")
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(path)]) == 0
    overview = PageRead(tmp_path / "capture.report.html").data["sections"]["overview"]
    options = {what: one["option"] for what, one in recorded(overview).items() if not one["present"]}
    assert len(overview["notes"]) == len(set(overview["notes"]))
    assert options["Counters"] == "nsys profile --gpu-metrics-devices=all"
    assert options["Input shapes"] == "nsys profile --pytorch=autograd-shapes-nvtx"
    assert options["Steps"] == "a range named ProfilerStep#1, ProfilerStep#2, … around each step"
    assert options["Memory"] == "nsys profile --cuda-memory-usage=true"
    assert not [option for option in options.values() if "=True" in option]
    assert ["Recorded by", "Nsight Systems 2026.2.1.210"] in overview["facts"]


# Graphs and coverage --------------------------------------------------------------------------------------------------


def graphs_in(folder: Path) -> tuple[Path, Path]:
    for name, program in (("replay", replayed(*KERNELS, at=(0, 100))), ("capture", step(Capture()))):
        (folder / f"{name}.json").write_bytes(program.text())
    return folder / "replay.json", folder / "capture.json"


def test_the_report_joins_captures(tmp_path: Path) -> None:
    replay, capture = graphs_in(tmp_path)
    path = tmp_path / "page.html"
    assert main(["report", str(replay), "--captures", str(capture), "-o", str(path)]) == 0
    overview = PageRead(path).data["sections"]["overview"]
    counts = graphs_of(path)
    assert counts["launches of graphs"] == "2" and counts["captured graphs"] == "1"
    assert counts["works that belong to an op of the capture"] == "6"
    assert "launches that match no captured graph" not in counts and overview["coverage"]["bytes"] == 1
    assert not any(note.startswith("CUDA graphs:") for note in overview["notes"])
    assert main(["report", str(replay), "-o", str(path)]) == 0
    overview = PageRead(path).data["sections"]["overview"]
    assert overview["coverage"]["bytes"] == 0
    (note,) = (note for note in overview["notes"] if note.startswith("CUDA graphs:"))
    assert "2 match no captured graph; 6 of 6 kernels" in note and "--captures" in note
    assert graphs_of(path)["works whose node of a capture is known"] == "0"


def test_summary_compare_and_table_join_captures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay, capture = graphs_in(tmp_path)
    out = tmp_path / "out.json"
    for more, unmodelled in (([], 48.0), (["--captures", str(capture)], 0.0)):
        assert main(["summary", str(replay), "--json", str(out), *more]) == 0
        assert json.loads(out.read_text())["accounting"][-1]["unmodelled_us"] == unmodelled
    names = []
    for more in ([], ["--captures", str(capture)]):
        assert main(["compare", str(replay), str(replay), "--json", str(out), *more]) == 0
        names.append("aten::mm" in out.read_text())
    assert names == [False, True]
    folder = tmp_path / "captures"
    folder.mkdir()
    (folder / "one.json.gz").write_bytes(gzip.compress(capture.read_bytes()))
    capsys.readouterr()
    assert main(["table", str(replay), "--captures", str(folder), "--json", str(out)]) == 0
    assert "aten::mm" in capsys.readouterr().out
    rows = json.loads(out.read_text())["rows"]
    assert sum(row["flops"] or 0 for row in rows if row["key"] == "aten::mm") == 2 * 4 * 64 * 128 * 256


def graphs_of(path: Path) -> dict[str, str]:
    tables = PageRead(path).data["sections"]["devices"]["tables"]
    return dict(next(table for table in tables if table["title"] == "CUDA graphs")["rows"])


def test_ranks_have_tracks_of_their_own(tmp_path: Path) -> None:
    for rank in range(2):
        program = sampled(points=[1.0 + rank, 3.0])
        program.head["distributedInfo"] = {"rank": rank, "world_size": 2, "backend": "nccl"}
        (tmp_path / f"rank{rank}.json").write_bytes(program.text())
    assert main(["report", *map(str, sorted(tmp_path.iterdir())), "-o", str(tmp_path / "p.html")]) == 0
    page = PageRead(tmp_path / "p.html")
    timeline = page.data["sections"]["timeline"]
    tracks = timeline["counters"]["tracks"]
    assert [page.column(track["mean"]).tolist() for track in tracks] == [[1.0, 3.0], [2.0, 3.0]]
    assert {track["part"] for track in tracks} == {lane["part"] for lane in timeline["lanes"]}

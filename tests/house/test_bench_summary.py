"""The summary of a run of the benchmarks: hand-made results, and the ratios and lines that follow from them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
import run_all
import summary
from harness import Report, write_json

MACHINE = {"device": "NVIDIA X", "cpus": 8, "flopscope": "2.0"}


def sample(case: str, who: str, *values: float, ours: bool = False, unit: str = "s", **facts: Any) -> dict[str, Any]:
    mark = {"ours": True} if ours else {}
    return {"case": case, "who": who, "unit": unit, **mark, **facts, "values": list(values)}


def target(text: str, value: float, limit: float, unit: str) -> dict[str, Any]:
    return {"text": text, "value": value, "limit": limit, "unit": unit, "met": value <= limit}


def result(*samples: dict[str, Any], targets: tuple[dict[str, Any], ...] = (), **machine: Any) -> dict[str, Any]:
    date = machine.pop("date", "2026-02-01T00:00:00+00:00")
    return {
        "date": date,
        "machine": MACHINE | machine,
        "summary": {"targets": list(targets)},
        "samples": list(samples),
    }


def before(*samples: dict[str, Any], **rest: Any) -> dict[str, Any]:
    """Return a result of a version that marked none of its samples."""
    unmarked = [{name: value for name, value in one.items() if name != "ours"} for one in samples]
    return result(*unmarked, **{"flopscope": "1.0", "date": "2026-01-01T00:00:00+00:00", **rest})


def changes(now: dict[str, Any], *old: dict[str, Any]) -> dict[str, float | None]:
    return {row["ratio"]: row["change"] for row in summary.summarized("p", now, old, 1.0)["ratios"]}


def lines(now: dict[str, Any], *old: dict[str, Any]) -> list[str]:
    return summary.text(summary.summarized("p", now, old, 1.0)).splitlines()


def test_ratios_are_compared_and_times_are_not() -> None:
    """Both got ten times slower, ours less: 6/40 of now over 1/5 of before is 0.75."""
    now = result(sample("add", "flopscope", 6.0, 6.0, ours=True), sample("add", "torch", 40.0, 40.0))
    old = before(sample("add", "flopscope", 1.0, 1.0), sample("add", "torch", 5.0, 5.0))
    assert changes(now, old) == {"add: flopscope / torch": pytest.approx(-0.25)}
    assert not any(line.startswith("regression") for line in lines(now, old))


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    """A disturbance of a whole round cancels; with other numbers of rounds, medians are divided."""
    now = result(sample("add", "flopscope", 1.0, 20.0, 3.0, ours=True), sample("add", "torch", 2.0, 40.0, 6.0))
    old = before(sample("add", "flopscope", 1.0, 2.0, 9.0), sample("add", "torch", 8.0))
    assert changes(now, old) == {"add: flopscope / torch": pytest.approx(0.5 / 0.25 - 1)}


def test_ours_are_compared_with_each_peer_of_their_case() -> None:
    now = result(
        sample("add", "ours", 1.0, ours=True, dtype="float32", shape=[2, 3]),
        sample("add", "ours, out=", 1.0, ours=True, dtype="float32", shape=[2, 3]),
        sample("add", "torch", 1.0, dtype="float32", shape=[2, 3]),
        sample("add", "ours", 1.0, ours=True, dtype="float16", shape=[2, 3]),
        sample("add", "torch", 2.0, dtype="float16", shape=[2, 3]),
        sample("sizes", "ours", 1.0, ours=True, unit="bytes"),
        sample("sizes", "torch", 1.0, unit="bytes"),
    )
    old = before(
        sample("add", "ours", 1.0, dtype="float16", shape=[2, 3]),
        sample("add", "torch", 4.0, dtype="float16", shape=[2, 3]),
        sample("add", "ours", 1.0, dtype="float32", shape=[4, 3]),
        sample("add", "torch", 4.0, dtype="float32", shape=[4, 3]),
    )
    assert changes(now, old) == {
        "add float32 2x3: ours / torch": None,
        "add float32 2x3: ours, out= / torch": None,
        "add float16 2x3: ours / torch": pytest.approx(1.0),
    }
    assert "1 of 3 were there before" in "\n".join(lines(now, old))


@pytest.mark.parametrize(
    ("ours", "line"),
    [
        ((1.04, 1.04, 1.04), None),
        ((1.06, 1.06, 1.06), "regression: p: add: flopscope / torch: 1 -> 1.06 (+6.0%)"),
        ((0.80, 1.06, 1.20), "regression: p: add: flopscope / torch: 1 -> 1.06 (+6.0%; the quartiles overlap)"),
    ],
)
def test_a_rise_of_over_five_percent_is_a_line(ours: tuple[float, ...], line: str | None) -> None:
    now = result(sample("add", "flopscope", *ours, ours=True), sample("add", "torch", 1.0, 1.0, 1.0))
    old = before(sample("add", "flopscope", 1.0, 1.0, 1.0), sample("add", "torch", 1.0, 1.0, 1.0))
    assert [one for one in lines(now, old) if one.startswith("regression")] == ([line] if line else [])


def test_targets_in_x_are_ratios_and_others_are_only_shown() -> None:
    now = result(targets=(target("memory over the file", 0.33, 0.3, "x"), target("to a table", 9.0, 10.0, "s")))
    old = before(targets=(target("memory over the file", 0.30, 1.0, "x"), target("to a table", 1.0, 10.0, "s")))
    assert changes(now, old) == {"memory over the file": pytest.approx(0.1)}
    text = [" ".join(line.split()) for line in lines(now, old)]
    assert "Targets: 1 met, 1 missed. Before: not judged." in text
    assert "p memory over the file <= 0.3 x 0.33 x 0.3 MISSED" in text
    assert "p to a table <= 10 s 9 s 1 met" in text


def test_the_version_before_is_the_newest_of_the_same_machine() -> None:
    def one(seconds: float, **rest: Any) -> dict[str, Any]:
        return before(sample("add", "flopscope", seconds), sample("add", "torch", 1.0), **rest)

    now = result(sample("add", "flopscope", 4.0, ours=True), sample("add", "torch", 1.0))
    old = one(1.0), one(2.0, date="2026-01-02T00:00:00+00:00"), one(3.0, cpus=2), one(3.0, device="NVIDIA Y")
    assert changes(now, *old) == {"add: flopscope / torch": pytest.approx(1.0)}
    assert changes(now, *old[2:]) == {"add: flopscope / torch": None}
    assert any("not in the version before" in line for line in lines(now, *old[2:]))


def test_a_later_run_of_a_program_replaces_its_rows() -> None:
    failed = summary.summarized("a", None, [], 3.0, "a.py exited with 1:\nValueError: no")
    good = summary.summarized("a", result(targets=(target("t", 1.0, 2.0, "s"),)), [], 3.0)
    other = summary.summarized("b", result(), [], 3.0)
    whole = summary.combined([failed, other, good])
    assert [row["program"] for row in whole["programs"]] == ["b", "a"]
    assert "FAILED: ValueError: no" in summary.text(summary.combined([good, failed]))
    assert summary.combined([good, failed])["targets"] == []


def test_the_marks_of_a_report_reach_its_file(tmp_path: Path) -> None:
    report = Report("p", ["a"], tmp_path)
    report.keep("add", {"fs.add": [1.0], "fs.add, out=": [1.0], "torch": [2.0]}, ours="fs.")
    report.keep("mul", {"fs.mul": [1.0], "torch": [2.0]})
    report.finish()
    content = summary.read(tmp_path / "p.json")
    assert content is not None
    assert list(summary.pairs_of(content)) == [("add", "fs.add", "torch"), ("add", "fs.add, out=", "torch")]


def test_the_command_runs_the_named_programs_and_compares_them(tmp_path: Path) -> None:
    """The results before are made from those of a first run: twice as fast."""

    def run_all(out: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "benchmarks" / "run_all.py"), "--out", str(tmp_path / out)]
        return subprocess.run([*command, *more], capture_output=True, text=True)

    assert "there is no nothing; there are store_append" in run_all("a", "--only", "nothing").stderr
    first = run_all("a", "--only", "store_append", "--before", str(tmp_path))
    assert first.returncode == 0, first.stderr
    content = json.loads((tmp_path / "a" / "store_append.json").read_text())
    for one in content["summary"]["targets"]:
        one["value"] *= 0.5
    write_json(tmp_path / "store_append.json", content)
    second = run_all("a", "--only", "store_append", "--before", str(tmp_path))
    assert second.returncode == 0, second.stderr
    found = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert [row["program"] for row in found["programs"]] == ["store_append"]
    assert {row["text"]: row["before"] for row in found["targets"]}["memory of 10,000,000 events"] == pytest.approx(
        0.281, abs=1e-3
    )
    assert second.stdout.endswith((tmp_path / "a" / "summary.txt").read_text())


def test_every_program_of_the_command_exists() -> None:
    names = [*run_all.HOST_PROGRAMS, *run_all.DEVICE_PROGRAMS, *run_all.CUDA_PROGRAMS]
    assert [name for name in names if not (ROOT / "benchmarks" / f"{name}.py").is_file()] == []
    for name in run_all.ROUNDS:
        assert "rounds=" in (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")

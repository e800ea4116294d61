"""flopscope perf list, show and compare, on runs written by the test, with NumPy's statistics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT
from helpers.wrong_runs import WRONG

from flopscope.cli.program import main
from flopscope.measuring.perf import columns, runs, store

CPU = {"name": "a CPU", "isa": "avx2", "threads": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the runs of one machine, below the current folder."""
    monkeypatch.delenv("FLOPSCOPE_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".flopscope" / "perf" / "machine"
    folder.mkdir(parents=True)
    return folder


def samples_of(median: float, spread: float = 0.01, n: int = 201, seed: int = 0) -> np.ndarray[Any, Any]:
    return median * (1 + spread * np.random.default_rng(seed).standard_normal(n))


def record(test: str, samples: np.ndarray[Any, Any], **changes: Any) -> dict[str, Any]:
    ordered, n = np.sort(samples), len(samples)
    half = int(0.98 * np.sqrt(n))  # order statistics of the median's 95 % interval, by the normal approximation
    times = {
        "n": n,
        "batch": 1,
        "min": ordered[0],
        "max": ordered[-1],
        "mean": np.mean(samples),
        "median": np.median(samples),
        "std": np.std(samples, ddof=1),
        "iqr": float(np.subtract(*np.percentile(samples, [75, 25]))),
        "ci": [ordered[n // 2 - half], ordered[n // 2 + half]],
        "timing_source": "cpu",
        "cache": "hot",
        "samples": samples.tolist(),
    }
    content = {"test": test, "key": f"{test}#0", "device": "cpu", "outcome": "passed", "limits": [], "name": "f"}
    return {**content, "measurement": times, **changes}


def write(file: Path, records: list[dict[str, Any]], **changes: Any) -> None:
    content = {"format": 1, "flopscope": "0.5.0", "when": "2026-01-02T03:04:05+00:00", "machines": {"cpu": CPU}}
    commit = {"id": "0123456789abcdef", "branch": "main", "dirty": True}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**content, "commit": commit, "measurements": records, **changes}))


def two_runs(folder: Path) -> None:
    """Write a run, and one in which test_slow takes twice the time, test_fast half, and test_same the same."""
    names = {
        "a/test_x.py::test_slow[10-f32]": 2.0,
        "a/test_x.py::test_fast[20-f32]": 0.5,
        "b/test_y.py::test_same": 1.0,
    }
    write(folder / "0001_base.json", [record(test, samples_of(100.0, seed=1)) for test in names])
    second = [record(test, samples_of(100.0 * ratio, seed=2)) for test, ratio in names.items()]
    write(folder / "0002_next.json", second)


def perf(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["perf", *arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def rows_of(output: str, start: str = "test ") -> list[list[str]]:
    """Return the cells of the rows below the first header."""
    lines = output.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith(start))
    below = [line for line in lines[begin + 1 :]]
    return [line.split() for line in below[: below.index("")] if line] if "" in below else [x.split() for x in below]


# list and show --------------------------------------------------------------------------------------------------------


def test_the_list_has_a_line_for_each_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs(folder)
    write(
        folder.parent / "other" / "0001_base.json", [record("t.py::t", samples_of(5.0), outcome="failed")], commit=None
    )
    status, out, _ = perf(capsys, "list")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        ["machine"],
        ["run", "date", "(UTC)", "commit", "measured", "failed", "devices"],
        ["0001_base", "2026-01-02", "03:04", "01234567*", "3", "0", "cpu"],
        ["0002_next", "2026-01-02", "03:04", "01234567*", "3", "0", "cpu"],
        ["other"],
        ["run", "date", "(UTC)", "commit", "measured", "failed", "devices"],
        ["0001_base", "2026-01-02", "03:04", "--", "1", "1", "cpu"],
    ]


def test_commands_work_below_the_folder_of_the_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs(folder)
    deep = folder.parent.parent.parent / "src" / "deep"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert "0002_next" in perf(capsys, "list")[1]
    status, _, _ = perf(capsys, "show", "--storage", "../../.flopscope/perf")
    assert status == 0


def test_a_run_is_shown_with_the_statistics_of_its_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = samples_of(1234.5)
    write(folder / "0007_x.json", [record("t.py::test_a", samples)])
    status, out, _ = perf(capsys, "show")
    assert status == 0 and "0007_x" in out and "01234567 on main, with changes" in out and "a CPU" in out
    header = next(line for line in out.splitlines() if line.startswith("test "))
    assert header.split() == ["test", "min", "median", "IQR", "rounds", "OPS", "verdict"]
    ((test, *cells, verdict),) = rows_of(out)
    iqr = np.subtract(*np.percentile(samples, [75, 25]))
    expected = [samples.min() / 1e3, np.median(samples) / 1e3, iqr, len(samples), 1e6 / samples.mean()]
    assert (test, verdict) == ("t.py::test_a", "--") and cells[1::2][:3] == ["ms", "ms", "µs"]
    numbers = [float(cell) for cell in cells if cell not in ("ms", "µs", "k")]
    assert numbers == pytest.approx(expected, rel=5e-4)


def test_show_takes_columns_and_sorts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [record(f"t.py::test_{name}", samples_of(us)) for name, us in (("b", 3.0), ("c", 1.0), ("a", 2.0))]
    records[1]["measurement"]["max"] = None
    write(folder / "0001_x.json", records)

    def order(*options: str) -> str:
        return "".join(cells[0][-1] for cells in rows_of(perf(capsys, "show", *options)[1]))

    assert [order("--sort", name) for name in ("name", "median", "OPS", "max")] == ["abc", "cab", "cab", "abc"]
    assert order() == "bca"
    out = perf(capsys, "show", "--columns", "Mean, stddev,outliers")[1]
    assert next(line for line in out.splitlines() if line.startswith("test ")).split()[1:] == [
        *("mean", "stddev", "outliers")
    ]


def test_failed_tests_and_limits_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passed, failed = ({"limit": "", "measured": "", "verdict": verdict} for verdict in ("passed", "failed"))
    records = [
        record("t.py::a", samples_of(1.0), limits=[passed]),
        record("t.py::b", samples_of(1.0), limits=[passed, failed], outcome="failed"),
        record("t.py::c", samples_of(1.0), limits=[passed], outcome="failed"),
    ]
    write(folder / "0001_x.json", records)
    out = perf(capsys, "show", "--columns", "verdict")[1]
    assert [" ".join(cells[1:]) for cells in rows_of(out)] == ["passed", "failed", "test failed"]
    assert "2 failed tests" in out


# compare --------------------------------------------------------------------------------------------------------------


def test_the_last_two_runs_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs(folder)
    write(folder / "0000_old.json", [record("t.py::other", samples_of(1.0))])
    status, out, _ = perf(capsys, "compare", "--columns", "median,ratio,verdict")
    assert status == 0
    rows = rows_of(out)[1::2]  # those of the second run
    assert [row[-1] for row in rows] == ["slower", "faster", "same"]
    before = np.median(samples_of(100.0, seed=1))
    expected = [np.median(samples_of(us, seed=2)) / before for us in (200.0, 50.0, 100.0)]
    assert [float(row[-2]) for row in rows] == pytest.approx(expected, rel=5e-4)
    assert "1 slower by more than 5 % (a/test_x.py::test_slow[10-f32])" in out and "1 the same within 5 %" in out


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("--fail-over", "5%"), 1),
        (("--fail-over", "100%"), 0),  # 2.0 may or may not be more: unclear
        (("--fail-over", "80%"), 1),
        (("--fail-over", "150%"), 0),
        (("0002", "0001", "--fail-over", "5%"), 1),  # the other test is slower this way
        (("1", "1", "--fail-over", "0%"), 0),
        ((), 0),
    ],
)
def test_the_status_says_whether_a_test_is_slower(
    folder: Path, arguments: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs(folder)
    assert perf(capsys, "compare", *arguments)[0] == status


def test_three_runs_are_compared_with_the_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, us in enumerate((100.0, 150.0, 300.0), 1):
        write(folder / f"000{number}_x.json", [record("t.py::a", samples_of(us, 0.001))])
    out = perf(capsys, "compare", "1", "2", "3", "--columns", "ratio,verdict")[1]
    assert [cells[-2:] for cells in rows_of(out)] == [["1", "--"], ["1.5", "slower"], ["3", "slower"]]


def test_what_cannot_be_compared_has_no_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = samples_of(10.0)
    records = [record(f"t.py::{name}", here) for name in ("gpu", "timer", "cold", "gone", "same")]
    write(folder / "0001_x.json", records)
    changed = [record(f"t.py::{name}", 3 * here) for name in ("gpu", "timer", "cold", "new")] + [records[-1]]
    changed[0]["device"] = "cuda:0"
    changed[1]["measurement"]["timing_source"] = "event"
    changed[2]["measurement"]["cache"] = "cold"
    write(folder / "0002_x.json", changed)
    status, out, _ = perf(capsys, "compare", "--fail-over", "5%", "--columns", "verdict")
    assert status == 0
    for line in ("3 not alike", "1 missing from 0001_x", "1 missing from 0002_x (t.py::gone)", "1 the same"):
        assert line in out
    write(folder / "0003_x.json", changed, machines={"cpu": {**CPU, "name": "another CPU"}})
    status, _, err = perf(capsys, "compare", "1", "3", "--fail-over", "5%")
    assert status == 2 and "no measurement in common that can be compared" in err


def test_runs_of_two_machines_are_named_by_their_folders(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for machine in ("machine", "other"):
        write(folder.parent / machine / "0001_x.json", [record("t.py::a", samples_of(1.0))])
    out = perf(capsys, "compare", "machine/1", "other/x")[1]
    assert "machine/0001_x" in out and "other/0001_x" in out
    status, _, err = perf(capsys, "show", "1")
    assert status == 2 and "choose one of machine/1, other/1" in err


def test_changed_versions_and_failed_tests_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder / "0001_x.json", [record("t.py::a", samples_of(1.0))], versions={"torch": "2.1", "python": "3.12"})
    later = {"torch": "2.2", "python": "3.12"}
    write(folder / "0002_x.json", [record("t.py::a", samples_of(1.0), outcome="failed")], versions=later)
    out = perf(capsys, "compare")[1]
    assert "torch: 2.1, then 2.2" in out and "python" not in out and "1 test failed in 0002_x (t.py::a)" in out


@pytest.mark.parametrize(
    ("by", "titles"),
    [
        ("file", ["file: a/test_x.py", "file: b/test_y.py"]),
        ("name", ["name: test_slow[10-f32]", "name: test_fast[20-f32]", "name: test_same"]),
        ("func", ["func: test_slow", "func: test_fast", "func: test_same"]),
        ("param", ["param: 10-f32", "param: 20-f32", "param: none"]),
        ("param:n", ["n=10", "without n"]),
        ("device", ["device: cpu"]),
    ],
)
def test_rows_are_grouped(folder: Path, by: str, titles: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    two_runs(folder)
    content = json.loads((folder / "0001_base.json").read_text())
    content["measurements"][0]["params"] = {"n": "10", "dtype": "f32"}
    (folder / "0001_base.json").write_text(json.dumps(content))
    lines = perf(capsys, "compare", "--group", by)[1].splitlines()
    heads = [lines[at - 1] for at, line in enumerate(lines) if line.startswith("test ")]
    assert heads == titles


@pytest.mark.parametrize("spread", [0.01, 0.3])
def test_the_interval_of_a_ratio_holds_that_of_the_bootstrap(spread: float) -> None:
    draw = np.random.default_rng(3)
    ours, hits = [], 0
    for seed in range(40):
        pair = [samples_of(100.0, spread, 101, seed=100 * seed + which) for which in (0, 1)]
        new, old = (store.Median(*_median_of(one)) for one in pair)
        ratio = store.ratio_of(new, old)
        resampled = [np.median(draw.choice(one, (2000, 101)), axis=1) for one in pair]
        low, high = np.percentile(resampled[0] / resampled[1], [5, 95])
        hits += ratio.low <= low and high <= ratio.high
        ours.append(ratio.low <= 1 <= ratio.high)
    assert hits >= 38 and sum(ours) >= 38  # equal functions: an interval without 1 is rare


def _median_of(samples: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    times = record("t", samples)["measurement"]
    return times["median"], *times["ci"]


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("show", "nxet"), 1, "no run is stored as 'nxet'; did you mean 'next'? (stored runs: 0001_base, 0002_next)"),
        (("show", "--columns", "medain"), 2, "there is no column 'medain'; did you mean 'median'?"),
        (("show", "--columns", ","), 2, "names no column"),
        (("compare", "--sort", "ration"), 2, "there is no column 'ration'; did you mean 'ratio'?"),
        (("compare", "--group", "fiel"), 2, "there is no grouping 'fiel'; did you mean 'file'?"),
        (("compare", "--group", "param:"), 2, "as in param:size"),
        (("compare", "1"), 2, "'1' is one run"),
        (("compare", "1", "9"), 1, "no run is stored as '9'"),
        (("show", "missing.json"), 1, "missing.json"),
        (("show", "--storage", "nowhere"), 1, "no run is stored as 'last'"),
        (("compare", "--histogram", "x.nothing"), 2, "--histogram x.nothing: the format of a picture is its suffix"),
    ],
)
def test_errors_name_the_value(
    folder: Path, arguments: tuple[str, ...], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs(folder)
    got, _, err = perf(capsys, *arguments)
    assert got == status and message in err


@pytest.mark.parametrize("text", ["5", "0.05", "-5%", "nan%", "5 percent", ""])
def test_fail_over_is_a_percentage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["perf", "compare", f"--fail-over={text}"])
    assert ended.value.code == 2 and f"{text!r} is not a percentage such as 5%" in capsys.readouterr().err


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_unreadable_files_are_skipped_and_counted(
    folder: Path, content: str | bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs(folder)
    (folder / "0003_bad.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    for command in ("show", "compare"):
        status, out, _ = perf(capsys, command)
        assert status == 0 and "1 file skipped: 0003_bad.json: " in out and "0002_next" in out
    (folder / "of_another_tool.json").write_text("{}")
    status, out, _ = perf(capsys, "list")
    assert status == 0 and "2 files skipped" in out and "0002_next" in out and out.isprintable() is False
    assert all(line.isprintable() for line in out.splitlines())


def test_too_few_readable_runs_are_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = perf(capsys, "list")
    assert status == 0 and "no run is stored in" in out and "pytest --perf-save" in out
    assert perf(capsys, "show")[0] == 1
    write(folder / "0001_x.json", [record("t.py::a", samples_of(1.0))])
    status, _, err = perf(capsys, "compare")
    assert status == 2 and "1 of the 2 runs needed can be read" in err


STRANGE = ("\x1b[31m", [1], {"a": 1}, None, True, 10**400, -1, "x" * 5000, 1.5)


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_strange_values_are_shown_as_unknown(folder: Path, value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    one = record("t.py::a", samples_of(1.0))
    one |= {name: value for name in ("test", "outcome", "limits", "params", "ops", "name")}
    names = ("n", "batch", "min", "max", "mean", "iqr", "samples", "clock_mhz", "cache")
    one["measurement"] |= {name: value for name in names}
    extra = {name: value for name in ("commit", "versions", "when", "flopscope")}
    for number in (1, 2):
        write(folder / f"000{number}_x.json", [one], **extra, machines={"cpu": {"name": "\x1b[2J" * 100}})
    for arguments in (("list",), ("show", "--columns", ",".join(columns.COLUMNS)), ("compare", "--group", "param:a")):
        status, out, _ = perf(capsys, *arguments)
        assert status == 0 and all(line.isprintable() and len(line) <= 100 for line in out.splitlines())


# The terminal, the picture --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_text_fits_the_terminal(
    folder: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_runs(folder)
    write(folder / f"0003_{'n' * 90}.json", [record(f"tests/{'d' * 80}/t.py::test_a", samples_of(1.0))])
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in (("list",), ("show",), ("show", "1"), ("compare", "1", "2"), ("compare", "2", "1", "3")):
        _, out, _ = perf(capsys, *arguments)
        words = {part for line in out.splitlines() if len(line) > width for part in [line]}
        assert not words
    out = perf(capsys, "compare", "1", "2")[1]
    assert ("too narrow" in out) == (width < 100) and "ratio" in out and "slower" in out


def test_the_picture_is_an_svg_with_a_box_for_each_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    two_runs(folder)
    status, out, _ = perf(capsys, "compare", "--histogram", "times.svg")
    assert status == 0 and "drawn: times.svg, 3 tests" in out
    text = Path("times.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert text.count("fill: #707070") >= 3 and text.count("fill: #0072b2") >= 3


def test_the_boxes_are_the_quartiles_of_the_samples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    from flopscope.show.runs import draw_runs

    boxes: list[dict[str, float]] = []
    real = Axes.bxp
    monkeypatch.setattr(Axes, "bxp", lambda axes, stats, **rest: (boxes.extend(stats), real(axes, stats, **rest))[1])
    one, other = samples_of(10.0), samples_of(30.0, seed=4)
    draw_runs(tmp_path / "x.svg", {"test $x_1$": {"a": one.tolist(), "b": other.tolist()}}, ["a", "b"], 0.05)
    for box, samples in zip(boxes, (one, other), strict=True):
        quartiles = np.percentile(samples, [25, 50, 75]) / np.median(one)
        assert [box["q1"], box["med"], box["q3"]] == pytest.approx(quartiles)


def test_a_run_without_samples_cannot_be_drawn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    one = record("t.py::a", samples_of(1.0))
    del one["measurement"]["samples"]
    for number in (1, 2):
        write(folder / f"000{number}_x.json", [one])
    status, _, err = perf(capsys, "compare", "--histogram", "x.svg")
    assert status == 2 and "no samples to draw" in err and not Path("x.svg").exists()


def test_the_commands_need_neither_pytest_nor_matplotlib(folder: Path) -> None:
    two_runs(folder)
    code = (
        "import sys\nfor name in ('pytest', 'matplotlib'): sys.modules[name] = None\n"
        "from flopscope.cli.program import main\n"
        "assert main(['perf', 'list']) == main(['perf', 'show']) == main(['perf', 'compare']) == 0\n"
        "assert main(['perf', 'compare', '--histogram', 'x.svg']) == 1\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "pip install 'flopscope-profiler[plot]'" in done.stderr, done.stderr


def test_runs_are_read_with_their_numbers_and_nan_for_unknown_ones(folder: Path) -> None:
    one = record("t.py::a", samples_of(1.0))
    del one["measurement"]["mean"]
    write(folder / "0001_x.json", [one])
    (entry,) = runs.read(folder / "0001_x.json").entries.values()
    assert np.isnan(entry.numbers["mean"]) and np.isnan(entry.numbers["ops"]) and len(entry.samples) == 201

"""Runs in files: what --perf-save and --perf-json write and pytest-benchmark reads, and what --perf-compare reads."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fake_measure import Run, Times, runner
from helpers.processes import git

import flopscope as fs
from flopscope.measuring.perf import stored
from flopscope.support.files import read_json

pytest_plugins = ["pytester"]
stats = pytest.importorskip("pytest_benchmark.stats")
MACHINE = pytest.importorskip("pytest_benchmark.utils").get_machine_id()
BODY = "def test_a(perf): perf(fn)"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # pytest-benchmark measures nothing in a worker
    return runner(pytester, monkeypatch)


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    """The folder of this machine's runs."""
    return pytester.path / ".benchmarks" / MACHINE


def read(file: Path) -> Any:
    return json.loads(file.read_text(), parse_constant=pytest.fail)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def pytest_benchmark(*arguments: str) -> str:
    """Run a command of pytest-benchmark on the runs of the current folder, and return what it prints."""
    done = subprocess.run([sys.executable, "-m", "pytest_benchmark", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Writing --------------------------------------------------------------------------------------------------------------


def test_runs_are_numbered_in_the_folder_of_the_machine(run: Run, folder: Path) -> None:
    for options in (("--perf-save",), ("--perf-save=base",), ("--perf-save", "base")):
        result, _ = run(BODY, options=options)
        result.assert_outcomes(passed=1)
        assert "stored: " in result.stdout.str()
    first, *rest = names(folder)
    assert re.fullmatch(r"0001_\d{8}-\d{6}\.json", first)  # outside of git, the date
    assert rest == ["0002_base.json", "0003_base.json"]
    (folder / "0041_broken.json").write_text("{")
    run(BODY, options=("--perf-save=next",))
    assert (folder / "0042_next.json").exists()


def test_the_commit_is_stored_and_changes_are_flagged(run: Run, pytester: pytest.Pytester, folder: Path) -> None:
    run(BODY, options=("--perf-save",))
    git(pytester.path, "init", "-q", "-b", "trunk")
    git(pytester.path, "add", "test_it.py")
    git(pytester.path, "commit", "-q", "-m", "one")
    run(BODY, options=("--perf-save",))
    run(BODY + "\n# changed", options=("--perf-save",))
    head, time = git(pytester.path, "log", "-1", "--format=%H %cI").split()
    commits = [read(folder / name)["commit_info"] for name in names(folder)]
    found = [(one["id"], one["time"], one["branch"], one["dirty"]) for one in commits]
    # The stored runs are untracked files, which do not count.
    assert found == [
        ("unversioned", None, "(unknown)", False),
        *((head, time, "trunk", dirty) for dirty in (False, True)),
    ]
    assert names(folder)[1:] == [f"0002_{head[:8]}.json", f"0003_{head[:8]}-dirty.json"]


def test_a_file_has_the_statistics_of_its_samples_and_what_flopscope_knows(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_it="""
        import pytest, time
        @pytest.mark.parametrize("n, f", [(1000, sum)])
        def test_a(perf, n, f):
            perf(f, range(n), max_time=0.05, flops=1e3, peaks="none").at_most(s=1)
            perf(f, range(n), max_time=0.05, peaks="none")
        def test_once(perf): perf(time.sleep, 0.15, max_time=0.001, peaks="none")
        """)  # fmt: skip
    result = pytester.runpytest_inprocess("-p", "pytest_flopscope", "-p", "no:cacheprovider", "--perf-json=out.json")
    result.assert_outcomes(passed=2)
    content = read(pytester.path / "out.json")
    one, two, once = content["benchmarks"]
    assert {*content} == {"machine_info", "commit_info", "benchmarks", "datetime", "version"}
    assert {*one["stats"]} == {*stats.Stats.fields, "data", "iterations"}
    assert [each["fullname"] for each in (one, two)] == [
        "test_it.py::test_a[1000-sum]",
        "test_it.py::test_a[1000-sum] #2",
    ]
    assert (one["name"], one["param"], one["params"]) == ("test_a[1000-sum]", "1000-sum", {"n": 1000, "f": "sum"})
    data, found = one["stats"]["data"], one["stats"]
    assert found["median"] == pytest.approx(np.median(data)) and found["rounds"] == len(data)
    facts = one["extra_info"]
    assert (facts["device"], facts["verdict"], facts["outcome"], facts["flops"]) == ("cpu", "passed", "passed", 1000)
    assert facts["ci"][0] <= found["median"] <= facts["ci"][1] and two["extra_info"]["flops"] is None
    assert facts["tflops_per_s"] == pytest.approx(1e-9 / found["median"])
    assert [(limit["call"], limit["verdict"]) for limit in facts["limits"]] == [("at_most(s=1)", "passed")]
    assert (once["extra_info"]["ci"], once["stats"]["rounds"], once["stats"]["stddev"]) == ([None, None], 1, 0)
    assert once["params"] is None and once["stats"]["q1"] == once["stats"]["hd15iqr"] == once["stats"]["median"]
    machine = content["machine_info"]
    assert machine["versions"]["numpy"] == np.__version__ and machine["versions"]["flopscope"] == fs.__version__
    assert machine["cpu"]["brand_raw"] == fs.devices()[0].name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--perf-compare", "bsae"), "is 'bsae'; the newest are 0001_base"),
        (("--perf-compare", "7"), "is '7'; the newest are 0001_base"),
        (("--perf-compare", "missing.json"), "missing.json"),
        (("--perf-compare", "fifo.json"), "is 'fifo.json'"),
        *(
            ((f"--perf-save={name}",), "is not a valid name of a run")
            for name in ("a/b", "12", "last", "a" * 300, "..", "x.json")
        ),
        (("--perf-json", "no/such/folder.json"), "the folder does not exist"),
        (("--perf-unclear", "maybe"), "--perf-unclear"),
    ],
)
def test_invalid_options_end_the_session(run: Run, options: tuple[str, ...], message: str) -> None:
    run(BODY, options=("--perf-save=base",))
    os.mkfifo("fifo.json")
    result, clock = run(BODY, options=options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR and clock.calls == []
    output = result.stderr.str() + result.stdout.str()
    assert message in output and "Traceback" not in output


def test_a_session_without_measurements_stores_nothing_and_has_no_summary(run: Run, folder: Path) -> None:
    result, _ = run("def test_a(): pass", options=("--perf-save",))
    assert "nothing was measured" in result.stdout.str() and not folder.exists()
    assert "performance" not in run("def test_a(): pass")[0].stdout.str()


# pytest-benchmark -----------------------------------------------------------------------------------------------------


def test_pytest_benchmark_lists_and_compares_our_runs(run: Run, pytester: pytest.Pytester, folder: Path) -> None:
    body = "@pytest.mark.parametrize('n', [1, 2])\ndef test_a(perf, n):\n    perf(fn)\n    perf(fn)\n"
    for us in (20, 40):
        run(body, Times(us, 0.1), options=("--perf-save=base",))
    assert pytest_benchmark("list").splitlines() == [str(folder / f"000{number}_base.json") for number in (1, 2)]
    columns = ("min", "max", "mean", "stddev", "median", "iqr", "ops", "outliers", "rounds", "iterations")
    for options in ((), ("--group-by=param:n",), ("--between=median",)):
        assert "test_a[1] #2" in pytest_benchmark("compare", *options)
    pytest_benchmark("compare", "0002", "--sort=fullname", "--csv=out.csv", "--columns", ",".join(columns))
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["param:n"]) for row in rows] == [
        (f"test_it.py::test_a[{n}]{second}", str(n)) for n in (1, 2) for second in ("", " #2")
    ]
    expected = read(folder / "0002_base.json")["benchmarks"][0]["stats"]
    assert {name: rows[0][name] for name in columns} == {name: str(expected[name]) for name in columns}
    assert float(rows[0]["median"]) == pytest.approx(40e-6)


PEDANTIC = "def test_a(benchmark): benchmark.pedantic(fn, rounds=50, iterations=20)"
THEIRS = ("-p", "pytest_benchmark.plugin")


def test_both_plugins_work_in_one_session(run: Run, pytester: pytest.Pytester, folder: Path) -> None:
    body = PEDANTIC.replace("test_a", "test_theirs") + "\n" + BODY
    options = (*THEIRS, "--benchmark-save=theirs", "--perf-save=ours", "--perf-json=x.json", "--benchmark-json=y.json")
    result, _ = run(body, options=options)
    result.assert_outcomes(passed=2)
    assert names(folder) == ["0001_theirs.json", "0002_ours.json"]
    for file, test in (("x.json", "test_a"), ("y.json", "test_theirs")):
        assert [one["name"] for one in read(pytester.path / file)["benchmarks"]] == [test]
    result, _ = run(body, options=(*THEIRS, "--perf-compare=ours", "--benchmark-compare=0001"))
    result.assert_outcomes(passed=2)
    assert "test_theirs (NOW)" in result.stdout.str() and "test_a (now)" in result.stdout.str()
    run(body, options=(*THEIRS, "--perf-skip"))[0].assert_outcomes(passed=1, skipped=1)
    run(body, options=(*THEIRS, "--benchmark-skip"))[0].assert_outcomes(passed=1, skipped=1)


# Comparing ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["last", "2", "0002", "base", "0002_base", "last.json"])
def test_a_run_is_found_by_number_name_and_file_and_compared(run: Run, folder: Path, reference: str) -> None:
    for us in (10, 40):
        run(BODY, Times(us, 0.01), options=("--perf-save=base", "--perf-json=last.json"))
    result, _ = run(BODY, Times(20, 0.01), options=("--perf-compare", reference))
    result.assert_outcomes(passed=1)
    medians = [re.search(r"^test_a .*?([\d.]+) \(", line) for line in result.stdout.lines]
    assert [float(one[1]) for one in medians if one] == pytest.approx([20.0, 40.0])


@pytest.mark.parametrize("kind", ["folder", "FIFO", "device", "loop"])
def test_a_special_file_is_named_and_does_not_block(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "base.json"
    links = {"device": "/dev/zero", "loop": path.name}
    {"folder": path.mkdir, "FIFO": lambda: os.mkfifo(path)}.get(kind, lambda: path.symlink_to(links[kind]))()
    with pytest.raises(OSError if kind == "loop" else ValueError) as caught:
        read_json(path)
    assert str(path) in str(caught.value) and (kind == "loop" or "is not a regular file" in str(caught.value))
    with pytest.raises(FileNotFoundError, match="no run in"):
        stored.find(str(path), tmp_path)

"""Numbered runs of performance tests: what --perf-save stores, how runs are named, and what failures report."""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fake_measure import Compared, Run, Times, runner

import flopscope as fs
from flopscope.measuring import measuring
from flopscope.measuring.perf import history

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    run = runner(pytester, monkeypatch, tmp_path)
    monkeypatch.delenv("FLOPSCOPE_DATA_DIR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    return run


def stored(folder: Path) -> dict[str, Any]:
    """Return the contents of the stored runs by name of file."""
    files = sorted((folder / ".flopscope" / "perf").glob("*/*.json"))
    return {file.name: json.loads(file.read_text(), parse_constant=pytest.fail) for file in files}


# Storing --------------------------------------------------------------------------------------------------------------


def test_runs_are_numbered_in_the_folder_of_the_machine(run: Run, pytester: pytest.Pytester) -> None:
    body = "def test_a(perf): perf(fn)"
    for options in (("--perf-save",), ("--perf-save=base",), ("--perf-save", "base"), ("--perf-save",)):
        result, _ = run(body, options=options)
        result.assert_outcomes(passed=1)
        assert ".flopscope/perf/" in result.stdout.str()
    names = list(stored(pytester.path))
    assert [name[:5] for name in names] == ["0001_", "0002_", "0003_", "0004_"]
    assert names[1:3] == ["0002_base.json", "0003_base.json"]
    assert re.fullmatch(r"0001_\d{8}-\d{6}\.json", names[0])  # outside of git, the date
    machine = next((pytester.path / ".flopscope" / "perf").iterdir()).name
    assert machine.startswith(re.sub(r"[^\w.+-]+", "-", fs.devices()[0].name))


def test_the_number_is_above_all_others_even_of_unreadable_files(run: Run, pytester: pytest.Pytester) -> None:
    run("def test_a(perf): perf(fn)", options=("--perf-save=a",))
    folder = next((pytester.path / ".flopscope" / "perf").iterdir())
    (folder / "0041_broken.json").write_text("{")
    run("def test_a(perf): perf(fn)", options=("--perf-save=b",))
    assert (folder / "0042_b.json").exists()


def test_a_run_is_stored_in_the_folder_of_the_option(run: Run, pytester: pytest.Pytester) -> None:
    options = ("--perf-save=a", "--perf-storage", "runs/here")
    run("def test_a(perf): perf(fn)", options=options)
    assert [file.name for file in (pytester.path / "runs" / "here").glob("*/*")] == ["0001_a.json"]
    result, _ = run("def test_a(perf): perf(fn)", options=("--perf-compare=last", *options[1:]))
    result.assert_outcomes(passed=1)
    assert not (pytester.path / ".flopscope").exists()


def test_runs_are_stored_in_the_folder_of_the_environment_variable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOPSCOPE_DATA_DIR", str(tmp_path))
    run("def test_a(perf): perf(fn)", options=("--perf-save=a",))
    assert [file.name for file in (tmp_path / "perf").glob("*/*")] == ["0001_a.json"]


def test_sessions_that_end_together_take_different_numbers(tmp_path: Path) -> None:
    content = {"format": 1, "machines": {}, "measurements": []}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: history.save(content, f"of{i}", tmp_path), range(24)))
    numbers = sorted(int(file.name[:4]) for file in tmp_path.glob("*/*.json"))
    assert numbers == list(range(1, 25))


def test_the_commit_is_stored_and_changes_are_flagged(run: Run, pytester: pytest.Pytester) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, cwd=pytester.path, check=True, capture_output=True, text=True).stdout.strip()

    body = "def test_a(perf): perf(fn)"
    run(body, options=("--perf-save",))
    git("init", "-q", "-b", "trunk")
    git("add", "test_it.py")
    git("commit", "-q", "-m", "one")
    run(body, options=("--perf-save",))
    run(body + "\n# changed", options=("--perf-save",))
    head = git("rev-parse", "HEAD")
    contents = stored(pytester.path)
    assert [content["commit"] for content in contents.values()] == [
        None,
        {"id": head, "branch": "trunk", "dirty": False},  # although the stored runs are untracked
        {"id": head, "branch": "trunk", "dirty": True},
    ]
    assert list(contents)[1:] == [f"0002_{head[:8]}.json", f"0003_{head[:8]}-dirty.json"]


def test_the_stored_statistics_are_those_of_the_stored_samples(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("FLOPSCOPE_DATA_DIR", raising=False)
    pytester.makepyfile(
        test_it="""
        import pytest
        @pytest.mark.parametrize("n, f", [(1000, sum)])
        def test_a(perf, n, f): perf(f, range(n), max_time=0.05, peaks="none").at_most(s=1)
        """
    )
    result = pytester.runpytest_inprocess("-p", "pytest_flopscope", "-p", "no:cacheprovider", "--perf-save")
    result.assert_outcomes(passed=1)
    (content,) = stored(pytester.path).values()
    (record,) = content["measurements"]
    times = record["measurement"]
    samples = np.array(times["samples"])
    quartiles = np.percentile(samples, [75, 25])
    expected = {
        "n": len(samples),
        "min": samples.min(),
        "max": samples.max(),
        "mean": samples.mean(),
        "median": np.median(samples),
        "std": samples.std(ddof=1),
    }
    for name, value in expected.items():
        assert times[name] == pytest.approx(value, rel=1e-5), name
    assert times["iqr"] == pytest.approx(quartiles[0] - quartiles[1], abs=1e-5 * quartiles[0])
    assert record["ops"] == pytest.approx(1e6 / samples.mean(), rel=1e-5)
    assert record["outcome"] == "passed" and record["params"] == {"n": "1000", "f": "sum"}
    assert [(limit["call"], limit["verdict"]) for limit in record["limits"]] == [("at_most(s=1)", "passed")]
    assert content["versions"]["numpy"] == np.__version__ and content["flopscope"] == fs.__version__


# Naming ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["last", "2", "0002", "base", "0002_base"])
def test_a_run_is_found_by_number_and_name(run: Run, reference: str) -> None:
    body = "def test_a(perf): perf(fn)"
    run(body, Times(10, 0.01), options=("--perf-save=base",))
    run(body, Times(40, 0.01), options=("--perf-save=base",))
    result, _ = run(body, Times(20, 0.01), options=("--perf-compare", reference))
    result.assert_outcomes(passed=1)
    assert any(line.endswith(" 0.500") for line in result.stdout.lines)


def test_a_run_without_a_number_of_an_earlier_version_is_found(run: Run, tmp_path: Path) -> None:
    body = "def test_a(perf): perf(fn)"
    run(body, options=("--perf-json=old.json",))
    old = tmp_path / "data" / "flopscope" / "perf" / "base.json"
    old.parent.mkdir(parents=True)
    Path("old.json").rename(old)
    run(body, options=("--perf-compare=base",))[0].assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--perf-compare", "bsae"), "no run is stored as 'bsae'; did you mean 'base'? (stored runs: 0001_base)"),
        (("--perf-compare", "7"), "no run is stored as '7'"),
        (("--perf-save", "test_it.py"), "write it before --perf-save"),
        (("--perf-save", "a/b"), "name them before --perf-save"),
        (("--perf-save=12",), "numbers and 'last' refer to runs by their order"),
        (("--perf-save=last",), "numbers and 'last' refer to runs by their order"),
        (("--perf-save=" + "a" * 300,), "has 300 characters; at most 100 fit"),
        (("--perf-save=..",), "'..' is not a valid name of a run"),
        (("--perf-save", "--perf-storage=test_it.py/runs"), "test_it.py is not a folder"),
    ],
)
def test_invalid_names_end_the_session(run: Run, options: tuple[str, ...], message: str) -> None:
    run("def test_a(perf): perf(fn)", options=("--perf-save=base",))
    result, clock = run("def test_a(perf): perf(fn)", options=options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR and clock.calls == []
    assert message in result.stderr.str() and "Traceback" not in result.stderr.str()


def test_a_session_without_measurements_stores_nothing(run: Run, pytester: pytest.Pytester) -> None:
    result, _ = run("def test_a(): pass", options=("--perf-save",))
    assert "nothing was measured" in result.stdout.str() and not (pytester.path / ".flopscope").exists()


# Failures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        (".at_most(ms=2.5)", "3.2 ms measured, at most 2.5 ms (at_most(ms=2.5))"),
        (".at_most(s=0.001)", "0.0032 s measured, at most 0.001 s (at_most(s=0.001))"),
        (".at_most(us=19)", "3200 µs measured, at most 19 µs (at_most(us=19))"),
        (".at_most(ns=1e6)", "3200000 ns measured, at most 1000000 ns (at_most(ns=1000000))"),
        (".at_least(pct_roofline=80)", "% of the roofline measured, at least 80 % of the roofline"),
        (".flops(equal_to=7)", "1000000 FLOPs measured, equal to 7 FLOPs (flops(equal_to=7))"),
        ('.bound("compute")', "bound by memory measured, bound by compute (bound('compute'))"),
        (
            ".no_slower_than(print)",
            "1.5 × measured, at most 1.05 × the time of print (no_slower_than(print, ratio=1.05))",
        ),
        (".at_most(us=3200)", "unclear: 3200 µs (3199 to 3201) measured, at most 3200 µs (at_most(us=3200))"),
    ],
)
def test_the_summary_line_says_what_failed(run: Run, limits: str, line: str) -> None:
    body = f"def test_add(perf): perf(fn, 1){limits}\n"
    result, _ = run(body, Times(3200, 1), compared=(Compared(1.5, (1.4, 1.6)),), options=("-rf",))
    result.assert_outcomes(failed=1)
    (summary,) = [text for text in result.stdout.lines if text.startswith("FAILED")]
    assert summary.startswith("FAILED test_it.py::test_add - ") and line in summary
    assert "meet its limit" in result.stdout.str() and "roofline" in result.stdout.str()  # the whole message


@pytest.mark.parametrize("unit, size", [("s", 1e-6), ("ms", 1e-3), ("us", 1.0), ("ns", 1e3)])
def test_limits_of_times_are_in_their_unit(run: Run, unit: str, size: float) -> None:
    body = f"""
    def test_a(perf): perf(fn).at_most({unit}={20.2 * size}).at_least({unit}={19.8 * size})
    def test_b(perf): perf(fn).at_most({unit}={19.8 * size})
    def test_c(perf): perf(fn).at_least({unit}={20.2 * size})
    @pytest.mark.perf(at_most=dict({unit}={20.2 * size}))
    def test_d(perf): perf(fn)
    """
    run(body)[0].assert_outcomes(passed=2, failed=2)


def test_an_unknown_limit_is_named_with_the_closest_one(run: Run) -> None:
    result, _ = run("def test_a(perf): perf(fn).at_most(gbyte_per_s=3)")
    assert "there is no limit 'gbyte_per_s'; did you mean 'gbytes_per_s'?" in result.stdout.str()


def test_a_test_that_did_not_pass_is_never_listed_as_passed(run: Run, pytester: pytest.Pytester) -> None:
    body = """
    @pytest.fixture
    def broken():
        yield
        raise OSError("in the teardown")
    def test_right(perf): perf(fn).at_most(us=30)
    def test_no_limit(perf): perf(fn)
    def test_wrong(perf):
        perf(fn).at_most(us=30)
        assert False
    def test_second(perf):
        perf(fn).at_most(us=30)
        perf(fn).at_most(us=1)
    def test_invalid(perf): perf(fn).at_most(us=30).at_most(speed=3)
    def test_teardown(perf, broken): perf(fn).at_most(us=30)
    def test_skipped(perf):
        perf(fn).at_most(us=30)
        pytest.skip("later")
    @pytest.mark.xfail
    def test_expected(perf):
        perf(fn).at_most(us=30)
        assert False
    @pytest.mark.xfail(strict=True)
    def test_unexpected(perf): perf(fn).at_most(us=30)
    """
    result, _ = run(body, options=("--perf-save=a",))
    lines = result.stdout.lines
    table = lines[next(at for at, line in enumerate(lines) if " performance " in line) + 2 :][:10]
    verdicts = [(line.split()[0].rpartition("_")[2], re.split(" {2,}", line)[-1]) for line in table]
    assert verdicts == [
        ("right", "passed"),
        ("limit", "--"),
        ("wrong", "test failed"),
        ("second", "test failed"),
        ("second", "failed"),
        ("invalid", "test failed"),
        ("teardown", "test failed"),
        ("skipped", "test skipped"),
        ("expected", "test xfailed"),
        ("unexpected", "test failed"),
    ]
    outcomes = {
        record["test"].rpartition("_")[2]: record["outcome"]
        for record in stored(pytester.path)["0001_a.json"]["measurements"]
    }
    assert [name for name, outcome in outcomes.items() if outcome == "passed"] == ["right", "limit"]


def test_samples_that_would_make_a_run_unreadable_are_left_out(
    run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flopscope.measuring.perf.store.MAX_BYTES", 100)
    result, _ = run("def test_a(perf): perf(fn)", options=("--perf-save=a",))
    assert "the samples were left out of" in result.stdout.str()
    (record,) = stored(pytester.path)["0001_a.json"]["measurements"]
    assert record["measurement"]["samples"] == [] and record["measurement"]["median"] == 20


def test_measure_is_real_where_it_is_not_replaced() -> None:
    assert measuring.measure is fs.measure

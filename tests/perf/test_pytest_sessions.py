"""The pytest plugin: its options, the table and the outcomes of a session, and measurements of several processes."""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.fake_measure import Run, runner
from helpers.processes import environment

from flopscope.measuring.perf import report

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(pytester, monkeypatch)


# Options --------------------------------------------------------------------------------------------------------------


def test_a_missing_device_option_skips_the_test(run: Run) -> None:
    result, clock = run("def test_it(perf): perf(fn, device='cuda:99')", options=("-rs",))
    result.assert_outcomes(skipped=1)
    assert clock.calls == [] and "SKIPPED" in result.stdout.str() and "CUDA" in result.stdout.str().upper()


def test_perf_skip_and_selection_by_marker(run: Run) -> None:
    body = "def test_a(perf): perf(fn)\ndef test_b(): pass\n"
    result, clock = run(body, options=("--perf-skip", "-rs"))
    result.assert_outcomes(passed=1, skipped=1)
    assert "--perf-skip" in result.stdout.str() and clock.calls == []
    run(body, options=("-m", "perf"))[0].assert_outcomes(passed=1, deselected=1)
    run(body, options=("-m", "not perf", "--strict-markers"))[0].assert_outcomes(passed=1, deselected=1)


def test_the_summary_is_a_table_that_fits_a_terminal(run: Run) -> None:
    body = f"""
    def test_{"long_" * 30}(perf): perf(fn).at_least(gbytes_per_s=49)
    def test_bad(perf): perf(fn).at_most(us=30).at_most(us=1)
    def test_free(perf): perf(fn)
    """
    result, _ = run(body)
    lines = result.stdout.str().splitlines()
    begin = next(place for place, line in enumerate(lines) if " performance " in line)
    head, *rows = lines[begin + 1 : begin + 5]
    assert re.split(" {2,}", head) == [
        *("test", "of", "device", "n", "median µs", "±", "GB/s", "TFLOP/s", "% roofline", "bound", "verdict")
    ]
    assert [row.split()[1:] for row in rows] == [
        ["fn", "cpu", "12", "20", "0.5%", "50", "0.05", "50", "memory", verdict]
        for verdict in ("passed", "failed", "--")
    ]
    assert max(map(len, [head, *rows])) <= 120


def test_the_widest_table_fits_too() -> None:
    numbers = {"gbytes_per_s": 4812.3, "tflops_per_s": 0.003548, "pct_roofline": 100.2}
    times = {"n": 123456, "median": 1234567.0, "ci": (1.2e6, 1.3e6), "bound": "compute", **numbers}
    record = {"test": "a/b.py::" + "c" * 90, "name": "attention_forward", "device": "cuda:0", "measurement": times}
    records = [{**record, "limits": [{"verdict": "unclear"}]}]
    lines = report.table(records)
    assert max(map(len, lines)) <= 120 and lines[1].startswith("…ccc")
    names = "native_batch_norm", "native_batch_norm_backward", "attention_forward"
    _, *lines = report.table([{**records[0], "test": "t", "name": name} for name in names])
    assert len({line.split()[1] for line in lines}) == 3


# Failures -------------------------------------------------------------------------------------------------------------


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
    result, _ = run(body, options=("--perf-json=a.json",))
    lines = result.stdout.lines
    table = lines[next(at for at, line in enumerate(lines) if " performance " in line) + 2 :][:10]
    verdicts = [(line.split()[0].rpartition("_")[2], re.split(" {2,}", line)[-1]) for line in table]
    assert verdicts == [
        ("right", "passed"), ("limit", "--"), ("wrong", "test failed"), ("second", "test failed"), ("second", "failed"),
        ("invalid", "test failed"), ("teardown", "test failed"), ("skipped", "test skipped"),
        ("expected", "test xfailed"), ("unexpected", "test failed"),
    ]  # fmt: skip
    benchmarks = json.loads((pytester.path / "a.json").read_text())["benchmarks"]
    assert [b["name"] for b in benchmarks if b["extra_info"]["outcome"] == "passed"] == ["test_right", "test_no_limit"]


# Processes ------------------------------------------------------------------------------------------------------------


INTERVALS = """
import time
from helpers.fake_measure import Clock, Times
from flopscope.measuring import measuring
clock = Clock(Times(20, 0.1))
def measure(fn, *args, **options):
    begin = time.monotonic_ns()
    time.sleep(0.02)
    with open("intervals", "a") as file:
        file.write(f"{begin} {time.monotonic_ns()}\\n")
    return clock.measure(fn, *args, **options)
measuring.measure = measure
"""


def run_pytest(folder: Path, *options: str) -> str:
    """Run pytest on a folder in a process of its own, with this plugin and those of the options. Return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_flopscope", *options], cwd=folder,
        env=environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_under_xdist_measurements_are_exclusive_and_collected(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "conftest.py").write_text(INTERVALS)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('i', range(8))\ndef test_a(perf, i): perf(print).at_most(us=30 - i)\n"
    )
    output = run_pytest(tmp_path, "-p", "xdist.plugin", "-n", "2", "--perf-json", "out.json")
    spans = sorted(tuple(map(int, line.split())) for line in (tmp_path / "intervals").read_text().splitlines())
    assert len(spans) == 8 and all(before[1] <= after[0] for before, after in pairwise(spans))
    benchmarks = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    assert sorted(one["fullname"] for one in benchmarks) == [f"test_it.py::test_a[{i}]" for i in range(8)]
    assert output.count("test_it.py::test_a[") == 8  # the table of the one summary


def test_a_pytest_run_that_measures_nothing_does_not_import_flopscope(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import sys\ndef test_a(): assert not {'flopscope','numpy'} & {*sys.modules}")
    assert "1 passed" in run_pytest(tmp_path)

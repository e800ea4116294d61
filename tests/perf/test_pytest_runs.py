"""The runs of the pytest plugin: written, stored, compared, and collected from many processes."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.fake_measure import Run, Times, runner

import flopscope as fs
from flopscope.measuring.perf.lock import alone

pytest_plugins = ["pytester"]

INSTALLED = any(entry.name == "flopscope" for entry in importlib.metadata.entry_points(group="pytest11"))
PLUGIN = () if INSTALLED else ("-p", "pytest_flopscope")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return runner(pytester, monkeypatch, tmp_path)


def test_the_json_has_measurements_limits_and_the_machine(run: Run, pytester: pytest.Pytester) -> None:
    run(
        "def test_a(perf):\n    perf(fn).at_least(gbytes_per_s=49)\n    perf(fn).at_most(us=1)\n",
        Times(20, float("nan")),
        Times(20, 0.1),
        options=("--perf-json", "out.json", "--perf-unclear", "pass"),
    )
    content = json.loads((pytester.path / "out.json").read_text(), parse_constant=pytest.fail)
    assert content["machines"]["cpu"]["name"] == fs.devices()[0].name
    keys = [record["key"] for record in content["measurements"]]
    assert keys == ["test_it.py::test_a#0", "test_it.py::test_a#1"]
    first, second = content["measurements"]
    assert first["measurement"]["median"] == 20 and first["measurement"]["gbytes_per_s"] == 50
    assert [limit["verdict"] for limit in (*first["limits"], *second["limits"])] == ["passed", "failed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--perf-compare", "nothing"), "no run is stored as 'nothing' (stored runs: none)"),
        (("--perf-save", "a/b"), "'a/b' is not a valid name of a run"),
        (("--perf-json", "no/such/folder.json"), "the folder does not exist"),
        (("--perf-ratio", "0.5"), "--perf-ratio 0.5"),
        (("--perf-unclear", "maybe"), "--perf-unclear"),
    ],
)
def test_invalid_options_end_the_session(run: Run, options: tuple[str, ...], message: str) -> None:
    result, clock = run("def test_a(perf): perf(fn)", options=options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR and clock.calls == []
    assert message in result.stderr.str() + result.stdout.str()


# Ratio of the medians, with intervals of ±1 % and ±0.5 %.
@pytest.mark.parametrize(
    ("now", "options", "outcome"),
    [
        (Times(20, 0.1), (), "passed"),
        (Times(10, 0.1), (), "passed"),
        (Times(25, 0.1), (), "failed"),
        (Times(25, 0.1), ("--perf-ratio", "1.5"), "passed"),
        (Times(21, 0.1), (), "failed"),  # unclear: 1.05 lies inside of the interval
        (Times(21, 0.1), ("--perf-unclear", "skip"), "skipped"),
    ],
)
def test_measurements_are_compared_with_a_stored_run(
    run: Run, now: Times, options: tuple[str, ...], outcome: str
) -> None:
    body = "def test_a(perf): perf(fn)"
    saved, _ = run(body, Times(20, 0.2), options=("--perf-save", "base"))
    saved.assert_outcomes(passed=1)
    assert "base.json" in saved.stdout.str()
    result, _ = run(body, now, options=("--perf-compare", "base", *options))
    result.assert_outcomes(**{outcome: 1})
    assert f"{now.median / 20:.3f}" in result.stdout.str()
    if outcome == "failed":
        assert "the time in base" in result.stdout.str()


def test_measurements_missing_from_a_stored_run_are_reported(run: Run) -> None:
    run("def test_a(perf): perf(fn)", options=("--perf-json", "base.json"))
    result, _ = run("def test_b(perf): perf(fn)", options=("--perf-compare", "base.json"))
    result.assert_outcomes(passed=1)
    assert any(line.startswith("test_it.py") and line.endswith(" missing") for line in result.stdout.lines)
    assert "1 of 1 measurements are missing from base.json" in result.stdout.str()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["machines"]["cpu"].update(name="Z80"), "its cpu is a different device: name is 'Z80' in the run"),
        (lambda c: c["machines"]["cpu"].update(threads=999), "threads is 999 in the run"),
        (
            lambda c: c["machines"].update({"cuda:99": {"name": "H200"}}),
            "was stored on cuda:99, H200, which this machine does not have",
        ),
        (lambda c: c.update(format=0), "is not a stored run: it has format 0"),
        (lambda c: c.pop("measurements"), "is not a stored run"),
    ],
)
def test_a_run_of_another_machine_is_rejected(
    run: Run, pytester: pytest.Pytester, change: Callable[[Any], Any], message: str
) -> None:
    run("def test_a(perf): perf(fn)", options=("--perf-json", "base.json"))
    file = pytester.path / "base.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    result, clock = run("def test_a(perf): perf(fn)", options=("--perf-compare", "base.json"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR and clock.calls == []
    assert message in result.stderr.str()


# Many processes -------------------------------------------------------------------------------------------------------

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


def environment() -> dict[str, str]:
    path = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def test_under_xdist_measurements_are_exclusive_and_collected(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "conftest.py").write_text(INTERVALS)
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('i', range(8))\ndef test_a(perf, i): perf(print).at_most(us=30 - i)\n"
    )
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "--perf-json", "out.json"]
    done = subprocess.run([*command, *PLUGIN], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    spans = sorted(tuple(map(int, line.split())) for line in (tmp_path / "intervals").read_text().splitlines())
    assert len(spans) == 8
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    records = json.loads((tmp_path / "out.json").read_text())["measurements"]
    assert sorted(record["key"] for record in records) == [f"test_it.py::test_a[{i}]#0" for i in range(8)]
    assert done.stdout.count("test_it.py::test_a[") == 8  # the table of the one summary


def test_the_lock_is_released_by_a_process_that_dies(tmp_path: Path) -> None:
    code = "import os\nfrom flopscope.measuring.perf.lock import alone\nwith alone(): os._exit(0)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], env={**environment(), "TMPDIR": str(tmp_path)}, timeout=20)
    assert [file.name for file in tmp_path.iterdir()] == [f"flopscope-perf-{os.getuid()}.lock"]


def test_the_lock_is_released_although_a_forked_process_is_alive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    reading, writing = os.pipe()
    with alone():
        child = os.fork()
        if child == 0:
            os.read(reading, 1)
            os._exit(0)
    try:
        other = os.open(next(tmp_path.glob("*.lock")), os.O_RDWR)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError if the child still holds the lock
        os.close(other)
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_a_nested_measurement_is_an_error_and_no_deadlock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with alone(), pytest.raises(RuntimeError, match="one after the other"), alone():
        pass
    with alone():
        pass


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("link", "it is a symbolic link; remove it"),
        ("second name", r"the file has other names \(hard links\); remove it"),
        ("folder", "it is not a regular file; remove it"),
        ("FIFO", "it is not a regular file; remove it"),
    ],
)
def test_a_lock_that_is_not_a_regular_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, message: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / f"flopscope-perf-{os.getuid()}.lock"
    victim = tmp_path / "victim"
    victim.write_text("precious")
    {
        "link": lambda: path.symlink_to(victim),
        "second name": lambda: path.hardlink_to(victim),
        "folder": path.mkdir,
        "FIFO": lambda: os.mkfifo(path),
    }[kind]()
    with pytest.raises(OSError, match=message) as caught, alone():
        pass
    assert caught.value.filename == str(path) and victim.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_lock_of_another_user_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / f"flopscope-perf-{os.getuid()}.lock"
    path.write_text("")
    os.chown(path, 12345, -1)
    with pytest.raises(OSError, match="it belongs to user 12345") as caught, alone():
        pass
    assert caught.value.filename == str(path)


HOLD = """
import sys, time
from flopscope.measuring.perf.lock import alone
with alone():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_wait_of_more_than_a_second_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("flopscope.support.lock.SILENT_SECONDS", 0.05)
    lines: list[str] = []
    with alone(lines.append):
        pass
    assert lines == []
    holding = {**environment(), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, env=holding, stdin=-1, stdout=-1, text=True) as child:
        assert child.stdin is not None and child.stdout is not None and child.stdout.readline() == "held\n"

        def write_line(line: str) -> None:
            lines.append(line)
            child.stdin.close()

        with alone(write_line):
            pass
    assert lines == [f"waiting for another measurement (pid {child.pid}) …"]


def test_a_run_reports_that_it_waits(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from helpers.fake_measure import Clock, Times\n"
        "import flopscope.support.lock\nfrom flopscope.measuring import measuring\n"
        "measuring.measure = Clock(Times(20, 0.1)).measure\nflopscope.support.lock.SILENT_SECONDS = 0.05\n"
    )
    (tmp_path / "test_it.py").write_text("def test_a(perf):\n    print('captured')\n    perf(print)\n")
    everything = {**environment(), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=everything, stdin=-1, stdout=-1, text=True) as child:
        assert child.stdin is not None and child.stdout is not None and child.stdout.readline() == "held\n"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *PLUGIN, "test_it.py"]
        with subprocess.Popen(command, cwd=tmp_path, env=everything, stdout=-1, text=True) as run:
            assert run.stdout is not None
            waiting = next(line for line in run.stdout if "waiting" in line)
            child.stdin.close()
            rest = run.stdout.read()
    assert waiting == f"waiting for another measurement (pid {child.pid}) …\n"
    assert run.returncode == 0 and "1 passed" in rest and "captured" not in waiting + rest.split("performance")[0]


def test_a_pytest_run_that_measures_nothing_does_not_import_flopscope(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_a(): assert not {'flopscope', 'numpy'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_flopscope", "test_it.py"]
    alone = environment() | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others' plugins import NumPy too
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

"""Locks between processes: the one that measurements hold, of which there is one at a time."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.processes import environment

from flopscope.support.lock import alone


def test_the_lock_is_released_by_a_process_that_dies(tmp_path: Path) -> None:
    code = "import os\nfrom flopscope.support.lock import alone\nwith alone(): os._exit(0)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], env=environment(TMPDIR=str(tmp_path)), timeout=20)
    assert [file.name for file in tmp_path.iterdir()] == [f"flopscope-perf-{os.getuid()}.lock"]


def test_the_lock_is_released_though_a_forked_process_is_alive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


def test_a_link_in_place_of_the_lock_is_not_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / f"flopscope-perf-{os.getuid()}.lock"
    path.symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic link") as caught, alone():
        pass
    assert caught.value.filename == str(path) and not (tmp_path / "victim").exists()


HOLD = """
import sys, time
from flopscope.support.lock import alone
with alone():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that holds the lock of a folder until its standard input is closed."""
    command, everything = [sys.executable, "-c", HOLD], environment(TMPDIR=str(folder))
    with subprocess.Popen(command, env=everything, stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        yield child


def test_a_run_reports_that_it_waits(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from helpers.fake_measure import Clock, Times\n"
        "import flopscope.support.lock\nfrom flopscope.measuring import measuring\n"
        "measuring.measure = Clock(Times(20, 0.1)).measure\nflopscope.support.lock.SILENT_SECONDS = 0.05\n"
    )
    (tmp_path / "test_it.py").write_text("def test_a(perf):\n    print('captured')\n    perf(print)\n")
    everything = environment(TMPDIR=str(tmp_path), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "pytest_flopscope", "test_it.py"]
    with (
        holding(tmp_path) as child,
        subprocess.Popen(command, cwd=tmp_path, env=everything, stdout=-1, text=True) as run,
    ):
        assert run.stdout is not None
        waiting = next(line for line in run.stdout if "waiting" in line)
        assert child.stdin is not None
        child.stdin.close()
        rest = run.stdout.read()
    assert waiting == "waiting for another measurement …\n"
    assert run.returncode == 0 and "1 passed" in rest and "captured" not in waiting + rest.split("performance")[0]

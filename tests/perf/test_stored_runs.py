"""Stored runs with arbitrary contents: an invalid file is rejected by name, at once, and is never an internal error."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.wrong_runs import RUN, TIMES, WRONG, changed

from flopscope.measuring.perf import history, runs, store
from flopscope.support.files import read_json


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_file_that_is_not_a_run_is_rejected(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "base.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError) as caught:
        store.load(path)
    assert type(caught.value) is ValueError
    assert str(path) in str(caught.value) and len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


def test_a_run_is_read(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    for absent in (None, RUN["measurements"][0]["measurement"]["ci"]):
        path.write_text(changed(*TIMES, "ci", to=absent))
        run = runs.read(path)
        median = run.median_of("k", "cpu")
        assert median is not None and median.median == 2.0
        assert run.median_of("k", "cuda:0") is None and run.median_of("other", "cpu") is None


def put_special(kind: str, path: Path) -> None:
    if kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to(path.name)


@pytest.mark.parametrize("kind", ["folder", "FIFO", "device", "loop"])
def test_a_special_file_is_named_and_does_not_block(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "base.json"
    put_special(kind, path)
    for look in (read_json, store.load, lambda path: history.require_name(str(path))):
        with pytest.raises(OSError if kind == "loop" else ValueError) as caught:
            look(path)
        assert str(path) in str(caught.value) and (kind == "loop" or kind in str(caught.value))


@pytest.mark.parametrize("option", ["--perf-compare", "--perf-save"])
def test_a_session_ends_at_once_if_its_run_is_a_special_file(tmp_path: Path, option: str) -> None:
    (tmp_path / "test_it.py").write_text("def test_a(): pass\n")
    os.mkfifo(tmp_path / "base.json")
    plugin = ("-p", "pytest_flopscope") if "flopscope" not in _plugins() else ()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, option, "base.json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: base.json is a FIFO, not a file" in done.stderr and "Traceback" not in done.stderr


def _plugins() -> set[str]:
    return {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}

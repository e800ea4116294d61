"""What the hosting site reads: workflows run scripts of the tree, for all Pythons; the action prints its table."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

import flopscope as fs

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTION = GITHUB / "actions" / "flopscope-perf"
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
RUN = re.compile(r"^ *-? run: (.+)$", re.M)


def commands(path: Path) -> list[str]:
    return RUN.findall(path.read_text(encoding="utf-8"))


def test_the_steps_of_workflows_are_scripts_of_the_tree() -> None:
    assert {path.stem for path in WORKFLOWS} == {"ci", "codeql", "wheels"}
    scripts = set()
    for path in WORKFLOWS:
        for command in commands(path):
            if command.startswith("echo "):  # a setting for later steps
                continue
            script = command.removeprefix("python ").split()[0]
            assert (ROOT / script).is_file(), f"{path.name}: {command}"
            assert script.startswith("tools/") or os.access(ROOT / script, os.X_OK), script
            scripts.add(script)
    assert scripts == {*(f".ci/{path.name}" for path in (ROOT / ".ci").iterdir()), "tools/build_wheels.py"}
    for path in (ROOT / ".ci").iterdir():
        subprocess.run(["bash", "-n", path], check=True)


def test_workflows_and_metadata_name_the_same_pythons() -> None:
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PYPROJECT)
    assert named[0] == re.search(r'requires-python = ">=(3\.\d+)"', PYPROJECT)[1]  # type: ignore[index]
    for name in ("ci", "wheels"):
        text = (GITHUB / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
        assert re.findall(r"python: \[(.+)\]", text) == [", ".join(f'"{version}"' for version in named)]
    assert f'build = "cp31[0-{named[-1][2:][-1]}]-manylinux_x86_64"' in PYPROJECT


def test_actions_of_others_have_a_version_and_tokens_few_rights() -> None:
    for path in (*WORKFLOWS, ACTION / "action.yml"):
        text = path.read_text(encoding="utf-8")
        assert all(re.search(r"@(v\d+|release/v\d+)", used) for used in re.findall(r"uses: (.+)", text)), path.name
        assert path.name == "action.yml" or re.search(r"^permissions:\n  contents: read", text, re.M), path.name


def test_yaml_files_are_valid() -> None:
    yaml = pytest.importorskip("yaml")
    found = [*GITHUB.rglob("*.yml"), ROOT / ".readthedocs.yaml"]
    assert len(found) == 8
    for path in found:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert isinstance(content, dict), path.name
        if path in WORKFLOWS:
            assert all(step.keys() & {"uses", "run"} for job in content["jobs"].values() for step in job["steps"])
    inputs = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))["inputs"]
    assert {name for name in inputs if f"inputs.{name} " not in (ACTION / "action.yml").read_text()} == set()


# The composite action -------------------------------------------------------------------------------------------------

TEST = """
def test_one(perf):
    perf(lambda: sum(range(1000)), max_time=0.05)

def test_two(perf):
    perf(lambda: sum(range(1000)), max_time=0.05)
"""


def act(folder: Path) -> tuple[int, str, str]:
    """Run the action's measurement; return its status, its output, and the table."""
    (folder / "test_speed.py").write_text(TEST)
    command = [sys.executable, str(ACTION / "perf.py"), "--history", "history", "--margin", "400%", "--table", "t.md"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_STEP_SUMMARY": "summary.md"}
    done = subprocess.run(
        [*command, "--", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_speed.py"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, (folder / "t.md").read_text(encoding="utf-8")


def divide(times: dict[str, Any], by: float) -> None:
    """Divide all times of a stored measurement."""
    for name in ("median", "mean", "min", "max", "std", "iqr"):
        times[name] /= by
    for name in ("ci", "samples"):
        times[name] = [number / by for number in times[name]]


def test_the_action_measures_compares_and_fails_if_a_test_is_slower(tmp_path: Path) -> None:
    status, output, first = act(tmp_path)
    assert status == 0, output
    assert re.search(r"^Run `0001_\S+`; there is no earlier run on this machine", first, re.M)
    assert re.search(r"^\| test_speed.py::test_two \| [\d.]+ [µm]s \| [\d.]+ % \|", first, re.M)
    (stored,) = (tmp_path / "history").glob("*/0001_*.json")
    content = json.loads(stored.read_text(encoding="utf-8"))
    (two,) = (one for one in content["measurements"] if "test_two" in one["key"])
    divide(two["measurement"], 1000)
    stored.write_text(json.dumps(content), encoding="utf-8")
    status, output, second = act(tmp_path)
    assert status == 1, output
    assert re.search(r"^Run `0002_\S+` compared with `0001_\S+`: 1 slower, .* \(margin 400 %\)\.$", second, re.M)
    row = next(line for line in second.splitlines() if "test_two" in line)
    assert re.fullmatch(r"\| test_speed.py::test_two \| [\d.]+ [nµ]s \| [\d.]+ [µm]s \| [\d.]+ \| slower \|", row)
    assert second.splitlines().index(row) == 6  # the slower ones come first
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == first + second


def test_names_of_tests_do_not_break_the_table() -> None:
    table = runpy.run_path(str(ACTION / "perf.py"))["table"]
    one: dict[str, Any] = {"key": "k#0", "median_us": None, "low_us": None, "high_us": None, "verdict": ""}
    text = table(None, {"run": "a", "measurements": [{**one, "test": "t[a|b\n<script>`x`]"}]})
    assert text.splitlines()[-1] == "| t[a\\|b &lt;script>'x'] | unknown |  |  |"


def test_old_runs_are_deleted(tmp_path: Path) -> None:
    program = runpy.run_path(str(ACTION / "perf.py"))
    (tmp_path / "machine").mkdir()
    for number in range(1, 61):
        (tmp_path / "machine" / f"{number:04d}_x.json").write_text(json.dumps({}))
    program["trimmed"](tmp_path)
    left = sorted(path.name for path in (tmp_path / "machine").iterdir())
    assert len(left) == program["KEPT"] and left[-1] == "0060_x.json" and left[0] == "0011_x.json"


@pytest.mark.parametrize(
    "us, text", [(None, "unknown"), (0.5, "500 ns"), (2.0, "2 µs"), (1234.0, "1.234 ms"), (2e6, "2 s")]
)
def test_times_have_a_unit(us: float | None, text: str) -> None:
    assert runpy.run_path(str(ACTION / "perf.py"))["time_text"](us) == text


def test_the_files_that_newcomers_read_are_there() -> None:
    for name in ("CODE_OF_CONDUCT.md", "SECURITY.md", "GOVERNANCE.md", "CONTRIBUTING.md", "CITATION.cff"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert len(text) > 400
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            assert "://" in target or (ROOT / target).exists(), f"{name}: {target}"
    assert fs.__distribution__ in PYPROJECT

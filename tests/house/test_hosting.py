"""What the hosting site reads: workflows run scripts of the tree, for all Pythons; the action compares runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

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
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"},
        **{"PYTHON": sys.executable, "TESTS": "-q -p no:cacheprovider -p no:xdist test_speed.py", "RATIO": "5"},
        **{"PYTHONPATH": str(ROOT), "GITHUB_STEP_SUMMARY": "summary.md"},
    }
    done = subprocess.run(
        ["bash", str(ACTION / "perf.sh")], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr, (folder / "flopscope-perf.md").read_text(encoding="utf-8")


def test_the_action_measures_compares_and_fails_if_a_test_is_slower(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    status, output, first = act(tmp_path)
    assert status == 0 and first.startswith("### flopscope: performance\n```text\n"), output
    assert re.search(r"^test_two +[\d.]+ ", first, re.M) and "0002_" not in first
    (stored,) = (tmp_path / "flopscope-perf").glob("*/*/0001_*.json")
    content = json.loads(stored.read_text(encoding="utf-8"))
    (two,) = (one for one in content["benchmarks"] if one["name"] == "test_two")
    two["stats"]["median"] /= 1000
    two["extra_info"]["ci"] = [end / 1000 for end in two["extra_info"]["ci"]]
    stored.write_text(json.dumps(content), encoding="utf-8")
    for number in range(1, 61):
        stored.with_name(f"00{number + 1:02d}_old.json").write_text(stored.read_text(encoding="utf-8"))
    status, output, second = act(tmp_path)
    assert (
        status == 1 and "FAILED test_speed.py::test_two - " in output and "FAILED test_speed.py::test_one" not in output
    )
    assert re.search(r"^test_two \(0062_", second, re.M) and re.search(r"^test_two \(0061_old", second, re.M)
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == first + second
    assert len([*stored.parent.iterdir()]) == 50 and not stored.exists()  # the oldest runs are deleted

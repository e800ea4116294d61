"""What the hosting site reads: workflows run scripts of the tree, for all Pythons; the action compares runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

from helpers import ROOT
from helpers.processes import git

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTION = GITHUB / "actions" / "flopscope-perf"
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_steps_of_workflows_are_scripts_of_the_tree() -> None:
    assert {path.stem for path in WORKFLOWS} == {"ci", "codeql", "wheels"}
    scripts = set()
    for path in WORKFLOWS:
        for command in re.findall(r"^ *-? run: (.+)$", path.read_text(encoding="utf-8"), re.M):
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

CONFTEST = """
from flopscope.measuring import measuring
from helpers.fake_measure import Times
MADE_UP = Times(US, 0.1).measurement()
measuring.measure = lambda *_, **__: MADE_UP
"""


def test_the_action_measures_a_pull_request_against_its_merge_base(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    for us in (100.0, 150.0):
        (tmp_path / "conftest.py").write_text(CONFTEST.replace("US", str(us)))
        (tmp_path / "test_speed.py").write_text("def test_one(perf): perf(print)\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", "a commit")
        git(tmp_path, "checkout", "-q", "-B", "head")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHON": sys.executable, "COMMAND": "pytest -q -p no:xdist", "BRANCH": "main", "MAX_TIME": "0.1"}
    environment |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "GITHUB_STEP_SUMMARY": "summary.md", "FAIL_OVER": "3%"}
    command = ["bash", str(ACTION / "perf.sh")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    table = (tmp_path / "flopscope-perf.md").read_text(encoding="utf-8")
    assert done.returncode == 0 and table == (tmp_path / "summary.md").read_text(encoding="utf-8"), done.stderr
    assert re.search(r"^\| test_speed.py::test_one \| .* \| 1\.5000 \|", table, re.M), table
    done = subprocess.run(command, cwd=tmp_path, env={**environment, "BRANCH": "gone"}, capture_output=True, text=True)
    assert done.returncode == 2 and "fetch-depth: 0" in done.stdout

"""The scripts of the report page: what their linter finds, and the tests of their functions."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

TESTS = ROOT / "tests" / "js"
OLDEST_NODE = 18


def run(*command: object) -> None:
    done = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def program(name: str) -> str:
    """Return the path of a program of this Python environment, or skip the test."""
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"no {name} beside {sys.executable}: install the extra `lint`")
    return path


def test_the_linter_finds_an_unknown_name(tmp_path: Path) -> None:
    """The configuration is read, and its rules are known to this version."""
    (tmp_path / "wrong.js").write_text("flopscope.section = () => flopscop.page;\n")
    command = [program("oxlint"), "--config", str(ROOT / ".oxlintrc.json"), str(tmp_path / "wrong.js")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "no-undef" in done.stdout and "'flopscop'" in done.stdout


def test_functions_of_the_page() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)", version)
    if found is None or int(found[1]) < OLDEST_NODE:
        pytest.skip(f"node is {version.strip()}; {OLDEST_NODE} or later runs tests")
    run(node, "--test", *sorted(TESTS.glob("*.test.mjs")))

"""The scripts and styles of the report page: their format, what a linter finds, and the tests of their functions."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "flopscope" / "report" / "page"
STYLES = sorted(PAGE.glob("*.css"))
TESTS = ROOT / "tests" / "js"
SCRIPTS = [*sorted(PAGE.glob("*.js")), *sorted(TESTS.glob("*.mjs"))]
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


def test_files_and_lines_are_short() -> None:
    assert len(SCRIPTS) > 30 and len(STYLES) > 5
    for path in [*SCRIPTS, *STYLES]:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 520, path.name
        assert [number for number, line in enumerate(lines, 1) if len(line) > 120] == [], path.name


def test_scripts_and_styles_are_formatted() -> None:
    run(program("oxfmt"), "--check", *SCRIPTS, *STYLES)


def test_the_linter_finds_nothing() -> None:
    run(program("oxlint"), "--deny-warnings", *SCRIPTS)


def test_the_linter_finds_an_unknown_name(tmp_path: Path) -> None:
    """The configuration is read, and its rules are known to this version."""
    (tmp_path / "wrong.js").write_text("flopscope.section = () => flopscop.page;\n")
    command = [program("oxlint"), "--config", str(ROOT / ".oxlintrc.json"), str(tmp_path / "wrong.js")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "no-undef" in done.stdout and "'flopscop'" in done.stdout


@pytest.mark.parametrize("name", ["oxfmt", "oxlint"])
def test_the_hooks_pin_the_tools_of_the_tests(name: str) -> None:
    files = ("pyproject.toml", ".pre-commit-config.yaml")
    pins = [re.findall(rf"{name}==([\d.]+)", (ROOT / file).read_text(encoding="utf-8")) for file in files]
    assert pins[0] == pins[1] and len(pins[0]) == 1


def test_functions_of_the_page() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    found = re.match(r"v(\d+)", version)
    if found is None or int(found[1]) < OLDEST_NODE:
        pytest.skip(f"node is {version.strip()}; {OLDEST_NODE} or later runs tests")
    run(node, "--test", *sorted(TESTS.glob("*.test.mjs")))

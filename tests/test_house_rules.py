"""The rules that the code keeps, so that nobody has to remember them."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import flopscope as fs

ROOT = Path(__file__).parent.parent
C_SOURCES = sorted(path for folder in ("csrc", "kernels") for path in (ROOT / folder).rglob("*") if path.is_file())
PYTHON_SOURCES = sorted(
    path for folder in ("flopscope", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)

# Sources fill the store; work, table and summaries read it: what each room may include. Nothing to the right of itself.
MAY_INCLUDE = {
    "base": {"base"},
    "store": {"base", "store"},
    "ops": {"base", "store", "ops"},
    "kernels": {"base", "ops", "kernels"},
    "device": {"base", "store", "ops", "device"},
    "sources": {"base", "store", "ops", "sources"},
    "work": {"base", "store", "ops", "device", "work"},
    "roofline": {"base", "store", "ops", "device", "work", "roofline"},
    "table": {"base", "store", "ops", "device", "work", "roofline", "table"},
    "summaries": {"base", "store", "ops", "device", "work", "summaries"},
    "views": {"base", "store", "ops", "device", "work", "roofline", "table", "views"},
    "python": {
        *("base", "store", "ops", "kernels", "device", "sources"),
        *("work", "roofline", "table", "summaries", "views", "python"),
    },
}


def _room(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] == "kernels" else parts[1]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", C_SOURCES, ids=_name)
def test_includes_point_one_way(path: Path) -> None:
    for included in re.findall(r'#\s*include "([^"]+)"', path.read_text(encoding="utf-8")):
        assert (ROOT / included).exists() or (ROOT / "csrc" / included).exists(), included
        assert included.split("/")[0] in MAY_INCLUDE[_room(path)], f"{_room(path)} includes {included}"


def test_pythons_headers_stay_in_the_binding() -> None:
    for path in C_SOURCES:
        text = path.read_text(encoding="utf-8")
        if "<Python.h>" in text:
            assert _room(path) == "python", path
        if "<numpy/" in text:
            assert _name(path) == "csrc/python/numpy.c"


def test_the_core_never_prints_or_exits() -> None:
    for path in C_SOURCES:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(encoding="utf-8"), flags=re.S)
        assert not re.search(r"\b(exit|abort|_Exit|printf|fprintf|puts|perror|assert)\s*\(", text), path


@pytest.mark.parametrize("path", [*C_SOURCES, *PYTHON_SOURCES], ids=_name)
def test_files_and_lines_are_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 520
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120 and path.suffix != ".def"] == []


def test_the_c_compiles_without_a_warning() -> None:
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if compiler is None:
        pytest.skip("no C compiler")
    system = [flag for path in (sysconfig.get_path("include"), np.get_include()) for flag in ("-isystem", path)]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"]

    def check(path: Path) -> str:
        command = [compiler, *flags, f"-I{ROOT}", f"-I{ROOT / 'csrc'}", *system, str(path)]
        return subprocess.run(command, capture_output=True, text=True).stderr

    sources = [path for path in C_SOURCES if path.suffix == ".c" and _room(path) != "kernels"]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        assert [said for said in pool.map(check, sources) if said] == []


LINTERS = [["ruff", "check", "."], ["mypy", "-p", "flopscope", "-m", "pytest_flopscope"]]


@pytest.mark.parametrize("command", LINTERS, ids=["ruff", "mypy"])
def test_python_is_lint_clean(command: list[str]) -> None:
    pytest.importorskip(command[0])
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_name_is_documented() -> None:
    for name in sorted({*fs.__all__} - {"Op"}):  # the docstring that Op gives is its instances'
        thing = getattr(fs, name)
        assert len(inspect.getdoc(thing) or "") > 20, name
        if inspect.isclass(thing) and str(thing.__module__).startswith("flopscope"):
            for member, value in list(vars(thing).items()):
                public = not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
                assert not public or inspect.getdoc(value), f"{name}.{member}"


def test_every_column_is_documented() -> None:
    from flopscope.table import COLUMNS

    for column in COLUMNS:
        assert len(column.doc) > 10, column.name
        assert getattr(fs.EventRow, column.name).__doc__, column.name


def test_readme_and_ci_run_the_same_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- commands -->\n```\w*\n(.*?)```\n<!-- end -->", readme, re.S)
    assert block and len(block[1].strip().splitlines()) == 2
    assert "<!-- commands -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_nobody_is_sent_to_the_other_flopscope() -> None:
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *PYTHON_SOURCES, *C_SOURCES]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install (?:-\S+ )*[\"']?flopscope(?!-profiler)\b", text), path


def test_import_is_light() -> None:
    heavy = {"numpy", "pandas", "matplotlib", "torch", "rich", "platformdirs", "cuda"}
    code = f"import sys, flopscope; sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

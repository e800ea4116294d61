"""The rules that the code keeps, so that nobody has to remember them."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from core_build import SHARED_FLAGS, c_sources

import flopscope as fs

ROOT = Path(__file__).parent.parent
C_SOURCES = sorted(path for folder in ("csrc", "kernels") for path in (ROOT / folder).rglob("*") if path.is_file())
PYTHON_SOURCES = sorted(
    path for folder in ("flopscope", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)

# Sources fill the store, work and table read it: what each room may include. Nothing to the right of itself.
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
    "views": {"base", "store", "ops", "device", "work", "roofline", "table", "views"},
    "python": {"base", "store", "ops", "kernels", "device", "sources", "work", "roofline", "table", "views", "python"},
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


SYSTEM = [flag for path in (sysconfig.get_path("include"), np.get_include()) for flag in ("-isystem", path)]


def _each_says_nothing(commands: Iterable[list[str]]) -> None:
    """Run the commands side by side: each succeeds."""

    def run(command: list[str]) -> str:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout + done.stderr or f"{command} failed"

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        said = [text for text in pool.map(run, commands) if text]
    assert said == [], "\n".join(said)


def _beside_python(name: str) -> str:
    """The program `name` of this environment."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"no {name} beside {sys.executable}: the extra `lint` brings it")
    return found


def test_the_c_compiles_without_a_warning() -> None:
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if compiler is None:
        pytest.skip("no C compiler")
    flags = [*SHARED_FLAGS, "-O1", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only", *SYSTEM]
    _each_says_nothing([compiler, *flags, str(path)] for path in c_sources())


def test_an_ignored_status_is_seen(tmp_path: Path) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "ignores.c"
    source.write_text('#include "base/status.h"\nfs_status f(void);\nvoid g(void);\nvoid g(void) { f(); }\n')
    command = [compiler, *SHARED_FLAGS, "-Werror", "-fsyntax-only", str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0 and "ignoring return value" in done.stderr
    source.write_text(source.read_text().replace("f(); }", "FS_IGNORE(f()); }"))
    assert subprocess.run(command, cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    "table, row",
    [
        ("ops/pointwise.def", 'FS_UNARY(sqrt, M(sqrt)(x), "the square root; NaN below 0")'),
        ("work/aten_pointwise.def", "FS_ATEN(neg, pointwise, 1, A(1))"),
    ],
)
def test_the_build_names_a_row_with_a_wrong_function(tmp_path: Path, table: str, row: str) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if compiler is None:
        pytest.skip("no C compiler")
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    found = [path for path in (tmp_path / "csrc").rglob(Path(table).name)]
    assert len(found) == 1
    text = found[0].read_text(encoding="utf-8")
    assert row in text
    wrong = row.replace("M(sqrt)", "M(no_such)") if "M(sqrt)" in row else row.replace("pointwise", "no_such")
    found[0].write_text(text.replace(row, wrong), encoding="utf-8")
    line = text[: text.index(row)].count("\n") + 1
    name = "isa_avx2.c" if "M(sqrt)" in row else "aten_elements.c"
    (source,) = (tmp_path / "csrc").rglob(name)
    done = subprocess.run(
        [compiler, *SHARED_FLAGS, "-fsyntax-only", str(source)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0 and f"{found[0].name}:{line}:" in done.stderr and "no_such" in done.stderr


def test_c_is_formatted() -> None:
    program = _beside_python("clang-format")
    tests = (ROOT / "tests" / "c").iterdir()
    paths = [path for path in [*C_SOURCES, *tests] if path.suffix in {".c", ".h", ".cu", ".cuh", ".inc"}]
    _each_says_nothing([[program, "--dry-run", "--Werror", *map(str, paths)]])


def test_clang_tidy_finds_nothing() -> None:
    program = _beside_python("clang-tidy")
    system = [f"--extra-arg={flag}" for flag in SYSTEM]
    _each_says_nothing([program, "--quiet", *system, str(path)] for path in c_sources())


LINTERS = [
    ["ruff", "check", "."],
    ["ruff", "format", "--check", "flopscope", "tests", "benchmarks", "setup.py", "pytest_flopscope.py"],
    ["mypy", "-p", "flopscope", "-m", "pytest_flopscope"],
]


@pytest.mark.parametrize("command", LINTERS, ids=["ruff", "ruff-format", "mypy"])
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

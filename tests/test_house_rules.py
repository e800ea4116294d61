"""Rules of the code base that are checked automatically."""

from __future__ import annotations

import ast
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
    path for folder in ("flopscope", "tests", "benchmarks", "tools") for path in (ROOT / folder).rglob("*.py")
)

# What each folder of the core may include. Sources fill the store; work, table and summaries read it.
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
    "accounting": {"base", "store", "device", "work", "roofline", "table", "summaries", "accounting"},
    "timeline": {"base", "store", "device", "work", "roofline", "table", "summaries", "accounting", "timeline"},
    "views": {"base", "store", "ops", "device", "work", "roofline", "table", "views"},
    "python": {
        *("base", "store", "ops", "kernels", "device", "sources"),
        *("work", "roofline", "table", "summaries", "accounting", "timeline", "views", "python"),
    },
}


# The same for Python: a package imports from itself and those before it. Modules at the top level are the "face".
PACKAGES = (
    *("_core", "support", "hardware", "sentences", "views", "answers", "report", "results"),
    *("sources", "ranks", "timing", "pictures", "perf", "cli", "face"),
)


def _folder(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] == "kernels" else parts[1]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", C_SOURCES, ids=_name)
def test_includes_point_one_way(path: Path) -> None:
    for included in re.findall(r'#\s*include "([^"]+)"', path.read_text(encoding="utf-8")):
        assert (ROOT / included).exists() or (ROOT / "csrc" / included).exists(), included
        assert included.split("/")[0] in MAY_INCLUDE[_folder(path)], f"{_folder(path)} includes {included}"


def _python_package(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in PACKAGES else "face"


def _imports(tree: ast.AST) -> set[str]:
    """Return the modules of flopscope that a file imports at run time, not those imported only for types."""
    found, nodes = set(), [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            nodes += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            inside = node.module in ("flopscope", *(f"flopscope.{package}" for package in PACKAGES))
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if inside else {str(node.module)}
        nodes += ast.iter_child_nodes(node)
    return {name for name in found if name.split(".")[0] == "flopscope"}


@pytest.mark.parametrize("path", sorted((ROOT / "flopscope").rglob("*.py")), ids=_name)
def test_pythons_imports_point_one_way(path: Path) -> None:
    own = _python_package(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for module in _imports(ast.parse(path.read_text(encoding="utf-8"))):
        assert PACKAGES.index(_python_package(module)) <= PACKAGES.index(own), f"{own} imports {module}"


def test_python_modules_have_no_import_cycles() -> None:
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in (ROOT / "flopscope").rglob("*.py")
    }
    needs = {name: _imports(ast.parse(path.read_text(encoding="utf-8"))) & {*files} for name, path in files.items()}
    while leaves := {name for name, needed in needs.items() if not needed - {name}}:
        needs = {name: needed - leaves for name, needed in needs.items() if name not in leaves}
    assert not needs, f"these import each other: {', '.join(sorted(needs))}"


def test_no_module_has_the_name_of_a_function() -> None:
    """A module ``flopscope.compare`` would replace the function of that name in the package."""
    top = {path.stem for path in (ROOT / "flopscope").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not top & {*fs.__all__}


def test_pythons_headers_stay_in_the_binding() -> None:
    for path in C_SOURCES:
        text = path.read_text(encoding="utf-8")
        if "<Python.h>" in text:
            assert _folder(path) == "python", path
        if "<numpy/" in text:
            assert _name(path) == "csrc/python/numpy.c"


def test_c_sources_begin_with_what_holds_in_them() -> None:
    """The comment before the includes has the invariant of the file; the header says what its functions do."""
    without = [_name(path) for path in C_SOURCES if path.suffix == ".c" and not path.read_text().startswith("/*")]
    assert without == []


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


def _check_commands(commands: Iterable[list[str]]) -> None:
    """Run the commands in parallel and check that each succeeds."""

    def run(command: list[str]) -> str:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout + done.stderr or f"{command} failed"

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        failures = [text for text in pool.map(run, commands) if text]
    assert failures == [], "\n".join(failures)


def _program(name: str) -> str:
    """Return the path of a program of this Python environment, or skip the test."""
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"no {name} beside {sys.executable}: install the extra `lint`")
    return path


def test_the_c_compiles_without_a_warning() -> None:
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if compiler is None:
        pytest.skip("no C compiler")
    flags = [*SHARED_FLAGS, "-O1", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only", *SYSTEM]
    _check_commands([compiler, *flags, str(path)] for path in c_sources())


def test_an_ignored_status_is_an_error(tmp_path: Path) -> None:
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
        ("work/aten/pointwise.def", "FS_ATEN(neg, pointwise, 1, A(1))"),
    ],
)
def test_the_build_names_a_row_with_a_wrong_function(tmp_path: Path, table: str, row: str) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
    if compiler is None:
        pytest.skip("no C compiler")
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    path = tmp_path / "csrc" / table
    text = path.read_text(encoding="utf-8")
    assert row in text
    wrong = row.replace("M(sqrt)", "M(no_such)") if "M(sqrt)" in row else row.replace("pointwise", "no_such")
    path.write_text(text.replace(row, wrong), encoding="utf-8")
    line = text[: text.index(row)].count("\n") + 1
    source = tmp_path / "csrc" / ("ops/cpu/isa_avx2.c" if "M(sqrt)" in row else "work/aten/elements.c")
    done = subprocess.run(
        [compiler, *SHARED_FLAGS, "-fsyntax-only", str(source)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0 and f"{path.name}:{line}:" in done.stderr and "no_such" in done.stderr


def test_c_is_formatted() -> None:
    program = _program("clang-format")
    tests = (ROOT / "tests" / "c").iterdir()
    paths = [path for path in [*C_SOURCES, *tests] if path.suffix in {".c", ".h", ".cu", ".cuh", ".inc"}]
    _check_commands([[program, "--dry-run", "--Werror", *map(str, paths)]])


def test_the_hooks_pin_the_formatter_of_the_tests() -> None:
    pins = [
        re.findall(r"clang-format==([\d.]+)", (ROOT / name).read_text(encoding="utf-8"))
        for name in ("pyproject.toml", ".pre-commit-config.yaml")
    ]
    assert pins[0] == pins[1] and len(pins[0]) == 1


def test_clang_tidy_finds_nothing() -> None:
    program = _program("clang-tidy")
    system = [f"--extra-arg={flag}" for flag in SYSTEM]
    _check_commands([program, "--quiet", *system, str(path)] for path in c_sources())


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
    for name in sorted({*fs.__all__} - {"Op"}):  # Op.__doc__ is the docstring of its instances
        thing = getattr(fs, name)
        assert len(inspect.getdoc(thing) or "") > 20, name
        if inspect.isclass(thing) and str(thing.__module__).startswith("flopscope"):
            for member, value in list(vars(thing).items()):
                public = not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
                assert not public or inspect.getdoc(value), f"{name}.{member}"


def test_every_column_is_documented() -> None:
    from flopscope.results.table import COLUMNS

    for column in COLUMNS:
        assert len(column.doc) > 10, column.name
        assert getattr(fs.EventRow, column.name).__doc__, column.name


def test_readme_and_ci_run_the_same_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- commands -->\n```\w*\n(.*?)```\n<!-- end -->", readme, re.S)
    assert block and len(block[1].strip().splitlines()) == 2
    assert "<!-- commands -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_install_commands_name_flopscope_profiler() -> None:
    for path in [ROOT / "README.md", ROOT / "CHANGELOG.md", *PYTHON_SOURCES, *C_SOURCES]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install (?:-\S+ )*[\"']?flopscope(?!-profiler)\b", text), path


def test_import_is_light() -> None:
    heavy = {"numpy", "pandas", "matplotlib", "torch", "rich", "platformdirs", "cuda"}
    code = f"import sys, flopscope; sys.exit(str({heavy} & set(sys.modules)) if {heavy} & set(sys.modules) else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_modules_of_tests_have_names_of_their_own() -> None:
    """pytest imports test files by their name alone."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))

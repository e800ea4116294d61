"""Rules of the code base that are checked automatically."""

import ast
import inspect
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import ROOT
from helpers.core_build import COMPILER, HAS_COMPILER, SHARED_FLAGS

import flopscope as fs

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
    "replay": {"base", "store", "summaries", "replay"},
    "timeline": {"base", "store", "device", "work", "roofline", "table", "summaries", "accounting", "timeline"},
    "views": {"base", "store", "ops", "device", "work", "roofline", "table", "views"},
    "python": {
        *("base", "store", "ops", "kernels", "device", "sources"),
        *("work", "roofline", "table", "summaries", "accounting", "replay", "timeline", "views", "python"),
    },
}


# The parts of the Python package from the ground up are the rows of the table in docs/architecture.md. A part imports
# from itself and those before it.
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STRUCTURE = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "structure.py")))
PACKAGES = STRUCTURE.order(ARCHITECTURE)


def _folder(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] == "kernels" else parts[1]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_includes_point_one_way() -> None:
    wrong = []
    for path in C_SOURCES:
        for included in re.findall(r'#\s*include "([^"]+)"', path.read_text(encoding="utf-8")):
            exists = (ROOT / included).exists() or (ROOT / "csrc" / included).exists()
            if not exists or included.split("/")[0] not in MAY_INCLUDE[_folder(path)]:
                wrong.append(f"{_name(path)} includes {included}")
    assert not wrong, "\n".join(wrong)


def _imports() -> dict[str, set[str]]:
    """Return what each module of the package imports at run time, from flopscope."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): {
            *STRUCTURE.imports_of(ast.parse(path.read_text(encoding="utf-8")), PACKAGES)
        }
        for path in sorted((ROOT / "flopscope").rglob("*.py"))
    }


def test_the_drawing_of_the_structure_is_that_of_the_code() -> None:
    assert STRUCTURE.drawing(ROOT / "flopscope", PACKAGES) in ARCHITECTURE, "python tools/structure.py draws it anew"


def test_pythons_imports_point_one_way() -> None:
    folders = {path.name for path in (ROOT / "flopscope").iterdir() if (path / "__init__.py").exists()}
    assert {*PACKAGES} == {"_core", "face"} | folders
    wrong = []
    for name, imported in _imports().items():
        own = PACKAGES.index(STRUCTURE.part_of(name, PACKAGES))
        wrong += [f"{name} imports {one}" for one in imported if PACKAGES.index(STRUCTURE.part_of(one, PACKAGES)) > own]
    for path in C_SOURCES:  # the core uses what is below the rest of the package
        for module in re.findall(r'PyImport_ImportModule\("flopscope\.([\w.]+)"\)', path.read_text(encoding="utf-8")):
            if not module.startswith("support."):
                wrong.append(f"{_name(path)} imports flopscope.{module}")
    assert not wrong, "\n".join(wrong)


def test_python_modules_have_no_import_cycles() -> None:
    needs = _imports()
    needs = {name: needed & {*needs} for name, needed in needs.items()}
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


def test_ci_and_the_hooks_run_the_lint_step() -> None:
    for name in (".ci/run", ".pre-commit-config.yaml", "docs/contributing.md"):
        assert ".venv/bin/python tools/lint.py" in (ROOT / name).read_text(encoding="utf-8"), name


def test_an_ignored_status_is_an_error(tmp_path: Path) -> None:
    if not HAS_COMPILER:
        pytest.skip("no C compiler")
    source = tmp_path / "ignores.c"
    source.write_text('#include "base/status.h"\nfs_status f(void);\nvoid g(void);\nvoid g(void) { f(); }\n')
    command = [*COMPILER, *SHARED_FLAGS, "-Werror", "-fsyntax-only", str(source)]
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
    if not HAS_COMPILER:
        pytest.skip("no C compiler")
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    path = tmp_path / "csrc" / table
    text = path.read_text(encoding="utf-8")
    assert row in text
    wrong = row.replace("M(sqrt)", "M(no_such)") if "M(sqrt)" in row else row.replace("pointwise", "no_such")
    path.write_text(text.replace(row, wrong), encoding="utf-8")
    line = text[: text.index(row)].count("\n") + 1
    source = tmp_path / "csrc" / ("ops/cpu/isa_avx2.c" if "M(sqrt)" in row else "work/aten/elements.c")
    command = [*COMPILER, *SHARED_FLAGS, "-fsyntax-only", str(source)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and f"{path.name}:{line}:" in done.stderr and "no_such" in done.stderr


def test_every_public_name_is_documented() -> None:
    for name in sorted({*fs.__all__} - {"Op"}):  # Op.__doc__ is the docstring of its instances
        thing = getattr(fs, name)
        assert len(inspect.getdoc(thing) or "") > 20, name
        if inspect.isclass(thing) and str(thing.__module__).startswith("flopscope"):
            for member, value in list(vars(thing).items()):
                public = not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
                assert not public or inspect.getdoc(value), f"{name}.{member}"


def test_readme_and_ci_run_the_same_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- commands -->\n```\w*\n(.*?)```\n<!-- end -->", readme, re.S)
    assert block and len(block[1].strip().splitlines()) == 2
    assert "<!-- commands -->" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_install_commands_name_flopscope_profiler() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *PYTHON_SOURCES, *C_SOURCES]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install (?:-\S+ )*[\"']?flopscope(?!-profiler)\b", text), path


def test_no_module_of_tests_imports_another() -> None:
    """What tests share is in the package helpers."""
    pattern = re.compile(r"^\s*(?:from|import) (?:test_\w+|conftest)\b.*", re.MULTILINE)
    found = {_name(path): pattern.findall(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("*.py")}
    assert not {name: lines for name, lines in found.items() if lines}

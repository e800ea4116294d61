"""What a fresh process imports: as little as its first call needs. Names of the package, and errors of its import."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.processes import ended, environment

import flopscope as fs

# What takes long to import, beside NumPy.
SLOW = {"pandas", "matplotlib", "torch", "rich", "cuda", "distributed", "scipy", "pyarrow", "numpy.ma", "statistics"}
SLOW |= {"asyncio", "multiprocessing", "importlib.metadata", "logging", "socket", "html", "csv", "platform", "difflib"}
SLOW |= {"subprocess", "tempfile"}
OF_NUMPY = {"platform"}
OF_FUTURES = {"logging"}
OF_JINJA = {"logging", "html", "tempfile"}
# What the import of flopscope loads.
OURS = {"_core", "rooms", "record", "record.at_import", "support", "support.own_path"}
OURS |= {"support.forking", "support.package", "support.upward"}
RECORD = "x = fs.rand((8, 8))\nwith fs.profile(record_shapes=True) as prof: fs.{}(x, x)\n"


def imported(code: str) -> set[str]:
    """Return the modules that a program has imported when it ends, beside those of Python's own start."""
    code = f"import os, sys; before = {{*sys.modules}}\n{code}\nprint(*{{*sys.modules}} - before)"
    # Without site, whose start-up code of installed packages imports modules; the packages are found by the path.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


TRACE = str(ROOT / "tests" / "data" / "traces" / "tracking_flops.json.gz")


def command(*arguments: str) -> str:
    return f"from flopscope.cli.program import main\nassert main({list(arguments)!r}) == 0"


def test_the_package_imports_nothing_but_the_core() -> None:
    found = imported("import flopscope; assert {'measure', 'add', 'perf'} & {*dir(flopscope)} == {'measure', 'add'}")
    assert found == {f"flopscope.{name}" for name in OURS} | {"flopscope", "__future__"}


@pytest.mark.parametrize("op, needs_numpy", [("add", False), ("matmul", True)])  # NumPy's BLAS multiplies
def test_the_first_table_of_a_profile_imports_no_library(op: str, needs_numpy: bool) -> None:
    found = imported(f"import flopscope as fs\n{RECORD.format(op)}print(prof.key_averages(peaks='none'))")
    assert not found & (SLOW - OF_NUMPY) and ("numpy" in found) == needs_numpy


def test_the_first_table_of_a_trace_imports_no_library_and_nothing_that_the_trace_has_not() -> None:
    load = f"import flopscope as fs\nprof = fs.load_trace({TRACE!r})\n"
    assert imported(f"{load}prof.key_averages()") == imported(load)
    assert not imported(f"{load}print(prof.key_averages())") & {*SLOW, "numpy", "jinja2", "argparse"}


def test_a_dataframe_imports_pandas() -> None:
    pytest.importorskip("pandas")
    code = f"import flopscope as fs\n{RECORD.format('add')}prof.key_averages(peaks='none').to_pandas()"
    assert "pandas" in imported(code)


@pytest.mark.parametrize(
    "name, module, unwanted",
    [
        ("table", "tables", {*SLOW, "numpy", "jinja2"}),
        ("summary", "report", {*SLOW, "jinja2"} - OF_NUMPY - OF_FUTURES),
        ("report", "report", SLOW - OF_NUMPY - OF_JINJA),
    ],
)
def test_a_command_imports_what_it_needs(tmp_path: Path, name: str, module: str, unwanted: set[str]) -> None:
    output = ["-o", str(tmp_path / "page.html")] if name == "report" else []
    found = imported(command(name, TRACE, *output))
    assert not found & unwanted
    commands = {one for one in found if one.startswith("flopscope.cli.")}
    assert commands == {f"flopscope.cli.{one}" for one in ("parser", "program", module)}


def test_the_list_of_commands_imports_none_of_them() -> None:
    found = imported("from flopscope.cli.program import main\ntry: main(['--help'])\nexcept SystemExit: pass")
    assert {one for one in found if "flopscope.cli." in one} == {"flopscope.cli.parser", "flopscope.cli.program"}


@pytest.mark.parametrize("name", ["table", "summary", "report", "devices"])
def test_files_of_the_current_folder_hide_no_module_of_a_command(tmp_path: Path, name: str) -> None:
    """``python -m`` puts the current folder first into the search path; commands that run code of others keep it."""
    for module in ("csv", "difflib", "html", "json", "logging", "numpy", "pickle", "shutil", "tempfile"):
        (tmp_path / f"{module}.py").write_text(f"raise SystemExit('the {module} of the current folder')\n")
    arguments = [] if name == "devices" else [TRACE]
    command = [sys.executable, "-m", "flopscope", name, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True)
    assert done.returncode == 0, done.stderr


def test_dir_lists_exactly_the_public_names() -> None:
    public = {name for name in dir(fs) if not name.startswith("_")}
    assert public == set(fs.__all__) and {"__version__", "__doc__"} <= set(dir(fs))
    assert all(hasattr(fs, name) for name in public)


def copy_of(folder: Path) -> Path:
    shutil.copytree(ROOT / "flopscope", folder / "flopscope", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return folder


def import_in(folder: Path) -> str:
    done = subprocess.run([sys.executable, "-S", "-c", "import flopscope"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("source_tree", [True, False])
def test_an_unbuilt_package_explains_how_to_build_it(tmp_path: Path, source_tree: bool) -> None:
    folder = copy_of(tmp_path)
    if source_tree:
        (folder / "setup.py").touch()
    output = import_in(folder)
    last = output.splitlines()[-1]
    assert last.startswith("ImportError: ") and str(folder) in last and "circular" not in output
    assert (f"pip install -e {folder}" if source_tree else "pip install --force-reinstall flopscope-profiler") in last


def test_a_core_that_does_not_load_reports_its_own_reason(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    (folder / "flopscope" / "_core.py").write_text("raise ImportError('libfoo.so.7: cannot open shared object file')")
    assert "libfoo.so.7" in import_in(folder).splitlines()[-1]


THEIRS = "__version__ = '0.12'\n"


def site_of(folder: Path) -> Path:
    """Return a folder with the package, and with the metadata of the unrelated distribution "flopscope"."""
    copy_of(folder)
    for file in (ROOT / "flopscope").glob("_core*.so"):
        (folder / "flopscope" / file.name).symlink_to(file)
    (folder / "flopscope-0.12.4.dist-info").mkdir()
    return folder


def test_another_distribution_installed_before_is_warned_of(tmp_path: Path) -> None:
    folder = site_of(tmp_path)
    program = "import flopscope as fs; print(fs.add(fs.ones(2, device='cpu'), 1).numpy())"
    done = ended(program, cwd=folder)
    assert done.returncode == 0 and done.stdout == "[2. 2.]\n"
    assert done.stderr.count("the unrelated distribution flopscope") == 1 and "<string>:1: UserWarning" in done.stderr
    assert "pip uninstall flopscope flopscope-profiler" in done.stderr
    (folder / "flopscope-0.12.4.dist-info").rename(folder / "flopscope_profiler-0.6.0.dist-info")
    assert ended(program, cwd=folder).stderr == ""


def test_another_distribution_installed_after_is_named_by_the_command(tmp_path: Path) -> None:
    folder = site_of(tmp_path)
    (folder / "flopscope" / "__init__.py").write_text(THEIRS)
    for code in ("from flopscope.cli.program import main", "from flopscope.perf import Perf", "import flopscope.torch"):
        done = ended(code, cwd=folder)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith("ImportError: the unrelated distribution flopscope"), done.stderr


def test_the_version_of_the_command_names_the_distribution() -> None:
    done = subprocess.run([sys.executable, "-m", "flopscope", "--version"], capture_output=True, text=True)
    assert done.stdout == f"flopscope {fs.__version__} (flopscope-profiler)\n"
    assert fs.__distribution__ == "flopscope-profiler"
    assert f'\nname = "{fs.__distribution__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")

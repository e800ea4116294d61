"""What a fresh process imports: as little as its first call needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.processes import environment

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

"""Importing flopscope: its public names, and its errors if it is not built."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT
from helpers.processes import ended

import flopscope as fs


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

"""Each way to build compiles only what changed: in a small tree, by a C compiler and an nvcc that log what they do."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import ROOT

pytest.importorskip("setuptools", minversion="64")

CC = shutil.which("cc")
FILES = {
    "csrc/table/rows.def": "ROW(1)\n",
    "csrc/table/rows.c": '#define ROW(n) extern int fs_row;\n#include "table/rows.def"\nint fs_row;\n',
    "csrc/base/other.c": "int fs_other(void);\nint fs_other(void) { return 2; }\n",
    "csrc/python/module.c": "#include <Python.h>\nPyObject *PyInit__core(void);\n"
    "PyObject *PyInit__core(void) { static struct PyModuleDef made; return PyModule_Create(&made); }\n",
    "csrc/python/numpy.c": "#include <numpy/npy_common.h>\nnpy_intp fs_size;\n", "kernels/launch.c": "int fs_launch;\n",
    "kernels/add.cu": '#define ROW(n) int fs_add;\n#include "table/rows.def"\n', "flopscope/__init__.py": "",
    "flopscope/support/__init__.py": "", "flopscope/support/package.py": 'VERSION = "1.0"\n', "pytest_flopscope.py": "",
    "README.md": "", "LICENSE": "",
}  # fmt: skip
INPLACE = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
# What pip calls for `pip install -e .`.
EDITABLE = [sys.executable, "-c", "from setuptools.build_meta import build_editable as b; b('wheels')"]
LOGS = '#!/bin/sh\nfor last; do case "$last" in *.c|*.cu) echo "${last##*/}" >> "$LOG"; compiles=1;; esac; done\n'
LOGS += '[ -z "$compiles" ] || echo "$*" >> "${LOG%/*}/arguments"\n'

ALL = {"rows.c", "other.c", "module.c", "numpy.c", "launch.c", "add.cu"}
Build = Callable[[list[str]], set[str]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Return a function that runs a build in ``tmp_path`` and returns the names of the files that it compiled."""
    if CC is None:
        pytest.skip("no C compiler")
    for name in ("setup.py", "pyproject.toml", "compile_flags.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    toolkit, log = tmp_path / "toolkit", tmp_path / "log"
    for name in (
        "bin/nvcc", "bin/cc", "version", "include/cuda_runtime.h", "include/cuda_fp16.h", "include/nv/target", "wheels",
    ):  # fmt: skip
        (toolkit / name).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / name).touch()
    (tmp_path / "wheels").mkdir()
    (toolkit / "bin" / "cc").write_text(f'{LOGS}exec {CC} "$@"\n')
    # Of nvcc's arguments, those that a C compiler knows.
    (toolkit / "bin" / "nvcc").write_text(
        f'{LOGS}case "$1" in --version) cat {toolkit}/version; exit;;\n'
        f'--dryrun) echo "#$ TOP={toolkit}" >&2; exit;; esac\n'
        f'while [ "$1" != -c ]; do case "$1" in -I*) set -- "$@" "$1";; esac; shift; done\nexec {CC} -x c -fPIC "$@"\n'
    )
    for name in ("cc", "nvcc"):
        (toolkit / "bin" / name).chmod(0o755)
    (toolkit / "lib").mkdir()
    subprocess.run(["ar", "rc", str(toolkit / "lib" / "libcudart_static.a")], check=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("CFLAGS", "LDFLAGS", "PYTHONPATH")},
        **{"CC": str(toolkit / "bin" / "cc"), "CUDA_HOME": str(toolkit), "LOG": str(log)},
        **{"FLOPSCOPE_CUDA": "1", "FLOPSCOPE_CUDA_ARCHS": "90"},
    }

    def run(command: list[str]) -> set[str]:
        log.write_text("")
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert list((tmp_path / "flopscope").glob("_core*.so"))
        return set(log.read_text().split())

    return run


@pytest.mark.parametrize("first, second", [(INPLACE, EDITABLE), (EDITABLE, INPLACE)], ids=["inplace", "editable"])
def test_a_build_compiles_what_has_changed(build: Build, tmp_path: Path, first: list[str], second: list[str]) -> None:
    assert build(first) == ALL and build(second) == set()
    for command in (second, first):
        (tmp_path / "csrc" / "table" / "rows.def").write_text("ROW(2)\n")  # newer than the objects
        assert build(command) == {"rows.c", "add.cu"}


def test_other_headers_of_numpy_compile_one_file(build: Build) -> None:
    build(INPLACE)
    elsewhere = "import numpy; real = numpy.get_include(); numpy.get_include = lambda: real + '/.'; "
    assert build([*EDITABLE[:2], elsewhere + EDITABLE[2]]) == {"numpy.c"}


def test_kernels_are_compiled_once_for_all_pythons(build: Build, tmp_path: Path) -> None:
    other = "import sys; sys.implementation.cache_tag = 'other'; "
    assert build(INPLACE) == ALL and build([*EDITABLE[:2], other + EDITABLE[2]]) == ALL - {"add.cu"}
    (tmp_path / "toolkit" / "version").write_text("release 99")
    assert build(INPLACE) == {"add.cu"} and build([*EDITABLE[:2], other + EDITABLE[2]]) == set()


def test_builds_for_two_pythons_at_once_do_not_mix_their_files(build: Build, tmp_path: Path) -> None:
    """Each writes files of its own, which take their names when they are whole."""
    build(INPLACE)
    left = [path.name for path in (tmp_path / "build").glob("objects-*/**/*") if path.is_file()]
    ends = (".c.o", ".c.d", ".c.cmd", ".cu.o", ".cu.d", ".cu.cmd")
    assert len(left) == 3 * len(ALL) and all(name.endswith(ends) for name in left)
    commands = (tmp_path / "arguments").read_text().splitlines()
    written = [words[words.index("-o") + 1] for words in map(str.split, commands) if "-o" in words]
    assert len(written) == len(ALL) and not any(name.endswith((".c.o", ".cu.o")) for name in written)


@pytest.mark.parametrize("left", ["add.cu.cmd", "add.cu.d", "add.cu.o"])
def test_kernels_that_an_interrupted_build_left_are_compiled_again(build: Build, tmp_path: Path, left: str) -> None:
    build(INPLACE)
    (found,) = (tmp_path / "build").glob(f"objects-*/kernels/{left}")
    found.unlink()
    assert build(INPLACE) == {"add.cu"}


def test_the_linker_is_chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    linker = tmp_path / "linker"
    linker.write_text(f'#!/bin/sh\necho linked >> {tmp_path}/linked\nexec {CC} -shared "$@"\n')
    linker.chmod(0o755)
    monkeypatch.setenv("LDSHARED", str(linker))
    build: Build = request.getfixturevalue("build")
    assert build(INPLACE) == ALL and (tmp_path / "linked").read_text() == "linked\n"

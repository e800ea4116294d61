"""What tools/build_wheels.py refuses, and a built wheel in a fresh environment, if FLOPSCOPE_TEST_WHEEL names one."""

import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT

WHEEL = os.environ.get("FLOPSCOPE_TEST_WHEEL")
NAME = "flopscope_profiler-1.0-cp312-cp312-manylinux_2_28_x86_64.whl"
GOOD = "NEEDED libc.so.6\nNEEDED libm.so.6\nVersion References:\n GLIBC_2.25\n GLIBC_2.2.5\n"
FILES = ("flopscope/_core.x.so", "flopscope/_core.pyi", "flopscope/py.typed", "flopscope/show/page/assets/a.js")
FILES += ("flopscope/cli/server/skills/flopscope/SKILL.md",)


@pytest.fixture
def program() -> dict[str, Any]:
    """Return the names of the program."""
    return runpy.run_path(str(ROOT / "tools" / "build_wheels.py"))


def wrong(program: dict[str, Any], folder: Path, name: str = NAME, dynamic: str = GOOD, **more: bytes) -> list[str]:
    """Return what is wrong with a wheel with these files, whose core is linked as in the output of objdump."""
    check = program["check"]
    check.__globals__["run"] = lambda *command, **_: dynamic
    with zipfile.ZipFile(folder / name, "w") as archive:
        for file in (*FILES, "pytest_flopscope.py"):
            archive.writestr(file, b"")
        for file, content in more.items():
            archive.writestr(file, content)
    found: list[str] = check(folder / name)
    return found


def test_a_good_wheel_is_accepted(program: dict[str, Any], tmp_path: Path) -> None:
    assert wrong(program, tmp_path) == []


def test_wheels_for_newer_systems_or_with_cudas_libraries_are_refused(program: dict[str, Any], tmp_path: Path) -> None:
    assert wrong(program, tmp_path, dynamic=GOOD + " GLIBC_2.34\n") == ["it needs glibc 2.34"]
    assert wrong(program, tmp_path, dynamic=GOOD + "NEEDED libcudart.so.13\n") == ["it is linked with libcudart.so.13"]
    assert wrong(program, tmp_path, name=NAME.replace("2_28", "2_34")) == ["it is not for manylinux_2_28_x86_64"]


def test_wheels_that_are_large_or_hold_other_libraries_are_refused(program: dict[str, Any], tmp_path: Path) -> None:
    (large,) = wrong(program, tmp_path, big=os.urandom(program["MOST_BYTES"]))
    assert large == "it has 15.0 MiB, more than 15"
    (other,) = wrong(program, tmp_path, **{"flopscope_profiler.libs/libz.so": b""})
    assert "libz.so" in other
    with zipfile.ZipFile(tmp_path / NAME, "w") as archive:
        for name in FILES[:3]:
            archive.writestr(name, b"")
    lacking = ("flopscope/show/page/assets/", "flopscope/cli/server/skills/", "pytest_flopscope.py")
    assert program["check"](tmp_path / NAME) == [f"it lacks {part}" for part in lacking]


@pytest.mark.skipif(WHEEL is None, reason="FLOPSCOPE_TEST_WHEEL names no wheel")
def test_a_wheel_works_in_a_fresh_environment_without_a_compiler() -> None:
    command = [sys.executable, ROOT / "tools" / "test_wheel.py", str(WHEEL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("works\n")

"""Programs that run in processes of their own, as a driver, CUPTI or a profiler begins only once in each."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from helpers import ROOT, TESTS


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a process that finds flopscope and these helpers in this checkout."""
    paths = [str(ROOT), str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def ended(program: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process and return how it ended."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    options = {"env": environment(), "timeout": 300} | options
    return subprocess.run(command, capture_output=True, text=True, **options)


def git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
    return subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def output_of(program: str, *arguments: object, **options: Any) -> str:
    """Run a program in a new process, which must succeed, and return its output."""
    done = ended(program, *arguments, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

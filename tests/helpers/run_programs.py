"""Programs that run under ``flopscope run``, for tests/run and those of recordings."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from flopscope.support.process import RANK_VARIABLES
from helpers import ROOT

# A report that says what it is of.
REPORT = """
import os, pathlib, time
from flopscope.results.results import Results
def write_report(self, path, *, title):
    pathlib.Path(path).with_suffix(".begun").touch()
    if "SLOW_REPORT" in os.environ:
        time.sleep(float(os.environ["SLOW_REPORT"]))
    if "BAD_REPORT" in os.environ:
        raise OSError(28, "No space left on device", path)
    with open(path, "w") as file:
        file.write(f"report of {len(self)} events")
Results.write_report = write_report
"""
OPS = "import flopscope as fs\nx = fs.ones((4, 4), device='cpu')\nfs.neg(x)\n"


def environment(**more: str) -> dict[str, str]:
    theirs = {name for names in RANK_VARIABLES for name in names}
    plain = {name: text for name, text in os.environ.items() if name not in theirs}
    return {**plain, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **more}


def script(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def start(folder: Path, command: list[str], **more: str) -> subprocess.Popen[str]:
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options |= {"start_new_session": True, "preexec_fn": default_signals}
    return subprocess.Popen([sys.executable, *command], cwd=folder, env=environment(**more), text=True, **options)


def default_signals() -> None:
    """Undo what the program that started the tests has done to signals: nohup ignores SIGHUP, and some block it."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def done(folder: Path, command: list[str], text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    with start(folder, command, **more) as process:
        out, err = process.communicate(text, timeout=120)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def run(folder: Path, *arguments: object, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    return done(folder, ["-m", "flopscope", "run", *map(str, arguments)], text, **more)


def in_reporter(code: str) -> dict[str, str]:
    """Return the environment in which the process that reports runs some code first."""
    return {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'helpers' / 'reporter'}", "IN_REPORTER": code}


def start_with_report(folder: Path, *arguments: object, **more: str) -> subprocess.Popen[str]:
    return start(folder, ["-m", "flopscope", "run", *map(str, arguments)], **in_reporter(REPORT), **more)


def run_with_report(folder: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    return run(folder, *arguments, **in_reporter(REPORT), **more)


def own(err: str) -> str:
    """Return the messages of flopscope."""
    return "\n".join(line for line in err.splitlines() if line.startswith("flopscope run: "))


def others(err: str) -> str:
    """Return what is no message of flopscope."""
    return "".join(line for line in err.splitlines(True) if not line.startswith("flopscope run: "))


def wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"{path} was not created"
        time.sleep(0.02)

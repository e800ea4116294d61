"""Test a wheel: ``python tools/test_wheel.py WHEEL``, with the Python that it is for.

It is installed into a fresh environment. PATH has no compiler there, and the folder no source tree. Then run the
benchmark program, a program under ``flopscope run``, a report and a summary of its trace, and a test with the pytest
plugin. Nothing but the wheel's own dependencies and pytest is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import flopscope as fs
x = fs.rand((256, 256))
for _ in range(3):
    fs.sin(fs.matmul(x, x))
    fs.step()
"""
TEST = """
import flopscope as fs

def test_add(perf):
    x = fs.ones((64, 64), device="cpu")
    perf(fs.add, x, x, max_time=0.05).at_most(s=1)
"""
DEVICES = "import flopscope as fs; print(*fs.devices())"


def main(wheel: str) -> None:
    """Install the wheel and run what it is for."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, bare = Path(scratch), Path(scratch, "bin")
        python = folder / "venv" / "bin" / "python"
        bare.mkdir()
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True, env=variables)
        variables |= {"PATH": f"{python.parent}:{bare}", "HOME": scratch, "FLOPSCOPE_CACHE_DIR": f"{scratch}/cache"}

        def run(*command: str) -> str:
            print("+", *command, flush=True)
            done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                sys.exit(f"{done.stdout}{done.stderr}\n{' '.join(command)} failed with status {done.returncode}")
            return done.stdout

        pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
        run(*pip, str(Path(wheel).resolve()), "pytest")
        run(str(python), "-m", "pip", "check")
        (folder / "program.py").write_text(PROGRAM)
        (folder / "test_perf.py").write_text(TEST)
        found = [name for name in ("cc", "gcc", "clang", "nvcc") if shutil.which(name, path=variables["PATH"])]
        assert not found, found
        print(run("flopscope", "--version"), run(str(python), "-c", DEVICES), sep="", end="")
        for line in run("flopscope", "bench", "--size", "256", "--repeat", "2").splitlines()[:1]:
            print(line)
        run("flopscope", "run", "--trace", "trace.json.gz", "--no-report", "program.py")
        run("flopscope", "report", "trace.json.gz", "-o", "page.html")
        run("flopscope", "summary", "trace.json.gz", "--json", "summary.json")
        assert (folder / "page.html").stat().st_size > 100_000
        steps = json.loads((folder / "summary.json").read_text())["steps"]
        assert len(steps) >= 2 and all(step["total_us"] > 0 for step in steps), steps
        assert "1 passed" in run(str(python), "-m", "pytest", "-q", "--perf-save=base", "test_perf.py")
        assert list(folder.glob(".benchmarks/*/0001_base.json"))
    print(f"{Path(wheel).name} works")


if __name__ == "__main__":
    main(*sys.argv[1:])

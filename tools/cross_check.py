"""Compile the core and its C tests for 64-bit ARM and run them in QEMU: ``python tools/cross_check.py [TEST…]``.

This needs aarch64-linux-gnu-gcc and qemu-aarch64, on Debian the packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross
and qemu-user. A warning about the core is an error. The binding is compiled with the headers of this Python and NumPy,
and is not run. test_parallel is left out, because QEMU cannot fork a process that has threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from helpers.core_build import FLAGS, c_sources, core_sources, is_binding  # noqa: E402

COMPILER = ("aarch64-linux-gnu-gcc", *FLAGS, "-O1")
EMULATOR = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
CANNOT_RUN = {"test_parallel"}


def run(*command: object) -> str:
    """Run a command; return "" if it succeeds, else the end of its output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT)
    return "" if done.returncode == 0 else f"ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"


def main() -> None:
    wanted = set(sys.argv[1:])
    programs = [path for path in sorted((ROOT / "tests" / "c").glob("test_*.c")) if path.stem not in CANNOT_RUN]
    programs = [path for path in programs if not wanted or path.stem in wanted]
    headers = [option for path in (sysconfig.get_path("include"), np.get_include()) for option in ("-isystem", path)]
    core, binding = core_sources(), [path for path in c_sources() if is_binding(path)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count() or 1) as pool:

        def made(source: Path) -> Path:
            return Path(folder, str(source.relative_to(ROOT)).replace("/", "-")).with_suffix("")

        def compiled(source: Path) -> str:
            options = headers if is_binding(source) else []
            return run(*COMPILER, "-Werror", *options, "-c", source, "-o", f"{made(source)}.o")

        def tested(source: Path) -> str:
            objects = [f"{made(each)}.o" for each in core]
            libraries = ("-lm", "-lpthread", "-ldl")
            problem = run(*COMPILER, source, *objects, *libraries, "-o", made(source))
            return problem or run(*EMULATOR, made(source))

        for step, sources in ((compiled, [*core, *binding]), (tested, programs)):
            problems = [pair for pair in zip(sources, pool.map(step, sources), strict=True) if pair[1]]
            for source, problem in problems:
                print(f"{source.relative_to(ROOT)}: {problem}")
            if problems:
                sys.exit(f"{step.__name__}: {len(problems)} of {len(sources)} failed")
            print(f"{step.__name__}: {len(sources)} of {len(sources)}")


if __name__ == "__main__":
    main()

"""Check lint, types, formatting and lengths of all files: one step of CI and of pre-commit.

    python tools/lint.py            every check: a minute or two, most of it clang-tidy's
    python tools/lint.py --quick    without clang-tidy and the compiler's warnings: seconds
    python tools/lint.py --fix      formats first, and repairs what ruff can

The programs are those of the extra `lint`, beside the Python that runs this file. Each file that fails is named.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES, MOST_C_LINES, MOST_COLUMNS = 520, 800, 120
MOST_STATES = 30_000
"""What clang's analyzer explores of a function: its default of 225,000 takes 3.6 times as long for all files."""
C_FOLDERS, PYTHON_FOLDERS = ("csrc", "kernels"), ("flopscope", "tests", "benchmarks", "tools")
FORMATTED = {".c", ".h", ".cu", ".cuh", ".inc"}
Commands = Iterator[list[str]]


def program(name: str) -> str:
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if path is None:
        sys.exit(f"no {name} beside {sys.executable}: pip install -e '.[test,lint]'")
    return path


def files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())


def python_files() -> list[Path]:
    return [path for path in files(*PYTHON_FOLDERS) if path.suffix == ".py"]


def c_files() -> list[str]:
    return [str(path) for path in files(*C_FOLDERS, "tests/c", "benchmarks") if path.suffix in FORMATTED]


def translation_units() -> list[str]:
    return [str(path) for path in files("csrc") if path.suffix == ".c"]


def system_headers() -> list[str]:
    import numpy as np

    return [flag for path in (sysconfig.get_path("include"), np.get_include()) for flag in ("-isystem", path)]


def ruff_check(fix: bool) -> Commands:
    yield [program("ruff"), "check", "--quiet", *["--fix"] * fix, "."]


def ruff_format(fix: bool) -> Commands:
    yield [
        program("ruff"),
        "format",
        "--quiet",
        *["--check"] * (not fix),
        *PYTHON_FOLDERS,
        "setup.py",
        "pytest_flopscope.py",
    ]


def clang_format(fix: bool) -> Commands:
    yield [program("clang-format"), *(["-i"] if fix else ["--dry-run", "--Werror"]), *c_files()]


def page_files(*kinds: str) -> list[str]:
    return [str(path) for path in files("flopscope/show/page/assets", "tests/js") if path.suffix in kinds]


def oxfmt(fix: bool) -> Commands:
    yield [program("oxfmt"), *["--check"] * (not fix), *page_files(".js", ".mjs", ".css")]


def oxlint(fix: bool) -> Commands:
    yield [program("oxlint"), "--deny-warnings", *page_files(".js", ".mjs")]


def mypy(fix: bool) -> Commands:
    yield [sys.executable, "-m", "mypy", "--no-error-summary", "-p", "flopscope", "-m", "pytest_flopscope"]


def compiler_warnings(fix: bool) -> Commands:
    shared = (ROOT / "compile_flags.txt").read_text(encoding="utf-8").split()
    flags = [*shared, "-O1", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only", *system_headers()]
    for path in translation_units():
        yield [*shlex.split(os.environ.get("CC", "cc")), *flags, path]


def clang_tidy(fix: bool) -> Commands:
    flags = [*system_headers(), "-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={MOST_STATES}"]
    extra = [f"--extra-arg={flag}" for flag in flags]
    for path in translation_units():
        yield [program("clang-tidy"), "--quiet", *extra, path]


def lengths() -> str:
    """Return a line for each file and each line that is too long; rows of a `.def` file may be."""
    found = []
    for path in (*files(*C_FOLDERS), *python_files(), *map(Path, page_files(".js", ".mjs", ".css"))):
        lines, name = path.read_text(encoding="utf-8").splitlines(), path.relative_to(ROOT)
        most = MOST_C_LINES if path.suffix in FORMATTED else MOST_LINES
        if len(lines) > most:
            found.append(f"{name}: {len(lines)} lines, more than {most}")
        long = [number for number, line in enumerate(lines, 1) if len(line) > MOST_COLUMNS and path.suffix != ".def"]
        found += [f"{name}:{number}: more than {MOST_COLUMNS} columns" for number in long]
    return "\n".join(found)


# Those that repair something come first, for --fix, then the quick ones.
FORMATTERS: tuple[Callable[[bool], Commands], ...] = (ruff_check, ruff_format, clang_format, oxfmt)
QUICK = (*FORMATTERS, oxlint, mypy)
SLOW = (compiler_warnings, clang_tidy)


def failure(command: list[str]) -> str:
    """Run a command; return what it printed if it failed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr or f"{command} failed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave clang-tidy and the compiler's warnings out")
    parser.add_argument("--fix", action="store_true", help="format and repair first")
    options = parser.parse_args()
    if options.fix:
        for check in FORMATTERS:
            for command in check(True):
                subprocess.run(command, cwd=ROOT, check=False)
    failed = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for check in QUICK if options.quick else (*QUICK, *SLOW):
            start = time.perf_counter()
            found = [text for text in pool.map(failure, check(False)) if text]
            print(
                f"{check.__name__:18} {'failed' if found else 'ok':6} {time.perf_counter() - start:5.1f} s", flush=True
            )
            failed += found
    if long := lengths():
        failed.append(long)
    print(f"{'lengths':18} {'failed' if long else 'ok'}")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()

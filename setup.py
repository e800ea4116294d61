"""Build flopscope._core: the C core, and the CUDA half where nvcc is found.

Environment:
    FLOPSCOPE_CUDA=0|1         leave the CUDA half out, or fail without nvcc; default: build it where nvcc is found
    FLOPSCOPE_CUDA_ARCHS       compute capabilities, "90" or "80;90", or "all" for ARCHS below, as in the wheels;
                               default: those of this machine's GPUs, or FEW_ARCHS where there is none
    LDSHARED                   what links, instead of the C compiler with -shared; tools/build_wheels.py sets it
    CUDA_HOME                  the toolkit, before PATH and the nvidia-cuda-nvcc wheel
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
ARCHS = ("75", "80", "86", "89", "90", "100", "120")
# Native code runs on later GPUs of the same major capability. All other GPUs get PTX, which the driver compiles when
# the kernels are first used: of the lowest of ARCHS, and of the highest of those built natively.
FEW_ARCHS = ("80", "90")
# The language, the warnings and the include paths, which the tests, the fuzz targets, clang-tidy and clangd share.
C_FLAGS = [*(ROOT / "compile_flags.txt").read_text().split(), "-O3", "-fPIC", "-fvisibility=hidden"]
NVCC_FLAGS = [
    "-std=c++17",
    "-O3",
    "--threads",
    "2",
    "-Xfatbin=-compress-all",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics",
]


class Cuda:
    """A CUDA toolkit: where its nvcc, headers and static runtime are."""

    def __init__(self, nvcc: str) -> None:
        self.nvcc = nvcc
        self.version = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
        # nvcc itself says where its toolkit is, also when it is a wrapper.
        dry = subprocess.run([nvcc, "--dryrun", "-c", "-x", "cu", os.devnull], capture_output=True, text=True)
        top = re.search(r"^#\$ TOP=(.+)$", dry.stderr, re.M)
        self.home = Path(top[1] if top else Path(nvcc).resolve().parent.parent).resolve()
        wanted = ("cuda_runtime.h", "cuda_fp16.h", "nv/target"), ("libcudart_static.a",)
        self.include = self._folder(("include", "targets/x86_64-linux/include"), wanted[0])
        self.lib = self._folder(("lib64", "lib", "targets/x86_64-linux/lib"), wanted[1])

    def _folder(self, places: tuple[str, ...], files: tuple[str, ...]) -> Path:
        for place in places:
            if all((self.home / place / name).exists() for name in files):
                return self.home / place
        raise RuntimeError(
            f"{self.nvcc} is there, but {self.home} lacks {', '.join(files)}: the toolkit is incomplete (the wheels "
            "nvidia-cuda-runtime and nvidia-cuda-cccl hold them); FLOPSCOPE_CUDA=0 does without"
        )

    def targets(self) -> tuple[list[str], list[str], str]:
        """The capabilities to compile native code for, those to compile PTX for, and why these."""
        chosen = os.environ.get("FLOPSCOPE_CUDA_ARCHS", "").replace(".", "").replace(",", ";").replace(" ", ";")
        if chosen == "all":
            known = subprocess.run([self.nvcc, "--list-gpu-arch"], capture_output=True, text=True).stdout
            every = [arch for arch in ARCHS if f"compute_{arch}\n" in known] or list(ARCHS)
            return every, [every[-1]], "FLOPSCOPE_CUDA_ARCHS=all"
        native = [arch.removeprefix("sm_") for arch in chosen.split(";") if arch]
        if not all(re.fullmatch(r"\d{2,3}[af]?", arch) for arch in native):
            raise RuntimeError(f"FLOPSCOPE_CUDA_ARCHS is {chosen!r}; it is like 90 or 80;90, or all")
        why = f"FLOPSCOPE_CUDA_ARCHS={chosen}"
        if not native:
            native, why = self._archs_here(), "the GPUs of this machine; FLOPSCOPE_CUDA_ARCHS chooses others"
        if native:
            return native, [max(native, key=lambda arch: int(arch.rstrip("af")))], why
        why = "no GPU is here: PTX serves the others; FLOPSCOPE_CUDA_ARCHS=all compiles native code for each"
        return list(FEW_ARCHS), [ARCHS[0], FEW_ARCHS[-1]], why

    def _archs_here(self) -> list[str]:
        smi = shutil.which("nvidia-smi")
        if smi is None:
            return []
        query = [smi, "--query-gpu=compute_cap", "--format=csv,noheader"]
        asked = subprocess.run(query, capture_output=True, text=True)
        here = {(int(major), minor) for major, minor in re.findall(r"^(\d+)\.(\d)\s*$", asked.stdout, re.M)}
        return [f"{major}{minor}" for major, minor in sorted(here)]


def code_flags(native: list[str], ptx: list[str]) -> list[str]:
    """nvcc's flags; one for each capability, so that each is compiled to PTX once."""
    flags = []
    for arch in sorted({*native, *ptx}, key=lambda arch: int(arch.rstrip("af"))):
        codes = [f"sm_{arch}"] * (arch in native) + [f"compute_{arch}"] * (arch in ptx)
        flags.append(f"-gencode=arch=compute_{arch},code=[{','.join(codes)}]")
    return flags


def find_cuda() -> Cuda | None:
    """The toolkit to build with, or None; RuntimeError if one was demanded and there is none."""
    wish = os.environ.get("FLOPSCOPE_CUDA", "")
    if wish not in ("", "0", "1"):
        raise RuntimeError(f"FLOPSCOPE_CUDA is {wish!r}; 0 builds without CUDA, 1 demands it, unset takes what is here")
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    packages = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    wheels = [Path(folder) / "nvidia" / "cu13" for folder in packages]
    candidates = [home / "bin" / "nvcc" for home in homes]
    candidates += [Path(found) for found in [shutil.which("nvcc")] if found]
    candidates += [home / "bin" / "nvcc" for home in [*wheels, Path("/usr/local/cuda")]]
    nvcc = next((path for path in candidates if path.exists()), None)
    nowhere = "no nvcc is in CUDA_HOME, on PATH or in the nvidia-cuda-nvcc wheel"
    if wish == "0" or nvcc is None:
        if wish == "1":
            raise RuntimeError("FLOPSCOPE_CUDA=1, but " + nowhere)
        why = "FLOPSCOPE_CUDA=0" if wish == "0" else nowhere
        print(f"flopscope: building the CPU package, without CUDA ({why})", file=sys.stderr)
        return None
    try:
        return Cuda(str(nvcc))
    except RuntimeError as problem:
        if wish == "1":
            raise
        print(f"flopscope: building the CPU package, without CUDA ({problem})", file=sys.stderr)
        return None


class BuildCore(build_ext):
    """Compile C with the C compiler and .cu with nvcc, in parallel, what changed only; link as C."""

    def finalize_options(self) -> None:
        # One folder of objects for all builds in this tree: `pip install -e` would compile all in a temporary one.
        if self.build_temp is None:
            self.build_temp = str(ROOT / "build" / f"objects-{sys.implementation.cache_tag}")
            self.kernels_temp = ROOT / "build"
        else:
            self.kernels_temp = Path(self.build_temp)
        super().finalize_options()

    def build_extension(self, ext: Extension) -> None:
        cuda = find_cuda()
        kernels = ROOT / "kernels"
        stub = kernels / "cuda_stub.c"
        c_files = sorted((ROOT / "csrc").rglob("*.c"))
        c_files += sorted(set(kernels.glob("*.c")) - {stub}) if cuda else [stub]
        cu_files = sorted(kernels.glob("*.cu")) if cuda else []
        system = ["-isystem", str(cuda.include)] if cuda else []
        # Only the binding sees Python's headers, and one file of it NumPy's. Where a fresh environment, such as the one
        # that pip makes for each build, has them elsewhere, only these files are compiled again.
        headers = {ROOT / "csrc" / "python": sysconfig.get_path("include")}
        headers[ROOT / "csrc" / "python" / "numpy.c"] = numpy.get_include()
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        extra = shlex.split(os.environ.get("CFLAGS", ""))
        jobs = []
        if cuda:  # the slow ones first
            native, ptx, why = cuda.targets()
            names = " ".join([*(f"sm_{arch}" for arch in native), *(f"PTX-{arch}" for arch in ptx)])
            print(f"flopscope: building with CUDA of {cuda.home}, for {names} ({why})", file=sys.stderr)
            includes = [flag for flag in C_FLAGS if flag.startswith("-I")]
            command = [cuda.nvcc, *NVCC_FLAGS, *code_flags(native, ptx), *includes, *system]
            by_size = sorted(cu_files, key=lambda path: -path.stat().st_size)
            # Kernels depend on no Python: builds for each find here what another has compiled for the same targets.
            folder = self.kernels_temp / "-".join(["objects", *names.replace("_", "").lower().split()])
            jobs += [(command, path, folder, cuda.version) for path in by_size]
        for path in c_files:
            own = [f"-I{folder}" for place, folder in headers.items() if path.is_relative_to(place)]
            jobs.append(([*compiler, *C_FLAGS, *extra, *system, *own], path, Path(self.build_temp), ""))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(lambda job: self.compile_one(*job), jobs))
        libraries = ["m", "pthread", "dl", "rt"]
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        static = [str(cuda.lib / "libcudart_static.a")] if cuda else []
        link = [
            *(shlex.split(os.environ.get("LDSHARED", "")) or [*compiler, "-shared"]),
            *shlex.split(os.environ.get("LDFLAGS", "")),
            *map(str, objects),
            *static,
            *(f"-l{name}" for name in libraries),
            "-Wl,-z,relro,-z,now",
            "-o",
            str(target),
        ]
        subprocess.run(link, check=True)
        # A Python started in this folder finds flopscope/ here before the installed one: let it find the core too.
        beside = ROOT / "flopscope" / target.name
        with suppress(OSError):
            if beside.resolve() != target.resolve():
                # Not written in place: processes may run the old one.
                made = beside.with_name(beside.name + ".new")
                shutil.copy2(target, made)
                made.replace(beside)

    def compile_one(self, command: list[str], source: Path, folder: Path, version: str) -> Path:
        """Compile one file unless its object is newer than all it includes and was made by the same command.

        folder: where the object goes. version: what the compiler says of itself, which is part of the command.
        """
        place = folder.resolve() / source.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        made, depends, said = (place.with_suffix(place.suffix + end) for end in (".o", ".d", ".cmd"))
        line = version + shlex.join(command)
        if not self.force and made.exists() and said.exists() and said.read_text() == line and depends.exists():
            names = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
            paths = [ROOT / name for name in names]
            if all(path.exists() and path.stat().st_mtime <= made.stat().st_mtime for path in paths):
                return made
        said.unlink(missing_ok=True)  # without it, what a build that ends here leaves is compiled again
        # Builds for other Pythons may use the folder at the same time: they find whole files only.
        new = [path.with_suffix(f".{os.getpid()}{path.suffix}") for path in (made, depends)]
        written = ["-MD", "-MF", str(new[1]), "-o", str(new[0])]
        done = subprocess.run([*command, "-c", str(source), *written], capture_output=True, text=True, cwd=ROOT)
        if done.stdout or done.stderr:
            print(done.stdout + done.stderr, file=sys.stderr)
        if done.returncode != 0:
            raise RuntimeError(f"{source.relative_to(ROOT)} does not compile: {shlex.join(command)}")
        for path, whole in zip(new, (made, depends), strict=True):
            path.replace(whole)
        said.write_text(line)
        return made


setup(ext_modules=[Extension("flopscope._core", sources=[])], cmdclass={"build_ext": BuildCore})

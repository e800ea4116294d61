"""Build flopscope._core: the C core, and the CUDA half where nvcc is found.

Environment:
    FLOPSCOPE_CUDA=0|1         leave the CUDA half out, or fail without nvcc; default: build it where nvcc is found
    FLOPSCOPE_CUDA_ARCHS       compute capabilities, "90" or "80;90"; default: the GPUs of this machine, or all below
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
C_FLAGS = [
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",  # a function that a row of pointwise.def misspells
]
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

    def archs(self) -> list[str]:
        chosen = re.findall(r"\d+", os.environ.get("FLOPSCOPE_CUDA_ARCHS", "").replace(".", ""))
        if chosen:
            return chosen
        smi = shutil.which("nvidia-smi")
        if smi:
            query = [smi, "--query-gpu=compute_cap", "--format=csv,noheader"]
            asked = subprocess.run(query, capture_output=True, text=True)
            here = sorted(set(re.findall(r"^(\d+)\.(\d)\s*$", asked.stdout, re.M)))
            if here:
                return [major + minor for major, minor in here]
        known = subprocess.run([self.nvcc, "--list-gpu-arch"], capture_output=True, text=True).stdout
        return [arch for arch in ARCHS if f"compute_{arch}\n" in known] or list(ARCHS)

    def code_flags(self) -> list[str]:
        archs = self.archs()
        flags = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
        newest = max(archs, key=int)
        return [*flags, f"-gencode=arch=compute_{newest},code=compute_{newest}"]


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

    def build_extension(self, ext: Extension) -> None:
        cuda = find_cuda()
        kernels = ROOT / "kernels"
        stub = kernels / "cuda_stub.c"
        c_files = sorted((ROOT / "csrc").rglob("*.c"))
        c_files += sorted(set(kernels.glob("*.c")) - {stub}) if cuda else [stub]
        cu_files = sorted(kernels.glob("*.cu")) if cuda else []
        includes = [f"-I{ROOT}", f"-I{ROOT / 'csrc'}", *(["-isystem", str(cuda.include)] if cuda else [])]
        # Only the binding sees these: a fresh environment, where they lie elsewhere, compiles only it anew.
        binding = [f"-I{sysconfig.get_path('include')}", f"-I{numpy.get_include()}"]
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        extra = shlex.split(os.environ.get("CFLAGS", ""))
        jobs = []
        if cuda:  # the slow ones first
            command = [cuda.nvcc, *NVCC_FLAGS, *cuda.code_flags(), *includes]
            print(f"flopscope: building with CUDA ({cuda.home}; {' '.join(cuda.code_flags())})", file=sys.stderr)
            by_size = sorted(cu_files, key=lambda path: -path.stat().st_size)
            jobs += [(command, path) for path in by_size]
        for path in c_files:
            jobs.append(
                ([*compiler, *C_FLAGS, *extra, *includes, *(binding if path.parent.name == "python" else [])], path)
            )
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(lambda job: self.compile_one(*job), jobs))
        libraries = ["m", "pthread", "dl", "rt"]
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        static = [str(cuda.lib / "libcudart_static.a")] if cuda else []
        link = [
            *compiler,
            "-shared",
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
                shutil.copy2(target, beside)

    def compile_one(self, command: list[str], source: Path) -> Path:
        """Compile one file unless its object is newer than all it includes and was made by the same command."""
        place = Path(self.build_temp).resolve() / source.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        made, depends, said = (place.with_suffix(place.suffix + end) for end in (".o", ".d", ".cmd"))
        line = shlex.join(command)
        if not self.force and made.exists() and said.exists() and said.read_text() == line and depends.exists():
            names = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
            if all(Path(name).exists() and Path(name).stat().st_mtime <= made.stat().st_mtime for name in names):
                return made
        done = subprocess.run(
            [*command, "-c", str(source), "-MD", "-MF", str(depends), "-o", str(made)], capture_output=True, text=True
        )
        if done.stdout or done.stderr:
            print(done.stdout + done.stderr, file=sys.stderr)
        if done.returncode != 0:
            raise RuntimeError(f"{source.relative_to(ROOT)} does not compile: {shlex.join(command)}")
        said.write_text(line)
        return made


setup(ext_modules=[Extension("flopscope._core", sources=[])], cmdclass={"build_ext": BuildCore})

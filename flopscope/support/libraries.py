"""Where compiled code is: flopscope's own core, and NVIDIA's libraries, which the core asks for when it needs one."""

from __future__ import annotations

from flopscope.support.package import FOLDER


def find(name: str) -> str:
    """The path of an NVIDIA library ("cublasLt", "cupti"): loaded already, from a wheel, conda or the system.

    Raises RuntimeError that names the library and what to install.
    """
    wheels = {"cublasLt": "nvidia-cublas", "cupti": "nvidia-cuda-cupti"}
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # type: ignore[import-untyped,unused-ignore]
    except ImportError as problem:
        raise RuntimeError(
            f"lib{name} is found through cuda-pathfinder, which is not installed: pip install cuda-pathfinder"
        ) from problem
    try:
        path: str | None = load_nvidia_dynamic_lib(name).abs_path
    except Exception as problem:  # pathfinder's own errors differ by version
        reason = str(problem).strip().splitlines() or [type(problem).__name__]
        raise RuntimeError(
            f"lib{name} was not found: pip install {wheels.get(name, 'the CUDA toolkit')} brings it ({reason[0]})"
        ) from problem
    if path is None:
        raise RuntimeError(f"lib{name} was found, but cuda-pathfinder does not say where")
    return path


def unbuilt(problem: ImportError) -> ImportError:
    """Return what to raise where the core cannot be imported: what to do if it is not built, else ``problem``."""
    from importlib.util import find_spec
    from pathlib import Path

    if find_spec("flopscope._core") is not None:
        return problem  # it is there, but does not load
    folder = Path(FOLDER)
    if not (folder.parent / "setup.py").exists():
        return ImportError(
            f"flopscope's C core is missing from {folder}, or was built for another Python: "
            "`pip install --force-reinstall flopscope-profiler` installs it for this one"
        )
    return ImportError(
        f"flopscope in {folder.parent} is a source tree whose C core is not built for this Python: run "
        f"`pip install -e {folder.parent}`, or import flopscope from another working folder to get the installed one"
    )

"""Locations of compiled code: flopscope's own core, and NVIDIA's libraries, which the core requests on demand."""

from __future__ import annotations

from flopscope.support.package import FOLDER


def find(name: str) -> str:
    """Return the path of an NVIDIA library ("cublasLt", "cupti"), already loaded or from a wheel, conda or the system.

    Raise RuntimeError, naming the library and the package to install, if it is not found.
    """
    wheels = {"cublasLt": "nvidia-cublas", "cupti": "nvidia-cuda-cupti"}
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # type: ignore[import-untyped,unused-ignore]
    except ImportError as problem:
        raise RuntimeError(
            f"lib{name} is located by cuda-pathfinder, which is not installed: pip install cuda-pathfinder"
        ) from problem
    try:
        path: str | None = load_nvidia_dynamic_lib(name).abs_path
    except Exception as problem:  # the exception classes differ between versions of pathfinder
        reason = str(problem).strip().splitlines() or [type(problem).__name__]
        raise RuntimeError(
            f"lib{name} was not found ({reason[0]}): pip install {wheels.get(name, 'the CUDA toolkit')}"
        ) from problem
    if path is None:
        raise RuntimeError(f"lib{name} was found, but cuda-pathfinder returned no path")
    return path


def unbuilt(problem: ImportError) -> ImportError:
    """Return the error for a core that cannot be imported: with instructions if it is not built, else ``problem``."""
    from importlib.util import find_spec
    from pathlib import Path

    if find_spec("flopscope._core") is not None:
        return problem  # it exists but does not load
    folder = Path(FOLDER)
    if not (folder.parent / "setup.py").exists():
        return ImportError(
            f"flopscope's C core is missing from {folder}, or was built for another Python: "
            "run `pip install --force-reinstall flopscope-profiler`"
        )
    return ImportError(
        f"flopscope in {folder.parent} is a source tree whose C core is not built for this Python: run "
        f"`pip install -e {folder.parent}`, or import flopscope from another working folder to use the installed one"
    )

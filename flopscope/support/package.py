"""The package's version and folder, the folders of source files, NVIDIA's libraries, and warnings to users."""

from __future__ import annotations

import os
import sys

VERSION = "0.7.0.dev0"
DISTRIBUTION = "flopscope-profiler"
WATCH_GRAPHS = "FLOPSCOPE_WATCH_GRAPHS"
"""The environment variable that asks for the watch over CUDA graphs from the import on, or forbids it by "0"."""
FOLDER = os.path.dirname(os.path.dirname(__file__))
MIXED = (
    "the unrelated distribution flopscope is installed beside flopscope-profiler, in one folder, which holds files of "
    f"both ({FOLDER}): run `pip uninstall flopscope flopscope-profiler`, then `pip install flopscope-profiler`"
)


def is_mixed() -> bool:
    """Return whether the unrelated distribution "flopscope" is installed in the same folder."""
    try:
        names = os.listdir(os.path.dirname(FOLDER))
    except OSError:
        return False
    return any(name.startswith("flopscope-") and name.endswith(".dist-info") for name in names)


def source_folders() -> tuple[str, list[str]]:
    """Return flopscope's folder and those of ``sys.path``, deepest first, each with a trailing separator."""
    folders = {os.path.abspath(folder) for folder in getattr(sys, "path", None) or () if isinstance(folder, str)}
    return f"{FOLDER}{os.sep}", [folder.rstrip(os.sep) + os.sep for folder in sorted(folders, reverse=True)]


def find_library(name: str) -> str:
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
        return load_nvidia_dynamic_lib(name).abs_path  # type: ignore[no-any-return,unused-ignore]
    except Exception as problem:  # the exception classes differ between versions of pathfinder
        reason = str(problem).strip().splitlines() or [type(problem).__name__]
        raise RuntimeError(
            f"lib{name} was not found ({reason[0]}): pip install {wheels.get(name, 'the CUDA toolkit')}"
        ) from problem


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


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning attributed to the innermost calling line outside of flopscope."""
    import warnings  # import flopscope imports this module, and no other

    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(FOLDER + os.sep):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)

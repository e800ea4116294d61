"""Where NVIDIA's libraries are, asked by the C core when it first needs one."""

from __future__ import annotations


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

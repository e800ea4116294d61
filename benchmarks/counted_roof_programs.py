"""The programs of counted_roof.py: work of libraries for which flopscope has no rule, one row for each.

A program returns its calls by name and a function that waits for the device. Every call is checked against a plain
reference before it is returned. Sizes are those of real programs: what the memory bounds exceeds the L2.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Call = Callable[[], object]
LIBRARY = "FLOPSCOPE_BENCHMARK_CUDA"
"""The environment's name of the library that nvcc built of counted_roof.cu."""


class Program(NamedTuple):
    calls: dict[str, Call]
    wait: Call


class Row(NamedTuple):
    """A program and the process in which it runs: those of one process share its imports."""

    process: str
    make: Callable[[], Program]


def near(found: Any, expected: Any, tolerance: float) -> None:
    """Raise RuntimeError unless two arrays agree, relative to the largest element expected."""
    error = float(abs(found - expected).max()) / (float(abs(expected).max()) or 1.0)
    if not error <= tolerance:
        raise RuntimeError(f"a result is off by {error:.2g} of the largest element, more than {tolerance:g}")


def cupy_program() -> Program:
    import cupy as cp

    n = 8192
    x, y = cp.random.rand(2, n, n, dtype=cp.float32)
    out, row = cp.empty_like(x), cp.empty(n, cp.float32)
    small, small_out = x[:1024], cp.empty((1024, n), cp.float32)
    a, b = cp.random.rand(2, 4096, 4096, dtype=cp.float32)
    half, half_out = a.astype(cp.float16), cp.empty((4096, 4096), cp.float16)
    product = cp.empty_like(a)
    gelu = cp.ElementwiseKernel(
        "float32 x", "float32 y", "y = x * 0.5f * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)))", "roof_gelu"
    )
    norm = cp.ElementwiseKernel(
        "float32 x, float32 y", "float32 z", "z = powf(x, 1.7f) * sinf(y) + expf(-x * y) * cosf(x)", "roof_functions"
    )
    near(cp.matmul(half, half, out=half_out).astype(cp.float32)[0], (a[0] @ a), 1e-2)
    return Program(
        {
            "add": lambda: cp.add(x, y, out=out),
            "add, 1024 rows": lambda: cp.add(small, small, out=small_out),
            "gelu": lambda: gelu(x, out),
            "pow, sin, exp, cos": lambda: norm(x, y, out),
            "sum of rows": lambda: x.sum(axis=1, out=row),
            "transpose": lambda: cp.copyto(out, x.T),
            "matmul float32": lambda: cp.matmul(a, b, out=product),
            "matmul float16": lambda: cp.matmul(half, half, out=half_out),
        },
        cp.cuda.Device().synchronize,
    )


def cufft_program() -> Program:
    import cupy as cp

    signal = cp.random.rand(4096, 8192, dtype=cp.float32).astype(cp.complex64)
    image = cp.random.rand(4096, 4096, dtype=cp.float32).astype(cp.complex64)
    volume = cp.random.rand(256, 256, 256, dtype=cp.float32)
    near(cp.fft.ifft(cp.fft.fft(signal)), signal, 1e-4)
    return Program(
        {
            "4096 lines of 8192": lambda: cp.fft.fft(signal, axis=1),
            "image of 4096 x 4096": lambda: cp.fft.fft2(image),
            "real volume of 256^3": lambda: cp.fft.rfftn(volume),
        },
        cp.cuda.Device().synchronize,
    )


def cusparse_program() -> Program:
    import cupy as cp
    from cupyx.scipy import sparse

    def matrix(rows: int, each: int, spread: int) -> Any:
        """Return a square matrix with that many entries a row, near the diagonal."""
        column = cp.arange(rows, dtype=cp.int32)[:, None] + cp.random.randint(0, spread, (rows, each), dtype=cp.int32)
        indices = cp.sort(column % rows, axis=1).ravel()
        indptr = cp.arange(0, rows * each + 1, each, dtype=cp.int32)
        return sparse.csr_matrix((cp.random.rand(rows * each, dtype=cp.float32), indices, indptr), (rows, rows))

    mesh, graph = matrix(1 << 21, 32, 4096), matrix(1 << 20, 16, 1 << 20)
    v, w = cp.ones(1 << 21, cp.float32), cp.ones(1 << 20, cp.float32)
    features = cp.ones((1 << 20, 64), cp.float32, order="F")
    near((graph @ w).sum(), graph.data.sum(), 1e-4)
    return Program(
        {
            "mesh @ vector": lambda: mesh @ v,
            "graph @ vector": lambda: graph @ w,
            "graph @ 64 features": lambda: graph @ features,
        },
        cp.cuda.Device().synchronize,
    )


def cub_program() -> Program:
    import cupy as cp

    keys = cp.random.randint(0, 1 << 30, 1 << 26, dtype=cp.int32)
    values = cp.random.rand(1 << 27, dtype=cp.float32)
    out = cp.empty_like(values)
    near(cp.cumsum(keys[:1000]), cp.asarray(keys[:1000].get().cumsum()), 0)
    return Program(
        {
            "sort": lambda: cp.sort(keys),
            "argsort": lambda: cp.argsort(keys[: 1 << 24]),
            "cumsum": lambda: cp.cumsum(values, out=out),
            "sum": lambda: values.sum(),
            "histogram": lambda: cp.bincount(keys & 1023, minlength=1024),
        },
        cp.cuda.Device().synchronize,
    )


def numba_program() -> Program:
    import numpy as np

    if not hasattr(np, "row_stack"):  # NumPy 2.5 has removed it, and numba-cuda 0.30 needs it
        np.row_stack = np.vstack  # type: ignore[attr-defined]
    from numba import cuda

    @cuda.jit  # type: ignore[misc, unused-ignore]
    def roof_saxpy(a, x, y, out):  # type: ignore[no-untyped-def]
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            out[i] = a * x[i] + y[i]

    @cuda.jit  # type: ignore[misc, unused-ignore]
    def roof_stencil(x, out):  # type: ignore[no-untyped-def]
        j, i = cuda.grid(2)
        if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1:
            out[i, j] = np.float32(0.2) * (x[i, j] + x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])

    @cuda.jit(fastmath=True)  # type: ignore[misc, unused-ignore]
    def roof_mandelbrot(out, limit):  # type: ignore[no-untyped-def]
        j, i = cuda.grid(2)
        if i < out.shape[0] and j < out.shape[1]:
            a = np.float32(-0.2) + np.float32(0.4) * np.float32(j) / np.float32(out.shape[1])
            b = np.float32(0.2) * np.float32(i) / np.float32(out.shape[0])
            x, y = np.float32(0), np.float32(0)
            for _ in range(limit):
                x, y = x * x - y * y + a, np.float32(2) * x * y + b
            out[i, j] = x

    n = 8192
    host = np.random.default_rng(0).random((n, n), dtype=np.float32)
    x, y, out = cuda.to_device(host), cuda.to_device(host), cuda.device_array((n, n), np.float32)
    flat = [array.reshape(n * n) for array in (x, y, out)]
    blocks = ((n + 31) // 32, (n + 7) // 8)
    a = np.float32(2)
    roof_saxpy[132 * 16, 256](a, *flat)
    near(out[:8].copy_to_host(), 3 * host[:8], 1e-5)
    roof_stencil[blocks, (32, 8)](x, out)
    near(out[1:2].copy_to_host()[0, 1:9], sum(host[1 + i, 1 + j : 9 + j] for i, j in ((0, 0), (1, 0), (-1, 0), (0, 1),
                                              (0, -1))) * 0.2, 1e-5)  # fmt: skip
    return Program(
        {
            "saxpy": lambda: roof_saxpy[132 * 16, 256](a, *flat),
            "stencil": lambda: roof_stencil[blocks, (32, 8)](x, out),
            "mandelbrot": lambda: roof_mandelbrot[blocks, (32, 8)](out, 64),
        },
        cuda.synchronize,
    )


def cuda_program() -> Program:
    path = Path(os.environ.get(LIBRARY, ""))
    if not path.is_file():
        raise RuntimeError("nvcc built no library")
    library = ctypes.CDLL(str(path))
    library.roof_error.restype = ctypes.c_char_p

    def checked(name: str, *arguments: int) -> Call:
        function = getattr(library, name)

        def call() -> None:
            code = function(*arguments)
            if code != 0:
                raise RuntimeError(f"{name}: {library.roof_error(code).decode()}")

        return call

    checked("roof_prepare")()
    names = ("copy", "polynomial", "l2", "fp64", "hash", "transpose", "chase")
    calls = {name: checked(f"roof_{name}") for name in names}
    for call in calls.values():
        call()
    library.roof_check.restype = ctypes.c_double
    if not (error := library.roof_check()) <= 1e-4:
        raise RuntimeError(f"results are off by {error:.2g}")
    return Program(calls, checked("roof_wait"))


def triton_program() -> Program:
    import counted_roof_triton as kernels

    return Program(*kernels.elementwise_and_products())


def attention_program() -> Program:
    import counted_roof_triton as kernels

    return Program(*kernels.attentions())


PROGRAMS = {
    "CuPy": Row("arrays", cupy_program),
    "cuFFT": Row("arrays", cufft_program),
    "cuSPARSE": Row("arrays", cusparse_program),
    "CUB": Row("arrays", cub_program),
    "Triton": Row("triton", triton_program),
    "attention": Row("triton", attention_program),
    "Numba": Row("own", numba_program),
    "CUDA C": Row("own", cuda_program),
}

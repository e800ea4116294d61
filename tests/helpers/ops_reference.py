"""Reference results of every op by NumPy in float64, and test inputs. Shared by the CPU and GPU tests."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import flopscope as fs

Array = np.ndarray[Any, Any]

FLOATS = ("float64", "float32", "float16", "bfloat16")
# Relative to the exact result of the rounded inputs: a few units in the last place of the dtype.
TOLERANCE = {"float64": 1e-13, "float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
# Absolute tolerance for results below the smallest normal number, which lose relative accuracy.
TINY = {"float64": 1e-307, "float32": 2e-38, "float16": 6e-8, "bfloat16": 2e-38}

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": np.reciprocal,
    "square": np.square, "exp": np.exp, "log": np.log, "log2": np.log2, "log10": np.log10, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "erf": _erf, "sigmoid": _sigmoid, "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), "silu": lambda x: x * _sigmoid(x),
}  # fmt: skip
POSITIVE = {"sqrt", "rsqrt", "log", "log2", "log10"}  # ops with positive inputs, so that NumPy does not warn

BINARY: dict[str, Callable[[Any, Any], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "maximum": np.maximum,
    "minimum": np.minimum,
}  # fmt: skip


def norm(x: Array, axis: int | None = None, keepdims: bool = False) -> Array:
    return np.sqrt(np.sum(x * x, axis, keepdims=keepdims))


def var(x: Array, axis: int | None = None, keepdims: bool = False, correction: float = 1) -> Array:
    count = x.size if axis is None else x.shape[axis]
    squares = np.sum((x - x.mean(axis, keepdims=True)) ** 2, axis, keepdims=keepdims)
    with np.errstate(invalid="ignore", divide="ignore"):
        return squares / np.float64(max(0, count - correction))


REDUCTIONS: dict[str, Callable[..., Array]] = {
    **{"sum": np.sum, "mean": np.mean, "amax": np.max, "amin": np.min},
    **{"norm": norm, "var": var},
}


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def log_softmax(x: Array) -> Array:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def layer_norm(x: Array, weight: Any = 1.0, bias: Any = 0.0, eps: float = 1e-5) -> Array:
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * weight + bias


def rms_norm(x: Array, weight: Any = 1.0, eps: float = 1e-5) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


class Lab:
    """Tensors on one device, and the comparison of results with float64."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.random = np.random.default_rng(20260)

    def tensor(self, values: Any, dtype: str) -> tuple[fs.Tensor, Array]:
        """Return the tensor in that dtype, and its exact elements in float64."""
        tensor = fs.from_numpy(np.array(values, dtype=np.float64, order="C"), device=self.device).to(dtype)
        return tensor, exact(tensor)

    def uniform(self, shape: Any, dtype: str, low: float = -3.0, high: float = 3.0) -> tuple[fs.Tensor, Array]:
        return self.tensor(self.random.uniform(low, high, shape), dtype)

    def check(self, got: fs.Tensor, want: Any, dtype: str, scale: float = 1.0) -> None:
        """Check shape, dtype and device, and that every element is within the dtype's tolerance."""
        want = np.asarray(want, dtype=np.float64)
        assert got.shape == want.shape
        assert got.dtype == dtype
        assert got.device.startswith(self.device)
        np.testing.assert_allclose(exact(got), want, rtol=scale * TOLERANCE[dtype], atol=scale * TINY[dtype])


def exact(tensor: fs.Tensor) -> Array:
    """Return the elements in float64, which represents those of every dtype exactly."""
    return tensor.to("cpu").to("float64").numpy().copy()


def with_threads(compute: Callable[[], Any], *counts: int) -> list[Any]:
    """Return what is computed with each of these numbers of threads."""
    before, results = fs.num_threads(), []
    try:
        for count in counts:
            fs.set_num_threads(count)
            results.append(compute())
    finally:
        fs.set_num_threads(before)
    return results

"""Tensors of every dtype as NumPy has them."""

from __future__ import annotations

from typing import Any

import numpy as np

OF_NUMPY = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool")
DTYPES = (*OF_NUMPY, "bfloat16", "float8_e4m3fn", "float8_e5m2")
SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=np.int64))
    return (np.arange(count) % 100).reshape(shape).astype(dtype)

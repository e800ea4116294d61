"""Tensors of every dtype as NumPy has them."""

from typing import Any

import numpy as np

OF_NUMPY = ("float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool")
DTYPES = (*OF_NUMPY, "bfloat16", "float8_e4m3fn", "float8_e5m2")
SIZES = {name: np.dtype(name).itemsize for name in OF_NUMPY}
SIZES |= {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=np.int64))
    return (np.arange(count) % 100).reshape(shape).astype(dtype)

"""Medians and distinct values, without the modules of Python and NumPy that take long to import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def median(numbers: Iterable[float]) -> float:
    """Return the middle number, or the mean of the two in the middle, of at least one."""
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def distinct(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the values of an array in ascending order, each once; of numbers that are not NaN."""
    import numpy as np  # whose unique() imports masked arrays at its first call

    ordered: npt.NDArray[Any] = np.sort(values, axis=None)
    found: npt.NDArray[Any] = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found

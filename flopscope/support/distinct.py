"""The distinct values of an array, as np.unique() has them, whose first call imports NumPy's masked arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def distinct(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the values in ascending order, each once; of numbers that are not NaN."""
    ordered: npt.NDArray[Any] = np.sort(values, axis=None)
    found: npt.NDArray[Any] = ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]
    return found

"""Medians and means of numbers some of which are unknown (NaN), and spreads about the medians."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
MAD_TO_SIGMA = 1.4826  # of a normal distribution


def median(values: Floats | Sequence[float]) -> float:
    """Return the median of the known values; NaN without any."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if len(known) else float("nan")


def mean(values: Floats) -> float:
    """Return the mean of the known values; NaN without any."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def sigma(values: Floats) -> float:
    """Return the spread of the known values as a standard deviation, from their median absolute deviation."""
    return MAD_TO_SIGMA * median(np.abs(values - median(values)))


def row_medians(matrix: Floats) -> Floats:
    """Return the median of each row, without its NaN; NaN for a row without numbers."""
    ordered = np.sort(matrix, axis=1)
    count = (~np.isnan(matrix)).sum(axis=1)
    at = np.arange(len(matrix))
    low, high = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, matrix.shape[1] - 1)
    medians: Floats = 0.5 * (ordered[at, low] + ordered[at, high])
    return medians


def median_of_others(values: Floats, group: npt.NDArray[np.intp]) -> Floats:
    """Return for each row and column the median over the other rows of its group; NaN without any.

    values: rows by columns; group: a number for each row.
    """
    columns = values.shape[1]
    cell = (group[:, None] * columns + np.arange(columns)).ravel()
    own = values.ravel()
    known = ~np.isnan(own)
    order = np.lexsort((own, cell))  # NaN last
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ordered = own[order]
    first = np.searchsorted(cell[order], cell)
    rest = np.bincount(cell[known], minlength=1 + cell.max(initial=0))[cell] - known
    middles = []
    for middle in (np.maximum(rest - 1, 0) // 2, rest // 2):
        at = first + middle
        middles.append(ordered[np.minimum(at + (known & (at >= place)), len(own) - 1)])  # without the own value
    return np.where(rest > 0, 0.5 * (middles[0] + middles[1]), np.nan).reshape(values.shape)

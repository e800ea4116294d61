"""Whether outputs are those of a reference: the error that is allowed, derived from the reference and its inputs.

No fixed tolerance fits all kernels: a sum of a thousand terms of either sign may lose most of its digits, and an exp()
of a large number as many as the number has. But whatever is unavoidable shows where inputs change by less than their
dtype resolves: a kernel that is as good as its dtype allows is as far from the exact result as the exact result moves
when each input is rounded once, but for a factor that grows with the root of the number of terms. So the error that is
allowed is that movement, in float64, times a factor; a few ULPs of the output are allowed as well, for results that are
rounded themselves. A shorter dtype exceeds this by orders of magnitude: bfloat16 rounds 65,536 times as far as float32.

Where the reference in its own dtype is further off, as a chain of ops in bfloat16 is, a multiple of its error counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flopscope.measuring.checking.bench import Output
from flopscope.measuring.checking.inputs import ULPS

LEAST_BITS = 2.0**-2
"""That of dtypes of 8 bits."""
FORMATS = {"bfloat16": 2.0**-9, "tf32 or float16": 2.0**-12}
"""The rounding error of formats that have fewer bits than float32, by name."""
ONE_SIDED = 0.3
"""Mean sign of errors from which they are not those of rounding."""
OUTPUT_ULPS = 4.0
ROUNDINGS = 64.0
"""Times what rounding the inputs once changes: another order of a sum of n terms differs by about the root of n."""
OF_REFERENCE = 4.0
"""Times the error of the reference itself in the dtype."""
TWICE = 0.01
"""Relative difference of two calls from which a reference is not deterministic."""
MOST = 1 / 16
"""Of an output and of the typical one, the most that the error of the reference allows."""
SHARED = 0.25
"""Of what a rounding changes in a row of outputs, the least that it is taken to change each of them."""


class Expected(NamedTuple):
    """What is expected of one output."""

    output: Output
    """The reference's, in its own dtype."""
    values: Any
    """In float64 if the reference runs in it; else, and for integers, those of the reference."""
    allowed: Any = None
    """Largest error of each element; None: they must be equal."""
    unit: Any = None
    """What rounding each input once in the dtype changes."""


def expect(output: Output, exact: Any | None, changed: Sequence[Any]) -> Expected:
    """Return what is expected of an output of the reference.

    exact: its values in float64, or None. changed: these for inputs that differ by a rounding.
    """
    given = output.values
    if given.dtype.kind != "f":
        return Expected(output, given)
    values = given if exact is None or exact.shape != given.shape else exact
    ulp = ULPS.get(output.dtype, LEAST_BITS)
    with np.errstate(all="ignore"):
        squares = [np.square(one - values) for one in changed if one.shape == values.shape]
        unit = np.sqrt(sum(squares) / len(squares)) if squares else np.zeros_like(values)
        unit = np.where(np.isfinite(unit), unit, 0.0)
        if unit.ndim and unit.size:
            unit = np.maximum(unit, SHARED * np.sqrt(np.mean(np.square(unit), axis=-1, keepdims=True)))
        allowed = OUTPUT_ULPS * ulp * np.abs(np.where(np.isfinite(values), values, 0.0)) + ROUNDINGS * unit
        allowed += np.finfo(np.float64 if output.dtype == "float64" else np.float32).tiny
        own = np.where(np.isfinite(given) & np.isfinite(values), np.abs(given - values) / allowed, 0.0)
        finite = values[np.isfinite(values)]
        typical = math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
        of_own = allowed * OF_REFERENCE * float(own.max(initial=0.0))
        of_own = np.minimum(of_own, MOST * np.nan_to_num(np.abs(values) + typical))
    return Expected(output, values, np.maximum(allowed, of_own), unit)


def difference(found: Output, expected: Expected) -> str:
    """Say where an output differs most from what is expected, or return ""."""
    where, values, of = f"output{expected.output.path}", found.values, expected.output
    if values.shape != of.values.shape:
        return f"{where} has the shape {values.shape}, not {of.values.shape}"
    for what, is_, wanted in (("of", found.dtype, of.dtype), ("on", found.place, of.place)):
        if is_ != wanted:
            return f"{where} is {what} {is_}, not {wanted}"
    if expected.allowed is None:
        error = np.where(np.not_equal(values, expected.values), math.inf, 0.0)
    else:
        error = _errors(values, expected)
    wrong = error > 1
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(error)), error.shape)
    times, place = float(error[at]), f"[{', '.join(map(str, at))}]" if at else ""
    beyond = f", {times:.3g} times the error that is allowed" if math.isfinite(times) else ""
    many = f"{np.count_nonzero(wrong):,} of {wrong.size:,} elements"
    text = f"{where}{place} is {values[at]:.7g} instead of {expected.values[at]:.7g}{beyond} ({many})"
    return text + _precision(values, expected)


def same_twice(one: Output, other: Output) -> bool:
    """Return whether outputs of two calls with the same inputs are the same, but for another order of sums."""
    if one.values.dtype.kind != "f":
        return np.array_equal(one.values, other.values)
    finite = one.values[np.isfinite(one.values)]
    near = TWICE * math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
    return one.values.shape == other.values.shape and np.allclose(one.values, other.values, TWICE, near, equal_nan=True)


def _errors(found: Any, expected: Expected) -> Any:
    """Return the error of each element in units of what is allowed; infinite where one alone is NaN or infinite."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(expected.values)
        error = np.where(finite, np.abs(found - expected.values) / expected.allowed, 0.0)
        same = np.isfinite(found) & finite
        for of in (expected.values, expected.output.values):  # float64 does not overflow where the dtype does
            same |= (np.isnan(found) & np.isnan(of)) | (found == of)
    return np.where(same, np.where(np.isfinite(error), error, 0.0), math.inf)


def _precision(found: Any, expected: Expected) -> str:
    """Name the format whose rounding explains the errors, if they are everywhere and as large as its own."""
    if expected.output.dtype != "float32" or expected.unit is None:
        return ""
    with np.errstate(all="ignore"):
        scale = np.maximum(expected.unit / (ULPS["float32"] / 2), np.abs(expected.values))
        relative = (found - expected.values) / scale
        relative = relative[np.isfinite(relative) & (scale > 0)]
        typical = float(np.median(np.abs(relative))) if relative.size else 0.0
        if not relative.size or abs(np.mean(np.sign(relative))) > ONE_SIDED:
            return ""
    for name, error in FORMATS.items():
        if error / 8 <= typical <= 4 * error:
            return f"; such errors are those of {name}, not of float32"
    return ""

"""Whether outputs are those of a reference: the error that is allowed, derived from the reference and its inputs.

No fixed tolerance fits all kernels: a sum of a thousand terms of either sign may lose most of its digits, and an exp()
of a large number as many as the number has. But whatever is unavoidable shows where inputs change by less than their
dtype resolves: a kernel that is as good as its dtype allows is as far from the exact result as the exact result moves
when each input is rounded once, but for a factor that grows with the root of the number of terms. So the error that is
allowed is that movement, in float64, times a factor; a few ULPs of the output are allowed as well, for results that are
rounded themselves. A shorter dtype exceeds this by orders of magnitude: bfloat16 rounds 65,536 times as far as float32.

Where the reference in its own dtype is further off, as a chain of ops in bfloat16 is, a multiple of its error counts.
That of float64 is derived from its error in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flopscope import _core
from flopscope.measuring.arrays import is_same
from flopscope.measuring.checking.bench import Output
from flopscope.measuring.checking.inputs import RELATIVE, ULPS

LEAST_BITS = 2.0**-2
"""That of dtypes of 8 bits."""
FORMATS = {"bfloat16": 2.0**-9, "tf32 or float16": 2.0**-12}
"""The rounding error of formats that have fewer bits than float32, by name."""
ONE_SIDED = 0.3
"""Mean sign of errors from which they are not those of rounding."""
ROW = 16
"""The least elements of a row: of the last dimension or, where that is shorter, of the last ones."""
TWICE = 0.01
"""Relative difference of two calls from which a reference is not deterministic."""


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
    open: Any = None
    """Integers that a small change of the inputs changes, as the place of the largest of two that are equal."""


def expect(
    output: Output, exact: Any | None, changed: Sequence[Any], short: Any = None, nudged: Sequence[Any] = ()
) -> Expected:
    """Return what is expected of an output of the reference.

    exact: its values in float64, or None. changed: these for inputs that differ by a rounding. short: in float32, for
    an output of float64. nudged: for inputs of nudged().
    """
    given = output.values
    if given.dtype.kind != "f":
        several = nudged[:RELATIVE] if given.dtype.kind == "b" else nudged
        near = [one != given for one in several if one.shape == given.shape]
        return Expected(output, given, open=np.logical_or.reduce(near) if near else None)
    values = given if exact is None or exact.shape != given.shape else exact
    if short is not None and short.shape == given.shape:
        with np.errstate(all="ignore"):
            given = values + (short - values) * (ULPS["float64"] / ULPS["float32"])
    allowed, unit = np.empty_like(values), np.empty_like(values)
    several = (allowed, unit, values, given, *(one for one in changed if one.shape == values.shape))
    products = np.cumprod(values.shape[::-1], dtype=int)
    columns = int(next(iter(products[products >= ROW]), values.size))
    _core.tolerance(tuple(one.reshape(-1) for one in several), columns, ULPS.get(output.dtype, LEAST_BITS))
    return Expected(output, values, allowed, unit)


def difference(found: Output, expected: Expected) -> str:
    """Say where an output differs most from what is expected, or return ""."""
    where, values, of = f"output{expected.output.path}", found.values, expected.output
    if values.shape != of.values.shape:
        return f"{where} has the shape {values.shape}, not {of.values.shape}"
    for what, is_, wanted in (("of", found.dtype, of.dtype), ("on", found.place, of.place)):
        if is_ != wanted:
            return f"{where} is {what} {is_}, not {wanted}"
    wrong, place, times = deviation(values, expected)
    if not wrong:
        return ""
    at = np.unravel_index(place, values.shape)
    element = f"[{', '.join(map(str, at))}]" if at else ""
    beyond = f", {times:.3g} times the error that is allowed" if math.isfinite(times) else ""
    both = values[at], expected.values[at]
    digits = 7 if f"{both[0]:.7g}" != f"{both[1]:.7g}" else 17
    text = f"{where}{element} is {both[0]:.{digits}g} instead of {both[1]:.{digits}g}{beyond} "
    return f"{text}({wrong:,} of {values.size:,} elements){_precision(values, expected)}"


def deviation(values: Any, expected: Expected) -> tuple[int, int, float]:
    """Return how many values of the shape that is expected are wrong, and the place and the error, over what is
    allowed, of the one that is most."""
    several = [expected.values, expected.output.values, expected.allowed, values]
    if expected.allowed is not None:
        return _core.deviation(*(one.reshape(-1) for one in several))
    differ = np.not_equal(values, expected.values)
    differ = (differ if expected.open is None else differ & ~expected.open).reshape(-1)
    return int(np.count_nonzero(differ)), int(np.argmax(differ)) if differ.size else 0, math.inf


def undetermined(found: Output, expected: Expected) -> int:
    """Return how many integers differ, but only where a small change of the inputs changes them as well."""
    if expected.open is None or found.values.shape != expected.open.shape:
        return 0
    return int(np.count_nonzero((found.values != expected.values) & expected.open))


def same_twice(one: Output, other: Output) -> bool:
    """Return whether outputs of two calls with the same inputs are the same, but for another order of sums."""
    if is_same(one.values, other.values):
        return True
    if one.values.dtype.kind != "f":
        return False
    finite = one.values[np.isfinite(one.values)]
    near = TWICE * math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0
    return one.values.shape == other.values.shape and np.allclose(one.values, other.values, TWICE, near, equal_nan=True)


def apart_by(one: Output, other: Output, expected: Expected) -> float:
    """Return by how much right outputs of two calls differ at most, over the error that is allowed."""
    if expected.allowed is None:
        return float(not is_same(one.values, other.values))
    with np.errstate(all="ignore"):
        apart = np.abs(one.values - other.values) / expected.allowed
    return float(np.fmax.reduce(apart.reshape(-1), initial=0.0))


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

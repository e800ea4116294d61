"""The last bits of the CPU's pointwise ops and conversions, against NumPy in long double and the formats' definitions.

Run as a program, so that FLOPSCOPE_ISA chooses the instruction set; prints the one that was used.
"""

import math
from typing import Any

import numpy as np

import flopscope as fs
from helpers.ops_reference import BINARY, UNARY

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
WIDE = {"float64": np.uint64, "float32": np.uint32}
SPECIAL = np.array(
    [
        *(0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1.5, -1.5, 1e-320, 1e-310, -1e-310, 1e-45, -1e-45, 1e-40, 1e-38),
        *(1.18e-38, 88.7, 88.73, -87.3, -88, -103, -103.9, -104, -110, 709.7, 709.8, -708.3, -745, -745.1, -745.2),
        *(1000, 8, 1e4, 1e5, 1e6, 1e7, 1e10, 1e22, 1e30, 3e38, 1e300, 1.7e308, 5, 9, 16777215, 16777216, 16777217),
        *(8388607, 8388609, 9007199254740991.0, 9007199254740993.0, 1.0000001, 0.9999999, 1.000000000000001),
        *(
            0.999999999999999, math.pi, math.pi / 2, 355, 710, 11, 1e-5, 1e-20, -1e-20, -750, math.inf, -math.inf,
            math.nan,
        ),
    ]
)  # fmt: skip


def values(dtype: str, count: int) -> Array:
    """Return the special values, and random ones of several ranges."""
    bits = RNG.integers(0, np.iinfo(WIDE[dtype]).max, count, WIDE[dtype], endpoint=True).view(dtype)
    ranges = [RNG.uniform(-most, most, count) for most in (2, 20, 760)]
    return np.concatenate([SPECIAL, *ranges, bits]).astype(dtype)


def check(name: str, got: Array, wanted: Array, ulps: float, room: Any = 0.0) -> None:
    """Check results: NaN for NaN, infinity or zero if rounding gives them, otherwise near what is wanted."""
    rounded = wanted.astype(got.dtype)
    unit = np.spacing(np.abs(np.where(np.isfinite(rounded), rounded, 1))).astype(np.longdouble)
    signed = np.signbit(got) == np.signbit(rounded)
    any_zero = (np.asarray(room) > 0) | (name in ("maximum", "minimum"))
    right = np.select(
        [np.isnan(rounded), got == rounded, np.isinf(rounded)],
        [np.isnan(got), (rounded != 0) | signed | any_zero, signed & (np.abs(got) >= np.finfo(got.dtype).max)],
        np.abs(got.astype(np.longdouble) - wanted) <= ulps * unit + room,
    )
    assert right.all(), f"{got.dtype} {name}: {got[~right][:3]}, not {wanted[~right][:3]}"


def check_unary(dtype: str) -> None:
    epsilon, least = np.finfo(dtype).eps, np.finfo(dtype).tiny
    whole = values(dtype, 15_000)
    # Some blocks have values far outside the range of the fast sine; in the second round none have.
    for x in (whole, np.where(np.abs(whole) > 9000, RNG.uniform(-9000, 9000, len(whole)).astype(dtype), whole)):
        wide = x.astype(np.longdouble)
        size = np.where(np.isfinite(x), np.abs(wide), 0)
        for name, function in UNARY.items():
            room = np.zeros(len(x), np.longdouble)
            if name in ("sigmoid", "silu", "gelu"):  # exp overflows inside, slightly before the value underflows
                room = room + least * np.where(size < 800, 800, 1)
            if name == "gelu":  # it subtracts numbers near 1
                room = room + 3 * epsilon * size
            check(name, getattr(fs, name)(fs.from_numpy(x)).numpy(), function(wide).astype(np.longdouble), 3, room)


def check_binary(dtype: str) -> None:
    special = SPECIAL.astype(dtype)
    first, second = (side.ravel() for side in np.meshgrid(special, special))
    more = values(dtype, 5_000)
    whole = np.rint(RNG.uniform(-40, 40, len(more)))
    other = np.where(np.arange(len(more)) % 3 == 0, whole, RNG.uniform(-9, 9, len(more))).astype(dtype)
    a, b = np.concatenate([first, np.abs(more[::2]), more[1::2]]), np.concatenate([second, other[::2], other[1::2]])
    for name, function in BINARY.items():
        ulps, op = 2.0 if name == "pow" else 0.51, getattr(fs, name)
        check(name, op(fs.from_numpy(a), fs.from_numpy(b)).numpy(), wanted_of(function, a, b), ulps)
        for scalar in special.tolist():
            one = np.full(4096, scalar, dtype)
            check(name, op(fs.from_numpy(a[:4096]), scalar).numpy(), wanted_of(function, a[:4096], one), ulps)
            check(name, op(scalar, fs.from_numpy(a[:4096])).numpy(), wanted_of(function, one, a[:4096]), ulps)


def wanted_of(function: Any, a: Array, b: Array) -> Array:
    found: Array = function(a.astype(np.longdouble), b.astype(np.longdouble))
    return found


def check_exact(dtype: str) -> None:
    information = np.finfo(dtype)
    exponents = np.arange(information.minexp - information.nmant, information.maxexp)
    powers = np.ldexp(np.ones(len(exponents), dtype), exponents)
    assert (fs.log2(fs.from_numpy(powers)).numpy() == exponents).all()
    tens = np.arange(23 if dtype == "float64" else 11)
    assert (fs.log10(fs.from_numpy(np.array([10.0**k for k in tens.tolist()], dtype))).numpy() == tens).all()


def nearest(x: Array, digits: int, least: int, largest: float) -> Array:
    """Return the nearest numbers of a format, ties to even: significant bits, exponent of the smallest, largest."""
    unit = np.maximum(np.frexp(x)[1] - digits, least)
    rounded = np.ldexp(np.rint(np.ldexp(x, -unit)), unit)
    return np.where(np.isfinite(x), np.where(np.abs(rounded) > largest, np.copysign(np.inf, x), rounded), x)


def same(a: Array, b: Array) -> bool:
    return bool((((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))).all())


def check_halves(dtype: str, digits: int, least: int, largest: float) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = bits.view(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        wide = (bits.astype(np.uint32) << 16).view(np.float32)
    halves = fs.from_numpy(wide).to(dtype)
    assert same(halves.to("float32").numpy(), wide)
    # Near every value and halfway between neighbours, from float and, where float would round twice, from double.
    below, above = wide.astype(np.float64), np.roll(wide, -1).astype(np.float64)
    middle = (below + above) / 2
    beside = below + (above - below) * RNG.random(len(below))
    for number in (middle, np.nextafter(middle, below), np.nextafter(middle, above), beside):
        assert same(fs.from_numpy(number).to(dtype).to("float64").numpy(), nearest(number, digits, least, largest))
        single = number.astype(np.float32)
        expected = nearest(single.astype(np.float64), digits, least, largest)
        assert same(fs.from_numpy(single).to(dtype).to("float64").numpy(), expected)
    # An op computes in float and rounds once.
    for got, computed in ((fs.sqrt(halves), np.sqrt(wide)), (fs.add(halves, 0.1), wide + np.float32(0.1))):
        expected = nearest(computed.astype(np.float64), digits, least, largest)
        assert same(got.to("float64").numpy(), expected)


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        for wide in WIDE:
            check_unary(wide)
            check_binary(wide)
            check_exact(wide)
        check_halves("float16", 11, -24, 65504)
        check_halves("bfloat16", 8, -133, float.fromhex("0x1.fep127"))
    print(fs._core.cpu_properties()["isa"])

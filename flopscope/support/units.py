"""Formatting of numbers for people. Views scale numbers only through these functions."""

from __future__ import annotations

import math

MISSING = "--"
TIME_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}  # in microseconds
SI_PREFIXES = {"E": 1e18, "P": 1e15, "T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
_LONG_TIME_UNITS = {"s": 1e6, "ms": 1e3, "µs": 1.0, "ns": 1e-3}  # in microseconds


def time_text(microseconds: float, unit: str | None = None) -> str:
    """Format a time in µs as torch.profiler does: ``1.234ms``. ``unit`` is "s", "ms", "us" or None: chosen to fit."""
    if unit is None:
        unit = next((name for name, size in TIME_UNITS.items() if microseconds >= size), "us")
    return f"{microseconds / TIME_UNITS[unit]:.3f}{unit}"


def short_time_text(microseconds: float) -> str:
    """A time given in µs with three significant digits: ``0.25us``, ``12.3us``, ``4.56ms``."""
    if math.isnan(microseconds):
        return MISSING
    unit = next((name for name, size in TIME_UNITS.items() if abs(microseconds) >= 0.9995 * size), "us")
    return f"{_three_digits(microseconds / TIME_UNITS[unit])}{unit}" if microseconds else "0"


def long_time_text(microseconds: float) -> str:
    """A time given in µs with four significant digits, for sentences: ``850 ns``, ``12.34 µs``, ``1.235 ms``."""
    if math.isnan(microseconds):
        return MISSING
    unit = next((name for name, size in _LONG_TIME_UNITS.items() if microseconds >= size), "ns")
    return f"{microseconds / _LONG_TIME_UNITS[unit]:.4g} {unit}"


def share_text(part: float, whole: float) -> str:
    """Format ``part`` as a percentage of ``whole`` as torch.profiler does: ``12.34%``; ``NaN`` if ``whole`` is 0."""
    return f"{part * 100.0 / whole:.2f}%" if whole else "NaN"


def memory_text(nbytes: int) -> str:
    """Format an amount of memory as torch.profiler does, with 1 KB = 1024 B: ``382.00 MB``."""
    return _binary_text(nbytes, ("GB", "MB", "KB"), 2)


def bytes_text(nbytes: float) -> str:
    """Format a number of bytes moved, with 1 KiB = 1024 B: ``768.0 MiB``."""
    return MISSING if math.isnan(nbytes) else _binary_text(nbytes, ("TiB", "GiB", "MiB", "KiB"), 1)


def _binary_text(nbytes: float, units: tuple[str, ...], digits: int) -> str:
    """Format bytes in the first of the units that they reach, of which each is 1024 of the next."""
    for exponent, unit in zip(range(len(units), 0, -1), units, strict=True):
        if abs(nbytes) >= 1024**exponent:
            return f"{nbytes / 1024**exponent:.{digits}f} {unit}"
    return f"{nbytes:.0f} B"


def count_text(count: float) -> str:
    """Format a count with an SI prefix: ``137.4 G``."""
    if math.isnan(count):
        return MISSING
    prefix, size = _prefix_of(count, "EPTGMk")
    return f"{count / size:.1f} {prefix}" if prefix and count >= size else f"{count:.0f}"


def plural(count: float, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun: ``1 copy``, ``2.5 copies``."""
    number = f"{count:,.0f}" if count >= 100 else f"{count:.3g}"
    return f"{number} {singular if count == 1 else plural or singular + 's'}"


def si_text(value: float, unit: str, digits: int = 4, prefixes: str = "TGMk ") -> str:
    """A quantity with an SI prefix and significant digits: ``4.652 TB/s``, ``2,500 TFLOP/s``.

    prefixes: those allowed, largest first, a blank for none. A value below the last one is given in it. Thousands are
    separated by commas, which only values above the first prefix need.
    """
    prefix, size = _prefix_of(value, prefixes)
    return f"{value / size:,.{digits}g} {prefix}{unit}"


def _prefix_of(value: float, prefixes: str) -> tuple[str, float]:
    """The first prefix that the value reaches, or the last one, with its size."""
    prefix = next((one.strip() for one in prefixes if value >= SI_PREFIXES[one.strip()]), prefixes[-1].strip())
    return prefix, SI_PREFIXES[prefix]


def number_text(value: float) -> str:
    """Format a number to about four significant digits: ``0.123``, ``45.67``, ``4012``; ``2.1e-05`` below 0.001."""
    if math.isnan(value):
        return MISSING
    if 0 < abs(value) < 0.001:
        return f"{value:.1e}"
    digits = next((d for d, limit in ((3, 10), (2, 100), (1, 1000)) if abs(value) < limit), 0)
    return f"{value:.{digits}f}"


def significant_text(value: float | None, digits: int = 4) -> str:
    """Four significant digits, whole above 1000: ``0.01234``, ``12.34``, ``1234567``; an exponent below 0.0001."""
    if value is None or math.isnan(value):
        return MISSING
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.{digits}g}" if abs(value) >= 1e-4 else f"{value:.{digits - 1}e}"


def prefixed_text(value: float) -> str:
    """Three significant digits with an SI prefix, for columns whose header names the unit: ``156 T``, ``42.1 G``."""
    if math.isnan(value):
        return MISSING
    prefix, size = _prefix_of(abs(value) * 1.0005, "EPTGMk ")  # 999.6 is shown as 1 of the next prefix
    return f"{_three_digits(value / size)} {prefix}".rstrip() if value else "0"


def _three_digits(value: float) -> str:
    """Format a number below 1000 to three significant digits, at most two of them after the point."""
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}" if abs(value) < 99.95 else f"{value:.0f}"


def exact_text(value: float) -> str:
    """All digits of a count or a limit: ``137438953472``."""
    return f"{value:.15g}"


def tenths_text(value: float) -> str:
    """One digit after the point: ``33.6``."""
    return MISSING if math.isnan(value) else f"{value:.1f}"


def whole_text(value: float, unit: str) -> str:
    """No digit after the point, thousands separated: ``3,352 GB/s``."""
    return f"{value:,.0f} {unit}"


def rate_text(value: float, unit: str) -> str:
    """A rate for sentences, in its own unit: ``3,352 GB/s``, ``45.7 GB/s``."""
    if math.isnan(value):
        return MISSING
    return whole_text(value, unit) if value >= 1000 else f"{value:.3g} {unit}"


def flop_rate_text(tera: float) -> str:
    """A rate given in TFLOP/s, for sentences: ``45.7 TFLOP/s``, below 0.1 of them ``45.7 GFLOP/s``."""
    return rate_text(1000 * tera, "GFLOP/s") if tera < 0.1 else rate_text(tera, "TFLOP/s")


def percent_text(percent: float) -> str:
    """A share given in percent: ``12.3%``."""
    return MISSING if math.isnan(percent) else f"{percent:.1f}%"


def ratio_text(ratio: float) -> str:
    """How many times: ``1.25x``."""
    return MISSING if math.isnan(ratio) else f"{ratio:.2f}x" if ratio < 1000 else f"{ratio:.0f}x"


def roofline_text(percent: float) -> str:
    """Format a share of the roofline in percent; above 100, add the asterisk that a footnote explains."""
    return marked(percent_text(percent), percent)


def marked(text: str, percent: float) -> str:
    """Return the text of a rate or share with an asterisk if it is over its peak, of which it is so many percent."""
    return f"{text}*" if percent > 100 else text


def bound_text(bound: str) -> str:
    """Return what limits a row, or ``--`` if it is unknown."""
    return MISSING if bound == "unknown" else bound

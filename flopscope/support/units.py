"""Formatting of numbers for people. Views scale numbers only through these functions."""

from __future__ import annotations

import math

MISSING = "--"
TIME_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}  # in microseconds


def time_text(microseconds: float, unit: str | None = None) -> str:
    """Format a time in µs as torch.profiler does: ``1.234ms``. ``unit`` is "s", "ms", "us" or None: chosen to fit."""
    if unit is None:
        unit = next((name for name, size in TIME_UNITS.items() if microseconds >= size), "us")
    return f"{microseconds / TIME_UNITS[unit]:.3f}{unit}"


def share_text(part: float, whole: float) -> str:
    """Format ``part`` as a percentage of ``whole`` as torch.profiler does: ``12.34%``; ``NaN`` if ``whole`` is 0."""
    return f"{part * 100.0 / whole:.2f}%" if whole else "NaN"


def memory_text(nbytes: int) -> str:
    """Format an amount of memory as torch.profiler does, with 1 KB = 1024 B: ``382.00 MB``."""
    for exponent, name in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**exponent:
            return f"{nbytes / 1024**exponent:.2f} {name}"
    return f"{nbytes} B"


def bytes_text(nbytes: float) -> str:
    """Format a number of bytes moved, with 1 KiB = 1024 B: ``768.0 MiB``."""
    if math.isnan(nbytes):
        return MISSING
    for exponent, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if nbytes >= 1024**exponent:
            return f"{nbytes / 1024**exponent:.1f} {name}"
    return f"{nbytes:.0f} B"


def count_text(count: float) -> str:
    """Format a count with an SI prefix: ``137.4 G``."""
    if math.isnan(count):
        return MISSING
    for exponent, prefix in ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if count >= 10**exponent:
            return f"{count / 10**exponent:.1f} {prefix}"
    return f"{count:.0f}"


def number_text(value: float) -> str:
    """Format a number to about four significant digits, at most three decimals: ``0.123``, ``45.67``, ``4012``."""
    if math.isnan(value):
        return MISSING
    digits = next((d for d, limit in ((3, 10), (2, 100), (1, 1000)) if abs(value) < limit), 0)
    return f"{value:.{digits}f}"


def roofline_text(percent: float) -> str:
    """Format a share of the roofline in percent; above 100, add the asterisk that a footnote explains."""
    if math.isnan(percent):
        return MISSING
    return f"{percent:.1f}%{'*' if percent > 100 else ''}"


def bound_text(bound: str) -> str:
    """Return what limits a row, or ``--`` if it is unknown."""
    return MISSING if bound == "unknown" else bound

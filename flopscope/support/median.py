"""The median of numbers, as statistics.median() has it, whose module takes longer to import than a table to make."""

from __future__ import annotations

from collections.abc import Iterable


def median(numbers: Iterable[float]) -> float:
    """Return the middle number, or the mean of the two in the middle. Raise ValueError without any."""
    ordered = sorted(numbers)
    if not ordered:
        raise ValueError("no median of no numbers")
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

"""Suggestions for misspelt names: "did you mean 'count'?"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]

ALIKE = 0.6  # of difflib's ratio
MOST = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'A' or 'B'?" with the known names that are most alike, in any case; "" if none is."""
    originals = {one.lower(): one for one in known}
    found = difflib.get_close_matches(str(name).lower(), originals, MOST, ALIKE)
    return f"; did you mean {' or '.join(repr(originals[one]) for one in found)}?" if found else ""

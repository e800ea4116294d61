"""Suggestions for misspelt names: "did you mean 'count'?"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]

ALIKE = 0.6  # of difflib's ratio
NEARLY_BEST = 0.02  # below that of the best suggestion
MOST = 3


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'A' or 'B'?" with the known names that are most alike, in any case; "" if none is."""
    wanted, originals = str(name).lower(), {one.lower(): one for one in known}
    found = difflib.get_close_matches(wanted, originals, MOST, ALIKE)
    alike = [difflib.SequenceMatcher(None, one, wanted).ratio() for one in found]
    near = [one for one, ratio in zip(found, alike, strict=True) if ratio >= alike[0] - NEARLY_BEST]
    return f"; did you mean {' or '.join(repr(originals[one]) for one in near)}?" if near else ""

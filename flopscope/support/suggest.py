"""Suggestions for misspelt names: "did you mean 'count'?"."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["did_you_mean", "similar_files"]

ALIKE = 0.6  # of difflib's ratio
MOST = 3
FOLDER_ENTRIES = 10_000  # names of a folder that are compared


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'A' or 'B'?" with the known names that are most alike, in any case; "" if none is."""
    originals = {one.lower(): one for one in known}
    found = difflib.get_close_matches(str(name).lower(), originals, MOST, ALIKE)
    return f"; did you mean {' or '.join(repr(originals[one]) for one in found)}?" if found else ""


def similar_files(path: str) -> str:
    """Return did_you_mean() for a file that does not exist, from the names in its folder."""
    wanted = Path(path)
    try:
        names = [entry.name for entry, _ in zip(wanted.parent.iterdir(), range(FOLDER_ENTRIES), strict=False)]
    except OSError:
        return ""
    return did_you_mean(wanted.name, names)

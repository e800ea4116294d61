"""Suggestions for misspelt names: "did you mean 'count'?"."""

from __future__ import annotations

from collections.abc import Collection, Iterable

ALIKE = 0.6  # of difflib's ratio
NEARLY_BEST = 0.02  # below that of the best suggestion
MOST = 3
SHORTEST_PART = 3  # characters of a name that is looked for within others
MOST_CONTAINING = 4


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'A' or 'B'?" with the known names that are most alike, in any case; "" if none is.

    If none is alike, those that contain the name: 'NVIDIA H200' for "h200".
    """
    import difflib

    wanted, originals = str(name).lower(), {one.lower(): one for one in known}
    found = difflib.get_close_matches(wanted, originals, MOST, ALIKE)
    alike = {one: difflib.SequenceMatcher(None, one, wanted).ratio() for one in found}
    near = [one for one in found if alike[one] >= alike[found[0]] - NEARLY_BEST]
    if not near and len(wanted) >= SHORTEST_PART:
        near = [one for one in originals if wanted in one][:MOST_CONTAINING]
    return f"; did you mean {' or '.join(repr(originals[one]) for one in near)}?" if near else ""


def require_names(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for a keyword argument that a function does not have."""
    for name in given:
        if name not in known:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{did_you_mean(name, known)}")

"""Steps of the same kind: the first ones of a program may take much longer, and are then no part of the means."""

from __future__ import annotations

from collections.abc import Sequence

from flopscope.support.median import median

LONG = 3.0
"""Times the median step: such a step is long."""
APART = 1.5
"""Times the longest of all later steps: below that, a first step is of a kind that comes again."""
HEAVY = 0.2
"""Share of all steps' time above which long steps are worth a note."""


def first_apart(times: Sequence[float]) -> int:
    """Return how many of the first steps are left out of the means.

    Each of them is long, and none of the later steps takes nearly as long: compilation, warm-up. They are at most a
    third of all steps. Steps that come again, such as those with an evaluation, stay.
    """
    for count in range(len(times) // 3, 0, -1):
        later = times[count:]
        usual = median(later)  # beside steps that take no time, any other one is long
        if usual > 0 and min(times[:count]) > max(LONG * usual, APART * max(later)):
            return count
    return 0


def _recur(places: Sequence[int], count: int) -> bool:
    """Return whether these places among ``count`` are every n-th one from first to last, at least twice."""
    if len(places) < 2:
        return False
    period = places[1] - places[0]
    return 2 * period <= count and list(places) == list(range(places[0] % period, count, period))


def heavy_steps(times: Sequence[float]) -> list[int]:
    """Return the places of a few long steps that weigh heavily in the mean and do not recur regularly."""
    long = LONG * median(times)
    places = [place for place, time in enumerate(times) if time > long]
    heavy = sum(times[place] for place in places) >= HEAVY * max(sum(times), 1.0)
    return places if heavy and 2 * len(places) <= len(times) and not _recur(places, len(times)) else []

"""Steps of the same kind: the first ones of a program may take much longer, and are then no part of the means."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from flopscope.support.units import percent_text, plural, short_time_text

__all__ = ["first_apart", "notes_of"]

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
        usual = statistics.median(later)  # beside steps that take no time, any other one is long
        if usual > 0 and min(times[:count]) > max(LONG * usual, APART * max(later)):
            return count
    return 0


def _recur(places: Sequence[int], count: int) -> bool:
    """Return whether these places among ``count`` are every n-th one from first to last, at least twice."""
    if len(places) < 2:
        return False
    period = places[1] - places[0]
    return 2 * period <= count and list(places) == list(range(places[0] % period, count, period))


def notes_of(names: Sequence[str], times: Sequence[float]) -> list[str]:
    """Return which steps are left out of the means, and which long ones weigh heavily in them. Times in µs."""
    apart = first_apart(times)
    return [*_apart(names[:apart], times), *_heavy(names[apart:], times[apart:])]


def _apart(names: Sequence[str], times: Sequence[float]) -> list[str]:
    """Return a note on the first steps, which are left out."""
    if not names:
        return []
    later = times[len(names) :]
    ratio = f"{max(times[: len(names)]) / statistics.median(later):.3g} times as long as the median of the others"
    one = len(names) == 1
    first = f"{names[0]} took {ratio} and is" if one else f"{names[0]} to {names[-1]} took up to {ratio} and are"
    return [f"Times of a step are means of {plural(len(later), 'step')}: {first} left out."]


def _heavy(names: Sequence[str], times: Sequence[float]) -> list[str]:
    """Return a note if a few long steps, which do not recur regularly, weigh heavily in the means."""
    median = statistics.median(times)
    places = [place for place, time in enumerate(times) if time > LONG * median]
    share = sum(times[place] for place in places) / max(sum(times), 1.0)
    if share < HEAVY or 2 * len(places) > len(times) or _recur(places, len(times)):
        return []
    named = ", ".join(f"{names[place]} ({short_time_text(times[place])})" for place in places[:2])
    more = "…" if len(places) > 2 else ""
    return [
        f"Times of a step are means, {percent_text(100 * share)} of them from {plural(len(places), 'long step')}: "
        f"{named}{more}; the median step takes {short_time_text(median)}. A schedule or flopscope run --steps records "
        "steps of one kind."
    ]

"""The pieces of an Analysis: steps, and which of them are of one kind; ops with the time of their work; idle times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from flopscope.results.head import LONG
from flopscope.support.statistics import median


class Step(NamedTuple):
    """A step: its name (None for the whole profile), and times in ns."""

    name: str | None
    begin: int
    end: int
    host_begin: int
    host: int
    """Begin and duration on the host."""
    waits: int
    """Part of it during which the host waited for a device."""
    events: Mapping[str, int]
    """Host events that were recorded in it, by kind; not those that replays of a graph have from its capture."""
    described: int
    """Number of the ops among them with shapes."""

    @property
    def time(self) -> float:
        """Its duration in µs."""
        return (self.end - self.begin) / 1000


@dataclass
class Kernel:
    """The work of one op in kernels of one name."""

    name: str
    count: float = 0.0
    """Per step."""
    time: float = 0.0
    """Exclusive time, µs per step."""
    blocks: int = 0
    """Blocks of its first grid; 0: unknown."""
    resident: int = 0
    """Blocks that the device can hold at once; 0: unknown."""


@dataclass
class Op:
    """A row of the table by shape with the time that belongs to its work, in µs per step."""

    row: int
    """-1: work of no known op."""
    key: str
    shapes: Sequence[Sequence[int]]
    dtypes: Sequence[str]
    unit: str | None
    device: int
    part: str
    """The part of the accounting to which the time beyond the ideal belongs."""
    event: int
    """An event of the op, or of its work where the op is unknown."""
    calls: float = 0.0
    """Calls of the op per step."""
    count: float = 0.0
    """Pieces of work per step."""
    time: float = 0.0
    ideal: float = 0.0
    compute: float = 0.0
    active: float = 0.0
    """The part of ``compute`` that is counted activity of a unit, of unknown FLOPs."""
    memory: float = 0.0
    cast: float = 0.0
    """Time of the calls that cast from one float dtype to another."""
    casts: float = 0.0
    """Number of them per step."""
    reordered: float = 0.0
    """Time of the calls that copy to another order of elements in memory, by the strides that were recorded."""
    reorders: float = 0.0
    """Number of them per step."""
    kernels: list[Kernel] = field(default_factory=list)
    number: int = -1
    """That of its cells."""
    category: str = "other"
    """One of _core.categories: of the op or, where it is unknown, of its kernel."""

    @property
    def beyond(self) -> float:
        """Time beyond the ideal."""
        return self.time - self.ideal


@dataclass(frozen=True)
class Gap:
    """Idle time of a device, in µs per step."""

    cause: str
    row: int
    """Row of the op whose launch ended it, or of its work; -1: several."""
    wait: int
    """The event of the host's wait that caused it; -1: none."""
    event: int
    time: float
    count: float
    """Per step."""
    number: int = -1
    """That of its idle times in gap_numbers."""


# Kinds of steps: the first ones of a program may take much longer, and are then no part of the means ------------------

APART = 1.5
"""Times the longest of all later steps: below that, a first step is of a kind that comes again."""
HEAVY = 0.2
"""Share of all steps' time above which long steps are worth a note."""


def first_apart(times: Sequence[float]) -> int:
    """Return how many of the first steps are left out of the means.

    Each of them is long, and none of the later steps takes nearly as long: compilation, warm-up. They are at most a
    third of all steps. Steps that come again, such as those with an evaluation, stay.
    """
    values = np.asarray(times, dtype=np.float64)
    least, most = np.minimum.accumulate(values), np.maximum.accumulate(values[::-1])[::-1]
    # Each of these is APART times the next: no more than their range of times allows.
    counts = np.flatnonzero(least[:-1] > APART * most[1:]) + 1
    for count in map(int, counts[counts <= len(values) // 3][::-1]):
        usual = median(times[count:])  # beside steps that take no time, any other one is long
        if usual > 0 and least[count - 1] > LONG * usual:
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

"""The ranks that others wait for, in the collectives of a distributed program, by clocks that these align.

A collective in which every rank needs the data of every other ends on all of them at nearly the same moment, whenever
each began. For each process group and member, the median over its calls of the member's end minus the median end of all
members estimates the member's clock up to a constant of the group. One weighted least-squares problem over all ranks
and groups gives the clocks: unknowns are the offset of each rank and the constant of each group; the weight of a median
is the inverse of its variance. A median is moved little by outliers, and groups whose medians contradict the others
weigh less (Huber, Annals of Mathematical Statistics 35, 1964). The drift of each clock is found in the same way from a
line through the medians of the first and the last third of the calls (Tukey's resistant line)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flopscope.ranks.calls import KINDS, MAD_TO_SIGMA, TOGETHER, Calls, Floats, Group, match, row_medians
from flopscope.ranks.schema import SCHEMA, STRAGGLERS, records

if TYPE_CHECKING:
    import pandas

Places = npt.NDArray[np.intp]
MEDIAN_VARIANCE = 1.5708  # of a median, relative to that of the mean: π/2
RESOLUTION = 0.05  # µs; no median is more certain
CALLS_FOR_DRIFT = 12
FEW = 10.0
SIGNIFICANT = 4.0  # standard errors
TURNS = 3
PATTERNS = 64  # of members present, those with the most calls
ALIGNMENTS = 2
HUBER = 3.0
RIDGE = 1e-12


@dataclass(frozen=True)
class Clocks:
    """The clock of each rank, relative to the first rank that it is aligned with."""

    offset: Floats
    """µs by which the rank's clock is ahead, at the time ``middle``."""
    drift: Floats
    """µs by which it gains in each µs; 0 where none is significant."""
    uncertainty: Floats
    """Standard error of the offset, in µs; NaN for a rank that shares no collective."""
    spread: Floats
    """Median deviation of single ends from the aligned clock, in µs; NaN for a rank that shares no collective."""
    component: Places
    """Ranks with the same number are aligned with each other: the place of the first of them."""
    middle: float
    """µs since the origin of the calls."""


def align(groups: Sequence[Group], ranks: int) -> Clocks:
    """Return the clocks of the ranks, and move the starts of the groups to the clock of the first rank.

    Ranks that share no collective with an earlier rank keep their own clock.
    """
    some = [group.kind < TOGETHER for group in groups]
    if not any(rows.any() for rows in some):
        some = [np.ones(len(group.kind), np.bool_) for group in groups]
    ends: dict[bytes, list[Floats]] = {}  # of all groups with the same members
    for group, rows in zip(groups, some, strict=True):
        if rows.any():
            ends.setdefault(group.members.tobytes(), []).append(group.ends[rows])
    used = [(np.frombuffer(members, np.intp), np.concatenate(parts)) for members, parts in ends.items()]
    component = np.arange(ranks)
    middle = float(np.median([np.nanmedian(part[[0, -1]]) for _, part in used])) if used else 0.0
    offsets, slopes = np.zeros(ranks), np.zeros(ranks)
    errors = spread = np.full(ranks, np.nan)
    # The median end of a call that other clocks mark is that of one member, or of two: its own deviation is then no
    # measure of its clock. Once the clocks are aligned, every member is equally often the median.
    for turn in range(ALIGNMENTS):
        parts_used = used if turn else [part for one in used for part in _by_presence(*one)]
        members = [one for one, _ in parts_used]
        medians = [
            _Medians(own, part - offsets[own] - slopes[own] * (part - middle), middle) for own, part in parts_used
        ]
        more, slope_errors = _Equations(
            ranks, members, [m.slope for m in medians], [m.slope_error for m in medians]
        ).solve()
        more[~(np.abs(slopes + more) > SIGNIFICANT * slope_errors)] = 0.0
        slopes += more
        for m in medians:
            m.without_drift(more)
        equations = _Equations(ranks, members, [m.offset for m in medians], [m.error for m in medians])
        by_rank, errors = equations.solve()
        offsets, component = offsets + by_rank, equations.component
        spread = np.full(ranks, np.nan)
        for m in medians:
            spread[m.members] = np.fmax(spread[m.members], m.spread)
    clocks = Clocks(offsets, slopes, errors, spread, component, middle)
    for group in groups:
        group.start -= offsets[group.members] + slopes[group.members] * (group.start - middle)
    return clocks


def _by_presence(members: Places, ends: Floats) -> list[tuple[Places, Floats]]:
    """Return the calls by the members that they have: while clocks may be hours apart, the median end of a call is of
    another clock if other members take part."""
    present = ~np.isnan(ends)
    if present.all():
        return [(members, ends)]
    patterns, which, counts = np.unique(present, axis=0, return_inverse=True, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:PATTERNS]
    return [
        (members[patterns[one]], ends[which.ravel() == one][:, patterns[one]])
        for one in most
        if patterns[one].sum() > 1
    ]


class _Medians:
    """The ends of calls, relative to the median end of each call: a median and its error for each member."""

    def __init__(self, members: Places, ends: Floats, middle: float) -> None:
        self.members = members
        self.deviations = np.ascontiguousarray((ends - row_medians(ends)[:, None]).T)  # members by calls
        self.times = row_medians(ends) - middle
        self.offset, self.error, self.spread = self._medians(self.deviations)
        self.slope, self.slope_error = self._slopes()

    @staticmethod
    def _medians(deviations: Floats) -> tuple[Floats, Floats, Floats]:
        median = row_medians(deviations)
        spread = row_medians(np.abs(deviations - median[:, None]))
        count = (~np.isnan(deviations)).sum(axis=1)
        with np.errstate(divide="ignore"):
            error = MAD_TO_SIGMA * np.sqrt(MEDIAN_VARIANCE / count) * np.maximum(spread, RESOLUTION)
            error *= 1 + FEW / count**2  # the spread of a few ends says little
        return median, np.where(count, error, np.inf), spread

    def _slopes(self) -> tuple[Floats, Floats]:
        members, calls = self.deviations.shape
        third = calls // 3
        if calls < CALLS_FOR_DRIFT:
            return np.zeros(members), np.full(members, np.inf)
        order = np.argsort(self.times, kind="stable")
        early, late = order[:third], order[-third:]
        span = float(np.median(self.times[late]) - np.median(self.times[early]))
        first, first_error, _ = self._medians(self.deviations[:, early])
        last, last_error, _ = self._medians(self.deviations[:, late])
        if not span > 0:
            return np.zeros(members), np.full(members, np.inf)
        slope = (last - first) / span
        return np.nan_to_num(slope), np.where(np.isnan(slope), np.inf, np.hypot(first_error, last_error) / span)

    def without_drift(self, slopes: Floats) -> None:
        """Take the drift of the members' clocks out of the deviations."""
        own = slopes[self.members]
        if own.any():
            moved = own[:, None] * self.times
            # The median of a call is that of one member, which drifts too: it is taken anew.
            moved = self.deviations - moved
            self.deviations = moved - row_medians(np.ascontiguousarray(moved.T))[None, :]
            self.offset, self.error, self.spread = self._medians(self.deviations)


class _Equations:
    """Values of members of groups, each known up to a constant of its group: an entry of each array for each.

    A group of one known value says nothing, and is left out.
    """

    def __init__(
        self, ranks: int, members: Sequence[Places], values: Sequence[Floats], errors: Sequence[Floats]
    ) -> None:
        self.ranks, self.groups = ranks, len(members)
        rank = np.concatenate([np.empty(0, np.intp), *members])
        group = np.repeat(np.arange(self.groups), [len(one) for one in members])
        value, sigma = np.concatenate([np.empty(0), *values]), np.concatenate([np.empty(0), *errors])
        known = np.isfinite(sigma) & np.isfinite(value)
        known &= np.bincount(group[known], minlength=self.groups)[group] > 1
        self.rank, self.group, self.value, self.sigma = rank[known], group[known], value[known], sigma[known]
        self.component = self._components()

    def _components(self) -> Places:
        """Return for each rank the first of the ranks that groups connect it with."""
        first, before = np.arange(self.ranks), np.full(self.ranks, -1)
        while (first != before).any():
            before, least = first.copy(), np.full(self.groups, self.ranks)
            np.minimum.at(least, self.group, first[self.rank])
            np.minimum.at(first, self.rank, least[self.group])
        return first

    def solve(self) -> tuple[Floats, Floats]:
        """Return a value for each rank, relative to the first rank of its component, and its standard error; 0 and NaN
        for a rank without a known value. Minimises Σ ((x[rank] - constant[group] - value) / error)²."""
        # Clocks may be hours apart: the equations are solved for what differs from a first estimate.
        about, constants = self._first_estimate()
        value = self.value - (about[self.rank] - constants[self.group])
        weight = base = 1 / self.sigma**2
        x, error = np.zeros(self.ranks), np.full(self.ranks, np.nan)
        for _ in range(TURNS if len(value) else 0):
            x, constants, error = self._least_squares(value, weight)
            residual = np.abs(x[self.rank] - constants[self.group] - value)
            allowed = HUBER * self.sigma
            again = base * np.divide(allowed, residual, out=np.ones_like(base), where=residual > allowed)
            if np.allclose(again, weight, rtol=1e-3):
                break
            weight = again
        x += about
        return x - x[self.component], error

    def _first_estimate(self) -> tuple[Floats, Floats]:
        """Return values of the ranks and constants of the groups, each from the first group that gives one."""
        x = np.where(self.component == np.arange(self.ranks), 0.0, np.nan)
        constants = np.full(self.groups, np.nan)
        while (new := np.isnan(constants[self.group]) & ~np.isnan(x[self.rank])).any():
            constants[self.group[new][::-1]] = (x[self.rank] - self.value)[new][::-1]
            new = np.isnan(x[self.rank]) & ~np.isnan(constants[self.group])
            x[self.rank[new][::-1]] = (constants[self.group] + self.value)[new][::-1]
        return x, np.nan_to_num(constants)

    def _least_squares(self, value: Floats, weight: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the values of the ranks, those of the groups, and the standard errors of the ranks' values.

        The ranks and the groups are two sides of a graph, so that the equations of either side are diagonal: the larger
        side is eliminated, and a dense problem of the smaller one is solved.
        """
        by_rank = np.bincount(self.rank, weight, self.ranks).astype(np.float64)
        by_group = np.bincount(self.group, weight, self.groups).astype(np.float64)
        rank_sums = np.bincount(self.rank, weight * value, self.ranks)
        group_sums = -np.bincount(self.group, weight * value, self.groups)
        alone, first = by_rank == 0, self.component == np.arange(self.ranks)
        by_rank[first] += 1e6 * by_rank.max()  # the first rank of each component is its reference
        by_group[by_group == 0] = np.inf
        joint = np.zeros((self.ranks, self.groups))
        np.add.at(joint, (self.rank, self.group), weight)
        if self.groups <= self.ranks:
            scaled = joint / by_rank[:, None]
            inverse = _inverse(by_group, joint.T @ scaled)
            constants = inverse @ (group_sums + scaled.T @ rank_sums)
            x = (rank_sums + joint @ constants) / by_rank
            variance = 1 / by_rank + np.einsum("rg,gh,rh->r", scaled, inverse, scaled, optimize=True)
        else:
            scaled = joint / by_group[None, :]
            inverse = _inverse(by_rank, scaled @ joint.T)
            x = inverse @ (rank_sums + scaled @ group_sums)
            constants = (group_sums + joint.T @ x) / by_group
            variance = np.diag(inverse).copy()
        variance[first] = 0.0
        return x, constants, np.where(alone, np.nan, np.sqrt(np.maximum(variance, 0.0)))


def _inverse(diagonal: Floats, rest: Floats) -> Floats:
    """Return the inverse of diag(diagonal) - rest, with 1 for an infinite entry.

    Directions that no value determines are held by a very weak tie.
    """
    matrix = np.diag(np.where(np.isinf(diagonal), 1.0, diagonal)) - rest
    tie = RIDGE * max(float(np.diag(matrix).max(initial=0.0)), 1e-300)
    return np.asarray(np.linalg.inv(matrix + tie * np.eye(len(matrix))), np.float64)


class Stragglers:
    """The result of Ranks.stragglers(): which ranks wait for which. Print it for a summary. Times are in µs."""

    def __init__(self, numbers: Sequence[int], calls: Sequence[Calls]) -> None:
        """Match the calls of the ranks of these numbers, and align their clocks."""
        self._numbers = np.array(numbers, np.int64)
        self.matched = match(calls)
        self.clocks = align(self.matched.groups, len(numbers))
        # Ranks of another component keep their own clock, which counts from another moment.
        origins = self.matched.origins
        self._shift = (origins[self.clocks.component] - origins[0]) / 1000

    @cached_property
    def ranks(self) -> pandas.DataFrame:
        """A row per rank. ``collectives``: number matched; ``unmatched``: number not matched; ``times_last``: how often
        it came last; ``waited``: total time that it waited for the last rank; ``waited_pct``: waited in percent of the
        time of its matched collectives; ``awaited``: total time that others waited for it; ``clock_offset``: its clock
        minus that of the first rank it shares collectives with, directly or through others; ``clock_uncertainty``: the
        standard error of that, NaN for a rank that shares none; ``clock_spread``: median deviation of single ends from
        it; ``clock_drift_ppm``: µs that its clock gains in a second; ``aligned_with``: that first rank."""
        import pandas

        count = len(self._numbers)
        times_last = np.zeros(count, np.int64)
        waited, awaited, time = np.zeros(count), np.zeros(count), np.zeros(count)
        for group in self.matched.groups:
            times_last += np.bincount(group.members[group.last], minlength=count)
            waited[group.members] += np.nansum(group.wait, axis=0)
            time[group.members] += np.nansum(group.duration, axis=0)
            awaited += np.bincount(group.members[group.last], np.nansum(group.wait, axis=1), count)
        clocks, origins = self.clocks, self.matched.origins
        used = clocks.component != np.arange(count)
        apart = np.where(used, (origins - origins[clocks.component]) / 1000, 0.0)
        return pandas.DataFrame(
            {
                "rank": self._numbers,
                "collectives": self.matched.matched,
                "unmatched": self.matched.own - self.matched.matched,
                "times_last": times_last,
                "waited": waited,
                "waited_pct": np.divide(100 * waited, time, out=np.full(count, np.nan), where=time > 0),
                "awaited": awaited,
                "clock_offset": clocks.offset + apart,
                "clock_uncertainty": clocks.uncertainty,
                "clock_spread": clocks.spread,
                "clock_drift_ppm": 1e6 * clocks.drift,
                "aligned_with": self._numbers[clocks.component],
            }
        )

    @cached_property
    def calls(self) -> pandas.DataFrame:
        """The rows of ``collectives`` by group. ``place``: that of the group among the matched ones; ``kind``: index in
        KINDS; ``time``, ``waited``, ``exposed``: sums over the members; ``exposed_last``: of the last one."""
        import pandas

        clock = self.clocks.uncertainty
        frames = []
        for place, group in enumerate(self.matched.groups):
            latest, transfer = group.of_last(group.start), group.of_last(group.duration)
            last, first = group.members[group.last], group.members[group.first]
            rate = group.message_bytes / (1e3 * np.where(transfer > 0, transfer, np.nan))
            columns: dict[str, Any] = {
                "collective": np.array(KINDS, object)[group.kind],
                "group": group.name,
                "message_bytes": group.message_bytes,
                "number": group.number,
                "count": (~np.isnan(group.start)).sum(axis=1),
                "straggler": self._numbers[last],
                "start": latest + self._shift[group.members[0]],
                "skew": latest - np.nanmin(group.start, axis=1),
                "skew_uncertainty": np.hypot(clock[last], clock[first]),
                "transfer": transfer,
                "bus_gbytes_per_s": rate * group.factor,
                "place": place,
                "kind": group.kind,
                "time": np.nansum(group.duration, axis=1),
                "waited": np.nansum(group.wait, axis=1),
                "exposed": np.nansum(group.exposed, axis=1),
                "exposed_last": group.of_last(group.exposed),
            }
            frames.append(pandas.DataFrame(columns))
        if not frames:
            more = ("place", "kind", "time", "waited", "exposed", "exposed_last")
            return pandas.DataFrame({name: [] for name in (*SCHEMA["calls"], *more)})
        frame = pandas.concat(frames, ignore_index=True)
        frame["start"] -= (frame["start"] - frame["skew"]).min()  # since the first one began
        return frame

    @cached_property
    def collectives(self) -> pandas.DataFrame:
        """A row per matched collective in order of time. ``collective``, ``group``, ``message_bytes``; ``number``: its
        sequence, or its occurrence in its step without one; ``count``: matched ranks; ``straggler``: the rank
        that came last; ``start``: start on that rank, since the first collective began; ``skew``: from the first rank's
        start to the last rank's; ``skew_uncertainty``: that of the clocks, one standard error; ``transfer``: from the
        last start to the end of that kernel; ``bus_gbytes_per_s``: over transfer, so without the wait."""
        return self.calls.sort_values("start", kind="stable")[list(SCHEMA["calls"])].reset_index(drop=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the rows of ``ranks`` and ``collectives`` as a document for JSON: see docs/json.md."""
        return STRAGGLERS.of({"ranks": records(self.ranks), "collectives": records(self.collectives)})

    def on_first_clock(self, place: int, time: int) -> float:
        """Return a time of a rank's clock, in ns, as µs on the clock of the first rank it is aligned with, since the
        first collective of the first rank."""
        clocks, local = self.clocks, (time - int(self.matched.origins[place])) / 1000
        ahead = clocks.offset[place] + clocks.drift[place] * (local - clocks.middle)
        return float(local - ahead + self._shift[place])

    def __str__(self) -> str:
        from flopscope.ranks.text import stragglers_text

        return stragglers_text(self)

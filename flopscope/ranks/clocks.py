"""The clocks of the ranks, aligned by the ends of collectives.

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

import numpy as np
import numpy.typing as npt

from flopscope.ranks.calls import TOGETHER, Group
from flopscope.ranks.medians import MAD_TO_SIGMA, Floats, row_medians

__all__ = ["Clocks", "align"]

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
    component: npt.NDArray[np.intp]
    """Ranks with the same number are aligned with each other: the place of the first of them."""
    middle: float
    """µs since the origin of the calls."""

    def aligned(self, place: int, time: float) -> float:
        """Return a time of the rank's clock on that of the first rank."""
        return float(time - self.offset[place] - self.drift[place] * (time - self.middle))


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
        more, slope_errors, _ = _solve(ranks, members, [m.slope for m in medians], [m.slope_error for m in medians])
        more[~(np.abs(slopes + more) > SIGNIFICANT * slope_errors)] = 0.0
        slopes += more
        for m in medians:
            m.without_drift(more)
        by_rank, errors, component = _solve(ranks, members, [m.offset for m in medians], [m.error for m in medians])
        offsets += by_rank
        spread = np.full(ranks, np.nan)
        for m in medians:
            spread[m.members] = np.fmax(spread[m.members], m.spread)
    clocks = Clocks(offsets, slopes, errors, spread, component, middle)
    for group in groups:
        group.start -= offsets[group.members] + slopes[group.members] * (group.start - middle)
    return clocks


def _by_presence(members: npt.NDArray[np.intp], ends: Floats) -> list[tuple[npt.NDArray[np.intp], Floats]]:
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

    def __init__(self, members: npt.NDArray[np.intp], ends: Floats, middle: float) -> None:
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


def _components(ranks: int, members: Sequence[npt.NDArray[np.intp]]) -> npt.NDArray[np.intp]:
    """Return for each rank the first of the ranks that groups connect it with."""
    first = np.arange(ranks)
    changed = True
    while changed:
        changed = False
        for group in members:
            least = first[group].min()
            if (first[group] != least).any():
                first[group] = least
                changed = True
        first = first[first]
    return first


def _solve(
    ranks: int, members: Sequence[npt.NDArray[np.intp]], values: Sequence[Floats], errors: Sequence[Floats]
) -> tuple[Floats, Floats, npt.NDArray[np.intp]]:
    """Return a value for each rank, relative to the first rank that known values connect it with, its standard error,
    and the place of that first rank.

    members: of each group; values: for each group those of its members, up to a constant of the group; errors: their
    standard errors, infinite where a value is unknown. A rank without a known value has 0 and NaN.
    """
    result, error = np.zeros(ranks), np.full(ranks, np.nan)
    known = [np.isfinite(sigma) & np.isfinite(value) for sigma, value in zip(errors, values, strict=True)]
    used = [place for place, some in enumerate(known) if some.sum() > 1]
    inside_of = [members[g][known[g]] for g in used]
    component = _components(ranks, inside_of)
    for first in np.unique(component):
        inside = np.flatnonzero(component == first)
        chosen = [place for place, group in enumerate(inside_of) if component[group[0]] == first]
        if len(inside) > 1:
            place = np.full(ranks, -1, np.intp)
            place[inside] = np.arange(len(inside))
            result[inside], error[inside] = _solve_component(
                len(inside),
                [place[inside_of[one]] for one in chosen],
                [values[used[one]][known[used[one]]] for one in chosen],
                [errors[used[one]][known[used[one]]] for one in chosen],
            )
    return result, error, component


def _solve_component(
    ranks: int, members: Sequence[npt.NDArray[np.intp]], values: Sequence[Floats], errors: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Solve one connected part: minimise Σ ((x[rank] - c[group] - value) / error)² with x[0] = 0."""
    row = np.concatenate(members)
    column = np.repeat(np.arange(len(members)), [len(group) for group in members])
    value, sigma = np.concatenate(values), np.concatenate(errors)
    base = 1 / sigma**2
    # Clocks may be hours apart: the equations are solved for what differs from a first estimate.
    about, constants_about = _first_estimate(ranks, members, np.split(value, np.cumsum([len(g) for g in members])[:-1]))
    value = value - (about[row] - constants_about[column])
    weight = base
    x, error = np.zeros(ranks), np.full(ranks, np.nan)
    for _ in range(TURNS):
        x, constants, error = _least_squares(ranks, len(members), row, column, value, weight)
        residual = np.abs(x[row] - constants[column] - value)
        allowed = HUBER * sigma
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = np.where(residual > allowed, allowed / residual, 1.0)
        again = base * np.nan_to_num(factor, nan=1.0)
        if np.allclose(again, weight, rtol=1e-3):
            break
        weight = again
    return about + x, error


def _first_estimate(
    ranks: int, members: Sequence[npt.NDArray[np.intp]], values: Sequence[Floats]
) -> tuple[Floats, Floats]:
    """Return values of the ranks and constants of the groups, each from the first group that gives one."""
    x, constants = np.full(ranks, np.nan), np.zeros(len(members))
    x[0] = 0.0
    waiting = list(range(len(members)))
    while waiting:
        later = []
        for g in waiting:
            known = np.flatnonzero(~np.isnan(x[members[g]]))
            if len(known):
                constants[g] = x[members[g][known[0]]] - values[g][known[0]]
                new = np.isnan(x[members[g]])
                x[members[g][new]] = constants[g] + values[g][new]
            else:
                later.append(g)
        if len(later) == len(waiting):
            break
        waiting = later
    return np.nan_to_num(x), constants


def _least_squares(
    ranks: int, groups: int, row: npt.NDArray[np.intp], column: npt.NDArray[np.intp], value: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the values of the ranks, those of the groups, and the standard errors of the ranks' values.

    The ranks and the groups are two sides of a graph, so that the equations of either side are diagonal: the larger
    side is eliminated, and a dense problem of the smaller one is solved.
    """
    by_rank = np.bincount(row, weight, ranks)
    by_group = np.bincount(column, weight, groups)
    rank_sums = np.bincount(row, weight * value, ranks)
    group_sums = -np.bincount(column, weight * value, groups)
    tie = by_rank.max() if len(by_rank) else 1.0
    by_rank[0] += 1e6 * tie  # the first rank is the reference
    joint = np.zeros((ranks, groups))
    np.add.at(joint, (row, column), weight)
    by_rank = np.where(by_rank > 0, by_rank, np.inf)
    by_group = np.where(by_group > 0, by_group, np.inf)
    if groups <= ranks:
        scaled = joint / by_rank[:, None]
        rest = np.diag(np.where(np.isinf(by_group), 1.0, by_group)) - joint.T @ scaled
        inverse = _inverse(rest)
        constants = inverse @ (group_sums + scaled.T @ rank_sums)
        x = (rank_sums + joint @ constants) / by_rank
        variance = 1 / by_rank + np.einsum("rg,gh,rh->r", scaled, inverse, scaled, optimize=True)
    else:
        scaled = joint / by_group[None, :]
        rest = np.diag(np.where(np.isinf(by_rank), 1.0, by_rank)) - scaled @ joint.T
        inverse = _inverse(rest)
        x = inverse @ (rank_sums + scaled @ group_sums)
        constants = (group_sums + joint.T @ x) / by_group
        variance = np.diag(inverse).copy()
    variance[0] = 0.0
    alone = np.isinf(by_rank)
    error = np.sqrt(np.maximum(variance, 0.0))
    error[alone] = np.nan
    return x - x[0], constants - x[0], error


def _inverse(matrix: Floats) -> Floats:
    """Return the inverse of a symmetric matrix. Directions that no value determines are held by a very weak tie."""
    tie = RIDGE * max(float(np.diag(matrix).max(initial=0.0)), 1e-300)
    return np.asarray(np.linalg.inv(matrix + tie * np.eye(len(matrix))), np.float64)

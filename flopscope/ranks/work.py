"""What each rank did in each step, as arrays over the ranks: its parts of the accounting, its FLOPs, its speed.

A rank's own work in a step is the step less the time in which it only communicated: the time for which a rank that
waits for it waits. The rank with the most own work, among ranks that run the same program, holds up the others: it
comes last and waits least, also where the ranks that it delayed delay others in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from flopscope.answers.analysis import PARTS, WORK_PARTS
from flopscope.ranks.calls import Floats
from flopscope.ranks.digest import Digest
from flopscope.results.categories import category_of

__all__ = ["KERNELS", "Work", "median_of_others"]

KERNELS = tuple(part for part in WORK_PARTS if part != "communication")
"""The parts in which a kernel or a copy ran."""
Time = TypeVar("Time", float, Floats)
IN_COMMON = 0.5  # of the ops of two ranks, below which they run different programs
SHARE_OF_OPS = 0.5  # of the largest role, below which roles are too small to compare ranks in them


@dataclass(frozen=True)
class Work:
    """The steps of all ranks."""

    digests: Sequence[Digest]

    @cached_property
    def steps(self) -> list[str | None]:
        """Names of the steps that most ranks have, in their order; [None] if the program marked none."""
        counts: dict[str, int] = {}
        for digest in self.digests:
            for name in dict.fromkeys(digest.step_names):
                counts[name] = counts.get(name, 0) + 1
        names = [name for name, count in counts.items() if 2 * count > len(self.digests)]
        return list(names) if names else [None]

    @property
    def has_steps(self) -> bool:
        """Whether most ranks have steps in common."""
        return self.steps != [None]

    @property
    def has_shapes(self) -> bool:
        """Whether the ranks recorded shapes, so that more work and slower kernels can be distinguished."""
        return all(digest.has_shapes for digest in self.digests if digest.events)

    @cached_property
    def parts(self) -> Floats:
        """µs by rank, step and part (total, then PARTS), means over the rank's devices; NaN where a rank lacks the
        step."""
        place = {name: number for number, name in enumerate(self.steps)}
        parts = np.full((len(self.digests), len(self.steps), 1 + len(PARTS)), np.nan)
        for rank, digest in enumerate(self.digests):
            columns = digest.accounting
            names = columns["step"]
            devices = max(len(set(columns["device"]) - {None}), 1)
            rows = [row for row, name in enumerate(names) if name is not None and name in place]
            if self.steps == [None] and names:
                rows = [len(names) - 1]
            for row in rows:
                values = [columns["total"][row], *(columns[part][row] for part in PARTS)]
                into = parts[rank, place[names[row]] if self.steps != [None] else 0]
                into[:] = np.nan_to_num(into) + np.array(values, np.float64) / devices
        return parts

    @cached_property
    def total(self) -> Floats:
        """µs by rank and step."""
        return self.parts[:, :, 0]

    @cached_property
    def own(self) -> Floats:
        """µs of own work by rank and step."""
        own: Floats = self.total - self.part("communication")
        return own

    def saved(self, excess: Floats) -> Floats:
        """Return the µs that each step would gain if ranks had so much less own work, by rank and step: the next
        slowest rank limits the step then."""
        own = np.where(np.isnan(self.own), -np.inf, self.own)
        most = own.max(axis=0)
        less: Floats = np.where(np.isfinite(most), most, 0.0) - (own - np.nan_to_num(excess)).max(axis=0)
        return np.where(np.isfinite(less), np.maximum(less, 0.0), 0.0)

    @cached_property
    def excess(self) -> Floats:
        """µs of own work beyond the median of the other ranks of the role, by rank and step."""
        excess: Floats = self.own - median_of_others(self.own, self.role)
        return excess

    def part(self, *names: str) -> Floats:
        """Return the µs of the parts by rank and step."""
        total: Floats = self.parts[:, :, [1 + PARTS.index(name) for name in names]].sum(axis=2)
        return total

    @cached_property
    def step_time(self) -> float:
        """Median µs of a step."""
        return float(np.nanmedian(self.total)) if np.isfinite(self.total).any() else float("nan")

    def percent(self, time: Time) -> Time:
        """Return a time, or several, in percent of a step; NaN where steps take no time."""
        return 100 * time / self.step_time if self.step_time > 0 else time * float("nan")

    @cached_property
    def step_counts(self) -> npt.NDArray[np.int64]:
        """Number of steps of each rank, at least 1; 1 for all if they have none in common."""
        return np.array([max(digest.steps, 1) if self.has_steps else 1 for digest in self.digests])

    @cached_property
    def flops(self) -> Floats:
        """FLOPs of known work per step, by rank; NaN where none is known."""
        return self._sum("flops")

    @cached_property
    def moved(self) -> Floats:
        """Bytes of known work per step, by rank; NaN where none is known."""
        return self._sum("bytes_total_moved")

    def _sum(self, column: str) -> Floats:
        sums = [digest.table[column] for digest in self.digests]
        known = np.array([np.nansum(values) if np.isfinite(values).any() else np.nan for values in sums])
        per_step: Floats = known / self.step_counts
        return per_step

    @cached_property
    def ops(self) -> list[frozenset[str]]:
        """Names of the ops with work on a device, those that communicate not among them, by rank."""
        return [frozenset(_counts(digest)) for digest in self.digests]

    @cached_property
    def role(self) -> npt.NDArray[np.intp]:
        """A number of what each rank runs: ranks with the same ops, equally often, have the same. If that would leave
        most ranks alone, as where the ops depend on the data, ranks with most ops in common have the same."""
        numbers: dict[object, int] = {}
        programs = [_program(*pair) for pair in zip(self.digests, self.step_counts.tolist(), strict=True)]
        roles = np.array([numbers.setdefault(program, len(numbers)) for program in programs], np.intp)
        sizes = np.bincount(roles)
        alone = int((sizes[roles] == 1).sum())
        return roles if alone <= SHARE_OF_OPS * len(roles) else self.program

    @cached_property
    def program(self) -> npt.NDArray[np.intp]:
        """A number for each rank: those with at least half of their ops in common have the same, and all without
        any."""
        first: list[frozenset[str]] = []
        numbers = []
        for ops in self.ops:
            same = (place for place, one in enumerate(first) if len(one & ops) >= IN_COMMON * len(one | ops))
            numbers.append(next(same, len(first)))
            if numbers[-1] == len(first):
                first.append(ops)
        return np.array(numbers, np.intp)

    @cached_property
    def slowness(self) -> Floats:
        """The time of each rank's kernels over the median of the other ranks': the median over ops of one name and
        shape, each weighted by its time; NaN without two ranks to compare."""
        times: dict[object, list[tuple[int, float, float]]] = {}
        for rank, digest in enumerate(self.digests):
            table = digest.table
            busy, median = table["device_busy_time"], table["time_median"]
            for row in np.flatnonzero(np.nan_to_num(busy) > 0).tolist():
                if _computes(table, row) and median[row] > 0:
                    key = table["key"][row], table["input_shapes"][row], table["input_dtypes"][row]
                    times.setdefault(key, []).append((rank, float(median[row]), float(busy[row])))
        ratios: list[list[tuple[float, float]]] = [[] for _ in self.digests]
        for found in times.values():
            if len(found) > 1:
                values = np.array([[one] for _, one, _ in found])
                others = median_of_others(values, np.zeros(len(found), np.intp))
                for (rank, one, weight), other in zip(found, others[:, 0].tolist(), strict=True):
                    ratios[rank].append((one / other, weight))
        return np.array([_weighted_median(pairs) for pairs in ratios])


def _counts(digest: Digest) -> dict[str, int]:
    table = digest.table
    counts: dict[str, int] = {}
    for row in np.flatnonzero(np.nan_to_num(table["device_busy_time"]) > 0).tolist():
        if _computes(table, row):
            counts[table["key"][row]] = counts.get(table["key"][row], 0) + int(table["count"][row])
    return counts


def _program(digest: Digest, steps: int) -> object:
    return frozenset((key, round(count / steps)) for key, count in _counts(digest).items())


def _computes(table: dict[str, Any], row: int) -> bool:
    """Return whether the row is an op that does not communicate."""
    if table["device_type"][row] != "cpu" or table["is_user_annotation"][row]:
        return False
    return category_of(table["key"][row]) != "communication"


def _weighted_median(pairs: list[tuple[float, float]]) -> float:
    if not pairs:
        return float("nan")
    values, weights = (np.array(part) for part in zip(*sorted(pairs), strict=True))
    return float(values[np.searchsorted(np.cumsum(weights), 0.5 * weights.sum())])


def median_of_others(values: Floats, role: npt.NDArray[np.intp]) -> Floats:
    """Return for each rank and step the median over the other ranks of its role; NaN without any."""
    result = np.full(values.shape, np.nan)
    for number in np.unique(role):
        members = np.flatnonzero(role == number)
        if len(members) < 2:
            continue
        own = values[members]
        order = np.argsort(own, axis=0, kind="stable")  # NaN last
        ordered = np.take_along_axis(own, order, axis=0)
        at = np.empty_like(order)
        np.put_along_axis(at, order, np.broadcast_to(np.arange(len(members))[:, None], order.shape), axis=0)
        present = ~np.isnan(own)
        rest = present.sum(axis=0) - present
        # The place of the own value among the sorted ones is skipped.
        low, high = np.maximum((rest - 1) // 2, 0), np.maximum(rest // 2, 0)
        low, high = low + (present & (low >= at)), high + (present & (high >= at))
        most = len(members) - 1
        low, high = (np.take_along_axis(ordered, np.minimum(place, most), axis=0) for place in (low, high))
        result[members] = np.where(rest > 0, 0.5 * (low + high), np.nan)
    return result

"""What each rank did in each step, as arrays over the ranks: its parts of the accounting, its FLOPs, its speed.

A rank's own work in a step is the step less the time in which it only communicated: the time for which a rank that
waits for it waits. The rank with the most own work, among ranks that run the same program, holds up the others: it
comes last and waits least, also where the ranks that it delayed delay others in turn."""

from __future__ import annotations

from ast import literal_eval
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from flopscope.answers.analysis import PARTS, WORK_PARTS
from flopscope.ranks.calls import Floats, median, median_of_others
from flopscope.ranks.digest import KEPT, Digest
from flopscope.results.categories import category_of

if TYPE_CHECKING:
    import pandas

KEY = ("key", "device_type", "is_user_annotation", "input_shapes", "input_dtypes")
"""What makes rows of several ranks those of one op."""


class Ops:
    """The rows of the tables of all ranks."""

    def __init__(self, digests: Sequence[Digest]) -> None:
        import pandas

        self._digests = digests
        tables = [digest.table for digest in digests]
        self.rows = pandas.DataFrame({name: [one for table in tables for one in table[name]] for name in KEPT})
        """One after the other, with the ``place`` of the rank, and the number of the ``op``."""
        self.rows["place"] = np.repeat(np.arange(len(tables)), [len(table["key"]) for table in tables])
        self.rows["op"] = self.rows.groupby([*KEY], sort=False).ngroup()

    def sums(self, name: str) -> Floats:
        """Return the sum of a column by rank; NaN for a rank without a known value."""
        sums = self.rows.groupby("place")[name].sum(min_count=1)
        return sums.reindex(range(len(self._digests))).to_numpy(np.float64)

    @cached_property
    def _computing(self) -> pandas.DataFrame:
        """The rows of ops that have work on a device and do not communicate."""
        rows = self.rows[(self.rows["device_busy_time"] > 0) & (self.rows["device_type"] == "cpu")]
        categories = {key: category_of(key) for key in rows["key"].unique()}
        return rows[~rows["is_user_annotation"].astype(bool) & (rows["key"].map(categories) != "communication")]

    @cached_property
    def calls(self) -> list[dict[str, int]]:
        """Calls of each op that computes on a device, by name, of each rank."""
        calls: list[dict[str, int]] = [{} for _ in self._digests]
        sums = self._computing.groupby(["place", "key"], sort=False, as_index=False)["count"].sum()
        for place, name, count in sums.itertuples(index=False, name=None):
            calls[place][name] = int(count)
        return calls

    @cached_property
    def slowness(self) -> Floats:
        """The time of each rank's kernels over the median of the other ranks': the median over ops of one name and
        shape, each weighted by its time; NaN without two ranks to compare."""
        rows = self._computing[self._computing["time_median"] > 0]
        time = rows["time_median"].to_numpy()
        ratio = time / median_of_others(time[:, None], rows["op"].to_numpy())[:, 0]
        rows = rows.assign(ratio=ratio).dropna(subset="ratio").sort_values("ratio", kind="stable")
        by_rank = rows.groupby("place")["device_busy_time"]
        past_half = rows[by_rank.cumsum() >= 0.5 * by_rank.transform("sum")]
        middles = past_half.groupby("place")["ratio"].first()
        return middles.reindex(range(len(self._digests))).to_numpy(np.float64)

    def frame(self) -> pandas.DataFrame:
        """Return a row per op; Ranks.key_averages() has the columns. Longest first."""
        steps = np.array([max(digest.steps, 1) for digest in self._digests])[self.rows["place"]]
        per_step = ["count", "self_device_time_total", "self_cpu_time_total", "flops", "bytes_total_moved"]
        rows = self.rows.assign(rank=np.array([digest.rank for digest in self._digests])[self.rows["place"]])
        rows[per_step] = rows[per_step].div(steps, axis=0)
        device = rows["self_device_time_total"].fillna(0.0)
        has_device = device.groupby(rows["op"]).transform("sum") > 0
        rows["time"] = device.where(has_device, rows["self_cpu_time_total"].fillna(0.0))
        ops = rows.groupby("op")
        frame = ops[[*KEY]].first()
        for name in ("input_shapes", "input_dtypes"):
            frame[name] = frame[name].map(literal_eval)
        frame["ranks"], frame["count"] = ops.size(), ops["count"].median()
        for name in ("min", "median", "max"):
            frame[f"time_{name}"] = ops["time"].agg(name)
        for name, place in (("rank_min", ops["time"].idxmin()), ("rank_max", ops["time"].idxmax())):
            frame[name] = rows["rank"].to_numpy()[place]
        names = ["flops", "bytes_total_moved", "pct_roofline"]
        frame[names] = ops[names].median()
        frame["bound"] = rows.groupby(["op", "bound"]).size().unstack(fill_value=0).idxmax(axis=1)
        longest = frame.sort_values(["device_type", "time_median"], ascending=[False, False], kind="stable")
        return longest.reset_index(drop=True)


KERNELS = tuple(part for part in WORK_PARTS if part != "communication")
"""The parts in which a kernel or a copy ran."""
AMOUNTS = {"FLOPs": "flops", "bytes": "bytes_total_moved"}
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
        counts = Counter(name for digest in self.digests for name in digest.step_names)
        return [name for name, count in counts.items() if 2 * count > len(self.digests)] or [None]

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
        step. Steps of one name are one step: their times are added."""
        place = {name: number for number, name in enumerate(self.steps)}
        parts = np.full((len(self.digests), len(self.steps), 1 + len(PARTS)), np.nan)
        for into, digest in zip(parts, self.digests, strict=True):
            columns = digest.accounting
            names = columns["step"]
            rows: Sequence[int] = range(len(names))[-1:]
            if self.has_steps:
                rows = [row for row, name in enumerate(names) if name in place]
            at = [place[names[row]] if self.has_steps else 0 for row in rows]
            times = np.array([columns[name] for name in ("total", *PARTS)], np.float64)[:, rows]
            into[at] = 0.0
            np.add.at(into, at, times.T / max(len(set(columns["device"]) - {None}), 1))
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

    @cached_property
    def waiting(self) -> Floats:
        """µs that each step would gain without stragglers: if no rank had more own work than the median of the others
        of its role."""
        return self.saved(np.maximum(self.excess, 0.0))

    @cached_property
    def typical_excess(self) -> Floats:
        """Median excess of each rank."""
        return np.array([median(steps) for steps in self.excess])

    def others(self, rank: int) -> npt.NDArray[np.bool_]:
        """Return which ranks are the others of its role."""
        others: npt.NDArray[np.bool_] = (self.role == self.role[rank]) & (np.arange(len(self.role)) != rank)
        return others

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
    def ops(self) -> Ops:
        """The ops of all ranks."""
        return Ops(self.digests)

    @cached_property
    def amounts(self) -> dict[str, Floats]:
        """FLOPs and bytes of known work per step, by rank; NaN where none is known."""
        return {name: self.ops.sums(column) / self.step_counts for name, column in AMOUNTS.items()}

    @cached_property
    def usual_waits(self) -> dict[tuple[int, tuple[str, str]], float]:
        """µs of a step in which a device waited for the host in a line: the median of the ranks of a role, by the role
        and the line. Lines that at most half of them were in are left out, as their median is 0."""
        times: defaultdict[tuple[int, tuple[str, str]], list[float]] = defaultdict(list)
        for role, steps, digest in zip(self.role.tolist(), self.step_counts.tolist(), self.digests, strict=True):
            for line, time in digest.lines.items():
                times[role, line].append(time / steps)
        sizes = np.bincount(self.role).tolist()
        found = ((key, known, sizes[key[0]]) for key, known in times.items() if 2 * len(known) > sizes[key[0]])
        return {key: median([*known, *[0.0] * (size - len(known))]) for key, known, size in found}

    @cached_property
    def role(self) -> npt.NDArray[np.intp]:
        """A number of what each rank runs: ranks with the same ops, equally often, have the same. If that would leave
        most ranks alone, as where the ops depend on the data, ranks with most ops in common have the same."""
        numbers: dict[object, int] = {}
        programs = [
            frozenset((name, round(count / steps)) for name, count in calls.items())
            for calls, steps in zip(self.ops.calls, self.step_counts.tolist(), strict=True)
        ]
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
        for ops in map(frozenset, self.ops.calls):
            same = (place for place, one in enumerate(first) if len(one & ops) >= IN_COMMON * len(one | ops))
            numbers.append(next(same, len(first)))
            if numbers[-1] == len(first):
                first.append(ops)
        return np.array(numbers, np.intp)

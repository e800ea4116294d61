"""The ops of all ranks, row by row, and with statistics over the ranks."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from flopscope.ranks.digest import KEPT, Digest
from flopscope.ranks.medians import Floats, median_of_others
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
        frame["time_min"], frame["time_median"], frame["time_max"] = (
            ops["time"].min(),
            ops["time"].median(),
            ops["time"].max(),
        )
        for name, place in (("rank_min", ops["time"].idxmin()), ("rank_max", ops["time"].idxmax())):
            frame[name] = rows["rank"].to_numpy()[place]
        names = ["flops", "bytes_total_moved", "pct_roofline"]
        frame[names] = ops[names].median()
        frame["bound"] = rows.groupby(["op", "bound"]).size().unstack(fill_value=0).idxmax(axis=1)
        longest = frame.sort_values(["device_type", "time_median"], ascending=[False, False], kind="stable")
        return longest.reset_index(drop=True)

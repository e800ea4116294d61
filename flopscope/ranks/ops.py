"""The ops of all ranks, row by row, and with statistics over the ranks."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flopscope.ranks.digest import Digest
from flopscope.ranks.medians import Floats, median_of_others, medians_by
from flopscope.results.categories import category_of

if TYPE_CHECKING:
    import pandas

KEY: dict[str, Callable[[Any], Any]] = {
    "key": str,
    "device_type": str,
    "is_user_annotation": bool,
    "input_shapes": literal_eval,
    "input_dtypes": literal_eval,
}
"""What makes rows of several ranks those of one op, and how it is shown."""


class Ops:
    """The rows of the tables of all ranks, one after the other."""

    def __init__(self, digests: Sequence[Digest]) -> None:
        self._digests = digests
        places: dict[tuple[Any, ...], int] = {}
        rows = [zip(*(digest.table[name] for name in KEY), strict=True) for digest in digests]
        of = [places.setdefault(row, len(places)) for table in rows for row in table]
        self.keys = list(places)
        """The values of KEY of each op."""
        self.of: npt.NDArray[np.intp] = np.array(of, np.intp)
        """The op of each row, as its place in ``keys``."""
        self.rank: npt.NDArray[np.intp] = np.repeat(
            np.arange(len(digests)), [len(digest.table["key"]) for digest in digests]
        )
        """The place of the rank of each row."""

    def column(self, name: str) -> Floats:
        """Return a column of numbers."""
        return np.concatenate([np.asarray(digest.table[name], np.float64) for digest in self._digests])

    def sums(self, name: str) -> Floats:
        """Return the sum of a column by rank; NaN for a rank without a known value."""
        values, ranks = self.column(name), len(self._digests)
        sums = np.bincount(self.rank, np.where(np.isnan(values), 0.0, values), ranks)
        return np.where(np.bincount(self.rank, np.isfinite(values), ranks) > 0, sums, np.nan)

    @cached_property
    def _computing(self) -> npt.NDArray[np.intp]:
        """The rows of ops that have work on a device and do not communicate."""
        computes = [
            device == "cpu" and not annotation and category_of(key) != "communication"
            for key, device, annotation, *_ in self.keys
        ]
        return np.flatnonzero((self.column("device_busy_time") > 0) & np.array(computes, np.bool_)[self.of])

    @cached_property
    def calls(self) -> list[dict[str, int]]:
        """Calls of each op that computes on a device, by name, of each rank."""
        calls: list[dict[str, int]] = [{} for _ in self._digests]
        rows, counts = self._computing, self.column("count")
        for rank, op, count in zip(self.rank[rows].tolist(), self.of[rows].tolist(), counts[rows], strict=True):
            name = self.keys[op][0]
            calls[rank][name] = calls[rank].get(name, 0) + int(count)
        return calls

    @cached_property
    def slowness(self) -> Floats:
        """The time of each rank's kernels over the median of the other ranks': the median over ops of one name and
        shape, each weighted by its time; NaN without two ranks to compare."""
        time = self.column("time_median")
        rows = self._computing[time[self._computing] > 0]
        ratio = time[rows] / median_of_others(time[rows, None], self.of[rows])[:, 0]
        rows, ratio = rows[~np.isnan(ratio)], ratio[~np.isnan(ratio)]
        order = np.lexsort((ratio, self.rank[rows]))
        weight = self.column("device_busy_time")[rows][order]
        ends = np.searchsorted(self.rank[rows][order], np.arange(1, len(self._digests)))
        by_rank = zip(np.split(ratio[order], ends), np.split(weight, ends), strict=True)
        middles = [(own, np.searchsorted(np.cumsum(part), 0.5 * part.sum())) for own, part in by_rank]
        return np.array([own[middle] if len(own) else np.nan for own, middle in middles])

    def frame(self) -> pandas.DataFrame:
        """Return a row per op; Ranks.key_averages() has the columns. Longest first."""
        import pandas

        ops, steps = len(self.keys), np.array([max(digest.steps, 1) for digest in self._digests])[self.rank]
        device = np.nan_to_num(self.column("self_device_time_total") / steps)
        has_device = np.bincount(self.of, device, ops) > 0
        time = np.where(has_device[self.of], device, np.nan_to_num(self.column("self_cpu_time_total") / steps))
        order = np.lexsort((time, self.of))
        count = np.bincount(self.of, minlength=ops)
        last = np.cumsum(count) - 1
        least, most = order[last - count + 1], order[last]
        numbers = np.array([digest.rank for digest in self._digests])[self.rank]
        columns: dict[str, Any] = {
            name: [read(key[place]) for key in self.keys] for place, (name, read) in enumerate(KEY.items())
        }
        columns |= {
            "ranks": count,
            "count": medians_by(self.of, self.column("count") / steps, ops),
            "time_min": time[least],
            "time_median": medians_by(self.of, time, ops),
            "time_max": time[most],
            "rank_min": numbers[least],
            "rank_max": numbers[most],
            "flops": medians_by(self.of, self.column("flops") / steps, ops),
            "bytes_total_moved": medians_by(self.of, self.column("bytes_total_moved") / steps, ops),
            "pct_roofline": medians_by(self.of, self.column("pct_roofline"), ops),
            "bound": self._bounds(),
        }
        frame = pandas.DataFrame(columns)
        longest = frame.sort_values(["device_type", "time_median"], ascending=[False, False], kind="stable")
        return longest.reset_index(drop=True)

    def _bounds(self) -> list[str]:
        """Return the most frequent bound of each op."""
        texts = [bound for digest in self._digests for bound in digest.table["bound"]]
        names = sorted(set(texts))
        place = {name: number for number, name in enumerate(names)}
        counts = np.zeros((len(self.keys), len(names)), np.int64)
        np.add.at(counts, (self.of, np.array([place[text] for text in texts], np.intp)), 1)
        return [names[one] for one in counts.argmax(axis=1)] if names else []

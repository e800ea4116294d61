"""The ranks that others wait for, in the collectives of a distributed program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.ranks.calls import KINDS, Calls, match
from flopscope.ranks.clocks import align
from flopscope.ranks.schema import SCHEMA, STRAGGLERS, records

if TYPE_CHECKING:
    import pandas


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

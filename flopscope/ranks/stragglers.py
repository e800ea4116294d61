"""The ranks that others wait for, in the collectives of a distributed program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from flopscope.ranks.calls import KINDS, Calls, Group, Matched, calls_of, match
from flopscope.ranks.clocks import Clocks, align
from flopscope.results.process import base_time_of, rank_of, require_different_processes, source_of
from flopscope.results.results import store_of
from flopscope.support import units
from flopscope.support.columns import Rows
from flopscope.support.safe import printable
from flopscope.support.suggest import suggesting

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas

    from flopscope.ranks.calls import Floats
    from flopscope.results.results import Results

__all__ = ["LEGEND", "Stragglers", "Waits", "find_stragglers", "stragglers", "with_error"]

SHOWN = 5
RANKS_SHOWN = 32


class Waits:
    """Which member came last in each call of a group, and how long the others waited for it."""

    def __init__(self, group: Group) -> None:
        with np.errstate(invalid="ignore"):
            self.last: npt.NDArray[np.intp] = np.nanargmax(group.start, axis=1)
            """The column of the member that started last."""
            rows = np.arange(len(self.last))
            self.latest: Floats = group.start[rows, self.last]
            self.skew: Floats = self.latest - np.nanmin(group.start, axis=1)
            self.wait: Floats = np.fmin(self.latest[:, None] - group.start, group.duration)
            """µs of each member until the last one started, at most its duration; NaN where it lacks the call."""
            self.wait[np.isnan(group.start)] = np.nan
            self.transfer: Floats = group.duration[rows, self.last]
            """µs of the kernel of the member that started last."""
            timed = np.where(self.transfer > 0, self.transfer, np.nan)
            self.bandwidth: Floats = group.message_bytes / (1e3 * timed) * group.factor
            """Bus bandwidth in GB/s, over the transfer; NaN if that took no time."""


@suggesting
class Stragglers:
    """The result of stragglers(): which ranks wait for which. Print it for a summary. Times are in µs."""

    def __init__(self, numbers: Sequence[int], matched: Matched, clocks: Clocks) -> None:
        self._numbers = np.array(numbers, np.int64)
        self._matched, self._clocks = matched, clocks
        self._groups = [group for group in matched.groups if len(group.kind)]
        self._waits = [Waits(group) for group in self._groups]
        # Ranks of another component keep their own clock, which counts from another moment.
        first = clocks.component
        self._shift = (matched.origins[first] - matched.origins[0]) / 1000

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
        for group, waits in zip(self._groups, self._waits, strict=True):
            times_last += np.bincount(group.members[waits.last], minlength=count)
            waited[group.members] += np.nansum(waits.wait, axis=0)
            time[group.members] += np.nansum(group.duration, axis=0)
            awaited += np.bincount(group.members[waits.last], np.nansum(waits.wait, axis=1), count)
        clocks, origins = self._clocks, self._matched.origins
        used = clocks.component != np.arange(count)
        apart = np.where(used, (origins - origins[clocks.component]) / 1000, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(time > 0, 100 * waited / time, np.nan)
        return pandas.DataFrame(
            {
                "rank": self._numbers,
                "collectives": self._matched.matched,
                "unmatched": self._matched.own - self._matched.matched,
                "times_last": times_last,
                "waited": waited,
                "waited_pct": share,
                "awaited": awaited,
                "clock_offset": clocks.offset + apart,
                "clock_uncertainty": clocks.uncertainty,
                "clock_spread": clocks.spread,
                "clock_drift_ppm": 1e6 * clocks.drift,
                "aligned_with": self._numbers[clocks.component],
            }
        )

    @cached_property
    def collectives(self) -> pandas.DataFrame:
        """A row per matched collective in order of time. ``collective``, ``group``, ``message_bytes``; ``number``: its
        sequence, or its occurrence if PyTorch did not record that; ``count``: matched ranks; ``straggler``: the rank
        that came last; ``start``: start on that rank, since the first collective began; ``skew``: from the first rank's
        start to the last rank's; ``skew_uncertainty``: that of the clocks, one standard error; ``transfer``: from the
        last start to the end of that kernel; ``bus_gbytes_per_s``: over transfer, so without the wait."""
        import pandas

        columns: dict[str, list[npt.NDArray[np.generic]]] = {name: [] for name in _COLLECTIVE_COLUMNS}
        for place, (group, waits) in enumerate(zip(self._groups, self._waits, strict=True)):
            calls = len(group.kind)
            values = (
                np.array(KINDS, object)[group.kind],
                np.full(calls, group.name, object),
                group.message_bytes,
                group.number,
                (~np.isnan(group.start)).sum(axis=1),
                self._numbers[group.members[waits.last]],
                waits.latest + self._shift[group.members[0]],
                waits.skew,
                self.skew_uncertainty(place),
                waits.transfer,
                waits.bandwidth,
            )
            for name, value in zip(_COLLECTIVE_COLUMNS, values, strict=True):
                columns[name].append(value)
        frame = pandas.DataFrame({name: np.concatenate(v) if v else [] for name, v in columns.items()})
        if len(frame):
            frame["start"] -= self._first
        order = np.argsort(frame["start"].to_numpy(np.float64), kind="stable")
        self._order = order
        return frame.iloc[order].reset_index(drop=True)

    @cached_property
    def waits(self) -> pandas.DataFrame:
        """A row per matched collective and rank. ``call``: the row in ``collectives``; ``rank``; ``start``: on the
        first rank's clock, since the first collective began; ``duration``; ``wait``: time until the last rank started,
        at most the duration; ``last``: whether this rank was the last."""
        import pandas

        place = np.empty(len(self.collectives), np.int64)
        place[self._order] = np.arange(len(place))
        frames, before = [], 0
        for group, waits in zip(self._groups, self._waits, strict=True):
            row, column = np.nonzero(~np.isnan(group.start))
            frames.append(
                pandas.DataFrame(
                    {
                        "call": place[before + row],
                        "rank": self._numbers[group.members[column]],
                        "start": group.start[row, column] + self._shift[group.members[0]] - self._first,
                        "duration": group.duration[row, column],
                        "wait": waits.wait[row, column],
                        "last": waits.last[row] == column,
                    }
                )
            )
            before += len(group.kind)
        if not frames:
            return pandas.DataFrame({name: [] for name in ("call", "rank", "start", "duration", "wait", "last")})
        return pandas.concat(frames).sort_values(["call", "rank"], kind="stable").reset_index(drop=True)

    def skew_uncertainty(self, place: int) -> Floats:
        """Return the standard errors of the skews of a group's calls: those of the clocks of the first and the last
        rank, in µs; NaN where a clock is unknown."""
        group, waits = self._groups[place], self._waits[place]
        clock = self._clocks.uncertainty[group.members]
        found: Floats = np.hypot(clock[waits.last], clock[np.nanargmin(group.start, axis=1)])
        return found

    def on_first_clock(self, place: int, times: npt.NDArray[np.int64]) -> Floats:
        """Return times of a rank's clock, in ns, as µs on the clock of the first rank it is aligned with, since the
        first collective of the first rank."""
        local = (times - self._matched.origins[place]) / 1000
        moved: Floats = self._clocks.aligned(place, local) + self._shift[place]
        return moved

    @cached_property
    def _first(self) -> float:
        """Start of the first collective, in the times of the groups."""
        starts = [np.nanmin(group.start) + self._shift[group.members[0]] for group in self._groups]
        return float(min(starts, default=0.0))

    def rank_rows(self, most: int) -> list[str | Rows]:
        """Return a table of the ranks and its legend, with the ``most`` ranks that others waited for longest."""
        header = ("rank", "collectives", "unmatched", "came last", "waited", "of its time", "awaited", "clock")
        shown = self.ranks if len(self.ranks) <= most else self.ranks.nlargest(most, "awaited")
        rows = [
            (
                str(row["rank"]),
                str(row["collectives"]),
                str(row["unmatched"]),
                str(row["times_last"]),
                units.short_time_text(row["waited"]),
                units.percent_text(row["waited_pct"]),
                units.short_time_text(row["awaited"]),
                with_error(row["clock_offset"], row["clock_uncertainty"]),
            )
            for row in shown.to_dict("records")
        ]
        legend = ["  waited: time spent waiting for the last rank; awaited: time that others waited for this rank"]
        if len(shown) < len(self.ranks):
            legend.append(f"  {len(shown)} of {len(self.ranks):,} ranks, those that others waited for longest")
        return [Rows([header, *rows]), *legend]

    def __str__(self) -> str:
        from flopscope.views.summary import Summary

        if not self._groups:
            return "No collective could be matched across ranks.\n"
        worst = self.collectives.sort_values("skew", ascending=False, kind="stable").head(SHOWN)
        header = ("collective", "group", "MB", "start", "last", "skew", "transfer", "bus GB/s")
        calls = [header] + [
            (
                row["collective"],
                printable(row["group"]),
                units.tenths_text(row["message_bytes"] / 1e6),
                units.short_time_text(row["start"]),
                f"rank {row['straggler']}",
                with_error(row["skew"], row["skew_uncertainty"]),
                units.short_time_text(row["transfer"]),
                units.tenths_text(row["bus_gbytes_per_s"]),
            )
            for row in worst.to_dict("records")
        ]
        title = f"Largest skews ({LEGEND})"
        return f"{Summary(['Ranks', *self.rank_rows(RANKS_SHOWN), '', title, Rows(calls)], {})}\n"


LEGEND = "±: standard error of the clocks"


def with_error(time: float, error: float) -> str:
    """Return a time in µs and its standard error as text."""
    return f"{units.short_time_text(time)} ± {units.short_time_text(error)}"


_COLLECTIVE_COLUMNS = (
    *("collective", "group", "message_bytes", "number", "count", "straggler", "start", "skew", "skew_uncertainty"),
    *("transfer", "bus_gbytes_per_s"),
)


def find_stragglers(numbers: Sequence[int], calls: Sequence[Calls]) -> Stragglers:
    """Match the calls of the ranks of these numbers, and align their clocks."""
    matched = match(calls)
    clocks = align(matched.groups, len(numbers))
    return Stragglers(numbers, matched, clocks)


@suggesting
def stragglers(traces: Sequence[Results] | Mapping[int, Results]) -> Stragglers:
    """Find the ranks that others wait for in the collectives of a distributed program.

    traces: at least two, one of each rank: traces from load_trace(), whose "distributedInfo" names their rank, or a
        dict of traces by rank. For many ranks, load_ranks() reads the files and needs less memory.

    Collectives are matched across ranks by their process group and sequence number, or by kind, message size and order
    if PyTorch recorded no sequence numbers; point-to-point calls are omitted. If the traces name no process group, as
    with torch before 2.2, all collectives called by ops of the trace are assumed to be of one group of all ranks; if
    sizes are missing too, collectives are matched by kind and order.

    The ranks' clocks are aligned by the ends of the collectives that end on all ranks nearly at once (allreduce,
    allgather, reducescatter, alltoall, barrier), as flopscope.ranks.clocks describes: offsets, and drifts where enough
    calls show one. A delay that is equal in all groups of a rank is attributed to its clock.

    The rank that starts a collective last is its straggler and has the shortest kernel: the kernels of the other ranks
    run, and wait, from their own start to the straggler's.

    Raises ValueError for fewer than two traces, a trace without a rank, two traces of one rank or one process (such as
    two cycles of a schedule), and a trace with an invalid "distributedInfo" or "baseTimeNanoseconds".
    """
    by_rank = _by_rank(traces)
    calls = [
        calls_of(store_of(trace, "collectives").collectives()[0], base_time_of(trace, source_of(trace, place)))
        for place, trace in enumerate(by_rank.values())
    ]
    return find_stragglers(list(by_rank), calls)


def _by_rank(traces: Sequence[Results] | Mapping[int, Results]) -> dict[int, Results]:
    if not isinstance(traces, Iterable):
        raise TypeError(f"stragglers() needs a sequence of traces, one of each rank, or a dict of them, not {traces!r}")
    if isinstance(traces, Mapping):
        pairs = [(int(rank), trace) for rank, trace in traces.items()]
    else:
        pairs = [(_rank_of(trace, place), trace) for place, trace in enumerate(traces)]
    if len(pairs) < 2:
        raise ValueError(f"stragglers() needs the traces of at least two ranks, not of {len(pairs)}")
    require_different_processes([trace for _, trace in pairs])
    return dict(sorted(pairs, key=lambda pair: pair[0]))


def _rank_of(trace: Results, place: int) -> int:
    source = source_of(trace, place)
    rank = rank_of(trace, source)
    if rank is None:
        raise ValueError(
            f'{source} does not name its rank (no "distributedInfo" in its metadata): pass a dict, {{rank: trace}}'
        )
    return rank

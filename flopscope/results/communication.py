"""Communication between GPUs: what each collective moved and how fast, what of it nothing hid, and who waits for whom.

All numbers of one profile come from the C core; here they become DataFrames, and the profiles of several ranks are
put side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flopscope.results.process import base_time_of, rank_of, require_different_processes, source_of
from flopscope.support import units
from flopscope.support.safe import printable

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store
    from flopscope.results.results import Results

__all__ = ["Stragglers", "collectives", "stragglers", "stream_summary"]


def collectives(core: Store) -> pandas.DataFrame:
    """Every kernel of communication (NCCL, RCCL, …), one row each in order of start; times in µs, bandwidths in GB/s.

    PyTorch tells with most NCCL kernels what they were called for. Where it does not (traces of torch before 2.2, and
    RCCL's ncclDevKernel_Generic, whose name has no kind), the ops and annotations around the launch tell the kind, and
    with input shapes the sizes: record_param_comms, c10d::allreduce_, nccl:all_reduce, …. Of a kernel that was launched
    before the trace began only its name tells the kind. What is not told is missing.

    collective: "allreduce", "reducescatter", "allgather", "alltoall", "broadcast", "reduce", "gather", "scatter",
        "barrier", "send", "recv", "sendrecv" or "other".
    name, group, group_size, ranks, dtype: as PyTorch tells them, or name the op or annotation that told; group_size in
        ranks.
    device, stream, start (since the profile began), duration: of this rank's kernel. It runs while it waits for the
        other ranks, so the bandwidths are those of the links only of the rank that came last: see stragglers().
    message_bytes: the larger of what this rank gave and got, the size that nccl-tests goes by: of an allgather and a
        reducescatter the whole, not a rank's part.
    exposed: of the duration, the time in which no other kernel than communication ran on the device.
    algorithm_gbytes_per_s: message_bytes / duration.
    bus_gbytes_per_s: that times 2 (n - 1) / n for allreduce among n ranks, (n - 1) / n for allgather, reducescatter,
        alltoall, gather and scatter, 1 for broadcast, reduce, send and recv, which makes it comparable with the speed
        of a link (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
    occurrence: how many of the same device, group, kind and message came before.
    sequence: the number that PyTorch gave the call within its group, where it tells it.
    kernel: its name.

    RuntimeError while the profile is running.
    """
    from flopscope.results.events import MISSING, EventList
    from flopscope.results.summary import _frame

    columns, begin = core.collectives()
    if begin == MISSING and columns["start"]:
        begin = EventList(core)._begin
    starts = [(start - begin) / 1000 for start in columns["start"]]
    return _whole_numbers(_frame({**columns, "start": starts}), "group_size", "stream", "sequence")


def stream_summary(core: Store) -> pandas.DataFrame:
    """How long each stream worked, and beside which others: times in µs, shares in percent, NaN of nothing.

    Of each device a row for each stream, then one for the device as a whole, whose stream is missing.

    kernels, copies: how many; fills are copies too.
    busy: time in which the stream worked; what overlaps counts once.
    overlapped, overlapped_pct: of that, the time in which another stream of the device worked too.
    communication: time in which a kernel of communication ran.
    exposed_communication, exposed_pct: of that, the time in which no other kernel ran on the device.

    RuntimeError while the profile is running.
    """
    from flopscope.results.summary import _frame

    frame = _whole_numbers(_frame(core.stream_summary()), "stream")
    return frame.astype({"kernels": int, "copies": int})


def _whole_numbers(frame: pandas.DataFrame, *names: str) -> pandas.DataFrame:
    """With the columns of those names as integers that may be missing."""
    return frame.astype(dict.fromkeys(names, "Int64"))


# Across ranks ------------------------------------------------------------------------------------------------------

KEY = ["group", "ranks", "collective", "message_bytes", "number"]
TOGETHER = ("allreduce", "reducescatter", "allgather", "alltoall", "barrier")  # end on all ranks at once
ONE_SIDED = ("send", "recv", "sendrecv", "other")  # not the same call on all ranks
UNSIZED = -1.0  # bytes, in KEY, where no trace tells sizes
SHOWN = 5


@dataclass(frozen=True, eq=False)
class Stragglers:
    """Who waits for whom, as stragglers() found it; print it for a summary. Times in µs."""

    ranks: pandas.DataFrame
    """A row per rank. ``collectives``: that were matched; ``unmatched``: that were not; ``times_last``: how often it
    came last; ``waited``: for whoever came last, in all; ``waited_pct``: that in percent of its matched collectives'
    time; ``awaited``: what the others waited for it, in all; ``clock_offset``: its clock less that of the first rank
    that it shares collectives with; ``clock_spread``: median of how far single ends differ from that offset."""
    collectives: pandas.DataFrame
    """A row per matched collective in order of time. ``collective``, ``group``, ``message_bytes``; ``number``: its
    sequence, or its occurrence where PyTorch does not tell that; ``count``: ranks that were matched; ``straggler``: the
    rank that came last; ``start``: of that, since the first collective began; ``skew``: from the first rank's start to
    the last one's; ``transfer``: from the last start to the end of that kernel; ``bus_gbytes_per_s``: by that time, so
    without the wait."""
    waits: pandas.DataFrame
    """A row per matched collective and rank. ``call``: the row in ``collectives``; ``rank``; ``start``, in the first
    rank's clock, since the first collective began; ``duration``; ``wait``: until the last rank came, but no longer than
    the duration; ``last``: whether it was that rank."""

    def __str__(self) -> str:
        from flopscope.results.summary import table_lines

        if len(self.collectives) == 0:
            return "No collective could be matched across ranks.\n"
        header = ("rank", "collectives", "unmatched", "came last", "waited", "of its time", "awaited", "clock")
        lines = [header] + [
            (
                str(row["rank"]),
                str(row["collectives"]),
                str(row["unmatched"]),
                str(row["times_last"]),
                units.short_time_text(row["waited"]),
                units.percent_text(row["waited_pct"]),
                units.short_time_text(row["awaited"]),
                f"{units.short_time_text(row['clock_offset'])} ± {units.short_time_text(row['clock_spread'])}",
            )
            for row in self.ranks.to_dict("records")
        ]
        worst = self.collectives.sort_values("skew", ascending=False, kind="stable").head(SHOWN)
        header = ("collective", "group", "MB", "start", "last", "skew", "transfer", "bus GB/s")
        calls = [header] + [
            (
                row["collective"],
                printable(row["group"]),
                units.tenths_text(row["message_bytes"] / 1e6),
                units.short_time_text(row["start"]),
                f"rank {row['straggler']}",
                units.short_time_text(row["skew"]),
                units.short_time_text(row["transfer"]),
                units.tenths_text(row["bus_gbytes_per_s"]),
            )
            for row in worst.to_dict("records")
        ]
        said = "  waited: for whoever came last; awaited: what the others waited for this rank"
        return "\n".join(["Ranks", *table_lines(lines), said, "", "Largest skews", *table_lines(calls), ""])


def stragglers(traces: Sequence[Results] | Mapping[int, Results]) -> Stragglers:
    """Who waits for whom in the collectives of a distributed program.

    traces: one of each rank, at least two: what load_trace() gives, which knows its rank by the trace's
        "distributedInfo", or a dict of them by rank.

    The n-th collective of the same process group, kind and message size is taken to be the same on all ranks, or, where
    PyTorch tells it, the one of the same sequence number; point-to-point calls are left out. Where the traces name no
    process group at all, as those of torch before 2.2 do not, all collectives that ops of the trace called are taken to
    be of one group, the traces' ranks; where they tell no sizes either, the n-th of a kind is.

    The ranks' clocks are aligned by the ends of the collectives that end on all ranks nearly at once (allreduce,
    allgather, reducescatter, alltoall, barrier): a rank's offset is the median of the differences of its ends to those
    of the ranks before it. A drift of the clocks within the traces is not taken out; ``ranks.clock_spread`` says how
    well the ends agree.

    Whoever starts a collective last is its straggler, the rank with the shortest kernel: the others' kernels run, and
    wait, from their own start to that one's.

    ValueError for less than two traces, a trace without a rank, two of one rank or of one process (as the cycles of a
    schedule are), and a trace whose "distributedInfo" or "baseTimeNanoseconds" makes no sense.
    """
    by_rank = _by_rank(traces)
    calls = _calls(by_rank)
    own = {rank: int((calls["rank"] == rank).sum()) for rank in by_rank}
    calls = _matchable(calls[~calls["collective"].isin(ONE_SIDED)])
    calls = calls.drop_duplicates([*KEY, "rank"])  # a process with several GPUs: the first of them
    calls = calls[calls.groupby(KEY)["rank"].transform("size") > 1]
    offsets, spreads = _clock_offsets(calls, list(by_rank))
    calls = calls.assign(start=calls["start"] - calls["rank"].map(offsets).astype(float))
    calls["start"] -= calls["start"].min()
    calls = calls.sort_values(["start", "rank"], kind="stable")

    groups = calls.groupby(KEY, sort=False)
    calls["call"] = groups.ngroup()
    calls["latest"] = groups["start"].transform("max")
    calls["last"] = calls.index.isin(groups["start"].idxmax())
    calls["wait"] = (calls["latest"] - calls["start"]).clip(upper=calls["duration"])
    return Stragglers(_rank_rows(calls, own, offsets, spreads), _collective_rows(calls), _wait_rows(calls))


def _matchable(calls: pandas.DataFrame) -> pandas.DataFrame:
    """The calls of known group and size; where no trace tells groups, or sizes, those that an op of the trace called.

    What neither is told of was launched before its trace began: its like on other ranks may be in no trace.
    """
    if (calls["group"] != "").any():
        return calls[(calls["group"] != "") & calls["message_bytes"].notna()]
    calls = calls[calls["name"] != ""]
    if calls["message_bytes"].notna().any():
        calls = calls[calls["message_bytes"].notna()]
    calls = calls.assign(message_bytes=calls["message_bytes"].fillna(UNSIZED))
    return calls.assign(number=calls.groupby(["rank", "device", "collective", "message_bytes"]).cumcount())


def _by_rank(traces: Sequence[Results] | Mapping[int, Results]) -> dict[int, Results]:
    if isinstance(traces, Mapping):
        pairs = [(int(rank), trace) for rank, trace in traces.items()]
    else:
        pairs = [(_rank_of(trace, place), trace) for place, trace in enumerate(traces)]
    if len(pairs) < 2:
        raise ValueError(f"stragglers() compares the traces of at least two ranks, not of {len(pairs)}")
    require_different_processes([trace for _, trace in pairs])
    return dict(sorted(pairs, key=lambda pair: pair[0]))


def _rank_of(trace: Results, place: int) -> int:
    source = source_of(trace, place)
    rank = rank_of(trace, source)
    if rank is None:
        raise ValueError(
            f'{source} does not say its rank (no "distributedInfo" in its metadata): give a dict, {{rank: trace}}'
        )
    return rank


def _calls(by_rank: Mapping[int, Results]) -> pandas.DataFrame:
    """All ranks' collectives: start and duration in µs, on each rank's own clock since a moment that they share."""
    import pandas

    told = {rank: trace._recorded("collectives").collectives()[0] for rank, trace in by_rank.items()}
    bases = {rank: base_time_of(trace, source_of(trace, i)) for i, (rank, trace) in enumerate(by_rank.items())}
    first = min((bases[rank] + start for rank, columns in told.items() for start in columns["start"]), default=0)
    names = ("rank", "device", "name", *KEY, "start", "duration", "bus_gbytes_per_s")
    every: dict[str, list[Any]] = {name: [] for name in names}
    for rank, columns in told.items():
        every["rank"] += [rank] * len(columns["start"])
        for name in ("name", "group", "ranks"):
            every[name] += [text or "" for text in columns[name]]
        for name in ("device", "collective", "message_bytes", "duration", "bus_gbytes_per_s"):
            every[name] += columns[name]
        numbers = zip(columns["sequence"], columns["occurrence"], strict=True)
        every["number"] += [occurrence if sequence is None else sequence for sequence, occurrence in numbers]
        every["start"] += [(bases[rank] + start - first) / 1000 for start in columns["start"]]
    return pandas.DataFrame(every)


def _clock_offsets(calls: pandas.DataFrame, ranks: Sequence[int]) -> tuple[dict[int, float], dict[int, float]]:
    """Each rank's clock less the first one's, in µs, and the median deviation of single ends from it.

    Ranks that share no collective with those before them, nor with any that does, have a clock of their own: offset 0.
    """
    some = calls[calls["collective"].isin(TOGETHER)]
    some = some if len(some) else calls
    ends = some.assign(end=some["start"] + some["duration"]).pivot(index=KEY, columns="rank", values="end")
    offsets: dict[int, float] = {}
    spreads: dict[int, float] = {}
    while len(offsets) < len(ranks):
        aligned = [rank for rank in offsets if rank in ends]
        shares = {}
        if aligned:
            known = (ends[aligned] - [offsets[rank] for rank in aligned]).median(axis=1)
            shares = {rank: (ends[rank] - known).dropna() for rank in ranks if rank not in offsets and rank in ends}
        best = max(shares, key=lambda rank: len(shares[rank]), default=None)  # the first of those that share most
        if best is None or len(shares[best]) == 0:
            alone = next(rank for rank in ranks if rank not in offsets)
            offsets[alone] = spreads[alone] = 0.0
            continue
        offsets[best] = float(shares[best].median())
        spreads[best] = float((shares[best] - offsets[best]).abs().median())
    return offsets, spreads


def _rank_rows(
    calls: pandas.DataFrame, own: Mapping[int, int], offsets: Mapping[int, float], spreads: Mapping[int, float]
) -> pandas.DataFrame:
    import pandas

    last = calls[calls["last"]].set_index("call")["rank"]
    blamed = calls["call"].map(last)
    rows = []
    for rank, count in own.items():
        mine = calls[calls["rank"] == rank]
        waited, time = float(mine["wait"].sum()), float(mine["duration"].sum())
        rows.append(
            {
                "rank": rank,
                "collectives": len(mine),
                "unmatched": count - len(mine),
                "times_last": int(mine["last"].sum()),
                "waited": waited,
                "waited_pct": 100 * waited / time if time else float("nan"),
                "awaited": float(calls.loc[blamed == rank, "wait"].sum()),
                "clock_offset": offsets[rank],
                "clock_spread": spreads[rank],
            }
        )
    return pandas.DataFrame(rows)


def _collective_rows(calls: pandas.DataFrame) -> pandas.DataFrame:
    groups = calls.groupby("call")
    rows = calls[calls["last"]].set_index("call").sort_index()
    rows = rows.assign(count=groups.size(), skew=rows["start"] - groups["start"].min())
    rows["message_bytes"] = rows["message_bytes"].where(rows["message_bytes"] != UNSIZED)
    rows = rows.rename(columns={"rank": "straggler", "duration": "transfer"}).rename_axis(None)
    wanted = ["collective", "group", "message_bytes", "number", "count", "straggler", "start", "skew", "transfer"]
    return rows[[*wanted, "bus_gbytes_per_s"]]


def _wait_rows(calls: pandas.DataFrame) -> pandas.DataFrame:
    rows = calls.sort_values(["call", "rank"], kind="stable")
    return rows[["call", "rank", "start", "duration", "wait", "last"]].reset_index(drop=True)

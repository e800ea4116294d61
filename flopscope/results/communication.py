"""Communication between GPUs: size, bandwidth and exposed time of collectives, and the ranks that others wait for.

All numbers of one profile come from the C core; this module makes DataFrames of them and compares several ranks.
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
    """Return a row for each communication kernel (NCCL, RCCL, …), in order of start; times in µs, bandwidths in GB/s.

    PyTorch records the arguments of the call with most NCCL kernels. Without them (traces of torch before 2.2, and
    RCCL's ncclDevKernel_Generic, whose name has no kind), the kind, and with input shapes the size, come from the ops
    and annotations around the launch: record_param_comms, c10d::allreduce_, nccl:all_reduce, …. For a kernel launched
    before the trace began, only its name gives the kind. Unknown values are missing.

    collective: "allreduce", "reducescatter", "allgather", "alltoall", "broadcast", "reduce", "gather", "scatter",
        "barrier", "send", "recv", "sendrecv" or "other".
    name, group, group_size, ranks, dtype: as recorded by PyTorch, or name is the op or annotation that the values come
        from; group_size in ranks.
    device, stream, start (since the profile began), duration: of this rank's kernel. It runs while it waits for other
        ranks, so only on the rank that came last are the bandwidths those of the links: see stragglers().
    message_bytes: the larger of the bytes that this rank sent and received, as in nccl-tests: for allgather and
        reducescatter the whole message, not one rank's part.
    exposed: the part of the duration in which no kernel except communication ran on the device.
    algorithm_gbytes_per_s: message_bytes / duration.
    bus_gbytes_per_s: algorithm_gbytes_per_s times 2 (n - 1) / n for allreduce among n ranks, (n - 1) / n for allgather,
        reducescatter, alltoall, gather and scatter, 1 for broadcast, reduce, send and recv: comparable with the
        bandwidth of a link (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
    occurrence: number of earlier collectives with the same device, group, kind and message size.
    sequence: sequence number of the call within its group, if PyTorch recorded it.
    kernel: name of the kernel.

    Raises RuntimeError while the profile is running.
    """
    from flopscope.results.events import MISSING, EventList
    from flopscope.results.summary import _frame

    columns, begin = core.collectives()
    if begin == MISSING and columns["start"]:
        begin = EventList(core)._begin
    starts = [(start - begin) / 1000 for start in columns["start"]]
    return _whole_numbers(_frame({**columns, "start": starts}), "group_size", "stream", "sequence")


def stream_summary(core: Store) -> pandas.DataFrame:
    """Return the busy, overlapped and communication times of each stream in µs, with shares in percent.

    Each device has a row for each stream, then one for the whole device, whose stream is missing. Shares of no time are
    NaN.

    kernels, copies: number of kernels, and of copies and fills.
    busy: time in which the stream worked; overlaps count once.
    overlapped, overlapped_pct: the part of busy in which another stream of the device worked too.
    communication: time in which a communication kernel ran.
    exposed_communication, exposed_pct: the part of communication in which no other kernel ran on the device.

    Raises RuntimeError while the profile is running.
    """
    from flopscope.results.summary import _frame

    frame = _whole_numbers(_frame(core.stream_summary()), "stream")
    return frame.astype({"kernels": int, "copies": int})


def _whole_numbers(frame: pandas.DataFrame, *names: str) -> pandas.DataFrame:
    """Return the frame with the named columns as nullable integers."""
    return frame.astype(dict.fromkeys(names, "Int64"))


# Across ranks ------------------------------------------------------------------------------------------------------

KEY = ["group", "ranks", "collective", "message_bytes", "number"]
TOGETHER = ("allreduce", "reducescatter", "allgather", "alltoall", "barrier")  # end on all ranks at once
ONE_SIDED = ("send", "recv", "sendrecv", "other")  # not the same call on all ranks
UNSIZED = -1.0  # bytes, in KEY, if no trace has sizes
SHOWN = 5


@dataclass(frozen=True, eq=False)
class Stragglers:
    """The result of stragglers(): which ranks wait for which. Print it for a summary. Times are in µs."""

    ranks: pandas.DataFrame
    """A row per rank. ``collectives``: number matched; ``unmatched``: number not matched; ``times_last``: how often it
    came last; ``waited``: total time that it waited for the last rank; ``waited_pct``: waited in percent of the time of
    its matched collectives; ``awaited``: total time that others waited for it; ``clock_offset``: its clock minus that
    of the first rank it shares collectives with; ``clock_spread``: median deviation of single ends from that."""
    collectives: pandas.DataFrame
    """A row per matched collective in order of time. ``collective``, ``group``, ``message_bytes``; ``number``: its
    sequence, or its occurrence if PyTorch did not record that; ``count``: matched ranks; ``straggler``: the rank that
    came last; ``start``: start on that rank, since the first collective began; ``skew``: from the first rank's start to
    the last rank's; ``transfer``: from the last start to the end of that kernel; ``bus_gbytes_per_s``: over transfer,
    so without the wait."""
    waits: pandas.DataFrame
    """A row per matched collective and rank. ``call``: the row in ``collectives``; ``rank``; ``start``: on the first
    rank's clock, since the first collective began; ``duration``; ``wait``: time until the last rank started, at most
    the duration; ``last``: whether this rank was the last."""

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
        legend = "  waited: time spent waiting for the last rank; awaited: time that others waited for this rank"
        return "\n".join(["Ranks", *table_lines(lines), legend, "", "Largest skews", *table_lines(calls), ""])


def stragglers(traces: Sequence[Results] | Mapping[int, Results]) -> Stragglers:
    """Find the ranks that others wait for in the collectives of a distributed program.

    traces: at least two, one of each rank: traces from load_trace(), whose "distributedInfo" names their rank, or a
        dict of traces by rank.

    Collectives are matched across ranks by their process group, kind, message size and sequence number, or by order if
    PyTorch recorded no sequence numbers; point-to-point calls are omitted. If the traces name no process group, as with
    torch before 2.2, all collectives called by ops of the trace are assumed to be of one group of all ranks; if sizes
    are missing too, collectives are matched by kind and order.

    The ranks' clocks are aligned by the ends of the collectives that end on all ranks nearly at once (allreduce,
    allgather, reducescatter, alltoall, barrier): a rank's offset is the median difference of its ends from those of the
    ranks before it. Drift of the clocks within the traces is not corrected; ``ranks.clock_spread`` tells how well the
    ends agree.

    The rank that starts a collective last is its straggler and has the shortest kernel: the kernels of the other ranks
    run, and wait, from their own start to the straggler's.

    Raises ValueError for fewer than two traces, a trace without a rank, two traces of one rank or one process (such as
    two cycles of a schedule), and a trace with an invalid "distributedInfo" or "baseTimeNanoseconds".
    """
    by_rank = _by_rank(traces)
    calls = _calls(by_rank)
    own = {rank: int((calls["rank"] == rank).sum()) for rank in by_rank}
    calls = _matchable(calls[~calls["collective"].isin(ONE_SIDED)])
    calls = calls.drop_duplicates([*KEY, "rank"])  # keep only the first GPU of a process with several
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
    """Return the calls with a known group and size, or those called by an op if no trace has groups or sizes.

    The other calls were launched before their trace began, so the traces of other ranks may lack them.
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


def _calls(by_rank: Mapping[int, Results]) -> pandas.DataFrame:
    """Return the collectives of all ranks; starts are in µs on each rank's clock, since a common moment."""
    import pandas

    collectives = {rank: trace._recorded("collectives").collectives()[0] for rank, trace in by_rank.items()}
    bases = {rank: base_time_of(trace, source_of(trace, i)) for i, (rank, trace) in enumerate(by_rank.items())}
    first = min((bases[rank] + start for rank, columns in collectives.items() for start in columns["start"]), default=0)
    names = ("rank", "device", "name", *KEY, "start", "duration", "bus_gbytes_per_s")
    every: dict[str, list[Any]] = {name: [] for name in names}
    for rank, columns in collectives.items():
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
    """Return each rank's clock minus the first rank's, in µs, and the median deviation of single ends from it.

    Ranks without a direct or indirect shared collective with an earlier rank keep their own clock: offset 0.
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

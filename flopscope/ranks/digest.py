"""A profile of one rank, reduced to what a comparison of ranks needs: about a megabyte, whatever the trace's size.

Sources of digests are any iterables of a Digest for each rank, and a Failure for each profile that has none.
load_ranks() makes one of files, which workers read. digests_of() makes one of profiles in memory. A list is one too,
such as one that a program has kept in a file. Ranks(source) compares the ranks.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flopscope.answers.accounting import accounting_columns
from flopscope.answers.analysis import Analysis
from flopscope.answers.lines import lines_of, waited_for
from flopscope.ranks.calls import Calls, calls_of
from flopscope.ranks.engine import Failure
from flopscope.read.paths import NoFiles
from flopscope.results import head
from flopscope.results.head import rank_of
from flopscope.results.process import base_time_of, source_of
from flopscope.results.results import grouped, store_of
from flopscope.support.model import index_of
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope._core import Store
    from flopscope.results.results import Results

ROWS = 4096
"""Rows of a rank's table that are kept, those with the most time; one more has the sums of the rest."""
REST = "(other ops)"
LINES = 32
"""Lines of the program that are kept, those in which a device waited longest."""
IN_NAME = re.compile(r"rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)
WORKER = re.compile(r"(.+?)_\d+\.\d+\.pt\.trace\.json(\.\w+)?")  # {host}_{pid}.{ns}.pt.trace.json, as torch names files


@dataclass(frozen=True)
class Identity:
    """Which rank of which program a profile is of."""

    source: str
    rank: int
    rank_from: str
    """What named the rank: "trace", "file name" or "order"."""
    world_size: int | None
    host: str | None
    """From the file's name, where torch or the program wrote it there."""
    device: str | None
    """Name of the GPU that worked."""
    device_index: int | None
    gpus_here: int | None
    """Number of GPUs that the process saw."""


@dataclass(frozen=True)
class LastCall:
    """The last calls of a process group's collectives on a rank, where PyTorch recorded sequence numbers."""

    group: str
    ranks: str
    called: int = -1
    """Sequence number of the last call; -1 if the rank, which the group names, called none."""
    collective: str = ""
    """Kind of the last call."""
    ran: int = -1
    """Sequence number of the last call whose kernel is recorded; -1 without any."""
    waiting: int = -1
    """Sequence number of the first call after it, whose kernel is not recorded; -1 without any."""
    waiting_collective: str = ""
    waiting_start: int = 0
    """ns on the rank's clock."""


@dataclass(frozen=True)
class Digest:
    """What is kept of a rank."""

    identity: Identity
    events: int
    calls: Calls
    last_calls: list[LastCall]
    step_names: list[str]
    """Each name once, also if several steps have it."""
    accounting: dict[str, list[Any]]
    """Columns of Results.accounting()."""
    table: dict[str, Any]
    """The columns KEPT of the table grouped by shape; at most ROWS rows and one for the rest. Text columns are lists,
    the others arrays; shapes and dtypes are the texts of lists, which are read and compared faster."""
    has_shapes: bool
    memory_peak: float
    """Largest sum of the memory changes on a device that were recorded, in bytes; NaN without any."""
    dropped: int
    """Events of the trace that are in no table."""
    lines: dict[tuple[str, str], float] = field(default_factory=dict)
    """µs in which a device waited for the host, where stacks were sampled: by the line that the thread was in whose
    launch ended the wait, and the line that it was in within that. The LINES longest."""
    problems: list[str] = field(default_factory=list)
    """Warnings that reading issued."""

    @property
    def rank(self) -> int:
        """Rank in the program."""
        return self.identity.rank

    @property
    def steps(self) -> int:
        """Number of steps with different names; 0 if the program marked none."""
        return len(self.step_names)


def rank_of_name(path: str) -> int | None:
    """Return the rank that a file's name names, such as rank3.json.gz or trace_rank-12.json; None without one."""
    found = IN_NAME.findall(os.path.basename(path))
    return int(found[-1]) if found else None


def digest_of(trace: Results, source: str, place: int, peaks: str = "datasheet") -> Digest:
    """Reduce a profile. ``place``: its place among the files, its rank if nothing names one.

    Raises ValueError for invalid metadata of the trace.
    """
    core, base = store_of(trace, "digest"), base_time_of(trace, source)
    rows = grouped(trace, core, peaks, account=True)
    analysis = Analysis(core, rows, trace.graphs)
    return Digest(
        identity=_identity(trace, source, place),
        events=core.event_count,
        calls=calls_of(core.collectives()[0], base),
        last_calls=_last_calls(core.collective_calls(), base),
        step_names=list(dict.fromkeys(str(step.name) for step in analysis.steps if step.name is not None)),
        accounting=accounting_columns(analysis),
        table=_largest(rows.columns),
        has_shapes=bool(core.has_shapes),
        memory_peak=_memory_peak(trace) if rows.facts.has_memory else float("nan"),
        dropped=trace.dropped,
        lines=_waits(core, analysis.apart),
    )


def _identity(trace: Results, source: str, place: int) -> Identity:
    ranks = {"trace": rank_of(trace.metadata, source), "file name": rank_of_name(source), "order": place}
    origin, rank = next((origin, rank) for origin, rank in ranks.items() if rank is not None)
    devices: Mapping[int, str] = getattr(trace, "devices", {})
    ran = sorted(index_of(name) for name in store_of(trace, "digest").devices if name != "cpu")
    index = ran[0] if ran else None
    worker = WORKER.fullmatch(os.path.basename(source))
    return Identity(
        source=source,
        rank=rank,
        rank_from=origin,
        world_size=head.world_size_of(trace.metadata, source),
        host=None if worker is None else worker[1],
        device=devices.get(index) if index is not None else None,
        device_index=index,
        gpus_here=head.gpus_of(trace.metadata),
    )


def _last_calls(columns: Mapping[str, Sequence[Any]], base: int) -> list[LastCall]:
    groups: dict[tuple[str, str], list[tuple[int, bool, str, int]]] = {}
    names = ("group", "ranks", "sequence", "ran", "collective", "start")
    for group, ranks, sequence, ran, collective, start in zip(*(columns[name] for name in names), strict=True):
        if sequence is not None and group:
            groups.setdefault((group, ranks or ""), []).append((sequence, bool(ran), collective, start + base))
    found = []
    for key, calls in groups.items():
        called, _, collective, _ = max(calls, key=lambda call: call[0])
        ran = max((sequence for sequence, done, _, _ in calls if done), default=-1)
        waiting, _, kind, start = min((call for call in calls if call[0] > ran), default=(-1, False, "", 0))
        found.append(LastCall(*key, called, collective, ran, waiting, kind, start))
    return found


def _memory_peak(trace: Results) -> float:
    """Return the largest sum of the recorded changes of memory on one device, from the start of the recording."""
    columns, _, kinds, _ = store_of(trace, "digest").events()
    chosen = (columns["kind"] == kinds.index("memory")) & (columns["device"] >= 0)
    if not chosen.any():
        return float("nan")
    start, device, change = (columns[name][chosen] for name in ("start", "device", "bytes"))
    order = np.argsort(start, kind="stable")
    peaks = [np.cumsum(change[order][device[order] == one]).max() for one in np.unique(device)]
    return float(max(0, *peaks))


def _waits(core: Store, first_step: int) -> dict[tuple[str, str], float]:
    times: defaultdict[tuple[str, str], float] = defaultdict(float)
    for one in lines_of(core, first_step).lines:
        times[one.line, one.inside] += float(waited_for(one))
    longest = sorted(times, key=lambda line: -times[line])[:LINES]
    return {line: times[line] for line in longest if times[line] > 0}


# The table ------------------------------------------------------------------------------------------------------------

# The columns that are kept, and what the row for the rest has in them; None: the sum of its rows.
KEPT: dict[str, Any] = {
    **{"key": REST, "device_type": "cpu", "is_user_annotation": False, "bound": "unknown"},
    **dict.fromkeys(("input_shapes", "input_dtypes"), "[]"),
    **dict.fromkeys(("count", "self_cpu_time_total", "self_device_time_total", "device_busy_time")),
    **dict.fromkeys(("flops", "bytes_total_moved")),
    **dict.fromkeys(("time_median", "pct_roofline"), np.nan),
}
LISTS = ("input_shapes", "input_dtypes")


def _largest(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows with the most time of their own, and one more with the sums of the rest.

    Counted bytes are left out: ranks are compared by the work that they had to do.
    """
    counted = np.asarray(columns["bytes_source"]) == "counted"
    moved = np.where(counted, np.nan, np.asarray(columns["bytes_total_moved"]))
    columns = {**columns, "bytes_total_moved": moved}
    columns = {
        name: list(map(str, values)) if name in LISTS else values if isinstance(values, list) else np.asarray(values)
        for name, values in ((name, columns[name]) for name in KEPT)
    }
    if len(columns["key"]) <= ROWS:
        return columns
    time = np.nan_to_num(columns["self_device_time_total"]) + 1e-3 * np.nan_to_num(columns["self_cpu_time_total"])
    order = np.argsort(-time, kind="stable")
    kept, rest = np.sort(order[:ROWS]), order[ROWS:]
    table: dict[str, Any] = {}
    for name, last in KEPT.items():
        if isinstance(values := columns[name], np.ndarray):
            table[name] = np.append(values[kept], np.nansum(values[rest]) if last is None else last)
        else:
            table[name] = [*(values[i] for i in kept), sum(values[i] for i in rest) if last is None else last]
    return table


# Sources of digests ---------------------------------------------------------------------------------------------------

Source: TypeAlias = Iterable[Digest | Failure]
SHOWN = 3  # files that a message names


def digests_of(profiles: Mapping[int, Results], peaks: str = "datasheet") -> Iterator[Digest | Failure]:
    """Yield what load_ranks() would read from the files of these profiles, which are given by rank. peaks: as in
    key_averages(). A profile with invalid metadata is a Failure."""
    for place, (rank, profile) in enumerate(sorted(profiles.items())):
        source = source_of(profile, place)
        try:
            digest = digest_of(profile, source, place, peaks)
        except ValueError as problem:
            yield Failure(source, str(problem).removeprefix(f"{source}: "))
        else:
            origin = digest.identity.rank_from if digest.rank == rank else "trace"
            yield replace(digest, identity=replace(digest.identity, rank=rank, rank_from=origin))


def of_one_run(source: Source) -> tuple[list[Digest], list[Failure]]:
    """Return the digests by rank, and what is left out, second digests of a rank among them.

    Profiles whose rank nothing names get the numbers that are free, in their order. Raise ValueError without a digest.
    """
    found = list(source)
    digests = [one for one in found if isinstance(one, Digest)]
    failures = [one for one in found if isinstance(one, Failure)]
    if not digests:
        which = f"none of the {len(found):,} files" if len(found) > 1 else "no file"
        kind = NoFiles if all(failure.unopened for failure in failures) else ValueError
        raise kind(printable(f"{which} could be read: {listed(failures)}"))
    by_rank: dict[int, Digest] = {}
    for origin in ("trace", "file name"):
        for digest in (one for one in digests if one.identity.rank_from == origin):
            first = by_rank.setdefault(digest.rank, digest)
            if first is not digest:
                why = f"rank {digest.rank} was read from {first.identity.source} already"
                failures.append(Failure(digest.identity.source, why))
    free = (number for number in count() if number not in by_rank)
    unnamed = [one for one in digests if one.identity.rank_from == "order"]
    for digest, rank in zip(unnamed, free, strict=False):
        by_rank[rank] = replace(digest, identity=replace(digest.identity, rank=rank))
    return [by_rank[rank] for rank in sorted(by_rank)], failures


def listed(failures: Sequence[Failure]) -> str:
    first = "; ".join(f"{os.path.basename(one.source)} ({one.reason})" for one in failures[:SHOWN])
    return f"{first}; and {len(failures) - SHOWN:,} more" if len(failures) > SHOWN else first

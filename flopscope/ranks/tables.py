"""Tables across ranks: the collectives by group and size, and what is known of each rank, host and group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.ranks.calls import KINDS
from flopscope.ranks.finding import host_names

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas

    from flopscope.ranks.calls import Floats, Group
    from flopscope.ranks.digest import Digest
    from flopscope.ranks.stragglers import Stragglers
    from flopscope.ranks.work import Work

__all__ = ["collective_rows", "group_rows", "host_rows", "rank_facts"]

SPREAD = 0.95
NAMES = (
    *("collective", "group", "groups", "ranks", "hosts", "bytes_from", "bytes_to", "calls"),
    *("skew_median", "skew_p95", "skew_uncertainty", "transfer_median", "bus_gbytes_per_s"),
    *("time", "waited", "exposed"),
)


def collective_rows(digests: Sequence[Digest], waits: Stragglers, work: Work, by_group: bool) -> pandas.DataFrame:
    """Return the collectives by kind, size and group, or by equal groups; Ranks.collectives() has the columns."""
    import pandas

    hosts = np.array([host or "" for host in host_names(digests)], object)
    steps = float(np.median(work.step_counts))
    classes: dict[tuple[Any, ...], list[tuple[str, tuple[Floats, ...]]]] = {}
    for place, group in enumerate(waits._groups):
        values = _of_calls(group, waits, place)
        bucket = _buckets(group.message_bytes)
        here = len(set(hosts[group.members].tolist())) if hosts[0] else 0
        keys, which = np.unique(np.column_stack([group.kind, bucket]), axis=0, return_inverse=True)
        for number, (kind, size) in enumerate(keys.tolist()):
            rows = which.ravel() == number
            key = (KINDS[int(kind)], size, len(group.members), here, place if by_group else -1)
            classes.setdefault(key, []).append((group.name, tuple(one[rows] for one in values)))
    found = []
    for (kind, size, members, here, _), parts in classes.items():
        skew, uncertainty, transfer, bandwidth, *sums = (
            np.concatenate(columns) for columns in zip(*(values for _, values in parts), strict=True)
        )
        found.append(
            (
                *(kind, parts[0][0] if by_group else None, len(parts), members, here or None, *_edges(size), len(skew)),
                *(_median(skew), float(np.quantile(skew, SPREAD)), _median(uncertainty), _median(transfer)),
                *(_median(bandwidth), *(float(one.sum()) / (members * len(parts) * steps) for one in sums)),
            )
        )
    frame = pandas.DataFrame(found, columns=list(NAMES)).astype({"hosts": "Int64"})
    return frame.sort_values("exposed", ascending=False, kind="stable").reset_index(drop=True)


def _of_calls(group: Group, waits: Stragglers, place: int) -> tuple[Floats, ...]:
    """Return for each call the skew, its uncertainty, the transfer, its bandwidth, and the members' sums of the
    durations, of the waits and of the exposed times."""
    own = waits._waits[place]
    sums = tuple(np.nansum(one, axis=1) for one in (group.duration, own.wait, group.exposed))
    return own.skew, waits.skew_uncertainty(place), own.transfer, own.bandwidth, *sums


def _buckets(sizes: Floats) -> Floats:
    """Return the power of two that each size is at least; -1 for 0, -2 for an unknown one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.floor(np.log2(sizes))
    power[sizes <= 0] = -1
    power[np.isnan(sizes)] = -2
    return power


def _edges(bucket: float) -> tuple[float, float]:
    """Return the least size of a bucket, and the least size of the next."""
    if bucket == -2:
        return float("nan"), float("nan")
    return (0.0, 1.0) if bucket == -1 else (2.0**bucket, 2.0 ** (bucket + 1))


def _median(values: npt.NDArray[Any]) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def rank_facts(digests: Sequence[Digest], waits: Stragglers, work: Work) -> pandas.DataFrame:
    """Return what is known of each rank; Ranks.ranks has the columns."""
    import pandas

    def per_rank(values: Floats) -> list[float]:
        return [_median(row) for row in values]

    identities = [digest.identity for digest in digests]
    columns: dict[str, Any] = {
        "rank": [digest.rank for digest in digests],
        "host": pandas.array(host_names(digests), dtype="string"),
        "gpu": pandas.array([one.device_index for one in identities], dtype="Int64"),
        "device": pandas.array([one.device for one in identities], dtype="string"),
        "steps": [digest.steps for digest in digests],
        "total": per_rank(work.total),
        "own": per_rank(work.own),
        "excess": per_rank(work.excess),
        "communication": per_rank(work.part("communication")),
        "data": per_rank(work.part("data")),
        "flops": work.flops,
        "bytes_total_moved": work.moved,
        "slowness": work.slowness,
        "memory_peak": [digest.memory_peak for digest in digests],
    }
    return pandas.DataFrame(columns).merge(waits.ranks, on="rank", validate="1:1")


def host_rows(ranks: pandas.DataFrame) -> pandas.DataFrame:
    """Return a row per host from those of the ranks; Ranks.hosts() has the columns."""
    known = ranks[ranks["host"].notna()].copy()
    known["host"] = known["host"].astype(str)
    grouped = known.groupby("host", sort=False)
    frame = grouped.agg(
        ranks=("rank", "size"),
        first_rank=("rank", "min"),
        own=("own", "median"),
        communication=("communication", "median"),
        slowness=("slowness", "median"),
        times_last=("times_last", "sum"),
        waited=("waited", "sum"),
        awaited=("awaited", "sum"),
    )
    return frame.reset_index().sort_values("awaited", ascending=False, kind="stable").reset_index(drop=True)


def group_rows(waits: Stragglers) -> pandas.DataFrame:
    """Return a row per process group; Ranks.groups() has the columns."""
    import pandas

    rows = []
    for group, own in zip(waits._groups, waits._waits, strict=True):
        last = np.bincount(own.last, minlength=len(group.members))
        behind = int(last.argmax())
        waited, time = float(np.nansum(own.wait)), float(np.nansum(group.duration))
        rows.append(
            {
                "group": group.name,
                "members": group.ranks,
                "ranks": len(group.members),
                "calls": len(group.kind),
                "waited": waited,
                "waited_pct": 100 * waited / time if time > 0 else float("nan"),
                "most_last": int(waits._numbers[group.members[behind]]),
                "times_last": int(last[behind]),
                "awaited": float(np.nansum(own.wait[own.last == behind])),
            }
        )
    names = ("group", "members", "ranks", "calls", "waited", "waited_pct", "most_last", "times_last", "awaited")
    frame = pandas.DataFrame(rows, columns=list(names))
    return frame.sort_values("waited", ascending=False, kind="stable").reset_index(drop=True)

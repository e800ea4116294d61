"""Tables across ranks: the collectives by group and size, and what is known of each rank, host and group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.ranks.medians import Floats, median
from flopscope.ranks.schema import SCHEMA

if TYPE_CHECKING:
    import pandas

    from flopscope.ranks.comparison import Comparison

SPREAD = 0.95


def collective_rows(ranks: Comparison, by_group: bool) -> pandas.DataFrame:
    """Return the collectives by kind, size and group, or by equal groups; Ranks.collectives() has the columns."""
    groups = ranks.stragglers.matched.groups
    hosts = [len({ranks.hosts[member] for member in group.members} - {None}) for group in groups]
    members = [len(group.members) for group in groups]
    calls = ranks.stragglers.calls
    place = calls["place"].to_numpy(np.intp)
    calls = calls.assign(
        size=_buckets(calls["message_bytes"].to_numpy(np.float64)),
        ranks=np.array(members, np.int64)[place],
        hosts=np.array(hosts, np.int64)[place],
        which=place if by_group else 0,
    ).sort_values(["place", "kind", "size"], kind="stable")
    keys = ["collective", "size", "ranks", "hosts", "which"]
    classes = calls.groupby(keys, sort=False)
    frame = classes.agg(
        group=("group", "first"),
        groups=("place", "nunique"),
        calls=("skew", "size"),
        skew_median=("skew", "median"),
        skew_uncertainty=("skew_uncertainty", "median"),
        transfer_median=("transfer", "median"),
        bus_gbytes_per_s=("bus_gbytes_per_s", "median"),
        time=("time", "sum"),
        waited=("waited", "sum"),
        exposed=("exposed", "sum"),
    )
    frame["skew_p95"] = classes["skew"].quantile(SPREAD)
    frame = frame.reset_index()
    size = frame["size"].to_numpy(np.float64)
    frame["bytes_from"] = np.select([size >= 0, size == ZERO], [2.0**size, 0.0], np.nan)
    frame["bytes_to"] = np.select([size >= 0, size == ZERO], [2.0 ** (size + 1), 1.0], np.nan)
    per = frame["ranks"] * frame["groups"] * float(np.median(ranks.work.step_counts))
    for name in ("time", "waited", "exposed"):
        frame[name] /= per
    frame["hosts"] = frame["hosts"].astype("Int64").replace(0, None)
    if not by_group:
        frame["group"] = None
    return _sorted(frame, "collectives", "exposed")


ZERO, UNKNOWN = -1.0, -2.0
"""Buckets of messages of no bytes, and of those of an unknown size."""


def _buckets(sizes: Floats) -> Floats:
    """Return the binary logarithm of the power of two that each size is at least."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.select([np.isnan(sizes), sizes <= 0], [UNKNOWN, ZERO], np.floor(np.log2(sizes)))


def rank_rows(ranks: Comparison) -> pandas.DataFrame:
    """Return what is known of each rank; Ranks.ranks has the columns."""
    import pandas

    work, digests = ranks.work, ranks.digests
    identities = [digest.identity for digest in digests]
    steps = {
        "total": work.total,
        "own": work.own,
        "excess": work.excess,
        "communication": work.part("communication"),
        "data": work.part("data"),
    }
    columns: dict[str, Any] = {
        "rank": [digest.rank for digest in digests],
        "host": pandas.array(ranks.hosts, dtype="string"),
        "gpu": pandas.array([one.device_index for one in identities], dtype="Int64"),
        "device": pandas.array([one.device for one in identities], dtype="string"),
        "steps": [digest.steps for digest in digests],
        **{name: [median(row) for row in values] for name, values in steps.items()},
        "flops": work.amounts["FLOPs"],
        "bytes_total_moved": work.amounts["bytes"],
        "slowness": work.ops.slowness,
        "memory_peak": [digest.memory_peak for digest in digests],
    }
    return pandas.DataFrame(columns).merge(ranks.stragglers.ranks, on="rank", validate="1:1")


def host_rows(ranks: pandas.DataFrame) -> pandas.DataFrame:
    """Return a row per host from those of the ranks; Ranks.hosts() has the columns."""
    grouped = ranks[ranks["host"].notna()].astype({"host": str}).groupby("host", sort=False)
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
    return _sorted(frame.reset_index(), "hosts", "awaited")


def group_rows(ranks: Comparison) -> pandas.DataFrame:
    """Return a row per process group; Ranks.groups() has the columns."""
    calls, groups = ranks.stragglers.calls, ranks.stragglers.matched.groups
    frame = calls.groupby("place").agg(calls=("place", "size"), waited=("waited", "sum"), time=("time", "sum"))
    frame["group"] = [group.name for group in groups]
    frame["members"] = [group.ranks for group in groups]
    frame["ranks"] = [len(group.members) for group in groups]
    frame["waited_pct"] = (100 * frame["waited"] / frame["time"]).where(frame["time"] > 0)
    last = calls.groupby(["place", "straggler"]).agg(times_last=("waited", "size"), awaited=("waited", "sum"))
    last = last.reset_index("straggler").rename(columns={"straggler": "most_last"})
    most = last.sort_values("times_last", ascending=False, kind="stable").groupby("place").first()
    return _sorted(frame.join(most), "groups", "waited")


def _sorted(frame: pandas.DataFrame, table: str, most: str) -> pandas.DataFrame:
    """Return the columns of a table of Ranks, the rows with the most of a column first."""
    return frame[list(SCHEMA[table])].sort_values(most, ascending=False, kind="stable").reset_index(drop=True)

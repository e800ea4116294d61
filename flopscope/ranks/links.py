"""Slow links: hosts whose groups transfer more slowly than equal groups of other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from flopscope.answers.sentences.ranks import SlowLink
from flopscope.ranks.calls import KINDS
from flopscope.ranks.comparison import SIGNIFICANT, Comparison, Finding
from flopscope.ranks.medians import sigma

if TYPE_CHECKING:
    import pandas

SLOW_LINK = 1.2
FEW = 3  # groups, without which none can be called slow
LEAST_BYTES = 1 << 20  # smaller messages take the time of their latency


def links(comparison: Comparison) -> Iterator[Finding]:
    """Find hosts whose groups transfer more slowly than equal groups of other hosts."""
    rows = link_rows(comparison) if any(comparison.hosts) else None
    if rows is None or rows.empty:
        return
    uncertain = rows["best"] + SIGNIFICANT * rows["spread"] / np.sqrt(rows["calls"])
    slow = rows["time"] > np.maximum(SLOW_LINK * rows["best"], uncertain)
    # Hosts whose links, or whose network, are as fast as others.
    normal = {(host, len(hosts) > 1) for hosts in rows.loc[~slow, "hosts"] for host in hosts}
    blamed: dict[tuple[str, ...], list[int]] = {}
    for place, hosts in rows.loc[slow, "hosts"].items():
        suspects = tuple(host for host in hosts if (host, len(hosts) > 1) not in normal)
        blamed.setdefault(suspects, []).append(place)
    blamed.pop((), None)
    steps = float(np.median(comparison.work.step_counts))
    for suspects, places in blamed.items():
        found = rows.loc[places]
        members = {rank for group in found["members"] for rank in group if comparison.hosts[rank] in suspects}
        # Groups of different ranks transfer at the same time: the slowest counts.
        most = float(((found["time"] - found["best"]) * found["calls"] * found["exposed"]).max())
        factor, cost = float((found["time"] / found["best"]).median()), comparison.cost(most / steps)
        one = found.iloc[0]
        facts = SlowLink(suspects, KINDS[one["kind"]], float(one["message_bytes"]), factor, len(one["members"]), cost)
        yield comparison.found("link", facts, sorted(members), cost)


def link_rows(comparison: Comparison) -> pandas.DataFrame:
    """Return the transfers of each group of one kind and size, those that should be equally fast one after the other:
    of one kind, message, number of ranks and of hosts.

    ``members``: places of the ranks; ``hosts``; ``time``, ``spread``: µs of a transfer; ``calls``; ``exposed``: the
    share of it during which nothing computed; ``best``: of equal groups.
    """
    groups, calls = comparison.stragglers.matched.groups, comparison.stragglers.calls
    calls = calls[calls["message_bytes"] >= LEAST_BYTES]
    calls = calls.assign(exposed=calls["exposed_last"] / np.maximum(calls["transfer"], 1e-3))
    same = calls.groupby(["place", "kind", "message_bytes"])
    rows = same.agg(
        time=("transfer", "median"), spread=("transfer", sigma), calls=("skew", "size"), exposed=("exposed", "median")
    )
    rows = rows[rows["time"] > 0].reset_index()  # a transfer without a duration says nothing of its link
    rows["members"] = [tuple(groups[place].members.tolist()) for place in rows["place"]]
    rows["hosts"] = [tuple(dict.fromkeys(comparison.hosts[one] for one in members)) for members in rows["members"]]
    equal = rows.groupby(["kind", "message_bytes", rows["members"].map(len), rows["hosts"].map(len)], sort=False)
    # Of several groups over a slow link, most may be slow: the fastest quarter is what the links can do.
    rows["best"], rows["class"] = equal["time"].transform("quantile", 0.25), equal.ngroup()
    return rows[equal["time"].transform("size") >= FEW].sort_values("class", kind="stable")

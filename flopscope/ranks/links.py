"""Slow links: hosts whose groups transfer more slowly than equal groups of other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flopscope.ranks.calls import KINDS
from flopscope.ranks.finding import SIGNIFICANT, Comparison, Finding, host_names, sigma
from flopscope.support.units import bytes_text

__all__ = ["Link", "links", "links_by_class"]

SLOW_LINK = 1.2
FEW = 3  # groups, without which none can be called slow
LEAST_BYTES = 1 << 20  # smaller messages take the time of their latency


def links(comparison: Comparison) -> Iterator[Finding]:
    """Find hosts whose groups transfer more slowly than equal groups of other hosts."""
    hosts = host_names(comparison.digests)
    if not any(hosts):
        return
    names = np.array(hosts, object)
    slow: list[Link] = []
    normal: set[tuple[str, bool]] = set()  # hosts whose links, or whose network, are as fast as others
    for measured in links_by_class(comparison):
        # Of several groups over a slow link, most may be slow: the fastest quarter is what the links can do.
        middle = float(np.quantile([one.time for one in measured], 0.25))
        for one in measured:
            if one.time > max(SLOW_LINK * middle, middle + SIGNIFICANT * one.spread / np.sqrt(one.calls)):
                slow.append(replace(one, excess=one.time - middle, factor=one.time / middle))
            else:
                normal |= {(host, len(one.hosts) > 1) for host in one.hosts}
    steps = float(np.median(comparison.work.step_counts))
    blamed: dict[str, list[Link]] = {}
    for one in slow:
        suspects = [host for host in one.hosts if (host, len(one.hosts) > 1) not in normal]
        if suspects:
            blamed.setdefault(suspects[0] if len(suspects) == 1 else " and ".join(suspects), []).append(one)
    for host, found in blamed.items():
        ranks = sorted({int(rank) for one in found for rank in one.members if names[rank] in host.split(" and ")})
        factor = float(np.median([one.factor for one in found]))
        # Groups of different ranks transfer at the same time: the slowest counts.
        cost = max(one.excess * one.calls * one.exposed for one in found) / steps
        kind = found[0]
        text = (
            f"{_hosts_text(host)}: {kind.kind} of {bytes_text(kind.nbytes)} takes "
            f"{factor:.2f} times as long as in the other groups of {len(kind.members)} ranks, a slow link; "
            f"it costs {comparison.price(cost)}."
        )
        named = tuple(comparison.digests[rank].rank for rank in ranks)
        yield Finding(
            "link", text, named, cost, comparison.work.percent(cost), evidence={"factor": factor, "host": host}
        )


def _hosts_text(names: str) -> str:
    hosts = names.split(" and ")
    if len(hosts) <= 3:
        return f"{'host' if len(hosts) == 1 else 'hosts'} {names}"
    return f"a link of the {len(hosts)} hosts {hosts[0]} to {hosts[-1]}"


@dataclass(frozen=True)
class Link:
    """The transfers of a group, of one kind and size."""

    hosts: tuple[str, ...]
    members: tuple[int, ...]
    kind: str
    nbytes: float
    time: float
    """Median µs of a transfer."""
    spread: float
    calls: int
    exposed: float
    """Share of it during which nothing computed."""
    excess: float = 0.0
    factor: float = 1.0


def links_by_class(comparison: Comparison) -> Iterator[list[Link]]:
    """Yield the links that should be equally fast: groups of one kind, message, number of ranks and of hosts."""
    names = np.array([host or "" for host in host_names(comparison.digests)], object)
    classes: dict[tuple[Any, ...], list[Link]] = {}
    for group, waits in zip(comparison.stragglers._groups, comparison.stragglers._waits, strict=True):
        inside = tuple(dict.fromkeys(names[group.members]))
        for kind in np.unique(group.kind):
            for nbytes in np.unique(group.message_bytes[(group.kind == kind) & (group.message_bytes >= LEAST_BYTES)]):
                rows = (group.kind == kind) & (group.message_bytes == nbytes)
                last = waits.last[rows]
                exposed = group.exposed[rows, last] / np.maximum(waits.transfer[rows], 1e-3)
                one = Link(
                    inside,
                    tuple(group.members.tolist()),
                    KINDS[kind],
                    float(nbytes),
                    float(np.median(waits.transfer[rows])),
                    sigma(waits.transfer[rows]),
                    int(rows.sum()),
                    float(np.median(exposed)),
                )
                if one.time > 0:  # a transfer without a duration says nothing of its link
                    classes.setdefault((kind, nbytes, len(group.members), len(inside)), []).append(one)
    yield from (links for links in classes.values() if len(links) >= FEW)

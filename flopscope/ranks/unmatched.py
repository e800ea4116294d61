"""Collectives that do not match across ranks: a rank that does not come to one, or that calls another."""

from __future__ import annotations

from collections.abc import Iterator

from flopscope.ranks.digest import LastCall
from flopscope.ranks.finding import Comparison, Finding

__all__ = ["mismatches", "missing"]


def mismatches(comparison: Comparison) -> Iterator[Finding]:
    """Find sequence numbers under which ranks called different collectives."""
    matched = comparison.stragglers._matched
    if not matched.mismatched:
        return
    first = matched.mismatches[0]
    parts = [f"{comparison.numbers(ranks)}: {call}" for call, ranks in first.calls.items()]
    count = matched.mismatched
    text = (
        f"{count:,} {'call does' if count == 1 else 'calls do'} not match across ranks; the first is number "
        f"{first.number} of group {first.group} (ranks {'; ranks '.join(parts)})."
    )
    ranks = tuple(comparison.digests[rank].rank for members in first.calls.values() for rank in members)
    yield Finding("mismatch", text, ranks, float("nan"), float("nan"))


def missing(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks that did not come to a collective that the other ranks of the group called: a hang."""
    groups: dict[tuple[str, str], list[tuple[int, LastCall]]] = {}
    for rank, digest in enumerate(comparison.digests):
        for call in digest.last_calls:
            groups.setdefault((call.group, call.ranks), []).append((rank, call))
    found: dict[tuple[int, ...], tuple[int, str]] = {}
    for (name, _), members in groups.items():
        last = max(call.called for _, call in members)
        ahead = [(rank, call) for rank, call in members if call.called == last]
        behind = [(rank, call) for rank, call in members if call.called < last]
        # A call that ran had all its ranks: those without it recorded less. One that did not is waited for.
        if not behind or not len(ahead) > 0 or any(call.ran == last for _, call in ahead):
            continue
        absent = tuple(rank for rank, _ in behind)
        kind = ahead[0][1].collective
        text = (
            f"{'Rank' if len(absent) == 1 else 'Ranks'} {comparison.numbers(absent)} did not come to "
            f"{kind} number {last} of group {name}: {len(ahead)} of its {len(members)} ranks called it and its kernel "
            f"never ended; the last call of rank {comparison.digests[absent[0]].rank} there is number "
            f"{behind[0][1].called}."
        )
        if absent not in found or len(ahead) > found[absent][0]:
            found[absent] = len(ahead), text
    for absent, (_, text) in found.items():
        ranks = tuple(comparison.digests[rank].rank for rank in absent)
        yield Finding("missing", text, ranks, float("nan"), float("nan"))

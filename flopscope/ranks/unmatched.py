"""Collectives that do not match across ranks: a rank that does not join one, or that calls another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flopscope.answers.sentences.ranks import Hang, Mismatched
from flopscope.ranks.comparison import Comparison, Finding
from flopscope.ranks.digest import Digest, LastCall

NUMBERS = re.compile(r"\d+")


def mismatches(comparison: Comparison) -> Iterator[Finding]:
    """Find sequence numbers under which ranks called different collectives."""
    matched = comparison.stragglers.matched
    for first in matched.mismatches[:1]:
        calls = [(*call, comparison.numbers(ranks)) for call, ranks in first.calls.items()]
        facts = Mismatched(matched.mismatched, first.number, first.group, calls)
        yield comparison.found("mismatch", facts, [rank for ranks in first.calls.values() for rank in ranks])


def last_calls_by_group(digests: Sequence[Digest]) -> dict[tuple[str, str], dict[int, LastCall]]:
    """Return the last calls of each group by the places of its members. Members that the group names, and that have a
    trace but called nothing, are among them."""
    places = {digest.rank: place for place, digest in enumerate(digests)}
    groups: dict[tuple[str, str], dict[int, LastCall]] = {}
    for place, digest in enumerate(digests):
        for call in digest.last_calls:
            groups.setdefault((call.group, call.ranks), {})[place] = call
    for (name, ranks), members in groups.items():
        if "..." not in ranks:  # PyTorch shortens long lists
            for rank in map(int, NUMBERS.findall(ranks)):
                if rank in places:
                    members.setdefault(places[rank], LastCall(name, ranks))
    return groups


def missing(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks that did not join a collective that other ranks of the group called: a hang.

    Of the calls that a rank did not make, the earliest is named. Ranks that did not come because they themselves wait
    for another rank are not named, unless all wait for each other."""
    hangs = sorted(_hangs(comparison), key=lambda one: one[0])
    stuck = {rank for _, _, _, waiting in hangs for rank in waiting}
    roots = {rank for _, _, absent, _ in hangs for rank in absent} - stuck
    named: set[int] = set()
    for _, hang, absent, _ in hangs:
        culprits = [rank for rank in absent if rank in roots or not roots]
        if not named >= set(culprits):
            named |= set(culprits)
            facts = hang._replace(absent=comparison.numbers(culprits), last=absent[culprits[0]])
            yield comparison.found("missing", facts, culprits)


def _hangs(comparison: Comparison) -> Iterator[tuple[float, Hang, dict[int, int], tuple[int, ...]]]:
    """Yield the first call of each group that some of its members did not make, if the others wait for it: when the
    first of these called it, the call, the last calls of the absent ranks, and the ranks that wait."""
    for (name, _), members in last_calls_by_group(comparison.digests).items():
        ran = max(call.ran for call in members.values())
        number = min((call.waiting for call in members.values() if call.waiting > ran), default=-1)
        # A call that ran had all its ranks: those without it recorded less.
        absent = {rank: call.called for rank, call in sorted(members.items()) if ran <= call.called < number}
        waiting = {rank: call for rank, call in members.items() if call.waiting == number}
        if absent:
            starts = [comparison.stragglers.on_first_clock(rank, one.waiting_start) for rank, one in waiting.items()]
            kind = next(iter(waiting.values())).waiting_collective
            hang = Hang((), kind, number, name, len(waiting), len(members), -1)
            yield min(starts), hang, absent, tuple(waiting)

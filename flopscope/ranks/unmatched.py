"""Collectives that do not match across ranks: a rank that does not join one, or that calls another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flopscope.ranks.digest import Digest, LastCall
from flopscope.ranks.finding import Comparison, Finding

__all__ = ["last_calls_by_group", "mismatches", "missing"]

NUMBERS = re.compile(r"\d+")


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
            named = {places[rank] for rank in map(int, NUMBERS.findall(ranks)) if rank in places}
            for place in named - set(members):
                members[place] = LastCall(name, ranks, -1, "", 0, -1, -1, "", 0)
    return groups


@dataclass(frozen=True)
class _Absence:
    """A call that members of a group never made, and that the others wait for."""

    group: str
    collective: str
    number: int
    absent: tuple[int, ...]
    waiting: tuple[int, ...]
    members: int
    start: float
    """When the first of the others called it, in µs on the clock of the first rank."""
    last: int
    """The last call of the first absent rank there; -1 for none."""


def missing(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks that did not join a collective that other ranks of the group called: a hang.

    Of the calls that a rank did not make, the earliest is named. Ranks that did not come because they themselves wait
    for another rank are not named, unless all wait for each other."""
    absences = list(_absences(comparison))
    stuck = {rank for one in absences for rank in one.waiting}
    roots = {rank for one in absences for rank in one.absent} - stuck
    found: dict[tuple[int, ...], _Absence] = {}
    for one in sorted(absences, key=lambda one: one.start):
        absent = tuple(rank for rank in one.absent if rank in roots) if roots else one.absent
        if absent:
            found.setdefault(absent, one)
    named: set[int] = set()
    for absent, one in found.items():
        if named >= set(absent):
            continue
        named |= set(absent)
        last = f"number {one.last}" if one.last >= 0 else "not recorded"
        text = (
            f"{'rank' if len(absent) == 1 else 'ranks'} {comparison.numbers(absent)} did not join "
            f"{one.collective} number {one.number} of group {one.group}: {len(one.waiting)} of its {one.members} "
            f"ranks called it and its kernel never ended; the last call of rank "
            f"{comparison.digests[absent[0]].rank} there is {last}."
        )
        ranks = tuple(comparison.digests[rank].rank for rank in absent)
        evidence = {"group": one.group, "number": one.number, "waiting": len(one.waiting)}
        yield Finding("missing", text, ranks, float("nan"), float("nan"), evidence=evidence)


def _absences(comparison: Comparison) -> Iterator[_Absence]:
    """Yield the first call of each group that some of its members did not make, if the others wait for it."""
    found = comparison.stragglers
    for (name, _), members in last_calls_by_group(comparison.digests).items():
        ran = max(call.ran for call in members.values())
        waiting = {rank: call for rank, call in members.items() if call.waiting > ran}
        if not waiting:
            continue
        number = min(call.waiting for call in waiting.values())
        # A call that ran had all its ranks: those without it recorded less.
        absent = tuple(sorted(rank for rank, call in members.items() if ran <= call.called < number))
        if not absent:
            continue
        first = {rank: call for rank, call in waiting.items() if call.waiting == number}
        starts = [
            float(found.on_first_clock(rank, np.array([call.waiting_start], np.int64))[0])
            for rank, call in first.items()
        ]
        kind = next(iter(first.values())).waiting_collective
        last = members[absent[0]].called
        yield _Absence(name, kind, number, absent, tuple(first), len(members), min(starts), last)

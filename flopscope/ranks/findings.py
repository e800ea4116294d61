"""What is slow across the ranks, the largest cost first: each finding names who, why, and what it costs per step.

Each rule asks for an effect beyond what the ranks and the steps differ by anyway, so that nothing is named where
nothing is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from flopscope.answers import rank_sentences as sentences
from flopscope.answers.lines import MOSTLY, place_text
from flopscope.answers.rank_sentences import RECORDING, STEP, Cost, Place, action
from flopscope.answers.words import facts_of
from flopscope.ranks.calls import KINDS, Floats, mean, median, median_of_others, sigma
from flopscope.ranks.digest import Digest, LastCall
from flopscope.ranks.engine import Failure
from flopscope.ranks.stragglers import Stragglers
from flopscope.ranks.work import KERNELS, Work

if TYPE_CHECKING:
    import pandas

LEAST = 0.01  # of a step: no smaller cost is named
SIGNIFICANT = 5.0  # median absolute deviations, scaled to standard deviations
LEAST_SPREAD = 0.002  # of the value: ranks and steps differ by at least that


@dataclass(frozen=True)
class Finding:
    """Something that is slow, or wrong."""

    kind: str
    """"straggler", "gpu", "link", "imbalance", "step", "memory", "missing" or "mismatch"."""
    says: partial[str]
    """The sentence, with the facts that it is made from as arguments."""
    ranks: tuple[int, ...]
    cost_us: float
    """What it costs in each step, in µs; NaN if unknown."""
    cost_pct: float
    """cost_us in percent of a step."""
    cause: str = ""
    """Cause of a straggler: "gpu", "work", "kernels" (one of these two, where no shapes are recorded), "data", "host",
    "copy" or "other"."""

    @property
    def what(self) -> str:
        """A sentence: who, why, how often, what it costs."""
        text = self.says()
        return text[0].upper() + text[1:]

    @property
    def action(self) -> str:
        """What to do about it: a sentence."""
        return action(self.kind, self.cause)

    @property
    def evidence(self) -> dict[str, object]:
        """The facts by name."""
        return facts_of(self.says)


@dataclass(frozen=True)
class Comparison:
    """All that the rules and the tables look at. Ranks are named by their places among the digests."""

    digests: Sequence[Digest]
    """By rank."""
    failures: Sequence[Failure]

    @cached_property
    def work(self) -> Work:
        """What each did in each step."""
        return Work(self.digests)

    @cached_property
    def stragglers(self) -> Stragglers:
        """Who waits for whom."""
        return Stragglers([digest.rank for digest in self.digests], [digest.calls for digest in self.digests])

    @cached_property
    def hosts(self) -> list[str | None]:
        """The host of each rank: from the names of the files, or else counted, if each host has the same number of GPUs
        and ranks are numbered host by host, as torchrun does."""
        if all(digest.identity.host for digest in self.digests):
            return [digest.identity.host for digest in self.digests]
        gpus = {digest.identity.gpus_here for digest in self.digests}
        size = (gpus.pop() or 0) if len(gpus) == 1 else 0
        return [f"#{digest.rank // size}" if size > 1 else None for digest in self.digests]

    def place(self, rank: int) -> Place:
        """Return the rank with its host and GPU, as far as they are known."""
        digest = self.digests[rank]
        return Place(digest.rank, self.hosts[rank], digest.identity.device_index)

    def numbers(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Return the numbers of the ranks in the program."""
        return tuple(self.digests[rank].rank for rank in ranks)

    def cost(self, time: float) -> Cost:
        """Return a time for each step with its share."""
        return Cost(time, self.work.percent(time), STEP if self.work.has_steps else RECORDING)

    def found(
        self, kind: str, says: partial[str], ranks: Iterable[int], cost: Cost | None = None, cause: str = ""
    ) -> Finding:
        time, percent, _ = cost or (float("nan"), float("nan"), "")
        return Finding(kind, says, self.numbers(ranks), time, percent, cause)


# Collectives that do not match across ranks: a rank that does not join one, or that calls another ---------------------

NUMBERS = re.compile(r"\d+")


def mismatches(comparison: Comparison) -> Iterator[Finding]:
    """Find sequence numbers under which ranks called different collectives."""
    matched = comparison.stragglers.matched
    for first in matched.mismatches[:1]:
        calls = [(*call, comparison.numbers(ranks)) for call, ranks in first.calls.items()]
        says = partial(sentences.mismatched_calls, matched.mismatched, first.number, first.group, calls)
        yield comparison.found("mismatch", says, [rank for ranks in first.calls.values() for rank in ranks])


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
            says = partial(hang, absent=comparison.numbers(culprits), last=absent[culprits[0]])
            yield comparison.found("missing", says, culprits)


def _hangs(comparison: Comparison) -> Iterator[tuple[float, partial[str], dict[int, int], tuple[int, ...]]]:
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
            waits, of = len(waiting), len(members)
            hang = partial(sentences.hang, collective=kind, number=number, group=name, waiting=waits, members=of)
            yield min(starts), hang, absent, tuple(waiting)


# Stragglers: ranks whose own work takes longer than that of the others, and why ---------------------------------------

SLOW_ALONE = 1.05  # of a GPU that no rank waits for
FEW_RANKS = 3
IMBALANCE = 1.03
CAUSES = {"data": ("data",), "host": ("host", "sync"), "copy": ("copy",), "other": ("other",), "gpu": KERNELS[:-1]}
"""By cause: the parts of the accounting that the excess is in."""
Flags = npt.NDArray[np.bool_]


def stragglers(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks whose own work takes longer than that of the others that run the same program, and slow GPUs."""
    work, excess = comparison.work, comparison.work.excess
    if len(excess) < 2:
        return
    waits = comparison.stragglers.ranks
    calls, last = waits["collectives"].to_numpy(), waits["times_last"].to_numpy()
    # Chance does not explain it if a rank comes last each time, in at least ten calls.
    always_last = last >= np.maximum(10, 0.95 * calls)
    late = np.array([_late_steps(work, rank, always_last[rank]) for rank in range(len(excess))])
    late[_hidden(work, late)] = False
    found: dict[tuple[str, str | None], list[int]] = {}
    for rank in np.flatnonzero(late.any(axis=1)).tolist():
        found.setdefault((_cause(work, rank, late[rank]), comparison.hosts[rank]), []).append(rank)
    for (cause, host), ranks in found.items():
        # The ranks of a host are one finding if most of them are late for one cause.
        together = host is not None and 2 * len(ranks) > comparison.hosts.count(host)
        for some in [ranks] if together else [[rank] for rank in ranks]:
            yield _straggler(comparison, some, cause, np.where(late[some], np.maximum(excess[some], 0.0), 0.0))
    slowness = work.ops.slowness
    if work.has_shapes and np.isfinite(slowness).sum() > FEW_RANKS:
        slow = slowness > max(SLOW_ALONE, 1.0 + SIGNIFICANT * sigma(slowness))  # beyond what ranks differ by
        for rank in np.flatnonzero(slow & ~late.any(axis=1)).tolist():
            place, times = comparison.place(rank), float(slowness[rank])
            says = partial(sentences.slow_gpu, place, times, int(last[rank]), int(calls[rank]))
            yield comparison.found("gpu", says, [rank], cause="gpu")


def _late_steps(work: Work, rank: int, always_last: bool) -> Flags:
    """Return in which steps the rank is late: in none, in some, or in all that it has."""
    excess, least = work.excess[rank], LEAST * work.step_time
    recorded: Flags = np.isfinite(excess)
    known = excess[recorded]
    if not len(known):
        return recorded
    same = work.others(rank)
    peers = sigma(work.typical_excess[same]) if same.sum() > 2 else 0.0
    noise = sigma(known)
    floor = LEAST_SPREAD * median(work.own[rank])
    if median(known) > max(least, SIGNIFICANT * max(peers, floor, noise * 1.25 / np.sqrt(len(known)))):
        return recorded
    late: Flags = excess > max(SIGNIFICANT * max(noise, peers, floor), 2 * least)
    if late.sum() >= 2 and float(excess[late].sum()) / len(known) > least:
        return late
    if always_last and (known > 3 * least).all():
        return recorded  # few steps, but all of them and all of their calls
    return np.zeros_like(recorded)


def _hidden(work: Work, late: Flags) -> list[int]:
    """Return the late ranks that would cost nothing without the other late ones: ranks of their role that are not late
    take as long, so that this is how much the ranks differ anyway."""
    excess = np.where(late, np.maximum(np.nan_to_num(work.excess), 0.0), 0.0)
    own = np.where(np.isnan(work.own), -np.inf, work.own)
    hidden = []
    for number in np.unique(work.role[late.any(axis=1)]):
        members = np.flatnonzero(work.role == number)
        rest = (own[members] - excess[members]).max(axis=0)
        for rank in members[late[members].any(axis=1)].tolist():
            cost = np.maximum(own[rank] - rest, 0.0)[np.isfinite(rest)]
            if not cost.mean() > LEAST * work.step_time:
                hidden.append(rank)
    return hidden


def _cause(work: Work, rank: int, late: Flags) -> str:
    """Return which parts of the accounting the rank's excess is in."""
    more = {}
    for cause, parts in CAUSES.items():
        values = work.part(*parts)
        difference = (values - median_of_others(values, work.role))[rank][late]
        more[cause] = float(np.nan_to_num(mean(difference)))
    cause = max(more, key=lambda one: more[one])
    if cause != "gpu" or not work.has_shapes:
        return cause if cause != "gpu" else "kernels"
    for amount in work.amounts.values():
        others = median(amount[work.others(rank)])
        if amount[rank] > IMBALANCE * others:
            by_work = not others > 0 or not work.ops.slowness[rank] > 1.0 + 0.7 * (amount[rank] / others - 1.0)
            return "work" if by_work else "gpu"
    return "gpu"


def _straggler(comparison: Comparison, ranks: list[int], cause: str, excess: Floats) -> Finding:
    """Return the finding. excess: of these ranks, by rank and step; 0 where they are not late."""
    work, waits = comparison.work, comparison.stragglers.ranks
    all_excess = np.zeros_like(work.own)
    all_excess[ranks] = excess = np.nan_to_num(excess)
    steps: Flags = np.any(excess > 0, axis=0)
    others = work.others(ranks[0])
    others[ranks] = False
    more = []
    for name, amount in work.amounts.items():
        mine, theirs = median(amount[ranks]), median(amount[others])
        if theirs > 0 and mine >= 0:
            more.append((mine / theirs, name))
    parts = work.part(*CAUSES.get(cause, KERNELS[:-1]))[:, steps]
    alone, cost = float(excess.max(axis=0).mean()), comparison.cost(float(work.saved(all_excess).mean()))
    waiting = max(len(work.own) - len(ranks), 1) * float(np.median(work.step_counts))
    says = partial(
        sentences.straggler,
        places=[comparison.place(rank) for rank in ranks],
        cause=cause,
        excess_us=alone,
        alone=comparison.cost(alone),
        cost=cost,
        steps=int(steps.sum()),
        all_steps=len(steps),
        times_last=int(waits["times_last"].to_numpy()[ranks].sum()),
        collectives=int(waits["collectives"].to_numpy()[ranks].max()),
        unmatched=int(waits["unmatched"].to_numpy()[ranks].sum()),
        awaited=float(waits["awaited"].to_numpy()[ranks].sum()) / waiting,
        slowness=median(work.ops.slowness[ranks]),
        more=max(more, default=None),
        time=mean(parts[ranks]),
        usual=mean(parts[others]),
        line=_line_of(work, ranks) if cause == "host" else "",
    )
    return comparison.found("straggler", says, ranks, cost, cause)


def _line_of(work: Work, ranks: Sequence[int]) -> str:
    """Return the line that late ranks were in for most of the time in which their devices waited for the host beyond
    the median of their role; "" if there is none, as without samples."""
    more: dict[tuple[str, str], float] = {}
    for rank in ranks:
        for where, time in work.digests[rank].lines.items():
            beyond = time / int(work.step_counts[rank]) - work.usual_waits.get((int(work.role[rank]), where), 0.0)
            more[where] = more.get(where, 0.0) + max(beyond, 0.0)
    most = max(more, key=lambda one: more[one], default=None)
    if most is None or not more[most] > MOSTLY * sum(more.values()):
        return ""
    line, inside = most
    place, _, function = place_text(line).rpartition(" ")
    return f"{function}, {place}" + (f" ({place_text(inside)})" if inside != line else "")


# Slow links: hosts whose groups transfer more slowly than equal groups of other hosts ---------------------------------

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
        what = KINDS[one["kind"]], float(one["message_bytes"])
        says = partial(sentences.slow_link, suspects, *what, factor, len(one["members"]), cost)
        yield comparison.found("link", says, sorted(members), cost)


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


# Work, steps and memory that are uneven: between stages, experts, steps, and ranks ------------------------------------

OUTLYING_STEP = 1.25
FEW_STEPS = 4
MEMORY = 1.2
UNEVEN_EXPERTS = 1.2


def stages(comparison: Comparison) -> Iterator[Finding]:
    """Find an imbalance between ranks that run parts of one program, such as the stages of a pipeline."""
    work = comparison.work
    if not work.has_steps and len({digest.steps for digest in comparison.digests} - {0}) > 1:
        return  # whole profiles are compared, and some are shorter
    for program in np.unique(work.program):
        numbers = np.unique(work.role[work.program == program])
        own = np.array([median(work.own[work.role == number]) for number in numbers])
        if np.isfinite(own).sum() < 2:
            continue
        heaviest, mean = int(np.nanargmax(own)), float(np.nanmean(own))
        cost = comparison.cost(float(own[heaviest] - mean))
        if cost.time > max(LEAST * work.step_time, (IMBALANCE - 1) * mean):
            ranks, ratio = np.flatnonzero(work.role == numbers[heaviest]).tolist(), float(own[heaviest] / mean)
            says = partial(sentences.uneven_work, comparison.numbers(ranks), ratio, len(numbers), cost)
            yield comparison.found("imbalance", says, ranks, cost)


def steps(comparison: Comparison) -> Iterator[Finding]:
    """Find steps that take longer on most ranks, and not because they wait for one rank."""
    work = comparison.work
    if len(work.steps) < FEW_STEPS:
        return
    time = _by_step(work.total) - work.waiting
    middle, spread = float(np.median(time)), sigma(time)
    slow = np.flatnonzero(time > max(OUTLYING_STEP * middle, middle + SIGNIFICANT * max(spread, LEAST_SPREAD * middle)))
    slow = slow[slow > 0] if len(slow) and time[0] == time.max() else slow  # the first step warms up
    if not len(slow) or len(slow) > len(time) // 2 or not middle > 0:
        return
    causes = {}
    for cause, parts in {**CAUSES, "communication": ("communication",)}.items():
        values = _by_step(work.part(*parts)) - (work.waiting if cause == "communication" else 0.0)
        causes[cause] = float((values[slow] - np.median(values)).sum())
    cause = max(causes, key=lambda one: causes[one])
    cost = comparison.cost(float((time[slow] - middle).sum()) / len(time))
    names = [str(work.steps[one]) for one in slow]
    says = partial(sentences.slow_steps, names, len(time), cause, float(time[slow].max() / middle), cost)
    yield comparison.found("step", says, (), cost, cause)


def _by_step(values: Floats) -> Floats:
    return np.array([median(column) for column in values.T])


def memory(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks that allocate more memory than the others of their role."""
    peak = np.array([digest.memory_peak for digest in comparison.digests])
    others = median_of_others(peak[:, None], comparison.work.role)[:, 0]
    ratio = np.divide(peak, others, out=np.full(len(peak), np.nan), where=others > 0)
    for rank in np.flatnonzero(ratio > MEMORY).tolist():
        says = partial(sentences.large_memory, comparison.place(rank), float(peak[rank]), float(ratio[rank]))
        yield comparison.found("memory", says, [rank])


def experts(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks that send or receive more in all-to-alls than the other members of their group, as busy experts do."""
    groups: dict[tuple[str, str], dict[int, float]] = {}
    for rank, digest in enumerate(comparison.digests):
        calls = digest.calls
        chosen = (calls.kind == KINDS.index("alltoall")) & np.isfinite(calls.message_bytes)
        sums = np.bincount(calls.group[chosen], calls.message_bytes[chosen], len(calls.groups))
        for number in np.unique(calls.group[chosen]).tolist():
            groups.setdefault(calls.groups[number], {})[rank] = float(sums[number])
    for (name, _), sizes in groups.items():
        rank = max(sizes, key=lambda one: sizes[one])
        mean = sum(sizes.values()) / len(sizes)
        if mean > 0 and sizes[rank] / mean > UNEVEN_EXPERTS:
            says = partial(sentences.busy_expert, comparison.place(rank), name, sizes[rank] / mean)
            yield comparison.found("imbalance", says, [rank], cause="work")


# All ------------------------------------------------------------------------------------------------------------------

Rule: TypeAlias = Callable[[Comparison], Iterator[Finding]]
RULES: tuple[Rule, ...] = (missing, mismatches, stragglers, links, stages, steps, memory, experts)
FIRST = ("missing", "mismatch")  # a program that hangs or is wrong


def find(comparison: Comparison) -> list[Finding]:
    """Return the findings: calls that do not match first, then those with the largest cost, last those without one."""
    return sorted(
        (one for rule in RULES for one in rule(comparison)),
        key=lambda one: (one.kind not in FIRST, np.isnan(one.cost_us), -np.nan_to_num(one.cost_us)),
    )

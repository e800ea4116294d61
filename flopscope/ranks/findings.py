"""What is slow across the ranks, the largest cost first: each finding names who, why, and what it costs per step.

Each rule asks for an effect beyond what the ranks and the steps differ by anyway, so that nothing is named where
nothing is wrong. The rules are the functions in RULES."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from flopscope.ranks.calls import KINDS, Floats
from flopscope.ranks.digest import Digest, LastCall
from flopscope.ranks.stragglers import Stragglers
from flopscope.ranks.work import KERNELS, Work, median_of_others
from flopscope.support.units import bytes_text, percent_text, short_time_text

__all__ = ["Comparison", "Finding", "Link", "find", "host_names", "links_by_class"]

LEAST = 0.01  # of a step: no smaller cost is named
SIGNIFICANT = 5.0  # median absolute deviations, scaled to standard deviations
MAD_TO_SIGMA = 1.4826
LEAST_SPREAD = 0.002  # of the value: ranks and steps differ by at least that
SLOW_GPU = 1.03
SLOW_LINK = 1.2
IMBALANCE = 1.03
OUTLYING_STEP = 1.25
MEMORY = 1.2
UNEVEN_EXPERTS = 1.2
FEW = 3  # groups, without which none can be called slow


@dataclass(frozen=True)
class Finding:
    """Something that is slow, or wrong."""

    kind: str
    """"straggler", "link", "imbalance", "step", "memory", "missing" or "mismatch"."""
    what: str
    """A sentence: who, why, how often, what it costs."""
    ranks: tuple[int, ...]
    cost_us: float
    """What it costs in each step, in µs; NaN where it has no price."""
    cost_pct: float
    """cost_us in percent of a step."""
    cause: str = ""
    """Of a straggler: "gpu", "work", "data", "host", "copy" or "other"."""
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """All that the rules look at."""

    digests: Sequence[Digest]
    work: Work
    stragglers: Stragglers

    def place(self, rank: int) -> str:
        """Return the rank with its host and GPU, as far as they are known."""
        digest = self.digests[rank]
        host, gpu = host_names(self.digests)[rank], digest.identity.device_index
        where = ", ".join([*([f"host {host}"] if host else []), *([f"GPU {gpu}"] if gpu is not None else [])])
        return f"rank {digest.rank}" + (f" ({where})" if where else "")


def find(comparison: Comparison) -> list[Finding]:
    """Return the findings, those with the largest cost first and those without a price last."""
    found = [replace(one, what=one.what[0].upper() + one.what[1:]) for rule in RULES for one in rule(comparison)]
    return sorted(found, key=lambda one: (np.isnan(one.cost_us), -one.cost_us if one.cost_us == one.cost_us else 0.0))


def host_names(digests: Sequence[Digest]) -> list[str | None]:
    """Return the host of each rank: from the names of the files, or else counted, if each host has the same number of
    GPUs and ranks are numbered host by host, as torchrun does."""
    if all(digest.identity.host for digest in digests):
        return [digest.identity.host for digest in digests]
    gpus = {digest.identity.gpus_here for digest in digests}
    size = (gpus.pop() or 0) if len(gpus) == 1 else 0
    return [f"#{digest.rank // size}" if size > 1 else None for digest in digests]


def _sigma(values: Floats) -> float:
    """Return the spread of the values as a standard deviation, from their median absolute deviation."""
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan")
    return MAD_TO_SIGMA * float(np.median(np.abs(known - np.median(known))))


# Stragglers -----------------------------------------------------------------------------------------------------------


def stragglers(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks whose own work takes longer than that of the others that run the same program."""
    work, digests = comparison.work, comparison.digests
    own = work.own
    if len(digests) < 2 or not np.isfinite(own).any():
        return
    excess = own - median_of_others(own, work.role)
    typical = np.array([_median(row) for row in excess])
    least = LEAST * work.step_time
    found: dict[tuple[str, str | None], list[int]] = {}
    hosts = host_names(digests)
    for rank in range(len(digests)):
        late = _late_steps(excess[rank], typical, rank, work, least)
        if late is None and _is_always_last(comparison, rank) and float(np.nanmin(excess[rank])) > 3 * least:
            late = np.isfinite(excess[rank])  # few steps, but all of them and all of their calls
        if late is not None:
            cause = _cause(work, rank, late)
            found.setdefault((cause, hosts[rank]), []).append(rank)
    for (cause, _), ranks in _whole_hosts(found, hosts).items():
        yield _straggler(comparison, ranks, cause, excess)


def _late_steps(excess: Floats, typical: Floats, rank: int, work: Work, least: float) -> npt.NDArray[np.bool_] | None:
    """Return in which steps the rank is late, or None if it is no straggler."""
    known = excess[np.isfinite(excess)]
    if not len(known):
        return None
    same = np.flatnonzero((work.role == work.role[rank]) & (np.arange(len(typical)) != rank))
    peers = _sigma(typical[same]) if len(same) > 2 else 0.0
    noise = _sigma(known)
    floor = LEAST_SPREAD * float(np.nanmedian(work.own[rank]))
    middle = _median(excess)
    if middle > max(least, SIGNIFICANT * max(peers, floor, noise * 1.25 / np.sqrt(len(known)))):
        return np.isfinite(excess)
    # Late in some steps only.
    late = excess > max(SIGNIFICANT * max(noise, peers, floor), 2 * LEAST * work.step_time)
    if late.sum() >= 2 and float(excess[late].sum()) / len(known) > least:
        return late
    return None


def _is_always_last(comparison: Comparison, rank: int) -> bool:
    """Return whether the rank came last so often that chance does not explain it: each time, in at least ten calls."""
    row = comparison.stragglers.ranks.iloc[rank]
    return bool(row["times_last"] >= max(10, 0.95 * row["collectives"]))


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


CAUSES = {"data": ("data",), "host": ("host", "sync"), "copy": ("copy",), "other": ("other",), "gpu": KERNELS[:-1]}


def _cause(work: Work, rank: int, late: npt.NDArray[np.bool_]) -> str:
    """Return which parts of the accounting the rank's excess is in."""
    more = {}
    for cause, parts in CAUSES.items():
        values = work.part(*parts)
        difference = (values - median_of_others(values, work.role))[rank][late]
        more[cause] = float(np.nanmean(difference)) if np.isfinite(difference).any() else 0.0
    cause = max(more, key=lambda one: more[one])
    if cause == "gpu" and _explained_by_work(work, rank):
        return "work"
    return cause


def _explained_by_work(work: Work, rank: int) -> bool:
    same = (work.role == work.role[rank]) & (np.arange(len(work.role)) != rank)
    for amount in (work.flops, work.moved):
        if np.isfinite(amount[same]).any() and amount[rank] > IMBALANCE * np.nanmedian(amount[same]):
            return not work.slowness[rank] > 1.0 + 0.7 * (amount[rank] / np.nanmedian(amount[same]) - 1.0)
    return False


def _whole_hosts(
    found: dict[tuple[str, str | None], list[int]], hosts: Sequence[str | None]
) -> dict[tuple[str, str | None], list[int]]:
    """Return the ranks that are one finding: those of a host, if most of them are late for one cause, or each alone."""
    result: dict[tuple[str, str | None], list[int]] = {}
    for (cause, host), ranks in found.items():
        size = sum(one == host for one in hosts)
        if host is not None and len(ranks) > 1 and 2 * len(ranks) > size:
            result[cause, host] = ranks
        else:
            result |= {(cause, f"rank {rank}"): [rank] for rank in ranks}
    return result


def _straggler(comparison: Comparison, ranks: list[int], cause: str, excess: Floats) -> Finding:
    work, digests = comparison.work, comparison.digests
    inside = np.zeros(len(digests), np.bool_)
    inside[ranks] = True
    # Without the excess, the step takes as long as the next rank's own work lets it.
    own = np.where(np.isnan(work.own), -np.inf, work.own)
    normal = own - np.where(inside[:, None], np.maximum(np.nan_to_num(excess), 0.0), 0.0)
    saved = np.maximum(own.max(axis=0) - normal.max(axis=0), 0.0)
    alone = np.nanmean(np.maximum(excess[ranks], 0.0).max(axis=0))
    cost = float(np.mean(saved[np.isfinite(saved)])) if np.isfinite(saved).any() else 0.0
    step = work.step_time
    frame = comparison.stragglers.ranks
    last = int(frame["times_last"].to_numpy()[ranks].sum())
    calls = int(frame["collectives"].to_numpy()[ranks].max())
    first = ranks[0]
    who = comparison.place(first) if len(ranks) == 1 else _group_text(comparison, ranks)
    share = f"comes last in {percent_text(100 * last / calls)} of its collectives and " if calls else ""
    verb = "costs" if len(ranks) == 1 else "cost"
    share = share.replace("comes", "come").replace("its", "their") if len(ranks) > 1 else share
    beside = "" if cost > 0.5 * alone else f" (of {short_time_text(float(alone))}: another rank is as late)"
    text = (
        f"{who} {share}{verb} {short_time_text(cost)} or {percent_text(100 * cost / step)} of a step{beside}: "
        f"{_why(comparison, ranks, cause)}."
    )
    evidence = {
        "excess_us": float(alone),
        "times_last": last,
        "collectives": calls,
        "slowness": float(np.nanmedian(work.slowness[ranks])),
    }
    names = tuple(digests[rank].rank for rank in ranks)
    return Finding("straggler", text, names, cost, 100 * cost / step, cause, evidence)


def _group_text(comparison: Comparison, ranks: list[int]) -> str:
    host = host_names(comparison.digests)[ranks[0]]
    names = [comparison.digests[rank].rank for rank in ranks]
    listed = f"{names[0]} to {names[-1]}" if names == list(range(names[0], names[-1] + 1)) else str(names)[1:-1]
    return f"host {host} (ranks {listed})"


def _why(comparison: Comparison, ranks: list[int], cause: str) -> str:
    work = comparison.work
    others = np.ones(len(work.role), np.bool_)
    others[ranks] = False
    others &= work.role == work.role[ranks[0]]
    if cause == "gpu":
        factor = float(np.nanmedian(work.slowness[ranks]))
        if factor > SLOW_GPU:
            return f"its kernels take {factor:.2f} times as long as the same kernels on the other ranks"
        return "its kernels take longer than those of the other ranks"
    if cause == "work":
        flops = float(np.nanmedian(work.flops[ranks]) / np.nanmedian(work.flops[others]))
        moved = float(np.nanmedian(work.moved[ranks]) / np.nanmedian(work.moved[others]))
        amount = f"{flops:.2f} times the FLOPs" if flops >= moved or moved != moved else f"{moved:.2f} times the bytes"
        return f"it has more work, {amount} of the other ranks"
    names = {"data": "waits for its data", "host": "launches late", "copy": "copies longer", "other": "is idle longer"}
    parts = work.part(*CAUSES[cause])
    mine, theirs = (float(np.nanmean(parts[chosen])) for chosen in (ranks, others))
    return f"it {names[cause]}, {short_time_text(mine)} a step where others take {short_time_text(theirs)}"


# Links ----------------------------------------------------------------------------------------------------------------


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
        step = comparison.work.step_time
        kind = found[0]
        text = (
            f"{_hosts_text(host)}: {kind.kind} of {bytes_text(kind.nbytes)} takes "
            f"{factor:.2f} times as long as in the other groups of {len(kind.members)} ranks, a slow link; "
            f"it costs {short_time_text(cost)} or {percent_text(100 * cost / step)} of a step."
        )
        named = tuple(comparison.digests[rank].rank for rank in ranks)
        yield Finding("link", text, named, cost, 100 * cost / step, evidence={"factor": factor, "host": host})


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


LEAST_BYTES = 1 << 20  # smaller messages take the time of their latency


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
                    _sigma(waits.transfer[rows]),
                    int(rows.sum()),
                    float(np.median(exposed)),
                )
                classes.setdefault((kind, nbytes, len(group.members), len(inside)), []).append(one)
    yield from (links for links in classes.values() if len(links) >= FEW)


# Work, steps, memory --------------------------------------------------------------------------------------------------


def stages(comparison: Comparison) -> Iterator[Finding]:
    """Find an imbalance between ranks that run different programs, such as the stages of a pipeline."""
    work = comparison.work
    numbers = np.unique(work.role)
    if len(numbers) < 2:
        return
    own = np.array([_median(work.own[work.role == number].ravel()) for number in numbers])
    heaviest, mean = int(np.nanargmax(own)), float(np.nanmean(own))
    cost = float(own[heaviest] - mean)
    if not cost > max(LEAST * work.step_time, (IMBALANCE - 1) * mean):
        return
    ranks = np.flatnonzero(work.role == numbers[heaviest])
    named = tuple(comparison.digests[rank].rank for rank in ranks.tolist())
    listed = ", ".join(map(str, named[:4])) + (", …" if len(named) > 4 else "")
    text = (
        f"Work is uneven: ranks {listed} have {own[heaviest] / mean:.2f} times the mean work of the {len(numbers)} "
        f"kinds of ranks; even, a step takes about {short_time_text(cost)} or "
        f"{percent_text(100 * cost / work.step_time)} less."
    )
    yield Finding("imbalance", text, named, cost, 100 * cost / work.step_time)


def steps(comparison: Comparison) -> Iterator[Finding]:
    """Find steps that take longer on most ranks."""
    work = comparison.work
    if work.steps == [None] or len(work.steps) < 4:
        return
    time = np.array([_median(column) for column in work.total.T])
    middle, spread = float(np.median(time)), _sigma(time)
    slow = np.flatnonzero(time > max(OUTLYING_STEP * middle, middle + SIGNIFICANT * max(spread, LEAST_SPREAD * middle)))
    slow = slow[slow > 0] if len(slow) and time[0] == time.max() else slow  # the first step warms up
    if not len(slow) or len(slow) > len(time) // 2:
        return
    cost = float((time[slow] - middle).sum()) / len(time)
    causes = {}
    for cause, parts in {**CAUSES, "communication": ("communication",)}.items():
        values = np.array([_median(column) for column in work.part(*parts).T])
        causes[cause] = float((values[slow] - np.median(values)).sum())
    cause = max(causes, key=lambda one: causes[one])
    names = [str(work.steps[one]) for one in slow]
    listed = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    text = (
        f"{len(names)} of {len(time)} steps take up to {time[slow].max() / middle:.2f} times the median on most ranks "
        f"({listed}), mostly {_STEP_CAUSES[cause]}: {short_time_text(cost)} or "
        f"{percent_text(100 * cost / work.step_time)} of a step on average."
    )
    yield Finding("step", text, (), cost, 100 * cost / work.step_time, cause, {"steps": names})


_STEP_CAUSES = {
    "data": "waiting for data",
    "host": "late launches",
    "copy": "copies",
    "other": "idle time",
    "gpu": "time of kernels",
    "communication": "communication",
}


def memory(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks that allocate more memory than the others of their role."""
    peak = np.array([digest.memory_peak for digest in comparison.digests])
    others = median_of_others(peak[:, None], comparison.work.role)[:, 0]
    with np.errstate(invalid="ignore"):
        ratio = peak / others
    for rank in np.flatnonzero(np.nan_to_num(ratio) > MEMORY).tolist():
        text = (
            f"{comparison.place(rank)} allocates {bytes_text(float(peak[rank]))} at its peak, "
            f"{ratio[rank]:.2f} times as much as the others."
        )
        named = (comparison.digests[rank].rank,)
        yield Finding("memory", text, named, float("nan"), float("nan"), evidence={"ratio": float(ratio[rank])})


# Calls that do not match ----------------------------------------------------------------------------------------------


def mismatches(comparison: Comparison) -> Iterator[Finding]:
    """Find sequence numbers under which ranks called different collectives."""
    matched = comparison.stragglers._matched
    if not matched.mismatched:
        return
    first = matched.mismatches[0]
    parts = [f"{_numbers(comparison, ranks)}: {call}" for call, ranks in first.calls.items()]
    count = matched.mismatched
    text = (
        f"{count:,} {'call does' if count == 1 else 'calls do'} not match across ranks; the first is number "
        f"{first.number} of group {first.group} (ranks {'; ranks '.join(parts)})."
    )
    ranks = tuple(comparison.digests[rank].rank for members in first.calls.values() for rank in members)
    yield Finding("mismatch", text, ranks, float("nan"), float("nan"))


def experts(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks that send or receive more in all-to-alls than the other members of their group, as busy experts do."""
    kind = KINDS.index("alltoall")
    groups: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for rank, digest in enumerate(comparison.digests):
        calls = digest.calls
        for number, key in enumerate(calls.groups):
            sizes = calls.message_bytes[(calls.group == number) & (calls.kind == kind)]
            if np.isfinite(sizes).any():
                groups.setdefault(key, []).append((rank, float(np.nansum(sizes))))
    for (name, _), members in groups.items():
        sizes = np.array([size for _, size in members])
        at = int(sizes.argmax())
        ratio = float(sizes[at] / sizes.mean()) if sizes.mean() > 0 else 1.0
        if len(members) > 1 and ratio > UNEVEN_EXPERTS:
            rank = members[at][0]
            text = (
                f"{comparison.place(rank)} moves {ratio:.2f} times the mean bytes of its group {name} in all-to-alls: "
                f"its experts get more tokens."
            )
            named = (comparison.digests[rank].rank,)
            yield Finding("imbalance", text, named, float("nan"), float("nan"), "work", {"ratio": ratio})


def _numbers(comparison: Comparison, ranks: Sequence[int]) -> str:
    """Return the first of the ranks as text."""
    return ", ".join(str(comparison.digests[rank].rank) for rank in ranks[:4]) + (", …" if len(ranks) > 4 else "")


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
            f"{'Rank' if len(absent) == 1 else 'Ranks'} {_numbers(comparison, absent)} did not come to "
            f"{kind} number {last} of group {name}: {len(ahead)} of its {len(members)} ranks called it and its kernel "
            f"never ended; the last call of rank {comparison.digests[absent[0]].rank} there is number "
            f"{behind[0][1].called}."
        )
        if absent not in found or len(ahead) > found[absent][0]:
            found[absent] = len(ahead), text
    for absent, (_, text) in found.items():
        ranks = tuple(comparison.digests[rank].rank for rank in absent)
        yield Finding("missing", text, ranks, float("nan"), float("nan"))


RULES: tuple[Callable[[Comparison], Iterator[Finding]], ...] = (
    stragglers,
    links,
    stages,
    steps,
    memory,
    mismatches,
    missing,
    experts,
)

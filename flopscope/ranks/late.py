"""Stragglers: ranks whose own work takes longer than that of the others, and why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from flopscope.answers.sentences.ranks import SlowGpu, Straggler
from flopscope.ranks.comparison import LEAST, LEAST_SPREAD, SIGNIFICANT, Comparison, Finding
from flopscope.ranks.medians import Floats, mean, median, median_of_others, sigma
from flopscope.ranks.work import KERNELS, Work

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
    for rank in _slow_gpus(work):
        if not late[rank].any():
            slowness = float(work.ops.slowness[rank])
            facts = SlowGpu(comparison.place(rank), slowness, int(last[rank]), int(calls[rank]))
            yield comparison.found("gpu", facts, [rank], cause="gpu")


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


def _slow_gpus(work: Work) -> list[int]:
    """Return the ranks whose kernels take longer than the same kernels of the others, beyond what ranks differ by."""
    slowness = work.ops.slowness
    if not work.has_shapes or np.isfinite(slowness).sum() <= FEW_RANKS:
        return []
    return list(np.flatnonzero(slowness > max(SLOW_ALONE, 1.0 + SIGNIFICANT * sigma(slowness))).tolist())


def _cause(work: Work, rank: int, late: Flags) -> str:
    """Return which parts of the accounting the rank's excess is in."""
    more = {}
    for cause, parts in CAUSES.items():
        values = work.part(*parts)
        difference = (values - median_of_others(values, work.role))[rank][late]
        more[cause] = float(np.nan_to_num(mean(difference)))
    cause = max(more, key=lambda one: more[one])
    if cause != "gpu":
        return cause
    if not work.has_shapes:
        return "kernels"
    return "work" if _explained_by_work(work, rank) else "gpu"


def _explained_by_work(work: Work, rank: int) -> bool:
    for amount in work.amounts.values():
        others = median(amount[work.others(rank)])
        if amount[rank] > IMBALANCE * others:
            return not others > 0 or not work.ops.slowness[rank] > 1.0 + 0.7 * (amount[rank] / others - 1.0)
    return False


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
    alone = float(excess.max(axis=0).mean())
    facts = Straggler(
        places=[comparison.place(rank) for rank in ranks],
        cause=cause,
        excess_us=alone,
        alone=comparison.cost(alone),
        cost=comparison.cost(float(work.saved(all_excess).mean())),
        steps=int(steps.sum()),
        all_steps=len(steps),
        times_last=int(waits["times_last"].to_numpy()[ranks].sum()),
        collectives=int(waits["collectives"].to_numpy()[ranks].max()),
        slowness=median(work.ops.slowness[ranks]),
        more=max(more, default=None),
        time=mean(parts[ranks]),
        usual=mean(parts[others]),
    )
    return comparison.found("straggler", facts, ranks, facts.cost, cause)

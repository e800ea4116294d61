"""Stragglers: ranks whose own work takes longer than that of the others, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from flopscope.ranks.calls import Floats
from flopscope.ranks.finding import LEAST, LEAST_SPREAD, SIGNIFICANT, Comparison, Finding, host_names, median, sigma
from flopscope.ranks.work import KERNELS, Work, median_of_others
from flopscope.support.units import percent_text, short_time_text

__all__ = ["CAUSES", "stragglers"]

SLOW_GPU = 1.03
IMBALANCE = 1.03


def stragglers(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks whose own work takes longer than that of the others that run the same program."""
    work, digests = comparison.work, comparison.digests
    own = work.own
    if len(digests) < 2 or not np.isfinite(own).any():
        return
    excess = own - median_of_others(own, work.role)
    typical = np.array([median(row) for row in excess])
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
    peers = sigma(typical[same]) if len(same) > 2 else 0.0
    noise = sigma(known)
    floor = LEAST_SPREAD * float(np.nanmedian(work.own[rank]))
    middle = median(excess)
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

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
SLOW_ALONE = 1.05  # of a GPU that no rank waits for
FEW_RANKS = 3
IMBALANCE = 1.03


def stragglers(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks whose own work takes longer than that of the others that run the same program, and slow GPUs."""
    work, digests = comparison.work, comparison.digests
    own = work.own
    if len(digests) < 2:
        return
    excess = work.excess
    typical = np.array([median(row) for row in excess])
    least = LEAST * work.step_time
    late = np.zeros(own.shape, np.bool_)
    for rank in range(len(digests)):
        steps = _late_steps(excess[rank], typical, rank, work, least)
        known = np.isfinite(excess[rank])
        always = known.any() and (excess[rank][known] > 3 * least).all()
        if steps is None and always and _is_always_last(comparison, rank):
            steps = known  # few steps, but all of them and all of their calls
        if steps is not None:
            late[rank] = steps
    late[_hidden(work, late)] = False
    found: dict[tuple[str, str | None], list[int]] = {}
    hosts = host_names(digests)
    for rank in np.flatnonzero(late.any(axis=1)).tolist():
        found.setdefault((_cause(work, rank, late[rank]), hosts[rank]), []).append(rank)
    for (cause, _), ranks in _whole_hosts(found, hosts).items():
        yield _straggler(comparison, ranks, cause, np.where(late, excess, 0.0))
    named = {rank for ranks in found.values() for rank in ranks}
    for rank in _slow_gpus(work):
        if rank not in named:
            yield _slow_gpu(comparison, rank)


def _hidden(work: Work, late: npt.NDArray[np.bool_]) -> list[int]:
    """Return the late ranks that would cost nothing without the other late ones: ranks of their role that are not late
    take as long, so that this is how much the ranks differ anyway."""
    excess = np.where(late, np.maximum(np.nan_to_num(work.excess), 0.0), 0.0)
    own = np.where(np.isnan(work.own), -np.inf, work.own)
    hidden = []
    for number in np.unique(work.role[late.any(axis=1)]):
        members = np.flatnonzero(work.role == number)
        less = own[members] - excess[members]
        rest = less.max(axis=0)
        for place in np.flatnonzero(late[members].any(axis=1)).tolist():
            cost = np.maximum(own[members[place]] - rest, 0.0)[np.isfinite(rest)]
            if not cost.mean() > LEAST * work.step_time:
                hidden.append(int(members[place]))
    return hidden


def _slow_gpus(work: Work) -> list[int]:
    """Return the ranks whose kernels take longer than the same kernels of the others, beyond what ranks differ by."""
    slowness = work.slowness
    if not work.has_shapes or np.isfinite(slowness).sum() <= FEW_RANKS:
        return []
    with np.errstate(invalid="ignore"):
        slow = slowness > max(SLOW_ALONE, 1.0 + SIGNIFICANT * sigma(slowness))
    return list(np.flatnonzero(slow).tolist())


def _slow_gpu(comparison: Comparison, rank: int) -> Finding:
    factor = float(comparison.work.slowness[rank])
    row = comparison.stragglers.ranks.iloc[rank]
    calls, last = int(row["collectives"]), int(row["times_last"])
    effect = "without collectives it is unknown who waits for it"
    if calls:
        share = percent_text(100 * last / calls)
        effect = f"it comes last in {share} of its collectives, but its cost does not stand out from how steps differ"
    text = (
        f"the kernels of {comparison.place(rank)} take {factor:.2f} times as long as the same kernels on the other "
        f"ranks; {effect}."
    )
    named = (comparison.digests[rank].rank,)
    return Finding("gpu", text, named, float("nan"), float("nan"), "gpu", {"slowness": factor})


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
    if cause == "gpu" and not work.has_shapes:
        return "kernels"
    if cause == "gpu" and _explained_by_work(work, rank):
        return "work"
    return cause


def _amounts(work: Work) -> tuple[tuple[Floats, str], ...]:
    return (work.flops, "FLOPs"), (work.moved, "bytes")


def _explained_by_work(work: Work, rank: int) -> bool:
    same = (work.role == work.role[rank]) & (np.arange(len(work.role)) != rank)
    for amount, _ in _amounts(work):
        others = median(amount[same])
        if amount[rank] > IMBALANCE * others:
            return not others > 0 or not work.slowness[rank] > 1.0 + 0.7 * (amount[rank] / others - 1.0)
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
    excess = np.where(inside[:, None], np.maximum(np.nan_to_num(excess), 0.0), 0.0)
    alone = float(excess.max(axis=0).mean())
    cost = float(work.saved(excess).mean())
    step = work.step_time
    frame = comparison.stragglers.ranks
    last = int(frame["times_last"].to_numpy()[ranks].sum())
    calls = int(frame["collectives"].to_numpy()[ranks].max())
    steps = np.flatnonzero((excess > 0).any(axis=0))
    who = comparison.place(ranks[0]) if len(ranks) == 1 else _group_text(comparison, ranks)
    share = f"comes last in {percent_text(100 * last / calls)} of its collectives and " if calls else ""
    verb = "costs" if len(ranks) == 1 else "cost"
    share = share.replace("comes", "come").replace("its", "their") if len(ranks) > 1 else share
    when = f" in {len(steps)} of {excess.shape[1]} steps" if 2 * len(steps) < excess.shape[1] else ""
    price = comparison.price(cost)
    if cost < LEAST * step:
        price = f"nothing while another rank is later, {comparison.price(alone)} without that one"
    elif cost < 0.5 * alone:
        price += f", as another rank is almost as late, and {short_time_text(alone)} without that one"
    text = f"{who} {share}{verb} {price}{when}: {_why(comparison, ranks, cause, steps)}."
    evidence = {
        "excess_us": alone,
        "steps": len(steps),
        "times_last": last,
        "collectives": calls,
        "slowness": median(work.slowness[ranks]),
    }
    names = tuple(digests[rank].rank for rank in ranks)
    return Finding("straggler", text, names, cost, work.percent(cost), cause, evidence)


def _group_text(comparison: Comparison, ranks: list[int]) -> str:
    host = host_names(comparison.digests)[ranks[0]]
    names = [comparison.digests[rank].rank for rank in ranks]
    listed = f"{names[0]} to {names[-1]}" if names == list(range(names[0], names[-1] + 1)) else str(names)[1:-1]
    return f"host {host} (ranks {listed})"


def _why(comparison: Comparison, ranks: list[int], cause: str, steps: npt.NDArray[np.intp]) -> str:
    work = comparison.work
    others = np.ones(len(work.role), np.bool_)
    others[ranks] = False
    others &= work.role == work.role[ranks[0]]
    factor = median(work.slowness[ranks])
    if cause in ("gpu", "kernels") and not factor > SLOW_GPU:
        return "its kernels take longer than those of the other ranks"
    if cause == "gpu":
        return f"its kernels take {factor:.2f} times as long as the same kernels on the other ranks"
    if cause == "kernels":
        return (
            f"its kernels take {factor:.2f} times as long as those of the other ranks: more work or a slower GPU, "
            "which only recorded shapes distinguish"
        )
    if cause == "work":
        amounts = ((median(one[ranks]), median(one[others]), name) for one, name in _amounts(work))
        known = [(mine / theirs, name) for mine, theirs, name in amounts if theirs > 0 and mine >= 0]
        more = "{:.2f} times the {} of".format(*max(known, key=lambda one: one[0])) if known else "beyond that of"
        return f"it has more work, {more} the other ranks"
    names = {"data": "waits for its data", "host": "launches late", "copy": "copies longer", "other": "is idle longer"}
    parts = work.part(*CAUSES[cause])[:, steps]
    mine, theirs = (float(np.nanmean(parts[chosen])) for chosen in (ranks, others))
    each = " a step" if work.has_steps else ""
    return f"it {names[cause]}, {short_time_text(mine)}{each} where others take {short_time_text(theirs)}"

"""Work, steps and memory that are uneven: between stages, experts, steps, and ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flopscope.ranks.calls import KINDS
from flopscope.ranks.finding import LEAST, LEAST_SPREAD, SIGNIFICANT, Comparison, Finding, median, sigma
from flopscope.ranks.late import CAUSES, IMBALANCE
from flopscope.ranks.work import median_of_others
from flopscope.support.units import bytes_text

__all__ = ["experts", "memory", "stages", "steps"]

OUTLYING_STEP = 1.25
MEMORY = 1.2
UNEVEN_EXPERTS = 1.2


def stages(comparison: Comparison) -> Iterator[Finding]:
    """Find an imbalance between ranks that run parts of one program, such as the stages of a pipeline."""
    work = comparison.work
    if not work.has_steps and len({digest.steps for digest in comparison.digests} - {0}) > 1:
        return  # whole profiles are compared, and some are shorter
    for program in np.unique(work.program):
        numbers = np.unique(work.role[work.program == program])
        own = np.array([median(work.own[work.role == number].ravel()) for number in numbers])
        if np.isfinite(own).sum() < 2:
            continue
        heaviest, mean = int(np.nanargmax(own)), float(np.nanmean(own))
        cost = float(own[heaviest] - mean)
        if not cost > max(LEAST * work.step_time, (IMBALANCE - 1) * mean):
            continue
        ranks = np.flatnonzero(work.role == numbers[heaviest]).tolist()
        who = f"rank {comparison.numbers(ranks)} has" if len(ranks) == 1 else f"ranks {comparison.numbers(ranks)} have"
        text = (
            f"work is uneven: {who} {own[heaviest] / mean:.2f} times the mean work of the {len(numbers)} kinds of "
            f"ranks, which costs about {comparison.price(cost)}."
        )
        named = tuple(comparison.digests[rank].rank for rank in ranks)
        yield Finding("imbalance", text, named, cost, work.percent(cost))


def steps(comparison: Comparison) -> Iterator[Finding]:
    """Find steps that take longer on most ranks, and not because they wait for one rank."""
    work = comparison.work
    if work.steps == [None] or len(work.steps) < 4:
        return
    waiting = work.saved(np.maximum(work.excess, 0.0))
    time = np.array([median(column) for column in work.total.T]) - waiting
    middle, spread = float(np.median(time)), sigma(time)
    slow = np.flatnonzero(time > max(OUTLYING_STEP * middle, middle + SIGNIFICANT * max(spread, LEAST_SPREAD * middle)))
    slow = slow[slow > 0] if len(slow) and time[0] == time.max() else slow  # the first step warms up
    if not len(slow) or len(slow) > len(time) // 2 or not middle > 0:
        return
    cost = float((time[slow] - middle).sum()) / len(time)
    causes = {}
    for cause, parts in {**CAUSES, "communication": ("communication",)}.items():
        values = np.array([median(column) for column in work.part(*parts).T])
        values -= waiting if cause == "communication" else 0.0
        causes[cause] = float((values[slow] - np.median(values)).sum())
    cause = max(causes, key=lambda one: causes[one])
    names = [str(work.steps[one]) for one in slow]
    listed = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    text = (
        f"{len(names)} of {len(time)} steps take up to {time[slow].max() / middle:.2f} times the median on most ranks "
        f"({listed}), mostly {_STEP_CAUSES[cause]}: {comparison.price(cost)} on average."
    )
    yield Finding("step", text, (), cost, work.percent(cost), cause, {"steps": names})


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
    ratio = np.divide(peak, others, out=np.full(len(peak), np.nan), where=others > 0)
    for rank in np.flatnonzero(np.nan_to_num(ratio) > MEMORY).tolist():
        text = (
            f"{comparison.place(rank)} allocates {bytes_text(float(peak[rank]))} at its peak, "
            f"{ratio[rank]:.2f} times as much as the others."
        )
        named = (comparison.digests[rank].rank,)
        yield Finding("memory", text, named, float("nan"), float("nan"), evidence={"ratio": float(ratio[rank])})


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

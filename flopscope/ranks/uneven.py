"""Work, steps and memory that are uneven: between stages, experts, steps, and ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flopscope.answers.sentences.ranks import BusyExpert, LargeMemory, SlowSteps, UnevenWork
from flopscope.ranks.calls import KINDS
from flopscope.ranks.comparison import LEAST, LEAST_SPREAD, SIGNIFICANT, Comparison, Finding
from flopscope.ranks.late import CAUSES, IMBALANCE
from flopscope.ranks.medians import Floats, median, median_of_others, sigma

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
            ranks = np.flatnonzero(work.role == numbers[heaviest]).tolist()
            facts = UnevenWork(comparison.numbers(ranks), float(own[heaviest] / mean), len(numbers), cost)
            yield comparison.found("imbalance", facts, ranks, cost)


def steps(comparison: Comparison) -> Iterator[Finding]:
    """Find steps that take longer on most ranks, and not because they wait for one rank."""
    work = comparison.work
    if len(work.steps) < FEW_STEPS:
        return
    waiting = work.saved(np.maximum(work.excess, 0.0))
    time = _by_step(work.total) - waiting
    middle, spread = float(np.median(time)), sigma(time)
    slow = np.flatnonzero(time > max(OUTLYING_STEP * middle, middle + SIGNIFICANT * max(spread, LEAST_SPREAD * middle)))
    slow = slow[slow > 0] if len(slow) and time[0] == time.max() else slow  # the first step warms up
    if not len(slow) or len(slow) > len(time) // 2 or not middle > 0:
        return
    causes = {}
    for cause, parts in {**CAUSES, "communication": ("communication",)}.items():
        values = _by_step(work.part(*parts)) - (waiting if cause == "communication" else 0.0)
        causes[cause] = float((values[slow] - np.median(values)).sum())
    cause = max(causes, key=lambda one: causes[one])
    cost = comparison.cost(float((time[slow] - middle).sum()) / len(time))
    names = [str(work.steps[one]) for one in slow]
    facts = SlowSteps(names, len(time), cause, float(time[slow].max() / middle), cost)
    yield comparison.found("step", facts, (), cost, cause)


def _by_step(values: Floats) -> Floats:
    return np.array([median(column) for column in values.T])


def memory(comparison: Comparison) -> Iterator[Finding]:
    """Find ranks that allocate more memory than the others of their role."""
    peak = np.array([digest.memory_peak for digest in comparison.digests])
    others = median_of_others(peak[:, None], comparison.work.role)[:, 0]
    ratio = np.divide(peak, others, out=np.full(len(peak), np.nan), where=others > 0)
    for rank in np.flatnonzero(ratio > MEMORY).tolist():
        facts = LargeMemory(comparison.place(rank), float(peak[rank]), float(ratio[rank]))
        yield comparison.found("memory", facts, [rank])


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
            facts = BusyExpert(comparison.place(rank), name, sizes[rank] / mean)
            yield comparison.found("imbalance", facts, [rank], cause="work")

"""What is slow across the ranks, the largest cost first: each finding names who, why, and what it costs per step.

Each rule asks for an effect beyond what the ranks and the steps differ by anyway, so that nothing is named where
nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from flopscope.ranks.finding import Comparison, Finding
from flopscope.ranks.late import stragglers
from flopscope.ranks.links import links
from flopscope.ranks.uneven import experts, memory, stages, steps
from flopscope.ranks.unmatched import mismatches, missing

__all__ = ["RULES", "find", "verdict_of"]

RULES: tuple[Callable[[Comparison], Iterator[Finding]], ...] = (
    missing,
    mismatches,
    stragglers,
    links,
    stages,
    steps,
    memory,
    experts,
)
FIRST = ("missing", "mismatch")  # a program that hangs or is wrong


def find(comparison: Comparison) -> list[Finding]:
    """Return the findings: calls that do not match first, then those with the largest cost, last those without one."""
    found = [replace(one, what=one.what[0].upper() + one.what[1:]) for rule in RULES for one in rule(comparison)]
    return sorted(
        found,
        key=lambda one: (one.kind not in FIRST, np.isnan(one.cost_us), 0.0 if np.isnan(one.cost_us) else -one.cost_us),
    )


def verdict_of(comparison: Comparison, findings: Sequence[Finding]) -> str:
    """Return the first finding's sentence, or without findings what that means."""
    work = comparison.work
    if findings:
        return findings[0].what
    if len(comparison.digests) == 1:
        return "One rank: there is no other to compare it with."
    if not np.isfinite(work.total).any():
        return "The ranks cannot be compared: no work of a device is recorded."
    if not np.isfinite(work.excess).any():
        return "The ranks cannot be compared: no two of them recorded the same steps of the same program."
    if not np.nansum(work.part("communication")) > 0:
        return (
            "No rank stands out, but no communication is recorded, so that waiting for another rank cannot be "
            "distinguished from work."
        )
    return "No rank, link or step stands out."

"""What is slow across the ranks, the largest cost first: each finding names who, why, and what it costs per step.

Each rule asks for an effect beyond what the ranks and the steps differ by anyway, so that nothing is named where
nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from flopscope.answers.sentences.ranks import nothing_found
from flopscope.ranks.comparison import Comparison, Finding
from flopscope.ranks.late import stragglers
from flopscope.ranks.links import links
from flopscope.ranks.uneven import experts, memory, stages, steps
from flopscope.ranks.unmatched import mismatches, missing

Rule: TypeAlias = Callable[[Comparison], Iterator[Finding]]
RULES: tuple[Rule, ...] = (missing, mismatches, stragglers, links, stages, steps, memory, experts)
FIRST = ("missing", "mismatch")  # a program that hangs or is wrong


def find(comparison: Comparison) -> list[Finding]:
    """Return the findings: calls that do not match first, then those with the largest cost, last those without one."""
    return sorted(
        (one for rule in RULES for one in rule(comparison)),
        key=lambda one: (one.kind not in FIRST, np.isnan(one.cost_us), -np.nan_to_num(one.cost_us)),
    )


def verdict_of(comparison: Comparison, findings: Sequence[Finding]) -> str:
    """Return the first finding's sentence, or without findings what that means."""
    if findings:
        return findings[0].what
    work = comparison.work
    return nothing_found(
        len(comparison.digests),
        bool(np.isfinite(work.total).any()),
        bool(np.isfinite(work.excess).any()),
        bool(np.nansum(work.part("communication")) > 0),
    )

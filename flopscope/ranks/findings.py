"""What is slow across the ranks, the largest cost first: each finding names who, why, and what it costs per step.

Each rule asks for an effect beyond what the ranks and the steps differ by anyway, so that nothing is named where
nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from flopscope.ranks.finding import Comparison, Finding
from flopscope.ranks.late import stragglers
from flopscope.ranks.links import links
from flopscope.ranks.uneven import experts, memory, stages, steps
from flopscope.ranks.unmatched import mismatches, missing

__all__ = ["RULES", "find"]

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

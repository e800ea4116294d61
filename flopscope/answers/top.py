"""What takes the time, whatever else is known: the ops with the most of it, exposed communication, a step's phases."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flopscope import _core
from flopscope.answers.accounting import KNOWN
from flopscope.answers.analysis import Analysis
from flopscope.answers.collective_rules import kinds_of
from flopscope.answers.pieces import Op
from flopscope.results.categories import sums_of_groups

MOST = 5  # ops that a summary names as those with the most time
EXPOSED = 0.05  # share of the time from which exposed communication has a sentence
WITHOUT = ("communication", "copy")  # parts of work that has no limit on a device: it is that of a link
INTENSE = 10  # FLOPs per byte from which an op whose limit is unknown is said to compute


class Most(NamedTuple):
    """An op with much of the time, or a kernel of which no op is known; times in µs a step, or of the profile."""

    op: str
    calls: float
    time: float
    ideal: float
    """At the peaks; NaN if it is unknown of a part of the time."""
    tflops_per_s: float
    gbytes_per_s: float
    """Rates while its known work ran; NaN without any."""
    computes: bool
    """Whether its limit is the peak FLOP/s and not the bandwidth."""
    unknown: str | None
    """Why its ideal time is unknown; None if it is known."""


def most_time(analysis: Analysis) -> list[Most]:
    """Return the MOST ops with the most time, longest first; those of several shapes are one."""
    groups: dict[str, list[Op]] = {}
    for op in analysis.ops:
        groups.setdefault(op.key, []).append(op)
    longest = dict(heapq.nlargest(MOST, groups.items(), key=lambda item: sum(op.time for op in item[1])))
    numbers = {key: place for place, key in enumerate(longest)}
    rows = [numbers.get(key, -1) for key in analysis.columns["key"]]
    sums = sums_of_groups(analysis.columns, rows, [-1] * len(longest), analysis.on_device)
    rates = zip(sums["tflops_per_s"], sums["gbytes_per_s"], strict=True)
    return [_most(analysis, *item, *both) for item, both in zip(longest.items(), rates, strict=False)]


def _most(analysis: Analysis, key: str, ops: Sequence[Op], tera: float, giga: float) -> Most:
    time, ideal, compute, memory = (sum(getattr(op, of) for op in ops) for of in ("time", "ideal", "compute", "memory"))
    # A known ideal time may be 0, below 1 ns. That of the fill of a workspace is 0.
    works = any(op.part not in WITHOUT for op in ops)
    zero = [op for op in ops if not op.ideal > 0 and not (works and op.part in WITHOUT)]
    unknown = [op for op in zero if op.part in (*WITHOUT, "unmodelled") or not op.compute + op.memory > 0]
    known = time - sum(op.time for op in unknown) > KNOWN * time
    computes = compute > memory or (not compute + memory > 0 and 1000 * tera > INTENSE * giga)
    calls, least = sum(op.calls or op.count for op in ops), ideal if known else math.nan
    why = None if known else _why_unknown(analysis, max(unknown, key=lambda op: op.time))
    # Scaled as the accounting, of which these are shares.
    return Most(key, calls, analysis.bare_scales[0] * time, least, tera, giga, computes, why)


def _why_unknown(analysis: Analysis, op: Op) -> str:
    """Return the first that is missing of what an op's least time is made of."""
    row = op.row if op.row >= 0 else analysis.rows_of.get(op.key, (-1,))[0]
    if op.part in WITHOUT:
        return op.part
    if row >= 0 and not any(math.isnan(analysis.columns[of][row]) for of in ("flops", "bytes_total_moved")):
        return "peaks"
    if op.row < 0:
        return "op"
    if op.key not in _core._ruled_ops():
        return "rule"
    return "arguments" if any(map(len, op.shapes)) else "shapes"


def exposed(whole: Mapping[str, Any], steps: int, calls: Mapping[str, Sequence[Any]]) -> dict[str, Any] | None:
    """Return the communication during which nothing computes, as the summary's JSON has it; None if it takes less than
    EXPOSED of the time. The bandwidth is the median one of the kind with the most of it, with the wait for other ranks.

    whole: the last row of the accounting of so many steps that are alike. calls: columns of Store.collectives().
    """
    time, most = whole["communication"], max(kinds_of(calls), key=lambda kind: kind.exposed, default=None)
    kind, bus = (most.collective, most.bus_median) if most else (None, math.nan)
    share = 100 * time / whole["total"] if whole["total"] else 0.0
    found = {"time": time / max(steps, 1), "share": share, "collective": kind, "bus_gbytes_per_s": bus}
    return found if share > 100 * EXPOSED else None


def phases_of(analysis: Analysis) -> list[tuple[str, float, float]]:
    """Return the phases of the steps that are alike (csrc/summaries/phases.h), with µs of the host and of the devices
    a step; [] where nothing but ops was recorded of them."""
    if not (steps := analysis.alike):
        return []
    times = analysis.core.phases(min(steps[0].begin, steps[0].host_begin), steps[-1].end)
    host, device = ({name: both[of] * analysis.scale for name, both in times.items()} for of in (0, 1))
    found = [(name, host[name], device[name]) for name in times if host[name] or device[name]]
    return found if any(name != "forward" for name, *_ in found) else []

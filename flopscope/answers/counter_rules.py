"""What hardware counters counted: traffic beyond the model, and below it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding, finding_about
from flopscope.answers.pieces import Op
from flopscope.answers.sentences import memory
from flopscope.answers.sentences.words import more_ops

MOST_TRAFFIC = 1.3
"""Largest ratio of counted to modelled bytes without a finding: writes are attributed within a part of the L2."""
CACHED, LEAST_CACHED = 0.7, 0.01
"""Counted bytes over the model's below which the L2 served the rest, and the least share of the time to report."""
OF_LIBRARIES = ("matrix product", "convolution", "attention")
"""Categories whose kernels move more than their arguments and results: workspaces, and tiles once more."""
TRAFFIC_SHARE = 0.5
"""Least share of its time that an op needs for the counted bytes at the peak, so that fewer bytes make it faster."""
LEAST_L2 = 50.0
"""Percent of the L2's bandwidth below which it does not bound an op, where that bandwidth is known."""
Counts = list[tuple[Op, float]]
"""Ops with what was counted of each, the longest first."""


def _counted(analysis: Analysis, op: Op, name: str) -> float:
    return float(analysis.columns[name][op.row]) if op.row >= 0 else math.nan


def traffic(analysis: Analysis) -> Iterator[Finding]:
    """Memory-bound ops whose counted bytes exceed those that they must move by 30 % or more.

    The estimate is the share of their time that the bytes beyond the model take. Premises: counters of the memory, and
    the shapes (record_shapes), from which the model has its bytes; no product, convolution or attention, whose
    libraries read tiles again and move memory of their own, which no change of the program avoids.
    """
    found: Counts = []
    for op in analysis.ops:
        ratio = _counted(analysis, op, "traffic_ratio")
        if op.category not in OF_LIBRARIES and ratio >= MOST_TRAFFIC and op.memory * ratio >= TRAFFIC_SHARE * op.time:
            found.append((op, ratio))
    if found:
        op, ratio = found[0]
        must = _counted(analysis, op, "bytes_read")
        reads = _counted(analysis, op, "dram_bytes_read") / must if must > 0 else math.nan
        says = partial(memory.traffic, op.key, ratio, reads if reads >= MOST_TRAFFIC else math.nan, analysis.uses_jax)
        claims = [(op, min(op.time * (1 - 1 / ratio), max(op.beyond, 0.0))) for op, ratio in found]
        yield finding_about(analysis, says, claims, [op for op, _ in found])


def cached(analysis: Analysis) -> Iterator[str]:
    """Yield a note on the longest op whose share of the roofline says nothing: the L2 served most of its bytes."""
    found: Counts = []
    for op in analysis.ops:
        ratio = _moved(analysis, op)
        if op.time > 0 and ratio < CACHED and op.memory >= max(op.compute, TRAFFIC_SHARE * op.time):
            found.append((op, ratio))
    if not found or sum(op.time for op, _ in found) < LEAST_CACHED * analysis.unobserved:
        return
    op, ratio = found[0]
    compute, memory = (100 * least / op.time for least in (op.compute, op.memory))
    busy, asked = _counted(analysis, op, "device_busy_time"), _counted(analysis, op, "l2_bytes")
    bound = "the L2 or latency bounds it"
    if compute >= 100 * TRAFFIC_SHARE:
        bound = f"its FLOPs bound it, at {compute:.0f} % of their peak"
    elif busy > 0 and asked > 0 and not _counted(analysis, op, "pct_peak_l2") < LEAST_L2:
        bound = f"the L2 bounds it, which served {asked / busy / 1e6:.1f} TB/s"
    yield (
        f"Cache hits: {op.key} moved {ratio:.2f} × the bytes of its model, by the GPU's counters, because the L2 "
        f"cache had the rest. Its {memory:.0f} % of the memory's bandwidth therefore says nothing: the memory was "
        f"at {memory * ratio:.0f} %, and {bound}.{more_ops(len(found) - 1)}"
    )


def _moved(analysis: Analysis, op: Op) -> float:
    """Return the counted over the modelled bytes; of those that are read where the written ones are unknown."""
    ratio, must = _counted(analysis, op, "traffic_ratio"), _counted(analysis, op, "bytes_read")
    if math.isnan(ratio) and must > 0:
        return _counted(analysis, op, "dram_bytes_read") / must
    return ratio

"""Rules about what hardware counters counted: traffic beyond the model or below it, padding, idle tensor cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from flopscope.answers.analysis import Analysis
from flopscope.answers.facts import Cached, PaddedTiles, StarvedTensorCores, Traffic
from flopscope.answers.findings import Finding, finding_about, is_product
from flopscope.answers.pieces import Op

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
MOST_PADDING = 1.35
"""Largest ratio of busy tensor cores to the model's share of their peak without a finding: clocks vary below it."""
LOW_TENSOR, USUAL_TENSOR = 60.0, 85.0
"""Percent of the cycles: less is a finding; large aligned products keep tensor cores about that busy on an H200."""

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
        facts = Traffic(op.key, ratio, reads if reads >= MOST_TRAFFIC else math.nan, analysis.uses_jax)
        yield _finding(analysis, facts, found, lambda ratio: 1 / ratio)


def cached(analysis: Analysis) -> Cached | None:
    """Return the longest op whose share of the roofline says nothing: less than 0.7 of the bytes of its model moved."""
    found: Counts = []
    for op in analysis.ops:
        ratio = _moved(analysis, op)
        if op.time > 0 and ratio < CACHED and op.memory >= max(op.compute, TRAFFIC_SHARE * op.time):
            found.append((op, ratio))
    if not found or sum(op.time for op, _ in found) < LEAST_CACHED * analysis.unobserved:
        return None
    op, ratio = found[0]
    compute, memory = (100 * least / op.time for least in (op.compute, op.memory))
    busy, asked = _counted(analysis, op, "device_busy_time"), _counted(analysis, op, "l2_bytes")
    below = _counted(analysis, op, "pct_peak_l2") < LEAST_L2
    rate = asked / busy if busy > 0 and asked > 0 and not below else math.nan
    return Cached(op.key, ratio, memory, compute, compute >= 100 * TRAFFIC_SHARE, rate, len(found))


def _moved(analysis: Analysis, op: Op) -> float:
    """Return the counted over the modelled bytes; of those that are read where the written ones are unknown."""
    ratio, must = _counted(analysis, op, "traffic_ratio"), _counted(analysis, op, "bytes_read")
    if math.isnan(ratio) and must > 0:
        return _counted(analysis, op, "dram_bytes_read") / must
    return ratio


def padding(analysis: Analysis) -> Iterator[Finding]:
    """Products that keep tensor cores much busier than their FLOPs explain: tiles are padded.

    The estimate is the share of their time beyond that of the FLOPs of the model. Premises: counters of the tensor
    cores, and the shapes (record_shapes).
    """
    found: Counts = []
    for op in _products(analysis):
        active = _counted(analysis, op, "tensor_active")
        ratio = active * op.time / (100 * op.compute) if op.compute > 0 else math.nan
        if active >= LOW_TENSOR and ratio >= MOST_PADDING:
            found.append((op, ratio))
    if found:
        facts = PaddedTiles(sum(op.calls for op, _ in found), analysis.per, found[0][1])
        yield _finding(analysis, facts, found, lambda ratio: 1 / ratio)


def tensor(analysis: Analysis) -> Iterator[Finding]:
    """Compute-bound products whose tensor cores work in less than 60 % of the cycles.

    The estimate is their time at 85 %. Premises: counters of the tensor cores, and the shapes (record_shapes).
    """
    every = [(op, _counted(analysis, op, "tensor_active")) for op in _products(analysis)]
    found = [(op, active) for op, active in every if active < LOW_TENSOR]
    if found:
        facts = StarvedTensorCores(sum(op.time for op, _ in found), analysis.per, found[0][1], analysis.uses_jax)
        yield _finding(analysis, facts, found, lambda active: active / USUAL_TENSOR)


def _finding(analysis: Analysis, facts: NamedTuple, found: Counts, left: Callable[[float], float]) -> Finding:
    """Return the finding about ops with a number each; ``left``: the share of the time that such a number leaves."""
    claims = [(op, min(op.time * (1 - left(number)), max(op.beyond, 0.0))) for op, number in found]
    return finding_about(analysis, facts, claims, [op for op, _ in found])


def _products(analysis: Analysis) -> list[Op]:
    """Return the products on tensor cores that the traffic does not hold up."""
    found = []
    for op in analysis.ops:
        if not is_product(op) or not str(op.unit).endswith("_tensor"):
            continue
        ratio = _counted(analysis, op, "traffic_ratio")
        if math.isnan(ratio) or op.memory * ratio < TRAFFIC_SHARE * op.time:
            found.append(op)
    return found

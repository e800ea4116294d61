"""The rule about ops far from their roof, which no other rule explains."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from flopscope.answers import compute_rules, counter_rules, host_rules, memory_rules
from flopscope.answers.analysis import Analysis
from flopscope.answers.compute_rules import SHORTEST, USUAL_SHARE, reached
from flopscope.answers.findings import Finding, entry, evidence, is_gpu, product_sizes, tensors, where
from flopscope.answers.pieces import Kernel, Op
from flopscope.answers.sentences import compute
from flopscope.results.categories import short_names
from flopscope.support.statistics import median

LEAST_SHARE = 0.05
"""Share of the device's time below which there is no finding."""
FAR = 0.5
"""Share of the usual rate above which there is no finding."""
COMPARABLE = 0.01
"""Share of the device's time below which a row does not count for the usual rate."""
EXPLAINED = 0.1
"""Share of an op's time; if another rule claims more, that rule explains the op."""
OTHERS: Sequence[Callable[[Analysis], Iterator[Finding]]] = (
    host_rules.optimizer,
    compute_rules.attention,
    compute_rules.tf32,
    compute_rules.low_precision,
    compute_rules.align,
    compute_rules.small,
    memory_rules.cast,
    memory_rules.layout,
    counter_rules.traffic,
)
SCATTERED = 0.5
"""Share of the time of index_add_ that scatter_add_ takes: 0.41 to 0.55 (benchmarks/results/nvidia-h200.json:
slow_kernels)."""
WIDE = 64
"""Elements of a row from which on scatter_add_ was the faster of the two."""
LARGE = 1024
"""Rows, columns and inner dimension from which on a product reaches the usual share."""
ARCHITECTURE = re.compile(r"(?:sm|cutlass_)(\d\d)(?=[_a-z])|(ampere|turing|volta|maxwell)_")
GENERATIONS = {"ampere": 80, "turing": 75, "volta": 70, "maxwell": 50}


class Slow(NamedTuple):
    """Why an op is slow, what such ops reach, and how much of its time is to be gained: all but that as in FarOp."""

    saving: float
    usual: float
    such: compute.Such
    written_for: str = ""


def _least_size(op: Op) -> int:
    """Return the least of M, N and K of a product on tensor cores whose FLOPs take longer than its bytes; else 0."""
    product = op.category == "matrix product" and str(op.unit).endswith("_tensor")
    sizes = product_sizes(op) if product and op.ideal > 0 and op.compute >= op.memory else None
    return min(sizes[1:]) if sizes else 0


def _older(analysis: Analysis, op: Op, kernel: Kernel) -> str:
    """Return the generation of GPUs for which a kernel was written, if the device is of a later one; or ""."""
    match = ARCHITECTURE.search(kernel.name)
    if match is None:
        return ""
    written = int(match[1]) if match[1] else GENERATIONS[match[2]]
    return f"sm{written}" if written // 10 < analysis.capabilities.get(op.device, -1) // 10 else ""


def _product(analysis: Analysis, op: Op, kernel: Kernel, busy: float) -> Slow | None:
    size = _least_size(op)
    if size == 0:
        return None
    such_ops = (one for one in analysis.ops if one is not op and one.time > COMPARABLE * busy)
    others = [reached(one) for one in such_ops if 0 < _least_size(one) <= 2 * size]
    if not others and size < LARGE:
        return None
    usual = median(others) if others else USUAL_SHARE
    such: compute.Such = "products" if others else "large products"
    return Slow(op.time - op.ideal / usual, usual, such, _older(analysis, op, kernel))


def _add_by_index(analysis: Analysis, op: Op, kernel: Kernel, busy: float) -> Slow | None:
    given = tensors(analysis, op)
    if not op.key.endswith("::index_add_") or len(given) < 3 or len(given[2].shape or ()) != 2:
        return None  # scatter_add_ was measured with matrices
    if math.prod(given[2].shape or ()) < WIDE * math.prod(given[1].shape or ()):
        return None
    around = {name for kind, name in analysis.enclosing(op.event) if kind == "op" and name.startswith("aten::")}
    if around - {op.key, "aten::index_select_backward"}:
        return None  # another op of torch calls it, and the program cannot choose
    return Slow(SCATTERED * op.time, reached(op) / SCATTERED, "scatter_add")


def _one_block(analysis: Analysis, op: Op, kernel: Kernel, busy: float) -> Slow | None:
    processors = analysis.sm_counts.get(op.device, 0)
    if kernel.blocks != 1 or processors < 2 or kernel.time < LEAST_SHARE * busy:
        return None
    return Slow(kernel.time / 2, math.nan, "one block")


def _same_op(analysis: Analysis, op: Op, kernel: Kernel, busy: float) -> Slow | None:
    if op.ideal <= 0 or op.row < 0 or memory_rules.is_fusable(op):
        return None
    if analysis.columns["bytes_source"][op.row] == "counted":
        return None  # what moved is no measure of what had to move
    others = [reached(one) for one in analysis.ops if one.time > COMPARABLE * busy and _is_alike(one, op)]
    if not others:
        return None
    usual = median(others)
    return Slow(op.time - op.ideal / usual, usual, "alike")


def _is_alike(one: Op, op: Op) -> bool:
    """Return whether two rows of an op have sizes, and FLOPs per byte, that differ by less than a factor of two."""
    if one is op or one.key != op.key or one.unit != op.unit or one.ideal <= 0 or len(one.shapes) != len(op.shapes):
        return False
    sizes: list[tuple[float, float]] = [
        (a, b) for left, right in zip(one.shapes, op.shapes, strict=True) for a, b in zip(left, right, strict=False)
    ]
    if any(len(left) != len(right) for left, right in zip(one.shapes, op.shapes, strict=True)) or not op.memory:
        return False
    sizes.append((one.compute * op.memory, op.compute * one.memory))
    return all(a == b or max(a, b) < 2 * min(a, b) for a, b in sizes)


CAUSES = (_product, _add_by_index, _one_block, _same_op)
"""Particular causes first."""


def far_from_roof(analysis: Analysis) -> Iterator[Finding]:
    """Ops that take 5 % of the device's time or more at less than half of what such ops reach.

    The estimate is bounded by comparable rows of the profile, or by a measurement that the sentence names. Premises:
    the kernels' names and grids; FLOPs and bytes, thus shapes (record_shapes), except for a kernel of one block; no
    other rule explains the op.
    """
    if not is_gpu(analysis):
        return
    busy = sum(op.time for op in analysis.ops)
    if not analysis.ops or analysis.ops[0].time < LEAST_SHARE * busy:  # the longest
        return
    explained: dict[int, float] = {}
    for rule in OTHERS:
        for finding in rule(analysis):
            for source, time in finding.claims:
                explained[id(source)] = explained.get(id(source), 0.0) + time
    found: dict[tuple[str, compute.Such], list[tuple[Op, Kernel, Slow]]] = {}
    for op in analysis.ops:
        if op.time < LEAST_SHARE * busy:
            break  # the ops are sorted by time
        if op.part in ("communication", "copy") or op.time / max(op.count, 1e-9) < SHORTEST or not op.kernels:
            continue
        if explained.get(id(op), 0.0) > EXPLAINED * op.time:
            continue
        causes = (cause_of(analysis, op, op.kernels[0], busy) for cause_of in CAUSES)
        cause = next((one for one in causes if one is not None and _is_far(op, one)), None)
        if cause is not None:
            found.setdefault((op.key, cause.such), []).append((op, op.kernels[0], cause))
    if not found:
        return
    groups = sorted(found.values(), key=lambda group: -sum(cause.saving for _, _, cause in group))
    every = [one for group in groups for one in group]
    says = partial(compute.far_from_roof, tuple(_facts(analysis, group) for group in groups), analysis.per)
    claims = [(op, min(cause.saving, op.time)) for op, _, cause in every]
    kernels = [entry(kernel.name, kernel.time, kernel.count) for op, kernel, _ in every if kernel.name != op.key]
    rows = sorted([*evidence(op for op, _, _ in every), *kernels], key=lambda row: -row["time"])
    yield Finding(says, claims, rows, where(analysis, every[0][0].event))


def _is_far(op: Op, cause: Slow) -> bool:
    return math.isnan(cause.usual) or reached(op) <= FAR * cause.usual


def _facts(analysis: Analysis, group: Sequence[tuple[Op, Kernel, Slow]]) -> compute.FarOp:
    """Return the facts of the rows of one op, which have one cause: of the kernel, those of the longest."""
    op, kernel, cause = group[0]
    time, ideal = sum(one.time for one, _, _ in group), sum(one.ideal for one, _, _ in group)
    return compute.FarOp(
        op=op.key,
        kernel=short_names([kernel.name])[kernel.name],
        blocks=kernel.blocks,
        time=time,
        share=100 * ideal / time if ideal > 0 else math.nan,
        usual=100 * cause.usual,
        such=cause.such,
        written_for=cause.written_for,
        runs_on=f"sm{analysis.capabilities[op.device]}" if cause.written_for else "",
        processors=analysis.sm_counts.get(op.device, 0),
        units=analysis.core.matrix_units,
    )

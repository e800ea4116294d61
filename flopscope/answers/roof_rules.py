"""Rules about kernels that do not fill the device, and ops far from their roof, which no other rule explains."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from flopscope.answers import compute_rules, counted, fuse_rules, host_rules, memory_rules
from flopscope.answers.analysis import Analysis
from flopscope.answers.compute_rules import USUAL_SHARE, reached
from flopscope.answers.findings import Finding, entry, evidence, is_gpu, most_elements, product_sizes, tensors, where
from flopscope.answers.pieces import Kernel, Op
from flopscope.answers.words import KERNEL_WIDTH, OP_WIDTH, Said, listed, more_ops
from flopscope.results.categories import short_names
from flopscope.support.columns import cut_end
from flopscope.support.statistics import median
from flopscope.support.units import percent_text, plural, short_time_text

SHORTEST = 20.0
"""µs: shorter kernels are limited by their launch, whatever their grid."""
FILLED = 0.5
"""A grid with fewer blocks than this share of the multiprocessors does not fill the device."""
PER_PROCESSOR = 1024
"""Elements for each multiprocessor without which a kernel cannot fill the device: a block of the largest size."""


def _unfilled(analysis: Analysis, op: Op, kernel: Kernel) -> float:
    """Return the share of a kernel's time that more blocks would save; 0 where its launches may have several grids."""
    processors = analysis.sm_counts.get(op.device, 0)
    if kernel.blocks <= 0 or processors <= 0 or kernel.count <= 0 or kernel.time / kernel.count < SHORTEST:
        return 0.0
    if op.row < 0 or kernel.count > 1.01 * op.calls or most_elements(op) < PER_PROCESSOR * processors:
        return 0.0
    if kernel.blocks <= FILLED * processors:
        return 1 - kernel.blocks / processors
    few = 0 < kernel.resident < kernel.blocks < 2 * kernel.resident  # a second wave that is nearly empty
    # Of memory-bound ones, half of the blocks may still use all of the bandwidth.
    loss = 1 - kernel.blocks / (2 * kernel.resident) if few and op.compute > op.memory else 0.0
    return loss / 2 if loss > 0.3 else 0.0


def small(analysis: Analysis) -> Iterator[Finding]:
    """Long kernels whose grid does not fill the device: fewer blocks than multiprocessors, or a nearly empty last wave.

    Source: NVIDIA, Deep Learning Performance Guide, "Wave quantization"; CUDA C++ Best Practices Guide, "Occupancy".
    Premises: the grid and the device's multiprocessors (deviceProperties), and shapes (record_shapes) of an argument
    with 1,024 elements for each multiprocessor; not communication.

    Facts: resident: blocks of the kernel that the device can hold at once. ops: with such kernels.
    """
    found: list[tuple[float, Op, Kernel]] = []
    for op in analysis.ops if is_gpu(analysis) else ():
        if op.part in ("communication", "copy") or op.device < 0:
            continue
        savings = [kernel.time * _unfilled(analysis, op, kernel) for kernel in op.kernels]
        saving = min(sum(savings), op.beyond) if op.ideal > 0 else sum(savings)
        if saving > 0:
            found.append((saving, op, op.kernels[savings.index(max(savings))]))
    if not found:
        return
    _, op, kernel = max(found, key=lambda one: one[0])
    name, blocks, processors = short_names([kernel.name])[kernel.name], kernel.blocks, analysis.sm_counts[op.device]
    grid = f"runs in {plural(blocks, 'block')} on {plural(processors, 'multiprocessor')}"
    if blocks > processors:
        rest = plural(blocks - kernel.resident, "block")
        grid = f"runs {rest} in a second wave after one of {kernel.resident:,}"
    says = Said(
        f"Give {cut_end(op.key, OP_WIDTH)} more parallel work",
        f"its kernel {cut_end(name, KERNEL_WIDTH)} {grid}. Split the long dimension and combine the parts, or process "
        "more independent rows at once (a larger batch), where it has a block for each."
        f"{more_ops(len(found) - 1)}",
        {"op": op.key, "kernel": name, "blocks": blocks, "processors": processors}
        | {"resident": kernel.resident, "ops": len(found)},
    )
    ops, claims = [op for _, op, _ in found], [(op, saving) for saving, op, _ in found]
    yield Finding(says, claims, evidence(ops), where(analysis, op.event))


LEAST_SHARE = 0.05
"""Share of the device's time below which there is no finding."""
FAR = 0.5
"""Share of the usual rate above which there is no finding."""
COMPARABLE = 0.01
"""Share of the device's time below which a row does not count for the usual rate."""
EXPLAINED = 0.1
"""Share of an op's time; if another rule claims more, that rule explains the op."""
OTHERS = (host_rules.optimizer, *compute_rules.RULES, memory_rules.cast, memory_rules.layout, counted.traffic)
SCATTERED = 0.5
"""Share of the time of index_add_ that scatter_add_ takes: 0.41 to 0.55 (benchmarks/results/nvidia-h200.json:
slow_kernels)."""
WIDE = 64
"""Elements of a row from which on scatter_add_ was the faster of the two."""
LARGE = 1024
"""Rows, columns and inner dimension from which on a product reaches the usual share."""
ARCHITECTURE = re.compile(r"(?:sm|cutlass_)(\d\d)(?=[_a-z])|(ampere|turing|volta|maxwell)_")
GENERATIONS = {"ampere": 80, "turing": 75, "volta": 70, "maxwell": 50}
Such = Literal["products", "large products", "scatter_add", "alike", "one block"]


class Slow(NamedTuple):
    """Why an op is slow, what such ops reach, and how much of its time is to be gained: all but that as in FarOp."""

    saving: float
    usual: float
    such: Such
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
    such: Such = "products" if others else "large products"
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
    alone = kernel.blocks == 1 and analysis.sm_counts.get(op.device, 0) > 1 and kernel.time >= LEAST_SHARE * busy
    return Slow(kernel.time / 2, math.nan, "one block") if alone else None


def _same_op(analysis: Analysis, op: Op, kernel: Kernel, busy: float) -> Slow | None:
    if op.ideal <= 0 or op.row < 0 or fuse_rules.is_fusable(op):
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
    for rule in (*OTHERS, small):
        for finding in rule(analysis):
            for source, time in finding.claims:
                explained[id(source)] = explained.get(id(source), 0.0) + time
    found: dict[tuple[str, Such], list[tuple[Op, Kernel, Slow]]] = {}
    for op in analysis.ops:
        if op.time < LEAST_SHARE * busy:
            break  # the ops are sorted by time
        if op.part in ("communication", "copy") or op.time / max(op.count, 1e-9) < SHORTEST or not op.kernels:
            continue
        if explained.get(id(op), 0.0) > EXPLAINED * op.time:
            continue
        for cause in filter(None, (cause_of(analysis, op, op.kernels[0], busy) for cause_of in CAUSES)):
            if not (math.isnan(cause.usual) or reached(op) <= FAR * cause.usual):
                continue
            found.setdefault((op.key, cause.such), []).append((op, op.kernels[0], cause))
            break
    if not found:
        return
    groups = sorted(found.values(), key=lambda group: -sum(cause.saving for _, _, cause in group))
    every = [one for group in groups for one in group]
    ops, per = [_facts(analysis, group) for group in groups], analysis.per
    names = list(dict.fromkeys(cut_end(op.op, OP_WIDTH) for op in ops[:3]))
    text = " ".join(_far_op(op, per) for op in ops[:3])
    says = Said(f"Make {listed(names)} faster", text, {"ops": ops, "per": per})
    claims = [(op, min(cause.saving, op.time)) for op, _, cause in every]
    kernels = [entry(kernel.name, kernel.time, kernel.count) for op, kernel, _ in every if kernel.name != op.key]
    rows = sorted([*evidence(op for op, _, _ in every), *kernels], key=lambda row: -row["time"])
    yield Finding(says, claims, rows, where(analysis, every[0][0].event))


class FarOp(NamedTuple):
    """An op that reaches less than half of what such ops reach."""

    op: str
    kernel: str
    blocks: int
    """Blocks of its grid; 0: unknown."""
    time: float
    share: float
    """Percent of the limit; NaN: the limit is unknown."""
    usual: float
    """What such ops reach, in percent; NaN: unknown."""
    such: Such
    """Which ops: "products" are others on tensor cores in this profile; "one block": the kernel has only one."""
    written_for: str
    """ "sm80" for a kernel of an older architecture than ``runs_on``; else both are "". """
    runs_on: str
    processors: int
    """Multiprocessors of the device."""
    units: str = "tensor cores"
    """What multiplies matrices in the device."""
    occupancy: float = math.nan
    """The kernel's theoretical occupancy in percent, where something limits it, which is:"""
    limit: str = ""


SUCH: Mapping[Such, str] = {
    "products": ", where other products on {1} in this profile reach {0}",
    "large products": ", where large products on {1} reach {0}",
    "scatter_add": ", where calls of scatter_add_ (measured on an H200) reach {}",
    "alike": ", where calls of about the same sizes in this profile reach {}",
    "one block": "",
}
REMEDIES: Mapping[Such, str] = {
    "products": "torch.compile(mode='max-autotune') tries other kernels.",
    "large products": "torch.compile(mode='max-autotune') tries other kernels.",
    "scatter_add": (
        "Use scatter_add_ with the index expanded to the shape of the source (index[:, None].expand_as(source)); in "
        "place of index_select, torch.gather with such an index has scatter_add_ as its gradient."
    ),
    "alike": "Compare the kernels of the two: that of the faster one may serve here.",
    "one block": "Split its work over more blocks, or let other work run beside it on another stream.",
}


def _far_op(op: FarOp, per: str) -> str:
    usual = SUCH[op.such].format(percent_text(op.usual), op.units)
    reaches = "" if math.isnan(op.share) else f" at {percent_text(op.share)} of its limit{usual}"
    facts = [plural(op.blocks, "block")] if op.blocks > 0 else []
    facts += [f"{percent_text(op.occupancy)} occupancy, limited by {op.limit}"] if op.limit else []
    grid = f" ({', '.join(facts)})" if facts else ""
    cause = "takes most of it"
    if op.written_for:
        cause = f"is written for {op.written_for} and runs on {op.runs_on}"
    elif op.such == "scatter_add":
        cause = "adds with atomics"
    elif op.such == "one block":
        cause = f"keeps one of {op.processors} multiprocessors busy"
    return (
        f"{op.op} takes {short_time_text(op.time)} {per}{reaches}: its kernel {cut_end(op.kernel, KERNEL_WIDTH)}{grid} "
        f"{cause}. {REMEDIES[op.such]}"
    )


def _facts(analysis: Analysis, group: Sequence[tuple[Op, Kernel, Slow]]) -> FarOp:
    """Return the facts of the rows of one op, which have one cause: of the kernel, those of the longest."""
    op, kernel, cause = group[0]
    time, ideal = sum(one.time for one, _, _ in group), sum(one.ideal for one, _, _ in group)
    name, share = short_names([kernel.name])[kernel.name], 100 * ideal / time if ideal > 0 else math.nan
    runs_on = f"sm{analysis.capabilities[op.device]}" if cause.written_for else ""
    reaches = (time, share, 100 * cause.usual, cause.such, cause.written_for, runs_on)
    processors, columns = analysis.sm_counts.get(op.device, 0), analysis.columns
    rows = analysis.rows_of.get(kernel.name, ())
    limits = ((columns["theoretical_occupancy"][row], columns["occupancy_limit"][row]) for row in rows)
    limited = next((pair for pair in limits if pair[1]), (math.nan, ""))
    return FarOp(op.key, name, kernel.blocks, *reaches, processors, analysis.core.matrix_units, *limited)


RULES = (small, far_from_roof)

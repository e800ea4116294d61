"""Rules about bytes: chains that could be fused, casts and copies that could be left out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from flopscope.answers.analysis import Analysis, Gap, Op
from flopscope.answers.findings import Finding, claim_removed, evidence, is_convolution, plural, where
from flopscope.support.units import short_time_text

__all__ = ["cast", "fuse", "layout"]

FLOATS = {"double", "float", "float32", "float64", "float16", "bfloat16", "half", "c10::half", "c10::bfloat16"}
KEPT = 0.9
"""Share of the time of a copy or cast that leaving it out gains: what reads its result reads the original instead."""


def _is_copy(op: Op) -> bool:
    return op.key in ("aten::copy_", "aten::_to_copy", "aten::to", "aten::clone", "aten::contiguous")


def _names_around(analysis: Analysis, op: Op) -> list[str]:
    return [name for _, name in analysis.enclosing(op.event)]


def _costs(analysis: Analysis, ops: Sequence[Op]) -> str:
    """Return what ops that could be left out take, as text."""
    device = short_time_text(sum(op.time for op in ops))
    return f"{device} of the device's time and about {short_time_text(analysis.host_of(ops))} of the host's"


def cast(analysis: Analysis) -> Iterator[Finding]:
    """Casts between float dtypes that recur in each step.

    The estimate is 90 % of their time: the tensors could be kept in the dtype in which they are used.
    """
    ops = []
    for op in analysis.ops:
        dtypes = [dtype.lower() for dtype in op.dtypes[:2]]
        if _is_copy(op) and len(dtypes) == 2 and len(set(dtypes)) == 2 and set(dtypes) <= FLOATS and op.part != "copy":
            ops.append(op)
    if not ops:
        return
    calls = sum(op.calls for op in ops)
    yield Finding(
        f"Keep tensors in the dtype in which they are used: {plural(calls, 'cast')} {analysis.per} take "
        f"{_costs(analysis, ops)} ({ops[0].dtypes[1]} to {ops[0].dtypes[0]} the longest). "
        "Convert weights once with .to(torch.bfloat16) for inference; keep autocast's cache enabled, and one autocast "
        "region around all of a step.",
        claim_removed(analysis, ops, KEPT),
        evidence(ops),
        where(analysis, ops[0].event),
        ops,
    )


CONVERSION = re.compile(
    r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|transpose_readWrite|tensorTransform|permute\w*Kernel"
)
MAKES_CONTIGUOUS = ("aten::contiguous", "aten::clone", "aten::reshape", "aten::_reshape_alias")


def _reorders(op: Op) -> bool:
    """Return whether an op may copy a tensor of several dimensions on the device without changing its dtype."""
    same = len(set(op.dtypes[:2])) == 1 or len(op.dtypes) < 2
    several = not op.shapes or sum(size != 1 for size in op.shapes[0]) > 1
    return op.key in ("aten::copy_", "aten::clone", "aten::contiguous") and same and several and op.part != "copy"


def layout(analysis: Analysis) -> Iterator[Finding]:
    """Copies that only change the order of elements in memory: contiguous(), transposes, NCHW and NHWC conversions.

    The estimate is 90 % of their time. Source: PyTorch, "Channels Last Memory Format" tutorial.
    """
    conversions: list[tuple[Op | Gap, float]] = []
    convolved, copied = [], []
    for op in analysis.ops:
        time = sum(kernel.time for kernel in op.kernels if CONVERSION.search(kernel.name))
        if is_convolution(op) and time > 0:
            conversions.append((op, KEPT * time))
            convolved.append(op)
        if _reorders(op) and any(name in MAKES_CONTIGUOUS for name in _names_around(analysis, op)):
            copied.append(op)
    if convolved:
        yield Finding(
            "Use channels_last for the model and its input (.to(memory_format=torch.channels_last)): convolutions "
            f"convert between NCHW and NHWC for {short_time_text(sum(time for _, time in conversions) / KEPT)}.",
            conversions,
            evidence(convolved),
            where(analysis, convolved[0].event),
        )
    if copied:
        calls = sum(op.calls for op in copied)
        yield Finding(
            f"Keep one memory layout: {plural(calls, 'copy', 'copies')} {analysis.per} only reorder elements "
            f"(contiguous(), reshape() or clone() of a permuted tensor) and take {_costs(analysis, copied)}. Choose "
            "the layout that the next op reads, or permute the weights instead.",
            claim_removed(analysis, copied, KEPT),
            evidence(copied),
            where(analysis, copied[0].event),
            copied,
        )


POINTWISE = re.compile(
    r"^(?:aten|flopscope)::(?:add|sub|rsub|mul|div|neg|abs|exp|exp2|expm1|log|log1p|log2|sqrt|rsqrt|reciprocal|sin|cos|"
    r"tanh|sigmoid|relu|gelu|silu|mish|elu|leaky_relu|hardtanh|hardswish|softplus|pow|square|clamp|clamp_min|clamp_max|"
    r"minimum|maximum|where|masked_fill|addcmul|addcdiv|lerp|erf|ge|gt|le|lt|eq|ne|logical_not|logical_and|"
    r"bitwise_not|threshold|threshold_backward|gelu_backward|silu_backward|tanh_backward|sigmoid_backward|"
    r"native_dropout|native_dropout_backward|bernoulli|copy|_to_copy|fill|sign|floor|round|atan2|fmod|remainder)_?$"
)
NORM = re.compile(r"^aten::(?:native_layer_norm|_fused_rms_norm|_softmax|_log_softmax)$")
REDUCTION = re.compile(r"^aten::(?:sum|mean|var|var_mean|std|std_mean|amax|amin|norm|linalg_vector_norm)$")
FUSED_SHARE = 0.85
"""Of the bandwidth that the separate kernels reach, in a fused one with more operands."""
SAVED_FOR_BACKWARD = 0.8
"""Share of the traffic of intermediates that a compiler saves in a program with a backward pass, which needs some."""


def _elements(op: Op) -> int:
    return max((math.prod(shape) for shape in op.shapes if shape), default=0)


def fuse(analysis: Analysis) -> Iterator[Finding]:
    """Neighbouring memory-bound ops over as many elements, whose intermediate need not reach memory.

    Of each neighbouring pair, the bytes that the first writes (or, if it reduces, reads) and the second reads again are
    saved, at the bandwidth that the two reach now; 80 % of them where a backward pass needs some intermediates.
    """
    by_row: dict[int, Op] = {}
    for op in analysis.ops:
        if op.row >= 0 and op.part in ("memory", "latency", "launch", "compute"):
            by_row.setdefault(op.row, op)
    counts: dict[tuple[int, int], int] = {}
    pairs = (analysis.pair_cells[name].tolist() for name in ("before", "after", "count"))
    for before, after, count in zip(*pairs, strict=True):
        counts[before, after] = counts.get((before, after), 0) + count
    training = any(key.startswith("autograd::engine") for key in analysis.columns["key"])
    share = FUSED_SHARE * (SAVED_FOR_BACKWARD if training else 1.0)
    saved: dict[int, float] = {}
    chained: dict[int, Op] = {}
    steps = analysis.step_count
    written, moved = (list(map(float, analysis.columns[name])) for name in ("bytes_written", "bytes_total_moved"))
    for (before, after), count in counts.items():
        first, second = by_row.get(before), by_row.get(after)
        if first is None or second is None or not _fusable(first, second):
            continue
        if not (moved[before] > 0 and moved[after] > 0 and written[before] > 0):
            continue
        reduces = bool(REDUCTION.match(first.key))  # its result is small, but the next op reads its input again
        bytes_each = (moved[before] - written[before] if reduces else written[before]) / max(first.calls * steps, 1)
        wrote = 0.0 if reduces else written[before] / moved[before]
        once = first.time * wrote * min(count / steps / max(first.calls, 1e-9), 1)
        twice = second.time * min(bytes_each * count / moved[after], 1)
        saved[before] = saved.get(before, 0.0) + share * once
        saved[after] = saved.get(after, 0.0) + share * twice
        chained[before], chained[after] = first, second
    claims: list[tuple[Op | Gap, float]] = [(chained[row], min(time, chained[row].time)) for row, time in saved.items()]
    if not claims:
        return
    ops = sorted(chained.values(), key=lambda op: -op.time)
    names = ", ".join(dict.fromkeys(op.key.removeprefix("aten::") for op in ops[:6]))
    yield Finding(
        f"Fuse chains of memory-bound ops with torch.compile (or one kernel of your own): {names} run one after "
        "another over as many elements; their intermediates, "
        f"{short_time_text(sum(time for _, time in claims))} of traffic, need not reach memory.",
        claims,
        evidence(ops),
        where(analysis, ops[0].event),
    )


def _fusable(first: Op, second: Op) -> bool:
    """Return whether the second op may read in the same kernel what the first one wrote or read."""
    ends = POINTWISE.match(second.key) or NORM.match(second.key) or REDUCTION.match(second.key)
    if not ends or not (POINTWISE.match(first.key) or (REDUCTION.match(first.key) and POINTWISE.match(second.key))):
        return False
    elements = _elements(first)
    return elements > 0 and elements == _elements(second)

"""Rules about bytes that need not move: elements taken one by one, tensors that grow, casts and copies."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import (
    Finding,
    casts_of,
    claim_all,
    claim_late,
    evidence,
    finding_about,
    is_convolution,
    is_trained,
    names_at,
    reorders_of,
    tensors,
    where,
)
from flopscope.answers.host_events import calls_named
from flopscope.answers.pieces import Gap, Op
from flopscope.answers.words import Said, cost_text, form, shown_as_sentence, told
from flopscope.support.units import plural, short_time_text

KEPT = 0.9
"""Share of the time of a copy or cast that leaving it out gains: what reads its result reads the original instead."""
WHOLE = 0.99
"""Share of the time of a row; the rest is rounding."""
ACCUMULATE = "torch::autograd::AccumulateGrad"
CASTS = ("aten::to", "aten::_to_copy")
AUTOCAST_OPS = re.compile(
    r"^aten::(?:linear|conv\w*|matmul|mm|bmm|addmm|baddbmm|addbmm|scaled_dot_product_attention|layer_norm|\w*loss\w*)$"
)
"""Ops that cast no arguments of their own, and that autocast serves (PyTorch, "Autocast Op Reference")."""


def _is_copy(op: Op) -> bool:
    return op.key in ("aten::copy_", "aten::_to_copy", "aten::to", "aten::clone", "aten::contiguous")


def _share(ops: Sequence[Op], times: Sequence[float]) -> float:
    return sum(times) / sum(op.time for op in ops)


def _host(analysis: Analysis, ops: Sequence[Op], times: Sequence[float]) -> float:
    """Return the host's µs of these times of ops on a device; NaN in a CPU program, where they are the ops' own."""
    return _share(ops, times) * analysis.host_of(ops) if analysis.on_device else math.nan


def _left_out(analysis: Analysis, says: Said, ops: Sequence[Op], times: Sequence[float]) -> Finding:
    """Claim what leaving out these times of copies gains, and the idle time until the host had launched them."""
    share = _share(ops, times)
    late = claim_late(analysis, ops, KEPT * share)
    claims = [*((op, KEPT * time) for op, time in zip(ops, times, strict=True)), *late]
    return finding_about(analysis, says, claims, ops, ops if share > WHOLE else ())


def _by_autocast(analysis: Analysis, event: int) -> bool:
    """Return whether autocast made a cast: it casts the arguments of an op within that op's call."""
    names = names_at(analysis, event)
    callers = [name for name in names[1:] if name not in CASTS]
    inside = len(callers) < len(names) - 1
    return any("autocast" in name for name in names) or (inside and bool(callers and AUTOCAST_OPS.match(callers[0])))


MANY = 1000
"""Elements of a tensor, taken one by one, from which a loop is a finding."""
VIEWS = ("aten::select", "aten::as_strided")


def _given(op: Op) -> list[tuple[Sequence[int], str]]:
    """Return the shape and dtype of each tensor that a row takes."""
    return [(shape, dtype) for shape, dtype in zip(op.shapes, op.dtypes, strict=False) if dtype not in ("", "scalar")]


def elements(analysis: Analysis) -> Iterator[Finding]:
    """Loops over the elements of a tensor.

    Premises: a row of aten::select takes an element of a vector, as often as it has elements or more, and at least 1000
    times a step; other rows of torch, whose every tensor has one element, are called half as often or more. One call
    on the whole takes the time of one of them, or, of so many elements, that of their bytes at the rate of a vector.

    Facts: reads: the loop only reads the elements, as numbers of Python.
    """
    rows = analysis.rows("key", "input_shapes", "count")
    vectors = [(tuple(of[0]), n / analysis.step_count) for key, of, n in rows if key == "aten::select" and len(of) > 0]
    taken = {shape: n for shape, n in vectors if len(shape) == 1 and n >= max(MANY, shape[0])}
    calls = max(taken.values(), default=math.inf)
    ops = [op for op in analysis.ops if op.key.startswith("aten::") and op.part != "copy" and _given(op)]
    single = [op for op in ops if op.calls >= calls / 2 and all(math.prod(shape) == 1 for shape, _ in _given(op))]
    if single:
        views = [op for op in ops if op.key in VIEWS and tuple(op.shapes[0]) in taken]
        found = [*single, *views]
        reads = all(op.key in ("aten::item", "aten::_local_scalar_dense") for op in single)
        calls, size, per, time = sum(taken.values()), max(taken)[0], analysis.per, sum(op.time for op in found)
        action = "Replace a loop over elements by ops on the tensor"
        how = (
            "Where no element needs the result of an earlier one, one call on the whole takes their place; else loop "
            "over numbers of Python, from tolist()."
        )
        if reads:
            action, how = "Read the elements of a tensor by one tolist()", "One call reads them all."
        says = Said(
            action,
            f"{plural(calls, 'element')} {per}, of a tensor of {size:,}, {form(calls, 'is', 'are')} taken one by one, "
            f"which takes {short_time_text(time)} with the calls on each. {how}",
            {"calls": calls, "size": size, "per": per, "time": time, "reads": reads},
        )
        yield finding_about(analysis, says, claim_all(found, 1 - 1 / MANY), found, found)


CAT = "aten::cat"
PARTLY = re.compile(r"^(?!\w+::)|^aten::(?:cat|narrow|slice|select|as_strided|split\w*|chunk|unbind|atleast_\dd)$")
"""What takes no tensor as a whole: no op, one that grows it, or a view of a part, as its gradient needs."""
FEW = 1 << 14
"""Elements that a call makes in no more time than the call itself takes."""


def _made(analysis: Analysis, event: int) -> tuple[int, ...]:
    """Return the shape of what a call makes that joins tensors."""
    given, along = (one[3] for one in (analysis.core.arguments(event) or ())[:2])
    parts, dim = ast.literal_eval(given), int(along)
    shape = [*max(parts, key=math.prod)]
    shape[dim] = sum(part[dim] for part in parts if len(part) == len(shape))
    return tuple(shape)


def growth(analysis: Analysis) -> Iterator[Finding]:
    """Tensors that aten::cat makes longer call after call, each of which copies all that an earlier one made.

    Premises: the shapes of 16 rounds of calls or more, which copy four times the elements that are new. These are still
    to be copied: where other ops take the tensor, by calls that take as long as those on few elements, else by one. If
    other ops take what has a gradient, it may be needed as it was, and nothing is said.

    Facts: taken: other ops take it meanwhile. shape: the largest. again: how often elements that are new are copied
    again.
    """
    calls, ops = calls_named(analysis, CAT.__eq__, "growing"), [op for op in analysis.ops if op.key == CAT]
    grown, made, times = calls["run"] >= 0, calls["made"], calls["duration"]
    events, time, few = calls["event"][grown].tolist(), times[grown].sum(), times[(made > 0) & (made <= FEW)]
    if not (ops and time):
        return
    rows = analysis.rows("key", "input_shapes")
    whole = {tuple(shape) for key, shapes in rows if not PARTLY.match(key) for shape in shapes}
    some = [_made(analysis, event) in whole for event in events[:: 1 + len(events) // 64]]
    taken, copied = 4 * sum(some) > len(some), float(calls["copied"][grown].sum() / made[grown].sum())
    least = (few.mean() if len(few) else times[grown].min()) * len(events) / time if taken else 0.0
    if not (taken and any("CatBackward" in name for name in analysis.names)):
        share, count = float(time / times.sum()), sum(op.calls for op in ops) * len(events) / len(grown)
        shape, spent = _made(analysis, events[int(made[grown].argmax())]), share * sum(op.time for op in ops)
        again, per = copied / (1 - copied), analysis.per
        action = "Concatenate once instead of growing a tensor by torch.cat"
        how = "append the pieces to a list, and concatenate them once."
        how = f"No other recorded op takes it as a whole meanwhile: {how}"
        if taken:
            action = "Write into slices instead of growing a tensor by torch.cat"
            how = "write what is new into a slice: for attention a static cache."
            how = f"Allocate it once, as large as it gets, and {how}"
        says = Said(
            action,
            f"{plural(count, 'call')} of aten::cat {per} {form(count, 'copies', 'copy')} a tensor of the shape that an "
            f"earlier call made, up to {'x'.join(map(str, shape))}, to extend it: in {short_time_text(spent)}, "
            f"{again:,.0f} elements for each new one, and more with each call. {how}",
            {"calls": count, "per": per, "time": spent, "taken": taken, "shape": shape, "again": again},
        )
        claims = claim_all(ops, share * min(copied, 1 - least))
        yield Finding(says, claims, evidence(ops), where(analysis, events[0]))


def float64(analysis: Analysis) -> Iterator[Finding]:
    """Float64 that enters a program of float32 by one op.

    Premises: an op of torch takes a tensor of float32 and one of float64 with dimensions, which makes its result
    float64; it casts the first within its call. The estimate is that cast, and half of the time of memory-bound rows
    that take float64 alone: half of the bytes at the same rate. Without such an op float64 is meant.

    Facts: time: of memory-bound ops that take float64 alone.
    """
    ops = [op for op in analysis.ops if op.key.startswith("aten::") and op.part != "copy"]
    floats = [_floats(analysis, op) for op in ops]
    copies = [op for op in ops if op.key == "aten::copy_"]
    mixed = [op for op, of in zip(ops, floats, strict=True) if of["float32", "float64"] and op not in copies]
    within = [op for op in copies if op.cast > 0 and any(one.key in names_at(analysis, op.event) for one in mixed)]
    wide = [
        (op, op.time * of["float64",] / of.total())
        for op, of in zip(ops, floats, strict=True)
        if of["float64",] and op.part == "memory"
    ]
    if mixed and (within or wide):
        time, calls = sum(time for _, time in wide), sum(op.calls for op in mixed)
        op, per = mixed[0].key, analysis.per
        says = Said(
            "Keep float64 out of the float32 tensors",
            f"{plural(calls, 'call')} {per} of {op} or the like {form(calls, 'takes', 'take')} a tensor of each, so "
            f"the result is float64, and memory-bound ops on float64 take {short_time_text(time)}, twice the bytes of "
            "float32. Convert the float64 operand once, as by .float(), if its precision is not needed.",
            {"op": op, "calls": calls, "per": per, "time": time},
        )
        claims = [*((op, op.cast) for op in within), *((op, time / 2) for op, time in wide)]
        yield finding_about(analysis, says, claims, [*mixed, *within, *(op for op, _ in wide)])


def _floats(analysis: Analysis, op: Op) -> Counter[tuple[str, ...]]:
    """Return by how many calls a row takes tensors with dimensions of which float dtypes, as far as was recorded."""
    pairs = zip(op.shapes[:2], op.dtypes[:2], strict=False)
    shapes = tuple(None if dtype in ("", "scalar") else tuple(shape) for shape, dtype in pairs)
    counts = Counter[tuple[str, ...]]()
    for _, given, count in analysis.described(op.key, shapes):
        dtypes = {dtype for dtype, shape, *_ in given if shape and dtype and dtype.startswith("float")}
        counts[tuple(sorted(dtypes))] += count
    return counts


def cast(analysis: Analysis) -> Iterator[Finding]:
    """Casts between float dtypes of tensors.

    The estimate is 90 % of their time: the tensors could be kept in the dtype in which they are used. Premises: both
    dtypes and the shapes of each call (record_shapes), not of a single number; not the casts by autocast of a parameter
    and of its gradient, once a step each, which training in mixed precision needs. Autocast is named where its casts
    lie within the calls of the ops that it serves, and weights are converted once only without a backward pass.
    """
    trained = dict[tuple[int, ...], float]()  # how many parameters of a shape got a gradient per step
    for key, shapes, count in analysis.rows("key", "input_shapes", "count"):
        if key == ACCUMULATE and len(shapes) > 0:
            trained[tuple(shapes[0])] = int(count) / analysis.step_count
    ops, autocast = [], False
    for op in (op for op in analysis.ops if _is_copy(op) and op.cast > 0 and op.part != "copy"):
        served = any(_by_autocast(analysis, event) for event in casts_of(analysis, op) or [op.event])
        if not served or op.casts > 2.01 * trained.get(tuple(op.shapes[0]), 0.0):
            ops.append(op)
            autocast = autocast or served
    if not ops:
        return
    times = [op.cast for op in ops]
    target, source = next((op.dtypes[:2] for op in ops if len(set(op.dtypes[:2])) == 2), ("", ""))
    calls, host, types = sum(op.casts for op in ops), _host(analysis, ops, times), (source, target)
    says = told(say_cast, calls, analysis.per, sum(times), host, *types, autocast, is_trained(analysis))
    yield _left_out(analysis, says, ops, times)


def say_cast(
    calls: float, per: str, time: float, host: float, source: str, target: str, autocast: bool, trained: bool
) -> Said:
    """Casts between float dtypes.

    host: naN in a CPU program. target: dtypes of the longest. autocast: some lie within the calls of ops that autocast
    serves. trained: A backward pass ran.
    """
    longest = f" ({source} to {target} the longest)" if target else ""
    once = ""
    if autocast and not trained:
        once = "where autocast casts weights, convert them once; "
    elif target in ("float16", "bfloat16") and not trained:
        once = f"convert what stays the same from step to step once, with .to(torch.{target}); "
    return Said(
        "Keep tensors in the dtype in which they are used",
        f"{plural(calls, 'cast')} {per} {form(calls, 'takes', 'take')} "
        f"{cost_text(time, host)}{longest}. "
        f"{shown_as_sentence(f'{once}where an op needs the wider dtype')}, a fused op or torch.compile casts while it "
        "computes.",
    )


CONVERSION = re.compile(
    r"nchw_?(?:to|2)_?nhwc|nhwc_?(?:to|2)_?nchw|transpose_readWrite|tensorTransform|permute\w*Kernel"
    r"|^batched_transpose_|SubTensorOpWithTransform|transpose_nchw2cnhw|transpose_cnhw2nchw|genericReformat",
    re.IGNORECASE,
)
"""Kernels of cuDNN, MIOpen, CUTLASS and TensorRT that change the order of elements for others."""
MAKES_CONTIGUOUS = ("aten::contiguous", "aten::clone", "aten::reshape", "aten::_reshape_alias")


def _is_channels_last(analysis: Analysis, op: Op) -> bool:
    """Return whether an argument of a convolution is known to be in NHWC already."""
    return any(
        one.strides is not None and one.shape is not None and one.shape[1] > 1 and one.strides[1] == 1
        for one in tensors(analysis, op, 4)
        if math.prod(one.shape[2:] if one.shape else ()) > 1
    )


def _copier(analysis: Analysis, op: Op) -> str | None:
    """Return the outermost op around a copy that makes its result contiguous: of the first call that reorders."""
    around = (names_at(analysis, event)[::-1] for event in reorders_of(analysis, op) or [op.event])
    return next((name for names in around for name in names if name in MAKES_CONTIGUOUS), None)


def layout(analysis: Analysis) -> Iterator[Finding]:
    """Copies that only change the order of elements in memory: contiguous(), transposes, NCHW and NHWC conversions.

    The estimate is 90 % of their time. Source: PyTorch, "Channels Last Memory Format" tutorial. Premises: of copies,
    the strides of both sides (record_shapes, in traces of torch 2.2 and later), which order the dimensions differently,
    and none of which is 0, as those of a broadcast are; of convolutions, shapes, kernels that convert by their
    names, and no argument that is known to be in NHWC already.
    """
    conversions: list[tuple[Op | Gap, float]] = []
    convolved, copied = [], []
    for op in analysis.ops:
        time = sum(kernel.time for kernel in op.kernels if CONVERSION.search(kernel.name))
        if is_convolution(op) and time > 0 and not _is_channels_last(analysis, op):
            conversions.append((op, KEPT * time))
            convolved.append(op)
        if op.reordered > 0 and _is_copy(op) and op.part != "copy" and _copier(analysis, op):
            copied.append(op)
    if convolved:
        time = sum(time for _, time in conversions) / KEPT
        kernels = [kernel for op in convolved for kernel in op.kernels if CONVERSION.search(kernel.name)]
        count, rocm = sum(kernel.count for kernel in kernels), analysis.accelerator == "hip"
        says = told(say_channels_last, time=time, conversions=count, per=analysis.per, rocm=rocm)
        yield finding_about(analysis, says, conversions, convolved)
    if copied:
        times = [op.reordered for op in copied]
        calls, caller = sum(op.reorders for op in copied), _copier(analysis, copied[0]) or ""
        host = _host(analysis, copied, times)
        moved = told(say_reordered, calls=calls, per=analysis.per, time=sum(times), host=host, caller=caller)
        yield _left_out(analysis, moved, copied, times)


def say_channels_last(time: float, conversions: float, per: str, rocm: bool) -> Said:
    """Conversions between NCHW and NHWC around convolutions; conversions: kernels that do it."""
    given = "; MIOpen gets NHWC with the environment variable PYTORCH_MIOPEN_SUGGEST_NHWC=1" if rocm else ""
    return Said(
        "Use channels_last for the model and its input",
        f"{plural(conversions, 'conversion')} {per} between NCHW and NHWC in convolutions "
        f"{form(conversions, 'takes', 'take')} {short_time_text(time)}; .to(memory_format=torch.channels_last) changes "
        f"both{given}.",
    )


def say_reordered(calls: float, per: str, time: float, host: float, caller: str) -> Said:
    """Copies that change nothing but the order of elements in memory.

    host: naN in a CPU program. caller: the op that copies, of the longest: "aten::contiguous".
    """
    return Said(
        "Keep one memory layout",
        f"{plural(calls, 'copy', 'copies')} {per} only {form(calls, 'reorders', 'reorder')} elements (the "
        f"longest in {caller} of a permuted tensor) and {form(calls, 'takes', 'take')} "
        f"{cost_text(time, host)}. Where the "
        "program makes the copy, produce its input in the layout that the next op reads.",
    )


RULES = (elements, growth, float64, cast, layout)

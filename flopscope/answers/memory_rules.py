"""Rules about bytes: chains that could be fused, casts and copies that could be left out."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from flopscope.answers.analysis import Analysis
from flopscope.answers.compute_rules import attention, most_elements
from flopscope.answers.findings import (
    COMPILED,
    Finding,
    casts_of,
    claim_all,
    claim_late,
    evidence,
    finding_about,
    is_compiled,
    is_convolution,
    is_trained,
    names_at,
    ran_as,
    reorders_of,
    tensors,
    where,
)
from flopscope.answers.host_events import calls_named, outermost
from flopscope.answers.pieces import Gap, Op
from flopscope.answers.sentences import memory
from flopscope.answers.sentences.words import Said, form, listed
from flopscope.support.units import percent_text, plural, short_time_text

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


def _left_out(analysis: Analysis, says: partial[Said], ops: Sequence[Op], times: Sequence[float]) -> Finding:
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
    """
    rows = zip(*(analysis.columns[name] for name in ("key", "input_shapes", "count")), strict=True)
    vectors = [(tuple(of[0]), n / analysis.step_count) for key, of, n in rows if key == "aten::select" and len(of) > 0]
    taken = {shape: n for shape, n in vectors if len(shape) == 1 and n >= max(MANY, shape[0])}
    calls = max(taken.values(), default=math.inf)
    ops = [op for op in analysis.ops if op.key.startswith("aten::") and op.part != "copy" and _given(op)]
    single = [op for op in ops if op.calls >= calls / 2 and all(math.prod(shape) == 1 for shape, _ in _given(op))]
    if single:
        views = [op for op in ops if op.key in VIEWS and tuple(op.shapes[0]) in taken]
        found = [*single, *views]
        reads = all(op.key in ("aten::item", "aten::_local_scalar_dense") for op in single)
        count, size, time = sum(taken.values()), max(taken)[0], sum(op.time for op in found)
        says = partial(memory.elements, calls=count, size=size, per=analysis.per, time=time, reads=reads)
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
    """
    calls, ops = calls_named(analysis, CAT.__eq__, "growing"), [op for op in analysis.ops if op.key == CAT]
    grown, made, times = calls["run"] >= 0, calls["made"], calls["duration"]
    events, time, few = calls["event"][grown].tolist(), times[grown].sum(), times[(made > 0) & (made <= FEW)]
    if not (ops and time):
        return
    rows = zip(analysis.columns["key"], analysis.columns["input_shapes"], strict=True)
    whole = {tuple(shape) for key, shapes in rows if not PARTLY.match(key) for shape in shapes}
    some = [_made(analysis, event) in whole for event in events[:: 1 + len(events) // 64]]
    taken, copied = 4 * sum(some) > len(some), float(calls["copied"][grown].sum() / made[grown].sum())
    least = (few.mean() if len(few) else times[grown].min()) * len(events) / time if taken else 0.0
    if not (taken and any("CatBackward" in name for name in analysis.names)):
        share, count = float(time / times.sum()), sum(op.calls for op in ops) * len(events) / len(grown)
        shape, spent = _made(analysis, events[int(made[grown].argmax())]), share * sum(op.time for op in ops)
        says = partial(memory.growth, count, analysis.per, spent, taken, shape, copied / (1 - copied))
        claims = claim_all(ops, share * min(copied, 1 - least))
        yield Finding(says, claims, evidence(ops), where(analysis, events[0]))


def float64(analysis: Analysis) -> Iterator[Finding]:
    """Float64 that enters a program of float32 by one op.

    Premises: an op of torch takes a tensor of float32 and one of float64 with dimensions, which makes its result
    float64; it casts the first within its call. The estimate is that cast, and half of the time of memory-bound rows
    that take float64 alone: half of the bytes at the same rate. Without such an op float64 is meant.
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
        says = partial(memory.float64, op=mixed[0].key, calls=calls, per=analysis.per, time=time)
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
    trained = _trained(analysis)
    ops, autocast = [], False
    for op in (op for op in analysis.ops if _is_copy(op) and op.cast > 0 and op.part != "copy"):
        served = any(_by_autocast(analysis, event) for event in casts_of(analysis, op) or [op.event])
        if not served or op.casts > 2.01 * trained.get(tuple(op.shapes[0]), 0.0):
            ops.append(op)
            autocast = autocast or served
    if not ops:
        return
    times = [op.cast for op in ops]
    named = next((op for op in ops if len(set(op.dtypes[:2])) == 2), None)
    says = partial(
        memory.casts,
        calls=sum(op.casts for op in ops),
        per=analysis.per,
        time=sum(times),
        host=_host(analysis, ops, times),
        source=named.dtypes[1] if named else "",
        target=named.dtypes[0] if named else "",
        autocast=autocast,
        trained=is_trained(analysis),
    )
    yield _left_out(analysis, says, ops, times)


def _trained(analysis: Analysis) -> Mapping[tuple[int, ...], float]:
    """Return how many parameters of each shape got a gradient per step."""
    counts: dict[tuple[int, ...], float] = {}
    for row, key in enumerate(analysis.columns["key"]):
        shapes = analysis.columns["input_shapes"][row]
        if key == ACCUMULATE and len(shapes) > 0:
            counts[tuple(shapes[0])] = int(analysis.columns["count"][row]) / analysis.step_count
    return counts


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
        says = partial(memory.channels_last, time=time, conversions=count, per=analysis.per, rocm=rocm)
        yield finding_about(analysis, says, conversions, convolved)
    if copied:
        times = [op.reordered for op in copied]
        calls, caller = sum(op.reorders for op in copied), _copier(analysis, copied[0]) or ""
        host = _host(analysis, copied, times)
        moved = partial(memory.reordered, calls=calls, per=analysis.per, time=sum(times), host=host, caller=caller)
        yield _left_out(analysis, moved, copied, times)


NORM = "batch normalisation"
UNFUSED = {
    NORM: re.compile(r"^aten::(?!.*backward)\w*batch_norm"),
    "ReLU": re.compile(r"^aten::(?:relu|relu6|clamp_min|threshold|hardtanh|leaky_relu)_?$"),
    "additions": re.compile(r"^aten::add_?$"),
}
BLOCKS = ((NORM, "ReLU"), (NORM, "additions"), ("additions", "ReLU"))
NOTED = 0.05
"""Share of the device's time from which such ops are noted."""


def _pairs(analysis: Analysis) -> Iterator[tuple[int, int, int]]:
    """Return the rows of works that followed each other on a stream, and how often they did."""
    return zip(*(analysis.pair_cells[name].tolist() for name in ("before", "after", "count")), strict=True)


def _linked(analysis: Analysis, kinds: Mapping[int, str], pairs: Sequence[tuple[str, str]]) -> dict[int, float]:
    """Return by row the share of its works directly before or after which such a one ran on its stream."""
    every, found = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for before, after, count in _pairs(analysis):
        if before == after:
            continue  # kernels of one op
        fits = (kinds.get(before, ""), kinds.get(after, "")) in pairs
        for place in ((0, before), (1, after)):
            every[place] += count
            found[place] += count * fits
    return {row: max(found[side, row] / max(every[side, row], 1) for side in (0, 1)) for row in kinds}


def separate(analysis: Analysis) -> Iterator[str]:
    """Yield a note on batch normalisation, ReLU and additions in kernels of their own.

    Premises: ops that torch.compile did not make, in this order on a stream.
    """
    own = [op for op in analysis.ops if op.row >= 0 and op.part != "copy" and op.key.startswith("aten::")]
    if not analysis.on_device or not any(UNFUSED[NORM].search(op.key) for op in own):
        return
    own, whole = [op for op in own if not is_compiled(analysis, op)], sum(op.time for op in analysis.ops)
    kinds = {op.row: kind for op in own for kind, names in UNFUSED.items() if names.search(op.key)}
    times: dict[str, float] = {}
    shares = _linked(analysis, kinds, BLOCKS)
    for op in own:
        if shares.get(op.row, 0.0) > 0:
            times[kinds[op.row]] = times.get(kinds[op.row], 0.0) + shares[op.row] * op.time
    if len(times) > 1 and (time := sum(times.values())) > NOTED * whole:
        yield (
            f"{percent_text(100 * time / whole)} of the device's time is in {listed(list(times))} that follow one "
            f"another as kernels of their own ({short_time_text(time)} {analysis.per}): each reads and writes whole "
            "tensors, and torch.compile fuses them."
        )


CONVOLVES = re.compile(r"^aten::conv(?:olution|\dd)$")
INFERS = re.compile(r"bn_fw_inf|NormFwdInfer|transform_input|batch_norm_elementwise", re.IGNORECASE)
LEARNS = re.compile(r"statistics|welford|bn_fw_tr|NormFwdTrain", re.IGNORECASE)


def foldable(analysis: Analysis) -> Iterator[str]:
    """Yield a note on batch normalisation directly after a convolution, in a recording without a backward pass.

    Premises: the order of ops on a thread; running statistics, by the argument or else the names of kernels; as many
    channels, if recorded. There may be no gain: eager PyTorch adds the bias in a kernel of its own.
    """
    norms = [op for op in analysis.ops if UNFUSED[NORM].search(op.key)]
    time, whole = (sum(op.time for op in ops) for ops in (norms, analysis.ops))
    if not time or is_trained(analysis) or any("backward" in key.lower() for key in analysis.columns["key"]):
        return
    inferred = all(ran_as(op, INFERS) and not ran_as(op, LEARNS) for op in norms)
    ops, names = outermost(analysis, re.compile("^aten::").search), analysis.events[0]["name"]
    normal = np.isin(names[ops[1:]], [at for at, name in enumerate(analysis.names) if UNFUSED[NORM].search(name)])
    pairs, found = np.stack([ops[:-1][normal], ops[1:][normal]]), 0
    befores, afters = (analysis.calls_alike(of, arguments=True) for of in pairs)
    _, place, counts = np.unique(befores[2] * len(ops) + afters[2], return_index=True, return_counts=True)
    for before, event, count in zip(*pairs[:, place].tolist(), counts.tolist(), strict=True):
        source, given = (analysis.core.arguments(one) or [] for one in (before, event))
        known = len(source) > 1 and len(given) > 5
        name = analysis.names[names[before]]
        if not CONVOLVES.search(name) or (known and (source[1][1] or ())[:1] != (given[0][1] or ())[1:2]):
            continue
        trains = given[5][3] if known else ""
        found += count * (trains == "False" if trains else inferred)
    share = time / whole
    if share * found > NOTED * len(pairs[0]):
        yield (
            f"{found} of {plural(len(pairs[0]), NORM)} ({percent_text(100 * share)} of the time of ops) "
            f"{form(found, 'uses', 'use')} running statistics directly after a convolution, into which "
            "torch.nn.utils.fusion.fuse_conv_bn_eval folds them where nothing else reads its result."
        )


APART = re.compile(r"_foreach_|_fused_|bernoulli|sort|topk|kthvalue|median|mode|cum|pool|loss")
"""Pointwise ops and reductions that are no links of a chain: optimizers, one that reads nothing that an earlier op
wrote, and what looks at elements in an order or in windows of its own."""
MOVES = ("aten::copy_", "aten::_to_copy")
"""Copies that a compiler does while it computes, if kernels do them."""
LONGEST_CHAIN = 6
"""Ops that a sentence names."""
FUSED_SHARE = 0.85
"""Bandwidth of a fused kernel with more operands, relative to that of the separate kernels."""
SAVED_FOR_BACKWARD = 0.8
"""Share of the traffic of intermediates that a compiler saves in a program with a backward pass, which needs some."""


def fuse(analysis: Analysis) -> Iterator[Finding]:
    """Neighbouring memory-bound ops over equally many elements, whose intermediate need not reach memory.

    Of each neighbouring pair, the bytes that the first writes (or, if it reduces, reads) and the second reads again are
    saved, at the bandwidth that the two reach now, or at its peak where something else takes the time; 80 % of them
    where a backward pass needs some intermediates. Premises: both shapes (record_shapes), and kernels, not copies, that
    follow each other on one stream; neither op ran in code that torch.compile made, or is removed by ``attention``, and
    the bytes of both bound them or come near, not the launch of their kernels.
    """
    removed = {op.row for finding in attention(analysis) for op in finding.removed}
    by_row: dict[int, Op] = {}
    for op in analysis.ops:
        if op.row < 0 or op.row in removed or op.part not in ("memory", "latency", "compute"):
            continue
        if not is_compiled(analysis, op) and not any(kernel.name.startswith("Mem") for kernel in op.kernels):
            by_row.setdefault(op.row, op)
    counts = Counter[tuple[int, int]]()
    for before, after, count in _pairs(analysis):
        counts[before, after] += count
    share = FUSED_SHARE * (SAVED_FOR_BACKWARD if is_trained(analysis) else 1.0)
    saved: dict[int, float] = {}
    chained: dict[int, Op] = {}
    edges: dict[tuple[int, int], float] = {}
    steps = analysis.step_count
    written, moved = (list(map(float, analysis.columns[name])) for name in ("bytes_written", "bytes_total_moved"))
    for (before, after), count in counts.items():
        first, second = by_row.get(before), by_row.get(after)
        if first is None or second is None or not _are_fusable(first, second):
            continue
        if not (moved[before] > 0 and moved[after] > 0 and written[before] > 0):
            continue
        reduces = _reduces(first)  # its result is small, but the next op reads its input again
        bytes_each = (moved[before] - written[before] if reduces else written[before]) / max(first.calls * steps, 1)
        wrote = 0.0 if reduces else written[before] / moved[before]
        once = _byte_time(first) * wrote * min(count / steps / max(first.calls, 1e-9), 1)
        twice = _byte_time(second) * min(bytes_each * count / moved[after], 1)
        saved[before] = saved.get(before, 0.0) + share * once
        saved[after] = saved.get(after, 0.0) + share * twice
        edges[before, after] = share * (once + twice)
        chained[before], chained[after] = first, second
    claims: list[tuple[Op | Gap, float]] = [(chained[row], min(time, chained[row].time)) for row, time in saved.items()]
    if not claims:
        return
    ahead = {pair: time for pair, time in edges.items() if chained[pair[0]].event < chained[pair[1]].event}
    chain = _longest(ahead or edges, counts, {row: steps * max(op.calls, op.count) for row, op in chained.items()})
    says = partial(
        memory.chains,
        names=tuple(chained[row].key.removeprefix("aten::") for row in chain),
        several=len(set(chain)) < len(chained),
        time=sum(time for _, time in claims),
        compiled=any(COMPILED.search(key) for key in analysis.columns["key"]),
    )
    yield Finding(says, claims, evidence(chained.values()), where(analysis, chained[chain[0]].event))


def _byte_time(op: Op) -> float:
    """Return the time that the bytes of an op take: all of it, if they bound it."""
    return op.time if op.part == "memory" else min(op.time, op.memory)


def _longest(
    edges: Mapping[tuple[int, int], float], counts: Mapping[tuple[int, int], int], works: Mapping[int, float]
) -> list[int]:
    """Return the rows of a chain that ran, in its order: the pair with the largest time, and what it continues.

    Two pairs with a row in common are known to be parts of one chain if together they occur more often than the row.
    """
    first = max(edges, key=lambda pair: edges[pair])
    chain, certain = list(first), counts[first]
    for end in (-1, 0):
        while len(chain) < LONGEST_CHAIN:
            ends = [pair for pair in edges if pair[0 if end else 1] == chain[end]]
            if not ends:
                break
            pair = max(ends, key=lambda one: counts[one])
            both = certain + counts[pair] - round(works[chain[end]])
            row = pair[1 if end else 0]
            if both <= 0 or row in chain:
                break
            certain = both
            chain.insert(len(chain) if end else 0, row)
    return chain


def _is_pointwise(op: Op) -> bool:
    return (op.category == "pointwise" and not APART.search(op.key)) or op.key in MOVES


def _reduces(op: Op) -> bool:
    return op.category == "reduction" and not APART.search(op.key)


def is_fusable(op: Op) -> bool:
    """Return whether a compiler fuses an op of torch or flopscope with its neighbours."""
    forward = op.category == "normalisation" and "backward" not in op.key
    return op.key.startswith(("aten::", "flopscope::")) and (_is_pointwise(op) or _reduces(op) or forward)


def _are_fusable(first: Op, second: Op) -> bool:
    """Return whether the second op may read in the same kernel what the first one wrote or read."""
    if not (is_fusable(first) and is_fusable(second)):
        return False
    if not (_is_pointwise(first) or (_reduces(first) and _is_pointwise(second))):
        return False
    return 0 < most_elements(first) == most_elements(second)

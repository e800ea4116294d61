"""The rule about chains of ops that one kernel could do, and notes on blocks of convolutions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from flopscope.answers.analysis import Analysis
from flopscope.answers.compute_rules import attention
from flopscope.answers.findings import (
    COMPILED,
    Finding,
    evidence,
    is_compiled,
    is_trained,
    most_elements,
    ran_as,
    where,
)
from flopscope.answers.host_events import outermost
from flopscope.answers.pieces import Gap, Op
from flopscope.answers.words import Said, form, listed
from flopscope.support.units import percent_text, plural, short_time_text

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

    Facts: names: ops of one chain, in its order. several: there are other chains. time: of the traffic between the
    ops of all chains. compiled: torch.compile compiles other parts of the program.
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
    saved, chained, edges = dict[int, float](), dict[int, Op](), dict[tuple[int, int], float]()
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
    names, several = [chained[row].key.removeprefix("aten::") for row in chain], len(set(chain)) < len(chained)
    time, compiled = sum(time for _, time in claims), any(COMPILED.search(key) for key in analysis.columns["key"])
    others, in_all = (", as do other ops", " in all") if several else ("", "")
    action, own = "Fuse chains of memory-bound ops with torch.compile", " A kernel of your own serves as well."
    if compiled:
        action, own = "Fuse the memory-bound ops that torch.compile did not compile", ""
    says = Said(
        action,
        f"the ops {listed(names)} run one after another over equally many elements{others}. What one writes only for "
        f"the next, up to {short_time_text(time)} of traffic{in_all}, need not reach memory.{own}",
        {"names": names, "several": several, "time": time, "compiled": compiled},
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
    both = is_fusable(first) and is_fusable(second)
    linked = _is_pointwise(first) or (_reduces(first) and _is_pointwise(second))
    return both and linked and 0 < most_elements(first) == most_elements(second)


RULES = (fuse,)

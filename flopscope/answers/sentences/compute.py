"""Sentences about what computes: matrix products, convolutions, attention, kernels that do not fill the device."""

from __future__ import annotations

import math
from collections.abc import Mapping

from flopscope.answers import facts
from flopscope.answers.sentences.words import KERNEL_WIDTH, OP_WIDTH, Said, form, listed, more_ops
from flopscope.support.columns import cut_end
from flopscope.support.units import percent_text, plural, short_time_text


def attention(of: facts.Attention) -> Said:
    action, how = "Use torch.nn.functional.scaled_dot_product_attention", ""
    if of.module:
        action = "Pass need_weights=False to nn.MultiheadAttention"
        how = " The module then calls scaled_dot_product_attention."
    elif of.averaged:
        action = "Do without the mean of the attention weights over the heads"
        how = (
            " scaled_dot_product_attention avoids that, but does not return the weights (need_weights=False in "
            "nn.MultiheadAttention)."
        )
    return Said(
        action,
        f"attention is written out in {listed(of.names)}, which move {plural(of.matrices, 'matrix', 'matrices')} of "
        f"{of.rows} x {of.columns} scores through memory.{how}",
    )


REFUSALS: Mapping[facts.Refusal, str] = {
    "dropout": "dropout_p is {:g}, which the fused one of the CPU does not have (0 where nothing trains)",
    "dtype": "the fused kernels do not take {}",
    "head size": "the fused kernel of float32 needs a head size that is a multiple of 4, not {}",
    "enable_gqa": "the fused kernel of float32 does not take enable_gqa",
}
UNEXPLAINED = (
    "which the recorded arguments do not explain: torch.nn.attention.sdpa_kernel with one fused backend raises with "
    "the reason"
)


def math_path(of: facts.MathPath) -> Said:
    reasons = [REFUSALS[reason].format(value) for reason, value in of.reasons]
    return Said(
        "Let scaled_dot_product_attention use a fused kernel",
        f"it took its math path in {plural(of.calls, 'call')} {of.per} ({short_time_text(of.time)}), "
        f"{f'because {listed(reasons)}' if reasons else UNEXPLAINED}. The math path writes the scores to memory; the "
        "fused ones do not.",
    )


TF32_SWITCHES = {
    "products": 'torch.set_float32_matmul_precision("high") for matrix products',
    "convolutions": (
        "torch.backends.cudnn.allow_tf32 = True (torch.backends.cudnn.conv.fp32_precision = 'tf32' in newer versions) "
        "for convolutions"
    ),
}


def tf32(of: facts.Tf32) -> Said:
    times = {name: time for name, time in of._asdict().items() if time > 0}
    named = listed([f"{short_time_text(time)} of float32 {name}" for name, time in times.items()])
    switches = listed([TF32_SWITCHES[name] for name in times])
    return Said(
        "Allow TF32",
        f"{named} run on CUDA cores. {switches} lets tensor cores do them, with 10 bits of the inputs' mantissa.",
    )


def low_precision(of: facts.LowPrecision) -> Said:
    parts: dict[bool, list[str]] = {False: [], True: []}
    for kind, calls, time in of.parts:
        fused = kind == "attention"
        what = f"{plural(calls, 'call')} of attention" if fused else plural(calls, kind)
        parts[fused].append(f"{what} {of.per} ({short_time_text(time)})")
    runs = form(of.parts[0][1] if len(of.parts) == 1 else 2, "runs", "run")
    units = {False: of.unit, True: "float32"}
    ran = "; ".join(f"{listed(texts)} {runs} in {units[fused]}" for fused, texts in parts.items() if texts)
    model = "and torch.amp.GradScaler" if of.scaled else f"or a {of.half} model"
    faster = f"does {of.ratio:.2g} times as many FLOPs a second as in {of.unit}" if of.unit else "is faster"
    return Said(
        f"Compute in {of.half} with torch.autocast",
        f'with torch.autocast("cuda", dtype=torch.{of.half}) {model}, the device {faster}, and half of the bytes move. '
        f"{ran}.",
    )


def padded(of: facts.Padded) -> Said:
    sizes = [one.rpartition(" ")[2] for one in of.padded]
    action = f"Pad {listed(of.sizes)} of {cut_end(of.op, OP_WIDTH)} to {listed(sizes)}"
    if of.vocabulary:
        action = f"Pad the vocabulary from {of.sizes[0].rpartition(' ')[2]} to {sizes[0]}"
    return Said(
        action,
        f"rows that are not multiples of {of.alignment} bytes keep {plural(of.products, 'product')} {of.per} off the "
        f"fast kernels, at {percent_text(of.share)} of the limit instead of about {of.usual:.0f}%. Larger multiples of "
        f"{of.multiple} serve as well.",
    )


def small(of: facts.Small) -> Said:
    grid = f"runs in {plural(of.blocks, 'block')} on {plural(of.processors, 'multiprocessor')}"
    if of.blocks > of.processors:
        rest = plural(of.blocks - of.resident, "block")
        grid = f"runs {rest} in a second wave after one of {of.resident:,}"
    how = "Process more independent rows at once (a larger batch), or split"
    if of.over_rows:
        how = "It reduces over the rows: split"
    return Said(
        f"Give {cut_end(of.op, OP_WIDTH)} more parallel work",
        f"its kernel {cut_end(of.kernel, KERNEL_WIDTH)} {grid}. {how} the long dimension and combine the parts."
        f"{more_ops(of.ops - 1)}",
    )


SUCH: Mapping[facts.Such, str] = {
    "products": "other products on tensor cores in this profile",
    "large products": "large products on tensor cores",
    "column-major": "such products with a column-major second matrix (measured on an H200)",
    "scatter_add": "calls of scatter_add_ (measured on an H200)",
    "scatter_add here": "calls of scatter_add_ in this profile",
    "gathers": "gathers with a contiguous index (measured on an H200)",
    "alike": "calls of about the same sizes in this profile",
}
CAUSES: Mapping[facts.Cause, str] = {
    "older": "is written for {written} and runs on {runs}",
    "most": "takes most of it",
    "atomics": "adds with atomics",
    "narrow rows": "has a block for each row of {row_bytes:.0f} bytes",
    "one block": "keeps one of {processors} multiprocessors busy",
}
REMEDIES: Mapping[facts.Remedy, str] = {
    "autotune": "torch.compile(mode='max-autotune') tries other kernels.",
    "column-major": "Its second matrix is row-major: pass it column-major, as w.t() of a weight w of N rows.",
    "scatter_add": (
        "Use scatter_add_ with the index expanded to the shape of the source (index[:, None].expand_as(source))."
    ),
    "gradient": (
        "It is the gradient of index_select: that of torch.gather, with the index expanded to the shape of the result "
        "(index[:, None].expand(-1, {width})), is scatter_add_."
    ),
    "gather": "Use torch.gather with a contiguous index of the result's shape.",
    "contiguous": "Its index is expanded (a stride is 0): make it contiguous.",
    "more blocks": "Split its work over more blocks, or let other work run beside it on another stream.",
    "boxes": "Its time grows with the number of boxes: keep those with the highest scores (topk) before nms().",
    "compare": "Compare the kernels of the two: that of the faster one may serve here.",
}


def far_from_roof(of: facts.FarFromRoof) -> Said:
    names = dict.fromkeys(cut_end(op.op, OP_WIDTH) for op in of.ops[:3])
    return Said(f"Make {listed(list(names))} faster", " ".join(far_op(op, of.per) for op in of.ops[:3]))


def far_op(op: facts.FarOp, per: str) -> str:
    """Return the sentences of one op."""
    usual = f", where {SUCH[op.such]} reach {percent_text(op.usual)}" if op.such else ""
    reaches = "" if math.isnan(op.share) else f" at {percent_text(op.share)} of its limit{usual}"
    grid = f" ({plural(op.blocks, 'block')})" if op.blocks > 0 else ""
    return (
        f"{op.op} takes {short_time_text(op.time)} {per}{reaches}: its kernel {cut_end(op.kernel, KERNEL_WIDTH)}{grid} "
        f"{CAUSES[op.cause].format_map(op.numbers)}. {REMEDIES[op.remedy].format_map(op.numbers)}"
    )

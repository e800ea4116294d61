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


def math_path(of: facts.MathPath) -> Said:
    return Said(
        "Let scaled_dot_product_attention use a fused kernel",
        f"it took its math path in {plural(of.calls, 'call')} {of.per} ({short_time_text(of.time)}). The math path "
        "writes the scores to memory; the fused ones do not: torch.nn.attention.sdpa_kernel with one fused backend "
        "raises with the reason.",
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
    "products": ", where other products on tensor cores in this profile reach {}",
    "large products": ", where large products on tensor cores reach {}",
    "alike": ", where calls of about the same sizes in this profile reach {}",
    "one block": "",
}
REMEDIES: Mapping[facts.Such, str] = {
    "products": "torch.compile(mode='max-autotune') tries other kernels.",
    "large products": "torch.compile(mode='max-autotune') tries other kernels.",
    "alike": "Compare the kernels of the two: that of the faster one may serve here.",
    "one block": "Split its work over more blocks, or let other work run beside it on another stream.",
}


def far_from_roof(of: facts.FarFromRoof) -> Said:
    names = dict.fromkeys(cut_end(op.op, OP_WIDTH) for op in of.ops[:3])
    return Said(f"Make {listed(list(names))} faster", " ".join(far_op(op, of.per) for op in of.ops[:3]))


def far_op(op: facts.FarOp, per: str) -> str:
    """Return the sentences of one op."""
    usual = SUCH[op.such].format(percent_text(op.usual))
    reaches = "" if math.isnan(op.share) else f" at {percent_text(op.share)} of its limit{usual}"
    grid = f" ({plural(op.blocks, 'block')})" if op.blocks > 0 else ""
    cause = "takes most of it"
    if op.written_for:
        cause = f"is written for {op.written_for} and runs on {op.runs_on}"
    elif op.such == "one block":
        cause = f"keeps one of {op.processors} multiprocessors busy"
    return (
        f"{op.op} takes {short_time_text(op.time)} {per}{reaches}: its kernel {cut_end(op.kernel, KERNEL_WIDTH)}{grid} "
        f"{cause}. {REMEDIES[op.such]}"
    )

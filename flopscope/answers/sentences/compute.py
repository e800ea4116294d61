"""Sentences about what computes: matrix products, convolutions, attention, kernels that do not fill the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from flopscope.answers.sentences.words import KERNEL_WIDTH, OP_WIDTH, Said, form, listed, more_ops
from flopscope.support.columns import cut_end
from flopscope.support.units import percent_text, plural, short_time_text


def attention(matrices: int, rows: int, columns: int, names: Sequence[str], averaged: bool, module: bool) -> Said:
    """Attention that is written out.

    names: ops that make the scores, change them and read them, in the order of their first calls. averaged: the scores
    are averaged over their heads, as nn.MultiheadAttention does to return them. module: it is known that
    nn.MultiheadAttention does.
    """
    action, how = "Use torch.nn.functional.scaled_dot_product_attention", ""
    if module:
        action = "Pass need_weights=False to nn.MultiheadAttention"
        how = " The module then calls scaled_dot_product_attention."
    elif averaged:
        action = "Do without the mean of the attention weights over the heads"
        how = (
            " scaled_dot_product_attention avoids that, but does not return the weights (need_weights=False in "
            "nn.MultiheadAttention)."
        )
    return Said(
        action,
        f"attention is written out in {listed(names)}, which move {plural(matrices, 'matrix', 'matrices')} of "
        f"{rows} x {columns} scores through memory.{how}",
    )


def math_path(calls: float, per: str, time: float) -> Said:
    """scaled_dot_product_attention without a fused kernel."""
    return Said(
        "Let scaled_dot_product_attention use a fused kernel",
        f"it took its math path in {plural(calls, 'call')} {per} ({short_time_text(time)}). The math path "
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


def tf32(products: float, convolutions: float) -> Said:
    """Float32 products and convolutions on CUDA cores, times in µs."""
    parts = {"products": products, "convolutions": convolutions}
    times = {name: time for name, time in parts.items() if time > 0}
    named = listed([f"{short_time_text(time)} of float32 {name}" for name, time in times.items()])
    switches = listed([TF32_SWITCHES[name] for name in times])
    return Said(
        "Allow TF32",
        f"{named} run on CUDA cores. {switches} lets tensor cores do them, with 10 bits of the inputs' mantissa.",
    )


def low_precision(
    parts: Sequence[tuple[str, float, float]], per: str, unit: str, half: str, scaled: bool, ratio: float
) -> Said:
    """Products, convolutions and attention that could run in 16 bits.

    parts: ("product", "convolution" or "attention", calls, their time). unit: in which those run that are not
    attention: "TF32", "float32"; "" without any. half: "bfloat16" or "float16". scaled: gradients in float16 need a
    scaled loss. ratio: FLOPs per second in 16 bits over those in the unit; NaN: no unit.
    """
    by_unit: dict[bool, list[str]] = {False: [], True: []}
    for kind, calls, time in parts:
        fused = kind == "attention"
        what = f"{plural(calls, 'call')} of attention" if fused else plural(calls, kind)
        by_unit[fused].append(f"{what} {per} ({short_time_text(time)})")
    runs = form(parts[0][1] if len(parts) == 1 else 2, "runs", "run")
    units = {False: unit, True: "float32"}
    ran = "; ".join(f"{listed(texts)} {runs} in {units[fused]}" for fused, texts in by_unit.items() if texts)
    model = "and torch.amp.GradScaler" if scaled else f"or a {half} model"
    faster = f"does {ratio:.2g} times as many FLOPs a second as in {unit}" if unit else "is faster"
    return Said(
        f"Compute in {half} with torch.autocast",
        f'with torch.autocast("cuda", dtype=torch.{half}) {model}, the device {faster}, and half of the bytes move. '
        f"{ran}.",
    )


def padded(
    op: str,
    sizes: Sequence[str],
    padded: Sequence[str],
    multiple: int,
    alignment: int,
    products: float,
    per: str,
    share: float,
    usual: float,
    vocabulary: bool = False,
) -> Said:
    """Products with rows that are not multiples of the vectors that fast kernels load.

    sizes: "N = 50257". multiple: elements. alignment: bytes. share: percent of the limit that the longest reaches.
    vocabulary: the size is that of the vocabulary: an embedding has so many rows, and a loss or a choice so many
    classes.
    """
    after = [one.rpartition(" ")[2] for one in padded]
    action = f"Pad {listed(sizes)} of {cut_end(op, OP_WIDTH)} to {listed(after)}"
    if vocabulary:
        action = f"Pad the vocabulary from {sizes[0].rpartition(' ')[2]} to {after[0]}"
    return Said(
        action,
        f"rows that are not multiples of {alignment} bytes keep {plural(products, 'product')} {per} off the "
        f"fast kernels, at {percent_text(share)} of the limit instead of about {usual:.0f}%. Larger multiples of "
        f"{multiple} serve as well.",
    )


def small(op: str, kernel: str, blocks: int, processors: int, resident: int, ops: int) -> Said:
    """A kernel that leaves multiprocessors idle.

    resident: blocks of it that the device can hold at once.
    """
    grid = f"runs in {plural(blocks, 'block')} on {plural(processors, 'multiprocessor')}"
    if blocks > processors:
        rest = plural(blocks - resident, "block")
        grid = f"runs {rest} in a second wave after one of {resident:,}"
    return Said(
        f"Give {cut_end(op, OP_WIDTH)} more parallel work",
        f"its kernel {cut_end(kernel, KERNEL_WIDTH)} {grid}. Split the long dimension and combine the parts, or "
        f"process more independent rows at once (a larger batch), where it has a block for each.{more_ops(ops - 1)}",
    )


Such = Literal["products", "large products", "scatter_add", "alike", "one block"]


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


def far_from_roof(ops: tuple[FarOp, ...], per: str) -> Said:
    """The ops far from their roof, the longest first."""
    names = dict.fromkeys(cut_end(op.op, OP_WIDTH) for op in ops[:3])
    return Said(f"Make {listed(list(names))} faster", " ".join(far_op(op, per) for op in ops[:3]))


def far_op(op: FarOp, per: str) -> str:
    """Return the sentences of one op."""
    usual = SUCH[op.such].format(percent_text(op.usual), op.units)
    reaches = "" if math.isnan(op.share) else f" at {percent_text(op.share)} of its limit{usual}"
    grid = f" ({plural(op.blocks, 'block')})" if op.blocks > 0 else ""
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

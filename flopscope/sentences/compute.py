"""Sentences about what computes: matrix products, convolutions, attention, kernels that do not fill the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flopscope.sentences.words import OP_WIDTH, cut, listed
from flopscope.support.units import percent_text, plural, short_time_text

__all__ = ["Attention", "FarFromRoof", "FarOp", "LowPrecision", "MathPath", "Padded", "Small", "Tf32"]


class Attention(NamedTuple):
    """Attention that is written out."""

    matrices: int
    rows: int
    columns: int
    names: Sequence[str]
    """Ops that make the scores, change them and read them, in the order of their first calls."""
    averaged: bool
    """The scores are averaged over their heads, as nn.MultiheadAttention does to return them."""
    module: bool
    """It is known that nn.MultiheadAttention does."""

    @property
    def action(self) -> str:
        if self.module:
            return "Pass need_weights=False to nn.MultiheadAttention"
        if self.averaged:
            return "Do without the mean of the attention weights over the heads"
        return "Use torch.nn.functional.scaled_dot_product_attention"

    @property
    def reason(self) -> str:
        how = ""
        if self.module:
            how = " The module then calls scaled_dot_product_attention."
        elif self.averaged:
            how = (
                " scaled_dot_product_attention avoids that, but does not return the weights (need_weights=False in "
                "nn.MultiheadAttention)."
            )
        matrices = plural(self.matrices, "matrix", "matrices")
        return (
            f"attention is written out in {listed(self.names)}, which move {matrices} of "
            f"{self.rows} x {self.columns} scores through memory.{how}"
        )


class MathPath(NamedTuple):
    """scaled_dot_product_attention without a fused kernel."""

    calls: float
    per: str
    time: float
    reasons: Sequence[str]
    """What in the arguments rules the fused kernels out; empty if nothing that was recorded does."""

    @property
    def action(self) -> str:
        return "Let scaled_dot_product_attention use a fused kernel"

    @property
    def reason(self) -> str:
        why = (
            f"because {listed(self.reasons)}"
            if self.reasons
            else "which the recorded arguments do not explain: torch.nn.attention.sdpa_kernel with one fused backend "
            "raises with the reason"
        )
        return (
            f"it took its math path in {plural(self.calls, 'call')} {self.per} "
            f"({short_time_text(self.time)}), {why}. The math path writes the scores to memory; the fused ones do not."
        )


class Tf32(NamedTuple):
    """Float32 products and convolutions on CUDA cores, times in µs."""

    products: float
    convolutions: float

    @property
    def action(self) -> str:
        return "Allow TF32"

    @property
    def reason(self) -> str:
        switches, named = [], []
        if self.products > 0:
            switches.append('torch.set_float32_matmul_precision("high") for matrix products')
            named.append(f"{short_time_text(self.products)} of float32 products")
        if self.convolutions > 0:
            switches.append(
                "torch.backends.cudnn.allow_tf32 = True (torch.backends.cudnn.conv.fp32_precision = 'tf32' in newer "
                "versions) for convolutions"
            )
            named.append(f"{short_time_text(self.convolutions)} of float32 convolutions")
        return (
            f"{listed(named)} run on CUDA cores. {listed(switches)} lets tensor cores do them, with 10 "
            "bits of the inputs' mantissa."
        )


class LowPrecision(NamedTuple):
    """Products, convolutions and attention that could run in 16 bits."""

    parts: Sequence[tuple[str, float, float]]
    """("product", calls, their time)."""
    per: str
    unit: str
    """In which those run that are not attention: "TF32", "float32"; "" without any."""
    half: str
    """ "bfloat16" or "float16"."""
    scaled: bool
    """Gradients in float16 need a scaled loss."""
    ratio: float
    """FLOPs per second in 16 bits over those in the unit; NaN: no unit."""

    @property
    def action(self) -> str:
        return f"Compute in {self.half} with torch.autocast"

    @property
    def reason(self) -> str:
        attention: list[str] = []
        others: list[str] = []
        for noun, calls, time in self.parts:
            of = noun.partition(" ")
            text = f"{plural(calls, of[0])}{of[1]}{of[2]} {self.per} ({short_time_text(time)})"
            (attention if of[2] else others).append(text)
        places = [(others, self.unit), (attention, "float32")]
        verb = "runs" if len(self.parts) == 1 and self.parts[0][1] == 1 else "run"
        ran = "; ".join(f"{listed(texts)} {verb} in {unit}" for texts, unit in places if texts)
        faster = f"does {self.ratio:.2g} times as many FLOPs a second as in {self.unit}" if self.unit else "is faster"
        model = "and torch.amp.GradScaler" if self.scaled else f"or a {self.half} model"
        return (
            f'with torch.autocast("cuda", dtype=torch.{self.half}) {model}, the device '
            f"{faster}, and half of the bytes move. {ran}."
        )


class Padded(NamedTuple):
    """Products with rows that are not multiples of the vectors that fast kernels load."""

    op: str
    sizes: Sequence[str]
    """ "N = 50257" """
    padded: Sequence[str]
    multiple: int
    """Elements."""
    alignment: int
    """Bytes."""
    products: float
    per: str
    share: float
    """Percent of the limit that the longest reaches."""
    usual: float
    vocabulary: bool = False
    """The size is that of the vocabulary: an embedding has so many rows, and a loss or a choice so many classes."""

    @property
    def action(self) -> str:
        sizes = [padded.rpartition(" ")[2] for padded in self.padded]
        if self.vocabulary:
            return f"Pad the vocabulary from {self.sizes[0].rpartition(' ')[2]} to {sizes[0]}"
        return f"Pad {listed(self.sizes)} of {cut(self.op, OP_WIDTH)} to {listed(sizes)}"

    @property
    def reason(self) -> str:
        return (
            f"rows that are not multiples of {self.alignment} bytes keep "
            f"{plural(self.products, 'product')} {self.per} off the fast kernels, at {percent_text(self.share)} of the "
            f"limit instead of about {self.usual:.0f}%. Larger multiples of {self.multiple} serve as well."
        )


class Small(NamedTuple):
    """A kernel that leaves multiprocessors idle."""

    op: str
    kernel: str
    blocks: int
    processors: int
    resident: int
    """Blocks of it that the device can hold at once."""
    over_rows: bool
    """It reduces over rows, so that more rows give no more blocks."""
    ops: int

    @property
    def action(self) -> str:
        return f"Give {cut(self.op, OP_WIDTH)} more parallel work"

    @property
    def reason(self) -> str:
        grid = f"runs in {plural(self.blocks, 'block')} on {plural(self.processors, 'multiprocessor')}"
        if self.blocks > self.processors:
            rest = plural(self.blocks - self.resident, "block")
            grid = f"runs {rest} in a second wave after one of {self.resident:,}"
        how = "Process more independent rows at once (a larger batch), or split"
        if self.over_rows:
            how = "It reduces over the rows: split"
        more = f" The same holds for {plural(self.ops - 1, 'more op')}." if self.ops > 1 else ""
        return f"its kernel {cut(self.kernel)} {grid}. {how} the long dimension and combine the parts.{more}"


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
    such: str
    """Which ops: "other products on tensor cores in this profile"."""
    cause: str
    """What the trace shows of the kernel, as a clause that follows its name."""
    remedy: str
    """What to try, a sentence."""

    def text(self, per: str) -> str:
        """Return the op's own sentences."""
        usual = f", where {self.such} reach {percent_text(self.usual)}" if self.such else ""
        reaches = "" if self.share != self.share else f" at {percent_text(self.share)} of its limit{usual}"
        grid = f" ({plural(self.blocks, 'block')})" if self.blocks > 0 else ""
        return (
            f"{self.op} takes {short_time_text(self.time)} {per}{reaches}: its kernel {cut(self.kernel)}{grid} "
            f"{self.cause}. {self.remedy}"
        )


class FarFromRoof(NamedTuple):
    """The ops far from their roof, the longest first."""

    ops: tuple[FarOp, ...]
    per: str

    @property
    def action(self) -> str:
        names = dict.fromkeys(cut(op.op, OP_WIDTH) for op in self.ops[:3])
        return f"Make {listed(list(names))} faster"

    @property
    def reason(self) -> str:
        return " ".join(op.text(self.per) for op in self.ops[:3])

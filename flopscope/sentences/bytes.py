"""Sentences about bytes: casts, copies, chains of ops, and what counters counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flopscope.sentences.words import OP_WIDTH, cost_text, cut, listed
from flopscope.support.units import percent_text, plural, short_time_text

__all__ = ["Casts", "Chains", "ChannelsLast", "PaddedTiles", "Reordered", "StarvedTensorCores", "Traffic"]


class Casts(NamedTuple):
    """Casts between float dtypes."""

    calls: float
    per: str
    time: float
    host: float
    """NaN in a CPU program."""
    source: str
    target: str
    """Dtypes of the longest."""
    autocast: bool
    """Some lie within the calls of ops that autocast serves."""
    trained: bool
    """A backward pass ran."""

    @property
    def action(self) -> str:
        return "Keep tensors in the dtype in which they are used"

    @property
    def reason(self) -> str:
        longest = f" ({self.source} to {self.target} the longest)" if self.target else ""
        how = ["where an op needs the wider dtype, a fused op or torch.compile casts while it computes"]
        if self.autocast and not self.trained:
            how.insert(0, "where autocast casts weights, convert them once")
        elif self.target in ("float16", "bfloat16") and not self.trained:
            how.insert(0, f"convert what stays the same from step to step once, with .to(torch.{self.target})")
        advice = "; ".join(how)
        return (
            f"{plural(self.calls, 'cast')} {self.per} "
            f"{'takes' if self.calls == 1 else 'take'} {cost_text(self.time, self.host)}{longest}. "
            f"{advice[0].upper()}{advice[1:]}."
        )


class ChannelsLast(NamedTuple):
    """Conversions between NCHW and NHWC around convolutions."""

    time: float
    calls: float
    """Calls of the convolutions."""
    per: str

    @property
    def action(self) -> str:
        return "Use channels_last for the model and its input"

    @property
    def reason(self) -> str:
        return (
            f"{plural(self.calls, 'convolution')} {self.per} {'converts' if self.calls == 1 else 'convert'} between "
            f"NCHW and NHWC for {short_time_text(self.time)}; .to(memory_format=torch.channels_last) changes both."
        )


class Reordered(NamedTuple):
    """Copies that change nothing but the order of elements in memory."""

    calls: float
    per: str
    time: float
    host: float
    """NaN in a CPU program."""
    caller: str
    """The op that copies, of the longest: "aten::contiguous"."""

    @property
    def action(self) -> str:
        return "Keep one memory layout"

    @property
    def reason(self) -> str:
        copies = plural(self.calls, "copy", "copies")
        verbs = ("reorders", "takes") if self.calls == 1 else ("reorder", "take")
        return (
            f"{copies} {self.per} only {verbs[0]} elements (the longest in {self.caller} of a "
            f"permuted tensor) and {verbs[1]} {cost_text(self.time, self.host)}. Where the program makes the copy, "
            "produce its input in the layout that the next op reads."
        )


class Chains(NamedTuple):
    """Memory-bound ops over equally many elements, one after another."""

    names: Sequence[str]
    """Ops of one chain, in its order."""
    several: bool
    """There are other chains."""
    time: float
    """Time of the traffic between the ops of all chains."""
    compiled: bool
    """torch.compile compiles other parts of the program."""

    @property
    def action(self) -> str:
        if self.compiled:
            return "Fuse the memory-bound ops that torch.compile did not compile"
        return "Fuse chains of memory-bound ops with torch.compile"

    @property
    def reason(self) -> str:
        return (
            f"the ops {listed(self.names)} run one after another over equally many elements"
            f"{', as do other ops' if self.several else ''}. What one writes only for the next, up to "
            f"{short_time_text(self.time)} of traffic{' in all' if self.several else ''}, need not reach memory."
            f"{'' if self.compiled else ' A kernel of your own serves as well.'}"
        )


class Traffic(NamedTuple):
    """Bytes beyond those of the model, by the GPU's counters."""

    op: str
    ratio: float
    reads: float
    """Bytes read over those of its inputs; NaN: unknown, or not more."""

    @property
    def action(self) -> str:
        return f"Move fewer bytes in {cut(self.op, OP_WIDTH)}"

    @property
    def reason(self) -> str:
        why = f" (it reads {self.reads:.1f} × its input)" if self.reads > 1 else ""
        return (
            f"the GPU's counters saw {self.op} move {self.ratio:.1f} × the bytes that it must{why}. "
            "Strided access fetches whole sectors for a part of them: make the last dimension contiguous. A kernel "
            "that needs its input twice reads it again if a row exceeds the multiprocessor's memory: a fused kernel "
            "(torch.compile) or shorter rows read it once."
        )


class PaddedTiles(NamedTuple):
    """Products that keep tensor cores busier than their FLOPs explain."""

    calls: float
    per: str
    ratio: float

    @property
    def action(self) -> str:
        return "Choose sizes that fill the tiles of the tensor cores"

    @property
    def reason(self) -> str:
        return (
            f"{plural(self.calls, 'product')} {self.per} "
            f"occupied them for {self.ratio:.1f} × what the FLOPs need. Tiles are 64 to 256 rows and columns: pad or "
            "batch small dimensions."
        )


class StarvedTensorCores(NamedTuple):
    """Products in which tensor cores idle."""

    time: float
    per: str
    active: float
    """Percent of the cycles, of the longest."""

    @property
    def action(self) -> str:
        return "Keep the tensor cores busy"

    @property
    def reason(self) -> str:
        return (
            f"in products of {short_time_text(self.time)} {self.per} they work in "
            f"{percent_text(self.active)} of the cycles (the longest). Products of few tiles, short inner dimensions "
            "and unfused epilogues starve them: batch the calls, or let torch.compile(mode='max-autotune') choose the "
            "kernel."
        )

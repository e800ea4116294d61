"""Sentences about bytes: casts, copies, chains of ops, and what counters counted."""

from __future__ import annotations

from collections.abc import Sequence

from flopscope.answers.sentences.words import OP_WIDTH, Said, cost_text, form, listed, shown_as_sentence
from flopscope.support.columns import cut_end
from flopscope.support.units import plural, short_time_text


def elements(calls: float, size: int, per: str, time: float, reads: bool) -> Said:
    """A loop over the elements of a vector. reads: It only reads them, as numbers of Python."""
    took = f"{plural(calls, 'element')} {per}, of a tensor of {size:,}, {form(calls, 'is', 'are')} taken one by one"
    cost = f"{took}, which takes {short_time_text(time)} with the calls on each"
    if reads:
        return Said("Read the elements of a tensor by one tolist()", f"{cost}. One call reads them all.")
    return Said(
        "Replace a loop over elements by ops on the tensor",
        f"{cost}. Where no element needs the result of an earlier one, one call on the whole takes their place; else "
        "loop over numbers of Python, from tolist().",
    )


def growth(calls: float, per: str, time: float, taken: bool, shape: Sequence[int], again: float) -> Said:
    """A tensor that grows by aten::cat. taken: other ops take it meanwhile. shape: the largest. again: how often the
    elements that are new are copied again."""
    cost = (
        f"{plural(calls, 'call')} of aten::cat {per} {form(calls, 'copies', 'copy')} a tensor of the shape that an "
        f"earlier call made, up to {'x'.join(map(str, shape))}, to extend it: in {short_time_text(time)}, {again:,.0f} "
        "elements for each new one, and more with each call."
    )
    if taken:
        how = "Allocate it once, as large as it gets, and write what is new into a slice: for attention a static cache."
        return Said("Write into slices instead of growing a tensor by torch.cat", f"{cost} {how}")
    how = "No other recorded op takes it as a whole meanwhile: append the pieces to a list, and concatenate them once."
    return Said("Concatenate once instead of growing a tensor by torch.cat", f"{cost} {how}")


def float64(op: str, calls: float, per: str, time: float) -> Said:
    """Float64 that enters by an op. time: of memory-bound ops that take float64 alone."""
    return Said(
        "Keep float64 out of the float32 tensors",
        f"{plural(calls, 'call')} {per} of {op} or the like {form(calls, 'takes', 'take')} a tensor of each, so the "
        f"result is float64, and memory-bound ops on float64 take {short_time_text(time)}, twice the bytes of float32. "
        "Convert the float64 operand once, as by .float(), if its precision is not needed.",
    )


def casts(
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


def channels_last(time: float, conversions: float, per: str, rocm: bool) -> Said:
    """Conversions between NCHW and NHWC around convolutions; conversions: kernels that do it."""
    given = "; MIOpen gets NHWC with the environment variable PYTORCH_MIOPEN_SUGGEST_NHWC=1" if rocm else ""
    return Said(
        "Use channels_last for the model and its input",
        f"{plural(conversions, 'conversion')} {per} between NCHW and NHWC in convolutions "
        f"{form(conversions, 'takes', 'take')} {short_time_text(time)}; .to(memory_format=torch.channels_last) changes "
        f"both{given}.",
    )


def reordered(calls: float, per: str, time: float, host: float, caller: str) -> Said:
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


def chains(names: Sequence[str], several: bool, time: float, compiled: bool) -> Said:
    """Memory-bound ops over equally many elements, one after another.

    names: ops of one chain, in its order. several: there are other chains. time: time of the traffic between the ops of
    all chains. compiled: torch.compile compiles other parts of the program.
    """
    others, in_all = (", as do other ops", " in all") if several else ("", "")
    action, own = "Fuse chains of memory-bound ops with torch.compile", " A kernel of your own serves as well."
    if compiled:
        action, own = "Fuse the memory-bound ops that torch.compile did not compile", ""
    return Said(
        action,
        f"the ops {listed(names)} run one after another over equally many elements{others}. What one writes only "
        f"for the next, up to {short_time_text(time)} of traffic{in_all}, need not reach memory.{own}",
    )


def traffic(op: str, ratio: float, reads: float, jax: bool) -> Said:
    """Bytes beyond those of the model, by the GPU's counters.

    reads: bytes read over those of its inputs; NaN: unknown, or not more.
    """
    why = f" (it reads {reads:.1f} × its input)" if reads > 1 else ""
    fused = "one kernel for both (Pallas)" if jax else "a fused kernel (torch.compile)"
    return Said(
        f"Move fewer bytes in {cut_end(op, OP_WIDTH)}",
        f"the GPU's counters saw {op} move {ratio:.1f} × the bytes that it must{why}. Strided access fetches "
        "whole sectors for a part of them: make the last dimension contiguous. A kernel that needs its input twice "
        f"reads it again if a row exceeds the multiprocessor's memory: {fused} or shorter rows read it once.",
    )

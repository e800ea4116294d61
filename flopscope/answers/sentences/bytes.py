"""Sentences about bytes: casts, copies, chains of ops, and what counters counted."""

from __future__ import annotations

from flopscope.answers import facts
from flopscope.answers.sentences.words import OP_WIDTH, Said, cost_text, form, listed, shown_as_sentence
from flopscope.support.columns import cut_end
from flopscope.support.units import plural, short_time_text


def casts(of: facts.Casts) -> Said:
    longest = f" ({of.source} to {of.target} the longest)" if of.target else ""
    once = ""
    if of.autocast and not of.trained:
        once = "where autocast casts weights, convert them once; "
    elif of.target in ("float16", "bfloat16") and not of.trained:
        once = f"convert what stays the same from step to step once, with .to(torch.{of.target}); "
    return Said(
        "Keep tensors in the dtype in which they are used",
        f"{plural(of.calls, 'cast')} {of.per} {form(of.calls, 'takes', 'take')} "
        f"{cost_text(of.time, of.host)}{longest}. "
        f"{shown_as_sentence(f'{once}where an op needs the wider dtype')}, a fused op or torch.compile casts while it "
        "computes.",
    )


def channels_last(of: facts.ChannelsLast) -> Said:
    return Said(
        "Use channels_last for the model and its input",
        f"{plural(of.calls, 'convolution')} {of.per} {form(of.calls, 'converts', 'convert')} between NCHW and NHWC for "
        f"{short_time_text(of.time)}; .to(memory_format=torch.channels_last) changes both.",
    )


def reordered(of: facts.Reordered) -> Said:
    return Said(
        "Keep one memory layout",
        f"{plural(of.calls, 'copy', 'copies')} {of.per} only {form(of.calls, 'reorders', 'reorder')} elements (the "
        f"longest in {of.caller} of a permuted tensor) and {form(of.calls, 'takes', 'take')} "
        f"{cost_text(of.time, of.host)}. Where the "
        "program makes the copy, produce its input in the layout that the next op reads.",
    )


def chains(of: facts.Chains) -> Said:
    others, in_all = (", as do other ops", " in all") if of.several else ("", "")
    action, own = "Fuse chains of memory-bound ops with torch.compile", " A kernel of your own serves as well."
    if of.compiled:
        action, own = "Fuse the memory-bound ops that torch.compile did not compile", ""
    return Said(
        action,
        f"the ops {listed(of.names)} run one after another over equally many elements{others}. What one writes only "
        f"for the next, up to {short_time_text(of.time)} of traffic{in_all}, need not reach memory.{own}",
    )


def traffic(of: facts.Traffic) -> Said:
    why = f" (it reads {of.reads:.1f} × its input)" if of.reads > 1 else ""
    fused = "one kernel for both (Pallas)" if of.jax else "a fused kernel (torch.compile)"
    return Said(
        f"Move fewer bytes in {cut_end(of.op, OP_WIDTH)}",
        f"the GPU's counters saw {of.op} move {of.ratio:.1f} × the bytes that it must{why}. Strided access fetches "
        "whole sectors for a part of them: make the last dimension contiguous. A kernel that needs its input twice "
        f"reads it again if a row exceeds the multiprocessor's memory: {fused} or shorter rows read it once.",
    )

"""Rules about programs of JAX: what their HLO shows of copies, callbacks and products.

The HLO's remarks are arguments of its instructions (csrc/work/hlo/remarks.h).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from flopscope.answers.analysis import Analysis
from flopscope.answers.compute_rules import TF32_KERNEL, USUAL_SHARE, savings
from flopscope.answers.findings import Finding, arguments, calls_of, claim_all, finding_about, ran_as
from flopscope.answers.launch_rules import KEPT
from flopscope.answers.pieces import Op
from flopscope.answers.recording import LATE
from flopscope.answers.words import Said, form, listed
from flopscope.support.columns import cut_end
from flopscope.support.units import plural, short_time_text

NUMBER = re.compile(r"\.\d+$")
LONGEST_LIST, LONGEST_NAME = 3, 40
"""Names that a sentence lists, and characters of one."""
WIDE = {"bf16": ("bfloat16", "bf16_tensor"), "f16": ("float16", "fp16_tensor")}
"""The types of 16 bits in the remarks: their names, and the unit of their products."""


class Remark(NamedTuple):
    """What the HLO says of an instruction, and which one it is of."""

    text: str
    op: Op


def remarks(analysis: Analysis, kind: str) -> list[Remark]:
    """Return the remarks of a kind, longest ops first."""
    return [one for one in analysis.once(_remarks).get(kind, []) if one.op.part != "copy" or kind == "callback"]


def _remarks(analysis: Analysis) -> dict[str, list[Remark]]:
    found: dict[str, list[Remark]] = {}
    for op in analysis.ops if analysis.uses_jax else ():
        given = arguments(analysis, op)[-1:]  # a remark is the last one
        kind, _, text = given[0].text.partition("=") if given and given[0].shape is None else ("", "", "")
        if kind and op.row >= 0:
            found.setdefault(kind, []).append(Remark(text, op))
    return found


def donate(analysis: Analysis) -> Iterator[Finding]:
    """A jitted function copies an argument, as its memory may not be overwritten.

    Premises: the HLO copies a parameter of the entry in its own layout, the parameter is neither donated nor read by
    anything else, and a result that no donation serves has its shape. The estimate is 95 % of the copies' time. Source:
    JAX, "Buffer donation".
    """
    if found := remarks(analysis, "argument"):
        every = list(dict.fromkeys(one.text for one in found))
        names, count, ops, time = every[:LONGEST_LIST], len(every), *_cost(found)
        others = f" and {plural(count - len(names), 'more argument')}" if count > len(names) else ""
        shown = listed([cut_end(name, LONGEST_NAME) for name in names]) + others
        says = Said(
            "Donate arguments that the function replaces",
            f"XLA copies {shown} before it changes {form(count, 'it', 'them')}, for {short_time_text(time)} "
            f"{analysis.per}. Nothing else reads what is copied, and a result has the same shape: with jax.jit(…, "
            "donate_argnums=…) the result takes that memory. The caller must not use the argument afterwards.",
            {"names": names, "arguments": count, "time": time, "per": analysis.per},
        )
        yield finding_about(analysis, says, claim_all(ops, KEPT), ops, ops)


def carry(analysis: Analysis) -> Iterator[Finding]:
    """The body of a loop copies an array of its carry in each iteration.

    Premises: the HLO copies a part of the parameter of a while loop's body, which is an array, in its own layout, and
    the bytes take most of the copy's time: without copies as short as a launch, a loop need not be faster. XLA copies
    where the body reads the old value apart from the update that replaces it, or moves it to another place of the
    carry. The estimate is 95 % of the copies' time.

    Facts: shape: of the longest, "64x256".
    """
    if found := [one for one in remarks(analysis, "carry") if one.op.memory > one.op.time / 2]:
        shape, per, ops, time = found[0].text, analysis.per, *_cost(found)  # the longest is of that shape: "64x256"
        calls = calls_of(ops)
        says = Said(
            "Change the carry of the loop in place",
            f"its body copies arrays of the carry {plural(calls, 'time')} {per}, {short_time_text(time)} in all (the "
            f"longest of shape {shape}). XLA copies an array that is read apart from the update that replaces it, or "
            "that moves to another place of the carry: read what the step needs from the updated array, or carry only "
            "the rows that are read.",
            {"calls": calls, "shape": shape, "time": time, "per": per},
        )
        yield finding_about(analysis, says, claim_all(ops, KEPT), ops, ops)


def _cost(found: list[Remark]) -> tuple[list[Op], float]:
    return [one.op for one in found], sum(one.op.time for one in found)


def callback(analysis: Analysis) -> Iterator[Finding]:
    """A jitted function calls Python on the host, for which the device waits.

    Premises: the HLO has a custom call of a Python callback, and a copy of that call ends the idle time. The estimate
    is the time of its copies and 95 % of the idle time.

    Facts: time: of the copies. idle: of the device, until they end.
    """
    if not (found := remarks(analysis, "callback")):
        return
    per, ops, time = analysis.per, *_cost(found)
    gaps = [gap for gap in analysis.gaps_of(*LATE) if analysis.op_around(gap.event) in {op.key for op in ops}]
    names = list(dict.fromkeys(NUMBER.sub("", op.key.rpartition("/")[2]) for op in ops))[:LONGEST_LIST]
    calls, idle = calls_of(ops), sum(gap.time for gap in gaps)
    idling = f" while the device idles {short_time_text(idle)} {per}" if idle > 0 else ""
    says = Said(
        "Take callbacks out of the jitted function",
        f"{listed(names)} {form(len(names), 'calls', 'call')} Python on the host {plural(calls, 'time')} "
        f"{per}{idling}; {form(calls, 'its', 'their')} copies take {short_time_text(time)}. Compute it with jax.numpy, "
        "return the value and use it after the step, or call it every few steps.",
        {"names": names, "calls": calls, "time": time, "idle": idle, "per": per},
    )
    yield finding_about(analysis, says, [*claim_all(ops), *claim_all(gaps, KEPT)], ops, ops)


def precision(analysis: Analysis) -> Iterator[Finding]:
    """Products of float32 factors that are slower than their values need.

    Premises, of those that were asked to be precise: the HLO has a precision above the default, no kernel ran in TF32
    by its name, and the FLOPs take longer than the bytes. Of those of widened factors: the HLO converts both factors
    from bfloat16 or float16 to float32 for the product. The estimate is the time of the same product in TF32, or in the
    narrow type with float32 sums, at 70 % of the peak. Source: JAX, jax.lax.dot_general, `precision` and
    `preferred_element_type`.
    """
    cuda, per = analysis.accelerator == "cuda", analysis.per
    precise = [one for one in remarks(analysis, "precision") if cuda and not ran_as(one.op, TF32_KERNEL)]
    precise = [one for one in precise if one.op.unit == "fp32" and one.op.compute > one.op.memory]
    if claims := savings(analysis, [(one.op, "tf32_tensor", 1.0, USUAL_SHARE) for one in precise]):
        calls, time = calls_of(op for op, _ in claims), sum(op.time for op, _ in claims)
        asked = precise[0].text  # "high" or "highest", of the longest
        says = Said(
            "Let products use the tensor cores",
            f"{plural(calls, 'product')} {per} of float32 {form(calls, 'runs', 'run')} on CUDA cores for "
            f"{short_time_text(time)}, because {asked} precision was asked for. The default computes them in TF32, "
            "with 10 bits of the mantissa: leave out precision= and jax_default_matmul_precision where the result does "
            "not need more.",
            {"precision": asked, "calls": calls, "time": time, "per": per},
        )
        yield finding_about(analysis, says, claims, [op for op, _ in claims])
    widened = [one for one in remarks(analysis, "widened") if one.text in WIDE]
    widened = [one for one in widened if one.op.unit in ("fp32", "tf32_tensor")]
    if claims := savings(analysis, [(one.op, WIDE[one.text][1], 0.5, USUAL_SHARE) for one in widened]):
        calls, time = calls_of(op for op, _ in claims), sum(op.time for op, _ in claims)
        source = WIDE[widened[0].text][0]  # of the longest
        says = Said(
            "Multiply narrow factors as they are",
            f"{plural(calls, 'product')} {per} {form(calls, 'converts', 'convert')} {source} factors to float32 first "
            f"and {form(calls, 'takes', 'take')} {short_time_text(time)}. Pass them as {source} with "
            "preferred_element_type=jnp.float32: sums and result are float32 all the same.",
            {"source": source, "calls": calls, "time": time, "per": per},
        )
        yield finding_about(analysis, says, claims, [op for op, _ in claims])


RULES = (callback, donate, carry, precision)

"""Sentences about programs of JAX."""

from __future__ import annotations

from flopscope.answers import facts
from flopscope.answers.sentences.words import Said, form, listed
from flopscope.support.columns import cut_end
from flopscope.support.units import plural, short_time_text

LONGEST_NAME = 40


def _arguments(of: facts.Undonated | facts.Transposed) -> str:
    more = of.arguments - len(of.names)
    others = f" and {plural(more, 'more argument')}" if more > 0 else ""
    return listed([cut_end(name, LONGEST_NAME) for name in of.names]) + others


def undonated(of: facts.Undonated) -> Said:
    return Said(
        "Donate arguments that the function replaces",
        f"XLA copies {_arguments(of)} before it changes {form(of.arguments, 'it', 'them')}, for "
        f"{short_time_text(of.time)} {of.per}. Nothing else reads what is copied, and a result has the same shape: "
        "with jax.jit(…, donate_argnums=…) the result takes that memory. The caller must not use the argument "
        "afterwards.",
    )


def transposed(of: facts.Transposed) -> Said:
    order = ", ".join(map(str, of.axes))
    axes = f" (of {cut_end(of.names[0], LONGEST_NAME)}: {order})" if of.axes else ""
    return Said(
        "Store arguments in the order of axes in which they are read",
        f"XLA transposes {_arguments(of)} in the jitted function, for {short_time_text(of.time)} {of.per}, "
        f"without being asked to: what reads {form(of.arguments, 'it', 'them')} needs another order of axes{axes}. "
        "Store the array in that order, and pass the dimension numbers of its convolution or product to match.",
    )


def copied_carry(of: facts.CopiedCarry) -> Said:
    return Said(
        "Change the carry of the loop in place",
        f"its body copies arrays of the carry {plural(of.calls, 'time')} {of.per}, {short_time_text(of.time)} in all "
        f"(the longest of shape {of.shape}). XLA copies an array that is read apart from the update that replaces it, "
        "or that moves to another place of the carry: read what the step needs from the updated array, or carry only "
        "the rows that are read.",
    )


def callbacks(of: facts.Callbacks) -> Said:
    idle = f" while the device idles {short_time_text(of.idle)} {of.per}" if of.idle > 0 else ""
    return Said(
        "Take callbacks out of the jitted function",
        f"{listed(of.names)} {form(len(of.names), 'calls', 'call')} Python on the host {plural(of.calls, 'time')} "
        f"{of.per}{idle}; {form(of.calls, 'its', 'their')} copies take {short_time_text(of.time)}. Compute it with "
        "jax.numpy, return the value and use it after the step, or call it every few steps.",
    )


def precise(of: facts.Precise) -> Said:
    return Said(
        "Let products use the tensor cores",
        f"{plural(of.calls, 'product')} {of.per} of float32 {form(of.calls, 'runs', 'run')} on CUDA cores for "
        f"{short_time_text(of.time)}, because {of.precision} precision was asked for. The default computes them in "
        "TF32, with 10 bits of the mantissa: leave out precision= and jax_default_matmul_precision where the result "
        "does not need more.",
    )


def widened(of: facts.Widened) -> Said:
    return Said(
        "Multiply narrow factors as they are",
        f"{plural(of.calls, 'product')} {of.per} {form(of.calls, 'converts', 'convert')} {of.source} factors to "
        f"float32 first and {form(of.calls, 'takes', 'take')} {short_time_text(of.time)}. Pass them as {of.source} "
        "with preferred_element_type=jnp.float32: sums and result are float32 all the same.",
    )

"""Sentences about programs of JAX."""

from __future__ import annotations

from collections.abc import Sequence

from flopscope.answers.sentences.words import Said, form, listed
from flopscope.support.columns import cut_end
from flopscope.support.units import plural, short_time_text

LONGEST_NAME = 40


def _arguments(names: Sequence[str], arguments: int) -> str:
    more = arguments - len(names)
    others = f" and {plural(more, 'more argument')}" if more > 0 else ""
    return listed([cut_end(name, LONGEST_NAME) for name in names]) + others


def undonated(names: tuple[str, ...], arguments: int, time: float, per: str) -> Said:
    """Copies of arguments of jitted functions that are not donated.

    names: the first of the arguments.
    """
    return Said(
        "Donate arguments that the function replaces",
        f"XLA copies {_arguments(names, arguments)} before it changes {form(arguments, 'it', 'them')}, for "
        f"{short_time_text(time)} {per}. Nothing else reads what is copied, and a result has the same shape: "
        "with jax.jit(…, donate_argnums=…) the result takes that memory. The caller must not use the argument "
        "afterwards.",
    )


def copied_carry(calls: float, shape: str, time: float, per: str) -> Said:
    """Copies of arrays of a loop's carry.

    shape: of the longest: "64x256".
    """
    return Said(
        "Change the carry of the loop in place",
        f"its body copies arrays of the carry {plural(calls, 'time')} {per}, {short_time_text(time)} in all "
        f"(the longest of shape {shape}). XLA copies an array that is read apart from the update that replaces it, "
        "or that moves to another place of the carry: read what the step needs from the updated array, or carry only "
        "the rows that are read.",
    )


def callbacks(names: tuple[str, ...], calls: float, time: float, idle: float, per: str) -> Said:
    """Calls of Python on the host in jitted functions.

    time: of their copies.
    """
    idling = f" while the device idles {short_time_text(idle)} {per}" if idle > 0 else ""
    return Said(
        "Take callbacks out of the jitted function",
        f"{listed(names)} {form(len(names), 'calls', 'call')} Python on the host {plural(calls, 'time')} "
        f"{per}{idling}; {form(calls, 'its', 'their')} copies take {short_time_text(time)}. Compute it with "
        "jax.numpy, return the value and use it after the step, or call it every few steps.",
    )


def precise(precision: str, calls: float, time: float, per: str) -> Said:
    """Products on CUDA cores, as a precision above the default was asked for.

    precision: "high" or "highest", of the longest.
    """
    return Said(
        "Let products use the tensor cores",
        f"{plural(calls, 'product')} {per} of float32 {form(calls, 'runs', 'run')} on CUDA cores for "
        f"{short_time_text(time)}, because {precision} precision was asked for. The default computes them in "
        "TF32, with 10 bits of the mantissa: leave out precision= and jax_default_matmul_precision where the result "
        "does not need more.",
    )


def widened(source: str, calls: float, time: float, per: str) -> Said:
    """Products whose factors are converted to float32 from a type of 16 bits.

    source: "bfloat16" or "float16", of the longest.
    """
    return Said(
        "Multiply narrow factors as they are",
        f"{plural(calls, 'product')} {per} {form(calls, 'converts', 'convert')} {source} factors to "
        f"float32 first and {form(calls, 'takes', 'take')} {short_time_text(time)}. Pass them as {source} "
        "with preferred_element_type=jnp.float32: sums and result are float32 all the same.",
    )

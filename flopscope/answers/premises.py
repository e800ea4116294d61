"""What premises of rules are checked with: the recorded arguments of calls, and the names around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flopscope.answers.analysis import Analysis
from flopscope.answers.pieces import Op

COMPILED = re.compile(r"Torch-Compiled Region|CompiledFunction|CompiledFxGraph|torch/_inductor|^triton_")
"""Names around the ops and kernels of code that torch.compile made."""


class Argument(NamedTuple):
    """An argument of a call as it was recorded."""

    dtype: str | None
    shape: Sequence[int] | None
    """None: not a tensor."""
    strides: Sequence[int] | None
    """In elements; None: not recorded."""
    text: str
    """Text of a number, a bool or a list of them; "" if it was not recorded."""


def arguments(analysis: Analysis, op: Op, name: str | None = None) -> list[Argument]:
    """Return the arguments of the first call of an op, or of the op of that name around it; [] if unknown."""
    found = analysis.core.arguments(op.event, name) if op.event >= 0 else None
    return [Argument(*argument) for argument in found or ()]


def tensors(analysis: Analysis, op: Op, least: int = 1) -> list[Argument]:
    """Return the arguments that are tensors of at least as many dimensions."""
    return [one for one in arguments(analysis, op) if one.shape is not None and len(one.shape) >= least]


def names_at(analysis: Analysis, event: int) -> list[str]:
    """Return the names of an event and of what encloses it, innermost first."""
    return [name for _, name in analysis.enclosing(event)]


def names_around(analysis: Analysis, op: Op) -> list[str]:
    """Return the names of the first call of an op and of what encloses it, innermost first."""
    return names_at(analysis, op.event)


def _copies_of(analysis: Analysis, op: Op) -> Iterator[tuple[int, Argument, Argument]]:
    """Yield the calls of a row of copies with both tensors."""
    shapes = [tuple(shape) for shape in op.shapes[:2]]
    for event, given in analysis.described(op.key):
        pair = [Argument(*one) for one in given[:2]]
        known = len(pair) == 2 and all(one.shape is not None for one in pair)
        if known and [tuple(one.shape or ()) for one in pair] == shapes:
            yield event, pair[0], pair[1]


def casts_of(analysis: Analysis, op: Op) -> list[int]:
    """Return the calls of a row of copies whose dtypes differ."""
    return [event for event, to, given in _copies_of(analysis, op) if to.dtype != given.dtype]


def reorders_of(analysis: Analysis, op: Op) -> list[int]:
    """Return the calls of a row of copies with one dtype and two sets of strides."""
    return [
        event
        for event, to, given in _copies_of(analysis, op)
        if to.dtype == given.dtype and given.strides is not None and to.strides != given.strides
    ]


def is_trained(analysis: Analysis) -> bool:
    """Return whether a backward pass ran."""
    return any(key.startswith(("autograd::engine", "torch::autograd::")) for key in analysis.columns["key"])


def is_compiled(analysis: Analysis, op: Op) -> bool:
    """Return whether an op ran in code that torch.compile made."""
    return any(COMPILED.search(name) for name in (op.key, *names_around(analysis, op)))


def ran_as(op: Op, pattern: re.Pattern[str]) -> bool:
    """Return whether a kernel of an op has a name that matches."""
    return any(pattern.search(kernel.name) for kernel in op.kernels)


def is_gpu(analysis: Analysis) -> bool:
    """Return whether the work ran on GPUs that have grids, tensor cores and streams as those of CUDA do."""
    return analysis.accelerator in ("cuda", "hip")


def groups_of(op: Op) -> int | None:
    """Return the groups of a convolution: its input channels over those of its weight; None if unknown.

    A transposed convolution that halves the channels looks like one of two groups.
    """
    spatial = [shape for shape in op.shapes if len(shape) >= 3]
    backward = "backward" in op.key
    if len(spatial) < 2 + backward:
        return None
    given, weight = spatial[backward : 2 + backward]
    return given[1] // weight[1] if weight[1] > 0 and given[1] % weight[1] == 0 else None

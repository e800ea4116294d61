"""What rules are written with: findings, claims on time, evidence, the place in the program, and premises."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from flopscope.answers.analysis import SCOPE, Analysis
from flopscope.answers.pieces import Gap, Op
from flopscope.answers.words import Said

MODULE = "nn.Module: "
FRAMEWORK = re.compile(r"(?:^|/)(?:site-packages|dist-packages|torch|lib/python[\d.]+)/|^<|^torch/")
Claims = Sequence[tuple[Op | Gap, float]]


class Finding(NamedTuple):
    """What a rule found: the change, the time that the change would gain of each op or idle time, and the evidence."""

    says: Said
    """The sentence, with the facts that it is made from."""
    claims: Claims
    """(op or idle time, µs per step)."""
    evidence: list[dict[str, Any]]
    where: str | None
    removed: Sequence[Op] = ()
    """Ops that the program would no longer call, which frees the host as well."""
    adds: Sequence[tuple[Op, float]] = ()
    """Launches a step that the program would make in addition, with those of an op."""
    ends_waits: bool = False
    """Whether the host no longer waits where idle times are claimed, and all that follows is earlier."""
    sets_pace: bool = False
    """Whether nothing else gains anything while this lasts: the host waits for what others work at."""
    needs: str = ""
    """A rule whose changes must come first, or this one is impossible."""


def finding_about(
    analysis: Analysis, says: Said, claims: Claims, ops: Sequence[Op], removed: Sequence[Op] = ()
) -> Finding:
    """Return the finding about ops, in the place of the first of them."""
    return Finding(says, claims, evidence(ops), where(analysis, ops[0].event), removed)


def evidence(ops: Iterable[Op]) -> list[dict[str, Any]]:
    """Return the evidence of ops, the longest first."""
    ordered = sorted(ops, key=lambda op: -op.time)
    return [entry(op.key, op.time, op.calls, op.shapes, op.dtypes, op.row, op.event) for op in ordered[:10]]


def calls_of(ops: Iterable[Op]) -> float:
    """Return the calls per step of the rows of ops, each row once."""
    return sum({(op.row, op.key): op.calls or op.count for op in ops}.values())


def gap_evidence(analysis: Analysis, parts: Iterable[tuple[Op | Gap, float]]) -> list[dict[str, Any]]:
    """Return the evidence of parts of idle times: the op that launched the next work, with all of its calls."""
    times: dict[str, float] = {}
    for gap, time in parts:
        name = analysis.op_around(gap.event) or "(end of the step)"
        times[name] = times.get(name, 0.0) + time
    ordered = sorted(times, key=lambda name: -times[name])
    return [entry(name, times[name], analysis.row_sum(name, "count") or None) for name in ordered[:10]]


def host_times(analysis: Analysis, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the evidence of ops, ranges or API calls: their time on the host, the longest first."""
    rows = [entry(name, analysis.row_sum(name, "cpu_time_total"), analysis.row_sum(name, "count")) for name in names]
    return sorted((row for row in rows if row["time"] > 0), key=lambda row: -row["time"])


def entry(
    name: str,
    time: float,
    calls: float | None,
    shapes: Sequence[Sequence[int]] = (),
    dtypes: Sequence[str] = (),
    row: int = -1,
    event: int = -1,
) -> dict[str, Any]:
    """Return one piece of evidence; ``calls`` is None where they are unknown.

    row: in the table grouped by shape; event: one of the op; -1 for what is no single row.
    """
    place = {"row": row, "event": event}
    return {"op": name, "shapes": [*map(list, shapes)], "dtypes": [*dtypes], "time": time, "calls": calls, **place}


def claim_all(sources: Iterable[Op | Gap], share: float = 1.0) -> list[tuple[Op | Gap, float]]:
    """Claim a share of the whole time of ops or idle times."""
    return [(one, share * one.time) for one in sources]


def claim_late(analysis: Analysis, ops: Sequence[Op], share: float) -> list[tuple[Op | Gap, float]]:
    """Claim a share of the idle time until the host had launched ops.

    It may be longer for other reasons, and counts up to what the ops take on the host.
    """
    rows = {op.row for op in ops if op.row >= 0}
    late = [gap for gap in analysis.gaps_of("host") if gap.row in rows]
    idle = sum(gap.time for gap in late)
    return claim_all(late, share * min(1.0, analysis.host_of(ops) / idle) if idle > 0 else 0.0)


def where(analysis: Analysis, event: int) -> str | None:
    """Return the innermost line of the program or module around an event, or None if neither was recorded."""
    module = None
    for kind, name in analysis.enclosing(event):
        prefix = next((one for one in (MODULE, SCOPE) if name.startswith(one)), "")
        if kind == "frame" and not prefix and not FRAMEWORK.search(name):
            return name
        if module is None and prefix:
            module = name.removeprefix(prefix)
    return module


TORCH = ("aten::", "flopscope::")
"""Namespaces of the ops that switches of torch reach: products of other libraries have their own."""


def _is_of(category: str, op: Op) -> bool:
    """Return whether an op of torch is of a category, forward or backward; the fill of its workspace is not."""
    return op.category == category and op.part != "copy" and op.key.startswith(TORCH)


is_product = partial(_is_of, "matrix product")
is_convolution = partial(_is_of, "convolution")
is_attention = partial(_is_of, "attention")
WITH_ADDEND = ("aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::_addmm_activation", "flopscope::addmm")


def product_sizes(op: Op) -> tuple[int, int, int, int] | None:
    """Return (batch, M, N, K) of a matrix product, or None if its shapes are unknown."""
    matrices = [shape for shape in op.shapes if len(shape) >= 2]
    if op.key in WITH_ADDEND and len(matrices) > 2:
        matrices = matrices[1:]
    if len(matrices) < 2:
        return None
    a, b = matrices[0], matrices[1]
    if op.key == "aten::linear":
        return 1, math.prod(a[:-1]), b[0], a[-1]
    if a[-1] != b[-2]:
        return None
    return math.prod(a[:-2]), a[-2], b[-1], a[-1]


def most_elements(op: Op) -> int:
    """Return the number of elements of the largest argument of an op."""
    return max((math.prod(shape) for shape in op.shapes if shape), default=0)


# Premises: the recorded arguments of calls, and the names around them -------------------------------------------------

COMPILED = re.compile(r"Torch-Compiled Region|CompiledFunction|CompiledFxGraph|torch/_inductor|^triton_")
"""Names around the ops and kernels of code that torch.compile made."""
OF_CPP = re.compile(r"^(graph_\d+_)?cpp_")
"""Names of the ranges of its code for a CPU."""


class Argument(NamedTuple):
    """An argument of a call as it was recorded."""

    dtype: str | None
    shape: Sequence[int] | None
    """None: not a tensor."""
    strides: Sequence[int] | None
    """In elements; None: not recorded."""
    text: str
    """Text of a number, a bool, a list of them, or a list of the shapes of tensors; "" if it was not recorded."""


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


def _copies_of(analysis: Analysis, op: Op) -> Iterator[tuple[int, Argument, Argument]]:
    """Yield the calls of a row of copies with both tensors: the first of those that are alike, also in what is around
    them."""
    shapes = tuple(tuple(shape) for shape in op.shapes[:2])
    for event, given, _ in analysis.described(op.key, shapes, around=True) if len(shapes) == 2 else ():
        yield event, Argument(*given[0]), Argument(*given[1])


def casts_of(analysis: Analysis, op: Op) -> list[int]:
    """Return the calls of a row of copies whose dtypes differ, each the first of those that are alike."""
    return [event for event, to, given in _copies_of(analysis, op) if to.dtype != given.dtype]


def reorders_of(analysis: Analysis, op: Op) -> list[int]:
    """Return the calls of a row of copies with one dtype and two sets of strides, each the first of those alike."""
    alike = ((event, to, given) for event, to, given in _copies_of(analysis, op) if to.dtype == given.dtype)
    return [event for event, to, given in alike if given.strides is not None and to.strides != given.strides]


def is_trained(analysis: Analysis) -> bool:
    return any(key.startswith(("autograd::engine", "torch::autograd::")) for key in analysis.columns["key"])


def is_compiled(analysis: Analysis, op: Op) -> bool:
    """Return whether an op ran in code that torch.compile made."""
    return any(COMPILED.search(name) for name in (op.key, *names_at(analysis, op.event)))


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

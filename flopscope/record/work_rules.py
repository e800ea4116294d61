"""User-defined work rules: the FLOPs and bytes of torch ops that flopscope has no rule, or another rule, for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from flopscope import _core
from flopscope.support.package import warn_user
from flopscope.support.safe import error_text, printable, shown

NUMBERS = ("flops", "bytes_read", "bytes_written")
UNIT = "unit"


@dataclass(frozen=True)
class WorkCall:
    """One call of an op as recorded in a trace. Each of the four lists has one entry per argument of the op's schema.

    For a list of tensors, the entry of the first three is a list with one element per tensor. Traces omit the contents
    of lists of more than 30 tensors, and the dtypes of all lists.
    """

    name: str
    """Name of the op with its namespace: "aten::mm"."""
    shapes: list[Any]
    """A tuple of ints for a tensor; None for other arguments."""
    dtypes: list[Any]
    """For a tensor "float32", "bfloat16", …, or "" if unknown; None for other arguments."""
    strides: list[Any]
    """A tuple of ints, in elements, for a tensor, or None if the trace has none; None for other arguments."""
    values: list[Any]
    """The value of a number, bool, string or list of these; None for a tensor and for an omitted argument."""
    grid: tuple[int, int, int] | None = None
    """Blocks of the launch, in a call of a rule for a kernel; None for an op, or if the launch was not recorded."""
    block: tuple[int, int, int] | None = None
    """Threads of a block, likewise."""


WorkRule: TypeAlias = Callable[[WorkCall], Mapping[str, Any] | Sequence[float | None] | None]

Notes: TypeAlias = dict[str, dict[str, Sequence[Any]]]

_rules: dict[str, WorkRule] = {}
_warned: set[str] = set()
_notes: Notes = {}


def registered() -> list[str]:
    """Return the names that have a registered rule."""
    return [*_rules]


def register_work(name: str, fn: WorkRule | None) -> None:
    """Register ``fn`` as the rule that computes the FLOPs and bytes of an op in all later tables.

    name: the op's name with its namespace, as in traces and tables ("mylib::fused_mlp", "aten::mm"). The rule replaces
        a built-in one. Or the name of a kernel, such as a Triton kernel: its work then belongs to the op that launched
        it, if no rule counts that op, or else to the row of the kernel. The WorkCall has the arguments of that op, and
        the grid and block of the launch.
    fn: called once for each distinct WorkCall (shapes, dtypes, strides, values) of a table. It returns
        {"flops": …, "bytes_read": …, "bytes_written": …} or a sequence of these three, for one call, counted as
        described in docs/counting.md. None, NaN and missing keys mean unknown. The dict may name the compute
        unit that does the FLOPs, {…, "unit": "bf16_tensor"}; without it, the roofline is known only if the bytes bound
        it on every unit. If fn is None, the rule of that name is removed.

    A package ships rules for its ops by naming a function without arguments, which calls register_work(), as an entry
    point of the group "flopscope.work":

        [project.entry-points."flopscope.work"]
        mylib = "mylib.work_rules:register"

    It is called before a table first counts an op of another library than torch.

    Rules apply to the ops of torch, in traces too, but not to flopscope's own ops, whose work is known. If ``fn``
    raises an exception or returns an invalid result, a warning is issued once and the work of the call is unknown.

    Raise TypeError or ValueError for an invalid name, TypeError if fn is neither callable nor None.

        fs.register_work("mylib::scale", lambda call: (math.prod(call.shapes[0]), …, …))
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be the name of an op such as 'mylib::fused_mlp', not {name!r}")
    if not name:
        raise ValueError("name is empty: it must be the name of an op such as 'mylib::fused_mlp'")
    if fn is not None and not callable(fn):
        raise TypeError(f"fn must be a function of one WorkCall, or None, not {fn!r}")
    _warned.discard(name)
    if fn is None:
        _rules.pop(name, None)
    else:
        _rules[name] = fn
    _core._set_work_rule(_work_of if _rules else None)


def noted(make: Callable[[], object]) -> Notes:
    """Return what the rules of this process say of the calls of a table, which ``make`` computes: by name and call."""
    _notes.clear()
    make()
    return _notes


def restate(notes: Notes) -> None:
    """Register rules that say what those of another process said."""
    for name, known in notes.items():
        register_work(name, partial(_restated, known))


def _restated(known: Mapping[str, Sequence[Any]], call: WorkCall) -> Mapping[str, Any]:
    *numbers, unit = known.get(repr(call), (None, None, None, ""))
    return {**dict(zip(NUMBERS, numbers, strict=True)), UNIT: unit or None}


def _item(text: str) -> Any:
    """Parse a value of a trace: a bool, a number, or the text itself."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _value(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return [_item(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    return _item(text) if text else None


Launch: TypeAlias = tuple[tuple[int, int, int], tuple[int, int, int]]


def _part(argument: Any, place: int) -> Any:
    """Return the dtype (0), the shape (1) or the strides (2) of an argument, or a list of those of its tensors."""
    if isinstance(argument, list):
        return [tensor[place] for tensor in argument]
    return argument[place] if isinstance(argument, tuple) else None


def amount(label: str, value: Any) -> float:
    """Return a number of FLOPs or bytes; NaN, as None, is unknown. Raise TypeError or ValueError for what is none."""
    if value is None:
        return math.nan
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        raise TypeError(f"{label} must be a number, not {shown(value)}") from None
    if number < 0 or math.isinf(number):
        raise ValueError(f"{label} must be finite and at least 0, not {shown(value)}")
    if number > _core.most_work:
        raise ValueError(f"{label} must be at most {_core.most_work:g}, not {shown(value)}")
    return number


def _checked(result: Any) -> tuple[float, float, float, str]:
    """Convert the result of a rule to FLOPs, bytes read, bytes written and unit ("": none)."""
    unit = ""
    if result is None:
        return math.nan, math.nan, math.nan, unit
    if isinstance(result, Mapping):
        if unknown := sorted(printable(str(key)) for key in set(result) - {*NUMBERS, UNIT}):
            raise ValueError(f"it returned the unknown keys {', '.join(unknown)}; use {', '.join((*NUMBERS, UNIT))}")
        unit = unit_named(result.get(UNIT))
        result = [result.get(label) for label in NUMBERS]
    if not isinstance(result, Sequence) or isinstance(result, str) or len(result) != len(NUMBERS):
        raise TypeError(f"it returned {shown(result)}, not {', '.join(NUMBERS)}")
    flops, read, written = (amount(label, value) for label, value in zip(NUMBERS, result, strict=True))
    return flops, read, written, unit


def unit_named(name: Any) -> str:
    """Return the name of a compute unit; "" for None. Raise ValueError if there is no such unit."""
    if name is None:
        return ""
    known = _core.compute_units
    if name not in known:
        raise ValueError(f"unit must be one of {', '.join(known)}, not {shown(name)}")
    return str(name)


def _work_of(
    name: str, arguments: list[Any] | None, launch: Launch | None = None
) -> tuple[float, float, float, str] | bool | None:
    """Return the work of a distinct call, as called by the core; None if there is no rule for the name.

    Without arguments, return whether there is a rule.
    """
    fn = _rules.get(name)
    if arguments is None:
        return fn is not None
    if fn is None:
        return None
    try:
        dtypes, shapes, strides = ([_part(argument, place) for argument in arguments] for place in range(3))
        values = [_value(argument) if isinstance(argument, str) else None for argument in arguments]
        call = WorkCall(name, shapes, dtypes, strides, values, *(launch or ()))
        work = _checked(fn(call))
        _notes.setdefault(name, {})[repr(call)] = work
        return work
    except Exception as error:
        if name not in _warned:
            _warned.add(name)
            warn_user(f"the work rule of {printable(name)} failed, so its work is unknown: {error_text(error)}")
        return math.nan, math.nan, math.nan, ""

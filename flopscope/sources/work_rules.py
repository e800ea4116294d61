"""Rules from Python: what an op of torch's does that flopscope has no rule for, or another one than you want."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from flopscope import _core

__all__ = ["WorkCall", "register_work"]

Shape: TypeAlias = tuple[int, ...]

NUMBERS = ("flops", "bytes_read", "bytes_written")
UNIT = "unit"


@dataclass(frozen=True)
class WorkCall:
    """One call of an op, as a trace tells it: an entry per argument of the op's schema in each of the four lists.

    Of a list of tensors the first three have a list of entries. Traces leave out what is in a list of more than 30
    tensors, and the dtypes of any list.
    """

    name: str
    """The op's, with its namespace: "aten::mm"."""
    shapes: list[Any]
    """Of a tensor a tuple of ints; None of what is no tensor."""
    dtypes: list[Any]
    """Of a tensor "float32", "bfloat16", …, "" where it is not known; None of what is no tensor."""
    strides: list[Any]
    """Of a tensor a tuple of ints, in elements, or None where the trace has none; None of what is no tensor."""
    values: list[Any]
    """Of a number, a bool, a string, a list of those: itself; None of a tensor and of what is not given."""


WorkRule: TypeAlias = Callable[[WorkCall], Mapping[str, Any] | Sequence[float | None] | None]

_rules: dict[str, WorkRule] = {}
_warned: set[str] = set()


def register_work(name: str, fn: WorkRule | None) -> None:
    """Say what an op does: tables made from now on ask ``fn`` for the FLOPs and bytes of its calls.

    name: the op's, as traces and tables have it, namespace included ("mylib::fused_mlp", "aten::mm",
        "my_triton_kernel"). A rule of flopscope's own gives way.
    fn: called once for each distinct WorkCall (shapes, dtypes, strides, values) of a table. It returns
        {"flops": …, "bytes_read": …, "bytes_written": …} or those three in that order: of one call, counted as README
        says ("What is counted"); None, NaN and what is left out are unknown. The dict may name the compute unit that
        does the FLOPs, {…, "unit": "bf16_tensor"}; without it, the roofline is known only where the bytes bound it on
        any unit. None takes the rule of that name away.

    Asked of what torch ran, in traces too; flopscope's own ops know what they do. What ``fn`` raises, and what is no
    such number, is warned of once, and the work of the call is unknown then.

    Raises TypeError and ValueError where name is no name or fn no function.

        fs.register_work("mylib::scale", lambda call: (math.prod(call.shapes[0]), …, …))
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be the name of an op, like 'mylib::fused_mlp', not {name!r}")
    if not name:
        raise ValueError("name is empty: it must be the name of an op, like 'mylib::fused_mlp'")
    if fn is not None and not callable(fn):
        raise TypeError(f"fn must be a function of one call, or None, not {fn!r}")
    _warned.discard(name)
    if fn is None:
        _rules.pop(name, None)
    else:
        _rules[name] = fn
    _core._set_work_rule(_answer if _rules else None)


def _item(text: str) -> Any:
    """What a text of a trace means: a bool, a number, or the text itself."""
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _value(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return [_item(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    return _item(text) if text else None


def _call_of(name: str, arguments: list[Any]) -> WorkCall:
    parts: list[list[Any]] = [[], [], []]  # dtypes, shapes, strides
    for argument in arguments:
        for place, part in enumerate(parts):
            if isinstance(argument, tuple):
                part.append(argument[place])
            else:
                part.append([tensor[place] for tensor in argument] if isinstance(argument, list) else None)
    values = [_value(argument) if isinstance(argument, str) else None for argument in arguments]
    return WorkCall(name, shapes=parts[1], dtypes=parts[0], strides=parts[2], values=values)


def _number(label: str, given: Any) -> float:
    if given is None:
        return math.nan
    try:
        number = float(given)
    except (TypeError, ValueError):
        raise TypeError(f"{label} is {given!r}, not a number") from None
    if number < 0 or math.isinf(number):
        raise ValueError(f"{label} is {given!r}: it must be 0 or more, and finite")
    return number


def _checked(given: Any) -> tuple[float, float, float, str]:
    """What a rule returned, as FLOPs, bytes read, bytes written and unit ("": none)."""
    unit = ""
    if given is None:
        return math.nan, math.nan, math.nan, unit
    if isinstance(given, Mapping):
        if unknown := sorted(str(key) for key in set(given) - {*NUMBERS, UNIT}):
            raise ValueError(f"it returned {', '.join(unknown)}: the keys are {', '.join((*NUMBERS, UNIT))}")
        unit = _unit(given.get(UNIT))
        given = [given.get(label) for label in NUMBERS]
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(NUMBERS):
        raise TypeError(f"it returned {given!r}, not {', '.join(NUMBERS)}")
    flops, read, written = (_number(label, value) for label, value in zip(NUMBERS, given, strict=True))
    return flops, read, written, unit


def _unit(given: Any) -> str:
    if given is None:
        return ""
    known = _core.compute_units
    if given not in known:
        raise ValueError(f"unit is {given!r}: it must be one of {', '.join(known)}")
    return str(given)


def _answer(name: str, arguments: list[Any]) -> tuple[float, float, float, str] | None:
    """What the core asks of each distinct call: the numbers, or None where no rule has the name."""
    fn = _rules.get(name)
    if fn is None:
        return None
    try:
        return _checked(fn(_call_of(name, arguments)))
    except Exception as error:
        if name not in _warned:
            _warned.add(name)
            text = f"the work rule of {name} failed, so its work is unknown: {type(error).__name__}: {error}"
            warnings.warn(text, stacklevel=2)
        return math.nan, math.nan, math.nan, ""

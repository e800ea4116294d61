"""What an op is called with, to be timed: random tensors of given shapes, and a value for each argument beside them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flopscope import _core

__all__ = ["call_of_op", "required_arguments", "tensor_arguments"]

# What ops take beside tensors, by the name of the argument: a value for all ops.
VALUES: dict[str, Any] = {"value": 1.0, "dtype": None}
RANGES = {"uniform_": (0.0, 1.0), "normal_": (0.0, 1.0)}  # ops whose a and b are numbers

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def required_arguments(call: Callable[..., Any]) -> list[str]:
    """The names of the positional arguments that it must be given. ValueError where it does not tell."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in kinds]


def tensor_arguments(op: str) -> list[str]:
    """The names of the tensors that an op must be given; [] for one that makes a tensor of a shape."""
    required = required_arguments(getattr(_core, op))
    if required[:1] == ["shape"]:
        return []
    return [name for name in required if not (name in VALUES or (op in RANGES and name in "ab"))]


def call_of_op(op: str, shapes: Sequence[tuple[int, ...]], dtype: str, device: str | None) -> Call:
    """An op and its arguments: tensors of these shapes, or of the one shape that is given.

    device: where the tensors are; None: on the default device. ValueError where the number of shapes is not that of
    the op's tensors; what making the tensors raises passes.
    """
    function, tensors = getattr(_core, op), tensor_arguments(op)
    required = required_arguments(function)
    if not tensors:  # it makes a tensor
        where = {"dtype": dtype, "device": device}
        return _named(lambda *rest: function(shapes[0], *rest, **where), op), _values(required[1:])
    given = list(shapes) * len(tensors) if len(shapes) == 1 else list(shapes)
    if len(given) != len(tensors):
        raise ValueError(f"{op} takes {len(tensors)} tensors ({', '.join(tensors)}), not {len(given)}")
    operands = [operand(shape, dtype, device) for shape in given]
    rest = RANGES.get(op) or _values(name for name in required if name in VALUES)
    other = "float32" if dtype == "bfloat16" else "bfloat16"  # what cast() makes of it
    return function, (*operands, *(other if value is None else value for value in rest))


def operand(shape: tuple[int, ...], dtype: str, device: str | None) -> _core.Tensor:
    """Random numbers; ones of a dtype that has none."""
    make = _core.rand if dtype in _core.float_dtypes else _core.ones
    return make(shape, dtype=dtype, device=device)


def _values(names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(VALUES[name] for name in names)


def _named(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    call.__name__ = name
    return call

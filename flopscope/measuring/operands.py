"""Arguments for timing an op: random tensors of given shapes, and values for its other arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flopscope import _core
from flopscope.support.units import plural

# Values of arguments other than tensors, by the name of the argument, for all ops.
VALUES: dict[str, Any] = {"value": 1.0, "dtype": None}
RANGES = {"uniform_": (0.0, 1.0), "normal_": (0.0, 1.0)}  # ops whose arguments a and b are numbers

Call = tuple[Callable[..., Any], tuple[Any, ...]]


def required_arguments(call: Callable[..., Any]) -> list[str]:
    """Return the names of the required positional arguments. Raise ValueError if the callable has no signature."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind in kinds]


def tensor_arguments(op: str) -> list[str]:
    """Return the names of an op's required tensors; [] for an op that creates a tensor of a shape."""
    required = required_arguments(getattr(_core, op))
    if required[:1] == ["shape"]:
        return []
    return [name for name in required if not (name in VALUES or (op in RANGES and name in "ab"))]


def call_of_op(op: str, shapes: Sequence[tuple[int, ...]], dtype: str, device: str | None) -> Call:
    """Return an op and its arguments: tensors of these shapes, or all of the same shape if there is only one.

    device: the device of the tensors; None: the default device. Raises ValueError if the number of shapes differs from
    the number of tensors that the op takes; exceptions from creating the tensors propagate.
    """
    function, tensors = getattr(_core, op), tensor_arguments(op)
    required = required_arguments(function)
    if not tensors:  # the op creates a tensor
        create = partial(function, shapes[0], dtype=dtype, device=device)
        return create, tuple(VALUES[name] for name in required[1:])
    rest = RANGES.get(op) or [VALUES[name] for name in required if name in VALUES]
    other = "float32" if dtype == "bfloat16" else "bfloat16"  # the dtype that cast() converts to
    return function, (
        *operands(op, tensors, shapes, dtype, device),
        *(other if value is None else value for value in rest),
    )


def operands(
    name: str, arguments: Sequence[str], shapes: Sequence[tuple[int, ...]], dtype: str, device: str | None
) -> tuple[_core.Tensor, ...]:
    """Return a tensor for each argument of a function: of its shape, or all of the same shape if there is only one.

    The tensors are of random numbers, or of ones for a dtype without random numbers. Raises ValueError, with the name
    of the function, if the number of shapes differs from that of the arguments.
    """
    each = list(shapes) * len(arguments) if len(shapes) == 1 else shapes
    if len(each) != len(arguments):
        raise ValueError(f"{name} takes {plural(len(arguments), 'tensor')} ({', '.join(arguments)}), not {len(each)}")
    make = _core.rand if dtype in _core.float_dtypes else _core.ones
    return tuple(make(shape, dtype=dtype, device=device) for shape in each)

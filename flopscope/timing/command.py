"""The command ``flopscope measure``: an op by name and shapes, or a function of a module."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["add_measure"]

DTYPES = ("float64", "float32", "float16", "bfloat16")
# What ops take beside tensors, by the name of the argument: a value for all ops.
VALUES: dict[str, Any] = {"value": 1.0, "dtype": None}
RANGES = {"uniform_": (0.0, 1.0), "normal_": (0.0, 1.0)}  # ops whose a and b are numbers


def shape(text: str) -> tuple[int, ...]:
    """ "8192,8192"."""
    try:
        lengths = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        lengths = (-1,)
    if min(lengths) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; shapes are as 8192,8192")
    return lengths


def add_measure(commands: Any) -> None:
    """Add ``measure`` to the commands of the parser."""
    parser = commands.add_parser("measure", allow_abbrev=False, help="time one op, or a function, properly")
    parser.add_argument("what", metavar="OP|MODULE:FUNCTION", help="flopscope's op, or a function without arguments")
    parser.add_argument("shapes", nargs="*", type=shape, metavar="SHAPE", help="of each operand; one: of all")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of the operands (default: %(default)s)")
    parser.add_argument("--device", help='"cpu", "cuda" or "cuda:N" (default: the first GPU, or the CPU without one)')
    parser.add_argument("--cache", choices=("cold", "hot"), help="empty the caches or not (default: cold on CUDA)")
    parser.add_argument("--max-time", type=float, default=1.0, help="seconds of sampling (default: %(default)s)")
    parser.add_argument("--flops", type=float, help="FLOPs of a call, where they are not known")
    parser.add_argument("--bytes", type=float, help="bytes that a call moves, where they are not known")
    parser.add_argument("--unit", help="with --flops: what does them, as bf16_tensor")
    parser.add_argument("--peaks", choices=("measured", "datasheet", "none"), default="measured")
    parser.add_argument("--json", metavar="FILE", help="write the measurement with its samples")
    parser.set_defaults(run=_measure)


def _measure(options: argparse.Namespace) -> None:
    from ..commands import write_json
    from .measure import measure

    if ":" in options.what:
        if options.shapes:
            raise ValueError(f"{options.what} takes no shapes: the function is called without arguments")
        call, args = _function(options.what), ()
    else:
        call, args = _op(options)
    given = {name: getattr(options, name) for name in ("flops", "bytes", "unit", "cache", "max_time", "peaks")}
    found = measure(call, *args, device=options.device, **given)
    print(found)
    if options.json:
        write_json(options.json, found.to_dict(samples=True))


def _function(text: str) -> Callable[[], Any]:
    module, _, path = text.partition(":")
    sys.path.insert(0, os.getcwd())
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ValueError(f"{module} has no {path}")
        found = getattr(found, name)
    if not callable(found):
        raise ValueError(f"{text} is no function, but {found!r}")
    try:
        inspect.signature(found).bind()
    except TypeError as problem:
        raise ValueError(f"{text} is called without arguments: {problem}") from None
    except ValueError:  # a builtin that does not tell what it takes
        pass
    called: Callable[[], Any] = found
    return called


def _op(options: argparse.Namespace) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The op and its arguments: random tensors of the shapes."""
    from .. import _core

    if options.what not in _core.ops:
        raise ValueError(f"{options.what!r} is neither an op nor a module:function; ops are {', '.join(_core.ops)}")
    if not options.shapes:
        raise ValueError(f"{options.what} of which shape? As in: flopscope measure {options.what} 4096,4096")
    op = getattr(_core, options.what)
    required = [p.name for p in inspect.signature(op).parameters.values() if p.default is p.empty]
    if required[:1] == ["shape"]:  # it makes a tensor
        options.device, dtype, where = None, options.dtype, options.device
        return _named(lambda *rest: op(options.shapes[0], *rest, dtype=dtype, device=where), op), _values(required[1:])
    tensors = [name for name in required if not (name in VALUES or (options.what in RANGES and name in "ab"))]
    shapes = options.shapes * len(tensors) if len(options.shapes) == 1 else options.shapes
    if len(shapes) != len(tensors):
        raise ValueError(f"{options.what} takes {len(tensors)} tensors ({', '.join(tensors)}), not {len(shapes)}")
    operands = [_core.rand(one, dtype=options.dtype, device=options.device) for one in shapes]
    rest = RANGES.get(options.what) or _values(name for name in required if name in VALUES)
    other = "float32" if options.dtype == "bfloat16" else "bfloat16"  # what cast() makes of it
    return op, (*operands, *(other if value is None else value for value in rest))


def _values(names: Any) -> tuple[Any, ...]:
    return tuple(VALUES[name] for name in names)


def _named(call: Callable[..., Any], op: Any) -> Callable[..., Any]:
    call.__name__ = op.__name__
    return call

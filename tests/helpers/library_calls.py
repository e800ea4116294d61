"""Calls of ops of other libraries, with the sizes of their arguments."""

from __future__ import annotations

import math
from typing import Any

import flopscope as fs
from flopscope import _core
from helpers.hand_traces import BF16, FLOAT, Program

INT, LONG, FP8, BYTE, FP4 = "int", "long int", "c10::Float8_e4m3fn", "unsigned char", "c10::Float4_e2m1fn_x2"
SIZES = {BF16: 2, FLOAT: 4, INT: 4, LONG: 8, FP8: 1, BYTE: 1, "signed char": 1}
Tensor = tuple[str, tuple[int, ...]]


def work(name: str, *arguments: Any) -> dict[str, Any]:
    """Return the work of a call: tensors are (dtype, shape), numbers texts, None omitted."""
    dims = [list(a[1]) if isinstance(a, tuple) else [] for a in arguments]
    types = [a[0] if isinstance(a, tuple) else "" if a is None else "Scalar" for a in arguments]
    concrete = [a if isinstance(a, str) else "" for a in arguments]
    result: dict[str, Any] = _core._work_of_torch(name, dims, types, [[] for _ in dims], concrete)
    return result


def B(*shape: int) -> Tensor:
    return BF16, shape


def size(*tensors: Tensor) -> int:
    return sum(SIZES[dtype] * math.prod(shape) for dtype, shape in tensors)


def numbers(found: dict[str, Any]) -> tuple[float, float, float]:
    return found["flops"], found["bytes_read"], found["bytes_written"]


STEP = "execute_8_context_1(sq5sk9sqsq25sqsk45)_generation_3(sq3sk33sqsq3sqsk33)"


H = "c10::Half"


def F(*shape: int) -> Tensor:
    return FLOAT, shape


def I(*shape: int) -> Tensor:  # noqa: E743
    return LONG, shape


def lists(name: str, *arguments: Any) -> dict[str, Any]:
    """Return the work of a call in which a list is a list of tensors."""
    dims = [
        [list(t[1]) for t in a] if isinstance(a, list) else list(a[1]) if isinstance(a, tuple) else []
        for a in arguments
    ]
    types = [
        "TensorList" if isinstance(a, list) else a[0] if isinstance(a, tuple) else "" if a is None else "Scalar"
        for a in arguments
    ]
    concrete = [a if isinstance(a, str) else "" for a in arguments]
    result: dict[str, Any] = _core._work_of_torch(name, dims, types, [[] for _ in dims], concrete)
    return result


def gradient(
    forward: str, shapes: list[list[int]], types: list[str], concrete: list[str] | None = None, node: int = 7
) -> Any:
    """Return the row of the gradient of an autograd Function, whose own record has only the incoming gradient."""
    program = Program()
    args = {"Input_Dims": shapes, "Input_type": types, "Concrete_Inputs": ["" for _ in shapes]}
    for place, text in enumerate(concrete or []):
        args["Concrete_Inputs"][place] = text
    program.add("cpu_op", forward, 0, 10, **args, Sequence_number=node, Fwd_thread_id=0)
    program.call("cudaLaunchKernel", 2, 1, correlation=1)
    program.work("k1", 5, 10, correlation=1)
    program.add("cpu_op", f"{forward}Backward", 50, 10, tid=2, Sequence_number=node, Fwd_thread_id=1,
                Input_Dims=[shapes[0]], Input_type=types[:1])  # fmt: skip
    program.call("cudaLaunchKernel", 52, 1, tid=2, correlation=2)
    program.work("k2", 60, 10, correlation=2)
    return next(r for r in fs.load_trace(program.text()).key_averages() if r.key == f"{forward}Backward")


ONE = F(1)


def Q(*shape: int) -> Tensor:
    return FP8, shape


def U(*shape: int) -> Tensor:
    return BYTE, shape


def N4(*shape: int) -> Tensor:
    return INT, shape

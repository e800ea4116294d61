"""Calls of ops without a program, and rows of the work that they have.

A row is ``(name, arguments, FLOPs, results…)``. Arguments are tensors, numbers, lists of either, texts as a trace has
them, and None where nothing is recorded. The bytes of a row follow from what is written there: a tensor ``x`` among the
arguments is read; ``+x`` is written, ``~x`` is changed in place, ``-x`` is not touched; of ``x[7, 2]`` that much is.
What the op returns follows the FLOPs. ``{"read": …, "written": …}`` has the tensors or bytes where that does not do.
NaN is unknown, ``...`` is not looked at, and all numbers of an UNKNOWN row are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import flopscope as fs
from flopscope import _core
from helpers.hand_traces import BF16, DOUBLE, FLOAT, HALF, INT8, Program

INT, LONG, BYTE, BOOL, COMPLEX = "int", "long int", "unsigned char", "bool", "c10::complex<float>"
FP8, E8M0 = "c10::Float8_e4m3fn", "c10::Float8_e8m0fnu"
SIZES = {BF16: 2, HALF: 2, FLOAT: 4, DOUBLE: 8, INT8: 1, "short": 2, INT: 4, LONG: 8, BYTE: 1, BOOL: 1, COMPLEX: 8}
SIZES |= {FP8: 1, E8M0: 1}
NAN = math.nan
UNKNOWN = (NAN, NAN, NAN)
STEP = "execute_8_context_1(sq5sk9sqsq25sqsk45)_generation_3(sq3sk33sqsq3sqsk33)"
"""vLLM's annotation of a step: a sequence of 5 new tokens of 9, and three of 1, with 45 and 33 pairs."""


@dataclass(frozen=True)
class Tensor:
    """A tensor, and what the op does with it. Strides are those of C order, if they are not given."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    reads: bool = True
    writes: bool = False
    part: tuple[int, ...] | None = None

    def __pos__(self) -> Tensor:
        return replace(self, reads=False, writes=True)

    def __invert__(self) -> Tensor:
        return replace(self, writes=True)

    def __neg__(self) -> Tensor:
        return replace(self, reads=False)

    def __getitem__(self, part: Any) -> Tensor:
        return replace(self, part=part if isinstance(part, tuple) else (part,))

    @property
    def bytes(self) -> int:
        return SIZES[self.dtype] * math.prod(self.shape if self.part is None else self.part)


def _of(dtype: str) -> Any:
    return lambda *shape: Tensor(dtype, shape)


F, D, H, B, C = _of(FLOAT), _of(DOUBLE), _of(HALF), _of(BF16), _of(COMPLEX)
Q, U, S, N4, I, P = _of(FP8), _of(BYTE), _of(INT8), _of(INT), _of(LONG), _of(BOOL)  # noqa: E741
ONE = F(1)


def _strides(tensor: Tensor) -> list[int]:
    return list(tensor.strides or [math.prod(tensor.shape[i + 1 :]) for i in range(len(tensor.shape))])


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, Tensor) for each in value)


def encoded(arguments: Iterable[Any]) -> tuple[list[Any], list[str], list[Any], list[str]]:
    """Return shapes, types, strides and texts of arguments as Kineto writes them."""
    rows = []
    for value in arguments:
        if isinstance(value, Tensor):
            rows.append((list(value.shape), value.dtype, _strides(value), ""))
        elif _is_list(value):
            rows.append(([list(each.shape) for each in value], "TensorList", [_strides(each) for each in value], ""))
        else:
            text = "" if value is None else str(value)
            rows.append(([], "" if value is None else "ScalarList" if text[:1] == "[" else "Scalar", [], text))
    dims, types, strides, texts = ([row[i] for row in rows] for i in range(4))
    return dims, types, strides, texts


def work(name: str, *arguments: Any) -> dict[str, Any]:
    """Return the work of a call."""
    result: dict[str, Any] = _core._work_of_torch(name, *encoded(arguments))
    return result


def gradient(forward: str, *arguments: Any) -> Any:
    """Return the row of the gradient of an autograd Function, whose own record has only the incoming gradient."""
    dims, types, _, texts = encoded(arguments)
    program = Program()
    program.add("cpu_op", forward, 0, 10, Input_Dims=dims, Input_type=types, Concrete_Inputs=texts, Sequence_number=7,
                Fwd_thread_id=0)  # fmt: skip
    program.call("cudaLaunchKernel", 2, 1, correlation=1)
    program.work("k1", 5, 10, correlation=1)
    program.add("cpu_op", f"{forward}Backward", 50, 10, tid=2, Sequence_number=7, Fwd_thread_id=1,
                Input_Dims=dims[:1], Input_type=types[:1])  # fmt: skip
    program.call("cudaLaunchKernel", 52, 1, tid=2, correlation=2)
    program.work("k2", 60, 10, correlation=2)
    return next(r for r in fs.load_trace(program.text()).key_averages() if r.key == f"{forward}Backward")


def rows_of(program: Program, **options: Any) -> dict[str, fs.EventRow]:
    """Return the rows of the ops of a trace."""
    return {row.key: row for row in program.load().key_averages(**options) if row.device_type == "cpu"}


def numbers(row: fs.EventRow) -> tuple[float, float, float]:
    return row.flops, row.bytes_read, row.bytes_written


def is_unknown(row: fs.EventRow) -> bool:
    return math.isnan(row.flops) and math.isnan(row.bytes_total_moved)


class Case(NamedTuple):
    """A call, and what its work must be."""

    name: str
    arguments: list[Any]
    wanted: dict[str, Any]
    source: str


AT_MOST = {"at_most": True}
UNSAID = {"read": ..., "written": ...}


def rows(*entries: Any) -> list[Case]:
    """Return the cases of rows. A text says where the numbers of the rows after it are from; a dict, what else is known
    of their work. A row is of one op or of several, and may end with what is known of it alone."""
    found, source, known = [], "", {}
    for entry in entries:
        if isinstance(entry, str):
            source, known = entry, {}
        elif isinstance(entry, dict):
            known = entry
        else:
            name, arguments, flops, *rest = entry
            own = {key: value for each in rest if isinstance(each, dict) for key, value in each.items()}
            results = [each for each in rest if not isinstance(each, dict)]
            wanted = _wanted(arguments, flops, results, {"at_most": False, **known, **own})
            found += [Case(one, arguments, wanted, source) for one in name.split()]
    return found


def _wanted(arguments: list[Any], flops: Any, results: list[Tensor], known: dict[str, Any]) -> dict[str, Any]:
    if flops is UNKNOWN:
        return {"flops": NAN, "bytes_read": NAN, "bytes_written": NAN, **known}
    tensors = [each for value in arguments for each in (value if _is_list(value) else [value])]
    given = [each for each in tensors if isinstance(each, Tensor)]
    read = known.pop("read", [each for each in given if each.reads])
    written = known.pop("written", [each for each in given if each.writes] + results)
    return {"flops": flops, "bytes_read": _bytes(read), "bytes_written": _bytes(written), **known}


def _bytes(moved: Any) -> Any:
    return sum(each.bytes for each in moved) if isinstance(moved, list) else moved


def equal(found: Any, wanted: Any) -> bool:
    if wanted is ... or found == wanted:
        return True
    if not isinstance(wanted, float | int) or isinstance(wanted, bool):
        return False
    return (math.isnan(found) and math.isnan(wanted)) or math.isclose(found, wanted, rel_tol=1e-12)


def differences(case: Case) -> dict[str, Any]:
    """Return what the work of a call has otherwise than its row: found, wanted."""
    found, wanted = work(case.name, *case.arguments), dict(case.wanted)
    moved = (wanted["bytes_read"], wanted["bytes_written"])
    if ... not in moved and not found["of_launched"]:
        wanted["bytes_moved"] = sum(moved)
    fits = found["expected"] is None or (wanted["flops"] is not ... and math.isnan(wanted["flops"]))
    return {key: (found[key], value) for key, value in wanted.items() if not equal(found[key], value)} | (
        {} if fits else {"arguments": (case.arguments, found["expected"])}
    )

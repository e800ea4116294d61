"""Work and least time without a program: of an op, and of the text of a compiled JAX program."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.record.work_rules import amount, registered, unit_named
from flopscope.support.device import find_device, peaks_of_models
from flopscope.support.model import Model, why_unknown
from flopscope.support.peaks import Peaks
from flopscope.support.safe import printable, shown
from flopscope.support.suggest import did_you_mean

if TYPE_CHECKING:
    import pandas

    Text = str | bytes


@dataclass(frozen=True)
class Work:
    """FLOPs and bytes of one call of an op. NaN: unknown."""

    flops: float
    """FLOPs of the algorithm, as docs/counting.md defines them."""
    bytes_read: float
    """Bytes that must be read."""
    bytes_written: float
    """Bytes that must be written."""
    bytes: float
    """Read and written."""
    unit: str | None
    """Compute unit that does the FLOPs; None if none does or it is unknown."""
    estimated: bool = False
    """Whether the numbers are a bound or an estimate."""
    _why: Callable[[], str | None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def why(self) -> str | None:
        """Why FLOPs and bytes are unknown; None if either is known. It is found when it is asked for."""
        return self._why()

    @property
    def intensity(self) -> float:
        """FLOPs per byte; NaN if unknown."""
        return self.flops / self.bytes if self.bytes > 0 else math.nan


def work(name: str, shapes: Sequence[Any], dtypes: Any = "float32", values: Sequence[Any] = ()) -> Work:
    """Return the FLOPs and bytes of one call of an op, by the rules that tables use, without running it.

    name: the op's name with its namespace, as in tables: "aten::mm", "_C::silu_and_mul", or one with a registered rule.
    shapes: one entry per argument of the op's schema: the shape of a tensor, or a tensor or array itself, whose dtype
        counts then; for a list of tensors, a list of these; a number or a bool for such an argument; None for any
        other. Trailing arguments without a value may be left out.
    dtypes: the dtype of all tensors, or a list of one per argument: "bfloat16", torch.bfloat16, numpy.float32, …; for a
        list of tensors that of all, or a list of one per tensor.
    values: one per argument: a number, a bool, a string or a list of these; None for a tensor and for no value.

    Work that does not follow from these arguments is NaN, and ``why`` gives the reason. Raise ValueError for an unknown
    dtype and a size that is below 0 or no 64-bit integer, TypeError for a shape that is not a sequence of integers.

        fs.work("aten::mm", [(4096, 4096), (4096, 1024)], "bfloat16")
        fs.work("aten::convolution", [(8, 3, 224, 224), (64, 3, 7, 7)], "float16",
                [None, None, None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1])
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name must be the name of an op such as 'aten::mm', not {shown(name)}")
    if isinstance(shapes, (str, bytes)) or not isinstance(shapes, Sequence):
        raise TypeError(f"shapes must be a list with an entry for each argument, not {shown(shapes)}")
    per_argument = isinstance(dtypes, (list, tuple))
    count = max(len(shapes), len(values), len(dtypes) if per_argument else 0)
    entries = [*shapes, *[None] * (count - len(shapes))]
    kinds = [*dtypes, *[None] * (count - len(dtypes))] if per_argument else [dtypes] * count
    given = [*values, *[None] * (count - len(values))]
    arguments = [_argument(*each) for each in zip(entries, kinds, given, strict=True)]
    dims, types, concrete = (list(column) for column in zip(*arguments, strict=True)) if arguments else ([], [], [])
    found = _core._work_of_torch(name, dims, types, [[] for _ in dims], concrete, True)
    if found["of_launched"]:  # only its kernels would show it
        found |= dict.fromkeys(("flops", "bytes_read", "bytes_written", "bytes_moved"), math.nan)
    flops, read, written, moved = (found[key] for key in ("flops", "bytes_read", "bytes_written", "bytes_moved"))
    return Work(flops, read, written, moved, found["unit"], found["at_most"], partial(_why, name, found, dims))


def roofline_time(
    of: Work | float, bytes: float = math.nan, *, device: str | None = None, unit: str | None = None
) -> float:
    """Return the least time in µs that a device allows for work: the larger of FLOPs / peak and bytes / bandwidth.

    of: a Work, such as work() returns, or a number of FLOPs, with the ``bytes`` that they move and the compute ``unit``
        that does them, such as "bf16_tensor".
    device: "cuda" or "cpu" for one of this machine, with its measured peaks if it has any; or the name of any device as
        its driver reports it: "NVIDIA H200". By default the device of new tensors.

    NaN if the FLOPs, the bytes or a peak that decides is unknown. Raise ValueError for a device or a unit that is
    unknown, and for FLOPs or bytes that are negative or infinite.

        fs.roofline_time(fs.work("aten::mm", [(4096, 4096), (4096, 4096)], "bfloat16"), device="NVIDIA H200")
    """
    done = of if isinstance(of, Work) else Work(of, math.nan, math.nan, bytes, unit)
    flops, moved = amount("FLOPs", done.flops), amount("bytes", done.bytes)
    roof = _core.roof(flops, moved, unit_named(unit or done.unit) or None, _peaks_of(device).for_core())
    return math.nan if math.isnan(flops + moved) else roof.least_ns / 1e3


def _peaks_of(device: str | None) -> Peaks:
    """Return the peaks of a device of this machine, or of one that the datasheet names."""
    if device is not None and not isinstance(device, str):
        raise TypeError(f"device must be the name of a device, not {shown(device)}")
    if device is None or device == "cpu" or device.startswith("cuda"):
        here = find_device(device)
        if peaks := here.measured or here.datasheet_peaks:
            return peaks
        reason = "its peaks are not measured yet: run flopscope devices --measure"
        raise ValueError(f"{here.name} has no peaks: {reason}")
    model = Model(device)
    if found := peaks_of_models({device: model}, "datasheet").get(device):
        return found
    known = [name for row in _core.datasheet() for name in row["names"]]
    parts = [name for name in known if device.lower() in name.lower()]
    hint = did_you_mean(device, parts or known) if device not in known else ""
    why = why_unknown(model, here=False, measured=False)
    raise ValueError(f"no datasheet row for {device!r}{hint}" if hint else why)


def _why(name: str, found: dict[str, Any], dims: Sequence[Any]) -> str | None:
    """Return why the work of a call is unknown, or None if it is known."""
    if not (math.isnan(found["flops"]) and math.isnan(found["bytes_moved"])):
        return None
    if found["expected"]:
        return f"the arguments do not fit the rule for {name}, which expects: {found['expected']}"
    if unequal := _unequal(name, dims):
        return f"sizes that must be equal are not: {unequal}"
    if found["has_rule"]:
        return f"the rule for {name} gives no work for these arguments: their shapes, or values that are missing"
    if name in registered():
        return f"the rule registered for {printable(name)} gives no work for these arguments"
    full = f"aten::{name}"
    if "::" not in name and _core._work_of_torch(full, [], [])["has_rule"]:
        return f"there is no rule for {printable(name)}; did you mean {full!r}?"
    space, _, _ = name.rpartition("::")
    known = _core._ruled_ops()
    return f"there is no rule for {printable(name)}{did_you_mean(name if space else full, [*known, *registered()])}"


MOST_SIZE = 2**63 - 1
_EQUAL = {
    **dict.fromkeys(("mm", "matmul"), (((0, -1), (1, -2)),)),
    **dict.fromkeys(("mv", "linear"), (((0, -1), (1, -1)),)),
    "bmm": (((0, -1), (1, -2)), ((0, 0), (1, 0))),
    "addmm": (((1, -1), (2, -2)),),
    "baddbmm": (((1, -1), (2, -2)), ((1, 0), (2, 0))),
    "addmv": (((1, -1), (2, -1)),),
}
"""Sizes of products that must be equal, each as the number of an argument and that of a dimension."""


def _unequal(name: str, dims: Sequence[Any]) -> str:
    """Return the sizes of a call of torch that must be equal and are not, with their shapes; "" for none."""
    for pair in _EQUAL.get(name.removeprefix("aten::"), ()):
        shapes = [dims[argument] if argument < len(dims) else [] for argument, _ in pair]
        if not all(shapes) or any(isinstance(size, (list, tuple)) for shape in shapes for size in shape):
            continue
        a, b = (shape[max(at, -len(shape))] for shape, (_, at) in zip(shapes, pair, strict=True))
        if a != b:
            return f"{a} ≠ {b} in {' and '.join(str(tuple(shape)) for shape in shapes)}"
    return ""


def _dtype(dtype: Any) -> str | None:
    if dtype is None:
        return None
    if isinstance(dtype, type) and hasattr(dtype, "dtype"):  # numpy.float32
        return dtype.__name__.rstrip("_")
    name = getattr(dtype, "name", None)
    return name if isinstance(name, str) else str(dtype).removeprefix("torch.")


def _argument(entry: Any, dtype: Any, value: Any) -> tuple[list[Any], Any, str]:
    """Return an argument as a trace has it: its dims, its type, the text of its value."""
    if entry is None:
        kind = "" if value is None else "ScalarList" if isinstance(value, (list, tuple)) else "Scalar"
        return [], kind, _text(value)
    if isinstance(entry, (bool, int, float)):
        return [], "Scalar", _text(entry)
    if not hasattr(entry, "shape") and isinstance(entry, Iterable) and not isinstance(entry, (str, bytes)):
        entry = list(entry)
        inside = [one for one in entry if not isinstance(one, (Number, str))]  # tensors or shapes, but no sizes
        if any(one is None or hasattr(one, "shape") or isinstance(one, Sequence) for one in inside):
            return *_tensors(entry, dtype), ""
    return *_tensor(entry, dtype), ""


def _tensors(entries: list[Any], dtypes: Any) -> tuple[list[Any], list[str]]:
    """Return the dims and the types of a list of tensors; None is no tensor."""
    if not isinstance(dtypes, (list, tuple)):
        dtypes = [dtypes] * len(entries)
    if len(dtypes) != len(entries):
        raise ValueError(f"{len(dtypes)} dtypes for a list of {len(entries)} tensors")
    pairs = [([], "") if e is None else _tensor(e, dtype) for e, dtype in zip(entries, dtypes, strict=True)]
    return [dims for dims, _ in pairs], [kind for _, kind in pairs]


def _tensor(entry: Any, dtype: Any) -> tuple[list[int], str]:
    """Return the dims and the type of a tensor, or of its shape."""
    name = _dtype(getattr(entry, "dtype", dtype))
    dims = _dims(getattr(entry, "shape", entry))
    if name not in _core.dtypes:
        raise ValueError(f"dtype must be one of {', '.join(_core.dtypes)}, not {shown(name)}")
    return dims, _core.dtypes[name].kineto


def _dims(shape: Any) -> list[int]:
    listed = isinstance(shape, Sequence) and not isinstance(shape, (str, bytes))
    if not listed or not all(hasattr(size, "__index__") and not isinstance(size, bool) for size in shape):
        raise TypeError(f"a shape is a sequence of integers, not {shown(shape)}")
    sizes = [operator.index(size) for size in shape]
    if min(sizes, default=0) < 0:
        raise ValueError(f"the shape {shown(shape)} has a negative size")
    if max(sizes, default=0) > MOST_SIZE:
        raise ValueError(f"the shape {shown(shape)} has a size of 2^63 or more, which no tensor has")
    return sizes


def _text(value: Any) -> str:
    if not isinstance(value, (list, tuple)):
        return "" if value is None else str(value)
    if any(isinstance(item, (list, tuple)) for item in value):
        raise TypeError(f"a value is a number, a bool, a string or a list of these, not {shown(value)}")
    return str(list(value))


# Programs of JAX, from the text of their HLO --------------------------------------------------------------------------


def work_of_hlo(text: Text | Iterable[Text] | Mapping[str, Text]) -> pandas.DataFrame:
    """Return the FLOPs and bytes of each instruction that a compiled program of XLA runs, without running it.

    text: optimised HLO, as ``jax.jit(f).lower(x).compile().as_text()`` gives it on any machine; or several modules: a
        list, or a dict of name to text, whose names then stand in the column ``module``.

    One row per instruction of the schedule that runs, in order, those in loops and called computations included:

    - module, name, opcode: of the instruction ("jit_step", "fusion.12", "fusion"). A fusion counts as one, with the
      FLOPs of its body; its bytes are those that it must read and write once.
    - scope: the ``op_name`` of its metadata, "jit(step)/jvp(attention)/dot_general"; None: unknown.
    - source: the file and line of the program, "train.py:12", with the path as HLO has it; None: unknown.
    - calls: how often it runs in one execution of its module: loops multiplied out, each branch of a conditional as if
      taken. NaN: in a loop whose trip count XLA does not know.
    - flops, bytes_read, bytes_written: work of all these calls, by the conventions of the other rules. NaN: unknown.
    - product_flops: the part of flops in matrix products and convolutions, also in products that XLA has rewritten as
      multiplications and sums (named ``dot_general``); 0: none.

    Parameters, constants, tuples and bitcasts do nothing and have no row; an asynchronous instruction has one, where it
    starts. Raise ValueError, with the line, for a text that is no HLO, such as that of a program that was not compiled.
    Raise TypeError for anything but text.

        compiled = jax.jit(step).lower(params, batch).compile()
        work = fs.work_of_hlo(compiled.as_text())
        print(work.groupby("scope")[["flops", "bytes_read"]].sum())
    """
    import pandas

    if isinstance(text, (str, bytes)):
        return pandas.DataFrame(_core._work_of_hlo(text))
    if not isinstance(text, Iterable):
        raise TypeError(f"text must be HLO as text, not {shown(text)}")
    frames = []
    for name, one in text.items() if isinstance(text, Mapping) else enumerate(text):
        own_name = {"module": name} if isinstance(text, Mapping) else {}
        frames.append(pandas.DataFrame({**_columns(one, name), **own_name}))
    return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame(_core._work_of_hlo(_NOTHING))


_NOTHING = "HloModule none ENTRY none { ROOT nothing = () tuple() }"


def _columns(text: object, name: str | int) -> dict[str, Any]:
    """Return the columns of one of several modules, which has a name or a number."""
    if not isinstance(text, (str, bytes)):
        raise TypeError(f"module {name!r} must be HLO as text, not {shown(text)}")
    try:
        return _core._work_of_hlo(text)
    except ValueError as error:
        raise ValueError(f"module {name!r}: {error}") from None

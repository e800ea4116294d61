"""sweep(): one op at many sizes, from launch-bound through the caches to memory-bound or compute-bound."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from flopscope import _core
from flopscope.measuring.arrays import address_of
from flopscope.measuring.measurement import Measurement
from flopscope.measuring.measuring import measure
from flopscope.measuring.stage import name_of
from flopscope.support import upward
from flopscope.support.device import Device, find_device
from flopscope.support.documents import Document, Field, columns, rows
from flopscope.support.peak_timing import free_bytes
from flopscope.support.progress import progress_bar
from flopscope.support.units import plural

if TYPE_CHECKING:
    import pandas

Size = int | tuple[int, ...] | tuple[tuple[int, ...], ...]
Call = tuple[Callable[..., Any], tuple[Any, ...]]

# Ops on rows or matrices, for which the size n means n x n. For all other ops it means n elements.
ON_MATRICES = {*("matmul", "addmm", "transpose_copy"), *("softmax", "log_softmax", "layer_norm", "rms_norm")}
PRODUCTS = ("matmul", "addmm")  # their time grows faster than their memory
LARGEST_PRODUCT = {"cpu": 2048, "cuda": 8192}
MIN_ELEMENTS, GROWTH = 256, 4
CACHES_FILLED = 16  # working set of the largest size as a multiple of the last-level cache
MAX_BYTES = 4 << 30
LONG = 2.0  # seconds from which a progress bar is shown
# Errors for an unsupported dtype or shape, or insufficient memory. They become notes.
_REFUSALS = (TypeError, ValueError, RuntimeError, MemoryError)

_COLUMNS = (
    *columns("op$ dtype$"),
    Field("size", "any", doc="as passed to sweep()"),
    *columns(
        "shape$ elements working_set_bytes median:µs min:µs iqr:µs n# flops bytes_total_moved gbytes_per_s "
        "tflops_per_s arithmetic_intensity:FLOP/byte pct_roofline pct_peak_bandwidth pct_peak_flops roofline_time:µs "
        "headroom:µs unit$ bound$ timing_source$ cache$ device$ ci_low:µs ci_high:µs note$",
        why="not measured, or unknown; the note says why",
    ),
)
"""Of to_pandas(): attributes of a SweepPoint or of its Measurement."""
_DEFAULTS = {"unit": None, "bound": "unknown", "timing_source": "", "cache": "", "device": ""}
"""Values other than NaN in rows without a Measurement."""
_ROWS = rows("rows", _COLUMNS, "a row for each size and dtype")
SWEEP = Document("sweep", "the times of an op at many sizes", (*columns("op$"), _ROWS))


@dataclass(frozen=True)
class SweepPoint:
    """One size and dtype of a sweep."""

    size: Any
    """The size as passed to sweep()."""
    dtype: str
    shape: str
    """Shapes of the operands, as "1024 x 1024"; "" where they are unknown."""
    elements: float
    """Elements of the first operand."""
    working_set_bytes: float
    """Bytes of the operands and the result, with shared memory counted once; NaN where they are unknown."""
    measurement: Measurement | None
    """None if this size could not be measured."""
    note: str = ""
    """The reason why this size could not be measured."""


@dataclass(frozen=True)
class Sweep:
    """The result of sweep(): a sequence of Measurements, ordered by dtype and then by size, and their table."""

    op: str
    """Name of the op."""
    points: tuple[SweepPoint, ...]
    """All sizes and dtypes, including those that could not be measured."""
    device: Device
    """Where the op ran."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Measurements of all points that could be measured."""
        return tuple(point.measurement for point in self.points if point.measurement is not None)

    def __len__(self) -> int:
        return len(self.measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    def __getitem__(self, index: int) -> Measurement:
        return self.measurements[index]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dict per size and dtype, with the columns of to_pandas()."""
        records = []
        for point in self.points:
            m = point.measurement
            measured = {} if m is None else {**vars(m), "ci_low": m.ci[0], "ci_high": m.ci[1]}
            known = {**_DEFAULTS, **measured, **vars(point), "op": self.op}
            records.append({column.name: known.get(column.name, math.nan) for column in _COLUMNS})
        return records

    def to_dict(self) -> dict[str, Any]:
        """Return the points as a document for JSON: see docs/json.md."""
        return SWEEP.of({"op": self.op, "rows": self.to_dicts()})

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with one row per size and dtype, including those not measured (see ``note``).

        Columns: op; what a SweepPoint has; of its Measurement, ci_low, ci_high and the attributes that are numbers or
        names; note. Unknown numbers are NaN.
        """
        import pandas

        records = self.to_dicts()
        return pandas.DataFrame({name: pandas.Series([r[name] for r in records]) for name in records[0]})

    def __str__(self) -> str:
        return upward.rooms.measurements.sweep_text(self)

    def _repr_html_(self) -> str:
        return upward.rooms.measurements.sweep_html(self)


def sweep(
    op: str | Callable[..., Any],
    sizes: Iterable[Size] | None = None,
    dtypes: str | Sequence[str] = ("float32",),
    *,
    make: Callable[[Any, str], Any] | None = None,
    device: str | None = None,
    max_time: float = 0.3,
    peaks: Literal["measured", "datasheet", "none"] = "measured",
    progress: bool = True,
    **options: Any,
) -> Sweep:
    """Measure one op at many sizes and dtypes.

    op: an op of flopscope or its name ("add"); with ``make`` any function.
    sizes: each is a number n, a shape, or a tuple of shapes, one per operand. A number means n elements per operand, or
        n x n for ops on rows and matrices (matmul, addmm, transpose_copy, softmax, log_softmax, layer_norm, rms_norm).
        None: from 256 elements in powers of 4 (matrices: from 16 x 16 in powers of 2) until operands and result are 16
        times the last-level cache, within a quarter of the free memory; matrix products up to 2048 x 2048 on a CPU and
        8192 x 8192 on a GPU.
    dtypes: names, or one name.
    make: make(size, dtype) returns the tuple of arguments for op: operands of flopscope, torch, CuPy or NumPy.
    device: the device of flopscope's operands, and the one to time, as in measure().
    max_time, peaks: as in measure(), for each size and dtype.
    progress: show a progress bar if the sweep takes more than two seconds.
    options: other options of measure(), or functions of size and dtype that return one, as of ``flops`` and ``bytes``.
        graph is False by default.

    On a CPU a call of an op is launch-bound if it takes little longer than one for one element, which is measured as
    well: calling an op costs more than calling an empty function, which the launch time of the peaks is based on.

    A size or dtype that cannot be measured becomes a row with a note. If none can be measured, the first error
    propagates. Raises ValueError for invalid sizes or dtypes.
    """
    if isinstance(op, str) and op not in _core.ops:
        raise ValueError(f"there is no op {op!r}; the ops are {', '.join(_core.ops)}")
    function = getattr(_core, op) if isinstance(op, str) else op
    if make is None and not isinstance(function, _core.Op):
        raise ValueError(f"{op!r} is no op: pass make=…, a function of size and dtype that returns its arguments")
    options = {"device": device, "max_time": max_time, "peaks": peaks, "graph": False, **options}
    subject = _Subject(function, make, options)
    names = [dtypes] if isinstance(dtypes, str) else list(dtypes)
    if not names:
        raise ValueError("dtypes is empty: pass at least one, such as float32")
    wanted = _default_sizes(subject, names) if sizes is None else [_checked(size) for size in sizes]
    if not wanted:
        raise ValueError("sizes is empty: pass at least one, or None for a range")
    cases = [(size, dtype) for dtype in names for size in wanted]
    points = []
    with progress_bar(f"sweep of {subject.name}", len(cases), progress and len(cases) * max_time > LONG) as advance:
        for size, dtype in cases:
            points.append(subject.point(size, dtype))
            advance()
    measured = {point.dtype: point.measurement for point in points if point.measurement is not None}
    if not measured:
        raise subject.problems[0]
    dtype, first = next(iter(measured.items()))
    where = find_device(first.device)
    if make is None and where.kind == "cpu" and (of_one := subject.point(1, dtype).measurement):
        points = [_launch_bound(point, of_one.median) for point in points]
    return Sweep(subject.name, tuple(points), where)


class _Subject:
    """The swept function: its name, and its call and measurement at a size."""

    def __init__(self, function: Callable[..., Any], make: Callable[[Any, str], Any] | None, options: dict[str, Any]):
        self.function, self.make, self.options = function, make, options
        self.name = name_of(function)
        self.on_matrices = make is None and self.name in ON_MATRICES
        self.problems: list[Exception] = []

    def point(self, size: Any, dtype: str) -> SweepPoint:
        """Measure a size and a dtype; what prevents it becomes the point's note, and one of the problems."""
        shapes = self.shapes(size)
        shape, elements, working_set = "", float(math.prod(shapes[0])), math.nan
        try:
            call, args = self._call(size, shapes, dtype)
            result = call(*args)
            shape, working_set = _shapes_text(args or (result,)), _working_set((*args, result))
            del result
            asked = {name: value(size, dtype) if callable(value) else value for name, value in self.options.items()}
            if not args and self.make is None:  # an op that creates a tensor takes the device itself
                asked["device"] = None
            measurement = measure(call, *args, **asked)
        except _REFUSALS as problem:
            self.problems.append(problem)
            lines = str(problem).strip().splitlines() or [type(problem).__name__]
            return SweepPoint(size, dtype, shape, elements, working_set, None, lines[0])
        return SweepPoint(size, dtype, shape, elements, working_set, measurement)

    def shapes(self, size: Any) -> list[tuple[int, ...]]:
        """Return one shape for all operands, or one shape for each."""
        if isinstance(size, int):
            return [(size, size) if self.on_matrices else (size,)]
        return list(size) if isinstance(size[0], tuple) else [size]

    def _call(self, size: Any, shapes: Sequence[tuple[int, ...]], dtype: str) -> Call:
        if self.make is None:
            return call_of_op(self.name, shapes, dtype, self.options["device"])
        args = self.make(size, dtype)
        return self.function, args if isinstance(args, tuple) else (args,)


def _launch_bound(point: SweepPoint, floor_us: float) -> SweepPoint:
    """Return the point with its bound computed from floor_us as the time of an empty call."""
    m = point.measurement
    if m is None or m.roof is None:
        return point
    rated = _core.rate(m.roof, m.flops, m.bytes_total_moved, m.median, m.timing_source, floor_us)
    return replace(point, measurement=replace(m, bound=rated["bound"]))


def _checked(size: Any) -> Any:
    """Return a size as an int, a shape or a tuple of shapes, of Python's ints. Raise ValueError for others."""
    if isinstance(size, (tuple, list)) and size:
        return tuple(map(_checked, size))
    if not hasattr(size, "__index__") or operator.index(size) < 1:
        text = "each must be an integer of at least 1, a shape, or a tuple of shapes"
        raise ValueError(f"sizes: {text}, not {size!r}")
    return operator.index(size)


def _default_sizes(subject: _Subject, dtypes: Sequence[str]) -> list[int]:
    device = find_device(subject.options["device"])
    last = device.properties.get("l2_bytes" if device.kind == "cuda" else "cache_bytes") or 32 << 20
    max_bytes = min(CACHES_FILLED * int(last), free_bytes(device) // 4, MAX_BYTES)
    operands = len(tensor_arguments(subject.name)) if subject.make is None else 1
    widest = max(_core.dtypes[name].bytes if name in _core.dtypes else 8 for name in dtypes)  # 8: only make() knows it
    elements = [MIN_ELEMENTS]
    while elements[-1] * GROWTH * (operands + 1) * widest <= max_bytes:
        elements.append(elements[-1] * GROWTH)
    if not subject.on_matrices:
        return elements
    largest = LARGEST_PRODUCT[device.kind] if subject.name in PRODUCTS else max_bytes
    return [n for n in map(math.isqrt, elements) if n <= largest]


def _working_set(values: Iterable[Any]) -> float:
    """Return the total bytes of arrays, counting each memory once."""
    sizes = {frozenset(address_of(one)): float(one.nbytes) for one in values if hasattr(one, "nbytes")}
    return sum(sizes.values()) if sizes else math.nan


def _shapes_text(values: Iterable[Any]) -> str:
    shapes = [tuple(value.shape) for value in values if hasattr(value, "shape")]
    return ", ".join(dict.fromkeys(" x ".join(map(str, shape)) for shape in shapes))


# Arguments for timing an op: random tensors of given shapes, and values for its other arguments -----------------------

# Values of an op's last arguments, which are no tensors.
VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("full", "fill_"), (1.0,)),
    **dict.fromkeys(("uniform_", "normal_"), (0.0, 1.0)),
    "cast": ("bfloat16",),
}


def tensor_arguments(op: str) -> list[str]:
    """Return the names of an op's required tensors; [] for an op that creates a tensor of a shape."""
    parameters = inspect.signature(getattr(_core, op)).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [one.name for one in parameters if one.default is one.empty and one.kind in kinds]
    return [] if required[0] == "shape" else required[: len(required) - len(VALUES.get(op, ()))]


def call_of_op(op: str, shapes: Sequence[tuple[int, ...]], dtype: str, device: str | None) -> Call:
    """Return an op and its arguments: tensors of these shapes, or all of the same shape if there is only one.

    The tensors are of random numbers, or of ones for a dtype without random numbers. device: that of the tensors; None:
    the default device. Raises ValueError if the number of shapes differs from the number of tensors that the op takes;
    exceptions from creating the tensors propagate.
    """
    function, tensors, values = getattr(_core, op), tensor_arguments(op), VALUES.get(op, ())
    if not tensors:  # the op creates a tensor
        return partial(function, shapes[0], dtype=dtype, device=device), values
    each = list(shapes) * len(tensors) if len(shapes) == 1 else shapes
    if len(each) != len(tensors):
        raise ValueError(f"{op} takes {plural(len(tensors), 'tensor')} ({', '.join(tensors)}), not {len(each)}")
    make = _core.rand if dtype in _core.float_dtypes else _core.ones
    if op == "cast" and dtype == "bfloat16":  # to another dtype
        values = ("float32",)
    return function, (*(make(shape, dtype=dtype, device=device) for shape in each), *values)

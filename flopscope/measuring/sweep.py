"""sweep(): one op at many sizes, from launch-bound through the caches to memory-bound or compute-bound."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

from flopscope import _core
from flopscope.measuring.measurement import Measurement
from flopscope.measuring.measuring import measure
from flopscope.measuring.stage import name_of
from flopscope.support import upward
from flopscope.support.device import Device, find_device
from flopscope.support.documents import Document, Field, columns, rows
from flopscope.support.peak_timing import free_bytes
from flopscope.support.peaks import Peaks
from flopscope.support.progress import progress_bar
from flopscope.support.units import plural

if TYPE_CHECKING:
    import pandas


Size = int | tuple[int, ...] | tuple[tuple[int, ...], ...]
Stated = float | Callable[[Any, str], float] | None

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
    """Elements of the first operand; NaN where they are unknown."""
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
    peaks: Mapping[str, Peaks] = field(default_factory=dict, repr=False)
    """Known peaks by source, "measured" and "datasheet"."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Measurements of all points that could be measured."""
        return tuple(point.measurement for point in self.points if point.measurement is not None)

    def __len__(self) -> int:
        return len(self.measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.measurements)

    @overload
    def __getitem__(self, index: int) -> Measurement: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Measurement, ...]: ...
    def __getitem__(self, index: int | slice) -> Measurement | tuple[Measurement, ...]:
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

    def plot(self, ax: Any = None) -> Any:
        """Draw GB/s (FLOP/s if compute bounds the largest size) over the working set, below the peaks.

        Each dtype is one line. The colour and the marker of a point show its bound.

        ax: matplotlib Axes; None: those of a new figure. Returns the Axes. Raises ImportError if matplotlib is not
        installed.
        """
        return upward.rooms.plots.plot_sweep(self, ax)

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
    flops: Stated = None,
    bytes: Stated = None,
    unit: str | Callable[[Any, str], str | None] | None = None,
    device: str | None = None,
    cache: Literal["cold", "hot"] | None = None,
    max_time: float = 0.3,
    peaks: Literal["measured", "datasheet", "none"] = "measured",
    progress: bool = True,
    **options: Any,
) -> Sweep:
    """Measure one op at many sizes and dtypes.

    op: an op of flopscope or its name ("add"), or any function of tensors. A function is called with one flopscope
        tensor of the size and dtype for each required argument, or with the arguments from ``make``.
    sizes: each is a number n, a shape, or a tuple of shapes, one per operand. A number means n elements per operand, or
        n x n for ops on rows and matrices (matmul, addmm, transpose_copy, softmax, log_softmax, layer_norm, rms_norm).
        None: from 256 elements in powers of 4 (matrices: from 16 x 16 in powers of 2) until operands and result are 16
        times the last-level cache, within a quarter of the free memory; matrix products up to 2048 x 2048 on a CPU and
        8192 x 8192 on a GPU.
    dtypes: names, or one name.
    make: make(size, dtype) returns the tuple of arguments for op: operands of torch, CuPy or NumPy.
    flops, bytes, unit: the work of a call as in measure(), or functions of size and dtype.
    device: the device of flopscope's operands, and the one to time, as in measure().
    cache, max_time, peaks: as in measure(), for each size and dtype.
    progress: show a progress bar if the sweep takes more than two seconds.
    options: other options of measure(): spread, min_time, timer, graph (default here: False).

    On a CPU a call is launch-bound if it takes little longer than a call for one element, which is measured as well:
    calling an op costs more than calling an empty function, which the launch time of the peaks is based on.

    A size or dtype that cannot be measured becomes a row with a note. If none can be measured, the first error
    propagates. Raises ValueError for invalid sizes or dtypes.
    """
    subject = _Subject(op, make, device)
    names = [dtypes] if isinstance(dtypes, str) else list(dtypes)
    if not names:
        raise ValueError("dtypes is empty: pass at least one, such as float32")
    wanted = _default_sizes(subject, names) if sizes is None else [_checked(size) for size in sizes]
    if not wanted:
        raise ValueError("sizes is empty: pass at least one, or None for a range")
    cases = [(size, dtype) for dtype in names for size in wanted]
    stated = {"flops": flops, "bytes": bytes, "unit": unit}
    wanted_of_all = {"device": device, "cache": cache, "max_time": max_time, "peaks": peaks, "graph": False, **options}
    problems: list[Exception] = []
    points = []
    with progress_bar(f"sweep of {subject.name}", len(cases), progress and len(cases) * max_time > LONG) as advance:
        for size, dtype in cases:
            points.append(_point(subject, size, dtype, stated, wanted_of_all, problems))
            advance()
    if len(problems) == len(points):
        raise subject.explained(problems[0])
    first = next(point for point in points if point.measurement is not None)
    assert first.measurement is not None
    where = find_device(first.measurement.device)
    known = where.known_peaks() if peaks != "none" else {}
    if where.kind == "cpu":
        floor = math.nan
        if make is None:  # else make() defines what a size is
            with suppress(Exception):  # the user did not request this size
                of_one = _point(subject, _ones(first.size), first.dtype, stated, wanted_of_all, []).measurement
                floor = math.nan if of_one is None else of_one.median
        points = [_launch_bound(point, floor) for point in points]
    return Sweep(subject.name, tuple(points), where, known)


def _point(
    subject: _Subject,
    size: Any,
    dtype: str,
    stated: Mapping[str, Any],
    options: Mapping[str, Any],
    problems: list[Exception],
) -> SweepPoint:
    """Measure a size and a dtype; what prevents it becomes the point's note, and one of the problems."""
    at = partial(SweepPoint, size, dtype)
    shape, elements, working_set = "", math.nan, math.nan
    with suppress(TypeError):  # with make=, a size can be any object
        elements = float(math.prod(subject.shapes(size)[0]))
    try:
        call, args = subject.call(size, dtype)
        result = call(*args)
        shape, working_set = _shapes_text(args or (result,)), _working_set((*args, result))
        del result
        work = {name: value(size, dtype) if callable(value) else value for name, value in stated.items()}
        asked = {**options, **{name: value for name, value in work.items() if value is not None}}
        if not args and subject.is_op:  # an op that creates a tensor takes the device itself
            asked["device"] = None
        measurement = measure(call, *args, **asked)
    except _REFUSALS as problem:
        problems.append(problem)
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        return at(shape, elements, working_set, None, lines[0])
    return at(shape, elements, working_set, measurement)


class _Subject:
    """The swept function: its name, and its call at a size."""

    def __init__(self, op: str | Callable[..., Any], make: Callable[[Any, str], Any] | None, device: str | None):
        if isinstance(op, str):
            if op not in _core.ops:
                raise ValueError(f"there is no op {op!r}; the ops are {', '.join(_core.ops)}")
            op = getattr(_core, op)
        if not callable(op):
            raise TypeError(f"op must be an op of flopscope, its name or a function, not {op!r}")
        self.function, self.make, self.device = op, make, device
        self.name = name_of(op)
        self.is_op = isinstance(op, _core.Op) and make is None
        self.on_matrices = self.is_op and self.name in ON_MATRICES
        self.arguments = tensor_arguments(self.name) if self.is_op else [] if make is not None else self._arguments()

    def _arguments(self) -> list[str]:
        try:
            names = required_arguments(self.function)
        except ValueError:
            raise ValueError(
                f"{self.name} has no signature: pass make=…, a function of size and dtype that returns its arguments"
            ) from None
        if not names:
            raise ValueError(f"{self.name} takes no operands whose size could change: pass make=… to create some")
        return names

    def explained(self, problem: Exception) -> Exception:
        """Return the error with a hint at its likely cause."""
        if isinstance(problem, TypeError) and not self.is_op and self.make is None:
            return TypeError(f"{self.name} was called with flopscope tensors: {problem}; pass make=… to create others")
        return problem

    def call(self, size: Any, dtype: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self.make is not None:
            args = self.make(size, dtype)
            return self.function, args if isinstance(args, tuple) else (args,)
        shapes = self.shapes(size)
        if self.is_op:
            return call_of_op(self.name, shapes, dtype, self.device)
        return self.function, operands(self.name, self.arguments, shapes, dtype, self.device)

    def shapes(self, size: Any) -> list[tuple[int, ...]]:
        """Return one shape for all operands, or one shape for each."""
        if isinstance(size, int):
            return [(size, size) if self.on_matrices else (size,)]
        return list(size) if size and isinstance(size[0], tuple) else [size]


def _ones(size: Any) -> Any:
    """Return the size of the same form with one element."""
    return 1 if isinstance(size, int) else tuple(map(_ones, size))


def _launch_bound(point: SweepPoint, floor_us: float) -> SweepPoint:
    """Return the point with its bound computed from floor_us as the time of an empty call."""
    m = point.measurement
    if m is None or m.roof is None:
        return point
    rated = _core.rate(m.roof, m.flops, m.bytes_total_moved, m.median, m.timing_source, floor_us)
    return replace(point, measurement=replace(m, bound=rated["bound"]))


def _checked(size: Any) -> Size:
    """Return a size as an int, a shape or a tuple of shapes, of Python's ints. Raise ValueError for others."""
    several = isinstance(size, (tuple, list)) and bool(size) and all(isinstance(one, (tuple, list)) for one in size)
    try:
        return tuple(_shape(one) for one in size) if several else _shape(size)
    except TypeError:
        text = "each must be an integer of at least 1, a shape, or a tuple of shapes"
        raise ValueError(f"sizes: {text}, not {size!r}") from None


def _shape(size: Any) -> Any:
    """Return a length or a shape of Python's ints. Raise TypeError for others."""
    lengths = tuple(map(operator.index, size)) if isinstance(size, (tuple, list)) else (operator.index(size),)
    if not lengths or min(lengths) < 1 or isinstance(size, bool):
        raise TypeError
    return lengths if isinstance(size, (tuple, list)) else lengths[0]


def _default_sizes(subject: _Subject, dtypes: Sequence[str]) -> list[Size]:
    device = find_device(subject.device)
    last = device.properties.get("l2_bytes" if device.kind == "cuda" else "cache_bytes") or 32 << 20
    max_bytes = min(CACHES_FILLED * int(last), free_bytes(device) // 4, MAX_BYTES)
    count = len(subject.arguments) if subject.make is None else 1
    widest = max(_core.dtypes[name].bytes if name in _core.dtypes else 8 for name in dtypes)  # 8: only make() knows it
    per_element = (count + 1) * widest
    elements = [MIN_ELEMENTS]
    while elements[-1] * GROWTH * per_element <= max_bytes:
        elements.append(elements[-1] * GROWTH)
    if not subject.on_matrices:
        return list(elements)
    largest = LARGEST_PRODUCT[device.kind] if subject.name in PRODUCTS else max_bytes
    return [n for n in map(math.isqrt, elements) if n <= largest]


def _working_set(values: Iterable[Any]) -> float:
    """Return the total bytes of arrays, counting each memory once."""
    sizes: dict[Any, int] = {}
    for value in values:
        nbytes = getattr(value, "nbytes", None)
        if isinstance(nbytes, int):
            address = getattr(value, "data_ptr", id(value))  # a number in flopscope, a method in torch
            sizes[address() if callable(address) else address] = nbytes
    return float(sum(sizes.values())) if sizes else math.nan


def _shapes_text(values: Iterable[Any]) -> str:
    shapes = [tuple(value.shape) for value in values if hasattr(value, "shape")]
    return ", ".join(dict.fromkeys(" x ".join(map(str, shape)) for shape in shapes))


# Arguments for timing an op: random tensors of given shapes, and values for its other arguments -----------------------

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

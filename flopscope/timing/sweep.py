"""sweep(): one op at many sizes, from where launching bounds it through the caches to memory or compute."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from flopscope import _core
from flopscope.support.progress import progress_bar
from flopscope.timing.measurement import Measurement
from flopscope.timing.measuring import measure
from flopscope.timing.operands import call_of_op, operand, required_arguments, tensor_arguments
from flopscope.timing.stage import name_of

if TYPE_CHECKING:
    import pandas

    from flopscope.hardware.device import Device
    from flopscope.hardware.peaks import Peaks

__all__ = ["Sweep", "SweepPoint", "sweep"]

Size = int | tuple[int, ...] | tuple[tuple[int, ...], ...]
Stated = float | Callable[[Any, str], float] | None

# Ops that work along rows or on matrices, for which an int n is n x n; the others go over elements, and n is n of them.
ON_MATRICES = {
    *("matmul", "addmm", "transpose_copy"),
    *("softmax", "log_softmax", "layer_norm", "rms_norm"),
}
PRODUCTS = ("matmul", "addmm")  # whose time grows faster than their memory
LARGEST_PRODUCT = {"cpu": 2048, "cuda": 8192}
LEAST_ELEMENTS, GROWTH = 256, 4
CACHES_FILLED = 16  # times the last cache that the largest size should touch
MOST_BYTES = 4 << 30
LONG = 2.0  # seconds that are worth a progress bar
# Of a dtype that code does not compute in, a shape it does not take, memory that is not there.
_REFUSALS = (TypeError, ValueError, RuntimeError, MemoryError)

# Columns of to_pandas() that are a Measurement's own, by its names; times in µs.
_MEASURED = (
    *("median", "min", "iqr", "n", "flops", "bytes_total_moved", "gbytes_per_s", "tflops_per_s"),
    *("arithmetic_intensity", "pct_roofline", "pct_peak_bandwidth", "pct_peak_flops", "roofline_time", "headroom"),
)
_SAID = {"unit": None, "bound": "unknown", "timing_source": "", "cache": "", "device": ""}  # of what was not measured


@dataclass(frozen=True)
class SweepPoint:
    """One size and dtype of a sweep."""

    size: Any
    """As it was given to sweep()."""
    dtype: str
    shape: str
    """Of the operands: "1024 x 1024"; "" where they have none, or could not be made."""
    elements: float
    """Of the first operand; NaN where nobody knows."""
    working_set_bytes: float
    """Of the operands and the result, memory that they share counted once; NaN where they do not tell."""
    measurement: Measurement | None
    """None where it could not be measured."""
    note: str = ""
    """Why not."""


@dataclass(frozen=True)
class Sweep:
    """What sweep() gives: a sequence of Measurements, in the order of dtypes and of sizes in each, and their table."""

    op: str
    points: tuple[SweepPoint, ...]
    """Of all sizes and dtypes, also those that could not be measured."""
    device: Device
    peaks: Mapping[str, Peaks] = field(default_factory=dict, repr=False)
    """By source, "measured" and "datasheet", as far as known."""
    floor_us: float = math.nan
    """What a call takes at least: on a CPU one for a single element, on a GPU the least kernel; NaN where not known."""
    caches: Mapping[str, float] = field(default_factory=dict, repr=False)
    """Sizes in bytes: "L2" (on a CPU of one core) and, on a CPU, "last level"."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Of all points that could be measured."""
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
        """One dict per size and dtype with the columns of to_pandas()."""
        return [_record(self.op, point) for point in self.points]

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with one row per size and dtype, also of those that could not be measured (see ``note``).

        op, dtype, size (as given), shape, elements, working_set_bytes; median, ci_low, ci_high, min, iqr in µs, n,
        flops, bytes_total_moved, gbytes_per_s, tflops_per_s, arithmetic_intensity, pct_roofline, pct_peak_bandwidth,
        pct_peak_flops, roofline_time, headroom, unit, bound, timing_source, cache, device as in Measurement; note.
        Unknown numbers are NaN.
        Raises ImportError where there is no pandas.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas; to_dicts() does without") from error
        records = self.to_dicts()
        return pandas.DataFrame({name: pandas.Series([r[name] for r in records]) for name in records[0]})

    def plot(self, ax: Any = None) -> Any:
        """Draw time, GB/s (FLOP/s where compute bounds the largest size) and % of the roofline over the working set.

        One line per dtype; the colour of a point says what bounds it, and a shade behind where all dtypes agree on
        that. Cache sizes and peaks are lines with labels.

        ax: three matplotlib Axes to draw on; None: of a new figure. Returns a NumPy array of the three.
        Raises ImportError where there is no matplotlib, ValueError for another number of axes.
        """
        from flopscope.views.plots import plot_sweep

        return plot_sweep(self, ax)

    def __str__(self) -> str:
        from flopscope.views.sweeps import sweep_text

        return sweep_text(self)

    def _repr_html_(self) -> str:
        from flopscope.views.sweeps import sweep_html

        return sweep_html(self)


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
    """Measure one op at many sizes and dtypes, one after the other.

    op: an op of flopscope or its name ("add"), or any function of tensors: it is called with as many flopscope tensors
        of the size and dtype as it has arguments without a default, or with what ``make`` gives.
    sizes: n elements for each operand, or n x n for ops on rows and matrices (matmul, addmm, transpose_copy, softmax,
        log_softmax, layer_norm, rms_norm); or the operands' shape, or a tuple of shapes, one for each of them. None:
        from 256 elements in powers of 4 (matrices: from 16 x 16 in powers of 2) until operands and result fill the
        last cache 16 times, within a quarter of what memory is free; products of matrices to 2048 x 2048 on a CPU and
        8192 x 8192 on a GPU.
    dtypes: names, or one name.
    make: make(size, dtype) gives the tuple of arguments to call op with: operands of torch, CuPy, NumPy.
    flops, bytes, unit: the work of a call as in measure(), or functions of size and dtype.
    device: where flopscope's operands are made and what is timed, as in measure().
    cache, max_time, peaks: as in measure(), for each size and dtype.
    progress: a progress bar where it takes over two seconds.
    options: further ones of measure(): spread, min_time, timer, graph (here False unless given).

    On a CPU a call is bound by its launch where it takes little longer than one for a single element, which is measured
    too: calling costs more there than the empty function that peaks know of.

    What cannot be measured, as of a dtype in which the op does not compute, is a row with a note; where nothing can,
    the first error passes. ValueError for what are no sizes or dtypes.
    """
    subject = _Subject(op, make, device)
    names = [dtypes] if isinstance(dtypes, str) else list(dtypes)
    if not names:
        raise ValueError("dtypes is empty: name at least one, as float32")
    wanted = _default_sizes(subject, names) if sizes is None else [_checked(size) for size in sizes]
    if not wanted:
        raise ValueError("sizes is empty: give at least one, or None for a range")
    cases = [(size, dtype) for dtype in names for size in wanted]
    run = _Run(subject, {"flops": flops, "bytes": bytes, "unit": unit})
    run.options = {"device": device, "cache": cache, "max_time": max_time, "peaks": peaks, "graph": False, **options}
    points = []
    with progress_bar(f"sweep of {subject.name}", len(cases), progress and len(cases) * max_time > LONG) as advance:
        for size, dtype in cases:
            points.append(run.point(size, dtype))
            advance()
    if len(run.problems) == len(points):
        raise subject.explained(run.problems[0])
    return run.result(points)


class _Subject:
    """What is swept: its name, and the call at a size."""

    def __init__(self, op: str | Callable[..., Any], make: Callable[[Any, str], Any] | None, device: str | None):
        if isinstance(op, str):
            if op not in _core.ops:
                raise ValueError(f"no op is called {op!r}; ops are {', '.join(_core.ops)}")
            op = getattr(_core, op)
        if not callable(op):
            raise TypeError(f"op is an op of flopscope, its name or a function, not {op!r}")
        self.function, self.make, self.device = op, make, device
        self.name = name_of(op)
        self.is_op = isinstance(op, _core.Op) and make is None
        self.on_matrices = self.is_op and self.name in ON_MATRICES
        if make is not None:
            self.operands = 1
        elif self.is_op:
            self.operands = len(tensor_arguments(self.name))
        else:
            self.operands = self._arguments()

    def _arguments(self) -> int:
        try:
            count = len(required_arguments(self.function))
        except ValueError:
            raise ValueError(
                f"{self.name} does not tell its arguments: make=… gives them, of a size and a dtype"
            ) from None
        if count == 0:
            raise ValueError(f"{self.name} takes no operands, so that no size could change: make=… gives some")
        return count

    def explained(self, problem: Exception) -> Exception:
        """The same, with what may have caused it."""
        if isinstance(problem, TypeError) and not self.is_op and self.make is None:
            return TypeError(f"{self.name} was called with flopscope's tensors: {problem}; make=… gives others")
        return problem

    def call(self, size: Any, dtype: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if self.make is not None:
            args = self.make(size, dtype)
            return self.function, args if isinstance(args, tuple) else (args,)
        shapes = self.shapes(size)
        if self.is_op:
            return call_of_op(self.name, shapes, dtype, self.device)
        given = shapes * self.operands if len(shapes) == 1 else shapes
        if len(given) != self.operands:
            raise ValueError(f"{self.name} takes {self.operands} operands, not {len(given)} as {size} has shapes")
        return self.function, tuple(operand(shape, dtype, self.device) for shape in given)

    def shapes(self, size: Any) -> list[tuple[int, ...]]:
        """One for all operands, or one for each."""
        if isinstance(size, int):
            return [(size, size) if self.on_matrices else (size,)]
        return list(size) if size and isinstance(size[0], tuple) else [size]


class _Run:
    """Measures points, and keeps what went wrong."""

    options: dict[str, Any]

    def __init__(self, subject: _Subject, stated: Mapping[str, Any]) -> None:
        self.subject, self.stated = subject, stated
        self.problems: list[Exception] = []

    def point(self, size: Any, dtype: str) -> SweepPoint:
        at = partial(SweepPoint, size, dtype)
        shape, elements, working_set = "", _elements(self.subject, size), math.nan
        try:
            call, args = self.subject.call(size, dtype)
            result = call(*args)
            shape, working_set = _shapes_text(args or (result,)), _working_set((*args, result))
            del result
            found = measure(call, *args, **self._options(size, dtype, bool(args)))
        except _REFUSALS as problem:
            self.problems.append(problem)
            lines = str(problem).strip().splitlines() or [type(problem).__name__]
            return at(shape, elements, working_set, None, lines[0])
        return at(shape, elements, working_set, found)

    def result(self, points: Sequence[SweepPoint]) -> Sweep:
        from flopscope.hardware.device import find_device

        first = next(point for point in points if point.measurement is not None)
        assert first.measurement is not None
        device = find_device(first.measurement.device)
        wanted = self.options["peaks"] != "none"
        known = {"measured": device.measured, "datasheet": device.datasheet_peaks} if wanted else {}
        peaks = {source: one for source, one in known.items() if one is not None}
        if device.kind == "cpu":
            floor = self._of_one_element(first)
            points = [_launch_bound(point, floor) for point in points]
        else:
            floor = _least_kernel_us(peaks.get("measured"), first.measurement.timing_source)
        return Sweep(self.subject.name, tuple(points), device, peaks, floor, cache_sizes(device))

    def _of_one_element(self, like: SweepPoint) -> float:
        """µs of a call; NaN where the code bears no such size, or nobody knows which that is."""
        if self.subject.make is not None:
            return math.nan
        with suppress(Exception):  # whatever the code says of a size that nobody asked for
            least = self.point(_ones(like.size), like.dtype).measurement
            return math.nan if least is None else least.median
        return math.nan

    def _options(self, size: Any, dtype: str, has_operands: bool) -> dict[str, Any]:
        stated = {name: value(size, dtype) if callable(value) else value for name, value in self.stated.items()}
        options = {**self.options, **{name: value for name, value in stated.items() if value is not None}}
        if not has_operands and self.subject.is_op:  # what makes a tensor was told the device itself
            options["device"] = None
        return options


def _least_kernel_us(measured: Peaks | None, timing_source: str) -> float:
    ns = None if measured is None else measured.kernel_ns if timing_source == "cupti" else measured.launch_ns
    return math.nan if ns is None else ns / 1e3


def _ones(size: Any) -> Any:
    """The same, of one element."""
    return 1 if isinstance(size, int) else tuple(map(_ones, size))


def _launch_bound(point: SweepPoint, floor_us: float) -> SweepPoint:
    """The same, with the call for one element as the time of an empty one."""
    m = point.measurement
    if m is None or m.roof is None:
        return point
    rated = _core.rate(m.roof, m.flops, m.bytes_total_moved, m.median, m.timing_source, floor_us)
    return replace(point, measurement=replace(m, bound=rated["bound"]))


def _checked(size: Any) -> Size:
    """An int, a shape or a tuple of shapes, of Python's own ints."""
    several = isinstance(size, (tuple, list)) and bool(size) and all(isinstance(one, (tuple, list)) for one in size)
    try:
        return tuple(_shape(one) for one in size) if several else _shape(size)
    except TypeError:
        text = "a size is a number of at least 1, a shape, or a tuple of shapes"
        raise ValueError(f"sizes: {size!r} is none; {text}") from None


def _shape(size: Any) -> Any:
    """TypeError for what is no length and no shape."""
    lengths = tuple(map(operator.index, size)) if isinstance(size, (tuple, list)) else (operator.index(size),)
    if not lengths or min(lengths) < 1 or isinstance(size, bool):
        raise TypeError
    return lengths if isinstance(size, (tuple, list)) else lengths[0]


def _default_sizes(subject: _Subject, dtypes: Sequence[str]) -> list[Size]:
    from flopscope.hardware.device import find_device, free_bytes

    device = find_device(subject.device)
    last = max(cache_sizes(device).values(), default=0) or 32 << 20
    most = min(CACHES_FILLED * last, free_bytes(device) // 4, MOST_BYTES)
    per_element = (subject.operands + 1) * max(map(_item_bytes, dtypes))
    elements = [LEAST_ELEMENTS]
    while elements[-1] * GROWTH * per_element <= most:
        elements.append(elements[-1] * GROWTH)
    if not subject.on_matrices:
        return list(elements)
    largest = LARGEST_PRODUCT[device.kind] if subject.name in PRODUCTS else most
    return [n for n in map(math.isqrt, elements) if n <= largest]


def _item_bytes(dtype: str) -> int:
    """Of a dtype's name; one that only make() knows, as "int16", by the bits in it."""
    if dtype in _core.dtype_bytes:
        return _core.dtype_bytes[dtype]
    bits = "".join(letter for letter in dtype if letter.isdigit())
    return max(int(bits) // 8, 1) if bits else 8


def cache_sizes(device: Device) -> dict[str, float]:
    """Bytes by name: of a GPU "L2"; of a CPU "L2", that of one core, and "last level"; as far as known."""
    if device.kind == "cuda":
        known = {"L2": float(device.properties.get("l2_bytes") or 0)}
    else:
        known = {"L2": _cpu_l2_bytes(), "last level": float(device.properties.get("cache_bytes") or 0)}
    return {name: size for name, size in known.items() if size > 0}


def _cpu_l2_bytes() -> float:
    """As Linux tells it; 0 elsewhere."""
    with suppress(OSError, ValueError):
        for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
            if (folder / "level").read_text(encoding="ascii").strip() == "2":
                return float(int((folder / "size").read_text(encoding="ascii").strip().removesuffix("K")) * 1024)
    return 0.0


def _elements(subject: _Subject, size: Any) -> float:
    try:
        return float(math.prod(subject.shapes(size)[0]))
    except TypeError:  # of make=, a size may be anything
        return math.nan


def _working_set(values: Iterable[Any]) -> float:
    """Bytes of arrays, each once."""
    held: dict[Any, int] = {}
    for value in values:
        nbytes = getattr(value, "nbytes", None)
        if isinstance(nbytes, int):
            held[_address(value)] = nbytes
    return float(sum(held.values())) if held else math.nan


def _address(value: Any) -> Any:
    """What two objects on the same memory have in common."""
    address = getattr(value, "data_ptr", None)  # of flopscope a number, of torch a method
    return address() if callable(address) else id(value) if address is None else address


def _shapes_text(values: Iterable[Any]) -> str:
    shapes = [tuple(value.shape) for value in values if hasattr(value, "shape")]
    return ", ".join(dict.fromkeys(" x ".join(map(str, shape)) for shape in shapes))


def _record(op: str, point: SweepPoint) -> dict[str, Any]:
    m = point.measurement
    low, high = m.ci if m else (math.nan, math.nan)
    numbers = {name: getattr(m, name, math.nan) for name in _MEASURED}
    before = {"op": op, "dtype": point.dtype, "size": point.size, "shape": point.shape, "elements": point.elements}
    return {
        **before,
        "working_set_bytes": point.working_set_bytes,
        "median": numbers.pop("median"),
        "ci_low": low,
        "ci_high": high,
        **numbers,
        **{name: getattr(m, name, otherwise) for name, otherwise in _SAID.items()},
        "note": point.note,
    }

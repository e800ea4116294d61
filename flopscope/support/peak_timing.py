"""Measurement of a device's peaks: warm up, read each number in several rounds and take the best.

A round reads every number once, so the readings of one number are seconds apart: a short disturbance, or a short drop
of the clock, affects one round but not the result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from flopscope import _core
from flopscope.support.busy import busy_meter
from flopscope.support.capture import is_taken, shortest_kernel
from flopscope.support.peaks import TIMES, Peaks, best, drop_useless_units, slowdown, versions_of
from flopscope.support.process import available_memory
from flopscope.support.progress import progress_bar
from flopscope.support.statistics import median

if TYPE_CHECKING:
    from flopscope.support.device import Device

MIB = 1 << 20


@dataclass(frozen=True)
class _Plan:
    """The quantities to measure on one kind of device, and the times to spend on them, in seconds."""

    budget: float
    """Time for the samples of one reading."""
    sample: float
    """Minimum time of one sample: long compared to the clock's resolution, short compared to the budget."""
    fma: tuple[tuple[str, str], ...]
    matmul: tuple[tuple[str, str], ...]
    """Pairs of dtype and compute unit, plain units before tensor units."""
    largest_product: int
    l2: bool = False
    """Whether to measure the bandwidth of the L2."""


PLAIN = (("float64", "fp64"), ("float32", "fp32"))
TENSOR = (
    ("float64", "fp64_tensor"),
    ("tf32", "tf32_tensor"),
    ("float16", "fp16_tensor"),
    ("bfloat16", "bf16_tensor"),
    ("fp8", "fp8_tensor"),  # float8_e4m3fn with fast accumulation
    ("int8", "int8_tensor"),
)

PLANS = {
    "cpu": _Plan(0.09, 0.015, fma=PLAIN, matmul=PLAIN, largest_product=4096),
    "cuda": _Plan(0.04, 0.002, (*PLAIN, ("float16", "fp16")), (PLAIN[1], *TENSOR), largest_product=16384, l2=True),
}

BANDWIDTHS = ("write", "read", "copy")  # write comes first, because it touches the fresh pages
L2_PARTS = (2, 4, 8)
"""The data read from the L2 is its size over each of these; the best rate counts."""
MIN_ROUNDS, MAX_ROUNDS = 3, 5
AGREEMENT = 0.02  # between a series' two best readings, which ends its rounds
MIN_SAMPLES, MAX_SAMPLES = 3, 60
LARGEST_BUFFER = 2048 * MIB
ELEMENT_BYTES = {name: row.bytes for name, row in _core.dtypes.items()}
ELEMENT_BYTES |= {"tf32": 4, "fp8": 2, "int8": 2}  # of products; the mean of both factors and the result
# Errors of operations that the device or a library does not support, or that need too much memory.
_PROBE_ERRORS = (RuntimeError, MemoryError, ValueError, TypeError)


@dataclass
class _Series:
    """The readings of one probe at one size, one per round."""

    number: str
    """The measured number: a compute unit, or the name of a field of Peaks."""
    read: Callable[[], float]
    values: list[float] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether the readings agree, so that no further round is needed."""
        if len(self.values) < MIN_ROUNDS:
            return False
        fastest, second = sorted(self.values, reverse=self.number not in TIMES)[:2]
        return slowdown(self.number, second, fastest) <= AGREEMENT

    @property
    def spread(self) -> float:
        fastest = best(self.number, self.values)
        return max(slowdown(self.number, value, fastest) for value in self.values)


class Measurement:
    """A measurement of the peaks of one device, made by ``run()``."""

    def __init__(self, device: Device) -> None:
        self.device, self.plan = device, PLANS[device.kind]
        self.series: dict[str, list[_Series]] = {}
        self.missing: dict[str, Exception] = {}

    def run(self, progress: bool) -> Peaks:
        """Measure all numbers and return them. Raise RuntimeError if none could be measured."""
        busy = busy_meter(self.device)
        steps = dict[str, Callable[[], Iterator[_Series]]]()
        steps |= {what: partial(self._bandwidth, what) for what in BANDWIDTHS}
        steps |= {"l2": self._l2} if self.plan.l2 else {}
        steps |= {f"fma {dtype}": partial(self._fma, dtype, unit) for dtype, unit in self.plan.fma}
        steps |= {f"matmul {dtype}": partial(self._matmul, dtype, unit) for dtype, unit in self.plan.matmul}
        steps |= {"empty": self._launch, "kernel": self._kernel}
        with progress_bar(f"measuring {self.device}", MAX_ROUNDS * len(steps), progress) as advance:
            for turn in range(MAX_ROUNDS):
                for quantity, prepare in steps.items():
                    self._round(quantity, None if turn else prepare)
                    advance()
        return self._peaks(busy())

    def _round(self, quantity: str, prepare: Callable[[], Iterator[_Series]] | None) -> None:
        """Read the series that have not settled; in the first round, ``prepare`` warms up before each. A probe that
        fails then is missing; if a later reading fails, the earlier ones are kept."""
        known = self.series.setdefault(quantity, [])
        try:
            for series in known if prepare is None else prepare():
                if not series.settled:
                    series.values.append(series.read())
                if prepare is not None:
                    known.append(series)
        except _PROBE_ERRORS as error:
            if prepare is not None:
                self.missing[quantity] = error

    def _peaks(self, busy: float | None) -> Peaks:
        from datetime import datetime, timezone

        chosen: dict[str, _Series] = {}  # the series with the best value of each number
        for series in (series for group in self.series.values() for series in group):
            others = [chosen[series.number]] if series.number in chosen else []
            chosen[series.number] = _best_of(series.number, [*others, series])
        bandwidths = [chosen[name] for name in (f"{what}_bandwidth" for what in BANDWIDTHS) if name in chosen]
        if bandwidths:
            chosen["bandwidth"] = _best_of("bandwidth", bandwidths)
        values = {number: best(number, series.values) for number, series in chosen.items()}
        units = [unit for _, unit in (*self.plan.fma, *self.plan.matmul)]
        flops = drop_useless_units({unit: values[unit] for unit in dict.fromkeys(units) if unit in values})
        if not flops and not bandwidths:
            first = next(iter(self.missing.values()))
            raise RuntimeError(f"no peak could be measured on {self.device} ({self.device.name}): {first}") from first
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        fields = {number: value for number, value in values.items() if number not in units}
        numbers = (*flops, *fields)
        return Peaks(
            source="measured",
            flops=flops,
            bandwidth=fields.pop("bandwidth", None),
            **fields,
            when=now,
            versions=versions_of(self.device),
            missing={quantity: str(error) for quantity, error in self.missing.items()},
            busy=busy,
            spread={number: chosen[number].spread for number in numbers},
        )

    @property
    def temporary(self) -> set[str]:
        """The missing probes that may succeed later: those that failed for lack of memory or of the library of matrix
        products, or because another client held CUPTI."""
        products = {f"matmul {dtype}" for dtype, _ in self.plan.matmul}
        short = {what for what, error in self.missing.items() if isinstance(error, MemoryError) or is_taken(error)}
        return short | (products if products <= set(self.missing) else set())

    def _probe(self, what: str, dtype: str, amount: int) -> tuple[float, float]:
        return _core.probe(str(self.device), what, dtype, amount)

    def _sustained(self, what: str, dtype: str, amount: int) -> float:
        """Return the amount per second: the median of the fastest half of the samples."""
        rates = []
        deadline = time.perf_counter() + self.plan.budget
        for taken in range(MAX_SAMPLES):
            if taken >= MIN_SAMPLES and time.perf_counter() >= deadline:
                break
            seconds, done = self._probe(what, dtype, amount)
            if seconds > 0:
                rates.append(done / seconds)
        if not rates:
            raise RuntimeError(f"the clock did not advance in {MAX_SAMPLES} runs of {what} on {self.device}")
        return median(sorted(rates)[len(rates) // 2 :])

    def _bandwidth(self, what: str) -> Iterator[_Series]:
        nbytes = _buffer_bytes(self.device)
        for _ in range(2):
            self._probe(what, "float32", nbytes)
        yield _Series(f"{what}_bandwidth", partial(self._sustained, what, "float32", nbytes))

    def _l2(self) -> Iterator[_Series]:
        # Of an L2 in two partitions, each may hold a copy of the data.
        held = int(self.device.properties.get("l2_bytes") or 0)
        for part in L2_PARTS:
            self._probe("l2", "float32", held // part)
            yield _Series("l2_bandwidth", partial(self._sustained, "l2", "float32", held // part))

    def _fma(self, dtype: str, unit: str) -> Iterator[_Series]:
        iterations = self._grow("fma", dtype, 1 << 12, 1 << 30, 4)
        yield _Series(unit, partial(self._sustained, "fma", dtype, iterations))

    def _matmul(self, dtype: str, unit: str) -> Iterator[_Series]:
        elements = free_bytes(self.device) // 4 // ELEMENT_BYTES[dtype]
        largest = min(self.plan.largest_product, math.isqrt(elements // 3))  # a product needs three square matrices
        size = self._grow("matmul", dtype, 256, largest, 2)
        # The largest product may be slower, because its power consumption lowers the clock.
        for side in sorted({max(size // smaller, 256) for smaller in (4, 2, 1)}):
            yield _Series(unit, partial(self._sustained, "matmul", dtype, side))

    def _grow(self, what: str, dtype: str, amount: int, most: int, factor: int) -> int:
        """Warm up with increasing amounts until one run fills a sample, and return the amount. The first run of each
        amount is ignored, because libraries select and load their kernels in it."""
        self._probe(what, dtype, amount)
        while amount * factor <= most and self._probe(what, dtype, amount)[0] < self.plan.sample:
            amount *= factor
            self._probe(what, dtype, amount)
        return amount

    def _launch(self) -> Iterator[_Series]:
        # The time of one launch between two events includes their gaps; many launches are delayed by the host. Both
        # are upper bounds of the kernel's time, so the smaller one is closer.
        self._probe("empty", "float32", 100)
        for launches in (1, 100):
            yield _Series("launch_ns", partial(self._empty_ns, launches))

    def _empty_ns(self, launches: int) -> float:
        return 1e9 / self._sustained("empty", "float32", launches)

    def _kernel(self) -> Iterator[_Series]:
        yield _Series("kernel_ns", lambda: shortest_kernel(str(self.device)))


def _best_of(number: str, candidates: list[_Series]) -> _Series:
    top = best(number, (best(number, series.values) for series in candidates))
    return next(series for series in candidates if top in series.values)


def free_bytes(device: Device) -> int:
    """Return the bytes of memory that may be used: the free memory of the CPU, or an eighth of a GPU's total memory,
    because querying the driver for its free memory would itself use some."""
    if device.kind == "cuda":
        return int(device.properties["memory_bytes"]) // 8
    free = available_memory()
    return 1024 * MIB if free is None else max(free, MIB)


def _buffer_bytes(device: Device) -> int:
    """Return the size of one buffer in bytes; a copy has two."""
    if device.kind == "cuda":
        desired = LARGEST_BUFFER  # so that the gaps between launches are negligible
    else:
        # Server processors have a last-level cache per group of about eight cores.
        groups = -(-int(device.properties.get("threads", 1)) // 8)
        desired = max(256 * MIB, 4 * groups * int(device.properties.get("cache_bytes", 0)))
    return max(MIB, min(desired, LARGEST_BUFFER, free_bytes(device) // 8) // MIB * MIB)

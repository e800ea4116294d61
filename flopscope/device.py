"""What is here, what its vendor says it can do, and what it can really do.

``devices()`` lists the CPU and the CUDA devices. Each has a ``datasheet`` (the vendor's dense peaks, from the table in
the C core, or None for a device that is not in it) and ``measured`` peaks (from the cache, or None until
``measure_peaks`` has run). Rates are in FLOP/s, bandwidths in bytes/s, 1 GB being 1e9 bytes.

What only some calls need is imported in them: this module is part of ``import flopscope``.
"""

from __future__ import annotations

import importlib
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from .model import Model
from .peaks import Peaks, cache_file, cache_key, cached_peaks, is_number, remembered, versions_of, write_cache
from .progress import progress_bar

__all__ = [
    "Datasheet",
    "Device",
    "Peaks",
    "devices",
    "find_device",
    "measure_peaks",
    "peaks_by_name",
    "peaks_of_models",
]

MIB = 1 << 20
PEAK_SOURCES = ("measured", "datasheet", "none")


class _Core(Protocol):
    """What this module asks of the C binding."""

    def cuda_device_count(self) -> int: ...
    def cuda_device_properties(self, index: int, /) -> dict[str, Any]: ...
    def cpu_properties(self) -> dict[str, Any]: ...
    def default_device(self) -> str: ...
    def datasheet_find(self, name: str, sm_count: int, memory_bytes: float, /) -> dict[str, Any] | None: ...
    def probe(self, device: str, what: str, dtype: str, amount: int, /) -> tuple[float, float]: ...


def _load_core() -> _Core:
    return cast(_Core, importlib.import_module("flopscope._core"))


@dataclass(frozen=True)
class Datasheet:
    """A vendor's numbers for one device. What the vendor does not say is None, or absent from ``flops``."""

    names: tuple[str, ...]
    """As drivers report the device."""
    flops: Mapping[str, float]
    """Dense FLOP/s by compute unit: "fp32", "bf16_tensor" and so on. Never a number with sparsity."""
    bandwidth: float | None
    """Bytes/s of device memory."""
    source: str
    """Document and place in it."""
    sm_count: int | None = None
    clock_mhz: float | None = None
    tensor_clock_mhz: float | None = None
    """Clock of the tensor units' rates; ``clock_mhz`` where the vendor has one clock."""
    l2_bytes: float | None = None

    @classmethod
    def _from_core(cls, row: Mapping[str, Any]) -> Datasheet:
        known = {key: value for key, value in row.items() if is_number(value)}
        return cls(
            names=tuple(row["names"]),
            flops={unit: rate for unit, rate in row["flops"].items() if is_number(rate)},
            bandwidth=known.get("bandwidth"),
            source=row["source"],
            **{key: known.get(key) for key in ("sm_count", "clock_mhz", "tensor_clock_mhz", "l2_bytes")},
        )

    @property
    def peaks(self) -> Peaks:
        """These numbers as peaks; the time of an empty kernel is in no datasheet."""
        return Peaks(source="datasheet", flops=dict(self.flops), bandwidth=self.bandwidth)


@dataclass(frozen=True)
class Device:
    """One device of this machine."""

    kind: Literal["cpu", "cuda"]
    index: int
    name: str
    """As the driver (CPU: the processor) reports it."""
    properties: Mapping[str, Any] = field(compare=False)
    """What the driver says, in bytes and kHz; CPU: name, isa, threads, cache_bytes."""
    datasheet: Datasheet | None = field(compare=False)

    @property
    def measured(self) -> Peaks | None:
        """Peaks measured earlier on this device with these versions, or None. Measures nothing."""
        return cached_peaks(self)

    @property
    def datasheet_peaks(self) -> Peaks | None:
        """The datasheet's numbers as peaks, or None for a device without one."""
        return self.datasheet.peaks if self.datasheet else None

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"

    def __repr__(self) -> str:
        text = f"{str(self)!r}, {self.name!r}"
        for label, peaks in self._known_peaks().items():
            text += f"; {label}: " + ", ".join(" ".join(fact) for fact in _facts(peaks).items())
        return f"Device({text})"

    def _columns(self) -> list[list[str]]:
        """Rows of fact, datasheet, measured, as far as known; a heading first."""
        columns = {label: _facts(peaks) for label, peaks in self._known_peaks().items()}
        rows = [["", *columns]]
        for fact in dict.fromkeys(fact for column in columns.values() for fact in column):
            rows.append([fact, *(column.get(fact, "") for column in columns.values())])
        return rows

    def report(self) -> str:
        """The datasheet beside what was measured, as text."""
        rows = self._columns()
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = [f"{self}: {self.name}"]
        lines += ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        if len(rows[0]) == 1:
            lines[1:] = ["  nothing is known of its peaks yet: flopscope devices --measure"]
        measured = self.measured
        lines += [f"  {probe}: {reason}" for probe, reason in (measured.missing if measured else {}).items()]
        return "\n".join(lines + ([f"  datasheet: {self.datasheet.source}"] if self.datasheet else []))

    def _repr_html_(self) -> str:
        import html

        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._columns()
        )
        source = f"<p>{html.escape(self.datasheet.source)}</p>" if self.datasheet else ""
        return f"<table><caption>{html.escape(f'{self}: {self.name}')}</caption>{body}</table>{source}"

    def _known_peaks(self) -> dict[str, Peaks]:
        peaks = {"datasheet": self.datasheet_peaks, "measured": self.measured}
        return {label: known for label, known in peaks.items() if known is not None}


def devices() -> list[Device]:
    """The CPU, then the CUDA devices in the driver's order; the CPU alone where CUDA does not work."""
    core = _load_core()
    found = [_cpu_device(core)]
    try:
        count = core.cuda_device_count()
    except RuntimeError:
        count = 0
    return found + [_cuda_device(core, index) for index in range(count)]


def measure_peaks(device: Device | str, progress: bool = True, force: bool = False) -> Peaks:
    """Peaks of this very device: from the cache, or measured now (CPU about 4 s, GPU about 2 s) and then cached.

    Each number is sustained, not the best of luck: after warming up it is sampled for a set time, and the result is the
    median of the fastest half of the samples. Buffers are several times the last cache, and never more than a quarter
    of free memory. What could not be measured is absent, with the reason in ``missing``; peaks that lack something for
    want of memory or of a library are kept by this process only.

    :param device: a Device, or "cpu", "cuda", "cuda:1".
    :param progress: show a progress bar where it takes over two seconds, stderr is a terminal and rich is installed.
    :param force: measure again whatever the cache holds.
    :raises ValueError: for a text that names no kind of device, or an index that is not there.
    :raises RuntimeError: when there is no CUDA device, or nothing at all could be measured.
    """
    core = _load_core()
    target = _resolve(core, str(device))  # anew: free memory and the number of threads change
    cached = None if force else cached_peaks(target)
    if cached is not None:
        return cached
    measurement = _Measurement(core, target)
    peaks = measurement.run(progress)
    key = cache_key(target)
    remembered[cache_file(key).name] = peaks
    if measurement.lasts:
        write_cache(key, peaks)
    return peaks


def find_device(name: str | None = None) -> Device:
    """The device called "cpu", "cuda" or "cuda:1"; None: the one where tensors are made by default.

    :raises ValueError: for any other text, or an index that is not there.
    :raises RuntimeError: when CUDA is asked for and does not work, saying why.
    """
    core = _load_core()
    return _resolve(core, core.default_device() if name is None else name)


def peaks_by_name(names: Iterable[str], source: str) -> dict[str, Peaks]:
    """The peaks of these devices by name; a device without any is left out, and one that only other code can use.

    :param source: "measured" (measured now where the cache has none), "datasheet", or "none".
    :raises ValueError: for any other source.
    """
    if source not in PEAK_SOURCES:
        raise ValueError(f'peaks={source!r}: there are "measured", "datasheet" and "none"')
    found = {}
    for name in names if source != "none" else ():
        try:
            device = find_device(name)
        except RuntimeError:  # built without CUDA, flopscope sees what other libraries run
            continue
        peaks = measure_peaks(device) if source == "measured" else device.datasheet_peaks
        if peaks is not None:
            found[name] = peaks
    return found


def peaks_of_models(models: Mapping[str, Model], source: str) -> dict[str, Peaks]:
    """The peaks of devices that need not be here, by what is known of them: {"cuda:0": Model("NVIDIA H200")}.

    :param source: "measured": what was measured on such a device of this machine, else the vendor's; "datasheet";
        "none". A model that no datasheet row has is left out: nothing is guessed.
    :raises ValueError: for any other source.
    """
    if source not in PEAK_SOURCES:
        raise ValueError(f'peaks={source!r}: there are "measured", "datasheet" and "none"')
    core, found = _load_core(), {}
    here = {d.name: d.measured for d in devices() if d.kind == "cuda"} if source == "measured" else {}
    for device, model in models.items() if source != "none" else ():
        row = core.datasheet_find(*model)
        peaks = here.get(model.name) or (None if row is None else Datasheet._from_core(row).peaks)
        if peaks is not None:
            found[device] = peaks
    return found


def _cpu_device(core: _Core) -> Device:
    properties = core.cpu_properties()
    return Device("cpu", 0, properties["name"], properties, datasheet=None)


def _cuda_device(core: _Core, index: int) -> Device:
    properties = core.cuda_device_properties(index)
    row = core.datasheet_find(*Model.of_properties(properties))
    return Device("cuda", index, properties["name"], properties, None if row is None else Datasheet._from_core(row))


def _resolve(core: _Core, device: str) -> Device:
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
    if match is None:
        raise ValueError(f'no device is called {device!r}; devices are "cpu", "cuda" and "cuda:0", "cuda:1", …')
    if device == "cpu":
        return _cpu_device(core)
    index, count = int(match[1] or 0), core.cuda_device_count()
    if index >= count:
        raise ValueError(f"{device!r} is not there: this machine has {count} CUDA device(s), counted from 0")
    return _cuda_device(core, index)


def _facts(peaks: Peaks) -> dict[str, str]:
    """What is shown of peaks, in this order."""
    facts = {}
    if peaks.bandwidth is not None:
        facts["memory"] = f"{peaks.bandwidth / 1e9:,.0f} GB/s"
    for unit, rate in peaks.flops.items():
        scale, prefix = (1e12, "T") if rate >= 1e12 else (1e9, "G")
        facts[unit] = f"{rate / scale:,.4g} {prefix}{'OP/s' if unit.startswith('int') else 'FLOP/s'}"
    if peaks.launch_ns is not None:
        facts["launch"] = f"{peaks.launch_ns:,.0f} ns"
    if peaks.kernel_ns is not None:
        facts["one element"] = f"{peaks.kernel_ns:,.0f} ns"
    return facts


@dataclass(frozen=True)
class _Plan:
    """How long to measure on one kind of device, in seconds, and what."""

    budget: float
    """For the samples of one quantity."""
    sample: float
    """What one sample should take at least: long against the clock, short against the budget."""
    fma: tuple[tuple[str, str], ...]
    matmul: tuple[tuple[str, str], ...]
    """(dtype, compute unit), plain units before tensor units."""
    largest_product: int


PLAIN = (("float64", "fp64"), ("float32", "fp32"))
TENSOR = (("float64", "fp64_tensor"), ("tf32", "tf32_tensor"), ("float16", "fp16_tensor"), ("bfloat16", "bf16_tensor"))

PLANS = {
    "cpu": _Plan(0.26, 0.015, fma=PLAIN, matmul=PLAIN, largest_product=4096),
    "cuda": _Plan(0.08, 0.002, fma=(*PLAIN, ("float16", "fp16")), matmul=(PLAIN[1], *TENSOR), largest_product=16384),
}
# What a tensor unit must be faster than to count: the unit that the product falls back to, as in csrc/device/peaks.c.
PLAIN_OF = {"fp64_tensor": "fp64", "tf32_tensor": "fp32", "fp16_tensor": "fp32", "bf16_tensor": "fp32"}

BANDWIDTHS = ("write", "read", "copy")  # write first: it touches the fresh pages
LEAST_SAMPLES, MOST_SAMPLES = 3, 60
LARGEST_BUFFER = 2048 * MIB
ELEMENT_BYTES = {"float64": 8, "float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2}
# Of what the device or a library cannot do, or has no memory for.
_PROBE_ERRORS = (RuntimeError, MemoryError, ValueError, TypeError)


class _Measurement:
    def __init__(self, core: _Core, device: Device) -> None:
        self.core, self.device, self.plan = core, device, PLANS[device.kind]
        self.flops: dict[str, float] = {}
        self.bandwidths: dict[str, float] = {}
        self.launch_ns: float | None = None
        self.kernel_ns: float | None = None
        self.missing: dict[str, Exception] = {}

    def run(self, progress: bool) -> Peaks:
        from datetime import datetime, timezone

        steps: dict[str, Callable[[], None]] = {what: partial(self._bandwidth, what) for what in BANDWIDTHS}
        steps |= {f"fma {dtype}": partial(self._fma, dtype, unit) for dtype, unit in self.plan.fma}
        steps |= {f"matmul {dtype}": partial(self._matmul, dtype, unit) for dtype, unit in self.plan.matmul}
        steps["empty"] = self._launch
        steps["kernel"] = self._kernel
        long = len(steps) * self.plan.budget > 2  # seconds
        with progress_bar(f"measuring {self.device}", len(steps), progress and long) as advance:
            for quantity, step in steps.items():
                try:
                    step()
                except _PROBE_ERRORS as error:
                    self.missing[quantity] = error
                advance()
        if not self.flops and not self.bandwidths:
            first = next(iter(self.missing.values()))
            raise RuntimeError(f"nothing could be measured on {self.device} ({self.device.name}): {first}") from first
        return Peaks(
            source="measured",
            flops=self.flops,
            bandwidth=max(self.bandwidths.values(), default=None),
            copy_bandwidth=self.bandwidths.get("copy"),
            read_bandwidth=self.bandwidths.get("read"),
            write_bandwidth=self.bandwidths.get("write"),
            launch_ns=self.launch_ns,
            kernel_ns=self.kernel_ns,
            when=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            versions=versions_of(self.device),
            missing={quantity: str(error) for quantity, error in self.missing.items()},
        )

    @property
    def lasts(self) -> bool:
        """Whether what is missing will be missing tomorrow too: neither memory nor the library of products was, and
        nobody else had CUPTI."""
        from .capture import is_taken

        short = any(isinstance(error, MemoryError) or is_taken(error) for error in self.missing.values())
        return not short and not all(f"matmul {dtype}" in self.missing for dtype, _ in self.plan.matmul)

    def _probe(self, what: str, dtype: str, amount: int) -> tuple[float, float]:
        return self.core.probe(str(self.device), what, dtype, amount)

    def _sustained(self, what: str, dtype: str, amount: int) -> float:
        """Amount per second: the median of the fastest half of the samples."""
        rates = []
        deadline = time.perf_counter() + self.plan.budget
        for taken in range(MOST_SAMPLES):
            if taken >= LEAST_SAMPLES and time.perf_counter() >= deadline:
                break
            seconds, done = self._probe(what, dtype, amount)
            if seconds > 0:
                rates.append(done / seconds)
        if not rates:
            raise RuntimeError(f"the clock saw no time pass in {MOST_SAMPLES} runs of {what} on {self.device}")
        fastest = sorted(rates, reverse=True)[: (len(rates) + 1) // 2]
        return (fastest[(len(fastest) - 1) // 2] + fastest[len(fastest) // 2]) / 2

    def _bandwidth(self, what: str) -> None:
        nbytes = _buffer_bytes(self.device)
        for _ in range(2):
            self._probe(what, "float32", nbytes)
        self.bandwidths[what] = self._sustained(what, "float32", nbytes)

    def _fma(self, dtype: str, unit: str) -> None:
        iterations = self._grow("fma", dtype, 1 << 12, 1 << 30, 4)
        self._add_rate(unit, self._sustained("fma", dtype, iterations))

    def _matmul(self, dtype: str, unit: str) -> None:
        elements = free_bytes(self.device) // 4 // ELEMENT_BYTES[dtype]
        largest = min(self.plan.largest_product, math.isqrt(elements // 3))  # of three n by n matrices
        size = self._grow("matmul", dtype, 256, largest, 2)
        for smaller in (4, 2, 1):  # the largest may be slower, at the clock that its power leaves
            self._add_rate(unit, self._sustained("matmul", dtype, max(size // smaller, 256)))

    def _grow(self, what: str, dtype: str, amount: int, most: int, factor: int) -> int:
        """Warm up by running more and more, until one run fills a sample. The first run of each amount does not count:
        libraries choose and load their kernels then."""
        self._probe(what, dtype, amount)
        while amount * factor <= most and self._probe(what, dtype, amount)[0] < self.plan.sample:
            amount *= factor
            self._probe(what, dtype, amount)
        return amount

    def _add_rate(self, unit: str, rate: float) -> None:
        # Without tensor cores of that type the library computes on the plain units, and no faster.
        if rate > max(self.flops.get(known, 0.0) for known in (PLAIN_OF.get(unit, unit), unit)):
            self.flops[unit] = rate

    def _launch(self) -> None:
        # One launch between two events includes their gaps; many are held up by the host. Both are above the kernel's
        # own time, so the smaller is the closer.
        self._probe("empty", "float32", 100)
        self.launch_ns = min(1e9 / self._sustained("empty", "float32", launches) for launches in (1, 100))

    def _kernel(self) -> None:
        from .capture import least_kernel

        self.kernel_ns = least_kernel(str(self.device))


def free_bytes(device: Device) -> int:
    """Memory that may be taken, in bytes: of the CPU's what is free, of a GPU's an eighth of all there is, since asking
    the driver what is free there would take some of it."""
    if device.kind == "cuda":
        return int(device.properties["memory_bytes"]) // 8
    with suppress(OSError):
        match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
        if match:
            return min(int(match[1]) * 1024, _free_in_container())
    return 1024 * MIB


def _free_in_container(folder: str = "/sys/fs/cgroup") -> int:
    """Bytes below the limit of this process's control group; a very large number where it has none (or version 1)."""
    with suppress(OSError, ValueError):
        limit, used = (int(Path(folder, f"memory.{name}").read_text(encoding="ascii")) for name in ("max", "current"))
        return max(limit - used, MIB)
    return 1 << 62


def _buffer_bytes(device: Device) -> int:
    """Bytes of one buffer; a copy has two of them."""
    if device.kind == "cuda":
        wanted = LARGEST_BUFFER  # so that the gaps between launches do not count
    else:
        # Server processors have a last-level cache per group of about eight cores.
        groups = -(-int(device.properties.get("threads", 1)) // 8)
        wanted = max(256 * MIB, 4 * groups * int(device.properties.get("cache_bytes", 0)))
    bounded = min(wanted, LARGEST_BUFFER, free_bytes(device) // 8)
    return max(MIB, bounded // MIB * MIB)

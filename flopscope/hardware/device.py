"""What is here, what its vendor says it can do, and what it can really do.

``devices()`` lists the CPU and the CUDA devices. Each has a ``datasheet`` (the vendor's dense peaks, from the table in
the C core, or None for a device that is not in it) and ``measured`` peaks (from the cache, or None until
``measure_peaks`` has run). Rates are in FLOP/s, bandwidths in bytes/s, 1 GB being 1e9 bytes.

What only some calls need is imported in them: this module is part of ``import flopscope``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from flopscope.hardware.busy import why_busy
from flopscope.hardware.model import Model
from flopscope.hardware.peak_timing import Measurement, free_bytes
from flopscope.hardware.peaks import Peaks, cached_peaks, is_number, keep_peaks, slowdown
from flopscope.support.columns import aligned_lines
from flopscope.support.units import si_text, whole_text

__all__ = [
    "Datasheet",
    "Device",
    "Peaks",
    "devices",
    "find_device",
    "free_bytes",
    "measure_peaks",
    "peaks_by_name",
    "peaks_of_models",
]

PEAK_SOURCES = ("measured", "datasheet", "none")
FAR = 0.1  # by what fraction a reading is slower than the stored one where that is worth a warning


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
        """Rows of fact, datasheet, measured with spread and date, as far as known; a heading first."""
        known = self._known_peaks()
        columns = {label: _facts(peaks) for label, peaks in known.items()}
        if "measured" in known:
            columns |= _conditions(known["measured"])
        rows = [["", *columns]]
        for fact in dict.fromkeys(fact for label in known for fact in columns[label]):
            rows.append([fact, *(column.get(fact, "") for column in columns.values())])
        return rows

    def report(self) -> str:
        """The datasheet beside what was measured, as text."""
        rows = self._columns()
        lines = [f"{self}: {self.name}", *(f"  {line}" for line in aligned_lines(rows, ">"))]
        if len(rows[0]) == 1:
            lines[1:] = ["  nothing is known of its peaks yet: flopscope devices --measure"]
        measured = self.measured
        if measured:
            lines.append(f"  {_last_measured(measured)}")
            lines += [f"  {probe}: {reason}" for probe, reason in measured.missing.items()]
        return "\n".join(lines + ([f"  datasheet: {self.datasheet.source}"] if self.datasheet else []))

    def _repr_html_(self) -> str:
        from flopscope.support.safe import markup

        body = "".join(
            "<tr>" + "".join(f"<td>{markup(cell)}</td>" for cell in row) + "</tr>" for row in self._columns()
        )
        source = f"<p>{markup(self.datasheet.source)}</p>" if self.datasheet else ""
        return f"<table><caption>{markup(f'{self}: {self.name}')}</caption>{body}</table>{source}"

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


def measure_peaks(device: Device | str, progress: bool = True, force: bool = False, reset: bool = False) -> Peaks:
    """Peaks of this very device: from the cache, or measured now (CPU about 5 s, GPU about 3 s) and then cached.

    Each number is sustained, not the best of luck: after warming up it is sampled for a set time, and a reading is the
    median of the fastest half of the samples. A number is the best of three to five such readings, taken in rounds over
    all that is measured. Buffers are several times the last cache, and never more than a quarter of free memory.

    Measuring again keeps, number by number, the better of what is stored and what is read: a busy machine only makes
    readings worse. A UserWarning tells when the machine was busy, or a reading was more than 10 % slower than the
    stored one.

    What could not be measured is absent, with the reason in ``missing``; peaks that lack something for want of memory
    or of a library are kept by this process only.

    :param device: a Device, or "cpu", "cuda", "cuda:1".
    :param progress: show a progress bar where stderr is a terminal and rich is installed.
    :param force: measure again whatever the cache holds.
    :param reset: measure again, and replace what the cache holds also by what is slower.
    :raises ValueError: for a text that names no kind of device, or an index that is not there.
    :raises RuntimeError: when there is no CUDA device, or nothing at all could be measured.
    """
    core = _load_core()
    target = _resolve(core, str(device))  # anew: free memory and the number of threads change
    cached = None if force or reset else cached_peaks(target)
    if cached is not None:
        return cached
    measurement = Measurement(core, target)
    read = measurement.run(progress)
    stored, peaks = keep_peaks(target, read, reset, measurement.temporary)
    doubt = _doubt(target, None if reset else stored, read)
    if doubt:
        from flopscope.support.warn import warn_user

        warn_user(doubt)
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
    numbers = peaks._numbers
    return {_LABELS.get(number, number): _text(number, numbers[number]) for number in _shown(peaks)}


def _shown(peaks: Peaks) -> list[str]:
    """The numbers that are shown, and set verdicts, in this order: not those that ``bandwidth`` is the best of."""
    return [name for name in ("bandwidth", *peaks.flops, "launch_ns", "kernel_ns") if name in peaks._numbers]


_LABELS = {"bandwidth": "memory", "launch_ns": "launch", "kernel_ns": "one element"}


def _text(number: str, value: float) -> str:
    if number == "bandwidth":
        return whole_text(value / 1e9, "GB/s")
    if number in _LABELS:
        return whole_text(value, "ns")
    return si_text(value, "OP/s" if number.startswith("int") else "FLOP/s", prefixes="TG")


def _conditions(peaks: Peaks) -> dict[str, dict[str, str]]:
    """Columns beside measured facts: how far the rounds of each differed, and its day."""
    spread = {_LABELS.get(name, name): f"{100 * value:.1f} %" for name, value in peaks.spread.items()}
    return {"spread": spread, "on": {_LABELS.get(name, name): date[:10] for name, date in peaks.dates.items()}}


def _last_measured(peaks: Peaks) -> str:
    parts = [f"last measured {str(peaks.when)[:16].replace('T', ' ')} UTC"]
    if peaks.load_average is not None:
        parts.append(f"load average {peaks.load_average:.2f}")
    if peaks.busy is not None:
        parts.append(f"{100 * peaks.busy:.0f} % used by other processes")
    return ", ".join(parts)


def _doubt(device: Device, stored: Peaks | None, read: Peaks) -> str | None:
    """Why what was read now may be too slow, and what to do; None where nothing speaks for that."""
    busy = why_busy(device.kind, read.load_average, read.busy)
    slower = [] if stored is None else _slower(stored, read)
    if slower:
        if busy:
            advice = f"{busy[0].upper()}{busy[1:]}: measure again when nothing else runs"
        else:
            advice = (
                f"No other work was seen{_load(read)}: the device may be shared or throttled. If it has become slower "
                "for good, flopscope devices --measure --reset replaces what is stored"
            )
        return f"{device}: slower readings than the stored ones, which stay: {', '.join(slower)}. {advice}"
    return busy and (
        f"{device}: measured on a busy machine: {busy}. The peaks may be too low; measure again when nothing else "
        "runs, by flopscope devices --measure, which keeps the better of each number"
    )


def _slower(stored: Peaks, read: Peaks) -> list[str]:
    """Each number that was read far slower than it is stored."""
    old, new = stored._numbers, read._numbers
    return [
        f"{_LABELS.get(name, name)} {_text(name, new[name])} (stored: {_text(name, old[name])}, "
        f"{stored.dates.get(name, 'undated')[:10]})"
        for name in _shown(stored)
        if name in new and slowdown(name, new[name], old[name]) > FAR
    ]


def _load(peaks: Peaks) -> str:
    return "" if peaks.load_average is None else f" (load average {peaks.load_average:.2f})"

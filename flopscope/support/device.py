"""The devices of this machine, with their datasheet peaks and their measured peaks.

Rates are in FLOP/s, bandwidths in bytes/s; 1 GB is 1e9 bytes.

Since ``import flopscope`` loads this module, imports that only some calls need are local to their functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from flopscope import _core
from flopscope.support.busy import why_busy
from flopscope.support.columns import aligned_lines
from flopscope.support.documents import Document, Field, by_name, columns, record
from flopscope.support.model import Model
from flopscope.support.package import warn_user
from flopscope.support.peak_timing import Measurement
from flopscope.support.peaks import BANDWIDTHS, TIMES, Peaks, cached_peaks, keep_peaks
from flopscope.support.units import si_text, whole_text

PEAK_SOURCES = ("measured", "datasheet", "none")
STORED = "stored"
"""The peaks that are known without measuring: measured ones of what was recorded here, else the datasheet's."""
_PEAKS_WANTED = '"measured", "datasheet", "none", or rates such as "memory=8e11,bf16_tensor=2e14"'
_RATES = by_name("flops", Field("rate", unit="FLOP/s"), "dense, by compute unit")
_ABSENT = "not measured, or not published"
PEAKS_FIELDS = (
    *columns("source$"),
    _RATES,
    *columns("bandwidth copy_bandwidth read_bandwidth write_bandwidth l2_bandwidth", "B/s", _ABSENT),
    *columns("launch_ns kernel_ns", why=_ABSENT),
    *columns("when$ busy:share", why="not measured"),
    *(Field(name, "any") for name in ("versions", "missing", "spread")),
)
_PROPERTIES = "as the driver names them, sizes in bytes, clocks in kHz"
_SHEET = columns("bandwidth:B/s sm_count# clock_mhz tensor_clock_mhz l2_bytes", why="not published")
_NO_SHEET = "there is no datasheet of this device"
DEVICE_FIELDS = (
    *columns("id$ kind$ name$", id='as the option --device takes it: "cpu", "cuda:0"'),
    Field("properties", "any", doc=_PROPERTIES, why="the driver does not report it"),
    record("datasheet", (*columns("names@ source$"), _RATES, *_SHEET), "the vendor's numbers", _NO_SHEET),
    record("measured", PEAKS_FIELDS, "the peaks measured on this machine", "not measured; flopscope devices --measure"),
)
DEVICE = Document("device", "a device of this machine", DEVICE_FIELDS)


@dataclass(frozen=True)
class Datasheet:
    """The vendor's numbers for one device. Unpublished numbers are None, or absent from ``flops``."""

    names: tuple[str, ...]
    """Names that drivers report for the device."""
    flops: Mapping[str, float]
    """Dense FLOP/s by compute unit: "fp32", "bf16_tensor" and so on, never with sparsity."""
    bandwidth: float | None
    """Bytes/s of device memory."""
    source: str
    """Document, and section or table in it."""
    sm_count: int | None = None
    clock_mhz: float | None = None
    tensor_clock_mhz: float | None = None
    """Clock at which the tensor rates hold; equal to ``clock_mhz`` if the vendor publishes only one clock."""
    l2_bytes: float | None = None

    @classmethod
    def of_model(cls, model: Model) -> Datasheet | None:
        """Return the datasheet of a model, or None if the core has no row for it."""
        row = _core.datasheet_find(*model)
        if row is None:
            return None
        flops = {unit: rate for unit, rate in row["flops"].items() if rate is not None}
        numbers = ("sm_count", "clock_mhz", "tensor_clock_mhz", "l2_bytes")
        return cls(tuple(row["names"]), flops, row["bandwidth"], row["source"], *map(row.get, numbers))

    @property
    def peaks(self) -> Peaks:
        """The numbers as Peaks. Datasheets do not contain launch times."""
        return Peaks(source="datasheet", flops=dict(self.flops), bandwidth=self.bandwidth)


@dataclass(frozen=True)
class Device:
    """A device of this machine."""

    kind: Literal["cpu", "cuda"]
    """ "cpu" or "cuda"."""
    index: int
    """Number of the device: N of "cuda:N"; 0 for the CPU."""
    name: str
    """The name reported by the driver, or by the processor for the CPU."""
    properties: Mapping[str, Any] = field(compare=False)
    """The driver's properties, in bytes and kHz. For the CPU: name, isa, threads, cache_bytes."""
    datasheet: Datasheet | None = field(compare=False)
    """The vendor's numbers: ``flops`` (dense FLOP/s by compute unit), ``bandwidth`` (bytes/s of the memory), ``source``
    and, where published, ``sm_count``, ``clock_mhz``, ``tensor_clock_mhz``, ``l2_bytes``. None if there is no row."""

    @property
    def measured(self) -> Peaks | None:
        """The cached peaks of this device and these versions, or None. This property does not measure."""
        return cached_peaks(self)

    @property
    def datasheet_peaks(self) -> Peaks | None:
        """The datasheet's numbers as Peaks, or None if the device has no datasheet."""
        return self.datasheet.peaks if self.datasheet else None

    def to_dict(self) -> dict[str, Any]:
        """Return the properties and peaks as a document for JSON: see docs/json.md."""
        return DEVICE.of(self.content())

    def content(self) -> dict[str, Any]:
        """Return what the document is made of."""
        known = {"datasheet": self.datasheet, "measured": self.measured}
        peaks = {name: one and asdict(one) for name, one in known.items()}
        return {"id": str(self), "kind": self.kind, "name": self.name, "properties": dict(self.properties), **peaks}

    def __str__(self) -> str:
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"

    def __repr__(self) -> str:
        text = f"{str(self)!r}, {self.name!r}"
        for label, peaks in self.known_peaks().items():
            text += f"; {label}: " + ", ".join(" ".join(item) for item in _formatted(peaks).items())
        return f"Device({text})"

    def report(self) -> str:
        """Return the datasheet peaks and the measured peaks side by side, as text."""
        known, measured = self.known_peaks(), self.measured
        columns = {source: _formatted(peaks) for source, peaks in known.items()}
        if measured:
            spread = measured.spread
            columns["spread"] = {_LABELS.get(name, name): f"{100 * value:.1f} %" for name, value in spread.items()}
        rows = [["", *columns]]
        for label in dict.fromkeys(label for source in known for label in columns[source]):
            rows.append([label, *(column.get(label, "") for column in columns.values())])
        lines = [f"{self}: {self.name}", *(f"  {line}" for line in aligned_lines(rows, ">"))]
        if not columns:
            lines[1:] = ["  its peaks are unknown: run flopscope devices --measure"]
        if measured:
            used = "" if measured.busy is None else f", {100 * measured.busy:.0f} % used by other processes"
            lines.append(f"  last measured {str(measured.when)[:16].replace('T', ' ')} UTC{used}")
            lines += [f"  {probe}: {reason}" for probe, reason in measured.missing.items()]
        return "\n".join(lines + ([f"  datasheet: {self.datasheet.source}"] if self.datasheet else []))

    def known_peaks(self) -> dict[str, Peaks]:
        """Return the peaks by source, "datasheet" and "measured", as far as they are known. Never measures."""
        peaks = {"datasheet": self.datasheet_peaks, "measured": self.measured}
        return {label: known for label, known in peaks.items() if known is not None}


def devices() -> list[Device]:
    """Return the CPU and then the CUDA devices in the driver's order; only the CPU if CUDA is unavailable."""
    try:
        count = _core.cuda_device_count()
    except RuntimeError:
        count = 0
    return [_cpu_device(), *map(_cuda_device, range(count))]


def measure_peaks(device: Device | str, progress: bool = True, force: bool = False, reset: bool = False) -> Peaks:
    """Return the measured peaks of a device, from the cache or by measuring (about 5 s on a CPU, 3 s on a GPU).

    The peaks are sustained rates, not single best samples: after a warm-up, each number is sampled for a fixed time,
    and a reading is the median of the fastest half of the samples. A number is the best of three to five readings,
    taken in rounds over all numbers. Buffers are several times the last-level cache, at most a quarter of free memory.

    Of a repeated measurement the better value of each number is kept. A UserWarning reports that the machine was busy.
    Numbers that could not be measured are absent, with the reason in ``missing``.

    force: measure even if the cache has peaks. reset: and replace those even if the new ones are slower.

    The result has ``flops`` (FLOP/s by compute unit), ``bandwidth`` (bytes/s), ``launch_ns`` and ``kernel_ns`` (an
    empty launch, an op of one element), ``spread`` and ``missing``. Raises ValueError for an unknown device
    name or an index out of range, RuntimeError if there is no CUDA device or nothing could be measured.
    """
    target = find_device(str(device))  # a new Device: free memory and the number of threads change
    cached = None if force or reset else cached_peaks(target)
    if cached is not None:
        return cached
    measurement = Measurement(target)
    read = measurement.run(progress)
    peaks = keep_peaks(target, read, reset, measurement.temporary)
    busy = why_busy(read.busy)
    if busy:
        warn_user(
            f"{target}: measured on a busy machine: {busy}. The peaks may be too low; when the machine is idle, "
            "measure again by flopscope devices --measure, which keeps the better value of each number"
        )
    return peaks


def find_device(name: str | None = None) -> Device:
    """Return the device called "cpu", "cuda" or "cuda:1"; for None, the default device of new tensors.

    Raise ValueError for any other name, or an index out of range; RuntimeError, with the reason, without CUDA.
    """
    name = _core.default_device() if name is None else name
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if match is None:
        raise ValueError(f'no device is called {name!r}; use "cpu", "cuda" or "cuda:0", "cuda:1", …')
    if name == "cpu":
        return _cpu_device()
    index, count = int(match[1] or 0), _core.cuda_device_count()
    if index >= count:
        raise ValueError(f"{name!r} does not exist: this machine has {count} CUDA device(s), numbered from 0")
    return _cuda_device(index)


def devices_to_rate(ran: set[str]) -> list[str]:
    """Return the devices whose peaks are needed. The CPU's are not measured unless all known work is its own."""
    others = sorted(ran - {"cpu"})
    worked = ("cpu" in ran or not ran) and (ran == {"cpu"} or find_device("cpu").measured is not None)
    return [*others, "cpu"] if worked else others


def peaks_by_name(names: Iterable[str], source: str) -> dict[str, Peaks]:
    """Return the peaks of devices by name, as far as they are known; measured ones are measured now if none are stored.
    Raise ValueError for a source that is none of PEAK_SOURCES."""
    if source not in PEAK_SOURCES:
        raise ValueError(f"peaks must be {_PEAKS_WANTED}, not {source!r}")
    result = {}
    for name in names if source != "none" else ():
        try:
            device = find_device(name)
        except RuntimeError:  # built without CUDA, flopscope still records the work of other libraries
            continue
        stored = device.measured if device.kind == "cpu" else device.datasheet_peaks
        peaks = measure_peaks(device) if source == "measured" else stored
        if peaks is not None:
            result[name] = peaks
    return result


def peaks_of_models(models: Mapping[str, Model], source: str) -> dict[str, Peaks]:
    """Return the peaks of devices, which need not be present, by their models: {"cuda:0": Model("NVIDIA H200")}.
    Measured ones are those of such a device of this machine. Models without a datasheet row are omitted.
    """
    if source not in PEAK_SOURCES:
        raise ValueError(f"peaks must be {_PEAKS_WANTED}, not {source!r}")
    known = {}
    here = {d.name: d.measured for d in devices() if d.kind == "cuda"} if source == "measured" else {}
    for model in {*models.values()} if source != "none" else ():  # the GPUs of a machine are often alike
        datasheet = Datasheet.of_model(model)
        if peaks := here.get(model.name) or (datasheet and datasheet.peaks):
            known[model] = peaks
    return {device: known[model] for device, model in models.items() if model in known}


def known_peaks(
    device: str, model: str, sources: Iterable[str], rated: Mapping[str, Peaks] | None = None
) -> dict[str, Peaks]:
    """Return the known peaks by source of a device, which may be one of another machine. Never measures.

    model: its name; "" if it is unknown. rated: the peaks, by device, that the rows of a table are compared with: no
    others are known of its CPU. None: the rows are of this machine's CPU if its model is unknown or the same.
    """
    known: dict[str, Peaks | None]
    if device == "cpu" and rated is not None:
        known = {peaks.source: peaks for name, peaks in rated.items() if name == device}
    elif device == "cpu":
        here = find_device("cpu")
        known = {"measured": here.measured} if model in ("", here.name) else {}
    else:
        known = {source: peaks_of_models({device: Model(model)}, source).get(device) for source in sources if model}
    by_source = {source: known.get(source) for source in sources}
    return {source: one for source, one in by_source.items() if one is not None and one.source == source}


def _cpu_device() -> Device:
    properties = _core.cpu_properties()
    return Device("cpu", 0, properties["name"], properties, datasheet=None)


def _cuda_device(index: int) -> Device:
    properties = _core.cuda_device_properties(index)
    datasheet = Datasheet.of_model(Model.of_properties(properties))
    return Device("cuda", index, properties["name"], properties, datasheet)


def _formatted(peaks: Peaks) -> dict[str, str]:
    """Return the numbers of peaks as text by label, in order. Single bandwidths are left out."""
    names, numbers = ("bandwidth", "l2_bandwidth", *peaks.flops, "launch_ns", "kernel_ns"), peaks._numbers
    return {_LABELS.get(name, name): _text(name, numbers[name]) for name in names if name in numbers}


_LABELS = {"bandwidth": "memory", "l2_bandwidth": "L2", "launch_ns": "launch", "kernel_ns": "one element"}


def _text(number: str, value: float) -> str:
    if number.endswith("bandwidth"):
        return whole_text(value / 1e9, "GB/s")
    if number in _LABELS:
        return whole_text(value, "ns")
    return si_text(value, "OP/s" if number.startswith("int") else "FLOP/s", prefixes="TG")


# The CPU on which a program ran, as its trace describes it ------------------------------------------------------------

# A CPU has no datasheet: its peaks are those that its trace carries or, if it is the CPU of this machine, those that
# are stored or measured here. The work of any other CPU is not rated.

CPU_MEMBER = "cpuProperties"
"""Member of a trace's head: name, isa, threads and cache_bytes of the CPU, and its measured "peaks" if known."""
_FACTS: Mapping[str, type] = {"name": str, "isa": str, "threads": int, "cache_bytes": int}
_WRITTEN = ("source", "flops", *BANDWIDTHS, *TIMES, "when", "versions")
_NAMED = ("name", "threads")  # a description without these is none


@dataclass(frozen=True)
class CPU:
    """A CPU: what it is, and its measured peaks, where they are known."""

    facts: Mapping[str, Any]
    """Some of "name", "isa", "threads" (of ops) and "cache_bytes"; always the name and the threads."""
    peaks: Peaks | None = None

    @classmethod
    def here(cls) -> CPU:
        """Return the CPU of this machine, with its stored peaks. Nothing is measured."""
        device = find_device("cpu")
        return cls({name: device.properties[name] for name in _FACTS}, device.measured)

    @classmethod
    def of_head(cls, head: Mapping[str, Any]) -> CPU | None:
        """Return the CPU that the head of a trace (untrusted) describes, or None.

        Raise ValueError for peaks that are none.
        """
        content = head.get(CPU_MEMBER)
        if not isinstance(content, dict):
            return None
        facts = {name: content[name] for name, kind in _FACTS.items() if type(content.get(name)) is kind}
        if any(name not in facts for name in _NAMED):
            return None
        return cls(facts, None if content.get("peaks") is None else Peaks._of_measured(content["peaks"]))

    def to_head(self) -> dict[str, Any]:
        """Return the member of a trace's head, of values that JSON can hold."""
        if self.peaks is None:
            return dict(self.facts)
        numbers = {name: getattr(self.peaks, name) for name in _WRITTEN}
        return {**self.facts, "peaks": {name: value for name, value in numbers.items() if value is not None}}

    @property
    def name(self) -> str:
        """Its model, as the system reports it."""
        return str(self.facts["name"])

    def _is_like(self, other: CPU) -> bool:
        """Return whether the other may be this CPU, with as many threads."""
        return all(other.facts.get(name, value) == value for name, value in self.facts.items())

    def __str__(self) -> str:
        count = self.facts["threads"]
        return f"{self.name}, {count} thread{'s' * (count != 1)}"


def peaks_of_cpu(cpu: CPU | None, source: str) -> Peaks | None:
    """Return the measured peaks of the CPU of a trace; None if they are unknown. "datasheet" measures nothing.

    cpu: what the trace says of it; None if nothing. Then only "measured" rates its work, by this machine.
    """
    if source == "none":
        return None
    if cpu is not None and cpu.peaks is not None:
        return cpu.peaks
    if cpu is None:
        return measure_peaks("cpu") if source == "measured" else None
    here = CPU.here()
    if not cpu._is_like(here):
        return None
    return measure_peaks("cpu") if source == "measured" else here.peaks


def why_cpu_unknown(cpu: CPU | None) -> str:
    """Return why the peaks of the CPU of a trace are unknown without measuring, and what to do: a clause."""
    if cpu is None:
        return (
            'the trace does not name its CPU; --peaks measured (peaks="measured") rates it by the CPU of this machine'
        )
    here = CPU.here()
    if cpu._is_like(here):
        return (
            "they were never measured on this machine: run flopscope devices --measure once, which takes about 5 s, or "
            'pass peaks="measured"'
        )
    return (
        f"the trace is of another CPU ({cpu}; here: {here}) and carries no peaks; run flopscope devices "
        "--measure there before it is recorded, or state them by --peaks memory=…,fp32=… in bytes/s and FLOP/s"
    )

"""The peaks of a device, and the cache of measured peaks: this process, and JSON files in the user's cache folder."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flopscope import _core
from flopscope.support.files import read_json, write_json
from flopscope.support.package import VERSION, warn_user
from flopscope.support.safe import printable, shown
from flopscope.support.suggest import did_you_mean

if TYPE_CHECKING:
    from flopscope.support.device import Device

MAX_NUMBER = 1e18  # FLOP/s, bytes/s or ns; no device reaches it
CACHE_FORMAT = 7  # of the JSON files; to be incremented when the measured numbers change
BANDWIDTHS = ("bandwidth", "copy_bandwidth", "read_bandwidth", "write_bandwidth", "l2_bandwidth")
TIMES = ("launch_ns", "kernel_ns")  # lower is better


def is_number(value: object) -> bool:
    """Return whether the value is a plausible number for a device."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -MAX_NUMBER <= value <= MAX_NUMBER


@dataclass(frozen=True)
class Peaks:
    """The limits of one device, to which work is compared. Unknown limits are None, or absent from ``flops``."""

    source: Literal["measured", "datasheet", "stated"]
    flops: Mapping[str, float]
    """Dense FLOP/s by compute unit. A measured rate is the better of a chain of multiply-adds and a matrix product. A
    tensor unit is absent if its products were no faster than those of the plain units."""
    bandwidth: float | None
    """Bytes/s of device memory: the best of copy, read and write, or the datasheet's number."""
    copy_bandwidth: float | None = None
    """Bytes/s of a copy, counting both reads and writes."""
    read_bandwidth: float | None = None
    write_bandwidth: float | None = None
    l2_bandwidth: float | None = None
    """Bytes/s that all multiprocessors read from the L2 cache. Measured on GPUs only; datasheets do not have it."""
    launch_ns: float | None = None
    """Time of an empty kernel between two CUDA events, in ns. For the CPU: time of an empty call."""
    kernel_ns: float | None = None
    """Time of the shortest kernel, which reads and writes one element, by CUPTI, in ns. For the CPU: time of the
    shortest op, as profiles record it."""
    when: str | None = None
    """Time of the last measurement: ISO 8601, UTC. Some numbers may be from earlier ones."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of "flopscope", and for CUDA of "driver" and "runtime", at the measurement."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Reasons of failed probes by name: {"matmul bfloat16": "…"}."""
    busy: float | None = None
    """Share of a CPU, 0 to 1, that other processes used during the last measurement."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """By number ("fp32", "bandwidth", "launch_ns"): the fraction by which the worst round of its probe was slower than
    the best round, whose value is the number."""

    @property
    def _numbers(self) -> dict[str, float]:
        """The known numbers by name: a compute unit or a field."""
        fields = {name: getattr(self, name) for name in (*BANDWIDTHS, *TIMES)}
        return {**self.flops, **{name: value for name, value in fields.items() if value is not None}}

    def for_core(self, measured: Peaks | None = None) -> dict[str, Any]:
        """Return the peaks in the format of Profiler.table().

        ``measured``: the device's measured peaks, for the launch times and the bandwidth of the L2, which datasheet
        peaks do not contain.
        """
        more = self if measured is None else measured
        l2 = self.l2_bandwidth if self.source == "stated" else more.l2_bandwidth
        rates = {"flops": self.flops, "bandwidth": self.bandwidth, "l2_bandwidth": l2}
        return rates | {name: getattr(more, name) for name in TIMES}

    def bandwidth_of(self, read: float, written: float) -> float | None:
        """Return the bytes/s at which so many bytes can be read and written: in the shorter of the times of both apart,
        and of a copy and what is left, each at its measured rate; ``bandwidth`` where one of these is unknown."""
        copy, reads, writes = self.copy_bandwidth, self.read_bandwidth, self.write_bandwidth
        if not (copy and reads and writes and read + written > 0):
            return self.bandwidth
        parts = ((both, read - both, written - both) for both in (0.0, min(read, written)))
        return (read + written) / min(2 * both / copy + one / reads + other / writes for both, one, other in parts)

    @classmethod
    def _of_measured(cls, fields: Any) -> Peaks:
        """Return measured peaks from their fields in a file. ValueError for what flopscope cannot have written."""
        try:
            peaks = cls(**{name: value for name, value in fields.items() if name not in _FORMER})
            valid = all(is_number(number) and number > 0 for number in peaks._numbers.values())
            conditions = [*peaks.spread.values(), peaks.busy]
            valid = valid and all(value is None or (is_number(value) and value >= 0) for value in conditions)
            valid = valid and isinstance(peaks.when, str)
        except (TypeError, KeyError, AttributeError) as problem:
            raise ValueError(f"{type(problem).__name__}: {problem}") from None
        if not valid or peaks.source != "measured":
            raise ValueError("it contains invalid numbers")
        return peaks


_FORMER = ("dates", "load_average")
"""Fields of traces of earlier versions."""
MEMORY = "memory"
"""The name of the memory's bandwidth among rates."""
MOST_RATE = 1e30
"""FLOP/s or bytes/s that may be stated, of 1 at least: times of other ones would not fit 64 bits."""


def checked_rates(rates: Mapping[str, object]) -> dict[str, float]:
    """Return rates by name: FLOP/s of compute units, bytes/s of MEMORY. ValueError for an unknown name or no rate."""
    known = (MEMORY, *_core.compute_units)
    for name, rate in rates.items():
        if name not in known:
            raise ValueError(f"there is no peak {name!r}{did_you_mean(name, known)}; the peaks are {', '.join(known)}")
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < math.inf:
            raise ValueError(f"the peak of {name} must be a positive number of FLOP/s or bytes/s, not {shown(rate)}")
        if not 1 <= rate <= MOST_RATE:
            raise ValueError(f"the peak of {name} must be from 1 to {MOST_RATE:g} FLOP/s or bytes/s, not {shown(rate)}")
    return {name: float(rate) for name, rate in rates.items() if isinstance(rate, (int, float))}


def stated_peaks(source: str) -> Peaks | None:
    """Return the peaks that a text states, such as "memory=8e11,bf16_tensor=2e14"; None for the name of a source.

    Raise ValueError for an unknown name or a rate that is none.
    """
    if not isinstance(source, str) or "=" not in source:
        return None
    rates: dict[str, object] = {}
    for part in source.split(","):
        name, _, rate = (text.strip() for text in part.partition("="))
        try:
            rates[name] = float(rate)
        except ValueError:
            rates[name] = rate
    flops = checked_rates(rates)
    return Peaks(source="stated", bandwidth=flops.pop(MEMORY, None), flops=flops)


def best(number: str, values: Iterable[float]) -> float:
    """Return the best value of a number: the lowest time or the highest rate."""
    return min(values) if number in TIMES else max(values)


def slowdown(number: str, value: float, reference: float) -> float:
    """Return the fraction by which a value of a number is slower than the reference; negative if it is faster."""
    return (value - reference if number in TIMES else reference - value) / reference


def drop_useless_units(flops: Mapping[str, float]) -> dict[str, float]:
    """Return the rates without tensor units that are no faster than plain units, which libraries fall back to."""
    plain = _core.fallback_units
    return {unit: rate for unit, rate in flops.items() if rate > flops.get(plain.get(unit, ""), 0.0)}


def combine(stored: Peaks, new: Peaks) -> Peaks:
    """Combine two measurements: the better value of each number, with its spread; the rest from ``new``.

    A probe is missing if it failed in both; its reason is that of ``new``.
    """
    old, read = stored._numbers, new._numbers
    keeps = {name for name in old if name not in read or slowdown(name, read[name], old[name]) >= 0}
    numbers = {**read, **{name: old[name] for name in keeps}}
    flops = drop_useless_units({unit: numbers[unit] for unit in (*new.flops, *stored.flops)})
    fields = {name: numbers.get(name) for name in (*BANDWIDTHS, *TIMES)}
    source = {name: stored if name in keeps else new for name in (*flops, *fields)}
    changed: dict[str, Any] = {
        "flops": flops,
        **fields,
        "missing": {probe: why for probe, why in new.missing.items() if probe in stored.missing},
        "spread": {name: peaks.spread[name] for name, peaks in source.items() if name in peaks.spread},
    }
    return replace(new, **changed)


# Peaks measured by this process, by the name of their cache file; the only copy if the file cannot be written.
remembered: dict[str, Peaks] = {}


def versions_of(device: Device) -> dict[str, str]:
    versions = {"flopscope": VERSION}
    for label in ("driver", "runtime"):
        if f"{label}_version" in device.properties:
            versions[label] = str(device.properties[f"{label}_version"])
    return versions


def cache_key(device: Device) -> dict[str, Any]:
    """Return everything that measured peaks depend on: the device, the versions and the number of threads."""
    return {
        "name": device.name,
        "unit": str(device.properties.get("uuid") or os.uname().nodename),
        "threads": device.properties.get("threads"),
        "isa": device.properties.get("isa"),
        "versions": versions_of(device),
    }


def cache_folder() -> Path:
    from platformdirs import user_cache_dir

    return Path(os.environ.get("FLOPSCOPE_CACHE_DIR") or user_cache_dir("flopscope"))


def cache_file(key: Mapping[str, Any]) -> Path:
    import hashlib
    import json

    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    slug = re.sub(r"[^a-z0-9]+", "-", str(key["name"]).lower()).strip("-")[:48]
    return cache_folder() / f"peaks-{slug}-{digest}.json"


def cached_peaks(device: Device) -> Peaks | None:
    """Return the peaks measured by this process or an earlier one; None if there are none or the file is invalid."""
    key = cache_key(device)
    return remembered.get(cache_file(key).name) or _read_cache(key)


def keep_peaks(device: Device, new: Peaks, reset: bool, temporary: Collection[str]) -> Peaks:
    """Combine new peaks with the cached ones, or replace those if ``reset``, and return and cache the result.

    The file is read again, so that a better number of another process is not lost. If a probe listed in ``temporary``,
    which may succeed later, is missing, the result is cached in this process only.
    """
    key = cache_key(device)
    name = cache_file(key).name
    stored = _read_cache(key) or remembered.get(name)
    peaks = new if stored is None or reset else combine(stored, new)
    remembered[name] = peaks
    if not set(temporary) & set(peaks.missing):
        _write_cache(key, peaks)
    return peaks


def _read_cache(key: Mapping[str, Any]) -> Peaks | None:
    """Return the peaks measured by an earlier process, or None. Warn about a file with invalid content, and about a
    symbolic link, which the next measurement replaces: whoever can write to the folder may have put it there."""
    file = cache_file(key)
    try:
        if file.is_symlink():
            raise ValueError("it is a symbolic link")
        content = read_json(file)
        if not isinstance(content, dict) or not {"format", "key", "peaks"} <= content.keys():
            raise ValueError("it is not a file of peaks")
        if content["format"] == CACHE_FORMAT and content["key"] == dict(key):
            return Peaks._of_measured(content["peaks"])
    except ValueError as problem:
        warn_user(printable(f"the measured peaks in {file} are ignored: {problem}"))
    except OSError:  # usually because nothing was measured yet
        pass
    return None


def _write_cache(key: Mapping[str, Any], peaks: Peaks) -> None:
    """Write peaks to the cache file for later processes. Warn if that is not possible, as in a folder of another user.
    No link is followed, so that nothing but the cache file is written."""
    file = cache_file(key)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"format": CACHE_FORMAT, "key": dict(key), "peaks": asdict(peaks)}, follow=False)
    except OSError as problem:
        why = f"{problem}; set FLOPSCOPE_CACHE_DIR to a folder of your own"
        warn_user(printable(f"the measured peaks are kept in this process only: {why}"))

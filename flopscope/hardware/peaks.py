"""The peaks of a device, and where measured ones are kept: this process, and JSON files in the user's cache folder."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flopscope import _core
from flopscope.support.files import read_json, write_json

if TYPE_CHECKING:
    from flopscope.hardware.device import Device

__all__ = ["Peaks"]

MOST = 1e18  # FLOP/s, bytes/s or ns that no device reaches
CACHE_FORMAT = 4  # of the JSON files; raise it when what is measured changes
BANDWIDTHS = ("bandwidth", "copy_bandwidth", "read_bandwidth", "write_bandwidth")
TIMES = ("launch_ns", "kernel_ns")  # the lower the better


def is_number(value: object) -> bool:
    """Whether it is a number that a device might have."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -MOST <= value <= MOST


@dataclass(frozen=True)
class Peaks:
    """The limits of one device that work is held against. What is unknown is None, or absent from ``flops``."""

    source: Literal["measured", "datasheet"]
    flops: Mapping[str, float]
    """FLOP/s by compute unit, dense. Measured: the better of a chain of multiply-adds and a matrix product. A tensor
    unit is absent where its products were no faster than the plain units: there is none, or it does not help."""
    bandwidth: float | None
    """Bytes/s of device memory: the best of copy, read and write, or the vendor's number."""
    copy_bandwidth: float | None = None
    """Bytes read and written per second."""
    read_bandwidth: float | None = None
    write_bandwidth: float | None = None
    launch_ns: float | None = None
    """Time of an empty kernel between two CUDA events (CPU: time of an empty call), in ns."""
    kernel_ns: float | None = None
    """Time of the least kernel, by CUPTI (CPU: of the least op, as profiles record it): one element read and written,
    in ns."""
    when: str | None = None
    """When it was last measured: ISO 8601, UTC. That measurement need not have given all the numbers: see ``dates``."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of "flopscope" that measured, and on CUDA of "driver" and "runtime"."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why a probe gave nothing, by its name: {"matmul bfloat16": "…"}."""
    load_average: float | None = None
    """Processes that ran or waited to, on average over the minute before the last measurement."""
    busy: float | None = None
    """Share of the device, 0 to 1, that other processes used: of the CPU during the last measurement, of a GPU just
    before it, by NVML."""
    spread: Mapping[str, float] = field(default_factory=dict)
    """By number ("fp32", "bandwidth", "launch_ns"): by what fraction the worst round of its probe was slower than the
    best, which is the number."""
    dates: Mapping[str, str] = field(default_factory=dict)
    """By number: when it was read, ISO 8601, UTC. Later measurements that read no better left it as it was."""

    @property
    def _numbers(self) -> dict[str, float]:
        """All that is known, by name: a compute unit's, or a field's."""
        fields = {name: getattr(self, name) for name in (*BANDWIDTHS, *TIMES)}
        return {**self.flops, **{name: value for name, value in fields.items() if value is not None}}

    def _for_core(self, measured: Peaks | None = None) -> dict[str, Any]:
        """As Profiler.table() takes the peaks of a device.

        measured: of this device, where these are its datasheet's, which does not say what a launch takes.
        """
        times = self if measured is None else measured
        return {"flops": self.flops, "bandwidth": self.bandwidth, **{name: getattr(times, name) for name in TIMES}}

    @classmethod
    def _from_json(cls, content: Any, key: Mapping[str, Any]) -> Peaks | None:
        """The peaks that the parsed content of a cache file holds; None where they are another key's or format's.

        ValueError for content that no version of flopscope wrote.
        """
        try:
            if content["format"] != CACHE_FORMAT or content["key"] != dict(key):
                return None
            peaks = cls(**content["peaks"])
            whole = all(is_number(number) and number > 0 for number in peaks._numbers.values())
            conditions = [*peaks.spread.values(), peaks.load_average, peaks.busy]
            whole = whole and all(value is None or (is_number(value) and value >= 0) for value in conditions)
            whole = whole and all(isinstance(date, str) for date in (peaks.when, *peaks.dates.values()))
        except (TypeError, KeyError, AttributeError) as problem:
            raise ValueError(f"{type(problem).__name__}: {problem}") from None
        if not whole or peaks.source != "measured":
            raise ValueError("it holds numbers that no measurement gives")
        return peaks


def best(number: str, values: Iterable[float]) -> float:
    """The fastest of the values of a number: the lowest time, the highest rate."""
    return min(values) if number in TIMES else max(values)


def slowdown(number: str, value: float, reference: float) -> float:
    """By what fraction of the reference a value of a number is slower than it; negative where it is faster."""
    return (value - reference if number in TIMES else reference - value) / reference


def drop_useless_units(flops: Mapping[str, float]) -> dict[str, float]:
    """Without the tensor units that are no faster than the plain ones: a library without them computes on those."""
    plain = _core.fallback_units
    return {unit: rate for unit, rate in flops.items() if rate > flops.get(plain.get(unit, ""), 0.0)}


def combine(stored: Peaks, new: Peaks) -> Peaks:
    """The better of the two, number by number, each with its date and spread. The rest is the new one's.

    What neither could measure is missing, as the new one tells.
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
        "dates": {name: peaks.dates[name] for name, peaks in source.items() if name in peaks.dates},
    }
    return replace(new, **changed)


# What this process has measured, by the name of its cache file: all there is where no file can be written.
remembered: dict[str, Peaks] = {}


def versions_of(device: Device) -> dict[str, str]:
    from flopscope.support.package import VERSION

    versions = {"flopscope": VERSION}
    for label in ("driver", "runtime"):
        if f"{label}_version" in device.properties:
            versions[label] = str(device.properties[f"{label}_version"])
    return versions


def cache_key(device: Device) -> dict[str, Any]:
    """All that measured peaks hang on: the very device, who measures, and with how many threads."""
    import platform

    return {
        "name": device.name,
        "unit": str(device.properties.get("uuid") or platform.node()),
        "threads": device.properties.get("threads"),
        "isa": device.properties.get("isa"),
        "versions": versions_of(device),
    }


def cache_folder() -> Path:
    override = os.environ.get("FLOPSCOPE_CACHE_DIR")
    if override:
        return Path(override)
    with suppress(ImportError):
        from platformdirs import user_cache_dir

        return Path(user_cache_dir("flopscope"))
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flopscope"


def cache_file(key: Mapping[str, Any]) -> Path:
    import hashlib
    import json

    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    slug = re.sub(r"[^a-z0-9]+", "-", str(key["name"]).lower()).strip("-")[:48]
    return cache_folder() / f"peaks-{slug}-{digest}.json"


def cached_peaks(device: Device) -> Peaks | None:
    """What this process or an earlier one measured; a file that cannot be read or is not whole counts as none."""
    key = cache_key(device)
    return remembered.get(cache_file(key).name) or _read_cache(key)


def keep_peaks(device: Device, new: Peaks, reset: bool, temporary: Collection[str]) -> tuple[Peaks | None, Peaks]:
    """Combine new peaks with those that are kept, or with ``reset`` replace those, and keep the result: the kept before
    and after.

    The file is read again, under a lock, so that a better number of another process is not lost. What lacks a probe of
    ``temporary``, which may work another time, is kept by this process only.
    """
    key = cache_key(device)
    name = cache_file(key).name
    with _locked(cache_folder(), create=not temporary):
        stored = _read_cache(key) or remembered.get(name)
        peaks = new if stored is None or reset else combine(stored, new)
        remembered[name] = peaks
        if not set(temporary) & set(peaks.missing):
            _write_cache(key, peaks)
    return stored, peaks


def _read_cache(key: Mapping[str, Any]) -> Peaks | None:
    """What an earlier process measured. A file with any other content is reported, and counts as none."""
    file = cache_file(key)
    try:
        return Peaks._from_json(read_json(file), key)
    except ValueError as problem:
        warnings.warn(f"the measured peaks in {file} are ignored: {problem}", UserWarning, stacklevel=2)
    except OSError:  # most often: nothing was measured yet
        pass
    return None


@contextmanager
def _locked(folder: Path, create: bool) -> Iterator[None]:
    """Keep other processes out, as far as the file system can lock a folder."""
    with ExitStack() as stack:
        with suppress(OSError, ImportError):
            from flopscope.support.lock import locked

            if create:
                folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            stack.enter_context(locked(handle))
        yield


def _write_cache(key: Mapping[str, Any], peaks: Peaks) -> None:
    """Keep peaks for later processes. A folder that cannot be written is no error."""
    file = cache_file(key)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"format": CACHE_FORMAT, "key": dict(key), "peaks": asdict(peaks)})

"""The peaks of a device, and where measured ones are kept: this process, and JSON files in the user's cache folder."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Peaks"]

CACHE_FORMAT = 3  # of the JSON files; raise it when what is measured changes


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


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
    """When it was measured: ISO 8601, UTC."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of "flopscope" that measured, and on CUDA of "driver" and "runtime"."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Why a probe gave nothing, by its name: {"matmul bfloat16": "…"}."""

    def _for_core(self) -> Mapping[str, Any]:
        """As Profiler.table() takes the peaks of a device."""
        return {name: getattr(self, name) for name in ("flops", "bandwidth", "launch_ns", "kernel_ns")}

    @classmethod
    def _from_json(cls, text: str, key: Mapping[str, Any]) -> Peaks | None:
        """The peaks that a cache file holds for this key; None for any other content."""
        import json

        try:
            content = json.loads(text)
            if content["format"] != CACHE_FORMAT or content["key"] != dict(key):
                return None
            peaks = cls(**content["peaks"])
            rates = [*peaks.flops.values(), peaks.bandwidth, peaks.launch_ns, peaks.kernel_ns]
            rates += [peaks.copy_bandwidth, peaks.read_bandwidth, peaks.write_bandwidth]
            whole = all(rate is None or (is_number(rate) and rate > 0) for rate in rates)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return peaks if whole and peaks.source == "measured" else None


# What this process has measured, by the name of its cache file: all there is where no file can be written.
remembered: dict[str, Peaks] = {}


def versions_of(device: Device) -> dict[str, str]:
    from flopscope import __version__

    versions = {"flopscope": __version__}
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
    file = cache_file(key)
    if file.name in remembered:
        return remembered[file.name]
    try:
        return Peaks._from_json(file.read_text(encoding="utf-8"), key)
    except (OSError, UnicodeDecodeError):
        return None


def write_cache(key: Mapping[str, Any], peaks: Peaks) -> None:
    """Write beside and rename, so that no reader sees half a file. A folder that cannot be written is no error."""
    import json
    import tempfile

    file = cache_file(key)
    content = json.dumps({"format": CACHE_FORMAT, "key": dict(key), "peaks": asdict(peaks)}, indent=1)
    temporary: str | None = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(content)
        os.replace(temporary, file)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)

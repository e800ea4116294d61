"""Runs that are kept: the JSON that --perf-json and --perf-save write and --perf-compare reads.

``{"format": 1, "flopscope": version, "when": ISO 8601, "machines": {device: fingerprint}, "measurements": […]}``, and
of each measurement: ``test`` (its node id), ``key`` (with the number of the measurement in the test), ``name`` (of the
function), ``device``, ``measurement`` (Measurement.to_dict(), times in µs), ``limits`` (each with limit, measured,
verdict) and ``ratio_to_stored``. What is not known is null.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Median", "check_machines", "device_of", "fingerprint", "load", "median_of", "place", "write"]

FORMAT = 1
# What must be equal for times to be comparable, of a device's name and properties as far as it has them.
SAME = ("name", "isa", "threads", "sm_count", "memory_bytes", "driver_version")


class Median(NamedTuple):
    """A stored median and its confidence interval, in µs."""

    median: float
    low: float
    high: float


def place(name: str) -> Path:
    """Where the run of that name is kept: the user's data folder (FLOPSCOPE_DATA_DIR), or the file, if it is *.json.

    ValueError for a name that would not be a file's.
    """
    if name.endswith(".json"):
        return Path(name)
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise ValueError(f"{name!r} is no name for a run: letters, digits and _ . + -, or a file *.json")
    return _folder() / f"{name}.json"


def load(name: str) -> dict[str, Any]:
    """The run of that name: "machines" by device, "measurements" by key.

    FileNotFoundError, naming those there are, where there is none; ValueError for a file that is no such run.
    """
    file = place(name)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']}, not {FORMAT}")
        by_key = {record["key"]: record for record in content["measurements"]}
        return {"machines": dict(content["machines"]), "measurements": by_key}
    except FileNotFoundError:
        there = ", ".join(sorted(found.stem for found in file.parent.glob("*.json"))) or "none"
        raise FileNotFoundError(
            f"no run is stored as {name!r} (there are: {there}); --perf-save {name} stores one"
        ) from None
    except (ValueError, KeyError, TypeError) as problem:
        raise ValueError(f"{file} holds no stored run: {problem}") from problem


def check_machines(name: str, stored: Mapping[str, Any]) -> None:
    """ValueError, naming what differs, unless the run was stored on devices like those here."""
    for device, there in stored["machines"].items():
        here = fingerprint(device)
        if not here:
            raise ValueError(f"the run {name!r} is of {device}, {there.get('name')}, which is not here")
        differing = [key for key in SAME if there.get(key) != here.get(key)]
        if differing:
            facts = ", ".join(f"{key} {there.get(key)!r} there and {here.get(key)!r} here" for key in differing)
            raise ValueError(f"the run {name!r} cannot be compared with: its {device} is another device: {facts}")


def write(records: Iterable[Mapping[str, Any]], file: str | None, name: str | None) -> list[str]:
    """Write measurements to a file, and keep them under a name, as given. Returns what to tell of it."""
    from .. import __version__
    from ..timing.measurement import plain

    measured = [dict(record) for record in records]
    if not measured:
        return ["nothing was measured, so nothing is written"]
    machines = {record["device"]: record.pop("machine") for record in measured}
    content = {"format": FORMAT, "flopscope": __version__, "when": _now(), "machines": machines}
    text = json.dumps(plain({**content, "measurements": measured}), indent=1, allow_nan=False) + "\n"
    said = []
    for wish, path in (("written", Path(file) if file else None), ("kept", place(name) if name else None)):
        if path is not None:
            _replace(path, text)
            said.append(f"{wish}: {path}")
    return said


def device_of(measurement: Any) -> str:
    """The device that was measured: "cpu" or "cuda:0"."""
    named = getattr(measurement, "device", None)
    return str(named) if named else "cpu" if measurement.timing_source == "cpu" else "cuda:0"


@functools.cache
def fingerprint(device: str) -> dict[str, Any]:
    """What must be the same of a device for times to be comparable; {} where it is not here."""
    from ..device import find_device

    try:
        found = find_device(device)
    except (RuntimeError, ValueError):
        return {}
    facts = {**found.properties, "name": found.name}
    return {key: facts[key] for key in SAME if key in facts}


def median_of(stored: Mapping[str, Any], key: str, device: str) -> Median | None:
    """A measurement of a stored run, NaN where it has no number; None where the run has not measured that."""
    record = stored["measurements"].get(key)
    if record is None or record["device"] != device:
        return None
    times = record["measurement"]
    low, high = times["ci"] or (None, None)
    return Median(*(math.nan if time is None else float(time) for time in (times["median"], low, high)))


def _folder() -> Path:
    chosen = os.environ.get("FLOPSCOPE_DATA_DIR")
    if chosen:
        return Path(chosen) / "perf"
    from platformdirs import user_data_dir

    return Path(user_data_dir("flopscope")) / "perf"


def _now() -> str:
    from datetime import datetime, timezone

    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _replace(path: Path, text: str) -> None:
    """Write beside and rename, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(beside, 0o644)
        os.replace(beside, path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise

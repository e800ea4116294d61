"""Stored runs: the JSON that --perf-json and --perf-save write and --perf-compare reads.

``{"format": 1, "flopscope": version, "when": ISO 8601, "machines": {device: fingerprint}, "measurements": […]}``. Each
measurement has ``test`` (the node id of the test), ``key`` (the node id and the number of the measurement in the test),
``name`` (of the function), ``device``, ``measurement`` (Measurement.to_dict(), times in µs), ``limits`` (each with
limit, measured, verdict) and ``ratio_to_stored``. Unknown values are null.
"""

from __future__ import annotations

import functools
import math
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flopscope.support.files import read_json, require_file, write_json
from flopscope.support.safe import printable

__all__ = [
    "Median",
    "check_machines",
    "device_of",
    "fingerprint",
    "load",
    "median_of",
    "place",
    "require_place",
    "write",
]

FORMAT = 1
MIN_US, MAX_US = 1e-9, 1e15  # range of valid times; 1e15 µs are 32 years
SHOWN = 120  # characters of an invalid value in a message
# The name and properties of a device that must be equal for times to be comparable.
SAME = ("name", "isa", "threads", "sm_count", "memory_bytes", "driver_version")


class Median(NamedTuple):
    """A stored median and its confidence interval, in µs."""

    median: float
    low: float
    high: float


def place(name: str) -> Path:
    """Return the file of the run of this name: in the user's data folder (FLOPSCOPE_DATA_DIR), or the name, if *.json.

    Raises ValueError if the name is not valid as a file name.
    """
    if name.endswith(".json"):
        return Path(name)
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise ValueError(f"{name!r} is not a valid name of a run: use letters, digits and _ . + -, or a file *.json")
    return _folder() / f"{name}.json"


def load(name: str) -> dict[str, Any]:
    """Return the run of this name: "machines" by device, "measurements" by key.

    Raises FileNotFoundError, with the names of the stored runs, if the run does not exist, and ValueError if the file
    is not a stored run.
    """
    file = place(name)
    try:
        content = read_json(file)
    except FileNotFoundError:
        names = ", ".join(sorted(path.stem for path in file.parent.glob("*.json"))) or "none"
        raise FileNotFoundError(
            f"no run is stored as {name!r} (stored runs: {printable(names)}); --perf-save {name} stores one"
        ) from None
    try:
        return _run_of(content)
    except ValueError as problem:
        raise ValueError(f"{file} is not a stored run: {problem}") from None


def require_place(name: str) -> None:
    """Raise ValueError if no run can be stored under this name: it is invalid, or its path is not a regular file."""
    require_file(place(name))


# Validation: the first check that fails is reported.


def _run_of(content: Any) -> dict[str, Any]:
    _require(isinstance(content, dict), "it is not a JSON object")
    _require(content.get("format") == FORMAT, f"it has format {_shown(content.get('format'))}, not {FORMAT}")
    machines, measurements = content.get("machines"), content.get("measurements")
    _require(isinstance(machines, dict), '"machines" is not an object')
    for device, facts in machines.items():
        scalars = isinstance(facts, dict) and not any(isinstance(facts.get(key), (dict, list)) for key in SAME)
        _require(scalars, f"the machine {_shown(device)} has an invalid value: {_shown(facts)}")
    _require(isinstance(measurements, list), '"measurements" is not an array')
    for index, record in enumerate(measurements):
        _require(
            _is_record(record),
            f"the key, device or times of measurement {index} are missing or invalid: {_shown(record)}",
        )
    return {"machines": machines, "measurements": {record["key"]: record for record in measurements}}


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict) or not all(isinstance(record.get(name), str) for name in ("key", "device")):
        return False
    times = record.get("measurement")
    if not isinstance(times, dict):
        return False
    ends = times.get("ci")
    if not (ends is None or (isinstance(ends, list) and len(ends) == 2)):
        return False
    return all(time is None or _is_time(time) for time in (times.get("median"), *(ends or ())))


def _is_time(value: Any) -> bool:
    """Return whether the value is a valid time: positive, and in the range of a float."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and MIN_US < value < MAX_US


def _require(valid: bool, problem: str) -> None:
    if not valid:
        raise ValueError(problem)


def _shown(value: Any) -> str:
    """Return the repr of a value, truncated if it is long."""
    return printable(repr(value) if isinstance(value, str) else reprlib.repr(value))[:SHOWN]


def check_machines(name: str, stored: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the differences, unless the run was stored on devices equal to those of this machine."""
    for device, theirs in stored["machines"].items():
        ours = fingerprint(device)
        if not ours:
            label = f"{printable(device)[:SHOWN]}, {printable(str(theirs.get('name')))[:SHOWN]}"
            raise ValueError(f"the run {name!r} was stored on {label}, which this machine does not have")
        differing = [key for key in SAME if theirs.get(key) != ours.get(key)]
        if differing:
            facts = ", ".join(
                f"{key} is {_shown(theirs.get(key))} in the run and {_shown(ours.get(key))} here" for key in differing
            )
            raise ValueError(f"the run {name!r} cannot be compared: its {device} is a different device: {facts}")


def write(records: Iterable[Mapping[str, Any]], file: str | None, name: str | None) -> list[str]:
    """Write measurements to a file, store them under a name, or both. Return lines for the summary."""
    from flopscope.support.package import VERSION
    from flopscope.timing.measurement import plain

    measured = [dict(record) for record in records]
    if not measured:
        return ["nothing was measured, so no file was written"]
    machines = {record["device"]: record.pop("machine") for record in measured}
    content = {"format": FORMAT, "flopscope": VERSION, "when": _now(), "machines": machines}
    run = plain({**content, "measurements": measured})
    lines = []
    for verb, path in (("written", Path(file) if file else None), ("stored", place(name) if name else None)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, run)
            lines.append(f"{verb}: {path}")
    return lines


def device_of(measurement: Any) -> str:
    """Return the measured device: "cpu" or "cuda:0"."""
    named = getattr(measurement, "device", None)
    return str(named) if named else "cpu" if measurement.timing_source == "cpu" else "cuda:0"


@functools.cache
def fingerprint(device: str) -> dict[str, Any]:
    """Return the properties of a device that must be equal for times to be comparable; {} if it is missing."""
    from flopscope.hardware.device import find_device

    try:
        here = find_device(device)
    except (RuntimeError, ValueError):
        return {}
    facts = {**here.properties, "name": here.name}
    return {key: facts[key] for key in SAME if key in facts}


def median_of(stored: Mapping[str, Any], key: str, device: str) -> Median | None:
    """Return a median of a stored run, with NaN for missing numbers; None if the run does not have it."""
    record = stored["measurements"].get(key)
    if record is None or record["device"] != device:
        return None
    times = record["measurement"]
    low, high = times.get("ci") or (None, None)
    return Median(*(math.nan if time is None else float(time) for time in (times.get("median"), low, high)))


def _folder() -> Path:
    chosen = os.environ.get("FLOPSCOPE_DATA_DIR")
    if chosen:
        return Path(chosen) / "perf"
    from platformdirs import user_data_dir

    return Path(user_data_dir("flopscope")) / "perf"


def _now() -> str:
    from datetime import datetime, timezone

    return datetime.now(timezone.utc).isoformat(timespec="seconds")

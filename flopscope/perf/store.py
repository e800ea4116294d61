"""Runs that are kept: the JSON that --perf-json and --perf-save write and --perf-compare reads.

``{"format": 1, "flopscope": version, "when": ISO 8601, "machines": {device: fingerprint}, "measurements": […]}``, and
of each measurement: ``test`` (its node id), ``key`` (with the number of the measurement in the test), ``name`` (of the
function), ``device``, ``measurement`` (Measurement.to_dict(), times in µs), ``limits`` (each with limit, measured,
verdict) and ``ratio_to_stored``. What is not known is null.
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
LEAST_US, MOST_US = 1e-9, 1e15  # of a time that can be: 32 years are 1e15 µs
SHOWN = 120  # characters of a wrong value
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
        content = read_json(file)
    except FileNotFoundError:
        there = ", ".join(sorted(found.stem for found in file.parent.glob("*.json"))) or "none"
        raise FileNotFoundError(
            f"no run is stored as {name!r} (there are: {printable(there)}); --perf-save {name} stores one"
        ) from None
    try:
        return _run_of(content)
    except ValueError as problem:
        raise ValueError(f"{file} holds no stored run: {problem}") from None


def require_place(name: str) -> None:
    """ValueError where no run can be kept under that name: it is none for a file, or something else has it."""
    require_file(place(name))


# What a file may hold instead of a run is refused by the first of these that fails.


def _run_of(content: Any) -> dict[str, Any]:
    _require(isinstance(content, dict), "it is no JSON object")
    _require(content.get("format") == FORMAT, f"it has format {_shown(content.get('format'))}, not {FORMAT}")
    machines, measurements = content.get("machines"), content.get("measurements")
    _require(isinstance(machines, dict), '"machines" is no object')
    for device, facts in machines.items():
        scalars = isinstance(facts, dict) and not any(isinstance(facts.get(key), (dict, list)) for key in SAME)
        _require(scalars, f"the machine {_shown(device)} is {_shown(facts)}")
    _require(isinstance(measurements, list), '"measurements" is no array')
    for place, record in enumerate(measurements):
        _require(
            _is_record(record), f"measurement {place} has no key, device or times, or wrong ones: {_shown(record)}"
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
    """Whether it can be divided by and compared with: more than 0, and no more than a float can be."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST_US < value < MOST_US


def _require(kept: bool, problem: str) -> None:
    if not kept:
        raise ValueError(problem)


def _shown(value: Any) -> str:
    """A value as Python writes it, cut where it is long."""
    return printable(repr(value) if isinstance(value, str) else reprlib.repr(value))[:SHOWN]


def check_machines(name: str, stored: Mapping[str, Any]) -> None:
    """ValueError, naming what differs, unless the run was stored on devices like those here."""
    for device, there in stored["machines"].items():
        here = fingerprint(device)
        if not here:
            what = f"{printable(device)[:SHOWN]}, {printable(str(there.get('name')))[:SHOWN]}"
            raise ValueError(f"the run {name!r} is of {what}, which is not here")
        differing = [key for key in SAME if there.get(key) != here.get(key)]
        if differing:
            facts = ", ".join(
                f"{key} {_shown(there.get(key))} there and {_shown(here.get(key))} here" for key in differing
            )
            raise ValueError(f"the run {name!r} cannot be compared with: its {device} is another device: {facts}")


def write(records: Iterable[Mapping[str, Any]], file: str | None, name: str | None) -> list[str]:
    """Write measurements to a file, and keep them under a name, as given. Returns what to tell of it."""
    from flopscope.support.package import VERSION
    from flopscope.timing.measurement import plain

    measured = [dict(record) for record in records]
    if not measured:
        return ["nothing was measured, so nothing is written"]
    machines = {record["device"]: record.pop("machine") for record in measured}
    content = {"format": FORMAT, "flopscope": VERSION, "when": _now(), "machines": machines}
    run = plain({**content, "measurements": measured})
    said = []
    for wish, path in (("written", Path(file) if file else None), ("kept", place(name) if name else None)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, run)
            said.append(f"{wish}: {path}")
    return said


def device_of(measurement: Any) -> str:
    """The device that was measured: "cpu" or "cuda:0"."""
    named = getattr(measurement, "device", None)
    return str(named) if named else "cpu" if measurement.timing_source == "cpu" else "cuda:0"


@functools.cache
def fingerprint(device: str) -> dict[str, Any]:
    """What must be the same of a device for times to be comparable; {} where it is not here."""
    from flopscope.hardware.device import find_device

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

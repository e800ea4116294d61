"""The file of a run: the JSON that --perf-json and --perf-save write and --perf-compare and ``flopscope perf`` read.

``{"format": 1, "flopscope": version, "when": ISO 8601, "commit": {"id", "branch", "dirty"}, "versions": {"python", …},
"machines": {device: fingerprint}, "measurements": […]}``. Each measurement has ``test`` (the node id of the test),
``key`` (the node id and the number of the measurement in the test), ``params`` (of the test), ``outcome`` (of the
test), ``name`` (of the function), ``device``, ``measurement`` (Measurement.record(), times in µs), ``ops`` (calls per
second), ``limits`` (each with limit, measured, verdict) and ``ratio_to_stored``. Unknown values are null.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from flopscope.measuring.perf.facts import commit_of
from flopscope.support.device import find_device
from flopscope.support.files import MAX_BYTES, finite, read_json, replacing
from flopscope.support.package import VERSION
from flopscope.support.safe import printable, shown

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


def load(file: Path) -> dict[str, Any]:
    """Read the file of a run. Return its content, with "measurements" by key.

    Raises ValueError if the file is not a stored run. FileNotFoundError and other OSErrors propagate.
    """
    content = read_json(file)
    try:
        return _run_of(content)
    except ValueError as problem:
        raise ValueError(f"{file} is not a stored run: {problem}") from None


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
    return {**content, "measurements": {record["key"]: record for record in measurements}}


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
    return shown(value)[:SHOWN]


def check_machines(name: str, machines: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ValueError, naming the differences, unless the run was stored on devices equal to those of this machine."""
    for device, theirs in machines.items():
        ours = fingerprint(device)
        if not ours:
            label = f"{printable(device)[:SHOWN]}, {printable(str(theirs.get('name')))[:SHOWN]}"
            raise ValueError(f"the run {name!r} was stored on {label}, which this machine does not have")
        differing = differences(theirs, ours)
        if differing:
            facts = ", ".join(
                f"{key} is {_shown(theirs.get(key))} in the run and {_shown(ours.get(key))} here" for key in differing
            )
            raise ValueError(f"the run {name!r} cannot be compared: its {device} is a different device: {facts}")


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the properties that two devices must have in common for times to be comparable, and have not."""
    return [key for key in SAME if one.get(key) != other.get(key)]


def content_of(records: Iterable[Mapping[str, Any]], root: Path) -> dict[str, Any]:
    """Return the content of the file for these records of Perf.records(), ready for JSON.

    root: a folder of the git repository whose commit is stored.
    """
    measured = [dict(record) for record in records]
    machines = {record["device"]: record.pop("machine") for record in measured}
    versions: dict[str, str] = {}
    for record in measured:
        versions |= record.pop("versions")
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    content = {"format": FORMAT, "flopscope": VERSION, "when": now, "commit": commit_of(root), "versions": versions}
    return finite({**content, "machines": machines, "measurements": measured})  # type: ignore[no-any-return]


def write(file: Path, content: Mapping[str, Any]) -> list[str]:
    """Write the file of a run, and the folders above it. Return notes on what was left out."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    too_long = len(text) > MAX_BYTES
    if too_long:
        measured = [
            {**record, "measurement": {**record["measurement"], "samples": [], "clocks": []}}
            for record in content["measurements"]
        ]
        text = json.dumps({**content, "measurements": measured}, allow_nan=False, separators=(",", ":"))
    with replacing(file) as stream:
        stream.write(f"{text}\n")
    return [f"the samples were left out of {file}, which would exceed {MAX_BYTES >> 20} MB"] if too_long else []


def device_of(measurement: Any) -> str:
    """Return the measured device: "cpu" or "cuda:0"."""
    named = getattr(measurement, "device", None)
    return str(named) if named else "cpu" if measurement.timing_source == "cpu" else "cuda:0"


@functools.cache
def fingerprint(device: str) -> dict[str, Any]:
    """Return the properties of a device that must be equal for times to be comparable; {} if it is missing."""
    try:
        here = find_device(device)
    except (RuntimeError, ValueError):
        return {}
    facts = {**here.properties, "name": here.name}
    return {key: facts[key] for key in SAME if key in facts}


def ratio_of(new: Median, old: Median) -> Median:
    """Return the ratio of two medians of different runs, with an interval from the ends of theirs.

    Both intervals cover their medians in 95 % of cases, so that this one, the widest quotient of their ends, covers the
    ratio in at least 90 %, and in more than 95 % if the two errors are independent.
    """
    return Median(new.median / old.median, new.low / old.high, new.high / old.low)

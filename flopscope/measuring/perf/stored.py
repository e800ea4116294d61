"""Runs of performance tests as files: pytest-benchmark's JSON, in its numbered layout.

``--perf-save`` writes ``STORAGE/MACHINE/0001_NAME.json`` and ``--perf-json`` the same to any file, by pytest-benchmark,
which lists and compares them; ``--perf-compare`` reads the files of both. Times in them are in seconds.
``extra_info`` of a benchmark has what flopscope knows beyond the times; ``machine_info`` has the devices.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from flopscope.measuring.distribution import median_interval
from flopscope.measuring.perf.report import verdict_of
from flopscope.support.device import devices, find_device
from flopscope.support.documents import plain
from flopscope.support.files import read_json, replacing
from flopscope.support.package import VERSION
from flopscope.support.safe import printable, shown
from flopscope.support.suggest import did_you_mean

STORAGE = ".benchmarks"  # pytest-benchmark's default
LAST = "last"  # a reference to the newest run
SHOWN = 8  # runs named in a message
MIN_US, MAX_US = 1e-9, 1e15  # range of valid times; 1e15 µs are 32 years
# The name and properties of a device that must be equal for times to be comparable.
SAME = ("name", "isa", "threads", "sm_count", "memory_bytes", "driver_version")
# What extra_info has of a measurement: rates in GB/s and TFLOP/s, shares in percent.
FACTS = (
    *("device", "device_name", "timing_source", "cache", "clock_mhz", "flops", "bytes_total_moved", "bound", "unit"),
    *("gbytes_per_s", "tflops_per_s", "pct_peak_flops", "pct_peak_bandwidth", "pct_roofline", "kernels"),
)
_NAME = re.compile(r"\w[\w.+-]{0,99}")
_FILE = re.compile(r"(\d{4,9})_(.+)\.json")


class Median(NamedTuple):
    """A median and its confidence interval, in µs."""

    median: float
    low: float
    high: float


class Run(NamedTuple):
    """A run that was read."""

    machines: Mapping[str, Mapping[str, Any]]
    """The properties of its devices."""
    medians: Mapping[tuple[str, str], Median]
    """By the name of the measurement, as name_of() gives it, and its device."""


def name_of(test: str, number: int) -> str:
    """Return the name of a measurement: the test, and "#2" for the second one in it (number 1)."""
    return f"{test} #{number + 1}" if number else test


# Writing --------------------------------------------------------------------------------------------------------------


def content_of(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of the file for these records of Perf.records(), ready for JSON."""
    from pytest_benchmark.utils import get_commit_info

    every = list(records)
    content = {
        "machine_info": {**_machine(), "devices": {record["device"]: record["machine"] for record in every}},
        "commit_info": get_commit_info(),
        "benchmarks": [*map(_benchmark, every)],
        "datetime": datetime.now(timezone.utc).isoformat(),
        "version": metadata.version("pytest-benchmark"),
    }
    return plain(content)  # type: ignore[no-any-return]


def _machine() -> dict[str, Any]:
    names = ("node", "processor", "machine", "release", "system", "python_implementation", "python_version")
    facts = {name: getattr(platform, name)() for name in names}
    facts["cpu"] = {"brand_raw": devices()[0].name, "count": os.cpu_count()}
    facts["versions"] = {"flopscope": VERSION}
    for library in ("numpy", "torch"):
        with suppress(metadata.PackageNotFoundError):
            facts["versions"][library] = metadata.version(library)
    return facts


def _benchmark(record: Mapping[str, Any]) -> dict[str, Any]:
    from pytest_benchmark.stats import Stats

    times, test, stats = record["measurement"], record["test"], Stats()
    stats.data = [us / 1e6 for us in times["samples"]]
    facts = {name: times.get(name) for name in FACTS}
    ci = [None if us is None else us / 1e6 for us in times["ci"]]
    facts |= {"function": record["name"], "ci": ci, "verdict": verdict_of(record)}
    return {
        "group": None,
        "name": name_of(test.rpartition("::")[2], record["number"]),
        "fullname": name_of(test, record["number"]),
        "params": record["params"] or None,
        "param": record["param"],
        "extra_info": facts | {name: record[name] for name in ("outcome", "limits", "ratio_to_stored")},
        "options": {"timer": times["timing_source"]},
        "stats": {**stats.as_dict(), "iterations": times["batch"], "data": stats.data},
    }


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Write the file of a run."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    with replacing(file) as stream:
        stream.write(f"{text}\n")


# The numbered runs ----------------------------------------------------------------------------------------------------


def folder_of(storage: str | None, here: Path) -> Path:
    """Return the folder of this machine's runs. storage: the value of --perf-storage, relative to ``here``."""
    version, bits = ".".join(platform.python_version_tuple()[:2]), platform.architecture()[0]
    machine = f"{platform.system()}-{platform.python_implementation()}-{version}-{bits}"
    return here / Path(storage or STORAGE).expanduser() / machine


def require_savable(name: str, folder: Path) -> None:
    """Raise ValueError if no run can be stored under this name, or in the folder because a file is in its place."""
    if name.endswith(".json"):
        raise ValueError(f"--perf-save {name}: it numbers and names a run; a file is written by --perf-json {name}")
    if name and not _NAME.fullmatch(name):
        raise ValueError(
            f"{name[:100]!r} is not a valid name of a run: use at most 100 letters, digits and _ . + - (to run tests, "
            "name them before --perf-save)"
        )
    if name.isdigit() or name == LAST:
        raise ValueError(f"{name!r} is not a valid name of a run: numbers and {LAST!r} refer to runs by their order")
    above = next(one for one in (folder, *folder.parents) if one.exists())
    if not above.is_dir():
        raise ValueError(f"runs cannot be stored in {folder}: {above} is not a folder")


def save(content: Mapping[str, Any], name: str, folder: Path) -> Path:
    """Store a run under the next number, and return its file. name: "" for the commit, or the date outside of git."""
    commit = content["commit_info"]
    if not name and commit["time"] is None:
        name = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    name = name or f"{commit['id'][:8]}{'-dirty' if commit['dirty'] else ''}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{max((number for number, _, _ in _runs_in(folder)), default=0) + 1:04d}_{name}.json"
    write(file, content)
    return file


def _runs_in(folder: Path) -> list[tuple[int, str, Path]]:
    """Return the number, the name and the file of each run, in the order of the numbers."""
    found = ((_FILE.fullmatch(file.name), file) for file in folder.glob("*.json"))
    return sorted((int(match[1]), match[2], file) for match, file in found if match)


def find(reference: str, folder: Path) -> Path:
    """Return the file of a run: "last", a number ("3", "0003"), a name (its newest run), "0003_base" or a file *.json.

    Raises FileNotFoundError, with the stored runs, if there is no such run.
    """
    if reference.endswith(".json"):
        return Path(reference)
    runs = _runs_in(folder)
    number = int(reference[:12]) if reference.isdecimal() else None
    for own, name, file in reversed(runs):
        if own == number or reference in (LAST, name, file.stem):
            return file
    hint = did_you_mean(reference, [text for _, name, file in runs for text in (name, file.stem)])
    newest = ", ".join(printable(file.stem) for _, _, file in runs[-SHOWN:])
    stored = f"the newest are {newest}" if runs else "pytest --perf-save stores runs, --perf-storage names their folder"
    raise FileNotFoundError(f"no run in {folder} is {printable(reference)!r}{hint or '; ' + stored}")


# Reading --------------------------------------------------------------------------------------------------------------


def read(file: Path) -> Run:
    """Read a run of flopscope or of pytest-benchmark, whose files name no device but the processor.

    Raises ValueError, naming the file, if it is neither. FileNotFoundError and other OSErrors propagate.
    """
    content = read_json(file)
    try:
        return Run(_machines_of(content["machine_info"]), dict(map(_entry, content["benchmarks"])))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        why = problem if type(problem) is ValueError else f"{type(problem).__name__}: {shown(str(problem))}"
        raise ValueError(f"{file} is not a run of flopscope or pytest-benchmark: {why}") from None


def _machines_of(machine: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    if "devices" in machine:
        known = machine["devices"].items()
        return {device: {key: facts[key] for key in SAME if key in facts} for device, facts in known}
    processor = machine.get("cpu", {}).get("brand_raw")
    return {"cpu": {"name": processor}} if processor else {}


def _entry(benchmark: Mapping[str, Any]) -> tuple[tuple[str, str], Median]:
    """Return the name, the device and the median of a measurement.

    pytest-benchmark stores no interval of the median, and samples only if it is asked to. From the samples the interval
    is that of measure(); without them, that of a normal distribution with the interquartile range.
    """
    stats, facts = benchmark["stats"], benchmark["extra_info"]
    median = _us(stats["median"])
    if "ci" in facts:
        low, high = (math.nan if end is None else _us(end) for end in facts["ci"])
    elif stats.get("data"):
        low, high = median_interval([*map(_us, stats["data"])])
    else:
        half = 1.96 * 1.253 / 1.349 * 1e6 * stats["iqr"] / math.sqrt(stats["rounds"])
        low, high = max(median - half, MIN_US), median + half
    return (str(benchmark["fullname"]), str(facts.get("device", "cpu"))), Median(median, low, high)


def _us(seconds: Any) -> float:
    """Return a time of a file in µs. Raise ValueError unless it is positive, and in the range of a float."""
    if isinstance(seconds, bool) or not MIN_US < seconds * 1e6 < MAX_US:
        raise ValueError(f"a time is {shown(seconds)}")
    return float(seconds * 1e6)


def comparable(name: str, folder: Path) -> Run:
    """Return the run of a name, as find() takes it.

    Raises ValueError, naming the differences, unless it was stored on devices equal to those of this machine.
    """
    run = read(find(name, folder))
    for device, theirs in run.machines.items():
        ours, label = fingerprint(device), printable(device)[:80]
        if not ours:
            what = f"{label}, {shown(theirs.get('name'))}, which this machine does not have"
            raise ValueError(f"the run {name!r} was stored on {what}")
        differing = [key for key in theirs if theirs[key] != ours.get(key)]
        facts = [f"{key} is {shown(theirs[key])} in the run and {shown(ours.get(key))} here" for key in differing]
        if facts:
            different = f"its {label} is a different device: {', '.join(facts)}"
            raise ValueError(f"the run {name!r} cannot be compared: {different}")
    return run


@functools.cache
def fingerprint(device: str) -> dict[str, Any]:
    """Return the properties of a device that must be equal for times to be comparable; {} if it is missing."""
    try:
        here = find_device(device)
    except (RuntimeError, ValueError):
        return {}
    facts = {**here.properties, "name": here.name}
    return {key: facts[key] for key in SAME if key in facts}

"""Runs of performance tests as files: pytest-benchmark's JSON, in its numbered layout.

``--perf-save`` writes ``STORAGE/MACHINE/0001_NAME.json`` and ``--perf-json`` the same to any file, by pytest-benchmark,
which lists and compares them; ``--perf-compare`` reads them. Times in them are in seconds.
``extra_info`` of a benchmark has what flopscope knows beyond the times; ``machine_info`` has the devices.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from flopscope.measuring.perf.report import verdict_of
from flopscope.support.device import devices, find_device
from flopscope.support.documents import plain
from flopscope.support.files import read_json, replacing
from flopscope.support.package import VERSION
from flopscope.support.safe import printable, shown

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
_NAME = re.compile(r"[A-Za-z][\w+-]{0,99}")
_RUNS = "[0-9][0-9][0-9][0-9]_*.json"


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


def content_of_sides(rows: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, Any]:
    """Return the content of what ``flopscope ab`` measured, by name: µs of the processes of base and head."""
    from pytest_benchmark.stats import Stats

    content = content_of([])
    for group, sides in rows.items():
        for side, times in zip(("base", "head"), sides, strict=True):
            stats, name = Stats(), f"{group} ({side})"
            stats.data = [us / 1e6 for us in times]
            names = {"group": group, "name": name, "fullname": name, "params": None, "param": None}
            how = {"options": {}, "stats": {**stats.as_dict(), "iterations": 1, "data": stats.data}}
            content["benchmarks"].append(plain({**names, "extra_info": {}, **how}))
    return content


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


def folder_of(here: Path) -> Path:
    """Return the folder of this machine's runs."""
    version, bits = ".".join(platform.python_version_tuple()[:2]), platform.architecture()[0]
    return here / STORAGE / f"{platform.system()}-{platform.python_implementation()}-{version}-{bits}"


def require_savable(name: str) -> None:
    """Raise ValueError if no run can be stored under this name."""
    if name and (not _NAME.fullmatch(name) or name == LAST):
        raise ValueError(
            f"--perf-save: {printable(name[:100])!r} is not a valid name of a run: use up to 100 letters, digits, _+- "
            "after a letter (to run tests, name them before --perf-save)"
        )


def save(content: Mapping[str, Any], name: str, folder: Path) -> Path:
    """Store a run under the next number, and return its file. name: "" for the commit, or the date outside of git."""
    commit = content["commit_info"]
    if not name and commit["time"] is None:
        name = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    name = name or f"{commit['id'][:8]}{'-dirty' if commit['dirty'] else ''}"
    folder.mkdir(parents=True, exist_ok=True)
    number = max((int(file.name.partition("_")[0]) for file in folder.glob(_RUNS)), default=0) + 1
    file = folder / f"{number:04d}_{name}.json"
    write(file, content)
    return file


def find(reference: str, folder: Path) -> Path:
    """Return the file of a run: "last", a number ("3", "0003"), a name (its newest run), "0003_base" or a file *.json.

    Raises FileNotFoundError, with the stored runs, if there is no such run.
    """
    if reference.endswith(".json"):
        return Path(reference)
    runs = sorted(folder.glob(_RUNS))
    for file in reversed(runs):
        number, _, name = file.stem.partition("_")
        if reference in (LAST, number, number.lstrip("0"), name, file.stem):
            return file
    newest = ", ".join(printable(file.stem) for file in runs[-SHOWN:])
    stored = f"the newest are {newest}" if runs else "pytest --perf-save stores runs"
    raise FileNotFoundError(f"no run in {folder} is {printable(reference)!r}; {stored}")


# Reading --------------------------------------------------------------------------------------------------------------


def read(file: Path) -> Run:
    """Read a run. Raises ValueError, naming the file, if it is none. FileNotFoundError and other OSErrors propagate."""
    content = read_json(file)
    try:
        known = content["machine_info"]["devices"].items()
        machines = {device: {key: facts[key] for key in SAME if key in facts} for device, facts in known}
        return Run(machines, dict(map(_entry, content["benchmarks"])))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        why = problem if type(problem) is ValueError else f"{type(problem).__name__}: {shown(str(problem))}"
        raise ValueError(f"{file} is not a run of flopscope: {why}") from None


def _entry(benchmark: Mapping[str, Any]) -> tuple[tuple[str, str], Median]:
    """Return the name, the device and the median of a measurement, in µs. Raise ValueError for an impossible one."""
    facts, (low, high) = benchmark["extra_info"], benchmark["extra_info"]["ci"]
    times = [math.nan if one is None else 1e6 * one for one in (benchmark["stats"]["median"], low, high)]
    if isinstance(benchmark["stats"]["median"], bool) or not MIN_US < times[0] < MAX_US:
        raise ValueError(f"a time is {shown(benchmark['stats']['median'])}")
    return (str(benchmark["fullname"]), str(facts["device"])), Median(*times)


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

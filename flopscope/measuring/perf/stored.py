"""Runs of performance tests as files: pytest-benchmark's JSON, in its numbered layout.

``--perf-save`` writes ``STORAGE/MACHINE/0001_NAME.json`` and ``--perf-json`` the same to any file, by pytest-benchmark,
which lists and compares them, also for ``--perf-compare``. Times in them are in seconds. ``extra_info`` of a benchmark
has what flopscope knows beyond the times.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from flopscope.measuring.perf.report import verdict_of
from flopscope.support.device import devices
from flopscope.support.documents import plain
from flopscope.support.files import write_json
from flopscope.support.package import VERSION
from flopscope.support.safe import printable

STORAGE = ".benchmarks"  # pytest-benchmark's default
LAST = "last"  # a reference to the newest run
SHOWN = 8  # runs named in a message
# What extra_info has of a measurement: rates in GB/s and TFLOP/s, shares in percent.
FACTS = (
    *("device", "device_name", "timing_source", "cache", "clock_mhz", "flops", "bytes_total_moved", "bound", "unit"),
    *("gbytes_per_s", "tflops_per_s", "pct_peak_flops", "pct_peak_bandwidth", "pct_roofline", "kernels"),
)
_NAME = re.compile(r"[A-Za-z][\w+-]{0,99}")
_RUNS = "[0-9][0-9][0-9][0-9]_*.json"


def name_of(test: str, number: int) -> str:
    """Return the name of a measurement: the test, and "#2" for the second one in it (number 1)."""
    return f"{test} #{number + 1}" if number else test


# Writing --------------------------------------------------------------------------------------------------------------


def content_of(records: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of the file for these records of Perf.records(), ready for JSON."""
    from pytest_benchmark.utils import get_commit_info

    content = {
        "machine_info": _machine(),
        "commit_info": get_commit_info(),
        "benchmarks": [*map(_benchmark, records)],
        "datetime": datetime.now(timezone.utc).isoformat(),
        "version": metadata.version("pytest-benchmark"),
    }
    return plain(content)  # type: ignore[no-any-return]


def content_of_sides(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the content of the file for rows of ``flopscope ab``, whose samples are the times of processes."""
    from pytest_benchmark.stats import Stats

    content = content_of([])
    for row, side in ((row, side) for row in rows for side in ("base", "head") if row[f"{side}_times"]):
        stats, name = Stats(), f"{row['name']} ({side})"
        stats.data = [us / 1e6 for us in row[f"{side}_times"]]
        names = {"group": row["name"], "name": name, "fullname": name, "params": None, "param": None, "extra_info": {}}
        how = {"options": {}, "stats": {**stats.as_dict(), "iterations": 1, "data": stats.data}}
        content["benchmarks"].append(plain({**names, **how}))
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
        "extra_info": facts | {name: record[name] for name in ("outcome", "limits")},
        "options": {"timer": times["timing_source"]},
        "stats": {**stats.as_dict(), "iterations": times["batch"], "data": stats.data},
    }


# The numbered runs ----------------------------------------------------------------------------------------------------


def folder_of(here: Path) -> Path:
    """Return the folder of this machine's runs."""
    from pytest_benchmark.utils import get_machine_id

    return here / STORAGE / get_machine_id()  # type: ignore[no-any-return]


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
    write_json(file, content)
    return file


def find(reference: str, folder: Path) -> Path:
    """Return the file of a run: "last", a number ("3", "0003"), a name (its newest run), "0003_base" or a file *.json.

    Raises FileNotFoundError, with the stored runs, if there is no such run.
    """
    if reference.endswith(".json") and Path(reference).is_file():
        return Path(reference)
    runs = sorted(folder.glob(_RUNS))
    for file in reversed(runs):
        number, _, name = file.stem.partition("_")
        if reference in (LAST, number, number.lstrip("0"), name, file.stem):
            return file
    newest = ", ".join(printable(file.stem) for file in runs[-SHOWN:])
    stored = f"the newest are {newest}" if runs else "pytest --perf-save stores runs"
    raise FileNotFoundError(f"no run in {folder} is {printable(reference)!r}; {stored}")


def compared(file: Path, content: Mapping[str, Any]) -> list[str]:
    """Return the lines of pytest-benchmark's comparison of a stored run with what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, folder)  # files beside each other are named in few words
        write_json(Path(folder, "now.json"), content)
        words = ["compare", file.name, "now.json", "--group-by=fullname", "--columns=median,iqr,min,rounds"]
        command = [sys.executable, "-m", "pytest_benchmark", *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return [printable(line) for line in (done.stdout or done.stderr).splitlines()]

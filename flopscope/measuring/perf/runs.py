"""Stored runs as they are shown and compared: typed, and safe to print whatever the file contains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from flopscope.measuring.paired import verdict_of as verdict_of_interval
from flopscope.measuring.perf import store
from flopscope.measuring.perf.report import WORST_FIRST, verdict_of
from flopscope.measuring.perf.store import Median
from flopscope.support.safe import printable

OUTCOMES = ("passed", "failed", "skipped", "xfailed")
LONGEST, LONGEST_DEVICE = 200, 12  # characters of a text from a file
NUMBERS = (
    *("min", "max", "mean", "median", "std", "iqr", "n", "batch", "outliers"),
    *("gbytes_per_s", "tflops_per_s", "pct_roofline", "clock_mhz"),
)
ALIKE = ("device", "timing_source", "cache")  # of a measurement, for times to be comparable


@dataclass(frozen=True)
class Entry:
    """One measurement of a stored run. Times are in µs; unknown numbers are NaN."""

    key: str
    test: str
    """Node id of the test."""
    params: Mapping[str, str]
    outcome: str
    """Outcome of the test: "passed", "failed", "skipped", "xfailed"; "" in runs of earlier versions."""
    verdict: str
    """The worst verdict on the limits, or "test failed"; see report.verdict_of."""
    numbers: Mapping[str, float]
    median: Median
    stored_samples: Any = field(repr=False)
    """The samples as they are in the file."""
    conditions: tuple[str, ...]
    """The values of ALIKE."""

    @property
    def label(self) -> str:
        """The test, and the number of the measurement after the first."""
        _, sign, number = self.key.rpartition("#")
        further = sign and number.isdecimal() and number != "0"
        return f"{self.test} #{int(number[:9]) + 1}" if further else self.test

    @property
    def samples(self) -> list[float]:
        """The samples in µs; empty where the file has none."""
        stored = self.stored_samples if isinstance(self.stored_samples, list) else []
        return [number for number in map(_number, stored) if math.isfinite(number)]

    @property
    def param(self) -> str:
        """The text in the brackets of the node id; "" without parameters."""
        return self.test.partition("[")[2].removesuffix("]")


@dataclass(frozen=True)
class Run:
    """A stored run. Unknown texts are ""."""

    file: Path
    when: str
    commit: str
    branch: str
    dirty: bool
    versions: Mapping[str, str]
    machines: Mapping[str, Mapping[str, Any]]
    entries: Mapping[str, Entry]
    """The measurements by key."""
    label: str
    """The name of the file without its suffix: "0003_base"."""

    def median_of(self, key: str, device: str) -> Median | None:
        """Return the median of a measurement on a device, with NaN for missing numbers; None if the run lacks it."""
        entry = self.entries.get(key)
        return None if entry is None or entry.conditions[0] != device else entry.median

    @property
    def failed(self) -> list[str]:
        """The tests that failed."""
        return list(dict.fromkeys(entry.test for entry in self.entries.values() if entry.outcome == "failed"))


class Row(NamedTuple):
    """A line of a table: a measurement of one run."""

    entry: Entry
    run: str
    """Label of the run."""
    verdict: str
    ratio: float = math.nan
    """To the median of the first run."""


def read(file: Path) -> Run:
    """Read a stored run. Raise ValueError if the file is not one; OSErrors propagate."""
    content = store.load(file)
    commit = _mapping(content.get("commit"))
    versions = {"flopscope": content.get("flopscope"), **_mapping(content.get("versions"))}
    return Run(
        file=file,
        when=_text(content.get("when")),
        commit=_text(commit.get("id")),
        branch=_text(commit.get("branch")),
        dirty=commit.get("dirty") is True,
        versions={_text(name): _text(version) for name, version in versions.items() if _text(version)},
        machines=content["machines"],
        entries={key: _entry(record) for key, record in content["measurements"].items()},
        label=printable(file.stem),
    )


def _entry(record: Mapping[str, Any]) -> Entry:
    times = record["measurement"]
    numbers = {name: _number(times.get(name)) for name in NUMBERS}
    ops = _number(record.get("ops"))
    limits = record.get("limits")
    verdicts = [
        {"verdict": limit["verdict"]}
        for limit in (limits if isinstance(limits, list) else [])
        if isinstance(limit, dict) and limit.get("verdict") in WORST_FIRST
    ]
    outcome = _text(record.get("outcome"))
    outcome = outcome if outcome in OUTCOMES else ""
    low, high = times.get("ci") or (None, None)
    return Entry(
        key=_text(record["key"]),
        test=_text(record.get("test")) or _text(record["key"]),
        params={_text(name): _text(value) for name, value in _mapping(record.get("params")).items()},
        outcome=outcome,
        verdict=verdict_of({"limits": verdicts, "outcome": outcome}),
        numbers={**numbers, "ops": 1e6 / numbers["mean"] if math.isnan(ops) and numbers["mean"] > 0 else ops},
        median=Median(*map(_number, (times.get("median"), low, high))),
        stored_samples=times.get("samples"),
        conditions=(_text(record["device"])[:LONGEST_DEVICE], *(_text(times.get(name)) for name in ALIKE[1:])),
    )


def _number(value: Any) -> float:
    """Return a number of a file; NaN for anything else, also for one beyond the range of a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < store.MAX_US:
        return math.nan
    return float(value)


def _text(value: Any) -> str:
    return printable(value[:LONGEST]) if isinstance(value, str) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def labelled(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with the name of the folder in their labels if two labels are equal."""
    if len({run.label for run in runs}) == len(runs):
        return list(runs)
    return [replace(run, label=printable(f"{run.file.parent.name}/{run.file.stem}")) for run in runs]


# Comparing ------------------------------------------------------------------------------------------------------------


def compare(runs: Sequence[Run], margin: float) -> list[list[Row]]:
    """Compare each measurement with that of the first run. Return the rows by measurement, in the order of the runs.

    margin: relative difference up to which times count as the same. The verdicts are those of compare_times():
    "faster", "slower", "same" or "unclear", from the interval of the ratio of the medians. Others are "new" if the
    first run lacks the measurement, and "not alike" if the devices, the timers or the states of the cache differ. A
    measurement that a run lacks has no row.
    """
    first = runs[0]
    compared = []
    for key in dict.fromkeys(key for run in runs for key in run.entries):
        compared.append([_compared(run, first, key, margin) for run in runs if key in run.entries])
    return compared


def _compared(run: Run, first: Run, key: str, margin: float) -> Row:
    entry, before = run.entries[key], first.entries.get(key)
    if run is first or before is None:
        return Row(entry, run.label, "" if run is first else "new", 1.0 if run is first else math.nan)
    device = entry.conditions[0]
    machines = [_mapping(one.machines.get(device)) for one in (run, first)]
    if entry.conditions != before.conditions or store.differences(*machines):
        return Row(entry, run.label, "not alike", entry.median.median / before.median.median)
    ratio = store.ratio_of(entry.median, before.median)
    return Row(entry, run.label, verdict_of_interval(ratio.low, ratio.high, margin), ratio.median)


# Grouping -------------------------------------------------------------------------------------------------------------

# What measurements are grouped by: the title of the group.
GROUPINGS: dict[str, Callable[[Entry], str]] = {
    "name": lambda entry: entry.test.rpartition("::")[2],
    "func": lambda entry: entry.test.partition("[")[0].rpartition("::")[2],
    "file": lambda entry: entry.test.partition("::")[0],
    "param": lambda entry: entry.param,
    "device": lambda entry: entry.conditions[0],
}


def grouped(tests: Iterable[Sequence[Row]], by: str | None) -> dict[str, list[Sequence[Row]]]:
    """Return the measurements by the title of their group; by: a name of GROUPINGS, "param:NAME", or None."""
    groups: dict[str, list[Sequence[Row]]] = {}
    for rows in tests:
        entry = rows[0].entry
        if by is None:
            title = ""
        elif by.startswith("param:"):
            name = by.partition(":")[2]
            title = f"{name}={entry.params[name]}" if name in entry.params else f"without {name}"
        else:
            title = f"{by}: {GROUPINGS[by](entry) or 'none'}"
        groups.setdefault(title, []).append(rows)
    return groups

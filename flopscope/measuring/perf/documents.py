"""The documents of stored runs, and of their comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flopscope.measuring.perf.runs import ALIKE, NUMBERS, Entry, Row, Run
from flopscope.support.documents import Document, Field, columns, rows

_RUN = (
    *columns("run$ file$ when$ commit$ branch$ dirty?", run="the name by which commands find it", when="UTC"),
    Field("versions", "any"),
    Field("machines", "any", doc="what is known of the devices"),
    *columns("failed@", failed="the tests that failed"),
)
_MEASUREMENT = (
    *columns("key$ test$", key="of the measurement: the test, and its number in the test", test="node id of the test"),
    Field("params", "any", doc="of the test"),
    *columns("outcome$ verdict$", outcome="of the test", verdict="the worst on its limits"),
    *columns(" ".join(f"{name}$" for name in ALIKE)),
    *columns("min max mean median std iqr low high", "µs", low="of the 95 % confidence interval of the median"),
    *columns("n batch outliers gbytes_per_s tflops_per_s pct_roofline clock_mhz ops:1/s", ops="calls per second"),
)
_COMPARED = columns(
    "run$ verdict$ ratio",
    why="the run has nothing to compare it with",
    verdict='"faster", "slower", "same", "unclear", "not alike", "new"; "" in the first run',
    ratio="to the median of the first run",
)
RUNS = Document("perf_runs", "the stored runs", (*columns("storage$ skipped@"), rows("runs", _RUN)))
RUN = Document("perf_run", "the measurements of a stored run", (*_RUN, rows("measurements", _MEASUREMENT)))
COMPARISON = Document(
    "perf_comparison",
    "stored runs, compared with the first",
    (
        *columns("margin:share", margin="up to which times count as the same"),
        rows("runs", _RUN),
        rows("measurements", (*(field for field in _MEASUREMENT if field.name != "verdict"), *_COMPARED)),
    ),
)


def runs_document(storage: Path, runs: Sequence[Run], skipped: Sequence[str]) -> dict[str, Any]:
    """Return the document of ``flopscope perf list``."""
    return RUNS.of({"storage": str(storage), "skipped": list(skipped), "runs": [*map(_run, runs)]})


def run_document(run: Run) -> dict[str, Any]:
    """Return the document of ``flopscope perf show``."""
    measured = [{**_measurement(entry), "verdict": entry.verdict} for entry in run.entries.values()]
    return RUN.of({**_run(run), "measurements": measured})


def comparison_document(runs: Sequence[Run], tests: Sequence[Sequence[Row]], margin: float) -> dict[str, Any]:
    """Return the document of ``flopscope perf compare``."""
    measured = [
        {**_measurement(row.entry), "run": row.run, "verdict": row.verdict, "ratio": row.ratio}
        for rows in tests
        for row in rows
    ]
    return COMPARISON.of({"margin": margin, "runs": [*map(_run, runs)], "measurements": measured})


def _run(run: Run) -> dict[str, Any]:
    names = ("when", "commit", "branch", "dirty", "versions", "machines", "failed")
    return {"run": run.label, "file": str(run.file), **{name: getattr(run, name) for name in names}}


def _measurement(entry: Entry) -> dict[str, Any]:
    numbers = {name: entry.numbers[name] for name in (*NUMBERS, "ops")}
    own = {name: getattr(entry, name) for name in ("key", "test", "params", "outcome")}
    conditions = dict(zip(ALIKE, entry.conditions, strict=True))
    return {**own, **numbers, **conditions, "low": entry.median.low, "high": entry.median.high}

"""The table at the end of a session: the measurements and the verdicts on their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flopscope.measuring.perf.limits import known
from flopscope.support.columns import GAP, aligned_line, column_widths
from flopscope.support.cutting import cut_start
from flopscope.support.units import MISSING, bound_text, percent_text, significant_text

WIDTH = 120
MIN_TEST_WIDTH = 15  # of the shortened id of a test, whose end is shown
WORST_FIRST = ("failed", "unclear", "passed")


def verdict_of(record: Mapping[str, Any]) -> str:
    """Return the worst verdict on a measurement's limits; "" if it has none.

    If no limit is to blame and the test did not pass, it is the outcome of the test: "test failed".
    """
    verdicts = {limit["verdict"] for limit in record["limits"]}
    worst = next((verdict for verdict in WORST_FIRST if verdict in verdicts), "")
    outcome = record.get("outcome") or "passed"
    return f"test {outcome}" if worst in ("", "passed") and outcome != "passed" else worst


def table(records: Iterable[Mapping[str, Any]], compare: str = "") -> list[str]:
    """Return a header and one line per measurement, of at most WIDTH characters. compare: name of the stored run."""
    columns = {**COLUMNS, **({f"× {compare[:8]}": _against} if compare else {})}
    rows = [[cell(record, record["measurement"]) for cell in columns.values()] for record in records]
    if not rows:
        return []
    widths = column_widths([list(columns), *rows])
    widths[0] = min(widths[0], max(MIN_TEST_WIDTH, WIDTH - sum(widths[1:]) - len(GAP) * len(widths[1:])))
    rows = [[cut_start(row[0], widths[0]), *row[1:]] for row in rows]
    return [aligned_line(cells, widths).rstrip() for cells in (list(columns), *rows)]


def missing(records: Sequence[Mapping[str, Any]], compare: str) -> list[str]:
    """Return a note on measurements that are missing from the stored run of this name."""
    number = sum(not known(record["ratio_to_stored"]) for record in records) if compare else 0
    if not number:
        return []
    return [
        f"{number} of {len(records)} measurements are missing from {compare} and were not compared:",
        "the tests are new, or pytest was run from another folder (tests are identified by the ids shown)",
    ]


def _number(name: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    return lambda record, times: significant_text(times.get(name))


def _against(record: Mapping[str, Any], times: Mapping[str, Any]) -> str:
    ratio = record["ratio_to_stored"]
    return f"{ratio:.3f}" if known(ratio) else "missing"


def _spread(times: Mapping[str, Any]) -> str:
    """Return half of the confidence interval in percent of the median."""
    low, high = times.get("ci") or (None, None)
    if low is None or high is None or not known(high - low):
        return MISSING
    return percent_text((high - low) / 2 / times["median"] * 100)


COLUMNS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "test": lambda record, times: record["test"],
    "of": lambda record, times: record["name"][:12],
    "device": lambda record, times: record["device"],
    "n": lambda record, times: str(times["n"]),
    "median µs": _number("median"),
    "±": lambda record, times: _spread(times),
    "GB/s": _number("gbytes_per_s"),
    "TFLOP/s": _number("tflops_per_s"),
    "% roofline": _number("pct_roofline"),
    "bound": lambda record, times: bound_text(times["bound"]),
    "verdict": lambda record, times: verdict_of(record) or MISSING,
}

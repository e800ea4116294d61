"""What is said of measurements: the message of a limit that fails, and the table at the end of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flopscope import _core
from flopscope.measuring.perf.limits import LimitResult, is_noisy, known
from flopscope.support.columns import GAP, aligned_line, column_widths, cut_apart, cut_start
from flopscope.support.units import MISSING, bound_text, exact_text, percent_text
from flopscope.support.units import significant_text as number

FAR = 60.0  # percent of the roofline below which bytes and FLOPs do not explain the time
WIDTH = 120
NAME = 12  # of the name of what was measured
MIN_TEST_WIDTH = 15  # of the shortened id of a test, whose end is shown
WORST_FIRST = ("failed", "unclear", "passed")

_UNKNOWN = "unknown from these numbers: the code has changed, or the limit was written for another device"
_REASONS = {
    "launch": "launch-bound: do more work per launch, or use a CUDA graph",
    "latency": "latency-bound: dependent steps, synchronization or too little parallelism determine the time",
    "inefficient": "far below the roofline for long: the device works at a small part of its rate throughout",
    "cache": "the data was in cache: this size does not test the memory bandwidth",
    "memory": "memory bandwidth determines the time: only fewer bytes make it faster",
    "compute": "compute determines the time: only fewer FLOPs or another dtype help",
}
"""Why a limit is not met, by the bound."""
_FAR = {
    "memory": "far below the roofline: more bytes are moved than necessary, or accesses are strided, narrow or too few",
    "compute": "far below the roofline: the shapes do not fill the device, or the work does not use the fastest units",
}


def explain(name: str, measurement: Any, result: LimitResult, likely: str = "") -> str:
    """Return the message for a limit that failed or is unclear.

    name: the name of the measured function. likely: the reason, if the caller knows it.
    """
    m = measurement
    low, high = map(number, m.ci)
    samples = f"min {number(m.min)}, IQR {number(m.iqr)}, {m.n} samples, timing source {m.timing_source}"
    samples += "; the samples vary widely" if is_noisy(m) else ""
    is_far = known(m.pct_roofline) and m.pct_roofline < FAR
    facts = {
        "measured": f"{result.measured}; the limit is {result.limit}",
        "time": f"median {number(m.median)} µs ({low} to {high}), {samples}",
        "work": _known((m.flops, exact_text, "FLOPs"), (m.bytes_total_moved, exact_text, "bytes")),
        "rates": _known((m.gbytes_per_s, number, "GB/s"), (m.tflops_per_s, number, "TFLOP/s")),
        "roofline": _roofline(m),
        "likely": likely or (_FAR if is_far else _REASONS).get(m.bound) or _REASONS.get(m.bound, _UNKNOWN),
    }
    verb = {"failed": "does not meet", "unclear": "may or may not meet"}.get(result.verdict, "meets")
    lines = [f"{name} {verb} its limit: {result.limit}"]
    return "\n".join(lines + [f"  {label:<9} {text}" for label, text in facts.items() if text])


def _known(*facts: tuple[Any, Callable[[Any], str], str]) -> str:
    """Format the known values. facts: value, formatting function and unit of each."""
    return ", ".join(f"{write(value)} {unit}" for value, write, unit in facts if known(value))


def _roofline(m: Any) -> str:
    share = (m.pct_roofline, number, "% of the roofline")
    of_peaks = (m.pct_peak_bandwidth, number, "% of the bandwidth"), (m.pct_peak_flops, number, "% of the FLOP/s")
    if not _known(share, *of_peaks):
        return f"share unknown: {m.why_unknown}"
    shares = ", ".join(filter(None, (_known(share), *map(_known, of_peaks))))
    return f"{shares}; bound: {m.bound}"


def bound_reason(m: Any) -> str:
    """Return why a measurement has its bound: the least times of its bytes and FLOPs beside the time that it took."""
    shares = (("bytes", m.pct_peak_bandwidth, "the peak bandwidth"), ("FLOPs", m.pct_peak_flops, "the peak FLOP/s"))
    terms = [f"{work} {number(m.median * share / 100)} µs at {peak}" for work, share, peak in shares if known(share)]
    least = f"{m.name} takes {number(m.median)} µs, {' and '.join(terms)}: " if terms else ""
    return f"{least}{_core.bounds[m.bound].meaning} ({m.bound})"


# The table ------------------------------------------------------------------------------------------------------------


def verdict_of(record: Mapping[str, Any]) -> str:
    """Return the worst verdict on a measurement's limits; "" if it has none.

    If no limit is to blame and the test did not pass, it is the outcome of the test: "test failed".
    """
    verdicts = {limit["verdict"] for limit in record["limits"]}
    worst = next((verdict for verdict in WORST_FIRST if verdict in verdicts), "")
    outcome = record.get("outcome") or "passed"
    return f"test {outcome}" if worst in ("", "passed") and outcome != "passed" else worst


def table(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a header and one line per measurement, of at most WIDTH characters."""
    rows = [[cell(record, record["measurement"]) for cell in COLUMNS.values()] for record in records]
    if not rows:
        return []
    names = cut_apart((row[1] for row in rows), NAME)
    rows = [[row[0], names[row[1]], *row[2:]] for row in rows]
    widths = column_widths([list(COLUMNS), *rows])
    widths[0] = min(widths[0], max(MIN_TEST_WIDTH, WIDTH - sum(widths[1:]) - len(GAP) * len(widths[1:])))
    rows = [[cut_start(row[0], widths[0]), *row[1:]] for row in rows]
    return [aligned_line(cells, widths).rstrip() for cells in (list(COLUMNS), *rows)]


def _number(name: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    return lambda record, times: number(times.get(name))


def _spread(times: Mapping[str, Any]) -> str:
    """Return half of the confidence interval in percent of the median."""
    low, high = times.get("ci") or (None, None)
    if low is None or high is None or not known(high - low):
        return MISSING
    return percent_text((high - low) / 2 / times["median"] * 100)


COLUMNS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "test": lambda record, times: record["test"],
    "of": lambda record, times: record["name"],
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

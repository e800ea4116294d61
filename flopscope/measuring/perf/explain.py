"""The message of a failure: the measurement, the limit, the roofline, and the likely reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopscope.measuring.perf.limits import LimitResult, known
from flopscope.support.units import exact_text
from flopscope.support.units import significant_text as number

FAR = 60.0  # percent of the roofline below which bytes and FLOPs do not explain the time
NOISY = 0.1  # interquartile range over median

_NO_ROOM = "the limit lies inside the confidence interval, even after longer measurements: choose a less tight limit"
_NO_INTERVAL = "a single sample has no confidence interval: measure for longer, perf(fn, …, max_time=…)"
_MOVED = "the last two measurements disagree by more than their intervals: other programs are running, or clocks vary"
_LAUNCH = "launch-bound: do more work per launch, or use a CUDA graph"
_LATENCY = "latency-bound: dependent steps, synchronization or too little parallelism determine the time"
_INEFFICIENT = "far below the roofline for long: the device works at a small part of its rate throughout"
_NOISY = "the samples vary widely: other programs are running, or clocks vary"
_UNKNOWN = "unknown from these numbers: the code has changed, or the limit was written for another device"
_SLOW_MEMORY = "far below the roofline: more bytes are moved than necessary, or accesses are strided, narrow or too few"
_SLOW_COMPUTE = "far below the roofline: the shapes do not fill the device, or the work does not use the fastest units"


def explain(name: str, measurement: Any, result: LimitResult, likely: str = "") -> str:
    """Return the message for a limit that failed or is unclear.

    name: the name of the measured function. likely: the reason, if the caller knows it.
    """
    m = measurement
    low, high = map(number, m.ci)
    samples = f"min {number(m.min)}, IQR {number(m.iqr)}, {m.n} samples, timing source {m.timing_source}"
    facts = {
        "measured": f"{result.measured}; the limit is {result.limit}",
        "time": f"median {number(m.median)} µs ({low} to {high}), {samples}",
        "work": _known((m.flops, exact_text, "FLOPs"), (m.bytes_total_moved, exact_text, "bytes")),
        "rates": _known((m.gbytes_per_s, number, "GB/s"), (m.tflops_per_s, number, "TFLOP/s")),
        "roofline": _roofline(m),
        "likely": likely or next((reason for holds, reason in _REASONS if holds(m, result)), _UNKNOWN),
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


def _is_far(m: Any) -> bool:
    return known(m.pct_roofline) and m.pct_roofline < FAR


# Conditions and reasons. The first reason whose condition holds is reported.
_REASONS: tuple[tuple[Callable[[Any, LimitResult], bool], str], ...] = (
    (lambda m, result: result.moved, _MOVED),
    (lambda m, result: result.verdict == "unclear" and not all(map(known, m.ci)), _NO_INTERVAL),
    (lambda m, result: result.verdict == "unclear", _NO_ROOM),
    (lambda m, result: result.beyond, "the limit is beyond this device's roofline for this work and cannot be met"),
    (lambda m, result: m.bound == "launch", _LAUNCH),
    (lambda m, result: known(m.iqr) and m.iqr > NOISY * m.median, _NOISY),
    (lambda m, result: m.bound == "latency", _LATENCY),
    (lambda m, result: m.bound == "inefficient", _INEFFICIENT),
    (lambda m, result: m.bound == "cache", "the data was in cache: this size does not test the memory bandwidth"),
    (lambda m, result: m.bound == "memory" and _is_far(m), _SLOW_MEMORY),
    (lambda m, result: m.bound == "compute" and _is_far(m), _SLOW_COMPUTE),
    (lambda m, result: m.bound == "memory", "memory bandwidth determines the time: only fewer bytes make it faster"),
    (lambda m, result: m.bound == "compute", "compute determines the time: only fewer FLOPs or another dtype help"),
)

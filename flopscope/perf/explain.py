"""What a failure says: the measurement, the limit, the roofline, and the likely reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flopscope.perf.limits import Held, known
from flopscope.support.units import exact_text
from flopscope.support.units import significant_text as number

__all__ = ["explain"]

FAR = 60.0  # percent of the roofline, below which bytes and FLOPs do not explain the time
RESTLESS = 0.1  # interquartile range over median

_NO_ROOM = "the limit lies inside the confidence interval, also after measuring for longer: leave it more room"
_NO_INTERVAL = "a single sample has no confidence interval: measure for longer, perf(fn, …, max_time=…)"
_MOVED = "the last two measurements disagree by more than their intervals: something else runs here, or clocks move"
_LAUNCH = "launch-bound: give a launch more work, or put launches into a CUDA graph"
_LATENCY = "latency-bound: dependent steps, synchronisation or too little parallelism, not bytes or FLOPs, set the time"
_RESTLESS = "the samples spread widely: something else runs here, or clocks move"
_NOTHING_TELLS = "these numbers do not tell: the code has changed, or the limit was written for another device"
_SLOW_MEMORY = "far below the roofline: more bytes move than must, or accesses are strided, narrow or too few at a time"
_SLOW_COMPUTE = "far below the roofline: the shapes do not fill the device, or the work is not on the peak's units"


def explain(name: str, measurement: Any, held: Held, likely: str = "") -> str:
    """A paragraph for a limit that was not kept, or is unclear.

    name: of what was measured. likely: the reason where the caller knows it; otherwise it is looked for.
    """
    m = measurement
    low, high = map(number, m.ci)
    samples = f"min {number(m.min)}, IQR {number(m.iqr)}, {m.n} samples, timing source {m.timing_source}"
    facts = {
        "measured": f"{held.measured}; the limit is {held.limit}",
        "time": f"median {number(m.median)} µs ({low} to {high}), {samples}",
        "work": _known((m.flops, exact_text, "FLOPs"), (m.bytes_total_moved, exact_text, "bytes")),
        "rates": _known((m.gbytes_per_s, number, "GB/s"), (m.tflops_per_s, number, "TFLOP/s")),
        "roofline": _roofline(m),
        "likely": likely or _likely(m, held),
    }
    verb = {"failed": "does not keep", "unclear": "may or may not keep"}.get(held.verdict, "keeps")
    lines = [f"{name} {verb} its limit: {held.limit}"]
    return "\n".join(lines + [f"  {label:<9} {text}" for label, text in facts.items() if text])


def _known(*facts: tuple[Any, Callable[[Any], str], str]) -> str:
    """Of numbers, how they are written and what they are of, those that are known."""
    return ", ".join(f"{write(value)} {what}" for value, write, what in facts if known(value))


def _roofline(m: Any) -> str:
    share = (m.pct_roofline, number, "% of the roofline")
    of_peaks = (m.pct_peak_bandwidth, number, "% of the bandwidth"), (m.pct_peak_flops, number, "% of the FLOP/s")
    if not _known(share, *of_peaks):
        return f"how close it comes to what the device can do is unknown: {m.why_unknown}"
    told = ", ".join(filter(None, (_known(share), *map(_known, of_peaks))))
    return f"{told}; bound: {m.bound}"


def _is_far(m: Any) -> bool:
    return known(m.pct_roofline) and m.pct_roofline < FAR


# When a reason is the likely one, and the reason. The first that holds is told.
_REASONS: tuple[tuple[Callable[[Any, Held], bool], str], ...] = (
    (lambda m, held: held.moved, _MOVED),
    (lambda m, held: held.verdict == "unclear" and not all(map(known, m.ci)), _NO_INTERVAL),
    (lambda m, held: held.verdict == "unclear", _NO_ROOM),
    (lambda m, held: held.beyond, "the limit is beyond this device's roofline for this work: nothing here can meet it"),
    (lambda m, held: m.bound == "launch", _LAUNCH),
    (lambda m, held: known(m.iqr) and m.iqr > RESTLESS * m.median, _RESTLESS),
    (lambda m, held: m.bound == "latency", _LATENCY),
    (lambda m, held: m.bound == "cache", "the data sat in cache: this size says little about memory"),
    (lambda m, held: m.bound == "memory" and _is_far(m), _SLOW_MEMORY),
    (lambda m, held: m.bound == "compute" and _is_far(m), _SLOW_COMPUTE),
    (lambda m, held: m.bound == "memory", "memory sets the time: only fewer bytes make it faster"),
    (lambda m, held: m.bound == "compute", "arithmetic sets the time: only fewer FLOPs or another dtype help"),
)


def _likely(m: Any, held: Held) -> str:
    return next((reason for holds, reason in _REASONS if holds(m, held)), _NOTHING_TELLS)

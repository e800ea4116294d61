"""Measurements with predefined times on a device with round peaks."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import flopscope as fs
from flopscope.measuring.measurement import Measurement, Shares
from flopscope.measuring.measuring import measure
from flopscope.support.peaks import Peaks

MEASURED = Peaks("measured", {"fp64": 0.5e12, "fp32": 1e12}, bandwidth=100e9, launch_ns=50.0)
DATASHEET = Peaks("datasheet", {"fp64": 0.6e12, "fp32": 1.2e12}, bandwidth=120e9)
PEAKS = {"measured": MEASURED, "datasheet": DATASHEET}
UNITS = {"float64": "fp64", "float32": "fp32"}


@cache
def _template() -> Measurement:
    return measure(fs.neg, fs.ones((2,), device="cpu"), max_time=0.01, min_time=0.0, peaks="none")


def measurement(
    us: float, flops: float, moved: float, *, bound: str = "memory", unit: str = "fp32",
    peaks: Mapping[str, Peaks] = PEAKS, **others: Any,
) -> Measurement:  # fmt: skip
    """Return the Measurement of a call of this time, with shares and rates by the documented formulas."""
    shares = {}
    for source, peak in peaks.items():
        of_flops, of_bytes = (100 * least / us * 1e6 for least in (flops / peak.flops[unit], moved / peak.bandwidth))
        known = [share for share in (of_flops, of_bytes) if not math.isnan(share)]
        shares[source] = Shares(of_flops, of_bytes, max(known, default=math.nan))
    values: dict[str, Any] = {
        **dict.fromkeys(("median", "mean", "min", "max"), us), **vars(shares.get("measured", Shares())), "n": 12,
        "ci": (0.99 * us, 1.01 * us), "iqr": 0.02 * us, "flops": flops, "bytes_total_moved": moved,
        "tflops_per_s": flops / us / 1e6, "gbytes_per_s": moved / us / 1e3,
        "arithmetic_intensity": flops / moved if moved else math.nan, "shares": shares,
        "peaks_source": "measured" if shares else "", "unit": unit,
        "roof": fs._core.roof(flops, moved, unit, MEASURED.for_core()), "bound": bound, **others,
    }  # fmt: skip
    return replace(_template(), **values)


class Clock:
    """A stand-in for measure(): an addition on the simulated CPU, and the recorded options."""

    def __init__(self, us: Callable[[float], float]) -> None:
        """us: function from the bytes that a call moves to its time in µs."""
        self.us = us
        self.asked: list[dict[str, Any]] = []

    def measure(self, fn: Any, *args: Any, **options: Any) -> Measurement:
        self.asked.append(options)
        fn(*args)
        operand = args[0]
        moved = 3.0 * operand.nbytes
        us, dtype = self.us(moved), str(operand.dtype)
        bound = "cache" if moved / us / 1e3 > 105 else "memory"
        flops = options.get("flops") or float(math.prod(operand.shape))
        return measurement(us, flops, moved, bound=bound, unit=UNITS.get(dtype, "fp32"), name=fn.__name__)


def stairs(moved: float) -> float:
    """Return µs: at least 1, up to 1 MB at the 300 GB/s of a cache, above at the 90 GB/s of memory."""
    return max(1.0, moved / (300e3 if moved < 1e6 else 90e3))

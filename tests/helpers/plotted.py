"""What plots are drawn of."""

from __future__ import annotations

import math
from typing import Any

from flopscope.measuring.sweep import Sweep, SweepPoint
from flopscope.support import device
from helpers import fake_sweep
from helpers.fake_sweep import DATASHEET, MEASURED, measurement
from helpers.tables import make_table

BYTES = (3e3, 3e4, 3e5, 3e6, 3e7)
MICROSECONDS = (1.0, 1.2, 1.0, 40.0, 400.0)
IN_ORDER = ("launch", "launch", "cache", "memory", "memory")


def point(size: int, dtype: str, moved: float, us: float, bound: str, **others: Any) -> SweepPoint:
    unit = fake_sweep.UNITS[dtype]
    return SweepPoint(
        size, dtype, str(size), size, moved, measurement(us, moved / 12, moved, bound=bound, unit=unit, **others)
    )


def swept(*dtypes: str, **others: Any) -> Sweep:
    points = [
        point(number, dtype, moved, us, bound)
        for dtype in dtypes
        for number, (moved, us, bound) in enumerate(zip(BYTES, MICROSECONDS, IN_ORDER, strict=True))
    ]
    values = {"peaks": {"measured": MEASURED, "datasheet": DATASHEET}, "floor_us": 0.7, "caches": {"L2": 1e6}, **others}
    return Sweep(values.pop("op", "add"), tuple(points), device.find_device("cpu"), **values)


def row(key: str, us: float, flops: float, moved: float, **others: Any) -> dict[str, Any]:
    """Return a row of a CPU table with the peaks MEASURED."""
    known = not math.isnan(flops + moved)
    return {
        "key": key,
        "self_cpu_time_total": us,
        "cpu_time_total": us,
        "flops": flops,
        "bytes_total_moved": moved,
        "tflops_per_s": flops / us / 1e6,
        "arithmetic_intensity": flops / moved if known and moved else math.nan,
        "unit": "fp32" if flops > 0 else None,
        "bound": "memory",
        **others,
    }


ROWS = (
    row("flopscope::add", 100.0, 1e6, 12e6),
    row("flopscope::matmul", 400.0, 3e8, 3e6, bound="compute"),
    row("flopscope::copy", 50.0, 0.0, 8e6),
    row("flopscope::fill_", 30.0, 0.0, 4e6),
    row("mystery", 20.0, math.nan, math.nan, bound="unknown"),
)


def table(*rows: dict[str, Any]) -> Any:
    return make_table(*rows, peaks={"cpu": {"source": "measured", "name": device.find_device("cpu").name}})

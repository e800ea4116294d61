"""The pages of measurements: one function, two functions in turns, and one op at many sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flopscope.show.page.encode import Columns, sentence
from flopscope.show.page.page import Page

if TYPE_CHECKING:
    from flopscope.measuring.measurement import Measurement
    from flopscope.measuring.paired import TimesCompared
    from flopscope.measuring.sweep import Sweep, SweepPoint
    from flopscope.support.peaks import Peaks

MOST_SAMPLES = 200_000


def measurement_page(measurement: Measurement, peaks: Mapping[str, Peaks], title: str | None = None) -> Page:
    """Return the page of the result of measure(). peaks: those known of its device, by source."""
    page = Page(title or f"measure({measurement.name})", headline=measurement.verdict)
    page.subtitle = ", ".join(dict.fromkeys((measurement.device, measurement.device_name)))
    columns = page.columns
    page.sections["measurement"] = {
        "kind": "measurement",
        "verdict": measurement.verdict,
        "facts": [[name, sentence(text)] for name, text in measurement.facts().items()],
        "notes": [*map(sentence, filter(None, [*measurement.notes, measurement.why_unknown]))],
        "samples": _samples(measurement, columns),
        "statistics": {name: getattr(measurement, name) for name in _STATISTICS},
        "ci": list(measurement.ci),
        "cache": measurement.cache,
        "timing_source": measurement.timing_source,
        "shares": [{"source": source, **vars(shares)} for source, shares in measurement.shares.items()],
        "roofline": _roofline([measurement], [measurement.name], peaks),
    }
    return page


_STATISTICS = (
    *("n", "median", "mean", "min", "max", "std", "iqr", "outliers", "discarded", "batch"),
    *("roofline_time", "headroom", "other_cache", "launch_to_launch", "clock_mhz"),
)


def _samples(measurement: Measurement, columns: Columns) -> dict[str, Any]:
    shown = slice(0, MOST_SAMPLES)
    clocks = measurement.clocks if len(measurement.clocks) == len(measurement.samples) else ()
    return {
        "count": len(measurement.samples),
        "time": columns.numbers(measurement.samples[shown]),
        "clock": columns.numbers(clocks[shown]) if clocks else None,
    }


def _roofline(
    measurements: Sequence[Measurement], names: Sequence[str], peaks: Mapping[str, Peaks]
) -> dict[str, Any] | None:
    """Return marks and roofs; None without either: the work or the peaks are unknown, or there are no FLOPs."""
    marks = [
        {"name": name, "time": m.median, "intensity": m.arithmetic_intensity, "flops": 1e12 * m.tflops_per_s}
        | {"bound": m.bound, "unit": m.unit, "pct_roofline": m.pct_roofline}
        for m, name in zip(measurements, names, strict=True)
        if m.arithmetic_intensity > 0 and m.tflops_per_s > 0 and math.isfinite(m.arithmetic_intensity)
    ]
    if not marks or not peaks:
        return None
    units = dict.fromkeys(m.unit for m in measurements if m.unit)
    roofs = [
        {
            "source": source,
            "bandwidth": known.bandwidth,
            "flops": {unit: known.flops[unit] for unit in units if unit in known.flops},
        }
        for source, known in peaks.items()
    ]
    return {"marks": marks, "roofs": roofs, "unmarked": len(measurements) - len(marks)}


# Two functions --------------------------------------------------------------------------------------------------------


def times_page(times: TimesCompared, title: str | None = None) -> Page:
    """Return the page of the result of compare_times()."""
    page = Page(title or f"{times.f_name} against {times.g_name}", subtitle=times.device, headline=f"{times}.")
    page.sections["measurement"] = {
        "kind": "times",
        "verdict": times.verdict,
        "ratio": times.ratio,
        "ci": list(times.ci),
        "margin": times.margin,
        "rounds": times.rounds,
        "medians": [times.f_median, times.g_median],
        "names": [times.f_name, times.g_name],
        "timing_source": times.timing_source,
        "device": times.device,
        "notes": [*map(sentence, times.notes)],
        "ratios": page.columns.numbers(times.ratios[:MOST_SAMPLES]),
    }
    return page


# A sweep --------------------------------------------------------------------------------------------------------------


def sweep_page(sweep: Sweep, title: str | None = None) -> Page:
    """Return the page of the result of sweep()."""
    page = Page(title or f"sweep of {sweep.op}", subtitle=f"{sweep.device}, {sweep.device.name}")
    page.headline = _largest(sweep.points)
    columns = page.columns
    records = sweep.to_dicts()
    measured = [point for point in sweep.points if point.measurement is not None]
    page.sections["measurement"] = {
        "kind": "sweep",
        "op": sweep.op,
        "count": len(records),
        "dtypes": [*dict.fromkeys(point.dtype for point in sweep.points)],
        "floor": sweep.floor_us,
        "caches": dict(sweep.caches),
        "peaks": [{"source": source, "bandwidth": known.bandwidth} for source, known in sweep.peaks.items()],
        "texts": {
            "dtype": columns.texts(point.dtype for point in sweep.points),
            "shape": columns.texts(point.shape or str(point.size) for point in sweep.points),
            **{name: columns.texts(record[name] for record in records) for name in ("unit", "bound", "note")},
        },
        "numbers": {name: columns.numbers(record[name] for record in records) for name in _SWEPT},
        "roofline": _roofline(
            [point.measurement for point in measured if point.measurement is not None],
            [f"{point.shape or point.size} {point.dtype}" for point in measured],
            sweep.peaks,
        ),
        "notes": [] if sweep.peaks else ["The peaks are unknown, so there is no roofline."],
    }
    return page


def _largest(points: Sequence[SweepPoint]) -> str:
    """Return the verdict on the largest size of the first dtype."""
    known = [point for point in points if point.measurement is not None and point.dtype == points[0].dtype]
    if not known or known[-1].measurement is None:
        return ""
    return f"{known[-1].dtype}, {known[-1].shape or known[-1].size}: {known[-1].measurement.verdict}"


_SWEPT = (
    *("elements", "working_set_bytes", "median", "ci_low", "ci_high", "min", "n", "flops", "bytes_total_moved"),
    *("gbytes_per_s", "tflops_per_s", "arithmetic_intensity", "pct_roofline", "roofline_time", "headroom"),
)

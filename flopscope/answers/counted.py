"""What hardware counters counted: the samples as a DataFrame, and sums over the whole profile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flopscope.support.units import MISSING, bytes_text, number_text, percent_text

if TYPE_CHECKING:
    import pandas

    from flopscope._core import Store
    from flopscope.hardware.energy import Energy

__all__ = ["Hfu", "Total", "Used", "hfu", "section", "timeline", "totals", "used"]


def timeline(core: Store) -> pandas.DataFrame:
    """Return Results.counter_timeline()."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("counter_timeline() needs pandas: pip install pandas") from error
    begin = max(core.begin, 0)  # missing, and far below 0, if nothing was recorded
    place = ["device", "start", "duration"]
    frame = pandas.DataFrame({"device": [], "start": [], "duration": []}).astype({"device": "int64"})
    for device in sorted({track[0] for track in core.samples()}):
        merged: Any = None
        for _, name, _, _, start, end, value in (track for track in core.samples() if track[0] == device):
            columns = {"device": device, "start": (start - begin) / 1e3, "duration": (end - start) / 1e3, name: value}
            one = pandas.DataFrame(columns)
            merged = one if merged is None else merged.merge(one, on=place, how="outer")
        frame = merged if not len(frame) else pandas.concat([frame, merged], ignore_index=True)
    return frame.sort_values(["start", "device"], ignore_index=True, kind="stable")


@dataclass(frozen=True)
class Total:
    """What a device counted over the profile; NaN where it lacks the counter."""

    device: int
    seconds: float
    """Time within samples."""
    share: float
    """This time over that from the first sample to the last."""
    bytes_read: float
    bytes_written: float
    sm_active: float
    """Mean in percent."""
    tensor_active: float
    """Mean in percent."""
    l2_bytes: float
    nvlink_bytes: float
    pcie_bytes: float

    @property
    def tbytes_per_s(self) -> float:
        """Mean DRAM traffic in TB/s while it was counted."""
        return (self.bytes_read + self.bytes_written) / self.seconds / 1e12 if self.seconds else math.nan


def totals(core: Store) -> list[Total]:
    """Return the sums of the samples of each device that has DRAM or activity counters."""
    by_device: dict[int, dict[str, Any]] = {}
    for device, name, kind, _, start, end, value in core.samples():
        if len(start) and kind != "level":
            by_device.setdefault(device, {})[name] = _sums(kind, start, end, value)
    return [_total(device, sums) for device, sums in sorted(by_device.items())]


def _sums(kind: str, start: Any, end: Any, value: Any) -> tuple[float, float, float]:
    """Return the amount or the mean share, the time within samples and the time from the first to the last."""
    lengths = end - start
    seconds, span = float(lengths.sum()) / 1e9, float(end[-1] - start[0]) / 1e9
    if kind == "amount":
        return float(value.sum()), seconds, span
    return float((value * lengths).sum() / lengths.sum()) if seconds else math.nan, seconds, span


def _total(device: int, sums: Mapping[str, tuple[float, float, float]]) -> Total:
    unknown = math.nan, 0.0, 0.0
    value = {name: found[0] for name, found in sums.items()}
    _, seconds, span = sums.get("dram_bytes_read") or sums.get("sm_active") or next(iter(sums.values()), unknown)

    def both(one: str, other: str) -> float:
        return value.get(one, math.nan) + value.get(other, math.nan)

    return Total(
        device=device,
        seconds=seconds,
        share=seconds / span if span else math.nan,
        bytes_read=value.get("dram_bytes_read", math.nan),
        bytes_written=value.get("dram_bytes_written", math.nan),
        sm_active=value.get("sm_active", math.nan),
        tensor_active=value.get("tensor_active", math.nan),
        l2_bytes=value.get("l2_bytes", math.nan),
        nvlink_bytes=both("nvlink_bytes_received", "nvlink_bytes_sent"),
        pcie_bytes=both("pcie_bytes_read", "pcie_bytes_written"),
    )


class Hfu(NamedTuple):
    """Hardware FLOP utilization."""

    percent: float
    """Mean share of the tensor cores' peak over all devices; NaN without that counter."""
    seconds: float
    """Time in which it was counted, summed over the devices."""


def hfu(core: Store) -> Hfu:
    """Return the hardware FLOP utilization of a profile."""
    found = [total for total in totals(core) if not math.isnan(total.tensor_active)]
    seconds = sum(total.seconds for total in found)
    active = sum(total.tensor_active * total.seconds for total in found)
    return Hfu(active / seconds if seconds else math.nan, seconds)


@dataclass(frozen=True)
class Used:
    """Energy that a device used; NaN where it is unknown."""

    device: str
    joules: float
    watts: float
    """Mean power."""
    gflop_per_joule: float
    """FLOPs of the model; of one device only, as the FLOPs of several are not told apart."""
    missing: str
    """Why the energy is unknown; "" where it is known."""


def used(energy: Mapping[str, Energy], flops: Iterable[float]) -> list[Used]:
    """Return the energy of each device. energy: as Results.energy. flops: of all ops; NaN where unknown."""
    known = [number for number in flops if not math.isnan(number)]
    done = sum(known) if known else math.nan
    return [
        Used(
            device,
            one.joules,
            one.watts,
            done / one.joules / 1e9 if len(energy) == 1 and one.joules > 0 else math.nan,
            one.missing,
        )
        for device, one in energy.items()
    ]


def section(core: Store) -> list[tuple[str, ...]]:
    """Return the rows of the summary's section on counters: a header, then one for each device; [] without any."""
    found = totals(core)
    if not found:
        return []
    rows: list[tuple[str, ...]] = [("device", "read", "written", "mean TB/s", "SM active", "tensor active", "counted")]
    for total in found:
        traffic = (MISSING if math.isnan(n) else bytes_text(n) for n in (total.bytes_read, total.bytes_written))
        shares = map(percent_text, (total.sm_active, total.tensor_active, 100 * total.share))
        rows.append((f"cuda:{total.device}", *traffic, number_text(total.tbytes_per_s), *shares))
    return rows

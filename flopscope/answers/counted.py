"""What hardware counters counted: the samples as a DataFrame, and sums over the whole profile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flopscope.answers.analysis import WORK_PARTS
from flopscope.support.core_values import UNKNOWN_TIME, WORK
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
    """Of the time in which the device worked, that within samples; without work, of that from the first to the last."""
    bytes_read: float
    """Within samples, as the other amounts."""
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

    @property
    def whole_read(self) -> float:
        """Bytes read in the whole profile, if the work outside of samples read at the rate of that within."""
        return self.bytes_read / self.share if self.share > 0 else math.nan

    @property
    def whole_written(self) -> float:
        """Bytes written, as ``whole_read``."""
        return self.bytes_written / self.share if self.share > 0 else math.nan


def totals(core: Store) -> list[Total]:
    """Return the sums of the samples of each device that has DRAM or activity counters."""
    by_device: dict[int, dict[str, tuple[float, Any, Any]]] = {}
    for device, name, kind, _, start, end, value in core.samples():
        if len(start) and kind != "level":
            by_device.setdefault(device, {})[name] = (_whole(kind, start, end, value), start, end)
    busy = _busy(core, by_device) if by_device else {}
    return [_total(device, found, busy[device]) for device, found in sorted(by_device.items())]


def _whole(kind: str, start: Any, end: Any, value: Any) -> float:
    """Return the sum of amounts, or the mean of shares."""
    if kind == "amount":
        return float(value.sum())
    lengths = end - start
    return float((value * lengths).sum() / lengths.sum()) if lengths.any() else math.nan


def _busy(core: Store, devices: Iterable[int]) -> dict[int, tuple[Any, Any]]:
    """Return by device when it worked: starts and ends in ns, in order and without overlap."""
    columns, _, kinds, _ = core.events()
    codes = [kinds.index(kind) for kind in WORK]
    chosen = np.isin(columns["kind"], codes) & (columns["start"] != UNKNOWN_TIME) & (columns["duration"] > 0)
    found = {}
    for one in devices:
        on_device = chosen & (columns["device"] == one)
        start, duration = columns["start"][on_device], columns["duration"][on_device]
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.maximum.accumulate((start + duration)[order])
        begins = np.append(True, start[1:] > end[:-1])[: len(start)]
        found[one] = start[begins], end[np.append(begins[1:], True)[: len(end)]]
    return found


def _seconds(busy: tuple[Any, Any]) -> float:
    return float((busy[1] - busy[0]).sum()) / 1e9


def _within(start: Any, end: Any, busy: tuple[Any, Any]) -> float:
    """Return for how long, in s, a device worked within samples."""
    lengths = np.cumsum(end - start)

    def counted_until(times: Any) -> Any:
        last = np.searchsorted(start, times, side="right") - 1  # of the samples that began by then
        return np.where(last < 0, 0, lengths[last] - np.maximum(end[last] - times, 0))

    return float((counted_until(busy[1]) - counted_until(busy[0])).sum()) / 1e9


def _total(device: int, found: Mapping[str, tuple[float, Any, Any]], busy: tuple[Any, Any]) -> Total:
    value = {name: one[0] for name, one in found.items()}
    _, start, end = found.get("dram_bytes_read") or found.get("sm_active") or next(iter(found.values()))
    seconds, span = float((end - start).sum()) / 1e9, float(end[-1] - start[0]) / 1e9
    whole = _seconds(busy)

    def both(one: str, other: str) -> float:
        return value.get(one, math.nan) + value.get(other, math.nan)

    return Total(
        device=device,
        seconds=seconds,
        share=_within(start, end, busy) / whole if whole else seconds / span if span else math.nan,
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
    """Mean share of the tensor cores' peak over all devices and the time of the accounting; NaN if unknown."""
    share: float
    """Of the devices' work, that which was counted."""


def hfu(core: Store, accounting: Mapping[str, Sequence[Any]]) -> Hfu:
    """Return the hardware FLOP utilization of a profile, which is to MFU as counted FLOPs are to those of the model.

    accounting: its columns. Work that was not counted is taken to use the tensor cores as the rest did.
    """
    tracks = {track[0]: track[4:] for track in core.samples() if track[1] == "tensor_active" and len(track[4])}
    if not tracks or not any(accounting["total"][-1:]):
        return Hfu(math.nan, 0.0)
    busy = _busy(core, tracks)
    active = sum(float((value * (end - start)).sum()) / 1e9 for start, end, value in tracks.values())
    within = sum(_within(start, end, busy[device]) for device, (start, end, _) in tracks.items())
    whole = sum(_seconds(one) for one in busy.values())
    worked = sum(accounting[part][-1] for part in WORK_PARTS) / accounting["total"][-1]
    return Hfu(active / within * worked, within / whole) if within else Hfu(math.nan, 0.0)


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
        traffic = (MISSING if math.isnan(n) else bytes_text(n) for n in (total.whole_read, total.whole_written))
        shares = map(percent_text, (total.sm_active, total.tensor_active, 100 * total.share))
        rows.append((f"cuda:{total.device}", *traffic, number_text(total.tbytes_per_s), *shares))
    return rows

"""What hardware counters counted: sums over the profile, as a table, and traffic beyond the model or below it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flopscope.answers.analysis import WORK_PARTS, Analysis
from flopscope.answers.findings import Finding, finding_about
from flopscope.answers.pieces import Op
from flopscope.answers.words import OP_WIDTH, Said, more_ops
from flopscope.support.columns import cut_end
from flopscope.support.core_facts import UNKNOWN_TIME, WORK
from flopscope.support.units import bytes_text, number_text, percent_text

if TYPE_CHECKING:
    from flopscope._core import Store

NOISE = 2.0
"""Percent of activity of tensor cores that an H200 counts in kernels that do not use them."""


@dataclass(frozen=True)
class Total:
    """What a device counted over the profile; NaN where it lacks the counter."""

    device: int
    seconds: float
    """Time within samples."""
    share: float
    """Share of the device's working time that lies within samples; without work, share of the time from first to
    last."""
    bytes_read: float
    """Within samples, as the other amounts."""
    bytes_written: float
    sm_active: float
    """Mean in percent."""
    tensor_active: float
    """Mean in percent."""

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


class Hfu(NamedTuple):
    """Hardware FLOP utilization."""

    percent: float
    """Mean share of the tensor cores' peak over all devices and the time of the accounting; NaN if unknown, or if the
    work may not use them."""
    share: float
    """Share of the devices' work that was counted."""


class Counted:
    """What the samples of a profile show about the whole profile. The store is read once, on creation."""

    def __init__(self, core: Store) -> None:
        self.core = core
        self._tracks: dict[int, dict[str, Track]] = {}
        for device, name, kind, _, start, end, value in core.samples():
            if len(start) and kind != "level":
                self._tracks.setdefault(device, {})[name] = Track(kind, start, end, value)
        self._busy = _busy(core, self._tracks) if self._tracks else {}

    def totals(self) -> list[Total]:
        """Return the sums of the samples of each device that has DRAM or activity counters."""
        return [_total(device, tracks, self._busy[device]) for device, tracks in sorted(self._tracks.items())]

    def hfu(self, accounting: Mapping[str, Sequence[Any]]) -> Hfu:
        """Return the hardware FLOP utilization, which is to MFU as counted FLOPs are to those of the model.

        accounting: its columns. Work that was not counted is taken to use the tensor cores as the rest did.
        """
        name = "tensor_active"
        found = {device: tracks[name] for device, tracks in self._tracks.items() if name in tracks}
        if not found or not any(accounting["total"][-1:]):
            return Hfu(math.nan, 0.0)
        active = sum(float((track.value * (track.end - track.start)).sum()) / 1e9 for track in found.values())
        within = sum(_within(track, self._busy[device]) for device, track in found.items())
        whole = sum(_seconds(self._busy[device]) for device in found)
        worked = sum(accounting[part][-1] for part in WORK_PARTS) / accounting["total"][-1]
        used = within > 0 and active / within > NOISE
        return Hfu(active / within * worked, within / whole) if used else Hfu(math.nan, 0.0)


class Track(NamedTuple):
    """The samples of a counter of a device."""

    kind: str
    start: Any
    end: Any
    value: Any


def _overall(track: Track) -> float:
    """Return the sum of amounts, or the mean of shares."""
    if track.kind == "amount":
        return float(track.value.sum())
    lengths = track.end - track.start
    return float((track.value * lengths).sum() / lengths.sum()) if lengths.any() else math.nan


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


def _seconds(intervals: tuple[Any, Any]) -> float:
    """Return the length of intervals, given by their starts and ends in ns."""
    return float((intervals[1] - intervals[0]).sum()) / 1e9


def _within(track: Track, busy: tuple[Any, Any]) -> float:
    """Return for how long, in s, a device worked within samples."""
    start, end = track.start, track.end
    lengths = np.cumsum(end - start)

    def counted_until(times: Any) -> Any:
        last = np.searchsorted(start, times, side="right") - 1  # of the samples that began by then
        return np.where(last < 0, 0, lengths[last] - np.maximum(end[last] - times, 0))

    return float((counted_until(busy[1]) - counted_until(busy[0])).sum()) / 1e9


def _total(device: int, tracks: Mapping[str, Track], busy: tuple[Any, Any]) -> Total:
    value = {name: _overall(track) for name, track in tracks.items()}
    track = tracks.get("dram_bytes_read") or tracks.get("sm_active") or next(iter(tracks.values()))
    seconds, span = _seconds((track.start, track.end)), float(track.end[-1] - track.start[0]) / 1e9
    whole, names = _seconds(busy), ("dram_bytes_read", "dram_bytes_written", "sm_active", "tensor_active")
    share = _within(track, busy) / whole if whole else seconds / span if span else math.nan
    return Total(device, seconds, share, *(value.get(name, math.nan) for name in names))


def counter_rows(counted: Counted) -> list[tuple[str, ...]]:
    """Return the rows of the summary's section on counters: a header, then one for each device; [] without any."""
    rows: list[tuple[str, ...]] = [("device", "read", "written", "mean TB/s", "SM active", "tensor active", "counted")]
    for total in counted.totals():
        traffic = map(bytes_text, (total.whole_read, total.whole_written))
        shares = map(percent_text, (total.sm_active, total.tensor_active, 100 * total.share))
        rows.append((counted.core.device_name(total.device), *traffic, number_text(total.tbytes_per_s), *shares))
    return rows if len(rows) > 1 else []


MOST_TRAFFIC = 1.3
"""Largest ratio of counted to modelled bytes without a finding: writes are attributed within a part of the L2."""
CACHED, LEAST_CACHED = 0.7, 0.01
"""Counted bytes over the model's below which the L2 served the rest, and the least share of the time to report."""
OF_LIBRARIES = ("matrix product", "convolution", "attention")
"""Categories whose kernels move more than their arguments and results: workspaces, and tiles once more."""
TRAFFIC_SHARE = 0.5
"""Least share of its time that an op needs for the counted bytes at the peak, so that fewer bytes make it faster."""
LEAST_L2 = 50.0
"""Percent of the L2's bandwidth below which it does not bound an op, where that bandwidth is known."""
Counts = list[tuple[Op, float]]
"""Ops with what was counted of each, the longest first."""


def _counted(analysis: Analysis, op: Op, name: str) -> float:
    return float(analysis.columns[name][op.row]) if op.row >= 0 else math.nan


def traffic(analysis: Analysis) -> Iterator[Finding]:
    """Memory-bound ops whose counted bytes exceed those that they must move by 30 % or more.

    The estimate is the share of their time that the bytes beyond the model take. Premises: counters of the memory, and
    the shapes (record_shapes), from which the model has its bytes; no product, convolution or attention, whose
    libraries read tiles again and move memory of their own, which no change of the program avoids.

    Facts: reads: bytes read over those of its inputs; NaN: unknown, or not more.
    """
    found: Counts = []
    for op in analysis.ops:
        ratio = _counted(analysis, op, "traffic_ratio")
        if op.category not in OF_LIBRARIES and ratio >= MOST_TRAFFIC and op.memory * ratio >= TRAFFIC_SHARE * op.time:
            found.append((op, ratio))
    if found:
        op, ratio = found[0]
        must = _counted(analysis, op, "bytes_read")
        reads = _counted(analysis, op, "dram_bytes_read") / must if must > 0 else math.nan
        name, reads, jax = op.key, reads if reads >= MOST_TRAFFIC else math.nan, analysis.uses_jax
        why = f" (it reads {reads:.1f} × its input)" if reads > 1 else ""
        fused = "one kernel for both (Pallas)" if jax else "a fused kernel (torch.compile)"
        says = Said(
            f"Move fewer bytes in {cut_end(name, OP_WIDTH)}",
            f"the GPU's counters saw {name} move {ratio:.1f} × the bytes that it must{why}. Strided access fetches "
            "whole sectors for a part of them: make the last dimension contiguous. A kernel that needs its input twice "
            f"reads it again if a row exceeds the multiprocessor's memory: {fused} or shorter rows read it once.",
            {"op": name, "ratio": ratio, "reads": reads, "jax": jax},
        )
        claims = [(op, min(op.time * (1 - 1 / ratio), max(op.beyond, 0.0))) for op, ratio in found]
        yield finding_about(analysis, says, claims, [op for op, _ in found])


def cached(analysis: Analysis) -> Iterator[str]:
    """Yield a note on the longest op whose share of the roofline says nothing: the L2 served most of its bytes."""
    found: Counts = []
    for op in analysis.ops:
        ratio = _moved(analysis, op)
        if op.time > 0 and ratio < CACHED and op.memory >= max(op.compute, TRAFFIC_SHARE * op.time):
            found.append((op, ratio))
    if not found or sum(op.time for op, _ in found) < LEAST_CACHED * analysis.unobserved:
        return
    op, ratio = found[0]
    compute, memory = (100 * least / op.time for least in (op.compute, op.memory))
    busy, asked = _counted(analysis, op, "device_busy_time"), _counted(analysis, op, "l2_bytes")
    bound = "the L2 or latency bounds it"
    if compute >= 100 * TRAFFIC_SHARE:
        bound = f"its FLOPs bound it, at {compute:.0f} % of their peak"
    elif busy > 0 and asked > 0 and not _counted(analysis, op, "pct_peak_l2") < LEAST_L2:
        bound = f"the L2 bounds it, which served {asked / busy / 1e6:.1f} TB/s"
    yield (
        f"Cache hits: {op.key} moved {ratio:.2f} × the bytes of its model, by the GPU's counters, because the L2 "
        f"cache had the rest. Its {memory:.0f} % of the memory's bandwidth therefore says nothing: the memory was "
        f"at {memory * ratio:.0f} %, and {bound}.{more_ops(len(found) - 1)}"
    )


def _moved(analysis: Analysis, op: Op) -> float:
    """Return the counted over the modelled bytes; of those that are read where the written ones are unknown."""
    ratio, must = _counted(analysis, op, "traffic_ratio"), _counted(analysis, op, "bytes_read")
    return _counted(analysis, op, "dram_bytes_read") / must if math.isnan(ratio) and must > 0 else ratio


RULES = (traffic,)

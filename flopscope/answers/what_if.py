"""What if: the accounting as it would be after a change of the program, of its host or of its device.

The model: a row that compute or memory bounds keeps the share of its limit that it reaches, so its time changes as its
least time does. Time beyond the limits of other rows, of inefficient ones and of those that a counted unit bounds
stays, and so do communication and copies. The steps are then replayed with these times (answers/replays.py), so that a
device that works less waits where the host then limits the step.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flopscope import _core
from flopscope.answers.accounting import part_columns
from flopscope.answers.advice import RULES, Pools
from flopscope.answers.analysis import CAUSES, PARTS, ROUNDING, Analysis
from flopscope.answers.findings import is_convolution, is_product
from flopscope.answers.pieces import Op
from flopscope.answers.replays import Replayed
from flopscope.support.device import Datasheet
from flopscope.support.model import Model, mismatch
from flopscope.support.peaks import MEMORY, checked_rates
from flopscope.support.safe import shown
from flopscope.support.suggest import did_you_mean

if TYPE_CHECKING:
    import pandas

CHANGE_WORK = frozenset({"attention", "tf32", "low_precision", "cast", "layout", "fuse", "optimizer"})
"""Rules whose change makes the program do other work, so that its FLOPs and bytes are unknown."""
STAYING = ("inefficient", "l2", "l1", "tensor", "fma", "fp64", "alu", "issue")
"""Bounds of rows whose time beyond their FLOPs and bytes is not that of the peaks that change."""
LONGEST = 100 * 365 * 86400 * 10**9
"""ns, a century: numbers that make the times longer are refused, as they would not fit 64 bits."""
NOT_REPLAYED = "the recorded calls of the host do not explain when its work ran"
_COMPUTE, _MEMORY, _UNMODELLED, _HOST = (PARTS.index(name) for name in ("compute", "memory", "unmodelled", "host"))
Floats = npt.NDArray[np.float64]


def what_if(
    prof: Any,
    *,
    rule: str | Iterable[str] | None = None,
    peaks: Mapping[str, float] | None = None,
    host_us_per_launch: float | None = None,
    dtype: Any = None,
    device: str | None = None,
) -> pandas.DataFrame:
    """Return the accounting of a profile or of a loaded trace as it would be after a change.

    This is ``prof.what_if(…)``, which describes the arguments.
    """
    method = getattr(prof, "what_if", None)
    if method is None:
        raise TypeError(f"what_if() takes a profile or a loaded trace, not {type(prof).__name__}")
    changes = {"rule": rule, "peaks": peaks, "host_us_per_launch": host_us_per_launch, "dtype": dtype}
    frame: pandas.DataFrame = method(**changes, device=device)
    return frame


def what_if_frame(
    analysis: Analysis, *, rule: Any, peaks: Any, host_us_per_launch: Any, dtype: Any, device: Any
) -> pandas.DataFrame:
    """Return the accounting after a change; Results.what_if describes the arguments."""
    import pandas

    rules = checked_rules(rule)
    change = change_of(analysis, peaks, dtype, device)
    host = _checked_host(analysis, host_us_per_launch)
    model = Times(analysis)
    model.follow(rules)
    with np.errstate(over="ignore", invalid="ignore"):  # times beyond all bounds are refused
        if change is not None:
            model.change(change)
        parts = model.parts(host)
    recorded = (1 + ROUNDING) * analysis.total / analysis.scale
    launching = 1000 * (host or 0.0) * len(analysis.works["event"])
    if not max(parts.sum(), launching) <= max(LONGEST, recorded):
        given = {"peaks": peaks, "host_us_per_launch": host, "dtype": dtype, "device": device}
        asked = ", ".join(f"{name}={shown(value)}" for name, value in given.items() if value is not None)
        why = "the times would be longer than a century; rates are per second, host in µs"
        raise ValueError(f"what_if({asked}): {why}")
    return pandas.DataFrame(part_columns(analysis, np.rint(np.maximum(parts, 0.0)).astype(np.int64), model.work()))


def _checked_host(analysis: Analysis, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        raise ValueError(f"host_us_per_launch must be a number of µs, at least 0, not {shown(value)}")
    if not analysis.on_device:
        raise ValueError(f"what_if(host_us_per_launch={value!r}): the profile has no work of a GPU")
    return float(value)


class Times:
    """The times of the cells and of the idle times, in ns of the profile, first as without recording."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        cells, gaps = analysis.cells, analysis.gap_cells
        self.time = np.asarray(cells["exclusive"], dtype=np.float64) * analysis.bare_scales[0]
        self.ideal = np.minimum(analysis.cell_ideals().astype(np.float64), self.time)
        self.part = np.array(cells["part"])
        self.compute = np.array(cells["compute"], dtype=np.float64)
        self.memory = np.array(cells["memory"], dtype=np.float64)
        self.active = np.array(cells["active"], dtype=np.float64)
        by_cause = np.array([analysis.unobserved_share(cause) for cause in CAUSES])
        self.idle = gaps["time"] * by_cause[gaps["cause"]]
        self.replayed = Replayed(analysis)
        self._factors: dict[int, float] = {}
        """Of the time of each op's work that a change of peaks makes, by op number."""
        self.rated = bool(analysis.peaks)
        """Whether FLOPs and bytes are known after the change."""

    # Rules ----------------------------------------------------------------------------------------------------------

    def follow(self, rules: Sequence[str]) -> None:
        """Take the time that the findings of rules claim from the ops and idle times that they claim it from."""
        analysis, pools = self.analysis, Pools(self.analysis)
        ops = {id(op): [op.time, op.ideal] for op in analysis.ops}
        for rule in rules:
            for finding in RULES[rule](analysis):
                claims = pools.granted(finding)
                for source, granted in claims:
                    if isinstance(source, Op):
                        _take(ops[id(source)], granted, rule in CHANGE_WORK)
                        self.rated &= rule not in CHANGE_WORK
                    pools.times[id(source)] -= granted
                self.replayed.gain(finding, claims, take=True)
        if not rules:
            return
        numbers, idle = analysis.cells["op"], analysis.gap_numbers
        kept = np.ones((1 + numbers.max(initial=-1), 2))  # of ops that only steps apart have: all
        for op in analysis.ops:
            time, ideal = ops[id(op)]
            kept[op.number] = _ratio(time, op.time), _ratio(ideal, op.ideal)
        self.time = self.time * kept[numbers, 0]
        self.ideal = np.minimum(self.ideal * kept[numbers, 1], self.time)
        left = np.ones(1 + idle.max(initial=-1))
        for gap in analysis.gaps:
            left[gap.number] = _ratio(pools.times[id(gap)], analysis.gap_unobserved(gap))
        self.idle = self.idle * left[idle]

    # Peaks, dtypes, devices -----------------------------------------------------------------------------------------

    def change(self, change: Change) -> None:
        """Scale the time of each row as the least time that its work needs."""
        cells = self.analysis.cells
        by_compute, by_memory = change.factors(self.analysis)
        places = np.stack([cells["device"], np.where(cells["row"] < 0, -2 - cells["kernel"], cells["row"])], axis=1)
        row = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
        # of the whole row: a piece of work may last beyond the step in which it began
        compute, memory = (np.bincount(row, weights=cells[name])[row] for name in ("compute", "memory"))
        new_compute = np.where(compute > 0, compute * by_compute, 0.0)
        new_memory = np.where(memory > 0, memory * by_memory, 0.0)
        known = (cells["class"] == 0) & (cells["ideal"] >= 0)
        least = np.maximum(compute, memory)
        ratio = np.where(known & (least > 0), np.maximum(new_compute, new_memory) / np.where(least > 0, least, 1), 1.0)
        lost = np.isnan(ratio)
        bounds = np.array([*self.analysis.columns["bound"], "unknown"])  # row -1 is the last entry
        bounds = bounds[np.where(cells["row"] < 0, cells["kernel"], cells["row"])]
        limited = ((self.part == _COMPUTE) | (self.part == _MEMORY)) & ~np.isin(bounds, STAYING)
        turned = limited & ((compute > memory) != (new_compute > new_memory)) & ~lost
        self.part[turned] = np.where(new_compute > new_memory, _COMPUTE, _MEMORY)[turned]
        numbers, before = cells["op"], self.time
        beyond = np.where(limited & ~lost, ratio, 1.0) * (self.time - self.ideal)
        self.ideal = np.where(lost, 0.0, self.ideal * ratio)
        self.time = np.where(lost, self.time, self.ideal + beyond)
        sums = [np.bincount(numbers, times, 1 + numbers.max(initial=-1)) for times in (before, self.time)]
        self._factors = {at: after / time for at, (time, after) in enumerate(zip(*sums, strict=True)) if time > 0}
        self.part[lost] = _UNMODELLED
        self.compute = np.where(lost | (self.compute == 0), 0.0, self.compute * by_compute)
        self.memory = np.where(lost | (self.memory == 0), 0.0, self.memory * by_memory)
        self.active = np.where(lost, 0.0, self.active * by_compute)

    # Sums -----------------------------------------------------------------------------------------------------------

    def _sum(self, values: npt.NDArray[Any], part: Any = 0) -> Floats:
        """Sum values of the cells by device, step and part."""
        cells = self.analysis.cells
        sums = np.zeros((len(self.analysis.devices), len(self.analysis.steps), len(PARTS)))
        np.add.at(sums, (self.analysis.places(cells), cells["step"], part), values)
        return sums

    def work(self) -> Floats:
        """Return the times of the FLOPs and of the bytes at the peaks in ns, by device and step; NaN if unknown."""
        sums = [self._sum(values)[..., 0] for values in (self.compute - self.active, self.memory)]
        return np.stack(sums, axis=-1) if self.rated else np.full((*sums[0].shape, 2), math.nan)

    def parts(self, host_us_per_launch: float | None) -> Floats:
        """Return the parts by device, step and part, in ns."""
        analysis, gaps = self.analysis, self.analysis.gap_cells
        parts = self._sum(self.ideal) + self._sum(self.time - self.ideal, self.part)
        np.add.at(parts, (analysis.places(gaps), gaps["step"], gaps["part"]), self.idle)
        if self.replayed.usable:
            self.replayed.scale(self._factors, host_us_per_launch)
            alike = parts[:, analysis.apart :]  # these are replayed
            late, wanted = alike[..., _HOST], self.replayed.share * analysis.unobserved / analysis.scale
            amount = max(wanted - alike.sum(), -late.sum())
            weights = late if amount < 0 else alike.sum(axis=-1)  # of each device and step
            if weights.sum() > 0:
                late += amount * weights / weights.sum()
        elif host_us_per_launch is not None:
            raise ValueError(f"what_if(host_us_per_launch={host_us_per_launch!r}): {NOT_REPLAYED}")
        return parts


def _take(left: list[float], granted: float, other_work: bool) -> None:
    """Take time from [time, ideal time] of an op: beyond the ideal first; of other work, both in proportion."""
    time = max(left[0] - granted, 0.0)
    left[1] = left[1] * _ratio(time, left[0]) if other_work else min(left[1], time)
    left[0] = time


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 1.0


# Changes: their arguments, and by how much the least time of each piece of work changes -------------------------------

PRODUCT_UNITS = {
    name: row.product_unit for name, row in _core.dtypes.items() if row.product_unit and row.kind in ("float", "float8")
}
"""The compute unit of products by dtype. Float32 products use "tf32_tensor" where the profile has such products."""


@dataclass(frozen=True)
class Change:
    """The rates of a device, and the dtype of all float tensors, after a change."""

    rates: Mapping[str, float] = field(default_factory=dict)
    """FLOP/s by compute unit, bytes/s of "memory"; those not listed are as they were."""
    device: Mapping[str, float] | None = None
    """The rates of another device, which replaces all; those not listed are unknown."""
    dtype: str | None = None

    def rate(self, unit: str, now: Mapping[str, float]) -> float:
        """Return a rate after the change, or NaN if it is unknown."""
        return self.rates.get(unit, _rate(unit, now if self.device is None else self.device))

    def factors(self, analysis: Analysis) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the new least time over the old one for the FLOPs and for the bytes of each cell; NaN: unknown."""
        tf32 = any(op.unit == "tf32_tensor" for op in analysis.all_ops)
        numbers = analysis.cells["op"]
        both = np.ones((1 + numbers.max(initial=-1), 2))
        for op in analysis.all_ops:
            both[op.number] = self._factors_of(analysis, op, tf32)
        return both[numbers, 0], both[numbers, 1]

    def _factors_of(self, analysis: Analysis, op: Op, tf32: bool) -> tuple[float, float]:
        name = analysis.core.device_name(op.device)
        peaks = analysis.peaks.get(name)
        if peaks is None:
            return 1.0, 1.0
        now = {**peaks.flops, **({MEMORY: peaks.bandwidth} if peaks.bandwidth else {})}
        unit, share = op.unit, 1.0
        if self.dtype is not None and unit is not None:
            share = _bytes_share(op, self.dtype)
            if unit.endswith("_tensor") or is_product(op) or is_convolution(op):
                unit = "tf32_tensor" if self.dtype == "float32" and tf32 else PRODUCT_UNITS[self.dtype]
                if math.isnan(self.rate(unit, now)):
                    raise ValueError(f"what_if(dtype={self.dtype!r}): the peak of {unit} is unknown for {name}")
        memory = share * _rate(MEMORY, now) / self.rate(MEMORY, now)
        if op.unit is None or unit is None:
            others = self.device is not None or self.dtype is not None or self.rates.keys() - {MEMORY}
            return math.nan if op.active > 0 and others else 1.0, memory  # of which unit was active, nothing is known
        return _rate(op.unit, now) / self.rate(unit, now), memory


def _rate(unit: str, rates: Mapping[str, float]) -> float:
    """Return the rate of a unit, or of the one that libraries use in its place; NaN if both are unknown."""
    return rates.get(unit, rates.get(_core.fallback_units.get(unit, ""), math.nan))


def _bytes_share(op: Op, dtype: str) -> float:
    """Return the bytes of an op's float tensors in another dtype over those now, other tensors included in both.

    NaN if the dtype of a tensor is unknown. Complex numbers, and floats of which two share a byte, stay as they are.
    """
    now = then = 0.0
    for shape, old in zip(op.shapes, op.dtypes, strict=False):
        if not shape:
            continue
        elements = math.prod(shape)
        row = _core.dtypes.get(old)
        size, kind = (row.bytes, row.kind) if row else (math.nan, "")
        now += elements * size
        then += elements * (_core.dtypes[dtype].bytes if kind in ("float", "float8") else size)
    return then / now if now != 0 else 1.0


# Arguments ------------------------------------------------------------------------------------------------------------


def change_of(analysis: Analysis, peaks: object, dtype: object, device: object) -> Change | None:
    """Return the change that arguments of what_if() describe, None for no change; ValueError for invalid ones."""
    if peaks is None and dtype is None and device is None:
        return None
    if peaks is not None and not isinstance(peaks, Mapping):
        raise TypeError(f'what_if(peaks=…) takes rates by name, such as {{"memory": 8e12}}, not {peaks!r}')
    rates = {} if peaks is None else checked_rates(peaks)
    change = Change(rates, None if device is None else _device_rates(device), _checked_dtype(dtype))
    given = {"peaks": peaks, "dtype": dtype, "device": device}
    if device is not None and not analysis.on_device:
        raise ValueError(f"what_if(device={device!r}): the profile has no work of a GPU")
    if not analysis.peaks:
        asked = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        raise ValueError(f"what_if({asked}): the peaks of the devices that ran are unknown")
    return change


def checked_rules(rule: str | Iterable[str] | None) -> list[str]:
    """Return the names of rules in the order in which they claim time; ValueError for an unknown name."""
    if rule is not None and not isinstance(rule, Iterable):
        raise TypeError(f"what_if(rule=…) takes the name of a rule, or several, not {rule!r}")
    wanted = [] if rule is None else [rule] if isinstance(rule, str) else list(rule)
    for name in wanted:
        if name not in RULES:
            raise ValueError(f"there is no rule {name!r}{did_you_mean(name, RULES)}; the rules are {', '.join(RULES)}")
    return [name for name in RULES if name in wanted]


def _checked_dtype(dtype: object) -> str | None:
    name = str(dtype).removeprefix("torch.")
    if dtype is None or name in PRODUCT_UNITS:
        return None if dtype is None else name
    hint = did_you_mean(name, PRODUCT_UNITS)
    raise ValueError(f"there is no float dtype {name!r}{hint}; those known are {', '.join(PRODUCT_UNITS)}")


def _device_rates(device: object) -> dict[str, float]:
    """Return the rates of a device of the datasheet by name."""
    name = str(device)
    sheet = Datasheet.of_model(Model(name))
    if sheet is None:
        names = [known for one in _core.datasheet() for known in one["names"]]
        if name not in names:
            raise ValueError(f"no datasheet row for {name!r}{did_you_mean(name, names)}")
        raise ValueError(f"what_if(device={name!r}): {mismatch(Model(name), _core.datasheet(name))}")
    return {**sheet.flops, **({MEMORY: sheet.bandwidth} if sheet.bandwidth else {})}

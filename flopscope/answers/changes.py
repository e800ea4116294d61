"""Changes that what_if() takes: their arguments, and by how much the least time of each piece of work changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from flopscope import _core
from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import is_convolution, is_product
from flopscope.answers.pieces import Op
from flopscope.answers.rules import RULES
from flopscope.support.device import Datasheet
from flopscope.support.model import Model, mismatch
from flopscope.support.peaks import MEMORY, checked_rates
from flopscope.support.suggest import did_you_mean

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
    change = Change(_checked_peaks(peaks), None if device is None else _device_rates(device), _checked_dtype(dtype))
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


def _checked_peaks(peaks: object) -> dict[str, float]:
    if peaks is None:
        return {}
    if not isinstance(peaks, Mapping):
        raise TypeError(f'what_if(peaks=…) takes rates by name, such as {{"memory": 8e12}}, not {peaks!r}')
    return checked_rates(peaks)


def _checked_dtype(dtype: object) -> str | None:
    name = str(dtype).removeprefix("torch.")
    if dtype is None or name in PRODUCT_UNITS:
        return None if dtype is None else name
    raise ValueError(
        f"there is no float dtype {name!r}{did_you_mean(name, PRODUCT_UNITS)}; those known are "
        f"{', '.join(PRODUCT_UNITS)}"
    )


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

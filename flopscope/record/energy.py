"""The energy that a GPU took, by NVML's total since the driver was loaded (package nvidia-ml-py)."""

from __future__ import annotations

import math
import time

from flopscope.support.nvml import explained, find_gpu

LEAST_SECONDS = 0.1
"""Shortest window: the counter of the driver is updated every 20 to 100 ms."""


class Energy:
    """Energy of a GPU over a window: ``joules``, and ``watts``, the mean power; NaN where it is unknown."""

    def __init__(self, joules: float, seconds: float, missing: str = "") -> None:
        long_enough = seconds >= LEAST_SECONDS
        self.joules = joules if long_enough else math.nan
        self.seconds = seconds
        self.missing = missing
        """Why the energy is unknown; "" where it is known."""
        if not missing and not long_enough:
            self.missing = f"the energy of {1e3 * seconds:.0f} ms is unknown: the GPU's counter needs {LEAST_SECONDS} s"

    @property
    def watts(self) -> float:
        """Mean power in W."""
        return self.joules / self.seconds if self.seconds > 0 else math.nan

    def __repr__(self) -> str:
        return f"<Energy: {self.joules:.3g} J in {self.seconds:.3g} s>"


class EnergyMeter:
    """Reads the energy of a GPU, named by its UUID, from its creation on."""

    def __init__(self, uuid: str) -> None:
        self._missing = ""
        try:
            if not uuid:
                raise RuntimeError("flopscope was built without CUDA, and cannot name the GPU to NVML")
            with explained():
                self._nvml, self._device = find_gpu(uuid)
            self._start = self._read()
        except RuntimeError as problem:
            self._missing = f"the energy is unknown: {problem}"

    def read(self) -> Energy:
        """Return the energy since the creation."""
        if self._missing:
            return Energy(math.nan, 0.0, self._missing)
        try:
            joules, at = self._read()
        except RuntimeError as problem:
            return Energy(math.nan, 0.0, f"the energy is unknown: {problem}")
        return Energy(joules - self._start[0], at - self._start[1])

    def _read(self) -> tuple[float, float]:
        """Return the GPU's total in J, and the time in s."""
        with explained():
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device) / 1e3, time.perf_counter()

"""NVML (package nvidia-ml-py), where it is installed: how a GPU is found in it, its SM clock and its energy."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

FRESH_SECONDS = 0.001  # NVML does not update its values more often


def find_gpu(uuid: str) -> tuple[Any, Any]:
    """Return the module pynvml and its handle of a GPU. Raise ImportError, or NVMLError, a class of that module."""
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit()
    return nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors of NVML in the block into RuntimeError with the reason."""
    try:
        yield
    except ImportError:
        raise RuntimeError("pip install nvidia-ml-py") from None
    except Exception as problem:  # NVMLError, whose class may have failed to load
        raise RuntimeError(f"NVML reports {problem}") from problem


class SmClock:
    """A reader of the SM clock in MHz. The clock is NaN where it is unavailable; ``missing`` is the reason."""

    def __init__(self, uuid: str, now: Callable[[], float] = time.perf_counter) -> None:
        self.missing = ""
        self._now, self._read_at, self._mhz = now, -math.inf, math.nan
        try:
            with explained():
                self._nvml, self._device = find_gpu(uuid)
                self._take()
        except RuntimeError as problem:
            self.missing = f"the SM clock is unknown, and throttling is not detected: {problem}"

    def mhz(self) -> float:
        """Return the clock, read at most a millisecond ago."""
        if not self.missing and self._now() - self._read_at >= FRESH_SECONDS:
            try:
                self._take()
            except Exception:
                self._mhz = math.nan
        return self._mhz

    def _take(self) -> None:
        self._mhz = float(self._nvml.nvmlDeviceGetClockInfo(self._device, self._nvml.NVML_CLOCK_SM))
        self._read_at = self._now()


# The energy that a GPU took, by the total since its driver was loaded -------------------------------------------------

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

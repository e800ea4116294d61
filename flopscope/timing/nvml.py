"""The SM clock of a GPU, by NVIDIA's management library (nvidia-ml-py), where that is installed."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from typing import Any

__all__ = ["SmClock"]

FRESH_SECONDS = 0.001  # NVML itself tells nothing newer


class SmClock:
    """Reads the SM clock in MHz; NaN where it cannot be had, and ``missing`` says why."""

    def __init__(self, uuid: str, now: Callable[[], float] = time.perf_counter) -> None:
        self.missing = ""
        self._now, self._read_at, self._mhz = now, -math.inf, math.nan
        self._nvml: Any = None
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self._device = nvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = nvml
            self._take()
        except ImportError:
            self.missing = "clocks are not known, nor whether one was throttled: pip install nvidia-ml-py"
        except Exception as problem:  # NVMLError, whose class is in what may not have loaded
            self._nvml = None
            self.missing = f"clocks are not known: NVML says {problem}"

    def mhz(self) -> float:
        """Now, or up to a millisecond ago."""
        if self._nvml is not None and self._now() - self._read_at >= FRESH_SECONDS:
            try:
                self._take()
            except Exception:
                self._mhz = math.nan
        return self._mhz

    def _take(self) -> None:
        self._mhz = float(self._nvml.nvmlDeviceGetClockInfo(self._device, self._nvml.NVML_CLOCK_SM))
        self._read_at = self._now()

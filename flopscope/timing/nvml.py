"""The SM clock of a GPU, read through NVML (package nvidia-ml-py) where it is installed."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from typing import Any

__all__ = ["SmClock"]

FRESH_SECONDS = 0.001  # NVML does not update its values more often


class SmClock:
    """A reader of the SM clock in MHz. The clock is NaN where it is unavailable; ``missing`` is the reason."""

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
            self.missing = "the SM clock is unknown, and throttling is not detected: pip install nvidia-ml-py"
        except Exception as problem:  # NVMLError, a class of the module that may have failed to load
            self._nvml = None
            self.missing = f"the SM clock is unknown: NVML reports {problem}"

    def mhz(self) -> float:
        """Return the clock, read at most a millisecond ago."""
        if self._nvml is not None and self._now() - self._read_at >= FRESH_SECONDS:
            try:
                self._take()
            except Exception:
                self._mhz = math.nan
        return self._mhz

    def _take(self) -> None:
        self._mhz = float(self._nvml.nvmlDeviceGetClockInfo(self._device, self._nvml.NVML_CLOCK_SM))
        self._read_at = self._now()

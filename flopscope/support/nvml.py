"""NVML (package nvidia-ml-py), where it is installed: how a GPU is found in it, and the GPU's SM clock."""

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

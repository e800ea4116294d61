"""The load that other processes put on a device, which slows down measurements."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopscope.support.nvml import find_gpu

if TYPE_CHECKING:
    from flopscope.support.device import Device

MAX_PROCESSORS = 0.3  # used by others: sharing one processor half of the time halves the rate of all
MAX_GPU = 0.05  # share of a GPU's time used by others
QUIET_SECONDS = 0.6  # NVML reports earlier work for up to a third of a second
IDLE, IOWAIT, GUEST = 3, 4, 8  # columns of /proc/stat; those from GUEST on are included in others


def processors() -> int:
    """Return the number of processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def busy_meter(device: Device) -> Callable[[], float | None]:
    """Start to observe a device; return a function to call at the end, which returns the share of the device, 0 to 1,
    that other processes used: of the CPU between the two calls, of a GPU before the first. None if it is unknown."""
    if device.kind == "cpu":
        return _cpu_meter()
    used = _gpu_share(str(device.properties.get("uuid", "")))
    return lambda: used


def why_busy(kind: str, busy: float | None) -> str | None:
    """Return why a measurement under these conditions may be too slow, or None if nothing suggests that."""
    if kind == "cuda":
        used = busy is not None and busy > MAX_GPU
        return f"other processes used {100 * (busy or 0):.0f} % of the GPU's time" if used else None
    if busy is not None and busy * processors() > MAX_PROCESSORS:
        return f"other processes used {busy * processors():.1f} of {processors()} processors"
    return None


def _cpu_meter() -> Callable[[], float | None]:
    begin, own = _busy_ticks(), sum(os.times()[:4])  # with the processes that it has waited for

    def share() -> float | None:
        end = _busy_ticks()
        if begin is None or end is None or end[1] <= begin[1]:
            return None
        others = (end[0] - begin[0]) / os.sysconf("SC_CLK_TCK") - (sum(os.times()[:4]) - own)
        return min(max(others / ((end[1] - begin[1]) / os.sysconf("SC_CLK_TCK")), 0.0), 1.0)

    return share


def _busy_ticks(file: str = "/proc/stat") -> tuple[int, int] | None:
    """Return the busy ticks of the processors of this process, including steal time, and their total ticks."""
    own = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        lines = [line.split() for line in Path(file).read_text(encoding="ascii").splitlines()]
        ticks = [[int(cell) for cell in cells[:GUEST]] for name, *cells in lines if name in own]
    except (OSError, ValueError):
        return None
    if not ticks:
        return None
    total = sum(map(sum, ticks))
    return total - sum(cells[IDLE] + cells[IOWAIT] for cells in ticks), total


def _gpu_share(uuid: str) -> float | None:
    """Return the share of the GPU's time that other processes used just now, by NVML; None if it is unavailable.

    In a container, NVML reports this process under another process id than the container does. So if a process seems to
    use the GPU, query again after a pause in which this process was idle.
    """
    try:
        nvml, device = find_gpu(uuid)
        if _used_by_others(nvml, device, time.time() - 1) == 0:
            return 0.0
        time.sleep(QUIET_SECONDS)
        return _used_by_others(nvml, device, time.time() - QUIET_SECONDS / 2)
    except Exception:  # ImportError, or NVMLError, whose class may not be loaded
        return None


def _used_by_others(nvml: Any, device: Any, since: float) -> float:
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(device, int(since * 1e6))
    except Exception as problem:
        if getattr(problem, "value", None) == nvml.NVML_ERROR_NOT_FOUND:  # no process used it
            return 0.0
        raise
    shares: dict[int, float] = {
        sample.pid: sample.smUtil / 100 for sample in samples if sample.timeStamp >= since * 1e6
    }
    return min(sum(share for pid, share in shares.items() if pid != os.getpid()), 1.0)

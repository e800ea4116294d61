"""How busy a device is with the work of other processes, which makes what is measured meanwhile too slow."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flopscope.hardware.device import Device

__all__ = ["busy_meter", "load_average", "processors", "why_busy"]

MOST_LOAD = 0.75  # of a processor: a higher load average left hardly one idle
MOST_PROCESSORS = 0.3  # that others may use: a processor shared half of the time halves the rate of all
MOST_GPU = 0.05  # of a GPU's time that others may use
QUIET_SECONDS = 0.6  # NVML takes up to a third of a second to forget what ran before
IDLE, IOWAIT, GUEST = 3, 4, 8  # columns of /proc/stat; from GUEST on they repeat others


def load_average() -> float | None:
    """Processes that ran or waited to, on average over the last minute; None where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def processors() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0))


def busy_meter(device: Device) -> Callable[[], float | None]:
    """Begin to watch a device. What this returns tells, when it is called at the end, the share of the device, 0 to 1,
    that other processes used: of the CPU in between, of a GPU before. None where that is unknown."""
    if device.kind == "cpu":
        return _cpu_meter()
    used = _gpu_share(str(device.properties.get("uuid", "")))
    return lambda: used


def why_busy(kind: str, load: float | None, busy: float | None) -> str | None:
    """In words why what was measured under these conditions may be too slow; None for no reason to think so."""
    if kind == "cuda":
        used = busy is not None and busy > MOST_GPU
        return f"other processes used {100 * (busy or 0):.0f} % of the GPU's time" if used else None
    if busy is not None and busy * processors() > MOST_PROCESSORS:
        known = "" if load is None else f" (load average {load:.2f})"
        return f"other processes used {busy * processors():.1f} of {processors()} processors{known}"
    online = os.cpu_count() or 1
    if load is not None and load > MOST_LOAD * online:
        meanwhile = "" if busy is None else f", though other processes used only {100 * busy:.0f} % of them meanwhile"
        return f"the load average was {load:.2f} on {online} processors before{meanwhile}"
    return None


def _cpu_meter() -> Callable[[], float | None]:
    begin, own = _busy_ticks(), time.process_time()

    def share() -> float | None:
        end = _busy_ticks()
        if begin is None or end is None or end[1] <= begin[1]:
            return None
        others = (end[0] - begin[0]) / os.sysconf("SC_CLK_TCK") - (time.process_time() - own)
        return min(max(others / ((end[1] - begin[1]) / os.sysconf("SC_CLK_TCK")), 0.0), 1.0)

    return share


def _busy_ticks(file: str = "/proc/stat") -> tuple[int, int] | None:
    """Ticks that the processors of this process were busy, other virtual machines' included, and ticks in all."""
    mine = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        lines = [line.split() for line in Path(file).read_text(encoding="ascii").splitlines()]
        ticks = [[int(cell) for cell in cells[:GUEST]] for name, *cells in lines if name in mine]
    except (OSError, ValueError):
        return None
    if not ticks:
        return None
    total = sum(map(sum, ticks))
    return total - sum(cells[IDLE] + cells[IOWAIT] for cells in ticks), total


def _gpu_share(uuid: str) -> float | None:
    """Share of the GPU's time that other processes used just now, by NVML; None where it does not tell.

    In a container NVML knows this process by another number than the container does: so where somebody seems to use the
    GPU, look again after a while in which this process was quiet.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        device = nvml.nvmlDeviceGetHandleByUUID(uuid)
        if _used_by_others(nvml, device, time.time() - 1) == 0:
            return 0.0
        time.sleep(QUIET_SECONDS)
        return _used_by_others(nvml, device, time.time() - QUIET_SECONDS / 2)
    except Exception:  # ImportError, or NVMLError, whose class is in what may not have loaded
        return None


def _used_by_others(nvml: Any, device: Any, since: float) -> float:
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(device, int(since * 1e6))
    except Exception as problem:
        if getattr(problem, "value", None) == nvml.NVML_ERROR_NOT_FOUND:  # nobody used it
            return 0.0
        raise
    shares: dict[int, float] = {
        sample.pid: sample.smUtil / 100 for sample in samples if sample.timeStamp >= since * 1e6
    }
    return min(sum(share for pid, share in shares.items() if pid != os.getpid()), 1.0)

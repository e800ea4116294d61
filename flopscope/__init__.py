"""flopscope: how fast is every op, and how fast could it be?

Launch ops on the CPU or on CUDA, or profile them: each row of the table says how long an op took, how many FLOPs it
did, how many bytes it moved, and how close to the device's limit that was.

    import flopscope as fs

    x = fs.rand((4096, 4096))
    with fs.profile() as prof:
        fs.sin(x)
        fs.matmul(x, x)
    print(prof.key_averages().table(sort_by="cpu_time_total"))
"""

from typing import TYPE_CHECKING, Any

try:
    from . import _core
except ImportError as problem:
    from ._libraries import unbuilt

    raise unbuilt(problem) from None
from ._core import *  # noqa: F403 - the ops, one for each row of the core's op table
from .communication import Stragglers, stragglers
from .compare import Comparison, compare
from .device import Device, devices, measure_peaks
from .load import Trace, load_trace
from .profiler import profile
from .record import record_function
from .schedule import ProfilerAction, ProfilerActivity, schedule
from .table import EventRow, EventTable
from .trace import trace_handler
from .work import WorkCall, register_work

if TYPE_CHECKING:
    from .timing.compare import TimesCompared, compare_times
    from .timing.measure import measure
    from .timing.measurement import Measurement
    from .timing.sweep import Sweep, sweep
    from .views.roofline import roofline

__version__ = "0.5.0"

__all__ = [
    *_core.__all__,
    "Comparison",
    "Device",
    "EventRow",
    "EventTable",
    "Measurement",
    "ProfilerAction",
    "ProfilerActivity",
    "Stragglers",
    "Sweep",
    "TimesCompared",
    "Trace",
    "WorkCall",
    "compare",
    "compare_times",
    "devices",
    "load_trace",
    "measure",
    "measure_peaks",
    "profile",
    "record_function",
    "register_work",
    "roofline",
    "schedule",
    "stragglers",
    "sweep",
    "trace_handler",
]

# What importing flopscope does not wait for, by module.
_LATER = {
    "Measurement": "timing.measurement",
    "Sweep": "timing.sweep",
    "TimesCompared": "timing.compare",
    "compare_times": "timing.compare",
    "measure": "timing.measure",
    "roofline": "views.roofline",
    "sweep": "timing.sweep",
}


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext flopscope``: the magics ``%%flopscope`` and ``%measure``, see flopscope.ipython."""
    from .ipython import load_ipython_extension

    load_ipython_extension(ipython)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = found = getattr(import_module(f".{_LATER[name]}", __name__), name)
    return found


def __dir__() -> list[str]:
    """List the public names, loaded yet or not; submodules that happen to be imported are no part of the interface."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

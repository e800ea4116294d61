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

from . import _core
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

__version__ = "0.3.0"

__all__ = [
    *_core.__all__,
    "Comparison",
    "Device",
    "EventRow",
    "EventTable",
    "ProfilerAction",
    "ProfilerActivity",
    "Stragglers",
    "Trace",
    "WorkCall",
    "compare",
    "devices",
    "load_trace",
    "measure_peaks",
    "profile",
    "record_function",
    "register_work",
    "schedule",
    "stragglers",
    "trace_handler",
]

"""A profiler that reports how fast each op is, and how fast it could be.

Launch ops on the CPU or on CUDA and profile them: each row of the table reports the time of an op, its FLOPs, the bytes
that it moved, and how close it came to the device's limit.

    import flopscope as fs

    x = fs.rand((4096, 4096))
    with fs.profile() as prof:
        fs.sin(x)
        fs.matmul(x, x)
    print(prof.key_averages().table(sort_by="cpu_time_total"))
"""

from __future__ import annotations

__distribution__ = "flopscope-profiler"  # which tells this package from another of its name

from flopscope.support import own_path  # isort: skip - before all else, so that the rest finds its own imports

try:
    from flopscope import _core
except ImportError as problem:
    from flopscope.support.package import unbuilt

    raise unbuilt(problem) from None
from flopscope import rooms
from flopscope._core import *  # noqa: F403 - the ops, one per row of the core's op table
from flopscope.record import at_import
from flopscope.support import forking, upward
from flopscope.support.package import MIXED, VERSION, is_mixed

TYPE_CHECKING = False  # as type checkers know it; importing typing would take a tenth of the import
if TYPE_CHECKING:
    from typing import Any

    from flopscope.answers.comparing import compare
    from flopscope.answers.what_if import what_if
    from flopscope.answers.work_of import Work, roofline_time, work, work_of_hlo
    from flopscope.measuring.counting import Counts
    from flopscope.measuring.measurement import Measurement
    from flopscope.measuring.measuring import measure
    from flopscope.measuring.paired import TimesCompared, compare_times
    from flopscope.measuring.sweep import Sweep, sweep
    from flopscope.ranks.load import load_ranks, stragglers
    from flopscope.ranks.ranks import Ranks
    from flopscope.ranks.stragglers import Stragglers
    from flopscope.read.trace import Trace, load_trace, load_traces
    from flopscope.record.energy import Energy
    from flopscope.record.profile import profile
    from flopscope.record.ranges import record_function, watch_nvtx
    from flopscope.record.schedules import ProfilerAction, schedule
    from flopscope.record.steps import step
    from flopscope.record.watching import GraphWatch, watch_graphs
    from flopscope.record.work_rules import WorkCall, register_work
    from flopscope.results.comparison import Comparison
    from flopscope.results.exports import trace_handler
    from flopscope.results.row import EventRow
    from flopscope.results.table import EventTable
    from flopscope.show.plots import roofline
    from flopscope.support.capture import ProfilerActivity
    from flopscope.support.device import Device, devices, measure_peaks

__version__ = VERSION

__all__ = [
    *_core.__all__,
    "Comparison",
    "Counts",
    "Device",
    "Energy",
    "EventRow",
    "EventTable",
    "GraphWatch",
    "Measurement",
    "ProfilerAction",
    "ProfilerActivity",
    "Ranks",
    "Stragglers",
    "Sweep",
    "TimesCompared",
    "Trace",
    "Work",
    "WorkCall",
    "compare",
    "compare_times",
    "devices",
    "load_ranks",
    "load_trace",
    "load_traces",
    "measure",
    "measure_peaks",
    "profile",
    "record_function",
    "register_work",
    "roofline",
    "roofline_time",
    "schedule",
    "step",
    "stragglers",
    "sweep",
    "trace_handler",
    "watch_graphs",
    "watch_nvtx",
    "what_if",
    "work",
    "work_of_hlo",
]

# Names that are imported on first use, with their modules.
_LAZY = {
    "Comparison": "results.comparison",
    "Counts": "measuring.counting",
    "Device": "support.device",
    "Energy": "record.energy",
    "EventRow": "results.row",
    "EventTable": "results.table",
    "GraphWatch": "record.watching",
    "Measurement": "measuring.measurement",
    "ProfilerAction": "record.schedules",
    "ProfilerActivity": "support.capture",
    "Ranks": "ranks.ranks",
    "Stragglers": "ranks.stragglers",
    "Sweep": "measuring.sweep",
    "TimesCompared": "measuring.paired",
    "Trace": "read.trace",
    "Work": "answers.work_of",
    "WorkCall": "record.work_rules",
    "compare": "answers.comparing",
    "compare_times": "measuring.paired",
    "devices": "support.device",
    "load_ranks": "ranks.load",
    "load_trace": "read.trace",
    "load_traces": "read.trace",
    "measure": "measuring.measuring",
    "measure_peaks": "support.device",
    "profile": "record.profile",
    "record_function": "record.ranges",
    "register_work": "record.work_rules",
    "roofline": "show.plots",
    "roofline_time": "answers.work_of",
    "schedule": "record.schedules",
    "step": "record.steps",
    "stragglers": "ranks.load",
    "sweep": "measuring.sweep",
    "trace_handler": "results.exports",
    "watch_graphs": "record.watching",
    "watch_nvtx": "record.ranges",
    "what_if": "answers.what_if",
    "work": "answers.work_of",
    "work_of_hlo": "answers.work_of",
}


def load_ipython_extension(ipython: Any) -> None:
    """Register the IPython magics ``%%flopscope`` and ``%measure``. ``%load_ext flopscope`` calls this function."""
    from flopscope.ipython import load_ipython_extension

    load_ipython_extension(ipython)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        from flopscope.support.suggest import did_you_mean

        hint = "" if name.startswith("_") else did_you_mean(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    from importlib import import_module

    from flopscope.support.suggest import suggest_names

    module = import_module(f".{_LAZY[name]}", __name__)
    suggest_names(getattr(module, name))
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not. Imported submodules are not part of the interface."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


if is_mixed():
    from flopscope.support.package import warn_user

    warn_user(MIXED)
upward.rooms = rooms
forking.watch_forks()
at_import.begin()
del MIXED, at_import, forking, is_mixed, own_path, rooms, upward

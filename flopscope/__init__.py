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

    from flopscope.answers.comparing import compare as compare
    from flopscope.answers.what_if import what_if as what_if
    from flopscope.answers.work_of import Work as Work
    from flopscope.answers.work_of import roofline_time as roofline_time
    from flopscope.answers.work_of import work as work
    from flopscope.answers.work_of import work_of_hlo as work_of_hlo
    from flopscope.measuring.checking.check import check as check
    from flopscope.measuring.checking.result import Checked as Checked
    from flopscope.measuring.counting import Counts as Counts
    from flopscope.measuring.measurement import Measurement as Measurement
    from flopscope.measuring.measuring import measure as measure
    from flopscope.measuring.paired import TimesCompared as TimesCompared
    from flopscope.measuring.paired import compare_times as compare_times
    from flopscope.measuring.sweep import Sweep as Sweep
    from flopscope.measuring.sweep import sweep as sweep
    from flopscope.ranks.load import load_ranks as load_ranks
    from flopscope.ranks.load import stragglers as stragglers
    from flopscope.ranks.ranks import Ranks as Ranks
    from flopscope.ranks.stragglers import Stragglers as Stragglers
    from flopscope.read.trace import Trace as Trace
    from flopscope.read.trace import load_trace as load_trace
    from flopscope.read.trace import load_traces as load_traces
    from flopscope.record.profile import profile as profile
    from flopscope.record.ranges import record_function as record_function
    from flopscope.record.ranges import watch_nvtx as watch_nvtx
    from flopscope.record.steps import ProfilerAction as ProfilerAction
    from flopscope.record.steps import schedule as schedule
    from flopscope.record.steps import step as step
    from flopscope.record.watching import GraphWatch as GraphWatch
    from flopscope.record.watching import watch_graphs as watch_graphs
    from flopscope.record.work_rules import WorkCall as WorkCall
    from flopscope.record.work_rules import register_work as register_work
    from flopscope.results.comparison import Comparison as Comparison
    from flopscope.results.exports import trace_handler as trace_handler
    from flopscope.results.row import EventRow as EventRow
    from flopscope.results.table import EventTable as EventTable
    from flopscope.show.roofline import roofline as roofline
    from flopscope.support.capture import ProfilerActivity as ProfilerActivity
    from flopscope.support.device import Device as Device
    from flopscope.support.device import devices as devices
    from flopscope.support.device import measure_peaks as measure_peaks
    from flopscope.support.nvml import Energy as Energy

__version__ = VERSION

# The modules of names that are imported on first use.
_LAZY = {
    "compare": "answers.comparing",
    "what_if": "answers.what_if",
    **dict.fromkeys(("Work", "roofline_time", "work", "work_of_hlo"), "answers.work_of"),
    "check": "measuring.checking.check",
    "Checked": "measuring.checking.result",
    "Counts": "measuring.counting",
    "Measurement": "measuring.measurement",
    "measure": "measuring.measuring",
    **dict.fromkeys(("TimesCompared", "compare_times"), "measuring.paired"),
    **dict.fromkeys(("Sweep", "sweep"), "measuring.sweep"),
    **dict.fromkeys(("load_ranks", "stragglers"), "ranks.load"),
    "Ranks": "ranks.ranks",
    "Stragglers": "ranks.stragglers",
    **dict.fromkeys(("Trace", "load_trace", "load_traces"), "read.trace"),
    "Energy": "support.nvml",
    "profile": "record.profile",
    **dict.fromkeys(("record_function", "watch_nvtx"), "record.ranges"),
    **dict.fromkeys(("ProfilerAction", "schedule", "step"), "record.steps"),
    **dict.fromkeys(("GraphWatch", "watch_graphs"), "record.watching"),
    **dict.fromkeys(("WorkCall", "register_work"), "record.work_rules"),
    "Comparison": "results.comparison",
    "trace_handler": "results.exports",
    "EventRow": "results.row",
    "EventTable": "results.table",
    "roofline": "show.roofline",
    "ProfilerActivity": "support.capture",
    **dict.fromkeys(("Device", "devices", "measure_peaks"), "support.device"),
}

__all__ = [*_core.__all__, *_LAZY]


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

    globals()[name] = value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
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

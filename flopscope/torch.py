"""A drop-in replacement for ``torch.profiler`` with flopscope's tables: import from ``flopscope.torch`` instead.

    from flopscope.torch import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as prof:
        model(inputs)
    print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))

torch records the events. When a result is first requested, Kineto writes its trace to memory once, and flopscope reads
it. The list of Python objects, on which torch spends most of the time before its own table, is never created. All other
names are those of torch.profiler: ``schedule``, ``record_function``, ``supported_activities``, …
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from flopscope._core import Store, begin_nvtx, end_nvtx, inject_nvtx
from flopscope.read.trace import Trace
from flopscope.record.counters import Counters, check_counters
from flopscope.record.kineto_text import KinetoText, keep_text, write_earlier
from flopscope.record.stack_samples import StackSamples
from flopscope.record.steps import NO_ACCUMULATION, action_at
from flopscope.record.torch_hooks import without_inductor
from flopscope.record.triton_launches import LAUNCHES
from flopscope.results.results import Results
from flopscope.support.device import CPU, STORED
from flopscope.support.files import replacing
from flopscope.support.imports import around
from flopscope.support.peaks import Peaks
from flopscope.support.suggest import require_names

try:
    import torch
    import torch.cuda as _cuda
    import torch.profiler as _torch
    import torch.profiler.profiler as _defining
    from torch.profiler import (
        ProfilerAction,
        ProfilerActivity,
        record_function,
        schedule,
        supported_activities,
        tensorboard_trace_handler,
    )
except ImportError as missing:
    raise ImportError(f"flopscope.torch requires PyTorch: pip install torch ({missing})") from missing

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "from_profile",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def __getattr__(name: str) -> Any:
    """Return any other name of torch.profiler: ExecutionTraceObserver, DeviceType, …"""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_torch, name)


around(torch.autograd.profiler.profile, "_prepare_trace", before=write_earlier)
_OWN = ("counters", "counter_interval_us", "sample_stacks")  # arguments that are not torch's
# torch's own class, also where a program has put another in its place, such as the one below
_Profile = next((each for each in _defining.profile.__mro__ if each.__module__ == _defining.__name__), _torch.profile)


class profile(_Profile, Results):  # type: ignore[misc, valid-type]
    """A torch.profiler.profile with the results of flopscope.

    This is a subclass of the installed torch's profile: the arguments, including schedule and on_trace_ready, and the
    methods start, stop, step, add_metadata, toggle_collection_dynamic, … are torch's, and exported traces are Kineto's.
    ``events()`` is torch's list, which is created on request. Tables, ``export_stacks()`` and summaries are
    flopscope's, for the latest recorded cycle: the rows of torch's own tables, with FLOPs, bytes and roofline. Python
    calls appear as stacks of rows (``group_by_stack_n``), not as rows.

    By default, the shares are those of the peaks of the GPUs in the trace or, if no GPU was used, of the CPU, provided
    they are already measured (``flopscope devices --measure``).

    Three arguments are flopscope's own: ``counters``, ``counter_interval_us`` and ``sample_stacks`` are those of
    ``flopscope.profile``.

    As in torch, results are available from the end of a cycle until the next one begins to warm up. Unlike there,
    ``acc_events=True`` with a schedule is refused with ValueError. ``torch.profiler.profile = flopscope.torch.profile``
    makes other code use this class.
    """

    _usual_peaks = STORED
    # torch's class, which comes first, has methods of these names
    key_averages = Results.key_averages
    export_stacks = Results.export_stacks

    def __init__(self, **arguments: Any) -> None:
        require_names("profile", arguments, (*_OWN, *inspect.signature(super().__init__).parameters))
        self.counters = arguments.pop("counters", False)
        self._interval_ns = check_counters(self.counters, arguments.pop("counter_interval_us", None))
        self._counters: Counters | None = None  # of the latest cycle
        self.sample_stacks = arguments.pop("sample_stacks", False)
        self._stacks: StackSamples | None = None  # likewise
        self._hears_nvtx = False  # during a cycle
        if arguments.pop("acc_events", False) and arguments.get("schedule") is not None:
            raise ValueError(NO_ACCUMULATION)
        if arguments.get("schedule") is not None:
            arguments["schedule"] = _with_torch_actions(arguments["schedule"])
        Results.__init__(self)
        _Profile.__init__(self, **arguments)
        _refuse_cuspy(self)
        self.record_shapes = self.record_shapes or self.with_flops  # torch records shapes for with_flops too
        self._timing = "trace"
        self._traces: dict[KinetoText, Trace] = {}  # those that were read
        self._listed: Any = None  # the list of events whose FLOPs are stated

    def prepare_trace(self) -> None:
        """Begin to warm up, as start() and step() do, and discard the results of the latest cycle."""
        self._core = self._counters = self._stacks = None
        self._traces.clear()
        with without_inductor(torch):
            super().prepare_trace()

    def start_trace(self) -> None:
        """Begin to record, as start() and step() do, and to count if counters are wanted."""
        super().start_trace()
        inject_nvtx()
        self._hears_nvtx = begin_nvtx()
        LAUNCHES.begin(self, torch=True)
        if self.counters:
            counters = Counters(self.counters, self._interval_ns, begins_live=self._is_of_program)
            self._counters = counters if counters.start() else None
        if self.sample_stacks:
            stacks = StackSamples()
            self._stacks = stacks if stacks.start() else None

    def stop_trace(self) -> None:
        """End a cycle, as stop() and step() do."""
        LAUNCHES.end(self)
        if self._stacks is not None:
            self._stacks.stop()
        if self._counters is not None:
            self._counters.stop()  # before Kineto's clock goes
            self._energy = self._counters.energy
        ranges = end_nvtx() if self._hears_nvtx else None
        self._hears_nvtx = False
        super().stop_trace()
        keep_text(self.profiler)
        self.profiler.kineto_results.ranges = ranges
        self.profiler.kineto_results.samples = [one for one in (self._counters, self._stacks) if one is not None]

    def trace(self) -> Trace:
        """Return the latest cycle as a Trace, which is read on the first call. Raise RuntimeError before its end."""
        return self._trace_of(self._finished("trace"))

    def events(self) -> Any:
        """Return torch's list of single events (an EventList of FunctionEvents), which is created on the first call.

        That takes torch about 50 µs per event; ``prof.trace().events()`` is flopscope's list, which takes none. With
        ``record_shapes=True`` the FLOPs of ops are flopscope's, unless ``with_flops`` asks for torch's. Raise
        RuntimeError if the profile is running or has recorded nothing.
        """
        self._finished("list of events")
        events: Any = super().events()
        if self.record_shapes and not self.with_flops and self._listed is not events:
            self._listed = events
            table = Results.key_averages(self, group_by_input_shape=True, peaks="none")
            known = {(row.key, str(row.input_shapes)): round(row.flops / row.count) for row in table if row.flops > 0}
            for event in events:  # torch has 0: the mean of the calls with these shapes
                event.flops = event.flops or known.get((event.key, str(event.input_shapes)), event.flops)
        return events

    def export_chrome_trace(
        self,
        path: str | bytes | os.PathLike[str],
        use_python_export: bool = False,
        cuda_graph_annotations: Any = None,
        graph_lanes: str = "none",
        default_stream: int = 7,
        *,
        work: bool = False,
    ) -> None:
        """Write Kineto's trace, compressed if ``path`` ends in .gz. It may be written any number of times.

        ``use_python_export`` selects torch's exporter in Python, in versions of torch that have one, which leaves out
        hardware counters. ``cuda_graph_annotations``, ``graph_lanes`` and ``default_stream`` are arguments of that
        exporter in torch 2.15. With ``work``, flopscope writes the trace instead, with the work and the rates of
        single events.

        Raise TypeError for arguments that the installed torch does not know, RuntimeError if the profile is running or
        has recorded nothing, OSError if the file cannot be written.
        """
        if work:
            Results.export_chrome_trace(self, path)
            return
        kineto, path = self._finished("trace"), os.fsdecode(path)
        lanes: dict[str, Any] = {}
        if cuda_graph_annotations or graph_lanes != "none":
            lanes = {"graph_lanes": graph_lanes, "default_stream": default_stream}
            lanes["cuda_graph_annotations"] = cuda_graph_annotations
        if use_python_export or lanes:
            with tempfile.TemporaryDirectory() as folder:  # torch writes in place, not atomically
                written = os.path.join(folder, os.path.basename(path))
                super().export_chrome_trace(written, use_python_export=True, **lanes)
                with open(written, "rb") as source, replacing(path, "wb") as file:
                    shutil.copyfileobj(source, file)
        elif path.endswith(".gz") or kineto.samples:
            kineto.save(path, path.endswith(".gz"))
        else:
            super().export_chrome_trace(path)

    @property
    def dropped(self) -> int:
        """Number of events of the trace that are in no table."""
        return self.trace().dropped

    def __len__(self) -> int:
        """Return the number of events. Raise RuntimeError if the profile is running or has recorded nothing."""
        return len(self.trace())

    def __repr__(self) -> str:
        return f"<flopscope.torch.profile: {self.current_action.name} at step {self.step_num}>"

    # Reading ----------------------------------------------------------------------------------------------------------

    def _finished(self, what: str) -> KinetoText:
        if self.profiler is None:
            raise RuntimeError(f"there is no {what}: {self._why_nothing()}")
        if self.profiler.kineto_results is None:
            raise RuntimeError(f"the profile is still running; stop it before asking for its {what}")
        keep_text(self.profiler)  # in case stop_trace() was interrupted
        kineto: KinetoText = self.profiler.kineto_results
        return kineto

    def _release(self) -> None:
        """Let go of torch's results, after which events() is impossible."""
        self._finished("trace").release()

    def _add_samples(self, samples: StackSamples) -> None:
        """Add samples of the time of the latest cycle, before anything is read of it."""
        self._finished("trace").samples.append(samples)

    def _trace_of(self, kineto: KinetoText) -> Trace:
        if kineto not in self._traces:
            trace = self._traces[kineto] = _read(self.profiler, kineto)
            for samples in kineto.samples if trace._core is not None else ():
                samples.pour(trace._core)
        return self._traces[kineto]

    @property
    def _cpu_alone(self) -> bool:  # type: ignore[override]
        return not _cuda.is_initialized()

    def _recorded(self, what: str) -> Store:
        self._core = self._trace_of(self._finished(what))._core
        return Results._recorded(self, what)

    def _why_nothing(self) -> str:
        if self.record_steps:
            told = f"up to step {self.step_num}" if self.step_num else "as prof.step(), which ends each, was not called"
            return f"the schedule has recorded no step {told}"
        return "the profile has recorded nothing; use it in a `with` block, or call start() and stop()"

    def _peaks(self, core: Store, source: str) -> tuple[dict[str, Peaks], dict[str, dict[str, Any]]]:
        return self.trace()._peaks(core, source)

    def _stored_peaks(self, core: Store) -> tuple[dict[str, Peaks], dict[str, dict[str, Any]]]:
        return self.trace()._stored_peaks(core)

    def _why_unknown(self, device: str, source: str) -> str:
        return self.trace()._why_unknown(device, source)


def _with_torch_actions(plan: Callable[[int], Any]) -> Callable[[int], ProfilerAction]:
    """Wrap a schedule of flopscope, torch or the user so that it returns torch's actions.

    torch looks up its actions in a dict and silently ignores any other object.
    """
    if not callable(plan):
        raise TypeError(f"schedule must be a function, not {plan!r}")

    return lambda step: ProfilerAction[action_at(plan, step).name]


functools.update_wrapper(profile.__init__, _Profile.__init__)  # the signature of the torch that is installed


def _refuse_cuspy(prof: Any) -> None:
    """Raise ValueError for a profile of torch's own client of CUPTI, which torch 2.14 calls cupti_monitor."""
    for name in ("cuspy", "cupti_monitor"):
        if getattr(prof, f"_use_{name}", False):
            raise ValueError(
                f"the {name} backend is unsupported, because its kernels are not in Kineto's trace; profile with "
                "torch.profiler.profile, export the trace and read it with flopscope.load_trace()"
            )


def from_profile(prof: Any) -> Trace:
    """Return the latest trace of a finished ``torch.profiler.profile`` (or ``torch.autograd.profiler.profile``).

    Kineto writes a trace only once; flopscope keeps it, so that ``prof.export_chrome_trace()`` can still be called, any
    number of times. Raise TypeError for other objects, RuntimeError if the profile has not ended or its trace has
    already been exported, and ValueError for torch's cuspy backend, whose kernels are not in that trace.
    """
    _refuse_cuspy(prof)
    profiler = prof.profiler if isinstance(prof, _Profile) else prof
    if profiler is not None and not hasattr(profiler, "kineto_results"):
        raise TypeError(f"from_profile() takes a torch.profiler.profile, not {prof!r}")
    if profiler is None or profiler.kineto_results is None:
        raise RuntimeError("this profile has recorded nothing: it was not started, or is still running; stop it first")
    keep_text(profiler)
    return _read(profiler, profiler.kineto_results)


def _read(profiler: Any, kineto: KinetoText) -> Trace:
    """Read what a torch.autograd.profiler.profile has recorded."""
    trace = Trace(kineto.read())
    trace._usual_peaks = STORED
    trace._recorded_cpu = CPU.here()
    trace.record_shapes = profiler.record_shapes
    trace.profile_memory = profiler.profile_memory
    trace._cpu_alone = not _cuda.is_initialized()
    return trace

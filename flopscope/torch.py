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

import errno
import functools
import gzip
import inspect
import json
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from flopscope.hardware.counters import Counters, check_counters
from flopscope.hardware.cpu import CPU, CPU_MEMBER
from flopscope.hardware.device import STORED
from flopscope.results.chrome_trace import COMPRESSION
from flopscope.results.results import Results
from flopscope.sources.load import Trace, load_own
from flopscope.sources.schedules import action_at
from flopscope.sources.stack_samples import StackSamples
from flopscope.support.files import replacing
from flopscope.support.suggest import require_names

try:
    import torch.cuda as _cuda
    import torch.profiler as _torch
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

if TYPE_CHECKING:
    from flopscope._core import Store
    from flopscope.hardware.peaks import Peaks
    from flopscope.results.events import EventList
    from flopscope.results.table import EventTable

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


_OWN = ("counters", "counter_interval_us", "sample_stacks")  # arguments that are not torch's


class profile(_torch.profile, Results):  # type: ignore[misc]
    """A torch.profiler.profile with the results of flopscope.

    This is a subclass of the installed torch's profile: the arguments, including schedule and on_trace_ready, and the
    methods start, stop, step, add_metadata, toggle_collection_dynamic, … are torch's, and exported traces are Kineto's.
    Tables, ``events()``, ``export_stacks()`` and summaries are flopscope's, for the latest recorded cycle: the rows of
    torch's own tables, with FLOPs, bytes and roofline. Python calls appear as stacks of rows (``group_by_stack_n``),
    not as rows.

    Three arguments are flopscope's own: ``counters``, ``counter_interval_us`` and ``sample_stacks`` are those of
    ``flopscope.profile``.

    As in torch, results are available from the end of a cycle until the next one begins to warm up. Raise ValueError
    for ``acc_events`` with a schedule, because each cycle has its own events; collect key_averages() in on_trace_ready.
    """

    _usual_peaks = STORED

    def __init__(self, **arguments: Any) -> None:
        require_names("profile", arguments, (*_OWN, *inspect.signature(super().__init__).parameters))
        self.counters = arguments.pop("counters", False)
        self._interval_ns = check_counters(self.counters, arguments.pop("counter_interval_us", None))
        self._counters: Counters | None = None  # of the latest cycle
        self.sample_stacks = arguments.pop("sample_stacks", False)
        self._stacks: StackSamples | None = None  # likewise
        if arguments.get("acc_events"):
            if arguments.get("schedule") is not None:
                raise ValueError(_NO_ACCUMULATION)
            arguments["acc_events"] = False  # otherwise torch creates its Python objects at every stop
        if arguments.get("schedule") is not None:
            arguments["schedule"] = _with_torch_actions(arguments["schedule"])
        Results.__init__(self)
        _torch.profile.__init__(self, **arguments)
        if getattr(self, "_use_cupti_monitor", False):
            raise ValueError(_NO_MONITOR)
        self.record_shapes = self.record_shapes or self.with_flops  # torch records shapes for with_flops too
        self._timing = "trace"
        self._read: tuple[_Kineto, Trace] | None = None

    def prepare_trace(self) -> None:
        """Begin to warm up, as start() and step() do, and discard the results of the latest cycle."""
        self._core = self._read = self._counters = self._stacks = None
        with warnings.catch_warnings():
            # It recommends acc_events, which is unsupported with a schedule and has no effect without one.
            warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
            _torch.profile.prepare_trace(self)

    def start_trace(self) -> None:
        """Begin to record, as start() and step() do, and to count if counters are wanted."""
        _torch.profile.start_trace(self)
        if self.counters:
            counters = Counters(self.counters, self._interval_ns, begins_live=self._is_of_program)
            self._counters = counters if counters.start() else None
        if self.sample_stacks:
            stacks = StackSamples()
            self._stacks = stacks if stacks.start() else None

    def stop_trace(self) -> None:
        """End a cycle, as stop() and step() do."""
        if self._stacks is not None:
            self._stacks.stop()
        if self._counters is not None:
            self._counters.stop()  # before Kineto's clock goes
            self._energy = self._counters.energy
        _torch.profile.stop_trace(self)
        _keep_text(self.profiler)

    def trace(self) -> Trace:
        """Return the latest cycle as a Trace, which is read on the first call. Raise RuntimeError before its end."""
        return self._trace_of("trace")

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        *,
        group_by: str | Iterable[str] = "name",
        peaks: str | None = None,
        kernels: bool = False,
    ) -> EventTable:
        """Return the events grouped by name, as torch.profiler does, with their work and roofline.

        The arguments are those of ``flopscope.Trace.key_averages``. The peaks are those of the GPUs in the trace or, if
        no GPU was used, of the CPU, provided they are already measured (``flopscope devices --measure``);
        ``peaks="measured"`` measures those of the CPU. Raise RuntimeError if the profile is running or has recorded
        nothing.
        """
        by = group_by_input_shape, group_by_stack_n, group_by_overload_name
        return Results.key_averages(self, *by, group_by=group_by, peaks=peaks, kernels=kernels)

    def events(self) -> EventList:
        """Return flopscope's list of single events; ``torch.profiler.profile.events(prof)`` returns torch's."""
        return Results.events(self)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write folded stacks for a flame graph, one line per stack, with times in µs.

        ``metric`` is "self_cpu_time_total" or "self_cuda_time_total". Raise ValueError unless profiled with_stack.
        """
        Results.export_stacks(self, path, metric)

    def export_chrome_trace(
        self, path: str | bytes | os.PathLike[str], use_python_export: bool = False, *, work: bool = False
    ) -> None:
        """Write Kineto's trace, compressed if ``path`` ends in .gz. It may be written any number of times.

        ``use_python_export`` selects torch's exporter in Python, in versions of torch that have one, which leaves out
        hardware counters. With ``work``, flopscope writes the trace instead, with the work and the rates of single
        events.

        Raise RuntimeError if the profile is running or has recorded nothing, OSError if the file cannot be written.
        """
        if work:
            Results.export_chrome_trace(self, path)
            return
        kineto, path = self._finished("trace"), os.fsdecode(path)
        if use_python_export:
            with tempfile.TemporaryDirectory() as folder:  # torch writes in place, not atomically
                written = os.path.join(folder, os.path.basename(path))
                _torch.profile.export_chrome_trace(self, written, use_python_export=True)
                with open(written, "rb") as source, replacing(path, "wb") as file:
                    shutil.copyfileobj(source, file)
        elif path.endswith(".gz") or self._counters is not None or self._stacks is not None:
            core = self._recorded("trace")
            kineto.save(path, path.endswith(".gz"), core.trace_samples(), core.trace_frames())
        else:
            _torch.profile.export_chrome_trace(self, path)

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

    def _finished(self, what: str) -> _Kineto:
        if self.profiler is None:
            raise RuntimeError(f"there is no {what}: {self._why_nothing()}")
        if self.profiler.kineto_results is None:
            raise RuntimeError(f"the profile is still running; stop it before asking for its {what}")
        _keep_text(self.profiler)  # in case stop_trace() was interrupted
        kineto: _Kineto = self.profiler.kineto_results
        return kineto

    def _trace_of(self, what: str) -> Trace:
        kineto = self._finished(what)
        if self._read is None or self._read[0] is not kineto:
            self._read = kineto, _read(self.profiler)
            for samples in (self._counters, self._stacks):
                if samples is not None and self._read[1]._core is not None:
                    samples.pour(self._read[1]._core)
        return self._read[1]

    @property
    def _cpu_alone(self) -> bool:  # type: ignore[override]
        return self.trace()._cpu_alone

    def _recorded(self, what: str) -> Store:
        self._core = self._trace_of(what)._core
        return Results._recorded(self, what)

    def _why_nothing(self) -> str:
        if self.record_steps and self.step_num > 0:
            return f"the schedule has recorded no step up to step {self.step_num}"
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

    def action_of(step: int) -> ProfilerAction:
        return ProfilerAction[action_at(plan, step).name]

    return action_of


functools.update_wrapper(profile.__init__, _torch.profile.__init__)  # the signature of the torch that is installed

_NO_ACCUMULATION = (
    "acc_events=True is unsupported with a schedule, because each cycle has its own events; collect key_averages() in "
    "on_trace_ready, or profile without a schedule"
)
_NO_MONITOR = (
    "the cupti_monitor backend is unsupported, because its kernels are not in Kineto's trace; profile with "
    "torch.profiler.profile, export the trace and read it with flopscope.load_trace()"
)


def from_profile(prof: Any) -> Trace:
    """Return the latest trace of a finished ``torch.profiler.profile`` (or ``torch.autograd.profiler.profile``).

    Kineto writes a trace only once; flopscope keeps it, so that ``prof.export_chrome_trace()`` can still be called, any
    number of times. Raise TypeError for other objects, RuntimeError if the profile has not ended or its trace has
    already been exported.
    """
    profiler = prof.profiler if isinstance(prof, _torch.profile) else prof
    if profiler is not None and not hasattr(profiler, "kineto_results"):
        raise TypeError(f"from_profile() takes a torch.profiler.profile, not {prof!r}")
    if profiler is None or profiler.kineto_results is None:
        raise RuntimeError("this profile has recorded nothing: it was not started, or is still running; stop it first")
    _keep_text(profiler)
    return _read(profiler)


def _read(profiler: Any) -> Trace:
    """Return the trace of a torch.autograd.profiler.profile whose text is kept."""
    trace: Trace = profiler.kineto_results.read()
    trace._usual_peaks = STORED
    trace._recorded_cpu = CPU.here()
    trace.record_shapes = profiler.record_shapes
    trace.profile_memory = profiler.profile_memory
    trace._cpu_alone = not _cuda.is_initialized()
    return trace


# Kineto's text --------------------------------------------------------------------------------------------------------


def _keep_text(profiler: Any) -> None:
    """Wrap the results of a torch.autograd.profiler.profile so that they can be read and saved repeatedly."""
    if not isinstance(profiler.kineto_results, _Kineto):
        profiler.kineto_results = _Kineto(profiler.kineto_results)


class _Kineto:
    """A wrapper of torch's _ProfilerResult, which saves its trace only once: to memory, where it is copied and read.

    The text takes about 400 bytes per event and lives as long as the results.
    """

    def __init__(self, results: Any) -> None:
        self._results = results
        self._memory: int | None = None  # the file descriptor
        self._quoted_path = b""  # the path of its file that the text contains

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)

    def read(self) -> Trace:
        """Read the trace."""
        with _links_to(self._text()) as path:
            return load_own(path)

    def save(self, path: str, compressed: bool = False, events: bytes = b"", members: bytes = b"") -> None:
        """Write the trace to a file, as _ProfilerResult does, with more events and members of the head.

        Raise OSError if that fails.
        """
        memory = self._text()
        size = os.fstat(memory).st_size
        head = max(0, size - _TAIL)  # bytes that are copied unchanged
        tail = os.pread(memory, _TAIL, head).replace(self._quoted_path, json.dumps(path, ensure_ascii=False).encode())
        tail = _with_cpu(_with_additions(tail, events, members))
        with replacing(path, "wb") as file:
            if compressed:
                name = os.path.basename(path).removesuffix(".gz")
                with gzip.GzipFile(name, "wb", COMPRESSION, file) as packed:
                    _copy(memory, head, packed.write)
                    packed.write(tail)
                return
            _send(memory, head, file)
            file.write(tail)

    def _text(self) -> int:
        """Return the descriptor of the in-memory file with the trace, writing it on the first call."""
        if self._memory is None:
            memory = os.memfd_create("torch.profiler", os.MFD_CLOEXEC)
            close = weakref.finalize(self, os.close, memory)
            try:
                self._write(memory)
            except BaseException:
                close()
                raise
            self._memory = memory
        return self._memory

    def _write(self, memory: int) -> None:
        with _links_to(memory) as path:
            try:
                self._results.save(path)
            except RuntimeError as problem:
                raise RuntimeError(_NOT_SAVED.format(problem)) from None
            self._quoted_path = f'"{path}"'.encode()
        if os.fstat(memory).st_size == 0:
            raise OSError("Kineto wrote no trace; its output may contain the reason")


def _with_additions(tail: bytes, events: bytes, members: bytes) -> bytes:
    """Insert events at the end of the list of events, whose bracket is the last one before the trace's name.

    Members are inserted after it.
    """
    at = tail.rfind(b"]", 0, tail.rfind(b'"traceName"'))
    if not events or at < 0:
        return tail
    before = tail[:at].rstrip()
    more = b",\n" + members if members else b""
    return before + (b"\n" if before.endswith((b"[", b",")) else b",\n") + events + b"\n]" + more + tail[at + 1 :]


def _with_cpu(tail: bytes) -> bytes:
    """Insert the description of this machine's CPU before the trace's name."""
    at = tail.rfind(b'"traceName"')
    member = f"{json.dumps(CPU_MEMBER)}: {json.dumps(CPU.here().to_head())},\n  "
    return tail if at < 0 else tail[:at] + member.encode() + tail[at:]


def _send(memory: int, size: int, file: IO[bytes]) -> None:
    """Copy the first bytes of a file in memory by sendfile() or, for devices, by reading and writing."""
    copied = 0
    try:
        while copied < size:
            copied += os.sendfile(file.fileno(), memory, copied, size - copied)
    except OSError as problem:
        if problem.errno != errno.EINVAL or copied:
            raise
        _copy(memory, size, file.write)


def _copy(memory: int, size: int, write: Callable[[bytes], object]) -> None:
    for begin in range(0, size, _CHUNK):
        write(os.pread(memory, min(_CHUNK, size - begin), begin))


_CHUNK = 1 << 20  # bytes
_TAIL = 1 << 16  # bytes at the end of a trace that contain the file's path
_NOT_SAVED = (
    "Kineto cannot write the trace ({}), because it writes a trace only once: read the exported file with "
    "flopscope.load_trace(path), or call from_profile() before export_chrome_trace()"
)


@contextmanager
def _links_to(memory: int) -> Iterator[str]:
    """Yield a path that links to a file in memory, as does its .tmp name, which Kineto writes and renames."""
    with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
        path = os.path.join(folder, "torch.profiler")
        for name in (path, f"{path}.tmp"):
            os.symlink(f"/proc/self/fd/{memory}", name)
        yield path

"""torch.profiler with flopscope's tables: replace ``torch.profiler`` by ``flopscope.torch`` in an import line.

    from flopscope.torch import ProfilerActivity, profile, record_function

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as prof:
        model(inputs)
    print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))

torch collects. When a result is first asked for, Kineto writes its trace into memory, once, and flopscope reads that;
torch's list of Python objects, which takes most of the time until torch's own table, is never made. What is not
flopscope's own here is torch.profiler's: ``schedule``, ``record_function``, ``supported_activities``, …
"""

from __future__ import annotations

import errno
import functools
import gzip
import json
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from .device import find_device
from .files import replacing
from .load import Trace, load_trace
from .results import Results
from .schedule import action_at
from .trace import COMPRESSION

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
    raise ImportError(f"flopscope.torch is for PyTorch programs; `pip install torch` ({missing})") from missing

if TYPE_CHECKING:
    from ._core import Store
    from .events import EventList
    from .peaks import Peaks
    from .table import EventTable

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
    """The rest of torch.profiler: ExecutionTraceObserver, DeviceType, …"""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_torch, name)


class profile(_torch.profile, Results):  # type: ignore[misc]
    """torch.profiler.profile, whose results are flopscope's.

    Arguments, schedule, on_trace_ready and the methods that steer it (start, stop, step, add_metadata,
    toggle_collection_dynamic, …) are those of the torch that is installed, of whose profile this is a subclass. Traces
    that it exports are Kineto's. Tables, ``events()``, ``export_stacks()`` and summaries are flopscope's, of the latest
    cycle that was recorded: the rows of torch's own tables, with FLOPs, bytes and roofline. Python calls are stacks of
    rows (``group_by_stack_n``), not rows.

    As in torch, results are there from the end of a cycle until the next begins to warm up. ValueError for
    ``acc_events`` with a schedule: each cycle has its own events; gather key_averages() in on_trace_ready.
    """

    def __init__(self, **arguments: Any) -> None:
        if arguments.get("acc_events"):
            if arguments.get("schedule") is not None:
                raise ValueError(_NO_ACCUMULATION)
            arguments["acc_events"] = False  # torch would make its Python objects at every stop
        if arguments.get("schedule") is not None:
            arguments["schedule"] = _torchs_actions(arguments["schedule"])
        Results.__init__(self)
        _torch.profile.__init__(self, **arguments)
        if getattr(self, "_use_cupti_monitor", False):
            raise ValueError(_NO_MONITOR)
        self.record_shapes = self.record_shapes or self.with_flops  # torch records them for these too
        self._timing = "trace"
        self._read: tuple[_Kineto, Trace] | None = None

    def prepare_trace(self) -> None:
        """Begin to warm up, as start() and step() do; what the latest cycle left is forgotten."""
        self._core = self._read = None
        with warnings.catch_warnings():
            # Whose advice, acc_events, cannot be followed with a schedule and changes nothing without one.
            warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
            _torch.profile.prepare_trace(self)

    def stop_trace(self) -> None:
        """End a cycle, as stop() and step() do."""
        _torch.profile.stop_trace(self)
        _keep_text(self.profiler)

    def trace(self) -> Trace:
        """The latest cycle as load_trace() gives it, read when it is first asked for. RuntimeError before its end."""
        return self._trace_of("trace")

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        *,
        peaks: str | None = None,
    ) -> EventTable:
        """The events grouped by name, as torch.profiler does, with work and roofline joined.

        Arguments as in ``flopscope.Trace.key_averages``. The peaks are those of the GPUs in the trace; where none
        worked, the CPU's, if they were measured before (``flopscope devices --measure``). RuntimeError while it records
        and where nothing was recorded.
        """
        return Results.key_averages(self, group_by_input_shape, group_by_stack_n, group_by_overload_name, peaks=peaks)

    def events(self) -> EventList:
        """The single events, as flopscope lists them; ``torch.profiler.profile.events(prof)`` makes torch's list."""
        return Results.events(self)

    def export_stacks(self, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
        """Write folded stacks, for a flame graph, with times in µs: a line for each stack.

        ``metric``: "self_cpu_time_total" or "self_cuda_time_total". ValueError unless profiled with_stack.
        """
        Results.export_stacks(self, path, metric)

    def export_chrome_trace(self, path: str | bytes | os.PathLike[str], use_python_export: bool = False) -> None:
        """Write Kineto's trace, as often as it is wanted; compressed where ``path`` ends in .gz.

        ``use_python_export``: with torch's exporter in Python, in the versions of torch that have one.

        RuntimeError while it records and where nothing was recorded, OSError where the file cannot be written.
        """
        kineto, path = self._finished("trace"), os.fsdecode(path)
        if use_python_export:
            with tempfile.TemporaryDirectory() as folder:  # torch writes in place: a full disk would leave half a file
                written = os.path.join(folder, os.path.basename(path))
                _torch.profile.export_chrome_trace(self, written, use_python_export=True)
                with open(written, "rb") as whole, replacing(path, "wb") as file:
                    shutil.copyfileobj(whole, file)
        elif path.endswith(".gz"):
            kineto.save(path, compressed=True)
        else:
            _torch.profile.export_chrome_trace(self, path)

    @property
    def dropped(self) -> int:
        """Events of the trace that are in no table."""
        return self.trace().dropped

    def __len__(self) -> int:
        """Number of events recorded. RuntimeError while it records and where nothing was recorded."""
        return len(self.trace())

    def __repr__(self) -> str:
        return f"<flopscope.torch.profile: {self.current_action.name} at step {self.step_num}>"

    # Reading ----------------------------------------------------------------------------------------------------------

    def _finished(self, what: str) -> _Kineto:
        if self.profiler is None:
            raise RuntimeError(f"there is no {what}: {self._why_nothing()}")
        if self.profiler.kineto_results is None:
            raise RuntimeError(f"the profile is still running; stop it before asking for its {what}")
        _keep_text(self.profiler)  # where an interrupt came before stop_trace() did
        kineto: _Kineto = self.profiler.kineto_results
        return kineto

    def _trace_of(self, what: str) -> Trace:
        kineto = self._finished(what)
        if self._read is None or self._read[0] is not kineto:
            self._read = kineto, _read(self.profiler)
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
        shares, said = self.trace()._peaks(core, source)
        if core.devices <= {"cpu"} and source == "measured":
            cpu = find_device("cpu")
            if cpu.measured is not None:
                shares["cpu"], said["cpu"] = cpu.measured, {"source": "measured", "name": cpu.name}
        return shares, said

    def _why_unknown(self, device: str, source: str) -> str:
        if device == "cpu":
            return Results._why_unknown(self, device, source)
        return self.trace()._why_unknown(device, source)


def _torchs_actions(plan: Callable[[int], Any]) -> Callable[[int], ProfilerAction]:
    """A schedule, be it flopscope's, torch's or the user's own, that answers with torch's actions.

    torch looks its own actions up in a dict, and does nothing at all for any other object.
    """
    if not callable(plan):
        raise TypeError(f"schedule is a function, not {plan!r}")

    def action_of(step: int) -> ProfilerAction:
        return ProfilerAction[action_at(plan, step).name]

    return action_of


functools.update_wrapper(profile.__init__, _torch.profile.__init__)  # the signature of the torch that is installed

_NO_ACCUMULATION = (
    "acc_events=True with a schedule: each cycle has its own events; gather key_averages() of each in on_trace_ready, "
    "or profile without a schedule"
)
_NO_MONITOR = (
    "the cupti_monitor backend keeps its kernels apart from Kineto's trace; take that with torch.profiler.profile, "
    "export it and read it with flopscope.load_trace()"
)


def from_profile(prof: Any) -> Trace:
    """What a finished ``torch.profiler.profile`` (or ``torch.autograd.profiler.profile``) recorded last.

    Kineto gives its trace once, and keeps it: ``prof.export_chrome_trace()`` works afterwards as before, also more than
    once. TypeError for what is no such profile; RuntimeError for one that has not ended, or whose trace was exported
    already.
    """
    profiler = prof.profiler if isinstance(prof, _torch.profile) else prof
    if profiler is not None and not hasattr(profiler, "kineto_results"):
        raise TypeError(f"from_profile() takes a torch.profiler.profile, not {prof!r}")
    if profiler is None or profiler.kineto_results is None:
        raise RuntimeError("this profile has nothing recorded: it was not started, or is still running; stop it first")
    _keep_text(profiler)
    return _read(profiler)


def _read(profiler: Any) -> Trace:
    """The trace of a torch.autograd.profiler.profile whose text is kept."""
    trace: Trace = profiler.kineto_results.read()
    trace.source = "torch.profiler"
    trace._usual_peaks = "measured"  # it ran here
    trace.record_shapes = profiler.record_shapes
    trace.profile_memory = profiler.profile_memory
    trace._cpu_alone = not _cuda.is_initialized()
    return trace


# Kineto's text --------------------------------------------------------------------------------------------------------


def _keep_text(profiler: Any) -> None:
    """Let the results of a torch.autograd.profiler.profile be saved more than once, and read."""
    if not isinstance(profiler.kineto_results, _Kineto):
        profiler.kineto_results = _Kineto(profiler.kineto_results)


class _Kineto:
    """torch's _ProfilerResult, which saves its trace only once: here into memory, from where it is copied and read.

    The text takes about 400 bytes an event. It lives as long as the results do.
    """

    def __init__(self, results: Any) -> None:
        self._results = results
        self._memory: int | None = None  # the file descriptor
        self._named = b""  # how the text names its file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._results, name)

    def read(self) -> Trace:
        with _links_to(self._text()) as path:
            return load_trace(path)

    def save(self, path: str, compressed: bool = False) -> None:
        """Write the trace to a file, as _ProfilerResult does; OSError where it cannot be written."""
        memory = self._text()
        size = os.fstat(memory).st_size
        whole = max(0, size - _TAIL)
        tail = os.pread(memory, _TAIL, whole).replace(self._named, json.dumps(path, ensure_ascii=False).encode())
        with replacing(path, "wb") as file:
            if compressed:
                name = os.path.basename(path).removesuffix(".gz")
                with gzip.GzipFile(name, "wb", COMPRESSION, file) as packed:
                    _copy(memory, whole, packed.write)
                    packed.write(tail)
                return
            _send(memory, whole, file)
            file.write(tail)

    def _text(self) -> int:
        """The file in memory that has the trace."""
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
            self._named = f'"{path}"'.encode()
        if os.fstat(memory).st_size == 0:
            raise OSError("Kineto wrote no trace; what it printed may say why")


def _send(memory: int, size: int, file: IO[bytes]) -> None:
    """Copy the first bytes of a file in memory within the kernel, where it can: not to devices."""
    copied = 0
    try:
        while copied < size:
            copied += os.sendfile(file.fileno(), memory, copied, size - copied)
    except OSError as problem:
        if problem.errno != errno.EINVAL or copied:
            raise
        _copy(memory, size, file.write)


def _copy(memory: int, size: int, write: Callable[[bytes], object]) -> None:
    for begin in range(0, size, _PIECE):
        write(os.pread(memory, min(_PIECE, size - begin), begin))


_PIECE = 1 << 20  # bytes
_TAIL = 1 << 16  # bytes at the end of a trace, within which Kineto names the file
_NOT_SAVED = (
    "Kineto cannot write what was recorded ({}); it does so once: read the file that was exported, with "
    "flopscope.load_trace(path), or call from_profile() before export_chrome_trace()"
)


@contextmanager
def _links_to(memory: int) -> Iterator[str]:
    """A path that leads to a file in memory. Kineto writes beside it, to a name with .tmp, and renames."""
    with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
        path = os.path.join(folder, "torch.profiler")
        for name in (path, f"{path}.tmp"):
            os.symlink(f"/proc/self/fd/{memory}", name)
        yield path

"""torch.profiler with flopscope's tables: put ``flopscope.torch`` where a program imports from ``torch.profiler``.

``profile`` is torch.profiler.profile: the same arguments, methods, schedule and collection. What it saw is read by
flopscope: ``key_averages()`` has torch's rows, a hundred times as soon, with FLOPs, bytes and roofline; and there is
what a flopscope profile gives beside, such as ``coverage()`` and ``summary()``.

    from flopscope.torch import profile

    with profile(record_shapes=True) as prof:
        model(inputs)
    print(prof.key_averages().table(sort_by="self_cuda_time_total"))
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import warnings
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TextIO, cast

from .load import Trace, load_trace

try:
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
    import pandas

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


class profile(_torch.profile):  # type: ignore[misc]
    """torch.profiler.profile with its arguments, methods and schedule; its results are read by flopscope.

    Of several cycles of a schedule, the results are the last one's, as torch's without ``acc_events`` are.
    """

    _saved: _Saved | None = None  # what Kineto wrote of the latest recording: it writes each once
    _read: Trace | None = None  # from that

    def trace(self) -> Trace:
        """What was recorded, as fs.load_trace() gives it. RuntimeError before the end of a recording."""
        results = _results_of(self)
        if self._saved is None or self._saved.results is not results:
            if getattr(self, "acc_events", False) and self._saved is not None:
                warnings.warn("acc_events: flopscope's results are those of the last cycle", UserWarning, stacklevel=3)
            folder = tempfile.mkdtemp(prefix="flopscope-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self.export_chrome_trace(os.path.join(folder, "trace.json"))
        assert self._saved is not None
        if self._read is None:
            if not self._saved.path.exists():
                raise RuntimeError(
                    f"{self._saved.path} is gone: the trace was exported there, and Kineto writes it once"
                )
            self._read = load_trace(self._saved.path)
        return self._read

    def export_chrome_trace(self, path: str | os.PathLike[str], *arguments: Any, **options: Any) -> None:
        """As torch has it, but as often as you like, before and after other results."""
        results = _results_of(self)
        if self._saved is not None and self._saved.results is results and not any((*arguments, *options.values())):
            _copy(self._saved.path, Path(path))
            return
        super().export_chrome_trace(os.fspath(path), *arguments, **options)
        self._saved, self._read = _Saved(results, Path(path).absolute()), None

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        *,
        peaks: str = "measured",
    ) -> EventTable:
        """torch's rows, with work and roofline joined: the arguments of flopscope.profile.key_averages()."""
        return self.trace().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name, peaks=peaks)

    def coverage(self) -> dict[str, Any]:
        """The share of the time whose work is known: as flopscope.profile.coverage()."""
        return self.trace().coverage()

    def gpu_summary(self, step: str | None = None) -> pandas.DataFrame:
        """How busy each GPU was, in percent: one row a device, of all steps or of the one of that name."""
        return self.trace().gpu_summary(step)

    def step_breakdown(self) -> pandas.DataFrame:
        """Where the time of each step went: one row a step, one column for each kind of work, in µs."""
        return self.trace().step_breakdown()

    def launch_summary(self) -> pandas.DataFrame:
        """How kernels were launched: one row a device, with delays in µs, queue depths and waiting."""
        return self.trace().launch_summary()

    def collectives(self) -> pandas.DataFrame:
        """Each kernel of communication: what it moved, how fast in GB/s, and what of its time in µs nothing hid."""
        return self.trace().collectives()

    def stream_summary(self) -> pandas.DataFrame:
        """How long each stream of each GPU worked, beside which others, and communicated, in µs: one row a stream."""
        return self.trace().stream_summary()

    def summary(self, file: TextIO | None = None) -> None:
        """Print how busy the GPUs were, where the steps' time went and how kernels were launched, with advice."""
        self.trace().summary(file)


def from_profile(prof: Any) -> Trace:
    """The trace of a finished torch.profiler.profile or torch.autograd.profiler.profile, read by flopscope.

    Kineto writes a recording once: ``prof`` itself cannot be exported after that, but the trace that this returns can.
    TypeError for another object; RuntimeError where nothing was recorded, it still records, or was exported before.
    """
    if isinstance(prof, profile):
        return prof.trace()
    results = _results_of(prof)
    with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
        path = os.path.join(folder, "trace.json")
        try:
            results.save(path)
        except RuntimeError as problem:
            raise RuntimeError(
                f"Kineto cannot write what was recorded ({problem}); it does so once: read the file that was exported, "
                "with flopscope.load_trace(path)"
            ) from None
        trace = load_trace(path)
    trace.source = f"<{type(prof).__module__}.{type(prof).__qualname__}>"
    return trace


@dataclass(frozen=True)
class _Saved:
    """A file that Kineto wrote, and of which results."""

    results: object
    path: Path


def _copy(source: Path, target: Path) -> None:
    with _opened(source, "rb") as read, _opened(target, "wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)


def _opened(path: Path, mode: Literal["rb", "wb"]) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, mode) if path.suffix == ".gz" else path.open(mode))


def _results_of(prof: Any) -> Any:
    """Kineto's results of a profile that has stopped."""
    inner = getattr(prof, "profiler", prof)  # torch.profiler's holds one of torch.autograd's
    if inner is not None and not hasattr(inner, "kineto_results"):
        raise TypeError(f"a profile of torch.profiler or torch.autograd.profiler has results to read, not {prof!r}")
    results = getattr(inner, "kineto_results", None)
    if results is None:
        raise RuntimeError("the profile has recorded nothing yet; ask when it has stopped, or in on_trace_ready")
    return results

"""Recorded traces, with the tables of a profile: ``load_trace()``; ``load_traces()``, of folders and patterns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import IO, TYPE_CHECKING, Any

from flopscope import _core
from flopscope.read.formats import NotATrace, hints_of
from flopscope.read.load import Loaded, Source, read, read_captures
from flopscope.read.paths import Found, find_traces, listed
from flopscope.read.xplane import Hlo
from flopscope.results.head import OWN_MEMBERS, rank_of, run_steps_of
from flopscope.results.results import Results
from flopscope.support.device import CPU, CPU_MEMBER, peaks_of_cpu, why_cpu_unknown
from flopscope.support.model import Model, index_of, models_of, why_unknown
from flopscope.support.package import warn_user
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope.support.peaks import Peaks


class Trace(Results):
    """A recorded trace, returned by load_trace(), with the results of a profile: key_averages(), gpu_summary(), …

    ``metadata`` of a file of another profiler has a member "nsys" or "rocpd": its version, the rows read, …

    Percentages refer to the peaks of the devices named in the trace.
    """

    _usual_peaks = "datasheet"

    def __init__(self, loaded: Loaded) -> None:
        super().__init__()
        source, core, report, metadata, graphs, modules, hlo = loaded
        self.source = source
        """Name of the file, or the type of the object that was read."""
        self.metadata = metadata
        """Members of the trace other than its events: "deviceProperties", "distributedInfo", versions, …"""
        self.report = {name: report[name] for name in _REPORTED}
        """Counts from reading: "bytes" of text, "events" in it, events "kept" in the tables, and omitted events:
        "without_time", of an "unknown" category, of "too_many" devices. "truncated" is whether the file was cut off.
        Values "mended", in which quotes are not escaped, and events "without_duration", whose duration is impossible.
        Inconsistent events: "contradicting" device work, whose External id names another op than the one around its
        launch; "guessed", whose correlation calls of several processes have, without anything that tells whose it is;
        and "overlapping" host events, which began within another event on their thread but ended after it."""
        self.graphs: dict[str, int] = graphs
        """Counts of CUDA or HIP graphs: captured "graphs", "launches" of graphs and the kernels, copies and fills
        ("works") that they ran; the works whose node was "matched", and that are "owned" by an op of the capture; the
        launches of "unseen" graphs and those that are "ambiguous"; and the launches of which it was logged what graph
        they launched ("tied")."""
        self._modules = modules
        self.hlo = hlo or {}
        """Counts of what load_trace(hlo=…) tied to instructions: "works", the kernels, copies and fills outside of
        ops; of them those tied "by_name", which one instruction alone has, "by_order", between kernels whose names
        leave no other choice, and "guessed"; the time of the kernels, "kernel_ns", and of those tied, "tied_ns";
        "executions" of modules, and of their "instructions". Empty without HLO."""
        self._process = int(report["process"])
        self.with_stack = bool(metadata.get("with_stack")) or core.has_frames
        self.record_shapes = bool(metadata.get("record_shapes", core.has_shapes))
        self.profile_memory = bool(metadata.get("profile_memory", False))
        self.hints = hints_of(metadata, report, core)
        self.run_steps = run_steps_of(metadata)
        if self.run_steps is not None and not self.run_steps.kind and (passes := core.mark_passes()):
            self.run_steps = self.run_steps._replace(kind="repetition", steps=passes)
        self._core = core
        self._timing = "trace"
        self._trace_id = metadata.get("trace_id")
        self._metadata = {key: value for key, value in metadata.items() if key not in _REGENERATED}
        self._recorded_cpu = _cpu_of(source, metadata)

    @property
    def dropped(self) -> int:
        """Number of events that are in no table: without a time, of an unknown category, or of too many devices."""
        return sum(self.report[name] for name in ("without_time", "unknown", "too_many"))

    @property
    def rank(self) -> int | None:
        """Rank of the trace's process in a distributed program; None if the program was not distributed.

        Raise ValueError if the trace's "distributedInfo" contains an invalid rank.
        """
        return rank_of(self.metadata, self.source)

    @property
    def process(self) -> int | None:
        """Process id of the host threads in the trace; None if it has none. An id that is text is hashed."""
        return self._process if self._process >= 0 else None

    @property
    def _program(self) -> str:
        name = os.path.basename(self.source)
        return "" if name.startswith("<") else name

    @property
    def devices(self) -> dict[int, str]:
        """Names of the devices in the trace by index, where recorded."""
        assert self._core is not None
        return self._core.device_names

    def _peaks(self, core: _core.Store, source: str) -> tuple[dict[str, Peaks], dict[str, dict[str, str]]]:
        """Return the peaks of the devices that the trace names, and their descriptions for a table."""
        from flopscope.support.device import peaks_of_models

        if core.devices <= {"cpu"}:
            peaks, cpu = peaks_of_cpu(self._cpu, source), self._cpu or CPU.here()
            return ({}, {}) if peaks is None else ({"cpu": peaks}, {"cpu": {"source": peaks.source, "name": cpu.name}})
        models = self._models
        shares = peaks_of_models({core.device_name(index): model for index, model in models.items()}, source)
        named = {device: models[index_of(device)].name for device in shares}
        return shares, {device: {"source": peaks.source, "name": named[device]} for device, peaks in shares.items()}

    def _stored_peaks(self, core: _core.Store) -> tuple[dict[str, Peaks], dict[str, dict[str, str]]]:
        measures = core.devices <= {"cpu"}  # the peaks of GPUs are looked up, whatever their source
        return self._peaks(core, "datasheet" if measures or self._usual_peaks == "datasheet" else "measured")

    def _measured(self, device: str) -> Peaks | None:
        """Return None: the device may not be present. Tables then use the shortest kernel of the trace."""
        return None

    @property
    def _cpu(self) -> CPU | None:
        return self._recorded_cpu

    @property
    def _models(self) -> dict[int, Model]:
        assert self._core is not None
        ran = {index_of(device) for device in self._core.devices if device != "cpu"}
        return models_of(self.devices, self.metadata.get("deviceProperties"), ran)

    def _why_unknown(self, device: str, source: str) -> str:
        from flopscope.support.device import devices

        if device == "cpu":
            return why_cpu_unknown(self._cpu)
        model = self._models.get(index_of(device))
        if model is None:
            return "the trace does not name the device"
        here = any(one.name == model.name for one in devices())
        return why_unknown(model, here=here, measured=source != "datasheet")

    def __repr__(self) -> str:
        return f"<flopscope.Trace of {printable(self.source)}: {len(self)} events>"


_REPORTED = (
    *("bytes", "events", "kept", "without_time", "unknown", "too_many"),
    *("mended", "without_duration", "contradicting", "guessed", "overlapping", "truncated"),
)
_REGENERATED = OWN_MEMBERS | {"trace_id", "traceName"}


def load_trace(
    source: str | bytes | bytearray | memoryview | os.PathLike[str] | IO[bytes],
    *,
    max_bytes: int | None = None,
    captures: Source | Iterable[Source] | None = None,
    hlo: Hlo | None = None,
) -> Trace:
    """Read a trace from a path, bytes or a binary file object.

    Traces of torch.profiler (Kineto) and flopscope, SQLite exports of Nsight Systems, and rocprofv3's databases are
    read; docs/captures.md describes the latter. A report of Nsight Systems (.nsys-rep) is read if nsys is installed,
    which exports it. So are recordings of XLA's profiler, ``*.xplane.pb``, and the folder given to
    ``jax.profiler.trace()``, of which the newest run is read, and traces of Perfetto, ``.pftrace``.

    The file may be compressed by gzip or zstandard, regardless of its name. Only the events are kept in memory, so a
    file may be larger than memory; plain files are read by several threads. The rows equal torch's
    own rows for the same trace. A kernel belongs to the op around the API call that launched it.

    ``max_bytes`` is the maximum size of the text; a longer text raises ValueError. By default, a compressed file may
    expand to 256 MB plus 200 times its size, far more than real traces do; other files have no limit. An event takes
    about 200 bytes of memory, so a file of only short events takes about five times its size.

    ``captures`` names traces recorded while the program captured its CUDA or HIP graphs, as vLLM and SGLang write
    them: files, folders or patterns. The kernels of a replayed graph then belong to the ops of the capture. Launches
    are joined to captured graphs by the names and the order of their kernels; ``Trace.graphs`` and a warning count
    those that do not match.

    ``hlo`` is the optimised HLO of a JAX program: text, a file of it (perhaps gzipped, or JSON of module to text), or a
    dict of module to text, as ``compiled.as_text()`` and the modules of ``client.live_executables()`` give it. Kernels
    then belong to the instructions that launched them: an op of its name for each execution of one, with the shapes of
    its operands, FLOPs and bytes, in its scopes (``group_by="module"``) and source lines (``group_by="line"``).
    ``Trace.hlo`` counts what was tied and how; what cannot be tied remains a kernel, and a warning says how much if it
    is over 5 % of the kernels' time. Files of XLA's profiler hold the modules already.

    Issue a UserWarning, and return what could be read, if the trace is truncated, if events were omitted, or if events
    contradict each other. Raise ValueError if the source is not a trace, naming the file, the byte, what was expected
    and, if known, what the file is; OSError if it cannot be read; ImportError if no library for zstandard is installed.
    """
    given = None if captures is None else partial(read_captures, captures, max_bytes)
    return Trace(read(source, max_bytes, given, hlo))


def _cpu_of(source: str, metadata: Mapping[str, Any]) -> CPU | None:
    """Return the CPU that the head of a trace describes; warn of invalid peaks."""
    try:
        return CPU.of_head(metadata)
    except ValueError as problem:
        warn_user(printable(f"{source}: the peaks of its CPU are ignored: {problem}"))
        return CPU.of_head({CPU_MEMBER: {**metadata[CPU_MEMBER], "peaks": None}})


# Several traces -------------------------------------------------------------------------------------------------------


def load_traces(
    *sources: str | os.PathLike[str], max_bytes: int | None = None, captures: Source | Iterable[Source] | None = None
) -> list[Trace]:
    """Read the traces of files, of folders and of patterns such as ``"runs/*/rank*.json.gz"``; ``**`` matches folders.

    A folder stands for the traces in it: \\*.json, \\*.json.gz, \\*.json.zst, \\*.pt.trace.json\\*, \\*.sqlite, \\*.db,
    \\*.xplane.pb and \\*.pftrace, not those in its own folders. The traces of a folder or a pattern are in natural
    order, rank2 before rank10. Files in it that are not traces are skipped, and a UserWarning counts them.
    ``max_bytes``, ``captures`` and errors of each file as in load_trace(): a damaged trace, and any file that is named
    itself, is an error. Raise ValueError if a folder or a pattern has no trace.
    """
    # All traces share what is read of the captures, once a trace needs it.
    captured = None if captures is None else cache(partial(read_captures, captures, max_bytes))
    traces: list[Trace] = []
    for source in sources:
        if not isinstance(source, (str, os.PathLike)):
            raise TypeError(f"load_traces() takes paths, load_traces(*paths), not {source!r}")
        loaded, skipped = _load(find_traces(os.fspath(source)), max_bytes, captured)
        if not loaded:
            raise ValueError(printable(f"{os.fspath(source)}: none of its files is a trace: {skipped[0]}"))
        if skipped:
            several = f"{len(skipped):,} files that are not traces were"
            what = "1 file that is not a trace was" if len(skipped) == 1 else several
            warn_user(printable(f"{os.fspath(source)}: {what} skipped: {listed(skipped)}"))
        traces += loaded
    return traces


def _load(
    found: Found, max_bytes: int | None, captures: Callable[[], Sequence[_core.Store]] | None
) -> tuple[list[Trace], list[str]]:
    """Return the traces, and the names of the files that are none, with the reason where the name does not give it."""
    traces, skipped = [], []
    for path in found.paths:
        try:
            traces.append(Trace(read(path, max_bytes, captures)))
        except NotATrace as problem:
            if not found.searched:
                raise
            skipped.append(f"{os.path.basename(path)} ({problem.brief})")
    return traces, [*skipped, *found.skipped]

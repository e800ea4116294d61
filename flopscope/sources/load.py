"""Recorded traces: ``load_trace()`` reads a trace of torch.profiler or flopscope and returns the same tables."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from flopscope import _core
from flopscope.hardware.cpu import CPU, CPU_MEMBER, peaks_of_cpu, why_cpu_unknown
from flopscope.hardware.model import Model, models_of, why_unknown
from flopscope.results.chrome_trace import STACKS_MEMBER
from flopscope.results.process import rank_of
from flopscope.results.results import Results
from flopscope.sources import graphs
from flopscope.sources.annotations import is_annotations, merged
from flopscope.sources.captures import NotACapture, hints_of, is_capture, read_capture
from flopscope.sources.feed import read_trace
from flopscope.sources.foreign import foreign_file
from flopscope.sources.paths import find_traces
from flopscope.sources.peek import as_file, start_of
from flopscope.support.device_names import index_of
from flopscope.support.files import close_names
from flopscope.support.safe import printable
from flopscope.support.suggest import suggesting
from flopscope.support.warn import warn_user

if TYPE_CHECKING:
    from flopscope.hardware.peaks import Peaks

__all__ = ["GraphCaptures", "NotATrace", "Trace", "load_own", "load_trace", "load_with", "read_captures"]

EXPANSION = 200  # maximum ratio of text to compressed size; 48 traces of torch have ratios from 7 to 34
EXPANSION_FREE = 256 << 20  # bytes that every compressed file may expand to


class NotATrace(ValueError):
    """A file that is something else than a trace, as opposed to a damaged trace. ``brief`` says why in a few words."""

    def __init__(self, message: str, brief: str) -> None:
        super().__init__(message)
        self.brief = brief


class Trace(Results):
    """A recorded trace, returned by load_trace(), with the results of a profile: key_averages(), gpu_summary(), …

    ``metadata`` of a file of another profiler has a member "nsys", "rocpd" or "rocprof": its version, the rows read, …

    Percentages refer to the peaks of the devices named in the trace.
    """

    _usual_peaks = "datasheet"

    def __init__(self, source: str, core: _core.Store, report: Mapping[str, Any], metadata: dict[str, Any]) -> None:
        super().__init__()
        self.source = source
        """Name of the file, or the type of the object that was read."""
        self.metadata = metadata
        """Members of the trace other than its events: "deviceProperties", "distributedInfo", versions, …"""
        self.report = {name: report[name] for name in _REPORTED}
        """Counts from reading: "bytes" of text, "events" in it, events "kept" in the tables, and omitted events:
        "without_time", of an "unknown" category, of "too_many" devices. "truncated" is whether the file was cut off.
        Inconsistent events: "contradicting" device work, whose External id names another op than the one around its
        launch, and "overlapping" host events, which began within another event on their thread but ended after it."""
        self.graphs: dict[str, int] = {}
        """Counts of CUDA or HIP graphs: captured "graphs", "launches" of graphs and the kernels, copies and fills
        ("works") that they ran; the works whose node was "matched", and that are "owned" by an op of the capture; the
        launches of "unseen" graphs and those that are "ambiguous"; the launches of which it was logged what graph they
        launched ("tied"); the works whose op is "estimated" from the same kernel elsewhere; and those whose node is
        "annotated" in a file among the captures."""
        self._process = int(report["process"])
        self.with_stack = bool(metadata.get("with_stack")) or core.has_frames
        self.record_shapes = bool(metadata.get("record_shapes", core.has_shapes))
        self.profile_memory = bool(metadata.get("profile_memory", False))
        self._hints = hints_of(metadata, report)
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
        return rank_of(self, self.source)

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
        from flopscope.hardware.device import peaks_of_models

        if core.devices <= {"cpu"}:
            peaks, cpu = peaks_of_cpu(self._cpu, source), self._cpu or CPU.here()
            return ({}, {}) if peaks is None else ({"cpu": peaks}, {"cpu": {"source": peaks.source, "name": cpu.name}})
        models = self._models
        shares = peaks_of_models({core.device_name(index): model for index, model in models.items()}, source)
        named = {device: models[index_of(device)].name for device in shares}
        sources = {device: {"source": peaks.source, "name": named[device]} for device, peaks in shares.items()}
        return shares, sources

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
        from flopscope.hardware.device import devices

        if device == "cpu":
            return why_cpu_unknown(self._cpu)
        model = self._models.get(index_of(device))
        if model is None:
            return "the trace does not name the device"
        here = any(one.name == model.name for one in devices())
        return why_unknown(model, here=here, measured=source != "datasheet")

    def __repr__(self) -> str:
        return f"<flopscope.Trace of {self.source}: {len(self)} events>"


_REPORTED = (
    *("bytes", "events", "kept", "without_time", "unknown", "too_many"),
    *("contradicting", "overlapping", "truncated"),
)
_REGENERATED = frozenset(
    {
        "schemaVersion",
        "deviceProperties",
        "trace_id",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "traceName",
        "rooflinePeaks",
        "flopscope",
        "accelerator",
        CPU_MEMBER,
    }
)


@suggesting
def load_trace(
    source: str | bytes | bytearray | memoryview | os.PathLike[str] | IO[bytes],
    *,
    max_bytes: int | None = None,
    captures: graphs.Source | Iterable[graphs.Source] | None = None,
) -> Trace:
    """Read a trace from a path, bytes or a binary file object.

    Traces of torch.profiler (Kineto) and flopscope, SQLite exports of Nsight Systems, and rocprofv3's databases, JSON
    and kernel traces in CSV are read; docs/captures.md describes the latter. A report of Nsight Systems (.nsys-rep) is
    read if nsys is installed, which exports it.

    The file may be compressed by gzip or zstandard, regardless of its name. Only the events are kept in memory, so a
    file may be larger than memory; plain files are read by several threads. The rows equal torch's
    own rows for the same trace. A kernel belongs to the op around the API call that launched it.

    ``max_bytes`` is the maximum size of the text; a longer text raises ValueError. By default, a compressed file may
    expand to 256 MB plus 200 times its size, far more than real traces do; other files have no limit. An event takes
    about 200 bytes of memory, so a file of only short events takes about five times its size.

    ``captures`` names traces recorded while the program captured its CUDA or HIP graphs, as vLLM and SGLang write
    them: files, folders or patterns. The kernels of a replayed graph then belong to the ops of the capture. Launches
    are joined to captured graphs by the names and the order of their kernels; ``Trace.graphs`` and a warning count
    those that do not match. Without a capture, a kernel of a graph belongs to the op that launched the same kernel with
    the same grid elsewhere in the file, if that is unambiguous; ``coverage()["estimated"]`` names the op. Among the
    captures may be PyTorch's annotations of graph nodes, kernel_annotations_*.json: their names become ranges around
    the kernels of the nodes.

    Issue a UserWarning, and return what could be read, if the trace is truncated, if events were omitted, or if events
    contradict each other. Raise ValueError if the source is not a trace, naming the file, the byte, what was expected
    and, if known, what the file is; OSError if it cannot be read; ImportError if no library for zstandard is installed.
    """
    return load_with(source, max_bytes, None if captures is None else partial(read_captures, captures, max_bytes))


def load_own(source: str) -> Trace:
    """Read a trace that torch recorded in this process: the graphs that watch_graphs() saw captured are known."""
    return load_with(source, None, None, name="torch.profiler", watched=True)


def load_with(
    source: str | bytes | bytearray | memoryview | os.PathLike[str] | IO[bytes],
    max_bytes: int | None,
    captures: Callable[[], GraphCaptures] | None,
    *,
    name: str = "",
    watched: bool = False,
) -> Trace:
    """Read a trace as load_trace() does; ``captures`` returns the captures of its graphs. ``name``: for messages."""
    if max_bytes is not None and max_bytes <= 0:
        raise ValueError(f"max_bytes must be positive, not {max_bytes}")
    name = name or _name_of(source)
    try:
        with _Problems(name, max_bytes) as problems:
            problems.start = start_of(source)
            if is_capture(problems.start):
                problems.captured = True
                with as_file(source, problems) as path:
                    capture = read_capture(path, problems.start)
                problems.warn_of_capture(capture.report, capture.notes)
                if captures is not None:
                    problems._warn("captures= is for traces of torch.profiler: this file has those of its own graphs")
                return Trace(name, capture.core, capture.report, capture.metadata)
            reader = _core.TraceReader()
            read_trace(source, reader, problems)
            core = _core.Store()
            report = reader.finish(core)
            problems.check_kind(report)
    except FileNotFoundError as problem:
        raise FileNotFoundError(errno.ENOENT, _absent(name), name) from problem
    except IsADirectoryError as problem:
        raise IsADirectoryError(errno.EISDIR, _IS_FOLDER, name) from problem
    except ValueError as problem:
        raise problems.explained(problem) from None
    except RuntimeError as problem:
        raise OSError(printable(f"{name}: {problem}")) from None
    except ImportError as problem:
        raise ImportError(printable(f"{name}: {problem}")) from problem
    problems.warn(report)
    metadata = _metadata(report["head"])
    metadata.pop(STACKS_MEMBER, None)  # the core has read it
    for step in _unfinished(metadata):
        core.undo_step(step)
    given = GraphCaptures([], []) if captures is None else captures()
    rank = Trace(name, core, report, metadata).rank if given.annotations else None
    names = merged(given.annotations, rank)
    counts = graphs.join(core, given.stores, names, watched=watched)
    if captures is not None:
        graphs.warn_of_unmatched(name, counts, len(given.stores), len(names))
    trace = Trace(name, core, report, metadata)
    trace.graphs = counts
    return trace


class GraphCaptures(NamedTuple):
    """What is known of the capture of graphs."""

    stores: list[_core.Store]
    annotations: list[str]  # files of PyTorch's annotations of nodes


def read_captures(sources: graphs.Source | Iterable[graphs.Source], max_bytes: int | None) -> GraphCaptures:
    """Read the traces of captures, and find the annotations of nodes."""
    paths = [path for one in graphs.sources_of(sources) for path in find_traces(os.fspath(one)).paths]
    annotations = [path for path in paths if is_annotations(start_of(path))]
    others = [path for path in paths if path not in annotations]
    stores = [load_trace(path, max_bytes=max_bytes)._recorded("captures") for path in others]
    return GraphCaptures(stores, annotations)


_IS_FOLDER = "it is a folder; name a trace in it, or give the folder to load_traces() or to flopscope table"


def _absent(name: str) -> str:
    if re.match(r"[a-z][a-z0-9+.-]+://", name):
        return "a trace is not read from a URL: download it first, or use load_ranks() or flopscope ranks"
    similar = close_names(name)
    return f"there is no such file; did you mean {' or '.join(similar)}?" if similar else "there is no such file"


_CONTRADICTIONS = {
    "contradicting": "kernels or copies carry an External id that contradicts the call that launched them; each is "
    "attributed to the op around its call",
    "overlapping": "host events overlap another one on their thread without being nested in it; the shared time is "
    "subtracted only once from the event that encloses both",
}


class _Problems(AbstractContextManager["_Problems"]):
    """The problems of a trace that do not prevent reading it."""

    def __init__(self, name: str, max_bytes: int | None = None) -> None:
        self.name = name
        self.max_bytes = max_bytes
        self.start = b""
        self.compression: str | None = None
        self.captured = False  # it is a file of another profiler

    def __exit__(self, *_: object) -> None:
        return None

    def check_size(self, size: int, packed: int | None = None) -> None:
        """Raise ValueError if the size of the text exceeds the limit. ``packed`` is its compressed size, in bytes."""
        limit = self.max_bytes
        if limit is None and packed is not None:
            limit = EXPANSION_FREE + EXPANSION * packed
            if size > limit:
                raise ValueError(
                    f"it expands to more than {limit:,} bytes, which is {EXPANSION_FREE >> 20} MB plus {EXPANSION} "
                    f"times its compressed size; set another limit by load_trace(…, max_bytes=…)"
                )
        elif limit is not None and size > limit:
            raise ValueError(f"it has more than {limit:,} bytes of text, the limit set by max_bytes")

    def check_kind(self, report: Mapping[str, Any]) -> None:
        """Raise NotATrace if there are events, but none that torch or flopscope writes.

        A trace of torch in which nothing ran is empty: it has the head of torch's traces, and no slices.
        """
        if report["understood"] or report["events"] == report["metadata"]:
            return
        complete = not report["truncated"] and not self.compression
        if _OF_TORCH & _metadata(report["head"]).keys() and not (complete and report["unknown"]):
            return
        count = "1 event, which is not" if report["events"] == 1 else f"{report['events']:,} events, none of them"
        brief = f"not a trace that flopscope reads: {count} an op, a kernel or an API call"
        raise NotATrace(f"{brief} ({_kinds(self.start)}); record the program with torch.profiler", brief)

    def explained(self, problem: ValueError) -> ValueError:
        """Return an error that names the source and, if it is not a trace at all, what it is and what to do."""
        if self.captured and not isinstance(problem, NotACapture):
            return ValueError(printable(f"{self.name}: {problem}"))
        kind = foreign_file(self.start, self.name)
        if kind is not None:
            brief = f"it is {kind.what}"
            instead = kind.instead.format(name=shlex.quote(self.name))
            text = f"{brief}, not a trace: {instead} ({problem})"
        else:
            text = str(problem)
            brief = problem.brief if isinstance(problem, NotATrace) else text
        message = printable(f"{self.name}: {text}")
        is_trace = any(word in self.start for word in (b'"traceEvents"', b'"ph"'))
        return ValueError(message) if is_trace and not isinstance(problem, NotATrace) else NotATrace(message, brief)

    def warn(self, report: Mapping[str, Any]) -> None:
        """Issue a warning for each kind of problem."""
        if report["truncated"] or self.compression:
            why = self.compression or f"it ends at byte {report['bytes']:,}, before the end of the trace"
            self._warn(f"the file is truncated: {why}; {report['events']:,} events were read")
        unknown = {f'of an unknown category, such as "{report["first_unknown"]}"': report["unknown"]}
        self._warn_of_events(report, unknown)

    def warn_of_capture(self, report: Mapping[str, Any], notes: list[str]) -> None:
        """Issue the warnings for a file of another profiler."""
        for note in notes:
            self._warn(note)
        self._warn_of_events(report, {})

    def _warn_of_events(self, report: Mapping[str, Any], more: Mapping[str, int]) -> None:
        omitted = {
            "without a time": report["without_time"],
            **more,
            "of devices after the 128th": report["too_many"],
        }
        counts = [f"{count:,} {kind}" for kind, count in omitted.items() if count]
        if counts:
            self._warn(f"events were omitted: {', '.join(counts)}")
        for name, meaning in _CONTRADICTIONS.items():
            if report[name]:
                self._warn(f"{report[name]:,} {meaning}")

    def _warn(self, message: str) -> None:
        warn_user(printable(f"{self.name}: {message}"))


_OF_TORCH = frozenset({"schemaVersion", "deviceProperties", "flopscope"})
_KINDS = 4  # of each member that are named


def _kinds(start: bytes) -> str:
    """Return the phases and the categories of the events in the first bytes of a text, for a message."""
    found = []
    for member, one, several in (("ph", "phase", "phases"), ("cat", "category", "categories")):
        values = re.findall(rb'"%s"\s*:\s*"([^"\\]{1,40})"' % member.encode(), start)
        names = [f'"{name.decode("utf-8", "replace")}"' for name in dict.fromkeys(values)]
        if names:
            more = " and more" if len(names) > _KINDS else ""
            found.append(f"{one if len(names) == 1 else several} {', '.join(names[:_KINDS])}{more}")
    return "; ".join(found) or 'without a member "ph"'


def _name_of(source: object) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else f"<{type(source).__name__}>"


# The head -------------------------------------------------------------------------------------------------------------


def _metadata(head: bytes) -> dict[str, Any]:
    """Parse the members other than the events. Nonstandard JSON is read as far as Python can, or else ignored."""
    text = head.decode("utf-8", "replace")
    try:
        members = json.loads(text, strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def _cpu_of(source: str, metadata: Mapping[str, Any]) -> CPU | None:
    """Return the CPU that the head of a trace describes; warn of invalid peaks."""
    try:
        return CPU.of_head(metadata)
    except ValueError as problem:
        warn_user(printable(f"{source}: the peaks of its CPU are ignored: {problem}"))
        return CPU.of_head({CPU_MEMBER: {**metadata[CPU_MEMBER], "peaks": None}})


def _unfinished(metadata: Mapping[str, Any]) -> list[str]:
    """Return the names of the steps amid which the recording of ``flopscope run`` began or ended."""
    names = metadata.get("unfinishedSteps")
    return [name for name in names if isinstance(name, str) and name.isascii()] if isinstance(names, list) else []


def _integer(text: str) -> int | float:
    """Parse an integer; one with more digits than Python converts becomes an infinity, so that the rest is not lost."""
    try:
        return int(text)
    except ValueError:
        return float(text)

"""Recorded traces: reads a trace of torch.profiler, flopscope or another profiler into a store."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from flopscope import _core
from flopscope.read import graphs
from flopscope.read.annotations import is_annotations, merged
from flopscope.read.captures import NotACapture, is_capture, read_capture
from flopscope.read.feed import read_trace
from flopscope.read.foreign import foreign_file
from flopscope.read.hlo import Hlo, read_hlo, tie
from flopscope.read.paths import find_traces, recording_in
from flopscope.read.peek import PATH, as_file, start_of
from flopscope.read.pftrace import is_pftrace, read_pftrace
from flopscope.read.xplane import Modules
from flopscope.results.head import STACKS_MEMBER, members_of, rank_of, unfinished_steps
from flopscope.support.files import close_names
from flopscope.support.safe import printable
from flopscope.support.warn import warn_user

EXPANSION = 200  # maximum ratio of text to compressed size; 48 traces of torch have ratios from 7 to 34
EXPANSION_FREE = 256 << 20  # bytes that every compressed file may expand to


class NotATrace(ValueError):
    """A file that is something else than a trace, as opposed to a damaged trace. ``brief`` says why in a few words."""

    def __init__(self, message: str, brief: str) -> None:
        super().__init__(message)
        self.brief = brief


class Loaded(NamedTuple):
    """What a trace holds."""

    source: str
    """Name of the file, or the type of the object that was read."""
    core: _core.Store
    report: Mapping[str, Any]
    """Counts from reading."""
    metadata: dict[str, Any]
    """Members of the trace other than its events."""
    graphs: dict[str, int]
    """Counts of its CUDA or HIP graphs."""
    modules: Modules | None = None
    """The modules of XLA that it holds."""
    hlo: dict[str, int] | None = None
    """Counts of kernels that were tied to instructions of HLO."""


def read(
    source: str | bytes | bytearray | memoryview | os.PathLike[str] | IO[bytes],
    max_bytes: int | None = None,
    captures: Callable[[], GraphCaptures] | None = None,
    hlo: Hlo | None = None,
    *,
    name: str = "",
    watched: bool = False,
) -> Loaded:
    """Read a trace as load_trace() does; ``captures`` returns the captures of its graphs.

    name: for messages. watched: the graphs that watch_graphs() saw in this process are known.
    """
    if max_bytes is not None and max_bytes <= 0:
        raise ValueError(f"max_bytes must be positive, not {max_bytes}")
    name = name or _name_of(source)
    texts = read_hlo(hlo)
    problems = _Problems(name, max_bytes)
    try:
        if isinstance(source, PATH) and os.path.isdir(source):
            source = recording_in(os.fsdecode(source))
            name = problems.name = source
        problems.start = start_of(source)
        if is_capture(problems.start):
            problems.captured = True
            with as_file(source, problems) as path:
                capture = read_capture(path, problems.start, name)
            notes = list(capture.notes)
            if captures is not None:
                notes.append("captures= is for traces of torch.profiler: this file has those of its own graphs")
            problems.warn(notes, capture.report, {})
            modules = capture.modules
            loaded = Loaded(name, capture.core, capture.report, capture.metadata, {}, modules)
            return loaded._replace(hlo=tie(capture.core, texts, modules, name))
        reader = _core.TraceReader()
        problems.captured = is_pftrace(problems.start)
        (read_pftrace if problems.captured else read_trace)(source, reader, problems)
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
    problems.warn_of_trace(report)
    metadata = members_of(report["head"])
    metadata.pop(STACKS_MEMBER, None)  # the core has read it
    for step in unfinished_steps(metadata):
        core.undo_step(step)
    given = GraphCaptures([], []) if captures is None else captures()
    rank = rank_of(metadata, name) if given.annotations else None
    names = merged(given.annotations, rank)
    counts = core.join_replays(tuple(given.stores), watched, names)
    if captures is not None and (unmatched := graphs.describe(counts, len(given.stores), len(names))):
        warn_user(printable(f"{name}: captures: {unmatched}"))
    return Loaded(name, core, report, metadata, counts, None, tie(core, texts, None, name))


class GraphCaptures(NamedTuple):
    """What is known of the capture of graphs."""

    stores: list[_core.Store]
    annotations: list[str]  # files of PyTorch's annotations of nodes


def read_captures(sources: graphs.Source | Iterable[graphs.Source], max_bytes: int | None) -> GraphCaptures:
    """Read the traces of captures, and find the annotations of nodes."""
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    paths = [path for one in listed for path in find_traces(os.fspath(one)).paths]
    annotations = [path for path in paths if is_annotations(start_of(path))]
    others = [path for path in paths if path not in annotations]
    return GraphCaptures([read(path, max_bytes).core for path in others], annotations)


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


@dataclass
class _Problems:
    """The problems of a trace that do not prevent reading it."""

    name: str
    max_bytes: int | None
    start: bytes = b""
    compression: str | None = None
    captured: bool = False
    """Whether it is a file of another profiler."""

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
        if _OF_TORCH & members_of(report["head"]).keys() and not (complete and report["unknown"]):
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

    def warn_of_trace(self, report: Mapping[str, Any]) -> None:
        """Issue the warnings for a trace of torch.profiler."""
        notes = []
        if report["truncated"] or self.compression:
            why = self.compression or f"it ends at byte {report['bytes']:,}, before the end of the trace"
            notes.append(f"the file is truncated: {why}; {report['events']:,} events were read")
        self.warn(notes, report, {f'of an unknown category, such as "{report["first_unknown"]}"': report["unknown"]})

    def warn(self, notes: list[str], report: Mapping[str, Any], unknown: Mapping[str, int]) -> None:
        """Issue a warning for each note and for each kind of problem that the report counts."""
        omitted = {
            "without a time": report["without_time"],
            **unknown,
            "of devices after the 128th": report["too_many"],
        }
        counts = [f"{count:,} {kind}" for kind, count in omitted.items() if count]
        if counts:
            notes.append(f"events were omitted: {', '.join(counts)}")
        notes += [f"{report[name]:,} {meaning}" for name, meaning in _CONTRADICTIONS.items() if report[name]]
        for note in notes:
            warn_user(printable(f"{self.name}: {note}"))


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

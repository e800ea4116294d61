"""Recorded traces: reads a trace of torch.profiler, flopscope or another profiler into a store."""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple, TypeAlias

from flopscope import _core
from flopscope.read.database import MAGIC as DATABASE
from flopscope.read.formats import FORMATS, Content, NotACapture, NotATrace
from flopscope.read.input import PATH, Input, start_of
from flopscope.read.nsys import REPORT
from flopscope.read.paths import find_traces, recording_in
from flopscope.read.xplane import Hlo, Modules, read_hlo, tie
from flopscope.results.head import LEFT_OUT, ODD
from flopscope.support.files import close_names
from flopscope.support.package import warn_user
from flopscope.support.safe import printable

Source: TypeAlias = "str | os.PathLike[str]"


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
    captures: Callable[[], Sequence[_core.Store]] | None = None,
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
    texts = read_hlo(hlo)
    given = Input(source, name or _name_of(source), max_bytes)
    core, form = _core.Store(), None
    try:
        if isinstance(source, PATH) and os.path.isdir(source):
            given.source = given.name = recording_in(os.fsdecode(source))
        given.start = start_of(given.source)
        form = next(one for one in FORMATS if one.begins(given.start))
        content = form.read(given, core)
    except FileNotFoundError as problem:
        raise FileNotFoundError(errno.ENOENT, _absent(given.name), given.name) from problem
    except IsADirectoryError as problem:
        raise IsADirectoryError(errno.EISDIR, _IS_FOLDER, given.name) from problem
    except ValueError as problem:
        raise _explained(problem, given, form is None or form.explains) from None
    except RuntimeError as problem:
        raise OSError(printable(f"{given.name}: {problem}")) from None
    except ImportError as problem:
        raise ImportError(printable(f"{given.name}: {problem}")) from problem
    name, counts = given.name, dict[str, int]()
    if captures is not None and not form.takes_captures:
        content.notes.append("captures= is for traces of torch.profiler: this file has those of its own graphs")
    _warn(name, content)
    if form.takes_captures:
        counts = core.join_replays(tuple(captures()) if captures is not None else (), watched)
        if captures is not None and (unmatched := _unused_captures(counts)):
            warn_user(printable(f"{name}: captures: {unmatched}"))
    ties = tie(core, texts, content.modules, name)
    return Loaded(name, core, content.report, content.metadata, counts, content.modules, ties)


def read_open(file: IO[bytes], name: str, max_bytes: int | None = None) -> Loaded:
    """Read an open file as read() does, and none that is under its name by now."""
    # SQLite would look up where the descriptor's link leads: it reads a copy.
    copied = start_of(file).startswith(DATABASE)
    return read(file if copied else f"/proc/self/fd/{file.fileno()}", max_bytes, name=name)


def read_captures(sources: Source | Iterable[Source], max_bytes: int | None) -> list[_core.Store]:
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    return [read(path, max_bytes).core for one in listed for path in find_traces(os.fspath(one)).paths]


_IS_FOLDER = "it is a folder; name a trace in it, or give the folder to load_traces() or to flopscope table"


def _absent(name: str) -> str:
    if re.match(r"[a-z][a-z0-9+.-]+://", name):
        return "a trace is not read from a URL: download it first"
    similar = printable(" or ".join(close_names(name)))
    return f"there is no such file{f'; did you mean {similar}?' if similar else ''}"


def _explained(problem: ValueError, given: Input, explains: bool) -> ValueError:
    """Return an error that names the source and, if it is not a trace at all, what it is and what to do."""
    if not explains and not isinstance(problem, NotACapture):
        return ValueError(printable(f"{given.name}: {problem}"))
    kind = foreign_file(given.start, given.name)
    text = str(problem)
    brief = problem.brief if isinstance(problem, NotATrace) else text
    if kind is not None:
        brief, why = f"it is {kind.what}", brief
        text = f"{brief}, not a trace: {kind.instead.format(name=shlex.quote(given.name))} ({why})"
    message = printable(f"{given.name}: {text}")
    is_trace = any(word in given.start for word in (b'"traceEvents"', b'"ph"'))
    return ValueError(message) if is_trace and not isinstance(problem, NotATrace) else NotATrace(message, brief)


def _warn(name: str, content: Content) -> None:
    """Issue a warning for each note and for each kind of problem that the report counts."""
    report, omitted = content.report, {LEFT_OUT["without_time"]: content.report["without_time"]}
    if report["first_unknown"] is not None:
        omitted[f'{LEFT_OUT["unknown"]}, such as "{report["first_unknown"]}"'] = report["unknown"]
    omitted[LEFT_OUT["too_many"]] = report["too_many"]
    notes = content.notes
    if counts := [f"{count:,} {kind}" for kind, count in omitted.items() if count]:
        notes.append(f"events were omitted: {', '.join(counts)}")
    notes += [f"{report[kind]:,} {meaning}" for kind, meaning in ODD.items() if report[kind]]
    for note in notes:
        warn_user(printable(f"{name}: {note}"))


def _name_of(source: object) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else f"<{type(source).__name__}>"


# Graphs: the ops of the capture for the kernels of a replay -----------------------------------------------------------

GRAPH_COUNTS = {
    "launches": "launches of graphs",
    "works": "kernels, copies and fills that they ran",
    "graphs": "captured graphs",
    "matched": "works whose node of a capture is known",
    "owned": "works that belong to an op of the capture",
    "tied": "launches whose graph was logged as it was launched",
    "unseen": "launches that match no captured graph",
    "ambiguous": "launches that match several captured graphs of different ops",
}
"""What the counts of Trace.graphs mean."""


def _unused_captures(counts: Mapping[str, int]) -> str:
    """Return what of the replays could not be joined to the captures, as a clause; "" if nothing."""
    if not counts["launches"]:
        return "the trace has no graph launches with recorded kernels, so the captures were not used"
    if not counts["graphs"]:
        return "the captures have no graph: no call begins a capture in them"
    return unmatched_graphs(counts)


def unmatched_graphs(counts: Mapping[str, int]) -> str:
    """Return what of the launches of graphs could not be joined to captured graphs, as a clause; "" if nothing."""
    missing = counts["works"] - counts["matched"]
    if not missing:
        return ""
    parts = ("no captured graph", counts["unseen"]), ("several captured graphs of different ops", counts["ambiguous"])
    why = " and ".join(f"{count:,} match {what}" for what, count in parts if count)
    launches = f"of {counts['launches']:,} graph launches {why}; " if why else ""
    return f"{launches}{missing:,} of {counts['works']:,} kernels, copies and fills of graphs have no captured op"


# Files that are not traces: what they are, by their first bytes, and what to do instead -------------------------------

_RECORD = "record the program with torch.profiler and export_chrome_trace()"
_SAVE = "it is read from a file, not from a stream: save it, and read that file"
_WORD = rb"[\x01-\x7f][A-Za-z_][\w.-]*"
_HLO = rb"HloModule |(?:\n[\x80-\xff]{0,4}[\x00-\x7f])?\n%b\x12%b\x1a" % (_WORD, _WORD)
"""The text of a module, or its protobuf, perhaps in an HloProto: its name, that of its entry, a computation."""


@dataclass(frozen=True)
class Foreign:
    """A kind of file that is no trace."""

    begins: bytes
    """A pattern for the first bytes of such a file, in which a dot is any byte."""
    what: str
    """What it is, with its article, for a message."""
    instead: str
    """What to do; {name} stands for the file."""


_PYTHON = Foreign(
    b"",
    "a Python program",
    "run it with `flopscope run {name}`, which prints its summary; --trace trace.json.gz writes a trace of it",
)

# The first row that matches counts.
FOREIGN = (
    Foreign(REPORT, "a report of Nsight Systems (.nsys-rep, .qdrep)", _SAVE),
    Foreign(
        rb"%b.*(CUPTI_ACTIVITY_KIND|TARGET_INFO_|META_DATA_CAPTURE|META_DATA_EXPORT)" % DATABASE,
        "an SQLite export of Nsight Systems",
        _SAVE,
    ),
    Foreign(rb"%b.*rocpd_" % DATABASE, "a database of rocprofv3 (rocpd)", _SAVE),
    Foreign(DATABASE, "an SQLite database", _RECORD),
    Foreign(
        _HLO, "HLO of a module of XLA", "pass it beside the recording of the program: load_trace(RECORDING, hlo={name})"
    ),
    Foreign(
        rb'.{,234}"rocprofiler-sdk-tool"',
        "JSON of rocprofv3",
        "record with rocprofv3 --output-format rocpd, or pftrace before ROCm 7.0",
    ),
    Foreign(
        rb"NVR\0",
        "a report of Nsight Compute (.ncu-rep)",
        f"flopscope does not read it; ncu --import prints it. For the time of all ops, {_RECORD}",
    ),
    Foreign(rb"\x80[\x02-\x05].", "a Python pickle", f"flopscope reads no pickles; {_RECORD}"),
    Foreign(
        rb"PK(\x03\x04|\x05\x06)|.{257}ustar|BZh|\xfd7zXZ\0|\x04\x22\x4d\x18",
        "an archive, a file of torch.save() among them, or compressed by bzip2, xz or lz4",
        "unpack it, and read the traces in it",
    ),
    Foreign(rb"version https://git-lfs", "a pointer of Git LFS, not the file itself", "run git lfs pull to get it"),
    Foreign(rb"(?i)(\xef\xbb\xbf|\s)*<(!doctype html|html|svg|\?xml)", "a page of HTML or XML", _RECORD),
)


def foreign_file(start: bytes, name: str = "") -> Foreign | None:
    """Return what a file is that begins with these bytes and is not a trace; None if that is unknown."""
    if name.endswith(".py"):
        return _PYTHON
    return next((kind for kind in FOREIGN if re.match(kind.begins, start, re.DOTALL)), None)

"""The formats of recordings: how each is recognised and read, and what to record so that more is known."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from flopscope import _core
from flopscope.read.database import MAGIC, Database, Reading, journals
from flopscope.read.input import Input, Zlib
from flopscope.read.nsys import REPORT, exported, is_nsys, read_nsys
from flopscope.read.rocpd import is_rocpd, read_rocpd
from flopscope.read.xplane import Modules, is_xplane, read_xplane
from flopscope.results.head import STACKS_MEMBER, members_of, unfinished_steps
from flopscope.results.table_facts import has_kernels_of_torch
from flopscope.support.hints import HINTS, OWN_HINTS, WITHOUT_OPS, XLA_HINTS, Hints


class NotATrace(ValueError):
    """A file that is something else than a trace, as opposed to a damaged trace. ``brief`` says why in a few words."""

    def __init__(self, message: str, brief: str) -> None:
        super().__init__(message)
        self.brief = brief


class NotACapture(ValueError):
    """A database of something else."""


class Content(NamedTuple):
    """What a recording holds, beside the events in the store."""

    report: Mapping[str, Any]
    """Counts from reading."""
    metadata: dict[str, Any]
    notes: list[str]
    """What the user should know about the file."""
    modules: Modules | None = None
    """The modules of XLA that it holds."""


@dataclass(frozen=True)
class Format:
    """A row of FORMATS."""

    begins: Callable[[bytes], bool]
    """Whether a file that begins so has the format."""
    read: Callable[[Input, _core.Store], Content]
    """Reads the events into the store. Raises ValueError, saying what was wrong, if that is impossible."""
    takes_captures: bool = False
    """Whether launches of graphs in it are joined to captures that are given."""
    explains: bool = False
    """Whether a file that it cannot read may be something else: the error says what."""


# Traces of events -----------------------------------------------------------------------------------------------------


def _read_events(feed: Callable[[Input, _core.TraceReader], None], given: Input, store: _core.Store) -> Content:
    reader = _core.TraceReader()
    feed(given, reader)
    report = reader.finish(store)
    metadata = members_of(report["head"])
    _check_kind(given, report, metadata)
    notes = []
    if report["truncated"] or given.cut:
        why = given.cut or f"it ends at byte {report['bytes']:,}, before the end of the trace"
        notes.append(f"the file is truncated: {why}; {report['events']:,} events were read")
    metadata.pop(STACKS_MEMBER, None)  # the core has read it
    for step in unfinished_steps(metadata):
        store.undo_step(step)
    return Content(report, metadata, notes)


_OF_TORCH = frozenset({"schemaVersion", "deviceProperties", "flopscope"})


def _check_kind(given: Input, report: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Raise NotATrace if there are events, but none that torch or flopscope writes.

    A trace of torch in which nothing ran is empty: it has the head of torch's traces, and no slices.
    """
    if report["understood"] or report["events"] == report["metadata"]:
        return
    complete = not report["truncated"] and not given.cut
    if _OF_TORCH & metadata.keys() and not (complete and report["unknown"]):
        return
    count = "1 event, which is not" if report["events"] == 1 else f"{report['events']:,} events, none of them"
    brief = f"not a trace that flopscope reads: {count} an op, a kernel or an API call"
    raise NotATrace(f"{brief}; record the program with torch.profiler", brief)


# Traces of Perfetto, .pftrace: the core turns them into the text of a Chrome trace (csrc/sources/protobuf) -----------

_FIELDS = rb"[@PhZb2\x18]|[\xe2\xda\xd0\x92]\x03|[\x8a\xa2\xc8]\x02|\xca\x05"
_PACKET = re.compile(rb"\n(?P<size>[\x80-\xff]{0,4}[\x00-\x7f])(?:%b)" % _FIELDS)
"""A field 1, the first packet, and the first field in it: one of those that such packets begin with."""
_BINARY = re.compile(rb"[\x00-\x08\x80-\xff]")


def is_pftrace(start: bytes) -> bool:
    """Return whether a file that begins so is a trace of Perfetto: packets, one after the other."""
    match = _PACKET.match(start)
    if match is None:
        return False
    size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(match["size"]))
    packet = start[match.end("size") : match.end("size") + size]
    return _BINARY.search(packet) is not None and start[match.end("size") + size :][:1] in (b"", b"\n")


def feed_pftrace(given: Input, reader: _core.TraceReader) -> None:
    """Feed a trace to the reader. Raise ValueError if it is damaged or too large."""
    content = given.text()
    pieces, at, size = [], 0, len(content)
    for begin, end, inner, inner_end in reader.packed(content):
        pieces.append(content[at:begin])
        try:
            for piece in Zlib(zlib, zlib.MAX_WBITS).pieces(content[inner:inner_end]):
                size += len(piece)
                given.check_size(size, len(content))
                pieces.append(piece)
        except zlib.error as problem:
            raise ValueError(f"a compressed packet cannot be expanded: {problem}") from None
        at = end
    reader.feed_pftrace(b"".join([*pieces, content[at:]]) if pieces else content)


# Files of other profilers ---------------------------------------------------------------------------------------------


def _read_database(
    given: Input, store: _core.Store, export: Callable[[str], AbstractContextManager[str]] = nullcontext
) -> Content:
    """Read a database, or what ``export`` makes of the file."""
    with given.as_file() as file, export(file) as path, Database(path) as database:
        reading, reader = Reading(), _core.DatabaseReader()
        read = read_nsys if is_nsys(database) else read_rocpd if is_rocpd(database) else None
        if read is None:
            tables = ", ".join(sorted(database.tables)[:5]) or "none"
            unread = "".join(f"; {note}" for note in journals(path))
            raise NotACapture(f"neither of Nsight Systems nor of rocprofv3; its tables: {tables}{unread}")
        report, metadata, notes = read(database, reader, store, reading)
        lost = f"{reading.too_long:,} rows were omitted because a value in them is longer than 64 MB"
        said = [*reading.problems, *[lost] * bool(reading.too_long), *journals(path), *notes]
        return Content(_report(path, report, reading), metadata, said)


def _read_xplane(given: Input, store: _core.Store) -> Content:
    with given.as_file() as path:
        report, metadata, notes, modules = read_xplane(path, given.name, _core.DatabaseReader(), store)
        return Content(_report(path, report, Reading()), metadata, notes, modules)


def _report(path: str, report: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Return the counts under the names of a trace's."""
    without = dict.fromkeys(("mended", "without_duration", "contradicting", "guessed"), 0)
    found = {"bytes": os.stat(path).st_size, "unknown": reading.too_long, "first_unknown": None}
    return {**report, **found, **without, "truncated": bool(reading.problems)}


FORMATS = (
    Format(lambda start: start.startswith(REPORT), partial(_read_database, export=exported)),
    Format(lambda start: start.startswith(MAGIC), _read_database),
    Format(is_xplane, _read_xplane),
    Format(is_pftrace, partial(_read_events, feed_pftrace), takes_captures=True),
    Format(lambda start: True, partial(_read_events, Input.feed), takes_captures=True, explains=True),
)
"""The first row that matches counts."""


# Hints ----------------------------------------------------------------------------------------------------------------

# What to record, by the member of the metadata that names the profiler.
_ROCTX = "torch.autograd.profiler.emit_nvtx(record_shapes=True) and rocprofv3 --marker-trace"
_OPTIONS = {"nsys": "nsys profile --pytorch=autograd-shapes-nvtx", "rocpd": _ROCTX, "rocprofv3": _ROCTX}

_RECORDS = {
    "nsys": {
        "device": "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node",
        "counters": "nsys profile --gpu-metrics-devices=all",
        "memory": "nsys profile --cuda-memory-usage=true",
        "host": "a range of NVTX around each part of the program",
        "later": "nsys profile --delay=SECONDS",
    },
    "rocprofv3": {
        "device": "rocprofv3 --runtime-trace",
        "counters": "rocprofv3 --pmc FETCH_SIZE WRITE_SIZE, in a run of its own",
        "memory": "rocprofv3 --memory-allocation-trace",
        "host": "a range of ROCTX around each part of the program, with rocprofv3 --marker-trace,",
        "later": "rocprofv3 --collection-period DELAY:DURATION:1, in seconds",
    },
}
"""What records more, by the profiler: none of it asks for PyTorch, as these record programs in any language."""
_MODULES = 'a range named "nn.Module: Block_0" around each call'


def hints_of(metadata: Mapping[str, Any], report: Mapping[str, Any], core: _core.Store) -> Hints:
    """Return what to record so that more is known, by a program of its kind.

    Whether a program is one of PyTorch is told by its ops or its kernels: others are not told of torch. The members of
    a trace in JSON may be anything, so only their presence counts.
    """
    if "xplane" in metadata:
        return XLA_HINTS
    option = next((option for name, option in _OPTIONS.items() if name in metadata), None)
    if option is None or ("ops" not in report and "rocprofv3" not in metadata):
        if "flopscope" in metadata:
            return OWN_HINTS
        return WITHOUT_OPS if metadata.get("record_shapes") and not core.has_shapes else HINTS
    found = _RECORDS["nsys" if "nsys" in metadata else "rocprofv3"]
    counted = f"counters count what kernels move: {found['counters']}."
    if ops := report.get("ops"):
        shapes = f"The work of ops is unknown because no input shapes were recorded: record with {option}."
    else:
        shapes = "The work of kernels is unknown because no ops were recorded"
    if ops or has_kernels_of_torch(core.names()):
        shapes = shapes if ops else f"{shapes}: record with {option}."
        kernels, stacks = f"{shapes} Of kernels without an op, {counted}", "torch.profiler with with_stack=True"
    else:
        shapes = kernels = f"{shapes}; {counted}"
        stacks = "flopscope run --stacks, for a program in Python"
    steps = "a range named ProfilerStep#1, ProfilerStep#2, …"
    records = found | {"steps": f"{steps} around each step", "stacks": stacks, "modules": _MODULES}
    graphs = "Begin to record before graphs are captured, with nsys profile --cuda-graph-trace=node."
    return Hints(shapes, shapes, f"enclose each step of the loop in {steps}", option, records, graphs, kernels)

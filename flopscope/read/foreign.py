"""Files that are not traces: what they are, by their first bytes, and what to do instead."""

from __future__ import annotations

import ast
import re
import warnings
from contextlib import suppress
from dataclasses import dataclass

from flopscope.read.input import START
from flopscope.read.nsys import REPORT

_RECORD = "record the program with torch.profiler and export_chrome_trace()"
_SAVE = "it is read from a file, not from a stream: save it, and read that file"
_UNPACK = "unpack it, and read the traces in it"
_SQLITE = rb"SQLite format 3\0"
_PICKLE = rb"\x80[\x02-\x05]."
_WORD = rb"[\x01-\x7f][A-Za-z_][\w.-]*"
_HLO = rb"HloModule |(?:\n[\x80-\xff]{0,4}[\x00-\x7f])?\n%b\x12%b\x1a" % (_WORD, _WORD)
"""The text of a module, or its protobuf, perhaps in an HloProto: its name, that of its entry, a computation."""
_STATEMENT = re.compile(rb"^(?:import|from|def|class|async def|if|for|while|with|print) ?[\w.(]", re.M)


@dataclass(frozen=True)
class Foreign:
    """A kind of file that is no trace."""

    begins: bytes
    """A pattern for the first bytes of such a file, in which a dot is any byte."""
    what: str
    """What it is, with its article, for a message."""
    instead: str
    """What to do; {name} stands for the file."""


def _is_python(start: bytes) -> bool:
    """Whether the text has a statement of Python's and can be parsed, as far as its statements are complete."""
    if b"\0" in start or _STATEMENT.search(start) is None:
        return False
    if len(start) >= START:  # of a longer file
        start = start[: [match.start() for match in _STATEMENT.finditer(start)][-1]]
    with warnings.catch_warnings(), suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        warnings.simplefilter("ignore")  # of invalid escapes
        ast.parse(start)
        return True
    return False


_PYTHON = Foreign(
    b"",
    "a Python program",
    "run it with `flopscope run {name}`, which prints its summary; --trace trace.json.gz writes a trace of it",
)

# The first row that matches counts. A snapshot of memory lists its segments first, so that those of a large one are all
# that is seen of it; rocprof, which rocprofv3 replaced, begins its JSON in one way alone.
FOREIGN = (
    Foreign(REPORT, "a report of Nsight Systems (.nsys-rep, .qdrep)", _SAVE),
    Foreign(
        rb"%b.*(CUPTI_ACTIVITY_KIND|TARGET_INFO_|META_DATA_CAPTURE|META_DATA_EXPORT)" % _SQLITE,
        "an SQLite export of Nsight Systems",
        _SAVE,
    ),
    Foreign(rb"%b.*rocpd_" % _SQLITE, "a database of rocprofv3 (rocpd)", _SAVE),
    Foreign(
        rb'(%b|\{ "traceEvents":\[\{\}).*"BeginNs"' % _SQLITE,
        "a recording of rocprof, the predecessor of rocprofv3",
        "record with rocprofv3 --runtime-trace --output-format rocpd",
    ),
    Foreign(_SQLITE, "an SQLite database", _RECORD),
    Foreign(
        rb"\{.*speedscope\.app/file-format-schema",
        "a profile for speedscope",
        f"it holds samples of stacks, not ops; speedscope.app shows it. For ops, {_RECORD}",
    ),
    Foreign(
        _HLO,
        "HLO of a module of XLA",
        "pass it beside the recording of the program: load_trace(RECORDING, hlo={name})",
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
    Foreign(
        rb".{,52}brain\.Event:",
        "a TensorBoard events file",
        "it holds scalars, not ops; traces of torch.profiler are *.pt.trace.json in the same folder",
    ),
    Foreign(
        _PICKLE + rb".*(device_traces|segment_type)",
        "a snapshot of torch's memory (torch.cuda.memory._dump_snapshot)",
        f"pytorch.org/memory_viz shows it. For times, {_RECORD}",
    ),
    Foreign(_PICKLE, "a Python pickle", f"flopscope reads no pickles; {_RECORD}"),
    Foreign(
        rb"PK\x03\x04.*data\.pkl", "a file of torch.save() (.pt, .pth)", f"it holds tensors, not events; {_RECORD}"
    ),
    Foreign(rb"PK(\x03\x04|\x05\x06)", "a ZIP archive", _UNPACK),
    Foreign(rb".{257}ustar", "a tar archive", _UNPACK),
    Foreign(rb"BZh|\xfd7zXZ\0|\x04\x22\x4d\x18", "compressed by bzip2, xz or lz4", _UNPACK),
    Foreign(rb"version https://git-lfs", "a pointer of Git LFS, not the file itself", "run git lfs pull to get it"),
    Foreign(rb"(?i)(\xef\xbb\xbf|\s)*<(!doctype html|html|svg|\?xml)", "a page of HTML or XML", _RECORD),
)


def foreign_file(start: bytes, name: str = "") -> Foreign | None:
    """Return what a file is that begins with these bytes and is not a trace; None if that is unknown."""
    if name.endswith(".py"):
        return _PYTHON
    found = next((kind for kind in FOREIGN if re.match(kind.begins, start, re.DOTALL)), None)
    return _PYTHON if found is None and _is_python(start) else found

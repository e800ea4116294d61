"""Files of profilers other than torch's: which one a file is of, and reading it as a trace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from flopscope import _core
from flopscope.read.database import MAGIC, Database, Reading
from flopscope.read.nsys import is_nsys, read_nsys, sayings
from flopscope.read.rocpd import is_rocpd, read_rocpd
from flopscope.read.rocprof import is_json, read_json
from flopscope.read.xplane import Modules, is_xplane, read_xplane
from flopscope.support.hints import HINTS, OWN_HINTS, WITHOUT_OPS, XLA_HINTS, Hints

REPORTS = (b"NVIDIA Tegra Profiler Report",)
EXPORT_SECONDS = 3600


class NotACapture(ValueError):
    """A database of something else."""


class Capture(NamedTuple):
    """A file that was read."""

    core: _core.Store
    report: dict[str, Any]
    """Counts, under the names of those of a trace."""
    metadata: dict[str, Any]
    notes: list[str]
    """What the user should know about the file."""
    modules: Modules | None = None
    """The modules of XLA that the file holds."""


def is_capture(start: bytes) -> bool:
    """Return whether a file that begins so is read by read_capture()."""
    return start.startswith((MAGIC, *REPORTS)) or is_json(start) or is_xplane(start)


def read_capture(path: str, start: bytes, name: str = "") -> Capture:
    """Read a file. Raise ValueError, saying what was wrong, if it cannot be read.

    name: of the source, if the file is a copy of it.
    """
    if start.startswith(REPORTS):
        with _exported(path) as exported:
            return _read_database(exported)
    if start.startswith(MAGIC):
        return _read_database(path)
    core, reader = _core.Store(), _core.DatabaseReader()
    if is_xplane(start):
        report, metadata, notes, modules = read_xplane(path, name or path, reader, core)
        return Capture(core, _report(path, report, Reading()), metadata, notes, modules)
    report, metadata, notes = read_json(path, reader, core)
    return Capture(core, _report(path, report, Reading()), metadata, notes)


# What to record, by the member of the metadata that names the profiler.
_NVTX = "nsys profile --pytorch=autograd-shapes-nvtx"
_ROCTX = "torch.autograd.profiler.emit_nvtx(record_shapes=True) and rocprofv3 --marker-trace"
_OPTIONS = {"nsys": _NVTX, "rocpd": _ROCTX, "rocprof": _ROCTX}

_RECORDS = {
    "nsys": {
        "device": "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node",
        "counters": "nsys profile --gpu-metrics-devices=all",
        "memory": "nsys profile --cuda-memory-usage=true",
    },
    "rocprofv3": {
        "device": "rocprofv3 --runtime-trace",
        "counters": "rocprofv3 --pmc FETCH_SIZE WRITE_SIZE, in a run of its own",
        "memory": "rocprofv3 --memory-allocation-trace",
    },
}
_OTHERS = {
    "stacks": "torch.profiler with with_stack=True",
    "modules": 'a range named "nn.Module: Block_0" around each call',
}


def hints_of(metadata: Mapping[str, Any], report: Mapping[str, Any]) -> Hints:
    """Return what to record so that more is known."""
    if "xplane" in metadata:
        return XLA_HINTS
    option = next((option for name, option in _OPTIONS.items() if name in metadata), None)
    if option is None or "ops" not in report:
        if "flopscope" in metadata:
            return OWN_HINTS
        return WITHOUT_OPS if metadata.get("record_shapes") else HINTS
    what = "ops is unknown because no input shapes were recorded"
    if not report["ops"]:
        what = "kernels is unknown because no ops were recorded"
    shapes = f"The work of {what}; for a program of PyTorch, record with {option}."
    steps = "a range named ProfilerStep#1, ProfilerStep#2, …"
    found = _RECORDS["nsys" if "nsys" in metadata else "rocprofv3"]
    kernels = f"{shapes} For other programs, counters count what kernels move: {found['counters']}."
    records = found | {"steps": f"{steps} around each step"} | _OTHERS
    graphs = "Begin to record before graphs are captured, with nsys profile --cuda-graph-trace=node."
    said = tuple(sayings(metadata["nsys"])) if "nsys" in metadata else ()
    return Hints(shapes, shapes, f"enclose each step of the loop in {steps}", option, records, graphs, kernels, said)


def _read_database(path: str) -> Capture:
    with Database(path) as database:
        core, reading, reader = _core.Store(), Reading(), _core.DatabaseReader()
        read = read_nsys if is_nsys(database) else read_rocpd if is_rocpd(database) else None
        if read is None:
            tables = ", ".join(sorted(database.tables)[:5]) or "none"
            unread = "".join(f"; {note}" for note in _journals(path))
            raise NotACapture(f"neither of Nsight Systems nor of rocprofv3; its tables: {tables}{unread}")
        report, metadata, notes = read(database, reader, core, reading)
    return Capture(core, _report(path, report, reading), metadata, [*_lost(reading), *_journals(path), *notes])


def _report(path: str, report: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """Return the counts under the names of a trace's."""
    return {
        **report,
        "bytes": os.stat(path).st_size,
        "unknown": reading.too_long,
        "first_unknown": "",
        "contradicting": 0,
        "truncated": bool(reading.problems),
    }


def _lost(reading: Reading) -> Iterator[str]:
    yield from reading.problems
    if reading.too_long:
        yield f"{reading.too_long:,} rows were omitted because a value in them is longer than 64 MB"


def _journals(path: str) -> Iterator[str]:
    """Yield a note on changes that lie in another file: those are taken in by a program that opens it for writing.

    SQLite puts that file beside the database itself, not beside a link to it.
    """
    path = os.path.realpath(path)
    for suffix in ("-wal", "-journal"):
        try:
            size = os.stat(path + suffix).st_size
        except OSError:
            continue
        if size:
            yield (
                f"{os.path.basename(path)}{suffix} holds {size:,} bytes of changes that were not read: its writer is "
                f"still at work or was stopped; when it has ended, open the file once with sqlite3 to complete it"
            )


@contextmanager
def _exported(path: str) -> Iterator[str]:
    """Export a report of Nsight Systems by nsys."""
    import subprocess
    import tempfile

    command = "nsys export --type sqlite --output REPORT.sqlite REPORT.nsys-rep"
    nsys = shutil.which("nsys")
    if nsys is None:
        raise ValueError(
            f"it is a report of Nsight Systems, and nsys, which reads it, is not installed here; where it is, run "
            f"{command} and read the file that it writes"
        )
    with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
        target = os.path.join(folder, "report.sqlite")
        arguments = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", target]
        for more in (["--include-blobs", "true"], []):  # the payloads of ranges, which old versions do not export
            try:
                done = subprocess.run(
                    [*arguments, *more, path], capture_output=True, text=True, timeout=EXPORT_SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as problem:
                raise ValueError(f"it is a report of Nsight Systems, and {command} failed: {problem}") from None
            if done.returncode == 0:
                break
        if done.returncode != 0 or not os.path.exists(target):
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise ValueError(f"it is a report of Nsight Systems, and {command} failed: {said[0]}")
        yield target

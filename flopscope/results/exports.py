"""Files for other programs: Chrome traces, and folded stacks for flame graphs."""

from __future__ import annotations

import gzip
import json
import os
import queue
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any

from flopscope import _core
from flopscope.results.head import OWN_MEMBERS
from flopscope.support.documents import plain
from flopscope.support.files import COMPRESSION, refuse_constant, replacing
from flopscope.support.package import VERSION, warn_user
from flopscope.support.process import rank_in, start_thread
from flopscope.support.progress import progress_bar

if TYPE_CHECKING:
    from flopscope.results.results import Results

PIECE = 1 << 19  # bytes that the core passes at once
PIECES_AHEAD = 8  # that wait to be written
MANY_EVENTS = 5_000  # from which a second thread writes
EVENT_BYTES = 450  # of text per event, approximately
EVENTS_IN_A_SECOND = {False: 2_000_000, True: 600_000}  # by whether the file is compressed


def export(
    core: _core.Store,
    path: str | bytes | PathLike[str],
    metadata: Mapping[str, Any] | None = None,
    peaks: dict[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the events of a stopped profile, as Results.export_chrome_trace() describes.

    ``metadata`` is added to the trace's head. ``peaks``: the limits of the devices by name, for the work and the rates
    of single events and the counters; None: without those. Warns of events without a time, which are omitted.
    """
    path = os.fsdecode(path)
    name = os.path.basename(os.path.realpath(path))
    members: dict[str, Any] = {"traceName": path, "trace_id": os.urandom(16).hex().upper()}
    rank = rank_in(os.environ)  # by which tools identify the traces of a job
    members |= {"distributedInfo": rank} if rank is not None and "world_size" in rank else {}
    members |= metadata or {}
    compressed = name.endswith(".gz")
    pieces = 1 + core.event_count * EVENT_BYTES // PIECE
    slow = core.event_count > 2 * EVENTS_IN_A_SECOND[compressed]
    with (
        replacing(path, "wb") as file,
        gzip.GzipFile(name.removesuffix(".gz"), "wb", COMPRESSION, file) if compressed else nullcontext(file) as stream,
        _beside(stream.write) if core.event_count > MANY_EVENTS else nullcontext(stream.write) as write,
        progress_bar(f"writing {name}", pieces, slow) as advance,
    ):

        def take(piece: bytes) -> None:
            write(piece)
            advance()

        left_out = core.write_trace(take, VERSION, _json(members)[1:-1], peaks)
    if left_out:
        warn_user(f"{left_out} events have no time and are not in {name}", RuntimeWarning)


def send(results: Results, write: Callable[[bytes], object]) -> None:
    """Pass the events to ``write`` as a Chrome trace without work and rates, for a process that reads it at once."""
    core = results._recorded("trace")
    core.write_trace(write, VERSION, _json(results._head(core))[1:-1], None)


def _json(members: Mapping[str, Any]) -> str:
    """Return the members as JSON. Infinities, such as 1e400 in the head of a loaded trace, become null."""
    try:
        return json.dumps(members, allow_nan=False)
    except ValueError:
        return json.dumps(plain(members), allow_nan=False)


def member(key: str) -> str:
    """Return a valid key for the head of a trace.

    Raise TypeError if it is not a string, ValueError if flopscope sets it.
    """
    if not isinstance(key, str):
        raise TypeError(f"a key of a trace's metadata must be a string, not {key!r}")
    if key in OWN_MEMBERS:
        raise ValueError(f"{key!r} cannot be set: flopscope writes it itself")
    return key


def json_value(key: str, text: str) -> Any:
    """Return the value of a JSON text. Raise TypeError if it is not text, ValueError if it is not JSON."""
    if not isinstance(text, str):
        raise TypeError(f"the value of {key!r} must be JSON text, not {text!r}: pass it through json.dumps()")
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except ValueError as problem:
        raise ValueError(f"the value of {key!r} is not JSON ({problem}): {text!r}") from None


def trace_handler(
    dir_name: str | PathLike[str], worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """Return a handler for ``on_trace_ready`` that writes the trace of each recorded cycle into a folder.

    Folder and files are created as by ``torch.profiler.tensorboard_trace_handler``. The files are named
    ``{worker_name}.{nanoseconds}.pt.trace.json``, with ``.gz`` for ``use_gzip``; ``worker_name`` defaults to the host's
    name and the process id. Raises TypeError if the folder is not a path, ValueError for a name with a "/". The handler
    raises what ``export`` and os.makedirs raise.
    """
    folder = os.fspath(dir_name)  # checked now, not after the recording
    if worker_name is not None and os.sep in worker_name:
        raise ValueError(f"worker_name is part of a file name: it cannot be {worker_name!r}")

    def handle(prof: Any) -> None:
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        os.makedirs(folder, exist_ok=True)
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        prof.export_chrome_trace(os.path.join(folder, name))

    return handle


@contextmanager
def _beside(write: Callable[[bytes], object]) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that has another thread call ``write``, so that the core formats meanwhile.

    An exception of ``write`` is raised by a later call, or at the end.
    """
    pieces: queue.Queue[bytes | None] = queue.Queue(PIECES_AHEAD)
    problems: list[BaseException] = []

    def work() -> None:
        while (piece := pieces.get()) is not None:
            try:
                if not problems:
                    write(piece)
            except BaseException as problem:
                problems.append(problem)

    def put(piece: bytes) -> None:
        if problems:
            raise problems[0]
        pieces.put(piece)

    thread = start_thread(work, "flopscope-trace")
    try:
        yield put
    finally:
        pieces.put(None)
        thread.join()
    if problems:
        raise problems[0]


# Folded stacks --------------------------------------------------------------------------------------------------------

METRICS = ("self_cpu_time_total", "self_device_time_total", "self_cuda_time_total")  # of a folded stack
WHOLE_STACK = 2**32 - 1
# A space ends a stack, a semicolon ends an entry, and a newline ends a line: in names they become underscores, as in
# torch.profiler.
NAME = str.maketrans(" ;\t\n", "____")


def export_stacks(core: _core.Store, path: str | os.PathLike[str], metric: str = "self_cpu_time_total") -> None:
    """Write folded stacks, the format of flame graph programs: ``frame;frame;op N``, outermost frame first.

    There is a line for each op, range or API call and each stack that it ran under, with its self time in whole µs;
    times below 1 µs are omitted, as in torch.profiler. A line without a recorded stack has only the op.
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {metric!r}")
    columns, meta = core.table(False, WHOLE_STACK, {})
    times = columns[metric.replace("cuda", "device")]
    rows = zip(columns["key"], columns["device_type"], meta["stacks"], times, strict=True)
    with replacing(path, errors="backslashreplace") as file:
        for key, device_type, stack, time in rows:
            if device_type == "cpu" and int(time) > 0:
                entries = [entry.translate(NAME) for entry in (*reversed(stack), key)]
                file.write(f"{';'.join(entries)} {int(time)}\n")

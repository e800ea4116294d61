"""Recorded traces: ``load_trace()`` reads a trace of torch.profiler or flopscope and returns the same tables."""

from __future__ import annotations

import importlib
import io
import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from queue import Empty, Full, Queue
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from flopscope import _core
from flopscope.hardware.model import Model, models_of, why_unknown
from flopscope.results.process import rank_of
from flopscope.results.results import Results
from flopscope.support.progress import progress_bar
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope.hardware.peaks import Peaks

__all__ = ["Trace", "load_trace"]

GZIP = b"\x1f\x8b"
CHUNK = 1 << 20  # bytes read at once
BATCH = 4 << 20  # bytes scanned at once: enough for several threads
AHEAD = 8  # batches by which reading and decompression may be ahead of scanning
SLOW = 1 << 30  # bytes, above which a progress bar is shown
EXPANSION = 200  # maximum ratio of text to compressed size; 48 traces of torch have ratios from 7 to 34
EXPANSION_FREE = 256 << 20  # bytes that every compressed file may expand to


class Trace(Results):
    """A recorded trace, returned by load_trace(), with the results of a profile: key_averages(), gpu_summary(), …

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
        self._process = int(report["process"])
        self.with_stack = bool(metadata.get("with_stack")) or core.has_frames
        self.record_shapes = bool(metadata.get("record_shapes", core.has_shapes))
        self.profile_memory = bool(metadata.get("profile_memory", False))
        self._core = core
        self._timing = "trace"
        self._trace_id = metadata.get("trace_id")
        self._metadata = {key: value for key, value in metadata.items() if key not in _REGENERATED}

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
    def devices(self) -> dict[int, str]:
        """Names of the devices in the trace by index, where recorded."""
        assert self._core is not None
        return self._core.device_names

    def _peaks(self, core: _core.Store, source: str) -> tuple[dict[str, Peaks], dict[str, dict[str, str]]]:
        """Return the peaks of the devices named in the trace, and their descriptions for a table."""
        from flopscope.hardware.device import peaks_of_models

        models = self._models
        shares = peaks_of_models({f"cuda:{index}": model for index, model in models.items()}, source)
        named = {device: models[int(device[5:])].name for device in shares}
        sources = {device: {"source": peaks.source, "name": named[device]} for device, peaks in shares.items()}
        return shares, sources

    def _measured(self, device: str) -> Peaks | None:
        """Return None: the device may not be present. Tables then use the shortest kernel of the trace."""
        return None

    @property
    def _models(self) -> dict[int, Model]:
        assert self._core is not None
        ran = {int(device[5:]) for device in self._core.devices if device != "cpu"}
        return models_of(self.devices, self.metadata.get("deviceProperties"), ran)

    def _why_unknown(self, device: str, source: str) -> str:
        from flopscope.hardware.device import devices

        if device == "cpu":
            return "a trace does not name its CPU"
        model = self._models.get(int(device[5:]))
        if model is None:
            return "the trace does not name the device"
        here = any(one.name == model.name for one in devices())
        return why_unknown(model, here=here, measured=source == "measured")

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
        "flopscope",
    }
)


def load_trace(
    source: str | bytes | bytearray | memoryview | os.PathLike[str] | IO[bytes], *, max_bytes: int | None = None
) -> Trace:
    """Read a trace written by torch.profiler (Kineto) or flopscope, from a path, bytes or a binary file object.

    The trace is plain JSON or JSON compressed by gzip, regardless of the file name. Only the events are kept in memory,
    so a file may be larger than memory; plain files are read by several threads. The rows equal torch's own rows for
    the same trace. A kernel belongs to the op around the API call that launched it.

    ``max_bytes`` is the maximum size of the text; a longer text raises ValueError. By default, a compressed file may
    expand to 256 MB plus 200 times its size, far more than real traces do; other files have no limit. An event takes
    about 200 bytes of memory, so a file of only short events takes about five times its size.

    Issue a UserWarning, and return what could be read, if the trace is truncated, if events were omitted, or if events
    contradict each other. Raise ValueError, naming the file, the byte and what was expected, if the source is not a
    trace; OSError if it cannot be read.
    """
    if max_bytes is not None and max_bytes <= 0:
        raise ValueError(f"max_bytes must be positive, not {max_bytes}")
    reader = _core.TraceReader()
    name = _name_of(source)
    try:
        with _Problems(name, max_bytes) as problems:
            _read(source, reader, problems)
            core = _core.Store()
            report = reader.finish(core)
    except ValueError as problem:
        raise ValueError(printable(f"{name}: {problem}")) from None
    except RuntimeError as problem:
        raise OSError(printable(f"{name}: {problem}")) from None
    problems.warn(report)
    return Trace(name, core, report, _metadata(report["head"]))


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
        self.compression: str | None = None  # why decompression ended early, if it did

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

    def warn(self, report: Mapping[str, Any]) -> None:
        """Issue a warning for each kind of problem."""
        if report["truncated"] or self.compression:
            why = self.compression or f"it ends at byte {report['bytes']:,}, before the end of the trace"
            self._warn(f"the file is truncated: {why}; {report['events']:,} events were read")
        omitted = {
            "without a time": report["without_time"],
            f'of an unknown category, such as "{report["first_unknown"]}"': report["unknown"],
            "of devices after the 128th": report["too_many"],
        }
        counts = [f"{count:,} {kind}" for kind, count in omitted.items() if count]
        if counts:
            self._warn(f"events were omitted: {', '.join(counts)}")
        for name, meaning in _CONTRADICTIONS.items():
            if report[name]:
                self._warn(f"{report[name]:,} {meaning}")

    def _warn(self, message: str) -> None:
        warnings.warn(printable(f"{self.name}: {message}"), UserWarning, stacklevel=4)


def _name_of(source: object) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else f"<{type(source).__name__}>"


# Reading --------------------------------------------------------------------------------------------------------------


def _read(source: Any, reader: _core.TraceReader, problems: _Problems) -> None:
    if isinstance(source, (bytes, bytearray, memoryview)):
        if bytes(source[:2]) == GZIP:
            _read_compressed(io.BytesIO(source), reader, problems)
        else:
            problems.check_size(memoryview(source).nbytes)
            reader.scan_bytes(source)
        return
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb", buffering=0) as file:
            _read_file(file, reader, problems)
        return
    if not callable(getattr(source, "read", None)):
        raise TypeError(f"a trace must be a path, bytes or a binary file object, not {source!r}")
    first = source.read(CHUNK)
    if isinstance(first, str):
        raise TypeError(f"{source!r} is open in text mode; open it in binary mode: open(path, 'rb')")
    rest = cast("IO[bytes]", _Chained(first, source))
    if first[:2] == GZIP:
        _read_compressed(rest, reader, problems)
    else:
        _feed(_limited(iter(lambda: rest.read(CHUNK), b""), problems), reader)


def _read_file(file: io.FileIO, reader: _core.TraceReader, problems: _Problems) -> None:
    """Read a file, with several threads unless it is compressed or a pipe."""
    size = os.fstat(file.fileno()).st_size
    if not file.seekable():
        _read(file, reader, problems)
    elif os.pread(file.fileno(), 2, 0) == GZIP:
        with progress_bar(f"reading {problems.name}", 1 + size // CHUNK, size > SLOW // 8) as advance:
            _read_compressed(cast("IO[bytes]", file), reader, problems, advance)
    else:
        problems.check_size(size)
        reader.scan_file(file.fileno(), size)


class _Chained:
    """A file object whose first bytes have already been read."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int) -> bytes:
        first, self._first = self._first, b""
        return first or self._rest.read(size)


def _limited(pieces: Iterator[bytes], problems: _Problems) -> Iterator[bytes]:
    """Yield the pieces, checking their total size."""
    size = 0
    for piece in pieces:
        size += len(piece)
        problems.check_size(size)
        yield piece


def _feed(pieces: Iterator[bytes], reader: _core.TraceReader) -> None:
    """Scan batches of pieces while the next ones are being read."""
    with _ahead(_batches(pieces)) as batches:
        for batch in batches:
            reader.feed(batch)


def _batches(pieces: Iterator[bytes]) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)


# Compressed files -----------------------------------------------------------------------------------------------------


class _Decompressor(Protocol):
    """The result of decompressobj() of zlib and of its faster replacements."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...


_Decompression = tuple[Callable[[], _Decompressor], type[Exception]]
_decompression: _Decompression | None = None
# An importing thread holds the module's lock. A child that is forked meanwhile would wait for that lock forever.
_importing = threading.Lock()
os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release)


def _decompressors() -> _Decompression:
    """Return the fastest installed decompression: isal's, zlib-ng's or Python's. It is looked up once per process."""
    global _decompression
    with _importing:
        if _decompression is None:
            _decompression = _import_decompression()
        return _decompression


def _import_decompression() -> _Decompression:
    for name in ("isal.isal_zlib", "zlib_ng.zlib_ng", "zlib"):
        try:
            library: Any = importlib.import_module(name)
        except ImportError:
            continue
        return partial(library.decompressobj, wbits=31), library.error
    raise ImportError("Python's zlib module is missing: decompress the trace before reading it")


def _inflate(
    file: IO[bytes], decompression: _Decompression, problems: _Problems, advance: Callable[[], object] | None
) -> Iterator[bytes]:
    """Yield the text of a gzip file of one or more members, in pieces of at most 4 MB."""
    make, error = decompression
    stream, read, written, started = make(), 0, 0, False
    data = file.read(CHUNK)
    while data:
        read += len(data)
        while data:
            try:
                text = stream.decompress(data, 4 * CHUNK)
            except error as problem:
                if not started:
                    raise ValueError(f"it cannot be decompressed: {problem}") from None
                problems.compression = f"decompression fails within the first {read:,} bytes ({problem})"
                return
            if text:
                started = True
                written += len(text)
                problems.check_size(written, read)
                yield text
            data = stream.unconsumed_tail
            if stream.eof:
                data = stream.unused_data.lstrip(b"\0")
                if data[:2] != GZIP:  # data after the last member is ignored
                    return
                stream = make()
        if advance is not None:
            advance()
        data = file.read(CHUNK)
    if not started:
        raise ValueError("it ends before any data could be decompressed")
    problems.compression = f"the compressed file ends at byte {read:,}"


@contextmanager
def _ahead(pieces: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """Produce the pieces in a separate thread, ahead of their use. Exceptions of that thread are raised here."""
    queue: Queue[bytes | BaseException | None] = Queue(AHEAD)
    stopped = threading.Event()

    def put(item: bytes | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return queue.put(item, timeout=0.1)
            except Full:
                continue

    def make() -> None:
        try:
            for piece in pieces:
                if stopped.is_set():
                    return
                put(piece)
            put(None)
        except BaseException as problem:
            put(problem)

    def take() -> Iterator[bytes]:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=make, name="flopscope decompression", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        stopped.set()
        while thread.is_alive():
            try:
                queue.get(timeout=0.05)
            except Empty:
                continue
        thread.join()


def _read_compressed(
    file: IO[bytes], reader: _core.TraceReader, problems: _Problems, advance: Callable[[], object] | None = None
) -> None:
    _feed(_inflate(file, _decompressors(), problems, advance), reader)


# The head -------------------------------------------------------------------------------------------------------------


def _metadata(head: bytes) -> dict[str, Any]:
    """Parse the members other than the events. Nonstandard JSON is read as far as Python can, or else ignored."""
    text = head.decode("utf-8", "replace")
    try:
        members = json.loads(text, strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def _integer(text: str) -> int | float:
    """Parse an integer; one with more digits than Python converts becomes an infinity, so that the rest is not lost."""
    try:
        return int(text)
    except ValueError:
        return float(text)

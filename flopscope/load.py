"""Recorded traces: ``load_trace()`` reads what torch.profiler, or flopscope, wrote, and gives the same tables."""

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

from . import _core
from .model import Model, models_of, why_unknown
from .process import rank_of
from .progress import progress_bar
from .results import Results
from .views.safe import printable

if TYPE_CHECKING:
    from .peaks import Peaks

__all__ = ["Trace", "load_trace"]

GZIP = b"\x1f\x8b"
PIECE = 1 << 20  # bytes that are read at once
BATCH = 4 << 20  # bytes that are scanned at once: enough for several threads
AHEAD = 8  # batches that reading and decompression may be ahead of the scanning
SLOW = 1 << 30  # bytes; reading more shows a progress bar
EXPANSION = 200  # times; 48 traces of torch shrink by 7 to 34
EXPANSION_FREE = 256 << 20  # bytes that any compressed file may expand to


class Trace(Results):
    """A recorded trace, with the results of a profile: key_averages(), gpu_summary(), …

    Made by load_trace(). Percentages are of the peaks of the device that the trace names.
    """

    _usual_peaks = "datasheet"

    def __init__(self, source: str, core: _core.Store, report: Mapping[str, Any], metadata: dict[str, Any]) -> None:
        super().__init__()
        self.source = source
        """The file's name, or what it was read from."""
        self.metadata = metadata
        """The members of the trace beside its events: "deviceProperties", "distributedInfo", versions, …"""
        self.report = {name: report[name] for name in _REPORTED}
        """What was read: "bytes" of text, "events" in it, "kept" in the tables; and what was left out: events
        "without_time", of an "unknown" category, of "too_many" devices; and whether the file was "truncated". What
        contradicts itself: "contradicting" device work, whose External id names another op than the call that launched
        it lies in, and "overlapping" host events, which began within another one on their thread but ended after it."""
        self._process = int(report["process"])
        self.with_stack = bool(metadata.get("with_stack")) or core.has_frames
        self.record_shapes = bool(metadata.get("record_shapes", core.has_shapes))
        self.profile_memory = bool(metadata.get("profile_memory", False))
        self._core = core
        self._timing = "trace"
        self._trace_id = metadata.get("trace_id")
        self._metadata = {key: value for key, value in metadata.items() if key not in _WRITTEN_ANEW}

    @property
    def dropped(self) -> int:
        """Events of the trace that are in no table, since they had no time or were of nobody knows what."""
        return sum(self.report[name] for name in ("without_time", "unknown", "too_many"))

    @property
    def rank(self) -> int | None:
        """The rank of its process in a distributed program; None of one that is not.

        ValueError where the trace's "distributedInfo" names no possible rank.
        """
        return rank_of(self, self.source)

    @property
    def process(self) -> int | None:
        """The process id of the host threads in the trace; None where it has none. One that is a text is hashed."""
        return self._process if self._process >= 0 else None

    @property
    def devices(self) -> dict[int, str]:
        """Names of the devices in the trace by their number, as far as it tells them."""
        assert self._core is not None
        return self._core.device_names

    def _peaks(self, core: _core.Store, source: str) -> tuple[dict[str, Peaks], dict[str, dict[str, str]]]:
        """Peaks by device, and what a table says of them: of the devices that the trace names."""
        from .device import peaks_of_models

        models = self._models
        shares = peaks_of_models({f"cuda:{index}": model for index, model in models.items()}, source)
        named = {device: models[int(device[5:])].name for device in shares}
        said = {device: {"source": peaks.source, "name": named[device]} for device, peaks in shares.items()}
        return shares, said

    def _measured(self, device: str) -> Peaks | None:
        """None: the device need not be here. The shortest kernel of the trace stands for an empty one."""
        return None

    @property
    def _models(self) -> dict[int, Model]:
        assert self._core is not None
        ran = {int(device[5:]) for device in self._core.devices if device != "cpu"}
        return models_of(self.devices, self.metadata.get("deviceProperties"), ran)

    def _why_unknown(self, device: str, source: str) -> str:
        from .device import devices

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
_WRITTEN_ANEW = frozenset(
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
    """Read a trace that torch.profiler (Kineto) or flopscope wrote: its path, its bytes, or a binary file object.

    JSON as it is or compressed by gzip, whatever its name. Nothing is kept but the events, so that a file may be larger
    than memory; a plain file is read by several threads. Rows are torch's own for the same trace.

    ``max_bytes`` is the most text that is read: ValueError where there is more. Unless given, a compressed file may
    expand to 256 MB and 200 times its size, which no real trace comes near; other files have no limit. An event takes
    some 200 bytes of memory, so that a file of nothing but short events takes about five times its size.

    A trace that was cut off gives what is there, with a UserWarning; so do events that had to be left out, and events
    that contradict each other. A kernel belongs to the op around the API call that launched it.
    ValueError names the file, the byte and what was expected where it is no trace; OSError for a file that cannot be
    read.
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
    problems.tell(report)
    return Trace(name, core, report, _metadata(report["head"]))


_CONTRADICTIONS = {
    "contradicting": "kernels or copies carry an External id that contradicts the call that launched them; each counts "
    "for the op around its call",
    "overlapping": "host events overlap another one on their thread without lying in it; the time that they share is "
    "taken once from what encloses both",
}


class _Problems(AbstractContextManager["_Problems"]):
    """What is wrong with a trace that is read all the same."""

    def __init__(self, name: str, max_bytes: int | None = None) -> None:
        self.name = name
        self.max_bytes = max_bytes
        self.compression: str | None = None  # how it ended, where it ended badly

    def __exit__(self, *_: object) -> None:
        return None

    def check_size(self, size: int, packed: int | None = None) -> None:
        """ValueError where a text of that many bytes is too long. ``packed``: bytes of the file that it came from."""
        most = self.max_bytes
        if most is None and packed is not None:
            most = EXPANSION_FREE + EXPANSION * packed
            if size > most:
                raise ValueError(
                    f"it expands to more than {most:,} bytes, {EXPANSION_FREE >> 20} MB and {EXPANSION} times its "
                    f"compressed size; load_trace(…, max_bytes=…) sets another limit"
                )
        elif most is not None and size > most:
            raise ValueError(f"it has more than {most:,} bytes of text, the limit that max_bytes sets")

    def tell(self, report: Mapping[str, Any]) -> None:
        if report["truncated"] or self.compression:
            why = self.compression or f"it ends at byte {report['bytes']:,}, within the trace"
            self._warn(f"the file is truncated: {why}; {report['events']:,} events were read")
        left_out = {
            "without a time": report["without_time"],
            f'of an unknown category, such as "{report["first_unknown"]}"': report["unknown"],
            "of devices beyond the 128th": report["too_many"],
        }
        said = [f"{count:,} {what}" for what, count in left_out.items() if count]
        if said:
            self._warn(f"events were left out: {', '.join(said)}")
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
        raise TypeError(f"a trace is a path, bytes or a binary file object, not {source!r}")
    first = source.read(PIECE)
    if isinstance(first, str):
        raise TypeError(f"{source!r} is open as text; open it in binary: open(path, 'rb')")
    rest = cast("IO[bytes]", _Chained(first, source))
    if first[:2] == GZIP:
        _read_compressed(rest, reader, problems)
    else:
        _feed(_limited(iter(lambda: rest.read(PIECE), b""), problems), reader)


def _read_file(file: io.FileIO, reader: _core.TraceReader, problems: _Problems) -> None:
    """A file that has a size is scanned by several threads; a pipe has none."""
    size = os.fstat(file.fileno()).st_size
    if not file.seekable():
        _read(file, reader, problems)
    elif os.pread(file.fileno(), 2, 0) == GZIP:
        with progress_bar(f"reading {problems.name}", 1 + size // PIECE, size > SLOW // 8) as advance:
            _read_compressed(cast("IO[bytes]", file), reader, problems, advance)
    else:
        problems.check_size(size)
        reader.scan_file(file.fileno(), size)


class _Chained:
    """A file object whose first bytes were read already."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int) -> bytes:
        first, self._first = self._first, b""
        return first or self._rest.read(size)


def _limited(pieces: Iterator[bytes], problems: _Problems) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        problems.check_size(size)
        yield piece


def _feed(pieces: Iterator[bytes], reader: _core.TraceReader) -> None:
    """Scan batches of pieces while the next ones are read."""
    with _ahead(_batches(pieces)) as batches:
        for batch in batches:
            reader.feed(batch)


def _batches(pieces: Iterator[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= BATCH:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


# Compressed files -----------------------------------------------------------------------------------------------------


class _Decompressor(Protocol):
    """What zlib's and its faster kin's decompressobj() give."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...

    @property
    def unconsumed_tail(self) -> bytes: ...


_Decompression = tuple[Callable[[], _Decompressor], type[Exception]]
_decompression: _Decompression | None = None
# While a thread imports, a module's lock is held. A process that forks then leaves its child waiting for it for ever.
_importing = threading.Lock()
os.register_at_fork(before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release)


def _decompressors() -> _Decompression:
    """The fastest decompression that is installed: isal's, zlib-ng's, Python's own. Looked up once per process."""
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
    raise ImportError("Python's zlib is missing: decompress the trace before, or read it as it is")


def _inflate(
    file: IO[bytes], found: _Decompression, problems: _Problems, advance: Callable[[], object] | None
) -> Iterator[bytes]:
    """The text of a gzip file, of one member or several, in pieces of at most 4 MB."""
    make, wrong = found
    stream, read, written, some = make(), 0, 0, False
    data = file.read(PIECE)
    while data:
        read += len(data)
        while data:
            try:
                text = stream.decompress(data, 4 * PIECE)
            except wrong as problem:
                if not some:
                    raise ValueError(f"it cannot be decompressed: {problem}") from None
                problems.compression = f"decompression fails within the first {read:,} bytes ({problem})"
                return
            if text:
                some = True
                written += len(text)
                problems.check_size(written, read)
                yield text
            data = stream.unconsumed_tail
            if stream.eof:
                data = stream.unused_data.lstrip(b"\0")
                if data[:2] != GZIP:  # what follows the last member is no trace's
                    return
                stream = make()
        if advance is not None:
            advance()
        data = file.read(PIECE)
    if not some:
        raise ValueError("it ends before anything could be decompressed")
    problems.compression = f"the compressed file ends at byte {read:,}"


@contextmanager
def _ahead(pieces: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """The pieces, made by a thread of their own while earlier ones are used. What the thread raises is raised here."""
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
    """The members beside the events. What is no JSON in a strict sense is read as far as Python can, else left out."""
    text = head.decode("utf-8", "replace")
    try:
        members = json.loads(text, strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def _integer(text: str) -> int | float:
    """An integer, or an infinity where it has more digits than Python converts, which is no reason to lose the rest."""
    try:
        return int(text)
    except ValueError:
        return float(text)

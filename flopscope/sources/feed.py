"""Hands the text of a trace to the core's reader: from a path, bytes or a file object, compressed or not."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import IO, Any, Protocol, cast

from flopscope import _core
from flopscope.sources.compression import CHUNK, MAGIC, Format, decompressed, format_of
from flopscope.support.progress import progress_bar

__all__ = ["START", "Problems", "read_trace"]

BATCH = 4 << 20  # bytes scanned at once: enough for several threads
AHEAD = 8  # batches by which reading and decompression may be ahead of scanning
SLOW = 1 << 30  # bytes, above which a progress bar is shown
START = 64 << 10  # bytes by which a file that is not a trace is recognised


class Problems(Protocol):
    """What is found out about a text while it is read."""

    name: str
    start: bytes
    """The first bytes of the text, at most START."""
    compression: str | None
    """Why decompression ended early, if it did."""

    def check_size(self, size: int, packed: int | None = None) -> None:
        """Raise ValueError if the size of the text exceeds the limit. ``packed`` is its compressed size, in bytes."""


def read_trace(source: Any, reader: _core.TraceReader, problems: Problems) -> None:
    """Feed the whole text of the source to the reader.

    Raise TypeError for a source that is no path, bytes or binary file, ValueError and OSError for a wrong one.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        problems.start = bytes(source[:START])
        if (form := format_of(problems.start)) is not None:
            _read_compressed(io.BytesIO(source), form, reader, problems)
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
    while first and len(first) < MAGIC and (more := source.read(CHUNK)):  # a pipe may give a byte at a time
        first += more
    problems.start = bytes(first[:START])
    rest = cast("IO[bytes]", _Chained(first, source))
    if (form := format_of(problems.start)) is not None:
        _read_compressed(rest, form, reader, problems)
    else:
        _feed(_limited(iter(lambda: rest.read(CHUNK), b""), problems), reader)


def _read_file(file: io.FileIO, reader: _core.TraceReader, problems: Problems) -> None:
    """Read a file, with several threads unless it is compressed or a pipe."""
    size = os.fstat(file.fileno()).st_size
    if not file.seekable():
        return read_trace(file, reader, problems)
    problems.start = os.pread(file.fileno(), START, 0)
    if (form := format_of(problems.start)) is not None:
        with progress_bar(f"reading {problems.name}", 1 + size // CHUNK, size > SLOW // 8) as advance:
            return _read_compressed(cast("IO[bytes]", file), form, reader, problems, advance)
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


def _read_compressed(
    file: IO[bytes],
    form: Format,
    reader: _core.TraceReader,
    problems: Problems,
    advance: Callable[[], object] | None = None,
) -> None:
    def ended_early(reason: str) -> None:
        problems.compression = reason

    text = decompressed(file, form, form.library(), problems.check_size, ended_early, advance)
    _feed(_with_start(text, problems), reader)


def _with_start(pieces: Iterator[bytes], problems: Problems) -> Iterator[bytes]:
    """Yield the pieces, and keep the first bytes of the text."""
    problems.start = b""
    for piece in pieces:
        if len(problems.start) < START:
            problems.start += piece[: START - len(problems.start)]
        yield piece


def _limited(pieces: Iterator[bytes], problems: Problems) -> Iterator[bytes]:
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

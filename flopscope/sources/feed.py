"""Hands the text of a trace to the core's reader: from a path, bytes or a file object, compressed or not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue
from typing import Any

from flopscope import _core
from flopscope.sources.compression import CHUNK, MAGIC, format_of
from flopscope.sources.peek import BYTES, PATH, Problems, is_packed, opened, text_of
from flopscope.support.progress import progress_bar

__all__ = ["read_trace"]

BATCH = 4 << 20  # bytes scanned at once: enough for several threads
AHEAD = 8  # batches by which reading and decompression may be ahead of scanning
SLOW = 1 << 27  # bytes of a compressed file, above which a progress bar is shown


def read_trace(source: Any, reader: _core.TraceReader, problems: Problems) -> None:
    """Feed the whole text of the source to the reader, by several threads unless it is compressed or a stream.

    Raise TypeError for a source that is no path, bytes or binary file, ValueError and OSError for a wrong one.
    """
    if isinstance(source, BYTES) and format_of(bytes(source[:MAGIC])) is None:
        problems.check_size(memoryview(source).nbytes)
        reader.scan_bytes(source)
        return
    with opened(source) as file:
        on_disk = isinstance(source, PATH) and file.seekable()
        size = os.fstat(file.fileno()).st_size if on_disk else 0
        if on_disk and not is_packed(file):
            problems.check_size(size)
            reader.scan_file(file.fileno(), size)
            return
        with (
            progress_bar(f"reading {problems.name}", 1 + size // CHUNK, size > SLOW) as advance,
            _ahead(_batches(text_of(file, problems, advance))) as batches,
        ):
            for batch in batches:  # scanned while the next ones are being read
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

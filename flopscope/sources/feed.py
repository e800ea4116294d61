"""Hands the text of a trace to the core's reader: from a path, bytes or a file object, compressed or not."""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from flopscope import _core
from flopscope.sources.compression import CHUNK, MAGIC, format_of
from flopscope.sources.peek import BYTES, PATH, Problems, is_packed, opened, text_of
from flopscope.support.progress import progress_bar

BATCH = 4 << 20  # bytes scanned at once: enough for several threads
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
            closing(_ahead(_batches(text_of(file, problems, advance)))) as batches,
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


def _ahead(batches: Iterator[bytes]) -> Generator[bytes, None, None]:
    """Yield the batches, of which a thread makes the next one while one is in use."""
    made: list[bytes | BaseException] = []

    def make() -> None:
        try:
            made.append(next(batches, b""))
        except BaseException as problem:
            made.append(problem)

    batch = next(batches, b"")
    while len(batch) >= BATCH:  # the last one is shorter
        thread = threading.Thread(target=make, name="flopscope decompression", daemon=True)
        thread.start()
        try:
            yield batch
        finally:
            thread.join()
        following = made.pop()
        if isinstance(following, BaseException):
            raise following
        batch = following
    yield batch

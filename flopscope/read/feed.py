"""Hands the text of a trace to the core's reader: from a path, bytes or a file object, compressed or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from flopscope import _core
from flopscope.read.compression import CHUNK, MAGIC, format_of
from flopscope.read.peek import BYTES, PATH, Problems, is_packed, opened, text_of
from flopscope.support.progress import progress_bar

BATCH = (3 << 20, 1 << 19, 16 << 20)  # bytes read at once: at the least, for each thread, at the most
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
        with progress_bar(f"reading {problems.name}", 1 + size // CHUNK, size > SLOW) as advance:
            for batch in _batches(text_of(file, problems, advance), reader):
                reader.feed_ahead(batch)
            reader.feed(b"")


def _batches(pieces: Iterator[bytes], reader: _core.TraceReader) -> Iterator[list[bytes]]:
    """Collect the pieces. While this makes a batch, other threads read the one before."""
    least, each, most = BATCH
    enough = min(max(least, each * _core.num_threads()), most)
    batch: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            batch.append(piece)
            size += len(piece)
            if size >= enough:
                yield batch
                batch, size = [], 0
    except Exception:
        reader.feed(b"")  # raises what is wrong with the text before
        raise
    if batch:
        yield batch

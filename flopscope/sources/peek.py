"""The first bytes of a source, by which its format is recognised, and its content as a file."""

from __future__ import annotations

import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Protocol

from flopscope.sources.compression import CHUNK, MAGIC, decompressed, format_of

__all__ = ["START", "as_file", "start_of"]

START = 64 << 10  # bytes by which a format is recognised
PACKED = (16 << 10, CHUNK)  # bytes of a compressed file that hold as many of its text: nearly always, and at the most


class Limits(Protocol):
    def check_size(self, size: int, packed: int | None = None) -> None:
        """Raise ValueError if the size of the text exceeds the limit."""


def start_of(source: Any) -> bytes:
    """Return the first bytes of a source that can be read again from its start, decompressed; of others, none."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _text_of(bytes(source[:CHUNK]))
    if isinstance(source, (str, os.PathLike)):
        if not stat.S_ISREG(os.stat(source).st_mode):
            return b""
        with open(source, "rb", buffering=0) as file:
            start = file.read(START)
            return _text_of(start + file.read(CHUNK)) if format_of(start) is not None else start
    if not callable(getattr(source, "seekable", None)) or not source.seekable():
        return b""
    place = source.tell()
    start = source.read(CHUNK)
    source.seek(place)
    return _text_of(start) if isinstance(start, bytes) else b""


def _text_of(packed: bytes) -> bytes:
    """Return the first bytes of a text from those of its file. Damage is found when the whole file is read."""
    form = format_of(packed[:MAGIC])
    if form is None:
        return packed[:START]
    text = b""
    for size in PACKED:
        text = b""
        try:
            for piece in decompressed(io.BytesIO(packed[:size]), form, form.library(), lambda *_: None, lambda _: None):
                text += piece
                if len(text) >= START:
                    return text[:START]
        except (ValueError, OSError, ImportError, EOFError):
            continue
    return text


@contextmanager
def as_file(source: Any, limits: Limits) -> Iterator[str]:
    """Give the path of a file with the content of the source: the source itself, or a temporary copy, decompressed.

    Raise ValueError if the content exceeds a limit or is damaged.
    """
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb", buffering=0) as file:
            form = format_of(file.read(MAGIC))
            if form is None:
                limits.check_size(os.fstat(file.fileno()).st_size)
        if form is None:
            yield os.fsdecode(source)
            return
        stream: IO[bytes] = open(source, "rb", buffering=0)  # noqa: SIM115, closed below
    else:
        stream = io.BytesIO(source) if isinstance(source, (bytes, bytearray, memoryview)) else source
    try:
        with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
            path = os.path.join(folder, "capture")
            with open(path, "wb") as copy:
                for piece in _pieces(stream, limits):
                    copy.write(piece)
            yield path
    finally:
        if stream is not source:
            stream.close()


def _pieces(stream: IO[bytes], limits: Limits) -> Iterator[bytes]:
    first = stream.read(MAGIC)
    stream.seek(-len(first), os.SEEK_CUR)
    form = format_of(first)
    if form is not None:
        problems: list[str] = []
        yield from decompressed(stream, form, form.library(), limits.check_size, problems.append, None)
        if problems:
            raise ValueError(problems[0])
        return
    size = 0
    while piece := stream.read(CHUNK):
        size += len(piece)
        limits.check_size(size)
        yield piece

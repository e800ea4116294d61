"""The text of a source: its first bytes, by which its format is recognised, and all of it, decompressed."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import IO, Any, Protocol

from flopscope.read.compression import CHUNK, MAGIC, Format, decompressed, format_of

START = 64 << 10  # bytes by which a format is recognised
PACKED = (16 << 10, CHUNK)  # bytes of a compressed file that hold as many of its text: nearly always, and at the most
BYTES = (bytes, bytearray, memoryview)
PATH = (str, os.PathLike)


class Problems(Protocol):
    """What is found out about a text while it is read."""

    name: str
    start: bytes
    """The first bytes of the text, at most START."""
    compression: str | None
    """Why decompression ended early, if it did."""

    def check_size(self, size: int, packed: int | None = None) -> None:
        """Raise ValueError if the size of the text exceeds the limit. ``packed`` is its compressed size, in bytes."""


def opened(source: Any) -> AbstractContextManager[IO[bytes]]:
    """Return a source as a binary file. Raise TypeError if it is no path, bytes or file object."""
    if isinstance(source, BYTES):
        return io.BytesIO(source)
    if isinstance(source, PATH):
        return open(source, "rb", buffering=0)
    if not callable(getattr(source, "read", None)):
        raise TypeError(f"a trace must be a path, bytes or a binary file object, not {source!r}")
    return nullcontext(source)


def is_packed(file: IO[bytes]) -> bool:
    """Return whether a file on disk is compressed."""
    return format_of(os.pread(file.fileno(), MAGIC, 0)) is not None


def start_of(source: Any) -> bytes:
    """Return the first bytes of a source that can be read again from its start, decompressed; of others, none."""
    if isinstance(source, PATH) and not stat.S_ISREG(os.stat(source).st_mode):
        return b""
    with opened(source) as file:
        if not callable(getattr(file, "seekable", None)) or not file.seekable():
            return b""
        place = file.tell()
        start = file.read(START)
        form = format_of(start) if isinstance(start, bytes) else None
        more = b"" if form is None else file.read(CHUNK)
        file.seek(place)
    if form is not None:
        return _unpacked(start + more, form)
    return start if isinstance(start, bytes) else b""


def _unpacked(packed: bytes, form: Format) -> bytes:
    """Return the first bytes of a text from those of its file. Damage is found when the whole file is read."""
    text = b""
    for size in PACKED:
        text = b""
        try:
            for piece in decompressed(io.BytesIO(packed[:size]), form, lambda *_: None, lambda _: None):
                text += piece
                if len(text) >= START:
                    return text[:START]
        except (ValueError, OSError, ImportError, EOFError):
            continue
    return text


def text_of(file: IO[bytes], problems: Problems, advance: Callable[[], object] = bool) -> Iterator[bytes]:
    """Yield the text of a binary file in pieces, decompressed. ``advance`` is called for each CHUNK of compressed data.

    Raise TypeError if the file is open in text mode, ValueError if the text exceeds a limit or is damaged.
    """
    first = file.read(MAGIC)
    if isinstance(first, str):
        raise TypeError(f"{file!r} is open in text mode; open it in binary mode: open(path, 'rb')")
    while len(first) < MAGIC and (more := file.read(MAGIC - len(first))):  # a pipe may give a byte at a time
        first += more

    def ended_early(reason: str) -> None:
        problems.compression = reason

    form = format_of(first)
    rest = _Chained(first, file)
    pieces = (
        iter(lambda: rest.read(CHUNK), b"")
        if form is None
        else decompressed(rest, form, problems.check_size, ended_early, advance)
    )
    size = 0
    problems.start = b""
    for piece in pieces:
        size += len(piece)
        if form is None:
            problems.check_size(size)
        if len(problems.start) < START:
            problems.start += piece[: START - len(problems.start)]
        yield piece


class _Chained:
    """A file object whose first bytes have already been read."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int) -> bytes:
        first, self._first = self._first, b""
        return first + self._rest.read(size - len(first))


@contextmanager
def as_file(source: Any, problems: Problems) -> Iterator[str]:
    """Give the path of a file with the content of the source: the source itself, or a temporary copy, decompressed.

    Raise ValueError if the content exceeds a limit or is damaged.
    """
    with opened(source) as file:
        if isinstance(source, PATH) and not is_packed(file):
            problems.check_size(os.fstat(file.fileno()).st_size)
            yield os.fsdecode(source)
            return
        import tempfile

        with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
            path = os.path.join(folder, "capture")
            with open(path, "wb") as copy:
                copy.writelines(text_of(file, problems))
            if problems.compression:
                raise ValueError(problems.compression)
            yield path

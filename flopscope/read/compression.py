"""Compressed files: gzip and zstandard, recognised by their first bytes, and decompressed in pieces of bounded size."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from flopscope.support import forking

CHUNK = 1 << 20  # bytes read at once
PIECE = 1 << 20  # bytes of text at once: larger ones take fresh memory each
SLICE = 1 << 10  # bytes for a library that does not limit its output; they expand to at most 32 MB
MAGIC = 4  # bytes by which a format is recognised


@dataclass(frozen=True)
class Format:
    """A format of compressed files.

    ``start``: a pattern for the bytes that a member begins with. ``libraries``: from the fastest to the slowest, a
    module and what its streams are.
    """

    name: str
    start: bytes
    libraries: tuple[tuple[str, type[Zlib]], ...]
    missing: str

    def begins(self, data: bytes) -> bool:
        """Return whether the data begin with a member of this format."""
        return re.match(self.start, data) is not None

    def library(self) -> tuple[Any, type[Zlib]]:
        """Return the fastest installed library, looked up once per process. Raise ImportError if there is none."""
        with forking.importing:
            for name, streams in self.libraries:
                if self.name in _found:
                    break
                with suppress(ImportError):
                    _found[self.name] = importlib.import_module(name), streams
        if self.name not in _found:
            raise ImportError(self.missing)
        return _found[self.name]


_found: dict[str, tuple[Any, type[Zlib]]] = {}


# The decompression of one gzip member or of one zstandard frame, by each library --------------------------------------


class Zlib:
    """A gzip member, by decompressobj() of zlib or of one of its faster replacements."""

    error = "error"
    """The name of the library's exception."""
    _left = b""

    def __init__(self, library: Any, wbits: int = 31) -> None:
        self._stream = library.decompressobj(wbits=wbits)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield the text of the data, in pieces of bounded size."""
        while data:
            yield self._stream.decompress(data, PIECE)
            data = self._stream.unconsumed_tail

    @property
    def rest(self) -> bytes | None:
        """The data after the end of the member; None before its end."""
        return self._stream.unused_data + self._left if self._stream.eof else None


class _Buffered(Zlib):
    """A zstandard frame, by ZstdDecompressor of compression.zstd or pyzstd, which keep the data not yet used."""

    error = "ZstdError"

    def __init__(self, library: Any) -> None:
        self._stream = library.ZstdDecompressor()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        yield self._stream.decompress(data, PIECE)
        while not self._stream.eof and not self._stream.needs_input:
            yield self._stream.decompress(b"", PIECE)


class _Sliced(Zlib):
    """A zstandard frame, by decompressobj() of zstandard, whose output can be limited only by its input."""

    error = "ZstdError"

    def __init__(self, library: Any) -> None:
        self._stream = library.ZstdDecompressor().decompressobj()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), SLICE):
            yield self._stream.decompress(data[at : at + SLICE])
            if self._stream.eof:
                self._left = data[at + SLICE :]
                return


FORMATS = (
    Format(
        "gzip",
        rb"\x1f\x8b",
        tuple((name, Zlib) for name in ("isal.isal_zlib", "zlib_ng.zlib_ng", "zlib")),
        "Python's zlib module is missing: decompress the trace before reading it",
    ),
    Format(
        "zstandard",
        rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",  # a frame; a frame to skip, which tools add
        (("compression.zstd", _Buffered), ("zstandard", _Sliced), ("pyzstd", _Buffered)),
        "reading a file compressed by zstandard needs Python 3.14 or a package: pip install zstandard",
    ),
)


def format_of(start: bytes) -> Format | None:
    """Return the format of a file that begins with these bytes (MAGIC of them suffice); None: not compressed."""
    return next((one for one in FORMATS if one.begins(start)), None)


# Reading --------------------------------------------------------------------------------------------------------------


def decompressed(
    data: bytes,
    file: IO[bytes],
    form: Format,
    check_size: Callable[[int, int], object],
    ended_early: Callable[[str], object],
    advance: Callable[[], object] = bool,
) -> Iterator[bytes]:
    """Yield the text of a file of one or more members, whose first bytes are ``data``, in pieces.

    check_size is called with the bytes of text and of the file so far, and may raise; ended_early with the reason why
    only a part of the text could be read; advance for each CHUNK of the file. Data after the last member are ignored.
    Raise ValueError if nothing can be decompressed, ImportError if no library can do it.
    """
    library, streams = form.library()
    stream, read, written = streams(library), 0, 0
    data += file.read(CHUNK - len(data))
    while data:
        read += len(data)
        while data:
            try:
                for text in stream.pieces(data):
                    written += len(text)
                    check_size(written, read)
                    yield text
            except getattr(library, streams.error) as problem:
                if not written:
                    raise ValueError(f"it cannot be decompressed: {problem}") from None
                ended_early(f"decompression fails within the first {read:,} bytes ({problem})")
                return
            rest = stream.rest
            if rest is None:
                break
            data, count = _next_member(rest, file)
            read += count
            if not form.begins(data):
                return
            stream = streams(library)
        advance()
        data = file.read(CHUNK)
    if not written:
        raise ValueError("it ends before any data could be decompressed")
    ended_early(f"the compressed file ends at byte {read:,}")


def _next_member(rest: bytes, file: IO[bytes]) -> tuple[bytes, int]:
    """Return the data after a member, without padding, with enough of them to recognise another one; and how many bytes
    were read for that.
    """
    data, read = rest.lstrip(b"\0"), 0
    while len(data) < MAGIC:
        more = file.read(CHUNK)
        if not more:
            break
        read += len(more)
        data = (data + more).lstrip(b"\0")
    return data, read

"""A source that is read: its first bytes, by which its format is recognised, and its text.

Files compressed by gzip or zstandard are recognised by their first bytes, and decompressed in pieces of bounded size.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import IO, Any

from flopscope import _core
from flopscope.support import forking
from flopscope.support.progress import progress_bar

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


@cache
def _library_of(form: Format) -> tuple[Any, type[Zlib]]:
    """Return the fastest installed library, looked up once per process. Raise ImportError if there is none."""
    with forking.importing:
        for name, streams in form.libraries:
            with suppress(ImportError):
                return importlib.import_module(name), streams
    raise ImportError(form.missing)


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
    library, streams = _library_of(form)
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


START = 64 << 10  # bytes by which a format is recognised
BATCH = (3 << 20, 1 << 19, 16 << 20)  # bytes read at once: at the least, for each thread, at the most
SLOW = 1 << 27  # bytes of a compressed file, above which a progress bar is shown
EXPANSION = 200  # maximum ratio of text to compressed size; 48 traces of torch have ratios from 7 to 34
EXPANSION_FREE = 256 << 20  # bytes that every compressed file may expand to
BYTES = (bytes, bytearray, memoryview)
PATH = (str, os.PathLike)


def opened(source: Any) -> AbstractContextManager[IO[bytes]]:
    """Return a source as a binary file. Raise TypeError if it is no path, bytes or file object."""
    if isinstance(source, BYTES):
        return io.BytesIO(source)
    if isinstance(source, PATH):
        return open(source, "rb", buffering=0)
    if not callable(getattr(source, "read", None)):
        raise TypeError(f"a trace must be a path, bytes or a binary file object, not {source!r}")
    return nullcontext(source)


def _is_packed(file: IO[bytes]) -> bool:
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
    with suppress(ValueError, OSError, ImportError, EOFError):
        for piece in decompressed(packed, io.BytesIO(), form, lambda *_: None, lambda _: None):
            text += piece
            if len(text) >= START:
                break
    return text[:START]


class Input:
    """A path, bytes or a binary file object, with what is found out about it while it is read.

    name: for messages. max_bytes: maximum size of its text.
    """

    def __init__(self, source: Any, name: str, max_bytes: int | None = None) -> None:
        self.source, self.name, self.max_bytes = source, name, max_bytes
        self.start = b""
        """The first bytes of the text, at most START."""
        self.cut: str | None = None
        """Why decompression ended early, if it did."""

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

    def text(self) -> bytes:
        """Return the whole text. Raise TypeError if the file is open in text mode, ValueError if the text exceeds a
        limit or is damaged."""
        with opened(self.source) as file:
            content = b"".join(self._pieces(file))
        if self.cut:
            raise ValueError(self.cut)
        return content

    @contextmanager
    def as_file(self) -> Iterator[str]:
        """Give the path of a file with the text: the source itself, or a temporary copy. Raise as text() does."""
        with opened(self.source) as file:
            if isinstance(self.source, PATH) and not _is_packed(file):
                self.check_size(os.fstat(file.fileno()).st_size)
                yield os.fsdecode(self.source)
                return
            import tempfile

            with tempfile.TemporaryDirectory(prefix="flopscope-") as folder:
                path = os.path.join(folder, "capture")
                with open(path, "wb") as copy:
                    copy.writelines(self._pieces(file))
                if self.cut:
                    raise ValueError(self.cut)
                yield path

    def feed(self, reader: _core.TraceReader) -> None:
        """Feed the text to the reader, by several threads unless it is compressed or a stream. Raise TypeError for a
        source that is no path, bytes or binary file, ValueError and OSError for a wrong one."""
        source = self.source
        if isinstance(source, BYTES) and format_of(bytes(source[:MAGIC])) is None:
            self.check_size(memoryview(source).nbytes)
            reader.scan_bytes(source)
            return
        with opened(source) as file:
            on_disk = isinstance(source, PATH) and file.seekable()
            size = os.fstat(file.fileno()).st_size if on_disk else 0
            if on_disk and not _is_packed(file):
                self.check_size(size)
                reader.scan_file(file.fileno(), size)
                return
            with progress_bar(f"reading {self.name}", 1 + size // CHUNK, size > SLOW) as advance:
                for batch in _batches(self._pieces(file, advance), reader):
                    reader.feed_ahead(batch)
                reader.feed(b"")

    def _pieces(self, file: IO[bytes], advance: Callable[[], object] = bool) -> Iterator[bytes]:
        """Yield the text in pieces, decompressed. ``advance`` is called for each CHUNK of compressed data."""
        first = file.read(MAGIC)
        if isinstance(first, str):
            raise TypeError(f"{file!r} is open in text mode; open it in binary mode: open(path, 'rb')")
        while len(first) < MAGIC and (more := file.read(MAGIC - len(first))):  # a pipe may give a byte at a time
            first += more
        form = format_of(first)
        pieces: Iterator[bytes] = chain([first], iter(lambda: file.read(CHUNK), b""))
        if form is not None:
            pieces = decompressed(first, file, form, self.check_size, partial(setattr, self, "cut"), advance)
        size = 0
        self.start = b""
        for piece in pieces:
            size += len(piece)
            if form is None:
                self.check_size(size)
            if len(self.start) < START:
                self.start += piece[: START - len(self.start)]
            yield piece


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

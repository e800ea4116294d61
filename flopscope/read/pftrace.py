"""Perfetto's traces, ``.pftrace``: those of torch's profiler and of rocprofv3.

The core turns them into the text of a Chrome trace (csrc/sources/protobuf); compressed packets are expanded here.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator

from flopscope import _core
from flopscope.read.compression import Zlib
from flopscope.read.input import Input

_FIELDS = rb"[@PhZb2\x18]|[\xe2\xda\xd0\x92]\x03|[\x8a\xa2\xc8]\x02|\xca\x05"
_PACKET = re.compile(rb"\n(?P<size>[\x80-\xff]{0,4}[\x00-\x7f])(?:%b)" % _FIELDS)
"""A field 1, the first packet, and the first field in it: one of those that such packets begin with."""
_BINARY = re.compile(rb"[\x00-\x08\x80-\xff]")


def is_pftrace(start: bytes) -> bool:
    """Return whether a file that begins so is a trace of Perfetto: packets, one after the other."""
    match = _PACKET.match(start)
    if match is None:
        return False
    size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(match["size"]))
    packet = start[match.end("size") : match.end("size") + size]
    return _BINARY.search(packet) is not None and start[match.end("size") + size :][:1] in (b"", b"\n")


def feed_pftrace(given: Input, reader: _core.TraceReader) -> None:
    """Feed a trace to the reader. Raise ValueError if it is damaged or too large."""
    content = given.text()
    pieces, at, size = [], 0, len(content)
    for begin, end, inner, inner_end in reader.packed(content):
        pieces.append(content[at:begin])
        for piece in _expanded(content[inner:inner_end]):
            size += len(piece)
            given.check_size(size, len(content))
            pieces.append(piece)
        at = end
    reader.feed_pftrace(b"".join([*pieces, content[at:]]) if pieces else content)


def _expanded(packed: bytes) -> Iterator[bytes]:
    """Yield what is compressed, in pieces of bounded size."""
    try:
        yield from Zlib(zlib, zlib.MAX_WBITS).pieces(packed)
    except zlib.error as problem:
        raise ValueError(f"a compressed packet cannot be expanded: {problem}") from None

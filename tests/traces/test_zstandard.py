"""Traces compressed by zstandard: frames, damage, size, libraries; and members that end at the edge of a read."""

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import TRACES
from helpers.hand_traces import quietly
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.read import input

zstandard = pytest.importorskip("zstandard")

PATH = TRACES / "tutorial_naive.json.gz"
RAW = gzip.decompress(PATH.read_bytes())
SMALL = b'{"traceEvents": [%s]}' % b", ".join([b'{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":2}'] * 20)
SKIPPED = b"\x5a\x2a\x4d\x18\x03\0\0\0abc"  # a frame to skip, of three bytes


def packed(text: bytes, level: int = 3) -> bytes:
    return bytes(zstandard.ZstdCompressor(level=level).compress(text))


def rows(source: Any) -> list[dict[str, Any]]:
    return fs.load_trace(source).key_averages(peaks="none").to_dicts()


class Buffered:
    """ZstdDecompressor as compression.zstd and pyzstd have it, made of that of zstandard."""

    def __init__(self) -> None:
        self._stream = zstandard.ZstdDecompressor().decompressobj()
        self._text = b""
        self.eof = False
        self.unused_data = b""

    @property
    def needs_input(self) -> bool:
        return not self._text and not self.eof

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        assert max_length > 0 and not self.eof and not (data and self._text)
        self._text += self._stream.decompress(data) if data else b""
        part, self._text = self._text[:max_length], self._text[max_length:]
        self.eof = self._stream.eof and not self._text
        self.unused_data = self._stream.unused_data
        return part


def use(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make one library of zstandard the only one that is installed."""
    stand_in = SimpleNamespace(ZstdDecompressor=Buffered, ZstdError=zstandard.ZstdError)
    for other in ("compression.zstd", "zstandard", "pyzstd"):
        found = (zstandard if other == "zstandard" else stand_in) if other == name else None
        monkeypatch.setitem(sys.modules, other, found)
    monkeypatch.setattr(input, "_library_of", input._library_of.__wrapped__)


@pytest.fixture(params=["compression.zstd", "zstandard", "pyzstd"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use(monkeypatch, request.param)
    return str(request.param)


def test_every_library_reads_the_same(library: str, tmp_path: Path) -> None:
    expected = rows(RAW)
    text = packed(RAW)
    path = tmp_path / "named as if it were.json.gz"
    path.write_bytes(text)
    for source in (path, text, memoryview(text), io.BytesIO(text)):
        assert rows(source) == expected
    frames = packed(RAW[:999]) + SKIPPED + packed(RAW[999:]) + b"\0\0\0"
    for source in (frames, SKIPPED + frames, SKIPPED + text + SKIPPED):
        assert rows(source) == expected


def test_a_truncated_or_damaged_file_is_read_up_to_there_with_a_warning(library: str) -> None:
    text = packed(RAW)
    with pytest.warns(UserWarning, match=r"truncated: the compressed file ends at byte [\d,]+; [\d,]+ events"):
        trace = fs.load_trace(packed(RAW[: len(RAW) // 2]) + text[: len(text) // 2])
    assert len(trace) > 0
    damaged = bytearray(packed(RAW[: len(RAW) // 2]) + packed(RAW[len(RAW) // 2 :]))
    damaged[-4000:] = b"\xff" * 4000
    with pytest.warns(UserWarning, match=r"truncated: decompression fails within the first [\d,]+ bytes"):
        assert len(fs.load_trace(bytes(damaged))) > 0


def test_what_cannot_be_decompressed_is_an_error(library: str) -> None:
    with pytest.raises(ValueError, match="it ends before any data could be decompressed"):
        fs.load_trace(packed(RAW)[:8])
    with pytest.raises(ValueError, match="it cannot be decompressed"):
        fs.load_trace(packed(RAW)[:5] + b"\xff" * 999)


def test_a_bomb_is_refused_without_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 GB of spaces are 128 kB of zstandard: pieces of bounded size, and an error once the limit is exceeded."""
    chunk = zstandard.ZstdCompressor().compressobj()
    bomb = b"".join(chunk.compress(b" " * (64 << 20)) for _ in range(64)) + chunk.flush()
    assert len(bomb) < 1 << 20
    monkeypatch.setattr(input, "EXPANSION_FREE", 64 << 20)
    pieces = input._Sliced(zstandard).pieces(bomb)
    assert max(len(next(pieces)) for _ in range(10)) <= 64 << 20
    with pytest.raises(ValueError, match="it expands to more than"):
        fs.load_trace(bomb)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, "none of them")
    path = tmp_path / "t.json.zst"
    path.write_bytes(packed(RAW))
    with pytest.raises(ImportError, match=r"t\.json\.zst: reading a file .* zstandard needs .*pip install zstandard"):
        fs.load_trace(path)


def test_a_pipe_may_give_a_byte_at_a_time() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(1 if self.tell() < 9 else size)

    for text in (packed(RAW), gzip.compress(RAW), RAW):
        assert rows(Slow(text)) == rows(RAW)


@pytest.mark.parametrize("compress", [packed, gzip.compress], ids=["zstandard", "gzip"])
def test_reads_of_any_size_give_the_same(compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    first = compress(RAW[:999])
    for edge in range(-3, 3):  # of a member
        monkeypatch.setattr(input, "CHUNK", len(first) + edge)
        assert rows(first + compress(RAW[999:])) == rows(RAW)
    monkeypatch.setattr(input, "PIECE", 50)
    monkeypatch.setattr(input, "CHUNK", 20)
    monkeypatch.setattr(input, "BATCH", (100, 1, 100))
    assert rows(compress(RAW)) == rows(RAW)
    monkeypatch.setattr(input.Input, "check_size", lambda self, size, packed=None: 1 // (size < 500))
    with pytest.raises(ZeroDivisionError):
        fs.load_trace(compress(RAW))


def test_a_frame_that_needs_too_much_memory_is_refused() -> None:
    options = zstandard.ZstdCompressionParameters(window_log=30, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=options).compressobj()
    with pytest.raises(ValueError, match=r"it cannot be decompressed: .*memory"):
        fs.load_trace(stream.compress(RAW) + stream.flush())


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=9), st.integers(0, 10**6))
def test_any_damage_is_an_error_or_a_warning(at: int, noise: bytes, end: int) -> None:
    text = SKIPPED + packed(SMALL[:200]) + packed(SMALL[200:])
    at %= len(text)
    text = (text[:at] + noise + text[at + len(noise) :])[: 4 + end % len(text)]
    try:
        quietly(text)
    except ValueError as problem:
        assert str(problem).startswith("<bytes>: ")

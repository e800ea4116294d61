"""The first bytes of a source, by which its format is recognised."""

from __future__ import annotations

import bz2
import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from flopscope.read.peek import START, start_of

DRAW = random.Random(1)
TEXTS = {
    "empty": b"",
    "short": b'{"traceEvents": []}',
    "expands": b'{"ph": "X", "name": "aten::add"},\n' * 50_000,
    "does not expand": DRAW.randbytes(4 * START),
}


def zstandard(text: bytes) -> bytes:
    return bytes(pytest.importorskip("zstandard").compress(text))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard])
@pytest.mark.parametrize("name", TEXTS)
def test_the_start_is_that_of_the_text(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(TEXTS[name])
    path = tmp_path / "file"
    path.write_bytes(packed)
    expected = TEXTS[name][:START]
    assert start_of(packed) == start_of(path) == start_of(io.BytesIO(packed)) == expected


def test_members_of_a_file_follow_each_other() -> None:
    members = gzip.compress(b"a" * 10) + gzip.compress(b"b" * START)
    assert start_of(members) == b"a" * 10 + b"b" * (START - 10)


def test_a_damaged_file_has_the_start_that_can_be_read() -> None:
    packed = gzip.compress(TEXTS["does not expand"])
    assert start_of(packed[:10_000]) == TEXTS["does not expand"][: len(start_of(packed[:10_000]))] != b""
    assert start_of(b"\x1f\x8b" + b"?" * 100) == b""
    assert start_of(bz2.compress(b"text")) == bz2.compress(b"text")  # not a format that is read

"""The first bytes of a source, by which its format is recognised."""

from __future__ import annotations

import bz2
import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from flopscope.read.input import START, start_of

RANDOM = random.Random(1).randbytes(4 * START)  # that no compression makes smaller
TEXTS = (b"", b'{"traceEvents": []}', b'{"ph": "X", "name": "aten::add"},\n' * 50_000, RANDOM)


def zstandard(text: bytes) -> bytes:
    return bytes(pytest.importorskip("zstandard").compress(text))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard])
def test_the_start_is_that_of_the_text(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "file"
    for text in TEXTS:
        packed = pack(text)
        path.write_bytes(packed)
        assert start_of(packed) == start_of(path) == start_of(io.BytesIO(packed)) == text[:START]


def test_the_start_of_members_and_of_damaged_files() -> None:
    members = gzip.compress(b"a" * 10) + gzip.compress(b"b" * START)
    assert start_of(members) == b"a" * 10 + b"b" * (START - 10)
    packed = gzip.compress(RANDOM)
    assert start_of(packed[:10_000]) == RANDOM[: len(start_of(packed[:10_000]))] != b""
    assert start_of(b"\x1f\x8b" + b"?" * 100) == b""
    assert start_of(bz2.compress(b"text")) == bz2.compress(b"text")  # not a format that is read

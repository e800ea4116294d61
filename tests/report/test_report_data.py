"""The data of a page: columns of numbers are read back, and JSON ends no script."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.report_pages import PageRead
from hypothesis import given
from hypothesis import strategies as st

from flopscope.show.page.encode import Columns, json_text, sentence


def read_back(columns: Columns, references: list[dict[str, Any]], tmp_path: Path) -> list[np.ndarray[Any, Any]]:
    html = "".join(f'<script data-blob="{i}">{blob}</script>' for i, blob in enumerate(columns.blobs()))
    path = tmp_path / "columns.html"
    path.write_text(f'<script id="data">{{"strings": []}}</script>{html}')
    read = PageRead(path)
    return [read.column(reference) for reference in references]


def test_columns_are_read_back(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    arrays: list[np.ndarray[Any, Any]] = [
        np.array([], dtype=np.int64), np.array([True, False]), np.array([0, 255]), np.array([0, 65535]),
        np.array([-1, 5]), np.array([0, 2**32 - 1]), np.array([2**40, -(2**40)]), np.array([np.nan, 1.5, np.inf]),
        np.full(5, np.nan), np.full(7, 3.25), random.random(100_000), random.random(50_000).astype(np.float32),
        random.integers(0, 9, 300_000),
    ]  # fmt: skip
    columns = Columns()
    references = [columns.add(array) for array in arrays]
    types = ["u1", "u1", "u1", "u2", "i4", "u4", "f8", "f8", "f8", "f8", "f8", "f4", "u1"]
    assert [reference["type"] for reference in references] == types
    assert all(reference.get("offset", 0) % 8 == 0 for reference in references)
    for found, array in zip(read_back(columns, references, tmp_path), arrays, strict=True):
        assert np.array_equal(found.astype(float), array.astype(float), equal_nan=True)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=8))
def test_json_is_inert(content: Any) -> None:
    text = json_text(content)
    assert not re.search("[<>&\u2028\u2029]", text)
    text.encode("utf-8")
    json.loads(text)
    if isinstance(content, str) and content.isprintable():
        assert json.loads(text) == content
    if isinstance(content, float):
        assert json.loads(text) == (content if math.isfinite(content) else None)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A step takes 4.46ms, 12us of it idle.", "A step takes 4.46\u202fms, 12\u202fµs of it idle."),
        ("1,200ns (0.5s)", "1,200\u202fns (0.5\u202fs)"),
        ("Of 73 % the rest is 5 % of 2", "Of 73% the rest is 5% of 2"),
        ("sm90s v1.2ms x12us 12use 3 ms", "sm90s v1.2ms x12us 12use 3 ms"),  # names, and what is spaced already
    ],
)
def test_sentences_have_times_and_shares_as_the_page_writes_them(text: str, shown: str) -> None:
    assert sentence(text) == shown

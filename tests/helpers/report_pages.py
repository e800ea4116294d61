"""What a page holds, read back from its HTML by other means than the page's script."""

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

__all__ = ["PageRead", "contrast", "handlers", "sha256_source", "written"]


class _Parser(HTMLParser):
    """The elements of a page: tags with their attributes, and the text of scripts and styles."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.content: list[tuple[str, dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._inside: tuple[str, dict[str, str | None]] | None = None
        self._parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside, self._parts = (tag, dict(attrs)), []

    def handle_endtag(self, tag: str) -> None:
        if self._inside is not None and tag == self._inside[0]:
            self.content.append((*self._inside, "".join(self._parts)))
            self._inside = None

    def handle_data(self, data: str) -> None:
        (self.text if self._inside is None else self._parts).append(data)


class PageRead:
    """A page read from a file."""

    def __init__(self, path: Path) -> None:
        self.html = path.read_text(encoding="utf-8")
        parser = _Parser()
        parser.feed(self.html)
        parser.close()
        self.tags, self.content, self.text = parser.tags, parser.content, " ".join(parser.text)
        self.data = json.loads(next(t for _, a, t in self.content if a.get("id") == "data"), parse_constant=pytest.fail)
        self.strings: list[str] = self.data["strings"]
        self._packed = {int(a["data-blob"] or 0): t for _, a, t in self.content if "data-blob" in a}
        self._blobs: dict[int, bytes] = {}

    @property
    def scripts(self) -> list[str]:
        """The scripts that a browser runs."""
        return [text for tag, attributes, text in self.content if tag == "script" and "type" not in attributes]

    @property
    def policy(self) -> str:
        return next(a["content"] or "" for t, a in self.tags if a.get("http-equiv") == "Content-Security-Policy")

    def column(self, reference: dict[str, Any]) -> npt.NDArray[Any]:
        """Return the numbers of a column."""
        kind = np.dtype(reference["type"]).newbyteorder("<")
        if "fill" in reference:
            fill = np.nan if reference["fill"] is None else reference["fill"]
            return np.full(reference["length"], fill, dtype=kind)
        blob = reference["blob"]
        if blob not in self._blobs:
            self._blobs[blob] = zlib.decompress(base64.b64decode(self._packed[blob], validate=True))
        return np.frombuffer(self._blobs[blob], kind, reference["length"], reference["offset"])

    def texts(self, reference: dict[str, Any]) -> list[str | None]:
        """Return the texts of a column."""
        return [None if i < 0 else self.strings[i] for i in self.column(reference).tolist()]

    def kernels(self, table: dict[str, Any]) -> list[list[tuple[str | None, int, float]]]:
        """Return the kernels of each row of a table."""
        parts = table["kernels"]
        begin = self.column(parts["begin"]).tolist()
        counts, times = (self.column(parts[name]).tolist() for name in ("count", "time"))
        every = list(zip(self.texts(parts["name"]), counts, times, strict=True))
        return [every[begin[i] : begin[i + 1]] for i in range(table["count"])]

    def lists(self, reference: dict[str, Any]) -> list[list[int]]:
        """Return the rows below each row of a grouping."""
        begin, rows = self.column(reference["begin"]).tolist(), self.column(reference["rows"]).tolist()
        return [rows[a:b] for a, b in pairwise(begin)]


def sha256_source(text: str) -> str:
    """Return a source of a Content-Security-Policy that allows this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def handlers(page: PageRead) -> list[str]:
    """Return the names of attributes that run scripts or styles."""
    return [name for _, attributes in page.tags for name in attributes if re.match("on|style$|srcdoc$", name)]


def contrast(a: list[int], b: list[int]) -> float:
    """Return the contrast of two colours by WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio."""

    def luminance(colour: list[int]) -> float:
        parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def written(results: Any, tmp_path: Path, **options: Any) -> PageRead:
    """Write the page of a profile and read it."""
    path = tmp_path / "report.html"
    results.write_report(path, **options)
    return PageRead(path)

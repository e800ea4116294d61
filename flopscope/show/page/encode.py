"""Data of a page: inert JSON, one table of strings, and binary columns in compressed blobs."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from flopscope.support.columns import Rows
from flopscope.support.documents import plain
from flopscope.support.safe import printable
from flopscope.support.units import MISSING

MOST_TEXT = 10_000  # characters of a text
SHARED = 1 << 18  # bytes: smaller columns share a blob
LEVEL = 1
FARTHEST = 2.0**62
THREADS = 2
_INTEGERS = (("u1", 0, 2**8), ("u2", 0, 2**16), ("i4", -(2**31), 2**31), ("u4", 0, 2**32))
_TIME = re.compile(r"(?<![\w.:,])(\d[\d,]*(?:\.\d+)?)(ns|us|ms|s)(?!\w)", re.ASCII)
_SHARE = re.compile(r"(\d) %", re.ASCII)
_SPACE = "\u202f"  # narrow, and no line breaks at it
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


class Columns:
    """The binary columns and the texts of a page.

    A column is described by ``{"type", "length", "blob", "offset"}``; one with the same value everywhere by
    ``{"type", "length", "fill"}``, where None stands for NaN. Types are NumPy's, little-endian: "f8", "f4", "i4",
    "u4", "u2", "u1".
    """

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._places: dict[str, int] = {}
        self._blobs: list[list[bytes]] = [[]]  # the columns of each
        self._shared, self._size = 0, 0  # the number of the blob that small columns share, and its bytes

    def add(self, values: npt.ArrayLike) -> dict[str, Any]:
        """Add a column of numbers or booleans and return its description, which belongs into the JSON.

        Floats keep their type; integers are stored in the smallest type that holds them, or as floats beyond 32 bits.
        """
        array = _stored(np.asarray(values))
        column: dict[str, Any] = {"type": array.dtype.str[1:], "length": int(array.size)}
        first = array[0] if array.size else np.int64(0)
        if (array == first if first == first else array != array).all():  # NaN differs from itself
            return {**column, "fill": first.item()}
        data = array.tobytes()
        if len(data) >= SHARED:
            self._blobs.append([data])
            return {**column, "blob": len(self._blobs) - 1, "offset": 0}
        if self._size + len(data) > SHARED:
            self._blobs.append([])
            self._shared, self._size = len(self._blobs) - 1, 0
        offset, padding = self._size, -len(data) % 8
        self._blobs[self._shared] += [data, b"\0" * padding]
        self._size += len(data) + padding
        return {**column, "blob": self._shared, "offset": offset}

    def numbers(self, values: Iterable[float | None]) -> dict[str, Any]:
        """Add a column of floats; None is unknown."""
        known = values if isinstance(values, np.ndarray) else [*values]
        return self.add(np.array(known, dtype=np.float64))

    def text(self, value: str | None) -> int:
        """Return the number of a text in the table of strings, -1 for None. See `cut`."""
        if value is not None and value not in self._places:
            self._places[value] = len(self.strings)
            self.strings.append(cut(value))
        return -1 if value is None else self._places[value]

    def texts(self, values: Iterable[str | None]) -> dict[str, Any]:
        """Add a column of texts, as numbers in the table of strings."""
        places = self._places
        known = [places[value] if value in places else self.text(value) for value in values]
        return self.add(np.array(known, dtype=np.int64))

    def blobs(self) -> Sequence[str]:
        """Return the blobs, compressed and in base64."""
        with ThreadPoolExecutor(THREADS) as pool:
            packed = pool.map(lambda parts: zlib.compress(b"".join(parts), LEVEL), self._blobs)
            return [base64.b64encode(blob).decode("ascii") for blob in packed]


def _stored(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind == "f":
        return array.astype("<f4" if array.dtype.itemsize <= 4 else "<f8", copy=False)
    least, most = (int(array.min()), int(array.max())) if array.size else (0, 0)
    for name, low, high in _INTEGERS:
        if low <= least and most < high:
            return array.astype(f"<{name}" if name != "u1" else name)
    return array.astype("<f8")


def since(times: npt.NDArray[np.int64], origin: int) -> npt.NDArray[Any]:
    """Return times since the origin: integers, or floats if the difference of hostile times exceeds 64 bits."""
    if len(times) and max(abs(int(times.max()) - origin), abs(int(times.min()) - origin)) > FARTHEST:
        return times.astype(np.float64) - float(origin)
    return times - np.int64(origin)


def cut(text: str) -> str:
    """Return a text as the page shows it: control characters escaped, its end cut off after MOST_TEXT characters."""
    if len(text) > MOST_TEXT:
        return f"{printable(text[:MOST_TEXT])}… ({len(text):,} characters)"
    return printable(text)


def sentence(text: str) -> str:
    """Return a sentence with its times and shares as the page writes them: "4.46 ms" for 4.46ms, "73%" for 73 %."""
    timed = _TIME.sub(lambda found: f"{found[1]}{_SPACE}{found[2].replace('us', 'µs')}", text)
    return _SHARE.sub(r"\1%", timed)


def text_table(title: str, parts: Iterable[str | Rows], left: int = 1) -> dict[str, Any]:
    """Return a table of texts and the notes below it, as summaries have them; unknown cells are "–".

    left: how many columns are names, aligned at the left.
    """
    found = [*parts]
    rows = [row for part in found if isinstance(part, Rows) for row in part.rows]
    return {
        "title": title,
        "rows": [["–" if cell == MISSING else sentence(cut(cell)) for cell in row] for row in rows],
        "left": left,
        "notes": sentence(" ".join(part.strip() for part in found if isinstance(part, str))),
    }


def json_text(content: Any) -> str:
    """Return JSON that may stand in a script element: no ``<``, ``>`` or ``&``; unknown numbers are null."""
    text = json.dumps(plain(content, _shown), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _shown(text: str) -> str:
    return printable(text) if len(text) <= 2 * MOST_TEXT else cut(text)

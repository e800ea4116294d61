"""What the core hands over: marks of the unknown, kinds of work, the parts of the accounting, columns of numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from flopscope import _core

UNKNOWN_ID = 2**32 - 1
UNKNOWN_TIME = -(2**63)
"""Marks an unknown time in ns."""
WORK = ("kernel", "memcpy", "memset", "interval")
"""The kinds of events that keep a device busy."""


def parts_of(on_device: bool) -> Mapping[str, _core.Part]:
    """Return the parts of a device, or of a program without one, by name."""
    return _core.parts if on_device else _core.bare_parts


class Numbers(Sequence[Any]):
    """A column of int64 ("q") or float64 ("d"), which never changes: made without NumPy, and shared with it.

    Equal values are stored once: most columns of a large table hold a single value.
    """

    __slots__ = ("_count", "_is_shared", "_values")

    def __init__(self, type: Any, stored: bytes, count: int) -> None:
        self._values = memoryview(stored).cast(type)
        self._count = count
        self._is_shared = len(self._values) < count

    def __reduce__(self) -> tuple[Any, ...]:
        return Numbers, (self._values.format, self._values.tobytes(), self._count)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        place = range(self._count)[row]
        return self._values[0 if self._is_shared else place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """Return the numbers as a list."""
        return self._values.tolist() * (self._count if self._is_shared else 1)

    def chosen(self, rows: Iterable[int]) -> Numbers:
        """Return the numbers of these rows, as a column."""
        places = rows if isinstance(rows, list) else list(rows)
        kind = self._values.format
        if self._is_shared and places:
            return Numbers(kind, self._values.tobytes(), len(places))
        values = self._values.tolist()
        return Numbers(kind, array(kind, map(values.__getitem__, places)).tobytes(), len(places))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a read-only array of the numbers, which shares their memory, or a copy in another dtype."""
        import numpy as np

        stored: Any = self._values.obj
        strides = (0 if self._is_shared else 8,)
        values = np.ndarray(self._count, np.dtype(self._values.format), stored, strides=strides)
        return values.copy() if copy else values if dtype is None else values.astype(dtype, copy=False)

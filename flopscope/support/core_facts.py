"""What the core hands over: marks of the unknown, kinds of work, the parts of the accounting, columns of numbers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

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

    __slots__ = ("_count", "_stored", "_type")

    def __init__(self, type: Literal["q", "d"], stored: bytes, count: int) -> None:
        self._type, self._stored, self._count = type, stored, count

    @property
    def _is_shared(self) -> bool:
        return len(self._stored) < 8 * self._count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: Any) -> Any:
        values = memoryview(self._stored).cast(self._type)
        place = range(self._count)[row]
        return values[0 if self._is_shared else place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """Return the numbers as a list."""
        return memoryview(self._stored).cast(self._type).tolist() * (self._count if self._is_shared else 1)

    def chosen(self, rows: Iterable[int]) -> Numbers:
        """Return the numbers of these rows, as a column."""
        places = rows if isinstance(rows, list) else list(rows)
        if self._is_shared and places:
            return Numbers(self._type, self._stored, len(places))
        values = memoryview(self._stored).cast(self._type).tolist()
        return Numbers(self._type, array(self._type, map(values.__getitem__, places)).tobytes(), len(places))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a read-only array of the numbers, which shares their memory, or a copy in another dtype."""
        import numpy as np

        strides = (0 if self._is_shared else 8,)
        values = np.ndarray(self._count, np.dtype(self._type), self._stored, strides=strides)
        return values.copy() if copy else values if dtype is None else values.astype(dtype, copy=False)

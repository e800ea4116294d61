"""The standard error that a process began with, for messages while a program may have replaced or closed it."""

from __future__ import annotations

import fcntl
import os
import sys
from contextlib import suppress
from typing import TextIO

from flopscope.support.safe import printable

LEAST_DESCRIPTOR = 200
"""Descriptors of the program are numbered as under Python: from 3 on."""


class Messages:
    """Lines on standard error as it is now, beginning with ``name``. Nothing is written if there is none.

    The descriptor is a duplicate that other programs do not inherit. If the program has closed it, descriptor 2 is
    used, unless that is another file by then; a file that has got the number of the duplicate is left alone.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream = sys.__stderr__
        self._descriptor = _duplicate(self._stream)
        self._file = _file_of(self._descriptor)
        os.register_at_fork(after_in_child=self._leave)

    def tell(self, message: object) -> None:
        """Write a message as a line."""
        with suppress(OSError, ValueError):
            self.write(f"{self._name}: {printable(str(message))}\n")

    def write(self, text: str) -> None:
        """Write text after what the program has written. Raise OSError if that fails."""
        if self._file is None:
            return
        with suppress(Exception):  # closed, or of the program
            self._stream.flush()  # type: ignore[union-attr]
        same = [number for number in (self._descriptor, 2) if _file_of(number) == self._file]
        if not same:
            return
        os.set_blocking(same[0], True)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        content = text.encode(encoding, "backslashreplace")
        while content:
            content = content[os.write(same[0], content) :]

    @property
    def is_open(self) -> bool:
        """Whether there is a standard error."""
        return self._file is not None

    def fileno(self) -> int:
        """Return the descriptor, for the width of a terminal."""
        return self._descriptor

    def _leave(self) -> None:
        """Close the duplicate in a forked child, which else would keep a pipe open after its own end."""
        if self._file is not None and _file_of(self._descriptor) == self._file:
            os.close(self._descriptor)
        self._file = None


def _duplicate(stream: TextIO | None) -> int:
    if stream is None:
        return -1
    for least in (LEAST_DESCRIPTOR, 3):
        with suppress(OSError, ValueError):
            return fcntl.fcntl(stream.fileno(), fcntl.F_DUPFD_CLOEXEC, least)
    return -1


def _file_of(descriptor: int) -> tuple[int, int] | None:
    """Return what identifies an open file, None if the descriptor is closed."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino

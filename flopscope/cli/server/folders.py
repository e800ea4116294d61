"""The files that tools may read: those in the folders that the user named; and the traces that stay open."""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from flopscope.read.input import start_of
from flopscope.read.load import read_open
from flopscope.read.nsys import REPORT
from flopscope.read.paths import NoFiles
from flopscope.read.trace import Trace
from flopscope.support.files import close_names
from flopscope.support.safe import shown

MOST_TRACES = 8
MOST_EVENTS = 20_000_000
"""Events of all open traces: an event takes about 200 bytes."""
LISTED = 200
"""Files that a listing names."""
DEEPEST = 6
"""Folders within each other that a listing looks into."""


class Outside(ValueError):
    """A path that is not in the folders."""


class Folders:
    """The folders that the user named. Symbolic links are followed before a path is compared with them."""

    def __init__(self, folders: Sequence[str]) -> None:
        for folder in folders:
            if not os.path.isdir(folder):
                raise NoFiles(f"{folder} is not a folder")
        self._real = [os.path.realpath(folder) for folder in folders or ["."]]
        self._open: OrderedDict[tuple[str, int, int], Trace] = OrderedDict()

    @property
    def text(self) -> str:
        return ", ".join(self._real)

    def path(self, given: str) -> str:
        """Return the real path of a file or folder; a relative one is looked for in each folder.

        Raise Outside for a path that leads out of the folders, whether it exists or not, and FileNotFoundError for one
        in them that does not exist.
        """
        if "://" in given:
            raise Outside(f"{shown(given)} is a URL; only files in {self.text} are read")
        found = [os.path.realpath(os.path.join(folder, given)) for folder in self._real]
        inside = [path for path in found if self.holds(path)]
        if not inside:
            raise Outside(f"{shown(given)} is outside of the folders that may be read: {self.text}")
        existing = [path for path in inside if os.path.lexists(path)]
        if not existing:
            near = [name for name in close_names(inside[0]) if self.holds(os.path.realpath(name))]
            hint = f"; did you mean {os.path.basename(near[0])!r}?" if near else "; open(path='.') lists the traces"
            raise FileNotFoundError(f"there is no {shown(given)} in {self.text}{hint}")
        return existing[0]

    @contextmanager
    def opened(self, given: str) -> Iterator[tuple[str, IO[bytes]]]:
        """Open a file that may be a trace, as path(), and give its real path and the file.

        No link is followed on the way, so that one that has just been put there leads nowhere. Raise ValueError for a
        folder, for a pipe or a device, which may never end, and for what only another program reads.
        """
        real = self.path(given)
        name = os.path.basename(real)
        if os.path.isdir(real):
            raise ValueError(f"{name} is a folder; open lists the traces in it")
        with open(real, "rb", buffering=0, opener=self._open_beneath) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{name} is not a regular file")
            if start_of(file).startswith(REPORT):
                raise ValueError(
                    f"{name} is a report of Nsight Systems, which only nsys reads, and no program is run here: nsys "
                    f"export --type sqlite --output REPORT.sqlite REPORT.nsys-rep, and open REPORT.sqlite"
                )
            yield real, file

    def _open_beneath(self, real: str, flags: int) -> int:
        """Open a real path in one of the folders, one name after the other."""
        folder = self._folder_of(real)
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        names = os.path.relpath(real, folder).split(os.sep)
        for place, name in enumerate(names, 1):
            above = descriptor
            try:
                descriptor = os.open(name, flags | (os.O_DIRECTORY if place < len(names) else 0), dir_fd=above)
            except OSError as problem:
                if problem.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise Outside(f"{shown(real)} was replaced while it was opened") from None
                raise
            finally:
                os.close(above)
        return descriptor

    def trace(self, given: str) -> Trace:
        """Return the trace of a file, as opened(). It is read once as long as the file does not change."""
        with self.opened(given) as (path, file):
            status = os.fstat(file.fileno())
            key = (path, status.st_mtime_ns, status.st_size)
            if key not in self._open:
                trace = Trace(read_open(file, path))
                for old in [old for old in self._open if old[0] == path]:
                    del self._open[old]
                self._open[key] = trace
        self._open.move_to_end(key)
        while len(self._open) > 1 and (
            len(self._open) > MOST_TRACES or sum(map(len, self._open.values())) > MOST_EVENTS
        ):
            self._open.popitem(last=False)
        return self._open[key]

    def holds(self, real: str) -> bool:
        """Return whether a real path is one of the folders or in one."""
        return any(os.path.commonpath([folder, real]) == folder for folder in self._real)

    def files(self, folder: str, likely: Iterable[str]) -> tuple[list[tuple[str, int]], int]:
        """Return (path, bytes) of the files below a folder whose names end in one of ``likely``, and how many there
        are: at most LISTED are returned. Paths are as path() takes them. Links that lead out are left out."""
        ends, count = tuple(likely), 0
        found: list[tuple[str, int]] = []
        for here, below, names in os.walk(folder):
            deep = os.path.relpath(here, folder).count(os.sep) + 1 >= DEEPEST
            below[:] = [] if deep else sorted(name for name in below if not name.startswith("."))
            for path in (os.path.join(here, name) for name in sorted(names) if not name.startswith(".")):
                size = self._size(path) if path.endswith(ends) else None
                if size is not None:
                    count += 1
                    short = os.path.relpath(path, self._folder_of(path))
                    found += [(short, size)] if count <= LISTED else []
        return found, count

    def _size(self, path: str) -> int | None:
        """Return the size of a regular file in the folders; None for what is none."""
        try:
            status = os.stat(path)
        except OSError:  # it was removed meanwhile, or is a link to nothing
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) and self.holds(os.path.realpath(path)) else None

    def _folder_of(self, real: str) -> str:
        return next(folder for folder in self._real if os.path.commonpath([folder, real]) == folder)

"""Atomic file writes through a temporary file and a rename, and validated reads of stored JSON."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, NoReturn

Name = str | bytes | PathLike[str] | PathLike[bytes]

MAX_BYTES = 64 << 20  # of a stored file
COMPRESSION = 3  # of traces by gzip; higher levels take more time for little less space
MOST_COMPARED = 10_000  # names of a folder that are compared with a wrong one
_DESCRIPTORS = re.compile(r"/proc/[^/]+(/task/[^/]+)?/fd|/dev/fd")
_IS_FOLDER = "it is a folder; name a file in it"


@contextmanager
def replacing(path: Name, mode: Literal["w", "wb"] = "w", *, follow: bool = True, **options: Any) -> Iterator[IO[Any]]:
    """Open a file for writing; its content replaces ``path`` when the block ends without an exception.

    ``mode`` is "w" (UTF-8) or "wb"; ``options`` are passed to open(). Until the block ends, and after a full disk, an
    exception or SIGKILL, an existing file is unchanged; a killed process leaves a hidden temporary file.

    As with open(), symbolic links are followed, the mode of a new file follows the umask, and an existing file keeps
    its mode (and, where permitted, its owner; other hard links keep the old content). Anything but a regular file (a
    FIFO, /dev/stdout) is written directly. Nothing is synchronised to the disk.

    follow: False: the name itself is replaced by a new file, whatever but a folder it named; no other file is written.

    Every OSError, including those raised in the block, names ``path``: IsADirectoryError; FileNotFoundError for a
    missing folder; PermissionError, also for a read-only file.
    """
    if mode == "w":
        options.setdefault("encoding", "utf-8")
    name = os.fsdecode(path)
    with _naming(name):
        target = _target_of(name) if follow else Path(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
        if target is None:
            with open(name, mode, **options) as stream:
                yield stream
            return
        scratch, descriptor = _create_scratch(target, follow)
        try:
            with open(descriptor, mode, **options) as stream:
                yield stream
            try:
                os.replace(scratch, target)
            except OSError as problem:
                raise OSError(problem.errno, problem.strerror, str(target)) from None
        finally:
            scratch.unlink(missing_ok=True)


def require_writable(path: Name) -> None:
    """Raise the OSError that ``replacing`` would raise for this path now. Nothing is written to it."""
    name = os.fsdecode(path)
    with _naming(name):
        target = _target_of(name)
        if target is not None:
            scratch, descriptor = _create_scratch(target, True)
            os.close(descriptor)
            scratch.unlink()


def write_json(path: Name, content: Any, *, follow: bool = True) -> None:
    """Write a JSON file through ``replacing``, with its ``follow``. Raise ValueError for NaN and infinities before the
    file is opened."""
    text = json.dumps(content, indent=1, allow_nan=False)
    with replacing(path, follow=follow) as stream:
        stream.write(f"{text}\n")


def close_names(name: str) -> list[str]:
    """Return up to three paths beside ``name`` whose names are similar to its own, the closest first."""
    folder, base = os.path.split(name)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in islice(entries, MOST_COMPARED)]
    except (OSError, ValueError):
        return []
    import difflib

    return [os.path.join(folder, one) for one in difflib.get_close_matches(base, names, n=3, cutoff=0.7)]


def read_json(path: Path) -> Any:
    """Read a stored JSON file with untrusted content. Raise ValueError, naming the file, if it is not valid JSON.

    ValueError is also raised for NaN and Infinity, for content that is too long or nested too deeply, and for anything
    but a regular file, which is never waited for. FileNotFoundError and other OSErrors propagate.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file")
    with open(path, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path} is not valid JSON: it is longer than {MAX_BYTES >> 20} MB")
    try:
        return json.loads(content.decode("utf-8"), parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError(f"{path} is not valid JSON: it is nested too deeply") from None
    except ValueError as problem:
        raise ValueError(f"{path} is not valid JSON: {problem}") from None


def refuse_constant(constant: str) -> NoReturn:
    """Raise ValueError for NaN and Infinity, which json.loads() takes."""
    raise ValueError(f"{constant} is not JSON")


# The target -----------------------------------------------------------------------------------------------------------


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Add the file's name to OSErrors that have none."""
    try:
        yield
    except OSError as problem:
        if problem.errno is None or problem.filename is not None:
            raise
        raise OSError(problem.errno, problem.strerror, name) from problem


def _target_of(name: str) -> Path | None:
    """Return the file to replace, or None if it is written directly. Raise the OSErrors that open() would raise."""
    path = name
    for _ in range(40):  # the limit of Linux
        if _DESCRIPTORS.fullmatch(os.path.realpath(os.path.dirname(path) or ".")):
            return None  # an open file, which a rename would not replace
        if not os.path.islink(path):
            break
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    try:
        status = os.stat(name)
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder}; create it first", name) from None
        return Path(os.path.realpath(folder), os.path.basename(path))
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, _IS_FOLDER, name)
    if not stat.S_ISREG(status.st_mode):
        return None
    if not os.access(name, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
    return Path(os.path.realpath(name))


def _create_scratch(target: Path, follow: bool) -> tuple[Path, int]:
    """Create a temporary file, with the target's mode if that is followed."""
    old = target.stat() if follow and target.exists() else None
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
    scratch = target.parent / f".flopscope-{os.urandom(8).hex()}.tmp"
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode & 0o777)
    except OSError as problem:
        why = f"cannot create a file in {target.parent}: {problem.strerror}"
        raise OSError(problem.errno, why, str(target)) from None
    if old is not None:
        with suppress(PermissionError):  # only root may change the owner
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, mode)
    return scratch, descriptor

"""Files that are whole: written beside their target and renamed; and what was stored, read without trusting it."""

from __future__ import annotations

import binascii
import errno
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any, NoReturn

__all__ = ["read_json", "replacing", "require_file", "write_json"]

Name = str | bytes | PathLike[str] | PathLike[bytes]

STALE_SECONDS = 24 * 3600  # after which another machine's temporary file counts as left behind
MOST_BYTES = 64 << 20  # of a stored file
PIECE = 1 << 20  # bytes that are copied at once
# A folder that takes no new file, or a target that cannot be renamed over: a sticky folder, or a mount on the file.
_IN_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
_DESCRIPTORS = re.compile(r"/proc/[^/]+(/task/[^/]+)?/fd|/dev/fd")
_TEMPORARY = re.compile(r"\.flopscope-([0-9a-f]{8})-([0-9]{1,10})-[0-9a-f]{8}\.tmp")
_NO_FOLDER = "it is a folder; name a file in it"
_ours: set[str] = set()  # temporary files that this process is writing


@contextmanager
def replacing(path: Name, mode: str = "w", **options: Any) -> Iterator[IO[Any]]:
    """Open a file to write: what is written takes the place of ``path`` when the block ends without an exception.

    mode: "w" (UTF-8) or "wb". options: open()'s. Until the end, and after a full disk, an exception or SIGKILL, the
    file that was there stays as it was. What a killed process left is removed when its folder is next written to.

    As with open(), a symbolic link is written through, a new file's mode follows the umask and an existing file keeps
    its mode (and, as far as permitted, its owner; other hard links keep the old content). What is no regular file (a
    FIFO, /dev/stdout) is written directly. So is a file that cannot be replaced, since its folder cannot be written,
    or since it is a mount point: an error then leaves that file incomplete. Nothing is synchronised to the disk.

    OSErrors, those of the block too, name ``path``: IsADirectoryError, FileNotFoundError for a missing folder,
    PermissionError also for a read-only file.
    """
    if mode not in ("w", "wb"):
        raise ValueError(f'mode is "w" or "wb", not {mode!r}')
    if mode == "w":
        options.setdefault("encoding", "utf-8")
    named = os.fsdecode(path)
    with _naming(named):
        target = _target_of(named)
        beside, descriptor = (None, None) if target is None else _create_beside(target)
        if target is None or beside is None or descriptor is None:
            with open(named, mode, **options) as stream:
                yield stream
            return
        try:
            with open(descriptor, mode, **options) as stream:
                yield stream
            _put(beside, target)
        finally:
            beside.unlink(missing_ok=True)
            _ours.discard(beside.name)


def write_json(path: Name, content: Any) -> None:
    """Write a JSON file, as ``replacing`` does. ValueError for NaN and infinities, before the file is opened."""
    text = json.dumps(content, indent=1, allow_nan=False)
    with replacing(path) as stream:
        stream.write(f"{text}\n")


def require_file(path: Path) -> None:
    """ValueError where something other than a regular file has that name: a folder, a FIFO, a device."""
    with suppress(FileNotFoundError, NotADirectoryError):
        _refuse_special(path, path.stat().st_mode)


def read_json(path: Path) -> Any:
    """Read a stored JSON file whose content may be anything. ValueError, naming the file, for what is no JSON.

    That includes other things than files, which are not waited for, NaN and Infinity, and what is nested too deeply or
    too long. FileNotFoundError and other OSErrors pass.
    """
    require_file(path)
    with open(path, "rb", opener=_open_at_once) as file:
        _refuse_special(path, os.fstat(file.fileno()).st_mode)  # what it is now
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} is no stored JSON: it is longer than {MOST_BYTES >> 20} MB")
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"{path} is no stored JSON: it is nested too deeply") from None
    except ValueError as problem:
        raise ValueError(f"{path} is no stored JSON: {problem}") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _refuse_special(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        raise ValueError(f"{path} is {kinds.get(stat.S_IFMT(mode), 'a device')}, not a file")


# The target -----------------------------------------------------------------------------------------------------------


@contextmanager
def _naming(named: str) -> Iterator[None]:
    """OSErrors without a file's name get this one."""
    try:
        yield
    except OSError as problem:
        if problem.errno is None or problem.filename is not None:
            raise
        raise OSError(problem.errno, problem.strerror, named) from problem


def _target_of(named: str) -> Path | None:
    """The file to replace; None for what is written directly. Raises what open() would."""
    path = named
    for _ in range(40):  # as many links as Linux follows
        if _DESCRIPTORS.fullmatch(os.path.realpath(os.path.dirname(path) or ".")):
            return None  # an open file: a rename would take its name from it
        if not os.path.islink(path):
            break
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    try:
        found = os.stat(named)
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder}; make it first", named) from None
        return Path(os.path.realpath(folder), os.path.basename(path))
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, _NO_FOLDER, named)
    if not stat.S_ISREG(found.st_mode):
        return None
    if not os.access(named, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), named)
    return Path(os.path.realpath(named))


def _create_beside(target: Path) -> tuple[Path, int] | tuple[None, None]:
    """A temporary file with the target's mode, open. None where the folder takes no file, but the target is there."""
    sweep(target.parent)
    old = target.stat() if target.exists() else None
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
    beside = target.parent / f".flopscope-{_machine()}-{os.getpid()}-{os.urandom(4).hex()}.tmp"
    _ours.add(beside.name)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode & 0o777)
    except OSError as problem:
        _ours.discard(beside.name)
        if old is not None and problem.errno in _IN_PLACE:
            return None, None
        why = f"cannot make a file in {target.parent}: {problem.strerror}"
        raise OSError(problem.errno, why, str(target)) from None
    if old is not None:
        with suppress(PermissionError):  # only root gives files away
            os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, mode)
    return beside, descriptor


def _put(beside: Path, target: Path) -> None:
    """Rename; copy where the target cannot be renamed over."""
    try:
        os.replace(beside, target)
    except OSError as problem:
        if problem.errno not in _IN_PLACE or not target.exists():
            raise OSError(problem.errno, problem.strerror, str(target)) from None
        with beside.open("rb") as whole, target.open("wb") as stream:
            while piece := whole.read(PIECE):
                stream.write(piece)


# What killed processes leave ------------------------------------------------------------------------------------------


def sweep(folder: Path) -> None:
    """Remove the temporary files of ``replacing`` whose process is gone; other machines' after a day."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _TEMPORARY.fullmatch(entry.name)
            if match is not None and entry.is_file(follow_symlinks=False) and _is_stale(entry, match[1], int(match[2])):
                with suppress(OSError):
                    os.unlink(entry.path)


def _is_stale(entry: os.DirEntry[str], machine: str, pid: int) -> bool:
    if machine == _machine() and pid == os.getpid():
        return entry.name not in _ours  # of an earlier process with the same number
    if machine == _machine() and not _is_alive(pid):
        return True
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_SECONDS


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _machine() -> str:
    """What tells this machine, since it started, and the process ids in use here (a container's own) from others."""
    told = [os.uname().nodename]
    with suppress(OSError):
        told.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
    with suppress(OSError):
        told.append(os.readlink("/proc/self/ns/pid"))
    return f"{binascii.crc32(os.fsencode(' '.join(told))):08x}"

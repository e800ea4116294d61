"""The traces in folders and of patterns: ``load_traces()``."""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from flopscope.sources.load import NotATrace, Trace, load_trace
from flopscope.support.safe import printable

__all__ = ["PATTERNS", "find_traces", "load_traces", "natural_order"]

MAGIC = re.compile(r"[*?]|\[[^\]]+\]")

PATTERNS = ("*.json", "*.json.gz", "*.json.zst", "*.pt.trace.json*")
SHOWN = 3  # skipped files that a warning names


class _Found(NamedTuple):
    """What a source stands for."""

    paths: list[str]
    searched: bool = False  # a folder or a pattern: what is no trace is skipped
    skipped: tuple[str, ...] = ()  # names of files that are no traces according to their names


def load_traces(*sources: str | os.PathLike[str], max_bytes: int | None = None) -> list[Trace]:
    """Read the traces of files, of folders and of patterns such as ``"runs/*/rank*.json.gz"``; ``**`` matches folders.

    A folder stands for the traces in it: \\*.json, \\*.json.gz, \\*.json.zst and \\*.pt.trace.json\\*, not those in its
    own folders. The traces of a folder or a pattern are in natural order, rank2 before rank10. Files in it that are
    something else than a trace are skipped, and a UserWarning counts them. ``max_bytes`` and errors of each file as in
    load_trace(): a damaged trace, and any file that is named itself, is an error. Raise ValueError if a folder or a
    pattern has no trace.
    """
    traces: list[Trace] = []
    for source in sources:
        found = _find(os.fspath(source))
        read, skipped = _load(found, max_bytes)
        if not read:
            raise ValueError(printable(f"{os.fspath(source)}: none of its files is a trace: {skipped[0]}"))
        if skipped:
            _warn(os.fspath(source), skipped)
        traces += read
    return traces


def find_traces(source: str) -> list[str]:
    """Return the files that a path stands for, as load_traces() finds them. Raise ValueError if there are none."""
    return _find(source).paths


def _load(found: _Found, max_bytes: int | None) -> tuple[list[Trace], list[str]]:
    """Return the traces, and the names of the files that are none, with the reason where the name does not give it."""
    traces, skipped = [], []
    for path in found.paths:
        try:
            traces.append(load_trace(path, max_bytes=max_bytes))
        except NotATrace as problem:
            if not found.searched:
                raise
            skipped.append(f"{os.path.basename(path)} ({problem.brief})")
    return traces, [*skipped, *found.skipped]


def _warn(source: str, skipped: list[str]) -> None:
    count = len(skipped)
    what = "1 file that is not a trace was" if count == 1 else f"{count:,} files that are not traces were"
    warnings.warn(printable(f"{source}: {what} skipped: {_listed(skipped)}"), UserWarning, stacklevel=3)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


# Finding --------------------------------------------------------------------------------------------------------------


def _find(source: str) -> _Found:
    if not isinstance(source, str):
        raise TypeError(f"a trace must be named by a text or a path, not {source!r}")
    if os.path.isdir(source):
        return _in_folder(source)
    if MAGIC.search(source) and not os.path.lexists(source):
        return _of_pattern(source)
    return _Found([source])


def _in_folder(folder: str) -> _Found:
    with os.scandir(folder) as entries:
        kinds = {entry.name: entry.is_dir() for entry in entries}
    files = natural_order(name for name, is_folder in kinds.items() if not is_folder)
    chosen = [name for name in files if not name.startswith(".") and _is_named_as_trace(name)]
    others = tuple(name for name in files if name not in set(chosen))
    if not chosen:
        raise ValueError(printable(_empty(folder, others, [name for name, is_folder in kinds.items() if is_folder])))
    return _Found([os.path.join(folder, name) for name in chosen], True, others)


def _empty(folder: str, files: tuple[str, ...], folders: list[str]) -> str:
    has = [f"{what}: {_listed(found)}" for what, found in (("files", files), ("folders", folders)) if found]
    inside = f"; {os.path.join(folder, '**', '*.json*')!r} also looks in its folders" if folders else ""
    return (
        f"{folder}: no trace is in this folder; {', '.join(PATTERNS)} were looked for{inside}. "
        f"It {'has other ' + '; other '.join(has) if has else 'is empty'}"
    )


def _of_pattern(pattern: str) -> _Found:
    matches = natural_order(glob.iglob(pattern, recursive=True))
    files = [path for path in matches if not os.path.isdir(path)]
    if files:
        return _Found(files, True)
    paths, skipped = [], []
    for folder in matches:
        try:
            found = _in_folder(folder)
        except ValueError:
            skipped.append(f"{folder} (a folder without traces)")
        else:
            paths += found.paths
            skipped += found.skipped
    if not paths:
        raise ValueError(
            printable(f"{pattern}: no file matches this pattern{', only folders without traces' * bool(skipped)}")
        )
    return _Found(paths, True, tuple(skipped))


def _is_named_as_trace(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in PATTERNS)


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort the names with the numbers in them as numbers."""
    return sorted(names, key=lambda name: ([_part(part) for part in re.split(r"([0-9]+)", name)], name))


def _part(text: str) -> tuple[int, str]:
    """Return a key of a part of a name that is a number, of any length, or has none."""
    number = text.lstrip("0")
    return (len(number), number) if text.isascii() and text.isdecimal() else (0, text)

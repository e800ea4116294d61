"""The files that a path, a folder or a pattern selects."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from flopscope.sources.rocprof import read_beside
from flopscope.support.safe import printable

MAGIC = re.compile(r"[*?]|\[[^\]]+\]")

PATTERNS = (
    *("*.json", "*.json.gz", "*.json.zst", "*.pt.trace.json*", "*.sqlite", "*.db"),
    *("*_kernel_trace.csv", "*_counter_collection.csv"),
)
SHOWN = 3  # skipped files that a warning names


class Found(NamedTuple):
    """The files that a source selects."""

    paths: list[str]
    searched: bool = False  # a folder or a pattern: files that are not traces are skipped
    skipped: tuple[str, ...] = ()  # files whose names are not those of traces


def listed(names: Sequence[str]) -> str:
    """Return the first names as a text, with the number of the others."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def find_traces(source: str) -> Found:
    """Return the traces that a path, a folder or a pattern selects.

    Files of rocprofv3 that are read together with its trace of kernels are neither listed nor skipped.
    """
    if not isinstance(source, str):
        raise TypeError(f"a trace must be named by a text or a path, not {source!r}")
    if os.path.isdir(source):
        return _in_folder(source)
    if MAGIC.search(source) and not os.path.lexists(source):
        return _of_pattern(source)
    return Found([source])


def _in_folder(folder: str) -> Found:
    with os.scandir(folder) as entries:
        kinds = {entry.name: entry.is_dir() for entry in entries}
    files = natural_order(name for name, is_folder in kinds.items() if not is_folder)
    beside = read_beside(files)
    files = [name for name in files if name not in beside]
    chosen = [name for name in files if not name.startswith(".") and any(fnmatchcase(name, like) for like in PATTERNS)]
    named = set(chosen)
    others = tuple(name for name in files if name not in named)
    if not chosen:
        raise ValueError(printable(_empty(folder, others, [name for name, is_folder in kinds.items() if is_folder])))
    return Found([os.path.join(folder, name) for name in chosen], True, others)


def _empty(folder: str, files: tuple[str, ...], folders: list[str]) -> str:
    has = [f"{what}: {listed(found)}" for what, found in (("files", files), ("folders", folders)) if found]
    inside = f"; {os.path.join(folder, '**', '*.json*')!r} also looks in its folders" if folders else ""
    return (
        f"{folder}: no trace is in this folder; {', '.join(PATTERNS)} were looked for{inside}. "
        f"It {'has other ' + '; other '.join(has) if has else 'is empty'}"
    )


def _of_pattern(pattern: str) -> Found:
    matches = natural_order(glob.iglob(pattern, recursive=True))
    files = [path for path in matches if not os.path.isdir(path)]
    if files:
        beside = read_beside(files)
        return Found([path for path in files if path not in beside], True)
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
    return Found(paths, True, tuple(skipped))


def natural_order(names: Iterable[str]) -> list[str]:
    """Sort the names with the numbers in them as numbers."""
    return sorted(names, key=lambda name: ([_part(part) for part in re.split(r"([0-9]+)", name)], name))


def _part(text: str) -> tuple[int, str]:
    """Return a key of a part of a name that is a number, of any length, or has none."""
    number = text.lstrip("0")
    return (len(number), number) if text.isascii() and text.isdecimal() else (0, text)

"""The files that a path, a folder or a pattern selects."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from flopscope.support.safe import printable

MAGIC = re.compile(r"[*?]|\[[^\]]+\]")

PATTERNS = (
    *("*.json", "*.json.gz", "*.json.zst", "*.pt.trace.json*", "*.sqlite", "*.db"),
    *("*.xplane.pb", "*.xplane.pb.gz", "*.pftrace", "*.pftrace.gz"),
)
XPLANE = re.compile(r"(.*)\.xplane\.pb(\.gz)?$")
RUNS = os.path.join("plugins", "profile")
SHOWN = 3  # skipped files that a warning names


class NoFiles(FileNotFoundError, ValueError):
    """Raised where no file is, as of an absent one, or none that can be opened."""


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

    In a folder of JAX's profiler, the recordings of the newest run are selected.
    """
    if os.path.isdir(source):
        return _in_folder(newest_run(source))
    if MAGIC.search(source) and not os.path.lexists(source):
        return _of_pattern(source)
    return Found([source])


def newest_run(folder: str) -> str:
    """Return the folder of the newest run in a folder that JAX's or TensorFlow's profiler wrote; others unchanged."""
    runs = os.path.join(folder, RUNS)
    if not os.path.isdir(runs):
        return folder
    with os.scandir(runs) as entries:
        found = [(entry.stat().st_mtime_ns, entry.name) for entry in entries if entry.is_dir()]
    return os.path.join(runs, max(found)[1]) if found else folder


def recording_in(folder: str) -> str:
    """Return the recording of the newest run of JAX's profiler in a folder, if there is exactly one; else the folder.

    Raise ValueError if there are several.
    """
    run = newest_run(folder)
    hosts = hosts_in(run)
    if len(hosts) > 1:
        raise ValueError(
            f"it holds the recordings of {len(hosts)} hosts ({listed(hosts)}): give the folder to load_ranks(), to "
            f"load_traces() or to flopscope table, or name one of them"
        )
    return os.path.join(run, hosts[0]) if hosts else folder


def hosts_in(folder: str) -> list[str]:
    """Return the names of the recordings of JAX's profiler in a folder: one for each host."""
    try:
        return natural_order(name for name in os.listdir(folder) if XPLANE.match(name))
    except OSError:
        return []


def _recorded(names: Sequence[str]) -> list[str]:
    """Return the files but for what JAX's profiler writes beside a recording: parts of its events, for viewers."""
    recordings = [match[1] for match in map(XPLANE.match, names) if match]
    beside = {os.path.join(os.path.dirname(stem), "perfetto_trace.json.gz") for stem in recordings}
    beside |= {f"{stem}.trace.json.gz" for stem in recordings}
    return [name for name in names if name not in beside]


def _in_folder(folder: str) -> Found:
    with os.scandir(folder) as entries:
        kinds = {entry.name: entry.is_dir() for entry in entries}
    files = _recorded(natural_order(name for name, is_folder in kinds.items() if not is_folder))
    chosen = [name for name in files if not name.startswith(".") and any(fnmatchcase(name, like) for like in PATTERNS)]
    named = set(chosen)
    others = tuple(name for name in files if name not in named)
    if not chosen:
        raise NoFiles(printable(_empty(folder, others, [name for name, is_folder in kinds.items() if is_folder])))
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
        return Found(_recorded(files), True)
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
        raise NoFiles(
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

"""The traces in folders and of patterns: ``load_traces()``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache, partial

from flopscope.read.graphs import Source
from flopscope.read.load import GraphCaptures, NotATrace, read, read_captures
from flopscope.read.paths import Found, find_traces, listed
from flopscope.read.trace import Trace
from flopscope.support.safe import printable
from flopscope.support.suggest import suggesting
from flopscope.support.warn import warn_user


@suggesting
def load_traces(
    *sources: str | os.PathLike[str],
    max_bytes: int | None = None,
    captures: Source | Iterable[Source] | None = None,
) -> list[Trace]:
    """Read the traces of files, of folders and of patterns such as ``"runs/*/rank*.json.gz"``; ``**`` matches folders.

    A folder stands for the traces in it: \\*.json, \\*.json.gz, \\*.json.zst, \\*.pt.trace.json\\*, \\*.sqlite, \\*.db,
    \\*.xplane.pb and \\*.pftrace, not those in its own folders. The traces of a folder or a pattern are in natural
    order, rank2 before rank10. Files in it that are not traces are skipped, and a UserWarning counts them.
    ``max_bytes``, ``captures`` and errors of each file as in load_trace(): a damaged trace, and any file that is named
    itself, is an error. Raise ValueError if a folder or a pattern has no trace.
    """
    # All traces share what is read of the captures, once a trace needs it.
    captured = None if captures is None else cache(partial(read_captures, captures, max_bytes))
    traces: list[Trace] = []
    for source in sources:
        if not isinstance(source, (str, os.PathLike)):
            raise TypeError(f"load_traces() takes paths, load_traces(*paths), not {source!r}")
        found = find_traces(os.fspath(source))
        read, skipped = _load(found, max_bytes, captured)
        if not read:
            raise ValueError(printable(f"{os.fspath(source)}: none of its files is a trace: {skipped[0]}"))
        if skipped:
            _warn(os.fspath(source), skipped)
        traces += read
    return traces


def _load(
    found: Found, max_bytes: int | None, captures: Callable[[], GraphCaptures] | None
) -> tuple[list[Trace], list[str]]:
    """Return the traces, and the names of the files that are none, with the reason where the name does not give it."""
    traces, skipped = [], []
    for path in found.paths:
        try:
            traces.append(Trace(*read(path, max_bytes, captures)))
        except NotATrace as problem:
            if not found.searched:
                raise
            skipped.append(f"{os.path.basename(path)} ({problem.brief})")
    return traces, [*skipped, *found.skipped]


def _warn(source: str, skipped: list[str]) -> None:
    count = len(skipped)
    what = "1 file that is not a trace was" if count == 1 else f"{count:,} files that are not traces were"
    warn_user(printable(f"{source}: {what} skipped: {listed(skipped)}"))

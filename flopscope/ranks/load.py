"""``load_ranks()``: the traces of many ranks, each read and reduced by a worker."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from flopscope.ranks.digest import Digest, digest_of
from flopscope.ranks.engine import MISSING, Failure, run_everywhere, workers_for
from flopscope.ranks.notes import rank_notes
from flopscope.results.trace import load_trace
from flopscope.sources.paths import PATTERNS, find_traces, natural_order
from flopscope.support.safe import printable
from flopscope.support.suggest import suggesting
from flopscope.support.warn import warn_user

if TYPE_CHECKING:
    from flopscope.ranks.ranks import Ranks

__all__ = ["load_ranks"]

SHOWN = 3  # files that a warning names


@dataclass(frozen=True)
class _File:
    """What a task gets."""

    source: str
    place: int
    max_bytes: int | None


@suggesting
def load_ranks(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    client: Any = None,
    *,
    workers: int | None = None,
    max_bytes: int | None = None,
) -> Ranks:
    """Read the traces of the ranks of a distributed program, and keep a digest of each.

    paths: files, folders, patterns such as ``"runs/*/rank*.json.gz"``, and URLs that fsspec opens
        (``"s3://bucket/run7/*.json.gz"``, ``"gs://…"``, ``"https://…"``; a folder ends in "/"), one or several.
        Files are read as by load_trace().
    client: where they are read. None: processes of this machine. A ``dask.distributed.Client``, or the address of its
        scheduler: its workers, which need the same version of flopscope and access to the files.
    workers: number of processes on this machine; None: one per core, as far as memory allows.
    max_bytes: maximum size of each text, as in load_trace().

    The rank is the one in the trace's "distributedInfo", else the number after "rank" in the file's name, else the
    next free number in the order of the paths: Ranks.files says which. Files that cannot be read and second files of a
    rank are listed there with the reason and counted in a UserWarning; the rest is analysed. Ranks.notes says if ranks
    run different programs or recorded different steps.

    Raises ValueError if no file can be read, FileNotFoundError for a folder without traces or a pattern without
    matches, ImportError without Dask, and OSError if the scheduler cannot be reached.
    """
    from flopscope.ranks.ranks import Ranks

    sources = _sources(paths)
    if not sources:
        raise ValueError("load_ranks() needs at least one file")
    files = [_File(source, place, max_bytes) for place, source in enumerate(sources)]
    if workers is None:
        workers = workers_for([os.path.getsize(one) for one in sources if "://" not in one and os.path.exists(one)])
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    found = run_everywhere(_read, files, sources, client, workers)
    failures = [one for one in found if isinstance(one, Failure)]
    digests, more = _of_one_run([one for one in found if isinstance(one, Digest)])
    failures += more
    if not digests:
        which = "no file" if len(sources) == 1 else f"none of the {len(sources):,} files"
        raise ValueError(printable(f"{which} could be read: {_listed(failures)}"))
    if failures:
        some = "1 file is" if len(failures) == 1 else f"{len(failures):,} files are"
        message = f"{some} left out of {len(sources):,}: {_listed(failures)}; Ranks.files lists all"
        warn_user(printable(message))
    for note in rank_notes(digests):
        warn_user(note)
    return Ranks(digests, failures)


def _read(file: _File) -> Digest | Failure:
    """Read a file and reduce it. Runs in a worker; never raises."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if "://" in file.source:
                import fsspec

                with fsspec.open(file.source, "rb") as opened:
                    trace = load_trace(opened, max_bytes=file.max_bytes)
                trace.source = file.source
            else:
                trace = load_trace(file.source, max_bytes=file.max_bytes)
            digest = digest_of(trace, file.source, file.place)
        problems = [str(one.message).removeprefix(f"{file.source}: ") for one in caught]
        return replace(digest, problems=problems)
    except Exception as problem:  # whatever a file causes, the others are analysed
        text = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        text = text.removeprefix(f"{file.source}: ")
        return Failure(file.source, text if isinstance(problem, (ValueError, OSError, ImportError)) else repr(problem))


def _sources(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the files that the paths select."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    sources: list[str] = []
    for path in given:
        text = os.fspath(path)
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        sources += _remote(text) if "://" in text else find_traces(text).paths
    return list(dict.fromkeys(sources))


def _remote(url: str) -> list[str]:
    try:
        import fsspec
    except ImportError as problem:
        raise ImportError(MISSING) from problem
    is_pattern = glob.has_magic(url)
    if not is_pattern and not url.endswith("/"):
        return [url]
    system, path = fsspec.core.url_to_fs(url)
    folder = path.rstrip("/")
    patterns = [path] if is_pattern else [f"{folder}/{name}" for name in PATTERNS]
    found = natural_order({one for pattern in patterns for one in system.glob(pattern)})
    if not found:
        what = "file matches this pattern" if is_pattern else "trace is in this folder"
        raise FileNotFoundError(f"{url}: no {what}")
    return [system.unstrip_protocol(one) for one in found]


def _of_one_run(digests: Sequence[Digest]) -> tuple[list[Digest], list[Failure]]:
    """Return the digests by rank, and those that are second files of a rank. Files whose rank nothing names get the
    numbers that are free, in their order."""
    by_rank: dict[int, Digest] = {}
    failures = []
    for origin in ("trace", "file name"):
        for digest in (one for one in digests if one.identity.rank_from == origin):
            first = by_rank.setdefault(digest.rank, digest)
            if first is not digest:
                why = f"rank {digest.rank} was read from {first.identity.source} already"
                failures.append(Failure(digest.identity.source, why))
    free = (number for number in count() if number not in by_rank)
    unnamed = [one for one in digests if one.identity.rank_from == "order"]
    for digest, rank in zip(unnamed, list(islice(free, len(unnamed))), strict=True):
        by_rank[rank] = replace(digest, identity=replace(digest.identity, rank=rank))
    return [by_rank[rank] for rank in sorted(by_rank)], failures


def _listed(failures: Sequence[Failure]) -> str:
    listed = "; ".join(f"{os.path.basename(one.source)} ({one.reason})" for one in failures[:SHOWN])
    return f"{listed}; and {len(failures) - SHOWN:,} more" if len(failures) > SHOWN else listed

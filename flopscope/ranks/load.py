"""``load_ranks()``: the traces of many ranks, each read and reduced by a worker; ``stragglers()``: a few in memory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from flopscope.answers.words import form
from flopscope.ranks.calls import calls_of
from flopscope.ranks.digest import Digest, digest_of, listed
from flopscope.ranks.engine import Failure, run_each, workers_for
from flopscope.ranks.ranks import Ranks
from flopscope.ranks.stragglers import Stragglers
from flopscope.ranks.text import rank_notes
from flopscope.read.load import read_open
from flopscope.read.paths import find_traces
from flopscope.read.trace import Trace, load_trace
from flopscope.results.head import rank_of
from flopscope.results.process import base_time_of, require_different_processes, source_of
from flopscope.results.results import store_of
from flopscope.support.package import warn_user
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope.results.results import Results


class RankFile(NamedTuple):
    """What a task gets."""

    source: str
    place: int
    max_bytes: int | None = None
    opened: str = ""
    """Where it is open, in /proc: what may be under its name by now is not read."""


def load_ranks(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    workers: int | None = None,
    max_bytes: int | None = None,
) -> Ranks:
    """Read the traces of the ranks of a distributed program, and keep a digest of each.

    paths: files, folders and patterns such as ``"runs/*/rank*.json.gz"``, one or several. Files are read as by
        load_trace().
    workers: number of processes that read; None: one per core, as far as memory allows.
    max_bytes: maximum size of each text, as in load_trace().

    The rank is the one in the trace's "distributedInfo", else the number after "rank" in the file's name, else the
    next free number in the order of the paths: Ranks.files says which. Files that cannot be read and second files of a
    rank are listed there with the reason and counted in a UserWarning; the rest is analysed. Ranks.notes says if ranks
    run different programs or recorded different steps.

    Raises ValueError if no file can be read, and FileNotFoundError for a folder without traces or a pattern without
    matches.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    found = dict.fromkeys(source for path in given for source in find_traces(os.fsdecode(path)).paths)
    return ranks_of([RankFile(source, place, max_bytes) for place, source in enumerate(found)], workers)


def ranks_of(files: Sequence[RankFile], workers: int | None = None) -> Ranks:
    """Read the files as load_ranks() does."""
    sources = [file.source for file in files]
    if not sources:
        raise ValueError("load_ranks() needs at least one file")
    if workers is None:
        workers = workers_for([os.path.getsize(one) for one in sources if os.path.exists(one)])
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    ranks = Ranks(run_each(_read, files, sources, workers))
    if failures := ranks.comparison.failures:
        some = form(len(failures), "1 file is", f"{len(failures):,} files are")
        warn_user(printable(f"{some} left out of {len(sources):,}: {listed(failures)}; Ranks.files lists all"))
    for note in rank_notes(ranks.comparison.digests):
        warn_user(note)
    return ranks


def _read(file: RankFile) -> Digest | Failure:
    """Read a file and reduce it. Runs in a worker; never raises."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if file.opened:
                with open(file.opened, "rb", buffering=0) as opened:
                    trace = Trace(read_open(opened, file.source, file.max_bytes))
            else:
                trace = load_trace(file.source, max_bytes=file.max_bytes)
            digest = digest_of(trace, file.source, file.place)
        problems = [str(one.message).removeprefix(f"{file.source}: ") for one in caught]
        return replace(digest, problems=problems)
    except Exception as problem:  # whatever a file causes, the others are analysed
        text = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        text = text.removeprefix(f"{file.source}: ")
        if not isinstance(problem, (ValueError, OSError, ImportError)):
            text = repr(problem)
        return Failure(file.source, text, isinstance(problem, OSError))


# Traces in memory -----------------------------------------------------------------------------------------------------


def stragglers(traces: Sequence[Results] | Mapping[int, Results]) -> Stragglers:
    """Return which ranks wait for which in collectives, as Ranks.stragglers(), of a few loaded traces.

    traces: at least two, one of each rank: traces from load_trace(), whose "distributedInfo" names their rank, or a
        dict of traces by rank. For many ranks, load_ranks() reads the files and needs less memory.

    Raises ValueError for fewer than two traces, a trace without a rank, two traces of one rank or one process (such as
    two cycles of a schedule), and a trace with an invalid "distributedInfo" or "baseTimeNanoseconds".
    """
    if not isinstance(traces, Iterable):
        raise TypeError(f"stragglers() needs a sequence of traces, one of each rank, or a dict of them, not {traces!r}")
    if isinstance(traces, Mapping):
        by_rank = [(int(rank), trace) for rank, trace in traces.items()]
    else:
        by_rank = [(_rank_of(trace, place), trace) for place, trace in enumerate(traces)]
    if len(by_rank) < 2:
        raise ValueError(f"stragglers() needs the traces of at least two ranks, not of {len(by_rank)}")
    require_different_processes([trace for _, trace in by_rank])
    by_rank.sort(key=lambda pair: pair[0])
    bases = [base_time_of(trace, source_of(trace, place)) for place, (_, trace) in enumerate(by_rank)]
    found = [store_of(trace, "collectives").collectives()[0] for _, trace in by_rank]
    calls = [calls_of(one, base) for one, base in zip(found, bases, strict=True)]
    return Stragglers([rank for rank, _ in by_rank], calls)


def _rank_of(trace: Results, place: int) -> int:
    source = source_of(trace, place)
    if (rank := rank_of(trace.metadata, source)) is not None:
        return rank
    why = f'{source} does not name its rank (no "distributedInfo" in its metadata)'
    raise ValueError(f"{why}: pass a dict, {{rank: trace}}")

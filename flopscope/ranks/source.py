"""Sources of digests: any iterable of a Digest for each rank, and a Failure for each profile that has none.

load_ranks() makes one of files, which workers read. digests_of() makes one of profiles in memory. A list is one too,
such as one that a program has kept in a file. Ranks(source) compares the ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, TypeAlias

from flopscope.ranks.digest import Digest, digest_of
from flopscope.ranks.engine import Failure
from flopscope.read.paths import NoFiles
from flopscope.results.process import source_of
from flopscope.support.safe import printable

if TYPE_CHECKING:
    from flopscope.results.results import Results

Source: TypeAlias = Iterable[Digest | Failure]
SHOWN = 3  # files that a message names


def digests_of(profiles: Mapping[int, Results], peaks: str = "datasheet") -> Iterator[Digest | Failure]:
    """Yield what load_ranks() would read from the files of these profiles, which are given by rank. peaks: as in
    key_averages(). A profile with invalid metadata is a Failure."""
    for place, (rank, profile) in enumerate(sorted(profiles.items())):
        source = source_of(profile, place)
        try:
            digest = digest_of(profile, source, place, peaks)
        except ValueError as problem:
            yield Failure(source, str(problem).removeprefix(f"{source}: "))
        else:
            origin = digest.identity.rank_from if digest.rank == rank else "trace"
            yield replace(digest, identity=replace(digest.identity, rank=rank, rank_from=origin))


def of_one_run(source: Source) -> tuple[list[Digest], list[Failure]]:
    """Return the digests by rank, and what is left out, second digests of a rank among them.

    Profiles whose rank nothing names get the numbers that are free, in their order. Raise ValueError without a digest.
    """
    found = list(source)
    digests = [one for one in found if isinstance(one, Digest)]
    failures = [one for one in found if isinstance(one, Failure)]
    if not digests:
        which = f"none of the {len(found):,} files" if len(found) > 1 else "no file"
        kind = NoFiles if all(failure.unopened for failure in failures) else ValueError
        raise kind(printable(f"{which} could be read: {listed(failures)}"))
    by_rank: dict[int, Digest] = {}
    for origin in ("trace", "file name"):
        for digest in (one for one in digests if one.identity.rank_from == origin):
            first = by_rank.setdefault(digest.rank, digest)
            if first is not digest:
                why = f"rank {digest.rank} was read from {first.identity.source} already"
                failures.append(Failure(digest.identity.source, why))
    free = (number for number in count() if number not in by_rank)
    unnamed = [one for one in digests if one.identity.rank_from == "order"]
    for digest, rank in zip(unnamed, free, strict=False):
        by_rank[rank] = replace(digest, identity=replace(digest.identity, rank=rank))
    return [by_rank[rank] for rank in sorted(by_rank)], failures


def listed(failures: Sequence[Failure]) -> str:
    """Return the first of the failures as text."""
    first = "; ".join(f"{os.path.basename(one.source)} ({one.reason})" for one in failures[:SHOWN])
    return f"{first}; and {len(failures) - SHOWN:,} more" if len(failures) > SHOWN else first

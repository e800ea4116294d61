"""What a reader must know of the ranks before the findings: what is left out, what differs, what is uncertain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from flopscope.ranks.digest import Digest
from flopscope.ranks.engine import Failure
from flopscope.ranks.stragglers import Stragglers
from flopscope.ranks.work import Work
from flopscope.support.safe import printable
from flopscope.support.units import short_time_text

__all__ = ["notes_of", "rank_notes"]

SHOWN = 8
UNCERTAIN = 5.0  # µs of a clock, from which it is worth a line


def notes_of(digests: Sequence[Digest], failures: Sequence[Failure], work: Work, waits: Stragglers) -> list[str]:
    """Return the notes, a sentence each."""
    return [
        *_files(digests, failures),
        *(f"{_begun(note)}." for note in rank_notes(digests)),
        *_programs(digests, work),
        *_steps(digests, work),
        *_clocks(waits),
    ]


def _ranks(numbers: Sequence[int]) -> str:
    """Return "rank 3" or "ranks 3, 4, …"."""
    return f"rank {_numbers(numbers)}" if len(numbers) == 1 else f"ranks {_numbers(numbers)}"


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:SHOWN])) + (", …" if len(numbers) > SHOWN else "")


def _begun(text: str) -> str:
    return text[0].upper() + text[1:]


def _files(digests: Sequence[Digest], failures: Sequence[Failure]) -> list[str]:
    found = [f"Left out: {one.source}: {one.reason}" for one in failures[:SHOWN]]
    if len(failures) > SHOWN:
        found.append(f"{len(failures) - SHOWN:,} more files are left out: Ranks.files")
    dropped = sum(digest.dropped for digest in digests)
    if dropped:
        found.append(f"{dropped:,} events of the traces are in no table: Ranks.files")
    warned = [digest.rank for digest in digests if digest.problems]
    if warned:
        found.append(f"Reading {_ranks(warned)} issued warnings: Ranks.files")
    return [printable(text) for text in found]


def rank_notes(digests: Sequence[Digest]) -> list[str]:
    """Return what is to say if ranks are missing, or are not named by their traces."""
    notes = []
    guessed = [d for d in digests if d.identity.rank_from != "trace"]
    if guessed:
        how = sorted({d.identity.rank_from for d in guessed})
        origin = " or ".join("the order of the files" if one == "order" else f"the {one}" for one in how)
        verb = "trace does not name its" if len(guessed) == 1 else "traces do not name their"
        notes.append(f"{len(guessed):,} {verb} rank, which is taken from {origin}")
    sizes = sorted({d.identity.world_size for d in digests if d.identity.world_size is not None})
    if len(sizes) > 1:
        notes.append(f"the traces name different world sizes: {_numbers(sizes)}")
    elif sizes:
        notes += _absent(sizes[0], {digest.rank for digest in digests})
    return notes


def _absent(size: int, present: set[int]) -> list[str]:
    """Return what is to say of the ranks below the world size without a trace, and of traces beyond it. The size is a
    number in a file: the absent ranks are counted, and only the first are listed."""
    beyond = sorted(rank for rank in present if rank >= size)
    absent = size - (len(present) - len(beyond))
    first = list(islice((rank for rank in range(size) if rank not in present), SHOWN + 1))
    notes = [f"{absent:,} of {size:,} ranks have no trace: {_numbers(first)}"] if absent else []
    return notes + ([f"the traces name a world size of {size:,}, but are of {_ranks(beyond)} too"] if beyond else [])


def _programs(digests: Sequence[Digest], work: Work) -> list[str]:
    found = []
    idle = [digest.rank for digest, ops in zip(digests, work.ops, strict=True) if not ops]
    if idle and len(idle) < len(digests):
        found.append(f"{_begun(_ranks(idle))}: no op with work is recorded.")
    programs: dict[int, list[int]] = {}
    for digest, number, ops in zip(digests, work.program.tolist(), work.ops, strict=True):
        if ops:
            programs.setdefault(number, []).append(digest.rank)
    if len(programs) > 1:
        listed = "; ".join(_ranks(members) for members in list(programs.values())[:SHOWN])
        found.append(
            f"The ranks run {len(programs)} different programs, with less than half of their ops in common: {listed}. "
            "If the traces are of several runs, load each alone."
        )
    return found


def _steps(digests: Sequence[Digest], work: Work) -> list[str]:
    if not work.has_steps:
        marked = sum(digest.steps > 0 for digest in digests)
        if marked:
            return [
                f"{marked:,} of {len(digests):,} ranks have steps, but none that most ranks share: whole profiles are "
                "compared. Record the same steps on all ranks."
            ]
        return []
    lacking = np.where([len(ops) > 0 for ops in work.ops], np.isnan(work.total).sum(axis=1), 0)
    short = [digests[place].rank for place in np.flatnonzero(lacking).tolist()]
    if not short:
        return []
    return [f"{_begun(_ranks(short))}: up to {lacking.max()} of the {len(work.steps)} steps are not recorded there."]


def _clocks(waits: Stragglers) -> list[str]:
    frame = waits.ranks
    if len(frame) < 2 or not frame["collectives"].any():
        return []
    alone = frame[frame["clock_uncertainty"].isna() & (frame["aligned_with"] == frame["rank"])]
    parts = frame.loc[~frame["rank"].isin(alone["rank"]), "aligned_with"].nunique()
    found = []
    if len(alone):
        names = _ranks(alone["rank"].tolist())
        verb = "is not aligned: it shares" if len(alone) == 1 else "are not aligned: they share"
        found.append(f"The clock{'s' if len(alone) > 1 else ''} of {names} {verb} no collective with another rank.")
    if parts > 1:
        found.append(f"The ranks form {parts} sets that share no collective: clocks are aligned within each set only.")
    worst = frame["clock_uncertainty"].max()
    if worst > UNCERTAIN:
        found.append(f"Clocks are uncertain by up to {short_time_text(worst)}; shorter skews mean nothing.")
    return found

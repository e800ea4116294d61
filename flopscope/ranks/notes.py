"""What a reader must know of the ranks before the findings: what is left out, what differs, what is uncertain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from flopscope.answers.rank_sentences import first_of, ranks_text
from flopscope.answers.words import form
from flopscope.ranks.comparison import Comparison
from flopscope.ranks.digest import Digest
from flopscope.support.safe import printable
from flopscope.support.units import short_time_text

SHOWN = 8
UNCERTAIN = 5.0  # µs of a clock, from which it is worth a line


def notes_of(ranks: Comparison) -> list[str]:
    """Return the notes, a sentence each."""
    notes = [*_files(ranks), *(f"{note}." for note in rank_notes(ranks.digests)), *_programs(ranks), *_steps(ranks)]
    return [note[0].upper() + note[1:] for note in [*notes, *_clocks(ranks)]]


def _files(ranks: Comparison) -> Iterator[str]:
    for one in ranks.failures[:SHOWN]:
        yield printable(f"Left out: {one.source}: {one.reason}")
    if len(ranks.failures) > SHOWN:
        yield f"{len(ranks.failures) - SHOWN:,} more files are left out: Ranks.files"
    if dropped := sum(digest.dropped for digest in ranks.digests):
        yield f"{dropped:,} events of the traces are in no table: Ranks.files"
    if warned := [digest.rank for digest in ranks.digests if digest.problems]:
        yield f"Reading {ranks_text(warned, SHOWN)} issued warnings: Ranks.files"


def rank_notes(digests: Sequence[Digest]) -> list[str]:
    """Return what is to say if ranks are missing, or are not named by their traces."""
    notes = []
    if guessed := [d.identity.rank_from for d in digests if d.identity.rank_from != "trace"]:
        names = {"file name": "the file name", "order": "the order of the files"}
        origin = " or ".join(text for name, text in names.items() if name in guessed)
        verb = form(len(guessed), "trace does not name its", "traces do not name their")
        notes.append(f"{len(guessed):,} {verb} rank, which is taken from {origin}")
    sizes = sorted({d.identity.world_size for d in digests if d.identity.world_size is not None})
    if len(sizes) > 1:
        notes.append(f"the traces name different world sizes: {first_of(sizes, SHOWN)}")
    elif sizes:
        notes += _absent(sizes[0], {digest.rank for digest in digests})
    return notes


def _absent(size: int, present: set[int]) -> Iterator[str]:
    """Yield what is to say of the ranks below the world size without a trace, and of traces beyond it. The size is a
    number in a file: the absent ranks are counted, and only the first are listed."""
    beyond = sorted(rank for rank in present if rank >= size)
    if absent := size - (len(present) - len(beyond)):
        first = list(islice((rank for rank in range(size) if rank not in present), SHOWN + 1))
        yield f"{absent:,} of {size:,} ranks have no trace: {first_of(first, SHOWN)}"
    if beyond:
        yield f"the traces name a world size of {size:,}, but are of {ranks_text(beyond, SHOWN)} too"


def _programs(ranks: Comparison) -> Iterator[str]:
    programs: dict[int, list[int]] = {}
    idle: list[int] = []
    for digest, number, calls in zip(ranks.digests, ranks.work.program.tolist(), ranks.work.ops.calls, strict=True):
        (programs.setdefault(number, []) if calls else idle).append(digest.rank)
    if idle and programs:
        yield f"{ranks_text(idle, SHOWN)}: no op with work is recorded."
    if len(programs) > 1:
        listed = "; ".join(ranks_text(members, SHOWN) for members in list(programs.values())[:SHOWN])
        yield (
            f"The ranks run {len(programs)} different programs, with less than half of their ops in common: {listed}. "
            "If the traces are of several runs, load each alone."
        )


def _steps(ranks: Comparison) -> Iterator[str]:
    work, digests = ranks.work, ranks.digests
    if not work.has_steps:
        if marked := sum(digest.steps > 0 for digest in digests):
            yield (
                f"{marked:,} of {len(digests):,} ranks have steps, but none that most ranks share: whole profiles are "
                "compared. Record the same steps on all ranks."
            )
        return
    lacking = np.isnan(work.total).sum(axis=1) * np.array([len(calls) > 0 for calls in work.ops.calls])
    if short := ranks.numbers(np.flatnonzero(lacking)):
        count = f"{lacking.max()} of the {len(work.steps)} steps"
        yield f"{ranks_text(short, SHOWN)}: up to {count} are not recorded there."


def _clocks(ranks: Comparison) -> Iterator[str]:
    frame = ranks.stragglers.ranks
    if len(frame) < 2 or not frame["collectives"].any():
        return
    alone = frame["clock_uncertainty"].isna() & (frame["aligned_with"] == frame["rank"])
    if numbers := frame["rank"][alone].tolist():
        clocks = form(len(numbers), "clock", "clocks")
        verb = form(len(numbers), "is not aligned: it shares", "are not aligned: they share")
        yield f"The {clocks} of {ranks_text(numbers, SHOWN)} {verb} no collective with another rank."
    parts = frame["aligned_with"][~alone].nunique()
    if parts > 1:
        yield f"The ranks form {parts} sets that share no collective: clocks are aligned within each set only."
    worst = frame["clock_uncertainty"].max()
    if worst > UNCERTAIN:
        yield f"Clocks are uncertain by up to {short_time_text(worst)}; shorter skews mean nothing."

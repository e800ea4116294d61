"""The summary of ranks as text, and the notes that a reader must know before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from flopscope.answers.analysis import PARTS
from flopscope.answers.rank_sentences import NO_MATCH, first_of, ranks_text
from flopscope.answers.words import form
from flopscope.ranks.calls import median, row_medians
from flopscope.support.columns import Rows
from flopscope.support.safe import printable
from flopscope.support.units import bytes_text, percent_text, plural, short_time_text, tenths_text

if TYPE_CHECKING:
    import pandas

    from flopscope.ranks.digest import Digest
    from flopscope.ranks.findings import Comparison
    from flopscope.ranks.ranks import Ranks
    from flopscope.ranks.stragglers import Stragglers

FINDINGS = 8
RANKS = 8
HOSTS = 4
COLLECTIVES = 5
SKEWS = 5
RANKS_OF_STRAGGLERS = 32
PAGE_ROWS = 100
LEGEND = "±: standard error of the clocks"


def summary_parts(ranks: Ranks) -> list[str | Rows]:
    """Return the largest finding as the first line, then the others, the step, the collectives, the ranks and hosts
    waited for, and what is left out or uncertain."""
    found = ranks.findings
    lines: list[str | Rows] = [printable(ranks.verdict)]
    lines += [printable(f"What to do: {one.action}") for one in found[:1]]
    lines += ["", *(f"{number}. {printable(one.what)}" for number, one in enumerate(found[1:FINDINGS], 2))]
    lines += [f"   and {len(found) - FINDINGS} more: Ranks.findings"] * (len(found) > FINDINGS)
    lines += [""] * (len(found) > 1)
    for part in (_step(ranks), _collectives(ranks), _waited_for(ranks), _hosts(ranks), ranks.notes):
        lines += [*part, ""] if part else []
    return lines


def _step(ranks: Ranks) -> list[str]:
    work = ranks.comparison.work
    if not np.isfinite(work.total).any():
        return []
    head = plural(len(ranks), "rank")
    if work.has_steps:
        lines = [f"{head}, {plural(len(work.steps), 'step')}; median over ranks and steps:"]
    else:
        lines = [f"{head}, no steps in common; median over ranks:"]
    total = work.step_time
    for part in PARTS:
        values = work.part(part)
        by_rank, middle = row_medians(values), median(values)
        if not middle > 0 and not np.nanmax(by_rank) > 0.01 * total:
            continue
        line = f"  {part:<14}{short_time_text(middle):>9}  {percent_text(work.percent(middle)):>6}"
        if len(ranks) > 1:
            places = int(np.nanargmin(by_rank)), int(np.nanargmax(by_rank))
            ends = [(short_time_text(float(by_rank[at])), ranks.comparison.digests[at].rank) for at in places]
            line += f"   from {' to '.join(f'{time} (rank {rank})' for time, rank in ends)}"
        lines.append(line)
    totals = np.nanmedian(work.total, axis=0)
    whole, saving = float(totals.mean()), float(np.minimum(work.waiting, totals).mean())
    if saving > 0.005 * whole:
        what = "a step takes" if work.has_steps else "the program takes"
        lines.append(
            f"  Without stragglers, {what} about {short_time_text(whole - saving)} instead of "
            f"{short_time_text(whole)} ({percent_text(100 * saving / whole)} less)."
        )
    return lines


def _collectives(ranks: Ranks) -> list[str | Rows]:
    frame = ranks.collectives(by_group=False)
    if not len(frame):
        return []
    weight = (frame["groups"] * frame["ranks"]).to_numpy(np.float64)
    waited, time = (float((frame[name].to_numpy(np.float64) * weight).sum()) for name in ("waited", "time"))
    share = percent_text(100 * waited / time if time > 0 else float("nan"))
    step = "step and rank" if ranks.comparison.work.has_steps else "rank"
    more = f"  {COLLECTIVES} of {len(frame)} kinds and sizes: Ranks.collectives() has all, by group"
    return [
        "Collectives by size: arrival and transfer",
        _table(frame.head(COLLECTIVES), _SIZES),
        f"  {share} of the time in collectives is waiting for the last rank",
        f"  waited, exposed (nothing computed): per {step}; {LEGEND}",
        *[more] * (len(frame) > COLLECTIVES),
    ]


def _waited_for(ranks: Ranks) -> list[str | Rows]:
    found = ranks.stragglers()
    if len(ranks) < 2:
        return []
    if not found.ranks["collectives"].any():
        return [NO_MATCH.format("who waits for whom")]
    title = "Ranks that others waited for longest" if len(ranks) > RANKS else "Ranks: who waits for whom"
    return [title, *_rank_rows(found, RANKS)]


def _hosts(ranks: Ranks) -> list[str | Rows]:
    frame = ranks.hosts()
    if len(frame) < 2 or not frame["awaited"].any():
        return []
    return ["Hosts that others waited for longest", _table(frame.head(HOSTS), _HOSTS)]


def page_tables(ranks: Ranks) -> dict[str, list[str | Rows]]:
    """Return the tables of the page by their titles: of each the rows with the most time.

    They have the columns that the summary prints, with more rows; the methods of Ranks return all rows and columns. A
    note says how many rows there are where some are left out, and what the words of the header mean.
    """
    per = " in a step" if ranks.comparison.work.has_steps else ""
    tables = {
        "Hosts": (ranks.hosts(), "awaited", _HOSTS, ""),
        "Process groups": (ranks.groups(), "waited", _GROUPS, "awaited: for the rank most often last"),
        "Collectives by size": (
            ranks.collectives(by_group=False),
            "exposed",
            _SIZES,
            f"waited, exposed: of a member{per}",
        ),
        "Largest waits in single collectives": (ranks.stragglers().collectives, "skew", _CALLS, LEGEND),
    }
    return {
        title: [
            _table(frame.sort_values(most, ascending=False, kind="stable").head(PAGE_ROWS), columns),
            f"{PAGE_ROWS} of {len(frame):,}; {note}" if len(frame) > PAGE_ROWS else note,
        ]
        for title, (frame, most, columns, note) in tables.items()
        if len(frame)
    }


# Who waits for whom ---------------------------------------------------------------------------------------------------


def stragglers_text(found: Stragglers) -> str:
    """Return who waits for whom: the ranks, and the calls with the largest skews."""
    from flopscope.show.summary import Summary

    if not len(found.collectives):
        return "No collective could be matched across ranks.\n"
    worst = found.collectives.sort_values("skew", ascending=False, kind="stable").head(SKEWS)
    ranks = _rank_rows(found, RANKS_OF_STRAGGLERS)
    return f"{Summary(['Ranks', *ranks, '', f'Largest skews ({LEGEND})', _table(worst, _CALLS)], dict)}\n"


def _rank_rows(found: Stragglers, most: int) -> list[str | Rows]:
    """Return a table of the ranks and its legend, with the ``most`` ranks that others waited for longest."""
    shown = found.ranks if len(found.ranks) <= most else found.ranks.nlargest(most, "awaited")
    legend = [
        "  waited: time spent waiting for the last rank; awaited: time that all others waited for this rank",
        "  both in all matched collectives together; what a finding costs is of one step",
    ]
    if len(shown) < len(found.ranks):
        legend.append(f"  {len(shown)} of {len(found.ranks):,} ranks, those that others waited for longest")
    return [_table(shown, _RANKS), *legend]


# Tables ---------------------------------------------------------------------------------------------------------------


def _table(frame: pandas.DataFrame, columns: Mapping[str, Callable[[Any], str]]) -> Rows:
    """Return rows as text. columns: by their header, the text of a row."""
    return Rows([tuple(columns), *(tuple(text(row) for text in columns.values()) for row in frame.to_dict("records"))])


def _time(name: str) -> Callable[[Any], str]:
    return lambda row: short_time_text(row[name])


def _count(name: str) -> Callable[[Any], str]:
    return lambda row: f"{row[name]:,}"


def _time_and_error(name: str, error: str) -> Callable[[Any], str]:
    return lambda row: f"{short_time_text(row[name])} ± {short_time_text(row[error])}"


_RANKS: Mapping[str, Callable[[Any], str]] = {
    "rank": lambda row: str(row["rank"]),
    "collectives": lambda row: str(row["collectives"]),
    "unmatched": lambda row: str(row["unmatched"]),
    "came last": lambda row: str(row["times_last"]),
    "waited": _time("waited"),
    "of its time": lambda row: percent_text(row["waited_pct"]),
    "awaited": _time("awaited"),
    "clock": _time_and_error("clock_offset", "clock_uncertainty"),
}
_CALLS: Mapping[str, Callable[[Any], str]] = {
    "collective": lambda row: row["collective"],
    "group": lambda row: printable(row["group"]),
    "MB": lambda row: tenths_text(row["message_bytes"] / 1e6),
    "start": _time("start"),
    "last": lambda row: f"rank {row['straggler']}",
    "skew": _time_and_error("skew", "skew_uncertainty"),
    "transfer": _time("transfer"),
    "bus GB/s": lambda row: tenths_text(row["bus_gbytes_per_s"]),
}
_SIZES: Mapping[str, Callable[[Any], str]] = {
    "collective": lambda row: row["collective"],
    "from": lambda row: bytes_text(row["bytes_from"]),
    "ranks": lambda row: (f"{row['groups']:,} x " if row["groups"] > 1 else "") + f"{row['ranks']:,}",
    "calls": _count("calls"),
    "skew, median": _time_and_error("skew_median", "skew_uncertainty"),
    "95%": _time("skew_p95"),
    "transfer": _time("transfer_median"),
    "bus GB/s": lambda row: tenths_text(row["bus_gbytes_per_s"]),
    "waited": _time("waited"),
    "exposed": _time("exposed"),
}
_HOSTS: Mapping[str, Callable[[Any], str]] = {
    "host": lambda row: printable(row["host"]),
    "ranks": _count("ranks"),
    "came last": _count("times_last"),
    "waited": _time("waited"),
    "awaited": _time("awaited"),
    "own work": _time("own"),
}
# Of each group the rank that came last most often, and the time that the others waited for it.
_GROUPS: Mapping[str, Callable[[Any], str]] = {
    "group": lambda row: printable(row["group"]),
    "ranks": _count("ranks"),
    "calls": _count("calls"),
    "waited": _time("waited"),
    "of its time": lambda row: percent_text(row["waited_pct"]),
    "most often last": lambda row: f"rank {row['most_last']}",
    "times": _count("times_last"),
    "awaited": _time("awaited"),
}


# Notes: what is left out, what differs, what is uncertain -------------------------------------------------------------

SHOWN = 8
UNCERTAIN = 5.0  # µs of a clock, from which it is worth a line


def notes_of(ranks: Comparison) -> list[str]:
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

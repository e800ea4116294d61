"""The collectives of each rank, and the calls of one collective matched across ranks.

A rank's calls are columns. Matched calls are matrices of calls by ranks, one for each process group, so that everything
across ranks is computed by columns and rows of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from flopscope import _core

Floats = npt.NDArray[np.float64]
MAD_TO_SIGMA = 1.4826  # of a normal distribution


def median(values: Floats | Sequence[float]) -> float:
    """Return the median of the known values; NaN without any."""
    known = np.asarray(values, np.float64)
    known = known[np.isfinite(known)]
    return float(np.median(known)) if len(known) else float("nan")


def mean(values: Floats) -> float:
    """Return the mean of the known values; NaN without any."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def sigma(values: Floats) -> float:
    """Return the spread of the known values as a standard deviation, from their median absolute deviation."""
    return MAD_TO_SIGMA * median(np.abs(values - median(values)))


def row_medians(matrix: Floats) -> Floats:
    """Return the median of each row, without its NaN; NaN for a row without numbers."""
    ordered = np.sort(matrix, axis=1)
    count = (~np.isnan(matrix)).sum(axis=1)
    at = np.arange(len(matrix))
    low, high = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, matrix.shape[1] - 1)
    medians: Floats = 0.5 * (ordered[at, low] + ordered[at, high])
    return medians


def median_of_others(values: Floats, group: npt.NDArray[np.intp]) -> Floats:
    """Return for each row and column the median over the other rows of its group; NaN without any.

    values: rows by columns; group: a number for each row.
    """
    columns = values.shape[1]
    cell = (group[:, None] * columns + np.arange(columns)).ravel()
    own = values.ravel()
    known = ~np.isnan(own)
    order = np.lexsort((own, cell))  # NaN last
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ordered = own[order]
    first = np.searchsorted(cell[order], cell)
    rest = np.bincount(cell[known], minlength=1 + cell.max(initial=0))[cell] - known
    middles = []
    for middle in (np.maximum(rest - 1, 0) // 2, rest // 2):
        at = first + middle
        middles.append(ordered[np.minimum(at + (known & (at >= place)), len(own) - 1)])  # without the own value
    return np.where(rest > 0, 0.5 * (middles[0] + middles[1]), np.nan).reshape(values.shape)


Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_ORDER = ("together", "rooted", "one_sided")
_ENDS = sorted(_core.collective_kinds.values(), key=_ORDER.index)
KINDS = tuple(sorted(_core.collective_kinds, key=lambda kind: _ORDER.index(_core.collective_kinds[kind])))
ONE_SIDED = _ENDS.index("one_sided")  # from this kind on: not the same call on all ranks
TOGETHER = _ENDS.index("rooted")  # before this kind: end on all ranks at once
UNEVEN = KINDS.index("alltoall")  # whose message may differ between ranks
NO_NUMBER = -1
Step = tuple[str, int, int, bool]
"""The name of a step, the number of earlier steps and of all steps that have it, and whether it is one: what follows a
step is told apart from it, and "" is before the first one."""
NO_STEP: Step = ("", 0, 0, False)
ONE_OF = "one of "  # begins the name of a group that stands for several, of which a rank is in one (hlo/collective.h)


@dataclass(frozen=True)
class Calls:
    """The collectives of one rank, in order of start: an entry of each array for each."""

    groups: list[tuple[str, str]]
    """Name and ranks of each process group, as recorded; "" where missing."""
    group: npt.NDArray[np.int32]
    """Index in ``groups``."""
    kind: npt.NDArray[np.int8]
    """Index in KINDS."""
    message_bytes: Floats
    """NaN: unknown."""
    sequence: Integers
    """-1: unknown."""
    steps: list[Step]
    """The steps of the calls; a rank that marked none has one."""
    step: npt.NDArray[np.int32]
    """Index in ``steps``."""
    device: npt.NDArray[np.int16]
    named: Flags
    """Whether the arguments are known, from the kernel or from an op around its launch."""
    start: Integers
    """ns on the rank's own clock, since 1970 if the profile has its base time."""
    duration: Floats
    """µs."""
    exposed: Floats
    """µs of the duration in which nothing computed."""
    factor: Floats
    """Ratio of bus bandwidth to algorithm bandwidth; NaN: unknown."""

    def __len__(self) -> int:
        return len(self.start)


def calls_of(columns: Mapping[str, Sequence[Any]], base: int) -> Calls:
    """Return the columns of Store.collectives() as arrays. ``base``: what the times count from, in ns since 1970."""
    pairs = [(name or "", ranks or "") for name, ranks in zip(columns["group"], columns["ranks"], strict=True)]
    groups = list(dict.fromkeys(pairs))
    places = {pair: place for place, pair in enumerate(groups)}
    kinds = {kind: place for place, kind in enumerate(KINDS)}
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.array(columns["bus_gbytes_per_s"], np.float64) / np.array(columns["algorithm_gbytes_per_s"])
    steps, step = _steps(columns["step"], columns["step_occurrence"])
    return Calls(
        groups,
        np.array([places[pair] for pair in pairs], np.int32),
        np.array([kinds[kind] for kind in columns["collective"]], np.int8),
        np.array(columns["message_bytes"], np.float64),
        np.array([NO_NUMBER if number is None else number for number in columns["sequence"]], np.int64),
        steps,
        step,
        np.array(columns["device"], np.int16),
        np.array([bool(name) for name in columns["name"]], np.bool_),
        np.array(columns["start"], np.int64) + base,
        np.array(columns["duration"], np.float64),
        np.array(columns["exposed"], np.float64),
        factor,
    )


def _steps(names: Sequence[str | None], occurrences: Sequence[int | None]) -> tuple[list[Step], npt.NDArray[np.int32]]:
    """Return the steps of calls, and for each call the index of its own."""
    totals: dict[str, int] = {}
    for name, occurrence in zip(names, occurrences, strict=True):
        totals[name or ""] = max(totals.get(name or "", 0), 1 + (occurrence or 0))
    places: dict[Step, int] = {}
    last, step = NO_STEP, []
    for name, occurrence in zip(names, occurrences, strict=True):
        last = (name, occurrence or 0, totals[name], True) if name is not None else (*last[:3], False)
        step.append(places.setdefault(last, len(places)))
    return list(places), np.array(step, np.int32)


@dataclass
class Group:
    """The matched calls of a process group: an entry for each call, and matrices of calls by members."""

    name: str
    ranks: str
    """The members as recorded; "" where missing."""
    members: npt.NDArray[np.intp]
    """Places of the ranks among the profiles."""
    kind: npt.NDArray[np.int8]
    message_bytes: Floats
    number: Integers
    """Sequence number, or the occurrence in its step where it has none."""
    factor: Floats
    start: Floats
    """µs since the member's origin, on its clock until align() has moved it; NaN where a member lacks the call."""
    duration: Floats
    exposed: Floats

    @property
    def ends(self) -> Floats:
        """End of each member's kernel, in µs."""
        return self.start + self.duration

    # What follows is of aligned clocks.

    @cached_property
    def last(self) -> npt.NDArray[np.intp]:
        """The column of the member that started each call last."""
        last: npt.NDArray[np.intp] = np.nanargmax(self.start, axis=1)
        return last

    @cached_property
    def first(self) -> npt.NDArray[np.intp]:
        """The column of the member that started each call first."""
        first: npt.NDArray[np.intp] = np.nanargmin(self.start, axis=1)
        return first

    def of_last(self, matrix: Floats) -> Floats:
        """Return the last member's entry for each call."""
        entries: Floats = matrix[np.arange(len(matrix)), self.last]
        return entries

    @cached_property
    def wait(self) -> Floats:
        """µs of each member until the last one started, at most its duration; NaN where it lacks the call."""
        wait: Floats = np.fmin(self.of_last(self.start)[:, None] - self.start, self.duration)
        wait[np.isnan(self.start)] = np.nan
        return wait


@dataclass(frozen=True)
class Mismatch:
    """A sequence number under which the members of a group called different collectives."""

    group: str
    number: int
    calls: dict[tuple[str, float], list[int]]
    """Places of the ranks by what they called: the collective and its bytes."""


@dataclass
class Matched:
    """The calls of all ranks."""

    groups: list[Group]
    origins: Integers
    """ns on each rank's clock; what its times in the groups count from."""
    own: npt.NDArray[np.int64]
    """Number of calls of each rank, matched or not; of one on several GPUs of the process, one."""
    matched: npt.NDArray[np.int64]
    mismatches: list[Mismatch]
    mismatched: int
    """Number of mismatches; only the first ones are listed."""


def match(ranks: Sequence[Calls]) -> Matched:
    """Match the calls across ranks.

    Calls of a process group have the same sequence number, if PyTorch recorded it, or else the same kind, size and
    occurrence; and the same step, if all members marked steps. Of calls without a number, a member that recorded fewer
    in a step than another may lack any of them, so these of it match none. If no rank names a process group, as with
    torch before 2.2, all calls by ops of the profile are assumed to be of one group of all ranks. Of a process with
    several GPUs, a call counts once. Calls of JAX whose HLO has several groups are not matched: which of them a rank is
    in is unknown.
    """
    own = np.array([len(calls) for calls in ranks], np.int64)
    origins = np.array([calls.start.min() if len(calls) else 0 for calls in ranks], np.int64)
    has_groups = any(name for calls in ranks for name, _ in calls.groups)
    sized = has_groups or any((calls.named & ~np.isnan(calls.message_bytes)).any() for calls in ranks)
    parts: dict[tuple[str, str], list[_Part]] = {}
    for place, calls in enumerate(ranks):
        known = (calls.kind < ONE_SIDED) & (has_groups | calls.named) & ~(sized & np.isnan(calls.message_bytes))
        for key, rows in _by_group(calls, np.flatnonzero(known)):
            if bool(key[0]) == has_groups and not key[0].startswith(ONE_OF):
                parts.setdefault(key, []).append(_Part(place, calls, rows))
    matched = np.zeros(len(ranks), np.int64)
    groups: list[Group] = []
    mismatches: list[Mismatch] = []
    mismatched = 0
    for (name, text), members in parts.items():
        if len(members) < 2:
            continue
        group, wrong, again = _match_group(name, text, members, origins)
        own[[part.place for part in members]] -= again
        mismatched += len(wrong)
        mismatches += wrong[: max(0, MISMATCHES_LISTED - len(mismatches))]
        if len(group.kind):
            groups.append(group)
            matched[group.members] += (~np.isnan(group.start)).sum(axis=0)
    return Matched(groups, origins, own, matched, mismatches, mismatched)


MISMATCHES_LISTED = 100


@dataclass(frozen=True)
class _Part:
    """A member's calls of a group: rows of its columns."""

    place: int
    calls: Calls
    rows: npt.NDArray[np.intp]

    @property
    def numbered(self) -> Flags:
        """Which calls have a sequence number, if they have a group, in which it counts."""
        name, _ = self.calls.groups[self.calls.group[self.rows[0]]]
        known: Flags = self.calls.sequence[self.rows] != NO_NUMBER
        return known if name else np.zeros_like(known)


def _by_group(calls: Calls, rows: npt.NDArray[np.intp]) -> list[tuple[tuple[str, str], npt.NDArray[np.intp]]]:
    order = rows[np.argsort(calls.group[rows], kind="stable")]
    if not len(order):
        return []
    starts = np.flatnonzero(np.diff(calls.group[order], prepend=-1))
    return [(calls.groups[calls.group[part[0]]], part) for part in np.split(order, starts[1:])]


def _distinct(keys: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], Flags]:
    """Return the order of the rows of keys, and which of the ordered rows differ from those before them."""
    order = np.lexsort(keys.T[::-1])
    new = np.ones(len(keys), np.bool_)
    new[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    return order, new


def _occurrences(keys: npt.NDArray[Any]) -> tuple[Integers, Integers]:
    """Return for each row of the keys the number of equal rows before it, and that of all equal rows."""
    order, new = _distinct(keys)
    place = np.arange(len(keys))
    numbers, counts = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    numbers[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    counts[order] = np.diff(np.flatnonzero(new), append=len(keys))[np.cumsum(new) - 1]
    return numbers, counts


def _step_numbers(parts: Sequence[_Part]) -> list[npt.NDArray[np.int64]]:
    """Return for each member a number for each of its steps, which equal steps of others have too; 0 for all if a
    member has marked none."""
    numbers: dict[Step, int] = {}
    if any(part.calls.steps == [NO_STEP] for part in parts):
        return [np.zeros(len(part.calls.steps), np.int64) for part in parts]
    return [np.array([numbers.setdefault(step, len(numbers)) for step in part.calls.steps]) for part in parts]


def _match_group(name: str, text: str, parts: list[_Part], origins: Integers) -> tuple[Group, list[Mismatch], Integers]:
    """Return the matched calls, those that do not match, and how many calls of each part are of further GPUs."""
    by_sequence = all(part.numbered.all() for part in parts)
    some = all(part.numbered.any() for part in parts)
    steps = _step_numbers(parts)
    keyed = [_keys(part, of, some, by_sequence) for part, of in zip(parts, steps, strict=True)]
    keys = [key for key, _ in keyed]
    if all(len(key) == len(keys[0]) and np.array_equal(key, keys[0]) for key in keys[1:]):
        places = [np.arange(len(keys[0]))] * len(keys)
        whole = keys[0]
    else:
        whole, places = _union(keys)
    shape = len(whole), len(parts)
    start, duration, exposed, sizes, factors = (np.full(shape, np.nan) for _ in range(5))
    kinds = np.full(shape, -1, np.int8)
    for column, (part, at, (_, rows)) in enumerate(zip(parts, places, keyed, strict=True)):
        calls = part.calls
        start[at, column] = (calls.start[rows] - origins[part.place]) / 1000
        duration[at, column] = calls.duration[rows]
        exposed[at, column] = calls.exposed[rows]
        kinds[at, column] = calls.kind[rows]
        sizes[at, column] = calls.message_bytes[rows]
        factors[at, column] = calls.factor[rows]
    count = (kinds >= 0).sum(axis=1)
    kind = kinds.max(axis=1)
    with np.errstate(invalid="ignore"):
        size = np.fmax.reduce(sizes, axis=1)
        smallest = np.fmin.reduce(sizes, axis=1)
    agrees = np.where(kinds >= 0, kinds == kind[:, None], True).all(axis=1)
    agrees &= (size == smallest) | np.isnan(size) | (kind == UNEVEN)
    wrong = []
    for row in np.flatnonzero(~agrees & (count > 1)):
        called: dict[tuple[str, float], list[int]] = {}
        for part, of, nbytes in zip(parts, kinds[row].tolist(), sizes[row].tolist(), strict=True):
            if of >= 0:
                called.setdefault((KINDS[of], nbytes), []).append(part.place)
        wrong.append(Mismatch(name, int(whole[row][-2]), called))
    kept = agrees & (count > 1)
    if not by_sequence and len(whole):
        like, most = np.unique(whole[:, LIKE], axis=0, return_inverse=True)[1].ravel(), np.zeros(len(whole))
        np.maximum.at(most, like, whole[:, COUNT])
        kept &= whole[:, COUNT] == most[like]
    members, factor = [part.place for part in parts], np.fmax.reduce(factors, axis=1) if len(whole) else np.empty(0)
    facts = kind[kept], size[kept], whole[:, -2][kept].astype(np.int64), factor[kept]
    group = Group(name, text, np.array(members, np.intp), *facts, start[kept], duration[kept], exposed[kept])
    again = [len(part.rows) - len(rows) for part, (_, rows) in zip(parts, keyed, strict=True)]
    return group, wrong, np.array(again, np.int64)


LIKE, COUNT = slice(4), 4
"""Columns of the keys of calls some of which have no sequence number: step, kind, size and whether it has a number, and
how many calls without a number are alike in these."""


def _keys(part: _Part, steps: Integers, some: bool, by_sequence: bool) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
    """Return the rows of a member's calls, and for each a key that equals those of the same call on other ranks.

    steps: as of _step_numbers(). some: whether every member has calls with sequence numbers. by_sequence: only such.
    """
    calls, rows = part.calls, part.rows
    sequence, step = calls.sequence[rows], steps[calls.step[rows]]
    if by_sequence:
        keys: npt.NDArray[Any] = np.column_stack([step, sequence])
    else:
        numbered = part.numbered & some
        sizes = np.nan_to_num(calls.message_bytes[rows], nan=-1.0)
        like = np.column_stack([step, calls.kind[rows], sizes, numbered]).astype(np.float64)
        occurrence, count = _occurrences(np.column_stack([like, calls.device[rows]]))
        of_both = np.where(numbered, [np.zeros_like(count), sequence], [count, occurrence])
        keys = np.column_stack([like, of_both.T])
    again, _ = _occurrences(keys)
    if len(np.unique(calls.device[rows])) > 1:  # the same call on another GPU of the process
        return np.column_stack([keys, again])[again == 0], rows[again == 0]
    return np.column_stack([keys, again]), rows


def _union(keys: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], list[npt.NDArray[np.intp]]]:
    """Return the distinct rows of all keys, and for each of the keys the places of its rows among them."""
    stacked = np.concatenate(keys)
    order, new = _distinct(stacked)
    places = np.empty(len(stacked), np.intp)
    places[order] = np.cumsum(new) - 1
    return stacked[order[new]], np.split(places, np.cumsum([len(key) for key in keys])[:-1])

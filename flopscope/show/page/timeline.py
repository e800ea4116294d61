"""The section Timeline: every event in a lane of its thread or stream, and idle time by cause.

The C core lays the events out (csrc/timeline/timeline.h). This module gives its columns the form that compresses well:
differences of integers. Times are ns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flopscope import _core
from flopscope._core import Store
from flopscope.results.categories import short_names
from flopscope.show.page import counters
from flopscope.show.page.encode import Columns, since
from flopscope.show.page.profile import Profile
from flopscope.show.page.rows import identities
from flopscope.support.core_facts import UNKNOWN_TIME, WORK

MOST_BLOCKS = 1_500_000
"""Blocks of a page; beyond it, short neighbours in a lane are merged."""

MOST_PLACES = 1000
"""Devices and threads of a page: those with the most events are drawn, and the others counted."""

MOST_LABELS = 20_000
"""Names and launches of a page that are shown separately: those with the most time."""

ANOTHER = "(another name)"

LARGE = 2**32 - 1  # a difference of times that is given apart


class Part(NamedTuple):
    """One process of a timeline."""

    core: Store
    title: str = ""
    """Of the process; empty if there is only one."""
    shift: int = 0
    """ns to add to its times."""
    row_of: Callable[[Mapping[str, Any]], npt.NDArray[np.int64] | None] = lambda columns: None
    """Of the columns of the part's table by shape, the row of the page for each row, -1 for none; None: the same."""
    drawn: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    """The columns of its table by shape, and its timeline; None: they are yet to be computed."""


def section(source: Profile, columns: Columns) -> dict[str, Any] | None:
    """Return the timeline of a profile; None if no event has a time."""
    drawn = source.take("timeline")
    known = None if drawn is None else (source.shaped.columns, drawn)
    return timeline_of([Part(source.core, row_of=lambda _: source.row_of, drawn=known)], columns)


def _idle_labels(on_device: bool) -> list[str]:
    """Return the labels of the causes of idle time. No launch is late in a program on a CPU."""
    labels = dict(zip(_core.idle_causes, _core.idle_labels, strict=True))
    return list(labels.values() if on_device else (labels | {"host": _core.bare_parts["host"].label}).values())


def rows_in(columns: Mapping[str, Any], by_shape: bool) -> Callable[[Mapping[str, Any]], npt.NDArray[np.int64]]:
    """Return ``Part.row_of`` for other recordings of the program that a page's table is of, by what identifies rows.

    by_shape: whether the rows of the page are separated by shape.
    """
    rows = {identity: row for row, identity in enumerate(_identities(columns, True))}
    return lambda own: np.array([rows.get(one, -1) for one in _identities(own, by_shape)], dtype=np.int64)


def _identities(columns: Mapping[str, Any], by_shape: bool) -> Iterator[tuple[str, str, bool, str]]:
    """Yield the name of each row, its kind of device, whether it is an annotation, and its shapes."""
    for (key, device, is_range), shapes in zip(identities(columns), columns["input_shapes"], strict=True):
        yield key, device, bool(is_range), str(shapes if by_shape else [])


def timeline_of(parts: Sequence[Part], columns: Columns, limit: int = MOST_BLOCKS) -> dict[str, Any] | None:
    """Return the timeline of one or several processes, of at most about ``limit`` blocks; None if there is no block."""
    each = max(limit // max(len(parts), 1), 1)
    found = [_LaidOut(part, *(part.drawn or _draw(part.core, each))) for part in parts]
    left_out = _leave_out(found)
    if not any(len(one.start) for one in found):
        return None
    origin = min(one.origin for one in found if len(one.start))
    start = np.concatenate([since(one.start, origin) for one in found])
    joined = {name: np.concatenate([one.column(name) for one in found]) for name in ("duration", "bytes")}
    lanes = _lanes(found, columns)
    labels, names_left_out = _labels(found, columns)
    firsts = np.cumsum([0, *(lane["count"] for lane in lanes)])[:-1]
    firsts = firsts[firsts < len(start)]
    steps = np.diff(start, prepend=start[:1] * 0)  # times ascend in a lane
    steps[firsts] = start[firsts]
    moving = np.flatnonzero(joined["bytes"])
    processes = [(one.part.title if len(found) > 1 else "", one.part.core, one.part.shift) for one in found]
    merged = any(one.facts["merged_ns"] for one in found)
    if merged:
        joined |= {name: np.concatenate([one.column(name) for one in found]) for name in ("count", "busy")}
    return {
        "lanes": lanes,
        "idle_labels": _idle_labels(any(one.part.core.devices - {"cpu"} for one in found)),
        "idle_parts": list(_core.idle_parts),
        "start": _amounts(steps, columns),
        "duration": _amounts(joined["duration"], columns),
        **labels,
        "row": columns.add(np.concatenate([one.rows() for one in found])),
        "link": columns.add(_links(found)),
        "bytes": {"places": columns.add(moving), "values": columns.numbers(joined["bytes"][moving])},
        "count": columns.add(joined["count"]) if merged else None,
        "busy": _amounts(joined["busy"], columns) if merged else None,
        "steps": _steps(found, origin, columns),
        "counters": counters.tracks(processes, origin, columns),
        "facts": {
            "blocks": len(start),
            **{name: sum(one.facts[name] for one in found) for name in _COUNTS},
            "merged_ns": max(one.facts["merged_ns"] for one in found),
            "limit": limit,
            "names_left_out": names_left_out,
            **left_out,
        },
    }


_COUNTS = ("events", "idle", "open", "unplaced", "deep", "memory")


def _draw(core: Store, blocks: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    columns, meta = core.timeline(True, 0, {}, False, (), True, blocks)
    return columns, meta["timeline"]


class _LaidOut:
    """The core's timeline of a part."""

    def __init__(self, part: Part, columns: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        self.part, self.facts = part, facts
        self.lanes: list[tuple[str, int, int | None, int, int]] = facts["lanes"]
        self._kept: npt.NDArray[np.bool_] | None = None  # blocks that are drawn; None: all
        self.start = self.column("start") + np.int64(part.shift)
        begin = facts["begin"]
        self.origin = begin + part.shift if begin != UNKNOWN_TIME else int(self.start.min()) if len(self.start) else 0
        self.duration = self.column("duration")
        own = part.row_of(columns)
        self._rows = None if own is None else np.append(0, own + 1).astype(np.uint32)  # of the page, by own row plus 1

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column of the core, for the blocks that are drawn."""
        values: npt.NDArray[Any] = self.facts[name]
        return values if self._kept is None else values[self._kept]

    def places(self) -> list[tuple[str, int, int | None]]:
        """Return for each lane the process and the device or thread that it is of."""
        return [(self.part.title, device, None if device >= 0 else id) for _, device, id, _, _ in self.lanes]

    def keep(self, kept: Sequence[bool]) -> int:
        """Draw only these lanes. Return the number of events that are left out."""
        blocks = np.repeat(np.asarray(kept, dtype=bool), [lane[4] for lane in self.lanes])
        left_out = int(self.column("count")[~blocks].sum())
        self._kept = blocks
        self.lanes = [lane for lane, is_kept in zip(self.lanes, kept, strict=True) if is_kept]
        self.start, self.duration = self.start[blocks], self.duration[blocks]
        return left_out

    def rows(self) -> npt.NDArray[np.uint32]:
        """Return the rows of the page to which device work belongs, plus 1; 0: none."""
        rows = self.column("row") + np.uint32(1)  # wraps
        return rows if self._rows is None else self._rows[rows]

    def row(self, own: int) -> int:
        """Return the row of the page for one of the part's own, -1 for none."""
        return own if self._rows is None else int(self._rows[own + 1]) - 1

    def links(self) -> npt.NDArray[np.uint32]:
        """Return the linked blocks of this part, plus 1; 0: none."""
        links = self.column("link") + np.uint32(1)
        if self._kept is None:
            return links
        return np.concatenate([[0], np.where(self._kept, np.cumsum(self._kept), 0)]).astype(np.uint32)[links]


def _leave_out(found: Sequence[_LaidOut]) -> dict[str, int]:
    """Leave out the places with the fewest events past MOST_PLACES. Return what is left out: places and events."""
    counts: dict[Any, int] = {}
    for one in found:
        for place, lane in zip(one.places(), one.lanes, strict=True):
            counts[place] = counts.get(place, 0) + lane[4]
    if len(counts) <= MOST_PLACES:
        return {"places_left_out": 0, "events_left_out": 0}
    chosen = set(sorted(counts, key=lambda place: (place[1] < 0, -counts[place]))[:MOST_PLACES])  # devices first
    events = sum(one.keep([place in chosen for place in one.places()]) for one in found)
    return {"places_left_out": len(counts) - MOST_PLACES, "events_left_out": events}


def _lanes(found: Sequence[_LaidOut], columns: Columns) -> list[dict[str, Any]]:
    """Return the lanes: what they hold, their device, stream or thread and process, and their blocks."""
    lanes = []
    for one in found:
        models = one.part.core.device_names
        for role, device, id, depth, count in one.lanes:
            part = columns.text(one.part.title) if len(found) > 1 else -1
            place = {"part": part, "role": role, "device": device, "model": columns.text(models.get(device))}
            lanes.append({**place, "id": None if id is None else str(id), "depth": depth, "count": count})
    return lanes


def _amounts(values: npt.NDArray[Any], columns: Columns) -> dict[str, Any]:
    """Encode amounts in 32 bits; those that do not fit are listed apart."""
    large = np.flatnonzero((values < 0) | (values >= LARGE))
    small = values.copy()
    small[large] = 0
    return {
        "values": columns.add(small.astype(np.uint32)),
        "large": columns.add(large),
        "apart": columns.add(values[large].astype(np.float64)),
    }


def _links(found: Sequence[_LaidOut]) -> npt.NDArray[np.uint32]:
    """Return the linked blocks plus 1, 0 for none, as differences between neighbours, modulo 2^32: launches and their
    work advance together."""
    bases = np.cumsum([0, *(len(one.start) for one in found)]).astype(np.uint32)
    links = [one.links() for one in found]
    joined = np.concatenate([np.where(own > 0, own + base, 0) for own, base in zip(links, bases, strict=False)])
    return np.asarray(np.diff(joined, prepend=joined[:1] * 0), dtype=np.uint32)


def _labels(found: Sequence[_LaidOut], columns: Columns) -> tuple[dict[str, Any], int]:
    """Return the label of each block, plus 1, and what the labels mean: only those in use; and the number of names that
    are left out because others have more time."""
    kinds: dict[str, int] = {}
    blocks: list[npt.NDArray[np.uint32]] = []
    labels: list[tuple[int, str | None, int, Any]] = []
    left_out: set[str] = set()
    for one in found:
        label = one.column("label") + np.uint32(1)
        listed = one.facts["labels"]
        used = np.zeros(len(listed) + 1, dtype=bool)
        used[label] = True
        used[0] = False
        times = np.bincount(label, weights=one.duration, minlength=len(used)).astype(np.float64)
        times[1:][[name is None for _, name, _, _ in listed]] = np.inf
        kept = _longest(used, times, MOST_LABELS // len(found))
        new = np.zeros(len(used), dtype=np.uint32)
        new[kept] = np.arange(len(labels) + 1, len(labels) + 1 + int(kept.sum()), dtype=np.uint32)
        for place in (np.flatnonzero(kept) - 1).tolist():
            kind, name, row, launch = listed[place]
            labels.append((kinds.setdefault(kind, len(kinds)), name, one.row(row), launch))
        others: dict[str, int] = {}
        for place in (np.flatnonzero(used & ~kept) - 1).tolist():
            kind, name, _, _ = listed[place]
            if kind not in others:
                labels.append((kinds.setdefault(kind, len(kinds)), ANOTHER, -1, None))
                others[kind] = len(labels)
            new[place + 1] = others[kind]
            left_out.add(name)
        blocks.append(new[label])
    of_kinds, names, rows, launches = (list(column) for column in zip(*labels, strict=True)) if labels else [[]] * 4
    left_out -= {name for name in names if name is not None}
    work = {kinds.get(word) for word in WORK}
    short = short_names({name for kind, name in zip(of_kinds, names, strict=True) if name is not None and kind in work})
    return {
        "label": columns.add(np.concatenate(blocks)),
        "labels": {
            "kinds": list(kinds),
            "kind": columns.add(np.array(of_kinds, dtype=np.int64)),
            "name": columns.texts(names),
            "short": columns.texts(None if name is None else short.get(name, name) for name in names),
            "row": columns.add(np.array(rows, dtype=np.int64)),
            **_launches(launches, columns),
        },
    }, len(left_out)


def _longest(used: npt.NDArray[np.bool_], times: npt.NDArray[np.float64], most: int) -> npt.NDArray[np.bool_]:
    """Return which of the labels in use are among the ``most`` with the most time."""
    if int(used.sum()) <= most:
        return used
    kept = np.zeros(len(used), dtype=bool)
    kept[np.argsort(np.where(used, -times, np.inf), kind="stable")[:most]] = True
    return kept


def _launches(launches: Sequence[Any], columns: Columns) -> dict[str, Any]:
    """Return the distinct launches as texts and numbers, and that of each label; -1: none."""
    distinct: dict[Any, int] = {}
    places = [-1 if launch is None else distinct.setdefault(launch, len(distinct)) for launch in launches]
    listed = [
        {"grid": _product(grid), "block": _product(block), "registers": registers, "shared": shared, "graph": graph}
        for grid, block, registers, shared, graph in distinct
    ]
    return {"launch": columns.add(np.array(places, dtype=np.int64)), "launches": listed}


def _product(sizes: Iterable[int]) -> str:
    return "×".join(map(str, sizes))


def _steps(found: Sequence[_LaidOut], origin: int, columns: Columns) -> dict[str, Any]:
    """Return the steps of the first part that has any."""
    known = ((one.facts["steps"], one.part.shift - origin) for one in found)
    listed, shift = next((one for one in known if one[0]), ([], 0))
    return {
        "name": columns.texts(name for name, _, _ in listed),
        "begin": columns.numbers(begin + shift for _, begin, _ in listed),
        "end": columns.numbers(end + shift for _, _, end in listed),
    }

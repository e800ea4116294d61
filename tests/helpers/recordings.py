"""Recordings of programs on an H200 (tests/data/programs/README.md), each process's copy unpacked from one archive.

The archive has the events of most of them as columns, which compress well: events that have the same members are a
group; times are whole ns, and whole numbers are differences from the one before.
"""

import gzip
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from helpers import DATA

_unpacked = TemporaryDirectory(prefix="flopscope-recordings-")  # removed at exit
RECORDINGS = Path(_unpacked.name)
FAULTS, HELD_OUT, WELL_MADE = (RECORDINGS / name for name in ("programs", "held_out", "well_made"))
TIMES = {"ts", "dur"}


def packed(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trace with its events as columns, and the group of each event in their order."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    places: list[int] = []
    for event in trace["traceEvents"]:
        members = (*event, *event.get("args", ()))
        places.append([*groups, members].index(members))
        groups.setdefault(members, []).append(event)
    return {**trace, "traceEvents": {"places": places, "groups": [*map(_columns, groups.values())]}}


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    for name, column in found.items():
        if name in TIMES:
            column[:] = [int(1000 * Decimal(str(time))) for time in column]  # 1000 * time has too many digits
        if name == "args" and column[0]:
            found[name] = _columns(column)
        elif _is_whole(column):
            found[name] = [after - before for before, after in pairwise([0, *column])]
    return found


def _is_whole(column: object) -> bool:
    return isinstance(column, list) and all(type(value) is int for value in column)


def unpacked(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trace that was packed."""
    places, groups = trace["traceEvents"].values()
    events = [*map(_rows, groups)]
    return {**trace, "traceEvents": [next(events[place]) for place in places]}


def _rows(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    found = {name: accumulate(column) if _is_whole(column) else column for name, column in columns.items()}
    for name in TIMES & found.keys():
        found[name] = (time / 1000 for time in found[name])
    values = (_rows(column) if isinstance(column, dict) else column for column in found.values())
    return (dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True))


JAX_TWO, PFTRACE = RECORDINGS / "jax_two", RECORDINGS / "pftrace"
for folder in (FAULTS, HELD_OUT, WELL_MADE):
    shutil.copytree(DATA / folder.name, folder)
with tarfile.open(DATA / "recordings.tar.xz") as archive:
    for member in archive:
        file = archive.extractfile(member)
        assert file is not None
        data = file.read()
        if b'"places"' in data:
            data = json.dumps(unpacked(json.loads(data)), separators=(",", ":")).encode()
        path = RECORDINGS / f"{member.name}.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(data, 1))

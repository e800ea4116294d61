"""Chrome traces that flopscope writes, parsed and checked."""

import json
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pytest

from flopscope import _core

Event = dict[str, Any]
REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"}, "i": {"name", "s", "pid", "tid", "ts"},
    "M": {"name", "pid", "tid", "args"}, "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"}, "C": {"name", "cat", "pid", "ts", "args"},
}  # fmt: skip
FACTS = {"process_name": "name", "process_labels": "labels", "process_sort_index": "sort_index", "thread_name": "name",
         "thread_sort_index": "sort_index"}  # fmt: skip


def parse_checked(text: str | bytes) -> dict[str, Any]:
    """Parse a trace with exact decimals, and check that it follows the rules."""
    trace: dict[str, Any] = json.loads(text, parse_constant=pytest.fail, parse_float=Decimal)
    rows: dict[Any, list[tuple[Decimal, Decimal]]] = defaultdict(list)
    flows = defaultdict(list)
    for event in trace["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys(), event
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0, event
        row = event["pid"], event["tid"]
        if event["ph"] == "X":
            assert all(isinstance(event[k], Decimal) and event[k].as_tuple().exponent == -3 for k in ("ts", "dur"))
            rows[row].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "M":
            assert set(event["args"]) == {FACTS[event["name"]]}
        if event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
        if event["ph"] in "sf":
            flows[event["cat"], event["id"]].append((event["ph"], row, event["ts"]))
    for ends in flows.values():
        assert sorted(phase for phase, _, _ in ends) == ["f", "s"], ends
        for _, row, at in ends:
            assert any(begin <= at <= end for begin, end in rows[row]), (row, at)
    for row, slices in rows.items():
        around: list[Decimal] = []
        for begin, end in sorted(slices, key=lambda times: (times[0], -times[1])):
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1], f"two slices of {row} overlap at {begin}"
            around.append(end)
    return trace


def slices(trace: dict[str, Any], category: str) -> list[Event]:
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def written(core: _core.Store, *members: str) -> dict[str, Any]:
    """Return the trace of a store, checked."""
    pieces: list[bytes] = []
    assert core.write_trace(pieces.append, "1.2.3", *members) == 0
    return parse_checked(b"".join(pieces))


def stored(core: _core.Store) -> list[tuple[Any, ...]]:
    """Return the events of a store by time, with names in place of ids, and times from the first start.

    A written trace has device annotations before other device work.
    """
    columns, names, lanes, _ = core.events()
    texts = {"name": names, "lane": lanes}
    first = columns["start"].min()
    events = [
        tuple(
            (texts[key][value] if value >= 0 else "") if key in texts else value - first * (key == "start")
            for key, value in zip(columns, row, strict=True)
        )
        for row in zip(*(column.tolist() for column in columns.values()), strict=True)
    ]
    return sorted(events, key=repr)

"""Chrome traces of rare events: at the limits of time, open, without a name, with names that are not UTF-8."""

from __future__ import annotations

import json
import random
import re
from decimal import Decimal

from helpers.chrome_events import Event, parse_checked

import flopscope as fs
from flopscope import _core


def events_of(core: _core.Store) -> list[Event]:
    pieces: list[bytes] = []
    assert core.write_trace(pieces.append, "1.2.3") == 0
    found: list[Event] = parse_checked(b"".join(pieces))["traceEvents"]
    return found


def named(core: _core.Store) -> dict[str, Event]:
    """Return the complete events of the trace by their names, which differ."""
    events = [event for event in events_of(core) if event["ph"] in "Xi" and event["name"] != "ac2g"]
    found = {event["name"]: event for event in events}
    assert len(found) == len(events)
    return found


def test_extreme_times_are_written() -> None:
    core = _core.Store()
    for name, start, duration in (
        ("x::a", 2**63 - 1, 2**63 - 1),
        ("x::b", 1 - 2**63, 2**63 - 1),
        ("x::c", 1 - 2**63, None),
        ("x::d", None, 5),
        ("x::e", 100, -5),  # ended before it began: durations are never negative
    ):
        _core._append(core, "op", name, start, duration)
    pieces: list[bytes] = []
    assert core.write_trace(pieces.append, "1") == 1
    trace = json.loads(b"".join(pieces), parse_float=Decimal)
    found = {event["name"]: event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"}
    assert found.keys() == {"x::a", "x::b", "x::c", "x::e"} and trace["flopscope"]["without a time"] == 1
    assert (found["x::b"]["ts"], found["x::b"]["dur"]) == (0, Decimal("9223372036854775.807"))
    assert found["x::e"]["dur"] == 0


def test_open_events_last_until_the_end() -> None:
    core = _core.Store()
    _core._append(core, "op", "x::a", 1000, None)
    _core._append(core, "kernel", "k", 9000, None, device=0)  # begins after the window that is set below
    found = named(core)
    assert found["x::a"]["dur"] == 8 and found["x::a"]["args"] == {"External id": 1, "Ev Idx": 0, "open": True}
    _core._set_window(core, 500, 4000)
    found = named(core)
    begin = found["x::a"]["ts"]
    assert (found["x::a"]["dur"], found["k"]["dur"], found["flopscope (0)"]["dur"]) == (3, 0, Decimal("3.5"))
    assert found["Record Window End"]["ts"] == begin + 3
    assert found["Iteration Start: flopscope"]["ts"] == found["flopscope (0)"]["ts"] == begin - Decimal("0.5")


def test_frames_are_linked_through_ranges() -> None:
    core = _core.Store()
    module = _core._append(core, "frame", "a.py(1): <module>", 0, 1000)
    inside = _core._append(core, "range", "r", 10, 900, module)
    frame = _core._append(core, "frame", "a.py(9): f", 20, 800, inside)
    _core._append(core, "runtime", "cudaDeviceSynchronize", 30, 40, frame, correlation=5)
    found = {name: event.get("args") for name, event in named(core).items()}
    assert found["a.py(1): <module>"] == {"Python parent id": None, "Python id": 1, "Ev Idx": 0}
    assert found["a.py(9): f"] == {"Python parent id": 1, "Python id": 3, "Ev Idx": 2}
    assert found["cudaDeviceSynchronize"] == {"External id": 2, "correlation": 5}


def test_allocated_memory_is_never_negative() -> None:
    """The sums are 100, -200, -150, -170, 230: at least 200 bytes were allocated before."""
    core = _core.Store()
    for at, change in enumerate((100, -300, 50, -20, 400)):
        _core._append(core, "memory", "[memory]", at, 0, device=0, bytes=change)
    events = [event["args"] for event in events_of(core) if event["name"] == "[memory]"]
    assert [event["Total Allocated"] for event in events] == [300, 0, 50, 30, 430]


def test_names_of_any_length_and_none() -> None:
    core = _core.Store()
    name = "n" * 1_000_000
    _core._append(core, "op", name, 10, 1)
    _core._append(core, "op", None, 20, 1)
    events = events_of(core)
    assert [event["name"] for event in events if event.get("cat") == "cpu_op"] == [name, ""]


def in_json(raw: bytes) -> bytes:
    """Return a JSON string of these bytes, which need not be UTF-8."""
    return b'"' + re.sub(rb'[\x00-\x1f"\\]', lambda found: b"\\u%04x" % found[0][0], raw) + b'"'


def test_names_that_are_not_utf8_have_a_mark_for_each_ill_formed_part() -> None:
    """One U+FFFD for each maximal subpart of an ill-formed sequence (Unicode 15, table 3-8), as Python decodes too."""
    rng = random.Random(5)
    parts = [
        b"a",
        b'"',
        b"\\",
        b"/",
        b"\n",
        b"\t",
        b"\x01",
        b"\x1f",
        b"\x7f",
        "\u00e9\u20ac\U0001f600\U0010ffff".encode(),
    ]
    parts += [b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"]
    parts += [bytes([value]) for value in range(0x80, 0x100)]
    names = [b"".join(rng.choices(parts, k=rng.randrange(1, 9))) for _ in range(3000)]
    events = [b'{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"ts":%d,"dur":1,"name":%b}' % (2 * i, in_json(name))
              for i, name in enumerate(names)]  # fmt: skip
    trace = fs.load_trace(b'{"traceEvents":[' + b",".join(events) + b"]}")
    written = events_of(trace._core)
    found = [event["name"] for event in written if event.get("cat") == "cpu_op"]
    assert found == [name.decode("utf-8", "replace") for name in names]

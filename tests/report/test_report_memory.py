"""The data of the report's memory, against the text of the trace and a simulation of the allocator."""

import gzip
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import DATA
from helpers.hand_traces import Program, memory, quietly
from helpers.report_pages import PageRead, written

import flopscope as fs

FOLDER = DATA / "traces"
ALLOCATES = r"aten::(empty|new_empty|resize_)"
TRACES = sorted(FOLDER.glob("tutorial*.json.gz"))


def changes_of(text: bytes) -> list[dict[str, Any]]:
    """Return the arguments of the changes of memory in a trace, in order of time; times in ns."""
    found = []
    for event in json.loads(text, parse_float=str)["traceEvents"]:
        if event.get("name") == "[memory]":
            whole, _, part = str(event["ts"]).partition(".")
            found.append({**event["args"], "time": int(whole) * 1000 + int(part.ljust(3, "0") or 0)})
    return sorted(found, key=lambda one: int(one["time"]))


def tracks_of(page: PageRead, device: int) -> dict[str, dict[str, Any]]:
    """Return the tracks of a device in the timeline by their labels; -1: of the CPU."""
    listed = page.data["sections"]["memory"]["tracks"]
    return {page.strings[one["label"]]: one for one in listed if one["device"] == device}


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.name.split(".")[0])
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """The changes of a recorded trace, the trace, and its page."""
    text = gzip.decompress(request.param.read_bytes())
    trace = quietly(text)
    return changes_of(text), trace, written(trace, tmp_path_factory.mktemp("page"))


def test_the_curves_are_those_of_the_trace(each: tuple[Any, ...]) -> None:
    listed, _, page = each
    devices = {device["name"]: device for device in page.data["sections"]["memory"]["devices"]}
    for name, kind in (("GPU 0", 1), ("CPU", 0)):
        own = [one for one in listed if one["Device Type"] == kind]
        if not own:
            assert name not in devices
            continue
        device, tracks = devices[name], tracks_of(page, -1 if name == "CPU" else 0)
        times = np.cumsum(page.column(tracks["allocated"]["start"]))
        assert (times - times[0]).tolist() == [one["time"] - own[0]["time"] for one in own]
        assert page.column(tracks["allocated"]["mean"]).tolist() == [one["Total Allocated"] for one in own]
        assert page.column(tracks["reserved"]["mean"]).tolist() == [one["Total Reserved"] for one in own]
        assert device["recorded"] and device["changes"] == len(own)
        assert device["peak"]["allocated"] == max(one["Total Allocated"] for one in own)
        assert device["peak_reserved"] == max(one["Total Reserved"] for one in own)


def test_who_holds_the_peak_is_who_allocated_what_is_not_freed(each: tuple[Any, ...]) -> None:
    every, trace, page = each
    listed = [one for one in every if one["Device Type"] == 1]
    device = next(one for one in page.data["sections"]["memory"]["devices"] if one["name"] == "GPU 0")
    alive: dict[int, int] = {}
    most, at_peak = -1, 0
    for one in listed:
        if one["Bytes"] > 0:
            alive[one["Addr"]] = one["Bytes"]
        else:
            alive.pop(one["Addr"], None)
        if one["Total Allocated"] > most:
            most, at_peak = one["Total Allocated"], sum(alive.values())
    totals = device["totals"]
    assert totals["held"] == at_peak and device["held_before"] == most - at_peak
    assert totals["allocated"] == sum(max(one["Bytes"], 0) for one in listed)
    assert totals["freed"] == sum(max(-one["Bytes"], 0) for one in listed)
    assert totals["allocations"] == sum(one["Bytes"] > 0 for one in listed)
    assert page.column(device["held"]).sum() == at_peak  # no row is left out here
    names = page.texts(page.data["rows"]["columns"]["key"])
    found: dict[str, float] = defaultdict(float)
    for row, size in zip(page.column(device["rows"]).tolist(), page.column(device["allocated"]).tolist(), strict=True):
        found[names[row] if row >= 0 else ""] += size
    expected: dict[str, float] = defaultdict(float)
    for event in trace.events():
        if event.kind == "memory" and event.device_index == 0 and event.nbytes > 0 and event.thread >= 0:
            around = event.cpu_parent
            while around is not None and (around.kind != "op" or re.match(ALLOCATES, around.name)):
                around = around.cpu_parent
            if around is not None:
                expected[around.name] += event.nbytes
    assert expected and all(found[name] == size for name, size in expected.items())


def test_without_totals_the_curve_is_the_sum_of_the_changes(tmp_path: Path) -> None:
    program = Program()
    program.op("aten::empty", 0, 10)
    sizes = [-300, 512, 256, -512, 1024]
    program.events += [memory(2 + i, size) for i, size in enumerate(sizes)]
    page = written(program.load(), tmp_path)
    (device,) = page.data["sections"]["memory"]["devices"]
    tracks = tracks_of(page, 0)
    assert page.column(tracks["allocated"]["mean"]).tolist() == [0, 512, 768, 256, 1280] and [*tracks] == ["allocated"]
    assert not device["recorded"] and device["peak_reserved"] is None and device["held_before"] is None
    assert "held" not in device and device["peak"]["allocated"] == 1280 and page.data["strings"]


def test_a_profile_without_memory_has_no_section(tmp_path: Path) -> None:
    with fs.profile() as prof:
        fs.sin(fs.ones((4,)))
    assert "memory" not in written(prof, tmp_path).data["sections"]


def test_a_live_profile_shows_what_its_tensors_take(tmp_path: Path) -> None:
    before = fs.ones((256,))
    start = fs.memory_allocated("cpu")
    with fs.profile(profile_memory=True) as prof:
        x = fs.ones((1024,))
        y = fs.add(x, x)
        del x
        z = fs.sin(y)
        now, kept = fs.memory_allocated("cpu"), fs.memory_reserved("cpu")
        del y
    page = written(prof, tmp_path)
    (device,) = page.data["sections"]["memory"]["devices"]
    tracks = tracks_of(page, -1)
    allocated, reserved = (page.column(tracks[name]["mean"]) for name in ("allocated", "reserved"))
    events = [event.nbytes for event in prof.events() if event.kind == "memory"]
    assert device["name"] == "CPU" and device["recorded"] and events == [4096, 4096, -4096, 4096, -4096]
    assert allocated.tolist() == (start + np.cumsum(events)).tolist() and allocated[3] == now
    assert reserved[3] == kept and (reserved >= allocated).all()
    assert device["totals"]["allocated"] == sum(max(size, 0) for size in events)
    # The peak is that of the two tensors x and y; what begins before the profile is known too.
    names = page.texts(page.data["rows"]["columns"]["key"])
    rows = page.column(device["rows"]).tolist()
    held = dict(zip([names[row] if row >= 0 else "" for row in rows], page.column(device["held"]), strict=True))
    assert held["flopscope::ones"] == held["flopscope::add"] == 4096 and held["flopscope::sin"] == 0
    assert device["peak"]["allocated"] == start + 8192 and device["held_before"] == start
    del before, z


def test_an_exported_trace_keeps_the_totals(tmp_path: Path) -> None:
    text = gzip.decompress(TRACES[0].read_bytes())
    quietly(text).export_chrome_trace(tmp_path / "trace.json")
    names = ("Total Allocated", "Total Reserved", "Addr", "Bytes", "Device Type")
    before, after = (
        [[one[name] for name in names] for one in changes_of(content)]
        for content in (text, (tmp_path / "trace.json").read_bytes())
    )
    assert sorted(after) == sorted(before)

"""What the host did while devices idled: random programs against counts of single nanoseconds."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from flopscope import _core

SPAN, LAUNCH, LOADING = 3000, "cudaLaunchKernel", "LibraryLoad"
NAMES = {"op": ["aten::a", "aten::b", "aten::c"], "range": ["load", "prepare", LOADING]}
NAMES |= {"frame": ["train.py(3): f", "train.py(9): g"], "runtime": [LAUNCH, LAUNCH, "cudaFree"]}
NAMES |= {"overhead": ["Buffer Flush"]}


@dataclass
class HostEvent:
    kind: str
    name: str
    begin: int
    end: int
    thread: int
    parent: int | None
    launches: bool = False


@dataclass
class Program:
    """Two threads of nested events that launch work on two devices, and the store of them."""

    seed: int
    steps: int = 0
    store: _core.Store = field(default_factory=_core.Store)
    events: dict[int, HostEvent] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    works: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: {0: [], 1: []})

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        _core._set_window(self.store, 0, SPAN)
        length = SPAN // max(self.steps, 1)
        for step in range(self.steps):
            _core._append(self.store, "step", f"ProfilerStep#{step}", step * length, length - 1, thread=1)
        for thread in (1, 2):
            self.nest(thread, 5, SPAN - 5, None, 0)
        for device, works in self.works.items():
            for number, (begin, end, correlation) in enumerate(works):
                call = self.calls[correlation]
                _core._append(
                    self.store, "kernel", f"k{number}", begin, end - begin, None, call, correlation, device=device
                )
                event: int | None = call
                while event is not None:
                    self.events[event].launches = True
                    event = self.events[event].parent

    def nest(self, thread: int, begin: int, end: int, parent: int | None, depth: int) -> None:
        at = begin
        while at < end - 40:
            at += self.random.randrange(30)
            kind = self.random.choice(list(NAMES)) if depth else self.random.choice(["op", "range", "frame"])
            leaf = kind in ("runtime", "overhead")
            last = min(at + self.random.randrange(5, 40 if leaf else 900), end)
            name = self.random.choice(NAMES[kind])
            number = len(self.calls) + 1 if name == LAUNCH else None
            index = _core._append(self.store, kind, name, at, last - at, parent, correlation=number, thread=thread)
            self.events[index] = HostEvent(kind, name, at, last, thread, parent)
            if number is not None:
                self.calls[number] = index
                works = self.works[self.random.randrange(2)]
                start = max(at + self.random.randrange(2, 60), works[-1][0] + 1 if works else 0)
                works.append((start, start + self.random.randrange(1, 150), number))
            elif depth < 5 and not leaf:
                self.nest(thread, at + 1, last - 1, index, depth + 1)
            at = last + 1

    def flags(self, *names: str) -> bytes:
        return bytes(text in names for text in self.store.events()[1])

    def step_at(self, time: int) -> int:
        begins, ends = zip(*self.limits(), strict=True)
        return next((i for i, (begin, end) in enumerate(zip(begins, ends, strict=True)) if begin <= time < end), -1)

    def limits(self) -> list[tuple[int, int]]:
        steps = self.store.accounting(True, 0, {})[1]["accounting"]["steps"]
        return [(step[1], step[2]) for step in steps]

    def op_around(self, event: int | None) -> str:
        while event is not None and self.events[event].kind != "op":
            event = self.events[event].parent
        return self.events[event].name if event is not None else ""

    def late(self, first_step: int) -> list[tuple[int, int, int]]:
        """Return begin, end and call of each late time."""
        found = []
        for works in self.works.values():
            ordered = sorted(works)
            free = self.limits()[0][0] if self.steps else ordered[0][0] if ordered else 0
            for begin, end, correlation in ordered:
                call = self.calls[correlation]
                if begin > free and self.events[call].begin > free and self.step_at(free) >= first_step:
                    found.append((free, min(begin, self.events[call].begin), call))
                free = max(free, end)
        return found

    def instants(self, *names: str) -> set[int]:
        here = [event for event in self.events.values() if event.name in names]
        return {time for event in here for time in range(event.begin, event.end)}


def rows(columns: dict[str, Any]) -> list[tuple[int, ...]]:
    return list(zip(*(values.tolist() for values in columns.values()), strict=True))


PROGRAMS = [(seed, steps) for seed in range(6) for steps in (0, 3)]


@pytest.mark.parametrize(("seed", "steps"), PROGRAMS)
def test_calls_have_the_idle_time_of_the_devices_within_them(seed: int, steps: int) -> None:
    program = Program(seed, steps)
    names = ("load", "cudaFree")
    texts, expected = program.store.names(), []
    for index, event in program.events.items():
        if event.name not in names:
            continue
        idle = unused = 0
        for works in program.works.values():
            busy = {time for begin, end, _ in works for time in range(begin, end)}
            low = event.begin if steps else max(event.begin, works[0][0])
            high = event.end if steps else min(event.end, works[-1][0])
            idle += sum(time not in busy for time in range(low, high))
            unused |= event.begin >= works[-1][0]
        duration = event.end - event.begin
        expected.append((index, texts.index(event.name), event.begin, duration, idle, unused, 0, 0, -1))
    found = rows(program.store.named_calls(program.flags(*names), "device"))
    assert found and sorted(found) == sorted(expected) and [row[2] for row in found] == sorted(row[2] for row in found)
    assert rows(program.store.named_calls(program.flags(*names))) == [(*row[:4], 0, 0, *row[6:]) for row in found]


@pytest.mark.parametrize(("seed", "steps"), PROGRAMS)
def test_late_times_within_calls_are_those_of_the_op_that_launches_next(seed: int, steps: int) -> None:
    program, first_step = Program(seed, steps), min(steps, 1)
    within, expected = program.instants("cudaFree", "prepare"), defaultdict[str, int](int)
    for begin, end, call in program.late(first_step):
        expected[program.op_around(call)] += len(within.intersection(range(begin, end)))
    found = program.store.late_within(first_step, program.flags("cudaFree", "prepare"))
    texts = program.store.events()[1]
    times = {texts[name] if name >= 0 else "": time for name, _, time, _ in rows(found)}
    assert times == {name: time for name, time in expected.items() if time}


@pytest.mark.parametrize(("seed", "steps"), PROGRAMS)
@pytest.mark.parametrize("least", [0, 60])
def test_late_times_are_spent_in_the_innermost_events_of_the_thread(seed: int, steps: int, least: int) -> None:
    program, first_step, ops = Program(seed, steps), min(steps, 1), ("aten::a", "aten::b", "")
    other = program.instants(LOADING, "Buffer Flush")
    instants: dict[int, set[int]] = {1: set(), 2: set()}
    for begin, end, call in program.late(first_step):
        left = set(range(begin, end)) - other
        if program.op_around(call) in ops and len(left) > least:
            instants[program.events[call].thread] |= left
    times, members = defaultdict[tuple[str, int], int](int), defaultdict[tuple[str, int], set[int]](set)
    for thread, late in instants.items():
        for time in late:
            around = [i for i, e in program.events.items() if e.thread == thread and e.begin <= time < e.end]
            event = program.events[around[-1]] if around else None  # a child comes after its parent
            if event is not None and event.kind != "overhead":
                key = event.name, int(event.launches or event.kind == "runtime")
                times[key] += 1
                members[key].add(around[-1])
    wanted = program.flags(*ops) + bytes([1])
    found = rows(program.store.late_spent(first_step, least, wanted, program.flags(LOADING)))
    texts = program.store.events()[1]
    expected = {key: (time, len(members[key])) for key, time in times.items()}
    assert {(texts[name], launches): (time, count) for name, launches, time, count in found} == expected


def test_there_is_a_flag_for_each_name() -> None:
    store = Program(0).store
    count = len(store.events()[1])
    with pytest.raises(ValueError, match=f"3 flags for {count} names"):
        store.named_calls(bytes(3))
    with pytest.raises(ValueError, match=f"{count} flags for {count + 1} names"):
        store.late_spent(0, 0, bytes(count), bytes(count))
    assert rows(_core.Store().named_calls(b"")) == rows(_core.Store().named_calls(b"", "waiting")) == []
    assert rows(_core.Store().named_calls(b"", "cpu")) == []

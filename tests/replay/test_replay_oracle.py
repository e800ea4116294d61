"""csrc/replay beside a machine that runs programs event by event: equal to the ns, unchanged and with changes."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import load
from helpers.replay_machine import Do, recorded, step_time

from flopscope import _core


def program_of(chance: random.Random, thread: int, length: int, alone: bool) -> list[Do]:
    """Return a random program: several streams, waits, copies, orders of streams and graphs."""
    doing: list[Do] = []
    slow = chance.choice((2_000, 20_000, 90_000))  # the host
    while len(doing) < length:
        stream = 10 * thread + chance.randrange(3)
        gap, ops = chance.randrange(500, slow), chance.randrange(4)
        works: tuple[tuple[int, int], ...] = ((stream, chance.randrange(1, 40_000)),)
        what = chance.choice(("launch",) * 6 + ("graph", "copy", "other", "stream", "device", "order"))
        launched = [work[0] for do in doing for work in do.works]
        if what == "graph":
            works = tuple((stream, chance.randrange(1, 9_000)) for _ in range(chance.randrange(2, 6)))
        if what in ("launch", "graph", "copy"):
            doing.append(Do("copy" if what == "copy" else "launch", gap, ops, works))
        elif what == "order" and alone and {*launched} - {stream}:
            doing += [Do("order", gap, ops, stream=stream), Do("launch", 500, 0, works)]
        elif what in ("stream", "device") and launched and (alone or what == "stream"):
            doing.append(Do(what, gap, ops, stream=launched[-1], own=3000))
        else:
            doing.append(Do("other", gap, ops))
    return doing


def sizes(programs: list[list[Do]]) -> set[tuple[str, int]]:
    """Return how many instructions and launches each has, by which they are told apart."""
    return {size for p in programs for size in (("all", len(p)), ("launches", sum(bool(do.works) for do in p)))}


def made(seed: int) -> tuple[list[list[Do]], Any, int]:
    """Return programs of one thread, or of two at once, their replay, and its number of steps."""
    chance = random.Random(seed)
    alone = seed % 3 != 0
    programs = [program_of(chance, 0, chance.randrange(5 if alone else 30, 80), alone)]
    if not alone:
        programs.append(program_of(chance, 1, 10, False))
        while recorded([[], programs[1]])[1] < recorded(programs[:1])[1] - 50_000 or len(sizes(programs)) < 4:
            programs[1] += program_of(chance, 1, 3, False)
    ends = [recorded([[]] * thread + [program])[1] for thread, program in enumerate(programs)]
    for program, end in zip(programs, ends, strict=True):
        program.append(Do("end", max(ends) - end + 1000, 1))
    steps = chance.choice((1, 2))
    events, end = recorded(programs)
    cuts = np.array([0, end] if steps == 1 else [0, end // 2, end], dtype=np.int64)
    return programs, _core.Replay(load(*events)._core, cuts[:-1], cuts[1:]), steps


@pytest.mark.parametrize("seed", range(60))
def test_replays_equal_the_machine(seed: int) -> None:
    programs, replay, steps = made(seed)
    chance = random.Random(seed + 1000)
    assert replay.usable and replay.replayed == replay.recorded and replay.run() == step_time(programs, steps)
    counts = np.bincount(replay.call_sequence).tolist()
    assert sorted(counts) == sorted(map(len, programs))
    threads = [next(t for t, p in enumerate(programs) if len(p) == n) for n in counts]
    order = [iter(range(count)) for count in counts]
    calls = [(threads[sequence], next(order[sequence])) for sequence in replay.call_sequence.tolist()]

    def expected(change: Callable[[tuple[int, int], Do], Do]) -> float:
        return step_time([[change((t, at), do) for at, do in enumerate(p)] for t, p in enumerate(programs)], steps)

    factors = {place: chance.choice((0.25, 0.5, 1.0, 3.0)) for place in calls}
    by_call = np.array([factors[place] for place in calls])
    scaled = expected(lambda at, do: replace(do, works=tuple((s, int(time * factors[at])) for s, time in do.works)))
    assert replay.run(work_factor=by_call[replay.work_call]) == scaled
    slower = expected(lambda at, do: replace(do, gap=int(do.gap * factors[at]), own=int(do.own * factors[at])))
    assert replay.run(host_factor=by_call) == slower
    for cost in (100, 1500, 9000):
        assert replay.run(event_ns=cost) == step_time(programs, steps, cost), "less the cost of recording"

    chosen = {place for place in calls if chance.random() < 0.5}
    marks = np.array([place in chosen for place in calls], dtype=np.uint8)
    gone = expected(lambda at, do: replace(do, gone=True, gap=0) if at in chosen else do)
    assert replay.run(gone=marks, host_factor=1.0 - marks) == gone, "with launches merged, and without waits"

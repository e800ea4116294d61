"""Accounting of random traces, compared with the documented rule applied to each instant."""

import bisect
import itertools
import math
import random
import statistics
from collections import Counter
from typing import Any

import pytest
from helpers.hand_traces import NCCL, PAGEABLE, Program
from helpers.parts import parts_of, rows_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flopscope.answers.analysis import analysis_of

KINDS = {
    "kernel": ("k", "cudaLaunchKernel", "unmodelled"),
    "nccl": (NCCL, "cudaLaunchKernelExC", "communication"),
    "upload": (PAGEABLE, "cudaMemcpyAsync", "copy"),
    "inside": ("Memcpy DtoD (Device -> Device)", "cudaMemcpyAsync", "unmodelled"),
    "fill": ("Memset (Device)", "cudaMemsetAsync", "copy"),
}
DOES = {  # what the host does: category and name of the event, and the part of idle time, in order of precedence
    "profiles": ("overhead", "Buffer Flush", "recording"),
    "loads code": ("overhead", "Lazy Function Loading", "other"),
    "compiles": ("user_annotation", "Scheduler.__init__ (dynamo_timed)", "compilation"),
    "loads data": ("user_annotation", "enumerate(DataLoader)#it.__next__", "data"),
}
CLASSES = ("unmodelled", "communication", "copy")
SPAN = 300
spans = st.tuples(st.integers(0, SPAN - 40), st.integers(1, 40))
doings = st.tuples(st.integers(0, SPAN - 40), st.integers(1, 40), st.sampled_from(sorted(DOES)))
pieces = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(sorted(KINDS)), "begin": st.integers(20, SPAN),
        "length": st.sampled_from([0, 1, 2, 5, 10, 20, 40]), "device": st.integers(0, 1), "stream": st.integers(7, 9),
        "launch": st.none() | st.tuples(st.integers(0, SPAN), st.integers(1, 10)), "waits": st.booleans(),
    }
)  # fmt: skip


def written(works: list[Any], waits: list[Any], doing: list[Any], edges: list[int]) -> Program:
    """Return a trace in which each host event is on a thread of its own. Times of the arguments are ns."""
    program = Program(devices=2)
    for i, work in enumerate(works):
        name, call, _ = KINDS[work["kind"]]
        correlation = 100 + i
        if work["launch"] is not None:
            begin, length = work["launch"]
            program.op(f"made::up{i}", begin / 1000, (length + 5) / 1000, tid=100 + i)
            program.call(call, begin / 1000, length / 1000, 100 + i, correlation)
            if work["waits"]:
                program.call("cudaStreamSynchronize", (begin + length + 1) / 1000, 0.003, 100 + i)
        more = {"device": work["device"], "stream": work["stream"], "correlation": correlation}
        program.work(name, work["begin"] / 1000, work["length"] / 1000, **more)
    for i, (begin, length) in enumerate(waits):
        program.call("cudaDeviceSynchronize", begin / 1000, length / 1000, 200 + i)
    for i, (begin, length, does) in enumerate(doing):
        program.add(*DOES[does][:2], begin / 1000, length / 1000, 300 + i)
    for i in range(len(edges) - 1):
        program.step(i, edges[i] / 1000, (edges[i + 1] - edges[i]) / 1000, tid=400)
    return program


def with_work(works: list[Any], edges: list[int]) -> list[int]:
    """Return the edges of the marks that are steps: a first and a last mark in which no work began are none."""
    began = [work["launch"][0] if work["launch"] else work["begin"] for work in works]
    if len(edges) > 2 and any(edges[0] <= at < edges[-1] for at in began):
        last = not any(edges[-2] <= at < edges[-1] for at in began)
        first = not any(edges[0] <= at < edges[1] for at in began)
        edges = edges[first : len(edges) - last]
    return edges


def steps_of(works: list[Any], waits: list[Any], doing: list[Any], edges: list[int]) -> list[tuple[int, int, int]]:
    """Return (begin, end, end on the host) of each step."""
    host = [(b, b + n + 5) for b, n in (work["launch"] for work in works if work["launch"])]
    host += [(b, b + n) for b, n in waits] + [(b, b + n) for b, n, _ in doing]
    if len(edges) < 2:
        every = host + [(work["begin"], work["begin"] + work["length"]) for work in works]
        begin = min(b for b, _ in every)
        return [(begin, max(e for _, e in every), max([e for _, e in host], default=begin))]
    queued = [work for work in works if work["launch"] is None]
    first_launched = min((work["begin"] for work in works if work["launch"]), default=-1)
    steps, previous = [], -1
    if queued and max(work["begin"] for work in queued) < first_launched:
        previous = max(work["begin"] + work["length"] for work in queued)
    for first, last in itertools.pairwise(edges):
        launched = [work for work in works if work["launch"] and first <= work["launch"][0] < last]
        if first == edges[0] and previous >= max([last, *(work["begin"] + work["length"] for work in launched)]):
            previous = -1
        begin = max(first, previous)
        previous = max([begin, last, *(work["begin"] + work["length"] for work in launched)])
        steps.append((begin, previous, last))
    return steps


def arrival(mine: list[Any], classes: list[list[int]]) -> int:
    """Return the median of the times from late launches to the work that they end idle times with."""
    delays = []
    for t in range(1, len(classes)):
        if not classes[t] or classes[t - 1]:
            continue
        dry = max((u for u in range(t) if classes[u]), default=-1) + 1
        following = next(work for work in mine if work["begin"] >= t)
        if dry > 0 and following["launch"] is not None and sum(following["launch"]) > dry:
            delays.append(max(t - sum(following["launch"]), 0))
    return int(statistics.median(delays)) if delays else 0


def owners(
    works: list[Any], waits: list[Any], doing: list[Any], steps: list[tuple[int, int, int]], device: int, marked: bool
) -> list[Counter[str]]:
    """Return the parts of each step on a device, by deciding to which part every instant belongs."""
    mine = sorted((w for w in works if w["device"] == device), key=lambda work: work["begin"])
    syncs = [(b, b + n) for b, n in waits]
    launched = [(*work["launch"], work) for work in works if work["launch"] is not None]
    syncs += [(begin, begin + length) for begin, length, work in launched if work["kind"] == "upload"]
    syncs += [(begin + length + 1, begin + length + 4) for begin, length, work in launched if work["waits"]]
    end = max([e for _, e, _ in steps] + [w["begin"] + w["length"] for w in mine]) + 1
    classes = [[] for _ in range(end)]  # type: list[list[int]]
    for work in mine:
        for t in range(work["begin"], work["begin"] + work["length"]):
            classes[t].append(CLASSES.index(KINDS[work["kind"]][2]))
    takes = arrival(mine, classes)
    results: list[Counter[str]] = [Counter() for _ in steps]
    last_waited, since = False, 8
    for busy, instants in itertools.groupby(range(end), lambda t: bool(classes[t])):
        run = list(instants)
        t, until = run[0], run[-1] + 1
        dry = t if t > 0 else -math.inf
        if busy:
            for (begin, stop, _), parts in zip(steps, results, strict=True):
                parts.update(CLASSES[min(classes[u])] for u in run if begin <= u < stop)
        elif any(begin < until and stop > dry for begin, stop, _ in steps):
            following = mine[bisect.bisect_left([w["begin"] for w in mine], until) :]
            late, returned = False, -math.inf
            sync = any(b <= dry <= e for b, e in syncs)
            if following and following[0]["launch"] is not None:
                begin, length = following[0]["launch"]
                late = begin + length > dry
                returned = begin + length + takes if late else returned
                waits_too = following[0]["waits"] or following[0]["kind"] == "upload"
                sync = sync or (late and waits_too)
            if sync:
                last_waited, since = True, 0
            elif late and since < 8:
                sync, since = last_waited, since + 1
            else:
                since = 8
            for (begin, stop, host_end), parts in zip(steps, results, strict=True):
                at_edge = not marked and (t == 0 or until == end)
                for u in range(max(t, begin), min(until, stop)):
                    now = {does for b, n, does in doing if b <= u < b + n}
                    causes = [cause for does, (_, _, cause) in DOES.items() if does in now]
                    if at_edge:
                        cause = "recording" if "profiles" in now else "edges"
                    elif u >= (returned if following else host_end):
                        cause = "other"
                    else:
                        held_up = any(work["launch"] for work in mine)  # as far as is known
                        cause = [*causes, "other" if not held_up else "sync" if sync else "host"][0]
                    parts[cause] += 1
    return results


@settings(deadline=None, max_examples=200)
@given(
    st.lists(pieces, min_size=1, max_size=14), st.lists(spans, max_size=3), st.lists(doings, max_size=4),
    st.lists(st.integers(0, SPAN), max_size=4, unique=True).map(sorted),
)  # fmt: skip
def test_instants_have_documented_parts(works: list[Any], waits: list[Any], doing: list[Any], edges: list[int]) -> None:
    rows = rows_of(written(works, waits, doing, edges).load())
    steps = steps_of(works, waits, doing, edges := with_work(works, edges))
    assume(steps[-1][1] > steps[0][0])
    devices = sorted({work["device"] for work in works})
    expected = [parts for device in devices for parts in owners(works, waits, doing, steps, device, len(edges) > 1)]
    found = [parts_of(row) for row in (rows[:-1] if len(rows) > 1 else rows)]
    assert found == expected
    lengths = [end - begin for begin, end, _ in steps] * len(devices)
    assert [row["total"] for row in (rows[:-1] if len(rows) > 1 else rows)] == lengths


# The CPU --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_time_on_the_cpu_belongs_to_the_innermost_op_that_has_run_longest(seed: int) -> None:
    """Of several threads, the one whose innermost op began, or resumed, first has the time."""
    rng = random.Random(seed)
    times = iter(sorted(rng.sample(range(1, 4000), 200)))
    program, stacks = Program(devices=0), {tid: [] for tid in range(1, 4)}  # type: ignore[var-annotated]
    running: list[tuple[int, int, str]] = []  # from, to, innermost op
    last = {tid: 0 for tid in stacks}

    def turn(tid: int, now: int) -> None:
        if stacks[tid]:
            running.append((last[tid], now, stacks[tid][-1][1]))
        last[tid] = now

    for now in times:
        tid = rng.randint(1, 3)
        turn(tid, now)
        if stacks[tid] and (rng.random() < 0.5 or len(stacks[tid]) > 3):
            begin, name = stacks[tid].pop()
            program.op(name, begin / 1000, (now - begin) / 1000, tid=tid)
        else:
            stacks[tid].append((now, f"made::op{now}"))
    for tid, stack in stacks.items():
        turn(tid, 3999 + tid)
        while stack:
            begin, name = stack.pop()
            program.op(name, begin / 1000, (3999 + tid - begin) / 1000, tid=tid)
    program.events.sort(key=lambda event: event["ts"])
    expected: dict[str, int] = {}
    for t in range(min(one[0] for one in running), max(one[1] for one in running)):
        now_on = [one for one in running if one[0] <= t < one[1]]
        name = min(now_on)[2] if now_on else "idle"
        expected[name] = expected.get(name, 0) + 1
    trace = program.load()
    (row,) = rows_of(trace)
    found = {op.key: round(1000 * op.time) for op in analysis_of(trace, "ops").ops} | {"idle": row["host"]}
    assert {name: time for name, time in found.items() if time} == expected

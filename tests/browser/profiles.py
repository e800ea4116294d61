"""The profiles whose pages are tested: each a function that writes the page of one."""

import gzip
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
from helpers.hand_traces import Program, quietly
from helpers.ranks_cases import simulated
from helpers.recordings import FAULTS

import flopscope as fs
from flopscope.answers.analysis import PARTS
from flopscope.ranks.digest import digests_of
from flopscope.ranks.page import ranks_page, report_of_ranks
from flopscope.show.page.page import write

__all__ = [*("NASTY", "PROFILES"), *("hostile", "huge", "many_ranks", "ranks_of")]


EVENTS = 200_000
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn"
NASTY = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\"quotes\" 'and' `back` ${ticks}",
    "right\u202eto left\u2066", "line\nfeed\x1b[31m\u2028", "=HYPERLINK(1)", "<!--", "long " * 200_000, "lone \ud800",
    "", "__proto__", "constructor",
)  # fmt: skip


def _recorded(name: str) -> Callable[[Path], None]:
    return lambda path: quietly(FAULTS / f"{name}.json.gz").write_report(path)


def _cpu(path: Path) -> None:
    x = fs.ones((256, 256))
    with fs.profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        for _ in range(5):
            with fs.record_function("layer"):
                fs.softmax(fs.matmul(x, x))
                fs.gelu(fs.add(x, x))
    trace = path.with_name("cpu.json")
    prof.export_chrome_trace(trace)
    quietly(trace).write_report(path)


# Ranks ----------------------------------------------------------------------------------------------------------------


def ranks_of(folder: Path) -> dict[int, fs.Trace]:
    """Return traces of a program on eight GPUs. Rank 1 computes longer, so the others wait for it."""
    simulated(folder, dp=8, tp=1, slow_gpu={1: 1.4})
    traces = map(quietly, sorted(folder.glob("*.json.gz")))
    return {trace.rank: trace for trace in traces if trace.rank is not None}


def _ranks(path: Path) -> None:
    traces = ranks_of(path.with_name("traces"))
    write(path, report_of_ranks(fs.Ranks(digests_of(traces)), traces))


# Counters -------------------------------------------------------------------------------------------------------------


def counted_program(steps: int = 3, every: float = 2.0) -> Program:
    """Return a program of products and additions whose GPU was sampled every 2 µs, except in its second step."""
    program = Program()
    length, busy = 900.0, []
    for step in range(steps):
        at = length * step
        program.step(step, at, length - 20)
        begin = at + 60
        for layer in range(4):
            launched = at + 10 + 8 * layer
            shapes = [4096, 4096], [4096, 4096]
            program.run("aten::mm", launched, begin, 120, *shapes, kernel=GEMM, dtype="c10::BFloat16")
            program.run("aten::add", launched + 4, begin + 125, 60, *shapes, kernel="add_kernel", dtype="c10::BFloat16")
            busy += [(begin, begin + 120, 900.0, 300.0, 85.0), (begin + 125, begin + 185, 2400.0, 1200.0, 0.0)]
            begin += 190 + 10 * layer
    for number in range(int(steps * length / every)):
        start, end = number * every, (number + 1) * every
        if length <= start < 2 * length:
            continue
        shares = [max(min(end, b) - max(start, a), 0) / every for a, b, *_ in busy]
        read, written, tensor = (sum(s * c[2 + i] for s, c in zip(shares, busy, strict=True)) for i in range(3))
        values = {
            "dram_bytes_read": {"GB/s": read}, "dram_bytes_written": {"GB/s": written},
            "sm_active": {"%": 98 * sum(shares)}, "tensor_active": {"%": tensor},
            "power": {"W": 300 + 250 * sum(shares)},
        }  # fmt: skip
        after = [start] if number * every != length - every else [start, end]
        for name, value in values.items():
            for at in after:
                args = value if at == start else {next(iter(value)): 0, "missing": 1}
                program.events.append({"ph": "C", "name": name, "pid": 0, "ts": at, "args": args})
    return program


# Others ---------------------------------------------------------------------------------------------------------------


def huge(events: int = EVENTS) -> bytes:
    """Return a trace of so many events: ops on two threads and kernels on three streams."""
    program = Program()
    draw = random.Random(1)
    names = [f"aten::op_{i}" for i in range(300)]
    device, step, number = 0.0, 0, 0
    while len(program.events) < events:
        at = number * 6.0
        if number % 1000 == 0:
            program.step(step, at, 5990)
            step += 1
        number += 1
        name = draw.choice(names)
        device = max(device + 0.2, at + 4)
        width = 64 << draw.randrange(5)
        length = draw.expovariate(0.3) + 0.8
        program.run(
            name, at, device, length, [width, 128], kernel=f"{name[6:]}_kernel", tid=1 + number % 2,
            stream=7 + number % 3,
        )  # fmt: skip
        device += length
    return program.text()


def hostile() -> bytes:
    """Return a recorded trace with names that try to leave their place, and times of all sizes."""
    with gzip.open(FAULTS / "attention_infer_before.json.gz") as file:
        trace = json.load(file)
    for number, event in enumerate(event for event in trace["traceEvents"] if event.get("ph") == "X"):
        nasty = NASTY[number % len(NASTY)]
        if len(nasty) < 1000 or number == 7:
            event["name"] = nasty if number % 3 else event["name"] + nasty
        elif number % 5 == 0:
            event["name"] = nasty[:3000]
    return json.dumps(trace).encode()


def _compare(path: Path) -> None:
    runs = (quietly(FAULTS / f"compile_fuse_{which}.json.gz") for which in ("before", "after"))
    fs.compare(*runs, names=("eager", "compiled")).write_report(path)


class MadeRanks(SimpleNamespace):
    """What a page asks of Ranks."""

    def __len__(self) -> int:
        return len(self.comparison.digests)


def many_ranks(path: Path, count: int, unknown: bool = False) -> None:
    """Write the page of so many ranks, of which one is slow in every step: rank 1234, or the tenth of less.

    unknown: nothing is known of their times.
    """
    slow = 1234 if count > 1234 else 9
    draw = np.random.default_rng(1)
    steps = 12
    parts = {part: np.zeros((count, steps)) for part in PARTS}
    parts["ideal"] += 900.0
    parts["compute"] += draw.normal(400, 10, (count, steps))
    parts["compute"][slow] += 300.0
    parts["communication"] += 2000.0 - parts["ideal"] - parts["compute"]
    parts["compute"][7] = math.nan  # a rank whose steps are unknown
    waits = parts["compute"][slow].sum() - parts["compute"].sum(axis=1)
    rows = {"rank": [*range(count)], "collectives": steps, "unmatched": 0, "waited": waits, "waited_pct": waits / 200}
    rows |= {"times_last": 0, "awaited": 0.0, "clock_offset": draw.normal(0, 50, count), "clock_spread": 0.2}
    rows |= {"clock_uncertainty": 0.1, "host": [f"node{rank // 8:03}" for rank in range(count)], "gpu": 0}
    rows |= {"own": 0.0, "excess": 0.0, "slowness": 1.0, "memory_peak": math.nan}
    frame = pandas.DataFrame(rows)
    frame.loc[slow, ["own", "excess"]] = 300.0
    frame.loc[slow, ["times_last", "awaited"]] = steps, np.nansum(waits)
    if unknown:
        parts = {part: np.full((count, steps), math.nan) for part in PARTS}
        frame = frame.drop(columns="host").astype(float).assign(host=None)
        frame.loc[:, frame.columns != "rank"] = math.nan
        slow = 0
    text = [f"tp_{2 * number}" for number in range(count // 2)]
    groups = pandas.DataFrame({"group": text, "ranks": 2, "calls": 12, "waited": 2050.0, "waited_pct": 1.0})
    groups = groups.assign(most_last=slow, times_last=12, awaited=2050.0)
    steps_of = [f"ProfilerStep#{step}" for step in range(steps)]
    work = SimpleNamespace(steps=steps_of, has_steps=True, part=parts.get, role=np.zeros(count, int))
    work.total = np.asarray(sum(parts.values()))
    files = (SimpleNamespace(source=f"runs/rank{rank}.json.gz", device="NVIDIA H200") for rank in range(count))
    digests = [SimpleNamespace(rank=rank, identity=identity) for rank, identity in enumerate(files)]
    call = {"collective": "allreduce", "group": "tp_0", "message_bytes": 8.0, "start": 0.0, "straggler": slow}
    call |= dict.fromkeys(("skew", "skew_uncertainty", "transfer", "bus_gbytes_per_s"), 1.0)
    waited = SimpleNamespace(collectives=pandas.DataFrame([call]))
    found = [SimpleNamespace(what=f"Rank {slow} is slow.", action="Look at it.", ranks=(slow,))]
    about = {"verdict": found[0].what, "findings": found, "notes": [], "groups": lambda: groups}
    about |= dict.fromkeys(("hosts", "collectives"), lambda **_: groups[:0])
    comparison = SimpleNamespace(digests=digests, work=work)
    write(path, ranks_page(MadeRanks(comparison=comparison, ranks=frame, stragglers=lambda: waited, **about)))


PROFILES: dict[str, Callable[[Path], Any]] = {
    "training": _recorded("vocab_before"), "inference": _recorded("attention_infer_before"), "cpu": _cpu,
    "ranks": _ranks, "counters": lambda path: counted_program().load().write_report(path),
    "empty": lambda path: quietly(b'{"traceEvents": []}').write_report(path),
    "huge": lambda path: quietly(huge()).write_report(path), "compare": _compare,
    "hostile": lambda path: quietly(hostile()).write_report(path),
}  # fmt: skip

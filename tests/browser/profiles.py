"""The profiles whose pages are tested and photographed: each a function that writes the page of one."""

from __future__ import annotations

import gzip
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hand_traces import NCCL, Program

import flopscope as fs
from flopscope.report import ranks
from flopscope.report.page import write
from flopscope.report.profile import profile_page
from flopscope.results.rank_facts import rank_facts

__all__ = ["PROFILES", "hostile", "huge", "ranks_of"]

ROOT = Path(__file__).parent.parent.parent
RECORDED = ROOT / "benchmarks" / "results" / "nvidia-h200"
EVENTS = 200_000
NASTY = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\"quotes\" 'and' `back` ${ticks}",
    "right\u202eto left\u2066",
    "line\nfeed\x1b[31m\u2028",
    "=HYPERLINK(1)",
    "<!--",
    "long " * 200_000,
    "lone \ud800",
    "",
    "__proto__",
    "constructor",
)


def _load(path: Path | bytes) -> fs.Trace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fs.load_trace(path)


def _recorded(name: str) -> Callable[[Path], None]:
    return lambda path: _load(RECORDED / f"{name}.json.gz").write_report(path)


def _cpu(path: Path) -> None:
    x = fs.ones((256, 256))
    with fs.profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        for _ in range(5):
            with fs.record_function("layer"):
                fs.softmax(fs.matmul(x, x))
                fs.gelu(fs.add(x, x))
    trace = path.with_name("cpu.json")
    prof.export_chrome_trace(trace)
    _load(trace).write_report(path)


# Ranks ----------------------------------------------------------------------------------------------------------------


def ranks_of(count: int, steps: int = 4, slow: int = 1) -> list[fs.Trace]:
    """Return traces of a program on several GPUs. The rank ``slow`` computes longer, so the others wait for it."""
    draw = random.Random(count)
    return [_rank(rank, count, steps, 1.4 if rank == slow else 1.0, draw) for rank in range(count)]


def _rank(rank: int, count: int, steps: int, factor: float, draw: random.Random) -> fs.Trace:
    program = Program()
    program.head["distributedInfo"] = {"rank": rank, "world_size": count, "backend": "nccl"}
    slowest = 1.4
    for step in range(steps):
        at = 4000.0 * step
        program.step(step, at, 3900)
        begin = at + 20
        for layer in range(6):
            launched = at + 10 + 12 * layer
            time = 180 * factor * draw.uniform(0.97, 1.03)
            shapes, kernel = ([16384, 1024], [1024, 4096]), "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn"
            program.run(
                "aten::mm",
                launched,
                begin,
                time,
                *shapes,
                kernel="sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn",
                dtype="c10::BFloat16",
            )
            begin += time + 5
        ready = at + 20 + 6 * (180 * slowest * 1.03 + 5)  # when the slowest rank takes part at the latest
        for bucket, elements in enumerate((1 << 20, 1 << 22, 1 << 24)):
            transfer = elements * 4 / 200e9 * 1e6 * 2
            end = ready + transfer + 20 * bucket
            launched = at + 100 + 12 * bucket
            ready = end
            program.op("c10d::allreduce_", launched, 2)
            program.correlation += 1
            program.call("cudaLaunchKernel", launched + 1, 1, correlation=program.correlation)
            recorded = {
                **{"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements},
                **{"dtype": "Float", "Group size": count, "Process Group Name": "0", "Seq": 3 * step + bucket},
                "Process Group Ranks": str([*range(count)]),
            }
            program.work(NCCL, begin, end - begin, stream=17, correlation=program.correlation, **recorded)
            begin = end + 4
    return program.load()


def _ranks(path: Path) -> None:
    traces = ranks_of(8)
    page = profile_page(traces[0])
    page.sections["ranks"] = ranks.section(rank_facts(dict(enumerate(traces))), page.columns)
    write(path, page)


# Others ---------------------------------------------------------------------------------------------------------------


def _empty(path: Path) -> None:
    _load(b'{"traceEvents": []}').write_report(path)


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
            name,
            at,
            device,
            length,
            [width, 128],
            kernel=f"{name[6:]}_kernel",
            tid=1 + number % 2,
            stream=7 + number % 3,
        )
        device += length
    return program.text()


def hostile() -> bytes:
    """Return a recorded trace with names that try to leave their place, and times of all sizes."""
    with gzip.open(RECORDED / "faults" / "attention_infer_before.json.gz") as file:
        trace = json.load(file)
    for number, event in enumerate(event for event in trace["traceEvents"] if event.get("ph") == "X"):
        nasty = NASTY[number % len(NASTY)]
        if len(nasty) < 1000 or number == 7:
            event["name"] = nasty if number % 3 else event["name"] + nasty
        elif number % 5 == 0:
            event["name"] = nasty[:3000]
    return json.dumps(trace).encode()


def _compare(path: Path) -> None:
    runs = (_load(RECORDED / "faults" / f"compile_fuse_{which}.json.gz") for which in ("before", "after"))
    fs.compare(*runs, names=("eager", "compiled")).write_report(path)


def _measurement(path: Path) -> None:
    from fake_measure import measurement

    measurement().write_report(path)


PROFILES: dict[str, Callable[[Path], Any]] = {
    "training": _recorded("held_out/vit_before"),
    "inference": _recorded("faults/attention_infer_before"),
    "cpu": _cpu,
    "ranks": _ranks,
    "empty": _empty,
    "huge": lambda path: _load(huge()).write_report(path),
    "compare": _compare,
    "hostile": lambda path: _load(hostile()).write_report(path),
}

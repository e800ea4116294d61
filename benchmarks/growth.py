"""How the time of each answer grows with one thing of a recording: steps, calls, shapes, names, threads, depth, ….

A recording of each kind is made in three sizes, each of twice the one before, the largest of up to 100 MB. The exponent
is the logarithm to base 2 of the ratio of times for twice the size: 1 is linear, 2 quadratic. A time is the least of
three, or of as many as fit a minute. Times of less than half a second have no exponent.
"""

from __future__ import annotations

import json
import math
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import Report, arguments, timed

import flopscope as fs

LIMIT, SHORTEST = 1.4, 0.5
"""The largest exponent that meets the target: n log n has one of 1.1 at these sizes, and what no longer fits the caches
adds to it; a product of two things that grow has 2. And the s from which on a time has one."""
ROUNDS, LONGEST = 3, 60.0
"""How often each size is timed, and the s after which no further round begins."""
HEAD = {"schemaVersion": 1, "record_shapes": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]}
Events = list[dict[str, Any]]


def event(cat: str, name: str, ts: float, dur: float, pid: int = 1, tid: int = 1, **args: Any) -> dict[str, Any]:
    """Return an event of a Chrome trace; times in µs."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launch(i: int, name: str = "aten::add", size: int = 64, kernel: str = "add", thread: int = 1) -> Events:
    """Return the i-th op, its API call, and its kernel on the stream of the thread; a copy changes the dtype."""
    at, shape, types = 100 * i, [64, size], ["float", "c10::Half" if "copy" in name else "float", "Scalar"]
    inputs = {"Input Dims": [shape, shape, []], "Input type": types, "External id": i + 1}
    return [
        event("cpu_op", name, at, 20, 1, thread, **inputs),
        event("cuda_runtime", "cudaLaunchKernel", at + 2, 10, 1, thread, correlation=i + 1),
        event("kernel", kernel, at + 30, 40 + i % 3, 0, thread, device=0, stream=thread, correlation=i + 1),
    ]


def step(i: int, _: int = 0) -> Events:
    """Return a step with one launch."""
    return [event("user_annotation", f"ProfilerStep#{i}", 100 * i, 99), *launch(i)]


def frames(i: int, _: int) -> Events:
    """Return eight calls of Python, one in the other, around a launch."""
    return [*(event("python_function", f"f{i % 97}.py({k}): f", 100 * i + k, 90 - 2 * k) for k in range(8)), *launch(i)]


# By what grows: how often in the largest recording, and the events of the i-th of n. Ranges of "depth" enclose each
# other, and of "overlaps" half of all kernels run at a time: what walks over all of these for each takes squared time.
KINDS: dict[str, tuple[int, Callable[[int, int], Events]]] = {
    "steps": (64_000, step),
    "calls": (160_000, lambda i, n: launch(i)),
    "shapes": (32_000, lambda i, n: launch(i, "aten::copy_", 64 + i % (n // 10))),
    "names": (32_000, lambda i, n: launch(i, f"made::op_{i}", kernel=f"kernel_{i}")),
    "threads": (16_000, lambda i, n: launch(i, thread=1 + i // 4)),
    "depth": (64_000, lambda i, n: [event("user_annotation", f"range {i % 50}", i, 3 * n - 2 * i)]),
    "overlaps": (32_000, lambda i, n: [event("kernel", "k", 100 * i, 50 * n, 0, i % 99, device=0, stream=i % 99)]),
    "stacks": (32_000, frames),
}


def database(n: int, path: Path) -> None:
    """Write an export of Nsight Systems with n calls, kernels and nested ranges; each thread has four calls."""
    tables: dict[str, Callable[[int], tuple[object, ...]]] = {
        "StringIds (id INTEGER PRIMARY KEY, value)": lambda i: (i, f"name {i}"),
        "CUPTI_ACTIVITY_KIND_RUNTIME (start, end, correlationId, nameId, globalTid)": lambda i: (
            *(100 * i, 100 * i + 50, i, i, (1 << 24) + i // 4),
        ),
        "CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, demangledName, deviceId, globalPid)": lambda i: (
            *(100 * i + 60, 100 * i + 90, i, i, 0, 1 << 24),
        ),
        "NVTX_EVENTS (start, end, eventType, text, globalTid)": lambda i: (i, 1000 * n - i, 59, f"r{i}", 1 << 24),
    }
    file = sqlite3.connect(path)
    for table, row in tables.items():
        file.execute(f"CREATE TABLE {table}")
        marks = ", ".join("?" * len(row(0)))
        file.executemany(f"INSERT INTO {table.partition(' ')[0]} VALUES ({marks})", map(row, range(n)))
    file.commit()
    file.close()


def write(path: Path, events: Iterator[dict[str, Any]], **head: Any) -> None:
    """Write a trace of torch, event by event, with more members in its head."""
    with path.open("w") as file:
        file.write(json.dumps(HEAD | head)[:-1] + ', "traceEvents": [{}')
        file.writelines(f",\n{json.dumps(one)}" for one in events)
        file.write("]}")


def recordings(folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield what grows, how often it is there, and the recording. Ranks are small: what is found across them takes the
    time."""
    path = folder / "trace.json"
    for kind, (most, made) in KINDS.items():
        for n in (most // 4, most // 2, most):
            write(path, (one for i in range(n) for one in made(i, n)))
            yield kind, n, path
    for n in (16_000, 32_000, 64_000):
        database(n, folder / f"{n}.sqlite")
        yield "rows of a database", n, folder / f"{n}.sqlite"
    for n in (8, 16, 32):
        (folder / str(n)).mkdir()
        for rank in range(n):
            info = {"rank": rank, "world_size": n}
            write(folder / str(n) / f"{rank}.json", (one for i in range(500) for one in step(i)), distributedInfo=info)
        yield "ranks", n, folder / str(n)


def answers(path: Path) -> dict[str, Callable[[], object]]:
    """Return the calls to time, in an order in which none finds what another has kept."""
    if path.is_dir():
        return {"summary": lambda: str(fs.load_ranks(path).summary())}
    trace = fs.load_trace(path)
    return {
        "load": lambda: fs.load_trace(path),
        "tables": lambda: (trace.key_averages(), trace.key_averages(group_by_input_shape=trace.record_shapes)),
        "accounting": trace.accounting,
        "advice": trace.advice,
        "summary": lambda: str(trace.summary()),
        "report": lambda: trace.write_report(path.with_suffix(".html")),
        "export": lambda: trace.export_chrome_trace(path.with_suffix(".out")),
    }


def least_times(path: Path) -> dict[str, float]:
    """Return the least time of each answer, in s. Each round loads the recording anew: a trace keeps what it found."""
    least: dict[str, float] = {}
    begin = time.perf_counter()
    for _ in range(ROUNDS):
        for name, answer in answers(path).items():
            least[name] = min(least.get(name, math.inf), timed(answer)())
        if time.perf_counter() - begin > LONGEST:
            break
    return least


def main() -> None:
    """Time the answers to recordings of three sizes of each kind."""
    options = arguments(__doc__ or "")
    report = Report("growth", ["what grows", "largest", "answer", "s", "exponent"], options.out)
    times: dict[tuple[str, str], list[float]] = {}
    worst = (0.0, "")
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, n, path in recordings(Path(folder)):
            for name, least in least_times(path).items():
                taken = times.setdefault((kind, name), [])
                taken.append(least)
                if len(taken) == 3 and taken[-1] > SHORTEST:  # noise of the middle size does not count
                    exponent = math.log2(taken[-1] / taken[0]) / 2
                    worst = max(worst, (exponent, f"{name}, {kind}"))
                    report.row(kind, f"{n:,}", name, f"{taken[-1]:.2f}", f"{exponent:.2f}")
    report.target("exponent of the growth of time", worst[0], LIMIT, "", worst=worst[1])
    report.finish()


if __name__ == "__main__":
    main()

"""Traces designed to be slow or large: the time and memory of load_trace() and key_averages() must grow linearly.

Each form is written at two sizes, n and 2n. Seconds are CPU time of all threads, the minimum of three runs, which
depends least on other processes. "ratio" is the time for 2n over the time for n: 2 is linear. "peak / byte" is the
increase of peak resident memory in a separate process for 2n, per byte of text. "load" and "table" are the seconds of
the two steps for 2n.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import Report, arguments

RUNS = 3
HEAD = '{"schemaVersion":1,"traceEvents":[\n'
TAIL = "\n]}\n"

Form = Callable[[int], Iterator[str]]
FORMS: dict[str, tuple[Form, int]] = {}


def form(size: int) -> Callable[[Form], Form]:
    """Register a form of hostile trace under the function's name; ``size`` is its number of events n."""

    def register(make: Form) -> Form:
        FORMS[make.__name__.replace("_", " ")] = make, size
        return make

    return register


def event(category: str, name: str, start: float, duration: float, thread: int = 1, /, **args: Any) -> str:
    phase = "i" if category == "cpu_instant_event" else "X"
    fields = {"ph": phase, "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": duration}
    return json.dumps({**fields, "args": args} if args else fields)


def memory(start: float, thread: int = 1) -> str:
    return event("cpu_instant_event", "[memory]", start, 0, thread, **{"Bytes": 64, "Device Type": 0})


@form(200_000)
def short_equal_events(n: int) -> Iterator[str]:
    return (event("cpu_op", "a", i, 1) for i in range(n))


@form(150_000)
def distinct_names(n: int) -> Iterator[str]:
    return (event("cpu_op", f"op {i}", i, 1) for i in range(n))


def colliding(n: int) -> Iterator[bytes]:
    """Yield names of two words with equal unkeyed hashes, as computed by flopscope 0.1: h' = (h ^ word) * C, folded."""
    c, mask = 0xFF51AFD7ED558CCD, (1 << 64) - 1
    start = 0x9E3779B97F4A7C15 ^ 16
    letters = "".join(map(chr, range(0x30, 0x7B))).replace("\\", "").encode()
    rng = random.Random(1)
    count = 0
    while count < n:
        first = bytes(rng.choice(letters) for _ in range(8))
        hash_ = (start ^ int.from_bytes(first, "little")) * c & mask
        hash_ ^= hash_ >> 32
        second = (hash_ ^ 0x1234567890ABCDEF).to_bytes(8, "little")
        if not set(second) & set(b'"\\') and min(second) >= 0x20:
            count += 1
            yield first + second


@form(40_000)
def colliding_names(n: int) -> Iterator[str]:
    for i, name in enumerate(colliding(n)):
        yield event("cpu_op", "NAME", i, 1).replace("NAME", name.decode("latin-1"))


@form(150_000)
def distinct_threads(n: int) -> Iterator[str]:
    return (event("cpu_op", "a", i, 1, i) for i in range(n))


@form(40_000)
def overheads_and_threads(n: int) -> Iterator[str]:
    for i in range(n):
        yield event("cpu_op", "a", i, n, i)
        yield event("overhead", "b", n + i, 0.5, -1)


@form(40_000)
def overheads_behind_nested_ops(n: int) -> Iterator[str]:
    for i in range(n):
        yield event("cpu_op", f"a{i % 7}", i / 1000, n - i / 500)
        yield event("overhead", "b", n / 500 + i / 1000, n - i / 1000, -1)


@form(150_000)
def equal_external_ids(n: int) -> Iterator[str]:
    for i in range(n):
        yield event("cpu_op", "a", 10 * i, 9, **{"External id": 7})
        yield event("kernel", "k", 10 * i + 5, 1, 7, **{"External id": 7, "device": 0, "stream": 7, "correlation": 3})


@form(100_000)
def equal_correlations(n: int) -> Iterator[str]:
    for i in range(n):
        yield event("cuda_runtime", "cudaLaunchKernel", 10 * i, 9, **{"correlation": 3})
        yield event("kernel", "k", 10 * i + 5, 1, 7, **{"device": 0, "stream": 7, "correlation": 3})


@form(100_000)
def correlations_that_share_a_slot(n: int) -> Iterator[str]:
    for i in range(n):
        correlation = 1 + i % 8 + (i // 8) * (1 << 18) % (1 << 32)
        yield event("cuda_runtime", "cudaLaunchKernel", 10 * i, 9, **{"correlation": correlation})
        yield event("kernel", "k", 10 * i + 5, 1, 7, **{"device": 0, "stream": 7, "correlation": correlation})


@form(40_000)
def nested_stated_ranges(n: int) -> Iterator[str]:
    for i in range(n):
        yield event("user_annotation", f"r{i}", i, 4 * n - 2 * i, **{"flops": 100, "bytes": 10})
    for i in range(n):
        yield event("cuda_runtime", "cudaLaunchKernel", n + i, 1, **{"correlation": i + 1})
        yield event("kernel", "k", n + i + 1, 1, 7, **{"device": 0, "stream": 7, "correlation": i + 1})


@form(40_000)
def kernels_in_nested_ranges(n: int) -> Iterator[str]:
    for i in range(n):
        yield event("user_annotation", f"r{i}", i, 4 * n - 2 * i)
    for i in range(n):
        yield event("cuda_runtime", "cudaLaunchKernel", n + i, 1, **{"correlation": i + 1})
        yield event("kernel", "k", n + i + 1, 1, 7, **{"device": 0, "stream": 7, "correlation": i + 1})


@form(60_000)
def kernels_of_distinct_names_and_no_op(n: int) -> Iterator[str]:
    return (event("kernel", f"k{i}", 2 * i, 1, 7, **{"device": 0, "stream": 7}) for i in range(n))


@form(40_000)
def frames_that_outlast_nested_ops(n: int) -> Iterator[str]:
    for i in range(n):
        yield event("cpu_op", f"a{i % 7}", i, 3 * n - i)
    for i in range(n):
        yield event("python_function", f"f{i % 9}", n + i, 3 * n)


@form(150_000)
def shuffled_memory(n: int) -> Iterator[str]:
    times = list(range(n))
    random.Random(1).shuffle(times)
    yield event("cpu_op", "a", 0, n)
    yield from map(memory, times)


@form(40_000)
def memory_of_other_threads(n: int) -> Iterator[str]:
    for i in range(n):
        yield event("cpu_op", "a", i, 0.5, i)
        yield memory(i + 0.25, n + i)


@form(40_000)
def memory_after_nested_ops(n: int) -> Iterator[str]:
    yield event("cpu_op", "outer", 0, 5 * n)
    for i in range(n):
        yield event("cpu_op", f"a{i % 7}", i / 1000, n - i / 1000)
    for i in range(n):
        yield memory(n + i)


@form(60_000)
def lists_in_args(n: int) -> Iterator[str]:
    nested = [{"ph": "X", "cat": "cpu_op", "name": "no event", "ts": 1}] * 8
    return (event("cpu_op", "a", i, 1, **{"Input Dims": [[4, 4]], "more": nested}) for i in range(n))


@form(3)
def text_without_events(n: int) -> Iterator[str]:
    return (event("cpu_op", "a", i, 1, more="x" * 20_000_000) for i in range(n))


@form(24)
def large_member_of_the_head(n: int) -> Iterator[str]:
    yield event("cpu_op", "a", 0, 1) + '],"more":"' + "x" * 1_000_000 * n + '","rest":['


def write(path: Path, name: str, size: int) -> int:
    make, _ = FORMS[name]
    encoding = "latin-1" if name == "colliding names" else "utf-8"
    with path.open("w", encoding=encoding) as file:
        file.write(HEAD)
        for i, text in enumerate(make(size)):
            file.write(",\n" * (i > 0) + text)
        file.write(TAIL)
    return path.stat().st_size


PROGRAM = """
import pathlib, sys, time, warnings
import flopscope as fs
warnings.simplefilter("ignore")
status = lambda key: int(pathlib.Path("/proc/self/status").read_text().split(key + ":")[1].split()[0])
fs.load_trace(b'[{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}]').key_averages(peaks="none")  # imports
pathlib.Path("/proc/self/clear_refs").write_text("5")
before, start = status("VmRSS"), time.process_time()
trace = fs.load_trace(sys.argv[1])
loaded = time.process_time()
trace.key_averages(peaks="none")
end = time.process_time()
print(loaded - start, end - loaded, (status("VmHWM") - before) * 1024)
"""


def measured(path: Path) -> tuple[float, float, float]:
    """Return the seconds to load and to build a table, and the peak memory in bytes, from a separate process."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True)
    load, table, peak = map(float, done.stdout.split())
    return load, table, peak


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["form", "bytes", "load s", "table s", "seconds", "ratio 2n/n", "peak / byte"]
    report = Report("hostile_traces", columns, options.out, options.device)
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        path = Path(folder) / "trace.json"
        for name, (_, size) in FORMS.items():
            sizes, samples = {}, {}
            for times in (1, 2):
                sizes[times] = write(path, name, times * size)
                samples[times] = [measured(path) for _ in range(RUNS)]
            worst = max(worst, show(report, name, sizes, samples))
        compressed(report, Path(folder))
    report.target("largest ratio of seconds, 2n over n (4 if quadratic)", worst, 3, "x")
    report.finish()


def show(report: Report, name: str, sizes: dict[int, int], samples: dict[int, list[tuple[float, ...]]]) -> float:
    seconds = {times: min(load + table for load, table, _ in runs) for times, runs in samples.items()}
    fastest = [min(sample[step] for sample in samples[2]) for step in (0, 1)]
    peak = max(sample[2] for sample in samples[2])
    raw = {f"{times}n": [load + table for load, table, _ in runs] for times, runs in samples.items()}
    report.keep(name, raw, bytes=sizes[2], peak_bytes=peak)
    ratio = seconds[2] / seconds[1]
    times = (f"{value:.2f}" for value in (*fastest, seconds[2], ratio))
    report.row(name, f"{sizes[2]:,}", *times, f"{peak / sizes[2]:.1f}")
    return ratio


def compressed(report: Report, folder: Path) -> None:
    """Note how a file that expands several hundred times is rejected before its text fills the memory."""
    path = folder / "trace.json.gz"
    block = ("," + event("cpu_op", "a", 1, 1) + "\n") * 100_000
    with gzip.open(path, "wt", compresslevel=9) as file:
        file.write(HEAD + event("cpu_op", "a", 1, 1) + "\n")
        for _ in range(150):
            file.write(block)
        file.write(TAIL)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True)
    outcome = done.stderr.strip().splitlines()[-1] if done.returncode else "read"
    report.note(
        f"{path.stat().st_size:,} bytes of gzip that expand to {150 * len(block):,}: {outcome.split(': ', 2)[-1]}"
    )


if __name__ == "__main__":
    main()

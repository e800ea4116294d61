"""Ctrl-C interrupts long work in C promptly and without leaks; its objects are unchanged or report the interrupt.

Each test runs in a child process, which prints "ready" when it begins; the signal follows a little later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import ROOT
from helpers.run_programs import default_signals

LONGEST_TIME = 120  # seconds of a child
RESPONSE_TIME = 1.0  # seconds of processor time of each thread: the machine may have other work

PROLOGUE = """
import os, signal, sys, threading, time
import numpy as np
import flopscope as fs
from flopscope import _core

def begin():
    sys.stdout.write("ready\\n"); sys.stdout.flush()
"""


def cpu_time(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupt(script: str, *, after: float = 0.3) -> str:
    """Send SIGINT to a child `after` seconds from its "ready", check its response time, and return its output."""
    text = PROLOGUE + textwrap.dedent(script)
    with tempfile.TemporaryFile("w+") as errors:
        options: dict[str, Any] = {"cwd": ROOT, "preexec_fn": default_signals}
        child = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=errors, text=True, **options
        )
        watchdog = threading.Timer(LONGEST_TIME, child.kill)  # ends the wait for its output
        watchdog.start()
        try:
            assert child.stdout is not None
            ready = child.stdout.readline()
            time.sleep(after)
            used = cpu_time(child.pid)
            os.kill(child.pid, signal.SIGINT)
            response = child.stdout.readline()
            used = cpu_time(child.pid) - used
            out = child.stdout.read()
            status = child.wait(60)
        finally:
            watchdog.cancel()
            child.kill()
        errors.seek(0)
        output = (ready, response, out, errors.read())
    assert (ready, response.split()[:1], status) == ("ready\n", ["interrupted"], 0), output
    assert used < RESPONSE_TIME * len(os.sched_getaffinity(0)), f"interrupted after {used:.2f} s of processor time"
    return out


LOOP = """
before = fs.memory_allocated("cpu")
begin()
try:
    while True:
        {work}
    print("done")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(
    ("setup", "work"),
    [
        ("h = fs.ones((4096, 4096), dtype='bfloat16')", "fs.matmul(h, h)"),
        ("big = fs.ones((1 << 28,), dtype='float16')", "fs.pow_(big, 1.7)"),
        ("big = fs.ones((1 << 27,), dtype='float16')", "big.to('float32')"),
        ("big = fs.ones((1 << 24,), dtype='float16')", "fs.sum(big)"),
        ("rows = fs.ones((1 << 14, 1 << 10))", "fs.softmax(rows)"),
        ("", "fs.randn((1 << 25,))"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_an_op_on_the_cpu_can_be_interrupted(setup: str, work: str, threads: int) -> None:
    script = f"""
{setup}
fs.set_num_threads({threads})
{LOOP.format(work=work)}
assert fs.memory_allocated("cpu") == before, fs.memory_allocated("cpu") - before
assert fs.add(fs.ones(3), 1).numpy().tolist() == [2, 2, 2]
assert fs.sum(fs.ones(1 << 20)).item() == 1 << 20
"""
    interrupt(script)


def test_an_interrupted_op_is_recorded_as_failed() -> None:
    script = """
    h = fs.ones((4096, 4096), dtype="bfloat16", device="cpu")
    fs.set_num_threads(1)
    with fs.profile() as prof:
        begin()
        try:
            while True:  # a fast machine finishes a call before the interrupt
                fs.matmul(h, h)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    print({row.key for row in prof.key_averages()})
    """
    assert "flopscope::matmul (failed)" in interrupt(script)


BIG_TRACE = """
rows = 400_000
event = '{"ph":"X","cat":"cpu_op","name":"aten::add_%d","pid":1,"tid":1,"ts":%d,"dur":5,"args":{"External id":%d}}'
text = ('{"traceEvents":[' + ",".join(event % (i % 97, 10 * i, i) for i in range(rows)) + "]}").encode()
def read(text):
    core, reader = _core.Store(), _core.TraceReader()
    reader.feed(text)
    reader.finish(core)
    return core
"""


@pytest.mark.parametrize(
    "work",
    [
        "core.table(False, 0, {})",
        "core.table(True, 3, {})",
        "core.write_trace(lambda piece: None, '1')",
        "core.table(True, 0, {}, False, True, (), True, 1000)",
        "core.events()",
        "core.gpu_summary()",
        "core.step_breakdown()",
        "core.launch_summary()",
        "core.collectives()",
        "core.stream_summary()",
    ],
)
def test_reading_a_profile_can_be_interrupted_and_leaves_it_intact(work: str) -> None:
    script = f"""
{BIG_TRACE}
core = read(text)
def columns():
    return {{name: values.tolist() if hasattr(values, "tolist") else values
            for name, values in core.table(False, 0, {{}})[0].items() if name in ("key", "count", "cpu_time_total")}}
expected = columns()
{LOOP.format(work=work)}
assert columns() == expected
_core._set_window(core, 1, 2)
"""
    interrupt(script)


@pytest.mark.parametrize("how", ["feed", "scan_bytes"])
@pytest.mark.parametrize("threads", [1, 2])
def test_reading_a_trace_can_be_interrupted_and_the_reader_reports_it(how: str, threads: int) -> None:
    script = f"""
{BIG_TRACE}
text = text[:-2] + (b"," + text[16:-2]) * 14 + b"]}}"
fs.set_num_threads({threads})
reader = _core.TraceReader()
begin()
try:
    while True:
        reader = _core.TraceReader()
        reader.{how}(text)
except KeyboardInterrupt:
    print("interrupted", flush=True)
try:
    reader.feed(b"x")
except RuntimeError as problem:
    print(problem)
except ValueError:
    print("between two readers")
assert read(b'{{"traceEvents":[]}}').event_count == 0
"""
    out = interrupt(script, after=0.25)
    assert "was interrupted" in out or "between two readers" in out


def test_finishing_a_trace_can_be_interrupted_and_leaves_the_profile_empty() -> None:
    script = f"""
{BIG_TRACE}
text = text[:-2] + (b"," + text[16:-2]) * 5 + b"]}}"
core, reader = _core.Store(), _core.TraceReader()
reader.feed(text)
begin()
time.sleep(0.2)
try:
    reader.finish(core)
    time.sleep(5)
except KeyboardInterrupt:
    print("interrupted", flush=True)
again = _core.TraceReader()
again.feed(b'{{"traceEvents":[]}}')
if core.event_count == 0:
    print("empty")
    again.finish(core)
"""
    interrupt(script, after=0.3)


def test_an_interrupted_work_rule_ends_the_table() -> None:
    script = """
    core, reader = _core.Store(), _core.TraceReader()
    event = ('{"ph":"X","cat":"cpu_op","name":"mine::op%d","ts":%d,"dur":2,"pid":1,"tid":1,'
             '"args":{"Input Dims":[[2]],"Input type":["float"]}}')
    reader.feed(('{"traceEvents":[' + ",".join(event % (i, 10 * i) for i in range(1000)) + ']}').encode())
    reader.finish(core)
    calls = []
    def rule(name, arguments, launch):
        calls.append(name)
        time.sleep(0.05)
    _core._set_work_rule(rule)
    begin()
    try:
        core.table(False, 0, {})
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    count = len(calls)
    assert count < 200, count
    _core._set_work_rule(None)
    assert len(core.table(False, 0, {})[0]["key"]) == 1000
    """
    interrupt(script)


def test_a_custom_signal_handler_decides() -> None:
    script = """
    h = fs.ones((4096, 4096), dtype="bfloat16")
    signals = []
    def handler(number, frame):
        signals.append(time.monotonic())
        if len(signals) == 1:
            os.kill(os.getpid(), signal.SIGINT)  # the first signal is ignored: the work continues
            return
        raise ZeroDivisionError("by the handler")
    signal.signal(signal.SIGINT, handler)
    begin()
    try:
        while True:
            fs.matmul(h, h)
    except ZeroDivisionError:
        print("interrupted", len(signals), flush=True)
    """
    interrupt(script)


def test_the_work_of_another_thread_continues() -> None:
    script = """
    done = []
    def work():
        for _ in range(3):
            done.append(float(fs.sum(fs.ones(1 << 24)).item()))
    thread = threading.Thread(target=work)
    h = fs.ones((4096, 4096), dtype="bfloat16")
    begin()
    thread.start()
    try:
        while True:
            fs.matmul(h, h)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    thread.join()
    assert done == [float(1 << 24)] * 3, done
    """
    interrupt(script)


def test_a_product_computed_in_parts_is_correct() -> None:
    """1.3e10 FLOPs need two calls of the BLAS, for either layout of the first matrix."""
    import numpy as np

    import flopscope as fs

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3000, 1300), dtype=np.float32), rng.standard_normal((1300, 1700), dtype=np.float32)
    expected = a.astype(np.float64) @ b
    for left in (a, np.asfortranarray(a)):
        product = fs.matmul(fs.from_numpy(left), fs.from_numpy(b)).numpy()
        assert np.abs(product - expected).max() < 1e-3


@pytest.mark.parametrize("condition", ["1", "a.start + b.start + c.start < 0"], ids=["many rows", "no rows"])
def test_reading_a_database_can_be_interrupted(condition: str) -> None:
    out = interrupt(
        f"""
        import sqlite3, tempfile
        from flopscope.read import database
        folder = tempfile.TemporaryDirectory()
        file = sqlite3.connect(folder.name + "/x.sqlite")
        file.execute("CREATE TABLE t (start)")
        file.executemany("INSERT INTO t VALUES (?)", ((i,) for i in range(5000)))
        file.commit()
        if not database._library():
            begin(); time.sleep(0.5); print("interrupted", "no library"); sys.exit()
        sql = "SELECT 1, 1, 1 FROM t a, t b, t c WHERE {condition}"
        reader = _core.DatabaseReader()
        query = ("device", sql, None, 0, 0, ("process", "device", "id"))
        begin()
        try:
            reader.read(f"file:{{folder.name}}/x.sqlite?mode=ro", [query] * 4)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        try:
            reader.read("file:x", [])
        except RuntimeError as problem:
            print(problem)
        """
    )
    assert "was interrupted" in out or "no library" in out

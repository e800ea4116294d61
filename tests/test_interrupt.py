"""Ctrl-C is heard by long work in C: soon, with nothing leaked, and what was worked on is as before or says it is not.

Each test runs in a child process, which tells when it begins; the signal comes a little later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEARD = 0.5  # seconds; and as much again for a machine with other work

PROLOGUE = """
import os, signal, sys, threading, time
import numpy as np
import flopscope as fs
from flopscope import _core

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is started with SIGINT ignored

def begin():
    sys.stdout.write("ready\\n"); sys.stdout.flush()
"""


def interrupt(script: str, *, after: float = 0.3) -> str:
    """Send SIGINT to a child `after` seconds from its "ready"; it says when it heard it. What it printed then."""
    text = PROLOGUE + textwrap.dedent(script)
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
        )
        try:
            assert child.stdout is not None
            ready = child.stdout.readline()
            time.sleep(after)
            sent = time.monotonic()
            os.kill(child.pid, signal.SIGINT)
            heard = child.stdout.readline()
            took = time.monotonic() - sent
            out = child.stdout.read()
            status = child.wait(60)
        finally:
            child.kill()
        errors.seek(0)
        said = (ready, heard, out, errors.read())
    assert (ready, heard[:5], status) == ("ready\n", "heard", 0), said
    assert took < 2 * HEARD, f"heard after {took:.2f} s"
    return out


HEAR = """
before = fs.memory_allocated("cpu")
begin()
try:
    while True:
        {work}
    print("done")
except KeyboardInterrupt:
    print("heard", flush=True)
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
def test_an_op_on_the_cpu_hears(setup: str, work: str, threads: int) -> None:
    script = f"""
{setup}
fs.set_num_threads({threads})
{HEAR.format(work=work)}
assert fs.memory_allocated("cpu") == before, fs.memory_allocated("cpu") - before
assert fs.add(fs.ones(3), 1).numpy().tolist() == [2, 2, 2]
assert fs.sum(fs.ones(1 << 20)).item() == 1 << 20
"""
    interrupt(script)


def test_an_interrupted_op_is_a_failed_one_in_the_profile() -> None:
    script = """
    h = fs.ones((4096, 4096), dtype="bfloat16", device="cpu")
    fs.set_num_threads(1)
    with fs.profile() as prof:
        begin()
        try:
            while True:  # a fast machine ends one before the interrupt
                fs.matmul(h, h)
        except KeyboardInterrupt:
            print("heard", flush=True)
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
        "core.events()",
        "core.gpu_summary()",
        "core.step_breakdown()",
        "core.launch_summary()",
        "core.collectives()",
        "core.stream_summary()",
    ],
)
def test_what_reads_a_profile_hears_and_leaves_it_whole(work: str) -> None:
    script = f"""
{BIG_TRACE}
core = read(text)
def told():
    return {{row: values.tolist() if hasattr(values, "tolist") else values
            for row, values in core.table(False, 0, {{}})[0].items() if row in ("key", "count", "cpu_time_total")}}
wanted = told()
{HEAR.format(work=work)}
assert told() == wanted
_core._set_window(core, 1, 2)
"""
    interrupt(script)


@pytest.mark.parametrize("how", ["feed", "scan_bytes"])
@pytest.mark.parametrize("threads", [1, 2])
def test_reading_a_trace_hears_and_the_reader_says_so(how: str, threads: int) -> None:
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
    print("heard", flush=True)
try:
    reader.feed(b"x")
except RuntimeError as problem:
    print(problem)
except ValueError:
    print("between two")
assert read(b'{{"traceEvents":[]}}').event_count == 0
"""
    out = interrupt(script, after=0.25)
    assert "was interrupted" in out or "between two" in out


def test_finishing_a_trace_hears_and_leaves_the_profile_empty() -> None:
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
    print("heard", flush=True)
again = _core.TraceReader()
again.feed(b'{{"traceEvents":[]}}')
if core.event_count == 0:
    print("empty")
    again.finish(core)
"""
    interrupt(script, after=0.3)


def test_a_work_rule_that_is_interrupted_ends_the_table() -> None:
    script = """
    core, reader = _core.Store(), _core.TraceReader()
    event = ('{"ph":"X","cat":"cpu_op","name":"mine::op%d","ts":%d,"dur":2,"pid":1,"tid":1,'
             '"args":{"Input Dims":[[2]],"Input type":["float"]}}')
    reader.feed(('{"traceEvents":[' + ",".join(event % (i, 10 * i) for i in range(1000)) + ']}').encode())
    reader.finish(core)
    calls = []
    def rule(name, arguments):
        calls.append(name)
        time.sleep(0.05)
    _core._set_work_rule(rule)
    begin()
    try:
        core.table(False, 0, {})
    except KeyboardInterrupt:
        print("heard", flush=True)
    asked = len(calls)
    assert asked < 200, asked
    _core._set_work_rule(None)
    assert len(core.table(False, 0, {})[0]["key"]) == 1000
    """
    interrupt(script)


def test_a_handler_of_the_programs_own_decides() -> None:
    script = """
    h = fs.ones((4096, 4096), dtype="bfloat16")
    heard = []
    def handler(number, frame):
        heard.append(time.monotonic())
        if len(heard) == 1:
            os.kill(os.getpid(), signal.SIGINT)  # this one is let pass: the work goes on
            return
        raise ZeroDivisionError("by the handler")
    signal.signal(signal.SIGINT, handler)
    begin()
    try:
        while True:
            fs.matmul(h, h)
    except ZeroDivisionError:
        print("heard", len(heard), flush=True)
    """
    interrupt(script)


def test_another_threads_work_goes_on() -> None:
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
        print("heard", flush=True)
    thread.join()
    assert done == [float(1 << 24)] * 3, done
    """
    interrupt(script)


def test_a_product_that_is_done_in_parts_is_right() -> None:
    """1.3e10 FLOPs: two calls of the BLAS, from either layout of the first matrix."""
    import numpy as np

    import flopscope as fs

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((3000, 1300), dtype=np.float32), rng.standard_normal((1300, 1700), dtype=np.float32)
    wanted = a.astype(np.float64) @ b
    for given in (a, np.asfortranarray(a)):
        made = fs.matmul(fs.from_numpy(given), fs.from_numpy(b)).numpy()
        assert np.abs(made - wanted).max() < 1e-3

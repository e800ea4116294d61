"""Sampled stacks: where a program's time went, by line, beside what the program measures of itself."""

import ctypes
import json
import os
import re
import textwrap
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import TESTS
from helpers.hand_traces import load
from helpers.run_programs import done, own, run, script

import flopscope as fs
from flopscope import _core
from flopscope.answers.lines import Line, lines_of, place_text, places_of
from flopscope.cli.program import main
from flopscope.record.kineto_text import _with_additions
from flopscope.show.page.page import profile_page

SLACK = 0.08
"""Seconds by which a time may be off: a busy machine delays samples."""


def spin(seconds: float) -> None:
    """Compute in Python."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(100))


def wait(seconds: float) -> None:
    """Wait in a call without the GIL."""
    time.sleep(seconds)


def call(seconds: float) -> None:
    """Stay in calls that keep the GIL."""
    end, numbers = time.perf_counter() + seconds, list(range(100_000, 0, -1))
    while time.perf_counter() < end:
        sorted(numbers)


def in_thread(act: Callable[..., None], *arguments: float) -> None:
    thread = threading.Thread(target=act, args=arguments)
    thread.start()
    thread.join()


def sampled(act: object, *arguments: object) -> fs.profile:
    assert callable(act)
    with fs.profile(sample_stacks=True, activities=[fs.ProfilerActivity.CPU]) as prof:
        act(*arguments)
    return prof


def seconds_of(prof: fs.profile, function: str, column: str = "time", group: str = "main") -> float:
    """Return the time in a function of this file, or in what it called."""
    frame = prof.lines()
    here = frame.group.eq(group) & frame.line.str.contains(rf"test_lines\.py:\d+ (?:.*\.)?{function}$")
    return float(frame[column][here].sum()) / 1e6


# What is sampled ------------------------------------------------------------------------------------------------------


def test_each_function_gets_its_own_time() -> None:
    def work() -> None:
        nonlocal used
        for act in (spin, wait, call):
            begin = time.thread_time()
            act(0.3)
            used = used or time.thread_time() - begin

    used = 0.0  # by spin: little, on a machine on which others run
    prof = sampled(work)
    for name in ("spin", "wait", "call"):
        assert abs(seconds_of(prof, name) - 0.3) < SLACK, prof.lines().to_string()
    assert seconds_of(prof, "wait", "cpu_time") < SLACK
    assert abs(seconds_of(prof, "spin", "cpu_time") - used) < max(0.1 * used, 0.01)


def test_an_operator_has_its_own_time_and_callers_that_of_their_calls() -> None:
    """Operators and loops let go of the GIL on later lines, or never."""

    def inner(x: np.ndarray) -> bool:
        done = False
        for i in range(60):
            y = x * x  # the work
            z = y
            if i > 1000:
                done = True
        return done and z is y

    def outer(x: np.ndarray) -> None:
        inner(x)
        inner(x)

    frame = sampled(outer, np.ones(1 << 20)).lines().query("group == 'main'")
    first = inner.__code__.co_firstlineno
    number = frame.line.str.extract(r":(\d+)")[0].astype(int)
    inside = frame[frame.line.str.contains("inner")]
    assert frame[number == first + 3].own_time.sum() > 0.8 * inside.own_time.sum() > 0, frame.to_string()
    assert inside.time.sum() == inside.own_time.sum() and (number > 0).all()
    calls = frame[frame.line.str.endswith("outer")]
    assert calls.own_time.sum() < 0.1 * calls.time.sum() and len({*calls.line}) == 2
    assert abs(calls.time.sum() - inside.own_time.sum() - calls.own_time.sum()) < 1


def test_what_a_thread_did_before_does_not_count() -> None:
    spin(0.4)
    frame = sampled(spin, 0.2).lines().query("group == 'main'")
    assert frame.cpu_time.sum() <= frame.time.sum() + 1e4, frame.to_string()


def test_what_a_thread_worked_before_it_waits_is_not_the_time_of_the_wait() -> None:
    def work() -> None:
        for _ in range(15):
            wait(0.02)
            end = time.thread_time() + 0.008  # several samples, also on a machine that takes them slowly
            while time.thread_time() < end:
                zlib.compress(text)  # without the GIL, which the sampler needs

    def share_of_waits() -> float:
        prof = sampled(in_thread, work)
        return seconds_of(prof, "wait", "cpu_time", "threads") / seconds_of(prof, "work", "cpu_time", "threads")

    text = bytes(20_000)
    assert min(share_of_waits() for _ in range(5)) < 0.05  # a busy machine delays samples


def test_threads_are_sampled_too() -> None:
    prof = sampled(in_thread, spin, 0.3)
    assert abs(seconds_of(prof, "spin", group="threads") - 0.3) < SLACK
    assert abs(seconds_of(prof, "in_thread") - 0.3) < SLACK


def test_a_call_within_a_library_counts_for_the_line_that_made_it() -> None:
    def work() -> None:
        text = json.dumps([{"a": list(range(100))}] * 300)
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            json.loads(text)

    frame = sampled(work).lines().query("group == 'main'")
    inside = frame[frame.inside.str.contains("json/decoder.py")]
    assert inside.own_time.sum() > 0.5 * frame.own_time.sum() and set(inside.group) == {"main"}
    assert inside.line.str.contains("test_lines.py").all()


def deeper(depth: int, seconds: float) -> None:
    if depth:
        deeper(depth - 1, seconds)
    else:
        spin(seconds)


def test_deep_recursion_is_sampled() -> None:
    assert seconds_of(sampled(deeper, 600, 0.2), "spin") > 0.1


def test_without_samples_there_are_no_lines() -> None:
    with fs.profile(activities=[fs.ProfilerActivity.CPU]) as prof:
        fs.ones((4, 4), device="cpu")
    with pytest.warns(UserWarning, match=r"no stack was sampled.*sample_stacks=True.*flopscope run") as said:
        assert len(prof.lines()) == 0 and "by line" not in str(prof.summary())
    assert said[0].filename == __file__
    assert "lines" not in profile_page(prof).sections


def test_only_one_profile_samples_at_a_time() -> None:
    first, second = _core.StackSampler(), _core.StackSampler()
    first.start()
    with pytest.raises(RuntimeError, match="sampled already"):
        second.start()
    first.stop()
    second.start()
    second.stop()
    with pytest.raises(ValueError, match="interval_ns must be positive, not 0"):
        _core.StackSampler(0)


def test_sampling_costs_less_than_a_fiftieth() -> None:
    """By its own clock: what one sample takes, times the samples."""
    sampler = _core.StackSampler()
    sampler.start()
    deeper(200, 0.5)
    sampler.stop()
    report = sampler.report
    assert report["samples"] > 3 and report["spent_ns"] < 0.02 * report["lasted_ns"], report


# Traces and children --------------------------------------------------------------------------------------------------


def test_a_trace_has_the_same_lines(tmp_path: Path) -> None:
    def work() -> None:
        x = fs.ones((64, 64), device="cpu")
        for _ in range(20):
            spin(0.01)
            fs.neg(x)

    prof = sampled(work)
    path = str(tmp_path / "t.json.gz")
    prof.export_chrome_trace(path)
    again = fs.load_trace(path).lines()
    frame = prof.lines()
    assert len(frame) == len(again) > 0
    merged = frame.merge(again, on=["group", "line", "inside"])
    assert len(merged) == len(frame) and (merged.time_x - merged.time_y).abs().max() < 1
    assert (merged.host_x - merged.host_y).abs().max() < 1  # idle between the ops, in spin()
    assert float(frame[frame.line.str.contains("spin")].host.sum()) > 1e5


def test_idle_time_belongs_to_the_line_that_the_launching_thread_was_in() -> None:
    """The device idles from 100 to 310 µs, until the second launch has returned: 50 in load, 100 in mean, 60 after."""
    frame = fs.load_trace(TESTS / "fuzz" / "corpus" / "tables" / "sampled_stacks.json").lines()
    found = {(row.group, row.line): (row.time, row.cpu_time, row.host) for row in frame.itertuples()}
    assert found == {
        ("main", "train.py:9 <module>"): (210, 70, 60), ("main", "train.py:3 load"): (90, 0, 50),
        ("main", "np.py:7 mean"): (100, 80, 100), ("threads", "a"): (400, 1, 0),
        ("processes", "train.py:3 load"): (100, 90, 0),
    }  # fmt: skip


def test_impossible_stacks_of_a_trace_are_left_out() -> None:
    """Frames that are their own callers, that are missing or have no name, and samples without a time."""
    frames = {"1": {"name": "a", "parent": 2}, "2": {"name": "b", "parent": "1"}, "3": {"parent": 4}, "5": 7}
    frames |= {"x": {"name": "c"}, "6": {"name": "d", "parent": 3}}
    times = [{"ts": 1, "dur": 2, "sf": 1}, {"ts": 3, "dur": 2, "sf": 6, "tdur": 9}, {"ts": 5, "dur": 2, "sf": 99}]
    times += [{"ts": 7, "sf": 6}, {"dur": 7, "sf": 6}]
    trace = load(*({"ph": "P", "pid": 1, "tid": 1, **at} for at in times), stackFrames=frames)
    samples = json.loads(b"[" + trace._core.trace_text("samples") + b"]")
    assert [(one["name"], one.get("tdur")) for one in samples] == [("a", None), ("d", 2)]


def test_samples_join_the_events_of_a_trace_whatever_follows_them() -> None:
    """Kineto lists its own errors after the events."""
    for rest in ("", '"ERROR": ["a]", "b"],'):
        mark = '{"name": "Record Window End", "pid": "", "ts": 1.5 }'
        text = f'{{"traceEvents": [{{"ph": "X"}},\n{mark}\n],\n{rest} "traceName": "x"}}'
        trace = json.loads(_with_additions(text.encode(), b'{"ph": "P"}', b'"stackFrames": {"1": 2}'))
        assert [event.get("ph") for event in trace["traceEvents"]] == ["X", None, "P"]
        assert trace["stackFrames"] == {"1": 2} and trace["traceName"] == "x"
        assert trace.get("ERROR") == (["a]", "b"] if rest else None)


# The summary ----------------------------------------------------------------------------------------------------------


def test_a_program_without_ops_is_told_where_its_time_went(tmp_path: Path) -> None:
    path = script(tmp_path, """
        import time
        def slow():
            end = time.perf_counter() + 0.4
            while time.perf_counter() < end: sum(range(100))
        def rest(): time.sleep(0.2)
        slow(); rest()
        """)  # fmt: skip
    result = run(tmp_path, "--no-report", path)
    assert result.returncode == 0
    shown = [line for line in result.stderr.splitlines() if re.search(r"\d%", line) and "program.py" in line]
    assert "slow" in shown[1] and "rest" in shown[2] if "main thread" in shown[0] else "slow" in shown[0], result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 100
    result = run(tmp_path, "--no-report", "--no-samples", path)
    assert "slow" not in result.stderr and "nothing was recorded" in own(result.stderr)


def test_a_window_samples_only_its_own_time(tmp_path: Path) -> None:
    path = script(tmp_path, """
        import time, flopscope as fs
        def before(): time.sleep(0.3)
        def within(): time.sleep(0.2)
        x = fs.ones((4, 4), device="cpu")
        before(); fs.step()
        within(); fs.neg(x); fs.step()
        """)  # fmt: skip
    result = run(tmp_path, "--no-report", "--no-summary", "--steps", "1:2", "--trace", "t.json", path)
    assert result.returncode == 0, result.stderr
    frame = fs.load_trace(str(tmp_path / "t.json")).lines()
    assert not frame.line.str.contains("before").any() and frame.line.str.contains("within").any()


def test_torch_programs_are_told_what_the_host_was_in(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = script(tmp_path, """
        import time, torch
        x, parameter = torch.ones(200, 200), torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([parameter])
        def prepare(): time.sleep(0.05)
        for _ in range(12):
            prepare()
            (x @ x).sum() * parameter
            optimizer.step()
        """)  # fmt: skip
    result = run(tmp_path, "--no-report", "--trace", "t.json.gz", path)
    assert result.returncode == 0, result.stderr
    section = result.stderr.split("Where the program was while no op ran, by line: ")[1].split("\n\n")[0]
    assert "prepare" in section.splitlines()[2], result.stderr
    frame = fs.load_trace(str(tmp_path / "t.json.gz")).lines()
    assert frame[frame.line.str.contains("prepare")].host.sum() > 0.5 * frame.host.sum() > 0


def test_lines_are_sums_and_name_what_took_most_of_them() -> None:
    idle = dict.fromkeys(("host", "sync"), 0.0)
    lines = [
        Line("main", "a.py(1): f", "lib.py(5): g", 2 * 60.0, 60.0, 2 * 0.0, 0.0, idle),
        Line("main", "a.py(1): f", "a.py(1): f", 2 * 20.0, 20.0, 2 * 0.0, 0.0, idle),
        Line("main", "a.py(1): <lambda>", "lib.py(6): g", 2 * 5.0, 5.0, 2 * 2.0, 2.0, idle),
        Line("main", "b.py(2): h", "x.py(1): y", 2 * 10.0, 10.0, 2 * 0.0, 0.0, idle),
        Line("main", "b.py(2): h", "x.py(2): z", 2 * 9.5, 9.5, 2 * 0.0, 0.0, idle),
        Line("main", "d.py(4): j", "x.py(1): y", 2 * 1.5, 1.5, 2 * 0.0, 0.0, idle),
        Line("main", "d.py(4): j", "x.py(2): y", 2 * 1.0, 1.0, 2 * 0.0, 0.0, idle),
        Line("main", "d.py(4): j", "x.py(3): z", 2 * 2.0, 2.0, 2 * 0.0, 0.0, idle),
        Line("main", "c.py(3): i", "<frozen importlib._bootstrap>(9): _find", 2 * 0.5, 0.5, 2 * 0.0, 0.0, idle),
    ]
    found = places_of(lines, lambda line: line.own, lambda line: line.time)
    assert [(one.line, one.inside, one.time) for one in found] == [
        ("a.py:1 f, <lambda>", "lib.py:5 g", 85.0),  # one line, of two functions
        ("b.py:2 h", "x.py:1 y", 19.5),
        ("d.py:4 j", "x.py y", 4.5),  # no line has the most of it, but a function
    ]
    assert abs(found[0].share - 85 / 1.095) < 1e-9 and found[0].cpu == 2.0 and found[0].total == 170.0
    assert found[0].within == [("lib.py g", 100 * 65 / 85)]
    assert [one.line for one in places_of(lines, lambda x: x.own, lambda x: x.time, 9, 0)][3:] == ["c.py:3 i"]
    assert place_text("no place") == "no place" and place_text("a\x1b.py(1): f") == "a\\x1b.py:1 f"
    assert lines_of(_core.Store()).lines == []


def test_lines_of_a_cell_are_named_by_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    path = shell.compile.cache("x = 1", 3)
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    assert place_text(f"{path}(1): <module>") == "In[3]:1 <module>" and place_text("train.py(1): f") == "train.py:1 f"


def test_a_table_without_ops_names_the_command_for_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "t.json")
    sampled(spin, 0.1).export_chrome_trace(path)
    assert main(["table", path]) == 0 and capsys.readouterr().out.endswith(f"in: flopscope summary {path}\n")
    text = str(fs.load_trace(path).summary())
    assert "spin" in text and "record_function" not in text  # no work is known that could be rated


def test_the_thread_of_the_sampler_ends_with_the_interpreter(tmp_path: Path) -> None:
    program = """
        import time, flopscope as fs
        prof = fs.profile(sample_stacks=True, activities=[fs.ProfilerActivity.CPU])
        prof.start()
        time.sleep(0.05)
    """
    ended = done(tmp_path, ["-c", textwrap.dedent(program)])
    assert ended.returncode == 0 and ended.stderr == "", ended.stderr
    assert os.listdir(tmp_path) == []


# Programs that fork ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", ["one", "busy"])
def test_programs_that_fork_are_sampled_with_their_children(tmp_path: Path, threads: str) -> None:
    """Python 3.12 and later warn of a fork in a process with threads, so ours ends before and begins again."""
    path = script(tmp_path, """
        import json, os, pathlib, signal, sys, threading, time
        def threads():
            tasks = pathlib.Path("/proc/self/task").iterdir()
            return sorted(((task / "comm").read_text().strip(), task.name) for task in tasks)
        done = threading.Event()
        def in_child():
            end = time.perf_counter() + 60
            while time.perf_counter() < end and not done.is_set(): sum(range(100))
        def in_parent(seconds): time.sleep(seconds)
        if sys.argv[1] == "busy":
            threading.Thread(target=in_child).start()
        time.sleep(0.05)
        before = threads()
        for place in range(5):
            if (child := os.fork()) == 0:
                if place == 0: in_child()
                os._exit(0)
            if place == 0:
                in_parent(1.0)
                os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        print(json.dumps([before, threads()]))
        in_parent(0.3)
        done.set()
        """)  # fmt: skip
    result = run(tmp_path, "--no-report", "--trace", "t.json", path, threads)
    assert result.returncode == 0, result.stderr
    before, after = json.loads(result.stdout)
    assert [name for name, _ in before] == [name for name, _ in after] and "flopscope-stack" in dict(after)
    if threads == "one" and len(before) == 2:  # no other library has threads
        assert "multi-threaded" not in result.stderr, result.stderr
    frame = fs.load_trace(str(tmp_path / "t.json")).lines()
    child = frame[frame.group.eq("processes") & frame.line.str.contains("in_child")]
    assert child.time.sum() > 0.5e6 and (child.cpu_time <= child.time + 1e4).all()
    parent = frame[frame.group.eq("main") & frame.line.str.contains("in_parent")]
    assert parent.time.sum() > 1.15e6  # it goes on after the forks
    assert re.search(r"1 child process, \S+ of CPU time", result.stderr), result.stderr
    assert "in_child" in result.stderr and "in_parent" in result.stderr


# The page -------------------------------------------------------------------------------------------------------------


def test_a_page_without_ops_begins_with_the_line_that_took_most_of_the_time() -> None:
    def work() -> None:
        spin(0.3)
        wait(0.1)

    page = profile_page(sampled(work))
    assert list(page.sections) == ["lines"]
    (main, *_) = page.sections["lines"]["tables"]
    assert re.fullmatch(r"\d+(\.\d)?% of the main thread's time is in .*test_lines.py:\d+ spin", page.headline)
    assert re.fullmatch(r"The main thread, \S+, \S+% of it on a CPU\.", page.lead)
    head, *rows = main["rows"]
    assert head == ["line", "within it", "own time", "share", "with calls", "CPU time"]
    shares = [float(row[3].rstrip("%")) for row in rows]
    assert len({row[0] for row in rows}) == len(rows)
    assert rows[0][0].endswith(" spin") and shares == sorted(shares, reverse=True) and sum(shares) < 101
    assert json.dumps(page.content())


def test_a_page_with_ops_lists_the_lines_after_them() -> None:
    def work() -> None:
        x = fs.ones((64, 64), device="cpu")
        for _ in range(10):
            spin(0.02)
            fs.neg(x)

    page = profile_page(sampled(work))
    assert [*page.sections][:3] == ["overview", "ops", "lines"]
    lines = page.sections["lines"]
    head, *rows = lines["tables"][0]["rows"]
    assert head[-1] == "no op ran" and lines["notes"][1].startswith("no op ran: ")
    assert any(row[0].endswith(" spin") and row[-1].endswith("ms") for row in rows)


@pytest.mark.parametrize("fill", [0xFF, 0x00, 0x41, 0x7F])
def test_what_lies_where_a_frame_was_may_be_anything(fill: int) -> None:
    """A thread goes on while its frames are read, and their memory is given to others: no address in it is trusted."""
    page = ctypes.create_string_buffer(bytes([fill]) * 3 * 4096)
    start = ctypes.addressof(page)
    for address in (*range(start, start + 4096, 8), (1 << 64) - 1, (1 << 64) - 4096, 8):
        assert _core._stack_depth(address) <= 0

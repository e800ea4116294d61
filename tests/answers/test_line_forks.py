"""Sampled stacks of programs that fork: children are sampled, and no thread of flopscope runs during a fork."""

from __future__ import annotations

import re
from pathlib import Path

from helpers.run_programs import run, script

import flopscope as fs


def test_forked_children_are_sampled_until_they_are_killed(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import os, signal, time
        def in_child():
            end = time.perf_counter() + 60
            while time.perf_counter() < end: sum(range(100))
        def in_parent(seconds): time.sleep(seconds)
        if (child := os.fork()) == 0:
            in_child()
        in_parent(1.0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        """,
    )
    result = run(tmp_path, "--no-report", "--trace", "t.json", path)
    assert result.returncode == 0, result.stderr
    frame = fs.load_trace(str(tmp_path / "t.json")).lines()
    child = frame[frame.group.eq("processes") & frame.line.str.contains("in_child")]
    assert child.time.sum() > 0.5e6 and (child.cpu_time <= child.time + 1e4).all()
    parent = frame[frame.group.eq("main") & frame.line.str.contains("in_parent")]
    assert parent.time.sum() > 0.9e6
    assert re.search(r"1 child process, \S+ of CPU time", result.stderr)
    assert "in_child" in result.stderr and "in_parent" in result.stderr


def test_no_thread_of_ours_runs_while_the_program_forks(tmp_path: Path) -> None:
    """Python 3.12 and later warn of a fork in a process with threads."""
    path = script(
        tmp_path,
        """
        import os, pathlib, time
        def threads():
            return sorted(path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm"))
        time.sleep(0.05)
        print(threads())
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        print(threads())
        """,
    )
    result = run(tmp_path, "--no-report", "--no-summary", path)
    before, after = result.stdout.splitlines()
    assert result.returncode == 0 and before == after and "flopscope-stack" in after
    if before.count(",") == 1:  # no other library has threads
        assert "multi-threaded" not in result.stderr, result.stderr


def test_the_sampling_thread_lives_through_forks_of_programs_with_threads(tmp_path: Path) -> None:
    """To end and to start it would wait for the GIL behind each busy thread; children are sampled all the same."""
    path = script(
        tmp_path,
        """
        import os, pathlib, threading, time
        def sampling():
            return [path.parent.name for path in pathlib.Path("/proc/self/task").glob("*/comm")
                    if path.read_text().strip() == "flopscope-stack"]
        done = threading.Event()
        def spin():
            while not done.is_set(): sum(range(100))
        def in_child():
            end = time.perf_counter() + 0.3
            while time.perf_counter() < end: sum(range(100))
        thread = threading.Thread(target=spin)
        thread.start()
        time.sleep(0.05)
        before = sampling()
        for i in range(5):
            if os.fork() == 0:
                if i == 0: in_child()
                os._exit(0)
            os.wait()
        print(len(before), before == sampling())
        done.set()
        thread.join()
        """,
    )
    result = run(tmp_path, "--no-report", "--no-summary", "--trace", "t.json", path)
    assert result.returncode == 0 and result.stdout == "1 True\n", result.stderr
    frame = fs.load_trace(str(tmp_path / "t.json")).lines()
    child = frame[frame.group.eq("processes") & frame.line.str.contains("in_child")]
    assert child.time.sum() > 0.1e6
    assert frame[frame.group.eq("main")].time.sum() > 0.35e6  # goes on after the forks

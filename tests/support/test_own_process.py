"""What a process knows of itself: its threads, whose signals stay with their starter, and its waits for a CPU."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from flopscope.support.process import FAULTS, call_in_main_thread, seconds_waited, start_thread, wait_text


def test_the_thread_blocks_what_is_not_its_own_error() -> None:
    seen: list[set[int]] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    start_thread(lambda: seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "one").join()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM} <= seen[0] and not FAULTS & seen[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_a_thread_lets_the_main_thread_call_a_function() -> None:
    callers: list[threading.Thread] = []
    hangs = time.monotonic() + 60
    start_thread(lambda: call_in_main_thread(lambda: callers.append(threading.current_thread())), "one")
    while not callers and time.monotonic() < hangs:
        time.sleep(0.001)
    assert callers == [threading.main_thread()]


def test_ctrl_c_while_signals_are_blocked_leaves_them_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """pthread_sigmask() blocks, and then runs the handlers of signals that came before."""
    original = signal.pthread_sigmask
    before, threads = original(signal.SIG_BLOCK, ()), threading.active_count()

    def interrupted(how: int, mask: set[int]) -> set[signal.Signals]:
        known = original(how, mask)
        if how == signal.SIG_BLOCK and mask:
            raise KeyboardInterrupt
        return known

    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_thread(lambda: None, "one")
    assert original(signal.SIG_BLOCK, ()) == before and threading.active_count() == threads


def test_a_thread_that_shares_one_cpu_waits_for_it() -> None:
    before = seconds_waited()
    if before is None:
        pytest.skip("this kernel has no schedstat")
    allowed = os.sched_getaffinity(0)
    spin = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with subprocess.Popen([sys.executable, "-c", spin]) as other:
            time.sleep(0.3)
            begin, used = time.perf_counter(), time.thread_time()
            waited = seconds_waited()
            while time.perf_counter() < begin + 0.6:
                pass
            after = seconds_waited()
            lasted, used = time.perf_counter() - begin, time.thread_time() - used
            other.kill()
    finally:
        os.sched_setaffinity(0, allowed)
    assert waited is not None and after is not None
    assert abs((after - waited) - (lasted - used)) < 0.1  # what it did not run, it waited


def test_only_a_long_wait_is_told() -> None:
    assert wait_text(1.0, 10.0) == "" and wait_text(0.0, 0.0) == ""
    assert wait_text(3.0, 10.0).startswith("The main thread waited 3.00s for a free CPU, 30.0% of its time: ")

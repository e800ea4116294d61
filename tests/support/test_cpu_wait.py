"""The time that the main thread waited for a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from flopscope.support.process import seconds_waited, wait_text


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

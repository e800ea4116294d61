"""Processes that use torch.profiler and flopscope exit cleanly, whichever uses CUDA first."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys

import pytest
from helpers import ROOT

pytest.importorskip("torch")
sys.path.insert(0, str(ROOT / "benchmarks"))
from process_exit import FIRST, run


@pytest.mark.parametrize("first", [name for name in FIRST if name.startswith("flopscope")])
def test_processes_exit_cleanly(first: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        assert set(pool.map(run, [FIRST[first]] * 14)) == {""}


def test_a_process_that_uses_no_gpu_does_not_load_the_driver() -> None:
    code = "import flopscope, atexit; atexit.register(lambda: print('libcuda' in open('/proc/self/maps').read()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "False")

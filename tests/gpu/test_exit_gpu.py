"""Processes that use torch.profiler and flopscope exit cleanly, whichever uses CUDA first.

If CUDA's driver is initialised before torch is imported, processes without flopscope may abort at exit ("double free or
corruption"): exit handlers destroy the CUDA context after torch's profiler.
"""

import concurrent.futures
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
{first}
import torch
x = torch.rand(1024, device="cuda")
for turn in range(4):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as prof:
        for _ in range(5000):
            torch.add(x, x)
    prof.key_averages(); prof.events()
print("end", flush=True)
"""
FIRST = {
    "devices": "import flopscope as fs; fs.devices()",
    "op": "import flopscope as fs; fs.add(fs.rand((8, 8)), fs.rand((8, 8)))",
    "profile": "import flopscope as fs\nwith fs.profile(): fs.rand((8, 8))",
}


def how_it_ended(first: str) -> str:
    """Return "" if the process succeeds, otherwise its exit code and last message."""
    command = [sys.executable, "-c", PROGRAM.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode == 0 and "end" in done.stdout:
        return ""
    last = done.stderr.strip().splitlines()[-1:] or ["no message"]
    return f"{done.returncode}: {last[0][:60]}"


@pytest.mark.parametrize("first", FIRST)
def test_processes_exit_cleanly(first: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        assert set(pool.map(how_it_ended, [FIRST[first]] * 14)) == {""}


def test_a_process_that_uses_no_gpu_does_not_load_the_driver() -> None:
    code = "import flopscope, atexit; atexit.register(lambda: print('libcuda' in open('/proc/self/maps').read()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "False")

"""Programs that run in processes of their own, as a driver, CUPTI or a profiler begins only once in each."""

import subprocess
import sys
import textwrap
from typing import Any


def output_of(program: str, **options: Any) -> str:
    """Run a program in a new process, which must succeed, and return its output."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""Traces of simulated ranks, written anew after a change."""

from __future__ import annotations

import gzip
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from flopscope.ranks.digest import rank_of_name

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from ranks_simulator import Program, Simulated, write

SMALL = {"dp": 4, "tp": 2, "events": 2500}


def simulated(folder: Path, **more: Any) -> Simulated:
    return write(Program(**{**SMALL, **more}), folder, workers=1)


def edited(folder: Path, edit: Any) -> None:
    """Write the traces anew, after ``edit(rank, trace)`` has changed each."""
    for path in sorted(folder.glob("*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        rank = rank_of_name(path.name)
        edit(rank, trace)
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))


def dies(item: int) -> int:
    """A task, which workers import from here: a module of a name that no other test has."""
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * item


def sleeps(folder: str) -> None:
    """A task that does not end. It leaves the number of its process in the folder."""
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(600)

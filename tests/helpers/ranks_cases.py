"""Traces of simulated ranks, written anew after a change."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import signal
import struct
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

from flopscope.ranks.digest import rank_of_name
from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
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


def dies_while_it_writes(item: int) -> bytes:
    """A task whose large result is being written, to a pipe or to a file, when its process is killed."""
    if item == 3:
        threading.Thread(target=_kill_writer, daemon=True).start()
    return bytes(64 << 20) if item == 3 else bytes(item)


def _kill_writer() -> None:
    while True:
        for one in os.listdir("/proc/self/fd"):
            try:
                name = os.readlink(f"/proc/self/fd/{one}")
                if "flopscope-" in name or (name.startswith("pipe:") and _unread(int(one)) > 4096):
                    os.kill(os.getpid(), signal.SIGKILL)
            except OSError:
                pass  # closed meanwhile


def _unread(descriptor: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))[0])


def small_rank(path: Path, rank: int, world: object, events: int = 1) -> None:
    """Write the trace of a rank with that world size, and so many kernels."""
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7}}
    body = [{**kernel, "ts": 10 * i + 2, "dur": 3} for i in range(events)]
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": body}))

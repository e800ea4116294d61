"""Traces of simulated ranks, written anew after a change."""

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

import numpy as np
import pandas as pd

from flopscope.ranks.calls import Group
from flopscope.ranks.digest import digests_of, rank_of_name
from flopscope.ranks.load import load_ranks
from flopscope.ranks.ranks import Ranks
from flopscope.ranks.stragglers import Stragglers
from flopscope.results.head import rank_of
from helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
from ranks_simulator import Program, Simulated, write

SMALL = {"dp": 4, "tp": 2, "events": 2500}


def simulated(folder: Path, **more: Any) -> Simulated:
    return write(Program(**{**SMALL, **more}), folder)


def simulated_ranks(folder: Path, **more: Any) -> Ranks:
    simulated(folder, **more)
    return load_ranks(folder, workers=1)


def edited(folder: Path, edit: Any) -> None:
    """Write the traces anew, after ``edit(rank, trace)`` has changed each."""
    for path in sorted(folder.glob("*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        edit(rank_of_name(path.name), trace)
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))


def reloaded(folder: Path, edit: Any) -> Ranks:
    """Return the ranks of the edited traces."""
    edited(folder, edit)
    return load_ranks(folder, workers=1)


def without_collectives(_: int, trace: dict[str, Any]) -> None:
    """Leave the communication out of a trace, for ``edited``."""
    events = trace["traceEvents"]
    trace["traceEvents"] = [e for e in events if "nccl" not in e["name"] and e["name"] != "record_param_comms"]


def stragglers_of(traces: Any) -> Stragglers:
    """Return who waits for whom in traces that name their ranks, or in a dict of traces by rank."""
    named = traces if isinstance(traces, dict) else {rank_of(trace.metadata, ""): trace for trace in traces}
    return Ranks(digests_of(named)).stragglers()


def waits_of(found: Stragglers) -> pd.DataFrame:
    """Return the wait of each member of a matched collective until the last one started; ``call``: its row."""
    frames = []
    for place, group in enumerate(found.matched.groups):
        row, column = np.nonzero(~np.isnan(group.start))
        order = found.calls["start"].argsort(kind="stable").argsort()[found.calls["place"] == place].to_numpy()
        columns = {
            "call": order[row], "rank": found.ranks["rank"].to_numpy()[group.members[column]],
            "duration": group.duration[row, column], "wait": group.wait[row, column], "last": group.last[row] == column,
        }  # fmt: skip
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames).sort_values(["call", "rank"])


def groups_of(
    tp: int, dp: int, pp: int, calls: int, seed: int, drift_ppm: float = 0.0
) -> tuple[int, Any, Any, list[Group]]:
    """Return ends of collectives that are late by an exponential of 2 µs on each rank, two in a hundred by up to
    500."""
    rng = np.random.default_rng(seed)
    ranks = tp * dp * pp
    hosts = np.arange(ranks) // 8
    offset = rng.normal(0, 300.0, hosts.max() + 1)[hosts]
    drift = 1e-6 * rng.normal(0, drift_ppm, hosts.max() + 1)[hosts] if drift_ppm else np.zeros(ranks)
    places = np.arange(ranks).reshape(pp, dp, tp)
    members = [places[p, d] for p in range(pp) for d in range(dp)]
    members += [places[p, :, t] for p in range(pp) for t in range(tp)]
    members += [places[:, 0, 0]] if pp > 1 else []
    groups = []
    for who in members:
        times = np.sort(rng.uniform(0, 5e6, calls))
        ends = times[:, None] + rng.exponential(2.0, (calls, len(who)))
        late = rng.random(ends.shape) < 0.02
        ends[late] += rng.uniform(20, 500, int(late.sum()))
        ends = ends + offset[who] + ends * drift[who]
        duration = np.full(ends.shape, 50.0)
        kind, none = np.zeros(calls, np.int8), np.zeros_like(duration)
        groups.append(
            Group(
                *("g", str(list(who)), who.astype(np.intp), kind, np.full(calls, 1e6), np.arange(calls)),
                *(np.ones(calls), ends - duration, duration, none),
            )
        )
    return ranks, offset - offset[0], drift - drift[0], groups


def random_fault(rng: np.random.Generator, program: dict[str, Any]) -> tuple[str, dict[str, Any], set[int]]:
    """Return a kind of fault, the program's arguments for it, and the ranks that may be named."""
    ranks = program["dp"] * program["tp"] * program["pp"]
    rank = int(rng.integers(ranks))
    kinds = ["gpu", "data", "work", "step"]
    if program["pp"] > 1 and ranks > 16:
        kinds.append("link")
    kind = str(rng.choice(kinds))
    if kind == "gpu":
        return kind, {"slow_gpu": {rank: float(rng.uniform(1.06, 1.5))}}, {rank}
    if kind == "data":
        return kind, {"late_data": {rank: float(rng.uniform(600, 4000))}}, {rank}
    if kind == "work":
        return kind, {"imbalance": {rank: 1 + float(rng.integers(1, 5)) / 8}}, {rank}
    if kind == "step":
        return kind, {"slow_steps": {int(rng.integers(1, 4)): float(rng.uniform(6e3, 2e4))}}, set()
    host = int(rng.integers(ranks // 8))
    stage = ranks // program["pp"]
    same = {r for r in range(ranks) if r // stage == (8 * host) // stage}
    return kind, {"slow_link": {host: float(rng.uniform(0.3, 0.6))}}, same


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

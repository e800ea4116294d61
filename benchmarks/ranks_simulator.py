"""Traces of many ranks whose faults are known, for the benchmark and the tests of fs.load_ranks().

A simulated program repeats one step of a real training of two ranks on H200 (data/ddp_step.json.gz: ops, shapes,
kernels and their times): forward and backward in blocks, after each a TP all-reduce, which the block after it needs; in
the backward half DP all-reduces beside the computation; at the end an all-reduce of all ranks, for which the host
waits. Kernels of a rank run one after the other. A collective begins on each rank when that rank reaches it, and ends
on all of them together, a transfer after the last has begun.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

STEP = Path(__file__).resolve().parent / "data" / "ddp_step.json.gz"
BASE = 1_790_857_026_000_000_000  # ns since 1970
LINK_GBYTES_PER_S = {"host": 300.0, "network": 45.0}
LATENCY = {"host": 8.0, "network": 20.0}  # µs
JITTER = 0.8  # µs, of a collective's end on a rank
OUTLIERS = 0.01  # of the ends, up to 300 µs late
NOISE = 0.01  # relative, of a kernel's time
LAUNCH = 5.0  # µs of the host for a kernel
GAP = 1.2  # µs between kernels
BATCH_SIZES = (8, 4088)  # of the recorded step: sequences, tokens


@dataclass(frozen=True)
class Program:
    """What is simulated. A rank's place is (stage, replica, shard), the shard varying fastest."""

    dp: int = 8
    tp: int = 1
    pp: int = 1
    events: int = 20_000
    """In each rank's trace, approximately."""
    blocks: int = 12
    gpus_per_host: int = 8
    seed: int = 0
    offset_us: float = 300.0
    """Standard deviation of the hosts' clocks."""
    drift_ppm: float = 0.0
    slow_gpu: Mapping[int, float] = field(default_factory=dict)
    """By rank: the factor on the times of its kernels."""
    late_data: Mapping[int, float] = field(default_factory=dict)
    """By rank: µs by which its data come late in each step."""
    imbalance: Mapping[int, float] = field(default_factory=dict)
    """By rank: the factor on the size of its batch."""
    slow_link: Mapping[int, float] = field(default_factory=dict)
    """By host: the factor on the bandwidth of its network."""
    slow_steps: Mapping[int, float] = field(default_factory=dict)
    """By step: µs that all ranks lose at its beginning."""
    stops: Mapping[int, int] = field(default_factory=dict)
    """By rank: the step at whose collectives it stops to take part. The others' traces end there too."""
    lost: Sequence[int] = ()
    """Ranks without a file."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.dp * self.tp * self.pp


@dataclass
class Collective:
    """An all-reduce of a step: the block after which it is called, and its groups."""

    after: int
    group: str
    groups: list[npt.NDArray[np.intp]]
    nbytes: float
    waits: bool = True
    """Whether what follows on the rank needs its result."""


@cache
def read_step() -> list[dict[str, Any]]:
    """Return the pieces of the recorded step: op, shapes, dtypes, call, kernel, grid, block, time in µs."""
    pieces: list[dict[str, Any]] = json.loads(gzip.decompress(STEP.read_bytes()))
    return pieces


def collectives_of(program: Program) -> list[Collective]:
    """Return the collectives of a step in the order of their calls."""
    ranks = np.arange(program.ranks).reshape(program.pp, program.dp, program.tp)
    tensor = [ranks[p, d] for p in range(program.pp) for d in range(program.dp)]
    data = [ranks[p, :, t] for p in range(program.pp) for t in range(program.tp)]
    found: list[Collective] = []
    for block in range(program.blocks):
        if program.tp > 1:
            found.append(Collective(block, "tp", tensor, 16e6))
        if program.dp > 1 and block >= program.blocks // 2:
            found.append(Collective(block, "dp", data, 28e6, waits=False))
    found.append(Collective(program.blocks - 1, "world", [ranks.ravel()], 4.0))
    return found


@dataclass
class Simulated:
    """Times in µs on the true clock: of each step and rank, and of each step, block or collective, and rank."""

    step_begin: Array
    step_end: Array
    data_time: Array
    block_begin: Array
    block_time: Array
    call_begin: Array
    call_end: Array
    offset: Array
    """The true offset of each rank's clock at time 0."""
    drift: Array

    @property
    def steps(self) -> int:
        return len(self.step_begin)


def simulate(program: Program) -> Simulated:
    """Run the program: the times of all ranks."""
    rng = np.random.default_rng(program.seed)
    pieces, calls, ranks = read_step(), collectives_of(program), program.ranks
    bounds = _bounds(program)
    work, share = _work(bounds)
    host = LAUNCH * np.diff(bounds)
    steps = max(1, round(program.events / (3 * len(pieces) + 5 * len(calls) + 2)))
    factors, batch = (_by_rank(given, ranks, 1.0) for given in (program.slow_gpu, program.imbalance))
    late = _by_rank(program.late_data, ranks, 0.0)
    hosts = np.arange(ranks) // program.gpus_per_host
    offset = rng.normal(0, program.offset_us, hosts.max() + 1)[hosts]
    drift = 1e-6 * rng.normal(0, program.drift_ppm, hosts.max() + 1)[hosts] if program.drift_ppm else np.zeros(ranks)
    begin, end, data = (np.zeros((steps, ranks)) for _ in range(3))
    block_begin, block_time = (np.zeros((steps, program.blocks, ranks)) for _ in range(2))
    call_begin, call_end = (np.zeros((steps, len(calls), ranks)) for _ in range(2))
    now = np.full(ranks, 1000.0)
    for s in range(steps):
        begin[s] = now
        data[s] = 150.0 + rng.exponential(20.0, ranks) + late + program.slow_steps.get(s, 0.0)
        launched = now + data[s] + LAUNCH
        device, beside = launched.copy(), launched.copy()
        for block in range(program.blocks):
            device = np.maximum(device, launched)
            noise = 1 + NOISE * rng.standard_normal(ranks) / 4
            block_begin[s, block] = device
            block_time[s, block] = work[block] * factors * (1 + (batch - 1) * share[block]) * noise
            device = device + block_time[s, block]
            launched = launched + host[block]
            for c, call in enumerate(calls):
                if call.after != block:
                    continue
                ready = np.maximum(device if call.waits else np.maximum(device, beside), launched) + GAP
                finish = _finish(program, call, ready, hosts, rng)
                call_begin[s, c], call_end[s, c] = ready, finish
                if call.waits:
                    device = finish
                else:
                    beside = finish
        now = np.maximum(np.maximum(device, beside), launched) + 20.0
        end[s] = now
    times = (begin, end, data, block_begin, block_time, call_begin, call_end)
    return Simulated(*times, offset - offset[0], drift - drift[0])


def _bounds(program: Program) -> npt.NDArray[np.intp]:
    """Return the places of the pieces at which blocks begin and end."""
    return np.linspace(0, len(read_step()), program.blocks + 1).astype(np.intp)


def _work(bounds: npt.NDArray[np.intp]) -> tuple[Array, Array]:
    """Return the time of each block, and the part of it that grows with the batch."""
    pieces = read_step()
    times = np.array([piece["time"] for piece in pieces])
    batched = np.array([_has_batch(piece) for piece in pieces])
    work = np.array([times[a:b].sum() + GAP * (b - a) for a, b in pairwise(bounds)])
    return work, np.array([times[a:b][batched[a:b]].sum() for a, b in pairwise(bounds)]) / work


def _by_rank(given: Mapping[int, float], ranks: int, otherwise: float) -> Array:
    return np.array([given.get(rank, otherwise) for rank in range(ranks)])


def _finish(
    program: Program, call: Collective, ready: Array, hosts: npt.NDArray[np.intp], rng: np.random.Generator
) -> Array:
    """Return when the collective ends on each rank."""
    finish = np.empty(len(ready))
    for group in call.groups:
        finish[group] = ready[group].max() + _transfer(program, call, group, hosts, rng)
    finish += rng.exponential(JITTER, len(ready))
    outlier = rng.random(len(ready)) < OUTLIERS
    return finish + np.where(outlier, rng.uniform(20, 300, len(ready)), 0.0)


def _transfer(
    program: Program,
    call: Collective,
    group: npt.NDArray[np.intp],
    hosts: npt.NDArray[np.intp],
    rng: np.random.Generator,
) -> float:
    """Return the time of a group's transfer in µs."""
    link = "host" if len(np.unique(hosts[group])) == 1 else "network"
    rate = LINK_GBYTES_PER_S[link]
    if link == "network":
        rate *= min(program.slow_link.get(int(host), 1.0) for host in np.unique(hosts[group]))
    moved = 2 * call.nbytes * (len(group) - 1) / len(group)
    return float((LATENCY[link] + moved / (1e3 * rate)) * (1 + 0.02 * abs(rng.standard_normal())))


# Writing --------------------------------------------------------------------------------------------------------------

NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STREAM, NCCL_STREAM = 7, 17
PROPERTIES = {"name": "NVIDIA H200", "totalGlobalMem": 150109880320}
PROPERTIES |= {"computeMajor": 9, "computeMinor": 0, "numSms": 132}


def write(program: Program, folder: Path, workers: int = 1) -> Simulated:
    """Write a trace for each rank that is not lost, as hostN_rankN.json.gz, and return the true times."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = [rank for rank in range(program.ranks) if rank not in set(program.lost)]
    write_some = partial(_write_ranks, program, folder)
    if workers == 1:
        write_some(ranks)
    else:
        with ProcessPoolExecutor(workers) as pool:
            list(pool.map(write_some, [ranks[start::workers] for start in range(workers)]))
    return simulate(program)


def _write_ranks(program: Program, folder: Path, ranks: Sequence[int]) -> None:
    simulated = simulate(program)
    for rank in ranks:
        head = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": gpu, **PROPERTIES} for gpu in range(program.gpus_per_host)],
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": program.ranks},
            "record_shapes": 1,
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": BASE,
        }
        text = json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(_events(program, simulated, rank)) + "\n]}"
        path = folder / f"host{rank // program.gpus_per_host}_rank{rank}.json.gz"
        path.write_bytes(gzip.compress(text.encode(), 1))


def _events(program: Program, simulated: Simulated, rank: int) -> Iterator[str]:
    calls = collectives_of(program)
    groups = [_group_of(call, rank) for call in calls]
    sequence = dict.fromkeys((call.group for call in calls), 0)
    pieces, bounds = read_step(), _bounds(program)
    batch = program.imbalance.get(rank, 1.0)
    texts = [_piece_texts(piece, batch) for piece in pieces]
    times = np.array([piece["time"] * (batch if _has_batch(piece) else 1.0) for piece in pieces])
    rng = np.random.default_rng((program.seed, rank))
    last_step = min(program.stops.values(), default=simulated.steps)
    clock = partial(_clock, float(simulated.offset[rank]), float(simulated.drift[rank]))
    identity = 1
    for s in range(min(simulated.steps, last_step + 1)):
        begin, end = float(simulated.step_begin[s, rank]), float(simulated.step_end[s, rank])
        loading = float(simulated.data_time[s, rank])
        yield _X % ("user_annotation", f"ProfilerStep#{s}", 1, 1, clock(begin), end - begin - 5.0, "{}")
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        yield _X % ("user_annotation", name, 1, 1, clock(begin + 1.0), loading - 2.0, "{}")
        host = begin + loading
        for block, (a, b) in enumerate(pairwise(bounds)):
            own = times[a:b] * (1 + NOISE * rng.standard_normal(b - a))
            own *= (float(simulated.block_time[s, block, rank]) - GAP * (b - a)) / float(own.sum())
            starts = float(simulated.block_begin[s, block, rank]) + np.cumsum(own + GAP) - own - GAP
            for piece, time, start in zip(texts[a:b], own.tolist(), starts.tolist(), strict=True):
                yield from _kernel(piece, identity, (clock(host), clock(host + 0.5), clock(start)), time)
                host += LAUNCH
                identity += 1
            for c, one in enumerate(calls):
                if one.after != block:
                    continue
                what = groups[c] % sequence[one.group]
                sequence[one.group] += 1
                if s == program.stops.get(rank):
                    continue
                starts_at, ends_at = (float(each[s, c, rank]) for each in (simulated.call_begin, simulated.call_end))
                runs = None if s == last_step and program.stops else (clock(starts_at), ends_at - starts_at)
                yield from _collective(what, identity, (clock(host), clock(host + 0.5)), runs)
                identity += 1
                host += 4.0
        waits = clock(host), max(end - 10.0 - host, 1.0), f'{{"correlation": {identity}}}'
        yield _X % ("cuda_runtime", "cudaDeviceSynchronize", 1, 1, *waits)
        identity += 1


def _clock(offset: float, drift: float, time: float) -> float:
    return time + offset + drift * time


_X = '{"ph": "X", "cat": "%s", "name": "%s", "pid": %d, "tid": %d, "ts": %.3f, "dur": %.3f, "args": %s}'
_LINK = '{"External id": %d, "correlation": %d}'


def _kernel(piece: Sequence[str], identity: int, at: Sequence[float], time: float) -> Iterator[str]:
    op, arguments, call, kernel, launch = piece
    yield _X % ("cpu_op", op, 1, 1, at[0], LAUNCH - 0.5, arguments % identity)
    yield _X % ("cuda_runtime", call, 1, 1, at[1], LAUNCH - 1.5, _LINK % (identity, identity))
    yield _X % ("kernel", kernel, 0, STREAM, at[2], time, launch % (identity, identity))


def _collective(what: str, identity: int, at: Sequence[float], runs: tuple[float, float] | None) -> Iterator[str]:
    """Yield the events of a call, and of its kernel if that has run."""
    link = _LINK % (identity, identity)
    yield _X % ("cpu_op", "record_param_comms", 1, 1, at[0], 3.0, f'{{"External id": {identity}, {what}}}')
    yield _X % ("cuda_runtime", "cudaLaunchKernelExC", 1, 1, at[1], 2.0, link)
    if runs is not None:
        launch = f'"device": 0, "stream": {NCCL_STREAM}, "grid": [24, 1, 1], "block": [544, 1, 1], {what}'
        yield _X % ("kernel", NCCL_KERNEL, 0, NCCL_STREAM, *runs, f"{link[:-1]}, {launch}}}")


def _piece_texts(piece: Mapping[str, Any], batch: float) -> tuple[str, str, str, str, str]:
    """Return op, its arguments, call, kernel and its arguments; the numbers are filled in by %."""
    dims = [[_scaled(n, batch) for n in shape] if isinstance(shape, list) else shape for shape in piece["shapes"]]
    arguments = {"External id": "@", "Input Dims": dims, "Input type": piece["types"]}
    place = {"device": 0, "stream": STREAM, "grid": piece["grid"], "block": piece["block"]}
    launch = {"External id": "@", "correlation": "@", **place}
    texts = [json.dumps(text).replace("%", "%%").replace('"@"', "%d") for text in (arguments, launch)]
    return piece["op"], texts[0], piece["call"], piece["kernel"].replace('"', "'"), texts[1]


def _has_batch(piece: Mapping[str, Any]) -> bool:
    return any(n in BATCH_SIZES for shape in piece["shapes"] if isinstance(shape, list) for n in shape)


def _scaled(n: Any, batch: float) -> Any:
    return round(n * batch) if n in BATCH_SIZES else n


def _group_of(call: Collective, rank: int) -> str:
    """Return the arguments that PyTorch records of a collective; the sequence number is filled in by %."""
    names = [int(one) for one in next(group for group in call.groups if rank in group)]
    elements = round(call.nbytes / 2)
    what = {
        "Collective name": "allreduce",
        "Process Group Name": f"{call.group}_{names[0]}",
        "Process Group Description": call.group,
        "Process Group Ranks": str(names) if len(names) <= 30 else str(names[:30])[:-1] + ", ...]",
        "Group size": len(names),
        "dtype": "BFloat16",
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Rank": rank,
    }
    return json.dumps(what)[1:-1] + ', "Seq": %d'

"""Traces of many ranks whose faults are known, for benchmarks and tests of fs.load_ranks().

    python benchmarks/ranks_simulator.py FOLDER --dp 8 --tp 4 --events 20000 --slow-gpu 5:1.2 --slow-link 1:0.5

A simulated program repeats one step of a real training of two ranks on H200 (benchmarks/data/ddp_step.json.gz: ops,
shapes, kernels and their times): forward and backward in blocks, after each a TP all-reduce and, with experts, an
all-to-all, both of which the block after it needs; in the backward half DP all-reduces beside the computation; at the
end an all-reduce of all ranks, for which the host waits. Kernels of a rank run one after the other. A collective begins
on each rank when that rank reaches it, and ends on all of them together, a transfer after the last has begun.

``extract`` makes the file of the step from the traces of two ranks.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

STEP = Path(__file__).resolve().parent / "data" / "ddp_step.json.gz"
BASE = 1_790_857_026_000_000_000  # ns since 1970
LINK_GBYTES_PER_S = {"host": 300.0, "network": 45.0}
LATENCY = {"host": 8.0, "network": 20.0}  # µs
JITTER = 0.8  # µs, of a collective's end on a rank
OUTLIERS = 0.01  # of the ends, up to 300 µs late
NOISE = 0.01  # relative, of a kernel's time
LAUNCH = 5.0  # µs of the host for a kernel
GAP = 1.2  # µs between kernels


@dataclass(frozen=True)
class Program:
    """What is simulated. A rank's place is (stage, replica, shard), the shard varying fastest."""

    dp: int = 8
    tp: int = 1
    pp: int = 1
    ep: int = 1
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
    """A collective of a step: the block after which it is called, and its groups."""

    kind: str
    after: int
    group: str
    groups: list[npt.NDArray[np.intp]]
    nbytes: float
    waits: bool = True
    """Whether what follows on the rank needs its result."""


def read_step() -> list[dict[str, Any]]:
    """Return the pieces of the recorded step: op, shapes, dtypes, call, kernel, grid, block, time in µs."""
    with gzip.open(STEP, "rt") as file:
        pieces: list[dict[str, Any]] = json.load(file)
    return pieces


def collectives_of(program: Program) -> list[Collective]:
    """Return the collectives of a step in the order of their calls."""
    ranks = np.arange(program.ranks).reshape(program.pp, program.dp, program.tp)
    tensor = [ranks[p, d] for p in range(program.pp) for d in range(program.dp)]
    data = [ranks[p, :, t] for p in range(program.pp) for t in range(program.tp)]
    experts = [part for group in data for part in np.split(group, max(1, len(group) // max(program.ep, 1)))]
    found: list[Collective] = []
    for block in range(program.blocks):
        if program.tp > 1:
            found.append(Collective("allreduce", block, "tp", tensor, 16e6))
        if program.ep > 1:
            found.append(Collective("all_to_allv", block, "ep", experts, 8e6))
        if program.dp > 1 and block >= program.blocks // 2:
            found.append(Collective("allreduce", block, "dp", data, 28e6, waits=False))
    found.append(Collective("allreduce", program.blocks - 1, "world", [ranks.ravel()], 4.0))
    return found


@dataclass
class Simulated:
    """Times in µs on the true clock: of each step and rank, and of each step, collective and rank."""

    steps: int
    step_begin: npt.NDArray[np.float64]
    step_end: npt.NDArray[np.float64]
    data_time: npt.NDArray[np.float64]
    block_begin: npt.NDArray[np.float64]
    block_time: npt.NDArray[np.float64]
    kernel_times: npt.NDArray[np.float64]
    """Of the recorded step, for a batch of size 1."""
    factors: npt.NDArray[np.float64]
    call_begin: npt.NDArray[np.float64]
    call_end: npt.NDArray[np.float64]
    offset: npt.NDArray[np.float64]
    """The true offset of each rank's clock in µs, at time 0."""
    drift: npt.NDArray[np.float64]


def simulate(program: Program) -> tuple[Simulated, list[dict[str, Any]], list[Collective]]:
    """Run the program: the times of all ranks."""
    rng = np.random.default_rng(program.seed)
    pieces, calls = read_step(), collectives_of(program)
    ranks, blocks = program.ranks, program.blocks
    times = np.array([piece["time"] for piece in pieces])
    bounds = np.linspace(0, len(pieces), blocks + 1).astype(int)
    blocks_of = list(pairwise(bounds))
    work = np.array([times[a:b].sum() + GAP * (b - a) for a, b in blocks_of])
    # The part of a block's time that grows with the batch.
    batched = np.array([_has_batch(piece) for piece in pieces])
    share = np.array([times[a:b][batched[a:b]].sum() for a, b in blocks_of]) / work
    host = LAUNCH * np.diff(bounds)
    steps = max(1, round(program.events / (3 * len(pieces) + 5 * len(calls) + 2)))
    factors = np.ones(ranks)
    batch = np.ones(ranks)
    for rank, factor in program.slow_gpu.items():
        factors[rank] = factor
    for rank, factor in program.imbalance.items():
        batch[rank] = factor
    late = np.zeros(ranks)
    for rank, delay in program.late_data.items():
        late[rank] = delay
    hosts = np.arange(ranks) // program.gpus_per_host
    offset = rng.normal(0, program.offset_us, hosts.max() + 1)[hosts]
    drift = 1e-6 * rng.normal(0, program.drift_ppm, hosts.max() + 1)[hosts] if program.drift_ppm else np.zeros(ranks)
    shape = steps, ranks
    begin, end, data = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    block_begin, block_time = np.zeros((steps, blocks, ranks)), np.zeros((steps, blocks, ranks))
    call_begin, call_end = np.zeros((steps, len(calls), ranks)), np.zeros((steps, len(calls), ranks))
    now = np.full(ranks, 1000.0)
    for s in range(steps):
        begin[s] = now
        data[s] = 150.0 + rng.exponential(20.0, ranks) + late + program.slow_steps.get(s, 0.0)
        launched = now + data[s] + LAUNCH
        device, beside = launched.copy(), launched.copy()
        for block in range(blocks):
            device = np.maximum(device, launched)
            block_begin[s, block] = device
            block_time[s, block] = (
                work[block] * factors * (1 + (batch - 1) * share[block]) * (1 + NOISE * rng.standard_normal(ranks) / 4)
            )
            device = device + block_time[s, block]
            launched = launched + host[block]
            for c, call in enumerate(calls):
                if call.after != block:
                    continue
                ready = np.maximum(device if call.waits else np.maximum(device, beside), launched) + GAP
                finish = np.empty(ranks)
                for group in call.groups:
                    finish[group] = ready[group].max() + _transfer(program, call, group, hosts, rng)
                finish += rng.exponential(JITTER, ranks)
                outlier = rng.random(ranks) < OUTLIERS
                finish += np.where(outlier, rng.uniform(20, 300, ranks), 0.0)
                call_begin[s, c], call_end[s, c] = ready, finish
                if call.waits:
                    device = finish
                else:
                    beside = finish
        now = np.maximum(np.maximum(device, beside), launched) + 20.0
        end[s] = now
    simulated = Simulated(
        steps,
        begin,
        end,
        data,
        block_begin,
        block_time,
        times,
        factors,
        call_begin,
        call_end,
        offset - offset[0],
        drift - drift[0],
    )
    return simulated, pieces, calls


def _transfer(
    program: Program,
    call: Collective,
    group: npt.NDArray[np.intp],
    hosts: npt.NDArray[np.intp],
    rng: np.random.Generator,
) -> float:
    """Return the time of a group's transfer in µs."""
    n = len(group)
    link = "host" if len(np.unique(hosts[group])) == 1 else "network"
    rate = LINK_GBYTES_PER_S[link]
    if link == "network":
        rate *= min(program.slow_link.get(int(host), 1.0) for host in np.unique(hosts[group]))
    factor = (n - 1) / n * (2 if call.kind == "allreduce" else 1)
    return float((LATENCY[link] + call.nbytes * factor / (1e3 * rate)) * (1 + 0.02 * abs(rng.standard_normal())))


# Writing --------------------------------------------------------------------------------------------------------------

KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_allv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
STREAM, NCCL_STREAM = 7, 17


def write(program: Program, folder: Path, workers: int | None = None) -> Simulated:
    """Write a trace for each rank that is not lost, as rankN.json.gz, and return the true times."""
    simulated, pieces, calls = simulate(program)
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [(program, simulated, rank, folder) for rank in range(program.ranks) if rank not in set(program.lost)]
    if workers == 1:
        for task in tasks:
            _write_rank(task, pieces, calls)
    else:
        with ProcessPoolExecutor(workers) as pool:
            list(pool.map(_write_task, [(p, _of_rank(s, rank), rank, f) for p, s, rank, f in tasks], chunksize=4))
    return simulated


def _of_rank(simulated: Simulated, rank: int) -> Simulated:
    """Return the times of one rank, as the only column."""
    one = slice(rank, rank + 1)
    s = simulated
    return Simulated(
        *(s.steps, s.step_begin[:, one], s.step_end[:, one], s.data_time[:, one], s.block_begin[:, :, one]),
        *(
            s.block_time[:, :, one],
            s.kernel_times,
            s.factors[one],
            s.call_begin[:, :, one],
            s.call_end[:, :, one],
            s.offset[one],
            s.drift[one],
        ),
    )


def _write_task(task: tuple[Program, Simulated, int, Path]) -> None:
    program = task[0]
    _write_rank(task, read_step(), collectives_of(program))


def _write_rank(
    task: tuple[Program, Simulated, int, Path], pieces: list[dict[str, Any]], calls: list[Collective]
) -> None:
    program, simulated, rank, folder = task
    column = rank if simulated.step_begin.shape[1] > 1 else 0
    events = _events(program, simulated, rank, column, pieces, calls)
    head = {
        "schemaVersion": 1,
        "deviceProperties": [
            {
                "id": gpu,
                "name": "NVIDIA H200",
                "totalGlobalMem": 150109880320,
                "computeMajor": 9,
                "computeMinor": 0,
                "numSms": 132,
            }
            for gpu in range(program.gpus_per_host)
        ],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": program.ranks},
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE,
    }
    with gzip.open(folder / f"host{rank // program.gpus_per_host}_rank{rank}.json.gz", "wt", compresslevel=1) as file:
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(events) + "\n]}")


def _events(
    program: Program,
    simulated: Simulated,
    rank: int,
    column: int,
    pieces: list[dict[str, Any]],
    calls: list[Collective],
) -> Iterable[str]:
    offset, drift = float(simulated.offset[column]), float(simulated.drift[column])

    def clock(time: float) -> float:
        return time + offset + drift * time

    rng = np.random.default_rng((program.seed, rank))
    bounds = np.linspace(0, len(pieces), program.blocks + 1).astype(int)
    batch = program.imbalance.get(rank, 1.0)
    texts = [_piece_texts(piece, batch) for piece in pieces]
    groups = [_group_of(call, rank) for call in calls]
    sequence = dict.fromkeys((call.group for call in calls), 0)
    factors = np.where([_has_batch(piece) for piece in pieces], batch, 1.0) * float(simulated.factors[column])
    last_step = min(program.stops.values(), default=simulated.steps)
    identity = 1
    for s in range(simulated.steps):
        begin, end = float(simulated.step_begin[s, column]), float(simulated.step_end[s, column])
        if s > last_step:
            break
        yield _X % ("user_annotation", f"ProfilerStep#{s}", 1, 1, clock(begin), end - begin - 5.0, "{}")
        loading = float(simulated.data_time[s, column])
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        yield _X % ("user_annotation", name, 1, 1, clock(begin + 1.0), loading - 2.0, "{}")
        host = begin + loading
        for block in range(program.blocks):
            device = float(simulated.block_begin[s, block, column])
            a, b = bounds[block], bounds[block + 1]
            own = simulated.kernel_times[a:b] * factors[a:b] * (1 + NOISE * rng.standard_normal(b - a))
            own *= (float(simulated.block_time[s, block, column]) - GAP * (b - a)) / float(own.sum())
            starts = device + np.cumsum(own + GAP) - own - GAP
            for piece, time, start in zip(texts[a:b], own.tolist(), starts.tolist(), strict=True):
                op, arguments, call, kernel, launch = piece
                yield _X % ("cpu_op", op, 1, 1, clock(host), LAUNCH - 0.5, arguments % identity)
                link = f'{{"External id": {identity}, "correlation": {identity}}}'
                yield _X % ("cuda_runtime", call, 1, 1, clock(host + 0.5), LAUNCH - 1.5, link)
                yield _X % ("kernel", kernel, 0, STREAM, clock(start), time, launch % (identity, identity))
                host += LAUNCH
                identity += 1
            for c, one in enumerate(calls):
                if one.after != block:
                    continue
                number = sequence[one.group]
                sequence[one.group] += 1
                if s == program.stops.get(rank):
                    continue
                begins, ends = (float(times[s, c, column]) for times in (simulated.call_begin, simulated.call_end))
                what = groups[c] % number
                yield _X % (
                    "cpu_op",
                    "record_param_comms",
                    1,
                    1,
                    clock(host),
                    3.0,
                    f'{{"External id": {identity}, {what}}}',
                )
                link = f'{{"External id": {identity}, "correlation": {identity}}}'
                yield _X % ("cuda_runtime", "cudaLaunchKernelExC", 1, 1, clock(host + 0.5), 2.0, link)
                if s != last_step or not program.stops:
                    launch = f'"device": 0, "stream": {NCCL_STREAM}, "grid": [24, 1, 1], "block": [544, 1, 1], {what}'
                    arguments = f"{link[:-1]}, {launch}}}"
                    yield _X % ("kernel", KERNELS[one.kind], 0, NCCL_STREAM, clock(begins), ends - begins, arguments)
                identity += 1
                host += 4.0
        yield _X % (
            "cuda_runtime",
            "cudaDeviceSynchronize",
            1,
            1,
            clock(host),
            max(end - 10.0 - host, 1.0),
            f'{{"correlation": {identity}}}',
        )
        identity += 1


_X = '{"ph": "X", "cat": "%s", "name": "%s", "pid": %d, "tid": %d, "ts": %.3f, "dur": %.3f, "args": %s}'


def _piece_texts(piece: Mapping[str, Any], batch: float) -> tuple[str, str, str, str, str]:
    """Return op, its arguments, call, kernel and its arguments; the numbers are filled in by %."""
    dims = [[_scaled(n, batch) for n in shape] if isinstance(shape, list) else shape for shape in piece["shapes"]]
    arguments = {"External id": "@", "Input Dims": dims, "Input type": piece["types"]}
    launch = {
        "External id": "@",
        "correlation": "@",
        "device": 0,
        "stream": STREAM,
        "grid": piece["grid"],
        "block": piece["block"],
    }
    texts = [json.dumps(text).replace("%", "%%").replace('"@"', "%d") for text in (arguments, launch)]
    return piece["op"], texts[0], piece["call"], piece["kernel"].replace('"', "'"), texts[1]


BATCH_SIZES = (8, 4088)  # of the recorded step: sequences, tokens


def _has_batch(piece: Mapping[str, Any]) -> bool:
    return any(n in BATCH_SIZES for shape in piece["shapes"] if isinstance(shape, list) for n in shape)


def _scaled(n: Any, batch: float) -> Any:
    return round(n * batch) if n in BATCH_SIZES else n


def _group_of(call: Collective, rank: int) -> str:
    """Return the arguments that PyTorch records of a collective; the sequence number is filled in by %."""
    members = next(group for group in call.groups if rank in group)
    elements = round(call.nbytes / 2)
    names = [int(one) for one in members]
    listed = str(names) if len(names) <= 30 else str(names[:30])[:-1] + ", ...]"
    what = {
        "Collective name": call.kind,
        "Process Group Name": f"{call.group}_{names[0]}",
        "Process Group Description": call.group,
        "Process Group Ranks": listed,
        "Group size": len(names),
        "dtype": "BFloat16",
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Rank": rank,
    }
    return json.dumps(what)[1:-1] + ', "Seq": %d'


# The recorded step ----------------------------------------------------------------------------------------------------


def extract(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the pieces of the second step of the traces of two ranks; times are the shorter of the two."""
    ranks = [_pieces_of(path) for path in paths]
    times = np.min([[piece["time"] for piece in pieces] for pieces in ranks], axis=0)
    return [{**piece, "time": round(float(time), 3)} for piece, time in zip(ranks[0], times, strict=True)]


def _pieces_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    steps = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("ProfilerStep")]
    step = max(steps, key=lambda e: float(e["ts"]))
    ops = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op" and "External id" in e["args"]}
    calls = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    pieces = []
    for e in sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: float(e["ts"])):
        launched = calls.get(e["args"]["correlation"])
        op = ops.get(e["args"].get("External id"))
        if launched is None or op is None or "nccl" in e["name"].lower():
            continue
        if not step["ts"] <= launched["ts"] <= step["ts"] + step["dur"]:
            continue
        pieces.append(
            {
                "op": op["name"],
                "shapes": op["args"].get("Input Dims", []),
                "types": op["args"].get("Input type", []),
                "call": launched["name"],
                "kernel": re.sub(r"\s+", " ", e["name"])[:160],
                "grid": e["args"]["grid"],
                "block": e["args"]["block"],
                "time": e["dur"],
            }
        )
    return pieces


def _pairs(text: str) -> tuple[int, float]:
    which, value = text.split(":")
    return int(which), float(value)


def main() -> None:
    """Write traces, or the file of the step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name in ("dp", "tp", "pp", "ep"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drift-ppm", type=float, default=0.0)
    for name in ("slow-gpu", "late-data", "imbalance", "slow-link"):
        parser.add_argument(f"--{name}", type=_pairs, action="append", default=[], metavar="WHICH:VALUE")
    parser.add_argument("--lost", type=int, action="append", default=[])
    parser.add_argument("--extract", type=Path, nargs=2, metavar="TRACE", help="write the file of the step instead")
    options = parser.parse_args()
    if options.extract:
        STEP.parent.mkdir(exist_ok=True)
        with gzip.open(STEP, "wt") as file:
            json.dump(extract(options.extract), file)
        return
    program = Program(
        *(options.dp, options.tp, options.pp, options.ep, options.events),
        seed=options.seed,
        drift_ppm=options.drift_ppm,
        lost=options.lost,
        **{name: dict(getattr(options, name)) for name in ("slow_gpu", "late_data", "imbalance", "slow_link")},
    )
    write(program, options.folder)


if __name__ == "__main__":
    main()

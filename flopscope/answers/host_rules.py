"""Rules about the host: warming up, waiting for data, copies, allocations, waits, optimizers, and launches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

from flopscope.answers.analysis import Analysis, Gap, Op
from flopscope.answers.findings import Finding, entry, evidence, gap_evidence, where
from flopscope.answers.host_events import Activity, calls_of, spent_while_idle
from flopscope.sentences.host import (
    Allocations,
    Copies,
    DataWait,
    HostWork,
    Launches,
    OptimizerOps,
    Waits,
    Warmup,
)
from flopscope.support.units import short_time_text

__all__ = ["copy", "data", "launch", "memory", "optimizer", "pauses", "sync", "warmup"]

KEPT = 0.95
"""Share of idle time that removing its cause gains."""
HANDFUL = 5
"""Launches, or late ones, up to which a graph or a fused op does not pay."""
GRAPHED = ("cuda", "hip")
"""Accelerators whose work torch can capture in a CUDA graph."""


def _gaps(analysis: Analysis, *causes: str) -> list[Gap]:
    return [gap for gap in analysis.gaps if gap.cause in causes]


def _host_times(analysis: Analysis, names: list[str]) -> list[dict[str, Any]]:
    """Return the evidence of ops, ranges or API calls: their time on the host, the longest first."""
    rows = [entry(name, *(analysis.row_sum(name, part) for part in ("cpu_time_total", "count"))) for name in names]
    return sorted((row for row in rows if row["time"] > 0), key=lambda row: -row["time"])


COMPILATION = "_compile.compile_inner (dynamo_timed)"
"""The range that torch.compile records around each compilation (torch/_dynamo/convert_frame.py)."""
LOADING = re.compile(r"Module Loading|Lazy Function Loading|^(?:cu|hip)(?:Module|Library)Load")
"""Kineto's overhead events and the driver's calls that load code."""
TUNING = re.compile(r"autotun|benchmark_all_configs|cudnnFind", re.IGNORECASE)
"""Ranges of torch.compile's and XLA's autotuners and of cuDNN's."""


def warmup(analysis: Analysis) -> Iterator[Finding]:
    """The device idles because code is compiled, or loaded for its first launch.

    Premises: the idle time passed in torch.compile's own ranges, or while a module was loaded (the causes `compile` and
    `loading` of the accounting). The estimate is all of that time: later steps do not have it. Compilation in later
    steps is told where such ranges begin in at least two of them.
    """
    gaps = _gaps(analysis, "compile", "loading")
    if not gaps:
        return
    keys = list(dict.fromkeys(analysis.columns["key"]))
    compiling = analysis.idle("compile")
    later = 0
    if compiling > 0 and analysis.has_steps:
        steps, _ = calls_of(analysis, {COMPILATION})
        later = len(set(steps[steps > 0].tolist()))
    tuning = [key for key in keys if TUNING.search(key)]
    names = [key for key in keys if key == COMPILATION or LOADING.search(key)] + tuning
    yield Finding(
        Warmup(compiling, analysis.idle("loading"), analysis.per, analysis.on_device, tuple(tuning), later),
        [(gap, gap.time) for gap in gaps],
        _host_times(analysis, names) or gap_evidence(analysis, gaps),
        where(analysis, gaps[0].event),
    )


WORKERS = {"_MultiProcessingDataLoaderIter": True, "_SingleProcessDataLoaderIter": False}
"""Whether a DataLoader has worker processes, by the class that iterates it."""
STARTING = 3.0
"""Times the median of the others that the first wait lasts for workers that start."""


def data(analysis: Analysis) -> Iterator[Finding]:
    """The program waits for a DataLoader, and its device, or the CPU, does nothing.

    Premises: torch records `enumerate(DataLoader)#…` around each wait, with the class that tells whether there are
    worker processes; pinned memory is advised where copies from pageable memory to the device were recorded. The
    estimate is 95 % of the idle time: with enough workers a batch is ready when it is needed. A first wait of workers,
    of more than three times the median of the others, is their start and not counted.
    """
    gaps = _gaps(analysis, "data")
    if not gaps:
        return
    names = [name for name in dict.fromkeys(analysis.columns["key"]) if "DataLoader" in name]
    kinds = {known for part, known in WORKERS.items() if any(part in name for name in names)}
    workers = kinds.pop() if len(kinds) == 1 else None
    total = sum(gap.time for gap in gaps)
    share = _starting(analysis, names) if workers else 0.0
    pageable = any("Memcpy HtoD (Pageable" in key for key in analysis.columns["key"])
    yield Finding(
        DataWait(
            (1 - share) * total,
            analysis.per,
            workers,
            share * total,
            analysis.on_device,
            pageable and analysis.accelerator in GRAPHED,
        ),
        [(gap, KEPT * (1 - share) * gap.time) for gap in gaps],
        _host_times(analysis, names) or gap_evidence(analysis, gaps),
        None,
    )


def _starting(analysis: Analysis, names: list[str]) -> float:
    """Return the share of the waits for data in which the workers started, of the steps that are alike."""
    steps, times = calls_of(analysis, names)
    first, *others = times[steps >= analysis.apart].tolist() or [0]
    return first / (first + sum(others)) if len(others) > 1 and first > STARTING * median(others) else 0.0


PINNED = {True: 0.25, False: 1.0}
"""Time of a copy from pinned memory over that of a copy from pageable memory (PCIe 5: 55 over 13 GB/s), or itself."""
COPIES = {"aten::to", "aten::copy_", "aten::_to_copy", "cudaMemcpyAsync", "cudaMemcpy"}


def copy(analysis: Analysis) -> Iterator[Finding]:
    """Copies between host and device during which the device computes nothing.

    Premises: the copies' names say their direction and the kind of memory, and the accounting that nothing else ran.
    They can overlap with the computation of the step, as far as that lasts, from pinned memory and on another stream.
    Source: PyTorch, "A guide on good usage of non_blocking and pin_memory()".
    """
    found: list[tuple[Op, float]] = []
    ways = {"HtoD": 0.0, "DtoH": 0.0, "Pageable": 0.0}
    for op in (op for op in analysis.ops if op.part == "copy"):
        copies = [one for one in op.kernels if one.name.startswith("Memcpy") and re.search("HtoD|DtoH", one.name)]
        for way in ways:
            ways[way] += sum(one.time for one in copies if way in one.name)
        if copies:
            found.append((op, sum(one.time for one in copies)))
    exposed = sum(time for _, time in found)
    if not exposed:
        return
    pageable = ways["Pageable"] / exposed
    computing = sum(op.time for op in analysis.ops if op.part not in ("copy", "communication"))
    left = max(exposed * (1 - pageable + PINNED[True] * pageable) - computing, 0.0)
    keys = {op.key for op, _ in found} | COPIES
    waits = [gap for gap in _gaps(analysis, "sync") if analysis.op_around(gap.wait) in keys]
    waited = sum(gap.time for gap in waits)
    share = min(exposed / waited, 1.0) if waited else 0.0  # the rest is the host's other work after the copy
    ops = [op for op, _ in found]
    yield Finding(
        Copies(exposed, analysis.per, ways["HtoD"] > 0, ways["DtoH"] > 0, pageable),
        [*((op, time * (1 - left / exposed)) for op, time in found), *((gap, gap.time * share) for gap in waits)],
        evidence(ops),
        where(analysis, ops[0].event),
    )


ALLOCATIONS = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cudaMallocAsync", "cudaFreeAsync")


def memory(analysis: Analysis) -> Iterator[Finding]:
    """Device memory is allocated and freed by the driver within the steps.

    Premises: the program marks steps, and such calls were recorded in most steps after the first, which allocates in
    any case. The estimate is the host time of those calls, as far as the device waits for the host:
    cudaFree waits for the device as well. Source: PyTorch, "CUDA semantics", memory management.
    """
    gaps = _gaps(analysis, "host", "sync")
    late = sum(gap.time for gap in gaps)
    if not late or not analysis.has_steps:
        return
    rows = _host_times(analysis, [name for name in ALLOCATIONS if analysis.row_sum(name, "count") > 0])
    if not rows:
        return
    steps, times = calls_of(analysis, {row["op"] for row in rows})
    if 2 * len(set(steps[steps > 0].tolist())) <= analysis.step_count - 1:
        return
    total, calls = (value / analysis.step_count for value in (times[steps >= 0].sum() / 1000, (steps >= 0).sum()))
    names = tuple(row["op"] for row in rows)
    yield Finding(
        Allocations(float(calls), names, float(total), analysis.per, any("Free" in name for name in names)),
        [(gap, gap.time * min(total / late, 1.0)) for gap in gaps],
        rows,
        None,
    )


OWN_WAITS = ("cudaDeviceSynchronize", "hipDeviceSynchronize")
"""What the profiler itself calls when it starts and stops, twice at most."""


def sync(analysis: Analysis) -> Iterator[Finding]:
    """The host waits for the device and then comes late with the next launches.

    Premises: the waiting call was recorded, is none of a copy to the device and none of the profiler's own, and the
    device idled after it. The estimate is that idle time; where the host is late for longer than the calls last, it
    would be earlier by the calls as well. Source: PyTorch, "Performance Tuning Guide", avoid unnecessary CPU-GPU
    synchronization.
    """
    gaps = [gap for gap in _gaps(analysis, "sync") if gap.wait >= 0 and not _is_expected(analysis, gap)]
    if not gaps or not analysis.on_device:
        return
    call, around = analysis.enclosing(gaps[0].wait)[0][1], analysis.op_around(gaps[0].wait)
    idle, late = sum(gap.time for gap in gaps), _gaps(analysis, "host")
    lasts, left = min(analysis.row_sum(call, "cpu_time_total"), idle), sum(gap.time for gap in late)
    yield Finding(
        Waits(call, around, analysis.row_sum(call, "count"), idle, analysis.per),
        [*((gap, gap.time) for gap in gaps), *((gap, lasts * gap.time / left) for gap in late if left > lasts)],
        gap_evidence(analysis, gaps),
        where(analysis, gaps[0].wait),
    )


def _is_expected(analysis: Analysis, gap: Gap) -> bool:
    """Return whether a wait is one of a copy to the device, or the profiler's own."""
    name = analysis.op_around(gap.wait)
    own = name in OWN_WAITS and (gap.count < 1 or analysis.row_sum(name, "count") * analysis.step_count <= 2)
    return name in COPIES or own


class Fused(NamedTuple):
    """What a fused step of an optimizer does."""

    devices: tuple[str, ...]
    """Where torch has it."""
    passes: int
    """Arrays of the parameters' size that it reads and writes."""
    unit: Mapping[str, int]
    """Ops of the separate step that each parameter has once, the surest first: by name, the arrays that each moves."""
    state: str
    """An op that only a step with one more array of state has, which the fused step reads and writes."""


ADAM = Fused((*GRAPHED, "cpu", "xpu"), 7, {"addcdiv_": 4}, "maximum")
OPTIMIZERS = {
    "Adam": ADAM,
    "AdamW": ADAM,
    "SGD": Fused((*GRAPHED, "cpu", "xpu"), 3, {"mul_": 2, "add_": 3}, "mul_"),
    "Adagrad": Fused(("cpu",), 5, {"addcdiv_": 4}, ""),
}
"""Adam reads p, g, m, v and writes p, m, v; SGD reads p, g and writes p, and reads and writes its momentum
(torch/optim/adam.py, sgd.py, adagrad.py; ATen/native/native_functions.yaml has the devices)."""
OPTIMIZER = "Optimizer.step#"
LISTED = 0.5
"""Share of the idle time that a fused step gains over one of lists: both look at each parameter on the host."""
SQUARE = "addcmul_"
"""Adds the square of the gradient, whose one array is two arguments: three quarters of the bytes of its shapes."""


def optimizer(analysis: Analysis) -> Iterator[Finding]:
    """An optimizer that runs op by op, or list by list, where a fused one exists.

    Premises: torch names the optimizer in a range around its step; torch has a fused one for it and for the device; and
    the ops that ran move more arrays of the parameters' size than it, or come late. Their bytes follow from shapes.
    Device time: the passes over the parameters that remain. Host: the launches of the ops, which are a few.
    """
    names = [key for key in analysis.columns["key"] if key.startswith(OPTIMIZER)]
    kind = names[0].removeprefix(OPTIMIZER).split(".")[0] if names else ""
    known = OPTIMIZERS.get(kind)
    if known is None or analysis.accelerator not in known.devices:
        return
    ops = [op for op in analysis.ops if op.row >= 0 and _in_optimizer(analysis, op.event)]
    if not ops or any("_fused_" in op.key for op in ops):
        return
    passes, fused = _passes(analysis, known, ops)
    share = max(1 - fused / passes, 0.0) if passes else 0.0
    pieces, by_lists = sum(op.count for op in ops), any("_foreach_" in op.key for op in ops)
    claims: list[tuple[Op | Gap, float]] = [(op, op.time * share) for op in ops if share]
    if analysis.on_device and pieces > HANDFUL:
        late = [gap for gap in _late(analysis) if _in_optimizer(analysis, gap.event)]
        claims += [(gap, (LISTED if by_lists else KEPT) * gap.time) for gap in late]
    if not claims:
        return
    yield Finding(
        OptimizerOps(
            kind,
            by_lists,
            pieces,
            analysis.on_device,
            analysis.per,
            passes,
            fused,
        ),
        claims,
        evidence(ops),
        where(analysis, ops[0].event),
        ops,
    )


def _in_optimizer(analysis: Analysis, event: int) -> bool:
    return any(name.startswith(OPTIMIZER) for _, name in analysis.enclosing(event))


def _passes(analysis: Analysis, known: Fused, ops: list[Op]) -> tuple[float | None, int]:
    """Return the arrays of the parameters' size that ops move, None if unknown, and those that the fused step moves."""
    moved: dict[str, float] = {}
    for row in {op.row for op in ops}:
        name = analysis.columns["key"][row].removeprefix("aten::").removeprefix("_foreach_")
        nbytes = float(analysis.columns["bytes_total_moved"][row])
        moved[name] = moved.get(name, 0.0) + nbytes * (0.75 if name == SQUARE else 1.0)
    fused = known.passes + 2 * (known.state in moved)
    size = next((moved[name] / arrays for name, arrays in known.unit.items() if name in moved), 0.0)
    passes = sum(moved.values()) / size if size > 0 else 0.0
    return (passes if passes > 0 else None), fused


LONGEST_LAUNCH, OUTLYING = 500.0, 10.0
"""A host that comes later than twice this, in µs or in times of the median late launch, did not only launch."""
SHORT_PAUSE = 100.0
"""µs: shorter idle times are not looked into, and shorter work is not worth another thread."""
LATE = 0.5
"""Percent of the launches; fewer are shown as 0 % in the table of launches."""
COVERED = 0.1
"""Of long idle times: what the host did in them is told where so much of them is recorded."""


def launch(analysis: Analysis) -> Iterator[Finding]:
    """The device waits for the host, which launches work piece by piece, or works on something else.

    Premises of a graph: at least half of the pieces of work have a launch of their own, and more than five launches
    come late; both are recorded API calls. The estimate is 95 % of the idle time before them: a CUDA graph launches a
    step at once. Idle times much longer than a launch are told with what the host was in, as far as that was recorded,
    and that part is claimed. Source: PyTorch, "CUDA semantics", CUDA Graphs.
    """
    gaps = _late(analysis)
    if not gaps or analysis.accelerator not in GRAPHED:
        return
    short, long = _by_length(gaps)
    launches, late = _launches(analysis), sum(gap.count for gap, _ in short)
    if launches > HANDFUL and late > HANDFUL:
        waits = [gap for gap, _ in short]
        yield Finding(
            Launches(sum(time for _, time in short), analysis.per, launches, min(late, launches)),
            [(gap, KEPT * time) for gap, time in short],
            gap_evidence(analysis, waits),
            where(analysis, waits[0].event),
        )
    pause = _pause(analysis, long)
    movable = pause.movable
    covered = min(sum(one.time for one in movable), pause.idle)
    if covered > COVERED * pause.idle:
        shown = [one for one in movable if one.time >= 0.1 * movable[0].time][:5]
        told = tuple(one.name for one in shown[:3]), min(sum(one.time for one in shown[:3]), pause.idle)
        yield Finding(
            HostWork(pause.idle, analysis.per, *told),
            [(gap, KEPT * time * covered / pause.idle) for gap, time in long],
            [entry(one.name, one.time, one.calls) for one in shown],
            where(analysis, long[0][0].event),
        )


def _late(analysis: Analysis) -> list[Gap]:
    """Return the idle times that a late launch ended."""
    return [gap for gap in _gaps(analysis, "host") if gap.event >= 0]


def _by_length(gaps: list[Gap]) -> tuple[list[tuple[Gap, float]], list[tuple[Gap, float]]]:
    """Return idle times with the part of each that launching explains, and with the rest where that is much more.

    A launch explains what the median one takes.
    """
    each = sorted((gap.time / gap.count, gap.count) for gap in gaps if gap.count > 0)
    half, typical = sum(count for _, count in each) / 2, LONGEST_LAUNCH
    for time, count in each:
        half -= count
        if half <= 0:
            typical = time
            break
    limit = 2 * min(LONGEST_LAUNCH, OUTLYING * typical)
    times = [(gap, min(typical, LONGEST_LAUNCH) * gap.count) for gap in gaps]
    long = [(gap, gap.time - least) for gap, least in times if gap.time > limit * gap.count]
    return [(gap, least if gap.time > limit * gap.count else gap.time) for gap, least in times], long


OF_TORCH = re.compile(r"DataLoader|^TorchDynamo|^Torch-Compiled|^Pregraph|^CompiledFunction|^Optimizer\.|^autograd::")
"""Ranges of torch that launch, and so stay on their thread, and waits for data, which have a rule of their own."""


class Pause(NamedTuple):
    """Long idle times, in µs, and what the host was in."""

    idle: float
    spent: list[Activity]

    @property
    def movable(self) -> list[Activity]:
        """Return what launches nothing and is long enough for another thread."""
        other = (one for one in self.spent if not one.launches and not OF_TORCH.search(one.name))
        return [one for one in other if one.time > SHORT_PAUSE * one.calls]


def _pause(analysis: Analysis, long: list[tuple[Gap, float]]) -> Pause:
    idle = sum(time for _, time in long)
    return Pause(idle, spent_while_idle(analysis, SHORT_PAUSE) if long else [])


def _launches(analysis: Analysis) -> float:
    """Return the launches of a step: 0 if few were late, or if most work was not launched piece by piece."""
    columns = analysis.core.launch_summary()
    rows = list(zip(*(columns[name] for name in ("launches", "kernels", "launch_bound_pct")), strict=True))
    launches, kernels = (sum(row[place] for row in rows if row[place] == row[place]) for place in (0, 1))
    kinds = zip(analysis.columns["device_type"], analysis.columns["count"], strict=True)
    pieces = sum(int(count) for kind, count in kinds if kind != "cpu")
    if not any(row[2] >= LATE for row in rows) or launches <= 0.5 * pieces:
        return 0.0
    return float(sum(op.count for op in analysis.ops) * launches / kernels)


NOTED = 0.05
"""Of the time: long idle times of which nothing was recorded are noted from here on."""


def pauses(analysis: Analysis) -> list[str]:
    """Return a note if the device idled in long pauses for which no rule has advice: what the host was in, if known."""
    long = _by_length(_late(analysis))[1] if analysis.on_device else []
    if sum(time for _, time in long) <= NOTED * analysis.total:
        return []
    pause = _pause(analysis, long)
    if sum(one.time for one in pause.movable) > COVERED * pause.idle:
        return []
    named = [one for one in pause.spent if one.time > COVERED * pause.idle][:3]
    known = f"the host was in {', '.join(f'{one.name} ({short_time_text(one.time)})' for one in named)}"
    unknown = f"what the host did then was not recorded ({analysis.meta['hints'].options['stacks']} records it)"
    return [
        f"The device idles {short_time_text(pause.idle)} {analysis.per} in long pauses between launches: "
        f"{known if named else unknown}."
    ]

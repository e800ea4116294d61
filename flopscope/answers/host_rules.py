"""Rules about the host: waiting for data, copies, launches, allocations, optimizers; and about other ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median
from typing import Any

from flopscope.answers.analysis import Analysis, Gap, Op
from flopscope.answers.findings import Finding, evidence, gap_evidence, plural, where
from flopscope.support.units import bytes_text, short_time_text

__all__ = ["communication", "copy", "data", "launch", "memory", "optimizer", "straggler", "sync"]

KEPT = 0.95
"""Share of idle time that removing its cause gains."""


def _gaps(analysis: Analysis, *causes: str) -> list[Gap]:
    return [gap for gap in analysis.gaps if gap.cause in causes]


def data(analysis: Analysis) -> Iterator[Finding]:
    """The device idles while the program waits for a DataLoader.

    The estimate is 95 % of that time: with enough workers a batch is ready when it is needed.
    """
    gaps = _gaps(analysis, "data")
    if not gaps:
        return
    total = sum(gap.time for gap in gaps)
    share = total / max(analysis.total - total, 1e-9)
    names = dict.fromkeys(key for key in analysis.columns["key"] if "DataLoader" in key)
    rows = [row for name in names if (row := _host_time(analysis, name))["time"] > 0]
    yield Finding(
        f"Load data in the background: the device waits {short_time_text(total)} for the DataLoader. Give it "
        f"num_workers of at least {min(max(math.ceil(2 * share), 2), 64)}, pin_memory=True and persistent_workers=True,"
        " or do less per sample.",
        [(gap, KEPT * gap.time) for gap in gaps],
        rows,
        None,
    )


PINNED = {True: 0.25, False: 1.0}
"""Time of a copy from pinned memory over that of a copy from pageable memory (PCIe 5: 55 over 13 GB/s), or itself."""


def copy(analysis: Analysis) -> Iterator[Finding]:
    """Copies between host and device during which the device computes nothing.

    They can overlap with the computation of the step, as far as that lasts, from pinned memory and on another stream.
    Source: PyTorch, "A guide on good usage of non_blocking and pin_memory()".
    """
    ops = [op for op in analysis.ops if op.part == "copy" and any("to" in kernel.name for kernel in op.kernels)]
    ops = [op for op in ops if any(kernel.name.startswith("Memcpy") for kernel in op.kernels)]
    exposed = sum(op.time for op in ops)
    if not exposed:
        return
    pageable = any("Pageable" in kernel.name for op in ops for kernel in op.kernels)
    computing = sum(op.time for op in analysis.ops if op.part not in ("copy", "communication"))
    left = max(exposed * PINNED[pageable] - computing, 0.0)
    kind = "pageable " if pageable else ""
    waits = [gap for gap in _gaps(analysis, "sync") if analysis.op_around(gap.wait) in {op.key for op in ops} | COPIES]
    waited = sum(gap.time for gap in waits)
    share = min(exposed / waited, 1.0) if waited else 0.0  # the rest is the host's other work after the copy
    yield Finding(
        f"Copy in the background: {short_time_text(exposed)} of {kind}copies between host and device overlap with no "
        "computation. Use pinned memory (pin_memory=True), non_blocking=True, and prefetch the next batch on another "
        "stream.",
        [*((op, op.time * (1 - left / exposed)) for op in ops), *((gap, gap.time * share) for gap in waits)],
        evidence(ops),
        where(analysis, ops[0].event),
    )


COPIES = {"aten::to", "aten::copy_", "aten::_to_copy", "cudaMemcpyAsync", "cudaMemcpy"}
ALLOCATIONS = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cudaMallocAsync", "cudaFreeAsync", "cudaHostAlloc")


def memory(analysis: Analysis) -> Iterator[Finding]:
    """Device memory is allocated and freed by the driver within the steps.

    The estimate is the host time of those calls: cudaFree waits for the device as well.
    Source: PyTorch, "CUDA semantics", memory management.
    """
    times = {name: analysis.row_sum(name, "cpu_time_total") for name in ALLOCATIONS}
    calls = {name: analysis.row_sum(name, "count") for name in ALLOCATIONS}
    total = sum(times.values())
    late = analysis.idle("host", "sync")
    if not total or not late or not analysis.has_steps or sum(calls.values()) < 1:
        return  # the first steps of a program allocate in any case
    gaps = _gaps(analysis, "host", "sync")
    share = min(total / sum(gap.time for gap in gaps), 1.0)
    rows: list[dict[str, Any]] = [
        {"op": name, "shapes": [], "dtypes": [], "time": times[name], "calls": calls[name]}
        for name in sorted(times, key=lambda name: -times[name])
        if times[name]
    ]
    yield Finding(
        f"Keep device memory between steps: {plural(sum(calls.values()), 'call')} {analysis.per} of "
        f"{', '.join(row['op'] for row in rows)} take {short_time_text(total)}. Remove torch.cuda.empty_cache(), avoid "
        "sizes that change with each step, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
        [(gap, gap.time * share) for gap in gaps],
        rows,
        None,
    )


def sync(analysis: Analysis) -> Iterator[Finding]:
    """The host waits for the device and then comes late with the next launches.

    The estimate is the idle time after the waits, and the waits themselves where the host holds up the device.
    Source: PyTorch, "Performance Tuning Guide", avoid unnecessary CPU-GPU synchronization.
    """
    gaps = [gap for gap in _gaps(analysis, "sync") if not _is_expected(analysis, gap)]
    if not gaps:
        return
    found = gap_evidence(analysis, gaps)
    late = sum(gap.time for gap in _gaps(analysis, "host"))
    waits = analysis.scale * sum(step.waits for step in analysis.steps)
    claims: list[tuple[Op | Gap, float]] = [(gap, gap.time) for gap in gaps]
    claims += [(gap, waits * gap.time / late) for gap in _gaps(analysis, "host") if late > waits]
    name = found[0]["op"]
    calls = plural(analysis.row_sum(name, "count"), "call")
    yield Finding(
        f"Do not wait for the device within a step: after {name} ({calls} {analysis.per}) the device idles until the "
        "host launches again. Keep results on the device (accumulate losses and norms as tensors), and read them once "
        "every some steps with one .item() or non_blocking copy.",
        claims,
        found,
        where(analysis, gaps[0].wait),
    )


def _is_expected(analysis: Analysis, gap: Gap) -> bool:
    """Return whether a wait is one of a copy to the device, or the profiler's own at the end of the recording."""
    name = analysis.op_around(gap.wait)
    return name in COPIES or (name == "cudaDeviceSynchronize" and (gap.count < 1 or not analysis.has_steps))


OPTIMIZER = "Optimizer.step#"
PASSES = {"Adam": (7, 20), "AdamW": (7, 20), "NAdam": (7, 22), "SGD": (5, 8), "Adagrad": (5, 10)}
"""Arrays of the parameters' size that a fused step moves, and that the separate ops move. Adam reads p, g, m, v and
writes p, m, v; its separate ops are counted in torch/optim/adam.py, _multi_tensor_adam."""
FUSED = "_fused_"


def optimizer(analysis: Analysis) -> Iterator[Finding]:
    """An optimizer that runs op by op, or list by list, where a fused one exists.

    Device time: the passes over the parameters that remain. Host: the launches of the optimizer's ops, which are a few.
    """
    names = [key for key in analysis.columns["key"] if key.startswith(OPTIMIZER)]
    kind = names[0].removeprefix(OPTIMIZER).split(".")[0] if names else ""
    if kind not in PASSES:
        return
    ops = [op for op in analysis.ops if op.row >= 0 and _in_optimizer(analysis, op.event)]
    if not ops or any(FUSED in op.key for op in ops):
        return
    fused, separate = PASSES[kind]
    gaps = [gap for gap in _gaps(analysis, "host") if _in_optimizer(analysis, gap.event)]
    claims: list[tuple[Op | Gap, float]] = [(op, op.time * (1 - fused / separate)) for op in ops]
    claims += [(gap, KEPT * gap.time) for gap in gaps]
    launches = sum(op.count for op in ops)
    how = "a list of tensors at a time (foreach)" if any("_foreach_" in op.key for op in ops) else "tensor by tensor"
    yield Finding(
        f"Use torch.optim.{kind}(..., fused=True): the step runs {how}, in {launches:.4g} kernels and about {separate} "
        f"passes over the parameters' memory instead of {fused}.",
        claims,
        evidence(ops),
        where(analysis, ops[0].event),
        ops,
    )


def _in_optimizer(analysis: Analysis, event: int) -> bool:
    return any(name.startswith(OPTIMIZER) for _, name in analysis.enclosing(event))


def straggler(analysis: Analysis) -> Iterator[Finding]:
    """Collectives that last longer than the fastest of the same size: this rank waits for a slower one.

    The estimate is the exposed part of the time beyond twice the fastest.
    """
    excess, calls = 0.0, 0
    exposed = sum(op.time for op in analysis.ops if op.part == "communication")
    if not exposed:
        return
    columns = analysis.core.collectives()[0]
    groups: dict[tuple[str, float], list[tuple[float, float]]] = {}
    rows = zip(*(columns[name] for name in ("collective", "message_bytes", "duration", "exposed")), strict=True)
    for kind, size, duration, shown in rows:
        if size == size:
            groups.setdefault((kind, size), []).append((duration, shown))
    for times in groups.values():
        fastest = min(duration for duration, _ in times)
        for duration, shown in times:
            if len(times) > 2 and duration > 2 * fastest:
                excess += min(duration - fastest, shown)
                calls += 1
    excess /= analysis.step_count
    if not excess:
        return
    ops = [op for op in analysis.ops if op.part == "communication"]
    share = min(excess / exposed, 1.0)
    yield Finding(
        f"Find the slow rank: {plural(calls, 'collective')} took more than twice as long as the fastest of their size, "
        f"so this rank waits {short_time_text(excess)} for others. Compare the traces of the ranks (flopscope table "
        "RANK0 RANK1), and balance the data and the work of the ranks.",
        [(op, op.time * share) for op in ops],
        evidence(ops),
        None,
    )


SMALL_MESSAGE = 1 << 20
"""Bytes: smaller messages are limited by the latency of the link (NCCL tests)."""


def communication(analysis: Analysis) -> Iterator[Finding]:
    """Collectives during which the device computes nothing.

    They can overlap with computation as far as that lasts.
    """
    ops = [op for op in analysis.ops if op.part == "communication"]
    exposed = sum(op.time for op in ops)
    if not exposed:
        return
    computing = sum(op.time for op in analysis.ops if op.part not in ("copy", "communication"))
    sizes = [size for size in analysis.core.collectives()[0]["message_bytes"] if size == size]
    typical = median(sizes) if sizes else math.nan
    tip = "overlap them with the backward pass (DistributedDataParallel, FSDP prefetching)"
    if typical < SMALL_MESSAGE:
        tip = f"gather small messages ({bytes_text(typical)} at the median) into larger buckets"
    yield Finding(
        f"Hide the collectives: {short_time_text(exposed)} of communication overlap with no computation; {tip}.",
        [(op, op.time * min(computing / exposed, 1.0) * 0.8) for op in ops],
        evidence(ops),
        where(analysis, ops[0].event),
    )


LONGEST_LAUNCH = 500.0
"""µs: a host that comes later than this did not only launch."""
COMPILATION = "_compile.compile_inner (dynamo_timed)"
"""The range that torch.compile records around each compilation (torch/_dynamo/convert_frame.py)."""
COMPILED = 0.3
"""Of the idle time: compiling is named from here on."""


def launch(analysis: Analysis) -> Iterator[Finding]:
    """The device waits for the host, which launches work piece by piece, or works on something else.

    The estimate is 95 % of the idle time that recording did not cause: a CUDA graph launches a step at once, and other
    work can be left to another thread.
    Source: PyTorch, "CUDA semantics", CUDA Graphs.
    """
    gaps = _gaps(analysis, "host")
    if not gaps or not analysis.on_device:
        return
    short = [(gap, min(gap.time, LONGEST_LAUNCH * gap.count)) for gap in gaps]
    other = [(gap, gap.time - time) for gap, time in short if gap.time - time > LONGEST_LAUNCH * gap.count]
    others = {id(gap) for gap, _ in other}
    short = [(gap, time if id(gap) in others else gap.time) for gap, time in short]
    busy = sum(op.time for op in analysis.ops)
    factor = (busy + analysis.unobserved_share("host") * sum(time for _, time in short)) / busy if busy > 0 else 1.0
    larger = f" A batch about {factor:.1f} times as large would fill the device." if factor >= 1.15 else ""
    count = sum(op.count for op in analysis.ops)
    launching = [gap for gap, _ in short]
    yield Finding(
        f"Launch more work at once: the device waits for the host, which launches {plural(count, 'piece')} of work "
        f'{analysis.per}. Use a CUDA graph or torch.compile(mode="reduce-overhead"), or larger batches.{larger}',
        [(gap, KEPT * time) for gap, time in short],
        gap_evidence(analysis, launching),
        where(analysis, launching[0].event),
    )
    if other:
        found = gap_evidence(analysis, [gap for gap, _ in other])
        idle, compiling = sum(time for _, time in other), analysis.row_sum(COMPILATION, "cpu_time_total")
        if compiling > COMPILED * idle:
            rows = [_host_time(analysis, COMPILATION)]
            what = (
                f"Warm up before you record: torch.compile compiled for {short_time_text(compiling)} {analysis.per}, "
                f"while the device waited for {short_time_text(idle)}. Record later steps. If it compiles again in "
                "those, keep shapes from changing (mark_dynamic, dynamic=True)."
            )
        else:
            rows = _host_ops(analysis) or found
            what = (
                f"Take work off the thread that launches: {found[0]['op']} comes {short_time_text(idle)} after the "
                "device has become idle; launches do not account for that. Prepare data in a DataLoader's workers or "
                "on the device; log and save in another thread."
            )
        yield Finding(
            what,
            [(gap, KEPT * time) for gap, time in other],
            rows,
            where(analysis, other[0][0].event),
        )


def _host_time(analysis: Analysis, name: str) -> dict[str, Any]:
    """Return the evidence of the ops or ranges of a name: their time on the host."""
    time, calls = (analysis.row_sum(name, column) for column in ("cpu_time_total", "count"))
    return {"op": name, "shapes": [], "dtypes": [], "time": time, "calls": calls}


def _host_ops(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the evidence of the ops that take most time on the CPU and launch nothing."""
    columns, steps = analysis.columns, analysis.step_count
    rows = [
        {
            "op": columns["key"][row],
            "shapes": columns["input_shapes"][row],
            "dtypes": columns["input_dtypes"][row],
            "time": float(columns["self_cpu_time_total"][row]) / steps,
            "calls": columns["count"][row] / steps,
        }
        for row in range(len(columns["key"]))
        if columns["device_type"][row] == "cpu"
        and not columns["is_user_annotation"][row]
        and columns["key"][row].startswith("aten::")
        and columns["device_time_total"][row] == 0
    ]
    rows = [row for row in rows if row["time"] > LONGEST_LAUNCH]
    return sorted(rows, key=lambda row: -row["time"])[:5]

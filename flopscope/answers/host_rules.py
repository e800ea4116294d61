"""Rules about the host: warming up, waiting for data, copies, and optimizers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple

from flopscope.answers.analysis import Analysis
from flopscope.answers.findings import Finding, claim_all, finding_about, gap_evidence, host_times, where
from flopscope.answers.host_events import calls_of, idle_of_calls, own_streams
from flopscope.answers.launch_rules import GRAPHED, HANDFUL, KEPT, late_launches
from flopscope.answers.pieces import Gap, Op
from flopscope.answers.wait_rules import later_steps, tuning_gaps
from flopscope.answers.words import Said, listed
from flopscope.support.statistics import median
from flopscope.support.units import plural, short_time_text

COMPILATION = "_compile.compile_inner (dynamo_timed)"
"""The range that torch.compile records around each compilation (torch/_dynamo/convert_frame.py)."""
BY_XLA = "(XLA compilation)"
"""What the names of XLA's compilations contain."""
LOADING = re.compile(r"Module Loading|Lazy Function Loading|^(?:cu|hip)(?:Module|Library)Load")
"""Kineto's overhead events and the driver's calls that load code."""
AGAIN = (
    " torch.compile compiled in {} later steps too: keep shapes and Python values that it guards from changing, or "
    "mark them dynamic (torch._dynamo.mark_dynamic, dynamic=True)."
)
AGAIN_BY_XLA = (
    " XLA compiled in {} later steps too: pad arrays to few shapes, keep static arguments from changing, and call "
    "jax.jit once, outside of the loop."
)
RECOMPILES = 2
"""Later steps in which torch.compile or XLA must compile before the advice says so."""


def warmup(analysis: Analysis) -> Iterator[Finding]:
    """The device idles because code is compiled, loaded or launched for the first time, or because kernels are tried.

    Premises: the idle time passed in torch.compile's own ranges, while a module was loaded, or in a call that launched
    a kernel for the first time (the causes `compile`, `loading` and `first_launch` of the accounting), or after waits
    of an op that measures kernels with events. The estimate is all of that time: later steps do not have it.
    Compilation in later steps is reported if such ranges begin in at least two of them. So is what was launched
    meanwhile, such as the kernels that XLA's autotuner tries.

    Facts: launching, trying: in first launches, and after waits in which a library measures kernels. later: steps after
    the first in which the program compiled. tried: µs of what was launched meanwhile. how: what records later steps.
    """
    loads = () if analysis.once(_loads_again) else analysis.gaps_of("loading")
    compiles, first, tunes = analysis.gaps_of("compile"), analysis.gaps_of("first_launch"), tuning_gaps(analysis)
    gaps = [*compiles, *first, *loads, *tunes]
    if analysis.only_compiles or not (gaps or analysis.tried):
        return
    keys, on_device, per = list(dict.fromkeys(analysis.columns["key"])), analysis.on_device, analysis.per
    compiling, loading, launching, trying = (sum(gap.time for gap in some) for some in (compiles, loads, first, tunes))
    tried = sum(op.time for op in analysis.tried)
    if not on_device:
        compiling, tried = compiling + tried, 0.0
    compilations = {key for key in keys if key == COMPILATION or BY_XLA in key}
    later = later_steps(analysis, compilations) if compiling > 0 else 0
    names = [key for key in keys if key in compilations or LOADING.search(key)]
    jax, how = any(BY_XLA in key for key in compilations), analysis.facts.hints.options["later"]
    uses = {
        f"while {'JAX' if jax else 'torch.compile'} compiles": compiling,
        "while code is loaded for the first launch of a kernel": loading,
        "in calls that launch a kernel for the first time, which load its code": launching,
        "while a library measures which of its kernels is the fastest": trying,
    }
    parts = ", and ".join(f"{short_time_text(time)} {per} {what}" for what, time in uses.items() if time > 0)
    meanwhile = f" Work that was launched meanwhile takes {short_time_text(tried)} {per}." if tried > 0 else ""
    again = (AGAIN_BY_XLA if jax else AGAIN).format(later) if later >= RECOMPILES else ""
    says = Said(
        "Leave the first steps out of the recording",
        f"{'the device idles' if on_device else 'no op runs for'} {parts}. Record later ones with {how}."
        f"{meanwhile}{again}",
        {"compiling": compiling, "loading": loading, "launching": launching, "trying": trying, "per": per}
        | {"on_device": on_device, "later": later, "jax": jax, "tried": tried, "how": how},
    )
    seen = host_times(analysis, names) or gap_evidence(analysis, claim_all(gaps))
    place = where(analysis, gaps[0].event) if gaps else None
    yield Finding(says, claim_all([*analysis.tried, *gaps]), seen, place)


def _loading(analysis: Analysis) -> list[str]:
    return [key for key in dict.fromkeys(analysis.columns["key"]) if LOADING.search(key)]


def _loads_again(analysis: Analysis) -> int:
    """Return in how many steps after the first the host loads code; 0 if that is in less than half of them."""
    later = later_steps(analysis, _loading(analysis))
    return later if later >= RECOMPILES and 2 * later > analysis.step_count - 1 else 0


def loading(analysis: Analysis) -> Iterator[Finding]:
    """The device idles while the host loads the code of kernels, in most steps.

    Premises: overhead events or calls that load code in most steps after the first, and in two; the idle time passed in
    them (the cause `loading` of the accounting). The estimate is all of it.
    """
    gaps, later = analysis.gaps_of("loading"), analysis.once(_loads_again)
    if gaps and later:
        names, time, per = _loading(analysis), sum(gap.time for gap in gaps), analysis.per
        says = Said(
            "Load the code of kernels once",
            f"the device idles {short_time_text(time)} {per} while the host loads code ({listed(names[:3])}), "
            f"in {later} steps after the first too. Keep modules that are loaded, compile kernels outside of the loop, "
            "and keep shapes from changing: each may need kernels of its own.",
            {"time": time, "per": per, "names": names, "later": later},
        )
        yield Finding(says, claim_all(gaps), host_times(analysis, names), where(analysis, gaps[0].event))


WORKERS = {"_MultiProcessingDataLoaderIter": True, "_SingleProcessDataLoaderIter": False}
"""Whether a DataLoader has worker processes, by the class that iterates it."""
STARTING = 3.0
"""Times the median of the others that the first wait lasts for workers that start."""
FEWEST_WAITS = 2
PACE = 0.25
"""Share of the step in waits for workers that set its pace: a batch that is ready takes time to fetch as well."""


def _loads(name: str) -> bool:
    """Return whether a range is a DataLoader's. Not by an expression, which takes squared time for words repeated."""
    found = "__next__" in name.partition("DataLoader")[2] or "DataLoaderIter" in name.partition("#_")[2]
    return found or name.startswith("enumerate(Data")


def data(analysis: Analysis) -> Iterator[Finding]:
    """The program waits for a DataLoader, and its device, or the CPU, does nothing.

    Premises: torch records `enumerate(DataLoader)#…` around each wait, with the class that shows whether there are
    worker processes; more than one wait was recorded, as the first one is also the loader's start; pinned memory is
    advised where copies from pageable memory to the device were recorded. The estimate is 95 % of the idle time: with
    enough workers a batch is ready when it is needed. A wait that no work follows, as at the end of the data, does not
    count, nor does a first wait of workers, of more than three times the median of the others, which is their start.

    Facts: workers: the loader has worker processes; None: unknown. starting: part of the wait, left out of
    ``waited``, in which the workers started. pageable: copies from pageable memory to the device were recorded.
    """
    gaps = analysis.gaps_of("data")
    names = [name for name in dict.fromkeys(analysis.columns["key"]) if _loads(name)]
    if not gaps or (names and len(calls_of(analysis, names)[0]) < FEWEST_WAITS):
        return
    kinds = [known for part, known in WORKERS.items() if any(part in name for name in names)]
    workers = kinds[0] if len(kinds) == 1 else None
    total = sum(gap.time for gap in gaps)
    each, unused = idle_of_calls(analysis, names)
    first, *others = each or [0.0]
    starting = first * analysis.scale * 1000 if workers and len(others) > 1 and first > STARTING * median(others) else 0
    starting = min(starting, total)
    waited = max(total - starting - unused * analysis.scale * 1000, 0.0)
    if waited <= 0:
        return
    pageable = any("Memcpy HtoD (Pageable" in key for key in analysis.columns["key"])
    per, on_device, pageable = analysis.per, analysis.on_device, pageable and analysis.accelerator in GRAPHED
    waits = f"{'the device' if on_device else 'the program'} waits {short_time_text(waited)} {per}"
    action, why = "Load data ahead of its use", "for the DataLoader. Do less per sample, or load ahead."
    if workers is False:
        action = "Load data in worker processes"
        why = (
            "while the DataLoader loads in the program's own process. Give it worker processes (num_workers, 0 now), "
            "or do less per sample."
        )
    elif workers:
        action = "Make the DataLoader's workers faster"
        why = (
            "for batches that its worker processes have not finished. Do less per sample, or use more workers if the "
            "machine has idle cores."
        )
        if starting > 0:
            why += f" (The first batch, for which the workers start, takes {short_time_text(starting)} more.)"
    pin = " Copies to the device come from pageable memory: add pin_memory=True." if pageable else ""
    facts = {"waited": waited, "per": per, "workers": workers, "starting": starting, "on_device": on_device}
    says = Said(action, f"{waits} {why}{pin}", {**facts, "pageable": pageable})
    seen = host_times(analysis, names) or gap_evidence(analysis, claim_all(gaps))
    paces = bool(workers) and waited > PACE * analysis.unobserved
    yield Finding(says, claim_all(gaps, KEPT * waited / total), seen, None, sets_pace=paces)


PINNED = {True: 0.25, False: 1.0}
"""Time of a copy from pinned memory over that of a copy from pageable memory (PCIe 5: 55 over 13 GB/s), or itself."""
MINOR = 0.1
"""Share of the time of copies below which a direction is not mentioned."""


def copy(analysis: Analysis) -> Iterator[Finding]:
    """Copies between host and device during which the device computes nothing.

    Premises: the copies' names say their direction and the kind of memory, and the accounting that nothing else ran.
    Copies from pinned memory on a stream of their own are in the background already. Others can overlap with the
    computation of the step, as far as that lasts, from pinned memory and on another stream.
    Source: PyTorch, "A guide on good usage of non_blocking and pin_memory()".

    Facts: pageable: share of the time of copies whose memory on the host is pageable. from_pageable: copies to the
    device are among those. torch: the program is one of PyTorch.
    """
    found: list[tuple[Op, float]] = []
    ways = {"HtoD": 0.0, "DtoH": 0.0, "Pageable": 0.0, "HtoD (Pageable": 0.0}
    hidden = cache(lambda name: "Pageable" not in name and own_streams(analysis, name))
    for op in (op for op in analysis.ops if op.part == "copy"):
        copies = [one for one in op.kernels if re.match("Memcpy (?:HtoD|DtoH)", one.name) and not hidden(one.name)]
        for way in ways:
            ways[way] += sum(one.time for one in copies if way in one.name)
        if copies:
            found.append((op, sum(one.time for one in copies)))
    exposed = sum(time for _, time in found)
    computing = sum(op.time for op in analysis.ops if op.part not in ("copy", "communication"))
    if not exposed or not computing:
        return
    pageable, over = ways["Pageable"] / exposed, {way: time > MINOR * exposed for way, time in ways.items()}
    left = max(exposed * (1 - pageable + PINNED[True] * pageable) - computing, 0.0)
    ops, per, torch = [op for op, _ in found], analysis.per, analysis.uses_torch
    to_device, to_host, from_pageable = over["HtoD"], over["DtoH"], over["HtoD (Pageable"]
    way = "between host and device" if to_device and to_host else "to the device" if to_device else "to the host"
    memory = "pinned memory (pin_memory)" if from_pageable and torch else "pinned memory on the host"
    kind, pinned = ("pageable ", f"{memory} and ") if pageable > 0.5 else ("", "")
    ahead = ", and copy on another stream before the computation needs the data" if to_device else ""
    later = ", and read the result after more work has been launched" if to_host else ""
    says = Said(
        f"Copy {way} in the background",
        f"{short_time_text(exposed)} {per} of {kind}copies {way} overlap with no computation. Use {pinned}"
        f"{'non_blocking=True' if torch else 'cudaMemcpyAsync'}{ahead}{later}.",
        {"exposed": exposed, "per": per, "to_device": to_device, "to_host": to_host}
        | {"pageable": pageable, "from_pageable": from_pageable, "torch": torch},
    )
    yield finding_about(analysis, says, [(op, time * (1 - left / exposed)) for op, time in found], ops)


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

    Facts: by_lists: an op takes a list of tensors (foreach). pieces: kernels, or ops on the CPU, of a step. passes:
    arrays of the parameters' size that its ops read and write; None: unknown. fused: the same of the fused step.
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
        late = [(gap, time) for gap, time in late_launches(analysis) if _in_optimizer(analysis, gap.event)]
        claims += [(gap, (LISTED if by_lists else KEPT) * time) for gap, time in late]
    if not claims:
        return
    on_device, per = analysis.on_device, analysis.per
    how = "a list of tensors at a time (foreach)" if by_lists else "tensor by tensor"
    parts, traffic = plural(pieces, "kernel" if on_device else "op"), ""
    if passes is not None and passes > fused:
        traffic = f", which read and write about {passes:.0f} arrays of the parameters' size"
        traffic += f"; the fused step does with {fused}"
    says = Said(
        f"Use torch.optim.{kind}(..., fused=True)",
        f"the step runs {how}, in {parts} {per}{traffic}.",
        {"name": kind, "by_lists": by_lists, "pieces": pieces, "on_device": on_device, "per": per}
        | {"passes": passes, "fused": fused},
    )
    yield finding_about(analysis, says, claims, ops, ops)


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


RULES = (warmup, loading, data, copy, optimizer)

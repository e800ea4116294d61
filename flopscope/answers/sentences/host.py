"""Sentences about what the host did while a device, or the program, waited."""

from __future__ import annotations

from collections.abc import Mapping

from flopscope.answers import facts
from flopscope.answers.sentences.words import Said, form
from flopscope.answers.wait_rules import blamed
from flopscope.support.units import percent_text, plural, short_time_text

FIRST_USES = {
    "compiling": "while torch.compile compiles",
    "loading": "while code is loaded for the first launch of a kernel",
    "launching": "in calls that launch a kernel for the first time, which load its code",
    "trying": "while a library measures which of its kernels is the fastest",
}
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


def warmup(of: facts.Warmup) -> Said:
    idle = "the device idles" if of.on_device else "no op runs for"
    uses = {**FIRST_USES, "compiling": "while JAX compiles"} if of.jax else FIRST_USES
    times = {what: getattr(of, name) for name, what in uses.items()}
    parts = ", and ".join(f"{short_time_text(time)} {of.per} {what}" for what, time in times.items() if time > 0)
    tuned = f" Kernels were tuned as well: {', '.join(of.tuning[:3])}." if of.tuning else ""
    tuned += f" Work that was launched meanwhile takes {short_time_text(of.tried)} {of.per}." if of.tried > 0 else ""
    again = (AGAIN_BY_XLA if of.jax else AGAIN).format(of.later) if of.later >= RECOMPILES else ""
    return Said(
        "Leave the first steps out of the recording",
        f"{idle} {parts}. Record later ones with flopscope run --steps, or schedule(skip_first=…).{tuned}{again}",
    )


def data_wait(of: facts.DataWait) -> Said:
    waits = f"{'the device' if of.on_device else 'the program'} waits {short_time_text(of.waited)} {of.per}"
    pin = " Copies to the device come from pageable memory: add pin_memory=True." if of.pageable else ""
    if of.workers is None:
        return Said(
            "Load data ahead of its use", f"{waits} for the DataLoader. Do less per sample, or load ahead.{pin}"
        )
    if not of.workers:
        return Said(
            "Load data in worker processes",
            f"{waits} while the DataLoader loads in the program's own process. Give it worker processes (num_workers, "
            f"0 now), or do less per sample.{pin}",
        )
    start = (
        f" (The first batch, for which the workers start, takes {short_time_text(of.starting)} more.)"
        if of.starting > 0
        else ""
    )
    return Said(
        "Make the DataLoader's workers faster",
        f"{waits} for batches that its worker processes have not finished. Do less per sample, or use more workers if "
        f"the machine has idle cores.{start}{pin}",
    )


def copies(of: facts.Copies) -> Said:
    way = "to the device" if of.to_device else "to the host"
    if of.to_device and of.to_host:
        way = "between host and device"
    kind = "pageable " if of.pageable > 0.5 else ""
    memory = "pinned memory (pin_memory)" if of.from_pageable and of.torch else "pinned memory on the host"
    calls = "non_blocking=True" if of.torch else "cudaMemcpyAsync"
    ahead = ", and copy on another stream before the computation needs the data" if of.to_device else ""
    later = ", and read the result after more work has been launched" if of.to_host else ""
    return Said(
        f"Copy {way} in the background",
        f"{short_time_text(of.exposed)} {of.per} of {kind}copies {way} overlap with no computation. Use "
        f"{f'{memory} and ' if kind else ''}{calls}{ahead}{later}.",
    )


def allocations(of: facts.Allocations) -> Said:
    cause = "Remove torch.cuda.empty_cache(), avoid" if of.frees else "Avoid"
    return Said(
        "Keep device memory that was allocated",
        f"{often(of.calls, of.steps, of.per)} of {', '.join(of.names)} {form(of.calls / of.steps, 'takes', 'take')} "
        f"{short_time_text(of.time)} {of.per}. {cause} sizes that change with each step, or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    )


def often(calls: int, steps: int, per: str) -> str:
    """Return how often a call was made: per step, or in all of them where that is less than once."""
    return f"{plural(calls, 'call')} in {steps} steps" if calls < steps else f"{plural(calls / steps, 'call')} {per}"


REMEDIES: Mapping[str, str] = {
    "read": (
        " Keep results on the device (accumulate losses and norms as tensors), and read them every few steps, with one "
        ".item() or a non_blocking copy."
    ),
    "sized": (
        " The size of its result depends on the data, so the host must read it: use torch.where or masks, whose sizes "
        "are fixed, or give output_size where the op takes it."
    ),
    "branched": (
        " It decides a condition in Python: leave out the `if` or the assertion, or select with torch.where, which "
        "needs no value on the host."
    ),
    "coalesced": (
        " Coalesce the sparse tensor once, where it is made: a tensor that is coalesced already needs no wait."
    ),
    "synchronize": " Leave out the synchronize() that the program does not need, and wait for single events.",
    "": "",
}
"""What to do about waits, by what they are for."""
OF_JAX = (
    " In a program of JAX, np.asarray(), float(), print() and block_until_ready() wait for results: keep these as "
    "arrays, and read them every few steps."
)


def waits(of: facts.Waits) -> Said:
    op, remedy = blamed(of.call, of.ops)
    what_to_do = OF_JAX if of.jax else REMEDIES[remedy]
    inside = f" (in {op})" if op != of.call else ""
    more = (
        f" Without these calls it would launch other late work up to {short_time_text(of.earlier)} {of.per} earlier as "
        "well."
        if of.earlier > 0
        else ""
    )
    return Said(
        f"Do not wait for the device in {op}",
        f"{of.call}{inside} waits for it, {often(of.calls, of.steps, of.per)}, and the device then idles "
        f"{short_time_text(of.idle)} {of.per} until the host has launched again.{more}{what_to_do}",
    )


def optimizer_ops(of: facts.OptimizerOps) -> Said:
    how = "a list of tensors at a time (foreach)" if of.by_lists else "tensor by tensor"
    pieces = plural(of.pieces, "kernel" if of.on_device else "op")
    passes = (
        f", which read and write about {of.passes:.0f} arrays of the parameters' size; the fused step does with "
        f"{of.fused}"
        if of.passes is not None and of.fused is not None and of.passes > of.fused
        else ""
    )
    return Said(f"Use torch.optim.{of.name}(..., fused=True)", f"the step runs {how}, in {pieces} {of.per}{passes}.")


def launches(of: facts.Launches) -> Said:
    late = "" if of.late is None else f", {percent_text(of.late)} of them late"
    how = 'a CUDA graph or torch.compile(mode="reduce-overhead")' if of.torch else "a CUDA graph"
    if of.jax:
        how = "unroll= of the loop (jax.lax.scan, fori_loop)" if of.loop else "one jitted function for more of the step"
    return Said(
        "Launch more work at once",
        f"the device waits {short_time_text(of.idle)} {of.per} for the host, which makes "
        f"{plural(of.launches, 'launch', 'launches')} {of.per}{late}. Use {how}, or larger batches. The times of the "
        "ops listed here are those for which the device waited for their launch.",
    )


def host_work(of: facts.HostWork) -> Said:
    return Said(
        "Take work off the thread that launches",
        f"the device idles {short_time_text(of.idle)} {of.per} in long pauses between launches; the host was in "
        f"{', '.join(of.names)} for {short_time_text(of.covered)} of it. Do that in another thread or process, on the "
        "device, or while the device has work.",
    )

"""What recording adds to loops that the host limits: calls of an empty function, of one small add, and training steps.

Times are host times of the loop, without starting and ending the profile; the first call in a profile, which sets the
recorder up, is not timed either. The queue of a device never fills. torch is measured last, since its profiler leaves
hooks in the driver that slow down later launches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
from harness import Report, Sampler, arguments, interleave, optional, ratio, spread

import flopscope as fs

ADDS, CALLS, STEPS, QUEUE = 2000, 200_000, 10, 500
ROUNDS, TORCH_ROUNDS = 15, 5

Call = Callable[[], object]
Opener = Callable[[], AbstractContextManager[object]]


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"), rounds=ROUNDS)
    columns = ["loop", "us each", "low", "high", "added, us", "x bare"]
    report = Report("recording", columns, options.out, options.device)
    wait = partial(fs.synchronize, options.device)
    stacks = {"fs.profile(with_stack=True)": partial(fs.profile, with_stack=True, activities=[fs.ProfilerActivity.CPU])}
    fill(report, "empty function", empty, CALLS, stacks, options.rounds)
    add_ours(report, options.rounds, wait, options.device)
    torch = optional("torch")
    if torch is None:
        report.note("torch is not installed: no rows for it.")
    else:
        torch.set_num_threads(1)
        add_torch(report, torch, options.rounds, wait, options.device)
    report.finish()


def empty() -> None:
    pass


def loop(call: Call, number: int, wait: Call, opener: Opener) -> Sampler:
    """Return a sampler of host seconds per call inside the context from ``opener``."""

    def sample() -> float:
        elapsed, done = 0.0, 0
        with opener():
            call()
            wait()
            while done < number:
                some = min(QUEUE, number - done)
                start = time.perf_counter()
                for _ in range(some):
                    call()
                elapsed += time.perf_counter() - start
                wait()
                done += some
        return elapsed / number

    return sample


def fill(
    report: Report, what: str, call: Call, number: int, openers: Mapping[str, Opener], rounds: int, wait: Call = empty
) -> dict[str, list[float]]:
    """Add the row of the bare loop and one per recorder, whose overhead over it is computed per round."""
    cases = {"bare": loop(call, number, wait, nullcontext)}
    samples = interleave(
        cases | {name: loop(call, number, wait, one) for name, one in openers.items()}, rounds, warmup=1
    )
    report.keep(what, samples, ours=("fs.", "flopscope."))
    for who, values in samples.items():
        added = spread([with_it - bare for with_it, bare in zip(values, samples["bare"], strict=True)]).median
        over = ["", ""] if who == "bare" else [f"{1e6 * added:+.2f}", f"{ratio(values, samples['bare']).median:.3f}"]
        report.row(f"{what}, {who}", *spread(values).cells(3, 1e6), *over)
    return samples


def add_ours(report: Report, rounds: int, wait: Call, device: str) -> None:
    x = np.random.default_rng(0).random(1024, dtype=np.float32)
    a = fs.from_numpy(x).to(device)
    assert np.array_equal(fs.add(a, a).to("cpu").numpy(), x + x), "fs.add is wrong"
    with fs.profile() as prof:
        loop(partial(fs.add, a, a), ADDS, wait, nullcontext)()
    assert len(prof) >= ADDS and prof.dropped == 0, f"{len(prof)} events of {ADDS} ops, {prof.dropped} lost"
    every = partial(fs.profile, record_shapes=True, profile_memory=True)
    openers: dict[str, Opener] = {"fs.profile()": fs.profile, "fs.profile(), shapes and memory": every}
    fill(report, "fs.add", partial(fs.add, a, a), ADDS, openers, rounds, wait)


def add_torch(report: Report, torch: Any, rounds: int, wait: Call, device: str) -> None:
    """Add torch's peers of the rows above, and a step of training under both."""
    import flopscope.torch

    kinds = torch.profiler.ProfilerActivity
    both = [kinds.CPU, kinds.CUDA] if device == "cuda" else [kinds.CPU]
    run = training(torch, device)
    run()
    if device == "cuda":
        ours = {"fs.profile()": partial(fs.profile, timer="cupti", record_shapes=True)}
        ours["fs.profile(), no API calls"] = partial(fs.profile, timer="cupti", record_api_calls=False)
        samples = fill(report, "training step", run, STEPS, ours, rounds, wait)
        for name, limit in (("fs.profile()", 1.06), ("fs.profile(), no API calls", 1.04)):
            report.target(f"{name}, over bare", ratio(samples[name], samples["bare"]).median, limit, "x")
    x = torch.rand(1024, device=device)
    recorder = partial(torch.profiler.profile, activities=both)
    fill(report, "torch.add", partial(torch.add, x, x), ADDS, {"torch.profiler": recorder}, TORCH_ROUNDS, wait)
    stacks = partial(torch.profiler.profile, activities=[kinds.CPU], with_stack=True)
    fill(report, "empty function, torch", empty, CALLS, {"torch.profiler, with_stack": stacks}, TORCH_ROUNDS)
    shapes = {"activities": both, "record_shapes": True}
    peers = {"torch.profiler": partial(torch.profiler.profile, **shapes)}
    peers["flopscope.torch.profile"] = partial(flopscope.torch.profile, **shapes)
    samples = fill(report, "training step, shapes", run, STEPS, peers, rounds, wait)
    over = ratio(samples["flopscope.torch.profile"], samples["torch.profiler"]).median
    report.target("flopscope.torch.profile, with shapes, over torch.profiler", over, 1.02, "x")


def training(torch: Any, device: str) -> Call:
    """Return a step of a transformer of tiny layers, which the host limits."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(64, 4, 192, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(256, 64), nn.TransformerEncoder(layer, 8), nn.Linear(64, 256)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(256, (1, 17), device=device)

    def run() -> None:
        logits = model(tokens[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


if __name__ == "__main__":
    main()

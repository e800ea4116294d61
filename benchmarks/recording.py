"""Cost of recording a host-bound step: a Llama of tiny layers trains, bare and under each recorder, in turns.

flopscope.torch.profile is compared with torch.profiler, which it uses, both with shapes. On CUDA, fs.profile is
compared with CUPTI alone: a client that discards its records, with each of the settings of fs.profile added to those
before it, and with fewer API calls. The time is that of ten steps and of waiting for the device at their end, without
starting and ending the recorder. torch's profiler is measured last, as it leaves hooks in the driver.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from capture import load_floor
from harness import Report, Sampler, arguments, interleave, optional, ratio, spread

import flopscope as fs
from flopscope import _core

LAYERS, WIDTH, HEADS, LENGTH, VOCABULARY = 8, 64, 4, 16, 256
STEPS, ROUNDS = 10, 15

Opener = Callable[[], AbstractContextManager[object]]
Taker = Callable[[str, "dict[str, Step]", str], "dict[str, list[float]]"]

# What CUPTI alone is asked for: bits of floor_ask() in cupti_floor.c.
CALLS, DRIVER, SYNCHRONIZATION, OVERHEAD, SYSTEM_IDS, OWN_CLOCK, CALLBACKS = (1 << bit for bit in range(7))
ASKED = {
    "kernels": 0,
    "+ runtime API calls": CALLS,
    "+ driver API calls": DRIVER,
    "+ synchronisation": SYNCHRONIZATION,
    "+ overhead": OVERHEAD,
    "+ the system's thread ids": SYSTEM_IDS,
    "+ fs.profile's clock": OWN_CLOCK,
}
# Functions that are excluded next, by their first letters: those that fs.profile excludes ...
NOISE = ("cudaGetDevice", "cudaSetDevice", "cudaGetLastError", "cudaPeekAtLastError", "cudaEventCreate")
NOISE += ("cudaEventDestroy",)
# ... and those that ask for a state and neither launch, copy, wait nor allocate.
QUERIES = ("cudaStreamIsCapturing", "cudaStreamGetCaptureInfo", "cudaThreadExchangeStreamCaptureMode", "cudaOccupancy")
QUERIES += ("cudaFunc", "cudaDeviceGet", "cudaEventQuery", "cudaStreamQuery", "cudaPointerGetAttributes")
QUERIES += ("cudaStreamGetPriority", "cudaStreamGetFlags", "cudaGetFuncBySymbol", "cudaGetDriverEntryPoint")


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"), rounds=ROUNDS)
    columns = ["a step", "ms", "low", "high", "processor, ms", "x bare", "low", "high"]
    report = Report("recording", columns, options.out, options.device)
    torch = optional("torch")
    if torch is None:
        raise SystemExit("recording.py needs torch")
    torch.set_num_threads(1)
    run, wait = training(torch, options.device)
    for _ in range(3 * STEPS):
        run()
    measure = partial(Step, run, wait)
    take = partial(fill, report, options.rounds)
    if options.device == "cuda":
        with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
            add_profile(report, take, measure, load_floor(Path(folder)))
        tell_calls(report, run, wait)
    add_torch(report, take, torch, measure, options.device)
    report.finish()


def training(torch: Any, device: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a function that trains one step, and one that waits for the device."""
    nn, ops = torch.nn, torch.nn.functional

    class Norm(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Any) -> Any:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = Norm(), Norm()
            self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
            self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            normed = self.before(x)
            heads = [one(normed).view(1, LENGTH, HEADS, -1).transpose(1, 2) for one in (self.query, self.key)]
            query, key = (one * cos + torch.cat((-one[..., 1::2], one[..., ::2]), -1) * sin for one in heads)
            value = self.value(normed).view(1, LENGTH, HEADS, -1).transpose(1, 2)
            mixed = ops.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(1, LENGTH, WIDTH))
            normed = self.between(x)
            return x + self.down(ops.silu(self.gate(normed)) * self.up(normed))

    class Llama(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(VOCABULARY, WIDTH)
            self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
            self.norm, self.head = Norm(), nn.Linear(WIDTH, VOCABULARY, bias=False)
            angles = torch.arange(LENGTH)[:, None] / 10000 ** (torch.arange(WIDTH // HEADS) * HEADS / WIDTH)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

        def forward(self, tokens: Any) -> Any:
            x = self.embedding(tokens)
            for layer in self.layers:
                x = layer(x, self.cos, self.sin)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    model = Llama().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(VOCABULARY, (1, LENGTH + 1), device=device)

    def run() -> None:
        logits = model(tokens[:, :-1])
        ops.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return run, torch.cuda.synchronize if device == "cuda" else bool


class Step:
    """A sampler of the seconds per step within a recorder's context; ``processor`` has those of the processors."""

    def __init__(self, run: Callable[[], object], wait: Callable[[], object], opener: Opener) -> None:
        self.run, self.wait, self.opener = run, wait, opener
        self.processor: list[float] = []

    def __call__(self) -> float:
        with self.opener():
            self.run()  # the first step sets the recorder up
            self.wait()
            worked, start = time.process_time(), time.perf_counter()
            for _ in range(STEPS):
                self.run()
            self.wait()
            elapsed = time.perf_counter() - start
            self.processor.append((time.process_time() - worked) / STEPS)
        return elapsed / STEPS


def add_torch(report: Report, take: Taker, torch: Any, measure: Callable[[Opener], Step], device: str) -> None:
    """Add torch.profiler and flopscope.torch.profile, both with shapes."""
    import flopscope.torch

    kinds = torch.profiler.ProfilerActivity
    settings = {"activities": [kinds.CPU, kinds.CUDA] if device == "cuda" else [kinds.CPU], "record_shapes": True}
    samples = take(
        "torch",
        {
            "bare": measure(nullcontext),
            "torch.profiler": measure(partial(torch.profiler.profile, **settings)),
            "flopscope.torch.profile": measure(partial(flopscope.torch.profile, **settings)),
        },
        "flopscope.",
    )
    both = ratio(samples["flopscope.torch.profile"], samples["torch.profiler"]).median
    report.target("flopscope.torch.profile, with shapes, over torch.profiler", both, 1.02, "x")


def add_profile(report: Report, take: Taker, measure: Callable[[Opener], Step], floor: Any) -> None:
    """Add fs.profile with and without API calls, and CUPTI alone with more and more of what fs.profile asks for."""
    cases = {
        "bare": measure(nullcontext),
        "fs.profile, no API calls": measure(partial(fs.profile, timer="cupti", record_api_calls=False)),
        "fs.profile": measure(partial(fs.profile, timer="cupti", record_shapes=True)),
        "fs.profile, buffers of 32 MiB": measure(partial(recorder, buffer_bytes=32 << 20)),
        "fs.profile, buffers of 1 MiB": measure(partial(recorder, buffer_bytes=1 << 20)),
    }
    measure(partial(fs.profile, timer="cupti"))()  # loads CUPTI, which recorder() needs
    asked = 0
    for name, bits in ASKED.items():
        asked |= bits
        cases[f"CUPTI alone: {name}"] = measure(partial(cupti_alone, floor, asked))
    cases["CUPTI alone: - fs.profile's noise"] = measure(partial(cupti_alone, floor, asked, NOISE))
    cases["CUPTI alone: - all queries"] = measure(partial(cupti_alone, floor, asked, NOISE + QUERIES))
    few = CALLS | OWN_CLOCK
    cases["CUPTI alone: runtime only, - all queries"] = measure(partial(cupti_alone, floor, few, NOISE + QUERIES))
    cases["CUPTI alone: kernels, calls by callbacks"] = measure(partial(cupti_alone, floor, CALLBACKS | OWN_CLOCK))
    samples = take("CUPTI", cases, "fs.profile")
    for name, limit in (("fs.profile", 1.06), ("fs.profile, no API calls", 1.04)):
        report.target(f"{name}, over bare", ratio(samples[name], samples["bare"]).median, limit, "x")


def tell_calls(report: Report, run: Callable[[], object], wait: Callable[[], object]) -> None:
    """Note which API calls a step makes, and how often."""
    with fs.profile(timer="cupti") as prof:
        for _ in range(STEPS):
            run()
        wait()
    rows = [row for row in prof.key_averages(peaks="none") if row.key.startswith("cu") and row.device_type == "cpu"]
    rows.sort(key=lambda row: -row.count)
    calls = ", ".join(f"{row.key} {row.count / STEPS:g} ({row.cpu_time:.1f} us)" for row in rows[:12])
    report.note(f"API calls of a step: {calls}.")


@contextmanager
def recorder(**settings: Any) -> Iterator[None]:
    """Record as fs.profile does, with other settings of the core."""
    core = _core.Profiler(ops=True, event_times=False, cupti=True, api_calls=True, may_share=True, **settings)
    core.start()
    try:
        yield
    finally:
        core.stop()


@contextmanager
def cupti_alone(floor: Any, asked: int, excluded: Sequence[str] = ()) -> Iterator[None]:
    """Let CUPTI record, and discard its records. excluded: functions without records, by their first letters."""
    floor.floor_ask(asked & ~CALLS, " ".join(excluded).encode())
    if (code := floor.floor_start(1, asked & CALLS, 0, -1, 0, 0)) != 0:
        raise RuntimeError(f"CUPTI alone failed with {code}")
    try:
        yield
    finally:
        floor.floor_stop()
        floor.floor_ask(0, b"")


def fill(report: Report, rounds: int, case: str, cases: dict[str, Step], ours: str) -> dict[str, list[float]]:
    """Add a row per case; the first is the bare step. Return the samples. ours: as of Report.keep()."""
    samplers: dict[str, Sampler] = {**cases}
    samples = interleave(samplers, rounds, warmup=1)
    report.keep(case, samples, ours=ours)
    processor = {name: step.processor[-rounds:] for name, step in cases.items()}
    report.keep(f"{case}: processor time", processor)
    for name, values in samples.items():
        summary, over = spread(values), ratio(values, samples["bare"])
        times = (summary.median, summary.low, summary.high, spread(processor[name]).median)
        ratios = ("", "", "") if name == "bare" else (f"{one:.3f}" for one in (over.median, over.low, over.high))
        report.row(name, *(f"{1e3 * one:.3f}" for one in times), *ratios)
    return samples


if __name__ == "__main__":
    main()

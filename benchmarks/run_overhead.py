"""Overhead of ``flopscope run``: programs of torch, plain, under the command with and without shapes, and under
flopscope.torch.profile.

The programs are a training loop of tiny ops, which costs the most, a transformer, and a CNN fed by two workers of a
DataLoader. Each sample is a fresh process, which times the steps of its own loop after a warm-up: without imports, the
start of the profile, and results. The processes of a round run in turns. A step has two times, each the median of the
process's steps: by a clock, and computed, which is the processor time of all threads: other programs lengthen it less.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from harness import ROOT, Report, arguments, interleave, optional, ratio, spread

# Steps of a sample, and the program: it defines step(), and may define batches(), which yields the arguments of each.
TINY = """
layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.ReLU())]
model = nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.rand(16, 64, device=device)
def step(_):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""
TRANSFORMER = """
layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
model = nn.Sequential(nn.Embedding(1000, 256), nn.TransformerEncoder(layer, 4), nn.Linear(256, 1000)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
tokens = torch.randint(1000, (4, 33), device=device)
def step(_):
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""
CNN = """
blocks = []
for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
    blocks += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
model = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(128 * 16, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.rand(16 * count, 3, 32, 32), torch.randint(10, (16 * count,)))
def batches():
    return torch.utils.data.DataLoader(data, batch_size=16, num_workers=2)
def step(batch):
    images, labels = batch
    loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""
PROGRAMS = {"tiny ops": (100, TINY), "transformer": (12, TRANSFORMER), "CNN, two workers": (12, CNN)}
WARMUP, ROUNDS = 3, 5

FRAME = """
import contextlib, itertools, statistics, sys, time, torch
from torch import nn
device, how = sys.argv[1:]
steps, warmup = {steps}, {warmup}
count = steps + warmup
torch.set_num_threads(1)
torch.manual_seed(0)
def batches():
    return itertools.repeat(None, count)
{program}
def wait():
    if device == "cuda":
        torch.cuda.synchronize()
profile = contextlib.nullcontext
if how != "plain":
    from flopscope.torch import profile as with_options
    profile = lambda: with_options(record_shapes=how == "shapes")
with profile():
    times = []
    for batch in batches():
        loss = step(batch)
        wait()
        times.append((time.perf_counter(), time.process_time()))
spans = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(times[warmup - 1 :])]
clock, computed = (statistics.median(column) for column in zip(*spans))
print(clock, computed, float(loss))
"""
PLAIN, RUN, BARE = "python", "flopscope run", "flopscope run --no-shapes"
WITH_SHAPES, WITH = "with profile(record_shapes=True)", "with profile()"
COMMAND = ["-m", "flopscope", "run", "--no-report", "--no-summary"]
LOOPS = {PLAIN: ([], "plain"), RUN: (COMMAND, "plain"), BARE: ([*COMMAND, "--no-shapes"], "plain")}
LOOPS |= {WITH_SHAPES: ([], "shapes"), WITH: ([], "with")}
LIMIT = 1.05  # of the command over the profile that it makes

Samples = Mapping[str, list[float]]


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    columns = ["program", "loop", "us per step", "low", "high", "computed, us", "added, us", "x python"]
    report = Report("run_overhead", columns, options.out, options.device)
    if optional("torch") is None:
        report.note("torch is not installed.")
        return report.finish()
    for name, (steps, program) in PROGRAMS.items():
        clock, computed = measured(options.device, steps, program)
        report.keep(name, clock, steps=steps, time="clock")
        report.keep(name, computed, steps=steps, time="computed")
        # A host that waits for a GPU computes, and workers that wait for their turn lengthen the clock's time.
        steady = clock if options.device == "cuda" else computed
        for who in LOOPS:
            times = spread(clock[who])
            cells = [times.median, times.low, times.high, spread(computed[who]).median]
            added = spread([a - b for a, b in zip(steady[who], steady[PLAIN], strict=True)])
            over = ["", ""] if who == PLAIN else [f"{1e6 * added.median:+.1f}", f"{over_of(steady, who, PLAIN):.3f}"]
            report.row(name, who, *(f"{1e6 * seconds:.1f}" for seconds in cells), *over)
        for ours, theirs in ((RUN, WITH_SHAPES), (BARE, WITH)):
            report.target(f"{name}: {ours} / {theirs}", over_of(steady, ours, theirs), LIMIT, "×")
    kind = "the clock's" if options.device == "cuda" else "computed"
    report.note(f"added, x python, targets: medians over rounds, of {kind} times.")
    report.finish()


def over_of(samples: Samples, who: str, base: str) -> float:
    return ratio(samples[who], samples[base]).median


def measured(device: str, steps: int, program: str) -> tuple[Samples, Samples]:
    """Return the seconds per step of each loop, by a clock and as computed by the process, round by round."""
    computed: dict[str, list[float]] = {who: [] for who in LOOPS}
    losses: set[float] = set()
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        path = Path(folder) / "train.py"
        path.write_text(FRAME.format(steps=steps, warmup=WARMUP, program=program))
        cases = {
            who: partial(sample, [*command, str(path), device, how], computed[who], losses)
            for who, (command, how) in LOOPS.items()
        }
        clock = interleave(cases, ROUNDS, warmup=1)
    assert max(losses) - min(losses) <= 1e-3 * max(losses), f"the losses of the programs differ: {sorted(losses)}"
    return clock, {who: values[-ROUNDS:] for who, values in computed.items()}


def sample(command: list[str], computed: list[float], losses: set[float]) -> float:
    """Return the seconds per step that a fresh process reports, and keep those that it computed, and its loss."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed:\n{done.stderr}")
    clock, own, loss = map(float, done.stdout.split())
    computed.append(own)
    losses.add(loss)
    return clock


if __name__ == "__main__":
    main()

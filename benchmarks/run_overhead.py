"""Overhead of ``flopscope run``: training with torch, plain, under the command, with and without shapes and sampled
stacks, and under flopscope.torch.profile.

The loops are one of tiny ops, in which recording costs the most, a transformer, and a CNN fed by two DataLoader
workers. A sample is a fresh process, which times the steps of each after a warm-up: without imports, the start of the
profile, and results. The processes of a round run in turns. A step has two times: by a clock, the median of the
process's steps; and computed, the least processor time of all threads in a step, which other programs lengthen less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from harness import ROOT, Report, arguments, interleave, optional, ratio, spread

# Steps of a sample, and the code: it defines step(), and may define batches(), which yields the arguments of each.
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
TRAININGS = {"tiny ops": (200, TINY), "transformer": (24, TRANSFORMER), "CNN, two workers": (48, CNN)}
WARMUP, ROUNDS = 3, 5

PROGRAM = """
import contextlib, itertools, json, statistics, sys, time, torch
from torch import nn
device, how, trainings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
torch.set_num_threads(1)
torch.backends.cudnn.deterministic = True
def wait():
    if device == "cuda":
        torch.cuda.synchronize()
def train(steps, warmup, code):
    torch.manual_seed(0)
    count = steps + warmup
    names = globals() | {"count": count, "batches": lambda: itertools.repeat(None, count)}
    exec(code, names)
    times = []
    for batch in names["batches"]():
        loss = names["step"](batch)
        wait()
        times.append((time.perf_counter(), time.process_time()))
    spans = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(times[warmup - 1 :])]
    clock, computed = zip(*spans)
    return statistics.median(clock), min(computed), float(loss)
profile = contextlib.nullcontext
if how != "plain":
    from flopscope.torch import profile as with_options
    profile = lambda: with_options(record_shapes=how == "shapes")
with profile():
    print(json.dumps([train(*training) for training in trainings]))
"""
PLAIN, RUN, BARE, UNSAMPLED = "python", "flopscope run", "flopscope run --no-shapes", "flopscope run --no-samples"
WITH_SHAPES, WITH = "with profile(record_shapes=True)", "with profile()"
COMMAND = ["-m", "flopscope", "run", "--no-report", "--no-summary"]
LOOPS = {PLAIN: ([], "plain"), RUN: (COMMAND, "plain"), BARE: ([*COMMAND, "--no-shapes"], "plain")}
LOOPS |= {UNSAMPLED: ([*COMMAND, "--no-samples"], "plain")}
LOOPS |= {WITH_SHAPES: ([], "shapes"), WITH: ([], "with")}
OURS = (RUN, "with")  # how they begin
LIMITS = {(UNSAMPLED, WITH_SHAPES): 1.05, (RUN, UNSAMPLED): 1.02}
"""Of the command over the profile that it makes, and over itself without sampled stacks."""

Samples = dict[str, list[float]]


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"), rounds=ROUNDS)
    columns = ["training", "loop", "us per step", "low", "high", "computed, us", "added, us", "x python"]
    report = Report("run_overhead", columns, options.out, options.device)
    if optional("torch") is None:
        report.note("torch is not installed.")
        return report.finish()
    told: dict[str, list[list[list[float]]]] = {who: [] for who in LOOPS}
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        path = Path(folder) / "train.py"
        path.write_text(PROGRAM)
        given = json.dumps([(steps, WARMUP, code) for steps, code in TRAININGS.values()])
        cases = {
            who: partial(sample, [*command, str(path), options.device, how, given], told[who])
            for who, (command, how) in LOOPS.items()
        }
        interleave(cases, options.rounds, warmup=0)
    for place, (name, (steps, _)) in enumerate(TRAININGS.items()):
        clock, computed, losses = (
            {who: [times[place][which] for times in samples] for who, samples in told.items()} for which in range(3)
        )
        every = [loss for values in losses.values() for loss in values]
        assert max(every) - min(every) <= 1e-2 * max(every), f"the losses of {name} differ: {sorted(every)}"
        report.keep(name, clock, ours=OURS, steps=steps, time="clock, median step")
        report.keep(name, computed, ours=OURS, steps=steps, time="computed, least step")
        add_rows(report, name, clock, computed, clock if options.device == "cuda" else computed)
    kind = "the clock's" if options.device == "cuda" else "computed"  # a host that waits for a GPU computes
    report.note(f"added, x python, targets: medians over rounds, of {kind} times.")
    report.finish()


def add_rows(report: Report, name: str, clock: Samples, computed: Samples, steady: Samples) -> None:
    for who in LOOPS:
        times = spread(clock[who])
        cells = [times.median, times.low, times.high, spread(computed[who]).median]
        added = spread([a - b for a, b in zip(steady[who], steady[PLAIN], strict=True)]).median
        over = ["", ""] if who == PLAIN else [f"{1e6 * added:+.1f}", f"{ratio(steady[who], steady[PLAIN]).median:.3f}"]
        report.row(name, who, *(f"{1e6 * seconds:.1f}" for seconds in cells), *over)
    for (ours, theirs), limit in LIMITS.items():
        report.target(f"{name}: {ours} / {theirs}", ratio(steady[ours], steady[theirs]).median, limit, "×")


def sample(command: list[str], told: list[list[list[float]]]) -> float:
    """Run a fresh process, keep what it says of each training, and return how long it took."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{command[:-1]} failed:\n{done.stderr}")
    told.append(json.loads(done.stdout))
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()

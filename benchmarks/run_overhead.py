"""Overhead of ``flopscope run``: a training loop of torch, plain, under the command, and under flopscope.torch.profile.

Each sample is a fresh process, which times its own loop after a warm-up: without imports, the start of the profile,
and results. The loops of a round run in turns.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from harness import ROOT, Report, arguments, interleave, optional, spread

STEPS, WARMUP, ROUNDS = 200, 20, 7
WIDTH, BATCH, LAYERS = 64, 16, 6

PROGRAM = f"""
import contextlib, sys, time, torch
device, how = sys.argv[1:]
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [layer for _ in range({LAYERS}) for layer in (torch.nn.Linear({WIDTH}, {WIDTH}), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.rand({BATCH}, {WIDTH}, device=device)
def step():
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
def wait():
    if device == "cuda":
        torch.cuda.synchronize()
profile = contextlib.nullcontext
if how == "with":
    from flopscope.torch import profile
with profile():
    for _ in range({WARMUP}):
        loss = step()
    wait()
    begin = time.perf_counter()
    for _ in range({STEPS}):
        loss = step()
    wait()
    elapsed = time.perf_counter() - begin
print(elapsed / {STEPS}, float(loss))
"""
PLAIN, RUN, WITH = "python", "flopscope run", "with flopscope.torch.profile()"


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"))
    report = Report("run_overhead", ["loop", "us per step", "low", "high", "added, us"], options.out, options.device)
    if optional("torch") is None:
        report.note("torch is not installed.")
        return report.finish()
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        program = Path(folder) / "train.py"
        program.write_text(PROGRAM)
        run = ["-m", "flopscope", "run", "--no-report", "--no-summary"]
        losses: set[float] = set()
        cases = {
            PLAIN: partial(sample, [str(program), options.device, "plain"], losses),
            RUN: partial(sample, [*run, str(program), options.device, "plain"], losses),
            WITH: partial(sample, [str(program), options.device, "with"], losses),
        }
        samples = interleave(cases, ROUNDS, warmup=1)
    assert max(losses) - min(losses) <= 1e-4 * max(losses), f"the losses of the programs differ: {sorted(losses)}"
    report.keep("training step", samples, steps=STEPS)
    for who, values in samples.items():
        summary = spread(values)
        added = spread([with_it - without for with_it, without in zip(values, samples[PLAIN], strict=True)])
        cells = [f"{1e6 * value:.1f}" for value in (summary.median, summary.low, summary.high)]
        report.row(who, *cells, "" if who == PLAIN else f"{added.median * 1e6:+.1f}")
    ratio = spread([a / b for a, b in zip(samples[RUN], samples[WITH], strict=True)])
    report.target("flopscope run / with profile()", ratio.median, 1.05, "×")
    report.finish()


def sample(command: list[str], losses: set[float]) -> float:
    """Return the seconds per step that a fresh process reports, and keep its loss."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed:\n{done.stderr}")
    seconds, loss = map(float, done.stdout.split())
    losses.add(loss)
    return seconds


if __name__ == "__main__":
    main()

"""What ``flopscope run`` says that a step takes and what it costs: ten programs of torch, plain and under the command.

Each is a fresh process, in turns. It times its own steps, the median of those after the first tenth: under the
command, the step that the summary says is compared with that. What the command costs is the wall time of the process,
start, recording and results, beyond that of the plain one, which trains or infers for 20 s.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness import ROOT, Report, arguments, interleave, optional, ratio

MLP = "nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.ReLU())])"
ENCODER = "nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True), 4)"
CONVOLUTIONS = "nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3)"
CNN = f"nn.Sequential({CONVOLUTIONS}, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))"
SGD = "SGD(model.parameters(), 0.01)"
EVALUATION = "if i % 50 == 49:\n        with torch.no_grad():\n            for _ in range(40): model(x)"


def training(model: str, shape: str, optimizer: str = SGD, result: str = "model(x)", more: str = "pass") -> str:
    """Return the code of a program that trains a model on inputs of a shape. more: what else a step does."""
    return f"""
model = {model}.to(device)
optimizer, x = torch.optim.{optimizer}, torch.rand({shape}, device=device)
def step(i):
    loss = {result}.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    {more}
"""


def inference(model: str, shape: str, x: str = "x") -> str:
    """Return the code of a program that infers. x: what a step takes of the inputs."""
    return f"""
model, x = {model}.to(device).eval(), torch.rand({shape}, device=device)
def step(i):
    with torch.no_grad(): model({x})
"""


# By name, the code, which defines step(i).
PROGRAMS = {
    "MLP of tiny ops": training(MLP, "16, 64"),
    "MLP, Adam without foreach": training(MLP, "16, 64", "Adam(model.parameters(), foreach=False)"),
    "transformer": training(ENCODER, "4, 32, 256", "AdamW(model.parameters(), 1e-4)"),
    "CNN": training(CNN, "16, 3, 32, 32"),
    "CNN, an evaluation every 50 steps": training(CNN, "16, 3, 32, 32", more=EVALUATION),
    "LSTM": training("nn.LSTM(64, 64, batch_first=True)", "8, 40, 64", result="model(x)[0]"),
    "loss.item() in each step": training(MLP, "256, 64", more="loss.item()"),
    "inference, MLP": inference(MLP, "16, 64"),
    "inference, transformer": inference(ENCODER, "1, 16, 256"),
    "inference, sizes vary": inference(MLP, "64, 64", "x[: 1 + i % 64]"),
}
LASTS, ROUNDS = 20, 2  # s of a program's loop, and how often each runs
WHOLE = """
import json, sys, time, torch
from torch import nn
device, lasts, code, out = sys.argv[1:]
torch.set_num_threads(1)
torch.manual_seed(0)
exec(code)
times, begin, i = [], time.monotonic(), 0
while time.monotonic() < begin + float(lasts):
    step(i)
    times.append(time.perf_counter())
    i += 1
if device == "cuda":
    torch.cuda.synchronize()
spans = sorted(b - a for a, b in zip(times[len(times) // 10 :], times[len(times) // 10 + 1 :]))
json.dump({"step": spans[len(spans) // 2], "ended": time.time()}, open(out, "w"))
"""


class Run(NamedTuple):
    """A process, in seconds, and the peak of its memory."""

    # Of the program itself.
    step: float
    # As the summary has it; NaN without.
    said: float
    wall: float
    # Its part after the last step.
    end: float
    megabytes: float
    recorded: int


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"), rounds=ROUNDS)
    columns = ["program", "step, us", "said / true", "run / plain", "recorded", "cost, s", "after, s", "MB more"]
    report = Report("run_overhead", columns, options.out, options.device)
    if optional("torch") is None:
        report.note("torch is not installed.")
        return report.finish()
    # By program, and whether it was recorded; interleave() itself keeps the wall times.
    told: dict[str, dict[bool, list[Run]]] = {name: {False: [], True: []} for name in PROGRAMS}
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        cases: dict[str, Callable[[], float]] = {}
        for name, code in PROGRAMS.items():
            for recorded in (False, True):
                who = f"{name}, {'flopscope run' if recorded else 'python'}"
                cases[who] = partial(sample, Path(folder), options.device, code, recorded, told[name][recorded])
        walls = interleave(cases, options.rounds, warmup=0)
    for name, runs in told.items():
        add_row(report, name, runs[False], runs[True])
    # In that time the trace is read, and the summary and the page are made.
    worst = max(runs[True][0].end for runs in told.values())
    report.target("from a program's last step to the command's end", worst, 3.0, "s")
    report.keep("wall", walls, ours=("flopscope run",))
    report.finish()


def sample(folder: Path, device: str, code: str, recorded: bool, told: list[Run]) -> float:
    """Run a program, and return its time by the clock."""
    program, out, summary = folder / "program.py", folder / "out.json", folder / "summary.json"
    program.write_text(WHOLE)
    command = ["-m", "flopscope", "run", "--json", str(summary), "-o", str(folder / "r.html")] if recorded else []
    begin = time.time()
    whole = [sys.executable, *command, str(program), device, str(LASTS), code, str(out)]
    process = subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    # Its peak of memory, not that of the process that reports.
    _, status, usage = os.wait4(process.pid, 0)
    end = time.time()
    assert status == 0, f"{code}: status {status}"
    own = json.loads(out.read_text())
    facts = json.loads(summary.read_text())["recording"] if recorded else {}
    said = 1e-6 * (facts.get("bare_step_us") or float("nan"))
    # Of the recording that is reported.
    steps = facts.get("recorded_steps", 0)
    told.append(Run(own["step"], said, end - begin, end - own["ended"], usage.ru_maxrss / 1024, steps))
    return end - begin


def add_row(report: Report, name: str, plain: list[Run], ours: list[Run]) -> None:
    """Add the row of a program, medians over the rounds, and its targets."""
    # By the clock of the same process.
    true = median(run.said / run.step for run in ours)
    # Beside the plain runs in turns with it: those of one program vary by themselves.
    beside = ratio([run.said for run in ours], [run.step for run in plain]).median
    # What it costs at all: imports, recording, and the results at the end.
    cost = median(b.wall - a.wall for a, b in zip(plain, ours, strict=True))
    cells = [f"{1e6 * median(run.step for run in plain):.1f}", f"{true:.3f}", f"{beside:.3f}"]
    cells += [str(ours[0].recorded), f"{cost:.1f}", f"{median(run.end for run in ours):.1f}"]
    report.row(name, *cells, f"{ours[-1].megabytes - plain[-1].megabytes:.0f}")
    report.target(f"{name}: the step as said over the program's own clock", true, 1.01, "×")
    report.target(f"{name}: the step as said over that of plain runs", beside, 1.03, "×")
    # A tenth is what recording may cost.
    beyond = cost - 0.1 * median(run.wall for run in plain)  # what is left for the start and the results
    report.target(f"{name}: wall time beyond a tenth of the plain run's", beyond, 3, "s")


if __name__ == "__main__":
    main()

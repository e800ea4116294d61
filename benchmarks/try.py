"""`flopscope try` on programs whose cure is a change that it can switch, beside the same programs mended by hand.

For each program: the verdict of `try` on the change and what it gains, and what the lines that a person would write
gain, measured here by processes of both in turns.

    python benchmarks/try.py --device cuda --out FOLDER [--only loader,zero_grad] [--seconds 60]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from harness import Report, arguments, run, spread

SECONDS, ROUNDS = 60.0, 5
WITHIN = 5.0
"""Percent of a step by which the two gains may differ."""


class Cure(NamedTuple):
    switch: str
    code: str
    """Defines step(); `mended` is whether the program is mended by hand."""
    devices: tuple[str, ...] = ("cpu", "cuda")


LAYERS = "nn.Sequential(*(part for _ in range({}) for part in (nn.Linear({}, {}), nn.ReLU()))).to(device)"
TRAINED = """
def step():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""
CURES = {
    "threads": Cure(
        "threads",
        f"if not mended: torch.set_num_threads(1)\nmodel, x = {LAYERS.format(4, 1024, 1024)}, torch.randn(512, 1024)\n"
        f"optimizer = torch.optim.SGD(model.parameters(), 1e-3)\n{TRAINED}",
        ("cpu",),
    ),
    "loader": Cure(
        "loader_workers",
        f"""
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 1 << 30
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.full((256,), float(index % 7))
workers = max(1, min(8, len(os.sched_getaffinity(0)) - 1)) if mended else 0
batches = iter(torch.utils.data.DataLoader(Slow(), 16, num_workers=workers, persistent_workers=mended))
model = {LAYERS.format(6, 256, 256)}
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
def step():
    optimizer.zero_grad()
    model(next(batches).to(device)).square().mean().backward()
    optimizer.step()
""",
    ),
    "optimizer": Cure(
        "fused_optimizer",
        f"model, x = {LAYERS.format(24, 256, 256)}, torch.randn(4, 256, device=device)\n"
        f"optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=mended or None)\n{TRAINED}",
    ),
    "gradients": Cure(
        "inference_mode",
        f"""
model, x = {LAYERS.format(60, 16, 16)}.eval(), torch.randn(4, 16, device=device)
def step():
    with torch.inference_mode(mended):
        return model(x)
""",
    ),
    "zero_grad": Cure(
        "zero_grad",
        f"""
width = 8192 if device == "cuda" else 1024
model, x = {LAYERS.format(4, "width", "width")}, torch.randn(8, width, device=device)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
def step():
    optimizer.zero_grad(set_to_none=mended)
    model(x).square().mean().backward()
    optimizer.step()
""",
    ),
    "tf32": Cure(
        "tf32",
        f"torch.backends.cuda.matmul.allow_tf32 = mended\n"
        f"model, x = {LAYERS.format(6, 4096, 4096)}, torch.randn(4096, 4096, device=device)\n"
        f"optimizer = torch.optim.SGD(model.parameters(), 1e-3, fused=True)\n{TRAINED}",
        ("cuda",),
    ),
}
PROGRAM = """
import os, sys, time
device, mended, seconds = sys.argv[1], sys.argv[2] == "mended", float(sys.argv[3])
import torch
from torch import nn
import flopscope
torch.manual_seed(0)
{code}
times = []
end = None
while end is None or time.perf_counter() < end:
    step()
    flopscope.step()
    if device == "cuda" and seconds < 60:
        torch.cuda.synchronize()
    times.append(time.perf_counter())
    if len(times) == 10:
        end = times[-1] + seconds
steps = sorted(b - a for a, b in zip(times[9:], times[10:]))
print(steps[len(steps) // 2])
"""


def main() -> None:
    options = arguments(__doc__ or "", ("cpu", "cuda"), add_options, rounds=ROUNDS)
    columns = ["program", "change", "verdict", "gain %", "low", "high", "by hand %", "low", "high"]
    report = Report("try", columns, options.out, options.device)
    with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as folder:
        for name, cure in CURES.items():
            if options.device in cure.devices and name in (options.only or CURES):
                path = Path(folder) / f"{name}.py"
                path.write_text(PROGRAM.format(code=cure.code), encoding="utf-8")
                add(report, name, cure.switch, path, options)
                report.done()
    report.finish()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=lambda names: names.split(","), metavar="NAMES", help="programs, with commas")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a trial")


def add(report: Report, name: str, switch: str, path: Path, options: argparse.Namespace) -> None:
    words = [sys.executable, str(path), options.device]
    by_hand = []
    for _ in range(options.rounds):
        plain, mended = (float(run([*words, which, "2"])) for which in ("plain", "mended"))
        by_hand.append(100 * (1 - mended / plain))
    change = tried(path, switch, options)
    ratio, hand = change["ratio"], spread(by_hand)
    gains = [100 * (1 - ratio[which]) for which in ("value", "high", "low")] if ratio["low"] is not None else []
    report.keep(name, {"by hand": by_hand}, "%", verdict=change["verdict"], gains=gains)
    cells = [f"{gain:.1f}" for gain in gains] or ["", "", ""]
    report.row(name, switch, change["verdict"], *cells, *hand.cells(1))
    if gains:
        report.target(f"{name}: the gain differs from that by hand by", abs(gains[0] - hand.median), WITHIN, "%")


def tried(path: Path, switch: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what `flopscope try` says of the change."""
    found = path.with_suffix(".json")
    limits = ["--changes", switch, "--max-time", str(options.seconds), "--json", str(found)]
    run([sys.executable, "-m", "flopscope", "try", *limits, str(path), options.device, "plain", "3600"])
    (change,) = json.loads(found.read_text(encoding="utf-8"))["changes"]
    return dict(change)


if __name__ == "__main__":
    main()

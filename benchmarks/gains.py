"""What advice says a change gains beside what it gains: ten programs of torch, each with a change that advice has.

A plain process runs the program's steps and the changed ones in turns, for a few seconds each. Another runs the program
as it is under ``flopscope run``, whose JSON says what the change would gain alone. Each GPU runs one program at a time.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any

from harness import ROOT, Report, arguments, optional

import flopscope as fs

MODELS = """
class Block(nn.Module):
    def __init__(self, width, fused=True):
        super().__init__()
        self.fused, self.heads = fused, width // 64
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(t, t, device=x.device, dtype=torch.bool).triu(1)
            y = (q @ k.transpose(-2, -1) / 8).masked_fill(mask, -math.inf).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norms[1](x))

class Language(nn.Module):
    def __init__(self, width, depth, words=8192, fused=True):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.Sequential(*[Block(width, fused) for _ in range(depth)])
    def forward(self, x):
        return self.head(self.blocks(self.words(x)))

def images(classes=1000):
    pairs = (64, 64), (64, 128), (128, 128), (128, 256), (256, 256)
    layers = [(nn.Conv2d(a, b, 3, 1 + (a < b), 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()) for a, b in pairs]
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes)
    return nn.Sequential(nn.Conv2d(3, 64, 7, 4, 3), *[layer for block in layers for layer in block], *ends).cuda()

def learn(model, optimizer, x, y, half=False):
    with torch.autocast("cuda", torch.bfloat16, enabled=bool(half)):
        result = model(x)
    F.cross_entropy(result.flatten(0, -2).float(), y.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def language(width: int, depth: int, batch: int, length: int, options: str, *step: str) -> str:
    """Return the code of a program that trains a language model. options: of its optimizer. step: lines of a step."""
    return f"""
model, x = Language({width}, {depth}).cuda(), torch.randint(0, 8192, ({batch}, {length}), device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), 1e-4, {options})
fused = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
def step(changed):
    {"; ".join(step)}
"""


LARGE = (8, 512, "fused=True")
FUSED = "learn(model, fused if changed else optimizer, x, x, half=True)"
PRECISION = "torch.set_float32_matmul_precision('%s')"
# By name, the rule, and the code: step(changed) of a program as it is and with the change.
PROGRAMS = {
    "language model in float32, TF32": (
        "tf32",
        language(768, 6, *LARGE, PRECISION % "high' if changed else 'highest", "learn(model, optimizer, x, x)"),
    ),
    "language model in TF32, autocast": (
        "low_precision",
        language(1024, 6, *LARGE, PRECISION % "high", "learn(model, optimizer, x, x, half=changed)"),
    ),
    "small language model, fused AdamW": ("optimizer", language(256, 8, 8, 256, "foreach=False", FUSED)),
    "language model with lists, fused AdamW": ("optimizer", language(384, 12, 4, 128, "foreach=True", FUSED)),
    "attention written out, fused": (
        "attention",
        """
models = [Language(512, 6, fused=fused).cuda() for fused in (False, True)]
optimizers = [torch.optim.AdamW(model.parameters(), 1e-4, fused=True) for model in models]
x = torch.randint(0, 8192, (8, 1024), device="cuda")
def step(changed):
    learn(models[changed], optimizers[changed], x, x, half=True)
""",
    ),
    "images from pageable memory, pinned": (
        "copy",
        """
model = images()
optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=True)
batches = [torch.rand(256, 3, 128, 128) for _ in range(4)]
pinned, y = [batch.pin_memory() for batch in batches], torch.randint(0, 1000, (256,), device="cuda")
def step(changed):
    x = pinned[0].cuda(non_blocking=True) if changed else batches[0].cuda()
    learn(model, optimizer, x, y, half=True)
""",
    ),
    "images in float16, channels last": (
        "layout",
        """
torch.backends.cudnn.benchmark = True
models = [images(), images().to(memory_format=torch.channels_last)]
optimizers = [torch.optim.SGD(model.parameters(), 0.1, fused=True) for model in models]
x, y = torch.rand(256, 3, 192, 192, device="cuda"), torch.randint(0, 1000, (256,), device="cuda")
xs = [x, x.contiguous(memory_format=torch.channels_last)]
def step(changed):
    learn(models[changed], optimizers[changed], xs[changed], y, half=True)
""",
    ),
    "loader in the program's process, 8 workers": (
        "data",
        """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, at): return (torch.rand(3, 96, 96) - 0.5).abs().sqrt(), at % 1000
model, loaders = images(), {}
optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=True)
torch.set_num_threads(1)
def step(changed):
    if changed not in loaders:
        loaders.clear()
        loaders[changed] = iter(torch.utils.data.DataLoader(Data(), 32, num_workers=8 if changed else 0))
    x, y = next(loaders[changed])
    learn(model, optimizer, x.cuda(), y.cuda())
""",
    ),
    "mean of each layer by item(), kept": (
        "sync",
        """
layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(24)).cuda()
optimizer, x = torch.optim.SGD(layers.parameters(), 1e-3, fused=True), torch.rand(256, 512, device="cuda")
def step(changed):
    y, means = x, []
    for layer in layers:
        y = F.relu(layer(y)) + y
        means.append(y.detach().mean() if changed else y.mean().item())
    y.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    "recurrent cells, CUDA graph": (
        "launch",
        """
cell, head, x = nn.GRUCell(128, 128).cuda(), nn.Linear(128, 16).cuda(), torch.rand(40, 32, 128, device="cuda")
optimizer, graphs = torch.optim.SGD([*cell.parameters(), *head.parameters()], 1e-3, foreach=True), []
def once():
    state = x.new_zeros(32, 128)
    for part in x:
        state = cell(part, state)
    head(state).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
def step(changed):
    if not changed:
        return once()
    if not graphs:
        with torch.cuda.stream(torch.cuda.Stream()):
            once()
        torch.cuda.synchronize()
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[0]):
            once()
    graphs[0].replay()
""",
    ),
}
WHOLE = """
import json, math, sys, time, torch
import torch.nn.functional as F
from torch import nn
turns, lasts, models, code, out = sys.argv[1:]
torch.manual_seed(0)
exec(models + code)
times = []
for changed in map(int, turns):
    for _ in range(3 if len(turns) > 1 else 0):
        step(changed)
    torch.cuda.synchronize()
    begin, count = time.perf_counter(), 0
    while time.perf_counter() < begin + float(lasts):
        step(changed)
        count += 1
    torch.cuda.synchronize()
    times.append((changed, (time.perf_counter() - begin) / count))
json.dump(times, open(out, "w"))
"""
LASTS, TURNS, ALONE = 2, "0101", 6  # s of a turn of the plain process, its turns, and s of the recorded one
CLOSE, OVER = 5.0, 3.0  # points of the step by which most gains may be off, and all may be promised too much


def main() -> None:
    options = arguments(__doc__ or "", ("cuda",))
    columns = ["program", "rule", "step, ms", "changed, ms", "gained, %", "said, %", "off, points", "step said / true"]
    report = Report("gains", columns, options.out, options.device)
    if optional("torch") is None:
        report.note("torch is not installed.")
        return report.finish()
    gpus: SimpleQueue[str] = SimpleQueue()
    for device in (device for device in fs.devices() if device.kind == "cuda"):
        gpus.put(str(device.index))
    with ThreadPoolExecutor(gpus.qsize()) as pool:
        found = list(pool.map(partial(measured, gpus), (code for _, code in PROGRAMS.values())))
    off = []
    for (name, (rule, _)), (times, summary) in zip(PROGRAMS.items(), found, strict=True):
        step, changed = (min(time for which, time in times if which == kind) for kind in (0, 1))
        bare = 1e-6 * (summary["recording"]["bare_step_us"] or math.nan)
        says = [one for one in summary["advice"] if one["rule"] == rule]
        said = 1e-4 * max((max(one["saving_us"], one["saving_alone_us"]) for one in says), default=0.0) / bare
        gained = 100 * (1 - changed / step)
        off.append(said - gained)
        cells = [f"{1e3 * step:.2f}", f"{1e3 * changed:.2f}", f"{gained:.1f}", f"{said:.1f}", f"{off[-1]:+.1f}"]
        report.row(name, rule, *cells, f"{bare / step:.3f}")
    far = sum(abs(one) > CLOSE for one in off)
    report.target(f"gains off by more than {CLOSE:g} points", far, 1, f"of {len(off)}")
    report.target("gains promised too high, points", max(off), OVER, "points")
    report.note(f"The median is off by {median(map(abs, off)):.1f} points.")
    report.finish()


def measured(gpus: SimpleQueue[str], code: str) -> tuple[list[tuple[int, float]], dict[str, Any]]:
    """Return whether steps were changed and their mean time in s, by turn, and the summary of the program as it is."""
    gpu = gpus.get()
    try:
        with tempfile.TemporaryDirectory(prefix="flopscope-benchmark-") as name:
            folder = Path(name)
            run(folder, gpu, [], TURNS, LASTS, code)
            times = json.loads((folder / "out.json").read_text())
            command = ["-m", "flopscope", "run", "--no-report", "--no-summary", "--json", str(folder / "summary.json")]
            run(folder, gpu, command, "0", ALONE, code)
            return times, json.loads((folder / "summary.json").read_text())
    finally:
        gpus.put(gpu)


def run(folder: Path, gpu: str, command: list[str], turns: str, lasts: float, code: str) -> None:
    program = folder / "program.py"
    program.write_text(WHOLE)
    whole = [sys.executable, *command, str(program), turns, str(lasts), MODELS, code, str(folder / "out.json")]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu}
    done = subprocess.run(whole, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"a program failed:\n{done.stderr}")


if __name__ == "__main__":
    main()

"""A Llama-like model that decodes: eagerly, replayed from a CUDA graph, and compiled with reduce-overhead.

The FLOPs and bytes of a step and the share of device time whose bytes are known, by fs.profile() and by
flopscope.torch.profile, with the watch on graphs; and the time of a replay with the watch on and off, in turns.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from harness import Report, arguments

import flopscope as fs

HIDDEN, LAYERS, HEADS, GROUPS, INNER, WORDS, BATCH, CONTEXT = 2048, 8, 16, 8, 5632, 32000, 8, 1024
STEPS, TURNS, REPLAYS = 5, 15, 200


def main() -> None:
    options = arguments(__doc__ or "", ("cuda",))
    report = Report("graphs", ["what", "value", "low", "high"], options.out, "cuda")
    watch = fs.watch_graphs()
    import torch

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    model = decoder(torch)
    model()
    replay = graphed(torch, model)
    compiled = reduced(torch, model)
    # Before torch's profiler has run: it stays attached to the process.
    times(report, watch, replay, torch)
    seen = {name: live(step) for name, step in (("graph", replay), ("reduce-overhead", compiled))}
    for name, prof in seen.items():
        add(report, f"{name}, fs.profile", prof)
    eager = by_torch(model)
    add(report, "eager, torch", eager)
    for name, step in (("graph", replay), ("reduce-overhead", compiled)):
        seen[f"{name}, torch"] = by_torch(step)
        add(report, f"{name}, torch", seen[f"{name}, torch"])
    for name, prof in seen.items():
        same(report, name, prof, eager)
    report.note(f"{watch!r}")
    report.finish()


def decoder(torch: Any) -> Callable[[], Any]:
    """Return a step of decoding one token of each sequence, with cached keys and values."""
    size = HIDDEN // HEADS
    make = {"device": "cuda", "dtype": torch.bfloat16}

    def weight(*shape: int) -> Any:
        return torch.randn(*shape, **make) / math.sqrt(shape[-1])

    layers = [
        {
            "qkv": weight((HEADS + 2 * GROUPS) * size, HIDDEN),
            "out": weight(HIDDEN, HIDDEN),
            "up": weight(2 * INNER, HIDDEN),
            "down": weight(HIDDEN, INNER),
            "norms": [torch.ones(HIDDEN, **make) for _ in range(2)],
            "keys": torch.randn(BATCH, GROUPS, CONTEXT, size, **make),
            "values": torch.randn(BATCH, GROUPS, CONTEXT, size, **make),
        }
        for _ in range(LAYERS)
    ]
    for layer in layers:  # else reduce-overhead refuses to capture what changes its inputs
        for tensor in (*layer["norms"], *(layer[name] for name in ("qkv", "out", "up", "down", "keys", "values"))):
            torch._dynamo.mark_static_address(tensor)
    table, head, last = weight(WORDS, HIDDEN), weight(WORDS, HIDDEN), torch.ones(HIDDEN, **make)
    tokens = torch.zeros(BATCH, 1, device="cuda", dtype=torch.long)
    place = torch.tensor([CONTEXT - 1], device="cuda")
    for tensor in (table, head, last, tokens, place):
        torch._dynamo.mark_static_address(tensor)
    functional = torch.nn.functional

    def step() -> Any:
        x = functional.embedding(tokens, table)
        for layer in layers:
            y = functional.rms_norm(x, (HIDDEN,), layer["norms"][0])
            qkv = functional.linear(y, layer["qkv"]).view(BATCH, 1, HEADS + 2 * GROUPS, size).transpose(1, 2)
            q, k, v = qkv.split([HEADS, GROUPS, GROUPS], dim=1)
            layer["keys"].index_copy_(2, place, k)
            layer["values"].index_copy_(2, place, v)
            heads = functional.scaled_dot_product_attention(q, layer["keys"], layer["values"], enable_gqa=True)
            x = x + functional.linear(heads.transpose(1, 2).reshape(BATCH, 1, HIDDEN), layer["out"])
            y = functional.rms_norm(x, (HIDDEN,), layer["norms"][1])
            gate, up = functional.linear(y, layer["up"]).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer["down"])
        return functional.linear(functional.rms_norm(x, (HIDDEN,), last), head).argmax(-1)

    return step


def graphed(torch: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """Capture a step in a CUDA graph, and return its replay."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()
    return graph.replay  # type: ignore[no-any-return]


def reduced(torch: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    compiled = torch.compile(step, mode="reduce-overhead")
    for _ in range(8):
        compiled()
    torch.cuda.synchronize()
    return compiled  # type: ignore[no-any-return]


# Work -----------------------------------------------------------------------------------------------------------------


def live(step: Callable[[], Any]) -> Any:
    with fs.profile(timer="cupti") as prof:
        for _ in range(STEPS):
            step()
    return prof


def by_torch(step: Callable[[], Any]) -> Any:
    import flopscope.torch as ft

    step()
    with ft.profile(activities=[ft.ProfilerActivity.CPU, ft.ProfilerActivity.CUDA], record_shapes=True) as prof:
        for _ in range(STEPS):
            step()
    return prof


def work(prof: Any) -> dict[str, float]:
    """Return FLOPs and bytes per step of ops, and the share of device time whose bytes are known."""
    rows = [row for row in prof.key_averages(peaks="none") if row.device_type == "cpu" and not row.is_user_annotation]
    coverage = prof.coverage()
    return {
        "flops": sum(row.flops for row in rows if row.flops == row.flops) / STEPS,
        "bytes": sum(row.bytes_total_moved for row in rows if row.bytes_total_moved == row.bytes_total_moved) / STEPS,
        "coverage": coverage["bytes"],
        "device_us": sum(row.self_device_time_total for row in rows) / STEPS,
    }


def add(report: Report, name: str, prof: Any) -> None:
    for what, value in work(prof).items():
        report.row(f"{name}: {what}", f"{value:.6g}", "", "")
        report.keep(f"{name}: {what}", {"value": [value]}, "")
    missing = [f"{key} {us:.0f} us" for key, us in prof.coverage()["unmodelled"][:5]]
    if missing:
        report.note(f"{name}: not modelled: {', '.join(missing)}")


def same(report: Report, name: str, prof: Any, eager: Any) -> None:
    one, other = work(prof), work(eager)
    for what in ("flops", "bytes"):
        ratio = one[what] / other[what]
        report.row(f"{name}: {what}, of eager", f"{ratio:.4f}", "", "")


# Time -----------------------------------------------------------------------------------------------------------------


def times(report: Report, watch: fs.GraphWatch, replay: Callable[[], Any], torch: Any) -> None:
    """Time replays with the watch on and off, in turns."""

    def sample() -> float:
        for _ in range(10):
            replay()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(REPLAYS):
            replay()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / REPLAYS * 1e6

    found: dict[str, list[float]] = {"off": [], "on": []}
    for turn in range(TURNS):
        for state in ("on", "off") if turn % 2 else ("off", "on"):
            if state == "on":
                fs.watch_graphs()
            else:
                watch.stop()
            found[state].append(sample())
    fs.watch_graphs()
    for state, values in found.items():
        middle = statistics.median(values)
        report.row(f"replay, watch {state}, us", f"{middle:.2f}", f"{min(values):.2f}", f"{max(values):.2f}")
    report.keep("replay", found, "us", ours="on")
    ratio = statistics.median(on / off for on, off in zip(found["on"], found["off"], strict=True))
    report.row("replay, on / off", f"{ratio:.4f}", "", "")
    report.target("replay, watch on, of off", ratio, 1.01, "")


if __name__ == "__main__":
    main()

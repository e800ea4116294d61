"""A model that decodes, replayed from a CUDA graph whose capture was watched: the replay's time and its work.

The time of a replay with the watch on and off, in turns; the FLOPs and bytes of a step, and the share of device time
whose bytes are known, beside those of the eager step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from harness import Report, arguments, spread

import flopscope as fs

WIDTH, LAYERS, HEADS, BATCH = 2048, 8, 16, 8
STEPS, TURNS, REPLAYS = 5, 15, 200


def main() -> None:
    options = arguments(__doc__ or "", ("cuda",))
    report = Report("graphs", ["what", "value", "low", "high"], options.out, "cuda")
    watch = fs.watch_graphs()
    import torch

    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    model = decoder(torch)
    replay = graphed(torch, model)
    times(report, watch, replay, torch)  # before torch's profiler has run, which stays attached to the process
    with fs.profile(timer="cupti") as prof:
        for _ in range(STEPS):
            replay()
    with by_torch() as eager:
        for _ in range(STEPS):
            model()
    one, other = work(prof), work(eager)
    for what, value in one.items():
        report.row(f"{what} of a replay", f"{value:.6g}", "", "")
        report.row(f"{what}, over that of an eager step", f"{value / other[what]:.4f}", "", "")
    report.note(f"{watch!r}")
    report.finish()


def decoder(torch: Any) -> Callable[[], Any]:
    """Return a step of decoding one token of each sequence."""
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, dtype=torch.bfloat16)
    model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).cuda().train()
    x = torch.randn(BATCH, 1, WIDTH, device="cuda", dtype=torch.bfloat16)
    return lambda: model(x)


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


def by_torch() -> Any:
    import flopscope.torch as ft

    return ft.profile(activities=[ft.ProfilerActivity.CPU, ft.ProfilerActivity.CUDA], record_shapes=True)


def work(prof: Any) -> dict[str, float]:
    """Return FLOPs and bytes per step of ops, and the share of device time whose bytes are known."""
    rows = [row for row in prof.key_averages(peaks="none") if row.device_type == "cpu" and not row.is_user_annotation]
    return {
        "flops": sum(row.flops for row in rows if row.flops == row.flops) / STEPS,
        "bytes": sum(row.bytes_total_moved for row in rows if row.bytes_total_moved == row.bytes_total_moved) / STEPS,
        "coverage": prof.coverage()["bytes"],
    }


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
        report.row(f"replay, watch {state}, us", *spread(values).cells(2))
    report.keep("replay", found, "us", ours="on")
    over = statistics.median(on / off for on, off in zip(found["on"], found["off"], strict=True))
    report.target("replay, watch on, of off", over, 1.01, "")


if __name__ == "__main__":
    main()

"""Ranges of NVTX that real libraries mark around real kernels. Each program runs in a process of its own."""

from pathlib import Path

import pytest
from helpers.nvtx_programs import printed

SHOWN = """
def within(prof, name):
    # kernels launched inside ranges of the name, at any depth, others, and the device times
    found = []
    for kernel in (e for e in prof.events() if e.kind == "kernel"):
        at = kernel.launcher
        while at is not None and at.name != name:
            at = at.cpu_parent
        found.append(at is not None)
    rows = [row for row in prof.key_averages(peaks="none") if row.key == name and row.device_type == "cpu"]
    durations = [e.time_range.elapsed_us() for e in prof.events() if e.kind == "kernel"]
    inside = sum(time for time, here in zip(durations, found) if here)
    return [row.count for row in rows], sum(found), len(found) - sum(found), inside, sum(
        row.device_time_total for row in rows)
"""


OF_CUPY = """
import cupy, cupyx.profiler
x = cupy.random.rand(512, 512)
y = x @ x
mark = lambda name: cupyx.profiler.time_range(name, color_id=1)
product = lambda: cupy.matmul(x, x, out=y)
other, wait = lambda: cupy.add(x, y, out=x), cupy.cuda.Device().synchronize
"""
OF_TORCH = """
import torch, flopscope.torch
x = torch.rand(512, 512, device="cuda")
y = x @ x
mark, product = torch.cuda.nvtx.range, lambda: torch.mm(x, x, out=y)
other, wait = lambda: y.add_(1), torch.cuda.synchronize
"""


@pytest.mark.parametrize(
    ("library", "profiler"),
    [
        (OF_CUPY, "fs.profile(timer='cupti')"),
        (OF_TORCH, "fs.profile(timer='cupti')"),
        (OF_TORCH, "flopscope.torch.profile()"),
    ],
    ids=["cupy", "torch", "torch's profile"],
)
def test_ranges_of_libraries_have_their_kernels(tmp_path: Path, library: str, profiler: str) -> None:
    pytest.importorskip(library.split()[1].rstrip(","))
    program = f"""
import json, flopscope as fs
{library}
{SHOWN}
fs.watch_nvtx()
with {profiler} as prof:
    for _ in range(3):
        with mark("product"):
            product()
        other()
    wait()
print(json.dumps(within(prof if isinstance(prof, fs.profile) else prof.trace(), "product")))
"""
    counts, inside, outside, time, of_row = printed(tmp_path, program, CUDA_VISIBLE_DEVICES="0")
    assert counts == [3] and inside >= 3 and outside >= 3
    assert outside == 3 or library == OF_CUPY
    assert of_row == pytest.approx(time, rel=1e-6)


def test_nccl_tells_the_sizes_of_its_messages(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
import json, os, torch, flopscope as fs
import torch.distributed as dist
if not dist.is_nccl_available():
    print("null"); raise SystemExit
fs.watch_nvtx()
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000), RANK="0", WORLD_SIZE="1")
with fs.profile(timer="cupti") as prof:
    dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
    dist.all_reduce(torch.ones(1000, device="cuda"))
    torch.cuda.synchronize()
dist.destroy_process_group()
prof.export_chrome_trace("trace.json")
events = json.load(open("trace.json"))["traceEvents"]
print(json.dumps([e["args"]["payload"] for e in events if e["name"] == "NCCL: ncclAllReduce"]))
"""
    payloads = printed(tmp_path, program, CUDA_VISIBLE_DEVICES="0")
    if payloads is None:
        pytest.skip("this torch has no NCCL")
    assert len(payloads) == 1 and payloads[0]["Message size [bytes]"] == 4000


def test_kernels_of_jax_belong_to_the_instructions_that_xla_names(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    program = """
import json, os, flopscope as fs
fs.watch_nvtx()
os.environ["XLA_FLAGS"] = "--xla_gpu_enable_command_buffer= --xla_gpu_autotune_level=0"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax, jax.numpy as jnp
@jax.jit
def step(x):
    for _ in range(3):
        x = jnp.tanh(x @ x) + x.sum(1, keepdims=True)
    return x
x = jnp.ones((512, 512))
step(x).block_until_ready()
with fs.profile(timer="cupti") as prof:
    for _ in range(4):
        step(x).block_until_ready()
ranges = {e.name.partition("#")[0] for e in prof.events() if e.kind == "range"}
owners = {e.launcher.name for e in prof.events() if e.kind == "kernel" and e.launcher is not None}
print(json.dumps([sorted(ranges), sorted(owners), prof.hlo]))
"""
    ranges, owners, counts = printed(tmp_path, program, CUDA_VISIBLE_DEVICES="0")
    assert {"TSL: Thunk:", "TSL: XlaModule:"} <= {*ranges}
    assert owners and not any("Thunk" in name for name in owners)
    assert counts["by_name"] >= 0.9 * counts["works"] and counts["tied_ns"] >= 0.99 * counts["kernel_ns"]

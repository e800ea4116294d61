"""The work of real launches of Triton, as their kernels state it or their tensors limit it."""

import math
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import output_of

import flopscope as fs

torch = pytest.importorskip("torch")
kernels = pytest.importorskip("triton_kernel")

N = 1 << 24
SIDE = 2048
FLOPS, BYTES = 2 * SIDE**3, 2 * 3 * SIDE**2
NAME = f"product [{SIDE}x{SIDE}x{SIDE}]"


@pytest.fixture(scope="module")
def tensors() -> dict[str, Any]:
    """Tensors, and all kernels compiled."""
    x, y = (torch.randn(N, device="cuda") for _ in range(2))
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16) for _ in range(2))
    found = {"x": x, "y": y, "z": torch.empty_like(x), "a": a, "b": b, "c": torch.empty_like(a)}
    assert torch.equal(kernels.add_relu(x, y, found["z"]), torch.relu(x + y))
    expected = (a.double() @ b.double()).half()
    assert torch.allclose(kernels.product(a, b, found["c"]), expected, rtol=1e-2, atol=1e-1)
    return found


def launch(of: dict[str, Any], times: int = 3) -> None:
    for _ in range(times):
        kernels.product(of["a"], of["b"], of["c"])
        kernels.add_relu(of["x"], of["y"], of["z"])
    torch.cuda.synchronize()


def profiled(kind: str, run: Any) -> Any:
    if kind == "torch":
        from flopscope.torch import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
            run()
        return prof
    with fs.profile(timer="cupti") as prof:
        run()
    return prof


def rows_of(prof: Any) -> dict[str, Any]:
    return {row.key: row for row in prof.key_averages(peaks="datasheet")}


def check(rows: dict[str, Any], count: int) -> None:
    for key in (NAME, "product_kernel"):
        row = rows[key]
        assert (row.count, row.flops, row.bytes_total_moved) == (count, count * FLOPS, count * BYTES), key
        assert (row.flops_source, row.bytes_source, row.unit) == ("stated", "stated", "fp16_tensor"), key
        assert 10 < row.pct_roofline < 105 and row.bound != "memory", key
    for key in ("triton::add_relu_kernel", "add_relu_kernel"):
        row = rows[key]
        assert (row.count, row.bytes_total_moved, row.bytes_source) == (count, count * 12 * N, "estimated"), key
        assert math.isnan(row.flops) and row.bound == "memory" and 60 < row.pct_roofline < 105, key


@pytest.mark.parametrize("kind", ["own", "torch"])
def test_launches_have_their_work(kind: str, tensors: dict[str, Any]) -> None:
    prof = profiled(kind, lambda: launch(tensors))
    check(rows_of(prof), 3)
    sources = prof.coverage()["bytes_source"]
    assert sources["stated"] + sources["estimated"] > 0.99 and sources["stated"] > 0.05
    whole = prof.accounting().iloc[-1]
    assert whole["unmodelled"] < 0.01 * rows_of(prof)["product_kernel"].self_device_time_total


def test_a_kernel_that_updates_a_tensor_moves_it_twice(tensors: dict[str, Any]) -> None:
    x = tensors["x"].clone()
    prof = profiled("own", lambda: (kernels.add_relu(x, tensors["y"], x), torch.cuda.synchronize()))
    assert rows_of(prof)["add_relu_kernel"].bytes_total_moved == 12 * N


def test_float32_products_compute_on_tensor_cores(tensors: dict[str, Any]) -> None:
    a, b = tensors["a"].float(), tensors["b"].float()
    out = torch.empty_like(a)
    kernels.product(a, b, out)
    row = rows_of(profiled("own", lambda: kernels.product(a, b, out)))[NAME]
    assert row.unit == "tf32_tensor" and row.flops == FLOPS and 5 < row.pct_roofline < 105


def test_replays_of_a_graph_have_the_work_of_their_launches() -> None:
    code = """
import flopscope as fs
watch = fs.watch_graphs()
import torch, triton_kernel as kernels
x, y = (torch.randn(N, device="cuda") for _ in range(2))
a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.float16) for _ in range(2))
z, c = torch.empty_like(x), torch.empty_like(a)
def step():
    kernels.product(a, b, c)
    kernels.add_relu(x, y, z)
step()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
for kind in ("own", "torch"):
    from flopscope.torch import profile, ProfilerActivity
    own = fs.profile(timer="cupti")
    with own if kind == "own" else profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        for _ in range(3): graph.replay()
        torch.cuda.synchronize()
    for row in prof.key_averages(peaks="none"):
        if row.self_device_time_total > 0:
            print(kind, row.key.replace(" ", "_"), row.count, row.flops, row.bytes_total_moved)
""".replace("SIDE", str(SIDE)).replace("N,", f"{N},")
    printed = [line.split() for line in output_of(code, cwd=Path(__file__).parent).splitlines()]
    for kind in ("own", "torch"):
        found = {words[1]: words[2:] for words in printed if words[0] == kind}
        for key in (NAME.replace(" ", "_"), "product_kernel"):
            assert [float(word) for word in found[key]] == [3, 3 * FLOPS, 3 * BYTES], (kind, key, found)
        for key in ("triton::add_relu_kernel", "add_relu_kernel"):
            assert float(found[key][2]) == 3 * 12 * N, (kind, key, found)


@pytest.mark.parametrize("kind", ["own", "torch"])
def test_kernels_of_inductor_keep_their_rules(kind: str) -> None:
    x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
    kernels.compiled(x, y)
    prof = profiled(kind, lambda: (kernels.compiled(x, y), torch.cuda.synchronize()))
    assert not [key for key in rows_of(prof) if key.startswith("triton::")]


def test_kernels_that_inductor_compiles_meanwhile_have_its_fast_launcher() -> None:
    code = """
import flopscope as fs, torch
from torch._inductor.runtime import triton_heuristics as heuristics
made = []
init = heuristics.StaticTritonCompileResult.make_launcher
def make(self, *args, **kwargs):
    made.append("static")
    return init(self, *args, **kwargs)
heuristics.StaticTritonCompileResult.make_launcher = make
x = torch.randn(1 << 20, device="cuda")
with fs.profile(timer="cupti") as prof:
    torch.compile(lambda u: torch.relu(u) * 3)(x)
    torch.cuda.synchronize()
print(len(made))
"""
    if not hasattr(pytest.importorskip("torch._inductor.runtime.triton_heuristics"), "StaticTritonCompileResult"):
        pytest.skip("this torch has another fast launcher")
    assert int(output_of(code).split()[-1]) > 0


def test_counted_bytes_take_the_place_of_a_limit(tensors: dict[str, Any]) -> None:
    with fs.profile(counters="require") as prof:
        launch(tensors, 40)
    rows = rows_of(prof)
    for key in ("triton::add_relu_kernel", "add_relu_kernel"):
        assert rows[key].bytes_source == "counted"
        assert 0.85 <= rows[key].bytes_total_moved / (40 * 12 * N) <= 1.05  # the L2 holds a part of the inputs
    assert rows[NAME].bytes_source == "stated" and rows[NAME].bytes_total_moved == 40 * BYTES

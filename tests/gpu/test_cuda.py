"""CUDA from Python: sharing and copying memory, the memory cache, errors, and device times."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers.processes import output_of

import flopscope as fs


def only(table: fs.EventTable, key: str) -> fs.EventRow:
    (row,) = [row for row in table if row.key == key]
    return row


def test_the_gpu_is_the_default_device_and_listed() -> None:
    assert fs.default_device() == "cuda:0" and fs.empty((2,)).device == "cuda:0"
    devices = fs.devices()
    gpu = next(device for device in devices if device.kind == "cuda")
    assert gpu.name and gpu.properties["sm_count"] > 0


def test_tensors_move_between_host_and_device() -> None:
    values = np.random.default_rng(0).random((33, 65))
    x = fs.from_numpy(values, device="cuda")
    assert x.device == "cuda:0" and (np.asarray(x) == values).all()
    assert (x.to("cpu").numpy() == values).all()
    assert (fs.from_numpy(values.T).to("cuda").numpy() == values.T).all()
    assert x.to("cuda") is x
    half = fs.from_numpy(values).to("float16", "cuda")
    assert half.dtype == "float16" and half.device == "cuda:0"
    target = fs.zeros((33, 65), dtype="float64", device="cuda")
    fs.copy_(target, fs.from_numpy(values))
    assert (target.numpy() == values).all()
    with pytest.raises(ValueError, match=r"devices differ"):
        fs.add(x, fs.from_numpy(values))


def test_shares_memory_with_torch() -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    x = fs.from_dlpack(t.T)
    assert x.data_ptr == t.data_ptr() and x.shape == (4, 3) and x.strides == (1, 4)
    fs.mul_(x, 2)
    assert (t.cpu() == 2 * torch.arange(12).reshape(3, 4)).all()
    back = torch.from_dlpack(x)
    assert back.data_ptr() == t.data_ptr()
    bf = fs.rand((5, 7), dtype="bfloat16", device="cuda")
    assert torch.from_dlpack(bf).dtype is torch.bfloat16
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # the stream of the consumer must wait for the stream of flopscope
        y = fs.rand((4096, 4096), device="cuda")
        z = fs.mul(y, 2)
        assert torch.equal(torch.from_dlpack(z), torch.from_dlpack(y) * 2)


def test_shares_memory_with_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    c = cupy.arange(10, dtype="float32")
    x = fs.from_dlpack(c)
    fs.add_(x, 1)
    assert (cupy.asnumpy(c) == np.arange(10) + 1).all()
    assert cupy.from_dlpack(x).data.ptr == c.data.ptr
    assert cupy.asarray(x).data.ptr == c.data.ptr  # __cuda_array_interface__
    interface = x.__cuda_array_interface__
    assert interface["shape"] == (10,) and interface["typestr"] == "<f4" and interface["version"] == 3


def test_freed_memory_is_cached_and_empty_cache_releases_it() -> None:
    gc.collect()
    fs.empty_cache("cuda")
    allocated, reserved = fs.memory_allocated("cuda"), fs.memory_reserved("cuda")  # of what other tests keep
    x = fs.empty((1 << 24,), device="cuda")
    address = x.data_ptr
    assert fs.memory_allocated("cuda") - allocated >= x.nbytes
    del x
    assert fs.memory_allocated("cuda") == allocated
    assert fs.memory_reserved("cuda") >= reserved + (1 << 26)
    assert fs.empty((1 << 24,), device="cuda").data_ptr == address
    fs.empty_cache("cuda")
    assert fs.memory_reserved("cuda") == reserved


WORKSPACE = 32 << 20  # of matrix products, in bytes
PRODUCT = """
import gc
import numpy as np
import flopscope as fs
rng = np.random.default_rng(0)
host_a, host_b = rng.random((64, 1 << 16), np.float32), rng.random((1 << 16, 64), np.float32)  # split along its length
a, b = fs.from_numpy(host_a).to("cuda"), fs.from_numpy(host_b).to("cuda")
out = fs.zeros((64, 64), device="cuda")
def is_right():
    return np.allclose(np.asarray(out), host_a.astype(float) @ host_b.astype(float), rtol=1e-3)
def more():
    return fs.memory_reserved("cuda") - fs.memory_allocated("cuda")
def emptied():
    gc.collect()
    fs.empty_cache("cuda")
    return fs.memory_allocated("cuda"), fs.memory_reserved("cuda")
"""


def test_empty_cache_frees_the_workspaces_of_products_and_measurements() -> None:
    output_of(f"""{PRODUCT}
fs.matmul(a, b, out=out)
assert is_right() and more() >= {WORKSPACE}, more()
fs._core.measure_flush("cuda:0")
l2 = fs._core.cuda_device_properties(0)["l2_bytes"]
assert more() >= {WORKSPACE} + 3 * l2 - 16, more()
fs.empty_cache("cuda")
assert more() < 2 << 20, more()  # the rounding of three tensors
fs._core.measure_flush("cuda:0")
fs.matmul(a, b, out=fs.fill_(out, 0))
assert is_right() and more() >= {WORKSPACE} + 3 * l2 - 16, more()
del a, b, out
assert emptied() == (0, 0), emptied()
""")


def test_a_workspace_in_a_graph_stays_until_the_graph_is_freed() -> None:
    output_of(f"""{PRODUCT}
fs.matmul(a, b, out=out)  # cuBLASLt is loaded before the capture
graph = fs._core.measure_graph("cuda:0", lambda: fs.matmul(a, b, out=out), 2)
fs.empty_cache("cuda")
assert more() >= {WORKSPACE}, more()
others = [fs.zeros(({WORKSPACE} // 4,), device="cuda") for _ in range(4)]  # one would lie where the workspace was
fs.fill_(out, 0)
fs._core.measure_replay(graph)
assert is_right() and all(not np.asarray(other).any() for other in others)
del graph, others, a, b, out
assert emptied() == (0, 0), emptied()
""")


def test_out_of_memory_names_the_size_and_later_ops_work() -> None:
    with pytest.raises(MemoryError, match=r"(GiB|TiB).*cuda:0|cuda:0.*(GiB|TiB)"):
        fs.empty((1 << 40,), device="cuda")
    x = fs.ones((3,), device="cuda")
    assert fs.sum(x).item() == 3


def test_device_times_come_from_events() -> None:
    x = fs.rand((8192, 8192), device="cuda")
    fs.sin(x)
    with fs.profile(record_shapes=True, profile_memory=True, timer="event") as prof, fs.record_function("outer"):
        for _ in range(10):
            fs.sin(x)
        fs.add(x, x)
    table = prof.key_averages()
    sin, outer = only(table, "flopscope::sin"), only(table, "outer")
    assert sin.count == 10 and sin.timing_source == "event"
    assert 0 < sin.self_device_time_total <= sin.device_time_total <= outer.device_time_total
    assert outer.self_device_time_total == 0
    assert sin.device_busy_time == pytest.approx(sin.self_device_time_total)
    assert sin.gbytes_per_s == pytest.approx(sin.bytes_total_moved / sin.device_busy_time / 1e3, rel=1e-6)
    assert sin.bound == "memory" and 30 < sin.pct_peak_bandwidth < 110
    assert sin.self_device_memory_usage == 0 or sin.self_device_memory_usage >= 8192 * 8192 * 4
    assert prof.dropped == 0 and prof.coverage()["bytes"] == 1
    assert "Self CUDA" in table.table()


def test_copies_between_devices_are_timed_on_the_gpu() -> None:
    x = fs.rand((1 << 20,), device="cuda")
    host = x.to("cpu")
    with fs.profile(record_shapes=True, timer="event") as prof:
        x.to("cpu")
        host.to("cuda")
    row = only(prof.key_averages(), "flopscope::copy")
    assert row.count == 2 and row.timing_source == "event" and row.self_device_time_total > 0
    assert row.bytes_read == row.bytes_written == 2 * (1 << 22)


def test_a_profile_of_many_ops_loses_none() -> None:
    x = fs.rand((64,), device="cuda")
    fs.neg(x)
    with fs.profile() as prof:
        for _ in range(10_000):
            fs.neg(x)
    row = only(prof.key_averages(), "flopscope::neg")
    assert row.count == 10_000 and prof.dropped == 0
    assert row.time_min > 0 and row.bound == "launch"
    with fs.profile() as again:
        fs.neg(x)
    assert only(again.key_averages(), "flopscope::neg").count == 1


def test_a_large_matmul_is_compute_bound() -> None:
    x = fs.rand((4096, 4096), dtype="bfloat16", device="cuda")
    fs.matmul(x, x)
    with fs.profile() as prof:
        for _ in range(5):
            fs.matmul(x, x)
    row = only(prof.key_averages(), "flopscope::matmul")
    assert row.bound == "compute" and 40 < row.pct_peak_flops < 115
    assert row.bytes_read == 5 * 2 * 4096**2


def test_threads_share_the_device() -> None:
    def work(seed: int) -> float:
        x = fs.from_numpy(np.full((257, 129), seed, dtype=np.float32), device="cuda")
        for _ in range(50):
            x = fs.add(x, 1)
        return fs.mean(x).item()

    with fs.profile() as prof, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [seed + 50 for seed in range(16)]
    assert only(prof.key_averages(), "flopscope::add").count == 16 * 50


def test_cuda_in_a_forked_child_is_an_error() -> None:
    code = """
import os, sys, flopscope as fs
fs.ones((3,), device="cuda")
child = os.fork()
if child == 0:
    try:
        fs.ones((3,), device="cuda")
    except RuntimeError as why:
        os._exit(0 if "fork" in str(why) else 2)
    os._exit(3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    output_of(code)

"""Capture by CUPTI on a real GPU: recorded activity, its launching ops, and its times."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from helpers.processes import output_of

import flopscope as fs
from flopscope.cli import bench


def rows(prof: fs.profile) -> dict[tuple[str, str], fs.EventRow]:
    return {(row.key, row.device_type): row for row in prof.key_averages(peaks="none")}


def kernels(prof: fs.profile) -> list[fs.EventRow]:
    """Return the rows of work on the device, without annotations."""
    return [row for row in prof.key_averages(peaks="none") if row.device_type == "cuda" and not row.is_user_annotation]


@pytest.fixture
def x() -> fs.Tensor:
    tensor = fs.rand((2048, 2048), device="cuda")
    fs.sin(tensor)
    fs.synchronize("cuda")
    return tensor


def test_every_op_of_the_benchmark_program_has_a_kernel() -> None:
    program = bench._Program(1024, "float32", "cuda")
    for step in bench.OPS.values():
        step(program)
    with fs.profile(timer="cupti") as prof:
        for step in bench.OPS.values():
            step(program)
    found = rows(prof)
    ops = [row for (key, _), row in found.items() if key.startswith("flopscope::")]
    assert len(ops) == len(bench.OPS)
    assert all(row.timing_source == "cupti" and row.self_device_time_total > 0 for row in ops)
    assert sum(row.self_device_time_total for row in ops) == pytest.approx(
        sum(row.self_device_time_total for row in kernels(prof))
    )
    assert prof.dropped == 0


def test_copies_and_fills_are_recorded(x: fs.Tensor) -> None:
    torch = pytest.importorskip("torch")
    with fs.profile(timer="cupti") as prof:
        x.to("cpu")
        torch.zeros(1 << 20, device="cuda")
        y = torch.empty(1 << 20, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.current_stream().synchronize()
        del y
    names = {row.key for row in kernels(prof)}
    assert any(name.startswith("Memcpy DtoH (Device -> ") for name in names), names
    assert any(name.startswith("Memset") or "fill" in name.lower() for name in names), names


@pytest.mark.parametrize("library", ["torch", "cupy", "triton"])
def test_kernels_of_any_library_belong_to_the_range_around_them(library: str) -> None:
    run = call_of(library)
    run()
    fs.synchronize("cuda")
    with fs.profile(timer="cupti") as prof, fs.record_function("mine", bytes=8 << 20):
        for _ in range(5):
            run()
    mine = rows(prof)["mine", "cpu"]
    work = kernels(prof)
    assert sum(row.count for row in work) >= 5
    assert mine.device_time_total == pytest.approx(sum(row.self_device_time_total for row in work))
    assert mine.bytes_total_moved == 8 << 20 and mine.gbytes_per_s > 0
    calls = [row for (key, _), row in rows(prof).items() if key.startswith(("cudaLaunchKernel", "cuLaunchKernel"))]
    assert sum(row.count for row in calls) >= 5


def call_of(library: str) -> Callable[[], Any]:
    module = pytest.importorskip(library)
    if library == "cupy":
        ones = module.ones(1 << 20, dtype="float32")
        return lambda: module.sin(ones)
    torch = pytest.importorskip("torch")
    a = torch.randn(1 << 20, device="cuda")
    if library == "torch":
        return lambda: torch.sin(a)
    from triton_kernel import double

    return lambda: double(a)


def test_kernels_of_graph_replays_are_recorded() -> None:
    torch = pytest.importorskip("torch")
    a = torch.randn(512, 512, device="cuda")
    b = torch.empty_like(a)
    torch.sin(a, out=b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(7):
            torch.sin(a, out=b)
    with fs.profile(timer="cupti") as prof, fs.record_function("replays"):
        for _ in range(3):
            graph.replay()
    found = rows(prof)
    assert sum(row.count for row in kernels(prof)) == 21 and prof.dropped == 0
    assert found["cudaGraphLaunch", "cpu"].count == 3
    assert found["replays", "cpu"].device_time_total == pytest.approx(sum(k.device_time_total for k in kernels(prof)))


def test_threads_and_streams_have_separate_kernels_and_overlaps_count_once() -> None:
    torch = pytest.importorskip("torch")
    a = torch.randn(64, 1024, device="cuda")  # small enough for kernels of several streams to overlap
    torch.sin(a)
    start = threading.Barrier(4)

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        start.wait()
        with torch.cuda.stream(stream), fs.record_function(f"thread {number}"):
            for _ in range(200):
                torch.sin(a)
            stream.synchronize()

    with fs.profile(timer="cupti") as prof, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = rows(prof)
    work_rows = kernels(prof)
    total = sum(row.self_device_time_total for row in work_rows)
    assert sum(row.count for row in work_rows) == 800 and prof.dropped == 0
    assert sum(found[f"thread {number}", "cpu"].device_time_total for number in range(4)) == pytest.approx(total)
    assert max(row.device_busy_time for row in work_rows) <= total


def test_two_devices_have_separate_summaries() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("this test needs two GPUs")
    tensors = [torch.randn(2048, 2048, device=f"cuda:{index}") for index in range(2)]
    native = fs.rand((2048, 2048), device="cuda:1")

    def work_on_both() -> None:
        with fs.record_function("both"):
            for tensor in tensors:
                torch.sin(tensor)
            fs.sin(native)
        tensors[0].to("cuda:1")

    work_on_both()
    with fs.profile(timer="cupti") as prof:
        work_on_both()
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
    work = kernels(prof)
    assert sum(row.count for row in work) == 4 and prof.dropped == 0
    assert any("PtoP" in row.key for row in work), [row.key for row in work]
    assert rows(prof)["both", "cpu"].device_time_total == pytest.approx(
        sum(row.self_device_time_total for row in work if "PtoP" not in row.key)
    )
    summary = prof.gpu_summary()
    assert list(summary["device"]) == [0, 1] and (summary["gpu_utilization"] > 0).all()
    assert rows(prof)["flopscope::sin", "cpu"].timing_source == "cupti"


def test_profiles_can_start_and_stop_while_threads_launch() -> None:
    torch = pytest.importorskip("torch")
    a = torch.randn(1 << 16, device="cuda")
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            torch.sin(a)

    with ThreadPoolExecutor(3) as pool:
        spinning = [pool.submit(spin) for _ in range(3)]
        try:
            for _ in range(10):
                with fs.profile(timer="cupti") as prof:
                    stop.wait(0.02)
                assert kernels(prof)
        finally:
            stop.set()
    assert all(one.exception() is None for one in spinning)


SINES = """
import torch
tensors = [torch.randn(1 << bits, device="cuda") for bits in (16, 20, 22, 23)]
def run():
    for tensor in tensors:
        for _ in range(50):
            torch.sin(tensor)
        torch.cuda.synchronize()
run()
"""


def test_kernel_times_agree_with_those_of_torch() -> None:
    pytest.importorskip("torch")
    scope: dict[str, Any] = {}
    exec(SINES, scope)
    with fs.profile(timer="cupti") as ours:
        scope["run"]()
    mine = sum(row.self_device_time_total for row in kernels(ours) if "sin" in row.key)
    theirs = """
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CUDA]) as prof:
    run()
print(sum(row.self_device_time_total for row in prof.key_averages() if "sin" in row.key))
"""
    assert mine == pytest.approx(float(output_of(SINES + theirs)), rel=0.02)


def test_a_profile_can_start_before_cuda_is_initialized() -> None:
    program = """
        import flopscope as fs
        with fs.profile(timer="cupti") as prof:
            fs.sin(fs.ones((256, 256), device="cuda"))
        found = {(r.key, r.device_type): r for r in prof.key_averages(peaks="none")}
        sin = found["flopscope::sin", "cpu"]
        assert sin.timing_source == "cupti" and 0 < sin.self_device_time_total < 100, sin.self_device_time_total
        print(prof.dropped)
    """
    assert output_of(program) == "0\n"


def test_a_context_can_be_destroyed_during_a_profile() -> None:
    program = """
        import torch, flopscope as fs
        a = torch.ones(1 << 20, device="cuda")
        with fs.profile(timer="cupti") as prof:
            torch.sin(a)
            torch.cuda.synchronize()
            try:
                torch.cuda.cudart().cudaDeviceReset()
            except AttributeError:
                import ctypes
                driver = ctypes.CDLL("libcuda.so.1")
                assert driver.cuDevicePrimaryCtxReset_v2(0) == 0
        print(sum(r.count for r in prof.key_averages(peaks="none") if r.device_type == "cuda"), flush=True)
        import os
        os._exit(0)
    """
    assert int(output_of(program)) >= 1


def test_a_finished_capture_releases_cupti() -> None:
    """After a capture another client can subscribe, and the process holds no resources of the capture."""
    program = """
        import ctypes, flopscope as fs
        from flopscope import _core
        from flopscope.support.package import find_library
        x = fs.ones((16, 16), device="cuda")
        library = ctypes.CDLL(find_library("cupti"))
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
        callback = kind(lambda *_: None)
        for _ in range(3):
            with fs.profile(timer="cupti") as prof:
                recorder = prof._live
                fs.sin(x)
                taken = ctypes.c_void_p()
                assert library.cuptiSubscribe(ctypes.byref(taken), callback, None) == 39
            assert recorder.capture["taken"] == 0
            handle = ctypes.c_void_p()
            assert library.cuptiSubscribe(ctypes.byref(handle), callback, None) == 0
            assert library.cuptiUnsubscribe(handle) == 0
    """
    output_of(program)


def test_earlier_profiles_of_torch_keep_their_device_times() -> None:
    torch, module = pytest.importorskip("torch"), pytest.importorskip("flopscope.torch")
    profs = [module.profile() for _ in range(3)]
    for prof in profs:
        with prof:
            torch.randn(1 << 16, device="cuda")
    assert all(kernels(prof)[0].self_device_time_total > 0 for prof in profs)

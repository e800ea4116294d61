"""Exports of Nsight Systems: replays of CUDA graphs, GPU metrics, and memory of the device."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.captures import KERNEL, RTX3080, Nsys, global_pid, query
from helpers.hand_traces import rewritten
from helpers.nsys_programs import ADD, SGEMM, device_rows, graph_program, rows

import flopscope as fs
from flopscope.read import nsys
from flopscope.read.database import Database, Reading

pytestmark = pytest.mark.usefixtures("reader")

# Graphs ---------------------------------------------------------------------------------------------------------------


def test_replayed_kernels_belong_to_captured_ops_and_to_what_encloses_the_launch(tmp_path: Path) -> None:
    made = graph_program()
    made.nvtx("iteration 0", 0, 900)
    made.nvtx("warm up", 50, 600)
    made.call("cudaStreamBeginCapture_v10000", 80, 85, 7)
    made.nvtx("block", 86, 300)
    for step in range(3):
        made.nvtx(f"iteration {step + 1}", 900 + 1000 * step, 1800 + 1000 * step)
    prof = made.load(tmp_path)
    found, product, sum_ = rows(prof, "cpu"), 2 * 64 * 32 * 16, 64 * 16
    assert found["aten::mm"].count == found["block"].count == 1 + 3, "the capture and three replays"
    assert found["aten::mm"].self_device_time_total == pytest.approx(3 * 0.05)
    assert found["aten::mm"].flops == 3 * product, "once for each replay"
    assert found["aten::add"].self_device_time_total == pytest.approx(3 * 0.02)
    assert found["aten::add"].bytes_total_moved == 3 * 4 * 3 * 64 * 16
    assert found["replay"].device_time_total == found["block"].device_time_total == pytest.approx(3 * 0.07)
    assert found["aten::linear"].flops_total == 3 * product and found["aten::linear"].flops == 0
    assert found["iteration 0"].device_time_total == 0 and found["iteration 0"].flops_total == 0
    assert found["warm up"].device_time_total == 0 and found["warm up"].count == 1, "around the capture"
    for step in (1, 2, 3):
        assert (found[f"iteration {step}"].flops_total, found[f"iteration {step}"].count) == (product + sum_, 1)
    after = rows(rewritten(prof, tmp_path), "cpu")
    for op in ("aten::mm", "aten::add", "aten::linear"):
        assert (after[op].count, after[op].flops) == (found[op].count, found[op].flops)


def test_the_body_of_a_loop_counts_each_round(tmp_path: Path) -> None:
    """A conditional node launches its body as often as it says: one record for each round, of the same node."""
    made = graph_program()
    for launch in (50, 51):
        for round_ in (1, 2):
            at = 5000 + 1000 * launch + 100 * round_
            made.kernel(SGEMM, at, at + 50, launch, graphNodeId=31, graphId=9)
    found = rows(made.load(tmp_path), "cpu")
    assert found["aten::mm"].flops == (3 + 4) * 2 * 64 * 32 * 16 and found["aten::mm"].count == 1 + 3 + 4
    assert found["aten::add"].count == 1 + 3


@pytest.mark.parametrize("clones", [[(31, 32), (32, 31)], [(31, 31)], [(31, 5)], []], ids=str)
def test_nodes_of_unknown_capture_are_the_launchs(clones: list[tuple[int, int]], tmp_path: Path) -> None:
    made = graph_program()
    made.tables["CUDA_GRAPH_NODE_EVENTS"] = []
    for node, original in clones:
        made.node(node, 330, original=original)
    if not clones:
        del made.tables["CUDA_GRAPH_NODE_EVENTS"]
    found = rows(made.load(tmp_path), "cpu")
    assert found["replay"].device_time_total == pytest.approx(3 * 0.07)
    assert found["aten::mm"].self_device_time_total == 0


def test_a_captured_op_that_never_ran_did_no_work(tmp_path: Path) -> None:
    made = graph_program()
    made.nvtx("aten::mm, op_id = 9, sizes = [[8, 8], [8, 8]]", 400, 490)
    made.node(13, 420)
    made.tables[KERNEL] = made.tables[KERNEL][:1]
    found = rows(made.load(tmp_path), "cpu")
    assert found["aten::mm"].flops == 2 * 64 * 32 * 16 and not found["aten::add"].flops > 0


def test_a_replay_without_its_kernels_is_one_row_that_says_why(tmp_path: Path) -> None:
    made = Nsys()
    for replay in range(2):
        made.call("cudaGraphLaunch_v10000", 100 * replay, 100 * replay + 10, 50 + replay)
        times = (100 * replay + 20, 100 * replay + 90)
        made.work("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *times, 50 + replay, 42, 0, graphId=9)
    with pytest.warns(UserWarning, match=r"2 replays of CUDA graphs .* --cuda-graph-trace=node"):
        prof = made.load(tmp_path)
    assert device_rows(prof) == {"CUDA graph 9 (replayed; its kernels were not recorded)": (2, 140)}


# GPU metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [("metricId", "metricName"), ("id", "name")], ids=["new", "old"])
def test_gpu_metrics_become_samples(columns: tuple[str, str], tmp_path: Path) -> None:
    made = Nsys()
    made.kernel(ADD, 0, 10_000)
    made.add("TARGET_INFO_GPU", **RTX3080)
    throughputs = ("SMs Active", "Tensor Active", "DRAM Read Bandwidth")
    place, name = columns
    for metric, text in enumerate([*(f"{text} [Throughput %]" for text in throughputs), "GR Active"]):
        made.add("TARGET_INFO_GPU_METRICS", typeId=0x300, sourceId=1, **{place: 10 + metric, name: text})
        for sample in range(-1, 5):
            time = 1000 * sample if sample < 4 else 100_000
            where = {"timestamp": time, "typeId": 0x300, place: 10 + metric}
            made.add("GPU_METRICS", **where, value=10 * (metric + 1) + sample)
    path = made.write(tmp_path / "x.sqlite")
    with Database(str(path)) as opened:
        samples = nsys._metrics(opened, [{"id": 0, "memoryBandwidth": 10**12}], Reading())
    found = {one.metric: one for one in samples}
    assert found.keys() == {"sm_active", "tensor_active", "dram_bytes_read"}
    active = found["sm_active"]
    assert active.device == 0
    assert active.end.tolist() == [0, 1000, 2000, 3000, 100_000], "samples before the session are left out"
    assert active.start.tolist() == [-1000, 0, 1000, 2000, 99_000], "a gap was not counted"
    assert active.value.tolist() == [10, 11, 12, 13, 14]
    expected = np.array([30, 31, 32, 33, 34]) / 100 * 10**12 * 1e-6
    np.testing.assert_allclose(found["dram_bytes_read"].value, expected)
    assert fs.load_trace(path).metadata["nsys"]["samples"] == {
        "cuda:0 sm_active": 5, "cuda:0 tensor_active": 5, "cuda:0 dram_bytes_read": 5
    }  # fmt: skip


def test_without_a_bandwidth_there_are_no_bytes(tmp_path: Path) -> None:
    made = Nsys()
    made.kernel(ADD, 0, 10_000)
    made.add("TARGET_INFO_GPU_METRICS", typeId=0, metricId=1, metricName="DRAM Write Bandwidth [Throughput %]")
    for time in range(4):
        made.add("GPU_METRICS", timestamp=time, typeId=0, metricId=1, value=50.5)
    assert made.load(tmp_path).metadata["nsys"]["samples"] == {}


# Memory of the device (--cuda-memory-usage), held against SQL ---------------------------------------------------------


TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
PAGEABLE, PINNED, DEVICE, MANAGED = 0, 1, 2, 4


def change(made: Nsys, start: int, size: Any, kind: int = DEVICE, *, freed: bool = False, **more: Any) -> None:
    row = {"globalPid": global_pid(42), "deviceId": 0, "contextId": 1, "address": 0x7F00, "pc": 0, "bytes": size}
    row |= {"memKind": kind, "memoryOperationType": int(freed), "name": None, "correlationId": 0}
    made.add(TABLE, start=start, **row | more)


def program() -> Nsys:
    """Two threads allocate at the same time; a third process does too."""
    made = Nsys()
    made.nvtx("aten::empty, op_id = 1", 100, 1000)
    made.nvtx("aten::zeros, op_id = 2", 100, 1000, thread=43)
    made.call("cudaMalloc_v3020", 200, 300, 5)
    made.call("cudaMallocHost_v3020", 210, 290, 6, thread=43)
    made.nvtx("other", 100, 1000, process=50, thread=50)
    change(made, 250, 4096, correlationId=5)
    change(made, 260, 100, PINNED, correlationId=6, address=0x10)
    change(made, 270, 64, MANAGED, globalPid=global_pid(50), deviceId=1)
    change(made, 2000, 1024, freed=True)
    return made


def test_changes_belong_to_the_calls_of_their_own_threads(tmp_path: Path) -> None:
    path = program().write(tmp_path / "x.sqlite")
    prof = fs.load_trace(path)
    assert prof.profile_memory
    found = rows(prof)
    assert found["cudaMalloc"].self_device_memory_usage == found["aten::empty"].device_memory_usage == 4096
    assert found["aten::zeros"].device_memory_usage == 0, "another thread's"
    assert found["cudaMallocHost"].self_cpu_memory_usage == found["aten::zeros"].cpu_memory_usage == 100
    assert found["other"].device_memory_usage == 64 and found["[memory]"].self_device_memory_usage == -1024
    changes = [event for event in prof.events() if event.kind == "memory"]
    ((count,),) = query(path, f"select count(*) from {TABLE}")
    assert len(changes) == prof.metadata["nsys"]["tables"][TABLE] == count


def test_the_curve_of_the_report_is_the_running_sum(tmp_path: Path) -> None:
    made = Nsys()
    made.call("cudaMalloc_v3020", 0, 10000, 1)
    sizes = [4096, 1 << 40, -4096, 512]
    for place, size in enumerate(sizes):
        change(made, 1000 * place, abs(size), freed=size < 0, address=0x100 * (1 + place), correlationId=1)
    path = made.write(tmp_path / "x.sqlite")
    ((peak,),) = query(
        path,
        "select max(total) from (select sum(case memoryOperationType when 0 then bytes else -bytes end) "
        f"over (order by start) as total from {TABLE})",
    )
    _, found = fs.load_trace(path)._core.timeline(False, 0, {}, False, (), True, 1000)
    assert found["memory"]["bytes"].tolist() == sizes and peak == max(sum(sizes[: at + 1]) for at in range(4))
    fs.load_trace(path).write_report(str(tmp_path / "x.html"))
    assert re.search(r'"peak":', (tmp_path / "x.html").read_text())


BAD = {
    "no kind of change": {"memoryOperationType": 7}, "a text": {"bytes": "many"}, "a negative size": {"bytes": -5},
    "an impossible size": {"bytes": 1 << 60}, "no time": {"start": None}, "no device like it": {"deviceId": 1 << 40},
    "a negative device": {"deviceId": -7},
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_impossible_changes_count_nothing(name: str, tmp_path: Path) -> None:
    made = program()
    made.tables[TABLE][0] |= BAD[name]
    found = rows(made.load(tmp_path))
    assert found["cudaMalloc"].self_device_memory_usage == 0 and found["cudaMallocHost"].self_cpu_memory_usage == 100


def test_an_old_table_without_calls_and_kinds(tmp_path: Path) -> None:
    made = Nsys()
    made.nvtx("work", 100, 1000)
    made.add(TABLE, start=200, globalPid=global_pid(42), deviceId=0, bytes=64, memoryOperationType=0)
    found = rows(made.load(tmp_path))
    assert found["work"].device_memory_usage == 64, "of the process's first thread"

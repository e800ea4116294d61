"""Exports of Nsight Systems: replays of CUDA graphs, and GPU metrics."""

from pathlib import Path

import numpy as np
import pytest
from helpers.captures import KERNEL, RTX3080, Nsys
from helpers.hand_traces import rewritten
from helpers.nsys_programs import ADD, SGEMM, device_rows, graph_program, rows

import flopscope as fs
from flopscope.read import nsys
from flopscope.read.database import Database, Reading

# Graphs ---------------------------------------------------------------------------------------------------------------


def test_replayed_kernels_belong_to_captured_ops_and_to_what_encloses_the_launch(reader: str, tmp_path: Path) -> None:
    made = graph_program()
    made.nvtx("iteration 0", 0, 900)
    made.nvtx("warm up", 50, 600)
    made.call("cudaStreamBeginCapture_v10000", 80, 85, 7)
    made.nvtx("block", 86, 300)
    for step in range(3):
        made.nvtx(f"iteration {step + 1}", 900 + 1000 * step, 1800 + 1000 * step)
    prof = fs.load_trace(made.write(tmp_path / "x.sqlite"))
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


def test_the_body_of_a_loop_counts_each_round(reader: str, tmp_path: Path) -> None:
    """A conditional node launches its body as often as it says: one record for each round, of the same node."""
    made = graph_program()
    for launch in (50, 51):
        for round_ in (1, 2):
            at = 5000 + 1000 * launch + 100 * round_
            made.kernel(SGEMM, at, at + 50, launch, graphNodeId=31, graphId=9)
    found = rows(fs.load_trace(made.write(tmp_path / "x.sqlite")), "cpu")
    assert found["aten::mm"].flops == (3 + 4) * 2 * 64 * 32 * 16 and found["aten::mm"].count == 1 + 3 + 4
    assert found["aten::add"].count == 1 + 3


@pytest.mark.parametrize("clones", [[(31, 32), (32, 31)], [(31, 31)], [(31, 5)], []], ids=str)
def test_nodes_of_unknown_capture_are_the_launchs(clones: list[tuple[int, int]], reader: str, tmp_path: Path) -> None:
    made = graph_program()
    made.tables["CUDA_GRAPH_NODE_EVENTS"] = []
    for node, original in clones:
        made.node(node, 330, original=original)
    if not clones:
        del made.tables["CUDA_GRAPH_NODE_EVENTS"]
    found = rows(fs.load_trace(made.write(tmp_path / "x.sqlite")), "cpu")
    assert found["replay"].device_time_total == pytest.approx(3 * 0.07)
    assert found["aten::mm"].self_device_time_total == 0


def test_a_captured_op_that_never_ran_did_no_work(tmp_path: Path) -> None:
    made = graph_program()
    made.nvtx("aten::mm, op_id = 9, sizes = [[8, 8], [8, 8]]", 400, 490)
    made.node(13, 420)
    made.tables[KERNEL] = made.tables[KERNEL][:1]
    found = rows(fs.load_trace(made.write(tmp_path / "x.sqlite")), "cpu")
    assert found["aten::mm"].flops == 2 * 64 * 32 * 16 and not found["aten::add"].flops > 0


def test_a_replay_without_its_kernels_is_one_row_that_says_why(reader: str, tmp_path: Path) -> None:
    made = Nsys()
    for replay in range(2):
        made.call("cudaGraphLaunch_v10000", 100 * replay, 100 * replay + 10, 50 + replay)
        times = (100 * replay + 20, 100 * replay + 90)
        made.work("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", *times, 50 + replay, 42, 0, graphId=9)
    with pytest.warns(UserWarning, match=r"2 replays of CUDA graphs .* --cuda-graph-trace=node"):
        prof = fs.load_trace(made.write(tmp_path / "x.sqlite"))
    assert device_rows(prof) == {"CUDA graph 9 (replayed; its kernels were not recorded)": (2, 140)}


# GPU metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [("metricId", "metricName"), ("id", "name")], ids=["new", "old"])
def test_gpu_metrics_become_samples(columns: tuple[str, str], reader: str, tmp_path: Path) -> None:
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
    assert fs.load_trace(made.write(tmp_path / "x.sqlite")).metadata["nsys"]["samples"] == {}

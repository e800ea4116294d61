"""Kernels of replayed graphs get the ops of the capture, in recorded traces."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from helpers.graph_programs import GRAPH, KERNELS, Capture, replayed, step
from helpers.hand_traces import BF16, Program, rewritten

import flopscope as fs

MM_SHAPES = ([64, 128], [128, 256])
MM_FLOPS = 2 * 64 * 128 * 256


def joined(folder: Path, replay: Program, *captures: Program) -> fs.Trace:
    files = []
    for i, capture in enumerate(captures):
        files.append(folder / f"capture{i}.json")
        files[-1].write_bytes(capture.text())
    return fs.load_trace(replay.text(), captures=files)


def ops(trace: fs.Trace) -> dict[str, fs.EventRow]:
    return {row.key: row for row in trace.key_averages(group_by_input_shape=True) if row.device_type == "cpu"}


def captured(*launches: tuple[str, str, list[int]], named: bool = True) -> Capture:
    """Return a capture of launches: op, kernel, shape of its input."""
    capture = Capture(named=named)
    capture.begin()
    for op, kernel, shape in launches:
        capture.launch(op, kernel, shape)
    capture.end()
    return capture


NORMS = [(f"aten::{'mm' if 'gemm' in n else 'rms_norm'}", n, [8, 8]) for n in ("norm", "gemm_a", "norm", "gemm_b")]


def test_kernels_of_a_replay_belong_to_the_ops_of_the_capture(tmp_path: Path) -> None:
    trace = joined(tmp_path, replayed(*KERNELS, at=(0, 100)), step(Capture()))
    rows = [row for row in trace.key_averages(group_by_input_shape=True) if row.key == "aten::mm"]
    assert [(row.count, row.self_device_time_total, row.flops) for row in rows] == [
        (2, 16, 2 * 2 * 64 * 128 * 256), (2, 16, 2 * 2 * 64 * 256 * 128)
    ]  # fmt: skip
    assert [row.input_shapes for row in rows] == [[[64, 128], [128, 256]], [[64, 256], [256, 128]]]
    assert trace.graphs | {"graphs": 1, "launches": 2, "works": 6, "matched": 6, "owned": 6} == trace.graphs
    assert trace.coverage()["bytes"] == 1 and "estimated" not in trace.coverage()
    assert all(row.self_cpu_time_total == 0 for row in rows)  # a replay takes no host time of ops


def test_another_programs_capture_is_counted_and_warned_of(tmp_path: Path) -> None:
    eager, replay = Program(), replayed(*KERNELS)
    eager.run("aten::relu", 0, 10, 5, [8])
    with pytest.warns(UserWarning, match="1 match no captured graph; 3 of 3 kernels"):
        trace = joined(tmp_path, replay, captured(("aten::mm", "gemm_z", [8, 8])))
    assert trace.graphs["unseen"] == 1 and trace.graphs["matched"] == 0 and trace.coverage()["bytes"] == 0
    with pytest.warns(UserWarning, match="no call begins a capture"):
        joined(tmp_path, replay, eager)


def test_graphs_of_equal_kernels_but_other_shapes_are_ambiguous(tmp_path: Path) -> None:
    replay = replayed(*KERNELS)
    with pytest.warns(UserWarning, match="several captured graphs of different ops"):
        trace = joined(tmp_path, replay, step(Capture()), step(Capture(), width=512))
    assert trace.graphs["ambiguous"] == 1 and trace.graphs["matched"] == 0
    same = joined(tmp_path, replay, step(Capture()), step(Capture()))
    assert same.graphs["matched"] == 3  # alike: it does not matter which


def test_the_number_in_the_annotations_chooses_among_graphs(tmp_path: Path) -> None:
    captures = []
    for size, width in ((32, 256), (64, 512)):
        capture = step(Capture(), width)
        capture.label(f"capture_{size}_FULL", -5, capture.at + 10)
        captures.append(capture)
    trace = joined(tmp_path, replayed(*KERNELS, label="execute_64_context_0"), *captures)
    assert ops(trace)["aten::relu"].input_shapes == [[64, 512]]
    assert dict(trace.coverage()["estimated"])  # the names of kernels do not prove it


@pytest.mark.parametrize(
    ("capture", "kernels", "streams", "matched"),
    [
        (step(Capture()), ("relu_kernel", "gemm_a", "gemm_b"), (8, 7, 7), 3),
        (captured(*NORMS), ("norm", "gemm_a", "gemm_b"), (7, 7, 7), 3),
        (captured(*NORMS), ("norm", "gemm_b"), (7, 7), 1),
        (captured(*[("aten::relu", "", [8, 8])] * 3, named=False), KERNELS, (7, 7, 7), 0),
        (step(Capture(named=False)), KERNELS, (7, 8, 7), 0),
    ],
    ids=["several streams", "a lost kernel", "which of two norms", "equal ops of different kernels", "order alone"],
)
def test_only_what_is_certain_is_joined(
    capture: Capture, kernels: tuple[str, ...], streams: tuple[int, ...], matched: int, tmp_path: Path
) -> None:
    replay = replayed(*kernels, streams=streams)
    with contextlib.nullcontext() if matched == 3 else pytest.warns(UserWarning, match="graph"):
        assert joined(tmp_path, replay, capture).graphs["matched"] == matched


def test_captures_without_kernel_names_are_joined_by_order_and_marked(tmp_path: Path) -> None:
    trace = joined(tmp_path, replayed(*KERNELS), step(Capture(named=False)))
    assert ops(trace)["aten::relu"].self_device_time_total == 8
    assert {name for name, _ in trace.coverage()["estimated"]} == {"aten::mm", "aten::relu"}


def test_a_trace_that_has_the_capture_needs_no_other() -> None:
    program = step(Capture())
    program.replay(program.at + 10, *KERNELS)
    trace = program.load()
    assert trace.graphs["matched"] == 3
    assert ops(trace)["aten::relu"].count == 2 and ops(trace)["aten::relu"].self_device_time_total == 8
    mm = [row for row in trace.key_averages() if row.key == "aten::mm"]
    # nothing ran at the capture
    assert (mm[0].count, mm[0].flops, mm[0].flops_total) == (4, 2 * MM_FLOPS, 2 * MM_FLOPS)


def test_an_op_around_a_capture_does_no_work_either() -> None:
    program = Capture()
    program.op("aten::linear", program.at + 11, 22, [64, 128], [256, 128], dtype=BF16)
    program.begin()
    program.at += 2
    program.launch("aten::mm", "gemm_a", *MM_SHAPES)
    program.at = 60
    program.end()
    program.replay(100, "gemm_a")
    program.replay(200, "gemm_a")
    found = ops(program.load())
    assert found["aten::linear"].count == 3 and found["aten::mm"].count == 3
    assert found["aten::linear"].flops_total == found["aten::mm"].flops == 2 * MM_FLOPS


def test_calls_that_ran_at_once_are_no_part_of_a_capture(tmp_path: Path) -> None:
    capture = captured(("aten::fill_", "fill_kernel", [8]), ("aten::relu", "relu_kernel", [8]))
    capture.work("fill_kernel", 500, 3, correlation=capture.correlation - 2)  # before relu and the end
    assert joined(tmp_path, replayed("relu_kernel"), capture).graphs["matched"] == 1


def test_launches_of_other_threads_belong_to_the_only_capture(tmp_path: Path) -> None:
    capture = Capture()
    capture.begin()
    capture.launch("aten::mm", "gemm_a", *MM_SHAPES)
    capture.launch("aten::relu", "relu_kernel", [8], tid=2)  # the thread of the backward pass
    capture.end()
    assert joined(tmp_path, replayed("gemm_a", "relu_kernel"), capture).graphs["owned"] == 2


def test_the_grid_of_the_capture_completes_that_of_the_replay(tmp_path: Path) -> None:
    capture = Capture()
    capture.begin()
    capture.op("graphlib::scale", capture.at, 5, [8, 8])
    capture.call_of("hipModuleLaunchKernel", "graph_scale_kernel", grid=[7, 1, 1], block=[64, 1, 1])
    capture.end()
    replay = replayed("graph_scale_kernel", grid=None, block=None)
    seen: list[Any] = []
    fs.register_work("graph_scale_kernel", lambda call: seen.append((call.grid, call.shapes)))
    try:
        joined(tmp_path, replay, capture).key_averages()
    finally:
        fs.register_work("graph_scale_kernel", None)
    assert ((7, 1, 1), [(8, 8)]) in seen


def test_without_ids_of_nodes_a_loop_that_ran_several_times_is_not_matched() -> None:
    """The node of a while loop's body has one kernel for each round of a launch."""
    program = step(Capture())
    for launch, rounds in enumerate((1, 3)):
        at = program.at + 1000 * launch
        program.correlation += 1
        program.call(GRAPH, at, 5, 1, program.correlation)
        for i in range(rounds):
            for node, kernel in enumerate(KERNELS):
                args = {"graph id": 3, "graph node id": 50 + node}
                program.work(kernel, at + 10 + 40 * i + 10 * node, 8, correlation=program.correlation, **args)
    trace = program.load()
    assert trace.graphs["matched"] == 3 and trace.graphs["unseen"] == 1  # without the nodes' ids, loops are not matched
    assert trace.coverage()["unseen_graphs"] == 9 * 8


def test_a_joined_trace_survives_being_written_and_read_again(tmp_path: Path) -> None:
    replay, capture = replayed("gemm_a", "relu_kernel", at=(0, 100)), Capture()
    capture.begin()
    capture.op("mylib::layer", capture.at - 1, 30, [64, 128])
    capture.launch("aten::mm", "gemm_a", *MM_SHAPES)
    capture.launch("aten::relu", "relu_kernel", [64, 256])
    capture.end()
    trace = joined(tmp_path, replay, capture)
    again = rewritten(trace, tmp_path)
    seen = [
        {
            row.key: (row.count, row.flops, row.bytes_total_moved, row.self_device_time_total, row.device_time_total)
            for row in one.key_averages()
            if row.key.startswith(("aten::", "mylib::"))
        }
        for one in (trace, again)
    ]
    assert repr(seen[0]) == repr(seen[1]) and seen[0]["mylib::layer"][4] == 32
    assert all(row.cpu_time_total == 0 for row in again.key_averages() if row.key.startswith("aten::"))


def test_annotations_of_nodes_become_ranges(tmp_path: Path) -> None:
    replay = replayed(*KERNELS, at=(0, 100))
    works = [event for event in replay.events if event.get("cat") == "kernel"]
    for i, event in enumerate(works):
        event["args"] |= {"graph id": 3, "graph node id": 50 + i % 3, "name": "mlp" if i % 3 else "attention"}
    with pytest.warns(UserWarning, match="graph") as told:
        alone = joined(tmp_path, replay)
    del told
    for trace in (alone, joined(tmp_path, replay, step(Capture()))):
        ranges = {row.key: row for row in trace.key_averages() if row.key in ("attention", "mlp")}
        assert {key: (row.count, row.device_time_total) for key, row in ranges.items()} == {
            "attention": (2, 16),
            "mlp": (2, 32),
        }
        again = tmp_path / "again.json"
        trace.export_chrome_trace(again)
        read = fs.load_trace(again).key_averages()
        assert {row.key: row.device_time_total for row in read if row.key in ranges} == {"attention": 16, "mlp": 32}
        assert read.coverage().get("unseen_graphs", 0) == trace.key_averages().coverage().get("unseen_graphs", 0)
    assert alone.key_averages().coverage()["unseen_graphs"] == 48
    ops = {row.key: row for row in trace.key_averages() if row.key.startswith("aten::")}
    assert ops["aten::mm"].device_time_total == 32 and ops["aten::relu"].device_time_total == 16

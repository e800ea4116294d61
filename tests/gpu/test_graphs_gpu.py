"""Replays of CUDA graphs know the ops that were captured, on a real GPU."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import output_of

pytest.importorskip("torch")

BEGIN = """
import json, warnings
import flopscope as fs
watch = fs.watch_graphs(with_stack=WITH_STACK)
import torch
torch.manual_seed(0)
torch.set_grad_enabled(False)
a = torch.randn(512, 1024, device="cuda", dtype=torch.bfloat16)
b = torch.randn(1024, 2048, device="cuda", dtype=torch.bfloat16)
c = torch.randn(512, 2048, device="cuda", dtype=torch.bfloat16)
REPLAYS = 3

def step():
    y = torch.mm(a, b)
    return torch.nn.functional.silu(y) * c

def capture(step):
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph

def profiled(run):
    with fs.profile(timer="cupti", record_shapes=True, with_stack=WITH_STACK) as prof:
        for _ in range(REPLAYS):
            run()
    return prof

def ops(prof):
    rows = prof.key_averages(group_by_input_shape=True, peaks="none")
    return {
        row.key: {"count": row.count, "flops": row.flops, "bytes": row.bytes_total_moved, "shapes": row.input_shapes,
                  "device": row.self_device_time_total, "cpu": row.self_cpu_time_total}
        for row in rows if row.device_type == "cpu" and row.self_device_time_total > 0
    }
"""
MM_FLOPS, MM_BYTES = 2 * 512 * 1024 * 2048, 2 * (512 * 1024 + 1024 * 2048 + 512 * 2048)
POINTS = 512 * 2048


def run(program: str, with_stack: bool = False) -> Any:
    """Run a program in a new process, as CUPTI has one subscriber, and return what it prints as JSON."""
    code = BEGIN.replace("WITH_STACK", str(with_stack)) + textwrap.dedent(program)
    return json.loads(output_of(code).splitlines()[-1])


def check_step(found: Any) -> None:
    """Check the three ops of three replays of a step: a product, silu and a multiplication."""
    assert found["aten::mm"]["count"] == 3
    assert found["aten::mm"]["flops"] == 3 * MM_FLOPS and found["aten::mm"]["bytes"] == 3 * MM_BYTES
    assert found["aten::mm"]["shapes"] == [[512, 1024], [1024, 2048]]
    assert found["aten::silu"]["bytes"] == 3 * 4 * POINTS
    assert found["aten::mul"]["bytes"] == 3 * 6 * POINTS


def test_replays_of_a_torch_graph_are_the_ops_that_were_captured() -> None:
    found = run("""
        graph = capture(step)
        prof = profiled(graph.replay)
        print(json.dumps({"ops": ops(prof), "coverage": prof.coverage()["bytes"], "watch": repr(watch)}))
    """)
    check_step(found["ops"])
    assert found["coverage"] == 1, found


def test_ranges_and_python_calls_of_the_capture_enclose_the_ops_of_replays() -> None:
    found = run(
        """
        def named():
            with fs.record_function("decode"):
                step()
        graph = capture(named)
        prof = profiled(graph.replay)
        ranges = [row for row in prof.key_averages(peaks="none") if row.is_user_annotation and row.device_type == "cpu"]
        rows = {row.key: row for row in ranges}
        stacks = [row.stack for row in prof.key_averages(group_by_stack_n=4, peaks="none") if row.key == "aten::mm"]
        print(json.dumps({"count": rows["decode"].count, "device": rows["decode"].device_time_total, "stacks": stacks}))
        """,
        with_stack=True,
    )
    assert found["count"] == 3 and found["device"] > 0
    assert any("step" in frame for stack in found["stacks"] for frame in stack), found


def test_a_compiled_program_with_reduce_overhead_has_its_kernels() -> None:
    found = run("""
        for tensor in (a, b, c):
            torch._dynamo.mark_static_address(tensor)  # else each replay first copies them
        compiled = torch.compile(step, mode="reduce-overhead")
        for _ in range(5):
            compiled()
        torch.cuda.synchronize()
        prof = profiled(compiled)
        covered = prof.coverage()
        print(json.dumps({"ops": ops(prof), "coverage": covered["bytes"], "rest": covered["unmodelled"]}))
    """)
    assert found["coverage"] == 1, found
    assert found["ops"]["aten::mm"]["flops"] == 3 * MM_FLOPS


IN_TORCH = """
import flopscope.torch as ft
NAMES_NODES = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12)  # in traces

def torch_profiled(run):
    with ft.profile(activities=[ft.ProfilerActivity.CPU, ft.ProfilerActivity.CUDA], record_shapes=True) as prof:
        run()
    return prof

def told(prof):
    rows = [
        [row.key, row.input_shapes, row.count, row.bytes_total_moved]
        for row in prof.key_averages(group_by_input_shape=True, peaks="none")
        if row.device_type == "cpu" and row.self_device_time_total > 0 and row.key.startswith("aten::")
    ]
    return {"ops": sorted(rows), "graphs": prof.trace().graphs, "estimated": prof.coverage().get("estimated"),
            "unseen": prof.coverage().get("unseen_graphs"), "names_nodes": NAMES_NODES}
"""


def _step_ops(rows: int, count: int) -> list[Any]:
    """Return the ops of replays of a step over some rows, as told() does: bytes of bfloat16."""
    points = rows * 2048
    product = 2 * (rows * 1024 + 1024 * 2048 + points)
    return [
        ["aten::mm", [[rows, 1024], [1024, 2048]], count, count * product],
        ["aten::mul", [[rows, 2048], [rows, 2048]], count, count * 6 * points],
        ["aten::silu", [[rows, 2048]], count, count * 4 * points],
    ]


def test_a_profile_of_torch_tells_graphs_of_the_same_ops_at_two_batch_sizes_apart() -> None:
    found = run(IN_TORCH + textwrap.dedent("""
        kept = []
        def capture_rows(rows):
            x = torch.randn(rows, 1024, device="cuda", dtype=torch.bfloat16)
            z = torch.randn(rows, 2048, device="cuda", dtype=torch.bfloat16)
            kept.extend((x, z))
            return capture(lambda: torch.nn.functional.silu(torch.mm(x, b)) * z)
        graphs = {rows: capture_rows(rows) for rows in (64, 512)}
        def serve():
            for rows in (64, 512, 64, 64, 512):
                graphs[rows].replay()
        print(json.dumps(told(torch_profiled(serve))))
    """))  # fmt: skip
    counts = found["graphs"]
    assert found["ops"] == sorted(_step_ops(64, 3) + _step_ops(512, 2)), found
    assert counts["launches"] == 5 and counts["matched"] == counts["works"], found
    assert not counts["unseen"] and not counts["ambiguous"] and not found["estimated"], found
    assert counts["tied"] == (0 if found["names_nodes"] else 5), found


def test_a_profile_of_torch_gives_an_unseen_graph_no_ops_of_a_seen_one() -> None:
    found = run(IN_TORCH + textwrap.dedent("""
        watch.stop()
        unseen = capture(step)
        fs.watch_graphs()
        seen = capture(step)
        def serve():
            for graph in (unseen, seen, unseen):
                graph.replay()
        print(json.dumps(told(torch_profiled(serve))))
    """))  # fmt: skip
    assert found["ops"] == sorted(_step_ops(512, 1)), found
    assert found["graphs"]["unseen"] == 2 and found["unseen"] > 0 and not found["estimated"], found


def test_a_profile_of_torch_tells_copies_and_fills_of_a_graph_from_kernels() -> None:
    found = run(IN_TORCH + textwrap.dedent("""
        into, cleared = torch.empty_like(c), torch.empty_like(c)
        def copies():
            into.copy_(torch.mm(a, b))
            cleared.zero_()
            return torch.nn.functional.silu(into)
        graph = capture(copies)
        print(json.dumps(told(torch_profiled(graph.replay))))
    """))  # fmt: skip
    ops = {key: moved for key, _, _, moved in found["ops"]}
    assert ops["aten::copy_"] == ops["aten::silu"] == 4 * POINTS and ops["aten::mm"] == MM_BYTES, found
    assert {"aten::zero_", "aten::fill_"} & {*ops}, found
    assert found["graphs"]["matched"] == found["graphs"]["works"] >= 4 and not found["estimated"], found


def test_graphs_of_other_threads_and_destroyed_graphs_are_told_apart() -> None:
    found = run("""
        import threading
        graphs = []
        thread = threading.Thread(target=lambda: graphs.append(capture(step)))
        thread.start()
        thread.join()
        gone = capture(lambda: torch.add(c, c))
        gone.replay()
        torch.cuda.synchronize()
        del gone
        print(json.dumps(ops(profiled(graphs[0].replay))))
    """)
    check_step(found)


def test_flopscope_run_knows_graphs_that_are_captured_while_it_records() -> None:
    """The recording begins when torch initializes CUDA, so that torch's own profile has the calls of the capture."""
    begin = """
from flopscope.cli.recording import Recording
recorded = Recording(None, {"record_shapes": True}, print)
recorded.begin()
"""
    end = """
graph = capture(step)
for _ in range(REPLAYS):
    graph.replay()
torch.cuda.synchronize()
prof = recorded.end()
rows = prof.key_averages(group_by_input_shape=True, peaks="none")
mm = [row for row in rows if row.key == "aten::mm" and row.device_type == "cpu"]
coverage = prof.coverage()
print(json.dumps({"flops": sum(row.flops for row in mm), "bytes": coverage["bytes"],
                  "unseen": coverage.get("unseen_graphs"), "resolved": fs._core.watch_state()["resolved"]}))
"""
    unwatched = BEGIN.replace("watch = fs.watch_graphs(with_stack=WITH_STACK)", "").replace("WITH_STACK", "False")
    found = json.loads(output_of(begin + unwatched + end).splitlines()[-1])
    assert found["flops"] == (3 + 3) * MM_FLOPS, "three calls warm up, three are replays; none is of the capture"
    assert found["bytes"] == 1 and not found["unseen"] and found["resolved"] > 0


def test_replays_in_a_later_recording_are_the_ops_of_an_earlier_one(tmp_path: Path) -> None:
    """The graph is captured while the first recording runs, and the steps that are reported are of the next one."""
    replays = (
        "import time\nend = time.monotonic() + 8\nwhile time.monotonic() < end:\n    graph.replay()\n    fs.step()\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        BEGIN.replace("watch = fs.watch_graphs(with_stack=WITH_STACK)", "") + "graph = capture(step)\n" + replays
    )
    command = [sys.executable, "-m", "flopscope", "run", "--no-report", "--json", "s.json", str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert found["recording"]["bare_steps"] > 0 and found["recording"]["step"] == "flopscope.step()", found["recording"]
    assert {"aten::mm", "aten::mul"} <= {row["op"] for row in found["most"]}, found["most"]


def test_a_graph_of_cupy_keeps_the_range_of_the_capture() -> None:
    pytest.importorskip("cupy")
    found = run("""
        import cupy
        x = cupy.ones(1 << 20, dtype=cupy.float32)
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            y = x * 2
            stream.synchronize()
            with fs.profile(timer="cupti"):
                stream.begin_capture()
                with fs.record_function("doubling"):
                    cupy.multiply(x, 2, out=y)
                graph = stream.end_capture()
        prof = profiled(lambda: graph.launch(stream))
        stream.synchronize()
        rows = {row.key: row.device_time_total for row in prof.key_averages(peaks="none") if row.device_type == "cpu"}
        print(json.dumps(rows))
    """)
    assert found["doubling"] > 0, found

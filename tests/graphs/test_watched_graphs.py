"""The watch on CUDA graphs: what was open when a node was created belongs to its replays."""

from typing import Any

import pytest
from helpers.fake_cupti import Run, runner
from helpers.hand_traces import load, op

import flopscope as fs
from flopscope.record import at_import, watching
from flopscope.results.results import store_of

NODES = 1 << 32  # the upper half of a node's id is that of its graph

WATCH = """
_core.watch_start()
NODES = 1 << 32

def capture(*names, first=NODES):
    # each name is a range in which one node is created
    with fs.profile(timer="cupti"):
        for i, name in enumerate(names):
            with fs.record_function(name):
                cuda.node("created", first + i)

def profiled(*kernels):
    with fs.profile(timer="cupti") as prof:
        cuda.replay(*kernels)
    return prof

def ranges(prof):
    return {row.key: row.device_time_total for row in prof.key_averages(peaks="none")
            if row.is_user_annotation and row.device_type == "cpu"}
"""


bare = runner()
run = runner(WATCH)


def test_replays_have_what_was_open_at_the_capture(run: Run) -> None:
    found = run("""
        capture("attend", "multiply")
        for i in range(2):
            cuda.node("cloned", 2 * NODES + i, NODES + i)
        with fs.profile(timer="cupti") as prof:
            for _ in range(3):
                cuda.replay(("a", 2 * NODES), ("b", 2 * NODES + 1))
        table = prof.key_averages(peaks="none")
        rows = {row.key: (row.count, row.device_time_total, row.cpu_time_total) for row in table}
        print(json.dumps([rows["attend"], rows["multiply"], _core.watch_state()]))
    """)
    assert found[0] == [3, 12, 0] and found[1] == [3, 12, 0]
    assert found[2] == {"on": True, "kept": 4, "nodes": 4, "resolved": 4, "lost": 0, "launches": 0, "launches_lost": 0}


PROGRAMS = {  # and what each prints
    "a destroyed graph is still known to records that come late": ("""
        capture("step")
        with fs.profile(timer="cupti") as prof:
            cuda.replay(("a", NODES))
            cuda.node("destroyed", NODES)
        print(json.dumps([ranges(prof), _core.watch_state()["nodes"]]))
    """, [{"step": 4}, 0]),
    # Adding a child graph to a graph clones its nodes, and instantiating the graph clones them again.
    "a child graph keeps the ops of its own capture": ("""
        capture("child")
        capture("parent", first=2 * NODES)
        cuda.node("cloned", 3 * NODES, NODES)
        cuda.node("cloned", 4 * NODES, 3 * NODES)
        cuda.node("cloned", 5 * NODES, 2 * NODES)
        print(json.dumps(ranges(profiled(("a", 4 * NODES), ("b", 5 * NODES)))))
    """, {"child": 4, "parent": 4}),
    "a graph that is instantiated twice is known twice": ("""
        capture("step")
        for graph in (2, 3):
            cuda.node("cloned", graph * NODES, NODES)
        cuda.node("destroyed", NODES)
        cuda.destroy(1)
        cuda.destroy(2, executable=True)
        cuda.node("cloned", 4 * NODES, 3 * NODES)
        print(json.dumps([ranges(profiled(("a", graph * NODES))) for graph in (2, 3, 4)]
                         + [_core.watch_state()["nodes"]]))
    """, [{"step": 4}, {"step": 4}, {"step": 4}, 2]),
    # The body of a conditional node is a graph of its own, which runs as often as its condition says.
    "the rounds of a loop repeat its ops": ("""
        capture("before")
        capture("body", first=2 * NODES)
        with fs.profile(timer="cupti", record_shapes=True):
            with fs.record_function("loop"):
                with fs.record_function("op", flops=100):
                    cuda.node("created", 2 * NODES + 1)
        for node in (NODES, 2 * NODES, 2 * NODES + 1):
            cuda.node("cloned", node + 8 * NODES, node)
        with fs.profile(timer="cupti") as prof:
            for rounds in (1, 3, 0):
                body = [("b", 10 * NODES), ("c", 10 * NODES + 1)] * rounds
                cuda.replay(("a", 9 * NODES), *body)
        rows = {row.key: [row.count, row.device_time_total] for row in prof.key_averages(peaks="none")
                if row.is_user_annotation and row.device_type == "cpu"}
        print(json.dumps(rows))
    """, {"before": [3, 12], "body": [2, 16], "loop": [2, 16], "op": [2, 16]}),
    "a body that no callback told of is unseen": ("""
        capture("before")
        prof = profiled(("a", NODES), ("b", 77 * NODES))
        print(json.dumps([ranges(prof), prof.coverage()["unseen_graphs"]]))
    """, [{"before": 4}, 4]),
    "graphs are captured while a recording is joined": ("""
        capture("step")
        stop = threading.Event()
        def capturing():
            node = 10 * NODES
            while not stop.is_set():
                node += 1
                cuda.node("created", node)
                cuda.node("cloned", node + 10 * NODES, node)
                cuda.node("destroyed", node)
        threads = [threading.Thread(target=capturing) for _ in range(2)]
        for thread in threads: thread.start()
        found = [ranges(profiled(("a", NODES))) for _ in range(20)]
        stop.set()
        for thread in threads: thread.join()
        print(json.dumps(found))
    """, [{"step": 4}] * 20),
    "nodes of other threads have their own ranges": ("""
        def one(name, node):
            with fs.record_function(name):
                barrier.wait()
                cuda.node("created", node)
                barrier.wait()
        barrier = threading.Barrier(2)
        with fs.profile(timer="cupti"):
            threads = [threading.Thread(target=one, args=(f"thread {i}", NODES + i)) for i in range(2)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        print(json.dumps(ranges(profiled(("a", NODES), ("b", NODES + 1)))))
    """, {"thread 0": 4, "thread 1": 4}),
    "a watch outlives profiles and profiles outlive a watch": ("""
        capture("step")
        counts = [cuda.count("finalized")]
        profiled(("a", NODES))
        counts.append(cuda.count("finalized"))
        with fs.profile(timer="cupti") as prof:
            _core.watch_stop()
            cuda.replay(("a", NODES))
        counts.append(cuda.count("finalized"))
        print(json.dumps([ranges(prof), counts, _core.watch_state()["on"]]))
    """, [{"step": 4}, [0, 0, 1], False]),
    "forgetting releases all nodes and launches": ("""
        capture("step")
        _core.watch_launches(True)
        cuda.launch_graph(3, times=10)
        _core.watch_forget()
        cuda.launch_graph(3)
        state = _core.watch_state()
        lost = ranges(profiled(("a", NODES)))
        capture("again")
        print(json.dumps([state["nodes"], state["launches"], lost, ranges(profiled(("a", NODES)))]))
    """, [0, 1, {}, {"again": 4}]),
}  # fmt: skip


@pytest.mark.parametrize(("program", "found"), PROGRAMS.values(), ids=PROGRAMS)
def test_replays_have_the_ranges_in_which_their_nodes_were_created(run: Run, program: str, found: Any) -> None:
    assert run(program) == found


@pytest.mark.parametrize(("change", "known"), [("updated", {"other": 4}), ("set", {})])
def test_an_updated_node_is_what_it_was_updated_from_or_unknown(run: Run, change: str, known: dict[str, float]) -> None:
    found = run(f"""
        capture("step")
        capture("other", first=5 * NODES)
        cuda.node("{change}", NODES, 5 * NODES)
        prof = profiled(("a", NODES))
        print(json.dumps([ranges(prof), prof.coverage().get("unseen_graphs")]))
    """)
    assert found == [known, None if known else 4]


@pytest.mark.parametrize("version", [120800, 130001])
def test_an_update_that_is_not_told_node_by_node_makes_the_graph_unknown(bare: Run, version: int) -> None:
    """CUPTI of CUDA 12 does not report nodes that are updated; that of CUDA 13 does, beside the call."""
    found = bare(f"cuda.set('version', {version})", WATCH, """
        capture("step")
        for graph in (2, 3):
            cuda.node("cloned", graph * NODES, NODES)
        cuda.fake.fake_update(2)
        print(json.dumps([ranges(profiled(("a", graph * NODES))) for graph in (2, 3)]))
    """)  # fmt: skip
    assert found == [{} if version < 130000 else {"step": 4}, {"step": 4}]


def test_a_program_that_captures_without_end_uses_bounded_memory(run: Run) -> None:
    """Of graphs that were destroyed, the oldest are forgotten. Those that exist, and the last ones, stay known."""
    found = run("""
        import resource
        capture("first", "second")
        def captured(graph, nodes=4096):
            for node in range(nodes):
                cuda.fake.fake_graph_node(20, (graph << 32) + node + 1, NODES + node % 2, 0)
            cuda.destroy(graph, executable=True)
        peaks = []
        for graph in range(100, 300):
            captured(graph)
            if graph in (200, 299):
                peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        kept = _core.watch_state()
        known = [ranges(profiled(("a", (graph << 32) + 2))) for graph in (100, 299)]
        capture("last", first=1000 * NODES)
        known += [ranges(profiled(("a", node))) for node in (NODES, NODES + 1, 1000 * NODES)]
        print(json.dumps([kept["nodes"], known, peaks]))
    """)
    assert found[0] == 2 and found[1] == [{}, {"second": 4}, {"first": 4}, {"second": 4}, {"last": 4}]
    assert found[2][1] - found[2][0] < 4096, "KiB"


def test_a_forked_child_watches_nothing(run: Run) -> None:
    found = run("""
        capture("step")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = [_core.watch_state()]
            cuda.node("created", 5 * NODES)
            _core.watch_stop()
            _core.watch_forget()
            said.append(refused(_core.watch_start))
            os.write(write, json.dumps(said).encode())
            os._exit(0)
        os.close(write)
        said = json.loads(os.read(read, 10_000))
        os.waitpid(child, 0)
        print(json.dumps([said, _core.watch_state(), ranges(profiled(("a", NODES)))]))
    """)
    nothing = {"on": False, "kept": 0, "nodes": 0, "resolved": 0, "lost": 0, "launches": 0, "launches_lost": 0}
    assert found[0][0] == nothing and "forked" in found[0][1]
    assert found[1]["on"] and found[1]["nodes"] == 1 and found[2] == {"step": 4}


def test_graphs_captured_unseen_are_told(run: Run) -> None:
    found = run("""
        _core.watch_stop()
        capture("step")
        _core.watch_start()
        prof = profiled(("a", NODES))
        print(json.dumps([ranges(prof), prof.coverage(), prof.key_averages(peaks="none").table()]))
    """)
    assert found[0] == {} and found[1]["unseen_graphs"] == 4 and "fs.watch_graphs()" in found[2]


def test_the_place_of_an_idle_client_without_a_name_is_taken_only_on_request(bare: Run) -> None:
    found = bare("""
        cuda.take("nsight")
        named = refused(lambda: _core.watch_start(True))
        cuda.take("<not provided>")
        said = [refused(lambda: _core.watch_start(evict)) for evict in (False, True)]
        print(json.dumps([named, *said, _core.watch_state()["on"]]))
    """)
    assert found[0] == "CUPTI is taken by nsight" and "without a name" in found[1] and found[2:] == ["", True]


def test_ops_of_torch_are_found_by_time_and_thread(bare: Run) -> None:
    pytest.importorskip("torch")
    found = bare("""
        _core.watch_start()
        import torch
        from flopscope.record import watching
        watching._watch = watching.GraphWatch(with_stack=False)
        a = torch.ones(64, 32, dtype=torch.bfloat16)
        class Node(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                cuda.node("created", (1 << 32) + 1)
                return x.clone()
        capture = watching._Capture()
        with fs.record_function("decode"):
            Node.apply(a)
        capture.end()
        with fs.profile(timer="cupti", record_shapes=True) as prof:
            cuda.replay(("kernel", (1 << 32) + 1))
        rows = prof.key_averages(group_by_input_shape=True, peaks="none")
        ops = [row for row in rows if row.device_type == "cpu"]
        print(json.dumps({row.key: [row.device_time_total, row.input_shapes] for row in ops}))
    """)
    assert found["Node"] == [4, [[64, 32]]] and found["decode"][0] == 4


def test_without_a_gpu_the_reason_is_told() -> None:
    with pytest.raises(RuntimeError, match="graphs cannot be watched"):
        fs.watch_graphs()


def test_the_environment_variable_asks_for_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(watching, "watch_graphs", lambda: asked.append(True))
    for value, wanted in (("0", 0), ("", 0), ("1", 1)):
        monkeypatch.setenv("FLOPSCOPE_WATCH_GRAPHS", value)
        at_import.begin()
        assert len(asked) == wanted


def test_the_clock_of_a_recording_is_tied_by_marks() -> None:
    store = store_of(load(op(watching.MARK, 10, 1), op(watching.MARK, 20, 1)), "events")
    assert watching._shift_of(store, [10_600 + 5_000_000, 20_400 + 5_000_000]) == 5_000_000
    assert watching._shift_of(store, [1]) is None  # a mark is missing

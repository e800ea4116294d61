"""Launches of watched CUDA graphs are logged while torch records, which tells the graph of each recorded call."""

import pytest
from helpers.fake_cupti import Run, runner

BEGIN = """
import gc, tempfile, types
from pathlib import Path
from flopscope.record import watching
from flopscope.read.trace import Trace
from flopscope.read.load import read
_core.watch_start()
NODES = 1 << 32  # the upper half of a node's id is that of its graph
MOST = 1 << 18   # launches that are logged at most

def loaded(events, load, **members):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(json.dumps({"traceEvents": events, **members}))
        return load(str(path))

def capture(*names, graph, kinds=(), executables=(), linked=None):
    # each name is an op, recorded by torch, in which one node is created; then the graph is instantiated
    first = graph * NODES
    kinds = kinds or (0,) * len(names)
    events, begin = [], time.monotonic_ns()
    for i, (name, kind) in enumerate(zip(names, kinds)):
        at = time.monotonic_ns()
        cuda.node("created", first + i, kind=kind)
        events.append({"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": threading.get_native_id(),
                       "ts": at / 1e3, "dur": (time.monotonic_ns() - at) / 1e3,
                       "args": {"Input Dims": [[64]], "Input type": ["float"]}})
    store = loaded(events, read).core
    shift = round(events[0]["ts"] * 1e3) - int(store.events()[0]["start"].min())
    _core.watch_resolve(store, begin, time.monotonic_ns(), shift)
    for executable in executables:
        for i, kind in enumerate(kinds):
            cuda.node("cloned", executable * NODES + i, first + i, kind)
        # a node of the driver's own, before all others, as on an H200
        cuda.node("created", executable * NODES + len(kinds))
        if linked:
            cuda.link(executable * NODES + len(kinds), executable * NODES)
        if linked == "chain":
            cuda.link(*range(executable * NODES, executable * NODES + len(names)))
        if linked == "fork":
            for i in range(1, len(names)):
                cuda.link(executable * NODES, executable * NODES + i)

class Recording:
    # What torch up to 2.11 records: calls that launch graphs, and kernels without the ids of nodes.
    def __init__(self, behind=20_000, thread_of=threading.get_native_id):
        # behind: the trace's clock, in ns. thread_of: the calling thread, in the trace
        self.thread_of = thread_of
        self.base = time.time_ns() - 10**9
        readings = []
        for _ in range(10):  # the one that took least counts: the thread may be interrupted
            before = time.monotonic_ns()
            now = time.time_ns()
            readings.append((time.monotonic_ns() - before, now - before))
        self.offset = min(readings)[1] - self.base - behind
        self.events = []

    def add(self, category, name, lane, start, length, **args):
        process = int(category.startswith(("cuda_", "cpu_")))
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": process, "tid": lane,
                            "ts": (start + self.offset) / 1e3, "dur": length / 1e3, "args": args})

    def replay(self, executable, *works):
        # works: (name, stream), in the order of their starts; Memcpy and Memset are copies and fills
        begin = time.monotonic_ns()
        cuda.launch_graph(executable)
        end = time.monotonic_ns()
        while time.monotonic_ns() < end + 1000: pass
        correlation = len(self.events) + 1
        self.add("cuda_driver", "cuGraphLaunch", self.thread_of(), begin, (end - begin) // 2, correlation=correlation)
        self.add("cuda_runtime", "cudaGraphLaunch", self.thread_of(), begin, end - begin,
                 correlation=correlation)
        for i, (name, stream) in enumerate(works):
            category = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name.split()[0], "kernel")
            self.add(category, name, stream, begin + 5000 * (i + 1), 4000, device=0, stream=stream,
                     correlation=correlation, grid=[1, 1, 1], block=[32, 1, 1])

    def load(self):
        return loaded(self.events, lambda path: Trace(read(path, watched=True)), baseTimeNanoseconds=self.base)

def ops(prof):
    return {row.key: row.device_time_total for row in prof.key_averages(peaks="none")
            if row.device_type == "cpu" and row.device_time_total > 0 and "GraphLaunch" not in row.key}

def told(trace):
    # the ops, the counts, and whether an op is an estimate
    counts = {name: trace.graphs[name] for name in ("launches", "tied", "matched", "unseen", "ambiguous")}
    return [ops(trace), counts, bool(trace.coverage().get("estimated"))]

def replayed(*launches, logged=True):
    # what is told of a recording of launches: (executable, works)
    _core.watch_launches(logged)
    recording = Recording()
    for executable, works in launches:
        recording.replay(executable, *works)
    _core.watch_launches(False)
    return told(recording.load())

GEMMS = (("gemm", 7), ("gemm", 7))
COPY = "Memcpy DtoD (Device -> Device)"
"""


run = runner(BEGIN)


def _counts(launches: int, tied: int, matched: int, unseen: int = 0, ambiguous: int = 0) -> dict[str, int]:
    return {"launches": launches, "tied": tied, "matched": matched, "unseen": unseen, "ambiguous": ambiguous}


def test_work_with_ids_of_unseen_nodes_gets_no_ops_of_another_graph_as_large(run: Run) -> None:
    """Records of flopscope's profiles have the ids of nodes: the seen graph is known not to be the launched one."""
    found = run("""
        capture("attend", "multiply", graph=1, executables=[2])
        with fs.profile(timer="cupti") as prof:
            cuda.replay(("a", 9 * NODES), ("b", 9 * NODES + 1), graph=9)
        seen = ops(prof)
        with fs.profile(timer="cupti") as prof2:
            cuda.replay(("a", 2 * NODES), ("b", 2 * NODES + 1), graph=2)
        print(json.dumps([seen, prof.coverage().get("unseen_graphs"), ops(prof2)]))
    """)
    assert found == [{}, 8, {"attend": 4, "multiply": 4}]


PROGRAMS = {  # what each prints: the ops, the counts, and whether an op is an estimate
    "graphs of equal kinds are told apart": ("""
        capture("attend", "multiply", graph=1, executables=[3])
        capture("norm", "relu", graph=2, executables=[4])
        print(json.dumps(replayed((3, GEMMS), (4, GEMMS), (3, GEMMS))))
    """, {"attend": 8, "multiply": 8, "norm": 4, "relu": 4}, _counts(launches=3, tied=3, matched=6), False),
    "but not if launches are not logged": ("""
        capture("attend", "multiply", graph=1, executables=[3])
        capture("norm", "relu", graph=2, executables=[4])
        print(json.dumps(replayed((3, GEMMS), (4, GEMMS), (3, GEMMS), logged=False)))
    """, {}, _counts(launches=3, tied=0, matched=0, ambiguous=3), False),
    "a graph that was updated in an unknown way stays unknown": ("""
        _core.watch_stop()
        cuda.set("version", 120800)
        _core.watch_start()
        capture("attend", "multiply", graph=1, executables=[3, 4])
        cuda.fake.fake_update(3)
        print(json.dumps(replayed((3, GEMMS), (4, GEMMS))))
    """, {"attend": 4, "multiply": 4}, _counts(launches=2, tied=2, matched=2, unseen=1), False),
    # The type of a node is told as its creation starts: 1 is a copy, 2 a fill, 5 an empty node.
    "copies and nodes without work are told from kernels": ("""
        capture("attend", "copy", "join", "clear", "multiply", graph=1, kinds=(0, 1, 5, 2, 0), executables=[3],
                linked="chain")
        print(json.dumps(replayed(
            (3, (("gemm", 7), (COPY, 7), ("Memset (Device)", 7), ("gemm", 7))),
            (3, (("gemm", 7), ("gemm", 7), ("Memset (Device)", 7), ("gemm", 7))))))  # no copy, one kernel more
    """, {"attend": 4, "copy": 4, "clear": 4, "multiply": 4},
        _counts(launches=2, tied=2, matched=4, unseen=1), False),
    **{
        f"a {linked} is matched on one stream": (f"""
        capture("aten::relu", "aten::neg", "aten::abs", graph=1, executables=[3], linked="{linked}")
        print(json.dumps(replayed((3, (*GEMMS, ("gemm", 7))))))
    """, {"aten::relu": 4, "aten::neg": 4, "aten::abs": 4}, _counts(launches=1, tied=1, matched=3), estimated)
        for linked, estimated in (("chain", False), ("fork", True))
    },
    # The callbacks of an H200, CUDA 13.0: a copy's clone is destroyed, and another node takes its id.
    "an executable graph whose nodes the driver replaced is matched": ("""
        capture("aten::copy_", "aten::zero_", "aten::add", graph=4, kinds=(1, 0, 0))
        for i, kind in enumerate((1, 0, 0)):
            cuda.node("cloned", 5 * NODES + i, 4 * NODES + i, kind)
        cuda.link(5 * NODES, 5 * NODES + 1, 5 * NODES + 2)
        cuda.node("created", 5 * NODES + 3)
        cuda.link(5 * NODES + 3, 5 * NODES + 1)
        cuda.node("destroyed", 5 * NODES)
        cuda.node("created", 5 * NODES + 4)
        cuda.link(5 * NODES + 4, 5 * NODES)
        cuda.destroy(4)
        for i in range(3):
            cuda.node("destroyed", 4 * NODES + i)
        print(json.dumps(replayed(*[(5, ((COPY, 7), ("fill", 7), ("add", 7)))] * 2)))
    """, {"aten::copy_": 8, "aten::zero_": 8, "aten::add": 8}, _counts(launches=2, tied=2, matched=6), False),
}  # fmt: skip


@pytest.mark.parametrize(("program", "ops", "counts", "estimated"), PROGRAMS.values(), ids=PROGRAMS)
def test_launches_are_matched_with_the_nodes_of_their_graph(
    run: Run, program: str, ops: dict[str, float], counts: dict[str, int], estimated: bool
) -> None:
    assert run(program) == [ops, counts, estimated]


@pytest.mark.parametrize("logged", [True, False])
def test_an_unseen_graph_gets_nothing_if_launches_are_logged(run: Run, logged: bool) -> None:
    found = run(f"""
        capture("aten::relu", "aten::neg", graph=1, executables=[3])
        _core.watch_launches({logged})
        recording = Recording()
        recording.replay(9, *GEMMS)
        recording.replay(3, *GEMMS)
        trace = recording.load()
        print(json.dumps([*told(trace), trace.coverage().get("unseen_graphs")]))
    """)
    if logged:
        assert found == [{"aten::relu": 4, "aten::neg": 4}, _counts(launches=2, tied=2, matched=2, unseen=1), False, 8]
    else:
        assert found[0] == {"aten::relu": 8, "aten::neg": 8} and found[2], "an estimate, as before"


def test_a_clone_of_an_unseen_graph_is_unknown_whatever_is_open_then(run: Run) -> None:
    found = run("""
        with fs.profile(timer="cupti"):
            with fs.record_function("instantiating"):
                for i in range(2):
                    cuda.node("cloned", 3 * NODES + i, NODES + i)
        state = _core.watch_state()
        print(json.dumps([replayed((3, GEMMS)), state["nodes"], state["resolved"]]))
    """)
    assert found == [[{}, _counts(launches=1, tied=1, matched=0, unseen=1), False], 2, 0]


def test_on_several_streams_only_what_is_proven_is_matched(run: Run) -> None:
    found = run("""
        capture("attend", "copy", "multiply", graph=1, kinds=(0, 1, 0), executables=[3])
        with fs.profile(timer="cupti"):
            with fs.record_function("all"):
                for i in range(2):
                    cuda.node("created", 2 * NODES + i)
        for i in range(2):
            cuda.node("cloned", 4 * NODES + i, 2 * NODES + i)
        found = [replayed((3, (("gemm", 7), (COPY, 7), ("gemm", 8)))), replayed((4, (("gemm", 7), ("gemm", 8))))]
        print(json.dumps(found))
    """)
    assert found[0] == [{"copy": 4}, _counts(launches=1, tied=1, matched=1), False], "either kernel may be the first"
    assert found[1] == [{"all": 8}, _counts(launches=1, tied=1, matched=2), False], "one range has both"


def test_a_full_log_is_counted_and_its_launches_are_matched_as_without(run: Run) -> None:
    lost_before, kept, lost, first, again, kept_later = run("""
        capture("attend", "multiply", graph=1, executables=[3])
        capture("norm", "relu", graph=2, executables=[4])
        recording = Recording()
        _core.watch_launches(True)
        recording.replay(3, *GEMMS)
        cuda.launch_graph(3, times=MOST - 1)
        before = _core.watch_state()
        time.sleep(0.01)
        recording.replay(4, *GEMMS)
        state = _core.watch_state()
        _core.watch_launches(False)
        first = told(recording.load())
        _core.watch_launches(True)  # for another recording: the older half is forgotten
        again = Recording()
        again.replay(4, *GEMMS)
        print(json.dumps([before["launches_lost"], state["launches"], state["launches_lost"], first,
                          told(again.load()), _core.watch_state()["launches"]]))
    """)
    assert (lost_before, kept, lost) == (0, 1 << 18, 1)
    assert first[0] == {} and first[1]["tied"] == 0 and first[1]["ambiguous"] == 2, "too many launches for one call"
    assert again == [{"norm": 4, "relu": 4}, _counts(launches=1, tied=1, matched=2), False]
    assert kept_later == (1 << 17) + 1


@pytest.mark.parametrize("recorded", ["the system's id", "pthread_t"])
def test_threads_launch_graphs_of_their_own(run: Run, recorded: str) -> None:
    """Of threads without ops, Kineto writes the lower half of their pthread_t, as a signed number without its sign."""
    found = run(f"""
        def handle():
            half = threading.get_ident() & 0xffffffff
            return abs(half - (half >> 31 << 32))
        thread_of = handle if {recorded == "pthread_t"} else threading.get_native_id
    """, """
        capture("attend", "multiply", graph=1, executables=[3])
        capture("norm", "relu", graph=2, executables=[4])
        _core.watch_launches(True)
        recording = Recording(thread_of=thread_of)
        lock = threading.Lock()
        def launching(executable):
            for _ in range(20):
                with lock:
                    recording.replay(executable, *GEMMS)
        threads = [threading.Thread(target=launching, args=(executable,)) for executable in (3, 4, 4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(json.dumps(told(recording.load())))
    """)  # fmt: skip
    ops = {"attend": 80, "multiply": 80, "norm": 160, "relu": 160}
    assert found == [ops, _counts(launches=60, tied=60, matched=120), False]


PROFILE = """
class Profile:
    # As torch.autograd.profiler.profile.
    def __init__(self, use_device="cuda"): self.use_device = use_device
    def _prepare_trace(self): pass
    def _start_trace(self):
        if self.use_device == "broken": raise RuntimeError("no trace")
    def __enter__(self):
        self._prepare_trace()
        self._start_trace()
        return self
    def __exit__(self, *problem): return False
watching._primed = True
watching._hook_torch_profiler(types.SimpleNamespace(profile=Profile, _is_profiler_enabled=False))

def calls():
    # callbacks of one launch: at its begin and at its end
    before = cuda.count("told_launches")
    cuda.launch_graph(3)
    return cuda.count("told_launches") - before
"""


def test_cupti_calls_back_at_launches_only_while_torch_records_a_gpu_and_graphs_are_watched(run: Run) -> None:
    found = run(PROFILE, """
        found = [calls()]
        with Profile():
            found.append(calls())
        found.append(calls())
        with Profile(use_device=None):
            found.append(calls())
        with fs.profile(timer="cupti"):
            found.append(calls())
        logged = [_core.watch_state()["launches"]]
        _core.watch_launches(True)
        cuda.launch_graph(3, function="cuGraphLaunch_ptsz")
        logged.append(_core.watch_state()["launches"])
        _core.watch_launches(False)
        _core.watch_stop()
        with Profile():
            found.append(calls())
            _core.watch_start()
            found.append(calls())
            _core.watch_stop()
            found.append(calls())
        _core.watch_start()
        found.append(calls())
        print(json.dumps([found, logged]))
    """)  # fmt: skip
    assert found[0] == [0, 2, 0, 0, 0, 0, 2, 0, 0]
    assert found[1] == [1, 2], "one of the two callbacks of a launch is logged, on each kind of default stream"


def test_a_profile_that_fails_or_is_dropped_ends_the_log(run: Run) -> None:
    found = run(PROFILE, """
        found = []
        first = Profile()
        first.__enter__()
        Profile(use_device=None).__exit__(None, None, None)  # another one ends
        found.append(calls())
        del first
        gc.collect()
        found.append(calls())
        failing = Profile()
        failing._prepare_trace()
        Profile.__enter__(failing)
        failing.__exit__(None, None, None)
        found.append(calls())
        print(json.dumps(found))
    """)  # fmt: skip
    assert found == [2, 0, 0]


def test_launches_that_were_not_logged_are_warned_of(run: Run) -> None:
    found = run(PROFILE, """
        watch = watching.GraphWatch(with_stack=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Profile():
                cuda.launch_graph(3, times=MOST + 1234)
            with Profile():
                cuda.launch_graph(3)
        print(json.dumps([[str(one.message) for one in caught], watch.launches_lost]))
    """)  # fmt: skip
    assert found[1] == 1234 and len(found[0]) == 1, found
    assert found[0][0].startswith("1,234 launches of CUDA graphs were not logged")


def test_captures_within_a_profile_of_torch_are_known_by_their_calls(run: Run) -> None:
    """The trace that goes on meanwhile has the ops; its calls of the capture created the watched nodes, in time."""
    known, ops, estimated, later = run("""
        recording = Recording()
        def event(category, name, begin, end=None, **args):
            end = end or time.monotonic_ns()
            recording.add(category, name, threading.get_native_id(), begin, end - begin, **args)
            return begin
        def launching(op, node, kind=0):
            first = time.monotonic_ns()
            begin = time.monotonic_ns()
            cuda.node("created", node, kind=kind)
            event("cuda_runtime", "cudaMemcpyAsync" if kind else "cudaLaunchKernel", begin, correlation=node)
            event("cpu_op", op, first)
        event("cuda_runtime", "cudaStreamBeginCapture", time.monotonic_ns(), correlation=1)
        launching("aten::mm", NODES)
        launching("aten::copy_", NODES + 1, 1)
        thread = threading.Thread(target=launching, args=("aten::relu", NODES + 2))
        thread.start()
        thread.join()
        event("cuda_runtime", "cudaStreamEndCapture", time.monotonic_ns(), correlation=2)
        for i in range(3):
            cuda.node("cloned", 5 * NODES + i, NODES + i, kind=i % 2)
        at = event("cuda_runtime", "cudaGraphLaunch", time.monotonic_ns(), correlation=7)
        for i, (name, stream) in enumerate((("relu", 9), ("gemm", 7))):
            node = {"graph id": 5, "graph node id": 5 * NODES + 2 - 2 * i, "correlation": 7}
            recording.add("kernel", name, stream, at + 5000 * (i + 1), 4000, device=0, stream=stream, **node)
        def resolved(): return _core.watch_state()["resolved"]
        known = [resolved()]
        recording.base -= 3600 * 10**9  # of another hour
        recording.load()
        known.append(resolved())
        recording.base += 3600 * 10**9
        trace = recording.load()
        with fs.profile(timer="cupti") as later:
            cuda.replay(("x", 5 * NODES))
        print(json.dumps([known + [resolved()], ops(trace), trace.coverage().get("estimated"), ops(later)]))
    """)
    assert known == [0, 0, 6]
    assert ops == {"aten::relu": 4, "aten::mm": 4} and not estimated, "the ids of nodes are exact, on any stream"
    assert later["aten::mm"] == 4, "later profiles know them too"

"""flopscope run watches CUDA graphs: on a fake CUPTI, in a process that records itself."""

import importlib.util

import pytest
from helpers.fake_cupti import Run, runner

NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

BEGIN = """
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
warnings.simplefilter("error")
from flopscope.support import capture as loading
from flopscope.record import watching
from flopscope.cli.recording import Recording, Window
watching._GPU_FILES = ("/",)  # a machine with a GPU
NODES = 1 << 32
told = []

def recording(window=None, **settings):
    made = Recording(window, {"record_shapes": True} | settings, told.append)
    made.begin()
    return made

def ranges(prof):
    return {row.key: row.device_time_total for row in prof.key_averages(peaks="none")
            if row.is_user_annotation and row.device_type == "cpu"}
"""
# A torch for the CPU passes for one with CUDA, which the program initializes.
TORCH = """
import torch
cuda_is_used = []
torch.version.cuda = "13.0"
torch.cuda.is_initialized = lambda: bool(cuda_is_used)
torch.cuda._lazy_init = lambda: cuda_is_used.append(True)

class Node(torch.autograd.Function):
    # An op that creates a node of a graph.
    @staticmethod
    def forward(ctx, x):
        cuda.node("created", NODES + 1)
        return x.clone()

class CUDAGraph:
    def capture_begin(self): pass
    def capture_end(self): pass
torch.cuda.graphs.CUDAGraph = CUDAGraph
if watching._hooked:
    watching._hook_torch(torch.cuda.graphs)

def capture():
    graph = torch.cuda.graphs.CUDAGraph()
    graph.capture_begin()
    Node.apply(torch.ones(64, 32))
    graph.capture_end()
"""


run = runner()


def test_graphs_of_a_program_are_watched_from_its_start(run: Run) -> None:
    found = run(BEGIN, """
        recorded = recording()
        with fs.record_function("step"):
            cuda.node("created", NODES)
        cuda.replay(("a", NODES))
        prof = recorded.end()
        watching._Capture = None  # of captures after the recording, which cost nothing: a call would fail
        watching._began(object())
        print(json.dumps([ranges(prof), cuda.count("initialized"), told, prof.coverage().get("unseen_graphs")]))
    """)  # fmt: skip
    assert found == [{"step": 4}, 0, [], None], "CUDA is not initialized"


def test_of_what_launches_without_torch_parts_are_recorded(run: Run) -> None:
    """Passes of five kernels; a later recording begins 1 s after the first has ended for its size."""
    found = run(BEGIN, """
        from flopscope.record import windows
        windows.LARGE = 1 << 20
        recorded = recording()
        begin, launched = time.monotonic(), 0
        while time.monotonic() < begin + 4:
            for name in "abcde":
                start, launched = cuda.now(), launched + 1  # not call(), whose clock a recording's end may change
                cuda.fake.fake_call(LAUNCH.encode(), start, start + 500, threading.get_native_id(), launched)
                cuda.kernel(name, start + 500, 500, launched)
        prof = recorded.end()
        facts = recorded.about()["steps"]
        passes = prof._core.mark_passes()
        kept = {row.count for row in prof.key_averages(peaks="none") if row.key in "abcde"}
        span = [facts["recorded_from_s"], facts["recorded_to_s"]]
        print(json.dumps([launched, passes, sorted(kept), *span, facts["bare"], facts["kind"], told]))
    """)  # fmt: skip
    launched, passes, kept, begin, end, bare, kind, told = found
    assert 20 < passes <= kept[-1] + 1 < launched / 10 and begin > 1 and begin < end
    assert bare == [] and kind == "" and told == []


def test_graphs_are_watched_before_the_window_begins(run: Run) -> None:
    found = run(BEGIN, """
        recorded = recording(Window("steps", 1))
        on = _core.watch_is_on()
        cuda.node("created", NODES)
        fs.step()
        cuda.replay(("a", NODES))
        state = _core.watch_state()
        print(json.dumps([on, state["nodes"], recorded.end() is not None, cuda.count("initialized")]))
    """)  # fmt: skip
    assert found == [True, 1, True, 0]


@NEEDS_TORCH
def test_a_program_of_torch_is_watched_from_the_moment_it_uses_cuda(run: Run) -> None:
    found = run(BEGIN, """
        recorded = recording(Window("steps", 1))
        before = _core.watch_is_on()
    """, TORCH, """
        recorded._turn_to_torch(torch)  # as after the import of a torch with CUDA
        imported = _core.watch_is_on()
        torch.cuda._lazy_init()
        used = _core.watch_is_on()
        capture()
        state = _core.watch_state()
        recorded.end()
        print(json.dumps([before, imported, used, state["resolved"], cuda.count("initialized"), told]))
    """)  # fmt: skip
    assert found == [True, False, True, 1, 0, []]


@NEEDS_TORCH
def test_torchs_profiler_attaches_to_cupti_before_the_watch_does(run: Run) -> None:
    found = run(BEGIN, TORCH, """
        order = []
        prepare, start = torch.autograd.profiler.profile._prepare_trace, _core.watch_start
        def prepare_trace(self):
            order.append("torch")
            prepare(self)
        def watch_start(evict=False):
            order.append("watch")
            start(evict)
        torch.autograd.profiler.profile._prepare_trace = prepare_trace
        watching._core = type("Core", (), {"__getattr__": lambda self, name: getattr(_core, name)})()
        watching._core.watch_start = watch_start
        recorded = recording()
        torch.cuda._lazy_init()
        first = list(order)
        Node.apply(torch.ones(2))
        prof = recorded.end()
        print(json.dumps([first, [row.key for row in prof.key_averages(peaks="none") if row.key == "Node"], told]))
    """)  # fmt: skip
    assert found[0][:2] == ["torch", "watch"] and found[0][-1] == "torch", "a profile that only attaches comes first"
    assert found[1:] == [["Node"], []]


@NEEDS_TORCH
def test_cupti_is_detached_where_torchs_profiler_left_it_attached(run: Run) -> None:
    found = run(BEGIN, TORCH, """
        recorded = recording()
        recorded._turn_to_torch(torch)
        torch.cuda._lazy_init()
        said = []
        for over in (False, True):
            Node.apply(torch.ones(2))
            recorded._windows.is_over = over
            before = cuda.count("finalized")
            recorded._safely(recorded._pause)
            said.append([cuda.count("finalized") - before, _core.watch_is_on(), watching._background])
            recorded._safely(recorded._start_torch)
        recorded.end()
        print(json.dumps([said, told, recorded.why_nothing]))
    """)  # fmt: skip
    assert found == [[[1, True, True], [1, False, False]], [], ""], "watched again while recordings follow"


@pytest.mark.parametrize(
    ("where", "why"), [("no driver", "no NVIDIA driver could be loaded"), ("switched off", "FLOPSCOPE_WATCH_GRAPHS=0")]
)
def test_why_graphs_could_not_be_watched_is_told_with_their_kernels(run: Run, where: str, why: str) -> None:
    found = run(BEGIN, f"""
        if {where == "switched off"}:
            os.environ["FLOPSCOPE_WATCH_GRAPHS"] = "0"
        else:
            def no_driver(path=None):
                raise RuntimeError("no NVIDIA driver could be loaded (libcuda.so.1: not found)")
            watching.why_not_loaded = lambda load: "no NVIDIA driver could be loaded (libcuda.so.1: not found)"
        recorded = recording()
        with fs.record_function("step"):
            cuda.node("created", NODES)
        cuda.replay(("a", NODES))
        prof = recorded.end()
        said = recorded.about()["hints"]["graphs"]
        print(json.dumps([ranges(prof), prof.coverage()["unseen_graphs"], said, told]))
    """)  # fmt: skip
    assert found[0] in ({}, {"step": 0}) and found[1] == 4 and found[3] == []
    assert f"They could not be watched: {why}" in found[2]


def test_a_program_without_a_gpu_loads_nothing(run: Run) -> None:
    found = run(BEGIN, """
        watching._GPU_FILES = ("/nowhere",)
        watching.why_not_loaded = None  # a call would fail
        recorded = recording(Window("steps", 1))
        print(json.dumps([recorded.why_nothing, watching.why_unwatched(), _core.watch_is_on(), told]))
    """, load=False)  # fmt: skip
    assert found == ["", "", False, []]

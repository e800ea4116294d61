"""Ranges of NVTX: what real libraries with NVTX inside them mark is in the profile. Each program is its own oracle."""

import json
from pathlib import Path

import pytest
from helpers.nvtx_programs import VARIABLE, compiled, needs_headers, needs_package, paths, printed
from helpers.run_programs import run, script


@needs_package
def test_ranges_are_rows_and_enclose_ops(tmp_path: Path) -> None:
    program = """
import json, nvtx, flopscope as fs
with fs.profile() as prof:
    for step in range(3):
        with nvtx.annotate("step", domain="Megatron-Core", category="training", color=0x123456, payload=step):
            with nvtx.annotate("forward"):
                fs.sin(fs.rand((8, 8)))
            nvtx.mark("a mark")
prof.export_chrome_trace("trace.json")
rows = {row.key: [row.count, row.is_user_annotation, row.flops_total] for row in prof.key_averages(peaks="none")}
shapes = [row.key for row in prof.key_averages(group_by_input_shape=True, peaks="none")]
parents = {e.name: e.cpu_parent and e.cpu_parent.name for e in prof.events()}
print(json.dumps([rows, shapes.count("Megatron-Core: step"), parents]))
"""
    rows, by_shape, parents = printed(tmp_path, program)
    assert rows["Megatron-Core: step"][:2] == [3, True] and rows["forward"][:2] == [3, True]
    assert rows["forward"][2] == rows["flopscope::sin"][2] == 3 * 64
    assert by_shape == 1  # payloads do not tell rows apart
    assert parents["flopscope::sin"] == "forward" and parents["forward"] == "Megatron-Core: step"
    assert "a mark" not in rows
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    steps = [event["args"] for event in events if event["name"] == "Megatron-Core: step"]
    assert [step["payload"] for step in steps] == [0, 1, 2]
    assert {(step["category"], step["color"]) for step in steps} == {("training", "#123456")}


@needs_package
@pytest.mark.parametrize("early", [True, False])
def test_a_library_that_was_called_before_is_heard_only_if_it_was_watched(tmp_path: Path, early: bool) -> None:
    program = f"""
import json, nvtx, flopscope as fs
if {early}:
    fs.watch_nvtx()
with nvtx.annotate("before", domain="library"):
    pass
with fs.profile() as prof:
    with nvtx.annotate("within", domain="library"):
        fs.rand((4,))
print(json.dumps([row.key for row in prof.key_averages(peaks="none")]))
"""
    names = printed(tmp_path, program)
    assert ("library: within" in names) == early and "library: before" not in names


@needs_package
@pytest.mark.parametrize("tool", ["/some/other/tool.so", ""])
def test_a_program_keeps_its_own_tool(tmp_path: Path, tool: str) -> None:
    program = f"""
import json, os, nvtx, flopscope as fs
try:
    fs.watch_nvtx()
except RuntimeError as problem:
    said = str(problem)
with fs.profile() as prof:
    with nvtx.annotate("range"):
        fs.rand((4,))
print(json.dumps([said, [row.key for row in prof.key_averages(peaks="none")], os.environ["{VARIABLE}"]]))
"""
    said, names, after = printed(tmp_path, program, **{VARIABLE: tool})
    assert VARIABLE in said and repr(tool) in said and names == ["flopscope::rand"] and after == tool


@needs_package
def test_threads_and_steps_and_ranges_that_stay_open(tmp_path: Path) -> None:
    program = """
import json, threading, nvtx, flopscope as fs
plan = fs.schedule(wait=0, warmup=1, active=2)
found = []
def ready(prof):
    found.append([[e.name, e.cpu_parent and e.cpu_parent.name] for e in prof.events() if e.kind == "range"])
    found.append(sorted({e.thread for e in prof.events() if e.name == "work"}))
def work():
    for _ in range(5):
        with nvtx.annotate("work"):
            pass
with fs.profile(schedule=plan, on_trace_ready=ready) as prof:
    across = nvtx.start_range("open at the start of the cycle")
    for step in range(3):
        nvtx.push_range("in a step")
        if step == 2:
            threads = [threading.Thread(target=work) for _ in range(2)]
            [thread.start() for thread in threads], [thread.join() for thread in threads]
        nvtx.pop_range()
        if step == 1:
            nvtx.end_range(across)
        prof.step()
print(json.dumps(found))
"""
    ranges, threads = printed(tmp_path, program)
    assert [name for name, _ in ranges if name != "work"] == ["in a step"] * 2
    assert [parent for name, parent in ranges if name == "in a step"] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert sum(name == "work" for name, _ in ranges) == 10 and len(threads) == 2


@needs_package
def test_run_hears_all_and_changes_nothing_that_the_program_sees(tmp_path: Path) -> None:
    program = f"""
import os, nvtx
assert "{VARIABLE}" not in os.environ
import flopscope as fs
def step(number):
    with nvtx.annotate("step", domain="RAPIDS", payload=number):
        fs.sin(fs.rand((64, 64)))
for number in range(4):
    step(number)
"""
    options = ("--no-report", "--no-summary", "--trace", "trace.json")
    ended = run(tmp_path, *options, script(tmp_path, program), PYTHONPATH=paths())
    assert ended.returncode == 0, ended.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["args"]["payload"] for event in events if event["name"] == "RAPIDS: step"] == [0, 1, 2, 3]


@needs_package
def test_profiles_of_torch_have_the_ranges_on_their_clock(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
import json, nvtx, torch, flopscope as fs
from flopscope.torch import profile
fs.watch_nvtx()
x = torch.rand(4)
domain = nvtx.get_domain("TransformerEngine")
tight = domain.get_event_attributes("tight", payload=7)
with profile() as prof:
    for _ in range(500):
        with torch.profiler.record_function("around"):
            domain.push_range(tight)
            x.neg_()
            domain.pop_range()
prof.export_chrome_trace("trace.json")
parents = [[e.cpu_parent and e.cpu_parent.name, e.cpu_parent and e.cpu_parent.cpu_parent.name]
           for e in prof.trace().events() if e.name == "aten::neg_"]
rows = [[row.count for row in each.key_averages(peaks="none") if row.key == "TransformerEngine: tight"]
        for each in (prof, fs.load_trace("trace.json"))]
print(json.dumps([parents, rows]))
"""
    parents, counts = printed(tmp_path, program)
    assert len(parents) == 500 and counts == [[500], [500]]
    # the clocks agree to a fraction of a microsecond, or ops would lie beside their ranges
    assert sum(pair == ["TransformerEngine: tight", "around"] for pair in parents) >= 490
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["args"]["payload"] for event in events if event["name"] == "TransformerEngine: tight"} == {7}


@needs_package
def test_children_are_not_recorded_and_not_disturbed(tmp_path: Path) -> None:
    program = """
import json, os, subprocess, sys, nvtx, flopscope as fs
with fs.profile() as prof:
    with nvtx.annotate("of the parent"):
        child = os.fork()
        if child == 0:
            with nvtx.annotate("of the child"):
                pass
            with fs.profile() as own, nvtx.annotate("of the child's own profile"):
                pass
            os._exit([e.name for e in own.events()] != ["of the child's own profile"])
        _, status = os.waitpid(child, 0)
        other = "import nvtx, sys\\nwith nvtx.annotate('x'): pass\\nsys.exit('flopscope' in sys.modules)"
        spawned = subprocess.run([sys.executable, "-c", other]).returncode
print(json.dumps([status, spawned, [e.name for e in prof.events()]]))
"""
    assert printed(tmp_path, program) == [0, 0, ["of the parent"]]


@needs_headers
def test_a_c_library_in_all_its_ways(tmp_path: Path) -> None:
    program = """
import ctypes, json, subprocess, sys, flopscope as fs
library = ctypes.CDLL(sys.argv[1])
library.push_all_reduce.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
with fs.profile() as prof:
    library.push(b"outer")
    library.push_wide()
    library.push_all_reduce(2**63 + 1, 4096)
    depths = [library.pop_in(b"NCCL"), *(library.pop() for _ in range(3))]
    spawned = subprocess.run([sys.argv[2]]).returncode
prof.export_chrome_trace("trace.json")
print(json.dumps([[[e.name, e.cpu_parent and e.cpu_parent.name] for e in prof.events()], depths, spawned]))
"""
    library, other = compiled(tmp_path, "-shared", "-fPIC"), compiled(tmp_path)
    ranges, depths, spawned = printed(tmp_path, program, library, other)
    assert ranges == [["outer", None], ["wächst", "outer"], ["NCCL: ncclAllReduce", "wächst"]]
    assert depths == [2, 1, 0, -2] and spawned == 0  # a program without Python cannot load the tool, and runs
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (payload,) = [event["args"]["payload"] for event in events if event["name"] == "NCCL: ncclAllReduce"]
    assert payload == {"NCCL communicator ID": 2**63 + 1, "Message size [bytes]": 4096}

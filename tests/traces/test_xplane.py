"""Recordings of XLA's profiler: xplane.pb. The files are made by an encoder of the tests."""

import gzip
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import TESTS
from helpers.hlo_texts import ADD, module, pair
from helpers.protobufs import GPU_STATS, Plane, Ref, environment, field, kernel_details, message, space

import flopscope as fs
from flopscope import _core
from flopscope.read.load import read

SMALL = kernel_details((1,), (2,))
START = 1_795_405_150_328_813_463


def _gpu(device: int = 0) -> Plane:
    return Plane(f"/device:GPU:{device}", GPU_STATS)


def _host(before: bytes = b"", after: bytes = b"") -> Plane:
    """Return a plane of one event, with other bytes around it."""
    cpu = Plane("/host:CPU")
    cpu.line(1, "python", [before + cpu.event("work", 0, 1000) + after])
    return cpu


def _step() -> bytes:
    """Return the recording of a step: two kernels, a copy and a fill, launched by a thread."""
    gpu = _gpu()
    details = kernel_details((4096, 2, 3), (128, 4, 2), 40, 16, 48)
    hlo = {"hlo_module": Ref("jit_step"), "hlo_op": Ref("loop_add_fusion")}
    copied = Ref("kind_src:pageable kind_dst:device size:4096 dest:0 async:1")
    filled = Ref("kind:device num_bytes:64 async:1")
    work = [
        gpu.event("loop_add_fusion", 5_000_999, 2_000_500, correlation_id=7, kernel_details=details, **hlo),
        gpu.event("nvjet", 8_000_000, 1_000_000, correlation_id=7, kernel_details=details, cuda_graph_id=40),
        gpu.event("MemcpyH2D", 10_000_000, 500_000, correlation_id=8, memcpy_details=copied),
        gpu.event("Memset", 11_000_000, 250_000, correlation_id=9, Memset_details=filled),
    ]
    gpu.line(14, "Stream #14(MemcpyH2D,Memset,Compute)", work, start=1000)
    gpu.line(90, "XLA Modules", [gpu.event("jit_step(1)", 5_000_000, 6_000_000)], start=1000)
    gpu.line(91, "XLA Ops", [gpu.event("fusion.1", 5_000_000, 6_000_000)], start=1000)
    cpu = Plane("/host:CPU", {"process_id": 1426})
    host = [
        cpu.event("train", 0, 9_000_000, step_num=3, _r=1),
        cpu.event("$train.py:12 step", 100_000, 8_000_000),
        cpu.event("$builtins len", 150_000, 10_000),
        cpu.event("PjitFunction(step)", 200_000, 3_000_000),
        cpu.event("cuGraphLaunch (CudaGraph:40)", 1_000_000, 500_000, correlation_id=7),
        cpu.event("cuMemcpyHtoDAsync_v2", 2_000_000, 100_000, correlation_id=8),
        cpu.event("cuMemsetD32Async", 2_500_000, 100_000, correlation_id=9),
        cpu.event("MemoryAllocation", 2_700_000, 0),
    ]
    cpu.line(77, "python3", host, start=500)
    cpu.line(1426, "Host Threads/1426", [cpu.event("BUFFER_FLUSH", 0, 1_000_000)], start=20_000)
    return space(gpu, cpu, environment(START, START + 10**9))


def _times(event: Any) -> tuple[int, int]:
    """Return the start, which counts from the first event, and the duration, in ns."""
    interval = event.time_range
    return round(1000 * interval.start), round(1000 * interval.elapsed_us())


def _written(folder: Path, content: bytes, name: str = "vm.xplane.pb") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_events_launches_devices_and_clock_are_those_of_the_file(tmp_path: Path) -> None:
    trace = fs.load_trace(_written(tmp_path, _step()))
    found = {(event.kind, event.name): _times(event) for event in trace.events()}
    first = 500
    assert found == {
        ("kernel", "loop_add_fusion"): (6000 - first, 2001),  # both ends are rounded down to ns
        ("kernel", "nvjet"): (9000 - first, 1000),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)"): (11000 - first, 500),
        ("memset", "Memset (Device)"): (12000 - first, 250),
        ("runtime", "cuGraphLaunch"): (1500 - first, 500),
        ("runtime", "cuMemcpyHtoDAsync_v2"): (2500 - first, 100),
        ("runtime", "cuMemsetD32Async"): (3000 - first, 100),
        ("range", "PjitFunction(step)"): (700 - first, 3000),
        ("frame", "train.py(12): step"): (600 - first, 8000),
        ("frame", "<built-in function len>"): (650 - first, 10),
        ("step", "train#3"): (500 - first, 9000),
        ("overhead", "BUFFER_FLUSH"): (20000 - first, 1000),
    }
    trace.export_chrome_trace(tmp_path / "copy.json")
    written = json.loads((tmp_path / "copy.json").read_text())["traceEvents"]
    arguments = {event["name"]: event.get("args", {}) for event in written if event["ph"] == "X"}
    kernel = arguments["loop_add_fusion"]
    assert (kernel["device"], kernel["stream"], kernel["correlation"]) == (0, 14, 7)
    assert (kernel["grid"], kernel["block"]) == ([4096, 2, 3], [128, 4, 2])
    assert (kernel["registers per thread"], kernel["shared memory"]) == (40, 64)
    assert arguments["nvjet"]["graph id"] == 40 and arguments["Memcpy HtoD (Pageable -> Device)"]["bytes"] == 4096
    assert arguments["Memset (Device)"]["bytes"] == 64
    launchers = {event.name: event.launcher.name for event in trace.events() if event.launcher is not None}
    work = ("loop_add_fusion", "nvjet", "Memcpy HtoD (Pageable -> Device)", "Memset (Device)")
    assert launchers == dict.fromkeys(work, "PjitFunction(step)") and trace.devices == {0: "NVIDIA H200"}
    assert trace.metadata["deviceProperties"][0] == {
        **{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "clockRate": 1980000},
        **{"totalGlobalMem": 150109880320, "memoryBandwidth": 4814304000000},
    }
    assert trace.metadata["baseTimeNanoseconds"] == START and trace.process == 1426
    assert trace.metadata["xplane"]["hosts"] == ["host"]
    path = _written(tmp_path, gzip.compress(_step()), "anything.bin")  # the content tells what it is
    for source in (path, _step(), gzip.compress(_step())):
        assert len(fs.load_trace(source).events()) == 12


def _with_module(proto: bytes, ops: list[tuple[str, int]]) -> bytes:
    """Return a recording of a module, jit_f(7), and of kernels of instructions and programs; and one of none."""
    gpu, stream = _gpu(), []
    for place, (op, program) in enumerate(ops):
        stats = {"hlo_op": Ref(op), "hlo_module": Ref("jit_f"), "program_id": program}
        stream.append(gpu.event(f"k{place}", 1000_000 * place, 500_000, kernel_details=SMALL, **stats))
    stream.append(gpu.event("other", 90_000_000, 500_000, kernel_details=SMALL))
    gpu.line(14, "Stream #14(Compute)", stream)
    facts = Plane("/host:metadata")
    facts.describe("jit_f(7)", (5, facts.stat("Hlo Proto", proto)))
    return space(gpu, facts)


def test_kernels_have_their_instructions(tmp_path: Path) -> None:
    ops = [("fusion.1", 7), ("dot.2", 7), ("fusion.1", 8), ("fusion.1", 7)]
    with pytest.warns(UserWarning, match="belong to no instruction: jit_f"):
        modules = read(str(_written(tmp_path, _with_module(b"module", ops)))).modules
    assert modules is not None and modules.protos == {"jit_f(7)": b"module"}
    found = [modules.instructions[place] for place in modules.places]
    assert found == [(f"jit_f({program})", name) for name, program in ops] and list(modules.events) == [0, 1, 2, 3]


def test_kernels_have_the_work_of_their_instructions(tmp_path: Path) -> None:
    _, proto = pair("mlp")
    work = fs.work_of_hlo(proto)
    names = [str(name) for name in work.name]
    trace = fs.load_trace(_written(tmp_path, _with_module(proto, [(name, 7) for name in names * 3])))
    rows = trace.key_averages(peaks="none").to_pandas()
    assert rows.flops.sum() == 3 * work.flops.sum() > 0 and rows.bytes_read.sum() == 3 * work.bytes_read.sum()
    assert rows.bytes_written.sum() == 3 * work.bytes_written.sum()


def test_notes_are_in_the_words_of_jax(tmp_path: Path) -> None:
    gpu, cpu = _gpu(), Plane("/host:CPU", {"process_id": 5})
    gpu.line(14, "Stream #14(Compute)", [gpu.event("gemm", 0, 500_000, kernel_details=SMALL)])
    cpu.line(1, "python", [cpu.event("PjitFunction(step)", 0, 1000)])
    trace = fs.load_trace(_written(tmp_path, space(gpu, cpu)))
    assert "the recording lacks the HLO" in trace.hints.shapes
    assert "jax.profiler.StepTraceAnnotation" in " ".join(trace.advice().notes)


def _runs(folder: Path, hosts: tuple[str, ...]) -> Path:
    for run, name in (("2026_01_01", "old"), ("2026_01_02", "new")):
        place = folder / "log" / "plugins" / "profile" / run
        place.mkdir(parents=True)
        for host in hosts:
            cpu = Plane("/host:CPU", {"process_id": 5})
            cpu.line(1, "python", [cpu.event(f"{name} {host}", 0, 1000)])
            (place / f"{host}.xplane.pb").write_bytes(space(cpu, environment(START, START + 1)))
            (place / f"{host}.trace.json.gz").write_bytes(b"for viewers")
        (place / "perfetto_trace.json.gz").write_bytes(b"for viewers")
    os.utime(folder / "log" / "plugins" / "profile" / "2026_01_01", (0, 0))
    return folder / "log"


def test_the_newest_run_of_a_folder_is_read(tmp_path: Path) -> None:
    folder = _runs(tmp_path, ("vm",))
    for place in (folder, folder / "plugins" / "profile" / "2026_01_02"):
        assert [event.name for event in fs.load_trace(place).events()] == ["new vm"]
    (trace,) = fs.load_traces(folder)
    assert trace.source.endswith("vm.xplane.pb") and trace.rank is None


def test_the_hosts_of_a_run_are_ranks(tmp_path: Path) -> None:
    folder = _runs(tmp_path, ("host-10", "host-2"))
    with pytest.raises(ValueError, match="it holds the recordings of 2 hosts"):
        fs.load_trace(folder)
    traces = fs.load_traces(folder)
    assert [(trace.rank, trace.events()[0].name) for trace in traces] == [(0, "new host-2"), (1, "new host-10")]
    assert traces[1].metadata["distributedInfo"] == {"rank": 1, "world_size": 2}


def test_a_call_that_is_recorded_twice_counts_once(tmp_path: Path) -> None:
    cpu = Plane("/host:CPU")
    calls = [("PjitFunction(f)", 0, 9), ("PjitFunction(f)", 1, 7), ("ParseArguments", 2, 2)]
    cpu.line(1, "python", [cpu.event(name, start * 1000, length * 1000) for name, start, length in calls])
    rows = {row.key: row for row in fs.load_trace(_written(tmp_path, space(cpu))).key_averages()}
    assert rows["PjitFunction(f)"].count == 1 and rows["PjitFunction(f)"].cpu_time_total == pytest.approx(0.009)
    assert rows["PjitFunction(f)"].self_cpu_time_total == pytest.approx(0.007)


def test_ops_of_a_tpu_are_its_innermost_ones(tmp_path: Path) -> None:
    tpu = Plane("/device:TPU:1", {"device_type_string": "TPU v4"})
    ops = [("while", 0, 100), ("fusion", 0, 30), ("while.1", 40, 50), ("dot", 40, 50), ("copy", 100, 10)]
    tpu.line(2, "XLA Ops", [tpu.event(name, start * 1000, length * 1000) for name, start, length in ops])
    tpu.line(1, "XLA Modules", [tpu.event("jit_step(1)", 0, 110_000)])
    trace = fs.load_trace(_written(tmp_path, space(tpu)))
    kernels = {event.name: _times(event)[1] for event in trace.events() if event.kind == "kernel"}
    assert kernels == {"fusion": 30, "dot": 50, "copy": 10}
    assert trace.devices == {1: "TPU v4"} and trace._core.devices == {"tpu:1"}


SUM = "channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add"
HLO = {
    "jit_psum(1)": module(
        f"""x = f32[1024] parameter(0)
        all-reduce-start = f32[1024] all-reduce-start(x), {SUM}
        all-reduce-done = f32[1024] all-reduce-done(all-reduce-start)
        r.1 = f32[1024] all-reduce(all-reduce-done), {SUM}""",
        ADD,
    ),
    "jit_f(2)": module("""x = f32[1024]{0:S(5)} parameter(0)
        copy-start = (f32[1024]{0}, f32[1024]{0:S(5)}, u32[]) copy-start(x)
        copy-done = f32[1024]{0} copy-done(copy-start)
        r.1 = f32[1024] multiply(copy-done, copy-done)"""),
}
RAN = {1: ("all-reduce-start", "all-reduce-done", "r.1"), 2: ("copy-start", "copy-done", "r.1")}


@pytest.mark.filterwarnings("ignore:.*belong to no instruction")
@pytest.mark.parametrize("told", ["number", "line", "other number", "nothing"])
def test_ops_of_a_tpu_run_the_instructions_that_they_name(tmp_path: Path, told: str) -> None:
    tpu, ops = Plane("/device:TPU:0"), []
    for place, program in enumerate((1, 2, 2)):
        for at, name in enumerate(RAN[program]):
            text = f"%{name} = f32[1024]{{0:T(8,128)S({program})}} op(…)"
            if "number" in told:
                tpu.describe(text, (5, tpu.stat("program_id", program if told == "number" else 3)))
            ops.append(tpu.event(text, (100 * place + 10 * at) * 10**6, (1 if "start" in name else 10) * 10**6))
    tpu.line(3, "XLA Ops", ops)
    if told == "line":
        runs = [tpu.event(name, place * 10**8, 10**8) for place, name in enumerate([*HLO, "jit_f(2)"])]
        tpu.line(2, "XLA Modules", runs)
    trace = fs.load_trace(_written(tmp_path, space(tpu)), hlo=HLO)
    works = [event for event in trace.events() if event.kind in ("kernel", "memcpy")]
    owners = {(event.name, event.launcher.name if event.launcher else "") for event in works}
    reduced = {(name, f"tested(2)/{name}") for name in RAN[1]}
    tied = {(name, name) for name in RAN[2]} | reduced
    untied = {(name, "") for name in RAN[1] + RAN[2]}
    unsure = {("r.1", "")} | {pair for pair in tied if pair[0] != "r.1"}  # it is in two modules
    assert owners == {"other number": untied, "nothing": unsure}.get(told, tied)
    whole = trace.accounting().iloc[-1]
    assert list(whole[["copy", "other", "host"]]) == pytest.approx([22, 167, 0])  # no launch was recorded
    if owners != tied:
        return
    rows = {row.key: row for row in trace.key_averages(peaks="none") if row.device_type == "cpu"}
    assert (rows["r.1"].flops, rows["r.1"].bytes_read, rows["r.1"].count) == (2 * 1024, 2 * 4096, 2)
    # An asynchronous instruction works between its start and its end: in the time of neither.
    for name in ("copy-start", "copy-done", "tested(2)/all-reduce-start", "tested(2)/all-reduce-done"):
        assert math.isnan(rows[name].bytes_read) and math.isnan(rows[name].flops), name
    assert {rows[name].category for name in ("copy-start", "copy-done")} == {"copies"}
    frame = trace.collectives()
    assert list(frame.collective) == ["allreduce", "allreduce"] and list(frame.duration) == [10, 10]
    assert math.isnan(frame.message_bytes[0]) and frame.message_bytes[1] == 4096


def test_ops_of_a_sparse_core_are_a_stream_of_its_device(tmp_path: Path) -> None:
    planes = [Plane("/device:TPU:0", {"device_type_string": "TPU v5"}), Plane("/device:TPU:0 SparseCore 1")]
    for plane, line in zip(planes, ("XLA Ops", "Sparse Core Ops"), strict=True):
        plane.line(3, line, [plane.event(line, 0, 10**6)])
    trace = fs.load_trace(_written(tmp_path, space(*planes)))
    rows = {row.group for row in trace.key_averages(group_by=("name", "stream")) if row.device_type != "cpu"}
    assert rows == {"tpu:0 stream 3", "tpu:0 stream 2003"} and trace.devices == {0: "TPU v5"}


def test_streams_without_events_and_errors_of_the_profiler_are_noted(tmp_path: Path) -> None:
    gpu, cpu = _gpu(), _host()
    gpu.line(14, "Stream #14(Compute)", [])
    for content, said in (
        (space(gpu, cpu), "/device:GPU:0 has 1 stream without events"),
        (space(cpu, errors=["CUPTI could not be loaded"]), "the profiler reported: CUPTI could not be loaded"),
    ):
        with pytest.warns(UserWarning, match=said):
            fs.load_trace(_written(tmp_path, content))


def test_names_of_scattered_ids_are_found(tmp_path: Path) -> None:
    cpu = Plane("/host:CPU", first_id=1 << 61)
    other = Plane("/host:CPU")
    events = [plane.event(name, 0, 1000) for plane, name in ((cpu, "far"), (other, "near"))]
    cpu.line(1, "a", events[:1])
    other.line(2, "b", events[1:])
    trace = fs.load_trace(_written(tmp_path, space(cpu, other)))
    assert sorted(event.name for event in trace.events()) == ["far", "near"]


DAMAGED = {
    **{f"cut by {cut}": lambda cut=cut: _step()[:-cut] for cut in (1, 9, 40, 200, 900)},
    "endless number": lambda: space(_host(after=b"\xff" * 11)),
    "unknown type": lambda: space(_host(after=b"\x0f")),
    "longer than what holds it": lambda: space(_host(after=field(3, b"")[:1] + b"\x7f")),
    "groups": lambda: space(_host(after=b"\x0b" * 100)),
    "end of a group": lambda: space(_host(after=b"\x0c")),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_an_error_with_the_byte(tmp_path: Path, case: str) -> None:
    with pytest.raises(ValueError, match=r"vm\.xplane\.pb: byte \d+: "):
        fs.load_trace(_written(tmp_path, DAMAGED[case]()))


def test_groups_and_unknown_fields_are_skipped() -> None:
    group = b"\x7b\x08\x05\x83\x01\x84\x01\x7c"  # field 15, with a number and field 16, an empty group
    cpu = _host(message((99, 1.5), (98, b"x")) + group)
    assert [event.name for event in fs.load_trace(space(cpu)).events()] == ["work"]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (field(1, field(2, "/host:CPU")) * 5000, "more than 4096 planes"),
        (field(1, field(2, "/host:CPU") + field(3, b"") * 70_000), "more than 65536 lines"),
        (field(1, field(2, "/host:CPU") + field(4, b"") * 4_200_000), "more than 4194304 names"),
    ],
    ids=["planes", "lines", "names"],
)
def test_what_would_take_more_memory_than_the_file_is_an_error(content: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=rf"byte \d+: {what}"):
        fs.load_trace(content)


def test_times_beyond_64_bits_are_left_out(tmp_path: Path) -> None:
    cpu = Plane("/host:CPU")
    cpu.line(1, "python", [cpu.event("late", (1 << 63) - 1, 1000), cpu.event("work", 0, 1000)], start=(1 << 63) - 1)
    with pytest.warns(UserWarning, match="2 without a time"):
        assert not fs.load_trace(_written(tmp_path, space(cpu))).events()


def test_any_number_of_threads_reads_the_same(tmp_path: Path) -> None:
    cpu = Plane("/host:CPU")
    for thread in range(4):
        cpu.line(thread, "t", [cpu.event(f"work{i % 7}", 1000 * i, 500) for i in range(60_000)], start=thread)
    path = _written(tmp_path, space(cpu))
    before = _core.num_threads()
    try:
        tables = []
        for threads in (1, 2, 3, 16):
            _core.set_num_threads(threads)
            tables.append([(event.name, *_times(event)) for event in fs.load_trace(path).events()])
    finally:
        _core.set_num_threads(before)
    assert all(table == tables[0] for table in tables) and len(tables[0]) == 240_000


def test_a_recording_of_jax_has_the_events_of_its_own_reader() -> None:
    """Three steps on a CPU, by JAX 0.10.2; the sums are those of jax.profiler.ProfileData, where a call of a jitted
    function counts once.
    """
    folder = TESTS / "data" / "traces"
    expected = json.loads((folder / "jax_cpu.profile_data.json").read_text())
    trace = fs.load_trace(folder / "jax_cpu.xplane.pb.gz")
    counts: dict[str, list[int]] = {}
    for event in trace.events():
        found = counts.setdefault(event.name, [0, 0])
        found[0] += 1
        found[1] += _times(event)[1]
    frames = re.compile(r"\$(.*?)(?::(\d+))? (.*)")
    for name, (count, duration) in expected.items():
        match = frames.fullmatch(name)
        if match:
            name = f"{match[1]}({match[2]}): {match[3]}" if match[2] else f"<built-in function {match[3]}>"
        assert counts[name][0] >= count, name  # functions of several modules have one name
        assert counts[name][1] > duration - 2 * count, name
    assert sum(count for count, _ in counts.values()) == sum(count for count, _ in expected.values())
    assert sum(total for _, total in counts.values()) == pytest.approx(
        sum(duration for _, duration in expected.values()), abs=len(trace.events())
    )
    assert [row["step"] for _, row in trace.step_breakdown().iterrows()] == ["train#0", "train#1", "train#2"]
    modules = read(str(folder / "jax_cpu.xplane.pb.gz")).modules
    assert modules is not None
    work = fs.work_of_hlo(modules.protos["jit_step(6)"])
    assert work.product_flops.sum() == 2 * (2 * 32 * 64 * 64)  # x @ w and its gradient by w

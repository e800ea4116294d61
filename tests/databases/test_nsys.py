"""Exports of Nsight Systems, held against SQL, and against torch's own traces of the same programs."""

import gzip
import math
from pathlib import Path
from typing import Any

import pytest
from helpers import TRACES, captures
from helpers.captures import KERNEL, RUNTIME, Nsys, change, global_tid, nsys_of, query, write_tables
from helpers.nsys_programs import ADD, MOCK, SGEMM, device_rows, fake_nsys, program, rows
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.read import database

# Rows -----------------------------------------------------------------------------------------------------------------


def kernels_of(path: Path) -> dict[str, tuple[int, int]]:
    names = f"from {KERNEL} k join StringIds s on s.id = k.demangledName group by s.value"
    return {name: (count, ns) for name, count, ns in query(path, f"select s.value, count(*), sum(end - start) {names}")}


@pytest.mark.parametrize("old", [False, True], ids=["schema 3", "schema 2"])
def test_kernels_and_copies_equal_sql(old: bool, reader: str, tmp_path: Path) -> None:
    path = program(old=old).write(tmp_path / "x.sqlite")
    prof = fs.load_trace(path)
    assert kernels_of(path).items() <= device_rows(prof).items()
    calls = f"from {RUNTIME} r join StringIds s on s.id = r.nameId where s.value like 'cuda%' group by 1"
    of_sql = query(path, f"select rtrim(rtrim(s.value, '0123456789'), '_v'), count(*), sum(end - start) {calls}")
    of_rows = {row.key: (row.count, round(1000 * row.cpu_time_total)) for row in rows(prof, "cpu").values()}
    assert of_sql and {name: (count, ns) for name, count, ns in of_sql}.items() <= of_rows.items()
    found = device_rows(prof)
    copy = "Memcpy HtoD (Pageable -> Device)" if not old else "Memcpy HtoD (Unknown -> Unknown)"
    assert found[copy] == (2, 20) and found["Memset (Device)" if not old else "Memset (Unknown)"] == (2, 10)
    assert len(found) == len(kernels_of(path)) + 2 and prof.report["events"] == prof.report["kept"] == len(prof)
    tables = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET"))
    work = " union all ".join(f"select start, end, deviceId from {table}" for table in tables)
    frame = prof.stream_summary()
    busy = {int(row.device): round(1000 * row.busy) for row in frame[frame.stream.notna()].itertuples()}
    assert busy == dict(query(path, f"select deviceId, sum(end - start) from ({work}) group by deviceId"))


def test_work_belongs_to_the_op_around_its_call_and_follows_from_shapes(reader: str, tmp_path: Path) -> None:
    prof = program().load(tmp_path)
    found = rows(prof, "cpu")
    assert found["aten::mm"].self_device_time_total == pytest.approx(0.1)
    assert found["aten::linear"].self_device_time_total == 0
    assert found["aten::linear"].device_time_total == pytest.approx(0.1)
    assert found["aten::add"].self_device_time_total == pytest.approx(0.06) and found["ProfilerStep*"].count == 2
    kernels = [event for event in prof.events() if event.kind == "kernel"]
    assert len(kernels) == 4
    for event in kernels:
        assert event.launcher.name in ("aten::mm", "aten::add")
        assert abs(event.time_range.start - event.launcher.time_range.start) < 0.2, "the op of the same process"
    product = next(row for row in prof.key_averages(group_by_input_shape=True) if row.key == "aten::mm")
    assert product.input_shapes == [[64, 32], [32, 16]] and product.flops == 2 * 2 * 64 * 32 * 16
    assert product.bytes_total_moved == 2 * 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert {name for name, _ in prof.coverage()["estimated"]} == {"aten::mm", "aten::add"}, "inferred from kernels"


def test_without_kernels_that_tell_a_dtype_bytes_are_unknown(tmp_path: Path) -> None:
    made = Nsys()
    made.add("TARGET_INFO_GPU", **captures.RTX3080)
    made.nvtx("aten::mm, op_id = 2, sizes = [[64, 32], [32, 16]]", 20, 180)
    made.call("cudaLaunchKernel_v7000", 30, 40, 1)
    made.kernel("some_product", 100, 150, 1)
    row = rows(made.load(tmp_path))["aten::mm"]
    assert row.flops == 2 * 64 * 32 * 16 and math.isnan(row.bytes_total_moved)
    assert math.isnan(row.pct_roofline), "the unit that did the FLOPs is unknown"
    made.tables[KERNEL][0]["demangledName"] = made.string("nvjet_sm90_tst_64x8_64x16_1x1_h_bz_TNN")
    row = rows(fs.load_trace(made.write(tmp_path / "y.sqlite")))["aten::mm"]
    assert row.bytes_total_moved == 2 * (64 * 32 + 32 * 16 + 64 * 16)


@pytest.mark.parametrize("name", ["square", "tracking_flops", "tutorial_naive", "tutorial_optimised"])
def test_a_torch_program_gives_the_rows_of_its_torch_trace(name: str, reader: str, tmp_path: Path) -> None:
    """The ops, calls and kernels of a recorded program, as nsys would have written them."""
    trace = TRACES / f"{name}.json.gz"
    theirs, ours = fs.load_trace(trace), fs.load_trace(nsys_of(trace, tmp_path / "x.sqlite"))

    def key(row: Any) -> tuple[Any, ...]:
        return row.key, row.device_type, row.is_user_annotation

    def times(row: Any) -> list[int]:
        names = ("self_cpu_time_total", "self_device_time_total")
        return [round(1000 * getattr(row, name)) for name in names]

    def numbers(table: Any) -> dict[Any, Any]:
        return {key(row): times(row) for row in table}

    expected, found = numbers(theirs.key_averages()), numbers(ours.key_averages())
    profilers = ("Activity Buffer Request", "[memory]", "Lazy Function Loading")
    only_traced = {one for one in expected if one[0] in profilers or (one[1] == "cuda" and one[2])}
    overheads = theirs.key_averages()
    inside = {"aten::pow", "aten::fill_"} if any(row.key == profilers[0] for row in overheads) else set()
    assert found.keys() == expected.keys() - only_traced
    for one in found:
        if one[0] not in inside:  # torch subtracts its own overhead within these
            assert found[one] == expected[one], one
    flops = {row.key: row.flops for row in theirs.key_averages() if row.flops > 0}
    same = {row.key: row.flops for row in ours.key_averages() if row.flops > 0}
    assert same.items() <= flops.items() and {"aten::mm", "aten::addmm"} & flops.keys() <= same.keys()


# Ranges ---------------------------------------------------------------------------------------------------------------

SIZES = "sizes = [[16, 128], [128, 64]]"
NAMES = {
    f"aten::mm, seq = 12, op_id = 345, {SIZES}, input_op_ids = [(340,0), (0,-1)]": ("aten::mm", True),
    f"aten::mm, seq = 12, {SIZES}": ("aten::mm", True), "aten::empty": ("aten::empty", True),
    "flash_attn::_flash_attn_forward, op_id = 3": ("flash_attn::_flash_attn_forward", True),
    "FlashAttnFunc, seq = 1, op_id = 3": ("FlashAttnFunc", True),
    "record_param_comms, op_id = 9": ("record_param_comms", True),
    "triton_poi_fused_add_0, op_id = 9": ("triton_poi_fused_add_0", True),
    "AddBackward0, seq = 4, op_id = 7": ("AddBackward0", True),
    "FSDP::pre_forward (encoder.block.3.layer.0), op_id = 8": ("FSDP::pre_forward (encoder.block.3.layer.0)", False),
    "forward, op_id = 4": ("forward", False),
    "Optimizer.step#Adam.step, op_id = 4": ("Optimizer.step#Adam.step", False),
    "XlaModule:#hlo_module=jit_f,program_id=3#": ("XlaModule:#hlo_module=jit_f,program_id=3#", False),
    "layer, with, commas, op_id = x": ("layer, with, commas, op_id = x", False), "a\\b": ("a\\b", False),
    "nccl:all_reduce, op_id = 3": ("nccl:all_reduce", False), "std::vector": ("std::vector", False),
    "aten::mm, seq = 3, op_id = 4, sizes = [[16, 128], [12": ("aten::mm", True),
}  # fmt: skip


@pytest.mark.parametrize("registered", [False, True], ids=["text", "string id"])
def test_texts_of_ranges_become_ops_and_ranges(registered: bool, reader: str, tmp_path: Path) -> None:
    made = Nsys()
    for place, text in enumerate(NAMES):
        more = {"text": None, "textId": made.string(text)} if registered else {}
        made.nvtx(text, 20 * place, 20 * place + 10, **more)
    events = made.load(tmp_path).events()
    assert [(event.name, event.kind == "op") for event in events] == list(NAMES.values())


def test_ranges_of_domains_marks_and_open_ranges(reader: str, tmp_path: Path) -> None:
    made = Nsys()
    made.nvtx("NCCL", 0, None, eventType=captures.DOMAIN, domainId=3)
    made.nvtx("ncclAllReduce", 10, 20, domainId=3)
    made.nvtx("a mark", 15, None, eventType=captures.MARK)
    made.nvtx("open at the end", 16, None)
    made.nvtx("aten::mm, op_id = 3", 17, None)
    made.nvtx("elsewhere", 18, 60, eventType=captures.STARTED, endGlobalTid=global_tid(42, 77))
    made.nvtx("here", 90, 100, eventType=captures.STARTED, endGlobalTid=global_tid(42, 42))
    made.call("cudaFree_v3020", 95, 110, 1)
    with pytest.warns(UserWarning) as caught:
        prof = made.load(tmp_path)
    words = ["1 without a time", "overlap"]
    assert [word for one in caught for word in words if word in str(one.message)] == words
    found = {event.name: round(1000 * event.time_range.elapsed_us()) for event in prof.events()}
    closed = {"NCCL: ncclAllReduce": 10, "elsewhere": 42, "here": 10, "cudaFree": 15}
    assert found == {**closed, "open at the end": 94}


def test_annotations_of_collectives_leave_the_time_to_the_op_around_them(reader: str, tmp_path: Path) -> None:
    """As in torch's traces, where they end on threads of their own."""
    made = Nsys()
    made.nvtx("record_param_comms, op_id = 1", 10, 90)
    made.nvtx("nccl:all_reduce, op_id = 2", 20, 80)
    made.call("cudaLaunchKernelExC_v11060", 30, 40, 1)
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", 100, 150, 1)
    found = rows(made.load(tmp_path), "cpu")
    assert found["record_param_comms"].self_cpu_time_total == pytest.approx(0.07)
    assert found["record_param_comms"].self_device_time_total == pytest.approx(0.05)
    assert found["nccl:all_reduce"].self_cpu_time_total == 0


def test_tables_with_the_fewest_columns_are_read(reader: str, tmp_path: Path) -> None:
    made = program()
    keep = {
        KERNEL: {"start", "end", "shortName"}, RUNTIME: {"start", "end", "nameId"},
        "NVTX_EVENTS": {"start", "end", "text"}, "CUPTI_ACTIVITY_KIND_MEMCPY": {"start", "end"},
    }  # fmt: skip
    tables = {
        name: [{key: row[key] for key in row if key in keep.get(name, row)} for row in rows]
        for name, rows in made.tables.items()
    }
    tables["StringIds"] = [{"id": place, "value": text} for text, place in made.strings.items()]
    found = device_rows(fs.load_trace(write_tables(tmp_path / "x.sqlite", tables)))
    assert found[SGEMM] == (2, 100) and found["Memcpy <unknown> (Unknown -> Unknown)"] == (2, 20)
    found_host = rows(fs.load_trace(tmp_path / "x.sqlite"), "cpu")
    assert found_host["aten::mm"].count == found_host["cuMemAlloc_v2"].count == 2


def test_calls_of_libraries_are_ranges_that_own_kernels(reader: str, tmp_path: Path) -> None:
    made = Nsys()
    thread = {"globalTid": global_tid(42, 42)}
    made.add("CUBLAS_EVENTS", start=10, end=90, nameId=made.string("cublasSgemm_v2"), **thread)
    made.add("MPI_COLLECTIVES_EVENTS", start=95, end=99, textId=made.string("MPI_Allreduce"), **thread)
    made.call("cudaLaunchKernel_v7000", 20, 30, 1)
    made.kernel(SGEMM, 100, 150, 1)
    found = rows(made.load(tmp_path), "cpu")
    assert found["cublasSgemm_v2"].device_time_total == pytest.approx(0.05)
    assert found["cublasSgemm_v2"].is_user_annotation and found["MPI_Allreduce"].cpu_time_total == pytest.approx(0.004)


# Devices --------------------------------------------------------------------------------------------------------------


def test_facts_of_the_device_and_the_session(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(gzip.decompress(MOCK.read_bytes()))
    for source in (path, MOCK, path.read_bytes(), path.open("rb")):
        prof = fs.load_trace(source)
        assert kernels_of(path) and kernels_of(path).items() <= device_rows(prof).items()
    properties = prof.metadata["deviceProperties"][0]
    assert prof.devices == {0: "NVIDIA GeForce RTX 3080"}
    facts = [properties[name] for name in ("numSms", "memoryBandwidth", "l2CacheSize")]
    assert facts == [68, 760080000000, 5242880] and prof.metadata["baseTimeNanoseconds"] == 1776781226557295056
    assert prof.metadata["nsys"]["schema"] == "3.24.14" and prof.process == 91186


def test_devices_of_processes_that_each_see_one_are_told_apart(reader: str, tmp_path: Path) -> None:
    made = Nsys()
    for process, gpu in ((42, 3), (43, 5)):
        made.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=process)
        made.call("cudaLaunchKernel_v7000", 30, 40, 1, process)
        made.kernel(ADD, 100, 150, 1, process, device=0)
    prof = made.load(tmp_path)
    assert prof._core.devices - {"cpu"} == {"cuda:3", "cuda:5"}
    kernels = [event for event in prof.events() if event.kind == "kernel"]
    assert len({event.correlation for event in kernels}) == 2


def test_the_rank_comes_from_the_environment(tmp_path: Path) -> None:
    made = Nsys()
    made.kernel(ADD, 1, 2)
    environment = "PATH=/bin;RANK=3;WORLD_SIZE=8"
    made.add("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value=environment)
    prof = made.load(tmp_path)
    assert prof.rank == 3 and "PATH" not in str(prof.metadata)
    made.kernel(ADD, 1, 2, process=43)
    assert fs.load_trace(made.write(tmp_path / "y.sqlite")).rank is None, "two processes, one environment"


# Reports --------------------------------------------------------------------------------------------------------------


def test_a_report_is_exported_by_nsys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"nsys, which reads it, is not installed here; .* nsys export --type sqlite"):
        fs.load_trace(report)
    export = program().write(tmp_path / "made.sqlite")
    checks = f"assert sys.argv[1:4] == ['export', '--type', 'sqlite'] and sys.argv[-1] == {str(report)!r}"
    fake_nsys(tmp_path, checks, export)
    assert device_rows(fs.load_trace(report)) == device_rows(fs.load_trace(export))
    fake_nsys(tmp_path, "sys.exit('the report is newer than nsys')")
    with pytest.raises(ValueError, match=r"nsys export .* failed: the report is newer than nsys"):
        fs.load_trace(report)


# The same face --------------------------------------------------------------------------------------------------------


def test_an_export_without_shapes_says_how_to_record_them(tmp_path: Path) -> None:
    trace = TRACES / "tutorial_naive.json.gz"
    prof = fs.load_trace(nsys_of(trace, tmp_path / "x.sqlite", shapes=False))
    assert "record with nsys profile --pytorch=autograd-shapes-nvtx" in prof.key_averages().table()
    with pytest.raises(ValueError, match="no input shapes are recorded without nsys profile"):
        prof.key_averages(group_by="shape")


def test_hints_for_a_program_without_torch_fit_it(tmp_path: Path) -> None:
    """A program of C++ that loads a module, and waits for the keyboard between its kernels."""
    made, wait = Nsys(), 50_000_000
    for i in range(8):
        at = i * (wait + 100_000)
        made.call("cuModuleLoadDataEx" if i == 0 else "cuLaunchKernel", at, at + 20_000, i + 1)
        made.kernel("saxpy_gpu", at + 21_000, at + 90_000, i + 1)
        row = {"globalTid": global_tid(42, 42), "correlationId": 0, "returnValue": 0}
        made.add("OSRT_API", start=at + 95_000, end=at + wait, **row, nameId=made.string("getc"))
        made.add("OSRT_API", start=at + wait, end=at + wait + 5_000, **row, nameId=made.string("putc"))
        made.add("OSRT_API", start=at, end=at + wait, **row | {"globalTid": 7}, nameId=made.string("poll"))
    prof = made.load(tmp_path)
    text = " ".join(f"{prof.summary()} {prof.hints} {prof.key_averages()}".split())
    assert "the host was in getc for" in text and "nsys profile --gpu-metrics-devices=all" in text
    assert "--delay" in prof.hints.options["later"]
    for word in ("torch.profiler", "PyTorch", "skip_first", "JAX", "was not recorded", "poll", "putc"):
        assert word not in text.replace(prof.hints.option, ""), word


def test_a_newer_schema_is_read_with_a_warning(tmp_path: Path) -> None:
    made = Nsys(schema="4.1.0")
    made.kernel(ADD, 1, 2)
    with pytest.warns(UserWarning, match=r"its schema is 4\.1\.0, newer than 3\.x"):
        prof = made.load(tmp_path)
    assert device_rows(prof) == {ADD: (1, 1)}


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    made = program()
    made.nvtx("mark", 1, None, eventType=captures.MARK)
    for start in range(3):
        made.add("OSRT_API", start=start, end=9, nameId=1)
    made.add("DIAGNOSTIC_EVENT", timestamp=3, text="x")
    nsys = made.load(tmp_path).metadata["nsys"]
    assert nsys["unread"] == {"OSRT_API": 3} and nsys["marks"] == 1 and nsys["tables"][KERNEL] == 4


def test_big_tables_are_read_by_ranges_of_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(database, "LEAST_SPLIT", 4)
    made = Nsys()
    for index in range(20_000):
        made.string(f"unused {index}")
    for index in range(100):
        made.kernel(f"kernel_{index % 7}", 10 * index, 10 * index + 5)
    path = made.write(tmp_path / "x.sqlite")
    change(path, f"UPDATE {KERNEL} SET rowid = rowid * 1000 - 50000 WHERE rowid % 3 = 0")
    counts = enumerate([15, 15, 14, 14, 14, 14, 14])
    assert device_rows(fs.load_trace(path)) == {f"kernel_{index}": (count, 5 * count) for index, count in counts}


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=60)
    | st.sampled_from(list(NAMES)).flatmap(lambda text: st.sampled_from([text[:i] for i in range(1, len(text))]))
)
def test_any_text_is_a_range(text: str) -> None:
    reader = fs._core.DatabaseReader()
    reader.add("range", ("start", "end", "process", "thread", "text"), [(1, 2, 3, 4, text)])
    assert reader.finish(fs._core.Store(), b"{}", 0)["kept"] == 1


def test_the_core_finds_the_library_of_pythons_module() -> None:
    assert database._library()
    assert fs._core.DatabaseReader.use_library("") >= 3026000, "it stays loaded"

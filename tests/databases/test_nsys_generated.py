"""Exports of Nsight Systems made of random rows, held against plain Python and SQL over the same rows."""

import json
import sqlite3
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers.captures import KERNEL, RTX3080, RUNTIME, Nsys, global_pid, global_tid, query, write_tables
from helpers.nsys_programs import device_rows, program
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.read import database

COPY, NVTX = "CUPTI_ACTIVITY_KIND_MEMCPY", "NVTX_EVENTS"
LIMIT = ((1 << 63) - 1) // 4  # of times
NAMES = {1: "alpha", 2: "void beta<int>(float*)", 3: "gamma_kernel", 4: "cudaLaunchKernel_v7000", 5: "cuLaunchKernel"}

odd = st.sampled_from([None, "text", b"\0\1", -1, 0, 1 << 62, -(1 << 62), 1.5, float("inf"), "12", ""])
times = st.one_of(st.integers(-50, 10_000), odd)
ids = st.integers(0, 6)


def row(**cells: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(cells)


processes = st.sampled_from([41, 42, (1 << 24) - 1])
devices = st.one_of(st.integers(0, 3), st.sampled_from([-1, 127, 128, 1 << 40]))
work = {
    **{"start": times, "end": times, "deviceId": devices, "contextId": st.integers(1, 3)},
    **{"streamId": st.integers(0, 9), "correlationId": ids, "globalPid": processes.map(global_pid)},
}
kernels = row(**work, demangledName=st.one_of(st.sampled_from([1, 2, 3, 77]), odd), gridX=times, blockX=times)
copies = row(**work, bytes=times, copyKind=st.one_of(st.integers(0, 14), odd), srcKind=odd, dstKind=odd)
threads = processes.map(lambda process: global_tid(process, process & 0xFFF))
calls = row(start=times, end=times, globalTid=threads, correlationId=ids, nameId=st.sampled_from([4, 5]))
texts = st.sampled_from(["range", "aten::mm, seq = 3, op_id = 4, sizes = [[2, 3], [3, 4]]", "a\\b", "é", "", None])
named = {"text": texts, "textId": st.sampled_from([None, 1, 99]), "domainId": st.integers(0, 2)}
ranges = row(start=times, end=times, globalTid=threads, eventType=st.sampled_from([59, 60, 34, 75]), **named)


def number(value: Any) -> int | None:
    """Return a cell as the reader takes it: an integer, or a real that fits; a text is none."""
    if isinstance(value, float):
        return int(value) if abs(value) < 1 << 62 else None
    return value if isinstance(value, int) else None


def times_of(cells: dict[str, Any]) -> tuple[int, int] | None:
    """Return the start and the duration, 0 where it is unknown; None for a row without a possible start."""
    start, end = number(cells.get("start")), number(cells.get("end"))
    if start is None or not -LIMIT < start < LIMIT:
        return None
    known = end is not None and -LIMIT < end < LIMIT and end >= start
    return start, end - start if known and end is not None else 0


def expected_kernels(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for cells in rows:
        taken, device, name = times_of(cells), cells["deviceId"], cells["demangledName"]
        if taken is None or not 0 <= device < 128:
            continue
        place = number(name)
        text = name if isinstance(name, str) else NAMES.get(place if place is not None else -1)
        if text is None:
            text = f"<string {place}>" if place is not None and place >= 0 else "<unnamed kernel>"
        found[text, taken[1]] += 1
    return found


def length(event: Any) -> int:
    """Return the duration in ns, 0 where it is unknown."""
    lasted = event.time_range.elapsed_us()
    return round(1000 * lasted) if lasted == lasted else 0


def put(folder: Path, tables: dict[str, list[dict[str, Any]]]) -> Path:
    strings = {"StringIds": [{"id": place, "value": text} for place, text in NAMES.items()]}
    present = {name: rows for name, rows in tables.items() if rows}
    meta = {"META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.25.0"}]}
    return write_tables(folder / "x.sqlite", {**meta, **strings, **present})


@pytest.mark.parametrize("library", ["core", "python"])
@settings(max_examples=25, deadline=None)
@given(*(st.lists(rows, max_size=most) for rows, most in ((kernels, 12), (copies, 5), (calls, 8), (ranges, 8))))
def test_random_rows_are_kept_or_counted(library: str, k: Any, c: Any, r: Any, n: Any) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        patch.setattr(database, "_library", database._library if library == "core" else lambda: False)
        warnings.simplefilter("ignore")
        trace = fs.load_trace(put(Path(folder), {KERNEL: k, COPY: c, RUNTIME: r, NVTX: n}))
    events = list(trace.events())
    found = Counter((event.name, length(event)) for event in events if event.kind == "kernel")
    assert found == expected_kernels(k)
    possible = [cells for cells in c if times_of(cells) is not None and 0 <= cells["deviceId"] < 128]
    assert sum(event.kind == "memcpy" for event in events) == len(possible)
    assert sum(event.kind == "runtime" for event in events) == sum(times_of(cells) is not None for cells in r)
    pushed = [cells for cells in n if cells["eventType"] in (59, 60) and times_of(cells) is not None]
    kept = sum(event.kind in ("op", "range") for event in events)
    rows = len(k) + len(c) + len(r) + sum(cells["eventType"] in (59, 60) for cells in n)
    assert kept <= len(pushed), "an op without an end is omitted"
    assert trace.report["events"] == rows
    assert len(events) + trace.report["without_time"] + trace.report["too_many"] == rows
    str(trace.key_averages())
    trace.accounting()
    for event in events:
        if event.kind == "kernel" and event.launcher is not None:
            assert event.launcher.kind in ("op", "range")


def test_equal_correlations_of_processes_devices_and_contexts(tmp_path: Path) -> None:
    """Each of three processes launches the same correlations on its own two devices."""
    made = Nsys()
    for process in (50, 51, 52):
        for correlation in range(1, 5):
            at = 1000 * correlation
            made.nvtx(f"op {process} {correlation}", at, at + 100, process, process)
            made.call("cudaLaunchKernel_v7000", at + 10, at + 20, correlation, process, process)
            device = 2 * (process - 50) + correlation % 2
            made.kernel("k", at + 200, at + 200 + process, correlation, process, device, contextId=correlation)
    path = made.write(tmp_path / "x.sqlite")
    joined = query(
        path,
        f"select n.text, k.deviceId, k.end - k.start from {KERNEL} k join {RUNTIME} r on r.correlationId = "
        f"k.correlationId and r.globalTid / 16777216 = k.globalPid / 16777216 "
        f"join {NVTX} n on n.globalTid = r.globalTid and n.start <= r.start and n.end >= r.end",
    )
    assert len(joined) == 12
    events = [event for event in fs.load_trace(path).events() if event.kind == "kernel"]
    found = [(event.launcher.name, event.device_index, length(event)) for event in events]
    assert sorted(found) == sorted(joined)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"Gpus": 3}', '{"Gpus": [3, {}]}', "[" * 100000, None])
def test_without_a_table_of_gpus_the_system_describes_them(text: str | None, tmp_path: Path) -> None:
    gpu = {f"{name[:1].upper()}{name[1:]}": value for name, value in RTX3080.items()}
    gpu |= {"TotalMemory": str(RTX3080["totalMemory"]), "MemoryBandwidth": str(RTX3080["memoryBandwidth"])}
    made = program()
    made.add("TARGET_INFO_SYSTEM_ENV", name="GpuInfo", value=json.dumps({"Gpus": [gpu]}))
    path = made.write(tmp_path / "x.sqlite")
    listed = program()
    listed.add("TARGET_INFO_GPU", **RTX3080)
    whole = fs.load_trace(listed.write(tmp_path / "y.sqlite"))
    assert fs.load_trace(path).metadata["deviceProperties"] == whole.metadata["deviceProperties"]
    made.tables["TARGET_INFO_SYSTEM_ENV"][0]["value"] = text
    assert "deviceProperties" not in fs.load_trace(made.write(path)).metadata


ENCODINGS = ["UTF-8", "UTF-16le", "UTF-16be"]


@pytest.mark.parametrize("rowid", [True, False], ids=["rowids", "without rowid"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings_and_tables_without_rowids(encoding: str, rowid: bool, tmp_path: Path) -> None:
    made = program()
    made.nvtx("Größe 寸法", 0, 10)
    path, copy = made.write(tmp_path / "x.sqlite"), tmp_path / "y.sqlite"
    source, target = sqlite3.connect(path), sqlite3.connect(copy)
    target.execute(f"PRAGMA encoding = '{encoding}'")
    for (name,) in source.execute("select name from sqlite_master where type = 'table'").fetchall():
        columns = ", ".join(f'"{one[1]}"' for one in source.execute(f'pragma table_info("{name}")'))
        key = "" if rowid else "place INTEGER PRIMARY KEY, "
        target.execute(f'CREATE TABLE "{name}" ({key}{columns}) {"" if rowid else "WITHOUT ROWID"}')
        for place, cells in enumerate(source.execute(f'select {columns} from "{name}"').fetchall()):
            values = cells if rowid else (place, *cells)
            target.execute(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(values))})', values)
    target.commit()
    source.close()
    target.close()
    assert str(fs.load_trace(copy).key_averages()) == str(fs.load_trace(path).key_averages())
    assert "Größe 寸法" in {row.key for row in fs.load_trace(copy).key_averages()}


PLACES = ["-rowid", "rowid * 3000000"]
PLACES.append("case rowid when 1 then -9223372036854775807 - 1 else 9223372036854775807 - rowid end")


@pytest.mark.parametrize("places", PLACES)
def test_any_numbers_of_rows(places: str, tmp_path: Path) -> None:
    path = program().write(tmp_path / "x.sqlite")
    expected = device_rows(fs.load_trace(path))
    connection = sqlite3.connect(path)
    connection.execute(f"update {KERNEL} set rowid = {places}")
    connection.commit()
    connection.close()
    assert device_rows(fs.load_trace(path)) == expected


def test_a_file_that_a_program_has_locked_or_left_is_read_as_it_is(tmp_path: Path) -> None:
    path = program().write(tmp_path / "x.sqlite")
    expected = device_rows(fs.load_trace(path))
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("begin exclusive")
    writer.execute(f"delete from {KERNEL}")
    with pytest.warns(UserWarning, match=r"x\.sqlite-journal holds .* bytes of changes that were not read"):
        assert device_rows(fs.load_trace(path)) == expected
    writer.execute("rollback")
    writer.execute("pragma journal_mode = wal")
    writer.execute(f"delete from {KERNEL}")
    with pytest.warns(UserWarning, match=r"x\.sqlite-wal holds .* bytes of changes that were not read"):
        assert device_rows(fs.load_trace(path)) == expected
    writer.close()


LIBRARIES = [
    *("ampere_sgemm_128x64_nn", "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "void gemmSN_NN_kernel<float>()"),
    "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_256x128_32x3_nn_align8>(T1::Params)",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
    *("void cublasLt::splitKreduce_kernel<32, 16, int, float>(x)", "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16"),
]


def test_nothing_is_guessed_of_kernels_without_ops(tmp_path: Path) -> None:
    made = Nsys()
    made.add("TARGET_INFO_GPU", **RTX3080)
    for place, name in enumerate(LIBRARIES, 1):
        at = 1000 * place
        span = {"start": at, "end": at + 500, "globalTid": global_tid(42, 42)}
        made.add("CUBLAS_EVENTS", **span, nameId=made.string("cublasGemmEx"))
        made.call("cudaLaunchKernel_v7000", at + 10, at + 20, place)
        made.kernel(name, at + 100, at + 300, place, gridX=64)
    trace = made.load(tmp_path)
    for row in trace.key_averages():
        for number_ in (row.flops, row.bytes_total_moved, row.pct_roofline):
            assert number_ != number_, row.key
    assert {name for name, _ in trace.coverage()["unmodelled"]} == set(LIBRARIES)
    assert trace.coverage()["flops"] == trace.coverage()["bytes"] == 0

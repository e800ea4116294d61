"""Files of rocprofv3: rocpd databases, held against SQL."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.captures import query, write_tables
from helpers.nsys_programs import device_rows, rows

import flopscope as fs

UUID = "_00003fdc_92cb_72cb_9169_c7e541b1fcdf"
GEMM = "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16"
DETAILS = {
    **{"cu_count": 304, "wave_front_size": 64, "gfx_target_version": 90402, "workgroup_max_size": 1024},
    **{"mem_banks": [{"size_in_bytes": 206141652992}], "product_name": "AMD Instinct MI300X", "name": "gfx942"},
}
PID, TID = 4242, 4243
SIZES = [[64, 32], [32, 16]]
MARKER = f"aten::mm, seq = 3, op_id = 1, sizes = {SIZES}"
# (category, name, start, end, correlation), (name, start, end, correlation, agent), (start, end, bytes, from, to)
REGIONS = [
    ("MARKER_CORE_RANGE_API", MARKER, 100, 190, 1), ("HIP_RUNTIME_API", "hipLaunchKernel", 110, 120, 2),
    ("HSA_CORE_API", "hsa_signal_load_relaxed", 112, 114, 3), ("RCCL_API", "ncclAllReduce", 200, 240, 4),
    ("HIP_RUNTIME_API", "hipLaunchKernel", 210, 220, 5), ("HIP_RUNTIME_API", "hipMemcpyAsync", 250, 255, 6),
]  # fmt: skip
DISPATCHES = [(GEMM, 300, 350, 2, 5), ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096>)", 400, 480, 5, 6)]
COPIES = [(500, 510, 4096, 0, 5, 6), (520, 525, 64, 5, 0, 0), (530, 540, 128, 5, 6, 0)]
AGENTS = [(0, "CPU", 0), (5, "GPU", 0), (6, "GPU", 1)]
# (agent, index of the dispatch, counter, value); (start, end, agent, freed, bytes, address, correlation)
COUNTED = [(5, 0, "FETCH_SIZE", 4.5), (5, 0, "MfmaUtil", 62.5), (5, 0, "SQ_WAVES", 99), (6, 1, "FETCH_SIZE", 3.0)]
CHANGES = [(215, 216, 6, False, 4096, 0x7F0000, 5), (252, 253, 5, False, 1 << 33, 0x7F9000, 6)]
CHANGES += [(253, 254, 0, False, 512, 0x10, 6), (600, 601, None, True, 0, 0x7F0000, 0), (700, 701, None, True, 0, 5, 0)]


def rocpd_tables(schema: str, pid: int) -> dict[str, list[dict[str, Any]]]:
    texts = dict.fromkeys([row[0] for row in REGIONS] + [row[1] for row in REGIONS] + ["roctxThreadRangeA", "KERNEL"])
    ids = {text: index + 1 for index, text in enumerate(texts)}
    symbols = {row[0]: index + 1 for index, row in enumerate(DISPATCHES)}
    events, regions, dispatches, copies = [], [], [], []

    def event(category: str, correlation: int, **more: Any) -> int:
        row = {"id": len(events) + 1, "category_id": ids.get(category), "stack_id": correlation, "correlation_id": 0}
        events.append({**row, "extdata": "{}", **more})
        return len(events)

    for category, name, start, end, correlation in REGIONS:
        marker = category.startswith("MARKER")
        made = event(category, correlation, extdata=json.dumps({"message": name}) if marker else "{}")
        named = ids["roctxThreadRangeA" if marker else name]
        row = {"id": len(regions) + 1, "pid": pid, "tid": TID, "start": start, "end": end, "name_id": named}
        regions.append({**row, "event_id": made})
    for name, start, end, correlation, agent in DISPATCHES:
        row = {"id": len(dispatches) + 1, "pid": pid, "tid": TID, "agent_id": agent, "kernel_id": symbols[name]}
        row |= {"dispatch_id": 1, "queue_id": 16, "stream_id": 0, "start": start, "end": end}
        row |= {"group_segment_size": 1024, "workgroup_size_x": 256, "workgroup_size_y": 1, "workgroup_size_z": 1}
        row |= {"grid_size_x": 1000, "grid_size_y": 3, "grid_size_z": 1, "event_id": event("KERNEL", correlation)}
        dispatches.append(row)
    for start, end, size, source, target, correlation in COPIES:
        row = {"id": len(copies) + 1, "pid": pid, "tid": TID, "start": start, "end": end, "size": size}
        row |= {"name_id": 1, "src_agent_id": source, "dst_agent_id": target, "queue_id": 16, "stream_id": 0}
        copies.append({**row, "event_id": event("KERNEL", correlation)})
    process = {"id": pid, "pid": pid, "command": "./a.out", "environment": '{"RANK": "1", "WORLD_SIZE": "2"}'}
    return {
        "metadata": [{"id": 1, "tag": "schema_version", "value": schema}],
        "string": [{"id": place, "string": text} for text, place in ids.items()], "info_process": [process],
        "info_agent": [
            {"id": place, "pid": pid, "type": kind, "type_index": index, "extdata": json.dumps(DETAILS)}
            for place, kind, index in AGENTS
        ],
        "info_kernel_symbol": [
            {"id": place, "display_name": name, "kernel_name": f"{name}.kd", "arch_vgpr_count": 32}
            for name, place in symbols.items()
        ],
        "event": events, "region": regions, "kernel_dispatch": dispatches, "memory_copy": copies,
    }  # fmt: skip


def in_rocpd(folder: Path) -> Path:
    made = rocpd_tables("3", PID)
    made["memory_allocate"] = []
    for index, (start, end, agent, freed, size, address, correlation) in enumerate(CHANGES, 1):
        event = {"id": 1000 + index, "category_id": None, "stack_id": correlation, "correlation_id": 0, "extdata": "{}"}
        made["event"].append(event)
        row = {"id": index, "pid": PID, "tid": TID, "agent_id": agent, "type": "FREE" if freed else "ALLOC"}
        row |= {"level": "REAL", "start": start, "end": end, "address": address, "size": size}
        made["memory_allocate"].append({**row, "event_id": 1000 + index})
    row = made["memory_allocate"][0] | {"id": 99, "type": "RECLAIM", "size": 7}
    made["memory_allocate"].append(row)
    names = sorted({(agent, name) for agent, _, name, _ in COUNTED})
    made["info_pmc"] = [{"id": i, "agent_id": at, "name": n, "symbol": n} for i, (at, n) in enumerate(names, 1)]
    events = [row["event_id"] for row in made["kernel_dispatch"]]
    made["pmc_event"] = [
        {"id": index, "event_id": events[at], "pmc_id": 1 + names.index((agent, name)), "value": value}
        for index, (agent, at, name, value) in enumerate(COUNTED, 1)
    ]
    return write_tables(folder / "x.db", {f"rocpd_{name}{UUID}": rows for name, rows in made.items()})


def rocpd(path: Path, *, schema: str = "3", suffixes: tuple[str, ...] = (UUID,), pid: int = PID) -> Path:
    tables: dict[str, list[dict[str, Any]]] = {}
    for suffix in suffixes:
        tables |= {f"rocpd_{name}{suffix}": rows for name, rows in rocpd_tables(schema, pid).items()}
    write_tables(path, tables)
    return path


def test_a_database_has_works_calls_ranges_ops_counters_and_memory(reader: str, tmp_path: Path) -> None:
    prof = fs.load_trace(in_rocpd(tmp_path))
    assert device_rows(prof) == {
        GEMM: (1, 50), DISPATCHES[1][0]: (1, 80), "Memcpy HtoD (Host -> Device)": (1, 10),
        "Memcpy DtoH (Device -> Host)": (1, 5), "Memcpy DtoD (Device -> Device)": (1, 10),
    }  # fmt: skip
    placed = {event.name: event.device_index for event in prof.events() if event.kind == "kernel"}
    assert placed == {GEMM: 0, DISPATCHES[1][0]: 1} and prof.devices[0] == "AMD Instinct MI300X"
    assert prof.metadata["deviceProperties"][0]["numSms"] == 304
    prof.export_chrome_trace(str(tmp_path / "out.json"))
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    arguments = next(event["args"] for event in events if event.get("name") == GEMM)
    assert (arguments["grid"], arguments["block"]) == ([4, 3, 1], [256, 1, 1]), "work-items became blocks"
    found = rows(prof, "cpu")
    assert found["hipLaunchKernel"].count == 2 and found["hsa_signal_load_relaxed"].count == 1
    product = found["aten::mm"]
    assert product.self_device_time_total == pytest.approx(0.05) and product.flops == 2 * 64 * 32 * 16
    assert math.isnan(product.bytes_total_moved), "no name of a kernel tells the dtype"
    assert found["ncclAllReduce"].device_time_total == pytest.approx(0.08) and "roctxThreadRangeA" not in found
    (row,) = prof.collectives().itertuples()
    assert row.kernel.startswith("ncclDevKernel_Generic"), "a name that tells no kind, which is that of its call"
    assert (row.device, row.collective, row.name) == (1, "allreduce", "ncclAllReduce")
    assert row.message_bytes != row.message_bytes
    counts = {"cuda:0 dram_bytes_read": 1, "cuda:0 tensor_active": 1, "cuda:1 dram_bytes_read": 1}
    assert prof.metadata["rocpd"]["samples"] == counts
    found = {row.key: row for row in prof.key_averages() if row.device_type == "cuda"}
    assert found[GEMM].dram_bytes_read == 4.5 * 1024 and found[GEMM].tensor_active == pytest.approx(62.5)
    assert found[DISPATCHES[1][0]].dram_bytes_read == 3 * 1024
    assert device_rows(prof)[GEMM] == (1, 50), "counted kernels are not kernels of their own"
    assert prof.profile_memory
    found = rows(prof)
    assert found["hipLaunchKernel"].self_device_memory_usage == 4096
    assert found["hipMemcpyAsync"].self_device_memory_usage == 1 << 33
    assert found["hipMemcpyAsync"].self_cpu_memory_usage == 512 and found["ncclAllReduce"].device_memory_usage == 4096
    assert found["[memory]"].self_device_memory_usage == -4096, "the free's size and device are the allocation's"
    changes = [event for event in prof.events() if event.kind == "memory"]
    assert len(changes) == len(CHANGES) and prof.metadata["rocpd"]["unmatched_frees"] == 1


@pytest.mark.parametrize("schema", ["3", "4.1.0"])
def test_schemas_and_plain_tables(schema: str, reader: str, tmp_path: Path) -> None:
    for suffix in (UUID, ""):
        path = rocpd(tmp_path / "x.db", schema=schema, suffixes=(suffix,))
        prof = fs.load_trace(path)
        facts = prof.metadata["rocpd"]
        assert (facts["schema"], facts["command"], prof.rank, prof.process) == (schema, "./a.out", 1, PID)
        assert facts["tables"]["rocpd_kernel_dispatch"] == 2
        table = f"rocpd_kernel_dispatch{suffix}"
        symbols = f"rocpd_info_kernel_symbol{suffix}"
        joined = f'"{table}" k join "{symbols}" s on s.id = k.kernel_id group by 1'
        expected = query(path, f"select s.display_name, count(*), sum(k.end - k.start) from {joined}")
        assert {name: (count, ns) for name, count, ns in expected}.items() <= device_rows(prof).items()


def test_several_processes_in_one_file_keep_their_own_ids(reader: str, tmp_path: Path) -> None:
    prof = fs.load_trace(rocpd(tmp_path / "x.db", suffixes=("_a", "_b")))
    assert device_rows(prof)[GEMM] == (2, 100)
    assert rows(prof, "cpu")["aten::mm"].self_device_time_total == pytest.approx(0.1)
    assert rows(prof, "cpu")["aten::mm"].count == 2


def test_a_newer_schema_is_read_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"its schema is 5\.0\.0, newer than 4\.x"):
        assert GEMM in device_rows(fs.load_trace(rocpd(tmp_path / "x.db", schema="5.0.0")))


def test_missing_tables_and_columns(reader: str, tmp_path: Path) -> None:
    made = {f"rocpd_{name}": rows for name, rows in rocpd_tables("3", PID).items()}
    for name in ("rocpd_event", "rocpd_info_agent", "rocpd_region", "rocpd_memory_copy", "rocpd_metadata"):
        del made[name]
    prof = fs.load_trace(write_tables(tmp_path / "x.db", made))
    assert device_rows(prof) == {GEMM: (1, 50), DISPATCHES[1][0]: (1, 80)}


@pytest.mark.parametrize("used, expected", [((0, 0), {7, 9}), ((0, 7), {0, 7})])
def test_streams_are_queues_where_all_are_default(used: tuple[int, int], expected: set[int], tmp_path: Path) -> None:
    """Ids of streams and of queues never mix: stream 0 on queue 7 is not stream 7."""
    made = {f"rocpd_{name}": rows for name, rows in rocpd_tables("3", PID).items()}
    del made["rocpd_memory_copy"]
    for row, stream, queue in zip(made["rocpd_kernel_dispatch"], used, (7, 9), strict=True):
        row |= {"stream_id": stream, "queue_id": queue}
    trace = fs.load_trace(write_tables(tmp_path / "x.db", made))
    assert {*trace.stream_summary()["stream"].dropna()} == expected


@pytest.mark.parametrize(
    ("counted", "bound", "share"),
    [
        ({"FETCH_SIZE": 150e3, "WRITE_SIZE": 50e3}, "memory", 100 * 200e3 * 1024 / 50e-6 / 5.3e12),
        ({"FETCH_SIZE": 15e3, "WRITE_SIZE": 5e3, "MfmaUtil": 81.0, "VALUBusy": 9.0}, "tensor", 81),
        ({"FETCH_SIZE": 15e3, "WRITE_SIZE": 5e3, "MfmaUtil": 1.0, "VALUBusy": 62.0}, "fma", 62),
        ({"FETCH_SIZE": 15e3, "WRITE_SIZE": 5e3, "MfmaUtil": 9.0}, "other", 9),
        ({"FETCH_SIZE": 150e3}, "unknown", math.nan),
    ],
)
def test_counted_kernels_have_a_roof(
    counted: dict[str, float], bound: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "DISPATCHES", [(GEMM, 300_000, 350_000, 2, 5)])
    monkeypatch.setattr(here, "COUNTED", [(5, 0, name, value) for name, value in counted.items()])
    trace = fs.load_trace(in_rocpd(tmp_path))
    (row,) = [row for row in trace.key_averages(peaks="memory=5.3e12") if row.key == GEMM]
    assert row.bound == bound and row.pct_roofline == pytest.approx(share, nan_ok=True)
    whole = trace.coverage()["bytes"] == 1
    assert whole == ("WRITE_SIZE" in counted) and (row.bytes_source == "counted") == whole
    assert not whole or row.bytes_total_moved == 1024 * (counted["FETCH_SIZE"] + counted["WRITE_SIZE"])

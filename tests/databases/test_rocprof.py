"""Files of rocprofv3: rocpd databases, JSON and CSV, held against SQL and against each other."""

from __future__ import annotations

import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.captures import query, write_tables
from test_nsys import device_rows, rows

import flopscope as fs
from flopscope.sources import database
from flopscope.sources import rocpd as rocpd_source
from flopscope.sources.counters import read_samples
from flopscope.sources.database import Database, Reading

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
    ("MARKER_CORE_RANGE_API", MARKER, 100, 190, 1),
    ("HIP_RUNTIME_API", "hipLaunchKernel", 110, 120, 2),
    ("HSA_CORE_API", "hsa_signal_load_relaxed", 112, 114, 3),
    ("RCCL_API", "ncclAllReduce", 200, 240, 4),
    ("HIP_RUNTIME_API", "hipLaunchKernel", 210, 220, 5),
    ("HIP_RUNTIME_API", "hipMemcpyAsync", 250, 255, 6),
]
DISPATCHES = [(GEMM, 300, 350, 2, 5), ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096>)", 400, 480, 5, 6)]
COPIES = [(500, 510, 4096, 0, 5, 6), (520, 525, 64, 5, 0, 0), (530, 540, 128, 5, 6, 0)]
AGENTS = [(0, "CPU", 0), (5, "GPU", 0), (6, "GPU", 1)]


@pytest.fixture(params=["core", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read by the core, and by Python's sqlite3 module."""
    monkeypatch.setattr(database, "_found", None if request.param == "core" else False)
    return str(request.param)


def rocpd(path: Path, *, schema: str = "3", suffixes: tuple[str, ...] = (UUID,), pid: int = PID) -> Path:
    tables: dict[str, list[dict[str, Any]]] = {}
    for suffix in suffixes:
        tables |= {f"rocpd_{name}{suffix}": rows for name, rows in _rocpd_tables(schema, pid).items()}
    write_tables(path, tables)
    return path


def _rocpd_tables(schema: str, pid: int) -> dict[str, list[dict[str, Any]]]:
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
    return {
        "metadata": [{"id": 1, "tag": "schema_version", "value": schema}],
        "string": [{"id": place, "string": text} for text, place in ids.items()],
        "info_process": [
            {"id": pid, "pid": pid, "command": "./a.out", "environment": json.dumps({"RANK": "1", "WORLD_SIZE": "2"})}
        ],
        "info_agent": [
            {"id": place, "pid": pid, "type": kind, "type_index": index, "extdata": json.dumps(DETAILS)}
            for place, kind, index in AGENTS
        ],
        "info_kernel_symbol": [
            {"id": place, "display_name": name, "kernel_name": f"{name}.kd", "arch_vgpr_count": 32}
            for name, place in symbols.items()
        ],
        "event": events,
        "region": regions,
        "kernel_dispatch": dispatches,
        "memory_copy": copies,
    }


def rocprof_json(path: Path) -> Path:
    kinds = list(dict.fromkeys(row[0] for row in REGIONS))
    names = {kind: list(dict.fromkeys(row[1] for row in REGIONS if row[0] == kind)) for kind in kinds}
    names["MARKER_CORE_RANGE_API"] = ["roctxThreadRangeA"]
    groups = {"MARKER": "marker_api", "HIP": "hip_api", "HSA": "hsa_api", "RCCL": "rccl_api"}
    records: dict[str, list[Any]] = {name: [] for name in groups.values()}

    def timed(start: int, end: int, correlation: int) -> dict[str, Any]:
        ids = {"internal": correlation, "external": 0}
        return {"start_timestamp": start, "end_timestamp": end, "correlation_id": ids, "thread_id": TID}

    for kind, name, start, end, correlation in REGIONS:
        operation = 0 if kind.startswith("MARKER") else names[kind].index(name)
        where = {"kind": kinds.index(kind), "operation": operation}
        records[groups[kind.split("_")[0]]].append({**where, **timed(start, end, correlation)})
    records["kernel_dispatch"] = [
        {
            **timed(start, end, correlation),
            "dispatch_info": {
                **{"agent_id": {"handle": agent}, "queue_id": {"handle": 16}, "kernel_id": index + 1},
                **{"group_segment_size": 1024, "workgroup_size": {"x": 256, "y": 1, "z": 1}},
                "grid_size": {"x": 1000, "y": 3, "z": 1},
            },
        }
        for index, (_, start, end, correlation, agent) in enumerate(DISPATCHES)
    ]
    records["memory_copy"] = [
        {
            **timed(start, end, correlation),
            **{"src_agent_id": {"handle": source}, "dst_agent_id": {"handle": target}, "bytes": size},
        }
        for start, end, size, source, target, correlation in COPIES
    ]
    tool = {
        "metadata": {"pid": PID, "command": ["./a.out", "-x"]},
        "agents": [
            {**DETAILS, "id": {"handle": place}, "type": 2 if kind == "GPU" else 1, "logical_node_type_id": index}
            for place, kind, index in AGENTS
        ],
        "strings": {
            "buffer_records": [{"kind": kind, "operations": names[kind]} for kind in kinds],
            "marker_api": [{"key": 1, "value": MARKER}],
        },
        "kernel_symbols": [
            {"kernel_id": index + 1, "formatted_kernel_name": row[0], "arch_vgpr_count": 32}
            for index, row in enumerate(DISPATCHES)
        ],
        "buffer_records": records,
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))
    return path


def rocprof_csv(folder: Path) -> Path:
    def write(name: str, header: str, lines: list[tuple[Any, ...]]) -> Path:
        path = folder / f"7_{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
            writer.writerows([header.split(","), *lines])
        return path

    sizes = "Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z"
    times = "Correlation_Id,Start_Timestamp,End_Timestamp"
    for prefix, name in (("HIP", "hip_api"), ("HSA", "hsa_api"), ("MARKER", "marker_api"), ("RCCL", "rccl_api")):
        lines = [
            (kind, text, PID, TID, correlation, start, end)
            for kind, text, start, end, correlation in REGIONS
            if kind.startswith(prefix)
        ]
        write(f"{name}_trace", f"Domain,Function,Process_Id,Thread_Id,{times}", lines)
    names = {0: "HOST", 5: "DEVICE", 6: "DEVICE"}
    write(
        "memory_copy_trace",
        f"Kind,Direction,Stream_Id,Source_Agent_Id,Destination_Agent_Id,{times}",
        [
            (
                "MEMORY_COPY",
                f"MEMORY_COPY_{names[a]}_TO_{names[b]}",
                0,
                f"Agent {a}",
                f"Agent {b}",
                correlation,
                start,
                end,
            )
            for start, end, _, a, b, correlation in COPIES
        ],
    )
    write(
        "agent_info",
        "Node_Id,Logical_Node_Id,Agent_Type,Cu_Count,Wave_Front_Size,Gfx_Target_Version,Product_Name,Name",
        [(place, place, kind, 304, 64, 90402, "AMD Instinct MI300X", "gfx942") for place, kind, _ in AGENTS],
    )
    return write(
        "kernel_trace",
        f"Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Kernel_Id,Kernel_Name,{times},LDS_Block_Size,VGPR_Count,{sizes}",
        [
            (
                "KERNEL_DISPATCH",
                f"Agent {agent}",
                16,
                0,
                TID,
                1,
                name,
                correlation,
                start,
                end,
                1024,
                32,
                256,
                1,
                1,
                1000,
                3,
                1,
            )
            for name, start, end, correlation, agent in DISPATCHES
        ],
    )


FORMATS = {
    "rocpd": lambda folder: rocpd(folder / "1_results.db"),
    "json": lambda folder: rocprof_json(folder / "x.json"),
}
FORMATS["csv"] = rocprof_csv


@pytest.mark.parametrize("form", FORMATS)
def test_kernels_and_copies(form: str, reader: str, tmp_path: Path) -> None:
    prof = fs.load_trace(FORMATS[form](tmp_path))
    assert device_rows(prof) == {
        GEMM: (1, 50),
        DISPATCHES[1][0]: (1, 80),
        "Memcpy HtoD (Host -> Device)": (1, 10),
        "Memcpy DtoH (Device -> Host)": (1, 5),
        "Memcpy DtoD (Device -> Device)": (1, 10),
    }
    placed = {event.name: event.device_index for event in prof.events() if event.kind == "kernel"}
    assert placed == {GEMM: 0, DISPATCHES[1][0]: 1}
    assert prof.devices[0] == "AMD Instinct MI300X"
    assert prof.metadata["deviceProperties"][0]["numSms"] == 304


@pytest.mark.parametrize("form", FORMATS)
def test_calls_ranges_and_ops(form: str, reader: str, tmp_path: Path) -> None:
    prof = fs.load_trace(FORMATS[form](tmp_path))
    found = rows(prof, "cpu")
    assert found["hipLaunchKernel"].count == 2
    assert found["hsa_signal_load_relaxed"].count == 1
    product = found["aten::mm"]
    assert product.self_device_time_total == pytest.approx(0.05)
    assert product.flops == 2 * 64 * 32 * 16
    assert math.isnan(product.bytes_total_moved), "no name of a kernel tells the dtype"
    assert found["ncclAllReduce"].device_time_total == pytest.approx(0.08)
    assert "roctxThreadRangeA" not in found
    assert [row.device for row in prof.collectives().itertuples()] == [1]


@pytest.mark.parametrize("form", FORMATS)
def test_work_items_become_blocks(form: str, tmp_path: Path) -> None:
    prof = fs.load_trace(FORMATS[form](tmp_path))
    prof.export_chrome_trace(str(tmp_path / "out.json"))
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    kernel = next(event for event in events if event.get("name") == GEMM)
    assert kernel["args"]["grid"] == [4, 3, 1]
    assert kernel["args"]["block"] == [256, 1, 1]


@pytest.mark.parametrize("schema", ["3", "4.1.0"])
def test_schemas_and_plain_tables(schema: str, reader: str, tmp_path: Path) -> None:
    for suffix in (UUID, ""):
        path = rocpd(tmp_path / "x.db", schema=schema, suffixes=(suffix,))
        prof = fs.load_trace(path)
        assert prof.metadata["rocpd"]["schema"] == schema
        table = f"rocpd_kernel_dispatch{suffix}"
        symbols = f"rocpd_info_kernel_symbol{suffix}"
        expected = query(
            path,
            f'select s.display_name, count(*), sum(k.end - k.start) from "{table}" k join "{symbols}" s '
            "on s.id = k.kernel_id group by 1",
        )
        found = device_rows(prof)
        assert {name: (count, ns) for name, count, ns in expected}.items() <= found.items()


def test_the_rank_and_the_command(tmp_path: Path) -> None:
    prof = fs.load_trace(rocpd(tmp_path / "x.db"))
    assert prof.rank == 1
    assert prof.metadata["rocpd"]["command"] == "./a.out"
    assert prof.metadata["rocpd"]["tables"]["rocpd_kernel_dispatch"] == 2
    assert prof.process == PID


def test_several_processes_in_one_file_keep_their_own_ids(reader: str, tmp_path: Path) -> None:
    prof = fs.load_trace(rocpd(tmp_path / "x.db", suffixes=("_a", "_b")))
    assert device_rows(prof)[GEMM] == (2, 100)
    assert rows(prof, "cpu")["aten::mm"].self_device_time_total == pytest.approx(0.1)
    assert rows(prof, "cpu")["aten::mm"].count == 2


def test_a_newer_schema_is_read_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"its schema is 5\.0\.0, newer than 4\.x"):
        assert GEMM in device_rows(fs.load_trace(rocpd(tmp_path / "x.db", schema="5.0.0")))


def test_counters_of_kernels_become_samples(reader: str, tmp_path: Path) -> None:
    made = _rocpd_tables("3", PID)
    made["info_pmc"] = [
        {"id": index, "agent_id": agent, "name": name, "symbol": name}
        for index, (agent, name) in enumerate(
            [(5, "FETCH_SIZE"), (6, "FETCH_SIZE"), (5, "MfmaUtil"), (5, "SQ_WAVES")], 1
        )
    ]
    dispatch = {row["agent_id"]: row["event_id"] for row in made["kernel_dispatch"]}
    counted = [(5, 1, 4.5), (6, 2, 3.0), (5, 3, 62.5), (5, 4, 99)]
    made["pmc_event"] = [
        {"id": index, "event_id": dispatch[agent], "pmc_id": pmc, "value": value}
        for index, (agent, pmc, value) in enumerate(counted, 1)
    ]
    path = write_tables(tmp_path / "x.db", {f"rocpd_{name}{UUID}": rows for name, rows in made.items()})
    with Database(str(path)) as opened:
        queries, names = rocpd_source._Process(opened, UUID, 0).counters()
        found = read_samples(opened, queries, names, Reading())
    expected = [(0, "dram_bytes_read", 300, 350, 4.5 * 1024), (0, "tensor_active", 300, 350, 62.5)]
    expected.append((1, "dram_bytes_read", 400, 480, 3 * 1024))
    assert [(one.device, one.metric, *(float(x[0]) for x in one[2:])) for one in found] == expected
    counts = {f"cuda:{device} {metric}": 1 for device, metric, *_ in expected}
    assert fs.load_trace(path).metadata["rocpd"]["samples"] == counts


def test_missing_tables_and_columns(reader: str, tmp_path: Path) -> None:
    made = {f"rocpd_{name}": rows for name, rows in _rocpd_tables("3", PID).items()}
    for name in ("rocpd_event", "rocpd_info_agent", "rocpd_region", "rocpd_memory_copy", "rocpd_metadata"):
        del made[name]
    prof = fs.load_trace(write_tables(tmp_path / "x.db", made))
    assert device_rows(prof) == {GEMM: (1, 50), DISPATCHES[1][0]: (1, 80)}


def test_a_trace_of_kernels_alone(tmp_path: Path) -> None:
    path = rocprof_csv(tmp_path)
    alone = tmp_path / "alone" / "kernels.csv"
    alone.parent.mkdir()
    alone.write_bytes(path.read_bytes())
    assert device_rows(fs.load_trace(alone)) == {GEMM: (1, 50), DISPATCHES[1][0]: (1, 80)}
    assert device_rows(fs.load_trace(gzip.compress(path.read_bytes()))) == device_rows(fs.load_trace(alone))


@pytest.mark.parametrize("used, expected", [((0, 0), {7, 9}), ((0, 7), {0, 7})])
def test_streams_are_queues_only_where_all_are_the_default(
    used: tuple[int, int], expected: set[int], tmp_path: Path
) -> None:
    """Ids of streams and of queues never mix: stream 0 on queue 7 is not stream 7."""
    queues = (7, 9)
    path = tmp_path / "x.csv"
    header = "Kind,Agent_Id,Queue_Id,Stream_Id,Kernel_Name,Start_Timestamp,End_Timestamp,Workgroup_Size_X,Grid_Size_X\n"
    lines = [f"KERNEL_DISPATCH,Agent 5,{queues[i]},{used[i]},k{i},{10 + i},{20 + i},64,64\n" for i in range(2)]
    path.write_text(header + "".join(lines))
    assert {*fs.load_trace(path).stream_summary()["stream"].dropna()} == expected
    content = json.loads(rocprof_json(tmp_path / "x.json").read_text())
    records = content["rocprofiler-sdk-tool"][0]["buffer_records"]
    records["memory_copy"] = []
    for i, record in enumerate(records["kernel_dispatch"]):
        record["stream_id"] = {"handle": used[i]}
        record["dispatch_info"]["queue_id"]["handle"] = queues[i]
    (tmp_path / "x.json").write_text(json.dumps(content))
    assert {*fs.load_trace(tmp_path / "x.json").stream_summary()["stream"].dropna()} == expected


def test_malformed_lines_and_records_are_counted(tmp_path: Path) -> None:
    path = rocprof_csv(tmp_path)
    with path.open("a") as file:
        file.write('"KERNEL_DISPATCH","Agent 5",1\n"KERNEL_DISPATCH","Agent 5",1,1,1,1,"x",1,"soon","later"\n\0\0\n')
    with pytest.warns(UserWarning, match="2 lines were omitted|3 lines were omitted"):
        assert GEMM in device_rows(fs.load_trace(path))
    content = json.loads(rocprof_json(tmp_path / "x.json").read_text())
    content["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"] += [{}, None, {"dispatch_info": 3}]
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="3 records were omitted because they are malformed"):
        assert GEMM in device_rows(fs.load_trace(tmp_path / "x.json"))


@pytest.mark.parametrize(
    "text",
    ['{"rocprofiler-sdk-tool": [', '{"rocprofiler-sdk-tool": 3}', '{"rocprofiler-sdk-tool": [3]}',
     '{"rocprofiler-sdk-tool": []}', '{"rocprofiler-sdk-tool": ' + "[" * 100000],
)  # fmt: skip
def test_wrong_json_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"x\.json"):
        fs.load_trace(path)

"""A program in the formats of rocprofv3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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

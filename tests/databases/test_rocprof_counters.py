"""Counters and memory in files of rocprofv3: the same numbers from rocpd and JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import rocprof_programs
from helpers.captures import write_tables
from helpers.nsys_programs import device_rows, rows
from helpers.rocprof_programs import (
    DISPATCHES,
    GEMM,
    PID,
    TID,
    UUID,
    rocpd_tables,
    rocprof_json,
)

import flopscope as fs
from flopscope.read import database

# (agent, index of the dispatch, counter, value); (start, end, agent, freed, bytes, address, correlation)
COUNTED = [(5, 0, "FETCH_SIZE", 4.5), (5, 0, "MfmaUtil", 62.5), (5, 0, "SQ_WAVES", 99), (6, 1, "FETCH_SIZE", 3.0)]
CHANGES = [(215, 216, 6, False, 4096, 0x7F0000, 5), (252, 253, 5, False, 1 << 33, 0x7F9000, 6)]
CHANGES += [
    (253, 254, 0, False, 512, 0x10, 6),
    (600, 601, None, True, 0, 0x7F0000, 0),
    (700, 701, None, True, 0, 0x5, 0),
]


@pytest.fixture(params=["core", "python"], autouse=True)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(database, "_found", None if request.param == "core" else False)
    return str(request.param)


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
    made["info_pmc"] = [
        {"id": index, "agent_id": agent, "name": name, "symbol": name} for index, (agent, name) in enumerate(names, 1)
    ]
    events = [row["event_id"] for row in made["kernel_dispatch"]]
    made["pmc_event"] = [
        {"id": index, "event_id": events[at], "pmc_id": 1 + names.index((agent, name)), "value": value}
        for index, (agent, at, name, value) in enumerate(COUNTED, 1)
    ]
    return write_tables(folder / "x.db", {f"rocpd_{name}{UUID}": rows for name, rows in made.items()})


def in_json(folder: Path, *, traced: bool = True) -> Path:
    path = rocprof_json(folder / "x.json")
    content = json.loads(path.read_text())
    tool = content["rocprofiler-sdk-tool"][0]
    names = sorted({name for _, _, name, _ in COUNTED})
    tool["counters"] = [{"id": {"handle": 100 + at}, "name": name} for at, name in enumerate(names)]
    records = tool["buffer_records"]
    for at, record in enumerate(records["kernel_dispatch"]):
        record["dispatch_info"]["dispatch_id"] = at + 1
    tool["callback_records"] = {
        "counter_collection": [
            {
                "dispatch_data": record,
                "records": [  # in two parts, as of two dies
                    {"counter_id": {"handle": 100 + names.index(name)}, "value": value / 2}
                    for _, of, name, value in COUNTED
                    for _ in range(2)
                    if of == at
                ],
            }
            for at, record in enumerate(records["kernel_dispatch"])
        ]
    }
    operations = ["NONE", "ALLOCATE", "VMEM_ALLOCATE", "FREE", "VMEM_FREE"]
    kinds = tool["strings"]["buffer_records"]
    kinds.append({"kind": "MEMORY_ALLOCATION", "operations": [f"MEMORY_ALLOCATION_{name}" for name in operations]})
    records["memory_allocation"] = [
        {
            **{"kind": len(kinds) - 1, "operation": 3 if freed else 1, "start_timestamp": start, "end_timestamp": end},
            **{"thread_id": TID, "correlation_id": {"internal": correlation}, "allocation_size": size},
            **{"address": f"0x{address:016x}", "agent_id": {"handle": 77 if agent is None else agent}},
        }
        for start, end, agent, freed, size, address, correlation in CHANGES
    ]
    if not traced:
        del records["kernel_dispatch"]
    path.write_text(json.dumps(content))
    return path


FORMATS: dict[str, Callable[[Path], Path]] = {"rocpd": in_rocpd, "json": in_json}


@pytest.mark.parametrize("form", FORMATS)
def test_counters_of_kernels(form: str, tmp_path: Path) -> None:
    trace = fs.load_trace(FORMATS[form](tmp_path))
    name = "rocpd" if form == "rocpd" else "rocprof"
    counts = {"cuda:0 dram_bytes_read": 1, "cuda:0 tensor_active": 1, "cuda:1 dram_bytes_read": 1}
    assert trace.metadata[name]["samples"] == counts
    found = {row.key: row for row in trace.key_averages() if row.device_type == "cuda"}
    assert found[GEMM].dram_bytes_read == 4.5 * 1024
    assert found[GEMM].tensor_active == pytest.approx(62.5)
    assert found[DISPATCHES[1][0]].dram_bytes_read == 3 * 1024
    assert device_rows(trace)[GEMM] == (1, 50), "counted kernels are not kernels of their own"


def test_kernels_that_were_only_counted(tmp_path: Path) -> None:
    trace = fs.load_trace(in_json(tmp_path, traced=False))
    kernels = {name: value for name, value in device_rows(trace).items() if not name.startswith("Memcpy")}
    assert kernels == {GEMM: (1, 50), DISPATCHES[1][0]: (1, 80)}
    assert trace.metadata["rocprof"]["samples"]["cuda:0 dram_bytes_read"] == 1


@pytest.mark.parametrize("form", FORMATS)
def test_memory_belongs_to_the_call_that_allocates(form: str, tmp_path: Path) -> None:
    trace = fs.load_trace(FORMATS[form](tmp_path))
    assert trace.profile_memory
    found = rows(trace)
    assert found["hipLaunchKernel"].self_device_memory_usage == 4096
    assert found["hipMemcpyAsync"].self_device_memory_usage == 1 << 33
    assert found["hipMemcpyAsync"].self_cpu_memory_usage == 512
    assert found["ncclAllReduce"].device_memory_usage == 4096
    assert found["[memory]"].self_device_memory_usage == -4096, "the free's size and device are the allocation's"
    changes = [event for event in trace.events() if event.kind == "memory"]
    assert len(changes) == len(CHANGES)
    name = "rocpd" if form == "rocpd" else "rocprof"
    assert trace.metadata[name]["unmatched_frees"] == 1


def test_malformed_counters_are_counted(tmp_path: Path) -> None:
    path = in_json(tmp_path)
    content = json.loads(path.read_text())
    counted = content["rocprofiler-sdk-tool"][0]["callback_records"]["counter_collection"]
    good = counted[0]
    counted += [{}, {"dispatch_data": 3}, {"dispatch_data": good["dispatch_data"]}]
    counted.append({**good, "records": [{"counter_id": {"handle": 100}, "value": "many"}]})
    path.write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="4 records were omitted because they are malformed"):
        assert device_rows(fs.load_trace(path))[GEMM] == (1, 50)


@pytest.mark.parametrize("form", FORMATS)
def test_a_call_of_rccl_names_the_kind_of_its_kernel(form: str, tmp_path: Path) -> None:
    (row,) = fs.load_trace(FORMATS[form](tmp_path)).collectives().itertuples()
    assert row.kernel.startswith("ncclDevKernel_Generic"), "a name that tells no kind"
    assert (row.collective, row.name) == ("allreduce", "ncclAllReduce")
    assert row.message_bytes != row.message_bytes


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
    monkeypatch.setattr(rocprof_programs, "DISPATCHES", [(GEMM, 300_000, 350_000, 2, 5)])
    monkeypatch.setattr(sys.modules[__name__], "COUNTED", [(5, 0, name, value) for name, value in counted.items()])
    path = in_json(tmp_path)
    content = json.loads(path.read_text())
    content["rocprofiler-sdk-tool"][0]["buffer_records"] = {}  # only what was counted
    path.write_text(json.dumps(content))
    trace = fs.load_trace(path)
    (row,) = [row for row in trace.key_averages(peaks="memory=5.3e12") if row.key == GEMM]
    assert row.bound == bound and row.pct_roofline == pytest.approx(share, nan_ok=True)
    whole = trace.coverage()["bytes"] == 1
    assert whole == ("WRITE_SIZE" in counted) and (row.bytes_source == "counted") == whole
    assert not whole or row.bytes_total_moved == 1024 * (counted["FETCH_SIZE"] + counted["WRITE_SIZE"])

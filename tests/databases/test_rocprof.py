"""Files of rocprofv3: rocpd databases and JSON, held against SQL and against each other."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.captures import query, write_tables
from helpers.nsys_programs import device_rows, rows
from helpers.rocprof_programs import (
    DISPATCHES,
    GEMM,
    PID,
    UUID,
    rocpd_tables,
    rocprof_json,
)

import flopscope as fs
from flopscope.read import database
from flopscope.read import rocpd as rocpd_source
from flopscope.read.counters import read_samples
from flopscope.read.database import Database, Reading


@pytest.fixture(params=["core", "python"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read by the core, and by Python's sqlite3 module."""
    monkeypatch.setattr(database, "_found", None if request.param == "core" else False)
    return str(request.param)


def rocpd(path: Path, *, schema: str = "3", suffixes: tuple[str, ...] = (UUID,), pid: int = PID) -> Path:
    tables: dict[str, list[dict[str, Any]]] = {}
    for suffix in suffixes:
        tables |= {f"rocpd_{name}{suffix}": rows for name, rows in rocpd_tables(schema, pid).items()}
    write_tables(path, tables)
    return path


FORMATS = {
    "rocpd": lambda folder: rocpd(folder / "1_results.db"),
    "json": lambda folder: rocprof_json(folder / "x.json"),
}


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
    made = rocpd_tables("3", PID)
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
    made = {f"rocpd_{name}": rows for name, rows in rocpd_tables("3", PID).items()}
    for name in ("rocpd_event", "rocpd_info_agent", "rocpd_region", "rocpd_memory_copy", "rocpd_metadata"):
        del made[name]
    prof = fs.load_trace(write_tables(tmp_path / "x.db", made))
    assert device_rows(prof) == {GEMM: (1, 50), DISPATCHES[1][0]: (1, 80)}


@pytest.mark.parametrize("used, expected", [((0, 0), {7, 9}), ((0, 7), {0, 7})])
def test_streams_are_queues_only_where_all_are_the_default(
    used: tuple[int, int], expected: set[int], tmp_path: Path
) -> None:
    """Ids of streams and of queues never mix: stream 0 on queue 7 is not stream 7."""
    queues = (7, 9)
    content = json.loads(rocprof_json(tmp_path / "x.json").read_text())
    records = content["rocprofiler-sdk-tool"][0]["buffer_records"]
    records["memory_copy"] = []
    for i, record in enumerate(records["kernel_dispatch"]):
        record["stream_id"] = {"handle": used[i]}
        record["dispatch_info"]["queue_id"]["handle"] = queues[i]
    (tmp_path / "x.json").write_text(json.dumps(content))
    assert {*fs.load_trace(tmp_path / "x.json").stream_summary()["stream"].dropna()} == expected


def test_malformed_records_are_counted(tmp_path: Path) -> None:
    content = json.loads(rocprof_json(tmp_path / "x.json").read_text())
    kernels = content["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"]
    of_a_list = {**kernels[0], "dispatch_info": {**kernels[0]["dispatch_info"], "kernel_id": [1]}}
    kernels += [{}, None, {"dispatch_info": 3}, {**kernels[0], "dispatch_info": 3}, of_a_list]
    (tmp_path / "x.json").write_text(json.dumps(content))
    with pytest.warns(UserWarning, match="5 records were omitted because they are malformed"):
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

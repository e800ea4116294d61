"""Memory of the device in exports of Nsight Systems (--cuda-memory-usage), held against SQL."""

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.captures import Nsys, global_pid, query
from helpers.nsys_programs import rows

import flopscope as fs

pytestmark = pytest.mark.usefixtures("reader")

TABLE = "CUDA_GPU_MEMORY_USAGE_EVENTS"
PAGEABLE, PINNED, DEVICE, MANAGED = 0, 1, 2, 4


def change(made: Nsys, start: int, size: Any, kind: int = DEVICE, *, freed: bool = False, **more: Any) -> None:
    row = {"globalPid": global_pid(42), "deviceId": 0, "contextId": 1, "address": 0x7F00, "pc": 0, "bytes": size}
    row |= {"memKind": kind, "memoryOperationType": int(freed), "name": None, "correlationId": 0}
    made.add(TABLE, start=start, **row | more)


def program() -> Nsys:
    """Two threads allocate at the same time; a third process does too."""
    made = Nsys()
    made.nvtx("aten::empty, op_id = 1", 100, 1000)
    made.nvtx("aten::zeros, op_id = 2", 100, 1000, thread=43)
    made.call("cudaMalloc_v3020", 200, 300, 5)
    made.call("cudaMallocHost_v3020", 210, 290, 6, thread=43)
    made.nvtx("other", 100, 1000, process=50, thread=50)
    change(made, 250, 4096, correlationId=5)
    change(made, 260, 100, PINNED, correlationId=6, address=0x10)
    change(made, 270, 64, MANAGED, globalPid=global_pid(50), deviceId=1)
    change(made, 2000, 1024, freed=True)
    return made


def test_changes_belong_to_the_calls_of_their_own_threads(tmp_path: Path) -> None:
    path = program().write(tmp_path / "x.sqlite")
    prof = fs.load_trace(path)
    assert prof.profile_memory
    found = rows(prof)
    assert found["cudaMalloc"].self_device_memory_usage == found["aten::empty"].device_memory_usage == 4096
    assert found["aten::zeros"].device_memory_usage == 0, "another thread's"
    assert found["cudaMallocHost"].self_cpu_memory_usage == found["aten::zeros"].cpu_memory_usage == 100
    assert found["other"].device_memory_usage == 64 and found["[memory]"].self_device_memory_usage == -1024
    changes = [event for event in prof.events() if event.kind == "memory"]
    ((count,),) = query(path, f"select count(*) from {TABLE}")
    assert len(changes) == prof.metadata["nsys"]["tables"][TABLE] == count


def test_the_curve_of_the_report_is_the_running_sum(tmp_path: Path) -> None:
    made = Nsys()
    made.call("cudaMalloc_v3020", 0, 10000, 1)
    sizes = [4096, 1 << 40, -4096, 512]
    for place, size in enumerate(sizes):
        change(made, 1000 * place, abs(size), freed=size < 0, address=0x100 * (1 + place), correlationId=1)
    path = made.write(tmp_path / "x.sqlite")
    ((peak,),) = query(
        path,
        "select max(total) from (select sum(case memoryOperationType when 0 then bytes else -bytes end) "
        f"over (order by start) as total from {TABLE})",
    )
    _, found = fs.load_trace(path)._core.timeline(False, 0, {}, False, (), True, 1000)
    assert found["memory"]["bytes"].tolist() == sizes and peak == max(sum(sizes[: at + 1]) for at in range(4))
    fs.load_trace(path).write_report(str(tmp_path / "x.html"))
    assert re.search(r'"peak":', (tmp_path / "x.html").read_text())


BAD = {
    "no kind of change": {"memoryOperationType": 7}, "a text": {"bytes": "many"}, "a negative size": {"bytes": -5},
    "an impossible size": {"bytes": 1 << 60}, "no time": {"start": None}, "no device like it": {"deviceId": 1 << 40},
    "a negative device": {"deviceId": -7},
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_impossible_changes_count_nothing(name: str, tmp_path: Path) -> None:
    made = program()
    made.tables[TABLE][0] |= BAD[name]
    found = rows(fs.load_trace(made.write(tmp_path / "x.sqlite")))
    assert found["cudaMalloc"].self_device_memory_usage == 0 and found["cudaMallocHost"].self_cpu_memory_usage == 100


def test_an_old_table_without_calls_and_kinds(tmp_path: Path) -> None:
    made = Nsys()
    made.nvtx("work", 100, 1000)
    made.add(TABLE, start=200, globalPid=global_pid(42), deviceId=0, bytes=64, memoryOperationType=0)
    found = rows(fs.load_trace(made.write(tmp_path / "x.sqlite")))
    assert found["work"].device_memory_usage == 64, "of the process's first thread"

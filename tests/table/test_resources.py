"""What a row says of its kernels' launches: registers, shared memory, occupancy and waves."""

import gzip
import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from helpers import TRACES
from helpers.hand_traces import H200, Program

import flopscope as fs

SMS = 132
FULL = {**H200, "id": 0, "sharedMemPerBlockOptin": 232448}


def program_on(device: dict[str, Any]) -> Program:
    program = Program()
    program.head["deviceProperties"] = [device] if device else []
    return program


@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json.gz")), ids=lambda path: path.name)
def test_registers_shared_memory_and_occupancy_are_those_of_torchs_trace(path: Path) -> None:
    """Kineto's "est. achieved occupancy %", of launches that are alike, is that of the blocks which the grid has."""
    launches = defaultdict[str, list[dict[str, Any]]](list)
    for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
        if event.get("cat") == "kernel":
            launches[event["name"]].append(event["args"])
    rows = {row.key: row for row in fs.load_trace(path).key_averages() if row.device_type != "cpu"}
    for name, all_args in launches.items():
        row = rows[name]
        assert row.registers == max(args["registers per thread"] for args in all_args)
        assert row.shared_memory == max(args["shared memory"] for args in all_args)
        estimates = {args["est. achieved occupancy %"] for args in all_args}
        alike = {str((args["grid"], args["block"], args["shared memory"])) for args in all_args}
        if len(alike) == 1 and 0 not in estimates:
            assert min(1.0, row.waves) * row.theoretical_occupancy == pytest.approx(*estimates, abs=1.01), name
    others = [row for row in fs.load_trace(path).key_averages() if row.key not in launches]
    assert all(math.isnan(row.registers) and math.isnan(row.waves) and row.occupancy_limit is None for row in others)


@pytest.mark.parametrize(("threads", "registers", "shared", "occupancy", "limit"), [
    (256, 32, 0, 100, None),
    (256, 255, 0, 12.5, "registers"),  # 8,192 a warp, of 16,384 in each quarter
    (128, 32, 64 << 10, 18.75, "shared memory"),  # 65 KiB with what the driver reserves, of 228
    (32, 32, 0, 50, "blocks"),  # 32 of one warp
    (768, 32, 0, 75, "block size"),  # 2 of 24 warps, which is what registers allow, too
    (1024, 64, 0, 50, "registers"),
])  # fmt: skip
def test_the_limit_is_what_cudas_occupancy_calculator_says(
    threads: int, registers: int, shared: int, occupancy: float, limit: str | None
) -> None:
    program = program_on(FULL)
    launch = {"block": [threads, 1, 1], "registers per thread": registers, "shared memory": shared}
    program.run("aten::mm", 0, 10, 5, kernel="k", blocks=1, **launch)
    (row,) = [row for row in program.load().key_averages() if row.key == "k"]
    assert (row.theoretical_occupancy, row.occupancy_limit) == (occupancy, limit)
    held = occupancy / 100 * 64 // (threads / 32)
    assert row.waves == pytest.approx(1 / (held * SMS))


def test_launches_weigh_by_their_time() -> None:
    program = program_on(FULL)
    for at, (blocks, registers, time) in enumerate([(SMS, 32, 10), (8 * SMS, 255, 30), (SMS, 0, 0)]):
        launch = {"registers per thread": registers}
        program.run("aten::mm", 5 * at, 10 + 100 * at, time, kernel="k", blocks=blocks, **launch)
    trace = program.load()
    (row,) = [row for row in trace.key_averages() if row.key == "k"]
    assert (row.registers, row.occupancy_limit) == (255, "registers")
    assert row.theoretical_occupancy == pytest.approx((10 * 100 + 30 * 12.5) / 40, rel=1e-4)
    assert row.waves == pytest.approx((10 / 8 + 30 * 8) / 40, rel=1e-4)
    written = next(one for one in trace.key_averages().to_dict()["rows"] if one["key"] == "k")
    assert (written["registers"], written["occupancy_limit"], written["shared_memory_bytes"]) == (255, "registers", 0)
    shown = trace.key_averages().table(columns=["name", "registers", "limited by", "occupancy", "waves"], kind="kernel")
    (line,) = (line for line in shown.splitlines() if line.startswith("k "))
    assert line.split() == ["k", "255", "registers", "34.4%", "6.03"]


def test_of_an_unknown_device_the_occupancy_is_unknown() -> None:
    program = program_on({})
    program.run("aten::mm", 0, 10, 5, kernel="k", **{"registers per thread": 40, "shared memory": 16})
    (row,) = [row for row in program.load().key_averages() if row.key == "k"]
    assert (row.registers, row.shared_memory, row.occupancy_limit) == (40, 16, None)
    assert math.isnan(row.theoretical_occupancy) and math.isnan(row.waves)

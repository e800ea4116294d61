"""Causes of slow kernels: each by counts in which it is planted, and what is said of it."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import DATA

from flopscope.measuring.checking.result import Checked
from flopscope.measuring.counting import Counts
from flopscope.measuring.why import CAUSES, Launch, cause_of, launch_of, waiting
from flopscope.record.counters import Line, by_kernel

USUAL = {
    **{"sm_active": 95.0, "occupancy": 80.0, "issue_active": 20.0, "pct_peak_dram": 30.0, "l2_active": 25.0},
    **{"instructions": 1e6, "threads_per_instruction": 32.0, "sectors_read": 1e6, "bytes_per_sector_read": 32.0},
    **{"warps_per_issue": 20.0, "stall_long_scoreboard": 10.0, "stall_wait": 2.0, "stall_not_selected": 1.0},
}
"""A kernel whose loads wait for memory, which is the cause where nothing else is."""


READS = {"sectors_read": 1e4, "sectors_written": 3e4}


def launch(limit: str | None = None, waves: float = 8.0) -> Launch:
    return Launch("kernel", 64, 0, 100.0, limit, waves)


@pytest.mark.parametrize(
    ("cause", "counts", "of", "said"),
    [
        ("spills", {"local_requests": 2e5}, launch(), "20 % of the instructions access local memory"),
        ("atomics", {"atomic_requests": 5e4}, launch(), "5 % of the instructions are atomic"),
        ("scattered access", {"bytes_per_sector_read": 4.0}, launch(), "use 4 of the 32 bytes"),
        ("scattered access", READS | {"bytes_per_sector_written": 4.0}, launch(), "use 11 of the 32 bytes"),
        (
            "bank conflicts", {"bank_conflicts": 31.0, "shared_wavefronts": 32.0, "stall_mio": 5.0}, launch(),
            "97 % of the passes of shared memory",
        ),
        ("divergence", {"threads_per_instruction": 1.0}, launch(), "1 of 32 threads"),
        ("busy", {"fp64_active": 90.0}, launch(), "fp64 units are 90 % busy"),
        ("busy", {"pct_peak_dram": 88.0, "l2_active": 95.0}, launch("registers"), "the device memory is 88 % busy"),
        ("busy", {"pct_peak_dram": 70.0, "l2_active": 95.0}, launch(), "the L2 cache is 95 % busy"),
        ("few blocks", {"sm_active": 2.0, "threads_per_instruction": 10.0}, launch(), "has a block for 2 % of"),
        ("few blocks", {"sm_active": 0.04}, launch(), "has a block for 0.04 % of the time. Of their time"),
        ("few blocks", {"occupancy": 12.0}, launch("registers", 0.2), "20 % of those that the device can hold at on"),
        ("barrier", {"stall_barrier": 12.0, "occupancy": 30.0}, launch("registers"), "at a barrier. Of their"),
        ("occupancy", {"occupancy": 12.0}, launch("registers"), "12 % of the warps that fit are in flight, lim"),
        ("occupancy", {"occupancy": 6.0}, launch("shared memory"), "Less shared memory a block, or more indep"),
        (
            "waits", {}, launch(),
            "warps wait for memory. Of their time, warps wait 50 % for memory and 10 % for results",
        ),
        ("waits", {"stall_long_scoreboard": 0.0, "stall_gmma": 9.0}, launch(), "warps wait for tensor cores"),
    ],
)  # fmt: skip
def test_a_planted_cause_comes_first(cause: str, counts: dict[str, float], of: Launch, said: str) -> None:
    name, text = cause_of(USUAL | counts, of)
    assert name == cause and said in text and text.endswith(".") and "in 20 % of the cycles" in text


@pytest.mark.parametrize(
    ("counts", "of"),
    [
        ({"local_requests": 1e3}, launch()),
        ({"bytes_per_sector_written": 4.0, "sectors_written": 1e4}, launch()),  # a few results of much that is read
        ({"bytes_per_sector_read": 4.0, "pct_peak_dram": 1.0, "l2_active": 1.0}, launch()),  # a scalar that all load
        ({"bank_conflicts": 1.0, "shared_wavefronts": 32.0, "stall_mio": 5.0}, launch()),
        ({"bank_conflicts": 31.0, "shared_wavefronts": 32.0}, launch()),  # but nobody waits for it
        ({"atomic_requests": 5e4, "stall_long_scoreboard": 0.0, "stall_wait": 9.0}, launch()),
        ({"occupancy": 12.0}, launch()),
        ({"bytes_per_sector_read": 0.0, "sectors_read": 0.0}, launch()),  # it loads nothing
    ],
)
def test_what_looks_like_a_cause_but_does_not_matter_is_none(counts: dict[str, float], of: Launch) -> None:
    assert cause_of(USUAL | counts, of)[0] == "waits"


RECORDED = json.loads((DATA / "causes_h200.json").read_text())


@pytest.mark.parametrize("kernel", RECORDED, ids=[f"{kernel['name']}: {kernel['cause']}" for kernel in RECORDED])
def test_the_causes_of_kernels_on_an_h200_are_named(kernel: dict[str, Any]) -> None:
    """The kernels of tests/gpu/test_why_gpu.py, with what was counted of them."""
    name, text = cause_of(kernel["counts"], Launch(*kernel["launch"]))
    assert name == kernel["cause"] and "Of their time, warps wait" in text


def test_each_cause_is_planted_above() -> None:
    (planted,) = vars(test_a_planted_cause_comes_first)["pytestmark"]
    assert {row[0] for row in planted.args[1]} == {*CAUSES}


def test_nothing_is_said_of_what_was_not_counted() -> None:
    assert cause_of({}, launch()) == cause_of(USUAL, None) == ("", "")
    assert cause_of({"warps_per_issue": 0.0}, launch()) == ("", "")
    assert cause_of({"warps_per_issue": 2.0}, launch())[0] == "waits"
    assert waiting({}, "memory") != waiting({}, "memory")  # NaN


def test_waits_are_parts_of_a_whole_though_counted_in_several_calls() -> None:
    counts = {"warps_per_issue": 50.0, "stall_long_scoreboard": 78.0, "stall_wait": 1.0}
    assert waiting(counts, "memory") == 78 / 80 and waiting(counts, "a barrier") == 0


def test_the_launch_is_that_of_the_longest_kernel() -> None:
    nan = float("nan")
    table: dict[str, list[Any]] = {
        "key": ["op", "short", "long"], "self_device_time_total": [9.0, 1.0, 2.0], "registers": [nan, 32.0, 168.0],
        "shared_memory": [nan, 0.0, 49152.0], "theoretical_occupancy": [nan, 100.0, 18.75],
        "occupancy_limit": [None, None, "registers"], "waves": [nan, 1.0, 2.5],
    }  # fmt: skip
    found = launch_of(table)
    assert found == Launch("long", 168, 49152, 18.75, "registers", 2.5)
    said = "168 registers a thread, 48.0 KiB of shared memory a block, 2.5 waves of blocks, occupancy 19 %, limited by "
    assert str(found) == said + "registers"
    assert launch_of({**table, "registers": [nan] * 3}) is None


def test_a_kernel_far_from_its_limit_is_told_why() -> None:
    counts = Counts({"warps_per_issue": 10.0, "stall_long_scoreboard": 8.0, "occupancy": 16.0})
    seen = {"counters": counts, "launch": launch("registers"), "traffic": "moves the bytes it must (1.00 ×)"}
    found = Checked("same", "k", "r", pct_limit=40.0, **seen)
    assert found.cause == "occupancy" and "16 % of the warps that fit are in flight" in found.explanation
    for line in (
        "launch     64 registers a thread", "why        16 % of", "counted    occupancy 16 %", "traffic    moves",
    ):  # fmt: skip
        assert f"  {line}" in str(found)
    written = found.to_dict()
    assert written["cause"] == "occupancy" and written["launch"]["registers"] == 64 and written["counters"] == counts
    assert "why  " not in str(replace(found, pct_limit=85.0)), "it is near its limit"
    assert "why  " in str(replace(found, pct_limit=math.nan))


def test_hot_lines_are_those_of_the_longest_kernel(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("\n  v = tl.load(at)\n")
    file = str(tmp_path / "k.py")
    waits = {"stall_long_scoreboard": 300, "stall_memory_queue": 40, "stall_short_scoreboard": 50, "stall_mio": 60}
    rows = [
        ("other", None, 0, 16, 600, {"stall_barrier": 600}, ""),
        ("long", file, 2, 32, 500, waits | {"selected": 50}, ""), ("long", None, 0, 48, 450, {"selected": 450}, ""),
        ("long", file, 3, 64, 50, {"stall_barrier": 45, "selected": 5}, ""),
        ("long", file, 4, 80, 49, {"stall_barrier": 49}, ""),
    ]  # fmt: skip
    kernel, other = by_kernel(rows, {"long": {"4-byte loads": 1200}})
    load, issues = kernel.lines
    assert load == Line("long", file, 2, 0, "", pytest.approx(100 * 500 / 1049), "memory", 60.0, "v = tl.load(at)")
    assert issues == Line("long", None, 0, 48, "", pytest.approx(100 * 450 / 1049), "", 0.0, "")
    assert (kernel.samples, kernel.issues) == (1049, 100 * 505 / 1049) and other.share == 100 * 600 / 1649
    assert [*kernel.waits][:2] == ["memory", "shared memory or special functions"] and other.waits == {"a barrier": 100}
    said = "36 %  other\n       issues 0 %, waits for 100 % a barrier\n       100 % at instruction 0x10 (100 % of it"
    assert said in str(by_kernel(rows, {})) and str(by_kernel([], {})) == "no instruction was sampled"
    counts = Counts(USUAL)
    counts.stalls = kernel
    found = Checked("same", "k", "r", counters=counts, launch=launch())
    said = "hot lines  48 % at k.py:2 (60 % of it wait for memory): v = tl.load(at); 43 % at instruction 0x30"
    assert said in str(found)
    assert found.hot_lines == kernel.lines and found.to_dict()["hot_lines"][0]["line"] == 2
    assert "code       1,200 4-byte loads" in str(found) and "global memory are 4 bytes wide." in found.explanation
    counts.stalls = kernel._replace(code={"1-byte loads": 1, "2-byte loads": 1, "4-byte loads": 1})
    assert "global memory are 1 to 4 bytes wide." in found.explanation
    for other in ("16-byte loads", "asynchronous copies"):
        counts.stalls = kernel._replace(code={"4-byte loads": 1, other: 1})
        assert "wide" not in found.explanation
    assert not Checked("same", "k", "r").hot_lines

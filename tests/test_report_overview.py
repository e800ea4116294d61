"""The overview of the report page: its headline, and what it says was not recorded."""

from __future__ import annotations

import math
import re
from pathlib import Path

from hand_traces import Program
from report_pages import written

import flopscope as fs
from flopscope.report.overview import PART_TEXTS

RECORDED = Path(__file__).parent.parent / "benchmarks" / "results" / "nvidia-h200"


def test_the_headline_names_the_largest_loss(tmp_path: Path) -> None:
    program = Program()
    program.step(1, 0, 1000)
    program.run("aten::mul", 5, 20, 900, [1024, 1024], [1024, 1024])
    read = written(program.load(), tmp_path)
    whole = read.data["sections"]["overview"]["accounting"]["whole"]
    parts = {part["name"]: whole[part["name"]] for part in read.data["sections"]["overview"]["accounting"]["parts"]}
    lost = max((name for name in parts if name != "ideal"), key=parts.__getitem__)
    share = f"{100 * parts[lost] / whole['total']:.1f}%"
    assert f"{share} of the step is {PART_TEXTS[lost][0]}" in read.text


def test_the_headline_says_of_what_a_saving_is_a_share(tmp_path: Path) -> None:
    for name in ("vit_before", "sgd_nesterov_before", "soft_argmax_before"):
        trace = fs.load_trace(RECORDED / "held_out" / f"{name}.json.gz")
        overview = written(trace, tmp_path).data["sections"]["overview"]
        read, first = written(trace, tmp_path), overview["advice"][0]
        whole, steps = overview["accounting"]["whole"], overview["accounting"]["per"]
        base = 100 * first["saving_us"] / first["saving_pct"]  # µs of a step
        assert overview["recording"]["is_delayed"] == (base < 0.99 * whole["total"] / steps)
        found = re.search(r"saves about \S+ (?:ms|µs)(?: of (\S+) (ms|µs) without recording)? \(", read.text)
        assert found is not None and (found[1] is not None) == overview["recording"]["is_delayed"]
        if found[1]:
            assert math.isclose(float(found[1]) * {"ms": 1e3, "µs": 1}[found[2]], base, rel_tol=1e-3)


def test_several_devices_and_unmodelled_work_are_told_in_the_headline(tmp_path: Path) -> None:
    program = Program()
    program.run("aten::mul", 5, 20, 900, [1024, 1024], [1024, 1024])
    read = written(program.load(), tmp_path)
    assert "the same work takes" in read.text and "summed over" not in read.text
    program.run("aten::mul", 10, 30, 800, [1024, 1024], [1024, 1024], device=1)
    program.run("my::own_op", 15, 930, 500, [1024, 1024])
    trace = program.load()
    read = written(trace, tmp_path)
    assert "the modelled work takes" in read.text and "in the profile, summed over 2 devices." in read.text
    assert ", summed over 2 devices" in " ".join(str(trace.summary()).split())


def test_a_program_without_a_gpu_misses_no_device_work(tmp_path: Path) -> None:
    program = Program()
    program.head["deviceProperties"] = []
    program.op("aten::mul", 0, 10)
    for call, present in (("", None), ("cudaLaunchKernel", False)):
        if call:
            program.call(call, 2, 3)
        missing = written(program.load(), tmp_path).data["sections"]["overview"]["missing"]
        assert {one["what"]: one["present"] for one in missing}["Device work"] is present


def test_what_was_not_recorded_is_named_with_its_option(tmp_path: Path) -> None:
    trace = fs.load_trace(RECORDED / "faults" / "graph_after.json.gz")
    missing = {one["what"]: one for one in written(trace, tmp_path).data["sections"]["overview"]["missing"]}
    present = {name: one["present"] for name, one in missing.items()}
    assert present == {
        "Input shapes": False, "Device work": True, "Steps": True, "Stacks": False, "Modules": False, "Memory": False,
        "Peaks": True, "Counters": False,
    }  # fmt: skip
    assert missing["Input shapes"]["option"] == "record_shapes=True"
    assert missing["Memory"]["option"] == "profile_memory=True" and missing["Stacks"]["option"] == "with_stack=True"

"""The overview of the report page: its headline, and what it says was not recorded."""

import html
import math
import re
from pathlib import Path

from helpers.hand_traces import Program
from helpers.recordings import FAULTS, RECORDINGS
from helpers.report_pages import written

import flopscope as fs
from flopscope import _core


def test_the_headline_names_the_largest_loss(tmp_path: Path) -> None:
    program = Program()
    program.step(1, 0, 1000)
    program.run("aten::mul", 5, 20, 900, [1024, 1024], [1024, 1024])
    read = written(program.load(), tmp_path)
    whole = read.data["sections"]["overview"]["accounting"]["whole"]
    parts = {part["name"]: whole[part["name"]] for part in read.data["sections"]["overview"]["accounting"]["parts"]}
    lost = max((name for name in parts if name != "ideal"), key=parts.__getitem__)
    share = f"{100 * parts[lost] / whole['total']:.1f}%"
    assert f"{share} of the step is {_core.parts[lost].noun}" in read.text


def test_the_headline_says_of_what_a_saving_is_a_share(tmp_path: Path) -> None:
    for name in ("launch_train_before", "data_before", "layout_before"):
        trace = fs.load_trace(FAULTS / f"{name}.json.gz")
        overview = written(trace, tmp_path).data["sections"]["overview"]
        read, first = written(trace, tmp_path), overview["advice"][0]
        whole, steps = overview["accounting"]["whole"], overview["accounting"]["per"]
        base = 100 * first["saving_us"] / first["saving_pct"]  # µs of a step
        assert overview["recording"]["is_delayed"] == (base < 0.99 * whole["total"] / steps)
        found = re.search(r"saves [a-z ]+ [0-9.]+\s(?:ms|µs)(?: of ([0-9.]+)\s(ms|µs) without recording)?\.", read.text)
        assert found is not None and (found[1] is not None) == overview["recording"]["is_delayed"]
        if found[1]:
            assert math.isclose(float(found[1]) * {"ms": 1e3, "µs": 1}[found[2]], base, rel_tol=5e-3)


def test_several_devices_and_unmodelled_work_are_told_in_the_headline(tmp_path: Path) -> None:
    program = Program()
    program.run("aten::mul", 5, 20, 900, [1024, 1024], [1024, 1024])
    read = written(program.load(), tmp_path)
    assert "the same work takes" in read.text and "summed over" not in read.text
    program.run("aten::mul", 10, 30, 800, [1024, 1024], [1024, 1024], device=1)
    program.run("my::own_op", 15, 930, 500, [1024, 1024])
    trace = program.load()
    read = written(trace, tmp_path)
    assert "the modelled work takes" in read.text and re.search(r"takes [0-9.]+\sms, summed over 2 devices", read.text)
    assert ", summed over 2 devices" in " ".join(str(trace.summary()).split())


HEADLINE = re.compile(r'<p class="headline">(.*?)</p>', re.S)


def headline(results: fs.Trace, folder: Path) -> str:
    found = HEADLINE.search(written(results, folder).html)
    assert found
    return html.unescape(found[1])


def test_the_headline_is_an_action_with_its_gain(tmp_path: Path) -> None:
    gains = set()
    for folder in ("programs", "held_out"):
        for path in sorted((RECORDINGS / folder).glob("*_before.json.gz")):
            advice = fs.load_trace(path).advice()
            shown = headline(fs.load_trace(path), tmp_path)
            if not len(advice):
                assert " of the " in shown and " is " in shown
                continue
            first = advice[0]
            assert shown.lower().startswith(f"{first.action}: ".lower()) and not shown.startswith(f"{first.rule}:")
            (share,) = re.findall(r"about <?([0-9.]+)%", shown)
            assert math.isclose(float(share), first.saving_pct, abs_tol=0.5)
            gains.add(shown.rpartition("% ")[2])
    assert "less time" in gains


def products(program: Program, classes: int, *, loss: bool = True) -> Program:
    """Add a step of a product with so many columns, an embedding of so many rows, and their loss."""
    bf16 = "c10::BFloat16"
    program.run("aten::embedding", 0, 5, 20, [classes, 768], [8192], dtype=bf16)
    gemm = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_align2"
    program.run("aten::mm", 50, 100, 7000, [8192, 768], [768, classes], dtype=bf16, kernel=gemm)
    program.run("aten::_log_softmax" if loss else "aten::relu", 60, 7200, 1000, [8192, classes], dtype=bf16)
    return program


def test_a_vocabulary_is_called_one_only_where_ops_show_it() -> None:
    def action(program: Program) -> str:
        return next(one.action for one in program.load().advice() if one.rule == "align")

    assert action(products(Program(), 50257)) == "Pad the vocabulary from 50257 to 50264"
    assert action(products(Program(), 50257, loss=False)) == "Pad N = 50257 of aten::mm to 50264"


def test_the_largest_ops_are_those_of_the_command_line(tmp_path: Path) -> None:
    for name in ("tf32_before", "launch_train_before"):
        path = FAULTS / f"{name}.json.gz"
        largest = written(fs.load_trace(path), tmp_path).data["sections"]["overview"]["largest"]
        rows = fs.load_trace(path).key_averages().of_kind("op")
        gains = {row.key: row.self_device_time_total if math.isnan(row.headroom) else row.headroom for row in rows}
        expected = sorted(gains, key=lambda key: -gains[key])[:5]
        assert [row["name"] for row in largest["rows"]] == expected and largest["title"] == "Ops with the most to gain"


def test_a_page_has_one_time_of_a_step_and_says_which(tmp_path: Path) -> None:
    program = Program()
    for step, (begin, time) in enumerate(((0, 800), (1000, 700), (2000, 900)), 1):
        program.step(step, begin, time)
        program.run("aten::mul", begin + 5, begin + 20, time - 100, [1024, 1024], [1024, 1024])
    read = written(program.load(), tmp_path)
    assert "A step takes 800\u202fµs (mean of 3 steps)." in read.text
    found = read.data["sections"]["overview"]["accounting"]
    assert (found["of"], found["of_short"]) == ("mean of 3 steps", "mean of 3")
    compare = written(fs.compare(program.load(), program.load()), tmp_path)
    section = compare.data["sections"]["compare"]
    assert section["time"] == [800.0, 800.0] and "the time of a step is the median" in compare.text
    for overview in section["overviews"]:
        found = overview["accounting"]
        assert (found["of"], found["of_short"]) == ("median of 3 steps", "median of 3")
        assert math.isclose(found["whole"]["total"] / found["per"], 800.0)
        assert math.isclose(sum(found["whole"][part["name"]] for part in found["parts"]), 800.0)


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
    trace = fs.load_trace(FAULTS / "graph_after.json.gz")
    missing = {one["what"]: one for one in written(trace, tmp_path).data["sections"]["overview"]["missing"]}
    present = {name: one["present"] for name, one in missing.items()}
    assert present == {
        "Input shapes": False, "Device work": True, "Steps": True, "Stacks": False, "Modules": False, "Memory": False,
        "Peaks": True, "Counters": False,
    }  # fmt: skip
    assert missing["Input shapes"]["option"] == "record_shapes=True"
    assert [name for name, one in missing.items() if not one["is_code"]] == ["Device work", "Peaks"]
    assert missing["Memory"]["option"] == "profile_memory=True" and missing["Stacks"]["option"] == "with_stack=True"


def test_without_advice_the_headline_says_where_the_time_is(tmp_path: Path) -> None:
    program = Program()
    program.head["deviceProperties"] = []
    program.op("aten::mm", 0, 1000)
    for shapes, words in (((), "as no input shapes were recorded"), (([64, 64], [64, 64]), "as the peaks are unknown")):
        program.events[-1]["args"].pop("Input Dims", None)
        if shapes:
            del program.events[:]
            program.op("aten::mm", 0, 1000, *shapes)
        shown = headline(program.load(), tmp_path)
        assert shown.startswith("100.0% of the time is work") and words in shown

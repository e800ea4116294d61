"""flopscope compare of recorded programs before and after one known change.

The texts in tests/data/compare are what users see; ``PYTHONPATH=tests python tests/table/test_compare_pairs.py`` writes
them again. Sums are computed here from the JSON of the traces.
"""

import gzip
import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from helpers import DATA, TRACES
from helpers.hand_traces import Program
from helpers.recordings import FAULTS

import flopscope as fs
from flopscope.answers.comparing import compare
from flopscope.answers.differences import replacements
from flopscope.cli.program import main
from flopscope.results.comparison import Comparison

TEXTS = DATA / "compare"
PAIRS = ("tf32", "graph", "pointwise")
SAID = {
    "vocab": [r"aten::mm .* \(\d+\.\d% → [678]\d\.\d% of roofline; sizes 50257 → 50304\)"],
    "tf32": [r"aten::mm .*fp32 → tf32_tensor"],
    "graph": [r"kernel launches → 1 cudaGraphLaunch", r"The largest remaining part of b: "],
    "pointwise": [r"9 ops → 1 fused kernel", r"→ triton_poi_fused"],
    "low_precision": [r"aten::mm .*tf32_tensor → bf16_tensor"], "attention_infer": [r"\d+ ops → \d+ ops .*_attention"],
    "optimizer_foreach": [r"7 ops → 1 op .*_foreach_mul_.* → _fused_adamw_"],
    "copy_pageable": [r"aten::copy_ .*% → .*% of roofline"], "data": [r"device idle during a wait for data went away"],
    "layout": [r"aten::copy_ is gone"], "small": [r"aten::cumsum .*% → .*% of roofline"],
    "cast": [r"aten::copy_ .*13 → 1 call"], "launch_train": [r"kernel launches → 1 cudaGraphLaunch"],
}  # fmt: skip
"""What the sentences must say of each change, as far as a trace can tell."""


def paths(name: str) -> list[str]:
    return [str(FAULTS / f"{name}_{when}.json.gz") for when in ("before", "after")]


def compared(name: str, **options: Any) -> Comparison:
    a, b = map(fs.load_trace, paths(name))
    return compare(a, b, **options)


def events_of(path: str) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        return list(json.load(file)["traceEvents"])


@pytest.mark.parametrize("name", PAIRS)
def test_the_printed_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *paths(name), "--limit", "8"]) == 0
    assert capsys.readouterr().out == (TEXTS / f"{name}.txt").read_text(encoding="utf-8")


def test_a_run_with_steps_is_compared_as_a_whole_with_one_without() -> None:
    result = compare(fs.load_trace(TRACES / "square.json.gz"), fs.load_trace(paths("small")[0]))
    assert result.per == "run" and result.time[1] > result.total_change.time_b
    shares = re.findall(r"\((\d+\.\d)% of the time\)", result.verdict[2])
    assert shares and float(shares[0]) <= 100, result.verdict


def test_kernels_whose_names_are_cut_stay_apart() -> None:
    runs = [fs.load_trace(TRACES / f"{n}.json.gz") for n in ("tutorial_naive", "tutorial_naive_stack")]
    result = compare(*runs, kind="kernel")
    names = [line[:46] for line in result.table(width=100).splitlines() if line.startswith("sm80_xmma_gemm")]
    assert len(names) >= 3 and len(set(names)) == len(names)


@pytest.mark.parametrize("name", SAID)
def test_the_sentences_say_what_was_changed(name: str) -> None:
    result = compared(name)
    assert len(result.verdict) == 3
    for pattern in SAID[name]:
        assert re.search(pattern, " ".join(result.verdict)), result.verdict


@pytest.mark.parametrize("name", PAIRS)
def test_times_of_kernels_are_the_sums_of_the_traces(name: str) -> None:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    steps = []
    for side, path in enumerate(paths(name)):
        events = events_of(path)
        steps.append(sum(e.get("cat") == "user_annotation" and "ProfilerStep" in e["name"] for e in events))
        for event in events:
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                sums[event["name"]][side] += event["dur"] / steps[side]
    result = compared(name, kind="kernel")
    parts = [part for change in result.changes for part in (change.parts if change.cause == "replaced" else [change])]
    found = {part.name: [part.time_a, part.time_b] for part in parts}
    assert found.keys() == sums.keys()
    for kernel, times in found.items():
        assert times == pytest.approx(sums[kernel]), kernel
    assert result.total_change.difference == pytest.approx(sum(b - a for a, b in sums.values()))


@pytest.mark.parametrize("name", ["data", "cast"])
def test_the_time_of_a_step_is_the_median_of_its_steps(name: str) -> None:
    for path, time in zip(paths(name), compared(name).time, strict=True):
        steps = [e["dur"] for e in events_of(path) if "ProfilerStep" in e["name"] and e.get("cat") == "user_annotation"]
        assert time == pytest.approx(statistics.median(steps), rel=0.25)  # work may end after its step on the host


def test_a_run_compared_with_itself_is_the_same() -> None:
    trace = fs.load_trace(paths("layout")[0])
    result = compare(trace, trace)
    assert result.slowdown_pct == 0 and {change.cause for change in result.changes} == {"same"}
    assert "the same within 1%" in result.verdict[0] and result.verdict[1].startswith("No op, kernel or cause")


def test_a_table_has_no_idle_time_to_compare() -> None:
    trace = fs.load_trace(paths("graph")[0])
    result = compare(trace.key_averages(), trace)
    assert result.per == "step" and result.verdict[0].startswith("The ops of a step take ")
    assert "idle" not in " ".join(result.verdict[:1] + result.verdict[2:])


# --fail-over ----------------------------------------------------------------------------------------------------------


def test_fail_over_fails_only_runs_that_became_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = paths("pointwise")
    assert main(["compare", before, after, "--fail-over", "5%"]) == 0
    capsys.readouterr()
    target = tmp_path / "out.json"
    assert main(["compare", after, before, "--fail-over", "5%", "--json", str(target)]) == 1
    captured = capsys.readouterr()
    slower = r"1\.\d+ms without recording, \d+\.\d% more than A \(\d+us\); --fail-over 5%\n"
    assert re.fullmatch(f"flopscope compare: a step of B takes {slower}", captured.err)
    content = json.loads(target.read_text())
    assert content["per"] == "step" and content["slowdown_pct"] > 100 and len(content["verdict"]) == 3
    assert content["changes"][0]["cause"] == "replaced" and content["changes"][0]["name"] == "1 fused kernel → 9 ops"
    assert main(["compare", after, before, "--fail-over", "1000"]) == 0
    with pytest.raises(SystemExit):
        main(["compare", after, before, "--fail-over", "much"])
    assert "'much' is not a percentage such as 5%" in capsys.readouterr().err


def test_fail_over_needs_times_that_can_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for calls in (2, 5):
        program = Program()
        for i in range(calls):
            program.run("aten::add", 100.0 * i, 100.0 * i + 10, 30.0, [8, 8])
        files.append(tmp_path / f"{calls}.json")
        files[-1].write_bytes(program.text())
    assert main(["compare", *map(str, files), "--fail-over", "5%"]) == 2
    assert "they differ in length and have no steps" in capsys.readouterr().err


# What replaced what ---------------------------------------------------------------------------------------------------


def test_ops_between_the_same_neighbours_replace_each_other() -> None:
    a = ["mm", "mul", "add", "mm", "sort", "mm"]
    b = ["mm", "triton_poi_fused_0", "mm", "topk_kernel", "mm"]
    assert replacements(a, b, {"mm"}) == [({"mul", "add"}, {"triton_poi_fused_0"}), ({"sort"}, {"topk_kernel"})]
    both = ({"bmm", "sort"}, {"flash", "topk_kernel"})
    assert replacements(["bmm", "sort"], ["flash", "topk_kernel"], set()) == [both]
    assert replacements(["mm", "sort", "mm"], ["mm", "mm"], {"mm"}) == []  # only gone


def test_work_of_one_kind_is_replaced_wherever_it_is() -> None:
    a = ["aten::mul", "mm", "aten::sin", "mm", "aten::exp"]
    b = ["mm", "triton_poi_fused_0", "mm"]
    assert replacements(a, b, {"mm"}) == [({"aten::mul", "aten::sin", "aten::exp"}, {"triton_poi_fused_0"})]


if __name__ == "__main__":
    import contextlib

    for pair in PAIRS:
        with open(TEXTS / f"{pair}.txt", "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
            main(["compare", *paths(pair), "--limit", "8"])

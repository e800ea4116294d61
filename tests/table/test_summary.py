"""Summaries of given events: numbers compared with NumPy on a timeline of moments, and their text."""

import json
import math
import pickle
import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import DATA
from helpers.hand_traces import call, event, load, op

import flopscope as fs
from flopscope import _core
from flopscope.answers.counted import Counted
from flopscope.cli.program import main
from flopscope.results.results import Results
from flopscope.show import summarize
from flopscope.show.summary import Summary
from flopscope.support.columns import Rows
from flopscope.support.units import short_time_text

PARTS = ["kernel", "memcpy", "memset", "communication", "runtime", "data_loading", "other_cpu", "other"]
FACTS = {
    **{"compute_major": 9, "compute_minor": 0, "warp_size": 32, "sm_count": 10, "max_blocks_per_sm": 32},
    **{"max_threads_per_block": 1024, "max_threads_per_sm": 2048, "registers_per_block": 65536},
    **{"registers_per_sm": 65536, "shared_memory_per_block_optin": 232448, "shared_memory_per_sm": 233472},
}
NAMES = {  # by category of the time, and by use of the tensor cores
    "void at::native::elementwise_kernel<128, 4>(int)": ("kernel", False), "nvjet_sm90_tst_64x64": ("kernel", True),
    "volta_sgemm_128x64_nn": ("kernel", False), "ncclDevKernel_AllReduce_Sum_f32_RING_LL": ("communication", False),
}  # fmt: skip


def launch(blocks: int, threads: int = 256) -> dict[str, Any]:
    return {"grid": (blocks, 1, 1), "block": (threads, 1, 1), "registers": 16}


def kernel(core: _core.Store, name: str, start: int, duration: int, blocks: int, **more: Any) -> None:
    _core._append(core, "kernel", name, start, duration, launch=launch(blocks), **{"device": 0, **more})


def recorded(core: _core.Store) -> Results:
    results = Results()
    results._core = core
    return results


@pytest.mark.parametrize("seed", range(20))
def test_numbers_equal_those_of_a_timeline(seed: int) -> None:
    rng = np.random.default_rng(seed)
    core = _core.Store()
    _core._set_device(core, 0, FACTS)
    span = 4000
    running = {part: np.zeros(span, bool) for part in PARTS}
    blocks, kernels, work = np.zeros(span, int), np.zeros(span, bool), np.zeros(span, bool)
    weighted = tensor = total = 0.0

    edges = np.sort(rng.choice(np.arange(200, 3800), 4, replace=False))
    for i in range(3):
        _core._append(core, "step", f"ProfilerStep#{i}", int(edges[i]), int(edges[i + 1] - edges[i]))
        _core._append(core, "op", "aten::add", int(edges[i]), 1)  # a step without any work may be none
        running["other_cpu"][edges[i]] = True
    inside = np.zeros(span, bool)
    inside[edges[0] : edges[3]] = True

    for _ in range(150):
        begin, length = int(rng.integers(span - 200)), int(rng.integers(60))
        here = slice(begin, begin + length)
        kind = str(rng.choice(["kernel", "memcpy", "memset", "runtime", "overhead", "sync", "op", "range"]))
        if kind == "kernel":
            name, grid, threads = str(rng.choice(list(NAMES))), int(rng.integers(1, 60)), int(rng.integers(1, 33)) * 32
            stream = int(rng.integers(4))
            _core._append(core, kind, name, begin, length, device=0, stream=stream, launch=launch(grid, threads))
            running[NAMES[name][0]][here] = kernels[here] = work[here] = True
            blocks[here] += grid
            resident = min(2048 // threads, 32)  # 16 registers and no shared memory bound nothing
            time = int(inside[here].sum())
            weighted += time * 100 * min(resident, grid / 10) * threads / 2048
            tensor += time * NAMES[name][1]
            total += time
        elif kind in ("memcpy", "memset"):
            _core._append(core, kind, kind, begin, length, device=0, stream=9)
            running[kind][here] = work[here] = True
        elif kind in ("op", "range"):
            loads = bool(rng.integers(2))
            _core._append(core, kind, "enumerate(DataLoader)#X.__next__" if loads else "aten::add", begin, length)
            running["data_loading" if loads else "other_cpu"][here] = True
        else:
            _core._append(core, kind, "call", begin, length, thread=int(rng.integers(3)))
            running["runtime"][here] = True
    running["other"][:] = True

    first = np.array([running[part] for part in PARTS]).argmax(axis=0)
    frame = recorded(core).step_breakdown()
    assert list(frame.columns) == ["step", *PARTS, "total"]
    assert list(frame["step"]) == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    for i, row in enumerate(frame.to_dict("records")):
        moments = first[edges[i] : edges[i + 1]]
        assert [row[part] for part in PARTS] == [np.sum(moments == p) / 1000 for p in range(len(PARTS))]
        assert row["total"] == len(moments) / 1000

    gpu = recorded(core).gpu_summary()
    shares = ["gpu_utilization", "sm_efficiency", "achieved_occupancy", "tensor_core_time", "idle"]
    assert list(gpu.columns) == ["device", *shares]
    expected = (
        100 * kernels[inside].mean(), 100 * np.minimum(blocks[inside] / 10, 1).mean(), weighted / total,
        100 * tensor / total, 100 * (1 - work[inside].mean()),
    )  # fmt: skip
    np.testing.assert_allclose(gpu.iloc[0].to_list(), [0, *expected], rtol=1e-6)  # occupancy is in single precision
    one = recorded(core).gpu_summary("ProfilerStep#1")
    np.testing.assert_allclose(one["gpu_utilization"], 100 * kernels[edges[1] : edges[2]].mean())


def test_launches_of_several_streams_and_graphs() -> None:
    core = _core.Store()
    # The last call is the driver's inside the runtime's.
    for number, begin, end in ((1, 0, 10), (2, 10, 20), (3, 20, 50), (4, 140, 210), (5, 300, 306), (4, 202, 208)):
        _core._append(core, "runtime", "cudaLaunchKernel", begin, end - begin, correlation=number)
    for stream, number, begin, end in (
        (7, 1, 30, 100), (7, 2, 100, 150),
        (8, 3, 60, 205),  # the first on its stream
        (7, 4, 220, 240),  # stream 7 ended at 150, the device at 205, the call from 140 to 210
        (7, 5, 320, 330),  # a graph of three kernels; stream 7 ended at 240
        (7, 5, 335, 340), (9, 5, 335, 345),
        (7, None, 400, 410),  # without a recorded call
    ):  # fmt: skip
        _core._append(core, "kernel", "k", begin, end - begin, correlation=number, device=0, stream=stream)
    for device in (0, 1):
        _core._append(core, "memcpy", "copy", 250, 10, device=device, correlation=5 if device == 0 else None)
    row, other = recorded(core).launch_summary().to_dict("records")
    assert (row["device"], row["kernels"], row["launches"]) == (0, 7, 5)
    delays = ("delay_min", "delay_median", "delay_p95", "delay_max", "call_time_median")
    # Delays 30, 90, 40, 80, 20 ns; calls of 10, 10, 30, 70, 6 ns.
    assert [row[name] for name in delays] == pytest.approx([0.020, 0.040, 0.088, 0.090, 0.010])
    # Queued at the calls of 0, 10, 20, 140, 300: none; 1; 1 and 2; none; none.
    assert (row["queue_mean"], row["queue_max"]) == (pytest.approx(3 / 5), 2)
    # With earlier work on their stream: 2 (busy until 100), 4 and 5 (idle). Idle device: 205 to 220, 240 to 250, 260 to
    # 320; the calls returned at 210, 306 and 306, so launches take 10 to arrive, the median of 10, 0 and 14.
    assert row["launch_bound_pct"] == pytest.approx(200 / 3)
    assert row["idle_lost"] == pytest.approx((15 + 10 + 306 + 10 - 260) / 1000)
    assert (other["device"], other["kernels"], other["launches"]) == (1, 0, 0)
    assert all(math.isnan(other[name]) for name in ("delay_median", "queue_mean", "launch_bound_pct", "idle_lost"))


def test_kernels_that_start_before_their_call_reveal_a_skewed_clock(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(4)
    delays = rng.integers(5_000, 90_000, 50)  # ns
    texts = {}
    for skew in (0, 40_000):  # how far the device's clock is behind
        core = _core.Store()
        for i, delay in enumerate(delays.tolist()):
            _core._append(core, "runtime", "cudaLaunchKernel", 200_000 * (i + 1), 4_000, correlation=i)
            kernel(core, "k", 200_000 * (i + 1) + delay - skew, 1_000, 1, correlation=i)
        (row,) = recorded(core).launch_summary().to_dict("records")
        assert row["negative_delays"] == np.sum(delays < skew) and row["launches"] == len(delays)
        assert row["delay_min"] == pytest.approx((delays.min() - skew) / 1000)
        texts[skew] = " ".join(details(core).split())
    most = short_time_text((40_000 - delays.min()) / 1000)
    assert "clocks" not in texts[0]
    assert f"cuda:0: {np.sum(delays < 40_000)} of 50 launches have a negative delay" in texts[40_000]
    assert f"by up to {most}. The clocks of host and device disagree by about that" in texts[40_000]


def test_profiles_of_nothing_and_without_steps_or_devices() -> None:
    core = _core.Store()
    nothing = recorded(core)
    assert len(nothing.gpu_summary()) == len(nothing.step_breakdown()) == len(nothing.launch_summary()) == 0
    assert details(core) == "Nothing was recorded.\n"
    _core._append(core, "op", "flopscope::add", 1_000, 500)
    _core._set_window(core, 0, 2_000)
    frame = recorded(core).step_breakdown()
    assert len(frame) == 1 and frame["step"][0] is None
    assert frame["other_cpu"][0] == 0.5 and frame["other"][0] == 1.5 and frame["total"][0] == 2.0
    assert len(recorded(core).gpu_summary()) == 0 and not details(core).strip()  # the accounting says it all


def test_what_the_host_called_is_named_where_nothing_did_work() -> None:
    trace = load(call("cudaMalloc", 0, 5), call("cudaDeviceSynchronize", 10, 90), event("user_annotation", "r", 0, 200))
    said = str(trace.summary())
    assert said.startswith("No op and no work of a device was recorded")
    assert re.findall(r"^  (\w+) +1 +(\S+)", said, re.MULTILINE) == [
        ("r", "105us"), ("cudaDeviceSynchronize", "90.0us"), ("cudaMalloc", "5.00us"),
    ]  # fmt: skip
    assert str(trace.key_averages()).rstrip().endswith("Total: 200us on the CPU.")
    # An op of no duration is not said to be missing.
    said = str(load(op("aten::mm", 0, 0)).summary())
    assert said.strip() == "No op and no work of a device was recorded with a duration."


def test_missing_facts_are_not_zero() -> None:
    core = _core.Store()
    _core._set_window(core, 0, 100)
    kernel(core, "k", 0, 50, 2)  # of an unknown device
    _core._append(core, "memcpy", "copy", 0, 50, device=1)
    _core._set_device(core, 2, FACTS)
    kernel(core, "k", 0, 50, 2, device=2)
    _core._append(core, "kernel", "k", 60, 10, device=2)  # with an unknown launch
    _core._append(core, "interval", "op", 0, 20, device=3, timing="event")  # between CUDA events: an op's kernels
    found = recorded(core).gpu_summary()
    assert found["gpu_utilization"].to_list() == [50, 0, 60, 20] and found["idle"].to_list() == [50, 50, 40, 80]
    assert found["sm_efficiency"].isna().all() and found["achieved_occupancy"].isna().all()
    assert found["tensor_core_time"].isna().to_list() == [False, True, False, True]
    line = next(line for line in details(core).splitlines() if line.strip().startswith("cuda:0"))
    assert line.split() == ["cuda:0", "50.0%", "--", "--", "0.0%", "50.0%"]


def test_an_unknown_step_is_an_error() -> None:
    core = _core.Store()
    with pytest.raises(ValueError, match='"x": the profile has no steps'):
        recorded(core).gpu_summary("x")
    for i in range(3):
        _core._append(core, "step", f"ProfilerStep#{i}", 10 * i, 10)
    message = '"ProfilerStep#7": the profile has 3 steps, from "ProfilerStep#0" to "ProfilerStep#2"'
    with pytest.raises(ValueError, match=message):
        recorded(core).gpu_summary("ProfilerStep#7")


def details(core: _core.Store) -> str:
    return f"{Summary(summarize.details(core, Counted(core)), {})}\n"


def busy_core(steps: int) -> _core.Store:
    """Return a profile with every part, on two devices, in each step of 1 ms; the tests below derive their numbers."""
    core = _core.Store()
    for device in (0, 7):
        _core._set_device(core, device, FACTS)
    for i in range(steps):
        at = 1_000_000 * i
        _core._append(core, "step", f"a step with a long name, number {i}", at, 1_000_000)
        _core._append(core, "runtime", "cudaLaunchKernel", at + 50_000, 10_000, correlation=i)
        kernel(core, "volta_sgemm_128x64_nn", at + 100_000, 200_000, 10, correlation=i)
        kernel(core, "ncclDevKernel_AllReduce", at + 200_000, 250_000, 1, stream=8)
        kernel(core, "nvjet_sm90", at, 900_000, 10, device=7)
        _core._append(core, "memcpy", "copy", at + 450_000, 10_000, device=0)
        _core._append(core, "memset", "fill", at + 460_000, 10_000, device=0)
        _core._append(core, "op", "enumerate(DataLoader)#X.__next__", at + 900_000, 80_000)
        _core._append(core, "op", "aten::add", at + 980_000, 10_000)
    return core


@pytest.mark.parametrize("steps", [1, 7, 8, 5000])
def test_text_fits_a_terminal(steps: int) -> None:
    text = details(busy_core(steps))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100 and len(lines) < 40 and text.endswith("\n") and not text.endswith("\n\n")
    shown = [line.split()[3] for line in lines if line.startswith("  a step wi…number ")]
    assert shown == [str(i) for i in range(steps if steps < 8 else 6)]
    assert any(line.split() == ["…", str(steps - 6), "more"] for line in lines) == (steps >= 8)
    share = next(line for line in lines if line.strip().startswith("share")).split()
    # 900 us of kernels on device 7, 80 of data loading, 10 of an op, 10 idle; the kernels overlap the rest, and empty
    # parts have no column.
    assert share == ["share", "100.0%", "90.0%", "8.0%", "1.0%", "1.0%"]


# The object -----------------------------------------------------------------------------------------------------------

VOCABULARY = DATA / "programs" / "vocab_before.json.gz"


def test_a_summary_shows_itself_in_a_repl_and_prints_nothing_before(capsys: pytest.CaptureFixture[str]) -> None:
    shown = fs.load_trace(VOCABULARY).summary()
    assert capsys.readouterr().out == "" and repr(shown) == str(shown) == shown.text and not shown.text.endswith("\n")
    sys.displayhook(shown)  # as a REPL does
    print(shown)
    first, second = capsys.readouterr().out.split(shown.text)[:2]
    assert (first, second) == ("", "\n") and shown.text.startswith("28.7ms a step; ")
    assert shown._repr_html_() == shown.html and pickle.loads(pickle.dumps(shown)).text == shown.text


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_a_summary_fits_columns_and_loses_no_cell(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = fs.load_trace(VOCABULARY).summary()
    monkeypatch.setenv("COLUMNS", "300")
    whole = str(shown)
    assert 80 < max(map(len, whole.splitlines())) <= 100
    monkeypatch.setenv("COLUMNS", str(columns))
    text = str(shown)
    assert max(map(len, text.splitlines())) <= columns
    title = text.splitlines().index("Launches")
    cells = re.search(r"^Launches\n.*\n(.*)\n", whole, re.M)
    assert cells is not None  # every cell of the row is below the title, whatever the width
    assert {*cells[1].split()} <= {*" ".join(text.splitlines()[title:]).split()}


def test_columns_that_do_not_fit_follow_beside_the_first_one() -> None:
    rows = Rows([("name", "one", "two", "three"), ("a", "1", "22", "3"), ("bb", "4", "5", "6")])
    assert rows.lines(24) == ["name  one  two  three", "a       1   22      3", "bb      4    5      6"]
    assert rows.lines(14) == [
        *("name  one  two", "a       1   22", "bb      4    5"),
        *("name  three", "a         3", "bb        6"),
    ]  # fmt: skip
    assert rows.lines(1) == [
        *("name  one", "a       1", "bb      4"),
        *("name  two", "a      22", "bb      5"),
        *("name  three", "a         3", "bb        6"),
    ]  # fmt: skip


def test_the_html_of_a_summary_says_what_its_text_does() -> None:
    shown = fs.load_trace(VOCABULARY).summary()
    words = unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", shown.html, flags=re.S)).split()
    text = str(shown).partition("\n\n")[0] + str(shown).partition("\nGPUs")[2]
    assert [word for word in text.split() if word not in words] == [] and "align" in words and "50264" in words
    made = Summary([f"<script>{chr(7)}", Rows([("<b>", "x"), ("<i>", "&")])], dict)
    assert not re.search(r"<script>|<b>|<i>", made.html) and "&lt;script&gt;" in made.html


def test_a_summary_names_the_ops_with_the_most_time() -> None:
    trace = fs.load_trace(VOCABULARY)
    table, steps = trace.key_averages(group_by_input_shape=True), len(trace.step_breakdown())
    times: dict[str, float] = {}
    for row in table:
        if row.device_type == "cpu" and not row.is_user_annotation and row.self_device_time_total > 0:
            times[row.key] = times.get(row.key, 0) + row.self_device_time_total / steps
    most = trace.summary().to_dict()["most"]
    assert [one["op"] for one in most] == sorted(times, key=lambda name: -times[name])[:5]
    assert [one["time_us"] for one in most] == pytest.approx([times[one["op"]] for one in most], rel=0.02)
    text = str(trace.summary()).partition("\nMost time\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in text[1:]] == [one["op"] for one in most]
    limit = 100 * most[0]["ideal_us"] / most[0]["time_us"]
    assert text[1].split()[-1] == f"{limit:.1f}%"


def test_the_facts_of_a_summary_are_its_numbers(tmp_path: Path) -> None:
    trace = fs.load_trace(VOCABULARY)
    facts = trace.summary().to_dict()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["file"] == str(VOCABULARY) and facts["device"] == {"kind": "cuda", "name": "NVIDIA H200"}
    for name, frame in (
        ("accounting", trace.accounting()), ("gpus", trace.gpu_summary()), ("steps", trace.step_breakdown()),
        ("launches", trace.launch_summary()),
    ):  # fmt: skip
        expected = frame.astype(object).where(frame.notna(), None).to_dict("records")
        assert [[*row.values()] for row in facts[name]] == [[*row.values()] for row in expected], name
        assert len(expected) > 0 and all(map(str.startswith, facts[name][0], expected[0])), name
    assert [row["rule"] for row in facts["advice"]] == [row.rule for row in trace.advice()]
    assert main(["summary", str(VOCABULARY), "--json", str(tmp_path / "x.json")]) == 0
    assert json.loads((tmp_path / "x.json").read_text()) == facts
    with fs.profile() as prof:
        fs.ones((8,))
    facts = prof.summary(peaks="none").to_dict()
    assert facts["file"] is None and facts["device"]["kind"] == "cpu"
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts and facts["accounting"][-1]["mfu_pct"] is None

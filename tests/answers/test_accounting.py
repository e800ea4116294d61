"""Accounting: parts computed by hand, and windows of time beside the steps and the whole."""

import itertools
import math

import pytest
from helpers import TRACES
from helpers.hand_traces import BANDWIDTH, BF16, PEAKS, Program, ran
from helpers.parts import parts_of, rows_of, whole

import flopscope as fs
from flopscope.answers.accounting import known_shares
from flopscope.answers.analysis import PARTS, analysis_of
from flopscope.support.units import percent_text

# Work, by hand --------------------------------------------------------------------------------------------------------


def test_inefficient_work_belongs_to_the_larger_term_of_its_roofline() -> None:
    """There is no part of its own: the product's FLOPs, the sum's bytes take longer at the peaks."""
    program = Program()
    program.run("aten::tiny", 0, 5, 1)  # the shortest kernel
    program.run("aten::mm", 10, 20, 6600, [4096, 4096], [4096, 4096], dtype=BF16)
    program.run("aten::add", 6700, 6710, 1000, [4096, 4096], [4096, 4096], dtype=BF16)
    loaded = program.load()
    bounds = {row.key: row.bound for row in loaded.key_averages()}
    assert bounds["aten::mm"] == bounds["aten::add"] == "inefficient"
    parts = parts_of(rows_of(loaded)[-1])
    product, added = 2 * 4096**3 / PEAKS["bf16_tensor"] * 1e9, 3 * 2 * 4096**2 / BANDWIDTH * 1e9
    assert parts["compute"] == pytest.approx(6_600_000 - product, abs=2)
    assert parts["memory"] == pytest.approx(1_000_000 - added, abs=2)


def test_a_kernel_of_unknown_work_is_unmodelled_and_the_time_before_it_an_edge() -> None:
    (row,) = rows_of(ran("made::up", 0, 10, 90).load())
    assert row["device"] == "cuda:0" and row["step"] is None
    assert parts_of(row) == {"edges": 10_000, "unmodelled": 90_000} and row["mfu"] == row["mbu"] == 0


@pytest.mark.parametrize(("duration", "part"), [(300, "compute"), (100, None)])
def test_a_product_has_the_ideal_time_of_its_flops(duration: int, part: str | None) -> None:
    """A kernel that is faster than the peaks allow, as clocks above the datasheet's make it, is ideal throughout."""
    program = ran("aten::mm", 0, 30, duration, [4096, 4096], [4096, 4096], kernel="nvjet_tst", dtype=BF16)
    (row,) = rows_of(program.load())
    least = 2 * 4096**3 / PEAKS["bf16_tensor"] * 1e9  # ns
    ideal = min(least, 1000 * duration)
    assert row["ideal"] == pytest.approx(ideal, abs=2) and row["edges"] == 30_000
    if part is not None:
        assert row[part] == pytest.approx(1000 * duration - ideal, abs=2)
    assert row["mfu"] == pytest.approx(100 * least / row["total"], rel=1e-3)
    assert row["mbu"] == pytest.approx(100 * (3 * 4096**2 * 2 / BANDWIDTH * 1e9) / row["total"], rel=1e-3)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("duration", "sizes"), [(0, [1024, 1024]), (40, [1024, 0])])
def test_a_call_of_unknown_work_leaves_the_others_known(first: bool, duration: int, sizes: list[int]) -> None:
    """A duration of 0 is a lost one; the sizes of the other do not match."""
    program = Program()
    for i in range(3):
        known = i != (0 if first else 2)
        size, time = ([1024, 1024], 150) if known else (sizes, duration)
        program.run("aten::mm", 400 * i, 400 * i + 100, time, size, [1024, 1024], kernel="nvjet_tst", dtype=BF16)
    parts = parts_of(rows_of(program.load())[-1])
    assert parts["ideal"] == pytest.approx(2 * 2 * 1024**3 / PEAKS["bf16_tensor"] * 1e9, abs=2)
    assert parts.get("unmodelled", 0) == 1000 * duration


def test_without_peaks_nothing_is_ideal_and_the_shares_are_missing() -> None:
    program = ran("aten::mm", 0, 30, 300, [4096, 4096], [4096, 4096], kernel="nvjet_tst", dtype=BF16)
    row = program.load().accounting(peaks="none").to_dict("records")[0]
    assert row["ideal"] == 0 and math.isnan(row["mfu"]) and math.isnan(row["mbu"]) and row["unmodelled"] == 300


def test_time_of_overlapping_kernels_belongs_to_the_one_that_began_first() -> None:
    program = Program()
    size = 1 << 24
    program.run("made::first", 0, 10, 50)
    program.run("aten::add", 3, 30, 60, [size], [size], stream=8)  # alone from 60 to 90: shorter than its ideal time
    program.run("made::inside", 6, 35, 10, stream=9)
    least = round(3 * 4 * size / BANDWIDTH * 1e6)
    assert least > 30 and whole(program) == {"edges": 10, "unmodelled": 50, "ideal": 30}


def test_kernels_without_a_launch_take_the_row_of_others_of_their_name() -> None:
    """The second kernel was launched before the recording began; its op is unknown, its kernel is not."""
    size = 1 << 26
    program = Program()
    program.run("aten::add", 0, 200, 400, [size], [size], kernel="elementwise")
    program.work("elementwise", 0, 200, correlation=7)
    program.work("unseen", 600, 50, correlation=8)
    (row,) = rows_of(program.load())
    share = 3 * 4 * size / BANDWIDTH * 1e9 / 400_000  # of the time of the first kernel
    assert row["ideal"] == pytest.approx(600_000 * share, abs=4)
    assert row["memory"] == pytest.approx(600_000 * (1 - share), abs=4) and row["unmodelled"] == 50_000


@pytest.mark.parametrize("steps", [False, True])
def test_kernels_below_an_op_add_up_to_its_time(steps: bool) -> None:
    """Neither a like kernel of another op, nor one from before the recording or the first step, changes that."""
    program = Program()
    program.work("shared", 0, 200, correlation=7)
    program.run("made::a", 0, 250, 30, kernel="shared")
    program.run("made::a", 400, 500, 40, kernel="shared")
    program.run("made::b", 410, 600, 50, kernel="shared")
    program.run("made::a", 420, 700, 60, kernel="own")
    if steps:
        program.step(0, 380, 100)
        program.step(1, 480, 400)
    table = program.load().key_averages(kernels=True)
    found = {row.key: (row.self_device_time_total, sorted(row.kernels)) for row in table if row.key.startswith("made")}
    assert found == {
        "made::a": (130.0, [("own", 1, 60.0), ("shared", 2, 70.0)]),
        "made::b": (50.0, [("shared", 1, 50.0)]),
    }


# Steps and devices ----------------------------------------------------------------------------------------------------


def test_steps_cut_kernels_and_share_their_ideal_time() -> None:
    """Launched before the first step, which it outlasts: the ideal time is spent from the kernel's begin."""
    size = 1 << 26
    program = Program()
    program.run("aten::add", 0, 10, 400, [size], [size])
    program.step(0, 50, 100)
    program.step(1, 150, 100)
    first, second, _ = rows_of(program.load())
    least = 3 * 4 * size / BANDWIDTH * 1e9
    assert (first["step"], second["step"]) == ("ProfilerStep#0", "ProfilerStep#1")
    assert first["total"] == second["total"] == 100_000 and first["ideal"] == 100_000 and first["memory"] == 0
    assert second["ideal"] == pytest.approx(least - 100_000, abs=2)
    assert second["memory"] == pytest.approx(200_000 - least, abs=2)


@pytest.mark.parametrize(
    ("steps", "head"),
    [
        (False, "1.00ms in all: 60.0% is work that no rule models, 40.0% is time before the first work and after"),
        (True, "500us a step: 60.0% is work that no rule models, 40.0% is idle time because the host came late."),
    ],
)
def test_a_headline_names_what_took_the_time_of_unknown_work(steps: bool, head: str) -> None:
    program = Program()
    program.add("user_annotation", "all", 0, 1000)
    for i in range(2):
        if steps:
            program.step(i, 500 * i, 500)
        program.run("made::a", 500 * i, 500 * i + 100 if steps else 100 + 300 * i, 300)
    text = " ".join(str(program.load().summary()).split())
    assert head in text, text


# Other profiles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", ["nothing", "steps", "frames"])
def test_a_profile_without_work_has_no_rows(events: str) -> None:
    program = Program(devices=0)
    if events == "steps":
        program.step(0, 0, 10)
    if events == "frames":
        program.add("python_function", "main.py(1): main", 0, 10)
    trace = program.load()
    assert rows_of(trace) == [] and len(trace.advice()) == 0 and "Nothing was found" in str(trace.advice())


@pytest.mark.parametrize("idle", [10, 100_000])
@pytest.mark.parametrize(("unknown", "said"), [(0, ""), (5, ""), (20, "at least "), (700, "at least "), (99_000, None)])
def test_a_limit_is_lower_where_work_is_unknown_for_any_idle_time(idle: int, unknown: int, said: str | None) -> None:
    """Of 1000 us of products the work is known. 5 us of other kernels are less than 1 % of both, 20 us are more."""
    program = Program()
    program.run("aten::mm", 0, 30, 1000, [4096, 4096], [4096, 4096], kernel="nvjet_tst", dtype=BF16)
    if unknown:
        program.run("made::up", 1000 + idle, 1030 + idle, unknown)
    program.run("aten::mm", 200_000, 200_030, 0.001, [1, 1], [1, 1], kernel="nvjet_tst", dtype=BF16)
    loaded = program.load()
    (row,) = rows_of(loaded)
    text, analysis = " ".join(str(loaded.summary()).split()), analysis_of(loaded, "test")
    known = known_shares(analysis)
    assert known.limit == pytest.approx(1000 / (1000 + unknown), rel=1e-4) == known.flops == known.bytes
    ideal, mfu, _ = known.bounds({**row, "total": float(row["total"])}).values()
    assert ideal == said and mfu == said and ("of the peak FLOP/s" in text) == (said is not None)
    assert (f"MFU {said}{percent_text(row['mfu'])} of" in text) == (said is not None)
    assert ("the work that ran, at the peaks" in text) == (said == ""), text


@pytest.mark.parametrize(
    ("ranges", "op"),
    [
        (["gloo:all_reduce", "gloo:all_gather"], "c10d::allreduce_"),
        (["mpi:send", "gloo:recv"], "c10d::recv_"),
        (["gloo:barrier", "gloo:barrier"], "_c10d_functional::wait_tensor"),
    ],
)
def test_a_collective_of_cpus_is_communication(ranges: list[str], op: str) -> None:
    """Ranges of torch last from the call to the end, on another thread; ops, while they call. 50 us overlap an op."""
    program = Program(0)
    program.head["deviceProperties"] = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]  # which does nothing
    program.step(1, 0, 1000)
    program.op("aten::mm", 0, 100, [8, 8], [8, 8])
    program.op(op, 100, 20)
    program.add("user_annotation", ranges[0], 110, 410, tid=2)  # to 520
    program.add("user_annotation", ranges[1], 600, 200, tid=2)
    program.op("aten::add", 470, 50, [8, 8], [8, 8])
    program.op("aten::mul", 900, 100, [8, 8], [8, 8])
    loaded = program.load()
    (row,) = (row for row in rows_of(loaded) if row["step"] is not None)
    parts = parts_of(row)
    assert (parts["communication"], parts["host"]) == (20_000 + 350_000 + 200_000, 80_000 + 100_000)
    text = str(loaded.summary())
    assert all(name in text for name in ranges) and "used a GPU" not in text + str(loaded.key_averages())


def test_a_profile_of_nothing_raises() -> None:
    prof = fs.profile()
    for ask in (prof.accounting, prof.advice, prof.what_if):
        with pytest.raises(RuntimeError, match=r"there is no (accounting|advice)"):
            ask()
    with prof, pytest.raises(RuntimeError, match="still running"):
        prof.accounting()


def test_a_trace_that_was_cut_off_is_accounted_up_to_its_end() -> None:
    program = Program()
    for i in range(20):
        program.run("made::up", 100 * i, 100 * i + 10, 50)
    text = program.text()
    with pytest.warns(UserWarning):
        trace = fs.load_trace(text[: len(text) // 2])
    (row,) = rows_of(trace)
    kernels = sum(event.kind == "kernel" for event in trace.events())
    assert 0 < kernels < 20 and row["unmodelled"] == 50_000 * kernels


def test_on_the_cpu_the_innermost_op_has_the_time() -> None:
    program = Program(devices=0)
    program.op("made::outer", 0, 100)
    program.op("made::inner", 20, 30)
    program.op("autograd::engine::evaluate_function: AddBackward0", 110, 40)  # only wraps the op inside
    program.op("made::backward", 120, 10)
    trace = program.load()
    (row,) = rows_of(trace)
    assert row["device"] == "cpu" and parts_of(row) == {"unmodelled": 110_000, "host": 20_000, "edges": 20_000}
    assert {op.key: op.time for op in analysis_of(trace, "ops").ops} == {
        "made::outer": 70, "made::inner": 30, "made::backward": 10,
    }  # fmt: skip


# Windows of time ------------------------------------------------------------------------------------------------------

STEPS = ("tutorial_naive", "tutorial_naive_stack", "tutorial_optimised")


def the_window(trace: fs.Trace, begin: float, end: float) -> dict[str, float]:
    """Return the parts, the total, the MFU and the MBU of a window of a trace with one device."""
    (row,) = trace.accounting(window=(begin, end)).to_dict("records")
    assert row["step"] is None and sum(row[part] for part in PARTS) == pytest.approx(row["total"])
    assert row["total"] == pytest.approx(end - begin)
    return {name: row[name] for name in ("total", *PARTS, "mfu", "mbu")}


@pytest.mark.parametrize("name", STEPS)
def test_a_window_of_a_step_is_accounted_as_the_step_is(name: str) -> None:
    trace = fs.load_trace(TRACES / f"{name}.json.gz")
    rows, began = trace.accounting().to_dict("records")[:-1], trace._recorded("accounting").begin
    for row, step in zip(rows, analysis_of(trace, "accounting").steps, strict=True):
        found = the_window(trace, (step.begin - began) / 1000, (step.end - began) / 1000)  # µs since then
        assert found == pytest.approx({column: row[column] for column in found})


@pytest.mark.parametrize("name", ["square", "tracking_flops"])
def test_windows_that_tile_a_profile_add_up_to_it(name: str) -> None:
    """However kernels are cut: only ideal time that a kernel overlaps with another may move to another part."""
    trace = fs.load_trace(TRACES / f"{name}.json.gz")
    (whole,) = trace.accounting().to_dict("records")
    edges = [whole["total"] * part / 97 for part in range(98)]
    edges = [math.floor(1000 * edge) / 1000 for edge in edges[:-1]] + [whole["total"]]
    windows = [the_window(trace, begin, end) for begin, end in itertools.pairwise(edges)]
    for part in PARTS:
        assert sum(row[part] for row in windows) == pytest.approx(whole[part], abs=0.01 * len(windows)), part
    for share in ("mfu", "mbu"):
        mean = sum(row[share] * row["total"] for row in windows) / whole["total"]
        assert mean == pytest.approx(whole[share], rel=1e-6)


def test_the_work_of_a_kernel_that_is_cut_is_spread_evenly() -> None:
    size = 1 << 26
    least = 3 * 4 * size / BANDWIDTH * 1e6  # µs
    trace = ran("aten::add", 0, 10, 400, [size], [size]).load()
    for begin, end in ((10, 110), (110, 310), (300, 410)):
        found, share = the_window(trace, begin, end), (end - begin) / 400
        assert found["ideal"] == pytest.approx(least * share, abs=0.01)
        assert found["memory"] == pytest.approx((400 - least) * share, abs=0.01)
        assert found["mbu"] == pytest.approx(100 * least / 400, rel=1e-3)
    (half,) = rows_of(trace, window=(5, 30))
    assert parts_of(half) == {"edges": 5000, "ideal": half["ideal"], "memory": 20_000 - half["ideal"]}


def test_idle_time_at_the_limits_has_the_cause_that_it_has_in_the_profile() -> None:
    """The wait ends before the window begins, and the work that the device waits for begins after it."""
    program = Program()
    program.run("made::up", 0, 10, 90)
    program.call("cudaDeviceSynchronize", 20, 85)  # until 105
    program.run("made::late", 150, 190, 60)
    trace = program.load()
    assert the_window(trace, 110, 140)["sync"] == 30
    (rest,) = rows_of(trace, window=(110, 250))
    (whole,) = rows_of(trace, window=(0, 250))
    before = the_window(trace, 0, 110)
    assert parts_of(rest)["unmodelled"] == 60_000
    for part in PARTS:
        assert before[part] * 1000 + rest[part] == pytest.approx(whole[part])


def test_every_device_has_a_row_also_where_it_only_idles() -> None:
    program = Program(devices=2)
    program.run("made::up", 0, 10, 90)
    program.work("k", 200, 50, device=1, stream=7, correlation=None)
    first, second, whole = program.load().accounting(window=(20, 80)).to_dict("records")
    assert (first["device"], first["unmodelled"]) == ("cuda:0", 60)
    assert (second["device"], second["total"], second["unmodelled"]) == ("cuda:1", 60, 0)
    assert not isinstance(whole["device"], str) and whole["total"] == 120


def test_a_cpu_program_has_windows_too() -> None:
    with fs.profile() as prof:
        for _ in range(20):
            fs.ones((64, 64), device="cpu")
    length = prof.accounting(peaks="none").total.iloc[-1]
    (row,) = prof.accounting(peaks="none", window=(0, length / 2)).to_dict("records")
    assert row["device"] == "cpu" and row["total"] == pytest.approx(length / 2, abs=0.001)
    assert prof.accounting(peaks="none").total.tolist() == [length]  # the window is not taken for the whole


@pytest.mark.parametrize(
    ("window", "text"),
    [
        ((5, 3), "a window ends after it begins; got 5 to 3 us"),
        ((5, 5), "a window ends after it begins; got 5 to 5 us"),
        ((-1, 50), "a window lies in the recording, from 0 to 100 us; got -1 to 50 us"),
        ((0, 100.001), "a window lies in the recording, from 0 to 100 us; got 0 to 100.001 us"),
        ((0, 1e300), "a window lies in the recording"),
        ((math.nan, 5), "a window has two finite times in us; got nan to 5"),
        ((0, math.inf), "a window has two finite times in us; got 0 to inf"),
    ],
)
def test_a_wrong_window_is_refused_with_what_is_possible(window: tuple[float, float], text: str) -> None:
    trace = ran("made::up", 0, 10, 90).load()
    with pytest.raises(ValueError) as caught:
        trace.accounting(window=window)
    assert str(caught.value).startswith(text) and len(trace.accounting(window=(0, 100))) == 1

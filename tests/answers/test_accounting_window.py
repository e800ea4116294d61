"""The accounting of a window of time: beside the steps and the whole, and computed by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from helpers import TRACES
from helpers.hand_traces import BANDWIDTH, Program
from helpers.parts import parts_of, rows_of

import flopscope as fs
from flopscope.answers.analysis import PARTS, analysis_of

STEPS = ("tutorial_naive", "tutorial_naive_stack", "tutorial_optimised")


def the_window(trace: fs.Trace, begin: float, end: float) -> dict[str, float]:
    """Return the parts, the total, the MFU and the MBU of a window of a trace with one device."""
    (row,) = trace.accounting(window=(begin, end)).to_dict("records")
    assert row["step"] is None
    assert sum(row[part] for part in PARTS) == pytest.approx(row["total"])
    assert row["total"] == pytest.approx(end - begin)
    return {name: row[name] for name in ("total", *PARTS, "mfu", "mbu")}


def limits(trace: fs.Trace) -> list[tuple[float, float]]:
    """Return the begin and the end of each step, in µs since the profile began."""
    steps, begin = analysis_of(trace, "accounting").steps, trace._recorded("accounting").begin
    return [((step.begin - begin) / 1000, (step.end - begin) / 1000) for step in steps]


@pytest.mark.parametrize("name", STEPS)
def test_a_window_of_a_step_is_accounted_as_the_step_is(name: str) -> None:
    trace = fs.load_trace(TRACES / f"{name}.json.gz")
    rows = trace.accounting().to_dict("records")[:-1]
    for row, (begin, end) in zip(rows, limits(trace), strict=True):
        found = the_window(trace, begin, end)
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
    program = Program()
    program.run("aten::add", 0, 10, 400, [size], [size])
    trace = program.load()
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
    found = the_window(trace, 110, 140)
    assert found["sync"] == 30
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
    program = Program()
    program.run("made::up", 0, 10, 90)
    trace = program.load()
    with pytest.raises(ValueError) as caught:
        trace.accounting(window=window)
    assert str(caught.value).startswith(text)
    assert len(trace.accounting(window=(0, 100))) == 1

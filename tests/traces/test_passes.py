"""Passes of programs that mark no steps, found by the repetition of what they launch, beside how they were built."""

import pytest
from helpers.hand_traces import Program
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs

LAYER = [f"layer{i}" for i in range(8)]
MODEL = ["embed", *LAYER * 12, "norm", "head"]
START = ["empty", "uniform", "empty", "copy"] * 3


def program_of(names: list[str], *, device: bool = True) -> Program:
    """Return a program that launches a kernel, or runs an op, of each name, every 10 µs from 0 on."""
    program = Program(int(device))
    for at, name in enumerate(names):
        if device:
            program.run("made::op", 10 * at, 10 * at + 5, 1, kernel=name)
        else:
            program.op(name, 10 * at, 2)
    return program


def passes_of(trace: fs.Trace) -> list[tuple[int, int]]:
    """Mark the passes of a trace; return at which launch each begins, and how many µs it takes."""
    before = trace._core.event_count
    count = trace._core.mark_passes()
    columns, names, *_ = trace._core.events()
    first = int(columns["start"][:before].min())
    made = [{key: column[i] for key, column in columns.items()} for i in range(before, before + count)]
    assert [names[event["name"]] for event in made] == [f"pass#{i}" for i in range(count)]
    return [((int(event["start"]) - first) // 10_000, int(event["duration"]) // 1000) for event in made]


bodies = st.lists(st.sampled_from("abcdef"), min_size=3, max_size=12)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from("uvw"), max_size=3), bodies, st.integers(1, 6), st.integers(3, 12), st.booleans())
def test_passes_begin_where_launched(start: list[str], body: list[str], layers: int, count: int, device: bool) -> None:
    one = ["begin", *body * layers]
    trace = program_of(start + one * count, device=device).load()
    ends = [10 * len(one)] * (count - 1) + [10 * len(one) - 8]
    assert passes_of(trace) == [(len(start) + len(one) * i, ends[i]) for i in range(count)]
    assert trace._core.mark_passes() == 0  # they are steps now


@pytest.mark.parametrize(
    ("names", "starts"),
    [
        (START + MODEL, []),
        (START + MODEL * 2, []),
        (START + MODEL * 3, [12, 111, 210]),  # not the layers
        (["randn"] + ["sin"] * 500, []),
        ([name for i in range(200) for name in ("ab", "cde", "f", "gahc")[i**3 % 101 % 4]], []),  # branches
        (["draw", "a", "b", "c", "draw", "d", "e", "f", "g"] * 10, list(range(0, 90, 9))),  # two that alternate are one
        (START + (["linear", "relu"] * 7 + ["linear"]) * 200, list(range(12, 3012, 15))),
        (
            [f"{name}<{i // 9}>" if name == "layer5" else name for i in range(40) for name in MODEL],
            list(range(0, 3960, 99)),
        ),
    ],
)
def test_passes_of(names: list[str], starts: list[int]) -> None:
    assert [start for start, _ in passes_of(program_of(names).load())] == starts


@pytest.mark.parametrize(("ranges", "passes"), [([(0, 40 * 50)], 0), ([(50 * i, 45) for i in range(40)], 40)])
def test_what_repeats_within_a_range_is_a_part_of_it(ranges: list[tuple[int, int]], passes: int) -> None:
    program = program_of(["a", "b", "c", "d", "e"] * 40)
    for at, length in ranges:
        program.add("user_annotation", "request", at, length)
    assert len(passes_of(program.load())) == passes


@pytest.mark.parametrize(("apart", "passes"), [(10, 0), (60, 100)])
def test_a_loop_over_elements_is_none_of_passes(apart: int, passes: int) -> None:
    program = Program(0)
    for i in range(200):
        program.op(("aten::select", "aten::item")[i % 2], apart * i, 2)
    assert program.load()._core.mark_passes() == passes


def test_kernels_of_one_launch_of_a_graph_may_run_in_any_order() -> None:
    program = Program()
    for i in range(6):
        program.call("cudaGraphLaunch", 100 * i, 5, correlation=i + 1)
        for at, name in enumerate("abcdef" if i % 2 else "badcfe"):
            program.work(name, 100 * i + 10 + at, 1, correlation=i + 1)
    assert [start for start, _ in passes_of(program.load())] == [10 * i for i in range(6)]


def test_passes_are_steps_everywhere() -> None:
    trace = program_of(START + MODEL * 4).load()
    assert len(passes_of(trace)) == 4
    rows = trace.accounting()
    assert list(rows["step"][:4]) == [f"pass#{i}" for i in range(4)]
    assert list(rows["total"][:4]) == pytest.approx([10 * len(MODEL)] * 3 + [10 * len(MODEL) - 4])  # of its kernel
    assert list(trace.step_breakdown()["step"]) == [f"pass#{i}" for i in range(4)]
    assert " a step: " in str(trace.summary())
    table = {row.key: row.count for row in trace.key_averages()}
    assert table["pass*"] == 4 and table["made::op"] == 12 + 4 * len(MODEL)

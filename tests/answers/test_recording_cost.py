"""What recording costs: estimates, compared with the times of the same programs without a profiler on an H200."""

from __future__ import annotations

import pytest
from helpers.advice_cases import PAIRS, TRACES, recorded
from helpers.hand_traces import in_a_row

import flopscope as fs
from flopscope.answers.analysis import analysis_of

SHORTEST = 1.0
"""ms: of shorter steps, what a step costs the profiler is a large part, which is not estimated."""
HOST_BOUND = 0.2
"""Share of the step for which the device of a host-bound program waits for the host."""


def measured_ms(name: str) -> float:
    program, when = name.rsplit("_", 1)
    return float(PAIRS[program][f"{when}_ms"])


@pytest.mark.parametrize("name", TRACES)
def test_the_delay_is_at_most_the_idle_time(name: str) -> None:
    analysis = analysis_of(recorded(name), "cost")
    assert 0 <= analysis.recording.delay <= analysis.idle("host", "sync") + 1e-6
    assert analysis.recording.delay <= analysis.recording.host


@pytest.mark.parametrize("name", [name for name in TRACES if measured_ms(name) >= SHORTEST])
def test_steps_of_host_bound_programs_are_estimated_without_recording(name: str) -> None:
    analysis = analysis_of(recorded(name), "cost")
    if analysis.idle("host", "sync") < HOST_BOUND * analysis.total:
        return
    assert analysis.unobserved == pytest.approx(1000 * measured_ms(name), rel=0.45)


@pytest.mark.parametrize("shapes", [False, True])
def test_a_hand_made_trace_costs_what_its_events_cost(shapes: bool) -> None:
    """A step of two ops and two calls, on a host that launches in 1 µs: as fast as hosts are assumed to be at most."""
    size = [[8]] if shapes else []
    program = in_a_row(("made::a", 10.0, size), ("made::b", 10.0, size))
    recording = analysis_of(program.load(), "cost").recording
    assert recording.host == pytest.approx(0.3 * (2 * (3.2 + 0.3 * shapes) + 2 * 2.0))
    assert recording.delay == recording.host  # of 10 µs without work


def test_recording_of_a_cpu_program_by_flopscope_delays_nothing() -> None:
    x = fs.ones((8,))
    with fs.profile() as prof:
        for _ in range(20):
            fs.sin(x)
    analysis = analysis_of(prof, "cost", "none")
    assert analysis.recording.delay == 0 and analysis.unobserved == analysis.total

"""What changes gain in programs whose answers follow from their times, and recordings that lack something."""

from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import PAGEABLE, Json, call, kernel, load, op
from helpers.replay_machine import CALL, QUEUE, Do, recorded, step_time

from flopscope import _core


def replay(*events: Json, end: int, steps: int = 2) -> Any:
    """Return the replay of a trace's steps, equally long until ``end`` ns."""
    cuts = np.linspace(0, end, steps + 1).astype(np.int64)
    return _core.Replay(load(*events)._core, cuts[:-1], cuts[1:])


def of(program: list[Do]) -> Any:
    """Return the replay of two steps, each of the program."""
    events, end = recorded([[*program, *program, Do("end")]])
    return replay(*events, end=end)


def launch(gap: int, time: int, stream: int = 7) -> Do:
    return Do("launch", gap, 1, ((stream, time),))


def test_a_host_bound_step_gains_nothing_from_faster_kernels() -> None:
    bound = of([launch(50_000, 5000)] * 20)
    assert bound.usable and bound.run() == 20 * (50_000 + CALL)
    assert bound.run(work_factor=np.full(40, 0.1)) == bound.run()
    assert bound.run(host_factor=np.full(41, 0.5)) == 20 * (25_000 + CALL // 2)


def test_a_device_bound_step_gains_nothing_from_less_host() -> None:
    bound = of([launch(1000, 100_000)] * 20)
    assert bound.run() == 20 * (100_000 + QUEUE), "also where the host's marks of steps are far shorter"
    assert bound.recorded == pytest.approx(bound.run(), rel=0.01)
    assert bound.run(host_factor=np.zeros(41)) == bound.run(event_ns=9000) == bound.run()
    assert bound.run(work_factor=np.full(40, 0.5)) == 20 * (50_000 + QUEUE)


def test_a_loader_sets_the_pace_until_it_is_gone() -> None:
    step = [launch(5_000_000, 100_000), *[launch(1000, 100_000)] * 9]
    loads = of(step)
    assert loads.run() == step_time([[*step, *step, Do("end")]], 2) > 5_000_000
    assert loads.run(work_factor=np.full(20, 0.5)) == loads.run()
    assert loads.begin == 0 and loads.call_begin[0] == 5_000_000 == loads.call_gap[0]
    assert loads.run(host_factor=np.where(loads.call_gap == 5_000_000, 0.0, 1.0)) == 10 * (100_000 + QUEUE)


def test_the_cost_of_recording_is_fitted() -> None:
    program = [*[launch(50_000, 5000)] * 10, *[launch(1000, 90_000)] * 5]
    fitted = of(program)
    assert fitted.fit(step_time([[*program, *program, Do("end")]], 2, 1500)) == pytest.approx(1500, abs=1)
    assert fitted.run() < fitted.run(event_ns=0)
    assert fitted.fit(1e9) is None and fitted.fit(1000) is None and fitted.fit(float("nan")) is None
    bound = of([launch(1000, 100_000)] * 20)
    assert bound.fit(bound.run()) == 0, "any cost gives the time of the device"


def test_a_full_queue_holds_the_host() -> None:
    """Launches return once the queue of 300 has room: faster kernels make the host faster, too."""
    events, free, now, starts = [], 0.0, 0.0, [0.0]
    for at in range(1, 1500):
        now += 1
        end = max(now + 2, starts[at - 300] if at > 300 else 0)
        starts.append(max(end + 5, free))
        events += [call("cudaLaunchKernel", now, end - now, correlation=at)]
        events += [kernel("kernel", starts[at], 20, correlation=at)]
        now, free = end, starts[at] + 20
    full = replay(*events, end=int(now * 1000), steps=3)
    assert full.usable and full.run() * 3 == pytest.approx(1499 * 20_000, rel=0.01)
    assert full.run(work_factor=np.full(1499, 0.5)) == pytest.approx(full.run() / 2, rel=0.02)


def test_threads_that_take_turns_are_one_sequence() -> None:
    """Forward on one thread, backward on another, as of autograd: less of the host's time in either counts."""
    events = []
    for at in range(40):
        thread = 1 + at // 10 % 2
        events += [call("cudaLaunchKernel", 100 * at, 5, thread, correlation=at)]
        events += [kernel("kernel", 100 * at + 10, 20, correlation=at)]
    turns = replay(*events, end=4_000_000)
    assert set(turns.call_sequence) == {0} and turns.run() == 2_000_000
    threads = np.array([(at // 10) % 2 for at in range(40)] + [0])
    assert turns.run(host_factor=np.where(threads == 1, 0.0, 1.0)) == pytest.approx(1_050_000, rel=0.1)


def test_a_thread_that_paused_goes_on_after_the_other() -> None:
    """A second thread copies after each launch of the first one, which meanwhile does not wait for it."""
    events = []
    for at in range(20):
        begin = 500 * at
        events += [call("cudaLaunchKernel", begin + 300, 30, 1, correlation=at)]
        events += [kernel("kernel", begin + 335, 20, correlation=at), op("aten::add", begin + 100, 2)]
        events += [call("cudaMemcpyAsync", begin + 310 if at % 2 else begin + 340, 30, 2, correlation=100 + at)]
        events += [kernel("kernel", begin + 380, 20, 17, correlation=100 + at)]
    apart = replay(*events, end=10_000_000)
    assert set(apart.call_sequence) == {0, 1} and apart.run() == 5_000_000
    main = np.where(apart.call_sequence == apart.call_sequence[0], 0.5, 1.0)
    assert apart.run(host_factor=main) < 3_000_000


def test_a_wait_for_an_event_and_one_for_another_stream() -> None:
    events = [call("cudaLaunchKernel", 0, 5, correlation=1), kernel("long", 10, 1000, 7, correlation=1),
              call("cudaLaunchKernel", 6, 5, correlation=2), kernel("short", 16, 300, 9, correlation=2),
              call("cudaEventSynchronize", 12, 307), call("cudaLaunchKernel", 320, 5, correlation=3),
              kernel("third", 330, 10, 11, correlation=3), call("cudaStreamSynchronize", 326, 687)]  # fmt: skip
    waits = replay(*events, end=1_013_000, steps=1)
    assert [waits.kinds[kind] for kind in waits.call_kind] == ["launch"] * 2 + ["event", "launch", "stream", "end"]
    assert waits.run() == 1_013_000
    half = np.where(waits.work_event == waits.work_event[1], 0.5, 1.0)
    assert waits.run(work_factor=half) == 1_013_000
    assert waits.run(work_factor=np.array([0.1, 1.0, 1.0])) == 340_000, "the end of the third work, which nobody awaits"


def test_branches_of_a_graph_run_side_by_side() -> None:
    nodes = [("a", 10, 20, 7), ("b", 31, 100, 7), ("c", 31, 60, 8), ("d", 132, 10, 7)]
    events = [call("cudaGraphLaunch", 0, 5, correlation=1)]
    events += [kernel(name, at, time, stream, correlation=1) for name, at, time, stream in nodes]
    graph = replay(*events, end=20_000, steps=1)
    assert graph.run() == 142_000
    assert graph.run(work_factor=np.array([1, 1, 0.5, 1])) == 142_000, "the shorter branch"
    assert graph.run(work_factor=np.array([1, 0.5, 1, 1])) == 92_000, "the longer one, on which the last node depends"


LAUNCH, KERNEL = call("cudaLaunchKernel", 10, 5, correlation=1), kernel("kernel", 20, 5, correlation=1)
GRAPH = [call("cudaGraphLaunch", 10, 5, correlation=1), *[kernel("node", 20 + i, 1, correlation=1) for i in range(9)]]
COPY = [call("cudaMemcpyAsync", 10, 5, correlation=1), {**KERNEL, "name": PAGEABLE, "cat": "gpu_memcpy"}]


TWICE = [LAUNCH, KERNEL, {**LAUNCH, "ts": 50, "args": {"correlation": 2}}, {**KERNEL, "ts": 700}]
ENDLESS = [LAUNCH, {**KERNEL, "ts": 9e12, "dur": 9e15}, {**KERNEL, "ts": 1, "dur": 9e15}]
UNLAUNCHED = [LAUNCH, *[kernel("kernel", 20 + 9 * i, 5, correlation=1 + i) for i in range(9)]]
EARLY, BRIEF, BACK = ([LAUNCH, {**KERNEL, **change}] for change in ({"ts": 3}, {"dur": 0}, {"dur": -5}))
IDLE = (
    [LAUNCH, KERNEL, call("cudaStreamSynchronize", 900, 5)],
    [LAUNCH, call("cudaFree", 16, 5), {**KERNEL, "ts": 200}],
)
LACKING = [[], [LAUNCH], [KERNEL], UNLAUNCHED, [LAUNCH, KERNEL, call("cudaDeviceSynchronize", 16, 9e12)], ENDLESS]
USABLE = [EARLY, BRIEF, BACK, [{**LAUNCH, "dur": -5}, KERNEL], GRAPH, COPY, *IDLE, TWICE]


@pytest.mark.parametrize(("events", "usable"), [(one, one in USABLE) for one in (*LACKING, *USABLE)])
def test_bad_recordings_are_replayed_and_end(events: list[Json], usable: bool) -> None:
    store = load(op("aten::add", 0, 1), *events)._core
    one = _core.Replay(store, np.array([0]), np.array([1_000_000]))
    assert one.run() >= 0 and (one.fit(1e5) or 0) >= 0 and one.usable == usable


@pytest.mark.parametrize("cuts", [[], [(5, 5)], [(9, 3)], [(-(2**63), 5), (3, 2**63 - 1)], [(0, 50), (20, 90), (0, 0)]])
def test_steps_that_are_empty_or_overlap(cuts: list[tuple[int, int]]) -> None:
    events, _ = recorded([[launch(1000, 5000)] * 9])
    begins, ends = (np.array([cut[side] * 1000 if abs(cut[side]) < 99 else cut[side] for cut in cuts], dtype=np.int64)
                    for side in (0, 1))  # fmt: skip
    one = _core.Replay(load(*events)._core, begins, ends)
    assert one.usable == (len(cuts) > 1)
    assert np.isnan(one.run()) or one.run() >= 0


def test_a_hundred_streams_and_threads_that_all_run_at_once() -> None:
    events = []
    for at in range(2000):
        lane = at % 100
        events += [call("cudaLaunchKernel", at, 150, 1 + lane, correlation=at)]
        events += [kernel("kernel", at + 160, 900, 7 + lane, lane % 8, correlation=at)]
        events += [call("cudaStreamWaitEvent", at + 151, 1, 1 + lane)]
    many = replay(*events, end=2_200_000)
    assert many.run() > 0 and len(set(many.call_sequence)) > 64


def test_arrays_of_other_lengths_and_types_are_refused() -> None:
    one = of([launch(1000, 5000)] * 3)
    for change in ({"work_factor": np.ones(5)}, {"gone": np.ones(7)}, {"host_factor": np.ones((7, 1))}):
        with pytest.raises(ValueError, match="must be an array of"):
            one.run(**change)
    with pytest.raises(ValueError, match="as many ends as begins"):
        _core.Replay(load(LAUNCH)._core, np.array([0]), np.array([2, 3]))
    with pytest.raises(TypeError, match="begins must be"):
        _core.Replay(load(LAUNCH)._core, np.array([0.5]), np.array([2]))


def test_threads_that_overlap_a_little_never_go_back_in_time() -> None:
    """Amid a long wait of one thread another goes on: with less to wait for, it begins no earlier than the wait."""
    events = []
    for at in range(120):
        events += [call("cudaLaunchKernel", 100 * at, 5, 1 + at % 2, correlation=1 + at)]
        events += [kernel("kernel", 100 * at + 10, 587 if at == 119 else 20, correlation=1 + at)]
    events += [call("cudaDeviceSynchronize", 12000, 500), call("cudaLaunchKernel", 12400, 5, 2, correlation=121)]
    events += [kernel("kernel", 12498, 2, correlation=121)]
    brief = replay(*events, end=12_500_000)
    assert set(brief.call_sequence) == {0}
    halved = brief.run(host_factor=np.full(123, 0.5), work_factor=np.zeros(121))
    assert halved == 121 * 50_000 / 2, "the launches of two steps, of which the last begins with the wait"

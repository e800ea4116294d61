"""Events that are not what they should be: names that torch does not write as JSON, times that were lost, ids of two
processes, and categories that old versions do not write."""

import json
import warnings

import pytest
from helpers.hand_traces import call, kernel, load, op, quietly

import flopscope as fs

NAMES = [
    'a "quoted" name', '"', '""', '{"device": "cpu"}(12): run', '"} b', 'a "{" b', 'a "}" b', '[", "]', "ends in \\",
    'f("a", "b": 3)', "前向\t",
]  # fmt: skip


def _event(name: str, i: int, phase: str = "X") -> str:
    """Return an event as Kineto writes it, whose name is not escaped."""
    return (
        f'{{"ph": "{phase}", "cat": "user_annotation", "name": "{name}", "pid": 1, "tid": 1,\n'
        f'"ts": {10 * i}, "dur": 5\n, "args": {{"External id": {i}, "Module": "{name}", "Ev Idx": {i}}}}}'
    )


@pytest.mark.parametrize("times", [1, 5000])
def test_a_string_ends_where_what_must_follow_it_follows(times: int) -> None:
    names = NAMES * times
    text = f'{{"traceEvents": [{",".join(_event(name, i) for i, name in enumerate(names))}]}}'
    trace = quietly(text.encode())
    assert [event.name for event in trace.events()] == names
    assert not trace.report["truncated"] and trace.report["mended"] == (len(NAMES) - 1) * times


@pytest.mark.parametrize("name", NAMES)
def test_names_of_events_that_are_left_out_lose_no_other(name: str) -> None:
    trace = quietly(f'{{"traceEvents": [{_event(name, 1, "f")}, {_event("next", 2)}]}}'.encode())
    assert [event.name for event in trace.events()] == ["next"]


@pytest.mark.parametrize("note", ['say /"hi/" x', '"', 'a", b'])
@pytest.mark.parametrize("last", [False, True])
def test_members_of_the_trace_are_read_past_likewise(note: str, last: bool) -> None:
    note, events = f'"note": "{note}"', f'"traceEvents": [{_event("a", 1)}]'
    text = f"{{{events}, {note}}}" if last else f'{{{note}, "with_stack": 1, {events}}}'
    trace = quietly(text.encode())
    assert trace.metadata["note"] in note and trace.report["mended"] == 1
    assert len(trace) == 1 and trace.with_stack is not last


def test_it_is_said_how_many_values_were_mended() -> None:
    with pytest.warns(UserWarning, match=r"2 events or other members have quotes in strings that are not escaped"):
        fs.load_trace(f'{{"traceEvents": [{_event(chr(34), 1)}, {_event(chr(34), 2)}]}}'.encode())


@pytest.mark.parametrize("wrong", ['"ph" "X"', '"ph": "X" "cat": "cpu_op"'])
def test_what_has_no_end_is_an_error_at_its_byte(wrong: str) -> None:
    for more in ("", "," + _event("b", 1) * 10_000):
        with pytest.raises(ValueError, match=r"byte \d+: expected"):
            fs.load_trace(f'{{"traceEvents": [{{{wrong}}}{more}]}}'.encode())


def test_impossible_durations_are_counted_and_lost_times_left_out() -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7}
    durations = [5, -1, float("nan"), float("inf"), 1e300, "x", None]
    events = [{**kernel, "ts": 1e9 + 10 * i, "dur": duration} for i, duration in enumerate(durations)]
    text = json.dumps({"traceEvents": [*events, {**kernel, "ts": 0, "dur": 0}]})
    with pytest.warns(UserWarning) as said:
        trace = fs.load_trace(text.encode())
    assert trace.report["without_duration"] == 6 and trace.report["without_time"] == 1
    assert "6 events have a duration" in str(said[0].message) + str(said[-1].message)
    assert [event.device_time_total for event in trace.events()] == pytest.approx([5] + 6 * [float("nan")], nan_ok=True)


@pytest.mark.parametrize("told", [False, True])
def test_correlations_of_two_processes_are_told_apart_or_counted(told: bool) -> None:
    """A kernel whose correlation one process alone has tells whose the device is."""
    events = []
    for process in (11, 12):
        own = {"External_id": 2, "correlation": 100}
        events += [op(f"aten::op{process}", 0, 50, process), call("cudaLaunchKernel", 10 + process, 5, process, **own)]
        events += [kernel("k", 100 + process, 200, device=process - 11, **own)]
        if told:
            events += [call("cudaLaunchKernel", 300, 5, process, correlation=process)]
            events += [kernel("k", 400, 10, device=process - 11, correlation=process)]
    for event in events:
        event["pid"] = event["tid"] if event["cat"] != "kernel" else event["pid"]
    trace = load(*events)
    rows = {row.key: row.self_device_time_total for row in trace.key_averages() if row.key.startswith("aten")}
    assert trace.report["guessed"] == (0 if told else 2)
    assert not told or rows == {"aten::op11": 200, "aten::op12": 200}


def test_exports_without_categories_are_read_by_the_names_of_their_processes() -> None:
    common = {"name": "aten::mm", "ph": "X", "dur": 5, "args": {}}
    events = [
        {**common, "ts": 1, "tid": 1, "pid": "CPU functions"},
        {**common, "ts": 1, "tid": 1, "pid": "CPU functions", "ph": "s", "id": 3, "cat": "cpu_to_cuda"},
        {**common, "ts": 4, "tid": 0, "pid": "CUDA functions", "name": "sgemm"},
    ]
    rows = fs.load_trace(json.dumps(events).encode()).key_averages()
    assert [(row.key, row.device_type, row.count) for row in rows] == [("aten::mm", "cpu", 1), ("sgemm", "cuda", 1)]


def test_live_names_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from flopscope.torch import profile

    names = ["前向", "C:\\runs\\a", 'a "quoted" name', "tab\there", "new\nline"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
            prof.add_metadata("note", 'say "hi"')
            for name in names:
                with torch.profiler.record_function(name):
                    torch.ones(3)
        rows = {row.key: row.count for row in prof.key_averages()}
    assert {name: rows.get(name) for name in names} == dict.fromkeys(names, 1), rows

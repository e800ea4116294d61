"""Which process a trace is of: ranks and clocks that make no sense, and several recordings of one process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs

COLLECTIVE = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 2, "dtype": "Float"}
ELEMENTS = {"In msg nelems": 1024, "Out msg nelems": 1024}


def trace(members: str, pid: int = 100, start: float = 0.0) -> fs.Trace:
    """A trace with an op and an allreduce, and the text of more members."""
    args = {"External id": 1, "stream": 7, **COLLECTIVE, **ELEMENTS}
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "op", "pid": pid, "tid": pid, "ts": start, "dur": 10},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel", "pid": 0, "tid": 7, "ts": start, "dur": 9, "args": args},
    ]
    head = f"{members}, " if members else ""
    return fs.load_trace(f'{{{head}"traceEvents": {json.dumps(events)}}}'.encode())


def member(name: str, value: object) -> str:
    return f'"{name}": {json.dumps(value)}'


WELL = trace(member("distributedInfo", {"rank": 0, "world_size": 2}))
# JSON's values, and numbers beyond the range of doubles or of Python's conversion.
VALUES = (
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ).map(json.dumps)
    | st.integers(0, 10).map(str)
    | st.sampled_from(["1e400", "-1e400", "1" * 5000, str(2**31 - 1), str(2**31), str(2**63 - 1), str(2**63), "1.0"])
)


def is_integer_below(text: str, end: int) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 100 and int(text) < end


@settings(deadline=None, max_examples=80)
@given(VALUES)
def test_a_rank_is_an_integer_or_an_error_that_names_it(text: str) -> None:
    found = trace(f'"distributedInfo": {{"rank": {text}, "world_size": 2}}')
    if is_integer_below(text, 2**31):
        assert found.rank == int(text)
        return
    for ask in (lambda: found.rank, lambda: fs.stragglers([WELL, found]), lambda: fs.stragglers({0: WELL, 1: found})):
        with pytest.raises(ValueError, match=r'<bytes>: "distributedInfo"\."rank" is .*must be an integer') as caught:
            ask()
        assert len(str(caught.value)) < 150


@settings(deadline=None, max_examples=80)
@given(VALUES)
def test_information_is_an_object_or_an_error_that_names_it(text: str) -> None:
    found = trace(f'"distributedInfo": {text}')
    if text.startswith("{"):
        assert "rank" in json.loads(text) or found.rank is None
        return
    for ask in (lambda: found.rank, lambda: fs.stragglers([WELL, found])):
        with pytest.raises(ValueError, match=r'<bytes>: "distributedInfo" is .*must be an object'):
            ask()


@settings(deadline=None, max_examples=80)
@given(VALUES)
def test_a_base_is_a_time_or_an_error_that_names_it(text: str) -> None:
    rank = member("distributedInfo", {"rank": 1})
    found = trace(f'{rank}, "baseTimeNanoseconds": {text}')
    if is_integer_below(text, 2**63):
        offset = fs.stragglers([WELL, found]).ranks["clock_offset"]
        assert offset[0] == 0 and offset[1] == pytest.approx(int(text) / 1000, rel=1e-12)
        return
    with pytest.raises(ValueError, match=r'<bytes>: "baseTimeNanoseconds" is .*must be an integer'):
        fs.stragglers([WELL, found])


def test_values_are_shown_shortened() -> None:
    with pytest.raises(ValueError, match="x") as caught:
        _ = trace(member("distributedInfo", "x" * 10_000)).rank
    assert len(str(caught.value)) < 150
    long = trace('"distributedInfo": {"rank": 0}, "baseTimeNanoseconds": ' + "9" * 5000)
    assert long.rank == 0  # the rest of the metadata is there


def test_a_trace_without_a_rank_has_none() -> None:
    assert trace("").rank is None and trace(member("distributedInfo", {"backend": "nccl"})).rank is None
    with pytest.raises(ValueError, match="<bytes> does not name its rank"):
        fs.stragglers([WELL, trace("")])


# Recordings of one process -------------------------------------------------------------------------------------------


def test_cycles_of_a_schedule_are_not_ranks(tmp_path: Path) -> None:
    x = fs.ones((8,), device="cpu")
    plan = fs.schedule(wait=0, warmup=1, active=1, repeat=2)
    with fs.profile(schedule=plan, on_trace_ready=fs.trace_handler(tmp_path)) as prof:
        for _ in range(4):
            fs.sin(x)
            prof.step()
    first, second = (fs.load_trace(path) for path in sorted(tmp_path.iterdir()))
    assert first.process == second.process == os.getpid()
    with pytest.raises(ValueError, match=rf"two of the traces are of process {os.getpid()}: .* of one process"):
        fs.stragglers({0: first, 1: second})


def test_processes_of_one_id_that_run_at_the_same_time_are_ranks() -> None:
    assert len(fs.stragglers({0: trace("", start=0), 1: trace("", start=3)}).collectives) == 1
    assert len(fs.stragglers({0: trace("", pid=100), 1: trace("", pid=101, start=50)}).collectives) == 1
    for later in (10, 0):  # after the first, and the first again
        with pytest.raises(ValueError, match="two of the traces are of process 100"):
            fs.stragglers({0: trace(""), 1: trace("", start=later)})
    moved: list[Any] = [trace(member("baseTimeNanoseconds", base)) for base in (0, 5_000, 50_000)]
    assert len(fs.stragglers(dict(enumerate(moved[:2]))).collectives) == 1
    with pytest.raises(ValueError, match="two of the traces are of process 100"):
        fs.stragglers(dict(enumerate(moved)))


def test_traces_of_one_rank_are_not_two_ranks() -> None:
    a, b = (trace(member("distributedInfo", {"rank": 3}), pid=pid) for pid in (100, 101))
    for given_traces in ([a, b], {0: a, 1: b}):
        with pytest.raises(ValueError, match="two of the traces are of rank 3: <bytes> and <bytes> are recordings"):
            fs.stragglers(given_traces)


def test_a_trace_of_devices_alone_has_no_process() -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": 9}
    overhead = {"ph": "X", "cat": "overhead", "name": "Buffer Flush", "pid": -1, "tid": 0, "ts": 0, "dur": 1}
    assert fs.load_trace(json.dumps({"traceEvents": [event, overhead]}).encode()).process is None

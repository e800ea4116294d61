"""The process of a trace: invalid ranks and clocks, and several recordings of one process."""

import json
from typing import Any

import pytest
from helpers.hand_traces import event, kernel, load, op
from helpers.ranks_cases import stragglers_of
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs
from flopscope.ranks.digest import digest_of
from flopscope.results.process import require_different_processes

COLLECTIVE = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 2, "dtype": "Float",
              "In msg nelems": 1024, "Out msg nelems": 1024}  # fmt: skip


def trace(members: str, pid: int = 100, start: float = 0.0) -> fs.Trace:
    """Return a trace with an op, an allreduce, and these additional top-level members, as text."""
    reduce = kernel("ncclDevKernel", start, 9, External_id=1, **COLLECTIVE)
    events = [op("op", start, 10, pid, pid=pid), reduce]
    head = f"{members}, " if members else ""
    return fs.load_trace(f'{{{head}"traceEvents": {json.dumps(events)}}}'.encode())


def member(name: str, value: object) -> str:
    return f'"{name}": {json.dumps(value)}'


VALID = trace(member("distributedInfo", {"rank": 0, "world_size": 2}))
# JSON's values, and numbers beyond the range of doubles or of Python's conversion.
VALUES = (
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ).map(json.dumps)
    | st.integers(0, 10).map(str)
    | st.sampled_from(["1e400", "-1e400", "1" * 5000, str(2**31 - 1), str(2**31), str(2**62 - 1), str(2**62), "1.0"])
)


def is_integer_below(text: str, end: int) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 100 and int(text) < end


@settings(deadline=None, max_examples=80)
@given(VALUES)
def test_a_rank_must_be_an_integer(text: str) -> None:
    read = trace(f'"distributedInfo": {{"rank": {text}, "world_size": 2}}')
    if is_integer_below(text, 2**31):
        assert read.rank == int(text)
        return
    for ask in (lambda: read.rank, lambda: digest_of(read, "<bytes>", 1)):
        with pytest.raises(ValueError, match=r'<bytes>: "distributedInfo"\."rank" is .*must be an integer') as caught:
            ask()
        assert len(str(caught.value)) < 150


@settings(deadline=None, max_examples=80)
@given(VALUES)
def test_distributed_info_must_be_an_object(text: str) -> None:
    read = trace(f'"distributedInfo": {text}')
    if text.startswith("{"):
        assert "rank" in json.loads(text) or read.rank is None
        return
    for ask in (lambda: read.rank, lambda: digest_of(read, "<bytes>", 1)):
        with pytest.raises(ValueError, match=r'<bytes>: "distributedInfo" is .*must be an object'):
            ask()


@settings(deadline=None, max_examples=80)
@given(VALUES)
def test_a_base_time_must_be_an_integer(text: str) -> None:
    rank = member("distributedInfo", {"rank": 1})
    read = trace(f'{rank}, "baseTimeNanoseconds": {text}')
    if is_integer_below(text, 2**62):
        offset = stragglers_of([VALID, read]).ranks["clock_offset"]
        assert offset[0] == 0 and offset[1] == pytest.approx(int(text) / 1000, rel=1e-12)
        return
    with pytest.raises(ValueError, match=r'<bytes>: "baseTimeNanoseconds" is .*must be an integer'):
        digest_of(read, "<bytes>", 1)


def test_the_metadata_beside_a_long_value_is_read() -> None:
    long = trace('"distributedInfo": {"rank": 0}, "baseTimeNanoseconds": ' + "9" * 5000)
    assert long.rank == 0


def test_a_trace_without_a_rank_or_a_process_has_none() -> None:
    assert trace("").rank is None and trace(member("distributedInfo", {"backend": "nccl"})).rank is None
    work = load(kernel("k", 0, 9), event("overhead", "Buffer Flush", 0, 1, 0, -1))  # nothing of the host
    assert work.process is None


# Recordings of one process -------------------------------------------------------------------------------------------


def test_concurrent_processes_with_one_id_are_ranks() -> None:
    require_different_processes([trace("", start=0), trace("", start=3)])
    require_different_processes([trace("", pid=100), trace("", pid=101, start=50)])
    for later in (10, 0):  # just after the first recording, and a copy of it
        with pytest.raises(ValueError, match="two of the traces are of process 100"):
            require_different_processes([trace(""), trace("", start=later)])
    moved: list[Any] = [trace(member("baseTimeNanoseconds", base)) for base in (0, 5_000, 50_000)]
    require_different_processes(moved[:2])
    with pytest.raises(ValueError, match="two of the traces are of process 100"):
        require_different_processes(moved)
    with pytest.raises(ValueError, match="two of the traces are of rank 0"):
        require_different_processes([VALID, moved[0], VALID])

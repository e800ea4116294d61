"""Traces that several threads read and join: the same events by any number of threads, and errors where they are."""

import gzip
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.hand_traces import call, kernel, op, text_of

import flopscope as fs
from flopscope import _core
from flopscope.read import load

THREADS = (1, 2, 3, 16)
PART = 1 << 14  # hosts that one thread nests at a time


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    threads = _core.num_threads()
    yield
    _core.set_num_threads(threads)


pytestmark = pytest.mark.filterwarnings("ignore:.*host events overlap")


def columns_of(text: Any, threads: int) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    _core.set_num_threads(threads)
    loaded = load.read(text)
    columns, names, *_ = loaded.core.events()
    return dict(columns), list(names), dict(loaded.report)


def nested_spans() -> list[tuple[int, int]]:
    """Return starts and ends in order of (start, -end): long spans over many others, nested ones, and overlaps."""
    rng = random.Random(7)
    spans = {(0, 10_000_000), (5, 7_000_000)}
    at = 10
    while len(spans) < 3 * PART:
        length = rng.choice((3, 20, 200, 40_000))
        spans.add((at, at + length))
        if rng.random() < 0.3:
            spans.add((at + 1, at + rng.randrange(2, 2 * length)))  # within it, or past its end
        at += rng.randrange(1, 40)
    return sorted(spans, key=lambda span: (span[0], -span[1]))


def test_events_are_nested_across_the_parts_of_several_threads() -> None:
    """The parent is the last earlier event that is open at the start and does not end before."""
    spans = nested_spans()
    events = [op(f"op{i}", start / 1000, (end - start) / 1000) for i, (start, end) in enumerate(spans)]
    random.Random(1).shuffle(events)
    text = text_of(*events)
    starts, ends = np.array(spans).T
    expected = np.full(len(spans), -1)
    for i in range(1, len(spans)):
        around = np.flatnonzero((ends[:i] > starts[i]) & (ends[:i] >= ends[i]))
        if around.size:
            expected[i] = around[-1]
    for threads in THREADS:
        columns, names, report = columns_of(text, threads)
        assert [names[name] for name in columns["name"]] == [f"op{i}" for i in range(len(spans))]
        assert np.array_equal(columns["parent"], expected) and report["overlapping"] > 100


def test_overlaps_are_counted_once_across_parts() -> None:
    """Each event of a chain begins within the one before and ends after it; a long event is around the chain."""
    count = 2 * PART + 7
    text = text_of(op("around", 0, count), *(op("link", i / 100 + 0.001, 0.015) for i in range(count)))
    for threads in THREADS:
        columns, _, report = columns_of(text, threads)
        assert report["overlapping"] == count - 1 and set(columns["parent"][1:].tolist()) == {0}


def launches(count: int) -> list[dict[str, Any]]:
    events = []
    for i in range(count):
        thread = 1 + i % 3
        events.append(op("aten::add" if i % 2 else "aten::mul", 10 * i, 8, thread, External_id=i))
        events.append(call("cudaLaunchKernel", 10 * i + 1, 5, thread, correlation=i + 1))
        events.append(kernel("k", 10 * i + 20, 7, correlation=i + 1, External_id=i))
    return events


@pytest.mark.parametrize("again", [1, 39_999])
def test_a_correlation_that_two_processes_share_is_found_by_any_number_of_threads(again: int) -> None:
    """One call of another process repeats a correlation; each kernel belongs to the op of its own process."""
    events = launches(40_000)
    ids = {"correlation": again + 1, "External id": 10**6}
    events.append(op("other", 10 * again, 8, 9, pid=2, External_id=10**6))
    events.append(call("cudaLaunchKernel", 10 * again + 1, 5, 9, pid=2, **ids))
    events.append(kernel("other_k", 10 * again + 20, 7, device=1, **ids))
    text = text_of(*events)
    for threads in THREADS:
        columns, names, _ = columns_of(text, threads)
        of_kernel, of_launcher = columns["name"][[-1, columns["launcher"][-1]]]
        assert (names[of_kernel], names[of_launcher]) == ("other_k", "other")
        kernels = np.flatnonzero(columns["on_device"] == 1)[:-1]
        assert np.array_equal(columns["start"][columns["launcher"][kernels]], np.arange(40_000) * 10_000)


# Reading ahead --------------------------------------------------------------------------------------------------------


def test_a_compressed_trace_of_many_batches_reads_as_its_text(tmp_path: Path) -> None:
    """Names may look like the boundary between two events."""
    events = launches(60_000)
    names = ['}, {"ph": "X", "cat": "cpu_op"', "},\n  {", "k" * 300, '{"a": [{}]}, {"ph":']
    for i, each in enumerate(events[2::3]):
        each["name"] = names[i % 4]
        each["args"]["nested"] = [{"ph": "X"}, {"name": "no"}]
    text = json.dumps({"traceEvents": events, "schemaVersion": 1}, indent=4).encode()
    assert len(text) > 20 << 20
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text, 1))
    expected = columns_of(text, 1)
    assert expected[2]["events"] == len(events) and set(names) < set(expected[1])
    for threads in THREADS:
        for source in (path, text):
            columns, names, report = columns_of(source, threads)
            assert report == expected[2] and names == expected[1]
            assert all(np.array_equal(columns[name], values) for name, values in expected[0].items())
        columns, names, _ = columns_of(text_of(*events), threads)
        assert names == expected[1] and np.array_equal(columns["name"], expected[0]["name"])


@pytest.mark.parametrize("threads", [1, 3])
def test_wrong_text_is_reported_where_it_is_though_more_was_read_meanwhile(threads: int) -> None:
    """Of the first error, all compressed data that follows is damaged, too."""
    text = json.dumps({"traceEvents": launches(60_000)}, indent=4).encode()
    _core.set_num_threads(threads)
    for start in (5 << 20, len(text) - 2_000):
        at = text.index(b"},\n        {", start) + 1
        packed = bytearray(gzip.compress(text[:at] + b"?" + text[at:], 1))
        if start == 5 << 20:
            packed[len(packed) // 2 :] = bytes(len(packed) - len(packed) // 2)
        with pytest.raises(ValueError, match=f"byte {at}: expected an event, which begins with '{{', found '\\?'"):
            fs.load_trace(bytes(packed))


def test_text_that_is_read_ahead_may_not_change() -> None:
    _core.set_num_threads(2)
    text = bytearray(text_of(*launches(30_000)))
    reader, core = _core.TraceReader(), _core.Store()
    reader.feed_ahead([text])
    with pytest.raises(BufferError):
        text.clear()
    reader.feed(b"")
    text.clear()
    assert reader.finish(core)["events"] == 90_000


def test_a_reader_is_released_while_it_reads_ahead() -> None:
    _core.set_num_threads(3)
    text = text_of(*launches(30_000))
    for _ in range(5):
        reader = _core.TraceReader()
        reader.feed_ahead([text])
        del reader
    assert fs.load_trace(text).report["events"] == 90_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_forked_child_cannot_use_a_reader_that_reads_ahead() -> None:
    _core.set_num_threads(2)
    text = text_of(*launches(30_000))
    reader = _core.TraceReader()
    reader.feed_ahead([text])
    child = os.fork()
    if child == 0:
        try:
            reader.feed(b"")
        except RuntimeError as problem:
            fine = "threads" in str(problem) and fs.load_trace(text).report["events"] == 90_000
            del reader
            os._exit(0 if fine else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0 and reader.finish(_core.Store())["events"] == 90_000

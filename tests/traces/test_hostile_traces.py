"""Traces built to be slow or large are read in time and memory linear in the size of the file, or are refused."""

import gzip
import io
import json
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from helpers.hand_traces import Json, call, event, kernel, memory, op

import flopscope as fs
from flopscope.read import input

LIMIT = 300_000  # bytes, instead of 256 MB


def text_of(events: list[Json], **head: Any) -> bytes:
    text = json.dumps({**head, "traceEvents": events}, ensure_ascii=False)
    return text.encode("utf-8", "surrogateescape")


# Compressed files -----------------------------------------------------------------------------------------------------


@pytest.fixture
def bomb(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return equal events, which gzip compresses about 400 times."""
    monkeypatch.setattr(input, "EXPANSION_FREE", LIMIT)
    text = text_of([op("a", 1, 1)] * 40_000)
    packed = gzip.compress(text, 9)
    assert len(text) > LIMIT + input.EXPANSION * len(packed)
    return packed


@pytest.mark.parametrize("source", [bytes, io.BytesIO], ids=["bytes", "file"])
def test_a_file_that_expands_too_far_is_refused_with_its_limit(bomb: bytes, source: Callable[[bytes], Any]) -> None:
    message = r"it expands to more than [\d,]+ bytes, .* 200 times .* max_bytes=…"
    with pytest.raises(ValueError, match=message) as refused:
        fs.load_trace(source(bomb))
    limit = int(str(refused.value).split("more than ")[1].split()[0].replace(",", ""))
    assert LIMIT <= limit <= LIMIT + input.EXPANSION * len(bomb)


def test_max_bytes_raises_the_limit_and_limits_any_source(bomb: bytes, tmp_path: Path) -> None:
    text = gzip.decompress(bomb)
    assert fs.load_trace(bomb, max_bytes=len(text)).report["events"] == 40_000
    with pytest.raises(ValueError, match=f"more than {len(text) - 1:,} bytes of text, the limit set by max_bytes"):
        fs.load_trace(bomb, max_bytes=len(text) - 1)
    text = text_of([op("a", 1, 1)])
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    for source in (text, bytearray(text), path, io.BytesIO(text)):
        with pytest.raises(ValueError, match="the limit set by max_bytes"):
            fs.load_trace(source, max_bytes=len(text) - 1)
    assert len(fs.load_trace(path, max_bytes=len(text))) == 1
    with pytest.raises(ValueError, match="max_bytes must be positive"):
        fs.load_trace(path, max_bytes=0)


def test_usual_compression_ratios_have_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files compressed less than 200 times are read, whatever their size."""
    monkeypatch.setattr(input, "EXPANSION_FREE", 0)
    events = [op(f"aten::op{i % 50}", i * 1.25, 1, External_id=i) for i in range(20_000)]
    text = text_of(events)
    packed = gzip.compress(text)
    assert 10 < len(text) / len(packed) < 60 and len(fs.load_trace(packed)) == 20_000


# The head -------------------------------------------------------------------------------------------------------------


def exported(text: bytes, tmp_path: Path) -> dict[str, Any]:
    """Export the trace again and return it; fail if it is not JSON."""
    fs.load_trace(text).export_chrome_trace(tmp_path / "again.json")
    again: dict[str, Any] = json.loads((tmp_path / "again.json").read_text(), parse_constant=pytest.fail)
    return again


def test_numbers_beyond_a_double_are_exported_as_null(tmp_path: Path) -> None:
    text = text_of([op("a", 1, 1)], note="HERE").replace(b'"HERE"', b'{"x": [1e400, -1e400, NaN, 1.5, 7]}')
    assert exported(text, tmp_path)["note"] == {"x": [None, None, None, 1.5, 7]}


@pytest.mark.parametrize("written", ["1500000000000000000", "1.5e18", "15e17", '"1500000000000000000"'])
def test_the_base_time_is_read_exactly_however_it_is_written(tmp_path: Path, written: str) -> None:
    text = text_of([op("a", 12.5, 1)], baseTimeNanoseconds=0)
    again = exported(text.replace(b'Nanoseconds": 0', f'Nanoseconds": {written}'.encode()), tmp_path)
    start = next(one["ts"] for one in again["traceEvents"] if one.get("cat") == "cpu_op")
    assert again["baseTimeNanoseconds"] + round(1000 * start) == 1_500_000_000_000_000_000 + 12_500


# Time -----------------------------------------------------------------------------------------------------------------

COUNT = 12_000


def nested(step: float = 1) -> list[Json]:
    return [op(f"a{i % 7}", i * step, 3 * COUNT - i * step) for i in range(COUNT)]


def overheads(start: float, step: float, duration: float) -> list[Json]:
    return [event("overhead", "b", start + i * step, duration, -1) for i in range(COUNT)]


def launches(correlations: Iterable[int], start: int = 0) -> list[Json]:
    events = []
    for i, correlation in enumerate(correlations, start):
        events.append(call("cudaLaunchKernel", i, 1, correlation=correlation))
        events.append(kernel("k", i + 1, 1, correlation=correlation))
    return events


def kernels_in_nested_ranges(**stated: int) -> list[Json]:
    ranges = [event("user_annotation", f"r{i}", i, 4 * COUNT - 2 * i, **stated) for i in range(COUNT)]
    return ranges + launches(range(1, COUNT + 1), COUNT)


def equal_external_ids() -> list[Json]:
    ops = [op("a", 10 * i, 9, External_id=7) for i in range(COUNT)]
    return ops + [kernel("k", 10 * i + 5, 1, External_id=7) for i in range(COUNT)]


def colliding_names() -> list[Json]:
    """Names of two words whose hashes are equal without a key: h' = (h ^ word) * C, folded."""
    multiplier, mask = 0xFF51AFD7ED558CCD, (1 << 64) - 1
    start = 0x9E3779B97F4A7C15 ^ 16
    draw, names = random.Random(1), []
    while len(names) < COUNT:
        first = bytes(draw.choices(range(0x30, 0x5B), k=8))
        half = (start ^ int.from_bytes(first, "little")) * multiplier & mask
        second = (half ^ half >> 32 ^ 0x1234567890ABCDEF).to_bytes(8, "little")
        if not set(second) & set(b'"\\') and min(second) >= 0x20:
            names.append((first + second).decode("utf-8", "surrogateescape"))
    return [op(name, i, 1) for i, name in enumerate(names)]


def shuffled(count: int) -> list[int]:
    return random.Random(1).sample(range(count), count)


N = range(COUNT)
FORMS: dict[str, Callable[[], list[Json]]] = {
    "threads and overheads": lambda: [*(op("a", i, COUNT, i) for i in N), *overheads(COUNT, 1, 0.5)],
    "memory of other threads": lambda: [e for i in N for e in (op("a", i, 0.5, i), memory(i + 0.25, 1, COUNT + i, 0))],
    "overheads behind nested ops": lambda: nested(1e-3) + overheads(COUNT / 500, 1e-3, 3 * COUNT),
    "nested stated ranges": lambda: kernels_in_nested_ranges(flops=100, bytes=10),
    "kernels in nested ranges": kernels_in_nested_ranges,
    "equal correlations": lambda: launches([3] * COUNT),
    "correlations that share a slot": lambda: launches(1 + i % 8 + (i // 8) * (1 << 18) % (1 << 32) for i in N),
    "equal external ids": equal_external_ids,
    "distinct threads": lambda: [op("a", i, 1, i) for i in range(2 * COUNT)],
    "colliding names": colliding_names,
    "shuffled memory": lambda: [op("a", 0, 2 * COUNT), *(memory(at, 64, 1, 0) for at in shuffled(2 * COUNT))],
    "memory after nested ops": lambda: [
        op("outer", 0, 5 * COUNT), *nested(1e-3), *(memory(4 * COUNT + i, 64, 1, 0) for i in N),
    ],
    "lists in arguments": lambda: [op("a", i, 1, more=[op("no event", 1, 1)] * 8) for i in N],
    "frames that outlast nested ops": lambda: (
        nested() + [event("python_function", f"f{i % 9}", COUNT + i, 3 * COUNT) for i in N]
    ),
    "kernels without an op": lambda: [kernel(f"k{i}", 2 * i, 1) for i in range(2 * COUNT)],
}  # fmt: skip


def seconds_of(events: list[Json]) -> float:
    """Return the processor time for a table of the events."""
    text, start = text_of(events), time.process_time()
    fs.load_trace(text).key_averages(peaks="none")
    return time.process_time() - start


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_trace_needs_more_than_linear_time(form: str) -> None:
    """Each form takes at most 10 times as long as plain events of distinct names; a quadratic step took 100 times."""
    plain = [op(f"a{i}", i, 1) for i in range(2 * COUNT)]
    assert min(seconds_of(FORMS[form]()) for _ in range(2)) < 10 * max(seconds_of(plain), 0.03)


def test_ranges_nested_in_256_ranges_of_stated_work_have_no_rates() -> None:
    depth, most = 300, 256
    events = [event("user_annotation", f"r{i}", i, 4000 - 2 * i, flops=1000, bytes=1000) for i in range(depth)]
    events += [call("cudaLaunchKernel", 1000, 1, correlation=1), kernel("k", 1001, 2, correlation=1)]
    rows = {row.key: row for row in fs.load_trace(text_of(events)).key_averages(peaks="none")}
    for i in range(depth):
        row = rows[f"r{i}"]
        assert row.flops == 1000
        if i < most:
            assert row.device_busy_time == 2 and row.tflops_per_s == pytest.approx(1000 / 2e-6 / 1e12)
        else:
            assert row.tflops_per_s != row.tflops_per_s

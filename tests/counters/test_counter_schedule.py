"""When samples are taken at which interval, on a fake CUPTI: by the work of the device, wherever its idle time is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.counter_programs import SETUP
from helpers.fake_cupti import build, run_with_fake

SAMPLE = """
SM = "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
cuda.fake.fake_set_record_bytes(256)  # the buffer does not fill up if a busy machine wakes the thread late

def work(seconds, read=0.0):
    start, ns = cuda.now(), round(1e9 * seconds)
    cuda.traffic(SM, start, ns, 50.0 * ns)
    cuda.traffic(READ, start, ns, read)
    return start, start + ns

def sample(program, lean=False, window=20_000, interval=0, busy=0.0):
    # windows of 10 ms, or 5 before 6 s of work
    before = cuda.counters("sessions")
    sampler = _core.Sampler(0, interval, 0, window, begins_lean=lean)
    core = _core.Profiler(cupti=True)
    core.start()
    if busy: work(busy)
    sampler.start()
    spans = program()
    sampler.stop(); core.stop()
    sampler.pour(core.store)
    tracks = {name: (start, end, value) for _, name, _, _, start, end, value in core.store.samples()}
    start, end, active = tracks["sm_active"]
    lengths = end - start
    worked = [sum(int((end.clip(a, b) - start.clip(a, b)).sum()) for a, b in [span]) / (span[1] - span[0])
              for span in spans]
    fma = tracks["fma_active"]
    return {"fine": int((lengths < 5000).sum()), "live": int((abs(lengths - 100_000) < 10_000).sum()),
            "whole": int((fma[1] - fma[0] > 5000).sum()),
            "count": len(lengths), "ns": int(lengths.sum()), "gap": int((start[1:] - end[:-1]).max()),
            "sessions": cuda.counters("sessions") - before, "report": sampler.report, "worked": worked,
            "active": float((active * lengths).sum() / 1e9), "read": float(tracks["dram_bytes_read"][2].sum())}

def busy(seconds, lean):
    return sample(lambda: time.sleep(seconds) or [], lean, busy=seconds + 3)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("fake"))


def run(library: Path, *parts: str) -> Any:
    return run_with_fake(library, SETUP, SAMPLE, *parts)


def test_two_seconds_of_work_are_sampled_throughout_and_longer_work_in_turns(library: Path) -> None:
    found = run(
        library,
        """
        print(json.dumps([busy(*one) for one in
                          ((0.03, False), (0.8, False), (2.0, False), (12.0, False), (1.1, True), (2.9, True))]))
        """,
    )
    short, profile, whole, long, live, program = found
    for one, seconds in ((short, 0.03), (profile, 0.8), (whole, 2.0), (live, 1.1)):
        assert (one["fine"], one["sessions"]) == (0, 1) and one["count"] - 2 <= one["live"], seconds
        assert one["ns"] > 0.97e9 * seconds and one["gap"] < 200_000, "all of it, without a pause"
        report = one["report"]
        assert (report["first_interval_ns"], report["last_interval_ns"]) == (100_000, 100_000)
        assert report["overflows"] == report["lost"] == 0
    assert short["whole"] == short["live"] and whole["whole"] == whole["live"], "all metrics"
    assert live["whole"] == 0
    assert 21_000 < long["whole"] < 24_000, "of the first session"
    assert long["sessions"] >= 4 and 2000 < long["fine"] < 12_000 and long["live"] > 40_000
    assert long["ns"] > 0.6 * 12e9 and long["gap"] > 0.6e9, "it rests"
    assert program["sessions"] >= 2 and program["fine"] > 0 and program["live"] > 20_000
    assert program["gap"] < 0.5e9, "short programs do not rest"


def test_samples_that_are_decoded_more_slowly_than_they_come_wait(library: Path) -> None:
    found, behind = run(
        library,
        """
        cuda.fake.fake_set_decoding_ns(150_000)
        whole = busy(2.0, False)
        cuda.fake.fake_set_decoding_ns(200_000)
        def idle():
            time.sleep(2.5)
            cuda.fake.fake_set_decoding_ns(0)
            time.sleep(6.0)
            span = work(0.1)
            time.sleep(0.2)
            return [span]
        print(json.dumps([whole, sample(idle)]))
        """,
    )
    assert found["sessions"] == 1 and found["ns"] > 1.97e9 and found["gap"] < 200_000
    assert found["report"]["lost"] == found["report"]["overflows"] == 0
    assert behind["sessions"] == 2 and behind["report"]["lost"] == 0, "its buffer was not full"
    assert behind["fine"] == 0 and behind["worked"] == pytest.approx([1.0], abs=0.01)


def test_work_after_a_long_idle_time_is_counted_as_if_it_came_first(library: Path) -> None:
    found = run(
        library,
        """
        BUSY = "LTS.TriageCompute.lts__throughput.avg.pct_of_peak_sustained_elapsed"

        def late():
            cuda.traffic(BUSY, cuda.now(), 3_000_000_000, 3e9 * 2)  # percent: of the samples that the GPU writes
            time.sleep(3.0)
            span = work(0.047, read=3e10)
            time.sleep(0.06)
            return [span]
        print(json.dumps([sample(late, True), sample(late)]))
        """,
    )
    for one in found:
        assert one["sessions"] == 1
        assert one["worked"] == pytest.approx([1.0], abs=0.001)
        assert one["read"] == pytest.approx(3e10, rel=1e-6)
        assert one["active"] == pytest.approx(50.0 * 0.047, rel=1e-6)
        assert one["ns"] > 2.5e9, "idle time is counted as idle"
        assert 460 < one["live"] < 490 and one["count"] < 500, "and takes few samples"


def test_a_device_that_idles_for_long_is_sampled_at_longer_intervals_until_it_works_again(library: Path) -> None:
    found = run(
        library,
        """
        def serve():
            time.sleep(10.3)
            first = work(0.2)
            time.sleep(0.3)
            second = work(0.95)
            time.sleep(1.0)
            return [first, second]
        print(json.dumps(sample(serve, True)))
        """,
    )
    assert found["worked"] == pytest.approx([1.0, 1.0], abs=0.15)
    assert (found["sessions"], found["fine"]) == (3, 0)
    assert found["report"]["last_interval_ns"] == 100_000
    assert 500 < found["live"] < 2500, "in the last of the work"
    assert found["count"] - found["live"] > 800, "one of 1 ms each before"


def test_no_more_than_four_tenths_of_bursts_are_missed_wherever_the_pauses_are(library: Path) -> None:
    found = run(
        library,
        """
        def bursts(length, pause, number):
            def program():
                spans = []
                for _ in range(number):
                    spans.append(work(length))
                    time.sleep(length + pause)
                return spans
            return program
        print(json.dumps([sample(bursts(*one), True) for one in ((0.05, 0.15, 20), (1.1, 0.02, 4), (2.1, 0.9, 3))]))
        """,
    )
    for one, windows in zip(found, (False, True, True), strict=True):
        assert sum(one["worked"]) / len(one["worked"]) > 0.6, one
        assert (one["sessions"] > 1) == windows, "they come by work"
    assert found[0]["worked"] == pytest.approx([1.0] * 20, abs=0.01)


def test_idle_samples_of_a_chosen_interval_stay_apart(library: Path) -> None:
    found = run(
        library,
        """
        def idle():
            time.sleep(0.2)
            return []
        print(json.dumps(sample(idle, interval=100_000)))
        """,
    )
    assert found["live"] == found["count"] > 1500


def test_live_samples_that_fill_their_buffer_get_longer_intervals(library: Path) -> None:
    found = run(
        library,
        """
        cuda.fail("cuptiPmSamplingDecodeData", 8)
        def slow():
            time.sleep(0.25)
            cuda.fail("cuptiPmSamplingDecodeData", 0)
            span = work(0.3)
            time.sleep(0.3)
            return [span]
        print(json.dumps(sample(slow, True)))
        """,
    )
    report = found["report"]
    assert 1 <= report["overflows"] <= 3
    assert report["last_interval_ns"] == 100_000 << report["overflows"]
    assert found["worked"][0] > 0.9

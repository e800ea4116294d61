"""When samples are taken at which interval, on a fake CUPTI: by the work of the device, wherever its idle time is."""

import pytest
from helpers.counter_programs import SETUP
from helpers.fake_cupti import Run, runner

SAMPLE = """
SM = "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
cuda.set("record_bytes", 256)  # the buffer does not fill up if a busy machine wakes the thread late

def work(seconds, read=0.0):
    start, ns = cuda.now(), round(1e9 * seconds)
    cuda.traffic(SM, start, ns, 50.0 * ns)
    cuda.traffic(READ, start, ns, read)
    return start, start + ns

def sample(program, live=False, window=20_000, interval=0, busy=0.0):
    # a window of 50 ms, of which 2.5 ms are kept if the program goes on; later ones have 10 ms, or 5 before 6 s of work
    before = cuda.count("sessions")
    sampler = _core.Sampler(0, interval, 0, window, begins_live=live)
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
    return {"fine": int((lengths < 5000).sum()), "live": int((abs(lengths - 100_000) < 10_000).sum()),
            "count": len(lengths), "ns": int(lengths.sum()), "gap": int((start[1:] - end[:-1]).max()),
            "sessions": cuda.count("sessions") - before, "report": sampler.report, "worked": worked,
            "active": float((active * lengths).sum() / 1e9), "read": float(tracks["dram_bytes_read"][2].sum())}

def busy(seconds, live):
    return sample(lambda: time.sleep(seconds) or [], live, busy=seconds + 3)
"""


run = runner(SETUP, SAMPLE)


def test_short_programs_are_sampled_finely_and_long_ones_throughout(run: Run) -> None:
    short, profile, long, live, program, resting = run("""
        print(json.dumps([busy(*one) for one in
                          ((0.03, False), (0.8, False), (11.2, False), (1.1, True), (2.8, True), (8.6, False))]))
        """)
    assert (short["live"], short["sessions"]) == (0, 1) and short["count"] - 1 <= short["fine"] > 5000
    assert profile["count"] - 1 <= profile["fine"] + profile["live"] and profile["sessions"] == 2
    assert 500 < profile["fine"] < 1100 and profile["live"] > 500
    report = profile["report"]
    assert (report["first_interval_ns"], report["last_interval_ns"]) == (2500, 100_000)
    assert report["overflows"] == report["lost"] == 0, "what is thinned out is not lost"
    assert long["sessions"] >= 6 and 2000 < long["fine"] < 12_000 and long["live"] > 20_000
    assert long["ns"] > 0.6 * 11.2e9 and long["gap"] > 1.5e9, "it rests"
    assert (live["fine"], live["report"]["first_interval_ns"]) == (0, 100_000)
    assert live["count"] - 2 <= live["live"] > 5000
    assert program["sessions"] >= 3 and program["fine"] > 0 and program["live"] > 10_000
    assert program["gap"] < 0.5e9, "short programs do not rest"
    assert resting["sessions"] == 5 and resting["fine"] > 3000, "it ends in a rest"


def test_work_after_a_long_idle_time_is_counted_as_if_it_came_first(run: Run) -> None:
    found = run("""
        BUSY = "LTS.TriageCompute.lts__throughput.avg.pct_of_peak_sustained_elapsed"

        def late():
            cuda.traffic(BUSY, cuda.now(), 3_000_000_000, 3e9 * 2)  # percent: of the samples that the GPU writes
            time.sleep(3.0)
            span = work(0.047, read=3e10)
            time.sleep(0.06)
            return [span]
        print(json.dumps([sample(late, True), sample(late)]))
        """)
    for one, sessions in zip(found, (1, 2), strict=True):
        assert one["sessions"] == sessions and one["worked"] == pytest.approx([1.0], abs=0.001)
        assert one["read"] == pytest.approx(3e10, rel=1e-6) and one["active"] == pytest.approx(50.0 * 0.047, rel=1e-6)
        assert one["ns"] > 2.5e9, "idle time is counted as idle"
        assert 460 < one["live"] < 490 and one["count"] < 500, "and takes few samples"


def test_a_device_that_idles_for_long_is_sampled_at_longer_intervals_until_it_works_again(run: Run) -> None:
    found = run("""
        def serve():
            time.sleep(10.3)
            first = work(0.2)
            time.sleep(0.3)
            second = work(0.95)
            time.sleep(1.0)
            return [first, second]
        print(json.dumps(sample(serve, True)))
        """)
    assert found["worked"] == pytest.approx([1.0, 1.0], abs=0.15) and (found["sessions"], found["fine"]) == (3, 0)
    assert found["report"]["last_interval_ns"] == 100_000
    assert 500 < found["live"] < 2500, "in the last of the work"
    assert found["count"] - found["live"] > 800, "one of 1 ms each before"


def test_no_more_than_four_tenths_of_bursts_are_missed_wherever_the_pauses_are(run: Run) -> None:
    found = run("""
        def bursts(length, pause, number):
            def program():
                spans = []
                for _ in range(number):
                    spans.append(work(length))
                    time.sleep(length + pause)
                return spans
            return program
        print(json.dumps([sample(bursts(*one), True) for one in ((0.05, 0.15, 20), (1.1, 0.02, 4), (2.1, 0.9, 3))]))
        """)
    for one, windows in zip(found, (False, True, True), strict=True):
        assert sum(one["worked"]) / len(one["worked"]) > 0.6, one
        assert (one["sessions"] > 1) == windows, "they come by work"
    assert found[0]["worked"] == pytest.approx([1.0] * 20, abs=0.01)


def test_idle_samples_of_a_chosen_interval_stay_apart(run: Run) -> None:
    found = run("""
        def idle():
            time.sleep(0.2)
            return []
        print(json.dumps(sample(idle, interval=100_000)))
        """)
    assert found["live"] == found["count"] > 1500


def test_live_samples_that_fill_their_buffer_get_longer_intervals(run: Run) -> None:
    found = run("""
        cuda.fail("cuptiPmSamplingDecodeData", 8)
        def slow():
            time.sleep(0.25)
            cuda.fail("cuptiPmSamplingDecodeData", 0)
            span = work(0.3)
            time.sleep(0.3)
            return [span]
        print(json.dumps(sample(slow, True)))
        """)
    report = found["report"]
    assert 1 <= report["overflows"] <= 3 and report["last_interval_ns"] == 100_000 << report["overflows"]
    assert found["worked"][0] > 0.9

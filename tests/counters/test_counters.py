"""Hardware counters beside a profile, on a fake CUPTI that plays the traffic of kernels."""

from pathlib import Path

import pytest
from helpers.counter_programs import SETUP
from helpers.fake_cupti import Run, build, run_with_fake, runner

run = runner(SETUP)


def test_each_kernel_gets_the_traffic_that_it_caused(run: Run) -> None:
    found, samples, still_open, hosts = run("""
        with fs.profile(counters="require") as prof:
            for i in range(5):
                kernel("long", 200, read=8e8, written=4e8, gap=0)
                kernel("short", 9, read=3e7, gap=0)
                kernel("busy", 100, tensor=75.0)
            time.sleep(0.002)
        print(json.dumps([counted(prof), len(prof.counter_timeline()), cuda.count("open"), cuda.count("hosts")]))
        """)
    assert found["long"]["dram_bytes_read"] == pytest.approx(5 * 8e8, rel=0.005)
    assert found["long"]["dram_bytes_written"] == pytest.approx(5 * 4e8, rel=0.01)
    assert found["long"]["dram_gbytes_per_s"] == pytest.approx(6000, rel=0.01)
    assert found["short"]["dram_bytes_read"] == pytest.approx(5 * 3e7, rel=0.02)
    assert found["busy"]["tensor_active"] == pytest.approx(75, abs=1) and found["busy"]["dram_bytes_read"] < 1e6
    assert found["long"]["sm_active"] == 0 and found["long"]["l2_bytes"] == 0
    assert samples > 500 and still_open == 0 and hosts == 0


REFUSALS = {
    35: "NVreg_RestrictProfilingToAdminUsers=0", 26: "another profiler holds the counters", 43: "MIG",
    40: "virtual GPU", 33: "virtual GPU", 41: "confidentially", 42: "mining", 44: "SLI", 45: "WSL", 46: "update it",
    3: "context was destroyed", 7: "in use in this process already", 15: "was detached from the process",
    27: "does not support it", 36: "older interface", 999: "CUPTI_ERROR_FAKE",
}  # fmt: skip
STEPS = (
    "cuptiProfilerInitialize", "cuptiDeviceGetChipName", "cuptiPmSamplingGetCounterAvailability",
    "cuptiProfilerHostInitialize", "cuptiPmSamplingEnable", "cuptiPmSamplingSetConfig",
    "cuptiPmSamplingGetCounterDataSize", "cuptiPmSamplingCounterDataImageInitialize", "cuptiPmSamplingStart",
)  # fmt: skip


def test_every_refusal_is_a_warning_or_an_error_that_names_it(run: Run) -> None:
    told = run(f"""
        REFUSALS, STEPS = {[*REFUSALS]}, {STEPS}
        """, """
        told = []
        for step in STEPS:
            for code in REFUSALS if step == "cuptiPmSamplingEnable" else [35, 46]:
                cuda.fail(step, code)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    with fs.profile(counters=True) as prof:
                        kernel("k", 20)
                error = refused(fs.profile(counters="require").start)
                cuda.fail(step, 0)
                told.append([step, code, messages(caught), error, counted(prof)["k"]["count"],
                             cuda.count("open"), cuda.count("hosts")])
        with fs.profile(counters="require") as prof:
            kernel("k", 100, read=1e8)
            time.sleep(0.002)
        print(json.dumps([told, counted(prof)["k"]["dram_bytes_read"]]))
        """)  # fmt: skip
    for step, code, warned, error, kernels, still_open, hosts in told[0]:
        expected = REFUSALS[code]
        assert len(warned) == 1 and expected in warned[0], (step, code, warned)
        assert expected in error, (step, code)
        assert (kernels, still_open, hosts) == (1, 0, 0), step
    assert told[1] == pytest.approx(1e8, rel=0.01)


def test_a_cupti_that_is_too_old_is_named(tmp_path: Path) -> None:
    warned, error, events, again = run_with_fake(build(tmp_path, "cuptiPmSamplingEnable"), """
        import flopscope.support.package as package
        package.find_library = lambda name: LIBRARY
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with fs.profile(counters=True) as prof: cuda.launch("k")
        error = refused(fs.profile(counters="require").start)
        with fs.profile() as again: cuda.launch("k")
        print(json.dumps([[str(one.message) for one in caught], error, len(prof), len(again)]))
        """)  # fmt: skip
    for text in (*warned, error):
        assert "has no function cuptiPmSamplingEnable" in text and "CUDA 12.6 or later" in text
    assert len(warned) == 1 and events > 0 and again > 0


def test_ga100_is_sampled_by_cycles_and_an_unknown_gpu_is_named(run: Run) -> None:
    read, error = run("""
        cuda.fake.fake_set_chip(b"TU102")
        error = refused(fs.profile(counters="require").start)
        cuda.fake.fake_set_chip(b"GA100")
        with fs.profile(counters="require") as prof:
            kernel("k", 100, read=1e8)
            time.sleep(0.002)
        print(json.dumps([counted(prof)["k"]["dram_bytes_read"], error]))
        """)
    assert read == pytest.approx(1e8, rel=0.01) and "TU102" in error


def test_windows_follow_each_other_where_the_interval_is_too_short_to_decode(run: Run) -> None:
    report, tracks, read, windows, sessions = run("""
        sampler = _core.Sampler(0, 20_000, 0, 2000)  # windows of 40 ms
        core = _core.Profiler(cupti=True)
        core.start(); sampler.start()
        for i in range(60): kernel("k", 3000, read=1e8, gap=0)
        time.sleep(0.05)
        sampler.stop(); sampler.stop(); core.stop()
        sampler.pour(core.store)
        tracks = {name: len(start) for _, name, _, _, start, _, _ in core.store.samples()}
        row = core.store.table(False, 0, {})[0]
        at = row["key"].index("k")
        print(json.dumps([sampler.report, tracks, row["dram_bytes_read"][at], cuda.count("windows"),
                          cuda.count("sessions")]))
        """)
    assert windows >= 2 and sessions <= 1 + report["overflows"]  # a busy machine may wake the thread too late
    assert 400 < tracks["dram_bytes_read"] == report["samples"]
    assert read == pytest.approx(60 * 1e8, rel=0.03)  # scaled from the kernels that were counted


def test_full_buffers_are_counted_and_sampling_goes_on(run: Run) -> None:
    limited, lost, still_open = run("""
        sampler = _core.Sampler(0, 100_000, 30, 0)  # live, at most 30 samples
        sampler.start(); time.sleep(0.3); sampler.stop()
        limited = sampler.report
        sampler = _core.Sampler(0, 2000, 0, 500)
        cuda.fail("cuptiPmSamplingDecodeData", 8)
        sampler.start(); time.sleep(0.01)
        cuda.fail("cuptiPmSamplingDecodeData", 0)
        time.sleep(0.2); sampler.stop()
        print(json.dumps([limited, sampler.report, cuda.count("open")]))
        """)
    assert limited["samples"] == 30 and limited["lost"] > 100 and limited["overflows"] == 1
    assert lost["overflows"] >= 1 and lost["lost"] > 100 and lost["samples"] > 100 and still_open == 0


def test_windows_shrink_where_records_are_longer_than_expected(run: Run) -> None:
    report, windows = run("""
        cuda.set("record_bytes", 37 << 10)  # 2.3 times what the buffer allows for
        # Windows of 1.2 s, then of 120 ms (too long), at last of 60 ms: the buffer holds 104 ms, so that the thread may
        # be woken 47 ms late.
        sampler = _core.Sampler(0, 40_000, 0, 30_000)
        sampler.start(); time.sleep(3); sampler.stop()
        print(json.dumps([sampler.report, cuda.count("windows")]))
        """)
    assert 2 <= report["overflows"] <= windows // 2  # more than two where a busy machine wakes the thread too late
    assert report["samples"] > 1000 and report["lost"] > 1000


def test_a_failure_while_sampling_is_a_warning_and_what_came_before_stays(run: Run) -> None:
    warned, row, again, still_open = run("""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with fs.profile(counters=True) as prof:
                kernel("k", 20)
                cuda.fail("cuptiPmSamplingStop", 999)
        cuda.fail("cuptiPmSamplingStop", 0)
        with fs.profile(counters="require") as again: kernel("k", 100, read=1e8); time.sleep(0.001)
        print(json.dumps([messages(caught), counted(prof)["k"], counted(again)["k"], cuda.count("open")]))
        """)
    assert len(warned) == 1 and "counting ended early" in warned[0]
    assert row["count"] == 1 and row["dram_bytes_read"] is None
    assert again["dram_bytes_read"] == pytest.approx(1e8, rel=0.01) and still_open == 0


def test_counting_ends_with_the_process(run: Run) -> None:
    run("""
        import ctypes
        prof = fs.profile(counters="require")
        prof.start()
        kernel("k", 100, read=1e8)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(prof))  # never collected
        sys.exit()
        """)


def test_interrupts_reach_the_program_while_counters_run(run: Run) -> None:
    found = run("""
        import signal
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.get_ident()))
        prof = fs.profile(counters="require")
        prof.start()
        kernel("k", 100, read=1e8)
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.01)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            while True: time.sleep(0.01)
        except KeyboardInterrupt:
            prof.stop()
        print(json.dumps([seen == [threading.get_ident()], counted(prof)["k"]["dram_bytes_read"]]))
        """)
    assert found == [True, pytest.approx(1e8, rel=0.01)]


def test_a_forked_child_leaves_the_counters_alone(run: Run) -> None:
    found = run("""
        prof = fs.profile(counters="require")
        prof.start()
        kernel("k", 100, read=1e8)
        child = os.fork()
        if child == 0:
            prof.stop()
            os._exit(0 if cuda.count("open") == 1 else 1)
        status = os.waitpid(child, 0)[1]
        time.sleep(0.002)
        prof.stop()
        print(json.dumps([status, counted(prof)["k"]["dram_bytes_read"]]))
        """)
    assert found[0] == 0 and found[1] == pytest.approx(1e8, rel=0.01)


def test_a_schedule_counts_each_cycle_apart(run: Run) -> None:
    seen, still_open, sessions = run("""
        seen = []
        plan = fs.schedule(wait=0, warmup=1, active=1, repeat=2)
        with fs.profile(schedule=plan, counters="require", on_trace_ready=lambda p: seen.append(counted(p)["k"])) as p:
            for step in range(4):
                kernel("k", 100, read=(step + 1) * 1e8)
                time.sleep(0.001)
                p.step()
        print(json.dumps([seen, cuda.count("open"), cuda.count("sessions")]))
        """)
    assert [row["dram_bytes_read"] for row in seen] == [pytest.approx(2e8, rel=0.01), pytest.approx(4e8, rel=0.01)]
    assert still_open == 0 and sessions == 2

"""Hardware counters beside a profile, on a fake CUPTI that plays the traffic of kernels."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from fake_cupti import build, run_with_fake

from flopscope import _core

SETUP = """
import json
import math
_core.load_counters(LIBRARY)
cuda.fake.fake_set_active(1, 0)
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
TENSOR = "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"

def kernel(name, us, read=0.0, written=0.0, tensor=0.0, gap=20, device=0, stream=7, at=None):
    start = cuda.launch(name, 1000 * us, at, device, stream)
    cuda.traffic(READ, start, 1000 * us, read, device)
    cuda.traffic(WRITTEN, start, 1000 * us, written, device)
    cuda.traffic(TENSOR, start, 1000 * us, 1000 * us * tensor, device)
    while cuda.now() < start + 1000 * (us + gap): pass
    return start

def counted(prof):
    names = ("count", "dram_bytes_read", "dram_bytes_written", "sm_active", "tensor_active", "dram_gbytes_per_s",
             "traffic_ratio", "l2_bytes", "nvlink_bytes")
    return {row.key: {n: None if math.isnan(getattr(row, n)) else getattr(row, n) for n in names}
            for row in prof.key_averages(peaks="none") if row.device_type == "cuda"}

def messages(caught):
    return [str(one.message) for one in caught]
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("fake"))


def test_each_kernel_gets_the_traffic_that_it_caused(library: Path) -> None:
    rows = run_with_fake(
        library,
        SETUP,
        """
        with fs.profile(counters="require") as prof:
            for i in range(5):
                kernel("long", 200, read=8e8, written=4e8, gap=0)
                kernel("short", 9, read=3e7, gap=0)
                kernel("busy", 100, tensor=75.0)
            time.sleep(0.002)
        print(json.dumps([counted(prof), len(prof.counter_timeline()), cuda.counters("open"), cuda.counters("hosts")]))
        """,
    )
    found, samples, still_open, hosts = rows
    assert found["long"]["dram_bytes_read"] == pytest.approx(5 * 8e8, rel=0.005)
    assert found["long"]["dram_bytes_written"] == pytest.approx(5 * 4e8, rel=0.01)
    assert found["long"]["dram_gbytes_per_s"] == pytest.approx(6000, rel=0.01)
    assert found["short"]["dram_bytes_read"] == pytest.approx(5 * 3e7, rel=0.02)
    assert found["busy"]["tensor_active"] == pytest.approx(75, abs=1)
    assert found["busy"]["dram_bytes_read"] < 1e6
    assert found["long"]["sm_active"] == 0 and found["long"]["l2_bytes"] == 0
    assert samples > 500 and still_open == 0 and hosts == 0


def test_kernels_shorter_than_two_samples_are_missing_not_wrong(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        with fs.profile(counters="require", counter_interval_us=10) as prof:
            for i in range(4):
                kernel("short", 15, read=1e6)
                kernel("enough", 25, read=1e6)
            time.sleep(0.002)
        print(json.dumps(counted(prof)))
        """,
    )
    assert found["short"]["dram_bytes_read"] is None and found["short"]["traffic_ratio"] is None
    assert found["enough"]["dram_bytes_read"] == pytest.approx(4e6, rel=0.05)


def test_overlapping_kernels_share_a_sample_and_the_sum_is_right(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        with fs.profile(counters="require") as prof:
            for i in range(3):
                start = cuda.launch("a", 400_000, stream=1)
                cuda.traffic(READ, start, 400_000, 4e8)
                cuda.kernel("b", start + 200_000, 400_000, cuda.call(at=start)[1], stream=2)
                cuda.traffic(READ, start + 200_000, 400_000, 12e8)
                while cuda.now() < start + 700_000: pass
            time.sleep(0.002)
        print(json.dumps(counted(prof)))
        """,
    )
    a, b = found["a"]["dram_bytes_read"], found["b"]["dram_bytes_read"]
    assert a + b == pytest.approx(3 * 16e8, rel=0.01)
    assert a == pytest.approx(3 * 4e8, rel=0.05)  # each has half of its time to itself


def test_metrics_that_the_gpu_lacks_are_missing(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        cuda.fake.fake_lack(WRITTEN.encode()); cuda.fake.fake_lack(b"nvlrx__bytes.sum")
        with fs.profile(counters="require") as prof:
            kernel("k", 100, read=1e8)
            time.sleep(0.002)
        print(json.dumps([counted(prof)["k"], sorted(prof.counter_timeline())]))
        """,
    )
    row, columns = found
    assert row["dram_bytes_written"] is None and row["nvlink_bytes"] is None
    assert row["dram_bytes_read"] == pytest.approx(1e8, rel=0.01)
    assert "dram_bytes_written" not in columns and "nvlink_bytes_received" not in columns


REFUSALS = {
    35: "NVreg_RestrictProfilingToAdminUsers=0",
    26: "another profiler holds the counters",
    43: "MIG",
    40: "virtual GPU",
    33: "virtual GPU",
    41: "confidentially",
    42: "mining",
    45: "WSL",
    46: "update it",
    999: "CUPTI_ERROR_FAKE",
}
STEPS = (
    "cuptiProfilerInitialize",
    "cuptiDeviceGetChipName",
    "cuptiPmSamplingGetCounterAvailability",
    "cuptiProfilerHostInitialize",
    "cuptiPmSamplingEnable",
    "cuptiPmSamplingSetConfig",
    "cuptiPmSamplingGetCounterDataSize",
    "cuptiPmSamplingCounterDataImageInitialize",
    "cuptiPmSamplingStart",
)


def test_every_refusal_is_a_warning_or_an_error_that_names_it(library: Path) -> None:
    told = run_with_fake(
        library,
        SETUP,
        f"""
        REFUSALS, STEPS = {[*REFUSALS]}, {STEPS}
        """,
        """
        told = []
        for step in STEPS:
            for code in REFUSALS if step == "cuptiPmSamplingEnable" else [35]:
                cuda.fail(step, code)
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    with fs.profile(counters=True) as prof:
                        kernel("k", 20)
                try:
                    with fs.profile(counters="require"):
                        error = ""
                except RuntimeError as problem:
                    error = str(problem)
                cuda.fail(step, 0)
                told.append([step, code, messages(caught), error, counted(prof)["k"]["count"],
                             cuda.counters("open"), cuda.counters("hosts")])
        with fs.profile(counters="require") as prof:
            kernel("k", 100, read=1e8)
            time.sleep(0.002)
        print(json.dumps([told, counted(prof)["k"]["dram_bytes_read"]]))
        """,
    )
    for step, code, warned, error, kernels, still_open, hosts in told[0]:
        expected = REFUSALS[code] if step != "cuptiProfilerHostInitialize" else "none of these counters"
        assert len(warned) == 1 and expected in warned[0], (step, code, warned)
        assert expected in error, (step, code)
        assert (kernels, still_open, hosts) == (1, 0, 0), step
    assert told[1] == pytest.approx(1e8, rel=0.01)


def test_a_gpu_that_flopscope_does_not_know_is_named(library: Path) -> None:
    error = run_with_fake(
        library,
        SETUP,
        """
        cuda.fake.fake_set_chip(b"TU102")
        try:
            with fs.profile(counters="require"): pass
        except RuntimeError as problem:
            print(json.dumps(str(problem)))
        """,
    )
    assert "TU102" in error


def test_ga100_is_sampled_by_cycles(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        cuda.fake.fake_set_chip(b"GA100")
        with fs.profile(counters="require") as prof:
            kernel("k", 100, read=1e8)
            time.sleep(0.002)
        print(json.dumps(counted(prof)["k"]["dram_bytes_read"]))
        """,
    )
    assert found == pytest.approx(1e8, rel=0.01)


def test_windows_follow_each_other_where_the_interval_is_too_short_to_decode(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        sampler = _core.Sampler(0, 2000, 0, 1000)  # windows of 2 ms
        core = _core.Profiler(cupti=True)
        core.start(); sampler.start()
        for i in range(60): kernel("k", 100, read=1e8, gap=0)
        time.sleep(0.002)
        sampler.stop(); sampler.stop(); core.stop()
        sampler.pour(core.store)
        tracks = {name: len(start) for _, name, _, _, start, _, _ in core.store.samples()}
        row = core.store.table(False, 0, {})[0]
        at = row["key"].index("k")
        print(json.dumps([sampler.report, tracks, row["dram_bytes_read"][at], cuda.counters("windows"),
                          cuda.counters("sessions")]))
        """,
    )
    report, tracks, read, windows, sessions = found
    assert windows >= 2 and sessions <= 1 + report["overflows"]  # a busy machine may wake the thread too late
    assert 400 < tracks["dram_bytes_read"] == report["samples"]
    assert read == pytest.approx(60 * 1e8, rel=0.03)  # scaled from the kernels that were counted


def test_full_buffers_are_counted_and_sampling_goes_on(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        sampler = _core.Sampler(0, 60000, 30, 0)  # live, at most 30 samples
        sampler.start(); time.sleep(0.05); sampler.stop()
        limited = sampler.report
        sampler = _core.Sampler(0, 2000, 0, 500)
        cuda.fail("cuptiPmSamplingDecodeData", 8)
        sampler.start(); time.sleep(0.01)
        cuda.fail("cuptiPmSamplingDecodeData", 0)
        time.sleep(0.01); sampler.stop()
        print(json.dumps([limited, sampler.report, cuda.counters("open")]))
        """,
    )
    limited, lost, still_open = found
    assert limited["samples"] == 30 and limited["lost"] > 100 and limited["overflows"] == 1
    assert lost["overflows"] >= 1 and lost["lost"] > 100 and lost["samples"] > 100
    assert still_open == 0


def test_a_failure_while_sampling_is_a_warning_and_what_came_before_stays(library: Path) -> None:
    told = run_with_fake(
        library,
        SETUP,
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with fs.profile(counters=True) as prof:
                kernel("k", 20)
                cuda.fail("cuptiPmSamplingStop", 999)
        cuda.fail("cuptiPmSamplingStop", 0)
        with fs.profile(counters="require") as again: kernel("k", 100, read=1e8); time.sleep(0.001)
        print(json.dumps([messages(caught), counted(prof)["k"], counted(again)["k"], cuda.counters("open")]))
        """,
    )
    warned, row, again, still_open = told
    assert len(warned) == 1 and "counting ended early" in warned[0]
    assert row["count"] == 1 and row["dram_bytes_read"] is None
    assert again["dram_bytes_read"] == pytest.approx(1e8, rel=0.01) and still_open == 0


def test_a_forked_child_leaves_the_counters_alone(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        prof = fs.profile(counters="require")
        prof.start()
        kernel("k", 100, read=1e8)
        child = os.fork()
        if child == 0:
            prof.stop()
            os._exit(0 if cuda.counters("open") == 1 else 1)
        status = os.waitpid(child, 0)[1]
        time.sleep(0.002)
        prof.stop()
        print(json.dumps([status, counted(prof)["k"]["dram_bytes_read"]]))
        """,
    )
    assert found[0] == 0 and found[1] == pytest.approx(1e8, rel=0.01)


def test_a_schedule_counts_each_cycle_apart(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        seen = []
        plan = fs.schedule(wait=0, warmup=1, active=1, repeat=2)
        with fs.profile(schedule=plan, counters="require", on_trace_ready=lambda p: seen.append(counted(p)["k"])) as p:
            for step in range(4):
                kernel("k", 100, read=(step + 1) * 1e8)
                time.sleep(0.001)
                p.step()
        print(json.dumps([seen, cuda.counters("open"), cuda.counters("sessions")]))
        """,
    )
    seen, still_open, sessions = found
    assert [row["dram_bytes_read"] for row in seen] == [pytest.approx(2e8, rel=0.01), pytest.approx(4e8, rel=0.01)]
    assert still_open == 0 and sessions == 2


def test_two_devices_are_counted_apart(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        cuda.fake.fake_set_active(1, 1)
        with fs.profile(counters="require") as prof:
            kernel("first", 100, read=1e8, device=0)
            kernel("second", 100, read=3e8, device=1)
            time.sleep(0.002)
        print(json.dumps([counted(prof), sorted(set(prof.counter_timeline().device.tolist()))]))
        """,
    )
    rows, devices = found
    assert rows["first"]["dram_bytes_read"] == pytest.approx(1e8, rel=0.01)
    assert rows["second"]["dram_bytes_read"] == pytest.approx(3e8, rel=0.01)
    assert devices == [0, 1]


def test_counters_need_cuda_and_sensible_arguments() -> None:
    import flopscope as fs

    with pytest.raises(ValueError, match='True, False or "require"'):
        fs.profile(counters="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 µs to 1 s"):
        fs.profile(counters=True, counter_interval_us=0.5)
    with pytest.raises(ValueError, match="needs counters=True"):
        fs.profile(counter_interval_us=5)
    with pytest.raises(TypeError, match="number of µs"):
        fs.profile(counters=True, counter_interval_us="5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="counts CUDA work"):
        fs.profile(counters="require", activities=[fs.ProfilerActivity.CPU])


# Recorded on an H200 ------------------------------------------------------------------------------------------------

SIZES = (256, 512, 768, 1024, 1448, 2048, 2896, 4096, 8192)


def recording(name: str) -> _core.Store:
    """Return a store with the samples and kernels of an H200; the kernels are named by what they did.

    ``big`` adds to 256 MiB in place, ``add2048`` adds two float32 matrices of 2048² into a third.
    """
    file = np.load(Path(__file__).parent / "data" / "counters" / name)
    names = [
        key for n in SIZES for key in [*["big", f"add{n}"] * 8, "sleep", *["big", "sleep", f"add{n}", "sleep"] * 4]
    ]
    names += ["add", "fill", "sum", "sin", "fill", "mm", "transpose"] * 8
    store = _core.Store()
    for key, start, length in zip(names, file["start"].tolist(), file["duration"].tolist(), strict=False):
        _core._append(store, "kernel", key, start, length, device=0)  # type: ignore[attr-defined]
    _core._set_device(store, 0, {"name": "NVIDIA H200", "l2_bytes": 60 << 20})  # type: ignore[attr-defined]
    edges = np.cumsum(file["edges"]).astype(np.int64) + 700  # the delay of samples
    for metric, column in {"dram_bytes_read": "dram_read", "dram_bytes_written": "dram_written",
                           "tensor_active": "tensor_active"}.items():  # fmt: skip
        store.add_samples(0, metric, edges[:-1], edges[1:], file[column].astype(np.float64))
    return store


def per_call(store: _core.Store) -> dict[str, dict[str, float]]:
    columns, _ = store.table(False, 0, {})
    return {
        key: {
            "read": columns["dram_bytes_read"][i] / columns["count"][i],
            "written": columns["dram_bytes_written"][i] / columns["count"][i],
            "tensor": columns["tensor_active"][i],
        }
        for i, key in enumerate(columns["key"])
    }


@pytest.mark.parametrize(("name", "least", "within"), [("h200_2us.npz", 1024, 0.003), ("h200_5us.npz", 2048, 0.02)])
def test_recorded_kernels_read_what_they_must(name: str, least: int, within: float) -> None:
    found = per_call(recording(name))
    checked = 0
    for n in SIZES:
        if f"add{n}" not in found:
            continue
        if n < least:
            assert n == 256 or n > 700 or math.isnan(found[f"add{n}"]["read"])
        else:
            assert found[f"add{n}"]["read"] == pytest.approx(8 * n * n, rel=within), n
            checked += 1
    assert checked >= 4
    assert found["big"]["read"] == pytest.approx(1 << 28, rel=0.002)


def test_recorded_writes_belong_to_the_kernel_that_wrote() -> None:
    found = per_call(recording("h200_5us.npz"))
    assert found["big"]["written"] == pytest.approx(1 << 28, rel=0.02)
    for key in ("add", "sin", "transpose", "add8192"):
        assert found[key]["written"] == pytest.approx(4 * 8192**2, rel=0.06), key
    assert found["sum"]["written"] < 0.05 * 4 * 8192**2  # a twelfth of the add before it would remain without
    assert found["mm"]["tensor"] > 80 > 5 > found["sin"]["tensor"]


def test_samples_are_kept_in_order_and_bad_ones_left_out() -> None:
    store = _core.Store()
    start = np.array([0, 10, 5, 20, 30], np.int64)
    end = np.array([10, 20, 15, 30, 25], np.int64)
    assert store.add_samples(0, "dram_bytes_read", start, end, np.array([1.0, 2.0, 3.0, math.nan, 5.0])) == 3
    (device, name, kind, unit, starts, ends, values) = store.samples()[0]
    assert (device, name, kind, unit) == (0, "dram_bytes_read", "amount", "bytes")
    assert (starts.tolist(), ends.tolist(), values.tolist()) == ([0, 10], [10, 20], [1.0, 2.0])
    with pytest.raises(TypeError, match="float64"):
        store.add_samples(0, "x", start, end, start)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="as many"):
        store.add_samples(0, "x", start, end[:1], np.zeros(5))
    with pytest.raises(ValueError, match="devices are numbered"):
        store.add_samples(1000, "x", start, end, np.zeros(5))


def test_a_store_that_is_extended_takes_the_samples_along() -> None:
    first, second = _core.Store(), _core.Store()
    edges = np.array([0, 10], np.int64)
    first.add_samples(0, "sm_active", edges, edges + 10, np.array([1.0, 2.0]))
    second.add_samples(0, "sm_active", edges, edges + 10, np.array([3.0, 4.0]))
    first.extend(second, 100)
    assert first.samples()[0][4].tolist() == [0, 10, 100, 110]


# Python's division of samples, as an oracle of the core's ----------------------------------------------------------


def divided(samples: list[tuple[int, int, float]], works: list[tuple[int, int]]) -> list[float]:
    """Divide amounts among works by expectation-maximization."""
    rates = [1.0] * len(works)
    amounts = [0.0] * len(works)
    for _ in range(20):
        amounts = [0.0] * len(works)
        for start, end, value in samples:
            parts = [r * max(0, min(end, b) - max(start, a)) for r, (a, b) in zip(rates, works, strict=True)]
            for k, part in enumerate(parts):
                amounts[k] += value * part / sum(parts) if part else 0.0
        covered = [sum(max(0, min(e, b) - max(s, a)) for s, e, _ in samples) for a, b in works]
        rates = [amount / time if time else 0.0 for amount, time in zip(amounts, covered, strict=True)]
    return amounts


def test_the_core_divides_samples_as_the_definition_does() -> None:
    rng = np.random.default_rng(7)
    starts = np.sort(rng.integers(0, 9000, 40))
    works = [(int(s), int(s + rng.integers(30, 500))) for s in starts]
    edges = np.arange(0, 10001, 10)
    values = rng.random(1000) * 1000
    store = _core.Store()
    for k, (a, b) in enumerate(works):
        _core._append(store, "kernel", f"k{k}", a, b - a, device=0)  # type: ignore[attr-defined]
    store.add_samples(0, "l2_bytes", edges[:-1].astype(np.int64), edges[1:].astype(np.int64), values)
    columns, _ = store.table(False, 0, {})
    found = dict(zip(columns["key"], columns["l2_bytes"], strict=True))
    expected = divided([(int(a), int(a + 10), float(v)) for a, v in zip(edges[:-1], values, strict=True)], works)
    for k, amount in enumerate(expected):
        assert found[f"k{k}"] == pytest.approx(amount, rel=1e-9), k
    busy = sum(v for a, v in zip(edges[:-1], values, strict=True) if any(s < a + 10 and a < e for s, e in works))
    assert sum(found.values()) == pytest.approx(busy)


# Counts of single calls ---------------------------------------------------------------------------------------------


def test_calls_are_counted_apart_once_for_each_pass(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        cuda.fake.fake_set_passes(3)
        called, ready = [], []
        def work(name, us, read):
            called.append(name)
            start = cuda.now()
            cuda.traffic(READ, start, 1000 * us, read)
            while cuda.now() < start + 1000 * us + 1000: pass
        works = (lambda: work("a", 50, 5e6), lambda: work("b", 80, 7e6))
        values = _core.count_calls(0, "memory", lambda: ready.append(1), works)
        print(json.dumps([values, called, len(ready), cuda.counters("open"), cuda.counters("hosts")]))
        """,
    )
    values, called, ready, still_open, hosts = found
    assert [value["dram_bytes_read"] for value in values] == [pytest.approx(5e6), pytest.approx(7e6)]
    assert called == ["a", "b"] * 3 and ready == 6
    assert "fp32_flops" not in values[0] and still_open == 0 and hosts == 0


def test_a_call_that_fails_gives_the_counters_back(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        def fail(): raise ZeroDivisionError("in the call")
        told = []
        try:
            _core.count_calls(0, "memory", lambda: None, (fail,))
        except ZeroDivisionError as problem:
            told.append(str(problem))
        for step in ("cuptiRangeProfilerEnable", "cuptiRangeProfilerSetConfig", "cuptiRangeProfilerStart",
                     "cuptiRangeProfilerPushRange", "cuptiRangeProfilerPopRange", "cuptiRangeProfilerStop",
                     "cuptiRangeProfilerDecodeData", "cuptiProfilerGetCounterAvailability"):
            cuda.fail(step, 26)
            try:
                _core.count_calls(0, "memory", lambda: None, (lambda: None,))
            except RuntimeError as problem:
                told.append(str(problem))
            cuda.fail(step, 0)
        print(json.dumps([told, cuda.counters("open"), cuda.counters("hosts")]))
        """,
    )
    told, still_open, hosts = found
    assert told[0] == "in the call" and len(told) == 9
    assert all("another profiler holds the counters" in text for text in told[1:])
    assert (still_open, hosts) == (0, 0)


def test_calls_are_counted_after_a_profile_has_detached_cupti(library: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        """
        with fs.profile(counters="require") as prof: kernel("k", 20)
        assert cuda.count("finalized") == 1
        start = cuda.now()
        cuda.traffic(READ, start, 50_000_000, 1e9)
        def work():
            while cuda.now() < start + 50_000_000: pass
        values = _core.count_calls(0, "memory", lambda: None, (work,))
        with fs.profile(counters="require") as again: kernel("k", 100, read=1e8); time.sleep(0.001)
        print(json.dumps([values[0]["dram_bytes_read"], counted(again)["k"]["dram_bytes_read"]]))
        """,
    )
    assert 1e8 < found[0] <= 1e9 and found[1] == pytest.approx(1e8, rel=0.01)


# Counters in traces --------------------------------------------------------------------------------------------------


def test_a_profiles_trace_brings_its_counters_back(library: Path, tmp_path: Path) -> None:
    found = run_with_fake(
        library,
        SETUP,
        f"PATH = {str(tmp_path / 'trace.json')!r}",
        """
        with fs.profile(counters="require") as prof:
            for i in range(5):
                kernel("long", 200, read=8e8, written=4e8, tensor=30.0)
            time.sleep(0.002)
        prof.export_chrome_trace(PATH)
        trace = fs.load_trace(PATH)
        first, again = prof.counter_timeline(), trace.counter_timeline()
        print(json.dumps([counted(prof)["long"], counted(trace)["long"], len(first), len(again),
                          sorted(first), sorted(again)]))
        """,
    )
    live, read, samples, again, columns, columns_again = found
    assert columns == columns_again and abs(samples - again) <= 1
    for name in ("dram_bytes_read", "dram_bytes_written", "tensor_active", "dram_gbytes_per_s"):
        assert read[name] == pytest.approx(live[name], rel=1e-4), name


def trace_of(tmp_path: Path, *events: dict[str, object]) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": list(events)}), encoding="utf-8")
    return path


def test_counter_events_of_others_become_the_same_columns(tmp_path: Path) -> None:
    import flopscope as fs

    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 100, "dur": 100, "args": {"stream": 7}}
    points = [
        {"ph": "C", "name": name, "pid": 0, "tid": 1, "ts": 90 + 10 * i, "args": {key: value}}
        for i in range(13)
        for name, key, value in [
            ("dram__bytes_read.sum", "value", 2e6 if 1 <= i < 11 else 0),
            ("sm__cycles_active.avg.pct_of_peak_sustained_elapsed", "value", 50),
            ("power", "W", 300 + i),
        ]
    ]
    elsewhere = {"ph": "C", "name": "dram__bytes_read.sum", "pid": 4321, "tid": 1, "ts": 90, "args": {"value": 1}}
    trace = fs.load_trace(trace_of(tmp_path, kernel, *points, elsewhere))
    row = next(row for row in trace.key_averages(peaks="none") if row.key == "k")
    assert row.dram_bytes_read == pytest.approx(2e7)
    assert row.sm_active == pytest.approx(50)
    assert math.isnan(row.tensor_active)
    timeline = trace.counter_timeline()
    assert timeline["power.W"].tolist()[:3] == [300, 301, 302] and len(timeline) == 12
    assert timeline["dram_bytes_read"].sum() == pytest.approx(2e7)


def test_broken_counter_events_are_left_out(tmp_path: Path) -> None:
    import flopscope as fs

    bad = [
        {"ph": "C", "name": "x", "pid": 0, "ts": 1, "args": {}},
        {"ph": "C", "name": "x", "pid": 0, "ts": 1, "args": {"value": "much"}},
        {"ph": "C", "name": "x", "pid": 0, "ts": 1, "args": {"value": [1, {"a": 2}]}},
        {"ph": "C", "name": "x", "pid": 0, "ts": 1},
        {"ph": "C", "name": "x", "pid": 0, "args": {"value": 1}},
        {"ph": "C", "name": "x" * 600, "pid": 0, "ts": 1, "args": {"value": 1}},
        {"ph": "C", "name": "x", "pid": "zero", "ts": 1, "args": {"value": 1}},
        {"ph": "C", "args": 3, "name": "x", "pid": 0, "ts": 1},
        {"ph": "C", "name": "x", "pid": 0, "ts": 2, "args": {str(i): i for i in range(20)}},
    ]
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 100, "dur": 100, "args": {"stream": 7}}
    trace = fs.load_trace(trace_of(tmp_path, *bad, kernel))
    assert [row.key for row in trace.key_averages(peaks="none")] == ["k"]
    assert len(trace.counter_timeline()) == 0

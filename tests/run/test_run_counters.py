"""flopscope run --counters: programs that use CUDA, by any library, only after it has begun to record."""

import pytest
from helpers.counter_programs import SETUP
from helpers.fake_cupti import Run, runner

RECORD = """
import flopscope.support.package as package
from flopscope.cli.recording import Recording
package.find_library = lambda name: LIBRARY
told = []
recording = Recording(None, {"counters": True, "counter_interval_us": 100}, told.append)
warnings.showwarning = lambda message, *rest: told.append(str(message))
warnings.simplefilter("always")

def until(reached, seconds=10):
    end = time.monotonic() + seconds
    while not reached() and time.monotonic() < end: time.sleep(0.001)
    assert reached()

def counting(devices=1):
    until(lambda: cuda.count("windows") >= devices)
    time.sleep(0.001)  # the first sample of a window is left out
"""
COLD = SETUP.replace("_core.load_counters(LIBRARY)", "cuda.set('cold', 1)").replace(
    "cuda.fake.fake_set_active(1, 0)", ""
)


run = runner(COLD, RECORD)


@pytest.mark.parametrize("primary", [1, 0], ids=["primary", "other"])
def test_counting_begins_with_the_programs_first_context_and_initializes_nothing(run: Run, primary: int) -> None:
    intruded, before, row, still_open, told = run(f"""
        recording.begin()
        time.sleep(0.1)
        before = [cuda.count("intruded"), cuda.count("sessions"), cuda.count("profilers")]
        cuda.fake.fake_context(0, {primary})
        counting()
        kernel("k", 3000, read=1e8)
        time.sleep(0.005)
        prof = recording.end()
        print(json.dumps([cuda.count("intruded"), before, counted(prof)["k"], cuda.count("open"), told]))
        """)
    assert (intruded, before, still_open, told) == (0, [0, 0, 0], 0, [])
    assert row["count"] == 1 and row["dram_bytes_read"] == pytest.approx(1e8, rel=0.01)


def test_each_device_is_counted_from_its_own_first_context(run: Run) -> None:
    rows, devices, told = run("""
        recording.begin()
        cuda.fake.fake_context(1, 1)
        counting()
        kernel("first", 3000, read=1e8, device=1)
        cuda.fake.fake_context(0, 1)
        counting(2)
        kernel("second", 3000, read=3e8, device=0)
        time.sleep(0.005)
        prof = recording.end()
        print(json.dumps([counted(prof), sorted(set(prof.counter_timeline().device.tolist())), told]))
        """)
    assert rows["first"]["dram_bytes_read"] == pytest.approx(1e8, rel=0.01)
    assert rows["second"]["dram_bytes_read"] == pytest.approx(3e8, rel=0.01) and devices == [0, 1] and told == []


def test_a_program_without_a_gpu_is_told_that_nothing_was_counted(run: Run) -> None:
    intruded, told, sessions = run("""
        recording.begin()
        fs.neg(fs.ones(3))
        recording.end()
        print(json.dumps([cuda.count("intruded"), told, cuda.count("sessions")]))
        """)
    assert intruded == 0 and sessions == 0
    assert len(told) == 1 and "nothing was counted: the program used no GPU" in told[0]


def test_a_refusal_is_told_once_and_the_kernels_stay(run: Run) -> None:
    told, row = run("""
        cuda.fail("cuptiPmSamplingEnable", 35)
        recording.begin()
        cuda.fake.fake_context(0, 1)
        until(lambda: cuda.count("profilers") > 0)
        kernel("k", 20)
        prof = recording.end()
        print(json.dumps([told, counted(prof)["k"]]))
        """)
    assert len(told) == 1 and "NVreg_RestrictProfilingToAdminUsers=0" in told[0]
    assert row["count"] == 1 and row["dram_bytes_read"] is None


def test_a_child_that_is_forked_before_cuda_is_used_is_left_alone(run: Run) -> None:
    status, told, row = run("""
        recording.begin()
        child = os.fork()
        if child == 0:
            cuda.fake.fake_context(0, 1)
            recording.end()
            os._exit(0 if cuda.count("sessions") == 0 else 1)
        status = os.waitpid(child, 0)[1]
        cuda.fake.fake_context(0, 1)
        counting()
        kernel("k", 3000, read=1e8)
        time.sleep(0.005)
        prof = recording.end()
        print(json.dumps([status, told, counted(prof)["k"]["dram_bytes_read"]]))
        """)
    told = [line for line in told if "use of fork() may lead to deadlocks" not in line]  # Python 3.12 and later say so
    assert status == 0 and told == [] and row == pytest.approx(1e8, rel=0.01)


@pytest.mark.parametrize(("window", "first_ns"), [("None", 100_000), ("Window('seconds', 0, 60)", 2500)])
def test_a_whole_program_is_counted_live_and_a_part_of_it_finely(run: Run, window: str, first_ns: int) -> None:
    found = run(f"""
        from flopscope.cli.recording import Window
        recording = Recording({window}, {{"counters": True}}, told.append)
        """, """
        recording.begin()
        cuda.fake.fake_context(0, 1)
        counting()
        kernel("k", 3000, read=1e8)
        counters = recording._prof._counters
        prof = recording.end()
        print(json.dumps([told, counters._samplers[0].report["first_interval_ns"]]))
        """)  # fmt: skip
    assert found == [[], first_ns]

"""Counting before, in and after other captures, on a fake CUPTI that is strict about the order of calls."""

from typing import Any

import pytest
from helpers.counter_programs import SETUP
from helpers.fake_cupti import Run, runner

WAKES = {"a subscription": 0, "any activity": 1, "the activity of kernels": 2, "kernels being recorded": 3}

COUNT = """
from types import SimpleNamespace
from flopscope.measuring.counting import count_call

FADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
class Device:
    kind = "cuda"
    def __str__(self): return "cuda:0"

def work(us=30):
    start = cuda.launch("counted", 1000 * us)
    for metric, amount in ((READ, 5e6), (FADD, 7e6), ("smsp__sass_thread_inst_executed.sum", 9e6),
                           ("smsp__inst_executed.sum", 3e5)):
        cuda.traffic(metric, start, 1000 * us, amount)
    while cuda.now() < start + 1000 * us + 1000: pass

def count(call=work, require=True):
    events = ({"name": [], "kind": []}, [], ["kernel"], 0)
    nothing = SimpleNamespace(core=SimpleNamespace(events=lambda: events, names=lambda: []))
    stage = SimpleNamespace(device=Device(), looks=[nothing], cold=False, notes=[])
    try:
        counts = count_call(stage, call, None, require)
    except RuntimeError as problem:
        return {"error": str(problem)}
    return {"read": counts.get("dram_bytes_read"), "flops": counts.get("fp32_flops"), "notes": stage.notes}

def state():
    return [cuda.count("open"), cuda.count("hosts")]
"""
COUNTED = {"read": pytest.approx(5e6), "flops": pytest.approx(7e6), "notes": []}


run = runner(SETUP, COUNT)


@pytest.mark.parametrize("wake", WAKES.values(), ids=WAKES)
def test_a_call_is_counted_after_a_profile_whatever_brings_cupti_back(run: Run, wake: int) -> None:
    first, second, finalized, still_open, kernels, read = run(f"cuda.set('wakes_by', {wake})\n", """
        with fs.profile(): cuda.launch("k")
        detached = cuda.count("finalized")
        first = count()
        second = count()
        with fs.profile(counters="require") as prof: kernel("k", 100, read=1e8); time.sleep(0.001)
        row = counted(prof)["k"]
        print(json.dumps([first, second, detached, state(), row["count"], row["dram_bytes_read"]]))
        """)  # fmt: skip
    assert finalized == 1 and still_open == [0, 0] and kernels == 1 and read == pytest.approx(1e8, rel=0.01)
    for found in (first, second):
        if wake < 3:
            assert found == COUNTED
        else:  # kernels are recorded meanwhile, so FLOP instructions are unknown, not 0
            assert found["read"] == pytest.approx(5e6) and found["flops"] is None
            assert any("FLOP instructions are not counted" in note for note in found["notes"])


def test_a_cupti_that_does_not_come_back_is_named(run: Run) -> None:
    found, row = run("""
        with fs.profile(): cuda.launch("k")
        cuda.fail("cuptiProfilerInitialize", 15)
        found = count()
        with fs.profile() as prof: cuda.launch("k")
        print(json.dumps([found, counted(prof)["k"]["count"]]))
        """)
    assert "detached from the process by another profiler" in found["error"] and row == 1


def test_a_call_is_counted_inside_a_profile_which_keeps_its_kernels(run: Run) -> None:
    found, kernels, still_open, finalized = run("""
        with fs.profile() as prof:
            found = count()
        print(json.dumps([found, counted(prof)["counted"]["count"], state(), cuda.count("finalized")]))
        """)
    assert found["read"] == pytest.approx(5e6) and found["flops"] is None
    assert kernels >= 4 and still_open == [0, 0] and finalized == 1


def test_a_call_is_not_counted_inside_a_profile_that_counts_itself(run: Run) -> None:
    found, row, still_open = run("""
        with fs.profile(counters="require") as prof:
            kernel("k", 100, read=1e8)
            found = count()
            time.sleep(0.001)
        print(json.dumps([found, counted(prof)["k"]["dram_bytes_read"], state()]))
        """)
    assert "another profiler counts on this GPU" in found["error"]
    assert row == pytest.approx(1e8, rel=0.01) and still_open == [0, 0]


def test_a_profile_that_ends_while_a_call_is_counted_leaves_cupti_attached(run: Run) -> None:
    found, finalized, kernels = run("""
        kernels = []
        def call():
            with fs.profile() as prof: work()
            kernels.append(counted(prof)["counted"]["count"])
        found = count(call)
        between = cuda.count("finalized")
        with fs.profile(): cuda.launch("k")
        print(json.dumps([found, [between, cuda.count("finalized")], kernels]))
        """)
    assert "error" not in found  # its numbers are those of two clocks, because the profile sets that of CUPTI
    assert finalized == [0, 1] and set(kernels) == {1}


PROGRAMS = {  # and what each prints
    "from a thread without a context": ("""
        found = []
        thread = threading.Thread(target=lambda: found.append(count()))
        thread.start(); thread.join()
        print(json.dumps([found, cuda.count("pushed"), cuda.count("retained")]))
        """, [[COUNTED], 0, 0]),
    "within a measurement, whose profiles leave CUPTI attached until its end": ("""
        cuda.set("wakes_by", 3)
        from flopscope.measuring.counting import cupti_stays
        with cupti_stays(True), cupti_stays(False):
            for _ in range(2):
                with fs.profile(): cuda.launch("k")
            found, between = count(), cuda.count("finalized")
        with fs.profile(): cuda.launch("k")
        print(json.dumps([found, [between, cuda.count("finalized")]]))
        """, [COUNTED, [0, 1]]),
    "while another device is sampled": ("""
        cuda.fake.fake_set_active(1, 1)
        sampler = _core.Sampler(1)
        sampler.start()
        values = _core.count_calls(0, "memory", lambda: None, (work,))
        sampler.stop()
        print(json.dumps([values[0]["dram_bytes_read"], state()]))
        """, [pytest.approx(5e6), [0, 0]]),
    "without the one group that fails": ("""
        calls = []
        count_calls = _core.count_calls
        def failing(device, group, *rest):
            if group == "stalls": raise RuntimeError("no stalls today")
            return count_calls(device, group, *rest)
        _core.count_calls = failing
        found = count()
        print(json.dumps([found["read"], found["notes"]]))
        """, [pytest.approx(5e6), ["the counters of the group stalls are missing: no stalls today"]]),
}  # fmt: skip


@pytest.mark.parametrize(("program", "found"), PROGRAMS.values(), ids=PROGRAMS)
def test_a_call_is_counted(run: Run, program: str, found: list[Any]) -> None:
    assert run(program) == found


@pytest.mark.parametrize("before", [True, False])
def test_a_call_is_counted_beside_a_client_that_is_idle(run: Run, before: bool) -> None:
    found = run(f"""
        cuda.take("")  # torch.profiler, which keeps its subscription
        if {before}:
            with fs.profile(): cuda.launch("k")
        print(json.dumps([count(), cuda.count("finalized")]))
        """)
    assert found == [COUNTED, 0]


def test_a_context_that_is_destroyed_while_it_is_counted_is_named(run: Run) -> None:
    found, again, still_open = run("""
        def reset():
            work()
            cuda.fake.fake_set_active(0, 0)
        found = count(reset)
        cuda.fake.fake_set_active(0, 1)
        print(json.dumps([found, count(), state()]))
        """)
    assert "context was destroyed" in found["error"] and again == COUNTED and still_open == [0, 0]


def test_a_forked_child_says_that_it_cannot_count(run: Run) -> None:
    status, sampler, child, parent = run("""
        count()
        receive, send = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(send, json.dumps([refused(_core.Sampler().start), count()]).encode())
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(json.dumps([status, *json.loads(os.read(receive, 4096)), count()]))
        """)
    assert status == 0 and parent == COUNTED
    assert "forked after CUPTI was loaded" in sampler and "forked after CUPTI was loaded" in child["error"]


@pytest.mark.parametrize("version", [24, 26, 130001])
def test_each_version_of_cupti_gets_its_own_arguments(run: Run, version: int) -> None:
    read = run(f"cuda.set('version', {version})\n", """
        with fs.profile(counters="require") as prof: kernel("k", 100, read=1e8); time.sleep(0.001)
        print(json.dumps([counted(prof)["k"]["dram_bytes_read"], count()]))
        """)  # fmt: skip
    assert read == [pytest.approx(1e8, rel=0.01), COUNTED]


# Sessions, as the core opens them -------------------------------------------------------------------------------------


def test_calls_are_counted_apart_once_for_each_pass(run: Run) -> None:
    values, called, ready, still_open, hosts = run("""
        cuda.set("passes", 3)
        called, ready = [], []
        def work(name, us, read):
            called.append(name)
            start = cuda.now()
            cuda.traffic(READ, start, 1000 * us, read)
            while cuda.now() < start + 1000 * us + 1000: pass
        works = (lambda: work("a", 50, 5e6), lambda: work("b", 80, 7e6))
        values = _core.count_calls(0, "memory", lambda: ready.append(1), works)
        print(json.dumps([values, called, len(ready), cuda.count("open"), cuda.count("hosts")]))
        """)
    assert [value["dram_bytes_read"] for value in values] == [pytest.approx(5e6), pytest.approx(7e6)]
    assert called == ["a", "b"] * 3 and ready == 6
    assert "fp32_flops" not in values[0] and still_open == 0 and hosts == 0


def test_counters_that_never_are_complete_are_an_error(run: Run) -> None:
    error, passes, still_open = run("""
        cuda.set("passes", 200)
        error = refused(lambda: _core.count_calls(0, "memory", lambda: None, (lambda: None,)))
        print(json.dumps([error, cuda.count("range_passes"), cuda.count("open")]))
        """)
    assert "not complete after 64 passes" in error and (passes, still_open) == (64, 0)


def test_a_call_that_fails_gives_the_counters_back(run: Run) -> None:
    told, still_open, hosts = run("""
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
            told.append(refused(lambda: _core.count_calls(0, "memory", lambda: None, (lambda: None,))))
            cuda.fail(step, 0)
        print(json.dumps([told, cuda.count("open"), cuda.count("hosts")]))
        """)
    assert told[0] == "in the call" and len(told) == 9
    assert all("another profiler holds the counters" in text for text in told[1:]) and (still_open, hosts) == (0, 0)


# Sampled instructions -------------------------------------------------------------------------------------------------

SAMPLE = """
def sample():
    _core.start_pc_sampling(0, 12)
    return _core.stop_pc_sampling()
"""


def test_samples_of_instructions_are_those_of_their_lines(run: Run) -> None:
    found = run(SAMPLE, "print(json.dumps([sample(), sample(), cuda.count('open')]))")
    (rows, codes, lost, unknown), again, still_open = found
    waits = {"stall_barrier": 20, "selected": 60}
    lines = [["f()", "/nowhere/kernel.py", line, offset, 80, waits, ""] for line, offset in ((1, 48), (2, 80))]
    assert rows == [*lines, ["plain", None, 0, 16, 40, {"stall_barrier": 10, "selected": 30}, "STG.32"]]
    assert codes["f()"] == codes["plain"] and codes["plain"]["4-byte loads"] == 2 and len(codes) == 2
    assert (lost, unknown, still_open) == (2, 0, 0) and again == [rows, codes, lost, unknown]


def test_the_code_of_a_kernel_of_two_modules_is_unknown(run: Run) -> None:
    rows, codes, _, _ = run(SAMPLE, "cuda.set('twins', 1)\nprint(json.dumps(sample()))")
    assert [(row[2], row[3], row[6]) for row in rows if row[0] == "f()"] == [(2, 80, ""), (0, 32, ""), (1, 48, "")]
    assert [*codes] == ["plain"]


def test_a_profile_samples_instructions_instead_of_kernels(run: Run) -> None:
    text, kernels, twice, refusals = run("""
        with fs.profile(stalls=True) as prof:
            cuda.launch("k", 1000)
            twice = refused(lambda: _core.start_pc_sampling(0, 12))
        refusals = [refused(fs.profile().stalls)]
        for other in ({"counters": True}, {"timer": "cupti"}):
            try: fs.profile(stalls=True, **other)
            except ValueError as problem: refusals.append(str(problem))
        print(json.dumps([str(prof.stalls()), sum(row.device_type == "cuda" for row in prof.key_averages()), twice,
                          refusals]))
        """)
    assert text.startswith(" 80 %  f()\n       issues 75 %, waits for 25 % a barrier\n") and kernels == 0
    assert "50 % at kernel.py:1 (25 % of it wait for a barrier)" in text and "sampled already" in twice
    assert "at STG.32 0x10" in text and "its code has 2 4-byte loads, 1 16-byte loads, 1 4-byte stores, 1 acc" in text
    assert "profile(stalls=True)" in refusals[0] and all("excludes counters=True" in text for text in refusals[1:])


def test_a_capture_beside_sampling_is_refused_and_both_work_afterwards(run: Run) -> None:
    refusal, rows, kernels, subscribed = run(SAMPLE, """
        _core.start_pc_sampling(0, 12)
        refusal = refused(_core.Profiler(cupti=True).start)
        rows = len(_core.stop_pc_sampling()[0])
        with fs.profile() as prof: cuda.launch("k", 1000)
        print(json.dumps([refusal, rows, sum(row.device_type == "cuda" for row in prof.key_averages()),
                          len(sample()[0])]))
        """)  # fmt: skip
    assert "being sampled" in refusal and (rows, kernels, subscribed) == (3, 1, 3)


def test_sampling_that_fails_leaves_nothing_open(run: Run) -> None:
    told, rows, still_open = run(SAMPLE, """
        with fs.profile(): told = [refused(sample)]
        told.append(refused(_core.stop_pc_sampling))
        for step in ("Enable", "GetNumStallReasons", "GetStallReasons", "SetConfigurationAttribute", "Start", "Stop",
                     "GetData"):
            cuda.fail("cuptiPCSampling" + step, 26)
            told.append(refused(sample))
            cuda.fail("cuptiPCSampling" + step, 0)
        print(json.dumps([told, len(sample()[0]), cuda.count("open")]))
        """)  # fmt: skip
    assert "a profile is in progress" in told[0] and "no instructions are sampled" in told[1]
    assert all("another profiler holds the counters" in text for text in told[2:]) and (rows, still_open) == (3, 0)


def test_steps_that_nothing_records_are_sampled_in_a_run(run: Run) -> None:
    rows, told, count, bare = run("""
        from flopscope.cli.recording import Recording
        told = []
        recording = Recording(None, {"stalls": True}, told.append)
        recording.begin()
        until = time.monotonic() + 30
        while time.monotonic() < until and not recording._stalls.rows:
            cuda.launch("k", 1000)
            cuda.launch("k", 1000)
            time.sleep(0.005)
            fs.step()
        for _ in range(9): fs.step()
        recording.end()
        steps = recording.about()["steps"]
        print(json.dumps([steps["stalls"], told, steps["steps"], steps["bare_steps"]]))
        """)
    assert [row[0] for row in rows] == ["f()", "plain"] and "issues 75 %, waits for 25 % a barrier; 50 %" in rows[0][2]
    assert count - bare > 20 and bare > 9 and "2 were lost" in told[0]

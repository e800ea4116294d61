"""Pipes, issue slots and the L2 in the one pass of PM sampling, on a fake CUPTI and in traces of other tools."""

import math

import pytest
from helpers.counter_programs import SETUP
from helpers.fake_cupti import Run, runner
from helpers.hand_traces import Program

UNITS = """
UNIT = {
    "fma_active": "TPC.TriageCompute.sm__inst_executed_pipe_fma_realtime",
    "fp64_active": "TPC.TriageCompute.sm__pipe_fp64_cycles_active_realtime",
    "alu_active": "TPC.TriageCompute.sm__inst_executed_pipe_alu_realtime",
    "issue_active": "TPC.TriageCompute.sm__inst_executed_realtime",
}

def works(name, us=200, sectors=0.0, **units):
    start = kernel(name, us)
    cuda.traffic("lts__t_sectors_srcunit_tex.sum", start, 1000 * us, sectors)
    for unit, percent in units.items():
        cuda.traffic(UNIT[unit] + ".avg.pct_of_peak_sustained_elapsed", start, 1000 * us, 1000 * us * percent)

def roofs(prof):
    row = next(row for row in prof.key_averages(peaks="none") if row.key == "k")
    values = {name: getattr(row, name) for name in (*UNIT, "l2_bytes", "dram_bytes_read")}
    return {name: None if math.isnan(value) else value for name, value in values.items()}
"""


run = runner(SETUP, UNITS)


def test_pipes_issue_slots_and_l2_are_read_in_the_one_pass(run: Run) -> None:
    found = run("""
        with fs.profile(counters="require") as prof:
            for _ in range(5):
                works("k", sectors=1e6, fma_active=80.0, fp64_active=7.0, alu_active=30.0, issue_active=90.0)
            time.sleep(0.002)
        print(json.dumps(roofs(prof)))
        """)
    assert found["l2_bytes"] == pytest.approx(5 * 32e6, rel=0.01), "a sector is 32 bytes"
    for name, percent in {"fma_active": 80, "fp64_active": 7, "alu_active": 30, "issue_active": 90}.items():
        assert found[name] == pytest.approx(percent, rel=0.02), name


@pytest.mark.parametrize("lacks", ["fma_active", "alu_active", "lts__t_sectors_srcunit_tex.sum"])
def test_a_gpu_that_lacks_a_unit_counts_the_others(run: Run, lacks: str) -> None:
    found = run(f"""
        lacks = UNIT.get("{lacks}", "")
        cuda.fake.fake_lack((lacks + ".avg.pct_of_peak_sustained_elapsed" if lacks else "{lacks}").encode())
        cuda.fake.fake_lack(("sm__inst_executed_pipe_alu_realtime.avg.pct_of_peak_sustained_elapsed").encode())
        with fs.profile(counters="require") as prof:
            for _ in range(5): works("k", sectors=1e6, fp64_active=7.0, issue_active=90.0)
            time.sleep(0.002)
        print(json.dumps(roofs(prof)))
        """)
    assert [name for name in found if found[name] is None] == ["l2_bytes" if "lts" in lacks else lacks]
    assert found["fp64_active"] == pytest.approx(7, rel=0.02)


def test_where_not_all_fit_one_pass_the_last_are_left_out(run: Run) -> None:
    row, columns, hosts = run("""
        cuda.set("fitting", 6)
        with fs.profile(counters="require") as prof:
            for _ in range(5): works("k", sectors=1e6, fma_active=80.0)
            time.sleep(0.002)
        print(json.dumps([roofs(prof), prof.counter_timeline().columns.tolist(), cuda.count("hosts")]))
        """)
    assert row["fma_active"] == pytest.approx(80, rel=0.02) and row["dram_bytes_read"] is not None
    assert row["l2_bytes"] is None and hosts == 0
    assert len({"dram_bytes_read", "dram_bytes_written", "sm_active", "tensor_active", "fma_active"} & {*columns}) == 5


def test_live_samples_lack_the_pipes_that_take_longest_to_decode(run: Run) -> None:
    found = run("""
        with fs.profile(counters="require", counter_interval_us=100) as prof:
            for _ in range(20):
                works("k", us=1000, sectors=1e6, fma_active=80.0, fp64_active=7.0, alu_active=30.0, issue_active=90.0)
            time.sleep(0.002)
        print(json.dumps(roofs(prof)))
        """)
    assert [name for name in found if found[name] is None] == ["fma_active", "fp64_active"]
    assert found["alu_active"] == pytest.approx(30, rel=0.02) and found["issue_active"] == pytest.approx(90, rel=0.02)


def test_a_share_counted_in_a_part_of_the_work_is_the_mean_of_that_part() -> None:
    program = Program()
    for start in range(0, 4000, 100):
        program.work("early" if start < 2000 else "late", start, 100)
    for at in range(0, 4010, 10):
        values = {"dram_bytes_read": 1e6} | ({"fma_active": 60.0} if at < 1000 else {})
        for name, value in values.items():
            program.count(name, at, value if at < 4000 else 0)
    rows = {row.key: row for row in program.load().key_averages()}
    assert rows["early"].fma_active == pytest.approx(60) and math.isnan(rows["late"].fma_active)
    assert rows["early"].dram_bytes_read == rows["late"].dram_bytes_read == pytest.approx(200e6)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("lts__t_sectors_srcunit_tex.sum", 1e6, 40 * 32e6),
        ("l2_bytes", 1e6, 40e6),
        ("lts__t_bytes.sum", 1e6, math.nan),  # which counts what passes from one partition to another twice
    ],
)
def test_metrics_of_cupti_in_a_trace_have_our_units(name: str, value: float, expected: float) -> None:
    program = Program()
    program.work("kernel", 0, 400)
    for at in range(0, 410, 10):
        program.count(name, at, value if at < 400 else 0)
    trace = program.load()
    (row,) = [row for row in trace.key_averages() if row.key == "kernel"]
    assert row.l2_bytes == pytest.approx(expected, nan_ok=True)
    assert math.isnan(row.pct_peak_l2), "no datasheet has the bandwidth of an L2"
    if math.isnan(expected):
        assert name in trace.counter_timeline().columns

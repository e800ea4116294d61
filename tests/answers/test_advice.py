"""Advice: each rule on a program that has the fault and on one that has not, and the table of the advice."""

import json
import statistics
from collections.abc import Callable
from typing import Any

import pytest
from helpers import faulty_programs as faulty
from helpers.advice_cases import PAIRS, TRACES, check, recorded, savings
from helpers.faulty_programs import CASES, SIZE
from helpers.hand_traces import BF16, FLOAT, PEAKS, Program, call, in_a_row, kernel, load, op
from helpers.recordings import WELL_MADE

import flopscope as fs
from flopscope.answers.advice import RULES, Advice
from flopscope.answers.analysis import analysis_of
from flopscope.answers.findings import Finding
from flopscope.answers.words import Said
from flopscope.show.advice import AdviceTable

# The rules ------------------------------------------------------------------------------------------------------------


def test_every_rule_has_a_program_with_its_fault() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_finds_its_fault_and_is_silent_without_it(rule: str) -> None:
    with_fault, healthy = CASES[rule]
    assert check(with_fault().load())[0].rule == rule and rule not in savings(check(healthy().load()))
    if rule == "layout":  # copies of one dimension keep their order
        for shape in ((SIZE,), (1, SIZE)):
            assert rule not in savings(faulty.contiguous(True, shape).load().advice())


@pytest.mark.parametrize("name", [name for name, pair in PAIRS.items() if pair["rules"]])
def test_the_gain_of_a_change_is_estimated(name: str) -> None:
    """Programs measured on an H200 before and after the change, without a profiler."""
    pair = PAIRS[name]
    gained = 1000 * (pair["before_ms"] - pair["after_ms"])
    named = [row for row in check(recorded(f"{name}_before"))[:2] if row.rule in pair["rules"]]
    assert named and 0.5 * gained <= named[0].saving_us <= 2 * gained
    left = savings(check(recorded(f"{name}_after"))).get(named[0].rule, 0.0)
    assert left <= 0.25 * named[0].saving_us


def test_ops_that_are_left_out_save_no_more_idle_time_than_the_host_takes_for_them() -> None:
    program = faulty.late()  # idle for 900 µs before the second op, for another reason
    shape = [1024, 1024]
    for at in (0, 2000):
        program.op("aten::contiguous", at + 1370, 15, shape)
        more = {"kernel": "direct_copy_kernel", "strides": faulty.transposed(shape)}
        program.run("aten::copy_", at + 1372, at + 1385, 10, shape, shape, **more)
    found = savings(program.load().advice())["layout"]
    assert 0.9 * 10 < found <= 0.9 * (10 + 2000 / 3), "one of three launches in the host's 2000 µs a step"


def test_tf32_saves_the_difference_to_the_tensor_cores() -> None:
    advice = faulty.product("aten::mm", "volta_sgemm_128x64_nn", FLOAT, 20_000).load().advice()
    then = 2 * 8192**3 / PEAKS["tf32_tensor"] / 0.7 * 1e6
    assert savings(advice) == pytest.approx({"tf32": 20_000 - then}, rel=1e-3)


def test_waits_save_their_time_and_computation_hides_as_much_as_it_lasts() -> None:
    assert savings(faulty.late(data=True).load().advice())["data"] == pytest.approx(0.95 * 880)
    assert savings(CASES["straggler"][0]().load().advice())["straggler"] == pytest.approx(800)
    program = faulty.collectives(400, 400, 400, computed=200)
    assert savings(program.load().advice())["communication"] == pytest.approx(0.8 * 200)


# Well-made programs, recorded on an H200 ------------------------------------------------------------------------------

SAMPLES = json.loads((WELL_MADE / "measured.json").read_text(encoding="utf-8"))["programs"]
"""Samples in ms per step, without a profiler: of the program as it is, and with the option that follows a rule."""
LEAST_PCT = 3.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SAMPLES)
def test_advice_above_three_percent_gains_at_least_half_of_what_it_promises(name: str) -> None:
    samples = SAMPLES[name]
    as_made = statistics.median(samples["as made"])
    for row in fs.load_trace(WELL_MADE / f"{name}.json.gz").advice():
        if row.saving_pct > LEAST_PCT:
            assert row.rule in samples, f"{row.rule} was not shown to gain: {row.what}"
            gained = 100 * (1 - statistics.median(samples[row.rule]) / as_made)
            assert gained >= row.saving_pct / 2, (row.rule, row.saving_pct, gained)


# No time is claimed twice ---------------------------------------------------------------------------------------------


def test_two_rules_share_the_time_of_an_op() -> None:
    """The products of an attention in TF32 would be faster in bfloat16, and vanish into a fused kernel."""
    kernel = {"dtype": FLOAT, "kernel": "sm80_xmma_gemm_f32f32_tf32f32_f32_nn"}
    scores = [64, 2048, 2048]
    program = in_a_row(
        ("aten::bmm", 900.0, ([64, 2048, 128], [64, 128, 2048]), kernel),
        ("aten::_softmax", 800.0, (scores,), {"dtype": FLOAT, "kernel": "softmax_warp_forward"}),
        ("aten::bmm", 900.0, (scores, [64, 2048, 128]), kernel),
    )
    analysis = analysis_of(program.load(), "advice")
    alone = {name: list(RULES[name](analysis)) for name in ("attention", "low_precision")}
    wanted = sum(time for found in alone.values() for finding in found for _, time in finding.claims)
    busy = sum(op.time for op in analysis.ops)
    assert all(alone.values()) and wanted > busy
    advice = check(program.load())
    assert "attention" in savings(advice) and sum(row.saving_us for row in advice) <= busy + analysis.idle("host")


@pytest.mark.parametrize("name", [name for name in TRACES if name.endswith("before")])
def test_rules_that_claim_everything_gain_a_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rules claim the whole of every op and idle time."""

    def greedy(analysis: Any) -> Any:
        claims = [(source, source.time) for source in (*analysis.ops, *analysis.gaps)]
        yield Finding(Said("Give it more", "it has few.", {"op": "op"}), claims, [], None, analysis.ops)

    for rule in ("data", "attention", "launch"):
        monkeypatch.setitem(RULES, rule, greedy)  # type: ignore[arg-type]
    trace = recorded(name)
    assert sum(row.saving_us for row in trace.advice()) <= analysis_of(trace, "advice").unobserved * (1 + 1e-9)


def test_a_busy_host_limits_what_a_faster_device_gains() -> None:
    """The host works for 1900 of 2010 µs; TF32 would save over 1000 µs of the device's time, of which 110 count."""
    kernel = {"kernel": "volta_sgemm_128x64_nn"}
    fast = savings(in_a_row(("aten::mm", 2000.0, ([4096, 4096], [4096, 4096]), kernel), host=10).load().advice())
    slow = savings(in_a_row(("aten::mm", 2000.0, ([4096, 4096], [4096, 4096]), kernel), host=1900).load().advice())
    assert fast["tf32"] > 1000 and slow["tf32"] == pytest.approx(110, abs=30)


# Where ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frames", [True, False])
def test_the_place_is_a_line_of_the_program_or_else_a_module(frames: bool) -> None:
    program = faulty.product("aten::mm", "volta_sgemm_128x64_nn", FLOAT, 20_000)
    program.add("python_function", "nn.Module: Linear_3", 0, 6)
    if frames:
        program.add("python_function", "/home/me/train.py(42): forward", 0, 5.5)
        program.add("python_function", "torch/nn/functional.py(7): linear", 0.5, 4.5)
    (row,) = program.load().advice()
    assert row.where == ("/home/me/train.py(42): forward" if frames else "Linear_3")
    assert f"at {row.where}\n" in str(program.load().advice())


# Counters -----------------------------------------------------------------------------------------------------------


def in_cache(gbytes_per_s: float, l2: float | None = None) -> Program:
    """Return a program of one op, which reads 2^26 floats in 60 µs: at 93 % of the bandwidth by its model."""
    program = faulty.counted(in_a_row(("aten::sum", 60.0, ([SIZE],))), gbytes_per_s)
    if l2 is not None:
        points = [event for event in program.events if event["name"] == "dram_bytes_read"]
        program.events += [{**event, "name": "l2_bytes", "args": {"GB/s": l2}} for event in points]
    return program


def test_cache_hits_make_the_roofline_no_measure_but_traffic_near_the_model_is_none() -> None:
    model = 4 * SIZE / 60e-6  # bytes/s: 4.47e12 of 4.8e12
    trace = in_cache(0.3 * model / 1e9, l2=5200).load()
    (note,) = [note for note in trace.advice().notes if note.startswith("Cache hits")]
    assert "aten::sum moved 0.30 × the bytes of its model" in note
    assert "Its 93 % of the memory's bandwidth therefore says nothing: the memory was at 28 %" in note
    assert "the L2 bounds it, which served 5.2 TB/s" in note
    (row,) = [row for row in trace.key_averages(peaks="datasheet") if row.key == "aten::sum"]
    assert row.bound == "cache" and row.traffic_ratio == pytest.approx(0.3, abs=0.01)
    assert row.pct_peak_bandwidth == pytest.approx(93.2, abs=0.1)
    assert "served" not in str(in_cache(0.3 * model / 1e9).load().advice())
    for share, bound in ((0.75, "memory"), (0.65, "cache")):
        trace = in_cache(share * model / 1e9).load()
        (row,) = [row for row in trace.key_averages(peaks="datasheet") if row.key == "aten::sum"]
        assert row.bound == bound
        assert any(note.startswith("Cache hits") for note in trace.advice().notes) == (bound == "cache")
    assert "Cache hits" not in str(in_a_row(("aten::sum", 60.0, ([SIZE],))).load().advice())


# Profiles that lack something -----------------------------------------------------------------------------------------


def without_shapes() -> Program:
    program = in_a_row(("aten::mm", 500.0, (), {"kernel": "nvjet_tst"}))
    program.head["record_shapes"] = 0
    return program


def without_ops() -> Program:
    program = Program()
    program.work("of_a_graph", 0, 500, correlation=1)
    program.work("of_a_graph", 500, 500, correlation=1)
    return program


def without_steps() -> Program:
    program = faulty.late()
    program.events = [event for event in program.events if "Step" not in event["name"]]
    return program


def without_device_work() -> Program:
    program = Program()
    program.op("aten::mm", 0, 50, [64, 64], [64, 64])
    program.call("cudaLaunchKernel", 10, 5)
    return program


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (without_shapes, ("record_shapes=True",)), (without_ops, ("no op that did it was recorded", "its capture")),
        (without_steps, ("prof.step()",)), (without_device_work, ("ProfilerActivity.CUDA",)),
    ],
)  # fmt: skip
def test_the_notes_ask_for_what_is_missing(make: Callable[[], Program], words: tuple[str, ...]) -> None:
    advice = check(make().load())
    assert any(all(word in note for word in words) for note in advice.notes)
    if make is without_steps:
        assert "a step (" not in str(advice)
        assert not any("prof.step()" in note for note in faulty.late().load().advice().notes)


def test_where_peaks_are_unknown_the_notes_say_why_time_is_unmodelled() -> None:
    program = Program(devices=0, step=1000)
    program.op("aten::mm", 1, 500, [64, 64], [64, 64])
    trace = program.load()
    assert list(trace.accounting()["unmodelled"]) == [500.0, 500.0]
    assert any("cpu has no limits" in note and "does not name its CPU" in note for note in trace.advice().notes)
    assert not any("unmodelled" in note for note in trace.advice(peaks="none").notes)
    assert not any("unmodelled" in note for note in faulty.late().load().advice().notes)


# The table ------------------------------------------------------------------------------------------------------------


def test_advice_is_a_sequence_with_a_frame() -> None:
    advice = faulty.attention(False).load().advice()
    frame = advice.to_pandas()
    assert list(frame.columns) == list(Advice._fields) and len(frame) == len(advice) == len(list(advice))
    assert list(frame["saving_us"]) == [row.saving_us for row in advice]
    first = "1. Use torch.nn.functional.scaled_dot_product_attention: saves about "
    assert str(advice) == repr(advice) and str(advice).startswith(first)
    empty = faulty.chain(SIZE, SIZE // 2).load().advice()[:0]
    assert list(AdviceTable(empty, True, []).to_pandas().columns) == list(Advice._fields)


def test_names_are_escaped_in_html_and_text() -> None:
    program = in_a_row(("<script>alert(1)</script>\x1b[2J", 500.0, ([8, SIZE],), {"blocks": 8, "dtype": BF16}))
    program.add("python_function", "nn.Module: <b>" + "x" * 200, 0, 10)
    advice = check(program.load())
    html = advice._repr_html_()
    assert advice[0].rule == "small" and "&lt;script&gt;" in html
    for text in ("<script", "<b>", "\x1b"):
        assert text not in html
    assert "\x1b" not in str(advice)


def test_nothing_to_gain_is_said() -> None:
    advice = in_a_row(faulty.FILL).load().advice()
    assert len(advice) == 0 and "Nothing was found that saves at least 1%" in str(advice)
    assert "Nothing was found that saves at least 1%" in advice._repr_html_() and "<table" not in advice._repr_html_()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ([], True),
        ([call("cudaLaunchKernel", 20, 5, correlation=1), kernel("triton_poi_fused_0", 50, 400, correlation=1)], False),
        ([op("graph_0_cpp_fused_add_0", 20, 800)], False),
        ([op("aten::mm", 1000, 5000)], False),
    ],
    ids=["not recorded", "kernels of a device", "recorded", "other ops without shapes"],
)
def test_code_generated_for_a_cpu_is_named_with_its_setting(more: list[Any], named: bool) -> None:
    """Where it is most of what is not modelled."""
    events = [op("Torch-Compiled Region: 0/0", 0, 900), op("aten::empty", 10, 5)]
    said = str(load(*events, *more, record_shapes=1).summary())
    assert ("cpp.enable_kernel_profile" in said) == named
    assert ("record no sizes" in " ".join(said.split())) == any("_cpp_" in str(event) for event in more)

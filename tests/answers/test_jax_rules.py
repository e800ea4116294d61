"""Advice for programs of JAX: what their HLO must show, and what is said; the programs are made by hand."""

import json
from pathlib import Path

import pytest
from helpers import DATA
from helpers.advice_cases import check, savings, told
from helpers.faulty_programs import collectives
from helpers.hand_traces import quietly, rewritten
from helpers.jax_cases import ARRAY, D2D, JaxProgram, called_back, carried, module, precise, undonated, widened

import flopscope as fs

NARROWED = 2 * 4096**3 / 989e6  # µs of the product of bfloat16 factors


@pytest.mark.parametrize(
    ("rule", "program", "least", "most", "words"),
    [
        ("donate", undonated(True), 0.95 * 130, 0.95 * 130, ("state['cache']", "donate_argnums")),
        ("carry", carried(True), 0.95 * 4 * 130, 0.95 * 4 * 130, ("4 times a step", "16384x4096")),
        ("callback", called_back(True), 380, 420, ("pure_callback calls Python on the host 1 time a step",)),
        ("precision", precise(True), 1500, 2700, ("highest precision was asked for",)),
        ("precision", widened(True), 0, 420 - NARROWED, ("bfloat16 factors to float32", "preferred_element_type")),
    ],
)
def test_a_fault_of_a_program_is_named_with_its_time(
    rule: str, program: JaxProgram, least: float, most: float, words: tuple[str, ...]
) -> None:
    (row,) = told(program, rule)
    assert row.saving_us > 0 and 0.999 * least <= row.saving_us <= 1.001 * most
    assert all(word in row.reason for word in words)
    assert rule != "donate" or [(one["op"], one["calls"]) for one in row.evidence] == [("copy.1", 1)]
    assert rule != "callback" or "sync" not in savings(program.load().advice())


def test_products_on_cuda_cores_are_of_float32_and_narrow_factors_no_fault() -> None:
    assert {one.unit for one in precise(True).load().key_averages() if one.key == "custom-call.1"} == {"fp32"}
    assert "precision" not in savings(widened(False).load().advice())


READER = f"reader = {ARRAY} fusion(cache, x), kind=kLoop, calls=fused"


@pytest.mark.parametrize(
    "change",
    [
        ("ROOT loop_add_fusion", f"{READER}\n  ROOT loop_add_fusion"),  # something else reads the argument
        (ARRAY + " fusion(copy.1, x)", "bf16[8]{0} fusion(copy.1, x)"),  # no result has its shape
        ("copy(cache)", "copy(x)"),  # of which the fusion reads the original, too
        ("4096]{1,0} copy(cache)", "4096]{0,1} copy(cache)"),  # it changes the layout
        ("is_scheduled=true", "is_scheduled=true, buffer_donor={ (0, {}) }"),  # it is donated, and copied all the same
    ],
)
def test_other_copies_of_arguments_say_nothing_of_donation(change: tuple[str, str]) -> None:
    faulty = undonated(True)
    assert change[0] in faulty.hlo
    other = JaxProgram(faulty.hlo.replace(*change), faulty.works)
    assert "donate" not in savings(quietly(other.trace(), hlo=other.hlo).advice())


def test_a_result_that_is_a_copy_is_what_the_program_wants() -> None:
    hlo = module(f"  x = {ARRAY} parameter(0)\n  ROOT copy.1 = {ARRAY} copy(x)", "")
    assert "donate" not in savings(JaxProgram(hlo, [(D2D, 130.0, 0.0)]).load().advice())


def test_a_trace_that_flopscope_writes_keeps_the_remarks(tmp_path: Path) -> None:
    for program, rule in ((undonated(True), "donate"), (carried(True), "carry"), (called_back(True), "callback")):
        trace = program.load()
        again = rewritten(trace, tmp_path)
        saved = savings(trace.advice())[rule]  # of a host whose events cost what other events beside them tell
        assert savings(again.advice())[rule] == pytest.approx(saved, rel=1e-3)


def test_a_module_of_the_same_name_has_remarks_of_its_own() -> None:
    """In the second module, something else reads the argument."""
    faulty = undonated(True)
    other = faulty.hlo.replace("fusion(copy.1, x)", "fusion(cache, x)").replace("loop_add", "loop_sub")
    events = json.loads(faulty.trace())
    later = json.loads(JaxProgram(other, [(D2D, 130.0, 0.0), ("loop_sub_fusion", 190.0, 0.0)]).trace())
    for event in later["traceEvents"]:
        event["ts"] += 1e3  # the device works until then
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1000
        event["name"] = event["name"].replace("ProfilerStep#", "ProfilerStep#1")
    events["traceEvents"] += later["traceEvents"]
    trace = fs.load_trace(json.dumps(events).encode(), hlo={"a": faulty.hlo, "b": other})
    copies = {row.key: row.count for row in trace.key_averages() if "copy.1" in row.key}
    assert copies == {"copy.1": 3, "jit_step(2)/copy.1": 3}
    found = [row for row in trace.advice() if row.rule == "donate"]
    assert [[one["op"] for one in row.evidence] for row in found] == [["copy.1"]]


RECORDED = DATA / "jax"


def recorded(name: str) -> fs.Trace:
    return fs.load_trace(RECORDED / f"{name}.json.gz", hlo=RECORDED / f"{name}.hlo.json.gz")


def test_copies_of_a_loop_on_an_h200_belong_to_their_instructions() -> None:
    """Each of three steps copies the counter and the cache, then four rows, one in each iteration."""
    trace = recorded("cache_rows")
    calls = {r.key: r.count for r in trace.key_averages() if r.device_type == "cpu" and r.category == "copies"}
    assert calls == {"copy.9": 3, "copy.10": 3, "fusion-start": 12, "loop_add_fusion": 12}
    assert trace.hlo["executions"] == 3 and trace.hlo["guessed"] == 0
    first = trace.advice()[0]
    assert first.rule == "donate" and "copies p before it changes it" in first.reason


def test_a_callback_on_an_h200_has_its_copies_and_the_program_its_own() -> None:
    """Each of five steps copies to and from the callback, and as much for np.asarray and for an argument."""
    trace = recorded("callback")
    calls = {row.key: row.count for row in trace.key_averages() if row.device_type == "cpu"}
    assert calls["pure_callback.1"] == 5 and trace.hlo["works"] - trace.hlo["by_name"] - trace.hlo["by_order"] == 10
    assert 0.8 * 430 < savings(check(trace))["callback"] < 1.2 * 460


def test_convolutions_on_an_h200_have_all_of_their_kernels() -> None:
    trace = recorded("convnet")
    flops = sum(row.flops for row in trace.key_averages() if row.category == "convolution" and row.flops > 0)
    assert flops == 3 * (3 + 2 + 3) * 2 * 64 * 56 * 56 * 64 * 64 * 9
    assert trace.hlo["tied_ns"] == trace.hlo["kernel_ns"] and trace.hlo["executions"] == 3


@pytest.mark.parametrize("of_library", [False, True])
def test_bytes_beyond_the_model_are_a_fault_but_in_calls_of_libraries(of_library: bool) -> None:
    """Twice the bytes moved, by a fusion, and by a call of cuDNN that has memory of its own."""
    entry = f"ROOT both = {ARRAY} fusion(x, y), kind=kLoop, calls=fused"
    if of_library:
        call = 'custom-call(x, y), custom_call_target="__cudnn$fmhaSoftmax"'
        entry = f"both = ({ARRAY}, u8[1024]{{0}}) {call}\n  ROOT out = {ARRAY} get-tuple-element(both), index=0"
    hlo = module(f"  x = {ARRAY} parameter(0)\n  y = {ARRAY} parameter(1)\n  {entry}")
    recording = json.loads(JaxProgram(hlo, [("both", 400.0, 0.0)], steps=1).trace())
    begin = next(event["ts"] for event in recording["traceEvents"] if event["name"] == "both")
    for place in range(45):
        at = {"ph": "C", "pid": 0, "ts": begin + 10 * place}
        for name in ("dram_bytes_read", "dram_bytes_written"):
            recording["traceEvents"].append({**at, "name": name, "args": {"GB/s": 2100.0 if place < 40 else 0.0}})
    trace = fs.load_trace(json.dumps(recording).encode(), hlo=hlo)
    (row,) = [row for row in trace.key_averages() if row.key == "both" and row.device_type == "cpu"]
    assert row.traffic_ratio > 2
    said = [row.reason for row in trace.advice() if row.rule == "traffic"]
    assert [("Pallas" in text, "torch" in text) for text in said] == ([] if of_library else [(True, False)])


def test_transfers_that_nothing_hides_are_xlas_to_schedule() -> None:
    """Collectives of known size come after the computation, of which an instruction is a part."""
    program = collectives(100, 110, 120)
    program.call("cuLaunchKernel", 3, 1, correlation=90)
    program.work("loop_add_fusion", 2400, 300, correlation=90)
    trace = quietly(program.text(), hlo=undonated(False).hlo)
    (said,) = [row.reason for row in trace.advice() if row.rule == "communication"]
    assert "xla_gpu_enable_latency_hiding_scheduler" in said and "async_op" not in said and "Distributed" not in said


def test_words_are_those_of_jax() -> None:
    """Kernels that are launched late, and idle time after a wait, in a program whose HLO is known."""
    faulty = undonated(False)
    late = JaxProgram(faulty.hlo, [("loop_add_fusion", 10.0, 40.0)] * 12)
    said = [row.what for row in late.load().advice() if row.rule == "launch"]
    assert len(said) == 1 and "one jitted function" in said[0] and "CUDA graph" not in said[0]

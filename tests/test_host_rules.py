"""The premises of the rules about the host and other ranks: each fails by one fact of a hand-written program."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from faulty_programs import COLLECTIVE, SIZE, adam, collectives, compiling, late, piecewise, uploads
from hand_traces import NCCL, PAGEABLE, PINNED, Program
from test_advice import TRACES, check, recorded, savings

from flopscope.answers.advice import Advice
from flopscope.answers.analysis import Analysis


def told(program: Program, rule: str) -> list[Advice]:
    return [row for row in check(program.load()) if row.rule == rule]


def only(program: Program, rule: str) -> Advice:
    (row,) = told(program, rule)
    assert row.facts
    return row


# Launching ------------------------------------------------------------------------------------------------------------


def test_launches_are_counted_and_not_gaps() -> None:
    row = only(piecewise(8), "launch")
    assert row.facts["launches"] == pytest.approx(8) and row.facts["late"] == 100
    assert "8 launches a step, 100.0% of them late" in row.what and "CUDA graph" in row.what
    assert {entry["op"]: entry["calls"] for entry in row.evidence} == {"made::op": 7, "made::first": 1}


def test_a_graph_of_many_kernels_is_one_launch() -> None:
    assert not told(piecewise(8, graph=True), "launch") and not told(piecewise(40, graph=True), "launch")


@pytest.mark.parametrize("count", [2, 5])
def test_a_handful_of_launches_needs_no_graph(count: int) -> None:
    assert not told(piecewise(count), "launch")


def test_unrecorded_launches_are_not_judged() -> None:
    assert not told(piecewise(calls=False), "launch")


def test_graphs_are_for_the_accelerators_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, named in (("mtia", False), ("hip", True), ("cuda", True)):
        monkeypatch.setattr(Analysis, "accelerator", name, raising=False)
        assert bool(told(piecewise(), "launch")) == named


def test_launches_in_time_are_not_advised_to_come_sooner() -> None:
    program = piecewise()
    for event in program.events:
        if event["name"] in ("made::op", "cudaLaunchKernel"):
            event["ts"] -= 45  # before the kernel in front has ended
    assert not told(program, "launch")


def pause(name: str, length: float) -> Program:
    program = late()
    for at in (0, 2000):
        program.op(name, at + 520, 5)
        program.op(name, at + 530, length)
    for event in program.events:  # idle for 900 µs in each of two late launches; 2 ms are too long for launching
        if event["ts"] % 2000 >= 1390 and event["name"] not in ("ProfilerStep#0", "ProfilerStep#1"):
            event["ts"] += 600
    for event in program.events:
        if event["ts"] >= 2000:
            event["ts"] += 1000
        if event["name"].startswith("ProfilerStep"):
            event["dur"] = 2990
    return program


def test_other_work_of_the_host_is_told_by_what_was_recorded() -> None:
    row = only(pause("made::tokenize", 1000), "launch")
    assert "the host was in made::tokenize for 972us of it" in row.what and "DataLoader" not in row.what
    assert row.evidence[0]["op"] == "made::tokenize" and row.saving_us <= 0.95 * 972.5


def test_what_the_host_did_unrecorded_is_only_noted() -> None:
    advice = check(pause("made::tokenize", 5).load())
    assert "launch" not in savings(advice)
    (note,) = [note for note in advice.notes if "long pauses" in note]
    assert "was not recorded (with_stack=True records it)" in note


def test_the_evidence_of_launches_is_the_time_that_launching_explains() -> None:
    """The long pauses before made::op are no launches, so their time is in no row."""
    program = Program()
    for number in range(3):
        at = 20_000 * number
        program.step(number, at, 19_990)
        for place in range(30):
            begin = at + 60 + 50 * place + (5000 if place > 20 else 0)
            program.run("made::op" if place == 21 else f"made::{place}", begin - 5, begin, 10)
    (row,) = (row for row in told(program, "launch") if "launches" in row.facts)
    assert sum(entry["time"] for entry in row.evidence) <= row.facts["idle"] * (1 + 1e-9)
    assert "those for which the device waited" in row.what
    table = program.load()._core.launch_summary()
    assert row.facts["late"] == table["launch_bound_pct"][0]


def test_few_launches_in_all_need_no_graph() -> None:
    program = piecewise(8)
    assert told(program, "launch")
    program.events = [event for event in program.events if event["ts"] < 50 * 9 * 2]
    assert not told(program, "launch"), "16 launches in two steps"


def test_a_program_that_uses_graphs_is_not_told_to() -> None:
    program = piecewise(12)
    program.call("cudaGraphLaunch", 100, 2)
    assert not told(program, "launch")


@pytest.mark.parametrize(("kernels", "named"), [(3, True), (40, False)])
def test_a_first_pass_is_not_judged(kernels: int, named: bool) -> None:
    program = Program()
    for place in range(40):
        at = 50 * place
        program.run("made::op", at, at + 5, 10, kernel=f"kernel_{place % kernels}")
    advice = check(program.load())
    assert ("launch" in savings(advice)) == named
    assert any("ran for the first time" in note for note in advice.notes) != named


def test_the_end_of_a_long_place_is_shown() -> None:
    from flopscope.answers.advice import _at

    line = _at("/" + 40 * "folder/" + "train.py(12): main")
    assert line.endswith("train.py(12): main") and len(line) <= 98 and _at("a.py(1): f") == "     at a.py(1): f"


def test_only_work_in_the_pauses_themselves_is_told() -> None:
    program = pause("made::tokenize", 1000)
    program.events = [
        {**e, "name": "enumerate(DataPipe)#x"} if e["name"] == "made::tokenize" else e for e in program.events
    ]
    text = str(check(program.load()))
    assert "tokenize" not in text and "the host was in enumerate" not in text


def frames(name: str, encloses: bool) -> Program:
    """Return a program whose pauses lie in a call of Python, which may enclose the launch after it."""
    program = pause("made::pad", 1)
    for at in (0, 3000):
        program.add("python_function", name, at + 525, 1480 if encloses else 1400)
    return program


def test_a_line_that_launches_stays_on_its_thread() -> None:
    name = "train.py(7): prepare"
    assert name in only(frames(name, False), "launch").what
    program = frames(name, True)
    assert not told(program, "launch")
    (note,) = [note for note in check(program.load()).notes if "long pauses" in note]
    assert name in note and "not recorded" not in note


def test_addresses_are_not_shown() -> None:
    row = only(frames("<built-in method astype of numpy.ndarray object at 0x7f709c2f2010>", False), "launch")
    assert "<built-in method astype of numpy.ndarray object>" in row.what and "0x7f" not in str(row)


def test_nothing_is_said_of_what_was_not_recorded_where_lines_were() -> None:
    program = pause("made::tokenize", 5)
    program.add("python_function", "train.py(3): main", 1, 50)
    assert not [note for note in check(program.load()).notes if "long pauses" in note]


# Warming up -----------------------------------------------------------------------------------------------------------


def test_compilation_is_left_out_of_the_recording() -> None:
    row = only(compiling(), "warmup")
    assert row.saving_us == pytest.approx(810 / 4, abs=10)
    assert "Leave the first steps out" in row.what and "torch.compile compiles" in row.what
    assert "DataLoader" not in row.what and "later steps" not in row.what
    assert row.evidence[0]["op"] == "_compile.compile_inner (dynamo_timed)"


@pytest.mark.parametrize(("later", "named"), [((1,), False), ((1, 3), True)])
def test_compiling_again_is_told_of_two_later_steps(later: tuple[int, ...], named: bool) -> None:
    assert ("compiled in 2 later steps too" in only(compiling(*later), "warmup").what) == named


def test_code_that_is_loaded_for_a_launch_is_warming_up() -> None:
    program = late()
    program.add("overhead", "Runtime Triggered Module Loading", 600, 700)
    row = only(program, "warmup")
    assert row.facts["loading"] == pytest.approx(350, abs=1) and row.facts["compiling"] == 0
    assert "torch.compile" not in row.what and not told(late(), "warmup")


def test_waits_with_which_a_library_measures_kernels_are_warming_up() -> None:
    program = late(wait=True)
    for event in program.events:
        if event["name"] == "aten::item":
            event["name"] = "aten::cudnn_convolution"
        if event["name"] == "cudaStreamSynchronize":
            event["name"] = "cudaEventSynchronize"
    assert told(program, "sync") and not told(program, "warmup")
    for at in (0, 2000):
        program.call("cudaEventElapsedTime", at + 512, 1)
    assert not told(program, "sync")
    row = only(program, "warmup")
    assert "while a library measures which of its kernels is the fastest" in row.what and row.facts["trying"] > 0


# Data and copies ------------------------------------------------------------------------------------------------------

MULTI, SINGLE = (f"enumerate(DataLoader)#_{kind}ProcessingDataLoaderIter.__next__" for kind in ("Multi", "Single"))
SINGLE = SINGLE.replace("Processing", "Process")


def loads(name: str, *lengths: float, devices: int = 1, kernel: str = "") -> Program:
    program, at = Program(devices), 0.0
    for number, length in enumerate(lengths):
        program.step(number, at, length + 190)
        program.add("user_annotation", name, at + 5, length)
        if not devices:
            program.op("aten::mm", at + length + 10, 150, [64, 64], [64, 64])
        elif kernel:
            program.run("aten::copy_", at + length + 8, at + length + 15, 5, kernel=kernel)
        if devices:
            program.run("made::op", at + length + 12, at + length + 22, 160)
        at += length + 200
    return program


def test_the_workers_of_a_loader_are_seen() -> None:
    many, none = only(loads(MULTI, 900, 1000), "data"), only(loads(SINGLE, 900, 1000), "data")
    assert many.facts["workers"] is True and "its worker processes have not finished" in many.what
    assert none.facts["workers"] is False and "num_workers, 0 now" in none.what
    unknown = only(loads("enumerate(DataLoader)#Mine.__next__", 900, 1000), "data")
    assert unknown.facts["workers"] is None and "worker" not in unknown.what
    for row in (many, none, unknown):
        assert not re.search(r"num_workers of at least|pin_memory", row.what)


@pytest.mark.parametrize(("kernel", "devices", "named"), [(PAGEABLE, 1, True), (PINNED, 1, False), ("", 0, False)])
def test_pinned_memory_is_advised_where_pageable_memory_is_copied(kernel: str, devices: int, named: bool) -> None:
    row = only(loads(SINGLE, 900, 1000, devices=devices, kernel=kernel), "data")
    assert ("pin_memory=True" in row.what) == named
    assert ("the device waits" in row.what) == bool(devices) and ("the program waits" in row.what) == (not devices)


def test_workers_that_start_are_not_slow() -> None:
    row = only(loads(MULTI, 1000, 300, 300, 300), "data")  # a first step 2.4 times as long as the others is one of them
    assert "The first batch, for which the workers start, takes" in row.what
    assert row.facts["waited"] == pytest.approx(900 / 4, rel=0.1)
    assert only(loads(SINGLE, 1000, 300, 300, 300), "data").facts["starting"] == 0
    row = only(loads(MULTI, 5000, 300, 300, 300), "data")  # a longer one is left out of the means
    assert row.facts["waited"] == pytest.approx(300, rel=0.1) and row.facts["starting"] == 0


def test_the_kind_of_memory_and_the_direction_of_copies_are_in_their_names() -> None:
    pageable = only(uploads(PAGEABLE, 7), "copy")
    assert "pageable copies to the device" in pageable.what and "pinned memory" in pageable.what
    pinned = only(uploads(PINNED, 7), "copy")
    assert "pageable" not in pinned.what and "pinned" not in pinned.what
    back = only(uploads("Memcpy DtoH (Device -> Pinned)", 7), "copy")
    assert "copies to the host" in back.what and "read the result" in back.what
    assert not told(uploads("Memcpy DtoD (Device -> Device)", 7), "copy")
    assert not told(uploads("Memset (Device)", 7), "copy")


def test_the_end_of_the_data_and_a_single_batch_are_no_waits() -> None:
    program = loads(SINGLE, 900, 1000)
    whole = only(program, "data").facts["waited"]
    program.add("user_annotation", SINGLE, 2160, 120)  # in the last step, after its last work
    assert only(program, "data").facts["waited"] == pytest.approx(whole, rel=0.1)
    first = loads(SINGLE, 900, 1000)
    first.events = [e for e in first.events if e["name"] != SINGLE or e["ts"] > 1000]
    assert not told(first, "data")


def test_the_start_of_workers_counts_as_far_as_it_is_in_the_profile() -> None:
    """Without steps, what passed before the first work is none of the idle time that is told."""
    program = loads(MULTI, 5000, 300, 300, 300)
    program.events = [event for event in program.events if not event["name"].startswith("ProfilerStep")]
    row = only(program, "data")
    assert row.facts["starting"] == 0 and row.facts["waited"] == pytest.approx(900, rel=0.1)


def test_copies_that_are_in_the_background_already_are_not_told() -> None:
    def program(kernel: str, stream: int) -> Program:
        made = Program()
        made.step(0, 0, 20)
        made.run("aten::copy_", 1, 10, 1000, [SIZE], [SIZE], kernel=kernel, stream=stream)
        made.run("made::work", 4, 1010, 3000)
        return made

    assert told(program(PINNED, 7), "copy") and not told(program(PINNED, 9), "copy")
    assert told(program(PAGEABLE, 9), "copy")
    alone = program(PAGEABLE, 7)
    alone.events = [event for event in alone.events if event["name"] not in ("made::work", "kernel")]
    assert not told(alone, "copy")


@pytest.mark.parametrize(("back", "words"), [(50, "copies to the device"), (400, "copies between host and device")])
def test_a_direction_is_named_from_a_tenth_of_the_time(back: float, words: str) -> None:
    program = uploads(PAGEABLE, 7)
    program.run("aten::copy_", 7, 4010, back, [SIZE], [SIZE], kernel="Memcpy DtoH (Device -> Pageable)")
    assert words in only(program, "copy").what


# Memory and waits -----------------------------------------------------------------------------------------------------


def test_the_first_step_may_allocate() -> None:
    program = late(malloc=True)
    assert "1 call a step of cudaMalloc takes 700us" in only(program, "memory").what
    (last,) = [event for event in program.events if event["name"] == "cudaMalloc" and event["ts"] > 2000]
    last["ts"] -= 2000 - 701
    assert not told(program, "memory")


def allocates(*at: float, call: str = "cudaFree") -> Program:
    """Return a program without steps that launches every 100 µs; such calls last 60 µs before some launches."""
    program = Program()
    for place in range(60):
        program.run("made::op", 100 * place + 70, 100 * place + 75, 20)
    for place in at:
        program.call(call, 100 * place + 5, 60)
    return program


def test_allocations_without_steps_are_told_where_they_recur() -> None:
    row = only(allocates(*range(0, 60, 4)), "memory")
    assert "15 calls in the profile of cudaFree" in row.what
    assert not told(allocates(*range(0, 60, 8)), "memory"), "eight are few"
    assert not told(allocates(*range(15)), "memory"), "in the first quarter only"
    assert not told(allocates(*range(0, 60, 4), call="cudaMalloc"), "memory"), "the pool may just grow"


def test_launches_do_not_explain_what_the_driver_allocates_in() -> None:
    plain, freed = (only(allocates(*at), "launch").facts["idle"] for at in ((), range(5, 60, 4)))
    assert freed == pytest.approx(plain - 14 * 60, rel=0.01)


def test_a_call_waits_only_for_work_that_ends_in_it() -> None:
    program = late(wait=True)
    assert told(program, "sync")
    for event in program.events:
        if event["name"] == "cudaStreamSynchronize":
            event["ts"], event["dur"] = event["ts"] + 515, 5  # the device has ended its work before
        if event["name"] == "aten::item":
            event["dur"] = 530
    assert not told(program, "sync")


def test_a_wait_is_named_with_its_own_calls_and_saves_no_more_than_it_costs() -> None:
    program = late(wait=True)
    program.op("aten::item", 1995, 1)
    row = only(program, "sync")
    assert row.facts["call"] == "cudaStreamSynchronize" and row.facts["calls"] == row.facts["steps"] == 2
    assert "cudaStreamSynchronize (in aten::item) waits for it, 1 call a step" in row.what
    assert row.evidence[0]["op"] == "aten::item" and row.evidence[0]["calls"] == 1
    assert row.saving_us <= row.facts["idle"]


@pytest.mark.parametrize(("call", "named"), [("cudaDeviceSynchronize", False), ("cudaStreamSynchronize", True)])
def test_the_profilers_own_waits_are_not_the_programs(call: str, named: bool) -> None:
    program = Program()
    program.run("made::first", 0, 10, 500)
    program.call(call, 20, 495)
    program.run("made::second", 790, 800, 500)
    assert bool(told(program, "sync")) == named


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("aten::nonzero", "depends on the data"),
        ("aten::item", "accumulate losses"),
        ("aten::is_nonzero", "torch.where"),
        ("aten::_coalesce", "Coalesce"),
    ],
)
def test_the_remedy_fits_the_call(op: str, words: str) -> None:
    program = late(wait=True)
    program.events = [{**event, "name": op} if event["name"] == "aten::item" else event for event in program.events]
    assert words in only(program, "sync").what
    program.events = [event for event in program.events if event["name"] != op]
    assert "Leave out the synchronize()" in only(program, "sync").what


# Optimizers -----------------------------------------------------------------------------------------------------------


def sgd(*ops: str, name: str = "SGD", devices: int = 1) -> Program:
    program = Program(devices)
    for number in range(2):
        at = 4000 * number
        program.step(number, at, 3990)
        program.add("user_annotation", f"Optimizer.step#{name}.step", at + 1, 3000)
        for place, op in enumerate(ops):
            shapes = [[SIZE]] * (1 if op == "mul_" else 3 if op.startswith("addc") else 2)
            if devices:
                program.run(f"aten::{op}", at + 2 + 3 * place, at + 12 + 500 * place, 500, *shapes)
            else:
                program.op(f"aten::{op}", at + 2 + 500 * place, 490, *shapes)
    return program


def test_the_passes_of_an_optimizer_are_those_of_the_ops_that_ran() -> None:
    assert not told(sgd("add_"), "optimizer"), "reads p and g and writes p, as the fused one does"
    momentum = only(sgd("mul_", "add_", "add_"), "optimizer")
    assert momentum.facts["passes"] == pytest.approx(8) and momentum.facts["fused"] == 5
    assert "about 8 arrays of the parameters' size; the fused step does with 5" in momentum.what
    assert momentum.saving_us == pytest.approx(1500 * 3 / 8, rel=0.05)
    decayed = only(sgd("add", "mul_", "add_", "add", "add_"), "optimizer")
    assert decayed.facts["passes"] == pytest.approx(14)
    assert only(adam(False), "optimizer").facts["fused"] == 7


@pytest.mark.parametrize(("name", "devices"), [("NAdam", 1), ("Adagrad", 1), ("SGD", 0), ("Mine", 1)])
def test_fused_steps_are_advised_where_torch_has_them_and_they_are_faster(name: str, devices: int) -> None:
    ops = ("add_",) if name == "SGD" else ("addcmul_", "sqrt", "add_", "addcdiv_")
    assert not told(sgd(*ops, name=name, devices=devices), "optimizer")


def test_an_optimizer_on_the_cpu_runs_ops_and_no_kernels() -> None:
    row = only(sgd("mul_", "add_", "add_", devices=0), "optimizer")
    assert "3 ops a step" in row.what and "kernel" not in row.what


# Other ranks ----------------------------------------------------------------------------------------------------------


def messages(*calls: tuple[int, float], recorded: bool = True) -> Program:
    """Return a program that computes for 2 ms and then reduces (elements, µs), one after another."""
    program = Program()
    program.step(0, 0, 50)
    program.run("made::forward", 1, 5, 2000)
    begin = 2005.0
    for place, (elements, duration) in enumerate(calls):
        sizes = {**COLLECTIVE, "In msg nelems": elements, "Out msg nelems": elements} if recorded else {}
        program.op("nccl:all_reduce", 4 + 3 * place, 2)
        program.call("cudaLaunchKernelExC", 5 + 3 * place, 1, correlation=place)
        program.work(NCCL, begin, duration, stream=9, correlation=place, **sizes)
        begin += duration
    return program


MIB = 1 << 18  # floats


def test_the_time_that_the_bytes_do_not_need_is_a_wait_for_other_ranks() -> None:
    """A transfer of 28 MiB takes 150 µs at the rate of one of 96 MiB; one took 50 ms."""
    program = messages((28 * MIB, 50_000), (28 * MIB, 200), (96 * MIB, 514))
    row = only(program, "straggler")
    assert row.saving_us == pytest.approx(50_000 - 150, rel=0.01) and "flopscope ranks" in row.what
    assert sum(one.saving_us for one in told(program, "communication")) <= 150 + 200 + 514


def test_rates_of_much_larger_messages_prove_nothing() -> None:
    assert not told(messages((2 * MIB, 300), (2 * MIB, 310), (256 * MIB, 1400)), "straggler")
    assert told(messages((70 * MIB, 3000), (70 * MIB, 3100), (256 * MIB, 1400)), "straggler")


def test_collectives_of_unknown_size_and_few_collectives_are_not_judged() -> None:
    calls = (MIB, 900), (MIB, 100), (MIB, 110)
    assert told(messages(*calls), "straggler") and told(messages(*calls), "communication")
    for program in (messages(*calls, recorded=False), messages(*calls[:2])):
        assert not told(program, "straggler") and not told(program, "communication")


def test_waits_are_whole_collectives() -> None:
    what = only(messages((MIB, 900), (MIB, 100), (MIB, 110)), "straggler").what
    assert "1 of 3 collectives a step" in what


def test_transfers_are_told_where_most_do_not_wait_and_links_are_as_fast() -> None:
    waits = messages((8 * MIB, 900), (8 * MIB, 100), (8 * MIB, 910))
    assert told(waits, "straggler") and not told(waits, "communication")
    slow = messages(*((8 * MIB, 30_000),) * 3)  # 0.3 GB/s
    assert not told(slow, "communication") and told(messages(*((8 * MIB, 300),) * 3), "communication")


@pytest.mark.parametrize(("kind", "named"), [("allreduce", True), ("all_to_allv", False), ("allgather", False)])
def test_gradients_are_only_in_collectives_that_sum(kind: str, named: bool) -> None:
    program = messages(*((32 * MIB, 400),) * 3)
    program.op("DistributedDataParallel.forward", 1, 1)
    for event in program.events:
        if "Collective name" in event["args"]:
            event["args"]["Collective name"] = kind
    what = only(program, "communication").what
    assert ("gradients" in what) == named and ("async_op=True" in what) != named


def test_small_messages_are_told_by_their_size() -> None:
    assert "gather small messages" in only(collectives(100, 110, 120), "communication").what
    large = only(messages(*((32 * MIB, 400),) * 3), "communication").what
    assert "gather small" not in large and "async_op=True" in large and "backward" not in large


# All traces -----------------------------------------------------------------------------------------------------------

HELD_OUT = Path(__file__).parent.parent / "benchmarks" / "results" / "nvidia-h200" / "held_out"
SOURCES = {
    **{"warmup": ("compile", "loading"), "data": ("data",), "launch": ("host",), "sync": ("sync", "host")},
    "memory": ("host", "sync"),
}
"""The causes of idleness from which a rule may claim."""


@cache
def held_out(name: str) -> Any:
    import flopscope as fs

    return fs.load_trace(HELD_OUT / f"{name}.json.gz")


@pytest.mark.parametrize("name", [*TRACES, *(path.name[:-8] for path in sorted(HELD_OUT.glob("*_before.json.gz")))])
def test_no_rule_saves_more_than_the_parts_that_it_comes_from(name: str) -> None:
    trace = recorded(name) if name in TRACES else held_out(name)
    analysis = trace._analysis("advice")
    for row in trace.advice():
        json.dumps(row.facts, allow_nan=False)
        if row.rule in SOURCES:
            part = sum(analysis.gap_unobserved(gap) for gap in analysis.gaps if gap.cause in SOURCES[row.rule])
            assert row.saving_us <= part * (1 + 1e-9)
        for entry in row.evidence:
            counts = analysis.row_sum(entry["op"], "count")
            assert entry["calls"] is None or entry["calls"] <= counts * (1 + 1e-9)


def test_a_cpu_program_is_told_of_no_device() -> None:
    for program in (loads(SINGLE, 900, 1000, devices=0), sgd("mul_", "add_", "add_", devices=0)):
        text = str(check(program.load()))
        assert not re.search("device|kernel|pin_memory|autocast|CUDA", text.replace("The work on cpu", "")), text

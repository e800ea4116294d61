"""The premises of the rules about the host and other ranks: each fails by one fact of a hand-written program."""

import json
import re

import pytest
from helpers.advice_cases import TRACES, check, only, recorded, told
from helpers.faulty_programs import SIZE, adam, collectives, compiling, generating, late, messages, uploads
from helpers.hand_traces import PAGEABLE, PINNED, Program
from helpers.recordings import FAULTS, HELD_OUT

from flopscope.answers.analysis import analysis_of

# Warming up -----------------------------------------------------------------------------------------------------------


def test_compilation_is_left_out_of_the_recording() -> None:
    row = only(compiling(), "warmup")
    assert row.saving_us == pytest.approx(810 / 4, abs=10)
    assert "Leave the first steps out" in row.what and "torch.compile compiles" in row.what
    assert "DataLoader" not in row.what and "later steps" not in row.what
    assert row.evidence[0]["op"] == "_compile.compile_inner (dynamo_timed)"


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


def test_workers_that_start_are_not_slow() -> None:
    row = only(loads(MULTI, 1000, 300, 300, 300), "data")  # a first step 2.4 times as long as the others is one of them
    assert "The first batch, for which the workers start, takes" in row.what
    assert row.facts["waited"] == pytest.approx(900 / 4, rel=0.1)
    assert only(loads(SINGLE, 1000, 300, 300, 300), "data").facts["starting"] == 0
    row = only(loads(MULTI, 5000, 300, 300, 300), "data")  # a longer one is left out of the means
    assert row.facts["waited"] == pytest.approx(300, rel=0.1) and row.facts["starting"] == 0


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
    assert row.saving_us <= row.facts["idle"] + row.facts["earlier"]
    assert ("earlier as well" in row.what) == (row.facts["earlier"] > 0)


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
    assert decayed.facts["passes"] == pytest.approx(14) and only(adam(False), "optimizer").facts["fused"] == 7


# Other ranks ----------------------------------------------------------------------------------------------------------


MIB = 1 << 18  # floats


def test_the_time_that_the_bytes_do_not_need_is_a_wait_for_other_ranks() -> None:
    """A transfer of 28 MiB takes 150 µs at the rate of one of 96 MiB; one took 50 ms."""
    program = messages((28 * MIB, 50_000), (28 * MIB, 200), (96 * MIB, 514))
    row = only(program, "straggler")
    assert row.saving_us == pytest.approx(50_000 - 150, rel=0.01) and "flopscope ranks" in row.what
    assert sum(one.saving_us for one in told(program, "communication")) <= 150 + 200 + 514


# Whether a rule speaks, and its words --------------------------------------------------------------------------------


def there_and_back(time: float) -> Program:
    program = uploads(PAGEABLE, 7)
    program.run("aten::copy_", 7, 4010, time, [SIZE], [SIZE], kernel="Memcpy DtoH (Device -> Pageable)")
    return program


def synchronized(call: str) -> Program:
    """Return a program without steps that waits for its first work."""
    program = Program()
    program.run("made::first", 0, 10, 500)
    program.call(call, 20, 495)
    program.run("made::second", 790, 800, 500)
    return program


def waiting_in(op: str) -> Program:
    """Return a program that waits within an op, or within none."""
    program = late(wait=True)
    program.events = [{**e, "name": op} if e["name"] == "aten::item" else e for e in program.events]
    program.events = [event for event in program.events if event["name"]]
    return program


def freeing(op: str) -> Program:
    """Return a program that frees within an op."""
    program = late(malloc=True)
    for at in (590, 2590):
        program.op(op, at, 720)
        program.call("cudaFree", at + 5, 4)
    return program


def checking(folder: str, sampled: bool) -> Program:
    """Return a program that decides in a folder, by its lines."""
    program, line = waiting_in("aten::is_nonzero"), f"/lib/{folder}/distribution.py(68): __init__"
    for at in (15, 2015):
        if sampled:
            program.sample(at, 800, "train.py(3): act", line)
        else:
            program.add("python_function", line, at, 520)
    return program


def gradients(kind: str) -> Program:
    program = messages(*((32 * MIB, 400),) * 3)
    program.op("DistributedDataParallel.forward", 1, 1)
    for event in program.events:
        if "Collective name" in event["args"]:
            event["args"]["Collective name"] = kind
    return program


FEW = (MIB, 900), (MIB, 100), (MIB, 110)
EVERY_4 = range(0, 60, 4)
WAITS = (8 * MIB, 900), (8 * MIB, 100), (8 * MIB, 910)
ADAGRAD = ("addcmul_", "sqrt", "add_", "addcdiv_")
SPEAKS: list[tuple[str, Program, str]] = [  # rule, program, and words of what it says: all of these and none after a -
    ("warmup", compiling(1), "-compiled in 2 later steps too"),
    ("warmup", compiling(1, 3), "compiled in 2 later steps too"),
    ("warmup", late(loads=[0, 2]), "while code is loaded"),
    ("loading", late(loads=range(4)), "idles 700us a step|(cuModuleLoadDataEx), in 3 steps after the first too"),
    ("data", loads(SINGLE, 900, 1000, kernel=PAGEABLE), "pin_memory=True|the device waits|-the program waits"),
    ("data", loads(SINGLE, 900, 1000, kernel=PINNED), "the device waits|-pin_memory=True|-the program waits"),
    ("data", loads(SINGLE, 900, 1000, devices=0), "the program waits|-pin_memory=True|-the device waits"),
    ("copy", uploads(PAGEABLE, 7), "pageable copies to the device|pinned memory"),
    ("copy", uploads(PINNED, 7), "-pageable|-pinned"),
    ("copy", uploads("Memcpy DtoH (Device -> Pinned)", 7), "copies to the host|read the result"),
    ("copy", there_and_back(50), "copies to the device"),
    ("copy", there_and_back(400), "copies between host and device"),  # a direction counts from a tenth of the time
    ("copy", uploads(PAGEABLE, 9), ""), ("memory", allocates(*EVERY_4), "15 calls in the profile of cudaFree"),
    ("memory", freeing("aten::empty"), "The memory is full|-empty_cache"),
    ("memory", freeing("made::op"), "empty_cache|-The memory is full"),
    ("collection", late(collects=[1, 3]), "waits 350us a step for|2 runs in the profile take 700us each|gc.freeze()"),
    ("sync", synchronized("cudaStreamSynchronize"), ""),
    *(("sync", checking("torch/distributions", one), "validate_args=False|-condition") for one in (True, False)),
    *(("sync", checking("models", one), "condition|-validate_args") for one in (True, False)),
    ("sync", waiting_in("aten::nonzero"), "depends on the data"),
    ("sync", waiting_in("aten::item"), "accumulate losses"), ("sync", waiting_in("aten::is_nonzero"), "torch.where"),
    ("sync", waiting_in("aten::_coalesce"), "Coalesce"), ("sync", waiting_in(""), "Leave out the synchronize()"),
    ("optimizer", sgd("mul_", "add_", "add_", devices=0), "3 ops a step|-kernel"),
    ("straggler", messages((70 * MIB, 3000), (70 * MIB, 3100), (256 * MIB, 1400)), ""),
    ("straggler", messages(*FEW), "1 of 3 collectives a step"), ("straggler", messages(*WAITS), ""),
    ("communication", messages(*FEW), ""), ("communication", messages(*((8 * MIB, 300),) * 3), ""),
    ("communication", gradients("allreduce"), "gradients|-async_op=True"),
    ("communication", gradients("all_to_allv"), "async_op=True|-gradients"),
    ("communication", gradients("allgather"), "async_op=True|-gradients"),
    ("communication", collectives(100, 110, 120), "gather small messages"),
    ("communication", messages(*((32 * MIB, 400),) * 3), "async_op=True|-gather small|-backward"),
]  # fmt: skip
SILENT: list[tuple[str, Program]] = [
    ("warmup", late(loads=range(4))),  # later steps are not faster
    *(("loading", late(loads=steps)) for steps in ([0], [0, 2])),
    *(("plan", generating(lengths)) for lengths in ([100, 101, 102] * 4, range(100, 104))),  # few
    *(("plan", one) for one in (generating(cost=150), generating(name="made::op"), generating(shaped=False))),
    ("copy", uploads("Memcpy DtoD (Device -> Device)", 7)),
    ("copy", uploads("Memset (Device)", 7)),
    ("copy", uploads(PINNED, 9)),  # in the background already
    ("copy", uploads(PAGEABLE, 7, 0)),  # beside nothing
    ("memory", allocates(*range(0, 60, 8))),  # eight are few
    ("memory", allocates(*range(15))),  # in the first quarter only
    ("memory", allocates(*EVERY_4, call="cudaMalloc")),  # the pool may just grow
    ("collection", late(collects=[1])),  # a single one
    ("collection", late()),
    ("sync", synchronized("cudaDeviceSynchronize")),  # the profiler's own
    *(("optimizer", sgd(*ADAGRAD, name=name)) for name in ("NAdam", "Adagrad", "Mine")),
    ("optimizer", sgd("add_", devices=0)),
    ("straggler", messages((2 * MIB, 300), (2 * MIB, 310), (256 * MIB, 1400))),  # much larger ones prove nothing
    *((rule, messages(*FEW[:2])) for rule in ("straggler", "communication")),
    *((rule, messages(*FEW, recorded=False)) for rule in ("straggler", "communication")),  # of unknown size
    ("communication", messages(*WAITS)),
    ("communication", messages(*((8 * MIB, 30_000),) * 3)),  # 0.3 GB/s
]


@pytest.mark.parametrize(("rule", "program", "words"), SPEAKS)
def test_a_rule_says_what_its_premises_prove(rule: str, program: Program, words: str) -> None:
    what = only(program, rule).what
    for word in filter(None, words.split("|")):
        assert (word.removeprefix("-") in what) != word.startswith("-")


@pytest.mark.parametrize(("rule", "program"), SILENT)
def test_a_rule_is_silent_without_its_premises(rule: str, program: Program) -> None:
    assert not told(program, rule)


# All traces -----------------------------------------------------------------------------------------------------------

SOURCES = {
    **{"warmup": ("compile", "loading"), "data": ("data",), "launch": ("host",), "sync": ("sync", "host")},
    **dict.fromkeys(("memory", "collection"), ("host", "sync")),
}
"""The causes of idleness from which a rule may claim."""


@pytest.mark.parametrize("name", [*TRACES, *(path.name[:-8] for path in sorted(HELD_OUT.glob("*_before.json.gz")))])
def test_no_rule_saves_more_than_the_parts_that_it_comes_from(name: str) -> None:
    trace = recorded(name, FAULTS if name in TRACES else HELD_OUT)
    analysis = analysis_of(trace, "advice")
    for row in check(trace):
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

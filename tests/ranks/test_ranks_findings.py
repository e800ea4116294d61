"""What is named as slow or missing across ranks, on simulated ranks whose faults are known."""

import gzip
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.hand_traces import memory
from helpers.ranks_cases import SMALL, edited, random_fault, reloaded, simulated, simulated_ranks, without_collectives
from ranks_simulator import Program, Simulated, simulate, write

import flopscope as fs
from flopscope.answers import rank_sentences as say
from flopscope.ranks.findings import CAUSES, Finding

# What is slow ---------------------------------------------------------------------------------------------------------


def test_the_slow_gpu_is_the_first_line(ranks: fs.Ranks) -> None:
    first = ranks.findings[0]
    assert (first.kind, first.ranks, first.cause) == ("straggler", (5,), "gpu")
    assert first.evidence["slowness"] == pytest.approx(1.3, rel=0.02)
    assert str(ranks).startswith("Rank 5 (host #0, GPU 0) comes last in ")


def test_the_cost_is_what_the_simulation_gains_without_it(slow: tuple[Path, Simulated], ranks: fs.Ranks) -> None:
    times = slow[1]
    healthy = simulate(Program(**SMALL, drift_ppm=3.0))
    gain = np.mean((times.step_end - times.step_begin).max(1) - (healthy.step_end - healthy.step_begin).max(1))
    assert ranks.findings[0].cost_us == pytest.approx(gain, rel=0.15)
    assert ranks.comparison.work.waiting.mean() == pytest.approx(gain, rel=0.15)


@pytest.mark.parametrize("seed", range(6))
def test_a_random_fault_is_named_first(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1000 + seed)
    shape = {"dp": 4, "tp": 2, "pp": 1, "events": 6000, "seed": seed}
    kind, fault, who = random_fault(rng, shape)
    write(Program(**shape, **fault), tmp_path)
    first = fs.load_ranks(tmp_path, workers=1).findings[0]
    assert (first.kind, first.cause) == (("step", "data") if kind == "step" else ("straggler", kind))
    assert set(first.ranks) == who
    assert kind != "step" or " on most ranks (ProfilerStep#" in first.what


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_named_where_nothing_is_wrong(seed: int, tmp_path: Path) -> None:
    ranks = simulated_ranks(tmp_path, seed=seed, dp=(2, 4, 8, 3)[seed], tp=(1, 2, 1, 4)[seed])
    assert ranks.findings == [] and str(ranks).startswith("No rank, link or step stands out.")


def test_a_slow_network_is_named_by_its_hosts(tmp_path: Path) -> None:
    (found,) = simulated_ranks(tmp_path, dp=8, tp=2, pp=2, slow_link={1: 0.5}).findings
    assert found.kind == "link" and found.ranks == tuple(range(16))  # the groups of the first two hosts
    assert found.evidence["factor"] == pytest.approx(2, rel=0.1) and found.what.startswith("Hosts #0 and #1: allreduce")


def test_a_slow_host_is_one_finding(tmp_path: Path) -> None:
    (found,) = simulated_ranks(tmp_path, dp=16, tp=1, events=4000, slow_gpu=dict.fromkeys(range(8, 16), 1.2)).findings
    assert found.ranks == tuple(range(8, 16)) and "Host #1 (ranks 8 to 15)" in found.what


def test_the_slowness_of_one_of_two_ranks_is_over_the_other(tmp_path: Path) -> None:
    (found,) = simulated_ranks(tmp_path, dp=2, tp=1, slow_gpu={1: 1.2}).findings
    assert found.ranks == (1,) and found.evidence["slowness"] == pytest.approx(1.2, rel=0.02)


def test_the_line_of_a_late_rank_is_named_where_stacks_were_sampled(tmp_path: Path) -> None:
    def sampled(_: int, trace: dict[str, Any]) -> None:
        called = {"name": "threading.py(320): wait", "category": "library", "parent": 1}
        trace["stackFrames"] = {"1": {"name": "ddp.py(27): main", "category": "program"}, "2": called}
        for event in trace["traceEvents"]:
            if "DataLoader" in event["name"]:  # 3 ms longer on rank 5
                event |= {"ph": "P", "sf": 2}

    simulated(tmp_path, late_data={5: 3000.0})
    first = reloaded(tmp_path, sampled).findings[0]
    assert (first.ranks, first.cause) == ((5,), "host") and ": it launches late, 3." in first.what
    assert first.what.endswith(", mostly in main, ddp.py:27 (threading.py:320 wait).")


def without_shapes(_: int, trace: dict[str, Any]) -> None:
    del trace["record_shapes"]
    for event in trace["traceEvents"]:
        for name in ("Input Dims", "Input type"):
            event["args"].pop(name, None)


def test_without_shapes_work_and_speed_are_not_told_apart(tmp_path: Path) -> None:
    assert simulated_ranks(tmp_path, imbalance={5: 1.5}).findings[0].cause == "work"
    first = reloaded(tmp_path, without_shapes).findings[0]
    assert (first.ranks, first.cause) == ((5,), "kernels") and "more work or a slower GPU" in first.what


def test_without_steps_costs_are_a_share_of_the_recorded_time(tmp_path: Path) -> None:
    before = simulated_ranks(tmp_path, slow_gpu={5: 1.3})

    def unmarked(_: int, trace: dict[str, Any]) -> None:
        trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("ProfilerStep")]

    after = reloaded(tmp_path, unmarked)
    steps = before.steps()["step"].nunique()
    assert after.findings[0].cost_us == pytest.approx(steps * before.findings[0].cost_us, rel=0.1)
    assert "of the recorded time" in str(after) and "of a step" not in str(after)


def test_ranks_that_did_not_mark_or_record_steps_hide_no_straggler(tmp_path: Path) -> None:
    simulated(tmp_path, dp=4, tp=1, slow_gpu={2: 1.3})

    def changed(rank: int, trace: dict[str, Any]) -> None:
        if rank in (1, 3):
            trace["traceEvents"] = [e for e in trace["traceEvents"] if rank == 1 and "ProfilerStep" not in e["name"]]

    (found,) = reloaded(tmp_path, changed).findings  # rank 1 runs the same program, and rank 3 none without shapes
    assert (found.ranks, found.cause) == ((2,), "gpu")


def test_without_communication_it_is_said_that_waits_are_unknown(tmp_path: Path) -> None:
    assert simulated_ranks(tmp_path, dp=3, tp=1).verdict == "No rank, link or step stands out."
    assert "no communication is recorded" in reloaded(tmp_path, without_collectives).verdict


def test_every_finding_says_what_to_do() -> None:
    causes = [*CAUSES, "work", "kernels", "communication", ""]
    kinds = ("straggler", "gpu", "link", "imbalance", "step", "memory", "missing", "mismatch")
    for kind in kinds:
        for cause in causes:
            assert say.action(kind, cause)[0].isupper() and say.action(kind, cause).endswith(".")
    assert {kind for kind, _ in say.ACTIONS} == set(kinds) and {cause for _, cause in say.ACTIONS} <= set(causes)
    documented = str(Finding.__doc__) + str(fs.Ranks.findings.__doc__)
    assert all(f'"{kind}"' in documented for kind in kinds)


ONE = partial(
    say.straggler, places=[say.Place(3, None, 1)], cause="gpu", excess_us=20.0, alone=say.Cost(20.0, 2.0, say.STEP),
    cost=say.Cost(20.0, 2.0, say.STEP), steps=4, all_steps=4, times_last=9, collectives=10, unmatched=0, awaited=18.0,
    slowness=1.5, more=(1.25, "FLOPs"), time=30.0, usual=10.0,
)  # fmt: skip
SEVERAL = partial(ONE, places=[say.Place(3, "b", 1), say.Place(4, "b", 2)])


@pytest.mark.parametrize(
    ("changes", "one", "more"),
    [
        ({}, "its kernels take 1.50 times as long as the same", "their kernels take 1.50 times as long as the same"),
        ({"slowness": 1.0}, "its kernels take longer than", "their kernels take longer than"),
        ({"cause": "kernels"}, "its kernels take 1.50 times as long as those", "their kernels take 1.50 times as long"),
        ({"cause": "work"}, "it has more work, 1.25 times the FLOPs of", "they have more work, 1.25 times the FLOPs"),
        ({"cause": "work", "more": None}, "it has more work, beyond that of", "they have more work, beyond that of"),
        ({"cause": "data"}, "it waits for its data, 30.0us a step where", "they wait for their data, 30.0us a step"),
        ({"cause": "host"}, "it launches late, 30.0us a step where others take 10.0us.", "they launch late, 30.0us"),
        ({"cause": "copy"}, "it copies longer, 30.0us", "they copy longer, 30.0us"),
        ({"cause": "other"}, "it is idle longer, 30.0us", "they are idle longer, 30.0us"),
    ],
)
def test_a_sentence_is_singular_or_plural_throughout(changes: dict[str, Any], one: str, more: str) -> None:
    text = ONE(**changes)
    assert text.startswith("rank 3 (GPU 1) comes last in 90.0% of its collectives and costs 20.0us or 2.0% of a step: ")
    assert text.partition(": ")[2].startswith(one)
    text = SEVERAL(**changes)
    assert text.startswith("host b (ranks 3 to 4) come last in 90.0% of their collectives and cost 20.0us or 2.0% of a")
    assert text.partition(": ")[2].startswith(more)


def test_a_sentence_says_no_more_than_its_facts() -> None:
    hidden = ONE(cost=say.Cost(1.0, 0.1, say.STEP), collectives=0, steps=1)
    start = "rank 3 (GPU 1) costs nothing while another rank is later, 20.0us or 2.0% of a step without that one in 1"
    assert hidden.startswith(start) and "each other rank" not in ONE() + hidden
    assert ONE(awaited=8.0, unmatched=3).endswith(
        " In the collectives that match, each other rank waited 8.00us a step for it, and 3 more did not match; the "
        "cost is its own work beyond that of the others."
    )
    close = ONE(cost=say.Cost(8.0, 1.5, say.RECORDING))
    assert "8.00us or 1.5% of the recorded time, as another rank is almost as late, and 20.0us without" in close
    assert SEVERAL(places=[say.Place(one, "b", 0) for one in (1, 4, 5)]).startswith("host b (ranks 1, 4, 5) ")
    cost = say.Cost(5.0, 1.0, say.STEP)
    assert say.slow_steps(["7"], 9, "host", 2.0, cost).startswith("1 of 9 steps takes up to 2.00 times")
    assert say.slow_steps(["7", "8"], 9, "host", 2.0, cost).startswith("2 of 9 steps take up to 2.00 times")
    assert "rank 4 has 1.50 times" in say.uneven_work((4,), 1.5, 2, cost)
    assert "ranks 1, 2, 3, 4, … have 1.50 times" in say.uneven_work((1, 2, 3, 4, 5), 1.5, 2, cost)
    link = partial(say.slow_link, collective="allreduce", nbytes=2048.0, factor=2.0, members=8, cost=cost)
    assert link(["a"]).startswith("host a: allreduce of 2.0 KiB takes 2.00 times as long as in the other groups of 8")
    assert link(["a", "b"]).startswith("hosts a and b: ")
    assert link(["a", "b", "c", "d"]).startswith("a link of the 4 hosts a to d: ")
    calls = [("allreduce", 8.0, (0, 1)), ("broadcast", 1e6, (2,))]
    assert say.mismatched_calls(1, 5, "dp", calls) == (
        "1 call does not match across ranks; the first is number 5 of group dp (ranks 0, 1: allreduce of 8 bytes; "
        "rank 2: broadcast of 1,000,000 bytes)."
    )
    text = say.hang((2, 3), "allreduce", 7, "dp", 1, 3, -1)
    assert text.startswith("ranks 2, 3 did not join allreduce number 7 of group dp: 1 of its 3 ranks called it")
    assert text.endswith("the last call of rank 2 there is not recorded.")


def test_other_findings_say_who_and_how_much(tmp_path: Path) -> None:
    simulated(tmp_path, dp=4, tp=1)

    def changed(rank: int, trace: dict[str, Any]) -> None:
        first = trace["traceEvents"][0]
        trace["traceEvents"].append(memory(first["ts"], (1 + (rank == 2)) << 30))
        for event in trace["traceEvents"]:
            if rank == 1 and event["args"].get("Seq") == 3:
                event["args"]["Collective name"] = "broadcast"

    edited(tmp_path, changed)
    found = {one.kind: one for one in fs.load_ranks(tmp_path, workers=1).findings}
    assert found["memory"].ranks == (2,) and found["memory"].evidence["ratio"] == 2
    assert found["memory"].what.endswith(" allocates 2.0 GiB at its peak, 2.00 times as much as the others.")
    start = "1 call does not match across ranks; the first is number 3 of group "
    assert found["mismatch"].what.startswith(start) and "rank 1: broadcast of" in found["mismatch"].what


def test_several_gpus_of_a_process_do_not_lengthen_its_steps(tmp_path: Path) -> None:
    one = simulated_ranks(tmp_path, dp=4, tp=1, slow_gpu={2: 1.3})

    def twice(_: int, trace: dict[str, Any]) -> None:
        kernels = [e for e in trace["traceEvents"] if e["cat"] == "kernel"]
        trace["traceEvents"] += [{**e, "args": {**e["args"], "device": 1, "stream": 77}} for e in kernels]

    two = reloaded(tmp_path, twice)
    np.testing.assert_allclose(two.steps()["total"], one.steps()["total"], rtol=1e-6)
    assert two.findings[0].ranks == (2,) and two.findings[0].cost_us == pytest.approx(one.findings[0].cost_us, rel=0.05)
    assert not two.stragglers().ranks["unmatched"].any()


def test_ranks_of_different_programs_are_not_compared(tmp_path: Path) -> None:
    simulated(tmp_path, dp=4, tp=1)

    def other(rank: int, trace: dict[str, Any]) -> None:
        """Give each rank ops of its own, and more work to some."""
        for e in trace["traceEvents"]:
            e["name"] = re.sub("^aten::", f"aten::of_{rank}_", e["name"])
            if e["cat"] == "kernel" and rank == 2 and "nccl" not in e["name"]:
                e["ts"] += 1e5
            for name in ("Process Group Name", "Process Group Ranks"):
                if name in e["args"]:
                    e["args"][name] = f"of {rank}"

    ranks = reloaded(tmp_path, other)
    assert ranks.findings == [] and ranks.steps()["excess"].isna().all()
    assert ranks.verdict.startswith("The ranks cannot be compared: no two of them")
    assert ranks.verdict in str(ranks).replace("\n", " ")
    assert (ranks.comparison.work.waiting == 0).all()
    assert any(note.startswith("The ranks run 4 different programs") for note in ranks.notes)


def test_a_straggler_behind_a_later_one_is_named_with_what_it_would_cost(tmp_path: Path) -> None:
    first, second = simulated_ranks(tmp_path, dp=8, tp=1, late_data={6: 6000.0}, slow_gpu={2: 1.2}).findings
    assert (first.ranks, first.cause, second.ranks, second.cause) == ((6,), "data", (2,), "gpu")
    assert second.cost_pct < 1 and "costs nothing while another rank is later" in second.what


def test_a_rank_late_in_some_steps_costs_those(tmp_path: Path) -> None:
    times = simulated(tmp_path, dp=4, tp=1, events=12_000)
    late = {2: 4000.0, 5: 4000.0}

    def delayed(rank: int, trace: dict[str, Any]) -> None:
        """Lengthen steps 2 and 5 of all ranks: rank 1 waits for its data, and the others in the next collective."""
        steps = {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if "ProfilerStep" in e["name"]}
        for number, time in sorted(late.items(), reverse=True):
            begin, end = steps[f"ProfilerStep#{number}"]
            inside = [e for e in trace["traceEvents"] if begin <= e["ts"] <= end]
            first = min(e["ts"] for e in inside if e["cat"] == "kernel" and "nccl" in e["name"])
            for e in trace["traceEvents"]:
                loads = e["name"].startswith("enumerate") and begin <= e["ts"] <= end and rank == 1
                if loads or e["name"] == f"ProfilerStep#{number}":
                    e["dur"] += time
                elif rank == 1 and e["ts"] > begin + 100:
                    e["ts"] += time
                elif rank != 1 and e["ts"] == first and "nccl" in e["name"]:
                    e["dur"] += time
                elif rank != 1 and e["ts"] > first:
                    e["ts"] += time

    found = reloaded(tmp_path, delayed).findings[0]
    assert (found.kind, found.ranks, found.cause) == ("straggler", (1,), "data")
    assert f"in 2 of {times.steps} steps" in found.what
    assert found.cost_us == pytest.approx(sum(late.values()) / times.steps, rel=0.1)


# Calls that do not match ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 5])
def test_a_rank_that_does_not_come_is_named(rank: int, tmp_path: Path) -> None:
    found = [one for one in simulated_ranks(tmp_path, stops={rank: 1}).findings if one.kind == "missing"]
    assert [one.ranks for one in found] == [(rank,)] and f"Rank {rank} did not join allreduce" in found[0].what
    edited(tmp_path, lambda one, trace: trace.update(traceEvents=trace["traceEvents"][: 400 if one == rank else None]))
    again = fs.load_ranks(tmp_path, workers=1)
    assert not [one for one in again.findings if one.kind == "missing"], "a shorter trace"


def calls_of_trace(path: Path) -> list[tuple[str, int, bool]]:
    """Return group, number, and whether the kernel is recorded, of each call of a trace."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kernels = {e["args"]["correlation"] for e in events if e["cat"] == "kernel"}
    calls = [e["args"] for e in events if e["name"] == "record_param_comms"]
    return [(one["Process Group Name"], one["Seq"], one["External id"] in kernels) for one in calls]


def test_the_first_call_that_a_rank_did_not_make_is_named(tmp_path: Path) -> None:
    simulated(tmp_path, stops={3: 1})

    def waits(rank: int, trace: dict[str, Any]) -> None:
        """Let rank 2 wait for rank 3 in the first call of step 1, so that it comes to no other."""
        group = [e for e in trace["traceEvents"] if e["args"].get("Process Group Name") == "tp_2"]
        if rank == 2:
            first = next(e for e in group if e["name"] == "record_param_comms" and e["args"]["Seq"] == 12)
            trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ts"] <= first["ts"]]

    ranks = reloaded(tmp_path, waits)
    first, *others = ranks.findings
    assert (first.kind, first.ranks) == ("missing", (3,))
    assert first.what.startswith("Rank 3 did not join allreduce number 12 of group tp_2: 1 of its 2 ranks called it")
    assert not [one for one in others if one.kind == "missing"]  # rank 2 only waits
    frame = ranks.last_calls
    assert set(frame["rank"]) == set(range(8)) and list(frame.columns)[:2] == ["rank", "group"]
    for rank in range(8):
        calls = calls_of_trace(next(tmp_path.glob(f"*rank{rank}.json.gz")))
        for group in {name for name, _, _ in calls}:
            numbers = [(number, ran) for name, number, ran in calls if name == group]
            row = frame[(frame["rank"] == rank) & (frame["group"] == group)].iloc[0]
            assert row["called"] == max(number for number, _ in numbers)
            assert row["ran"] == max(number for number, ran in numbers if ran)
            later = [number for number, ran in numbers if number > row["ran"]]
            assert row["waiting"] == min(later) if later else row["waiting"] is pd.NA
    json.dumps(ranks.to_dict(), allow_nan=False)


def test_calls_on_the_host_say_whether_they_ran(tmp_path: Path) -> None:
    simulated(tmp_path, dp=2, tp=1, stops={1: 1})
    events = json.loads(gzip.decompress(next(tmp_path.glob("*rank0.json.gz")).read_bytes()))["traceEvents"]
    kernels = {e["args"]["correlation"] for e in events if e["cat"] == "kernel"}
    calls = [e for e in events if e["name"] == "record_param_comms"]
    core = fs.load_trace(next(tmp_path.glob("*rank0.json.gz")))._core
    assert core is not None
    columns = core.collective_calls()
    assert columns["sequence"] == [e["args"]["Seq"] for e in calls]
    assert columns["ran"] == [int(e["args"]["External id"] in kernels) for e in calls] and 0 in columns["ran"]
    assert columns["group"] == [e["args"]["Process Group Name"] for e in calls]
    assert set(columns["collective"]) == {"allreduce"}

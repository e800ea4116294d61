"""load_ranks(): reading many ranks, their clocks, matching against a plain oracle, and what is named as slow."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flopscope as fs
from flopscope.ranks.calls import Calls, Group, match
from flopscope.ranks.clocks import align, row_medians
from flopscope.ranks.digest import ROWS, rank_of_name
from flopscope.ranks.engine import ATTEMPTS, Failure, run_everywhere, workers_for
from flopscope.ranks.work import median_of_others

pytest.importorskip("dask")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
from ranks import groups_of, random_fault
from ranks_simulator import Program, Simulated, write

SMALL = {"dp": 4, "tp": 2, "events": 2500}


def simulated(folder: Path, **more: Any) -> Simulated:
    return write(Program(**{**SMALL, **more}), folder, workers=1)


def edited(folder: Path, edit: Any) -> None:
    """Write the traces anew, after ``edit(rank, trace)`` has changed each."""
    for path in sorted(folder.glob("*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        rank = rank_of_name(path.name)
        edit(rank, trace)
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Simulated]:
    folder = tmp_path_factory.mktemp("ranks")
    return folder, simulated(folder, slow_gpu={5: 1.3}, drift_ppm=3.0)


@pytest.fixture(scope="module")
def ranks(slow: tuple[Path, Simulated]) -> fs.Ranks:
    return fs.load_ranks(slow[0], workers=1)


# What is slow ---------------------------------------------------------------------------------------------------------


def test_the_slow_gpu_is_the_first_line(ranks: fs.Ranks) -> None:
    first = ranks.findings[0]
    assert (first.kind, first.ranks, first.cause) == ("straggler", (5,), "gpu")
    assert first.evidence["slowness"] == pytest.approx(1.3, rel=0.02)
    assert str(ranks).startswith("Rank 5 (host #0, GPU 0) comes last in ")


def test_the_cost_is_what_the_simulation_gains_without_it(slow: tuple[Path, Simulated], ranks: fs.Ranks) -> None:
    from ranks_simulator import simulate

    times = slow[1]
    healthy, _, _ = simulate(Program(**SMALL, drift_ppm=3.0))
    gain = np.mean(
        (times.step_end - times.step_begin).max(axis=1) - (healthy.step_end - healthy.step_begin).max(axis=1)
    )
    assert ranks.findings[0].cost_us == pytest.approx(gain, rel=0.15)
    after = ranks.what_if(without_stragglers=True)
    assert after["saving"].iloc[-1] == pytest.approx(gain, rel=0.15)
    assert (after["total"] - after["saving"] - after["after"]).abs().max() < 1e-6
    assert ranks.what_if()["saving"].max() == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_random_fault_is_named_first(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(1000 + seed)
    shape = {"dp": 4, "tp": 2, "pp": 1, "events": 6000, "seed": seed}
    kind, fault, who = random_fault(rng, shape)
    write(Program(**shape, **fault), tmp_path, workers=1)
    first = fs.load_ranks(tmp_path, workers=1).findings[0]
    assert (first.kind, first.cause) == (("step", "data") if kind == "step" else ("straggler", kind))
    assert set(first.ranks) == who


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_named_where_nothing_is_wrong(seed: int, tmp_path: Path) -> None:
    simulated(tmp_path, seed=seed, dp=(2, 4, 8, 3)[seed], tp=(1, 2, 1, 4)[seed])
    ranks = fs.load_ranks(tmp_path, workers=1)
    assert ranks.findings == []
    assert str(ranks).startswith("No rank, link or step stands out.")


def test_a_slow_network_is_named_by_its_hosts(tmp_path: Path) -> None:
    simulated(tmp_path, dp=8, tp=2, pp=2, slow_link={1: 0.5})
    (found,) = fs.load_ranks(tmp_path, workers=1).findings
    assert found.kind == "link" and found.ranks == tuple(range(16))  # the groups of the first two hosts
    assert found.evidence["factor"] == pytest.approx(2, rel=0.1)


def test_a_slow_host_is_one_finding(tmp_path: Path) -> None:
    simulated(tmp_path, dp=16, tp=1, events=4000, slow_gpu=dict.fromkeys(range(8, 16), 1.2))
    (found,) = fs.load_ranks(tmp_path, workers=1).findings
    assert found.ranks == tuple(range(8, 16)) and "Host #1 (ranks 8 to 15)" in found.what


def test_the_slowness_of_one_of_two_ranks_is_over_the_other(tmp_path: Path) -> None:
    simulated(tmp_path, dp=2, tp=1, slow_gpu={1: 1.2})
    (found,) = fs.load_ranks(tmp_path, workers=1).findings
    assert found.ranks == (1,) and found.evidence["slowness"] == pytest.approx(1.2, rel=0.02)


def without_shapes(_: int, trace: dict[str, Any]) -> None:
    del trace["record_shapes"]
    for event in trace["traceEvents"]:
        for name in ("Input Dims", "Input type"):
            event["args"].pop(name, None)


def test_without_shapes_work_and_speed_are_not_told_apart(tmp_path: Path) -> None:
    simulated(tmp_path, imbalance={5: 1.5})
    assert fs.load_ranks(tmp_path, workers=1).findings[0].cause == "work"
    edited(tmp_path, without_shapes)
    first = fs.load_ranks(tmp_path, workers=1).findings[0]
    assert (first.ranks, first.cause) == ((5,), "kernels") and "more work or a slower GPU" in first.what


def test_without_steps_costs_are_a_share_of_the_recorded_time(tmp_path: Path) -> None:
    simulated(tmp_path, slow_gpu={5: 1.3})
    before = fs.load_ranks(tmp_path, workers=1)

    def unmarked(_: int, trace: dict[str, Any]) -> None:
        trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("ProfilerStep")]

    edited(tmp_path, unmarked)
    after = fs.load_ranks(tmp_path, workers=1)
    steps = before.steps()["step"].nunique()
    assert after.findings[0].cost_us == pytest.approx(steps * before.findings[0].cost_us, rel=0.1)
    assert "of the recorded time" in str(after) and "of a step" not in str(after)


def test_several_gpus_of_a_process_do_not_lengthen_its_steps(tmp_path: Path) -> None:
    simulated(tmp_path, dp=4, tp=1, slow_gpu={2: 1.3})
    one = fs.load_ranks(tmp_path, workers=1)

    def twice(_: int, trace: dict[str, Any]) -> None:
        kernels = [e for e in trace["traceEvents"] if e["cat"] == "kernel"]
        trace["traceEvents"] += [{**e, "args": {**e["args"], "device": 1, "stream": 77}} for e in kernels]

    edited(tmp_path, twice)
    two = fs.load_ranks(tmp_path, workers=1)
    np.testing.assert_allclose(two.steps()["total"], one.steps()["total"], rtol=1e-6)
    assert two.findings[0].ranks == (2,)
    assert two.findings[0].cost_us == pytest.approx(one.findings[0].cost_us, rel=0.05)
    assert not two.stragglers().ranks["unmatched"].any()


def test_a_straggler_behind_a_later_one_is_named_with_what_it_would_cost(tmp_path: Path) -> None:
    simulated(tmp_path, dp=8, tp=1, late_data={6: 6000.0}, slow_gpu={2: 1.2})
    first, second = fs.load_ranks(tmp_path, workers=1).findings
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

    edited(tmp_path, delayed)
    found = fs.load_ranks(tmp_path, workers=1).findings[0]
    assert (found.kind, found.ranks, found.cause) == ("straggler", (1,), "data")
    assert f"in 2 of {times.steps} steps" in found.what
    assert found.cost_us == pytest.approx(sum(late.values()) / times.steps, rel=0.1)


# Clocks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drift", [0.0, 5.0])
def test_clocks_are_those_of_the_simulation(drift: float) -> None:
    count, offset, slope, groups = groups_of(4, 8, 2, 300, 1, drift)
    clocks = align(groups, count)
    errors = clocks.offset - offset - clocks.middle * slope
    assert np.abs(errors).max() < 1.5
    assert np.std(errors[1:] / clocks.uncertainty[1:]) < 3
    for at in (-2e6, 2e6):
        assert np.abs(errors + at * (clocks.drift - slope)).max() < 5


def test_the_clocks_of_traces_are_found(slow: tuple[Path, Simulated], ranks: fs.Ranks) -> None:
    truth, found = slow[1], ranks.stragglers()
    middle = found._clocks.middle + (found._matched.origins[0] - found._matched.origins.min()) / 1000 + 1e4
    expected = truth.offset + truth.drift * middle
    np.testing.assert_allclose(found.ranks["clock_offset"], expected - expected[0], atol=1.0)


def test_ranks_that_share_no_collective_are_not_aligned(tmp_path: Path) -> None:
    groups = groups_of(2, 1, 2, 50, 0)[3]
    clocks = align([group for group in groups if len(group.members) == 2][:2], 5)
    assert list(clocks.component) == [0, 0, 2, 2, 4]
    assert np.isnan(clocks.uncertainty[4]) and np.isfinite(clocks.uncertainty[:4]).all()


def test_clocks_may_be_hours_apart() -> None:
    count, offset, _, groups = groups_of(4, 4, 1, 200, 2)
    hours = 3.6e9 * np.arange(count)
    for group in groups:
        group.start += hours[group.members]
    clocks = align(groups, count)
    np.testing.assert_allclose(clocks.offset, offset + hours, atol=2)


def _with_rows(group: Group, rows: Any) -> Group:
    names = ("kind", "message_bytes", "number", "factor", "start", "duration", "exposed")
    return replace(group, **{name: getattr(group, name)[rows] for name in names})


@pytest.mark.parametrize("drift", [0.0, 5.0])
def test_clocks_of_ranks_that_recorded_other_steps(drift: float) -> None:
    count, offset, slope, groups = groups_of(4, 2, 1, 300, 5, drift)
    hours = 3.6e9 * np.arange(count)
    rng = np.random.default_rng(0)
    for group in groups:
        group.start += hours[group.members]
        for column, member in enumerate(group.members):
            if member in (0, 3):
                group.start[40:, column] = np.nan  # the first rank has few calls
            if member == 6:
                group.start[:150, column] = np.nan
        enough = (~np.isnan(group.start)).sum(axis=1) > 2
        group.start[
            enough[:, None] & (rng.integers(0, 300, len(group.start))[:, None] == np.arange(len(group.members)))
        ] = np.nan
    groups = [_with_rows(group, (~np.isnan(group.start)).sum(axis=1) > 1) for group in groups]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clocks = align(groups, count)
    later = [1, 2, 4, 5, 6, 7]
    for at in (0.0, 2e6):
        found = clocks.offset + at * clocks.drift
        expected = offset + hours + (clocks.middle + at) * slope
        difference = (found - expected)[later]
        np.testing.assert_allclose(difference - difference[0], 0, atol=3)
    assert np.isfinite(clocks.uncertainty).all() and not clocks.component.any()


def test_row_medians_ignore_missing_values() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(200, 7))
    matrix[rng.random(matrix.shape) < 0.4] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(row_medians(matrix), np.nanmedian(matrix, axis=1))


def test_medians_of_others_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (9, 30)).astype(float)
    values[rng.random(values.shape) < 0.3] = np.nan
    role = rng.integers(0, 3, 9)
    found = median_of_others(values, role)
    for rank in range(9):
        others = (role == role[rank]) & (np.arange(9) != rank)
        for step in range(30):
            known = values[others, step][~np.isnan(values[others, step])]
            expected = np.median(known) if len(known) else np.nan
            np.testing.assert_equal(found[rank, step], expected)


# Matching -------------------------------------------------------------------------------------------------------------


def calls(groups: list[tuple[str, str]], rows: list[tuple[int, int, float, int]]) -> Calls:
    """Return the calls of a rank: group, kind, bytes and sequence number of each."""
    group, kind, size, sequence = (list(column) for column in zip(*rows, strict=True))
    occurrence, seen = [], {}
    for row in rows:
        occurrence.append(seen.get(row[:3], 0))
        seen[row[:3]] = occurrence[-1] + 1
    count = len(rows)
    return Calls(
        *(groups, np.array(group, np.int32), np.array(kind, np.int8), np.array(size, float)),
        *(np.array(sequence, np.int64), np.array(occurrence, np.int64), np.zeros(count, np.int16)),
        *(np.ones(count, np.bool_), np.arange(count, dtype=np.int64) * 1000, np.ones(count), np.ones(count)),
        np.ones(count),
    )


@pytest.mark.parametrize("with_sequences", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_calls_match_as_in_a_dict(seed: int, with_sequences: bool) -> None:
    rng = np.random.default_rng(seed)
    names = [(str(i), f"[{i}]") for i in range(3)]
    program = [(int(rng.integers(3)), int(rng.integers(3)), float(rng.integers(1, 3))) for _ in range(80)]
    every = []
    for _ in range(4):
        kept = [i for i in range(len(program)) if rng.random() > 0.2]
        every.append(calls(names, [(*program[i], i if with_sequences else -1) for i in kept]))
    expected: dict[Any, set[int]] = {}
    for rank, one in enumerate(every):
        for row in range(len(one)):
            name = names[one.group[row]][0]
            number = (one.sequence if with_sequences else one.occurrence)[row]
            key = (name, number) if with_sequences else (name, one.kind[row], one.message_bytes[row], number)
            expected.setdefault(key, set()).add(rank)
    expected = {key: who for key, who in expected.items() if len(who) > 1}
    matched = match(every)
    found = {}
    for group in matched.groups:
        for row in range(len(group.kind)):
            key = (group.name, group.number[row])
            if not with_sequences:
                key = (group.name, group.kind[row], group.message_bytes[row], group.number[row])
            found[key] = {int(group.members[c]) for c in np.flatnonzero(~np.isnan(group.start[row]))}
    assert found == expected
    assert list(matched.matched) == [sum(rank in who for who in expected.values()) for rank in range(4)]
    assert not matched.mismatched


def test_different_calls_under_one_number_are_listed() -> None:
    one = calls([("dp", "[0, 1]")], [(0, 0, 8.0, 0), (0, 0, 8.0, 1), (0, 3, 8.0, 2)])
    other = calls([("dp", "[0, 1]")], [(0, 0, 8.0, 0), (0, 2, 8.0, 1), (0, 3, 16.0, 2)])
    matched = match([one, other])
    assert matched.mismatched == 1  # all-to-all may send more on one rank than on another
    assert matched.mismatches[0].number == 1
    assert matched.mismatches[0].calls == {"allreduce of 8 bytes": [0], "allgather of 8 bytes": [1]}
    assert list(matched.matched) == [2, 2]
    (group,) = matched.groups
    assert isinstance(group, Group) and list(group.message_bytes) == [8, 16]


# Files ----------------------------------------------------------------------------------------------------------------


def test_rows_have_statistics_over_the_ranks(ranks: fs.Ranks, slow: tuple[Path, Simulated]) -> None:
    traces = fs.load_traces(slow[0])
    frame = ranks.key_averages()
    row = frame[(frame["key"] == "aten::mm") & (frame["device_type"] == "cpu")].iloc[0]
    times = {}
    for trace in traces:
        for one in trace.key_averages(group_by_input_shape=True):
            if one.key == "aten::mm" and one.device_type == "cpu" and one.input_shapes == row["input_shapes"]:
                times[trace.rank] = one.self_device_time_total / len(trace.step_breakdown())
    assert row["ranks"] == len(times) == 8
    assert row["time_min"] == pytest.approx(min(times.values())) and row["time_max"] == pytest.approx(
        max(times.values())
    )
    assert row["time_median"] == pytest.approx(np.median(list(times.values())))
    assert row["rank_max"] == max(times, key=lambda rank: times[rank] or 0) == 5
    assert row["rank_min"] == min(times, key=lambda rank: times[rank] or 0)


def test_steps_are_the_accounting_of_each_rank(ranks: fs.Ranks, slow: tuple[Path, Simulated]) -> None:
    steps = ranks.steps()
    for trace in fs.load_traces(slow[0])[:2]:
        expected = trace.accounting().dropna(subset="step")
        mine = steps[steps["rank"] == trace.rank]
        np.testing.assert_allclose(mine["total"], expected["total"])
        np.testing.assert_allclose(mine["communication"], expected["communication"])
        np.testing.assert_allclose(mine["own"], expected["total"] - expected["communication"])


@pytest.mark.parametrize("by_group", [True, False])
def test_collectives_by_size_are_those_of_the_single_calls(ranks: fs.Ranks, by_group: bool) -> None:
    found = ranks.stragglers()
    calls = found.collectives.assign(size=2.0 ** np.floor(np.log2(found.collectives["message_bytes"])))
    waits = found.waits.groupby("call").agg(time=("duration", "sum"), waited=("wait", "sum"))
    calls = calls.join(waits)
    keys = ["collective", "size", "count", *(["group"] if by_group else [])]
    frame = ranks.collectives(by_group=by_group)
    assert frame["calls"].sum() == len(calls) and len(frame) == calls.groupby(keys).ngroups
    steps = ranks.steps()["step"].nunique()
    for _, row in frame.iterrows():
        mine = calls[(calls["size"] == row["bytes_from"]) & (calls["count"] == row["members"])]
        mine = mine[mine["group"] == row["group"]] if by_group else mine
        assert row["calls"] == len(mine) and row["groups"] == mine["group"].nunique() and row["hosts"] == 1
        assert row["bytes_to"] == 2 * row["bytes_from"]
        assert row["skew_median"] == np.median(mine["skew"])
        assert row["skew_p95"] == pytest.approx(np.percentile(mine["skew"], 95))
        assert row["skew_uncertainty"] == np.median(mine["skew_uncertainty"])
        assert row["transfer_median"] == np.median(mine["transfer"])
        assert row["bus_gbytes_per_s"] == np.median(mine["bus_gbytes_per_s"])
        members = row["members"] * row["groups"]
        assert row["time"] == pytest.approx(mine["time"].sum() / members / steps)
        assert row["waited"] == pytest.approx(mine["waited"].sum() / members / steps)
        assert 0 < row["exposed"] <= row["time"] + 1e-6


def test_exposed_time_is_that_of_the_traces(ranks: fs.Ranks, slow: tuple[Path, Simulated]) -> None:
    traces = fs.load_traces(slow[0])
    expected = sum(trace.collectives()["exposed"].sum() for trace in traces)
    frame = ranks.collectives()
    steps = ranks.steps()["step"].nunique()
    assert (frame["exposed"] * frame["members"]).sum() * steps == pytest.approx(expected)


def test_hosts_and_groups_are_sums_of_their_ranks_and_calls(tmp_path: Path) -> None:
    simulated(tmp_path, dp=8, late_data={12: 2000.0})
    ranks = fs.load_ranks(tmp_path, workers=1)
    frame, hosts = ranks.ranks, ranks.hosts()
    assert list(hosts["host"]) == ["#1", "#0"] and list(hosts["first_rank"]) == [8, 0]
    for name in ("waited", "awaited", "times_last"):
        np.testing.assert_allclose(hosts[name], [frame[name][8:].sum(), frame[name][:8].sum()])
    groups = ranks.groups().set_index("group")
    waits = ranks.stragglers().waits.merge(ranks.stragglers().collectives, left_on="call", right_index=True)
    for name, mine in waits.groupby("group"):
        assert groups["waited"][name] == pytest.approx(mine["wait"].sum())
        assert groups["waited_pct"][name] == pytest.approx(100 * mine["wait"].sum() / mine["duration"].sum())
        last = mine[mine["last"]]["rank"].value_counts()
        assert groups["times_last"][name] == last.max() == last[groups["most_last"][name]]
        behind = mine[mine["straggler"] == groups["most_last"][name]]
        assert groups["awaited"][name] == pytest.approx(behind["wait"].sum())
    assert "Hosts that others waited for longest" in str(ranks)


def test_each_rank_has_its_facts(ranks: fs.Ranks) -> None:
    frame, steps = ranks.ranks, ranks.steps()
    assert list(frame["rank"]) == list(range(8)) and set(frame["device"]) == {"NVIDIA H200"}
    for name in ("total", "own", "communication", "data"):
        np.testing.assert_allclose(frame[name], steps.groupby("rank")[name].median())
    assert frame["slowness"].idxmax() == 5 and frame["flops"].nunique() == 1
    for name in ranks.stragglers().ranks:
        pd.testing.assert_series_equal(frame[name], ranks.stragglers().ranks[name])


def test_every_printed_skew_has_its_uncertainty(ranks: fs.Ranks) -> None:
    table = str(ranks.stragglers()).partition("Largest skews")[2].splitlines()[2:]
    assert len(table) == 5 and all(" ± " in line for line in table)
    for row, line in zip(ranks.stragglers().collectives.nlargest(5, "skew").to_dict("records"), table, strict=True):
        assert f"± {row['skew_uncertainty']:.2f}us" in line


def test_ranks_of_other_programs_and_steps_are_noted(tmp_path: Path) -> None:
    simulated(tmp_path, dp=6, tp=1, events=4000)
    assert fs.load_ranks(tmp_path, workers=1).notes == []

    def cut(rank: int, trace: dict[str, Any]) -> None:
        steps = sorted(e["ts"] for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep"))
        if rank == 4:
            trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ts"] < steps[1]]

    edited(tmp_path, cut)
    steps = fs.load_ranks(tmp_path, workers=1)
    count = steps.steps()["step"].nunique()
    assert steps.notes == [f"Rank 4: up to {count - 1} of the {count} steps are not recorded there."]

    def other(rank: int, trace: dict[str, Any]) -> None:
        for e in trace["traceEvents"] if rank < 3 else ():
            e["name"] = re.sub("^(aten::|ProfilerStep)", r"\1other", e["name"])
            if "Process Group Name" in e["args"]:
                e["args"]["Process Group Name"] += "x"

    edited(tmp_path, other)
    ranks = fs.load_ranks(tmp_path, workers=1)
    assert "2 different programs, with less than half of their ops in common: ranks 0, 1, 2; ranks 3, 4, 5" in str(
        ranks
    ).replace("\n ", "")
    assert any("none that most ranks share" in note for note in ranks.notes)
    assert any("2 sets that share no collective" in note for note in ranks.notes)


def test_a_rank_without_events_is_noted(tmp_path: Path) -> None:
    simulated(tmp_path, dp=4, tp=1)
    edited(tmp_path, lambda rank, trace: trace.update(traceEvents=[] if rank == 1 else trace["traceEvents"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ranks = fs.load_ranks(tmp_path, workers=1)
        text = str(ranks)
        ranks.tables()
    assert "Rank 1: no op with work is recorded." in text and ranks.findings == []
    assert "The clock of rank 1 is not aligned" in text


def test_one_rank_is_not_compared(tmp_path: Path) -> None:
    simulated(tmp_path, dp=1, tp=1)
    ranks = fs.load_ranks(tmp_path, workers=1)
    assert str(ranks).startswith("One rank: there is no other to compare it with.\n\n1 rank, ")
    assert all(
        len(frame) or name in ("findings", "groups", "calls", "collectives", "hosts", "last_calls")
        for name, frame in ranks.tables().items()
    )


def test_a_slow_gpu_is_named_without_collectives(tmp_path: Path) -> None:
    simulated(tmp_path, dp=5, tp=1, slow_gpu={1: 1.2})

    def alone(_: int, trace: dict[str, Any]) -> None:
        events = trace["traceEvents"]
        trace["traceEvents"] = [e for e in events if "nccl" not in e["name"] and e["name"] != "record_param_comms"]

    edited(tmp_path, alone)
    (found,) = fs.load_ranks(tmp_path, workers=1).findings
    assert (found.kind, found.ranks) == ("gpu", (1,)) and "take 1.2" in found.what and np.isnan(found.cost_us)


def test_the_page_has_the_findings(ranks: fs.Ranks, tmp_path: Path) -> None:
    ranks.write_report(tmp_path / "ranks.html", title="Run 7")
    text = (tmp_path / "ranks.html").read_text(encoding="utf-8")
    assert "Run 7" in text and ranks.findings[0].what in text
    old = text
    with pytest.raises(OSError):
        ranks.write_report(tmp_path / "absent" / "ranks.html")
    assert (tmp_path / "ranks.html").read_text(encoding="utf-8") == old


def test_tables_are_written_as_parquet(ranks: fs.Ranks, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    ranks.to_parquet(tmp_path / "out")
    for name, frame in ranks.tables().items():
        read = pandas.read_parquet(tmp_path / "out" / f"{name}.parquet")
        assert list(read.columns) == list(frame.columns) and len(read) == len(frame)
    json.dumps(ranks.to_dict(), allow_nan=False)


def test_wrong_files_are_listed_and_the_rest_is_analysed(tmp_path: Path) -> None:
    simulated(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    (tmp_path / names[0]).write_bytes((tmp_path / names[0]).read_bytes()[:300])  # of rank 0
    (tmp_path / "again.json.gz").write_bytes((tmp_path / names[3]).read_bytes())
    (tmp_path / "notes.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"[23] files are left out of 10.*Ranks.files"):
        ranks = fs.load_ranks(tmp_path, workers=2)
    left_out = ranks.files[ranks.files["problem"] != ""]
    reasons = dict(zip(map(os.path.basename, left_out["source"]), left_out["problem"], strict=True))
    assert "rank 3 was read from" in "".join(reasons.values())
    assert "notes.json" in reasons
    assert set(range(1, 8)) <= set(ranks.stragglers().ranks["rank"])


def test_ranks_are_named_by_their_files_if_traces_do_not(tmp_path: Path) -> None:
    simulated(tmp_path)
    for path in tmp_path.iterdir():
        trace = json.loads(gzip.decompress(path.read_bytes()))
        del trace["distributedInfo"]
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
    with pytest.warns(UserWarning, match="8 traces do not name their rank, which is taken from the file name"):
        ranks = fs.load_ranks(tmp_path, workers=1)
    assert set(ranks.files["rank_from"]) == {"file name"} and ranks.findings == []


def test_missing_ranks_are_counted(tmp_path: Path) -> None:
    simulated(tmp_path, lost=(2, 5))
    with pytest.warns(UserWarning, match="2 of 8 ranks have no trace: 2, 5"):
        assert len(fs.load_ranks(tmp_path, workers=1)) == 6


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank3.json", 3),
        ("a/b_rank-12.pt.trace.json.gz", 12),
        ("trace_rank_007.json", 7),
        ("Rank1_rank2.json", 2),
        ("franking.json", None),
        ("3.json", None),
    ],
)
def test_ranks_of_file_names(name: str, rank: int | None) -> None:
    assert rank_of_name(name) == rank


def test_urls_are_opened_by_fsspec(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    simulated(tmp_path, dp=2, tp=1)
    ranks = fs.load_ranks(f"file://{tmp_path}/*.json.gz", workers=1)
    assert len(ranks) == 2 and all(source.startswith("file://") for source in ranks.files["source"])
    with pytest.raises(FileNotFoundError, match="no file matches"):
        fs.load_ranks(f"file://{tmp_path}/none*.json.gz")


@pytest.mark.parametrize("wrong", [[], "/nowhere/at/all/*.json"])
def test_nothing_to_read_is_an_error(wrong: Any) -> None:
    with pytest.raises((ValueError, OSError)):
        fs.load_ranks(wrong)
    with pytest.raises(ValueError, match="workers must be at least 1, not 0"):
        fs.load_ranks([__file__], workers=0)
    with pytest.raises(ValueError, match="none of the 1 files could be read"):
        fs.load_ranks([__file__], workers=1)


# Workers --------------------------------------------------------------------------------------------------------------


def dies(item: int) -> int:
    if item == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * item


def test_a_task_that_kills_its_worker_is_a_failure_and_the_others_are_not_lost() -> None:
    found = run_everywhere(dies, range(6), [f"file {i}" for i in range(6)], None, 2)
    assert [one for one in found if not isinstance(one, Failure)] == [0, 10, 20, 40, 50]
    assert isinstance(found[3], Failure) and found[3].source == "file 3" and "died" in found[3].reason
    assert ATTEMPTS == 3


def test_a_program_without_a_guard_reads_once(slow: tuple[Path, Simulated], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import flopscope as fs\nprint(fs.load_ranks({str(slow[0])!r}, workers=2).findings[0].ranks)\n")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("(5,)\n", "")


def test_a_scheduler_that_cannot_be_reached_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("flopscope.ranks.engine.SECONDS_TO_CONNECT", 0.5)
    with pytest.raises(OSError, match=r"the scheduler 'tcp://127.0.0.1:9' cannot be reached"):
        fs.load_ranks([__file__], client="tcp://127.0.0.1:9")


def test_a_cluster_reads_the_same(slow: tuple[Path, Simulated], ranks: fs.Ranks) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = fs.load_ranks(slow[0], client=client)
    assert [one.what for one in there.findings] == [one.what for one in ranks.findings]
    np.testing.assert_array_equal(there.stragglers().ranks["waited"], ranks.stragglers().ranks["waited"])


def test_without_dask_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask.callbacks", None)
    with pytest.raises(ImportError, match=r"pip install 'flopscope-profiler\[ranks\]'"):
        fs.load_ranks([__file__], workers=1)


def test_workers_fit_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flopscope.ranks.engine._cores", lambda: 16)
    monkeypatch.setattr("flopscope.ranks.engine._available_memory", lambda: 4 << 30)
    assert workers_for([1 << 20] * 100) == 16
    assert workers_for([100 << 20] * 100) == 1 + 0
    assert workers_for([1 << 20] * 3) == 3 and workers_for([]) == 1
    assert ROWS > 1000


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_prints_the_summary(slow: tuple[Path, Simulated], tmp_path: Path, capsys: Any) -> None:
    from flopscope.cli.program import main

    out = tmp_path / "ranks.json"
    assert main(["ranks", str(slow[0]), "--workers", "1", "--json", str(out)]) == 0
    assert capsys.readouterr().out.startswith("Rank 5 ")
    content = json.loads(out.read_text())
    assert content["findings"][0]["ranks"] == [5] and len(content["ranks"]) == 8
    assert main(["ranks", str(tmp_path / "absent.json"), "--workers", "1"]) == 2


@pytest.mark.parametrize("rank", [0, 5])
def test_a_rank_that_does_not_come_is_named(rank: int, tmp_path: Path) -> None:
    simulated(tmp_path, stops={rank: 1})
    ranks = fs.load_ranks(tmp_path, workers=1)
    found = [one for one in ranks.findings if one.kind == "missing"]
    assert [one.ranks for one in found] == [(rank,)] and f"Rank {rank} did not come to allreduce" in found[0].what


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

    edited(tmp_path, waits)
    ranks = fs.load_ranks(tmp_path, workers=1)
    first, *others = ranks.findings
    assert (first.kind, first.ranks) == ("missing", (3,))
    assert first.what.startswith("Rank 3 did not come to allreduce number 12 of group tp_2: 1 of its 2 ranks called it")
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


def test_a_shorter_trace_is_no_hang(tmp_path: Path) -> None:
    simulated(tmp_path, stops={3: 1})
    edited(tmp_path, lambda rank, trace: trace.update(traceEvents=trace["traceEvents"][: 400 if rank == 3 else None]))
    assert not [one for one in fs.load_ranks(tmp_path, workers=1).findings if one.kind == "missing"]


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

"""Collectives, streams and stragglers of synthetic events: hand-computed cases, and a timeline of nanoseconds."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.ranks_cases import stragglers_of, waits_of

from flopscope import _core
from flopscope.answers.counted import Counted
from flopscope.results.results import Results
from flopscope.show import summarize
from flopscope.show.summary import Summary

NAME = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def arguments(elements: int = 1 << 20, **more: Any) -> dict[str, Any]:
    common = {"name": "allreduce", "dtype": "Float", "group": "0", "ranks": "[0, 1]", "group_size": 2}
    return {"in_elements": elements, "out_elements": elements, **common, **more}


def nccl(core: _core.Store, start: int, duration: int, collective: dict[str, Any] | None, **more: Any) -> None:
    launch: dict[str, Any] = {"grid": (24, 1, 1), "block": (544, 1, 1)}
    if collective is not None:
        launch["collective"] = collective
    _core._append(core, "kernel", NAME, start, duration, launch=launch, **{"device": 0, "stream": 17, **more})


def result(core: _core.Store, rank: int | None = None, base: int | None = None) -> Results:
    results = Results()
    results._core = core
    metadata: dict[str, Any] = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 4}}
    results.metadata = metadata if base is None else {**metadata, "baseTimeNanoseconds": base}
    return results


# One profile -------------------------------------------------------------------------------------------------------


def test_recorded_arguments_give_sizes_and_bandwidths() -> None:
    core = _core.Store()
    _core._set_window(core, 1_000, 1_000_000)
    _core._append(core, "kernel", "gemm", 31_000, 40_000, device=0)
    gather = arguments(name="_allgather_base", dtype="BFloat16", group="7", ranks="[0, 4]", group_size=4, sequence=12)
    for start in (1_000, 5_000, 9_000):  # it was launched in the second step, and runs from the third one on
        _core._append(core, "step", "train", start, 4_000)
        op = _core._append(core, "op", "all_gather", start + 1_000, 1_000, correlation=start)
    nccl(core, 11_000, 100_000, {**gather, "in_elements": 250_000, "out_elements": 1_000_000}, launcher=op - 2)
    frame = result(core).collectives()
    assert frame.to_dict("records") == [
        {
            "collective": "allgather", "name": "_allgather_base", "group": "7", "group_size": 4, "ranks": "[0, 4]",
            "dtype": "BFloat16", "device": 0, "stream": 17, "start": 10.0, "duration": 100.0,
            "message_bytes": 2e6,  # the parts of all ranks
            "exposed": 60.0,
            "algorithm_gbytes_per_s": 20.0,  # 2 MB in 100 us
            "bus_gbytes_per_s": 15.0,  # 3/4 of the above
            "occurrence": 0, "sequence": 12, "kernel": NAME, "step": "train", "step_occurrence": 1,
        }
    ]  # fmt: skip


def test_unrecorded_values_are_missing() -> None:
    core = _core.Store()
    _core._append(core, "op", "earlier", 5_000, 1_000)
    nccl(core, 7_000, 3_000, None)
    nccl(core, 17_000, 3_000, arguments(dtype="a new one", group_size=0))
    frame = result(core).collectives()
    assert list(frame["collective"]) == ["allreduce"] * 2
    assert list(frame["start"]) == [2.0, 12.0]  # since the first event, because no window is set
    assert list(frame["group_size"].isna()) == list(frame["sequence"].isna()) == [True, True]
    for name in ("name", "group", "ranks", "dtype"):
        assert list(frame[name].isna()) == [True, False]
    for name in ("message_bytes", "algorithm_gbytes_per_s", "bus_gbytes_per_s"):
        assert frame[name].isna().all()


def test_a_bandwidth_that_no_link_has_is_unknown_and_long_texts_are_cut() -> None:
    core = _core.Store()
    for start, duration in ((0, 200), (1_000, 210)):  # 20.97 and 19.97 TB/s
        nccl(core, start, duration, arguments())
    rates = result(core).collectives()["bus_gbytes_per_s"]
    assert list(rates.isna()) == [True, False] and rates[1] == pytest.approx(4 * (1 << 20) / 210)
    nccl(core, 2_000, 10, arguments(**dict.fromkeys(("name", "dtype", "group", "ranks"), "x" * 2000)))
    *_, row = result(core).collectives().to_dict("records")
    assert [len(row[name]) for name in ("name", "dtype", "group", "ranks")] == [63, 31, 127, 511]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce_coalesced", "allreduce"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("void vllm::cross_device_reduce_1stage<float, 2>()", "allreduce"),
        ("ncclKernel_ReduceScatter_Sum_bf16", "reducescatter"), ("all_gather_into_tensor_coalesced", "allgather"),
        ("ncclDevKernel_AllGather_RING_LL", "allgather"), ("all_to_allv", "alltoall"), ("_broadcast_oop", "broadcast"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"), ("_reduce_oop", "reduce"), ("scatter", "scatter"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "sendrecv"), ("ncclDevKernel_Generic_4", "other"),
    ],
)  # fmt: skip
def test_kinds_follow_from_names(name: str, kind: str) -> None:
    """A recorded collective makes any kernel communication; where its name tells no kind, the kernel's does."""
    core = _core.Store()
    launch = {"grid": (1, 1, 1), "block": (1, 1, 1)}
    for recorded, kernel in ((name, "my_kernel"), ("coalesced", name)):
        with_arguments = {**launch, "collective": arguments(name=recorded)}
        _core._append(core, "kernel", kernel, 0, 10, device=0, stream=len(kernel), launch=with_arguments)
    frame = result(core).collectives()
    assert list(frame["collective"]) == [kind] * 2 and list(frame["exposed"]) == [0.01] * 2


@pytest.mark.parametrize(
    ("name", "ranks", "factor"),
    [
        *[("allreduce", 8, 1.75), ("allreduce", 2, 1), ("allgather", 8, 0.875), ("all_to_all", 4, 0.75)],
        *[("reduce_scatter", 4, 0.75), ("gather", 4, 0.75), ("broadcast", 0, 1), ("reduce", 8, 1), ("allreduce", 1, 0)],
        *[("allreduce", 0, math.nan), ("coalesced", 8, math.nan)],
    ],
)
def test_bus_factors_are_those_of_nccl_tests(name: str, ranks: int, factor: float) -> None:
    core = _core.Store()
    launch = {"grid": (1, 1, 1), "block": (1, 1, 1), "collective": arguments(name=name, group_size=ranks)}
    _core._append(core, "kernel", "my_kernel", 0, 1_000, device=0, launch=launch)
    (row,) = result(core).collectives().to_dict("records")
    assert row["bus_gbytes_per_s"] / row["algorithm_gbytes_per_s"] == pytest.approx(factor, nan_ok=True)


@pytest.mark.parametrize("seed", range(5))
def test_numbers_match_a_timeline(seed: int) -> None:
    rng = np.random.default_rng(seed)
    core = _core.Store()
    span, streams = 3000, (7, 9, 17)
    busy = {stream: np.zeros(span, bool) for stream in streams}
    communicates = {stream: np.zeros(span, bool) for stream in streams}
    computes = np.zeros(span, bool)
    calls = []
    for _ in range(120):
        begin, length, stream = int(rng.integers(span - 50)), int(rng.integers(1, 50)), int(rng.choice(streams))
        kind = str(rng.choice(["nccl", "gemm", "memcpy"]))
        here = slice(begin, begin + length)
        busy[stream][here] = True
        if kind == "nccl":
            nccl(core, begin, length, arguments(int(rng.integers(1, 1000))), stream=stream)
            communicates[stream][here] = True
            calls.append(here)
        else:
            event = "memcpy" if kind == "memcpy" else "kernel"
            _core._append(core, event, kind, begin, length, device=0, stream=stream)
            computes[here] |= kind == "gemm"

    frame = result(core).collectives().sort_values(["start", "duration"], kind="stable")
    exposed = [np.sum(~computes[here]) / 1000 for here in sorted(calls, key=lambda here: (here.start, here.stop))]
    np.testing.assert_allclose(frame["exposed"], exposed)

    at_once = sum(line.astype(int) for line in busy.values())
    rows = result(core).stream_summary().set_index("stream")
    assert list(rows.index[:-1]) == list(streams) and math.isnan(rows.index.astype(float)[-1])
    for row, (working, communicating) in zip(
        rows.to_dict("records"),
        [*((busy[s], communicates[s]) for s in streams), (at_once > 0, np.any(list(communicates.values()), axis=0))],
        strict=True,
    ):
        assert row["busy"] == pytest.approx(working.sum() / 1000)
        assert row["overlapped"] == pytest.approx((working & (at_once > 1)).sum() / 1000)
        assert row["overlapped_pct"] == pytest.approx(100 * (working & (at_once > 1)).sum() / working.sum())
        assert row["communication"] == pytest.approx(communicating.sum() / 1000)
        assert row["exposed_communication"] == pytest.approx((communicating & ~computes).sum() / 1000)
        assert row["exposed_pct"] == pytest.approx(100 * (communicating & ~computes).sum() / communicating.sum())


def test_a_profile_without_communication_has_no_rows_and_no_section() -> None:
    core = _core.Store()
    assert len(result(core).collectives()) == len(result(core).stream_summary()) == 0
    _core._append(core, "kernel", "gemm", 0, 1_000, device=3)
    assert len(result(core).collectives()) == 0 and result(core).stream_summary()["exposed_pct"].isna().all()
    assert "Communication" not in str(Summary(summarize.details(core, Counted(core)), {}))


def test_the_summary_lists_bandwidths_and_exposed_times() -> None:
    core = _core.Store()
    _core._append(core, "kernel", "gemm", 0, 30_000, device=0)
    for start, duration in ((0, 40_000), (100_000, 20_000), (200_000, 80_000)):
        nccl(core, start, duration, arguments(500_000))  # 2 MB: 50, 100 and 25 GB/s
    nccl(core, 300_000, 1_000, arguments(1000, name="_allgather_base"), device=127)
    nccl(core, 400_000, 1_000, None, device=127)
    lines = str(Summary(summarize.details(core, Counted(core)), {})).splitlines()
    at = lines.index("Communication")
    assert [line.split() for line in lines[at + 2 : at + 5]] == [
        ["cuda:0", "allreduce", "3", "1.9", "MiB", "140us", "110us", "78.6%", "50.00", "100.0"],
        ["cuda:127", "allgather", "1", "3.9", "KiB", "1.00us", "1.00us", "100.0%", "2.000", "2.000"],
        ["cuda:127", "allreduce", "1", "--", "1.00us", "1.00us", "100.0%", "--", "--"],
    ]
    assert max(map(len, lines)) <= 100


# Across ranks ------------------------------------------------------------------------------------------------------


def ranks_of(starts: Sequence[Sequence[int]], ends: Sequence[int], clocks: Sequence[int]) -> list[Results]:
    """Return a trace for each rank: collectives start at ``starts[rank]`` and end together, in ns."""
    traces = []
    for rank, (own, clock) in enumerate(zip(starts, clocks, strict=True)):
        core = _core.Store()
        for start, end in zip(own, ends, strict=True):
            nccl(core, start + clock, end - start, arguments(500_000), device=rank)
        traces.append(result(core, rank))
    return traces


def test_ranks_wait_for_the_last() -> None:
    traces = ranks_of(
        starts=[[10_000, 200_000, 300_000], [40_000, 190_000, 305_000], [20_000, 260_000, 301_000]],
        ends=[50_000, 270_000, 315_000],
        clocks=[0, 7_000_000, -2_000_000],
    )
    report = stragglers_of(traces[::-1])
    calls = report.collectives
    assert list(calls["straggler"]) == [1, 2, 1] and list(calls["count"]) == [3, 3, 3]
    assert list(calls["number"]) == [0, 1, 2] and set(calls["message_bytes"]) == {2e6}
    np.testing.assert_allclose(calls["start"], [30, 250, 295])
    np.testing.assert_allclose(calls["skew"], [30, 70, 5])
    np.testing.assert_allclose(calls["transfer"], [10, 10, 10])
    np.testing.assert_allclose(calls["bus_gbytes_per_s"], [200, 200, 200])
    waits = waits_of(report).pivot(index="call", columns="rank", values="wait")
    np.testing.assert_allclose(waits, [[30, 0, 20], [60, 70, 0], [5, 0, 4]], atol=1e-9)
    assert list(waits_of(report).query("last")["rank"]) == [1, 2, 1]

    ranks = report.ranks.set_index("rank")
    assert list(ranks.index) == [0, 1, 2] and list(ranks["times_last"]) == [0, 2, 1]
    assert list(ranks["collectives"]) == [3, 3, 3] and list(ranks["unmatched"]) == [0, 0, 0]
    np.testing.assert_allclose(ranks["waited"], [95, 70, 24])
    np.testing.assert_allclose(ranks["awaited"], [0, 30 + 20 + 5 + 4, 60 + 70], atol=1e-9)
    np.testing.assert_allclose(ranks["waited_pct"], [100 * 95 / 125, 100 * 70 / 100, 100 * 24 / 54])
    np.testing.assert_allclose(ranks["clock_offset"], [0, 7000, -2000])
    np.testing.assert_allclose(ranks["clock_spread"], [0, 0, 0], atol=1e-9)

    text = str(report)
    assert max(map(len, text.splitlines())) <= 100
    assert [line.split()[:4] for line in text.splitlines()[2:5]] == [
        ["0", "3", "0", "0"], ["1", "3", "0", "2"], ["2", "3", "0", "1"],
    ]  # fmt: skip
    worst = text.splitlines()[-3:]
    assert [line.split()[4:7] for line in worst] == [
        ["rank", "2", "70.0us"], ["rank", "1", "30.0us"], ["rank", "1", "5.00us"],
    ]  # fmt: skip


def test_a_dict_names_ranks_and_base_times_are_applied() -> None:
    first, second = ranks_of([[0, 100_000], [20_000, 100_000]], [50_000, 150_000], [0, 0])
    early = 1_790_857_026_000_000_000  # ns since 1970; doubles of this size are 256 ns apart
    named = stragglers_of({5: result(first._core, base=early), 3: result(second._core, base=early + 1_003)})
    assert list(named.ranks["rank"]) == [3, 5] and list(named.collectives["straggler"]) == [3, 3]
    np.testing.assert_allclose(named.ranks["clock_offset"], [0, -1.003], atol=1e-6)


def test_ranks_that_share_no_collective_with_the_first_are_aligned_by_others() -> None:
    """Groups [0, 1], [1, 2] and [3, 4]: rank 2 is aligned by rank 1, ranks 3 and 4 only with each other."""
    clocks = [0, 1_000_000, 5_000_000, 40_000, 43_000]
    cores = [_core.Store() for _ in clocks]
    for group, start in (((0, 1), 10_000), ((1, 2), 20_000), ((3, 4), 30_000)):
        for rank in group:
            own = start + 1_000 * rank
            call = arguments(group="pair", ranks=str(list(group)))  # the name alone does not identify a group
            nccl(cores[rank], own + clocks[rank], start + 9_000 - own, call)
    report = stragglers_of([result(core, rank) for rank, core in enumerate(cores)])
    np.testing.assert_allclose(report.ranks["clock_offset"], [0, 1000, 5000, 0, 3])
    assert list(report.collectives["straggler"]) == [1, 2, 4] and list(report.collectives["count"]) == [2, 2, 2]
    np.testing.assert_allclose(report.collectives["skew"], [1, 1, 1])


def test_calls_that_differ_between_ranks_are_not_matched() -> None:
    cores = [_core.Store() for _ in range(2)]
    for rank, core in enumerate(cores):
        nccl(core, 0, 1_000, None)
        nccl(core, 10_000, 1_000, arguments(name="send"))
        nccl(core, 20_000, 1_000, arguments(10 + rank))
    report = stragglers_of(dict(enumerate(result(core) for core in cores)))
    assert len(report.collectives) == 0
    assert list(report.ranks["unmatched"]) == [3, 3] and list(report.ranks["times_last"]) == [0, 0]
    assert str(report) == "No collective could be matched across ranks.\n"


def test_a_root_that_has_ended_did_not_wait() -> None:
    cores = [_core.Store() for _ in range(2)]
    for rank, (start, duration) in enumerate(((0, 5_000), (20_000, 5_000))):
        nccl(cores[rank], start, duration, arguments(name="broadcast"))
        nccl(cores[rank], 100_000, 10_000, arguments())  # aligns the clocks
    report = stragglers_of([result(core, rank) for rank, core in enumerate(cores)])
    assert list(report.ranks["clock_offset"]) == [0, 0]
    assert report.ranks["waited"][0] == 5.0 and report.collectives["skew"][0] == 20.0

"""Kernels of collectives get kind, message and ranks from the HLO of their program, in each form of instruction and of
groups. The sizes are by hand: the larger of what a device sends and receives."""

from typing import Any

import pandas as pd
import pytest
from helpers.hand_traces import call, kernel, quietly, rewritten, text_of
from helpers.ranks_cases import stragglers_of

import flopscope as fs

HEAD = """HloModule jit_step, is_scheduled=true, num_partitions=8

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""
MESH = "mesh['x'=2,'y'=4]"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
EXCHANGE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def entry(body: str, more: str = "") -> str:
    """Return a program that runs these instructions after a kernel of its own; x is 1,024 float32."""
    start = "  x0 = f32[1024] parameter(0)\n  x = f32[1024] fusion(x0), kind=kLoop, calls=twice\n"
    twice = "twice {\n  p = f32[1024] parameter(0)\n  ROOT q = f32[1024] add(p, p)\n}\n"
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    return f"{HEAD}{twice}{more}ENTRY main {{\n{start}{lines}}}\n"


def recorded(*kernels: str, steps: int = 4, process: int = 1, **more: dict[str, Any]) -> bytes:
    """Return a trace of steps; each runs `twice` (named x) and the kernels, 10 µs each; more: arguments of kernels."""
    events = []
    for number, name in enumerate(("x", *kernels) * steps):
        at, ids = 20 * number, {"correlation": number + 1}
        events.append(kernel(name, 1000.0 + at, 10.0, grid=[8, 1, 1], block=[256, 1, 1], **ids, **more.get(name, {})))
        events.append(call("cudaLaunchKernel", 500.0 + at, 10.0, pid=process, **ids))
    return text_of(*events, schemaVersion=1)


def only(hlo: str, *kernels: str) -> dict[str, Any]:
    """Return the one collective that all steps have."""
    frame = fs.load_trace(recorded(*kernels), hlo=hlo).collectives()
    columns = ["collective", "message_bytes", "group_size", "bus_gbytes_per_s", "dtype", "group"]
    assert len(frame) == 4 * len(kernels) and (frame[columns].drop_duplicates().shape[0]) == 1
    return dict(frame.iloc[0])


@pytest.mark.parametrize(
    ("groups", "ranks"),
    [
        ("replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true", 8),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}, use_global_device_ids=true", 2),
        ("replica_groups=[2,4]<=[8], use_global_device_ids=true", 4),
        ("replica_groups=[4,2]<=[2,4]T(1,0), use_global_device_ids=true", 2),
        (f"replica_groups={MESH} {{'x'}}, use_global_device_ids=true", 2),
        (f"replica_groups={MESH} {{'x','y'}}, use_global_device_ids=true", 8),
        (f"replica_groups={MESH} {{'y':(1)2}}, use_global_device_ids=true", 2),
        ("replica_groups=mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)) {'y'}, use_global_device_ids=true", 4),
        ("replica_groups={{0}}", 8),  # of replicas, with all of their partitions
        ("replica_groups={}", 8),
        ("replica_groups={{0,1},{2,3,4}}, use_global_device_ids=true", None),
        ("replica_groups=nobody_knows(2), use_global_device_ids=true", None),
    ],
)
@pytest.mark.parametrize("form", ["all-reduce(x)", "all-reduce-start(x)"])
def test_ranks_are_those_of_the_groups(form: str, groups: str, ranks: int | None) -> None:
    body = f"y = f32[1024] {form}, channel_id=1, {groups}, to_apply=add"
    if "start" in form:
        body += "\nz = f32[1024] all-reduce-done(y)"
    row = only(entry(body), REDUCE)
    assert row["collective"] == "allreduce" and row["message_bytes"] == 4096 and row["dtype"] == "Float"
    if ranks is None:
        assert pd.isna(row["group_size"]) and pd.isna(row["bus_gbytes_per_s"])
    else:
        assert row["group_size"] == ranks
        assert row["bus_gbytes_per_s"] == pytest.approx(4096 / 10e3 * 2 * (ranks - 1) / ranks)
    # Which of several groups a device is in is unknown.
    assert row["group"] == ("" if ranks == 8 else "one of ") + groups.partition(", use_global")[0].partition("=")[2]


ALL = "channel_id=1, replica_groups=[1,8]<=[8]"
SUM = f"{ALL}, to_apply=add, use_global_device_ids=true"
ALONG = f"{ALL}, dimensions={{0}}, use_global_device_ids=true"


WRAPPED = f"wrapped {{\n p = f32[1024] parameter(0)\n  ROOT r = f32[128] reduce-scatter(p), {ALONG}, to_apply=add\n}}\n"


@pytest.mark.parametrize(
    ("body", "kernel", "kind", "size", "factor"),
    [
        (f"y = f32[8192] all-gather(x), {ALONG}", GATHER, "allgather", 32768, 7 / 8),
        (
            f"s = (f32[1024], f32[8192]) all-gather-start(x), {ALONG}\ny = f32[8192] all-gather-done(s)",
            *(GATHER, "allgather", 32768, 7 / 8),
        ),
        (
            f"s = ((f32[1024], f32[1024]), (f32[8192], f32[8192])) all-gather-start(x, x), {ALONG}\n"
            "y = (f32[8192], f32[8192]) all-gather-done(s)",
            *(GATHER, "allgather", 65536, 7 / 8),
        ),
        (f"y = f32[128] reduce-scatter(x), {ALONG}, to_apply=add", SCATTER, "reducescatter", 4096, 7 / 8),
        (f"y = f32[1024] all-to-all(x), {ALL}, dimensions={{0}}", EXCHANGE, "alltoall", 4096, 7 / 8),
        (f"y = (f32[1024], f32[1024]) all-to-all(x, x), {ALL}", EXCHANGE, "alltoall", 8192, 7 / 8),
        (
            "s = (f32[1024], f32[1024]) collective-permute-start(x), channel_id=1, source_target_pairs={{0,1},{1,0}}\n"
            "y = f32[1024] collective-permute-done(s)",
            *(EXCHANGE, "sendrecv", 4096, 1),
        ),
        (f"y = f32[1024] collective-broadcast(x), {ALL}", "ncclDevKernel_Broadcast_RING_LL", "broadcast", 4096, 1),
        (f"y = (f32[1024], f32[1024]) all-reduce(x, x), {SUM}", REDUCE, "allreduce", 8192, 7 / 4),
        (
            f"s = ((f32[1024]), f32[1024]) all-reduce-start(x), {SUM}\ny = f32[1024] all-reduce-done(s)",
            *(REDUCE, "allreduce", 4096, 7 / 4),
        ),
    ],
)
def test_kind_and_message_are_the_instructions(body: str, kernel: str, kind: str, size: int, factor: float) -> None:
    row = only(entry(body), kernel)
    assert (row["collective"], row["message_bytes"]) == (kind, size)
    assert row["bus_gbytes_per_s"] == pytest.approx(size / 10e3 * factor)


def test_a_collective_in_another_computation_is_found() -> None:
    start = "s = ((f32[1024]), f32[128]) async-start(x), calls=wrapped\ny = f32[128] async-done(s)"
    fused = "y = f32[128] fusion(x), kind=kCustom, calls=wrapped"
    for body in (start, fused):
        row = only(entry(body, WRAPPED), SCATTER)
        assert (row["collective"], row["message_bytes"], row["group_size"]) == ("reducescatter", 4096, 8)


def test_several_kernels_of_one_instruction_and_ragged_amounts_have_no_size() -> None:
    body = f"y = (f32[1024], f32[1024]) all-reduce(x, x), {SUM}"
    frame = fs.load_trace(recorded(REDUCE, REDUCE), hlo=entry(body)).collectives()
    assert set(frame["collective"]) == {"allreduce"} and set(frame["group_size"]) == {8}
    assert frame["message_bytes"].isna().all()
    ragged = f"y = f32[1024] ragged-all-to-all(x, x, x, x, x, x), {ALL}"  # only the data tell the amounts
    frame = fs.load_trace(recorded(EXCHANGE), hlo=entry(ragged)).collectives()
    assert set(frame["collective"]) == {"alltoall"} and frame["message_bytes"].isna().all()


def test_elements_of_several_types_count_in_bytes() -> None:
    body = f"n = bf16[1024] convert(x)\ny = (f32[1024], bf16[1024]) all-reduce(x, n), {SUM}"
    frame = fs.load_trace(recorded("n", REDUCE), hlo=entry(body)).collectives()
    assert set(frame["message_bytes"]) == {6144} and set(frame["dtype"]) == {"bytes"}


def test_a_written_trace_keeps_the_collectives(tmp_path: Any) -> None:
    body = f"y = f32[1024] all-reduce(x), {SUM}"
    trace = fs.load_trace(recorded(REDUCE), hlo=entry(body))
    again = rewritten(trace, tmp_path)
    columns = ["collective", "message_bytes", "group_size", "group", "bus_gbytes_per_s"]
    assert again.collectives()[columns].equals(trace.collectives()[columns])


def test_what_nvtx_told_of_a_message_stays() -> None:
    """NCCL's payload has the size; the HLO adds the number of ranks."""
    body = f"y = f32[1024] all-reduce(x), {SUM}"
    told = {"Collective name": "allreduce", "In msg nelems": 5000, "Out msg nelems": 5000, "dtype": "bytes"}
    data = recorded(REDUCE, **{REDUCE: {**told, "Process Group Name": "0x12"}})
    frame = fs.load_trace(data, hlo=entry(body)).collectives()
    assert set(frame["message_bytes"]) == {5000} and set(frame["group_size"]) == {8} and set(frame["group"]) == {"0x12"}


def test_calls_of_several_groups_are_not_matched_across_ranks() -> None:
    """Each of four processes has one GPU; in pairs, nothing tells which one a process is in."""
    found = {}
    for groups in ("[1,4]<=[4]", "[2,2]<=[4]"):
        body = f"y = f32[1024] all-reduce(x), {SUM}".replace("[1,8]<=[8]", groups)
        hlo = entry(body).replace("num_partitions=8", "num_partitions=4")
        traces = {rank: quietly(recorded(REDUCE, process=1 + rank), hlo=hlo) for rank in range(4)}
        found[groups] = stragglers_of(traces).collectives
    assert len(found["[1,4]<=[4]"]) == 4 and found["[1,4]<=[4]"].group.eq("[1,4]<=[4]").all()
    assert len(found["[2,2]<=[4]"]) == 0

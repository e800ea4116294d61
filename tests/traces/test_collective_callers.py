"""Collectives whose kernels carry no arguments: kind and sizes come from the ops around the launch."""

import itertools
import math
from typing import Any

import numpy as np
import pandas
import pytest
from helpers.hand_traces import Json, call, event, kernel, load
from helpers.ranks_cases import stragglers_of

import flopscope as fs

GENERIC = (
    "ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    "void ncclKernel_Generic<8>(ncclDevComm*)",
)
BYTES = {"float": 4, "c10::BFloat16": 2, "long int": 8, "unsigned char": 1}
NAMES = {"float": "Float", "c10::BFloat16": "BFloat16", "long int": "Long", "unsigned char": "Byte"}

Call = tuple[str, dict[str, Any]]
"""An op or annotation and its "args"."""


def shapes(dims: list[Any], types: list[str]) -> dict[str, Any]:
    return {"Input Dims": dims, "Input type": types}


def trace_of(
    calls: list[tuple[str, list[Call]]], rank: int = 0, late: float = 0.0, clock: float = 0.0, by_id: bool = True,
    launcher: int | None = None,
) -> fs.Trace:  # fmt: skip
    """Return a trace of kernels, 1 ms apart, each launched inside its calls, which are listed outermost first.

    late: delay of this rank's kernels in µs; all ranks' kernels end after 500 µs. by_id: kernels carry the id of the
    innermost op (or of the ``launcher``), otherwise only the correlation of their API call, as before torch 1.13.
    """
    events: list[Json] = []
    for number, (name, around) in enumerate(calls):
        at, inner = 1000.0 * number, {}
        for depth, (op, args) in enumerate(around):
            identity = {"External id": 100 * number + depth + 1}
            # An annotation ends when another thread notices the end of the collective.
            annotation = ":" in op and "::" not in op
            kind, duration = ("user_annotation", 300) if annotation else ("cpu_op", 90 - 2 * depth)
            events.append(event(kind, op, clock + at + depth, duration, **identity, **args))
            inner = inner if annotation else identity
        ids = (inner if launcher is None else {"External id": launcher}) if by_id else {}
        ids = {"correlation": 5000 + number, **ids}
        events.append(call("hipLaunchKernel", clock + at + 40, 5, correlation=5000 + number))
        events.append(kernel(name, clock + at + 50 + late, 500 - late, **ids))
    return load(*events, distributedInfo={"rank": rank, "world_size": 2})


def only(trace: fs.Trace) -> dict[str, Any]:
    (row,) = trace.collectives().to_dict("records")
    return row


STATED = {
    **{"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "BFloat16"},
    **{"Group size": 4, "Process Group Name": "7", "Process Group Ranks": "[0, 1, 2, 3]", "Seq": 41},
}


@pytest.mark.parametrize("kernel", GENERIC)
@pytest.mark.parametrize("dims", [{}, shapes([[[1 << 20]], [], []], ["TensorList", "", "Scalar"])], ids=["", "shapes"])
@pytest.mark.parametrize("launcher", [None, 1], ids=["", "the op around it launches"])
def test_a_kernel_has_the_arguments_of_its_op(kernel: str, dims: dict[str, Any], launcher: int | None) -> None:
    op = ("record_param_comms", {**STATED, **dims})
    row = only(trace_of([(kernel, [("c10d::allreduce_", {}), op])], launcher=launcher))
    assert row["collective"] == row["name"] == "allreduce" and (row["group"], row["ranks"]) == ("7", "[0, 1, 2, 3]")
    assert (row["dtype"], row["group_size"], row["sequence"], row["kernel"]) == ("BFloat16", 4, 41, kernel)
    assert row["message_bytes"] == 2 << 20
    assert row["bus_gbytes_per_s"] == pytest.approx((2 << 20) / 500e3 * 2 * 3 / 4)  # B/ns; nccl-tests' factor


def test_arguments_of_a_collective_do_not_change_its_input_shapes() -> None:
    dims = [[[16]], [], [3, 5]]
    calls = [
        (GENERIC[0], [("record_param_comms", {**STATED, "Seq": i, **shapes(dims, ["TensorList", "", "float"])})])
        for i in range(3)
    ]
    table = trace_of(calls).key_averages(group_by_input_shape=True)
    (row,) = (row for row in table if row.key == "record_param_comms")
    assert row.count == 3 and row.input_shapes == [[], [], [3, 5]]  # as torch prints lists


KINDS = {
    **{"nccl:all_reduce": "allreduce", "nccl:_all_gather_base": "allgather", "nccl:all_gather": "allgather"},
    **{"nccl:_reduce_scatter_base": "reducescatter", "nccl:all_to_all": "alltoall", "nccl:broadcast": "broadcast"},
    **{"nccl:reduce": "reduce", "nccl:barrier": "barrier", "nccl:send": "send", "nccl:recv": "recv"},
    **{"c10d::allreduce_": "allreduce", "c10d::_allgather_base_": "allgather", "c10d::alltoall_base_": "alltoall"},
    **{"c10d::reduce_scatter_tensor_coalesced_": "reducescatter", "c10d::broadcast_": "broadcast"},
    **{"c10d::gather_": "gather", "c10d::recv_any_source_": "recv", "_c10d_functional::all_to_all_single": "alltoall"},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_kernel_of_unknown_kind_has_the_kind_of_its_caller(name: str) -> None:
    inner = [("aten::foo", {}), ("record_param_comms", {}), (name, {})]
    outer = [(name, {}), ("record_param_comms", {})]
    arounds = [inner] if name.startswith("nccl:") else [inner, outer]
    for around, by_id in itertools.product(arounds, (True, False)):
        row = only(trace_of([(GENERIC[1], around)], by_id=by_id))
        assert (row["collective"], row["name"]) == (KINDS[name], name)
        assert math.isnan(row["message_bytes"]) and row["dtype"] is None


# The op, its arguments' shapes and types, the shapes of its inputs, the elements of the message as nccl-tests defines
# it, and the size of the group if the shapes determine it.
SIZES: list[tuple[str, list[Any], list[str], list[Any], int | None, int | None]] = [
    ("allreduce_", [[[128, 3], [5]], [], []], ["TensorList", "", ""], [[128, 3], [5]], 128 * 3 + 5, None),
    ("broadcast_", [[[64]], [], []], ["TensorList", "", "Scalar"], [[64]], 64, None),
    ("reduce_", [[[64]], [], []], ["TensorList", "", "Scalar"], [[64]], 64, None),
    ("_allgather_base_", [[8, 32], [2, 32], []], ["T", "T", ""], [[2, 32]], 8 * 32, 4),
    ("allgather_into_tensor_coalesced_", [[[8], [16]], [[2], [4]]], ["TensorList"] * 2, [[2], [4]], 24, 4),
    ("allgather_", [[], [[32]], []], ["GenericList", "TensorList", ""], [[32]], None, None),  # only parts
    ("_reduce_scatter_base_", [[2, 32], [6, 32], []], ["T", "T", ""], [[6, 32]], 6 * 32, 3),
    ("alltoall_base_", [[100], [90], [], [], []], ["T", "T", "", "", ""], [[90]], 100, None),
    ("send", [[[77]], [], []], ["TensorList", "", "Scalar"], [[77]], 77, None),
    ("recv_", [[[78]], [], []], ["TensorList", "", "Scalar"], [[78]], 78, None),
    ("gather_", [[], [[32]], []], ["GenericList", "TensorList", ""], [[32]], None, None),  # known to the root only
    ("barrier", [[1], [], []], ["T", "", ""], [[1]], None, None),
]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize(("op", "dims", "types", "inputs", "elements", "ranks"), SIZES, ids=[row[0] for row in SIZES])
def test_sizes_follow_from_the_tensors(
    op: str, dims: list[Any], types: list[str], inputs: list[Any], elements: int | None, ranks: int | None, dtype: str
) -> None:
    call = (f"c10d::{op}", shapes(dims, [dtype if name == "T" else name for name in types]))
    inside = [
        ("record_param_comms", shapes([[], []], ["TensorList", "Scalar"])),
        ("nccl:x", shapes(inputs, [dtype] * len(inputs))),  # lists record no dtype
    ]
    for around in [[call, *inside], [call]] if "T" in types else [[call, *inside]]:
        row = only(trace_of([(GENERIC[1], around)]))
        assert row["group_size"] == ranks if ranks else pandas.isna(row["group_size"])
        assert row["dtype"] == NAMES[dtype] or op == "barrier"
        if elements is None:
            assert math.isnan(row["message_bytes"])
        else:
            assert row["message_bytes"] == elements * BYTES[dtype]


def old(sizes: list[Any], dtype: str = "float") -> list[Call]:
    """Return calls as torch 1.10 to 2.0 writes them: lists have neither sizes nor a dtype."""
    return [
        ("c10d::allreduce_", shapes([[], [], [], []], ["TensorList", "", "", "Scalar"])),
        ("record_param_comms", shapes([[], [], []], ["TensorList", "Scalar", "Scalar"])),
        ("nccl:all_reduce", shapes(sizes, [dtype] * len(sizes))),
    ]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("c10d", [True, False])
def test_annotations_have_the_sizes_that_lists_lack(dtype: str, c10d: bool) -> None:
    around = old([[394241], [3, 3]], dtype)
    row = only(trace_of([(GENERIC[0], around[not c10d :])], by_id=False))
    assert (row["collective"], row["name"], row["dtype"]) == ("allreduce", "nccl:all_reduce", NAMES[dtype])
    assert row["message_bytes"] == (394241 + 9) * BYTES[dtype]


def test_the_first_argument_of_record_param_comms_is_the_input() -> None:
    first = ("record_param_comms", shapes([[6144], [], [], []], ["float", "Scalar", "Scalar", "Scalar"]))
    around = [first, ("nccl:all_to_all", {})]
    row = only(trace_of([("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWork*)", around)]))
    assert (row["collective"], row["message_bytes"], row["dtype"]) == ("alltoall", 6144 * 4, "Float")


def test_a_kernel_of_known_kind_keeps_it() -> None:
    """An allgather of uneven parts runs as broadcasts, none of which moves the whole message."""
    call = ("c10d::allgather_", shapes([[8], [2]], ["float", "float"]))
    row = only(trace_of([("ncclDevKernel_Broadcast_RING_LL(int)", [call])]))
    assert row["collective"] == "broadcast" and row["name"] is None and math.isnan(row["message_bytes"])
    row = only(trace_of([("ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", [("c10d::barrier", {})])]))
    assert row["collective"] == "barrier"
    # Several annotations are ambiguous.
    around = [("record_param_comms", {}), ("nccl:all_reduce", {}), ("nccl:broadcast", {})]
    row = only(trace_of([(GENERIC[0], around)]))
    assert row["collective"] == "other" and row["name"] is None


def test_impossible_sizes_are_missing() -> None:
    for dims in ([[2**62, 8]], [[-1, 5]], [[[2**62], [2**62], [2**62]]]):
        row = only(trace_of([(GENERIC[0], [("c10d::allreduce_", shapes(dims, ["float"])), ("nccl:x", {})])]))
        assert row["collective"] == "allreduce" and math.isnan(row["message_bytes"])


# Across ranks ---------------------------------------------------------------------------------------------------------


def test_collectives_without_a_group_are_matched_across_ranks() -> None:
    sizes = [1000, 1000, 7, 1000, 7]
    calls = [(GENERIC[0], old([[size]])) for size in sizes]
    result = stragglers_of([trace_of(calls), trace_of(calls, rank=1, late=120.0, clock=3e6)])
    assert list(result.collectives["straggler"]) == [1] * 5 and list(result.collectives["number"]) == [0, 1, 0, 2, 1]
    np.testing.assert_allclose(result.collectives["message_bytes"], [4 * size for size in sizes])
    np.testing.assert_allclose(result.collectives["skew"], 120, rtol=1e-6)
    np.testing.assert_allclose(result.ranks["clock_offset"], [0, 3e6])
    assert list(result.ranks["unmatched"]) == [0, 0]


def test_kernels_of_unknown_size_are_matched_by_kind_and_order() -> None:
    kinds = ("all_reduce", "broadcast") * 2
    calls = [(GENERIC[0], [("record_param_comms", {}), (f"nccl:{kind}", {})]) for kind in kinds]
    earlier = [(GENERIC[0], [])]  # launched before the trace began
    result = stragglers_of([trace_of(earlier + calls), trace_of(calls, rank=1, late=50.0)])
    assert sorted(result.collectives["collective"]) == ["allreduce"] * 2 + ["broadcast"] * 2
    assert result.collectives["message_bytes"].isna().all() and list(result.ranks["unmatched"]) == [1, 0]
    assert list(result.collectives["straggler"]) == [1] * 4 and "--" in str(result) and "nan" not in str(result)

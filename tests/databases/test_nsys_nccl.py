"""Messages of NCCL in exports of Nsight Systems: sizes and bandwidths from the payloads of its ranges."""

import struct
from pathlib import Path
from typing import Any

import pytest
from helpers.captures import DOMAIN, Nsys
from helpers.nsys_programs import fake_nsys
from hypothesis import given, settings
from hypothesis import strategies as st

import flopscope as fs

pytestmark = pytest.mark.usefixtures("reader")

NCCL = 3  # the domain
COMM, INIT, REDUCE, GATHER, PEER = 1 << 24, (1 << 24) + 1, (1 << 24) + 2, (1 << 24) + 3, (1 << 24) + 4
INT, UINT64, SIZE = 5, 18, 22  # NVTX_PAYLOAD_ENTRY_TYPE_…
IDENTITY = (0, UINT64, "NCCL communicator ID", None)
MESSAGE = (1, SIZE, "Message size [bytes]", 8)
SCHEMAS = {
    COMM: [IDENTITY], INIT: [IDENTITY, (1, INT, "No. of ranks", 8), (2, INT, "Rank", 12), (3, INT, "CUDA device", 16)],
    REDUCE: [IDENTITY, MESSAGE, (2, REDUCE + 100, "Reduction operation", 16)], GATHER: [IDENTITY, MESSAGE],
    PEER: [IDENTITY, MESSAGE, (2, INT, "Peer rank", 16)],
}  # fmt: skip
CALLS = {
    **{"AllReduce": REDUCE, "Reduce": REDUCE, "ReduceScatter": REDUCE, "AllGather": GATHER, "AlltoAll": GATHER},
    **{"Broadcast": PEER, "Send": PEER, "Recv": PEER, "CommInitRank": INIT, "CommCount": COMM},
}
COMMUNICATOR = 0xFEDCBA9876543210


def payload(schema: int, *values: int) -> bytes:
    """Return bytes as nsys exports them: a header of domain, schema, size and place, then a C struct."""
    form = {COMM: "<Q", INIT: "<Qiiixxxx", REDUCE: "<QQixxxx", GATHER: "<QQ", PEER: "<QQixxxx"}[schema]
    content = struct.pack(form, *values)
    return struct.pack("<QQQQ", NCCL, schema, len(content), 32) + content


class Program:
    """A program whose calls of NCCL follow one another, 1 µs each."""

    def __init__(self, *, named: bool = True) -> None:
        self.made, self.at, self.correlation = Nsys(), 1000, 0
        if named:
            self.made.nvtx("NCCL", 0, None, eventType=DOMAIN, domainId=NCCL)
        for schema, entries in SCHEMAS.items():
            for idx, kind, name, offset in entries:
                row = {"domainId": NCCL, "schemaId": schema, "idx": idx, "type": kind, "name": name, "offset": offset}
                self.made.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", **row)

    def call(self, name: str, *values: int, kernels: int = 0, communicator: int = COMMUNICATOR, **more: Any) -> None:
        schema = CALLS.get(name)
        data = payload(schema, communicator, *values) if schema is not None else None
        more = {"binaryData": data} | more
        self.made.nvtx(f"nccl{name}", self.at, self.at + 900, domainId=NCCL, **more)
        for place in range(kernels):
            self.correlation += 1
            start = self.at + 100 * (1 + place)
            self.made.call("cudaLaunchKernelExC_v11060", start, start + 50, self.correlation)
            kernel = f"ncclDevKernel_{name if schema is not None else 'SendRecv'}(ncclDevKernelArgsStorage<4096ul>)"
            self.made.kernel(kernel, start + 60, start + 60 + 2000, self.correlation, stream=20)
        self.at += 1000

    def rows(self, folder: Path) -> list[dict[str, Any]]:
        trace = self.made.load(folder)
        found = trace.collectives()
        known = int(found.message_bytes.notna().sum())
        assert trace.metadata["nsys"]["messages"] >= known
        return [{name: found[name][place] for name in found.columns} for place in range(len(found))]


# Per call of 1 MB by 4 ranks: the whole message, and nccl-tests' factor from algorithm to bus bandwidth.
WHOLE = {
    **{"AllReduce": (1, 2 * 3 / 4), "AllGather": (4, 3 / 4), "ReduceScatter": (4, 3 / 4), "AlltoAll": (4, 3 / 4)},
    **{"Broadcast": (1, 1), "Reduce": (1, 1), "Send": (1, 1)},
}


@pytest.mark.parametrize("named", [True, False], ids=["named domain", "unnamed domain"])
def test_each_collective_has_its_message_and_bandwidth(named: bool, tmp_path: Path) -> None:
    program = Program(named=named)
    program.call("CommInitRank", 4, 0, 0)
    for name in WHOLE:
        rest = [0] if CALLS[name] != GATHER else []
        program.call(name, 1_000_000, *rest, kernels=1)
    rows = program.rows(tmp_path)
    assert [row["collective"] for row in rows] == [name.lower() for name in WHOLE]
    for row, (factor, bus) in zip(rows, WHOLE.values(), strict=True):
        assert row["message_bytes"] == factor * 1_000_000
        assert row["algorithm_gbytes_per_s"] == pytest.approx(factor * 1e6 / 2000)
        assert row["bus_gbytes_per_s"] == pytest.approx(bus * factor * 1e6 / 2000) and row["group_size"] == 4
        assert row["group"] == "0xfedcba9876543210" and row["dtype"] == "bytes"


def test_without_the_number_of_ranks_only_whole_messages_are_known(tmp_path: Path) -> None:
    program = Program()
    program.call("AllReduce", 4096, 0, kernels=1)
    program.call("AllGather", 4096, kernels=1)
    reduce, gather = program.rows(tmp_path)
    assert (reduce["message_bytes"], reduce["algorithm_gbytes_per_s"]) == (4096, pytest.approx(4096 / 2000))
    assert reduce["bus_gbytes_per_s"] != reduce["bus_gbytes_per_s"], "unknown"
    assert gather["message_bytes"] != gather["message_bytes"], "a part alone is not the message"
    assert gather["collective"] == "allgather"


def test_payloads_of_older_versions_have_the_size_alone(tmp_path: Path) -> None:
    program = Program()
    made = program.made
    made.tables["NVTX_PAYLOAD_SCHEMA_ENTRIES"] = [
        {"domainId": NCCL, "schemaId": schema, "idx": 0, "type": SIZE, "name": MESSAGE[2], "offset": None}
        for schema in (REDUCE, GATHER, PEER)
    ]

    def sized(schema: int, size: int) -> bytes:
        return struct.pack("<QQQQQ", NCCL, schema, 8, 32, size)

    program.call("AllReduce", 0, 0, kernels=1, binaryData=sized(REDUCE, 4096))
    program.call("AllGather", 0, kernels=1, binaryData=sized(GATHER, 4096))
    program.call("GroupStart")
    program.call("Send", 0, 0, binaryData=sized(PEER, 100))
    program.call("Recv", 0, 0, binaryData=sized(PEER, 300))
    program.call("GroupEnd", kernels=1)
    reduce, gather, exchange = program.rows(tmp_path)
    assert (reduce["message_bytes"], reduce["group"]) == (4096, None)
    assert gather["message_bytes"] != gather["message_bytes"], "the number of ranks is unknown"
    assert (exchange["collective"], exchange["message_bytes"]) == ("sendrecv", 300)


def test_a_group_is_one_message(tmp_path: Path) -> None:
    program = Program()
    program.call("CommInitRank", 2, 1, 0)
    program.call("CommCount")
    program.call("GroupStart")
    program.call("Send", 1000, 0)
    program.call("Recv", 1500, 0)
    program.call("GroupStart")
    program.call("Send", 1000, 1)
    program.call("Recv", 1700, 1)
    program.call("GroupEnd")
    program.call("GroupEnd", kernels=1)
    program.call("AllReduce", 64, 0, kernels=1)
    exchange, reduce = program.rows(tmp_path)
    assert (exchange["collective"], exchange["message_bytes"]) == ("sendrecv", 3200), "2,000 sent, 3,200 received"
    assert (reduce["collective"], reduce["message_bytes"]) == ("allreduce", 64), "not of the group"


def test_an_all_to_all_of_sends_and_receives_keeps_its_kind(tmp_path: Path) -> None:
    program = Program()
    program.call("CommInitRank", 2, 1, 0)
    start = program.at
    program.call("GroupStart")
    program.call("Send", 1000, 0)
    program.call("Recv", 1000, 0)
    program.call("GroupEnd", kernels=1)
    program.made.nvtx("c10d::alltoall_base_, op_id = 7", start - 10, program.at)
    (row,) = program.rows(tmp_path)
    assert (row["collective"], row["message_bytes"]) == ("alltoall", 1000)
    assert row["bus_gbytes_per_s"] == pytest.approx(row["algorithm_gbytes_per_s"] / 2)


def test_ranges_without_payloads_are_told_with_the_option_that_exports_them(tmp_path: Path) -> None:
    program = Program()
    program.call("AllReduce", 64, 0, kernels=1, binaryData=None)
    program.call("CommCount", binaryData=None)
    with pytest.warns(UserWarning, match=r"its ranges of NCCL have no sizes \(1 calls\), .* --include-blobs=true"):
        (row,) = program.rows(tmp_path)
    assert row["collective"] == "allreduce"


Made = tuple[str, dict[str, Any]]
REDUCED: Made = ("AllReduce", {"sizes": (8, 0)})


def group(*calls: Made, kernels: int = 1) -> list[Made]:
    return [("GroupStart", {}), *calls, ("GroupEnd", {"kernels": kernels})]


def reduced_with(data: Any) -> list[Made]:
    return [("AllReduce", {"sizes": (8, 0), "kernels": 1, "binaryData": data})]


UNKNOWN = {
    "two kernels": group(REDUCED, kernels=2), "two kinds": group(REDUCED, ("AllGather", {"sizes": (8,)})),
    "two communicators": group(REDUCED, ("AllReduce", {"sizes": (8, 0), "communicator": 5})),
    "a call without a payload": group(("Send", {"sizes": (8, 0)}), ("Recv", {"sizes": (8, 0), "binaryData": None})),
    "a short payload": reduced_with(bytes(33)), "a payload that is a text": reduced_with("x" * 64),
    "a foreign schema": reduced_with(struct.pack("<8Q", *range(8))),
    "an end without a start": [("Send", {"sizes": (8, 0)}), ("GroupEnd", {"kernels": 1})],
    "an impossible size": [("AllReduce", {"sizes": (1 << 63, 0), "kernels": 1})],
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_determined_stays_unknown(name: str, tmp_path: Path) -> None:
    program = Program()
    program.call("CommInitRank", 2, 0, 0)
    for call, options in UNKNOWN[name]:
        more = dict(options)
        program.call(call, *more.pop("sizes", ()), **more)
    rows = program.rows(tmp_path)
    assert rows
    for row in rows:
        assert row["message_bytes"] != row["message_bytes"], name


@pytest.mark.filterwarnings("ignore:.*its ranges of NCCL have no sizes")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([*CALLS, "GroupStart", "GroupEnd"]), st.binary(max_size=72)), max_size=12))
def test_any_bytes_are_a_payload(calls: list[tuple[str, bytes]]) -> None:
    import tempfile

    program = Program()
    for name, data in calls:
        values = [7] * (len(SCHEMAS[CALLS[name]]) - 1) if name in CALLS else []
        program.call(name, *values, kernels=1, binaryData=data)
    with tempfile.TemporaryDirectory() as folder:
        assert len(program.rows(Path(folder))) == len(calls)


@pytest.mark.parametrize("knows", [True, False], ids=["new nsys", "old nsys"])
def test_a_report_has_payloads_if_nsys_has_them(knows: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = Program()
    program.call("AllReduce", 64, 0, kernels=1)
    export = program.made.write(tmp_path / "made.sqlite")
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n")
    given = f"given = '--include-blobs' in sys.argv\nif given > {knows}: sys.exit('unrecognised option')"
    fake_nsys(tmp_path, f"{given}\nassert given == {knows}", export)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fs.load_trace(report).collectives().message_bytes.tolist() == [64]

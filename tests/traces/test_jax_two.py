"""Programs of JAX 0.11 on two H100, recorded by flopscope and by XLA's profiler (helpers/recordings.py): data
parallel training, and a function with an all-to-all, a permutation, an all-gather, a reduce-scatter and a sum.

Sizes are by hand: four matrices of 4096 x 4096 bfloat16 and four vectors of 4096; the second program exchanges a
matrix. NCCL stated the same ones in its NVTX ranges for the gradients and the permutation."""

import math

import pytest
from helpers.recordings import JAX_TWO

import flopscope as fs

MATRIX = 2 * 4096 * 4096
MAPPED = {
    ("alltoall", MATRIX): 2, ("sendrecv", MATRIX): 1, ("allreduce", 4 * 4096): 1, ("allgather", 2 * 512 * 4096): 1,
    ("reducescatter", MATRIX): 1,
}  # fmt: skip
FACTORS = {"allreduce": 1.0, "allgather": 0.5, "reducescatter": 0.5, "alltoall": 0.5, "sendrecv": 1.0}
"""Bus bandwidth over size and time, among two ranks (nccl-tests, doc/PERFORMANCE.md)."""


def load(name: str) -> fs.Trace:
    hlo = JAX_TWO / f"{name}.hlo.json.gz" if not name.endswith(".pb") else None
    path = JAX_TWO / (f"{name}.gz" if hlo is None else f"{name}.json.gz")
    return fs.load_trace(path, hlo=hlo) if hlo is not None else fs.load_trace(path)


def calls(trace: fs.Trace) -> dict[tuple[str, float], float]:
    """Return how often a collective of a size ran on the first device."""
    frame = trace.collectives()
    counts = frame[frame.device == 0].groupby(["collective", "message_bytes"]).size()
    return {key: int(count) for key, count in counts.items()}


@pytest.mark.parametrize(("name", "steps"), [("mapped", 2), ("mapped.xplane.pb", 3)])
def test_each_collective_has_its_kind_and_size(name: str, steps: int) -> None:
    trace = load(name)
    assert trace.hlo["tied_ns"] == trace.hlo["kernel_ns"] and trace.hlo["guessed"] == 0
    assert calls(trace) == {key: steps * count for key, count in MAPPED.items()}
    frame = trace.collectives()
    for row in frame.itertuples():
        expected = row.message_bytes / row.duration / 1e3 * FACTORS[row.collective]
        assert math.isclose(row.bus_gbytes_per_s, expected, rel_tol=1e-6)
    assert frame[frame.collective != "sendrecv"].group_size.eq(2).all()
    assert frame.bus_gbytes_per_s.max() < 450  # what the links of an H100 move in each direction


def test_gradients_are_reduced_one_by_one_and_biases_at_once() -> None:
    trace = load("dp")
    assert trace.hlo["tied_ns"] == trace.hlo["kernel_ns"] and trace.hlo["guessed"] == 0
    assert calls(trace) == {
        ("allreduce", 4.0): 2,  # the loss, by a kernel of XLA's own
        ("allreduce", 4 * 2 * 4096.0): 2,
        ("allreduce", float(MATRIX)): 8,
    }
    frame = trace.collectives()
    assert frame.group_size.eq(2).all() and not frame[frame.message_bytes == 4].kernel.str.contains("nccl").any()
    reduced = {row.key: row for row in trace.key_averages() if row.key.startswith("all-reduce-start")}
    assert len(reduced) == 5  # four of matrices, one of the vectors
    assert {row.bytes_read / row.count for row in reduced.values()} == {MATRIX, 4 * 2 * 4096}
    assert {row.bytes_written / row.count for row in reduced.values()} == {MATRIX, 4 * 2 * 4096}

"""Kernels within ranges of NVTX: a real library marks the ranges, and a fake CUPTI reports the kernels."""

from pathlib import Path
from typing import Any

import pytest
from helpers.fake_cupti import run_with_fake
from helpers.nvtx_programs import compiled, needs_headers

pytestmark = needs_headers


@pytest.fixture(scope="module")
def libraries(fake: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    return fake, compiled(tmp_path_factory.mktemp("nvtx"), "-shared", "-fPIC")


def _run(libraries: tuple[Path, str], program: str) -> Any:
    fake, library = libraries
    beginning = f"""
import ctypes
uses = ctypes.CDLL({library!r})
uses.push_all_reduce.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
"""
    return run_with_fake(fake, beginning, program)


def test_a_range_has_the_device_time_of_its_kernels(libraries: tuple[Path, str]) -> None:
    table = _run(libraries, """
    with fs.profile(timer="cupti") as prof:
        for _ in range(2):
            uses.push(b"outer")
            uses.push_in(b"library", b"inner")
            cuda.launch("kernel", 5000)
            uses.pop_in(b"library")
            cuda.launch("kernel", 7000)
            uses.pop()
        cuda.launch("kernel", 9000)
    print(json.dumps(rows(prof)))
    """)  # fmt: skip
    outer, inner = table["outer"], table["library: inner"]
    assert outer["is_user_annotation"] and inner["is_user_annotation"] and outer["count"] == inner["count"] == 2
    assert inner["self_device_time_total"] == inner["device_time_total"] == 10
    assert outer["self_device_time_total"] == 14 and outer["device_time_total"] == 24
    assert table["kernel @cuda"]["self_device_time_total"] == 33
    assert table["library: inner @cuda"]["count"] == 2  # from the first to the last of its work, as in torch's tables


def test_kernels_of_nccl_get_the_messages_of_its_calls(libraries: tuple[Path, str]) -> None:
    program = """
    KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    with fs.profile(timer="cupti") as prof:
        for size in (4096, 1 << 20):
            uses.push_all_reduce(0xabcd, size)
            cuda.launch(KERNEL, 5000)
            uses.pop_in(b"NCCL")
        uses.push_in(b"NCCL", b"ncclAllReduce")  # without a size
        cuda.launch(KERNEL, 5000)
        uses.pop_in(b"NCCL")
        cuda.launch(KERNEL, 5000)  # outside of any call
        for size in (100, 200):  # one launch for several calls
            uses.push_in(b"NCCL", b"ncclGroupStart")
            uses.pop_in(b"NCCL")
            uses.push_all_reduce(0xabcd, size)
            uses.pop_in(b"NCCL")
            uses.push_all_reduce(0xabcd, size)
            uses.pop_in(b"NCCL")
            uses.push_in(b"NCCL", b"ncclGroupEnd")
            cuda.launch(KERNEL, 5000)
            uses.pop_in(b"NCCL")
    found = prof.collectives()[["collective", "message_bytes", "group"]]
    print(found.to_json(orient="values"))
    """
    messages = _run(libraries, program)
    group = "0x000000000000abcd"
    assert messages[:2] == [["allreduce", 4096, group], ["allreduce", 1 << 20, group]]
    assert messages[2:4] == [["allreduce", None, None]] * 2
    assert messages[4:] == [["allreduce", 200, group], ["allreduce", 400, group]]


HLO = """HloModule jit_step, is_scheduled=true
ENTRY %main (a: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8]{1,0} parameter(0)
  %fusion.1 = f32[8,8]{1,0} fusion(%a), kind=kLoop, calls=%first
  ROOT %fusion.2 = f32[8,8]{1,0} fusion(%fusion.1), kind=kLoop, calls=%second
}
%first (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  ROOT %t = f32[8,8]{1,0} tanh(%p)
}
%second (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  ROOT %s = f32[8,8]{1,0} sine(%p)
}
"""


def test_kernels_within_a_thunk_of_xla_belong_to_its_instruction(libraries: tuple[Path, str]) -> None:
    """The names of the kernels tell nothing, and they run in an order that the module cannot have."""
    program = f"""
    HLO = {HLO!r}
    def record():
        with fs.profile(timer="cupti") as prof:
            for name in (b"fusion.2", b"fusion.1", b"fusion.2"):
                uses.push_in(b"TSL", b"XlaModule:#prefix=jit(step),hlo_module=jit_step,program_id=7#")
                uses.push_in(b"TSL", b"Thunk:#name=a,b[axes=(0,)],hlo_op=" + name + b",unique_hlo_op_id=42#")
                cuda.launch("unknown", 5000)
                uses.pop_in(b"TSL")
                uses.pop_in(b"TSL")
        return prof
    prof = record()
    counts = prof._core.join_hlo((("jit_step(1)", HLO), ("jit_other(1)", HLO)))
    owners = [e.launcher.name for e in prof.events() if e.kind == "kernel"]
    twice = record()
    ambiguous = twice._core.join_hlo((("jit_step(1)", HLO), ("jit_step(2)", HLO)))
    print(json.dumps([counts, owners, ambiguous["by_name"]]))
    """
    counts, owners, ambiguous = _run(libraries, program)
    assert counts["by_name"] == counts["works"] == 3
    assert owners == ["fusion.2", "fusion.1", "fusion.2"] and ambiguous == 0

"""Reading HLO text: a million instructions to a table of their work, and in parts, beside XLA's own parser.

The text is written here as XLA prints scheduled programs for GPUs: products by cuBLASLt between fusions of eight
instructions, with metadata and configs. XLA's parser, of JAX where that is installed, reads a text of 12,000
instructions in the same rounds; so do regular expressions, line by line.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from harness import Report, arguments, interleave, optional, ratio, spread

import flopscope as fs
from flopscope import _core

INSTRUCTIONS, FEW, ROUNDS = 1_000_000, 12_000, 7
HEAD = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(bf16[2048,1024]{1,0})->bf16[2048,1024]{1,0}}

FileNames
1 "/home/user/train.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=40 end_line=40 column=2 end_column=31}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

"""
BODY = """
%fused_computation.{i} (param_0.{i}: bf16[2048,1024], param_1.{i}: bf16[1024]) -> bf16[2048,1024] {{
  %param_0.{i} = bf16[2048,1024]{{1,0}} parameter(0)
  %convert.{i} = f32[2048,1024]{{1,0}} convert(%param_0.{i}), metadata={{op_name="jit(step)/jvp(layer_{k})/convert" \
scheduling_name="convert.{i}" stack_frame_id=1}}
  %param_1.{i} = bf16[1024]{{0}} parameter(1)
  %convert.b.{i} = f32[1024]{{0}} convert(%param_1.{i})
  %broadcast.{i} = f32[2048,1024]{{1,0}} broadcast(%convert.b.{i}), dimensions={{1}}
  %add.{i} = f32[2048,1024]{{1,0}} add(%convert.{i}, %broadcast.{i}), metadata={{\
op_name="jit(step)/jvp(layer_{k})/add" scheduling_name="add.{i}" stack_frame_id=1}}
  %tanh.{i} = f32[2048,1024]{{1,0}} tanh(%add.{i}), metadata={{op_name="jit(step)/jvp(layer_{k})/tanh" \
scheduling_name="tanh.{i}" stack_frame_id=1}}
  ROOT %convert.c.{i} = bf16[2048,1024]{{1,0}} convert(%tanh.{i})
}}
"""
ENTRY = """
ENTRY %main (x: bf16[2048,1024], w: bf16[1024,1024], b: bf16[1024]) -> bf16[2048,1024] {
  %fusion.0 = bf16[2048,1024]{1,0} parameter(0)
  %w = bf16[1024,1024]{1,0} parameter(1)
  %b = bf16[1024]{0} parameter(2)
"""
CALLS = """  %bitcast.{i} = bf16[2048,1024]{{1,0}} bitcast(%fusion.{before})
  %custom-call.{i} = (bf16[2048,1024]{{1,0}}, s8[33554432]{{0}}) custom-call(%bitcast.{i}, %w), \
custom_call_target="__cublas$lt$matmul", metadata={{op_name="jit(step)/jvp(layer_{k})/dot_general" \
scheduling_name="custom-call.{i}" stack_frame_id=1}}, backend_config={{"operation_queue_id":"0","gemm_backend_config":\
{{"selected_algorithm":"{k}","alpha_real":1,"beta":0,"dot_dimension_numbers":{{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}},"epilogue":"DEFAULT"}}}}
  %get-tuple-element.{i} = bf16[2048,1024]{{1,0}} get-tuple-element(%custom-call.{i}), index=0
  {root}%fusion.{i} = bf16[2048,1024]{{1,0}} fusion(%get-tuple-element.{i}, %b), kind=kLoop, \
calls=%fused_computation.{i}, metadata={{op_name="jit(step)/jvp(layer_{k})/tanh" scheduling_name="fusion.{i}" \
stack_frame_id=1}}
"""
PER_BLOCK = 12


def main() -> None:
    options = arguments(__doc__ or "")
    columns = ["reading", "instructions", "seconds", "low", "high", "MB/s", "ns per instruction", "ours / it"]
    report = Report("hlo", columns, options.out, options.device)
    many, few = text_of(INSTRUCTIONS), text_of(FEW)
    check(few)
    readers: dict[str, Callable[[], object]] = {
        "flopscope: read": lambda: _core._count_hlo(many),
        "flopscope: work_of_hlo": lambda: fs.work_of_hlo(many),
    }
    samples = interleave({name: timed(call) for name, call in readers.items()}, ROUNDS, warmup=1)
    report.keep("many", samples, ours="flopscope", bytes=len(many))
    for name, values in samples.items():
        show(report, name, many, values, None)
    report.target("a million instructions read", spread(samples["flopscope: read"]).median, 1, "s")
    peers(report, few)
    report.finish()


def peers(report: Report, text: str) -> None:
    readers: dict[str, Callable[[], object]] = {
        "flopscope: read": lambda: _core._count_hlo(text),
        "regular expressions": lambda: with_expressions(text),
    }
    if (hlo := optional("jaxlib._hlo")) is not None:
        readers["XLA's parser"] = lambda: hlo.hlo_module_from_text(text)
    samples = interleave({name: timed(call) for name, call in readers.items()}, ROUNDS)
    report.keep("few", samples, ours="flopscope", bytes=len(text))
    for name, values in samples.items():
        show(report, name, text, values, samples["flopscope: read"])
    if "XLA's parser" in samples:
        slower = ratio(samples["flopscope: read"], samples["XLA's parser"]).median
        report.target("reading over XLA's parser", slower, 1, "x")
    else:
        report.note("JAX is not installed: no row for XLA's parser.")


def text_of(instructions: int) -> str:
    blocks = range(1, instructions // PER_BLOCK + 1)
    bodies = [BODY.format(i=i, k=i % 96) for i in blocks]
    last = instructions // PER_BLOCK
    calls = [CALLS.format(i=i, k=i % 96, before=i - 1, root="ROOT " if i == last else "") for i in blocks]
    return "".join([HEAD, *bodies, ENTRY, *calls, "}\n"])


def check(text: str) -> None:
    """Check the counts and sums of a text that follow from how it is made."""
    blocks = FEW // PER_BLOCK
    assert _core._count_hlo(text) == (blocks + 1, FEW + 3) == (blocks + 1, with_expressions(text))
    work = fs.work_of_hlo(text)
    assert len(work) == 2 * blocks
    assert work.product_flops.sum() == blocks * 2 * 2048 * 1024 * 1024
    assert work.bytes_written.sum() == 2 * blocks * 2048 * 1024 * 2


def with_expressions(text: str) -> int:
    """Return the number of instructions; their names, opcodes and operands are found on the way."""
    line = re.compile(r"\s+(?:ROOT )?%([\w.\-]+) = .*? ([\w\-]+)\((.*?)\)")
    names = re.compile(r"%([\w.\-]+)")
    found = [(m[1], m[2], names.findall(m[3])) for m in map(line.match, text.splitlines()) if m]
    return len(found)


def timed(call: Callable[[], object]) -> Callable[[], float]:
    def sample() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return sample


def show(report: Report, name: str, text: str, values: Sequence[float], ours: Sequence[float] | None) -> None:
    summary, count = spread(values), text.count(" = ")
    report.row(
        name,
        f"{count:,}",
        f"{summary.median:.4f}",
        f"{summary.low:.4f}",
        f"{summary.high:.4f}",
        f"{len(text) / summary.median / 1e6:.0f}",
        f"{summary.median / count * 1e9:.0f}",
        "" if ours is None else f"{ratio(ours, values).median:.3f}",
    )


if __name__ == "__main__":
    main()

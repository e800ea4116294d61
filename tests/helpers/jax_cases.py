"""Programs of JAX with a fault, and without it: their HLO, and recordings as Kineto would write them, made by hand."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import flopscope as fs
from helpers.hand_traces import Json, event, kernel, text_of

D2D, TO_HOST, TO_DEVICE = "Memcpy DtoD (Device -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pageable)"
ARRAY = "f32[16384,4096]{1,0}"
ALIAS = ", input_output_alias={ {}: (0, {}, may-alias) }"
ADD = f"""
fused {{
  a = {ARRAY} parameter(0)
  b = {ARRAY} parameter(1)
  ROOT c = {ARRAY} add(a, b)
}}
"""


def module(entry: str, computations: str = ADD, alias: str = "") -> str:
    """Return the HLO of a module whose entry has these instructions."""
    return f"HloModule jit_step, is_scheduled=true{alias}\n{computations}\nENTRY main {{\n{entry}\n}}\n"


@dataclass(frozen=True)
class JaxProgram:
    """A module, and what a step of it launches: (name, µs, µs of idleness before it)."""

    hlo: str
    works: Sequence[tuple[str, float, float]]
    steps: int = 3

    def load(self) -> fs.Trace:
        return fs.load_trace(self.trace(), hlo=self.hlo)

    def trace(self) -> bytes:
        """Return the recording: the host launches ahead of the work, unless it comes late."""
        events: list[Json] = []
        time = launch = 1000.0
        correlation = 0
        for step in range(self.steps):
            begin = launch
            for name, length, idle in self.works:
                correlation += 1
                launch = max(launch + 5, time + idle - 5) if idle else launch + 5
                time = max(time + idle, launch + 5)
                events.append(event("cuda_driver", "cuLaunchKernel", launch, 3.0, correlation=correlation))
                events.append(_work(name, time, length, correlation))
                time += length
            launch += 5
            events.append(event("user_annotation", f"ProfilerStep#{step}", begin, launch - begin))
        device = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0}
        return text_of(*events, schemaVersion=1, deviceProperties=[device])


def _work(name: str, start: float, length: float, correlation: int) -> Json:
    copies = name.startswith("Memcpy")
    sizes = {"bytes": 1 << 28} if copies else {"grid": [4096, 1, 1], "block": [128, 1, 1]}
    work = kernel(name, start, length, context=1, correlation=correlation, **sizes)
    return {**work, "cat": "gpu_memcpy" if copies else "kernel"}


def undonated(faulty: bool) -> JaxProgram:
    """Return a program that changes an argument."""
    copy = f"copy.1 = {ARRAY} copy(cache)" if faulty else ""
    changed = "copy.1" if faulty else "cache"
    entry = f"""
  cache = {ARRAY} parameter(0), metadata={{op_name="state['cache']"}}
  x = {ARRAY} parameter(1), metadata={{op_name="x"}}
  {copy}
  ROOT loop_add_fusion = {ARRAY} fusion({changed}, x), kind=kLoop, calls=fused, metadata={{op_name="jit(step)/add"}}
"""
    works = [("loop_add_fusion", 190.0, 0.0)]
    hlo = module(entry, alias="" if faulty else ALIAS)
    return JaxProgram(hlo, [(D2D, 130.0, 0.0), *works] if faulty else works)


def carried(faulty: bool) -> JaxProgram:
    """Return a program whose loop copies its carry four times."""
    carry = f"(s32[], {ARRAY}, {ARRAY})"
    copy = f"copy.2 = {ARRAY} copy(table)" if faulty else ""
    computations = f"""{ADD}
body {{
  all = {carry} parameter(0)
  i = s32[] get-tuple-element(all), index=0
  table = {ARRAY} get-tuple-element(all), index=1
  other = {ARRAY} get-tuple-element(all), index=2
  {copy}
  loop_add_fusion = {ARRAY} fusion({"copy.2" if faulty else "table"}, other), kind=kLoop, calls=fused
  ROOT next = {carry} tuple(i, loop_add_fusion, other)
}}
condition {{
  all = {carry} parameter(0)
  ROOT more = pred[] constant(true)
}}
"""
    entry = f"""
  table = {ARRAY} parameter(0)
  zero = s32[] constant(0)
  first = {carry} tuple(zero, table, table)
  loop = {carry} while(first), condition=condition, body=body, backend_config={{"known_trip_count":{{"n":"4"}}}}
  ROOT result = {ARRAY} get-tuple-element(loop), index=1
"""
    each = [(D2D, 130.0, 0.0)] if faulty else []
    return JaxProgram(module(entry, computations, ALIAS), 4 * [*each, ("loop_add_fusion", 190.0, 0.0)])


def called_back(faulty: bool) -> JaxProgram:
    """Return a program that calls Python between two kernels, for which its device waits 400 µs."""
    target = 'custom_call_target="xla_ffi_python_gpu_callback"'
    call = f"pure_callback.1 = {ARRAY} custom-call(loop_add_fusion), {target}" if faulty else ""
    given = "pure_callback.1" if faulty else "loop_add_fusion"
    entry = f"""
  x = {ARRAY} parameter(0)
  loop_add_fusion = {ARRAY} fusion(x, x), kind=kLoop, calls=fused
  {call}
  ROOT loop_add_fusion.1 = {ARRAY} fusion({given}, x), kind=kLoop, calls=fused
"""
    between = [(TO_HOST, 10.0, 0.0), (TO_DEVICE, 10.0, 400.0)] if faulty else []
    return JaxProgram(module(entry), [("loop_add_fusion", 190.0, 0.0), *between, ("loop_add_fusion_1", 190.0, 0.0)])


def precise(faulty: bool) -> JaxProgram:
    """Return a program with a product of 4,096 × 4,096 float32 factors."""
    precision = "HIGHEST" if faulty else "DEFAULT"
    sides = {"lhs_contracting_dimensions": ["1"], "rhs_contracting_dimensions": ["0"]}
    dimensions = {**sides, "lhs_batch_dimensions": [], "rhs_batch_dimensions": []}
    operands = {"operand_precision": [precision, precision], "algorithm": "ALG_UNSET"}
    gemm = {"beta": 0, "dot_dimension_numbers": dimensions, "precision_config": operands, "epilogue": "DEFAULT"}
    config = json.dumps({"gemm_backend_config": gemm}, separators=(",", ":"))
    matrix, call = "f32[4096,4096]{1,0}", 'custom-call(x, x), custom_call_target="__cublas$lt$matmul"'
    entry = f"""
  x = {matrix} parameter(0)
  custom-call.1 = ({matrix}, s8[64]{{0}}) {call}, backend_config={config}
  ROOT result = {matrix} get-tuple-element(custom-call.1), index=0
"""
    kernel = "cutlass_80_simt_sgemm_256x128_8x4_nn" if faulty else "sm90_xmma_gemm_f32f32_tf32f32_f32_nn"
    return JaxProgram(module(entry, ""), [(kernel, 2700.0 if faulty else 400.0, 0.0)])


def widened(faulty: bool) -> JaxProgram:
    """Return a program with a product of bfloat16 factors, which it converts first."""
    factor, narrow = "f32[4096,4096]{1,0}", "bf16[4096,4096]{1,0}"
    convert = f"wide = {factor} convert(a)" if faulty else ""
    name = "wide" if faulty else "a"
    product = f"""
fused {{
  a = {narrow} parameter(0)
  {convert}
  ROOT d = {factor} dot({name}, {name}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    entry = f"x = {narrow} parameter(0)\n  ROOT gemm_fusion_dot = {factor} fusion(x), kind=kCustom, calls=fused"
    return JaxProgram(module(entry, product), [("gemm_fusion_dot", 420.0 if faulty else 220.0, 0.0)])

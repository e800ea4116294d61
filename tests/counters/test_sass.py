"""The reader of machine code, held against nvdisasm on kernels that nvcc compiles for several GPUs."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import ROOT

from flopscope import _core

ARCHITECTURES = ("sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120")
NAMED = re.compile(r"(LDG|LDL|LDS|LD|STG|STL|STS|ST|ATOM|RED|MUFU|BAR|UTMA(LD|ST)|UBLK|SYNCS|[A-Z]*MMA)\w?(\.|$)")
BITS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "64": 64, "128": 128, "256": 256}
SOURCE = r"""
#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda::wmma;
template <class T> __global__ void copy(T *to, const T *from) { to[threadIdx.x] = from[threadIdx.x]; }
template <class A, class C, class S, int K> __global__ void product(C *c, const S *a) {
    fragment<matrix_a, 16, 16, K, A, row_major> x; fragment<matrix_b, 16, 16, K, A, col_major> y;
    fragment<accumulator, 16, 16, K, C> z; fill_fragment(z, C(0)); load_matrix_sync(x, a, 16);
    load_matrix_sync(y, a, 16); mma_sync(z, x, y, z); store_matrix_sync(c, z, 16, mem_row_major);
}
__global__ void __launch_bounds__(1024, 2) spill(float *a, int n) {
    float v[64];
    for (int i = 0; i < 64; i++) v[i] = a[i * n];
    for (int k = 0; k < n; k++) for (int i = 0; i < 64; i++) v[i] = v[i] * v[(i + 1) & 63] + v[i * n & 63];
    for (int i = 0; i < 64; i++) a[i * n] = v[i];
}
__global__ void others(int *a, float *b) {
    __shared__ float s[32]; s[threadIdx.x] = __sinf(b[7]); __syncthreads(); b[1] = s[31 - threadIdx.x];
    atomicAdd(a, 1); a[1] = atomicMax(a + 2, 3); atomicAdd(b, 1.f); float *p = a[3] ? s : b; p[a[4]] = p[a[5]] + 1;
}
template __global__ void copy(char *, const char *); template __global__ void copy(short *, const short *);
template __global__ void copy(int *, const int *); template __global__ void copy(float2 *, const float2 *);
template __global__ void copy(float4 *, const float4 *);
#if __CUDA_ARCH__ >= 1000
__global__ void wide(double *a, const double *b) {
    double v[4];
    asm volatile("ld.global.v4.f64 {%0, %1, %2, %3}, [%4];"
                 : "=d"(v[0]), "=d"(v[1]), "=d"(v[2]), "=d"(v[3]) : "l"(b));
    asm volatile("st.global.v4.f64 [%4], {%0, %1, %2, %3};" :: "d"(v[0]), "d"(v[1]), "d"(v[2]), "d"(v[3]), "l"(a));
}
#endif
#if __CUDA_ARCH_FEAT_SM100_ALL
__global__ void tensor(unsigned d, unsigned long a, unsigned i) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p;}"
                 :: "r"(d), "l"(a), "r"(i));
}
#endif
template __global__ void product<half, half, half, 16>(half *, const half *);
#if __CUDA_ARCH__ >= 800
template __global__ void product<__nv_bfloat16, float, __nv_bfloat16, 16>(float *, const __nv_bfloat16 *);
template __global__ void product<precision::tf32, float, float, 8>(float *, const float *);
#endif
"""


def _disassembled(cubin: Path) -> dict[str, list[str]]:
    """Return the instructions of each function as nvdisasm writes them, without predicates and operands."""
    text = subprocess.run(["nvdisasm", "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if section := re.match(r"\.text\.(\S+):", line.strip()):
            found[section[1]] = []
        elif instruction := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([\w.]+)", line):
            [*found.values()][-1].append(instruction[1])
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.skipif(not (shutil.which("nvcc") and shutil.which("nvdisasm")), reason="nvdisasm is not installed")
def test_instructions_are_those_of_nvdisasm(architecture: str, tmp_path: Path) -> None:
    (tmp_path / "kernels.cu").write_text(SOURCE)
    for source in (tmp_path / "kernels.cu", ROOT / "kernels" / "probe.cu"):
        cubin = tmp_path / "cubin"
        options = f"-cubin -arch={architecture} -std=c++17 -I. -Icsrc -o {cubin} {source}".split()
        subprocess.run(["nvcc", *options], check=True, capture_output=True, cwd=ROOT)
        for function, instructions in _disassembled(cubin).items():
            names, counts = _core.read_sass(cubin.read_bytes(), function) or ({}, {})
            for at, full in enumerate(instructions):
                name, *parts = re.sub("REDG", "RED", re.sub("UTC.MMA", "UTCMMA", full)).split(".")
                if NAMED.match(full) or 16 * at in names:
                    assert 16 * at in names, full
                    kind, _, width = names[16 * at].partition(".")
                    assert kind == name and int(width or 0) in (0, *(BITS[one] for one in parts if one in BITS), 32)
            local = sum(one.startswith(("LDL", "STL")) for one in instructions)
            assert counts.get("accesses of local memory", 0) == local and (local > 0 or "spill" not in function)
            dtype = next((one for one in ("bf16", "tf32") if f"{one.upper()}" in " ".join(instructions)), "fp16")
            assert (f"{dtype} tensor instructions" in counts) == any(one.startswith("HMMA") for one in instructions)

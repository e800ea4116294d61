"""Why a kernel is slow: kernels of CUDA C with one planted cause each, by the counters of a GPU."""

import pytest

import flopscope as fs

cp = pytest.importorskip("cupy")


@pytest.fixture(autouse=True, scope="module")
def counters() -> None:
    """Skip where counters are unavailable."""
    if not fs.measure(lambda: cp.ones(9), counters=True, max_time=0.05).counters:
        pytest.skip("the counters are unavailable")


SOURCE = r"""
extern "C" {
__global__ void copy(float *y, const float *x) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    y[i] = x[i];
}
__global__ void columns(float *y, const float *x) {  /* of 8192 by 8192 */
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    y[i] = x[(i % 8192) * 8192 + i / 8192];
}
__global__ void conflicts(float *y, const float *x) {
    __shared__ float s[32][32];
    float sum = x[threadIdx.x];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i / 32][i % 32] = i;
    __syncthreads();
    for (int i = 0; i < 512; i++) sum += s[threadIdx.x % 32][(i + threadIdx.x / 32) % 32];
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
__global__ void __launch_bounds__(1024, 2) spills(float *y, const float *x) {  /* with 32 registers, then */
    float a[96];
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    #pragma unroll
    for (int k = 0; k < 96; k++) a[k] = x[i + k];
    for (int n = 0; n < 8; n++) {
        #pragma unroll
        for (int k = 0; k < 96; k++) a[k] = a[k] * a[(k + 7) % 96] + n;
    }
    float sum = 0;
    #pragma unroll
    for (int k = 0; k < 96; k++) sum += a[k];
    y[i] = sum;
}
__device__ float chase(const float *x, int steps) {  /* each load waits for the one before */
    unsigned at = blockIdx.x * 977 + threadIdx.x / 32 * 131;
    float v = 0;
    for (int i = 0; i < steps; i++) {
        v += x[(long)(at & 0xfffff) * 64 + threadIdx.x % 32];
        at = at * 1103515245u + 12345u + (unsigned)v;
    }
    return v;
}
__global__ void __launch_bounds__(128) registers(float *y, const float *x) {
    float a[160];
    #pragma unroll
    for (int k = 0; k < 160; k++) a[k] = x[threadIdx.x + 32 * k];
    float v = chase(x, 200);
    #pragma unroll
    for (int k = 0; k < 160; k++) v = v * a[k] + a[(k * 7) % 160];
    y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
__global__ void shared(float *y, const float *x) {
    extern __shared__ float s[];
    s[threadIdx.x] = chase(x, 200);
    y[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x];
}
__global__ void barrier(float *y, const float *x) {
    float v = x[threadIdx.x];
    for (int i = 0; i < 50; i++) {
        if (threadIdx.x / 32 == i % 32)
            for (int k = 0; k < 200; k++) v = v * 1.0001f + 0.5f;
        __syncthreads();
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
__global__ void atomics(float *y, const float *x) {
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    atomicAdd(&y[i % 64], x[i]);
}
__global__ void divergence(float *y, const float *x) {
    float v = x[threadIdx.x];
    for (int lane = 0; lane < 32; lane++)
        if (threadIdx.x % 32 == lane)
            for (int k = 0; k < 100 + lane; k++) v = v * 1.0001f + lane;
    y[blockIdx.x * blockDim.x + threadIdx.x] = v;
}
__global__ void fp64(double *y, const double *x) {
    double a = x[threadIdx.x], b = a + 1, c = a + 2, d = a + 3;
    for (int k = 0; k < 1000; k++) a = a * a + b, b = b * b + c, c = c * c + d, d = d * d + a;
    y[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}
__global__ void l2(float4 *y, const float4 *x) {  /* 16 MB, again and again, past the L1 */
    float4 v, sum = {0, 0, 0, 0};
    for (int k = 0; k < 64; k++) {
        const float4 *at = x + ((blockIdx.x * 37 + k * 1009) % 4096) * 256 + threadIdx.x;
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(at));
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
}
"""


@pytest.mark.parametrize(
    ("name", "cause", "said", "grid", "block", "shared"),
    [
        ("copy", "waits", "More independent loads a thread", 1 << 18, 256, 0),
        ("columns", "scattered access", "of the 32 bytes", 1 << 18, 256, 0),
        ("conflicts", "bank conflicts", "conflicts of its banks", 1 << 12, 256, 0),
        ("spills", "spills", "access local memory", 1 << 14, 256, 0),
        ("registers", "occupancy", "limited by registers", 1 << 11, 128, 0),
        ("shared", "occupancy", "limited by shared memory", 1 << 11, 64, 100_000),
        ("barrier", "barrier", "at a barrier", 1 << 11, 1024, 0),
        ("atomics", "atomics", "are atomic", 1 << 16, 256, 0),
        ("divergence", "divergence", "of 32 threads", 1 << 12, 256, 0),
        ("fp64", "busy", "fp64 units", 1 << 12, 256, 0),
        ("l2", "busy", "the L2 cache", 1 << 14, 256, 0),
        ("copy", "few blocks", "has a block", 4, 1024, 0),
    ],
)
def test_the_planted_cause_is_named_first(name: str, cause: str, said: str, grid: int, block: int, shared: int) -> None:
    kernel = cp.RawModule(code=SOURCE).get_function(name)
    kernel.max_dynamic_shared_size_bytes = shared
    x, y = (cp.zeros(8192 * 8192, cp.float32) for _ in range(2))

    def call() -> None:
        kernel((grid,), (block,), (y, x), shared_mem=shared)

    found = fs.measure(call, counters="require", max_time=0.1)
    assert found.cause == cause and said in found.explanation, found


def test_the_hot_line_is_that_which_waits() -> None:
    """Lines of a module that was loaded before CUPTI was, after a profile and counters, and beside torch's profiler."""
    torch = pytest.importorskip("torch")
    kernel = cp.RawModule(code=SOURCE, options=("-lineinfo",)).get_function("registers")
    x, y = (cp.zeros(8192 * 8192, cp.float32) for _ in range(2))
    kernel((2048,), (128,), (y, x))
    line = 1 + SOURCE.splitlines().index("        v += x[(long)(at & 0xfffff) * 64 + threadIdx.x % 32];")
    for _ in range(2):
        found = fs.measure(lambda: kernel((2048,), (128,), (y, x)), stalls=True, counters="require", max_time=0.1)
        hot = found.hot_lines[0]
        assert (hot.kernel, hot.line, hot.waits_for) == ("registers", line, "memory") and hot.share > 80, found
        with fs.profile():
            torch.ones(9, device="cuda").sin()
    found = fs.measure(torch.softmax, torch.ones(4096, 4096, device="cuda"), -1, stalls=True, max_time=0.05)
    assert found.hot_lines[0].file is None and found.hot_lines[0].offset > 0, found


def test_an_addition_is_bound_by_the_memory() -> None:
    x = fs.full((8192, 8192), 0.5, device="cuda")
    found = fs.measure(fs.add, x, x, counters="require", max_time=0.1)
    assert found.cause == "busy" and "the device memory" in found.explanation, found


def test_a_matmul_is_bound_by_tensor_cores() -> None:
    a = cp.zeros((8192, 8192), cp.float16)
    found = fs.measure(cp.matmul, a, a, counters="require", max_time=0.1)
    assert found.cause == "busy" and "tensor cores" in found.explanation and found.launch.limit, found

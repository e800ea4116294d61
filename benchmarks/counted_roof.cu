// Kernels of a program in CUDA C, each with a bound of its own: DRAM, FMA, L2, fp64, integer logic, shared memory,
// latency. roof_NAME launches one and returns CUDA's error code.
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { N = 8192, THREADS = 256, TILE = 32, ROWS = 8, IN_L2 = 1 << 22, SWEEPS = 64, CHAIN = 20000 };

static float *input, *output;
static double *doubles;
static unsigned *chain, *words;

__global__ void copy_kernel(const float4 *from, float4 *to)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    to[i] = from[i];
}

// A polynomial of degree 256 by Horner's rule, for four numbers a thread.
__global__ void polynomial_kernel(const float4 *from, float4 *to)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float4 x = from[i], y = x;
#pragma unroll 16
    for (int k = 0; k < 256; k++) {
        y.x = fmaf(y.x, x.x, 0.5f);
        y.y = fmaf(y.y, x.y, 0.5f);
        y.z = fmaf(y.z, x.z, 0.5f);
        y.w = fmaf(y.w, x.w, 0.5f);
    }
    to[i] = y;
}

// Sums over 16 MiB, read by every group of blocks: the L1 misses, the L2 holds them.
__global__ void l2_kernel(const float4 *from, float *to)
{
    float sum = 0;
    int step = gridDim.x * THREADS, start = blockIdx.x * THREADS + threadIdx.x;
    for (int sweep = 0; sweep < SWEEPS; sweep++)
#pragma unroll 4
        for (int i = start; i < IN_L2 / 4; i += step) {
            float4 x = __ldcg(from + (i + sweep * 4096) % (IN_L2 / 4));
            sum += x.x + x.y + x.z + x.w;
        }
    to[start] = sum;
}

__global__ void fp64_kernel(const double *from, double *to)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double x = from[i], y = x;
#pragma unroll 16
    for (int k = 0; k < 512; k++) y = fma(y, x, 0.5);
    to[i] = y;
}

__global__ void hash_kernel(const uint4 *from, uint4 *to)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    uint4 x = from[i];
#pragma unroll 8
    for (int k = 0; k < 128; k++) {
        x.x ^= (x.y << 7) ^ (x.z >> 9);
        x.y ^= (x.z << 13) ^ (x.w >> 5);
        x.z ^= (x.w << 3) ^ (x.x >> 11);
        x.w ^= (x.x << 17) ^ (x.y >> 15);
    }
    to[i] = x;
}

__global__ void transpose_kernel(const float *from, float *to)
{
    __shared__ float tile[TILE][TILE + 1];
    int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    for (int k = 0; k < TILE; k += ROWS) tile[threadIdx.y + k][threadIdx.x] = from[(int64_t)(row + k) * N + column];
    __syncthreads();
    column = blockIdx.y * TILE + threadIdx.x, row = blockIdx.x * TILE + threadIdx.y;
    for (int k = 0; k < TILE; k += ROWS) to[(int64_t)(row + k) * N + column] = tile[threadIdx.x][threadIdx.y + k];
}

__global__ void fill_kernel(float *values, double *more, unsigned *next)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    values[i] = (float)(i * 2654435761u >> 8) / (1 << 24);
    if (i < 1u << 24) more[i] = values[i];
    if (i < 1u << 24) next[i] = (i * 5u + 12345u) & ((1u << 24) - 1);
}

// Each load needs the one before: one thread of one block.
__global__ void chase_kernel(const unsigned *next, unsigned *last)
{
    unsigned at = 1;
    for (int k = 0; k < CHAIN; k++) at = next[at];
    *last = at;
}

extern "C" {

int roof_wait(void)
{
    return cudaDeviceSynchronize();
}

const char *roof_error(int code)
{
    return cudaGetErrorString((cudaError_t)code);
}

int roof_prepare(void)
{
    size_t size = (size_t)N * N * sizeof(float);
    int code = cudaMalloc(&input, size);
    if (code == 0) code = cudaMalloc(&output, size);
    if (code == 0) code = cudaMalloc(&doubles, sizeof(double) << 25);
    if (code == 0) code = cudaMalloc(&chain, sizeof(unsigned) << 24);
    if (code == 0) code = cudaMalloc(&words, sizeof(unsigned));
    if (code != 0) return code;
    fill_kernel<<<N / THREADS * N, THREADS>>>(input, doubles, chain);
    return cudaGetLastError();
}

int roof_copy(void)
{
    copy_kernel<<<N / 4 * N / THREADS, THREADS>>>((float4 *)input, (float4 *)output);
    return cudaGetLastError();
}

int roof_polynomial(void)
{
    polynomial_kernel<<<N / 4 * N / THREADS, THREADS>>>((float4 *)input, (float4 *)output);
    return cudaGetLastError();
}

int roof_l2(void)
{
    l2_kernel<<<132 * 8, THREADS>>>((float4 *)input, output);
    return cudaGetLastError();
}

int roof_fp64(void)
{
    fp64_kernel<<<(1 << 24) / THREADS, THREADS>>>(doubles, doubles + (1 << 24));
    return cudaGetLastError();
}

int roof_hash(void)
{
    hash_kernel<<<N / 4 * N / THREADS, THREADS>>>((uint4 *)input, (uint4 *)output);
    return cudaGetLastError();
}

int roof_chase(void)
{
    chase_kernel<<<1, 1>>>(chain, words);
    return cudaGetLastError();
}

int roof_transpose(void)
{
    transpose_kernel<<<dim3(N / TILE, N / TILE), dim3(TILE, ROWS)>>>(input, output);
    return cudaGetLastError();
}

// The largest error of the polynomial, for some numbers; NaN if CUDA fails.
double roof_check(void)
{
    float x[1024], y[1024];
    double worst = 0;
    if (roof_polynomial() != 0) return NAN;
    if (cudaMemcpy(x, input + N, sizeof x, cudaMemcpyDeviceToHost) != cudaSuccess) return NAN;
    if (cudaMemcpy(y, output + N, sizeof y, cudaMemcpyDeviceToHost) != cudaSuccess) return NAN;
    for (int i = 0; i < 1024; i++) {
        double expected = x[i];
        for (int k = 0; k < 256; k++) expected = expected * x[i] + 0.5;
        worst = fmax(worst, fabs(y[i] - expected) / fmax(1, fabs(expected)));
    }
    return worst;
}
}

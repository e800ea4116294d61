/* Probes for a device's peaks: multiply-adds in registers, reads of memory and of the L2, and an empty kernel. */
#include "kernels/context.h"

#include "kernels/block.cuh"

enum {
    THREADS = 256,
    BLOCKS_PER_SM = 4,
    CHAINS = 8, /* independent chains per thread: more than the unit's latency */
    STEPS = 16, /* multiply-adds per chain and iteration, so that the loop's overhead is small */
    READ_UNROLL = 4
};

typedef struct {
    int iterations;
    float multiplier, addend;
} fma_arguments;

typedef struct {
    const uint4 *data;
    int64_t vectors;
} read_arguments;

/* Each thread reads `rounds` × READ_UNROLL vectors, `step` vectors apart, and goes round at the end of the data. */
typedef struct {
    const uint4 *data;
    uint32_t vectors, step; /* step < vectors */
    int rounds;
} l2_arguments;

/* Never written, as no result equals this number; but the compiler cannot know that. */
__device__ float fs_probe_sink;

FS_DEVICE double multiply_add(double x, double a, double b)
{
    return fma(x, a, b);
}
FS_DEVICE float multiply_add(float x, float a, float b)
{
    return fmaf(x, a, b);
}
FS_DEVICE __half2 multiply_add(__half2 x, __half2 a, __half2 b)
{
    return __hfma2(x, a, b);
}
FS_DEVICE __nv_bfloat162 multiply_add(__nv_bfloat162 x, __nv_bfloat162 a, __nv_bfloat162 b)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __hfma2(x, a, b);
#else /* the device lacks the instruction */
    return __floats2bfloat162_rn(fmaf(__low2float(x), __low2float(a), __low2float(b)),
                                 fmaf(__high2float(x), __high2float(a), __high2float(b)));
#endif
}

FS_DEVICE void spread(float x, double *to)
{
    *to = x;
}
FS_DEVICE void spread(float x, float *to)
{
    *to = x;
}
FS_DEVICE void spread(float x, __half2 *to)
{
    *to = __float2half2_rn(x);
}
FS_DEVICE void spread(float x, __nv_bfloat162 *to)
{
    *to = __float2bfloat162_rn(x);
}

FS_DEVICE float gather(double x)
{
    return (float)x;
}
FS_DEVICE float gather(float x)
{
    return x;
}
FS_DEVICE float gather(__half2 x)
{
    return __low2float(x) + __high2float(x);
}
FS_DEVICE float gather(__nv_bfloat162 x)
{
    return __low2float(x) + __high2float(x);
}

/* FLOPS 2 per multiply-add (per number of a pair)    BYTES none    bound by compute */
template <class V>
static __global__ void __launch_bounds__(THREADS) fma_kernel(const __grid_constant__ fma_arguments args)
{
    V chain[CHAINS], multiplier, addend;

    spread(args.multiplier, &multiplier);
    spread(args.addend, &addend);
#pragma unroll
    for (int c = 0; c < CHAINS; c++) spread((float)(threadIdx.x + c), &chain[c]);
#pragma unroll 1
    for (int i = 0; i < args.iterations; i++) {
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++) chain[c] = multiply_add(chain[c], multiplier, addend);
    }
    float sum = 0;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) sum += gather(chain[c]);
    if (sum == -1.0f) fs_probe_sink = sum;
}

/* FLOPS 1 per float    BYTES 4 per float    bound by memory */
static __global__ void __launch_bounds__(THREADS) read_kernel(const __grid_constant__ read_arguments args)
{
    int64_t step = (int64_t)gridDim.x * THREADS, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float sum[4] = {0, 0, 0, 0};

    for (; i < args.vectors; i += READ_UNROLL * step) {
        alignas(16) float values[READ_UNROLL][4] = {};
#pragma unroll
        for (int u = 0; u < READ_UNROLL; u++)
            if (i + u * step < args.vectors) *(uint4 *)values[u] = args.data[i + u * step];
#pragma unroll
        for (int u = 0; u < READ_UNROLL; u++)
#pragma unroll
            for (int k = 0; k < 4; k++) sum[k] += values[u][k];
    }
    /* Practically no sum equals this float, and a write would be harmless. */
    if (sum[0] + sum[1] + sum[2] + sum[3] == -1.2345678e-30f) fs_probe_sink = sum[0];
}

/* FLOPS 1 per float    BYTES 4 per float, past the L1    bound by the L2, if it holds the data */
static __global__ void __launch_bounds__(THREADS) l2_kernel(const __grid_constant__ l2_arguments args)
{
    uint32_t i = (blockIdx.x * THREADS + threadIdx.x) % args.vectors;
    float sum[4] = {0, 0, 0, 0};

#pragma unroll 1
    for (int round = 0; round < args.rounds; round++) {
        alignas(16) float values[READ_UNROLL][4];
#pragma unroll
        for (int u = 0; u < READ_UNROLL; u++) {
            *(uint4 *)values[u] = __ldcg(&args.data[i]);
            i += args.step;
            if (i >= args.vectors) i -= args.vectors;
        }
#pragma unroll
        for (int u = 0; u < READ_UNROLL; u++)
#pragma unroll
            for (int k = 0; k < 4; k++) sum[k] += values[u][k];
    }
    if (sum[0] + sum[1] + sum[2] + sum[3] == -1.2345678e-30f) fs_probe_sink = sum[0];
}

static __global__ void empty_kernel(int)
{
}

static const struct {
    const void *kernel;
    int width; /* numbers per register value */
} fma_kernels[] = {
    {(const void *)fma_kernel<double>, 1},
    {(const void *)fma_kernel<float>, 1},
    {(const void *)fma_kernel<__half2>, 2},
    {(const void *)fma_kernel<__nv_bfloat162>, 2},
};

static fs_status launch_fma(fs_device device, fs_dtype dtype, int iterations, double *flops, fs_error *err)
{
    /* Chains converge to addend / (1 - multiplier) = 1, which is exactly representable, and remain normal numbers. */
    fma_arguments args = {iterations, 0.5f, 0.5f};
    int sms;

    FS_CUDA_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.index), device,
                "asking for the number of multiprocessors", err);
    int blocks = sms * BLOCKS_PER_SM;
    *flops = 2.0 * fma_kernels[dtype].width * CHAINS * STEPS * (double)iterations * THREADS * blocks;
    return fs_cuda_launch(device, fma_kernels[dtype].kernel, blocks, THREADS, &args, "launching a compute probe", err);
}

/* As many blocks as the device holds. */
static fs_status count_blocks(fs_device device, int64_t *blocks, fs_error *err)
{
    int sms, per_sm;

    FS_CUDA_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.index), device,
                "asking for the number of multiprocessors", err);
    FS_CUDA_TRY(cudaDeviceGetAttribute(&per_sm, cudaDevAttrMaxThreadsPerMultiProcessor, device.index), device,
                "asking for the threads of a multiprocessor", err);
    *blocks = (int64_t)sms * (per_sm / THREADS);
    return FS_OK;
}

static fs_status launch_read(fs_device device, const void *data, size_t nbytes, fs_error *err)
{
    read_arguments args = {(const uint4 *)data, (int64_t)(nbytes / 16)};
    int64_t blocks;

    FS_TRY(count_blocks(device, &blocks, err));
    return fs_cuda_launch(device, (const void *)read_kernel, blocks, THREADS, &args, "launching a memory probe", err);
}

static fs_status launch_l2(fs_device device, const void *data, size_t nbytes, double *moved, fs_error *err)
{
    const double least = 16e9; /* bytes, so that the launch takes a small part of the time */
    int64_t blocks;

    FS_TRY(count_blocks(device, &blocks, err));
    double round = (double)blocks * THREADS * READ_UNROLL * 16;
    uint32_t vectors = (uint32_t)(nbytes / 16);
    l2_arguments args = {(const uint4 *)data, vectors, (uint32_t)(blocks * THREADS % vectors),
                         (int)(least / round) + 1};
    *moved = round * args.rounds;
    return fs_cuda_launch(device, (const void *)l2_kernel, blocks, THREADS, &args, "launching a probe of the L2", err);
}

extern "C" fs_status fs_cuda_probe_fma(fs_device device, fs_dtype dtype, int iterations, double *flops, fs_error *err)
{
    int previous;

    *flops = 0;
    if (!fs_dtype_is_float(dtype) || iterations < 1)
        return fs_fail(err, FS_VALUE_ERROR, "a compute probe needs a float dtype and at least 1 iteration, not %d",
                       iterations);
    FS_TRY(fs_cuda_enter(device, &previous, err));
    fs_status status = launch_fma(device, dtype, iterations, flops, err);
    fs_cuda_leave(previous);
    return status;
}

extern "C" fs_status fs_cuda_probe_empty(fs_device device, fs_error *err)
{
    int previous, argument = 0;

    FS_TRY(fs_cuda_enter(device, &previous, err));
    fs_status status =
        fs_cuda_launch(device, (const void *)empty_kernel, 1, 1, &argument, "launching an empty kernel", err);
    fs_cuda_leave(previous);
    return status;
}

static fs_status check_data(const void *data, size_t nbytes, fs_error *err)
{
    if (nbytes >= 16 && nbytes / 16 < UINT32_MAX / 2 && fs_is_aligned(data, 16)) return FS_OK;
    return fs_fail(err, FS_VALUE_ERROR, "a memory probe needs 16 bytes to 32 GiB, aligned to 16, not %zu at %p", nbytes,
                   data);
}

extern "C" fs_status fs_cuda_probe_l2(fs_device device, const void *data, size_t nbytes, double *moved, fs_error *err)
{
    int previous;

    FS_TRY(check_data(data, nbytes, err));
    FS_TRY(fs_cuda_enter(device, &previous, err));
    fs_status status = launch_l2(device, data, nbytes, moved, err);
    fs_cuda_leave(previous);
    return status;
}

extern "C" fs_status fs_cuda_probe_read(fs_device device, const void *data, size_t nbytes, fs_error *err)
{
    int previous;

    FS_TRY(check_data(data, nbytes, err));
    FS_TRY(fs_cuda_enter(device, &previous, err));
    fs_status status = launch_read(device, data, nbytes, err);
    fs_cuda_leave(previous);
    return status;
}

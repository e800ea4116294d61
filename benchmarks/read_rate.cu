// The rate of reading: kernels that read a buffer once and write nothing, in several forms.
#include <cuda_runtime.h>
#include <stdint.h>

enum { THREADS = 256, BLOCKS_PER_SM = 8 };

__device__ unsigned sink; // never written: the XOR of random data equals no agreed number; the compiler cannot know

template <int UNROLL> __device__ unsigned read_vectors(const uint4 *data, int64_t first, int64_t step, int64_t end)
{
    uint4 values[UNROLL] = {};
    unsigned all = 0;
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (first + u * step < end) values[u] = data[first + u * step];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) all ^= values[u].x ^ values[u].y ^ values[u].z ^ values[u].w;
    return all;
}

// Blocks that stay, each thread with a stride of all threads.
template <int UNROLL> __global__ void __launch_bounds__(THREADS) stay(const uint4 *data, int64_t vectors)
{
    int64_t step = (int64_t)gridDim.x * THREADS, i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    unsigned all = 0;
    for (; i < vectors; i += UNROLL * step) all ^= read_vectors<UNROLL>(data, i, step, vectors);
    if (all == 0x9e3779b9u) sink = all;
}

// A block for each piece of THREADS * UNROLL vectors.
template <int UNROLL> __global__ void __launch_bounds__(THREADS) piece(const uint4 *data, int64_t vectors)
{
    int64_t i = (int64_t)blockIdx.x * THREADS * UNROLL + threadIdx.x;
    if (read_vectors<UNROLL>(data, i, THREADS, vectors) == 0x9e3779b9u) sink = 1;
}

static const struct {
    void (*kernel)(const uint4 *data, int64_t vectors);
    int unroll;
    bool stays;
} forms[] = {
    {stay<4>, 4, true},   {stay<8>, 8, true},   {stay<16>, 16, true},
    {piece<4>, 4, false}, {piece<8>, 8, false}, {piece<16>, 16, false},
};

extern "C" int read_forms()
{
    return sizeof forms / sizeof *forms;
}

// Read a buffer, aligned to 16 bytes, on the default stream, in one of the forms. Return a cudaError_t.
extern "C" int read_memory(const void *data, int64_t nbytes, int form)
{
    int device, sms;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return error;
    int64_t vectors = nbytes / 16, piece = (int64_t)THREADS * forms[form].unroll;
    unsigned blocks = forms[form].stays ? (unsigned)(sms * BLOCKS_PER_SM) : (unsigned)((vectors + piece - 1) / piece);
    forms[form].kernel<<<blocks, THREADS>>>((const uint4 *)data, vectors);
    return cudaGetLastError();
}

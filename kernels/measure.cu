/* Kernels around a call: flushing the L2 cache, filling shared memory, a mark, and holding the device until the host is
 * ready. */
#include "kernels/context.h"

extern "C" {
#include "base/clock.h"
#include "kernels/measure.h"
}

enum {
    THREADS = 256,
    BLOCKS_PER_SM = 8,
    LOAD_READS = 200, /* of the buffer of a flush, as a load: some milliseconds */
    CACHES_READ = 3   /* times the L2 cache: its replacement is not strictly LRU, and its halves may hold lines twice */
};

typedef struct {
    const uint4 *data;
    int64_t vectors;
    uint4 *sink;
} flush_arguments;

/* Host memory visible to the device. Each hold has a ticket and waits until `released` reaches it. */
typedef struct {
    int released, gave_up;
} hold_state;

typedef struct {
    volatile hold_state *state;
    int ticket;
    uint64_t timeout_ns;
} hold_arguments;

/* BYTES 16 per vector    bound by memory */
extern "C" __global__ void __launch_bounds__(THREADS) flopscope_flush_l2(const __grid_constant__ flush_arguments args)
{
    int64_t step = (int64_t)gridDim.x * THREADS;
    uint4 all = {0, 0, 0, 0};

    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < args.vectors; i += step) {
        uint4 v = __ldcg(&args.data[i]);
        all.x |= v.x, all.y |= v.y, all.z |= v.z, all.w |= v.w;
    }
    if (all.x | all.y | all.z | all.w) *args.sink = all; /* never: the buffer is all zeros */
}

/* Bits that are NaN in all floating dtypes. */
extern "C" __global__ void __launch_bounds__(THREADS) flopscope_fill_shared(int words)
{
    extern __shared__ volatile uint32_t shared[];

    for (int i = threadIdx.x; i < words; i += THREADS) shared[i] = UINT32_MAX;
}

extern "C" __global__ void flopscope_measure_mark(int)
{
}

static __device__ uint64_t device_clock_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* Tickets may wrap. Their difference shows which is later. */
extern "C" __global__ void flopscope_measure_hold(const __grid_constant__ hold_arguments args)
{
    uint64_t begin = device_clock_ns();

    while (args.state->released - args.ticket < 0) {
        if (device_clock_ns() - begin > args.timeout_ns) {
            args.state->gave_up = args.ticket;
            __threadfence_system();
            return;
        }
    }
}

static volatile hold_state *hold; /* created on first use, shared by all devices; the caller holds the GIL */
static int ticket;

static fs_status read_buffer(fs_device device, cudaStream_t stream, int times, void *buffer, size_t nbytes, bool fresh,
                             int sms, fs_error *err)
{
    flush_arguments args = {(uint4 *)buffer, (int64_t)(nbytes / 16), (uint4 *)buffer};
    void *parameters[] = {&args};
    cudaError_t code = fresh ? cudaMemsetAsync(buffer, 0, nbytes, stream) : cudaSuccess;

    for (int i = 0; i < times && code == cudaSuccess; i++)
        code = cudaLaunchKernel((const void *)flopscope_flush_l2, dim3((unsigned)(sms * BLOCKS_PER_SM)), dim3(THREADS),
                                parameters, 0, stream);
    return code == cudaSuccess ? FS_OK : fs_cuda_fail(code, device, "emptying the L2 cache", err);
}

static fs_status flush(fs_device device, cudaStream_t stream, int times, fs_error *err)
{
    int l2, sms;
    void *buffer;
    bool fresh;

    FS_CUDA_TRY(cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device.index), device, "asking for the L2 cache",
                err);
    FS_CUDA_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.index), device,
                "asking for the number of multiprocessors", err);
    size_t nbytes = CACHES_READ * (size_t)(l2 > 0 ? l2 : 1 << 20) / 16 * 16;
    FS_CUDA_TRY(cudaCtxResetPersistingL2Cache(), device, "resetting the persisting lines of the L2 cache", err);
    FS_TRY(fs_cuda_scratch_take(device, FS_CUDA_FLUSH_BUFFER, nbytes, &buffer, &fresh, err));
    fs_status status = read_buffer(device, stream, times, buffer, nbytes, fresh, sms, err);
    fs_cuda_scratch_give(device, FS_CUDA_FLUSH_BUFFER);
    return status;
}

/* Twice as many blocks as there are multiprocessors, each with all of the shared memory of one. */
static fs_status fill_shared(fs_device device, fs_error *err)
{
    int sms = 0, nbytes = 0, words;
    void *parameters[] = {&words};
    const void *kernel = (const void *)flopscope_fill_shared;
    cudaError_t code = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.index);

    if (code == cudaSuccess)
        code = cudaDeviceGetAttribute(&nbytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index);
    words = nbytes / 4;
    if (code == cudaSuccess) code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes);
    if (code == cudaSuccess)
        code = cudaLaunchKernel(kernel, dim3((unsigned)(2 * sms)), dim3(THREADS), parameters, (size_t)nbytes,
                                fs_cuda_stream(device));
    if (code == cudaSuccess) code = cudaStreamSynchronize(fs_cuda_stream(device));
    return code == cudaSuccess ? FS_OK : fs_cuda_fail(code, device, "filling the shared memory", err);
}

/* The default stream does not wait for the load, nor the load for it. */
static fs_status load(fs_device device, fs_error *err)
{
    cudaStream_t stream;

    FS_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), device, "creating a stream", err);
    fs_status status = flush(device, stream, LOAD_READS, err);
    cudaStreamDestroy(stream); /* once its work is done */
    return status;
}

static fs_status start_hold(fs_device device, double seconds, fs_error *err)
{
    void *buffer;

    if (!hold) {
        FS_CUDA_TRY(cudaHostAlloc(&buffer, sizeof *hold, cudaHostAllocPortable | cudaHostAllocMapped), device,
                    "allocating host memory visible to the device", err);
        hold = (volatile hold_state *)buffer;
        hold->released = hold->gave_up = 0;
    }
    if (hold->released != ticket)
        return fs_fail(err, FS_RUNTIME_ERROR, "another call is being timed: time one at a time");
    hold_arguments args = {hold, ticket + 1, (uint64_t)(seconds * 1e9)};
    FS_TRY(fs_cuda_launch(device, (const void *)flopscope_measure_hold, 1, 1, &args, "holding the device", err));
    ticket++;
    return FS_OK;
}

extern "C" fs_status fs_cuda_measure_wait(fs_device device, double seconds, bool *done, fs_error *err)
{
    int previous;
    int64_t end = fs_clock_now() + (int64_t)(seconds * 1e9);
    cudaError_t code;

    FS_TRY(fs_cuda_enter(device, &previous, err));
    do {
        code = cudaStreamQuery(fs_cuda_stream(device));
    } while (code == cudaErrorNotReady && fs_clock_now() < end);
    *done = code != cudaErrorNotReady;
    if (code == cudaSuccess) code = cudaDeviceSynchronize(); /* other streams */
    fs_cuda_leave(previous);
    return code == cudaSuccess || !*done ? FS_OK : fs_cuda_fail(code, device, "waiting for the device", err);
}

extern "C" fs_status fs_cuda_measure_flush(fs_device device, fs_error *err)
{
    int previous;

    FS_TRY(fs_cuda_enter(device, &previous, err));
    fs_status status = flush(device, fs_cuda_stream(device), 1, err);
    fs_cuda_leave(previous);
    return status;
}

extern "C" fs_status fs_cuda_measure_disturb(fs_device device, bool loaded, fs_error *err)
{
    int previous;

    FS_TRY(fs_cuda_enter(device, &previous, err));
    fs_status status = flush(device, fs_cuda_stream(device), 1, err);
    if (status == FS_OK) status = fill_shared(device, err);
    if (status == FS_OK && loaded) status = load(device, err);
    fs_cuda_leave(previous);
    return status;
}

extern "C" fs_status fs_cuda_measure_mark(fs_device device, fs_error *err)
{
    int previous, argument = 0;

    FS_TRY(fs_cuda_enter(device, &previous, err));
    fs_status status =
        fs_cuda_launch(device, (const void *)flopscope_measure_mark, 1, 1, &argument, "launching a mark", err);
    fs_cuda_leave(previous);
    return status;
}

extern "C" fs_status fs_cuda_measure_hold(fs_device device, double seconds, fs_error *err)
{
    int previous;

    if (!(seconds > 0 && seconds <= 10))
        return fs_fail(err, FS_VALUE_ERROR, "the hold must be more than 0 and at most 10 seconds, not %g", seconds);
    FS_TRY(fs_cuda_enter(device, &previous, err));
    fs_status status = start_hold(device, seconds, err);
    fs_cuda_leave(previous);
    return status;
}

extern "C" void fs_cuda_measure_release(void)
{
    if (hold) hold->released = ticket;
}

extern "C" bool fs_cuda_measure_gave_up(void)
{
    return hold && ticket != 0 && hold->gave_up == ticket;
}

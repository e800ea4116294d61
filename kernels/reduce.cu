/* Reductions of rows: sum, mean, maximum, minimum, norm, variance and the place of the maximum.
 *
 *   FLOPS 1 (norm 2, var 4, argmax 0) per input element    BYTES sizeof(S) per input element, and the results
 *   bound by memory
 *
 *   short rows        1 to 32 lanes of a warp for each row
 *   longer rows       a block for each row
 *   few, long rows    a block for each piece of a row; the last block of a row to finish merges the pieces' states
 *
 * A thread takes a batch of vectors at a time: their sum (or maximum, moments, …) is computed as a tree in registers
 * and joins the thread's state, so that the error grows with the logarithm of the length. All orders depend only on the
 * shape. The rules are in reduce.cuh.
 */
#include "kernels/context.h"

#include "kernels/reduce.cuh"

enum {
    THREADS = 256,
    BATCH = 4,          /* vectors of 16 bytes that a thread loads at a time */
    LANE_BYTES = 64,    /* of a row for each lane, and where they are 32, */
    THREAD_BYTES = 256, /* for each thread, where there are rows enough to fill the device */
    RESIDENT = 2048,    /* threads per multiprocessor that fill it */
    MAX_ROWS = 8192     /* whose pieces can be counted */
};

typedef struct {
    const void *in;
    void *out;
    void *states; /* by row and piece: the pieces' states */
    int64_t rows, length, pieces, piece;
    double correction;
    int width; /* threads per row: lanes if at most a warp */
} arguments;

/* Pieces of a row that have finished. The last one resets it. Kernels that use it run one after the other, as all work
 * of flopscope's on a device is on one stream. */
static __device__ unsigned finished[MAX_ROWS];

template <class OP, class S> FS_DEVICE void take_one(typename OP::state &state, const S *in, int64_t i, int64_t first)
{
    typename fs_compute<S>::type value[1] = {fs_widen(in[i])};
    OP::template take<1>(state, value, first + i, 0);
}

/* A thread's share of in[0 .. length): every step-th vector (element, where vectors do not fit) from its own on. */
template <class OP, class S>
FS_DEVICE typename OP::state share_of(const S *in, int64_t length, int64_t first, int index, int step)
{
    typedef typename fs_compute<S>::type T;
    constexpr int WIDTH = 16 / sizeof(S);
    typename OP::state state = OP::start();
    int64_t head = (int64_t)(-(uintptr_t)in % 16 / sizeof(S));
    if (head > length) head = length;
    int64_t vectors = (length - head) / WIDTH, v = index;
    const S *middle = in + head;

    /* In the order of places: the elements before the first vector, the vectors, the elements after the last. */
    for (int64_t i = index; i < head; i += step) take_one<OP>(state, in, i, first);
    for (; v + (BATCH - 1) * step < vectors; v += BATCH * step) {
        alignas(16) S raw[BATCH * WIDTH];
        T values[BATCH * WIDTH];
#pragma unroll
        for (int u = 0; u < BATCH; u++) fs_load<S, WIDTH>(raw + u * WIDTH, middle + (v + u * step) * WIDTH);
        fs_widen_run<BATCH * WIDTH>(raw, values);
        OP::template take<WIDTH>(state, values, first + head + v * WIDTH, (int64_t)step * WIDTH);
    }
    for (; v < vectors; v += step) {
        alignas(16) S raw[WIDTH];
        T values[WIDTH];
        fs_load<S, WIDTH>(raw, middle + v * WIDTH);
        fs_widen_run<WIDTH>(raw, values);
        OP::template take<WIDTH>(state, values, first + head + v * WIDTH, 0);
    }
    for (int64_t i = head + vectors * WIDTH + index; i < length; i += step) take_one<OP>(state, in, i, first);
    return state;
}

/* Whether this block is the last of the row's to come here: then it sees what the others wrote before. */
FS_DEVICE bool is_last(int64_t row, int64_t pieces)
{
    __shared__ bool last;

    if (threadIdx.x == 0) {
        unsigned before, most = (unsigned)pieces - 1;
        asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(&finished[row]), "r"(most)
                     : "memory");
        last = before == most;
    }
    __syncthreads();
    return last;
}

template <class OP, class S>
static __global__ void __launch_bounds__(THREADS) block_kernel(const __grid_constant__ arguments args)
{
    typedef typename OP::state state;
    __shared__ state shared[THREADS / FS_WARP];
    int64_t row = blockIdx.x / args.pieces, piece = blockIdx.x - row * args.pieces, begin = piece * args.piece;
    int64_t length = args.length - begin < args.piece ? args.length - begin : args.piece;
    const S *in = (const S *)args.in + row * args.length + begin;
    state whole = fs_merge_block<OP>(share_of<OP>(in, length, begin, (int)threadIdx.x, (int)blockDim.x), shared);

    if (args.pieces > 1) {
        state *states = (state *)args.states + row * args.pieces;
        if (threadIdx.x == 0) states[piece] = whole;
        if (!is_last(row, args.pieces)) return;
        whole = OP::start();
#pragma unroll 8
        for (int64_t i = threadIdx.x; i < args.pieces; i += blockDim.x) OP::merge(whole, states[i]);
        whole = fs_merge_block<OP>(whole, shared);
    }
    if (threadIdx.x == 0) OP::finish((S *)args.out, row, whole, args.length, args.correction);
}

template <class OP, class S>
static __global__ void __launch_bounds__(THREADS) lanes_kernel(const __grid_constant__ arguments args)
{
    int index = (int)threadIdx.x % args.width;
    int64_t row = (int64_t)blockIdx.x * (THREADS / args.width) + threadIdx.x / args.width;
    typename OP::state state = OP::start();

    if (row < args.rows)
        state = share_of<OP>((const S *)args.in + row * args.length, args.length, 0, index, args.width);
    state = OP::merge_lanes(state, args.width);
    if (row < args.rows && index == 0) OP::finish((S *)args.out, row, state, args.length, args.correction);
}

typedef struct {
    const void *block, *lanes;
    size_t state;
} kernels;

#define KERNELS(OP, S, T) \
    {(const void *)block_kernel<OP<T>, S>, (const void *)lanes_kernel<OP<T>, S>, sizeof(OP<T>::state)}
#define BY_DTYPE(OP)                                                                         \
    {KERNELS(OP, double, double), KERNELS(OP, float, float), KERNELS(OP, fs_float16, float), \
     KERNELS(OP, fs_bfloat16, float)}
static const kernels table[FS_REDUCTION_COUNT][4] = {BY_DTYPE(fs_sum),   BY_DTYPE(fs_mean), BY_DTYPE(fs_amax),
                                                     BY_DTYPE(fs_amin),  BY_DTYPE(fs_norm), BY_DTYPE(fs_variance),
                                                     BY_DTYPE(fs_argmax)};

static const int64_t sizes[4] = {8, 4, 2, 2};

/* Threads for each row: as many as have LANE_BYTES or THREAD_BYTES each, and more while the device is not full and each
 * has a vector; then pieces of rows, for as many blocks as are resident or fewer. */
static void divide(arguments *args, int64_t size, int64_t resident)
{
    int64_t row = args->length * size;
    args->width = 1;
    while (args->width < FS_WARP && args->width * LANE_BYTES < row) args->width *= 2;
    while (args->width < THREADS && args->width * THREAD_BYTES < row) args->width *= 2;
    while (args->width < THREADS && args->width * 16 < row && args->rows * args->width < resident) args->width *= 2;
    args->pieces = 1;
    args->piece = args->length;
    if (args->width < THREADS || args->rows >= MAX_ROWS || 2 * args->rows * THREADS >= resident) return;
    int64_t pieces = fs_ceil_div(row, THREADS * 16 * BATCH); /* a batch for each thread */
    int64_t most = fs_ceil_div(resident, args->rows * THREADS);
    if (pieces > most) pieces = most;
    args->piece = fs_ceil_div(fs_ceil_div(args->length, pieces), 16) * 16; /* pieces are aligned as the row is */
    args->pieces = fs_ceil_div(args->length, args->piece);
}

extern "C" fs_status fs_cuda_reduce(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err)
{
    const char *doing = "launching a reduction";
    const kernels *choice = &table[op][reduction->dtype];
    arguments args = {};
    int sms;

    FS_CUDA_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.index), device,
                "asking for the number of multiprocessors", err);
    args.in = reduction->in;
    args.out = reduction->out;
    args.rows = reduction->rows;
    args.length = reduction->length;
    args.correction = reduction->correction;
    divide(&args, sizes[reduction->dtype], (int64_t)sms * RESIDENT);
    if (args.width <= FS_WARP)
        return fs_cuda_launch(device, choice->lanes, fs_ceil_div(args.rows, THREADS / args.width), THREADS, &args,
                              doing, err);
    size_t states = args.pieces > 1 ? (size_t)(args.rows * args.pieces) * choice->state : 0;
    if (states) FS_TRY(fs_cuda_allocate(device, states, &args.states, err));
    fs_status status =
        fs_cuda_launch(device, choice->block, args.rows * args.pieces, (unsigned)args.width, &args, doing, err);
    if (states) fs_cuda_release(device, args.states, states);
    return status;
}

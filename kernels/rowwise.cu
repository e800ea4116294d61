/* Softmax, log_softmax, layer_norm and rms_norm over rows.
 *
 *   FLOPS 5, 5, 5 to 7, 3 to 4 per element    BYTES 2 sizeof(S) per element    bound by memory
 *
 *   short rows    a warp each
 *   longer rows   a block each; in both, the row stays in registers and memory is read once
 *   longest rows  pieces of PIECE_THREADS × items: statistics of each piece, then of each row, then the results
 */
#include "kernels/context.h"

#include "kernels/rowwise.cuh"

enum { WARPS = 4 /* rows per block of short rows */, PIECE_THREADS = 512, MAX_THREADS = 1024 };
enum { WHOLE, PIECES, RESULTS }; /* the task of a block: a row, the statistics of its pieces, the results of pieces */

typedef struct {
    const void *in;
    void *out;
    const void *weight, *bias;
    void *pieces_of, *factors_of; /* by row and piece: fs_pair; by row: fs_factors */
    int64_t rows, length, pieces, piece;
    double eps;
    int task;
    bool vectors; /* all rows and pieces, weight and bias begin at multiples of 16 bytes and are whole vectors */
} arguments;

/* A thread's elements of a run: vectors or single elements, a team apart. */
template <class S> struct share {
    static constexpr int WIDTH = 16 / sizeof(S), ITEMS = sizeof(S) == 8 ? 8 : 16;
    int length, index, team;
    bool vectors;

    __device__ __forceinline__ int place(int k) const
    {
        return vectors ? (k / WIDTH * team + index) * WIDTH + k % WIDTH : k * team + index;
    }

    __device__ __forceinline__ bool has(int k) const
    {
        return place(k) < length;
    }

    /* Elements k to k + WIDTH of the thread's own. Elements beyond the run are 0. */
    __device__ __forceinline__ void load(const S *from, int k, S *raw) const
    {
        if (vectors) {
            if (has(k)) fs_load<S, WIDTH>(raw, from + place(k));
        } else {
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                if (has(k + j)) raw[j] = from[place(k + j)];
        }
    }

    __device__ __forceinline__ void store(S *to, int k, const S *raw) const
    {
        if (vectors) {
            if (has(k)) fs_store<S, WIDTH>(to + place(k), raw);
        } else {
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                if (has(k + j)) to[place(k + j)] = raw[j];
        }
    }
};

/* Multiply elements by their column's weight, add its bias and store them, a vector at a time. */
template <class S, class T>
FS_DEVICE void finish(const arguments &args, const share<S> &own, int64_t begin, fs_factors<T> factors, S *to,
                      const T (&x)[share<S>::ITEMS])
{
    constexpr int WIDTH = share<S>::WIDTH;

#pragma unroll
    for (int k = 0; k < share<S>::ITEMS; k += WIDTH) {
        alignas(16) S weight[WIDTH] = {}, bias[WIDTH] = {}, raw[WIDTH];
        if (args.weight) own.load((const S *)args.weight + begin, k, weight);
        if (args.bias) own.load((const S *)args.bias + begin, k, bias);
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            T y = x[k + j] * factors.multiplier + factors.addend;
            if (args.weight) y *= fs_widen(weight[j]);
            if (args.bias) y += fs_widen(bias[j]);
            fs_narrow(y, &raw[j]);
        }
        own.store(to, k, raw);
    }
}

/* Blocks of PIECE_THREADS per multiprocessor, so that one's loads overlap with the others' reductions. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define PIECE_BLOCKS 2 /* it has 1024 threads */
#else
#define PIECE_BLOCKS 3
#endif

/* LIMIT: maximum threads per block; WARPS * FS_WARP has a row per warp. */
template <template <class> class OP, class S, int LIMIT>
static __global__ void __launch_bounds__(LIMIT, LIMIT == PIECE_THREADS ? PIECE_BLOCKS : 1)
    row_kernel(const __grid_constant__ arguments args)
{
    constexpr bool WARP = LIMIT == WARPS * FS_WARP, PART = LIMIT == PIECE_THREADS; /* PART: may process pieces */
    typedef typename fs_compute<S>::type T;
    constexpr int ITEMS = share<S>::ITEMS, WIDTH = share<S>::WIDTH;
    __shared__ T shared[FS_WARP];
    fs_team<T, WARP> team = {shared};
    int64_t number = WARP ? (int64_t)blockIdx.x * WARPS + threadIdx.x / FS_WARP : (int64_t)blockIdx.x;
    int64_t row = PART ? number / args.pieces : number, begin = PART ? (number - row * args.pieces) * args.piece : 0;
    if (row >= args.rows) return;

    int64_t left = args.length - begin;
    share<S> own = {(int)(left < args.piece ? left : args.piece), (int)(WARP ? threadIdx.x % FS_WARP : threadIdx.x),
                    (int)(WARP ? FS_WARP : blockDim.x), args.vectors};
    alignas(16) S raw[ITEMS] = {};
    T x[ITEMS];
    fs_factors<T> factors;

#pragma unroll
    for (int k = 0; k < ITEMS; k += WIDTH) own.load((const S *)args.in + row * args.length + begin, k, raw + k);
#pragma unroll
    for (int k = 0; k < ITEMS; k++) x[k] = fs_widen(raw[k]);
    if (PART && args.task == RESULTS) {
        factors = ((const fs_factors<T> *)args.factors_of)[row];
#pragma unroll
        for (int k = 0; k < ITEMS; k++) x[k] = OP<T>::shift(x[k], factors.shift);
    } else {
        fs_pair<T> numbers = OP<T>::stats(x, own, team);
        if (PART && args.task == PIECES) {
            if (threadIdx.x == 0) ((fs_pair<T> *)args.pieces_of)[number] = numbers;
            return;
        }
        factors = OP<T>::scale(numbers, args.length, (T)args.eps);
    }
    finish(args, own, begin, factors, (S *)args.out + row * args.length + begin, x);
}

/* One block per row: combine its pieces' statistics to its factors. */
template <template <class> class OP, class T>
static __global__ void __launch_bounds__(PIECE_THREADS) combine_kernel(const __grid_constant__ arguments args)
{
    __shared__ T shared[FS_WARP];
    fs_team<T, false> team = {shared};
    const fs_pair<T> *pieces = (const fs_pair<T> *)args.pieces_of + blockIdx.x * args.pieces;

    fs_pair<T> numbers = OP<T>::combine(pieces, args.pieces, args.length, args.piece, team);
    if (threadIdx.x == 0)
        ((fs_factors<T> *)args.factors_of)[blockIdx.x] = OP<T>::scale(numbers, args.length, (T)args.eps);
}

typedef struct {
    const void *warp, *block, *large_block, *combine;
} kernels;

#define KERNELS(OP, S, T)                                                                              \
    {(const void *)row_kernel<OP, S, WARPS * FS_WARP>, (const void *)row_kernel<OP, S, PIECE_THREADS>, \
     (const void *)row_kernel<OP, S, MAX_THREADS>, (const void *)combine_kernel<OP, T>}
#define BY_DTYPE(OP)                                                                         \
    {KERNELS(OP, double, double), KERNELS(OP, float, float), KERNELS(OP, fs_float16, float), \
     KERNELS(OP, fs_bfloat16, float)}
static const kernels table[FS_ROWWISE_COUNT][4] = {BY_DTYPE(softmax), BY_DTYPE(log_softmax), BY_DTYPE(layer_norm),
                                                   BY_DTYPE(rms_norm)};

static const char *const doing[FS_ROWWISE_COUNT] = {"launching softmax", "launching log_softmax",
                                                    "launching layer_norm", "launching rms_norm"};
static const int sizes[4] = {8, 4, 2, 2};

/* Rows too long for the registers of one block. */
static fs_status launch_pieces(fs_device device, const kernels *choice, arguments *args, int items, size_t accumulator,
                               const char *what, fs_error *err)
{
    size_t pieces_size, factors_size;
    fs_status status;

    args->piece = (int64_t)PIECE_THREADS * items;
    args->pieces = fs_ceil_div(args->length, args->piece);
    pieces_size = (size_t)(args->rows * args->pieces) * 2 * accumulator;
    factors_size = (size_t)args->rows * 3 * accumulator;
    FS_TRY_GOTO(status, fs_cuda_allocate(device, pieces_size, &args->pieces_of, err), done);
    FS_TRY_GOTO(status, fs_cuda_allocate(device, factors_size, &args->factors_of, err), done);

    args->task = PIECES;
    FS_TRY_GOTO(status,
                fs_cuda_launch(device, choice->block, args->rows * args->pieces, PIECE_THREADS, args, what, err), done);
    FS_TRY_GOTO(status, fs_cuda_launch(device, choice->combine, args->rows, PIECE_THREADS, args, what, err), done);
    args->task = RESULTS;
    status = fs_cuda_launch(device, choice->block, args->rows * args->pieces, PIECE_THREADS, args, what, err);
done:
    fs_cuda_release(device, args->factors_of, factors_size);
    fs_cuda_release(device, args->pieces_of, pieces_size);
    return status;
}

extern "C" fs_status fs_cuda_rowwise(fs_device device, fs_rowwise_id op, const fs_rowwise *rowwise, fs_error *err)
{
    const kernels *choice = &table[op][rowwise->dtype];
    int size = sizes[rowwise->dtype], items = size == 8 ? 8 : 16;
    arguments args = {};

    args.in = rowwise->in;
    args.out = rowwise->out;
    args.weight = rowwise->weight;
    args.bias = rowwise->bias;
    args.rows = rowwise->rows;
    args.length = args.piece = rowwise->length;
    args.pieces = 1;
    args.eps = rowwise->eps;
    args.vectors = args.length * size % 16 == 0 && fs_is_aligned(args.in, 16) && fs_is_aligned(args.out, 16) &&
                   fs_is_aligned(args.weight, 16) && fs_is_aligned(args.bias, 16);
    if (args.length <= FS_WARP * items)
        return fs_cuda_launch(device, choice->warp, fs_ceil_div(args.rows, WARPS), WARPS * FS_WARP, &args, doing[op],
                              err);
    if (args.length <= MAX_THREADS * items) {
        int64_t threads = fs_ceil_div(fs_ceil_div(args.length, items), FS_WARP) * FS_WARP;
        return fs_cuda_launch(device, threads <= PIECE_THREADS ? choice->block : choice->large_block, args.rows,
                              (unsigned)threads, &args, doing[op], err);
    }
    return launch_pieces(device, choice, &args, items, size == 8 ? 8 : 4, doing[op], err);
}

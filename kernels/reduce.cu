/* Sum, mean, maximum and minimum of rows.
 *
 *   FLOPS 1 per input element    BYTES sizeof(S) per input element, and the results    bound by memory
 *
 *   short rows   a group of 1 to 32 lanes for each row
 *   long rows    a block for each row, or for each piece of FS_REDUCE_PIECE elements; the pieces' results are the rows
 * of the next pass, in the accumulator's type, until one is left
 *
 * A thread adds at most FS_REDUCE_PIECE / (threads × accumulators) numbers in sequence, so that the error grows with
 * the logarithm of the length. The order of additions depends only on the shape.
 */
#include "kernels/context.h"

#include "kernels/block.cuh"

enum { THREADS = 256, SHORT_ROW = 512, PIECE = 16384, UNROLL = 4 };

typedef struct {
    const void *in;
    void *out;
    int64_t rows, length, pieces; /* pieces: blocks per row */
    double divisor;               /* of the final result */
    int width;                    /* lanes per row (short rows) */
    bool partial;                 /* out has the accumulator's type */
    bool vectors;                 /* every row starts at a multiple of 16 bytes */
} arguments;

/* A thread's share of `length` elements: every step-th vector (or element) from its own index on. */
template <class OP, class T, class S>
FS_DEVICE T reduce_share(const S *in, int64_t length, int index, int step, bool vectors)
{
    constexpr int WIDTH = 16 / sizeof(S);
    T accumulator[WIDTH];
    int64_t whole = vectors ? length / WIDTH : 0, v = index;

#pragma unroll
    for (int k = 0; k < WIDTH; k++) accumulator[k] = OP::template identity<T>();
    for (; v + (UNROLL - 1) * step < whole; v += UNROLL * step) {
        alignas(16) S values[UNROLL * WIDTH];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) fs_load<S, WIDTH>(values + u * WIDTH, in + (v + u * step) * WIDTH);
#pragma unroll
        for (int k = 0; k < UNROLL * WIDTH; k++)
            accumulator[k % WIDTH] = OP::apply(accumulator[k % WIDTH], (T)fs_widen(values[k]));
    }
    for (; v < whole; v += step) {
        alignas(16) S values[WIDTH];
        fs_load<S, WIDTH>(values, in + v * WIDTH);
#pragma unroll
        for (int k = 0; k < WIDTH; k++) accumulator[k] = OP::apply(accumulator[k], (T)fs_widen(values[k]));
    }
    int64_t i = whole * WIDTH + index;
    for (; i + (WIDTH - 1) * step < length; i += WIDTH * step)
#pragma unroll
        for (int k = 0; k < WIDTH; k++) accumulator[k] = OP::apply(accumulator[k], (T)fs_widen(in[i + k * step]));
    for (; i < length; i += step) accumulator[0] = OP::apply(accumulator[0], (T)fs_widen(in[i]));
#pragma unroll
    for (int distance = WIDTH / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int k = 0; k < distance; k++) accumulator[k] = OP::apply(accumulator[k], accumulator[k + distance]);
    return accumulator[0];
}

template <class OUT, class T> FS_DEVICE void put(const arguments &args, int64_t at, T value)
{
    if (args.divisor != 1) value /= (T)args.divisor;
    if (args.partial) ((T *)args.out)[at] = value;
    else fs_narrow(value, &((OUT *)args.out)[at]);
}

/* S: the input's type, which is the accumulator's from the second pass on. */
template <class OP, class OUT, class S>
static __global__ void __launch_bounds__(THREADS) long_kernel(const __grid_constant__ arguments args)
{
    typedef typename fs_compute<OUT>::type T;
    __shared__ T shared[FS_WARP];
    int64_t row = blockIdx.x / args.pieces, piece = blockIdx.x - row * args.pieces;
    int64_t left = args.length - piece * PIECE;
    const S *in = (const S *)args.in + row * args.length + piece * PIECE;

    T value = reduce_share<OP, T>(in, left < PIECE ? left : PIECE, (int)threadIdx.x, THREADS, args.vectors);
    value = fs_reduce_block<OP>(value, shared);
    if (threadIdx.x == 0) put<OUT>(args, (int64_t)blockIdx.x, value);
}

template <class OP, class OUT, class S>
static __global__ void __launch_bounds__(THREADS) short_kernel(const __grid_constant__ arguments args)
{
    typedef typename fs_compute<OUT>::type T;
    int per_block = THREADS / args.width, index = (int)threadIdx.x % args.width;
    int64_t row = (int64_t)blockIdx.x * per_block + threadIdx.x / args.width;
    T value = OP::template identity<T>();

    if (row < args.rows)
        value =
            reduce_share<OP, T>((const S *)args.in + row * args.length, args.length, index, args.width, args.vectors);
    value = fs_reduce_lanes<OP>(value, args.width); /* all lanes take part */
    if (row < args.rows && index == 0) put<OUT>(args, row, value);
}

typedef struct {
    const void *first_long, *first_short, *next_long, *next_short; /* pass */
} kernels;

#define KERNELS(OP, OUT, T)                                                             \
    {(const void *)long_kernel<OP, OUT, OUT>, (const void *)short_kernel<OP, OUT, OUT>, \
     (const void *)long_kernel<OP, OUT, T>, (const void *)short_kernel<OP, OUT, T>}
#define BY_DTYPE(OP)                                                                         \
    {KERNELS(OP, double, double), KERNELS(OP, float, float), KERNELS(OP, fs_float16, float), \
     KERNELS(OP, fs_bfloat16, float)}
static const kernels table[FS_REDUCTION_COUNT][4] = {BY_DTYPE(fs_add), BY_DTYPE(fs_add), BY_DTYPE(fs_larger),
                                                     BY_DTYPE(fs_smaller)};

static const size_t sizes[4] = {8, 4, 2, 2};

/* The number of lanes, a power of two, that a short row uses. */
static int width_of(int64_t length, size_t size)
{
    int64_t vectors = length * (int64_t)size / 16;
    int width = 1;
    while (width < FS_WARP && width < vectors) width *= 2;
    return width;
}

/* One pass: rows × length to rows × pieces. */
static fs_status pass(fs_device device, const kernels *choice, bool first, arguments *args, size_t size, fs_error *err)
{
    const char *doing = "launching a reduction";
    args->vectors = fs_is_aligned(args->in, 16) && (args->rows == 1 || args->length * (int64_t)size % 16 == 0);
    if (args->length <= SHORT_ROW && args->rows > 1) {
        args->width = width_of(args->length, size);
        return fs_cuda_launch(device, first ? choice->first_short : choice->next_short,
                              fs_ceil_div(args->rows, THREADS / args->width), THREADS, args, doing, err);
    }
    return fs_cuda_launch(device, first ? choice->first_long : choice->next_long, args->rows * args->pieces, THREADS,
                          args, doing, err);
}

extern "C" fs_status fs_cuda_reduce(fs_device device, fs_reduction_id op, const fs_reduction *reduction, fs_error *err)
{
    const kernels *choice = &table[op][reduction->dtype];
    size_t size = sizes[reduction->dtype], accumulator = size == 8 ? 8 : 4;
    double divisor = op == FS_MEAN ? (double)reduction->length : 1;
    arguments args = {};
    void *spaces[2] = {NULL, NULL};
    size_t space_sizes[2] = {0, 0};
    fs_status status = FS_OK;
    bool first = true;

    args.in = reduction->in;
    args.rows = reduction->rows;
    args.length = reduction->length;
    for (int turn = 0; status == FS_OK; turn = !turn) {
        args.pieces = fs_ceil_div(args.length, PIECE);
        args.partial = args.pieces > 1;
        args.divisor = args.partial ? 1 : divisor;
        args.out = reduction->out;
        if (args.partial && !spaces[turn]) {
            space_sizes[turn] = (size_t)(args.rows * args.pieces) * accumulator;
            FS_TRY_GOTO(status, fs_cuda_allocate(device, space_sizes[turn], &spaces[turn], err), done);
        }
        if (args.partial) args.out = spaces[turn];
        FS_TRY_GOTO(status, pass(device, choice, first, &args, first ? size : accumulator, err), done);
        if (!args.partial) break;
        first = false;
        args.in = args.out;
        args.length = args.pieces;
    }
done:
    for (int i = 0; i < 2; i++)
        if (spaces[i]) fs_cuda_release(device, spaces[i], space_sizes[i]);
    return status;
}

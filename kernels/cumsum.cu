/* Cumulative sums of rows.
 *
 *   FLOPS 1 per element    BYTES 2 sizeof(S) per element    bound by memory
 *
 *   short rows      1 to 32 lanes each, a vector per lane
 *   longer rows     a warp or a block each: tile after tile, with the sum of those before
 *   few, long rows  a block for each tile: the tiles' sums, the sums of these, then the results, so that memory is read
 *                   twice (passes in which blocks wait for those before them took longer on an H200, also when each
 *                   kept tiles in shared memory and told their sums ahead: 238 and 246 µs instead of 234 for 2^26)
 *
 * In the others memory is read once. All orders depend only on the shape, so that equal calls have equal results.
 */
#include "kernels/context.h"

#include "kernels/block.cuh"

enum {
    THREADS = 256,
    VECTORS = 4,       /* of 16 bytes (or elements, where vectors do not fit) per thread; × warps = a warp's lanes */
    WARP_BYTES = 4096, /* rows of at most so many bytes have a warp each */
    RESIDENT = 1024    /* threads per multiprocessor that fill it */
};

typedef struct {
    const void *in;
    void *out;
    int64_t rows, length;
    int lanes;     /* per row, of short rows */
    int64_t tiles; /* per row, of few, long rows */
    void *sums;    /* by row and tile, of each tile or of all up to it */
} arguments;

/* A thread's elements of a tile: V runs of W, a team of TEAM threads apart. */
template <class S, int TEAM, int W, int V> struct tile_of {
    typedef typename fs_compute<S>::type T;
    static constexpr int LENGTH = TEAM * V * W;

    static FS_INLINE void load(const S *in, int64_t left, int index, S (&raw)[V][W])
    {
#pragma unroll
        for (int u = 0; u < V; u++) {
#pragma unroll
            for (int j = 0; j < W; j++) raw[u][j] = S(0.0f);
            if ((u * TEAM + index) * W < left) fs_load<S, W>(raw[u], in + (u * TEAM + index) * W);
        }
    }

    static FS_INLINE void store(S *out, int64_t left, int index, T before, const T (&x)[V][W])
    {
#pragma unroll
        for (int u = 0; u < V; u++) {
            alignas(16) S raw[W];
            T y[W];
#pragma unroll
            for (int j = 0; j < W; j++) y[j] = x[u][j] + before;
            fs_narrow_run<W>(y, raw);
            if ((u * TEAM + index) * W < left) fs_store<S, W>(out + (u * TEAM + index) * W, raw);
        }
    }

    /* x: the sums within the tile up to each element. Returns the tile's sum. `shared` has room for a warp's lanes. */
    static FS_INLINE T scan(const S (&raw)[V][W], T (&x)[V][W], T *shared)
    {
        constexpr int WARPS = TEAM / FS_WARP;
        int lane = threadIdx.x % FS_WARP, warp = TEAM == FS_WARP ? 0 : threadIdx.x / FS_WARP;
        T before[V], sum[V]; /* of the run's earlier lanes, and of its warp */

#pragma unroll
        for (int u = 0; u < V; u++) {
            fs_widen_run<W>(raw[u], x[u]);
#pragma unroll
            for (int j = 1; j < W; j++) x[u][j] += x[u][j - 1];
            T inclusive = sum_to_lane(x[u][W - 1], lane);
            before[u] = __shfl_up_sync(0xFFFFFFFFu, inclusive, 1);
            if (lane == 0) before[u] = 0;
            sum[u] = __shfl_sync(0xFFFFFFFFu, inclusive, FS_WARP - 1);
            if (WARPS > 1 && lane == 0) shared[u * WARPS + warp] = sum[u];
        }
        T runs = 0; /* of the runs before, of all warps */
        if (WARPS > 1) {
            __syncthreads();
            runs = sum_to_lane(lane < V * WARPS ? shared[lane] : T(0), lane);
        }
        T earlier = 0;
#pragma unroll
        for (int u = 0; u < V; u++) {
            if (WARPS > 1) {
                int number = u * WARPS + warp;
                T until = __shfl_sync(0xFFFFFFFFu, runs, number > 0 ? number - 1 : 0);
                earlier = number > 0 ? until : T(0);
            }
#pragma unroll
            for (int j = 0; j < W; j++) x[u][j] += earlier + before[u];
            if (WARPS == 1) earlier += sum[u];
        }
        return WARPS > 1 ? __shfl_sync(0xFFFFFFFFu, runs, V * WARPS - 1) : earlier;
    }

    static FS_INLINE T sum_to_lane(T value, int lane)
    {
#pragma unroll
        for (int distance = 1; distance < FS_WARP; distance *= 2) {
            T other = __shfl_up_sync(0xFFFFFFFFu, value, distance);
            if (lane >= distance) value += other;
        }
        return value;
    }
};

/* A row for each team. The next tile is on its way while one is summed. */
template <class S, int TEAM, int W>
static __global__ void __launch_bounds__(THREADS) rows_kernel(const __grid_constant__ arguments args)
{
    typedef tile_of<S, TEAM, W, VECTORS> tile;
    typedef typename tile::T T;
    __shared__ T shared[2][FS_WARP];
    int index = (int)threadIdx.x % TEAM;
    int64_t row = (int64_t)blockIdx.x * (THREADS / TEAM) + threadIdx.x / TEAM;
    if (row >= args.rows) return;
    const S *in = (const S *)args.in + row * args.length;
    S *out = (S *)args.out + row * args.length;
    alignas(16) S raw[VECTORS][W], next[VECTORS][W];
    T before = 0, x[VECTORS][W];
    int turn = 0;

    tile::load(in, args.length, index, raw);
    for (int64_t at = 0; at < args.length; at += tile::LENGTH, turn = !turn) {
        if (at + tile::LENGTH < args.length)
            tile::load(in + at + tile::LENGTH, args.length - at - tile::LENGTH, index, next);
        T sum = tile::scan(raw, x, shared[turn]);
        tile::store(out + at, args.length - at, index, before, x);
        before += sum;
#pragma unroll
        for (int u = 0; u < VECTORS; u++)
#pragma unroll
            for (int j = 0; j < W; j++) raw[u][j] = next[u][j];
    }
}

/* A row of at most a vector per lane for each group of lanes. */
template <class S, int W>
static __global__ void __launch_bounds__(THREADS) lanes_kernel(const __grid_constant__ arguments args)
{
    typedef tile_of<S, FS_WARP, W, 1> tile;
    typedef typename tile::T T;
    int lane = (int)threadIdx.x % args.lanes;
    int64_t row = (int64_t)blockIdx.x * (THREADS / args.lanes) + threadIdx.x / args.lanes;
    int64_t length = row < args.rows ? args.length : 0, at = row * args.length;
    alignas(16) S raw[1][W];
    T x[1][W];

    tile::load((const S *)args.in + at, length, lane, raw);
    fs_widen_run<W>(raw[0], x[0]);
#pragma unroll
    for (int j = 1; j < W; j++) x[0][j] += x[0][j - 1];
    T inclusive = x[0][W - 1];
    for (int distance = 1; distance < args.lanes; distance *= 2) {
        T other = __shfl_up_sync(0xFFFFFFFFu, inclusive, distance);
        if (lane >= distance) inclusive += other;
    }
    T before = __shfl_up_sync(0xFFFFFFFFu, inclusive, 1);
    tile::store((S *)args.out + at, length, lane, lane == 0 ? T(0) : before, x);
}

/* The sum of each tile. */
template <class S, int W>
static __global__ void __launch_bounds__(THREADS) sums_kernel(const __grid_constant__ arguments args)
{
    typedef tile_of<S, THREADS, W, VECTORS> tile;
    typedef typename tile::T T;
    __shared__ T shared[FS_WARP];
    int64_t row = blockIdx.x / args.tiles, begin = (blockIdx.x - row * args.tiles) * tile::LENGTH;
    alignas(16) S raw[VECTORS][W];
    T x[W], sum = 0;

    tile::load((const S *)args.in + row * args.length + begin, args.length - begin, (int)threadIdx.x, raw);
#pragma unroll
    for (int u = 0; u < VECTORS; u++) {
        fs_widen_run<W>(raw[u], x);
#pragma unroll
        for (int j = 0; j < W; j++) sum += x[j];
    }
    sum = fs_reduce_block<fs_add>(sum, shared);
    if (threadIdx.x == 0) ((T *)args.sums)[blockIdx.x] = sum;
}

/* Tiles, with the sums up to each of them in `sums`. */
template <class S, int W>
static __global__ void __launch_bounds__(THREADS) tiles_kernel(const __grid_constant__ arguments args)
{
    typedef tile_of<S, THREADS, W, VECTORS> tile;
    typedef typename tile::T T;
    __shared__ T shared[FS_WARP];
    int64_t row = blockIdx.x / args.tiles, at = blockIdx.x - row * args.tiles, begin = at * tile::LENGTH;
    alignas(16) S raw[VECTORS][W];
    T x[VECTORS][W], before = at ? ((const T *)args.sums)[(int64_t)blockIdx.x - 1] : T(0);

    tile::load((const S *)args.in + row * args.length + begin, args.length - begin, (int)threadIdx.x, raw);
    tile::scan(raw, x, shared);
    tile::store((S *)args.out + row * args.length + begin, args.length - begin, (int)threadIdx.x, before, x);
}

typedef struct {
    const void *lanes, *warp, *block, *sums, *tiles;
    int length; /* of a block's tile */
} kernels;

#define KERNELS(S, W)                                                                    \
    {(const void *)lanes_kernel<S, W>,         (const void *)rows_kernel<S, FS_WARP, W>, \
     (const void *)rows_kernel<S, THREADS, W>, (const void *)sums_kernel<S, W>,          \
     (const void *)tiles_kernel<S, W>,         tile_of<S, THREADS, W, VECTORS>::LENGTH}
#define BY_VECTORS(S) {KERNELS(S, 1), KERNELS(S, 16 / sizeof(S))}
static const kernels table[4][2] = {BY_VECTORS(double), BY_VECTORS(float), BY_VECTORS(fs_float16),
                                    BY_VECTORS(fs_bfloat16)};
static const int sizes[4] = {8, 4, 2, 2};

static fs_status launch_tiles(fs_device device, const kernels *choice, arguments *args, bool is_double, fs_error *err)
{
    const char *doing = "launching a cumulative sum";
    int64_t tiles = args->rows * args->tiles;
    size_t nbytes = (size_t)tiles * (is_double ? 8 : 4);
    arguments sums = {};
    void *space[2] = {NULL, NULL};
    fs_status status;

    for (int i = 0; i < 2; i++) FS_TRY_GOTO(status, fs_cuda_allocate(device, nbytes, &space[i], err), done);
    args->sums = space[0];
    sums.in = space[0];
    sums.out = space[1];
    sums.rows = args->rows;
    sums.length = args->tiles;
    FS_TRY_GOTO(status, fs_cuda_launch(device, choice->sums, tiles, THREADS, args, doing, err), done);
    FS_TRY_GOTO(status,
                fs_cuda_launch(device, table[is_double ? FS_FLOAT64 : FS_FLOAT32][0].block, args->rows, THREADS, &sums,
                               doing, err),
                done);
    args->sums = space[1];
    status = fs_cuda_launch(device, choice->tiles, tiles, THREADS, args, doing, err);
done:
    for (int i = 0; i < 2; i++)
        if (space[i]) fs_cuda_release(device, space[i], nbytes);
    return status;
}

extern "C" fs_status fs_cuda_cumsum(fs_device device, const fs_cumsum *scan, fs_error *err)
{
    const char *doing = "launching a cumulative sum";
    int size = sizes[scan->dtype], sms;
    arguments args = {};

    FS_CUDA_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device.index), device,
                "asking for the number of multiprocessors", err);
    args.in = scan->in;
    args.out = scan->out;
    args.rows = scan->rows;
    args.length = scan->length;
    bool vectors = args.length * size % 16 == 0 && fs_is_aligned(args.in, 16) && fs_is_aligned(args.out, 16);
    const kernels *choice = &table[scan->dtype][vectors];
    int64_t runs = vectors ? args.length * size / 16 : args.length;
    if (runs <= FS_WARP) {
        for (args.lanes = 1; args.lanes < runs;) args.lanes *= 2;
        return fs_cuda_launch(device, choice->lanes, fs_ceil_div(args.rows, THREADS / args.lanes), THREADS, &args,
                              doing, err);
    }
    if (args.length * size <= WARP_BYTES)
        return fs_cuda_launch(device, choice->warp, fs_ceil_div(args.rows, THREADS / FS_WARP), THREADS, &args, doing,
                              err);
    args.tiles = fs_ceil_div(args.length, choice->length);
    if (args.tiles == 1 || args.rows * THREADS >= (int64_t)sms * RESIDENT)
        return fs_cuda_launch(device, choice->block, args.rows, THREADS, &args, doing, err);
    return launch_tiles(device, choice, &args, size == 8, err);
}

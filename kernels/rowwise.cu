/* Softmax, log_softmax, layer_norm and rms_norm over rows.
 *
 *   FLOPS 5, 5, 5 to 7, 3 to 4 per element    BYTES 2 sizeof(S) per element    bound by memory
 *
 *   short rows    1 to 32 lanes each
 *   longer rows   a block each
 *   long rows     a cluster of up to 8 blocks each (compute capability 9.0); in all three, the row stays in registers
 *                 and memory is read once
 *   longest rows  pieces: the state of each piece, then the factors of each row, then the results
 */
#include <cooperative_groups.h>

#include "kernels/context.h"

#include "kernels/rowwise.cuh"
#include "kernels/stream.cuh"

enum {
    LANES_THREADS = 128,
    BLOCK_THREADS = 512,
    SHORT_VECTORS = 4, /* per thread: with half the vectors, twice as many blocks are resident */
    LONG_VECTORS = 8,
    MOST_BLOCKS = 8 /* of a cluster: more are not portable */
};
enum { LANES, BLOCK, CLUSTER, PIECE }; /* the team that shares a row, or a piece of it */
enum { STATES, RESULTS };              /* the task of a piece */

typedef struct {
    const void *in;
    void *out;
    const void *weight, *bias;
    void *states, *factors;              /* by row and piece; by row */
    int64_t rows, length, pieces, piece; /* pieces of a row, by as many blocks */
    double eps;
    int task, lanes;
} arguments;

/* From a thread's state to the row's. A block's state in `slot` is read by its cluster. */
template <class OP, int TEAM>
FS_DEVICE typename OP::state merge_team(typename OP::state state, int lanes, typename OP::state *shared,
                                        typename OP::state *slot)
{
    if (TEAM == LANES) return OP::merge_lanes(state, lanes);
    state = fs_merge_block<OP>(state, shared);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (TEAM == CLUSTER) {
        cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
        if (threadIdx.x == 0) *slot = state;
        cluster.sync();
        state = OP::start();
        for (unsigned i = 0; i < cluster.num_blocks(); i++) OP::merge(state, *cluster.map_shared_rank(slot, i));
        cluster.barrier_arrive(); /* slots live until all have read them: waited for at the end */
    }
#endif
    return state;
}

FS_DEVICE void end_team(bool is_cluster)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (is_cluster) cooperative_groups::this_cluster().barrier_wait();
#endif
}

/* The numbers of a vector's columns. Unless it is whole and lies at a multiple of 16 bytes, element by element. */
template <int W, bool ALIGNED, class SHARE, class S, class T>
FS_DEVICE void read_columns(const S *from, const SHARE &own, int v, T (&to)[W])
{
    alignas(16) S raw[W];
    from += own.place(v);
    if (ALIGNED || (own.is_whole(v) && ((uintptr_t)from & 15) == 0)) {
        fs_load<S, W>(raw, from);
    } else {
#pragma unroll
        for (int j = 0; j < W; j++)
            if (own.has(v, j)) raw[j] = from[j];
    }
    fs_widen_run<W>(raw, to);
}

/* Shift and scale elements, multiply them by their column's weight, add its bias and store them, a vector at a time. */
template <class OP, class S, int V, bool ALIGNED, class T>
FS_DEVICE void finish(const arguments &args, const fs_share<S, V, ALIGNED> &own, int64_t begin, fs_factors<T> factors,
                      S *to)
{
    constexpr int W = 16 / sizeof(S);
    const S *weights = (const S *)args.weight + begin, *biases = (const S *)args.bias + begin;

#pragma unroll
    for (int v = 0; v < V; v++) {
        if (!own.has(v)) continue;
        int place = own.place(v);
        alignas(16) S raw[W];
        T y[W], column[W];
        fs_widen_run<W>(own.raw[v], y);
#pragma unroll
        for (int j = 0; j < W; j++) y[j] = OP::shifted(y[j], factors.shift) * factors.multiplier + factors.addend;
        if (args.weight) {
            read_columns<W, ALIGNED>(weights, own, v, column);
#pragma unroll
            for (int j = 0; j < W; j++) y[j] *= column[j];
        }
        if (args.bias) {
            read_columns<W, ALIGNED>(biases, own, v, column);
#pragma unroll
            for (int j = 0; j < W; j++) y[j] += column[j];
        }
        fs_narrow_run<W>(y, raw);
        if (ALIGNED || (own.is_whole(v) && ((uintptr_t)(to + place) & 15) == 0)) {
            fs_store<S, W>(to + place, raw);
        } else {
#pragma unroll
            for (int j = 0; j < W; j++)
                if (own.has(v, j)) to[place + j] = raw[j];
        }
    }
}

template <class OP, class S, int V, int TEAM, bool ALIGNED>
static __global__ void __launch_bounds__(TEAM == LANES ? LANES_THREADS : BLOCK_THREADS, sizeof(S) == 8 ? 1 : 2)
    row_kernel(const __grid_constant__ arguments args)
{
    typedef typename fs_compute<S>::type T;
    typedef typename OP::state state;
    __shared__ state shared[FS_WARP], slot;
    constexpr bool PARTS = TEAM == CLUSTER || TEAM == PIECE;
    int64_t number = TEAM == LANES ? ((int64_t)blockIdx.x * LANES_THREADS + threadIdx.x) / args.lanes : blockIdx.x;
    int64_t row = PARTS ? number / args.pieces : number, begin = PARTS ? (number - row * args.pieces) * args.piece : 0;
    int64_t left = args.length - begin, length = left < args.piece ? left : args.piece;
    if (TEAM == LANES && row >= args.rows) length = 0, row = 0; /* all lanes take part in merging */
    const S *in = (const S *)args.in + row * args.length + begin;

    fs_share<S, V, ALIGNED> own;
    own.length = (int)(length > 0 ? length : 0); /* a cluster's last blocks may have none */
    own.index = (int)(TEAM == LANES ? threadIdx.x % args.lanes : threadIdx.x);
    own.team = (int)(TEAM == LANES ? args.lanes : blockDim.x);
    own.skew = (int)((uintptr_t)in % 16 / sizeof(S));
    own.load(in);
    fs_factors<T> factors;
    if (TEAM == PIECE && args.task == RESULTS) {
        factors = ((const fs_factors<T> *)args.factors)[row];
    } else {
        state whole = merge_team<OP, TEAM>(OP::of(own), args.lanes, shared, &slot);
        if (TEAM == PIECE) {
            if (threadIdx.x == 0) ((state *)args.states)[number] = whole;
            return;
        }
        factors = OP::factors(whole, args.length, (T)args.eps);
    }
    finish<OP>(args, own, begin, factors, (S *)args.out + row * args.length + begin);
    end_team(TEAM == CLUSTER);
}

/* The same by a cluster for one row after the other, or by a block alone if a row is one piece. While a row is in
 * registers, the next one is copied to shared memory. Rows are whole, aligned vectors. */
template <class OP, class S, int V>
static __global__ void __launch_bounds__(BLOCK_THREADS, sizeof(S) == 8 ? 1 : 2)
    stream_kernel(const __grid_constant__ arguments args)
{
#ifdef FS_HAS_STREAM
    typedef typename fs_compute<S>::type T;
    typedef typename OP::state state;
    extern __shared__ __align__(128) unsigned char staged[];
    __shared__ state shared[FS_WARP], slot;
    __shared__ uint64_t arrived;
    int teams = (int)(gridDim.x / args.pieces), team = (int)(blockIdx.x / args.pieces);
    int64_t begin = blockIdx.x % args.pieces * args.piece, left = args.length - begin;
    int length = (int)(left < args.piece ? left > 0 ? left : 0 : args.piece);
    const S *in = (const S *)args.in + begin;
    uint32_t bytes = length * (uint32_t)sizeof(S);
    bool copies = threadIdx.x == 0 && bytes > 0;

    if (threadIdx.x == 0) fs_barrier_init(&arrived);
    __syncthreads();
    if (copies) fs_bulk_load(staged, in + team * args.length, bytes, &arrived);
    uint32_t phase = 0;
    for (int64_t row = team; row < args.rows; row += teams, phase ^= 1) {
        fs_share<S, V, true> own;
        own.length = length;
        own.index = (int)threadIdx.x;
        own.team = (int)blockDim.x;
        own.skew = 0;
        if (bytes > 0) fs_barrier_wait(&arrived, phase);
        own.load((const S *)staged);
        __syncthreads();
        if (copies && row + teams < args.rows) fs_bulk_load(staged, in + (row + teams) * args.length, bytes, &arrived);
        state whole = args.pieces == 1 ? merge_team<OP, BLOCK>(OP::of(own), 0, shared, &slot)
                                       : merge_team<OP, CLUSTER>(OP::of(own), 0, shared, &slot);
        fs_factors<T> factors = OP::factors(whole, args.length, (T)args.eps);
        finish<OP>(args, own, begin, factors, (S *)args.out + row * args.length + begin);
        end_team(args.pieces > 1);
    }
#else
    (void)args;
#endif
}

/* One block per row: from its pieces' states to its factors. */
template <class OP, class S>
static __global__ void __launch_bounds__(BLOCK_THREADS) combine_kernel(const __grid_constant__ arguments args)
{
    typedef typename fs_compute<S>::type T;
    typedef typename OP::state state;
    __shared__ state shared[FS_WARP];
    const state *states = (const state *)args.states + blockIdx.x * args.pieces;
    state whole = OP::start();

    for (int64_t i = threadIdx.x; i < args.pieces; i += blockDim.x) OP::merge(whole, states[i]);
    whole = fs_merge_block<OP>(whole, shared);
    if (threadIdx.x == 0) ((fs_factors<T> *)args.factors)[blockIdx.x] = OP::factors(whole, args.length, (T)args.eps);
}

typedef struct {
    const void *lanes, *block, *cluster, *piece;
} row_kernels;

typedef struct {
    row_kernels rows[2];    /* [whether all rows are whole, aligned vectors] */
    const void *long_block; /* for rows that begin anywhere; also faster than one for aligned rows, on an H200 */
    const void *stream, *combine;
    size_t state, factors;
} kernels;

#define ROWS(OP, S, ALIGNED)                                             \
    {(const void *)row_kernel<OP<S>, S, SHORT_VECTORS, LANES, ALIGNED>,  \
     (const void *)row_kernel<OP<S>, S, SHORT_VECTORS, BLOCK, ALIGNED>,  \
     (const void *)row_kernel<OP<S>, S, LONG_VECTORS, CLUSTER, ALIGNED>, \
     (const void *)row_kernel<OP<S>, S, SHORT_VECTORS, PIECE, ALIGNED>}
#define KERNELS(OP, S)                                               \
    {{ROWS(OP, S, false), ROWS(OP, S, true)},                        \
     (const void *)row_kernel<OP<S>, S, LONG_VECTORS, BLOCK, false>, \
     (const void *)stream_kernel<OP<S>, S, LONG_VECTORS>,            \
     (const void *)combine_kernel<OP<S>, S>,                         \
     sizeof(OP<S>::state),                                           \
     sizeof(fs_factors<fs_compute<S>::type>)}
#define BY_DTYPE(OP) {KERNELS(OP, double), KERNELS(OP, float), KERNELS(OP, fs_float16), KERNELS(OP, fs_bfloat16)}
static const kernels table[FS_ROWWISE_COUNT][4] = {BY_DTYPE(softmax), BY_DTYPE(log_softmax), BY_DTYPE(layer_norm),
                                                   BY_DTYPE(rms_norm)};

static const char *const doing[FS_ROWWISE_COUNT] = {"launching softmax", "launching log_softmax",
                                                    "launching layer_norm", "launching rms_norm"};
static const int sizes[4] = {8, 4, 2, 2};

/* Rows too long for the registers of the largest team. */
static fs_status launch_pieces(fs_device device, const kernels *choice, const void *kernel, arguments *args,
                               int64_t most, const char *what, fs_error *err)
{
    fs_status status;

    args->piece = most / 16 * 16; /* aligned as the row is */
    args->pieces = fs_ceil_div(args->length, args->piece);
    size_t states = (size_t)(args->rows * args->pieces) * choice->state, factors = (size_t)args->rows * choice->factors;
    FS_TRY_GOTO(status, fs_cuda_allocate(device, states, &args->states, err), done);
    FS_TRY_GOTO(status, fs_cuda_allocate(device, factors, &args->factors, err), done);

    args->task = STATES;
    FS_TRY_GOTO(status, fs_cuda_launch(device, kernel, args->rows * args->pieces, BLOCK_THREADS, args, what, err),
                done);
    FS_TRY_GOTO(status, fs_cuda_launch(device, choice->combine, args->rows, BLOCK_THREADS, args, what, err), done);
    args->task = RESULTS;
    status = fs_cuda_launch(device, kernel, args->rows * args->pieces, BLOCK_THREADS, args, what, err);
done:
    fs_cuda_release(device, args->factors, factors);
    fs_cuda_release(device, args->states, states);
    return status;
}

/* Whether the code that runs on this device was compiled for clusters. */
static bool has_clusters(const void *kernel)
{
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess) return attributes.ptxVersion >= 90;
    cudaGetLastError();
    return false;
}

/* Divide rows among the blocks of a cluster, of at most `most` elements each; false if there are too few blocks. */
static bool divide(arguments *args, int64_t most)
{
    for (args->pieces = 2; args->pieces <= MOST_BLOCKS; args->pieces *= 2) {
        args->piece = fs_ceil_div(fs_ceil_div(args->length, args->pieces), 16) * 16; /* aligned as the row is */
        if (args->piece <= most) return true;
    }
    return false;
}

static unsigned threads_of(int64_t length, int64_t share)
{
    return (unsigned)(fs_ceil_div(fs_ceil_div(length, share), FS_WARP) * FS_WARP);
}

/* Launch clusters of args->pieces blocks: one for each row or, with `staged` bytes of shared memory for the row after
 * it, as many as there is room for at once. */
static fs_status launch_clusters(fs_device device, const void *kernel, arguments *args, unsigned threads, size_t staged,
                                 const char *what, fs_error *err)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    void *parameters[] = {args};
    int64_t clusters = args->rows;
    int resident = 0;
    cudaError_t code = cudaSuccess;

    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = (unsigned)args->pieces;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)(clusters * args->pieces));
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = staged;
    config.stream = fs_cuda_stream(device);
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (staged > 0) {
        code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)staged);
        if (code == cudaSuccess) code = cudaOccupancyMaxActiveClusters(&resident, kernel, &config);
        if (resident > 0 && clusters > resident) clusters = resident;
        config.gridDim = dim3((unsigned)(clusters * args->pieces));
    }
    if (code == cudaSuccess) code = cudaLaunchKernelExC(&config, kernel, parameters);
    return code == cudaSuccess ? FS_OK : fs_cuda_fail(code, device, what, err);
}

extern "C" fs_status fs_cuda_rowwise(fs_device device, fs_rowwise_id op, const fs_rowwise *rowwise, fs_error *err)
{
    int size = sizes[rowwise->dtype], width = 16 / size;
    const char *what = doing[op];
    arguments args = {};

    args.in = rowwise->in;
    args.out = rowwise->out;
    args.weight = rowwise->weight;
    args.bias = rowwise->bias;
    args.rows = rowwise->rows;
    args.length = args.piece = rowwise->length;
    args.pieces = 1;
    args.eps = rowwise->eps;
    bool aligned = args.length * size % 16 == 0 && fs_is_aligned(args.in, 16) && fs_is_aligned(args.out, 16) &&
                   fs_is_aligned(args.weight, 16) && fs_is_aligned(args.bias, 16);
    const kernels *choice = &table[op][rowwise->dtype];
    const row_kernels *rows = &choice->rows[aligned];
    /* A row that begins anywhere may need a vector more, of whose elements all but one are not its own. */
    int64_t extra = aligned ? 0 : width - 1, length = args.length + extra, share = width * SHORT_VECTORS;

    if (length <= FS_WARP * share) {
        for (args.lanes = 1; args.lanes * share < length;) args.lanes *= 2;
        return fs_cuda_launch(device, rows->lanes, fs_ceil_div(args.rows, LANES_THREADS / args.lanes), LANES_THREADS,
                              &args, what, err);
    }
    if (length <= BLOCK_THREADS * share)
        return fs_cuda_launch(device, rows->block, args.rows, threads_of(length, share), &args, what, err);
    int64_t most = width * LONG_VECTORS;
    if (length <= BLOCK_THREADS * most)
        return fs_cuda_launch(device, choice->long_block, args.rows, threads_of(length, most), &args, what, err);
    if (divide(&args, BLOCK_THREADS * most - extra) && has_clusters(rows->cluster)) {
        unsigned threads = threads_of(args.piece + extra, most);
        if (aligned)
            return launch_clusters(device, choice->stream, &args, threads, threads * LONG_VECTORS * 16, what, err);
        return launch_clusters(device, rows->cluster, &args, threads, 0, what, err);
    }
    return launch_pieces(device, choice, rows->piece, &args, BLOCK_THREADS * share - extra, what, err);
}

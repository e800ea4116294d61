/* Copies of raw bits: strided copies by vectors, transposes, fills. FLOPS 0; bound by memory. */
#include <string.h>

#include "kernels/convert.h"
#include "kernels/types.cuh"

static __global__ void __launch_bounds__(FS_TILE_THREADS)
    copy_vectors_kernel(const __grid_constant__ fs_convert_strided args)
{
    uint32_t first = blockIdx.x * (FS_TILE_THREADS * FS_COPY_ITEMS) + threadIdx.x;
    int64_t at[FS_COPY_ITEMS][2];
    uint4 value[FS_COPY_ITEMS];

#pragma unroll
    for (int k = 0; k < FS_COPY_ITEMS; k++)
        if (first + k * FS_TILE_THREADS < args.layout.units) {
            fs_locate(args.layout, first + k * FS_TILE_THREADS, at[k]);
            value[k] = ((const uint4 *)args.in)[at[k][1]];
        }
#pragma unroll
    for (int k = 0; k < FS_COPY_ITEMS; k++)
        if (first + k * FS_TILE_THREADS < args.layout.units) ((uint4 *)args.out)[at[k][0]] = value[k];
}

/* Where a block's tile begins. Neighbouring blocks have neighbouring pieces of out's rows, as scattered writes cost
 * more than scattered reads. */
typedef struct {
    int64_t in, out;   /* in elements */
    int rows, columns; /* of the tile that exist */
} transpose_tile;

FS_DEVICE transpose_tile transpose_tile_of(const fs_transpose &args, int most_columns)
{
    uint32_t matrix = (__umulhi(blockIdx.x, args.tiles.magic) + blockIdx.x) >> args.tiles.shift;
    uint32_t in_matrix = blockIdx.x - matrix * args.tiles.divisor;
    uint32_t column = (__umulhi(in_matrix, args.row_tiles.magic) + in_matrix) >> args.row_tiles.shift;
    int64_t i = (int64_t)(in_matrix - column * args.row_tiles.divisor) * FS_TRANSPOSE_ROWS;
    int64_t j = (int64_t)column * most_columns, at[2];
    transpose_tile tile;

    fs_locate(args.batch, matrix, at);
    tile.in = at[1] + i * args.in_stride + j;
    tile.out = at[0] + j * args.out_stride + i;
    tile.rows = args.rows - i < FS_TRANSPOSE_ROWS ? (int)(args.rows - i) : FS_TRANSPOSE_ROWS;
    tile.columns = args.columns - j < most_columns ? (int)(args.columns - j) : most_columns;
    return tile;
}

/* A block transposes one tile in shared memory: reads run along in's rows and writes along out's. The pitch puts the
 * elements of a column into different banks. */
template <class S>
static __global__ void __launch_bounds__(FS_TRANSPOSE_THREADS)
    transpose_kernel(const __grid_constant__ fs_transpose args)
{
    constexpr int SIDE = FS_TRANSPOSE_ROWS, ROWS = FS_TRANSPOSE_THREADS / SIDE, STEPS = SIDE / ROWS;
    constexpr int PITCH = SIDE + (sizeof(S) < 4 ? 4 / sizeof(S) : 1);
    __shared__ S shared[SIDE][PITCH];
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    transpose_tile tile = transpose_tile_of(args, FS_TRANSPOSE_COLUMNS(sizeof(S), false));
    const S *in = (const S *)args.in + tile.in;
    S *out = (S *)args.out + tile.out;

    S value[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        if (y + k * ROWS < tile.rows && x < tile.columns) value[k] = in[(y + k * ROWS) * args.in_stride + x];
#pragma unroll
    for (int k = 0; k < STEPS; k++) shared[y + k * ROWS][x] = value[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        if (y + k * ROWS < tile.columns && x < tile.rows)
            out[(y + k * ROWS) * args.out_stride + x] = shared[x][y + k * ROWS];
}

template <bool WIDE> struct transpose_word {
    typedef uint32_t type;
};
template <> struct transpose_word<true> {
    typedef uint64_t type;
};

/* out[m] = element m of each word in turn: the transpose of words × elements of a word. */
FS_DEVICE void split_words(const uint64_t (&w)[2], uint4 (&out)[1])
{
    out[0] = make_uint4((uint32_t)w[0], (uint32_t)(w[0] >> 32), (uint32_t)w[1], (uint32_t)(w[1] >> 32));
}
FS_DEVICE void split_words(const uint32_t (&w)[4], uint4 (&out)[1])
{
    out[0] = make_uint4(w[0], w[1], w[2], w[3]);
}
FS_DEVICE void split_words(const uint32_t (&w)[8], uint4 (&out)[2])
{
#define PAIRS(which)                                                                                           \
    make_uint4(__byte_perm(w[0], w[1], which), __byte_perm(w[2], w[3], which), __byte_perm(w[4], w[5], which), \
               __byte_perm(w[6], w[7], which))
    out[0] = PAIRS(0x5410);
    out[1] = PAIRS(0x7632);
#undef PAIRS
}
FS_DEVICE void split_words(const uint32_t (&w)[16], uint4 (&out)[4])
{
    uint32_t pairs[2][8], fours[4][4];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        pairs[0][e] = __byte_perm(w[2 * e], w[2 * e + 1], 0x5140);
        pairs[1][e] = __byte_perm(w[2 * e], w[2 * e + 1], 0x7362);
    }
#pragma unroll
    for (int m = 0; m < 4; m++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            fours[m][e] = __byte_perm(pairs[m / 2][2 * e], pairs[m / 2][2 * e + 1], m % 2 ? 0x7632 : 0x5410);
        out[m] = make_uint4(fours[m][0], fours[m][1], fours[m][2], fours[m][3]);
    }
}

/* The same by vectors of 16 bytes on both sides. A thread reads a word from each of a vector's WIDTH rows and writes
 * the vectors of the word's columns. Chunk c of row r lies in place c ^ (r / WIDTH % 8), so that a warp's accesses fall
 * into different banks both ways. */
template <class S>
static __global__ void __launch_bounds__(FS_TRANSPOSE_THREADS)
    transpose_vectors_kernel(const __grid_constant__ fs_transpose args)
{
    typedef typename transpose_word<(sizeof(S) > 4)>::type word;
    constexpr int WIDTH = FS_VECTOR_BYTES / sizeof(S), COLUMNS = FS_TRANSPOSE_COLUMNS(sizeof(S), true);
    constexpr int CHUNKS = COLUMNS / WIDTH, RUNS = FS_TRANSPOSE_ROWS / WIDTH; /* vectors of in's and of out's rows */
    constexpr int PER_WORD = sizeof(word) / sizeof(S), PER_CHUNK = WIDTH / PER_WORD;
    constexpr int READS = FS_TRANSPOSE_ROWS * CHUNKS / FS_TRANSPOSE_THREADS;
    constexpr int WRITERS = RUNS * (COLUMNS / PER_WORD);
    __shared__ uint4 shared[FS_TRANSPOSE_ROWS * CHUNKS];
    transpose_tile tile = transpose_tile_of(args, COLUMNS);
    const S *in = (const S *)args.in + tile.in;
    uint4 value[READS];

#pragma unroll
    for (int k = 0; k < READS; k++) {
        int i = k * FS_TRANSPOSE_THREADS + (int)threadIdx.x, r = i / CHUNKS, c = i % CHUNKS;
        if (r < tile.rows && c * WIDTH < tile.columns) value[k] = *(const uint4 *)(in + r * args.in_stride + c * WIDTH);
    }
#pragma unroll
    for (int k = 0; k < READS; k++) {
        int i = k * FS_TRANSPOSE_THREADS + (int)threadIdx.x, r = i / CHUNKS, c = i % CHUNKS;
        shared[r * CHUNKS + (c ^ (r / WIDTH % 8))] = value[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < WRITERS; k += FS_TRANSPOSE_THREADS) {
        /* Neighbouring lanes: 8 runs of rows (or all, if fewer) × 4 words. */
        constexpr int NEAR = RUNS < 8 ? RUNS : 8;
        constexpr int PARTS = RUNS / NEAR; /* of a row of out's, by neighbouring warps */
        int i = k + (int)threadIdx.x, group = i / (NEAR * 4);
        int w = i / NEAR % 4 + group / PARTS * 4, run = i % NEAR + group % PARTS * NEAR;
        if (i >= WRITERS || run * WIDTH >= tile.rows || w * PER_WORD >= tile.columns) continue;
        word words_of[WIDTH];
        uint4 out[PER_WORD];
#pragma unroll
        for (int e = 0; e < WIDTH; e++) {
            int r = run * WIDTH + e;
            words_of[e] = ((const word *)&shared[r * CHUNKS + (w / PER_CHUNK ^ (r / WIDTH % 8))])[w % PER_CHUNK];
        }
        split_words(words_of, out);
        S *to = (S *)args.out + tile.out + w * PER_WORD * args.out_stride + run * WIDTH;
#pragma unroll
        for (int m = 0; m < PER_WORD; m++)
            __stwb((uint4 *)(to + m * args.out_stride), out[m]); /* else split in words */
    }
}

/* Whole vectors in the middle. The first block writes the bytes before them and the last the bytes after. */
static __global__ void __launch_bounds__(FS_TILE_THREADS) fill_dense_kernel(const __grid_constant__ fs_fill_dense args)
{
    uint4 value = {args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3]};
    int64_t vectors = (args.nbytes - args.head) / FS_VECTOR_BYTES;
    int64_t first = (int64_t)blockIdx.x * (FS_TILE_THREADS * FS_COPY_ITEMS) + threadIdx.x;
    uint4 *middle = (uint4 *)(args.out + args.head);

#pragma unroll
    for (int k = 0; k < FS_COPY_ITEMS; k++)
        if (first + k * FS_TILE_THREADS < vectors) middle[first + k * FS_TILE_THREADS] = value;

    int64_t tail = args.head + vectors * FS_VECTOR_BYTES;
    int lane = (int)threadIdx.x;
    unsigned char byte = (unsigned char)(args.pattern[lane % FS_VECTOR_BYTES / 4] >> 8 * (lane % 4));
    if (blockIdx.x == 0 && lane < args.head) args.out[lane] = (char)byte;
    if (blockIdx.x == gridDim.x - 1 && lane < args.nbytes - tail) args.out[tail + lane] = (char)byte;
}

template <class S>
static __global__ void __launch_bounds__(FS_TILE_THREADS)
    fill_strided_kernel(const __grid_constant__ fs_fill_strided args)
{
    uint32_t first = blockIdx.x * (FS_TILE_THREADS * FS_COPY_ITEMS) + threadIdx.x;
    int64_t at[1];

#pragma unroll
    for (int k = 0; k < FS_COPY_ITEMS; k++)
        if (first + k * FS_TILE_THREADS < args.layout.units) {
            fs_locate(args.layout, first + k * FS_TILE_THREADS, at);
            ((S *)args.out)[at[0]] = (S)args.bits;
        }
}

const void *const fs_copy_vectors_kernel = (const void *)copy_vectors_kernel;
#define BY_SIZE(kernel)                                                                             \
    {(const void *)kernel<uint8_t>, (const void *)kernel<uint16_t>, (const void *)kernel<uint32_t>, \
     (const void *)kernel<uint64_t>}
const void *const fs_transpose_kernels[2][FS_SIZES] = {BY_SIZE(transpose_kernel), BY_SIZE(transpose_vectors_kernel)};
const void *const fs_fill_dense_kernel = (const void *)fill_dense_kernel;
const void *const fs_fill_strided_kernels[FS_SIZES] = BY_SIZE(fill_strided_kernel);
#undef BY_SIZE

template <class S> static uint64_t bits_of(S value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

uint64_t fs_fill_bits(double value, fs_dtype dtype)
{
    switch (dtype) {
    case FS_FLOAT64:
        return bits_of(value);
    case FS_FLOAT32:
        return bits_of((float)value);
    case FS_FLOAT16:
        return bits_of(__double2half(value));
    case FS_BFLOAT16:
        return bits_of(__double2bfloat16(value));
    case FS_INT64:
        return bits_of((int64_t)value);
    case FS_INT32:
        return bits_of((int32_t)value);
    case FS_INT8:
        return bits_of((int8_t)value);
    case FS_UINT8:
        return bits_of((uint8_t)value);
    default:
        return value != 0; /* FS_BOOL */
    }
}

/* Copies of raw bits: strided copies by vectors, transposes, fills. FLOPS 0; bound by memory. */
#include <string.h>

#include "kernels/convert.h"
#include "kernels/types.cuh"
#include "ops/float8.h"

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

/* A block transposes one tile in shared memory: reads run along in's rows and writes along out's. The pitch puts the
 * elements of a column into different banks. */
template <class S>
static __global__ void __launch_bounds__(FS_TILE_THREADS) transpose_kernel(const __grid_constant__ fs_transpose args)
{
    constexpr int TILE = FS_TRANSPOSE_TILE, ROWS = FS_TILE_THREADS / TILE, STEPS = TILE / ROWS;
    constexpr int PITCH = TILE + (sizeof(S) < 4 ? 4 / sizeof(S) : 1);
    __shared__ S tile[TILE][PITCH];
    uint32_t matrix = (__umulhi(blockIdx.x, args.tiles.magic) + blockIdx.x) >> args.tiles.shift;
    uint32_t in_matrix = blockIdx.x - matrix * args.tiles.divisor;
    uint32_t tile_row = (__umulhi(in_matrix, args.column_tiles.magic) + in_matrix) >> args.column_tiles.shift;
    uint32_t tile_column = in_matrix - tile_row * args.column_tiles.divisor;
    int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    int64_t at[2];

    fs_locate(args.batch, matrix, at);
    int64_t i0 = (int64_t)tile_row * TILE, j0 = (int64_t)tile_column * TILE;
    const S *in = (const S *)args.in + at[1] + i0 * args.in_stride + j0;
    S *out = (S *)args.out + at[0] + j0 * args.out_stride + i0;
    int rows = args.rows - i0 < TILE ? (int)(args.rows - i0) : TILE;
    int columns = args.columns - j0 < TILE ? (int)(args.columns - j0) : TILE;

    S value[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        if (y + k * ROWS < rows && x < columns) value[k] = in[(y + k * ROWS) * args.in_stride + x];
#pragma unroll
    for (int k = 0; k < STEPS; k++) tile[y + k * ROWS][x] = value[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < STEPS; k++)
        if (y + k * ROWS < columns && x < rows) out[(y + k * ROWS) * args.out_stride + x] = tile[x][y + k * ROWS];
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
const void *const fs_transpose_kernels[FS_SIZES] = {
    (const void *)transpose_kernel<uint8_t>,
    (const void *)transpose_kernel<uint16_t>,
    (const void *)transpose_kernel<uint32_t>,
    (const void *)transpose_kernel<uint64_t>,
};
const void *const fs_fill_dense_kernel = (const void *)fill_dense_kernel;
const void *const fs_fill_strided_kernels[FS_SIZES] = {
    (const void *)fill_strided_kernel<uint8_t>,
    (const void *)fill_strided_kernel<uint16_t>,
    (const void *)fill_strided_kernel<uint32_t>,
    (const void *)fill_strided_kernel<uint64_t>,
};

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
    case FS_FLOAT8_E4M3FN:
        return fs_f32_to_e4m3fn(fs_f64_to_f32_odd(value));
    case FS_FLOAT8_E5M2:
        return fs_f32_to_e5m2(fs_f64_to_f32_odd(value));
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

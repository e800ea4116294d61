/* Conversions between all dtypes: FLOPS 0, BYTES sizeof(IN) + sizeof(OUT) per element; bound by memory. */
#ifndef FS_KERNELS_CONVERT_CUH
#define FS_KERNELS_CONVERT_CUH

#include "kernels/convert.h"
#include "kernels/types.cuh"
#include "ops/float8.h"

struct fs_float8_e4m3fn {
    uint8_t bits;
};

struct fs_float8_e5m2 {
    uint8_t bits;
};

struct fs_bool8 {
    uint8_t value;
};

typedef double type_float64;
typedef float type_float32;
typedef fs_float16 type_float16;
typedef fs_bfloat16 type_bfloat16;
typedef fs_float8_e4m3fn type_float8_e4m3fn;
typedef fs_float8_e5m2 type_float8_e5m2;
typedef int64_t type_int64;
typedef int32_t type_int32;
typedef int8_t type_int8;
typedef uint8_t type_uint8;
typedef fs_bool8 type_bool;

/* The arithmetic type that represents every value of the stored one. */
FS_DEVICE double arithmetic(double x)
{
    return x;
}
FS_DEVICE float arithmetic(float x)
{
    return x;
}
FS_DEVICE float arithmetic(fs_float16 x)
{
    return __half2float(x);
}
FS_DEVICE float arithmetic(fs_bfloat16 x)
{
    return __bfloat162float(x);
}
FS_DEVICE float arithmetic(fs_float8_e4m3fn x)
{
    return fs_e4m3fn_to_f32(x.bits);
}
FS_DEVICE float arithmetic(fs_float8_e5m2 x)
{
    return fs_e5m2_to_f32(x.bits);
}
FS_DEVICE long long arithmetic(int64_t x)
{
    return x;
}
FS_DEVICE int arithmetic(int32_t x)
{
    return x;
}
FS_DEVICE int arithmetic(int8_t x)
{
    return x;
}
FS_DEVICE int arithmetic(uint8_t x)
{
    return x;
}
FS_DEVICE int arithmetic(fs_bool8 x)
{
    return x.value != 0;
}

/* From the arithmetic type to storage, rounded once. */
template <class X> FS_DEVICE void stored(X x, double *to)
{
    *to = (double)x;
}
template <class X> FS_DEVICE void stored(X x, float *to)
{
    *to = (float)x;
}
FS_DEVICE void stored(double x, fs_float16 *to)
{
    *to = __double2half(x);
}
FS_DEVICE void stored(float x, fs_float16 *to)
{
    *to = __float2half_rn(x);
}
FS_DEVICE void stored(long long x, fs_float16 *to)
{
    *to = __ll2half_rn(x);
}
FS_DEVICE void stored(int x, fs_float16 *to)
{
    *to = __int2half_rn(x);
}
FS_DEVICE void stored(double x, fs_bfloat16 *to)
{
    *to = __double2bfloat16(x);
}
FS_DEVICE void stored(float x, fs_bfloat16 *to)
{
    *to = __float2bfloat16_rn(x);
}
FS_DEVICE void stored(long long x, fs_bfloat16 *to)
{
    *to = __ll2bfloat16_rn(x);
}
FS_DEVICE void stored(int x, fs_bfloat16 *to)
{
    *to = __int2bfloat16_rn(x);
}
/* To a float from which rounding to 8 bits is a single rounding. An integer that a float rounds overflows 8 bits. */
template <class X> FS_DEVICE float nearly(X x)
{
    return (float)x;
}
FS_DEVICE float nearly(double x)
{
    return fs_f64_to_f32_odd(x);
}
template <class X> FS_DEVICE void stored(X x, fs_float8_e4m3fn *to)
{
    to->bits = fs_f32_to_e4m3fn(nearly(x));
}
template <class X> FS_DEVICE void stored(X x, fs_float8_e5m2 *to)
{
    to->bits = fs_f32_to_e5m2(nearly(x));
}
template <class X> FS_DEVICE void stored(X x, int64_t *to)
{
    *to = (int64_t)x;
}
template <class X> FS_DEVICE void stored(X x, int32_t *to)
{
    *to = (int32_t)x;
}
template <class X> FS_DEVICE void stored(X x, int8_t *to)
{
    *to = (int8_t)x;
}
template <class X> FS_DEVICE void stored(X x, uint8_t *to)
{
    *to = (uint8_t)x;
}
template <class X> FS_DEVICE void stored(X x, fs_bool8 *to)
{
    to->value = x != X(0);
}

template <class OUT, class IN>
static __global__ void __launch_bounds__(FS_TILE_THREADS) dense_kernel(const __grid_constant__ fs_convert_dense args)
{
    constexpr int WIDTH = FS_CONVERT_WIDTH(sizeof(OUT), sizeof(IN)), ITEMS = FS_CONVERT_ITEMS(sizeof(OUT), sizeof(IN));
    int64_t base = (int64_t)blockIdx.x * (FS_TILE_THREADS * ITEMS);
    OUT *out = (OUT *)args.out;
    const IN *in = (const IN *)args.in;

    if (args.vectors && base + FS_TILE_THREADS * ITEMS <= args.count) {
        alignas(16) IN from[ITEMS];
        alignas(16) OUT to[ITEMS];
        int64_t first = base + threadIdx.x * WIDTH;
#pragma unroll
        for (int k = 0; k < ITEMS; k += WIDTH) fs_load<IN, WIDTH>(from + k, in + first + k * FS_TILE_THREADS);
#pragma unroll
        for (int k = 0; k < ITEMS; k++) stored(arithmetic(from[k]), &to[k]);
#pragma unroll
        for (int k = 0; k < ITEMS; k += WIDTH) fs_store<OUT, WIDTH>(out + first + k * FS_TILE_THREADS, to + k);
    } else {
        int64_t end = base + FS_TILE_THREADS * ITEMS < args.count ? base + FS_TILE_THREADS * ITEMS : args.count;
#pragma unroll 4
        for (int64_t i = base + threadIdx.x; i < end; i += FS_TILE_THREADS) stored(arithmetic(in[i]), &out[i]);
    }
}

template <class OUT, class IN>
static __global__ void __launch_bounds__(FS_TILE_THREADS)
    strided_kernel(const __grid_constant__ fs_convert_strided args)
{
    uint32_t first = blockIdx.x * (FS_TILE_THREADS * FS_COPY_ITEMS) + threadIdx.x;
    int64_t at[FS_COPY_ITEMS][2];
    IN from[FS_COPY_ITEMS];

#pragma unroll
    for (int k = 0; k < FS_COPY_ITEMS; k++)
        if (first + k * FS_TILE_THREADS < args.layout.units) {
            fs_locate(args.layout, first + k * FS_TILE_THREADS, at[k]);
            from[k] = ((const IN *)args.in)[at[k][1]];
        }
#pragma unroll
    for (int k = 0; k < FS_COPY_ITEMS; k++)
        if (first + k * FS_TILE_THREADS < args.layout.units) stored(arithmetic(from[k]), &((OUT *)args.out)[at[k][0]]);
}

#define FS_DENSE_FROM(NAME, name, ...) (const void *)dense_kernel<OUT, type_##name>,
#define FS_STRIDED_FROM(NAME, name, ...) (const void *)strided_kernel<OUT, type_##name>,

/* The table of one target dtype. */
#define FS_CONVERT_TO(name)                                                                            \
    namespace to_##name                                                                                \
    {                                                                                                  \
        typedef type_##name OUT;                                                                       \
        extern "C" const fs_convert_kernels fs_convert_to_##name = {{FS_DTYPE_LIST(FS_DENSE_FROM)},    \
                                                                    {FS_DTYPE_LIST(FS_STRIDED_FROM)}}; \
    }

#endif

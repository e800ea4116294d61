/* Storage types and their compute types; 16-byte vectors. */
#ifndef FS_KERNELS_TYPES_CUH
#define FS_KERNELS_TYPES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#define FS_DEVICE static __device__ __forceinline__
#define FS_INLINE __device__ __forceinline__ /* of a member */

typedef __half fs_float16;
typedef __nv_bfloat16 fs_bfloat16;

template <class S> struct fs_compute {
    typedef float type;
};
template <> struct fs_compute<double> {
    typedef double type;
};

FS_DEVICE double fs_widen(double x)
{
    return x;
}
FS_DEVICE float fs_widen(float x)
{
    return x;
}
FS_DEVICE float fs_widen(fs_float16 x)
{
    return __half2float(x);
}
FS_DEVICE float fs_widen(fs_bfloat16 x)
{
    return __bfloat162float(x);
}

/* To nearest even. */
FS_DEVICE void fs_narrow(double x, double *to)
{
    *to = x;
}
FS_DEVICE void fs_narrow(float x, float *to)
{
    *to = x;
}
FS_DEVICE void fs_narrow(float x, fs_float16 *to)
{
    *to = __float2half_rn(x);
}
FS_DEVICE void fs_narrow(float x, fs_bfloat16 *to)
{
    *to = __float2bfloat16_rn(x);
}

/* Runs of N elements. Two of 16 bits are converted in one instruction each way. */
template <int N, class S, class T> FS_DEVICE void fs_widen_run(const S *from, T *to)
{
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = fs_widen(from[i]);
}
template <int N> FS_DEVICE void fs_widen_run(const fs_bfloat16 *from, float *to)
{
    if (N == 1) to[0] = fs_widen(from[0]);
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) {
        uint32_t pair;
        memcpy(&pair, from + i, sizeof pair);
        to[i] = __uint_as_float(pair << 16);
        to[i + 1] = __uint_as_float(pair & 0xFFFF0000u);
    }
}
template <int N, class S, class T> FS_DEVICE void fs_narrow_run(const T *from, S *to)
{
#pragma unroll
    for (int i = 0; i < N; i++) fs_narrow(from[i], to + i);
}
template <int N> FS_DEVICE void fs_narrow_run(const float *from, fs_bfloat16 *to)
{
    if (N == 1) fs_narrow(from[0], to);
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(from[i], from[i + 1]);
        memcpy(to + i, &pair, sizeof pair);
    }
}
template <int N> FS_DEVICE void fs_narrow_run(const float *from, fs_float16 *to)
{
    if (N == 1) fs_narrow(from[0], to);
#pragma unroll
    for (int i = 0; i + 1 < N; i += 2) {
        __half2 pair = __floats2half2_rn(from[i], from[i + 1]);
        memcpy(to + i, &pair, sizeof pair);
    }
}

/* N elements of S that move as one: N × sizeof(S) is 1, 2, 4, 8 or 16 bytes. */
template <int BYTES> struct fs_chunk;
template <> struct fs_chunk<1> {
    typedef uint8_t type;
};
template <> struct fs_chunk<2> {
    typedef uint16_t type;
};
template <> struct fs_chunk<4> {
    typedef uint32_t type;
};
template <> struct fs_chunk<8> {
    typedef uint2 type;
};
template <> struct fs_chunk<16> {
    typedef uint4 type;
};

template <class S, int N> FS_DEVICE void fs_load(S *to, const S *from)
{
    typedef typename fs_chunk<N * sizeof(S)>::type chunk;
    *reinterpret_cast<chunk *>(to) = *reinterpret_cast<const chunk *>(from);
}

template <class S, int N> FS_DEVICE void fs_store(S *to, const S *from)
{
    typedef typename fs_chunk<N * sizeof(S)>::type chunk;
    *reinterpret_cast<chunk *>(to) = *reinterpret_cast<const chunk *>(from);
}

#endif

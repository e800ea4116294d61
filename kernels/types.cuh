/* Storage types and the types that they compute in; 16-byte vectors. */
#ifndef FS_KERNELS_TYPES_CUH
#define FS_KERNELS_TYPES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define FS_DEVICE static __device__ __forceinline__

typedef __half fs_float16;
typedef __nv_bfloat16 fs_bfloat16;

template <class S> struct fs_compute { typedef float type; };
template <> struct fs_compute<double> { typedef double type; };

FS_DEVICE double fs_widen(double x) { return x; }
FS_DEVICE float fs_widen(float x) { return x; }
FS_DEVICE float fs_widen(fs_float16 x) { return __half2float(x); }
FS_DEVICE float fs_widen(fs_bfloat16 x) { return __bfloat162float(x); }

/* To nearest even. */
FS_DEVICE void fs_narrow(double x, double *to) { *to = x; }
FS_DEVICE void fs_narrow(float x, float *to) { *to = x; }
FS_DEVICE void fs_narrow(float x, fs_float16 *to) { *to = __float2half_rn(x); }
FS_DEVICE void fs_narrow(float x, fs_bfloat16 *to) { *to = __float2bfloat16_rn(x); }

/* N elements of S that move as one: N × sizeof(S) is 1, 2, 4, 8 or 16 bytes. */
template <int BYTES> struct fs_chunk;
template <> struct fs_chunk<1> { typedef uint8_t type; };
template <> struct fs_chunk<2> { typedef uint16_t type; };
template <> struct fs_chunk<4> { typedef uint32_t type; };
template <> struct fs_chunk<8> { typedef uint2 type; };
template <> struct fs_chunk<16> { typedef uint4 type; };

/* Which accesses are to data that is used once: they are the first to leave the caches. */
enum { FS_STREAM_LOADS = 1, FS_STREAM_STORES = 2 };

template <class S, int N, int STREAMS = 0> FS_DEVICE void fs_load(S *to, const S *from)
{
    typedef typename fs_chunk<N * sizeof(S)>::type chunk;
    const chunk *source = reinterpret_cast<const chunk *>(from);
    *reinterpret_cast<chunk *>(to) = STREAMS & FS_STREAM_LOADS ? __ldcs(source) : *source;
}

template <class S, int N, int STREAMS = 0> FS_DEVICE void fs_store(S *to, const S *from)
{
    typedef typename fs_chunk<N * sizeof(S)>::type chunk;
    chunk *target = reinterpret_cast<chunk *>(to), value = *reinterpret_cast<const chunk *>(from);
    if (STREAMS & FS_STREAM_STORES)
        __stcs(target, value);
    else
        *target = value;
}

#endif

/* Reductions across the threads of a warp or of a block. All threads get the same, deterministic result. */
#ifndef FS_KERNELS_BLOCK_CUH
#define FS_KERNELS_BLOCK_CUH

#include "kernels/types.cuh"

enum { FS_WARP = 32 };

struct fs_add {
    template <class T> static __device__ __forceinline__ T apply(T a, T b)
    {
        return a + b;
    }
    template <class T> static __device__ __forceinline__ T identity()
    {
        return T(0);
    }
};

/* NaN propagates. */
struct fs_larger {
    template <class T> static __device__ __forceinline__ T apply(T a, T b)
    {
        return (a > b || a != a) ? a : b;
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    static __device__ __forceinline__ float apply(float a, float b)
    {
        float result;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
        return result;
    }
#endif
    template <class T> static __device__ __forceinline__ T identity()
    {
        return T(-INFINITY);
    }
};

struct fs_smaller {
    template <class T> static __device__ __forceinline__ T apply(T a, T b)
    {
        return (a < b || a != a) ? a : b;
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    static __device__ __forceinline__ float apply(float a, float b)
    {
        float result;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
        return result;
    }
#endif
    template <class T> static __device__ __forceinline__ T identity()
    {
        return T(INFINITY);
    }
};

/* Over groups of `width` neighbouring lanes, a power of two. */
template <class OP, class T> FS_DEVICE T fs_reduce_lanes(T value, int width)
{
    for (int distance = width / 2; distance > 0; distance /= 2)
        value = OP::apply(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
    return value;
}

/* Over a block of whole warps, at most 32. `shared` has room for 32 values. */
template <class OP, class T> FS_DEVICE T fs_reduce_block(T value, T *shared)
{
    int lane = threadIdx.x % FS_WARP, warp = threadIdx.x / FS_WARP, warps = blockDim.x / FS_WARP;

    value = fs_reduce_lanes<OP>(value, FS_WARP);
    if (warps == 1) return value;
    __syncthreads(); /* the previous reduction's readers have finished with `shared` */
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    value = lane < warps ? shared[lane] : OP::template identity<T>();
    return fs_reduce_lanes<OP>(value, FS_WARP);
}

#endif

/* The pointwise kernels of one storage type, all from ops/pointwise.def.
 *
 *   FLOPS 1 per element    BYTES sizeof(S) per element of each tensor    bound by memory, but for pow and the like in
 *   float64
 */
#ifndef FS_KERNELS_POINTWISE_CUH
#define FS_KERNELS_POINTWISE_CUH

#include <math.h>

#include "kernels/pointwise.h"
#ifdef FS_SHORT_FTZ
#include "kernels/short_math.cuh"
#else
#include "kernels/power.cuh"
#endif
#include "kernels/types.cuh"

/* CUDA's math functions are overloaded for float and double. A function in this namespace hides CUDA's. */
namespace fs_math
{
#ifndef FS_SHORT_FTZ
FS_DEVICE float pow(float a, float b)
{
    return fs_power(a, b);
}
#endif
FS_DEVICE double pow(double a, double b)
{
    return ::pow(a, b);
}

#define K(constant) T(constant)
#define M(function) function
#define FS_UNARY(name, value, prose)                      \
    template <class T> struct unary_##name {              \
        static __device__ __forceinline__ T apply(T x, T) \
        {                                                 \
            return value;                                 \
        }                                                 \
    };
#define FS_BINARY(name, value, prose)                       \
    template <class T> struct binary_##name {               \
        static __device__ __forceinline__ T apply(T a, T b) \
        {                                                   \
            return value;                                   \
        }                                                   \
    };
#include "ops/pointwise.def"
#undef FS_UNARY
#undef FS_BINARY
#undef K
#undef M
#ifdef FS_SHORT_FTZ
FS_SHORT_ROWS
#endif
} // namespace fs_math

/* a[k] = op(a[k], b): what depends on b alone is computed once. */
template <template <class> class OP> struct fs_by_scalar {
    template <class T, int ITEMS> FS_DEVICE void apply(T (&a)[ITEMS], T b)
    {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) a[k] = OP<T>::apply(a[k], b);
    }
};

/* The powers of fs_is_few_power(). All threads take the same branch. The values at -0 and -infinity are those of C's
 * pow, also of the square root. */
namespace fs_math
{
template <class T> struct few_powers {};
} // namespace fs_math
template <> struct fs_by_scalar<fs_math::few_powers> {
    template <class T, int ITEMS> FS_DEVICE void apply(T (&a)[ITEMS], T b)
    {
        if (b == T(2)) {
#pragma unroll
            for (int k = 0; k < ITEMS; k++) a[k] *= a[k];
        } else if (b == T(3)) {
#pragma unroll
            for (int k = 0; k < ITEMS; k++) a[k] *= a[k] * a[k];
        } else if (b == T(-1)) {
#pragma unroll
            for (int k = 0; k < ITEMS; k++) a[k] = T(1) / a[k];
        } else {
#pragma unroll
            for (int k = 0; k < ITEMS; k++) a[k] = a[k] == -T(INFINITY) ? T(INFINITY) : sqrt(a[k]) + T(0);
        }
    }
};

/* raw[0] = op(operand 0) or op(operand 0, operand 1): operand i is raw[i], or the scalar if in[i] is NULL. */
template <class S, template <class> class OP, int INPUTS, int ITEMS, class ARGUMENTS>
FS_DEVICE void apply(const ARGUMENTS &args, S (&raw)[2][ITEMS])
{
    typedef typename fs_compute<S>::type T;
    T scalar[2], a[ITEMS], b[ITEMS];
#pragma unroll
    for (int i = 0; i < 2; i++) scalar[i] = sizeof(T) == 8 ? T(args.scalar[i]) : T(args.scalar32[i]);
    if (args.in[0]) {
        fs_widen_run<ITEMS>(raw[0], a);
    } else {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) a[k] = scalar[0];
    }
    bool by_tensor = INPUTS == 2 && args.in[1];
    if constexpr (INPUTS == 2) {
        if (by_tensor) {
            fs_widen_run<ITEMS>(raw[1], b);
#pragma unroll
            for (int k = 0; k < ITEMS; k++) a[k] = OP<T>::apply(a[k], b[k]);
        }
    }
    if (!by_tensor) fs_by_scalar<OP>::apply(a, scalar[1]);
    fs_narrow_run<ITEMS>(a, raw[0]);
}

/* out = op(in[0]) or op(in[0], in[1]) for a tile of consecutive elements: whole vectors if the tile is full and
 * aligned, otherwise single elements a block apart. INPUTS is 1 or 2. */
template <class S, template <class> class OP, int INPUTS, int ITEMS>
static __global__ void __launch_bounds__(FS_TILE_THREADS) dense_kernel(const __grid_constant__ fs_dense_arguments args)
{
    constexpr int WIDTH = FS_VECTOR_BYTES / sizeof(S), VECTORS = ITEMS / WIDTH;
    alignas(16) S raw[2][ITEMS];
    int64_t base = (int64_t)blockIdx.x * (FS_TILE_THREADS * ITEMS);
    bool whole = args.vectors && base + FS_TILE_THREADS * ITEMS <= args.count;
    int step = whole ? 1 : FS_TILE_THREADS;
    int64_t first = base + threadIdx.x * (whole ? WIDTH : 1);

    if (whole) {
#pragma unroll
        for (int i = 0; i < INPUTS; i++)
            if (args.in[i])
#pragma unroll
                for (int v = 0; v < VECTORS; v++)
                    fs_load<S, WIDTH>(raw[i] + v * WIDTH, (const S *)args.in[i] + first + v * FS_TILE_THREADS * WIDTH);
    } else {
        /* Beyond the end the last element is read again, as unconditional loads can all be in flight together. */
#pragma unroll
        for (int i = 0; i < INPUTS; i++)
            if (args.in[i])
#pragma unroll
                for (int k = 0; k < ITEMS; k++)
                    raw[i][k] = ((const S *)args.in[i])[min(first + k * step, args.count - 1)];
    }
    apply<S, OP, INPUTS>(args, raw);
    if (whole) {
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            fs_store<S, WIDTH>((S *)args.out + first + v * FS_TILE_THREADS * WIDTH, raw[0] + v * WIDTH);
    } else {
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (first + k * step < args.count) ((S *)args.out)[first + k * step] = raw[0][k];
    }
}

/* The same over a layout. A thread processes one unit that is a vector, or as many single elements a block apart. */
template <class S, template <class> class OP, int INPUTS>
static __global__ void __launch_bounds__(FS_TILE_THREADS)
    strided_kernel(const __grid_constant__ fs_strided_arguments args)
{
    constexpr int ITEMS = FS_STRIDED_ITEMS(sizeof(S));
    alignas(16) S raw[2][ITEMS];
    int64_t at[ITEMS][1 + INPUTS];
    uint32_t step = FS_TILE_THREADS, first = blockIdx.x * (args.vectors ? step : step * ITEMS) + threadIdx.x;

    if (args.vectors) {
        if (first >= args.layout.units) return;
        fs_locate(args.layout, first, at[0]);
#pragma unroll
        for (int i = 0; i < INPUTS; i++) {
            const S *from = (const S *)args.in[i] + at[0][1 + i];
            if (args.in[i] && !args.splat[i]) fs_load<S, ITEMS>(raw[i], from);
            if (args.in[i] && args.splat[i]) {
                S value = *from;
#pragma unroll
                for (int k = 0; k < ITEMS; k++) raw[i][k] = value;
            }
        }
    } else {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            if (first + k * step >= args.layout.units) continue;
            fs_locate(args.layout, first + k * step, at[k]);
#pragma unroll
            for (int i = 0; i < INPUTS; i++)
                if (args.in[i]) raw[i][k] = ((const S *)args.in[i])[at[k][1 + i]];
        }
    }
    apply<S, OP, INPUTS>(args, raw);
    if (args.vectors) {
        fs_store<S, ITEMS>((S *)args.out + at[0][0], raw[0]);
    } else {
#pragma unroll
        for (int k = 0; k < ITEMS; k++)
            if (first + k * step < args.layout.units) ((S *)args.out)[at[k][0]] = raw[0][k];
    }
}

#define FS_UNARY_DENSE(name, value, prose) \
    (const void *)dense_kernel<S, fs_math::unary_##name, 1, FS_DENSE_ITEMS(sizeof(S), false)>,
#define FS_FEW_POWERS_DENSE (const void *)dense_kernel<S, fs_math::few_powers, 1, FS_DENSE_ITEMS(sizeof(S), false)>,
#define FS_UNARY_STRIDED(name, value, prose) (const void *)strided_kernel<S, fs_math::unary_##name, 1>,
#define FS_BINARY_DENSE(name, value, prose) \
    (const void *)                          \
        dense_kernel<S, fs_math::binary_##name, 2, FS_DENSE_ITEMS(sizeof(S), FS_BINARY_IS_HEAVY(FS_BINARY_##name))>,
#define FS_BINARY_STRIDED(name, value, prose) (const void *)strided_kernel<S, fs_math::binary_##name, 2>,

#endif

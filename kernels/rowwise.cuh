/* The computation of softmax, log_softmax, layer_norm and rms_norm on a row, in three steps:
 *
 *   stats   a row in registers (own.has marks valid elements) → two numbers (first, second), and each element shifted
 *   scale   those numbers for a whole row → factors
 *   finish  shifted element × multiplier + addend
 *
 * A row in pieces uses `combine` between the first two. T is the accumulator's type. */
#ifndef FS_KERNELS_ROWWISE_CUH
#define FS_KERNELS_ROWWISE_CUH

#include "kernels/block.cuh"

template <class T> struct fs_pair {
    T first, second;
};
template <class T> struct fs_factors {
    T shift, multiplier, addend;
};

/* Reductions over the threads that share a row: a warp, or a block. */
template <class T, bool WARP> struct fs_team {
    T *shared;
    template <class OP> __device__ __forceinline__ T reduce(T value) const
    {
        return WARP ? fs_reduce_lanes<OP>(value, FS_WARP) : fs_reduce_block<OP>(value, shared);
    }
};

/* first: the maximum; second: the sum of exp(x - first). Rows, or pieces of them, may be all -inf. */
template <class T> struct exponentials {
    static __device__ __forceinline__ T base(T largest)
    {
        return largest == T(-INFINITY) ? T(0) : largest;
    }

    template <bool KEEP, int N, class SHARE, class TEAM>
    static __device__ __forceinline__ fs_pair<T> stats_of(T (&x)[N], const SHARE &own, const TEAM &team)
    {
        T largest = T(-INFINITY), sum = 0;
#pragma unroll
        for (int k = 0; k < N; k++)
            if (own.has(k)) largest = fs_larger::apply(largest, x[k]);
        largest = team.template reduce<fs_larger>(largest);
#pragma unroll
        for (int k = 0; k < N; k++) {
            x[k] -= base(largest);
            T e = ::exp(x[k]);
            if (own.has(k)) sum += e;
            if (KEEP) x[k] = e;
        }
        fs_pair<T> result = {largest, team.template reduce<fs_add>(sum)};
        return result;
    }

    template <class TEAM>
    static __device__ fs_pair<T> combine(const fs_pair<T> *pieces, int64_t count, int64_t, int64_t, const TEAM &team)
    {
        T largest = T(-INFINITY), sum = 0;
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x) largest = fs_larger::apply(largest, pieces[i].first);
        largest = team.template reduce<fs_larger>(largest);
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
            sum += pieces[i].second * ::exp(pieces[i].first - base(largest));
        fs_pair<T> result = {largest, team.template reduce<fs_add>(sum)};
        return result;
    }
};

template <class T> struct softmax : exponentials<T> {
    template <int N, class SHARE, class TEAM>
    static __device__ __forceinline__ fs_pair<T> stats(T (&x)[N], const SHARE &own, const TEAM &team)
    {
        return exponentials<T>::template stats_of<true>(x, own, team);
    }
    static __device__ __forceinline__ fs_factors<T> scale(fs_pair<T> row, int64_t, T)
    {
        fs_factors<T> factors = {exponentials<T>::base(row.first), T(1) / row.second, T(0)};
        return factors;
    }
    static __device__ __forceinline__ T shift(T x, T by)
    {
        return ::exp(x - by);
    }
};

template <class T> struct log_softmax : exponentials<T> {
    template <int N, class SHARE, class TEAM>
    static __device__ __forceinline__ fs_pair<T> stats(T (&x)[N], const SHARE &own, const TEAM &team)
    {
        return exponentials<T>::template stats_of<false>(x, own, team);
    }
    static __device__ __forceinline__ fs_factors<T> scale(fs_pair<T> row, int64_t, T)
    {
        fs_factors<T> factors = {exponentials<T>::base(row.first), T(1), -::log(row.second)};
        return factors;
    }
    static __device__ __forceinline__ T shift(T x, T by)
    {
        return x - by;
    }
};

/* first: the mean; second: the sum of squared deviations. */
template <class T> struct layer_norm {
    template <int N, class SHARE, class TEAM>
    static __device__ __forceinline__ fs_pair<T> stats(T (&x)[N], const SHARE &own, const TEAM &team)
    {
        T sum = 0, squares = 0;
#pragma unroll
        for (int k = 0; k < N; k++)
            if (own.has(k)) sum += x[k];
        T mean = team.template reduce<fs_add>(sum) / T(own.length);
#pragma unroll
        for (int k = 0; k < N; k++) {
            x[k] -= mean;
            if (own.has(k)) squares += x[k] * x[k];
        }
        fs_pair<T> result = {mean, team.template reduce<fs_add>(squares)};
        return result;
    }

    /* Chan, Golub and LeVeque's rule for the mean and squares of a whole from those of its parts. */
    template <class TEAM>
    static __device__ fs_pair<T> combine(const fs_pair<T> *pieces, int64_t count, int64_t length, int64_t piece,
                                         const TEAM &team)
    {
        T sum = 0, squares = 0;
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
            sum += pieces[i].first * (T(i + 1 < count ? piece : length - i * piece) / T(length));
        T mean = team.template reduce<fs_add>(sum);
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
            T apart = pieces[i].first - mean;
            squares += pieces[i].second + apart * apart * T(i + 1 < count ? piece : length - i * piece);
        }
        fs_pair<T> result = {mean, team.template reduce<fs_add>(squares)};
        return result;
    }

    static __device__ __forceinline__ fs_factors<T> scale(fs_pair<T> row, int64_t length, T eps)
    {
        fs_factors<T> factors = {row.first, T(1) / ::sqrt(row.second / T(length) + eps), T(0)};
        return factors;
    }
    static __device__ __forceinline__ T shift(T x, T by)
    {
        return x - by;
    }
};

/* second: the sum of squares. */
template <class T> struct rms_norm {
    template <int N, class SHARE, class TEAM>
    static __device__ __forceinline__ fs_pair<T> stats(T (&x)[N], const SHARE &own, const TEAM &team)
    {
        T squares = 0;
#pragma unroll
        for (int k = 0; k < N; k++)
            if (own.has(k)) squares += x[k] * x[k];
        fs_pair<T> result = {T(0), team.template reduce<fs_add>(squares)};
        return result;
    }

    template <class TEAM>
    static __device__ fs_pair<T> combine(const fs_pair<T> *pieces, int64_t count, int64_t, int64_t, const TEAM &team)
    {
        T squares = 0;
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x) squares += pieces[i].second;
        fs_pair<T> result = {T(0), team.template reduce<fs_add>(squares)};
        return result;
    }

    static __device__ __forceinline__ fs_factors<T> scale(fs_pair<T> row, int64_t length, T eps)
    {
        fs_factors<T> factors = {T(0), T(1) / ::sqrt(row.second / T(length) + eps), T(0)};
        return factors;
    }
    static __device__ __forceinline__ T shift(T x, T)
    {
        return x;
    }
};

#endif

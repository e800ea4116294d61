/* The rules of reductions. Each has a state and functions on it:
 *
 *   start()                           the state of no elements
 *   take<W>(state, values, at, step)  a batch: runs of W elements, the first at place `at` of the row, `step` apart
 *   merge(state, other)               two disjoint sets of elements
 *   merge_lanes(state, width)         those of neighbouring lanes
 *   finish(out, row, state, length, correction)
 *
 * T is the accumulator's type. NaN propagates.
 */
#ifndef FS_KERNELS_REDUCE_CUH
#define FS_KERNELS_REDUCE_CUH

#include <math.h>
#include <string.h>

#include "kernels/block.cuh"

/* The tree of OP over N values. */
template <class OP, int N> struct fs_tree {
    template <class T> static FS_INLINE T of(const T *values)
    {
        return OP::apply(fs_tree<OP, N / 2>::of(values), fs_tree<OP, N / 2>::of(values + N / 2));
    }
};
template <class OP> struct fs_tree<OP, 1> {
    template <class T> static FS_INLINE T of(const T *values)
    {
        return values[0];
    }
};

/* A state is shuffled as its 32-bit words. */
template <class STATE> FS_DEVICE STATE fs_shuffle(const STATE &state, int distance)
{
    unsigned words[sizeof(STATE) / 4];
    STATE other;
    memcpy(words, &state, sizeof state);
#pragma unroll
    for (size_t i = 0; i < sizeof(STATE) / 4; i++) words[i] = __shfl_xor_sync(0xFFFFFFFFu, words[i], distance);
    memcpy(&other, words, sizeof other);
    return other;
}

/* The state of groups of `width` neighbouring lanes, in all of them. All lanes take part. A rule may have a faster way.
 */
template <class OP> FS_DEVICE typename OP::state fs_merge_lanes_of(typename OP::state state, int width)
{
    for (int distance = width / 2; distance > 0; distance /= 2) OP::merge(state, fs_shuffle(state, distance));
    return state;
}

/* The state of a block of whole warps, in all threads. `shared` has room for a state for each warp. */
template <class OP> FS_DEVICE typename OP::state fs_merge_block(typename OP::state state, typename OP::state *shared)
{
    int lane = threadIdx.x % FS_WARP, warps = blockDim.x / FS_WARP;

    state = OP::merge_lanes(state, FS_WARP);
    if (warps == 1) return state;
    __syncthreads(); /* the readers of an earlier merge have finished */
    if (lane == 0) shared[threadIdx.x / FS_WARP] = state;
    __syncthreads();
    state = lane < warps ? shared[lane] : OP::start();
    return OP::merge_lanes(state, FS_WARP);
}

template <class OP, class T> struct fs_simple {
    struct state {
        T value;
    };
    static FS_INLINE state start()
    {
        return state{OP::template identity<T>()};
    }
    template <int W, int N> static FS_INLINE void take(state &s, T (&values)[N], int64_t, int64_t)
    {
        s.value = OP::apply(s.value, fs_tree<OP, N>::of(values));
    }
    static FS_INLINE void merge(state &s, const state &other)
    {
        s.value = OP::apply(s.value, other.value);
    }
    static FS_INLINE state merge_lanes(const state &s, int width)
    {
        return state{fs_reduce_lanes<OP>(s.value, width)};
    }
    template <class S> static FS_INLINE void finish(S *out, int64_t row, const state &s, int64_t, double)
    {
        fs_narrow(s.value, &out[row]);
    }
};

template <class T> struct fs_sum : fs_simple<fs_add, T> {};
template <class T> struct fs_amax : fs_simple<fs_larger, T> {};
template <class T> struct fs_amin : fs_simple<fs_smaller, T> {};

template <class T> struct fs_mean : fs_sum<T> {
    template <class S>
    static FS_INLINE void finish(S *out, int64_t row, const typename fs_sum<T>::state &s, int64_t length, double)
    {
        fs_narrow(s.value / (T)length, &out[row]);
    }
};

template <class T> struct fs_norm : fs_sum<T> {
    typedef typename fs_sum<T>::state state;
    template <int W, int N> static FS_INLINE void take(state &s, T (&values)[N], int64_t, int64_t)
    {
#pragma unroll
        for (int k = 0; k < N; k++) values[k] *= values[k];
        s.value += fs_tree<fs_add, N>::of(values);
    }
    template <class S> static FS_INLINE void finish(S *out, int64_t row, const state &s, int64_t, double)
    {
        fs_narrow(::sqrt(s.value), &out[row]);
    }
};

/* Mean and sum of squared deviations of a batch, in two passes over its registers, joined to those before by the rule
 * of Chan, Golub and LeVeque. */
template <class T> struct fs_variance {
    struct state {
        T count, mean, squares;
    };
    static FS_INLINE state start()
    {
        return state{0, 0, 0};
    }
    template <int W, int N> static FS_INLINE void take(state &s, T (&values)[N], int64_t, int64_t)
    {
        T mean = fs_tree<fs_add, N>::of(values) * (T(1) / T(N));
        if (fabs(mean) == T(INFINITY)) { /* perhaps the sum alone */
            mean = 0;
#pragma unroll
            for (int k = 0; k < N; k++) mean += values[k] * (T(1) / T(N));
        }
        constexpr int SUMS = N < 4 ? N : 4;
        T squares[SUMS] = {};
#pragma unroll
        for (int k = 0; k < N; k++) squares[k % SUMS] += (values[k] - mean) * (values[k] - mean);
        merge(s, state{T(N), mean, fs_tree<fs_add, SUMS>::of(squares)});
    }
    static FS_INLINE void merge(state &s, const state &other)
    {
        T count = s.count + other.count, apart = other.mean - s.mean;
        if (other.count == 0) return;
        T share = other.count / count;
        s.squares += other.squares + apart * (s.count * share) * apart; /* nothing joined to a large mean is 0 */
        s.mean += apart * share;
        s.count = count;
    }
    /* The mean from the first lane's on, so that equal means stay what they are. */
    static FS_INLINE state merge_lanes(const state &s, int width)
    {
        T first = __shfl_sync(0xFFFFFFFFu, s.mean, 0, width), count = fs_reduce_lanes<fs_add>(s.count, width);
        T sum = fs_reduce_lanes<fs_add>(s.count * (s.mean - first), width);
        T mean = first + sum / (count > T(0) ? count : T(1));
        T apart = s.mean - mean;
        return state{count, mean, fs_reduce_lanes<fs_add>(s.squares + apart * s.count * apart, width)};
    }
    template <class S>
    static FS_INLINE void finish(S *out, int64_t row, const state &s, int64_t length, double correction)
    {
        double divisor = (double)length - correction;
        T squares = s.squares + (s.mean - s.mean); /* NaN where an element is infinite */
        fs_narrow(squares / (T)(divisor > 0 ? divisor : 0), &out[row]);
    }
};

/* The largest value and its first place; a NaN is larger than any number. Of a whole batch only the place of the batch
 * is kept, as -2 - place, until the last one is known. */
template <class T> struct fs_argmax {
    struct state {
        T value;
        alignas(8) int64_t at; /* -1: none yet */
    };
    static FS_INLINE state start()
    {
        return state{T(-INFINITY), -1};
    }
    /* Whether a wins over b wherever they stand. */
    static FS_INLINE bool wins(T a, T b)
    {
        return a > b || (a != a && b == b);
    }
    template <int W, int N> static FS_INLINE void take(state &s, T (&values)[N], int64_t at, int64_t step)
    {
        T largest = fs_tree<fs_larger, N>::of(values);
        if (s.at >= 0 && !wins(largest, s.value)) return; /* places grow from batch to batch */
        int found = 0;
#pragma unroll
        for (int k = N - 1; k >= 0; k--)
            if (values[k] == largest || values[k] != values[k]) found = k; /* with a NaN, `largest` is one */
        s.value = largest;
        s.at = at + found / W * step + found % W;
    }
    static FS_INLINE void merge(state &s, const state &other)
    {
        if (other.at < 0) return;
        bool better = wins(other.value, s.value), worse = wins(s.value, other.value);
        if (s.at < 0 || better || (!worse && other.at < s.at)) s = other;
    }
    static FS_INLINE state merge_lanes(const state &s, int width)
    {
        return fs_merge_lanes_of<fs_argmax>(s, width);
    }
    template <class S> static FS_INLINE void finish(S *out, int64_t row, const state &s, int64_t, double)
    {
        ((int64_t *)out)[row] = s.at;
    }
};

#endif

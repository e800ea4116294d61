/* Softmax, log_softmax, layer_norm and rms_norm of a row, in two steps: the states of parts of the row are merged as
 * those of reductions are (reduce.cuh), and from the state of the whole row come the factors of
 *
 *   y = shifted(x) × multiplier + addend
 *
 * A thread's elements stay in registers in their storage type and are widened in each step, as registers are scarcer
 * than instructions. */
#ifndef FS_KERNELS_ROWWISE_CUH
#define FS_KERNELS_ROWWISE_CUH

#include "kernels/reduce.cuh"

template <class T> struct fs_factors {
    T shift, multiplier, addend;
};

/* A thread's share of a row or of a piece of it: V vectors of W elements, a team of threads apart. Vectors lie at
 * multiples of 16 bytes. Where a row need not begin there (not ALIGNED), `skew` elements of the first are not the
 * row's, and neither are some of the last. */
template <class S, int V, bool ALIGNED> struct fs_share {
    static constexpr int W = 16 / sizeof(S);
    typedef typename fs_compute<S>::type T;
    alignas(16) S raw[V][W];
    int length, index, team, skew;

    FS_INLINE int place(int v) const
    {
        return (v * team + index) * W - (ALIGNED ? 0 : skew);
    }
    FS_INLINE bool has(int v) const
    {
        return place(v) < length;
    }
    FS_INLINE bool is_whole(int v) const
    {
        return ALIGNED || (place(v) >= 0 && place(v) + W <= length);
    }
    FS_INLINE bool has(int v, int j) const
    {
        return ALIGNED || (place(v) + j >= 0 && place(v) + j < length);
    }
    /* Elements of the vectors. */
    FS_INLINE T count() const
    {
        int count = 0;
#pragma unroll
        for (int v = 0; v < V; v++)
            if (has(v)) count += is_whole(v) ? W : min(place(v) + W, length) - max(place(v), 0);
        return T(count);
    }

    FS_INLINE void load(const S *from)
    {
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (!has(v)) continue;
            if (is_whole(v)) {
                fs_load<S, W>(raw[v], from + place(v));
            } else {
#pragma unroll
                for (int j = 0; j < W; j++)
                    if (has(v, j)) raw[v][j] = from[place(v) + j];
            }
        }
    }

    /* f(element) for all that the thread has. */
    template <class F> FS_INLINE void each(F f) const
    {
#pragma unroll
        for (int v = 0; v < V; v++) {
            if (!has(v)) continue;
            T x[W];
            fs_widen_run<W>(raw[v], x);
            if (is_whole(v)) {
#pragma unroll
                for (int j = 0; j < W; j++) f(x[j]);
            } else {
#pragma unroll
                for (int j = 0; j < W; j++)
                    if (has(v, j)) f(x[j]);
            }
        }
    }
};

/* e to the x <= 0: for 16-bit results within 2^-16 where they are not negligible. */
template <class S> FS_DEVICE double fs_exp(double x)
{
    return ::exp(x);
}
template <class S> FS_DEVICE float fs_exp(float x)
{
    if (sizeof(S) == 4) return ::expf(x);
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
    return result;
}

/* The largest element, and the sum of exp(x - largest). Rows, or parts of them, may be all -inf. */
template <class S> struct fs_exponentials {
    typedef typename fs_compute<S>::type T;
    struct state {
        T largest, sum;
    };
    static FS_INLINE T base(T largest)
    {
        return largest == T(-INFINITY) ? T(0) : largest;
    }
    static FS_INLINE state start()
    {
        return state{T(-INFINITY), 0};
    }
    template <class SHARE> static FS_INLINE state of(const SHARE &own)
    {
        T largest = T(-INFINITY), sum = 0;
        own.each([&](T x) { largest = fs_larger::apply(largest, x); });
        T from = base(largest);
        own.each([&](T x) { sum += fs_exp<S>(x - from); });
        return state{largest, sum};
    }
    static FS_INLINE void merge(state &s, const state &other)
    {
        T largest = fs_larger::apply(s.largest, other.largest), from = base(largest);
        s.sum = s.sum * fs_exp<S>(s.largest - from) + other.sum * fs_exp<S>(other.largest - from);
        s.largest = largest;
    }
    static FS_INLINE state merge_lanes(const state &s, int width)
    {
        T largest = fs_reduce_lanes<fs_larger>(s.largest, width);
        return state{largest, fs_reduce_lanes<fs_add>(s.sum * fs_exp<S>(s.largest - base(largest)), width)};
    }
};

template <class S> struct softmax : fs_exponentials<S> {
    typedef typename fs_compute<S>::type T;
    static FS_INLINE fs_factors<T> factors(const typename fs_exponentials<S>::state &row, int64_t, T)
    {
        return fs_factors<T>{fs_exponentials<S>::base(row.largest), T(1) / row.sum, T(0)};
    }
    static FS_INLINE T shifted(T x, T by)
    {
        return fs_exp<S>(x - by);
    }
};

template <class S> struct log_softmax : fs_exponentials<S> {
    typedef typename fs_compute<S>::type T;
    static FS_INLINE fs_factors<T> factors(const typename fs_exponentials<S>::state &row, int64_t, T)
    {
        return fs_factors<T>{fs_exponentials<S>::base(row.largest), T(1), -::log(row.sum)};
    }
    static FS_INLINE T shifted(T x, T by)
    {
        return x - by;
    }
};

template <class S> struct layer_norm : fs_variance<typename fs_compute<S>::type> {
    typedef typename fs_compute<S>::type T;
    typedef typename fs_variance<T>::state state;
    template <class SHARE> static FS_INLINE state of(const SHARE &own)
    {
        T count = own.count(), sum = 0, squares = 0;
        own.each([&](T x) { sum += x; });
        T mean = count > T(0) ? sum / count : T(0);
        own.each([&](T x) { squares += (x - mean) * (x - mean); });
        return state{count, mean, squares};
    }
    static FS_INLINE fs_factors<T> factors(const state &row, int64_t length, T eps)
    {
        return fs_factors<T>{row.mean, T(1) / ::sqrt(row.squares / T(length) + eps), T(0)};
    }
    static FS_INLINE T shifted(T x, T by)
    {
        return x - by;
    }
};

template <class S> struct rms_norm : fs_norm<typename fs_compute<S>::type> {
    typedef typename fs_compute<S>::type T;
    typedef typename fs_norm<T>::state state;
    template <class SHARE> static FS_INLINE state of(const SHARE &own)
    {
        T squares = 0;
        own.each([&](T x) { squares += x * x; });
        return state{squares};
    }
    static FS_INLINE fs_factors<T> factors(const state &row, int64_t length, T eps)
    {
        return fs_factors<T>{T(0), T(1) / ::sqrt(row.value / T(length) + eps), T(0)};
    }
    static FS_INLINE T shifted(T x, T)
    {
        return x;
    }
};

#endif

/* Random draws: FLOPS 0, BYTES sizeof(S) per element; bound by integer arithmetic. Each thread computes one counter of
 * the stream and its 4 draws (2 of float64). */
#include "kernels/context.h"

#include "kernels/types.cuh"
#pragma nv_diag_suppress 1675 /* the header also has pragmas for GCC */
#include "ops/philox.h"

enum { THREADS = 256 };

typedef struct {
    void *out;
    int64_t count;
    uint64_t seed, first_counter;
    int skip;     /* draws of the first counter before out[0] */
    bool vectors; /* a counter's draws are stored as one aligned vector */
    double low, scale, below;
    float low32, scale32, below32;
} arguments;

FS_DEVICE void draw_uniform(const arguments &args, const fs_philox_words &words, float (&draw)[4])
{
#pragma unroll
    for (int k = 0; k < 4; k++) draw[k] = fs_uniform_f32(words.word[k], args.low32, args.scale32, args.below32);
}

FS_DEVICE void draw_uniform(const arguments &args, const fs_philox_words &words, double (&draw)[2])
{
#pragma unroll
    for (int k = 0; k < 2; k++)
        draw[k] = fs_uniform_f64(words.word[2 * k], words.word[2 * k + 1], args.low, args.scale, args.below);
}

FS_DEVICE void draw_normal(const arguments &args, const fs_philox_words &words, float (&draw)[4])
{
    fs_normal_pair_f32(words.word[0], words.word[1], &draw[0], &draw[1]);
    fs_normal_pair_f32(words.word[2], words.word[3], &draw[2], &draw[3]);
#pragma unroll
    for (int k = 0; k < 4; k++) draw[k] = fmaf(draw[k], args.scale32, args.low32);
}

FS_DEVICE void draw_normal(const arguments &args, const fs_philox_words &words, double (&draw)[2])
{
    fs_normal_pair_f64(words.word, &draw[0], &draw[1]);
#pragma unroll
    for (int k = 0; k < 2; k++) draw[k] = fma(draw[k], args.scale, args.low);
}

template <class S, bool NORMAL>
static __global__ void __launch_bounds__(THREADS) random_kernel(const __grid_constant__ arguments args)
{
    typedef typename fs_compute<S>::type T;
    constexpr int DRAWS = sizeof(S) == 8 ? 2 : 4;
    int64_t counter = (int64_t)blockIdx.x * THREADS + threadIdx.x, first = counter * DRAWS - args.skip;
    T draw[DRAWS];
    alignas(16) S values[DRAWS];

    if (first >= args.count) return;
    fs_philox_words words = fs_philox(args.seed, args.first_counter + (uint64_t)counter);
    if (NORMAL) draw_normal(args, words, draw);
    else draw_uniform(args, words, draw);
#pragma unroll
    for (int k = 0; k < DRAWS; k++) fs_narrow(draw[k], &values[k]);
    if (args.vectors && first + DRAWS <= args.count) {
        fs_store<S, DRAWS>((S *)args.out + first, values);
    } else {
#pragma unroll
        for (int k = 0; k < DRAWS; k++)
            if (first + k >= 0 && first + k < args.count) ((S *)args.out)[first + k] = values[k];
    }
}

static const void *const table[FS_RANDOM_COUNT][4] = {
    {(const void *)random_kernel<double, false>, (const void *)random_kernel<float, false>,
     (const void *)random_kernel<fs_float16, false>, (const void *)random_kernel<fs_bfloat16, false>},
    {(const void *)random_kernel<double, true>, (const void *)random_kernel<float, true>,
     (const void *)random_kernel<fs_float16, true>, (const void *)random_kernel<fs_bfloat16, true>},
};

extern "C" fs_status fs_cuda_random(fs_device device, fs_random_id op, const fs_random *random, fs_error *err)
{
    int draws = random->dtype == FS_FLOAT64 ? 2 : 4;
    size_t vector = random->dtype == FS_FLOAT64 || random->dtype == FS_FLOAT32 ? 16 : 8;
    arguments args = {};

    args.out = random->out;
    args.count = random->count;
    args.seed = random->seed;
    args.first_counter = random->offset / (uint64_t)draws;
    args.skip = (int)(random->offset % (uint64_t)draws);
    args.vectors = args.skip == 0 && fs_is_aligned(random->out, vector);
    args.low = random->low;
    args.scale = op == FS_UNIFORM ? random->high - random->low : random->high;
    args.below = op == FS_UNIFORM ? fs_uniform_below(random->low, random->high, random->dtype) : 0;
    args.low32 = (float)args.low;
    args.scale32 = (float)args.scale;
    args.below32 = (float)args.below;
    return fs_cuda_launch(device, table[op][random->dtype],
                          fs_ceil_div(fs_ceil_div(random->count + args.skip, draws), THREADS), THREADS, &args,
                          "launching a random draw", err);
}

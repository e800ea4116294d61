/* Quantiles are selected, not sorted: expected linear time, with pivots drawn at random, so that no trace can be
 * written that makes it quadratic. The samples are permuted, and each selection leaves none larger before its rank: the
 * next one, of a higher rank, looks only at what follows. Values in between are interpolated as NumPy does. */
#include "base/statistics.h"

#include <math.h>

#include "base/hash.h"

static int64_t median_of_three(int64_t a, int64_t b, int64_t c)
{
    int64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* Of many samples, a random position, so that no order of them makes the selection slow. */
static size_t position(uint64_t *random, size_t count, size_t usual)
{
    enum { FEW = 256 };
    if (count <= FEW) return usual;
    *random = *random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    return (size_t)((unsigned __int128)*random * count >> 64);
}

/* Move what is below `limit` to the front; returns how many that are. The loop has no branch to mispredict. */
static size_t partition(int64_t *samples, size_t count, int64_t limit)
{
    size_t below = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t sample = samples[i];
        samples[i] = samples[below];
        samples[below] = sample;
        below += sample < limit;
    }
    return below;
}

/* Quickselect: the sample of that rank is at its place afterwards, none before it is larger, none after it smaller. */
static int64_t select_rank(int64_t *samples, size_t count, size_t rank)
{
    uint64_t random = fs_hash_keys()[0];
    while (count > 1) {
        int64_t a = samples[position(&random, count, 0)], b = samples[position(&random, count, count / 2)];
        int64_t pivot = median_of_three(a, b, samples[position(&random, count, count - 1)]);
        size_t below = partition(samples, count, pivot);
        if (rank < below) {
            count = below;
            continue;
        }
        samples += below, count -= below, rank -= below;
        /* What equals the pivot leaves too: device times repeat a lot. */
        size_t equal = pivot == INT64_MAX ? count : partition(samples, count, pivot + 1);
        if (rank < equal) return pivot;
        samples += equal, count -= equal, rank -= equal;
    }
    return *samples;
}

static int64_t least(const int64_t *samples, size_t count)
{
    int64_t min = samples[0];
    for (size_t i = 1; i < count; i++) min = samples[i] < min ? samples[i] : min;
    return min;
}

static int64_t largest(const int64_t *samples, size_t count)
{
    int64_t max = samples[0];
    for (size_t i = 1; i < count; i++) max = samples[i] > max ? samples[i] : max;
    return max;
}

/* The quantile of samples that begin at `begin`: none of the ones before it is larger. */
static double quantile(int64_t *samples, size_t count, double share, size_t *begin)
{
    double place = share * (double)(count - 1);
    size_t rank = (size_t)place;
    int64_t low = select_rank(samples + *begin, count - *begin, rank - *begin);
    *begin = rank;
    if (rank + 1 == count) return (double)low;
    int64_t high = least(samples + rank + 1, count - rank - 1);
    return (double)low + (place - (double)rank) * ((double)high - (double)low);
}

/* The sum of several chains of additions, as each waits for the one before. */
static double mean_of(const int64_t *samples, size_t count)
{
    enum { CHAINS = 8 };
    double sums[CHAINS] = {0}, sum = 0;
    for (size_t i = 0; i < count; i++) sums[i % CHAINS] += (double)samples[i];
    for (int i = 0; i < CHAINS; i++) sum += sums[i];
    return sum / (double)count;
}

static double squares_of(const int64_t *samples, size_t count, double mean)
{
    enum { CHAINS = 8 };
    double sums[CHAINS] = {0}, sum = 0;
    for (size_t i = 0; i < count; i++) sums[i % CHAINS] += ((double)samples[i] - mean) * ((double)samples[i] - mean);
    for (int i = 0; i < CHAINS; i++) sum += sums[i];
    return sum;
}

double fs_median_of(int64_t *samples, size_t count)
{
    size_t begin = 0;
    return count == 0 ? NAN : quantile(samples, count, 0.5, &begin);
}

fs_statistics fs_statistics_of(int64_t *samples, size_t count)
{
    if (count == 0) return (fs_statistics){NAN, NAN, NAN, NAN, NAN};
    double squares = squares_of(samples, count, mean_of(samples, count));
    size_t median = 0, p95 = 0;
    fs_statistics result = {.median = quantile(samples, count, 0.5, &median)};
    p95 = median;
    result.p95 = quantile(samples, count, 0.95, &p95);
    result.min = (double)least(samples, median + 1);
    result.max = (double)largest(samples + p95, count - p95);
    result.std = count > 1 ? sqrt(squares / (double)(count - 1)) : NAN;
    return result;
}

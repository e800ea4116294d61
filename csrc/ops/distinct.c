/* Counting distinct offsets: the sums of one multiple of each stride, from 0 to size - 1 times it. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/saturate.h"
#include "ops/tensor.h"

/* Offsets are counted one by one where no rule applies: a bit for each offset of a span, or a list of all sums. */
enum { MAX_SPAN = 1 << 24, MAX_SUMS = 1 << 16, WORD_BITS = 64 };

typedef struct {
    int64_t step, size;
} dimension;

/* Dimensions with a nonzero step, by step. Those of equal step are merged: i + j with i < m and j < n has m + n - 1
 * values. */
static int sort_dimensions(int ndim, const int64_t *shape, const int64_t *strides, dimension *dims)
{
    int count = 0;
    for (int d = 0; d < ndim; d++) {
        if (shape[d] == 1 || strides[d] == 0) continue;
        dimension moving = {fs_sub_saturated(0, strides[d]), shape[d]};
        if (strides[d] > 0) moving.step = strides[d];
        int at = 0;
        while (at < count && dims[at].step < moving.step) at++;
        if (at < count && dims[at].step == moving.step) {
            fs_add_to(&dims[at].size, moving.size - 1);
            continue;
        }
        memmove(&dims[at + 1], &dims[at], (size_t)(count - at) * sizeof *dims);
        dims[at] = moving;
        count++;
    }
    return count;
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t step_divisor(const dimension *dims, int count)
{
    int64_t divisor = 0;
    for (int d = 0; d < count; d++) divisor = greatest_divisor(dims[d].step, divisor);
    return divisor;
}

/* The largest sum plus 1; INT64_MAX on overflow. */
static int64_t span_of(const dimension *dims, int count)
{
    int64_t span = 1, reach;
    for (int d = 0; d < count; d++) {
        bool over = __builtin_mul_overflow(dims[d].step, dims[d].size - 1, &reach);
        if (over || __builtin_add_overflow(span, reach, &span)) return INT64_MAX;
    }
    return span;
}

/* The count if there are no gaps: sums 0 to n - 1 of the smaller steps, each shifted by a step of at most n. 0
 * otherwise. */
static int64_t count_gapless(const dimension *dims, int count)
{
    int64_t sums = 1;
    for (int d = 0; d < count; d++) {
        if (dims[d].step > sums) return 0;
        sums += dims[d].step * (dims[d].size - 1);
    }
    return sums;
}

/* Add the set shifted by that amount. From the highest word down, so that each is read before it changes. */
static void shift_in(uint64_t *set, int64_t words, int64_t by)
{
    int64_t skip = by / WORD_BITS;
    int bits = (int)(by % WORD_BITS);
    for (int64_t i = words - 1; i >= skip; i--) {
        uint64_t low = bits != 0 && i > skip ? set[i - skip - 1] >> (WORD_BITS - bits) : 0;
        set[i] |= set[i - skip] << bits | low;
    }
}

/* A bit for each sum. Shifts by 1, 2, 4 … steps cover one dimension. */
static int64_t count_in_bits(const dimension *dims, int count, int64_t span)
{
    int64_t words = (span - 1) / WORD_BITS + 1, sums = 0;
    uint64_t *set = fs_calloc((size_t)words, sizeof *set);
    if (set == NULL) return FS_COUNT_UNKNOWN;
    set[0] = 1;
    for (int d = 0; d < count; d++) {
        for (int64_t filled = 1; filled < dims[d].size;) {
            int64_t more = filled < dims[d].size - filled ? filled : dims[d].size - filled;
            shift_in(set, words, more * dims[d].step);
            filled += more;
        }
    }
    for (int64_t i = 0; i < words; i++) sums += __builtin_popcountll(set[i]);
    fs_free(set);
    return sums;
}

static int by_value(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static int64_t count_in_list(const dimension *dims, int count, int64_t all)
{
    int64_t *sums = fs_malloc((size_t)all * sizeof *sums), filled = 1, distinct = 1;
    if (sums == NULL) return FS_COUNT_UNKNOWN;
    sums[0] = 0;
    for (int d = 0; d < count; d++) {
        for (int64_t i = 1; i < dims[d].size; i++) {
            for (int64_t k = 0; k < filled; k++) sums[i * filled + k] = sums[k] + i * dims[d].step;
        }
        filled *= dims[d].size;
    }
    qsort(sums, (size_t)all, sizeof *sums, by_value);
    for (int64_t i = 1; i < all; i++) distinct += sums[i] != sums[i - 1];
    fs_free(sums);
    return distinct;
}

static int64_t product_of(const dimension *dims, int count)
{
    int64_t product = 1;
    for (int d = 0; d < count; d++)
        if (__builtin_mul_overflow(product, dims[d].size, &product)) return INT64_MAX;
    return product;
}

/* Dimensions that cannot be split into independent parts. */
static int64_t count_entangled(dimension *dims, int count)
{
    int64_t divisor = step_divisor(dims, count);
    for (int d = 0; d < count; d++) dims[d].step /= divisor;
    int64_t span = span_of(dims, count), all = product_of(dims, count);
    if (span == INT64_MAX) return FS_COUNT_UNKNOWN;
    int64_t gapless = count_gapless(dims, count);
    if (gapless > 0) return gapless;
    if (all <= MAX_SUMS && (all <= span / WORD_BITS || span > MAX_SPAN)) return count_in_list(dims, count, all);
    return span <= MAX_SPAN ? count_in_bits(dims, count, span) : FS_COUNT_UNKNOWN;
}

int64_t fs_distinct_count(int ndim, const int64_t *shape, const int64_t *strides)
{
    dimension dims[FS_MAX_DIMS + 1];
    for (int d = 0; d < ndim; d++)
        if (shape[d] == 0) return 0;
    int count = sort_dimensions(ndim, shape, strides, dims), begin = 0;
    int64_t product = 1;
    /* If all larger steps are multiples of at least the span of the smaller ones, the sums of the smaller ones never
     * coincide for different sums of the larger ones, so the counts multiply. */
    for (int d = 1; d <= count; d++) {
        bool apart = d == count || step_divisor(&dims[d], count - d) >= span_of(&dims[begin], d - begin);
        if (!apart) continue;
        int64_t part = d - begin == 1 ? dims[begin].size : count_entangled(&dims[begin], d - begin);
        if (part < 0 || __builtin_mul_overflow(product, part, &product)) return FS_COUNT_UNKNOWN;
        begin = d;
    }
    return product;
}

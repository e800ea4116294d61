/* Saturating sums, differences and products of times, bytes and counts, as a recorded trace may contain any number. No
 * result is INT64_MIN, which means missing (FS_MISSING). */
#ifndef FS_BASE_SATURATE_H
#define FS_BASE_SATURATE_H

#include <stdbool.h>
#include <stdint.h>

static inline int64_t fs_saturated_bound(bool negative)
{
    return negative ? -INT64_MAX : INT64_MAX;
}

static inline int64_t fs_add_saturated(int64_t a, int64_t b)
{
    int64_t sum;
    bool over = __builtin_add_overflow(a, b, &sum) || sum == INT64_MIN;
    return over ? fs_saturated_bound(a < 0 || b < 0) : sum;
}

static inline int64_t fs_sub_saturated(int64_t a, int64_t b)
{
    int64_t difference;
    bool over = __builtin_sub_overflow(a, b, &difference) || difference == INT64_MIN;
    return over ? fs_saturated_bound(a < b) : difference;
}

static inline int64_t fs_mul_saturated(int64_t a, int64_t b)
{
    int64_t product;
    bool over = __builtin_mul_overflow(a, b, &product) || product == INT64_MIN;
    return over ? fs_saturated_bound((a < 0) != (b < 0)) : product;
}

/* *sum += more; *sum -= less. */
static inline void fs_add_to(int64_t *sum, int64_t more)
{
    *sum = fs_add_saturated(*sum, more);
}

static inline void fs_take_from(int64_t *sum, int64_t less)
{
    *sum = fs_sub_saturated(*sum, less);
}

/* The volume of a grid of blocks, or of a block of threads. */
static inline int64_t fs_product_of_three(const uint32_t size[3])
{
    return fs_mul_saturated(fs_mul_saturated(size[0], size[1]), size[2]);
}

#endif

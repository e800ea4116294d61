/* Search among numbers. */
#ifndef FS_BASE_SEARCH_H
#define FS_BASE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a condition holds for any of the numbers `at` below `count`. */
#define FS_ANY(at, count, holds)                                                                          \
    __extension__({                                                                                       \
        bool any_ = false;                                                                                \
        for (__typeof__((count) + 0) at = 0, end_ = (count); !any_ && at < end_; at += 1) any_ = (holds); \
        any_;                                                                                             \
    })

/* The first number from `low` up to `high` for which a condition does not hold; `high` if it holds for all. It must
 * hold up to some number and for none after it. `at` names the number in it: FS_FIRST_NOT(at, 0, count, ends[at] <=
 * time) is the number of ends until then, if they ascend. */
#define FS_FIRST_NOT(at, low, high, holds)                    \
    __extension__({                                           \
        uint32_t first_ = (low), end_ = (high);               \
        while (first_ < end_) {                               \
            const uint32_t at = first_ + (end_ - first_) / 2; \
            if (holds) first_ = at + 1;                       \
            else end_ = at;                                   \
        }                                                     \
        first_;                                               \
    })

#endif

/* Sorting of many items, which Ctrl-C can interrupt. */
#ifndef FS_BASE_SORT_H
#define FS_BASE_SORT_H

#include <stddef.h>

#include "base/status.h"

/* Define a comparison of items of a type for fs_sort and qsort: by one field after the other, five at most, each
 * ascending. FS_ORDER_BY(compare_calls, call, lane, event) */
#define FS_ORDER_BY(name, type, ...)                                                                \
    static int name(const void *left, const void *right)                                            \
    {                                                                                               \
        const type *a = left, *b = right;                                                           \
        FS_SIXTH(__VA_ARGS__, FS_BY_5, FS_BY_4, FS_BY_3, FS_BY_2, FS_BY_1, )(__VA_ARGS__) return 0; \
    }
#define FS_SIXTH(a, b, c, d, e, by, ...) by
#define FS_BY_1(field) \
    if (a->field != b->field) return a->field < b->field ? -1 : 1;
#define FS_BY_2(field, ...) FS_BY_1(field) FS_BY_1(__VA_ARGS__)
#define FS_BY_3(field, ...) FS_BY_1(field) FS_BY_2(__VA_ARGS__)
#define FS_BY_4(field, ...) FS_BY_1(field) FS_BY_3(__VA_ARGS__)
#define FS_BY_5(field, ...) FS_BY_1(field) FS_BY_4(__VA_ARGS__)

/* Like qsort(). Polls every few ms. On failure, FS_OUT_OF_MEMORY or FS_INTERRUPTED,
 * the order of the items is unspecified. */
fs_status fs_sort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *), fs_error *err);

#endif

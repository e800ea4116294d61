/* Sorting of many items, which Ctrl-C can interrupt. */
#ifndef FS_BASE_SORT_H
#define FS_BASE_SORT_H

#include <stddef.h>

#include "base/status.h"

/* Like qsort(). Polls every few ms. On failure, FS_OUT_OF_MEMORY or FS_INTERRUPTED,
 * the order of the items is unspecified. */
fs_status fs_sort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *), fs_error *err);

#endif

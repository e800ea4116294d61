/* Sorting of many items, which Ctrl-C can end. */
#ifndef FS_BASE_SORT_H
#define FS_BASE_SORT_H

#include <stddef.h>

#include "base/status.h"

/* As qsort(); `name` says in an error what is sorted. Polls every few ms. On a failure, FS_OUT_OF_MEMORY or
 * FS_INTERRUPTED, the items are in some order. */
fs_status fs_sort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *), const char *name,
                  fs_error *err);

#endif

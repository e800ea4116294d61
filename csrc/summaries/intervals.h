/* Lists of time intervals [begin, end): sorting, union, subtraction. Private to csrc/summaries, csrc/accounting and
 * csrc/replay. */
#ifndef FS_SUMMARIES_INTERVALS_H
#define FS_SUMMARIES_INTERVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    int64_t begin, end; /* ns */
    uint32_t tag;       /* for the owner of the list; undefined after a union */
} fs_interval;

/* A zeroed list is empty. */
typedef struct {
    fs_interval *items;
    uint32_t count, capacity;
    bool unsorted; /* begins are not in ascending order */
} fs_intervals;

void fs_intervals_clear(fs_intervals *list);

/* Append an interval. FS_OUT_OF_MEMORY leaves the list unchanged. */
fs_status fs_intervals_add(fs_intervals *list, int64_t begin, int64_t end, uint32_t tag, fs_error *err);

/* Append an interval to a list of which only the union matters: it is merged into the last one if they overlap or
 * touch, and an empty one is skipped. Events in order, or nested, need no further memory. */
fs_status fs_intervals_cover(fs_intervals *list, int64_t begin, int64_t end, fs_error *err);

/* Sort by begin; the sort is stable. O(n). FS_OUT_OF_MEMORY leaves the list unchanged. */
fs_status fs_intervals_sort(fs_intervals *list, fs_error *err);

/* Sort, and merge intervals that overlap or touch. The result is disjoint, ascending and has no empty interval. */
fs_status fs_intervals_unite(fs_intervals *list, fs_error *err);

/* Remove `taken` from `list`. The remaining intervals keep their tags; the removed time in ns is added to `sums[tag]`,
 * unless sums is NULL. Both lists must be disjoint and ascending. FS_OUT_OF_MEMORY leaves the list unchanged and the
 * sums undefined. */
fs_status fs_intervals_subtract(fs_intervals *list, const fs_intervals *taken, int64_t *sums, fs_error *err);

/* Return the time in ns that [begin, end) shares with a disjoint ascending list. `at` (initially 0) is a cursor: calls
 * that share it must have ascending begins. */
int64_t fs_intervals_overlap(const fs_intervals *list, uint32_t *at, int64_t begin, int64_t end);

/* Return the index of the first interval of a disjoint ascending list that ends after `time`, or the length of the
 * list. */
uint32_t fs_intervals_first_after(const fs_intervals *list, int64_t time);

/* Return the sum of the lengths in ns. */
int64_t fs_intervals_total(const fs_intervals *list);

#endif

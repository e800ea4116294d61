/* Lists of time intervals [begin, end): sorting, union, subtraction. Private to csrc/summaries. */
#ifndef FS_SUMMARIES_INTERVALS_H
#define FS_SUMMARIES_INTERVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct {
    int64_t begin, end; /* ns */
    uint32_t tag;       /* what the owner of the list wants to know of it; without meaning after a union */
} fs_interval;

/* All zero is an empty list. */
typedef struct {
    fs_interval *items;
    uint32_t count, capacity;
    bool unsorted; /* the begins do not ascend */
} fs_intervals;

void fs_intervals_clear(fs_intervals *list);

/* Append one. FS_OUT_OF_MEMORY leaves the list as it was. */
fs_status fs_intervals_add(fs_intervals *list, int64_t begin, int64_t end, uint32_t tag, fs_error *err);

/* The same for a list of which only the union matters: what the last one reaches is joined to it, empty ones are left
 * out. Events that come in order, or inside of each other, cost no memory. */
fs_status fs_intervals_cover(fs_intervals *list, int64_t begin, int64_t end, fs_error *err);

/* Sort by begin; equal begins keep their order. O(n). FS_OUT_OF_MEMORY leaves the list as it was. */
fs_status fs_intervals_sort(fs_intervals *list, fs_error *err);

/* Sort, and join what overlaps or touches: disjoint ascending intervals that are not empty. */
fs_status fs_intervals_unite(fs_intervals *list, fs_error *err);

/* Move what `list` and `taken` share out of `list`: what is left of each interval stays with its tag, the time that
 * went is added to `sums[tag]` in ns. Both are disjoint and ascending. FS_OUT_OF_MEMORY leaves the list as it was, the
 * sums without meaning. */
fs_status fs_intervals_subtract(fs_intervals *list, const fs_intervals *taken, int64_t *sums, fs_error *err);

/* Time in ns that [begin, end) shares with a disjoint ascending list. `at` (0 at first) remembers where to look: calls
 * that share it come with ascending begins. */
int64_t fs_intervals_overlap(const fs_intervals *list, uint32_t *at, int64_t begin, int64_t end);

/* The first interval of a disjoint ascending list that ends after `time`, or their count: where an overlap may begin.
 */
uint32_t fs_intervals_first_after(const fs_intervals *list, int64_t time);

/* Sum of the lengths in ns. */
int64_t fs_intervals_total(const fs_intervals *list);

#endif

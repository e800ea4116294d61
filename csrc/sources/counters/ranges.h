/* Exact counts of what runs on a device between two calls, by CUPTI's Range Profiler. */
#ifndef FS_SOURCES_COUNTERS_RANGES_H
#define FS_SOURCES_COUNTERS_RANGES_H

#include <stdbool.h>

#include "sources/counters/plan.h"

typedef struct fs_ranges fs_ranges;

/* Begin to count a group on a device whose primary context is active, for `count` pieces of work. The group may take
 * several passes: repeat
 *
 *   begin, for each piece of work: push, the work, wait for the device, pop; end
 *
 * until `complete`. Kernels are neither replayed nor serialized. FS_RUNTIME_ERROR says why the counters are
 * unavailable. */
fs_status fs_ranges_open(fs_ranges **ranges, int device, fs_counter_group group, size_t count, fs_error *err);

fs_status fs_ranges_begin(fs_ranges *ranges, fs_error *err);
fs_status fs_ranges_push(fs_ranges *ranges, size_t index, fs_error *err);
fs_status fs_ranges_pop(fs_ranges *ranges, fs_error *err);
fs_status fs_ranges_end(fs_ranges *ranges, bool *complete, fs_error *err);

/* After the last pass, once. */
fs_status fs_ranges_decode(fs_ranges *ranges, fs_error *err);

/* The value of each counter of the group for a piece of work, by its index in fs_counter_row_at; the others, and those
 * that this GPU lacks, become NaN. `values` has fs_counter_row_count() places. */
fs_status fs_ranges_take(fs_ranges *ranges, size_t index, double *values, fs_error *err);

/* Give the counters back. Accepts NULL. */
void fs_ranges_close(fs_ranges *ranges);

#endif

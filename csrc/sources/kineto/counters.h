/* Counter tracks of a trace: events of phase "C". Private to the trace source.
 *
 *   {"ph": "C", "name": "dram_bytes_read", "pid": 0, "ts": 1.5, "args": {"GB/s": 4100.25}}
 *
 * The process is the device. A value holds from its event to the next one of its series; the last one of a series is
 * left out, as nothing tells its end. Names of CUPTI and of the store's metrics become those metrics: values under
 * "GB/s" and "%" are rates and shares, and others what was counted until the next event. All other series keep their
 * name (and key, unless it is "value" or there is only one) and are levels. */
#ifndef FS_SOURCES_KINETO_COUNTERS_H
#define FS_SOURCES_KINETO_COUNTERS_H

#include "base/intern.h"
#include "sources/kineto/json_scan.h"
#include "store/store.h"

enum { FS_SERIES = 8 };

/* The series of one event, in thousandths. */
typedef struct {
    fs_scan_span keys[FS_SERIES];
    int64_t values[FS_SERIES];
    int count;
    bool missing; /* it marks the end of what was counted: it has a member "missing" */
} fs_counter_series;

/* Points of all series; zeroed if there are none. */
typedef struct {
    struct fs_counter_point *points;
    uint32_t count, capacity;
    fs_intern names; /* "name" or "name\nkey" */
} fs_counter_points;

/* Read the "args" of an event. */
fs_scan_status fs_counters_read(fs_scan *scan, fs_counter_series *series);

/* Keep the points of an event. FS_OUT_OF_MEMORY. */
fs_status fs_counters_keep(fs_counter_points *points, const fs_scan_span *name, int64_t device, int64_t start,
                           const fs_counter_series *series, fs_error *err);
void fs_counters_clear(fs_counter_points *points);

/* Add the points of the pieces of a trace to the store. FS_OUT_OF_MEMORY. */
fs_status fs_counters_join(fs_counter_points *const *pieces, uint32_t count, fs_store *store, fs_error *err);

#endif

/* Samples as CUPTI delivers them, with times of its own clock, until they are poured into a store.
 *
 * Times are converted from CUPTI's clock, whatever it is, to fs_clock_now() and to Unix time by reading both at the
 * start and at the end. A sample's times are those at which its records arrive, FS_RAW_SAMPLE_DELAY_NS before its
 * counts, which is compensated (found on an H200 as the delay at which kernels and traffic agree). */
#ifndef FS_SOURCES_COUNTERS_RAW_SAMPLES_H
#define FS_SOURCES_COUNTERS_RAW_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "store/samples.h"
#include "store/store.h"

/* The clock of CUPTI's samples, tied to the store's and to Unix time. Private to the counters. */

/* The same instant by CUPTI's clock, the store's and Unix time. */
typedef struct {
    uint64_t cupti;
    int64_t host, unix_time; /* ns */
} fs_anchor;

/* Read all clocks at once, as often as it takes to be rarely interrupted. */
fs_anchor fs_anchor_take(void);

enum { FS_RAW_SAMPLE_DELAY_NS = 700 };

typedef struct {
    uint64_t start, end;
    bool idle; /* nothing ran on the device */
    double values[FS_METRIC_COUNT];
} fs_raw_sample;

typedef struct {
    fs_raw_sample *items;
    uint32_t count, capacity;
} fs_raw_samples;

/* How times become those of a store: counted from `unix_base`, a Unix time in ns, or, if that is FS_MISSING, those of
 * fs_clock_now(). Samples outside of `begin` to `end` are left out. */
typedef struct {
    fs_anchor from, to;
    int64_t unix_base, begin, end;
} fs_raw_clock;

/* Make room for as many more. FS_OUT_OF_MEMORY. */
fs_status fs_raw_samples_reserve(fs_raw_samples *samples, size_t more, fs_error *err);

/* Add one, for which there is room, with values of NaN. */
fs_raw_sample *fs_raw_samples_add(fs_raw_samples *samples, uint64_t start, uint64_t end);

/* Join the last idle samples, so that idle time takes three of them, however long it is: the first and the last, which
 * may share their time with work, and one for all between. To be called after each sample. */
void fs_raw_samples_join_idle(fs_raw_samples *samples);

/* Append a metric of all samples to the store. FS_OUT_OF_MEMORY. */
fs_status fs_raw_samples_pour(const fs_raw_samples *samples, const fs_raw_clock *clock, fs_store *store, int device,
                              fs_metric metric, fs_error *err);
void fs_raw_samples_clear(fs_raw_samples *samples);

#endif

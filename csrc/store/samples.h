/* Counter samples: what a device's counters counted from one instant to the next, from any source.
 *
 *   track   (device, metric) ─► [ start | end | value ] …   24 bytes a sample, in order of start
 *
 * Times are those of the store's events. A sample without a value is absent; the time between two samples of a track
 * was not counted. A store holds few tracks and, from one source, at most FS_MOST_SAMPLES samples of each. */
#ifndef FS_STORE_SAMPLES_H
#define FS_STORE_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct fs_store fs_store;

/* X(NAME, name, prose) */
#define FS_METRIC_KIND_LIST(X)                                      \
    X(AMOUNT, amount, "counted from the sample's start to its end") \
    X(SHARE, share, "mean over the sample, 0 to 100")               \
    X(LEVEL, level, "mean over the sample, or the value from its start on")

typedef enum {
#define FS_METRIC_KIND_ENUM(NAME, name, prose) FS_METRIC_##NAME##_KIND,
    FS_METRIC_KIND_LIST(FS_METRIC_KIND_ENUM)
#undef FS_METRIC_KIND_ENUM
} fs_metric_kind;

typedef enum {
#define FS_METRIC(NAME, name, kind, unit, prose) FS_METRIC_##NAME,
#include "store/metrics.def"
#undef FS_METRIC
    FS_METRIC_COUNT
} fs_metric;

typedef struct {
    const char *name, *unit, *prose;
    fs_metric_kind kind;
} fs_metric_row;

extern const fs_metric_row fs_metrics[FS_METRIC_COUNT];
extern const char *const fs_metric_kind_names[];

enum { FS_MOST_SAMPLES = 1 << 24 };

typedef struct {
    int64_t start, end; /* ns, start <= end */
    double value;       /* finite */
} fs_sample;

typedef struct {
    int device;
    uint32_t name; /* id in the store's names */
    int metric;    /* an fs_metric; -1: another name */
    uint32_t count, capacity;
    fs_sample *samples;
} fs_counter_track;

/* Append samples to the track of a device and a metric's name, which is added if the store lacks it. Samples that are
 * not finite, end before they start or begin before the end of the track's last one are left out; *dropped (may be
 * NULL) receives their number. FS_OUT_OF_MEMORY, FS_VALUE_ERROR for a device out of range. */
fs_status fs_store_add_samples(fs_store *store, int device, const char *metric, const fs_sample *samples, size_t count,
                               size_t *dropped, fs_error *err);

/* Append the samples of all tracks of another store, `shift` ns later, as fs_store_add_samples. FS_OUT_OF_MEMORY leaves
 * a part of them in `store`. */
fs_status fs_store_copy_samples(fs_store *store, const fs_store *from, int64_t shift, fs_error *err);

/* Reading: the tracks in the order in which they were added; the track of a metric, NULL if the store lacks it. */
uint32_t fs_store_track_count(const fs_store *store);
const fs_counter_track *fs_store_track(const fs_store *store, uint32_t index);
const fs_counter_track *fs_store_track_of(const fs_store *store, int device, fs_metric metric);

/* Private to csrc/store: the tracks of a store. */
typedef struct {
    fs_counter_track *tracks;
    uint32_t count, capacity;
} fs_counter_tracks;

void fs_counter_tracks_clear(fs_counter_tracks *tracks);
fs_counter_tracks *fs_store_tracks(const fs_store *store);

#endif

/* Launch statistics of each device: how long kernels waited, and whether the device waited for the host.
 *
 *   host     |call|      |call|              a launch is an API call that launched a kernel; of the kernels of a graph,
 *   stream         ▓▓▓▓        ▓▓▓▓▓         the first one counts
 *            |delay|     |delay|             the stream ran dry before the second call returned
 */
#ifndef FS_SUMMARIES_LAUNCHES_H
#define FS_SUMMARIES_LAUNCHES_H

#include <stdint.h>
#include "store/store.h"

/* X(name, divisor from the stored number to the shown one, prose). Times are stored in ns and shown in µs; NaN where
 * there is no data. */
#define FS_LAUNCH_LIST(X)                                                                                           \
    X(kernels, 1, "kernels whose API call was recorded")                                                            \
    X(launches, 1, "API calls that launched them; a graph launch counts once")                                      \
    X(delay_min, 1000, "shortest delay from the start of the call to the start of its first kernel")                \
    X(delay_median, 1000, "median of that delay")                                                                   \
    X(delay_p95, 1000, "95th percentile of that delay")                                                             \
    X(delay_max, 1000, "longest such delay")                                                                        \
    X(negative_delays, 1,                                                                                           \
      "launches whose kernel began before the call: the clocks of host and device disagree by at "                  \
      "least -delay_min, and all delays are wrong by that amount")                                                  \
    X(call_time_median, 1000, "median host time of those calls")                                                    \
    X(queue_mean, 1, "mean number of earlier launches whose first kernel had not begun when a call began")          \
    X(queue_max, 1, "maximum of that number")                                                                       \
    X(launch_bound_pct, 1,                                                                                          \
      "percentage of launches, onto a stream with earlier work, for which the stream ran dry before the call that " \
      "launched new work returned")                                                                                 \
    X(idle_lost, 1000, "time during which the whole device was idle until work whose call returned late had arrived")

typedef struct {
    int device;
#define FS_LAUNCH_FIELD(name, divisor, prose) double name;
    FS_LAUNCH_LIST(FS_LAUNCH_FIELD)
#undef FS_LAUNCH_FIELD
} fs_launch_statistics;

/* Counts of one device, from which `kernels`, `launches` and `launch_bound_pct` follow. */
typedef struct {
    int64_t kernels, launches;
    int64_t with_past; /* launches onto a stream with earlier work, */
    int64_t bound;     /* and those of them for which the stream had run dry */
} fs_launch_counts;

/* What was launched so far. */
typedef struct {
    const fs_store *store;
    uint8_t *launched;    /* by event id of an API call: 1 + the last device on which it launched */
    int64_t *stream_ends; /* by lane: end of the latest work so far, FS_MISSING before the first */
} fs_launch_marks;

/* FS_OUT_OF_MEMORY. fs_launch_marks_clear also accepts a zeroed struct. */
fs_status fs_launch_marks_create(fs_launch_marks *marks, const fs_store *store, fs_error *err);
void fs_launch_marks_clear(fs_launch_marks *marks);

/* Count a piece of work, those of a device in order of start, one device after another. call: what launched it, or
 * FS_NONE. Return whether it is the first kernel of its launch. */
bool fs_launch_counts_add(fs_launch_counts *counts, fs_launch_marks *marks, int device, const fs_chunk *chunk,
                          uint32_t at, uint32_t call);

/* Compute one row per device that has work, in ascending order. FS_OUT_OF_MEMORY. Release the rows with fs_free. */
fs_status fs_launches_of(const fs_store *store, fs_launch_statistics **rows, uint32_t *count, fs_error *err);

/* Arrival ---------------------------------------------------------------------------------------------------------- */

/* How long a launch takes to arrive on an idle device. */

/* Return the median of delays in ns, each from the return of a call to the start of the work that it launched on an
 * idle device: 2 us on an H200, 14 to 24 us on an MI300. At most 100 us, as no launch is on its way for longer; 0 if
 * there are none. Negative delays count as 0. Puts the delays in another order. */
int64_t fs_arrival_of(int64_t *delays, uint32_t count);

#endif

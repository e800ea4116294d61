/* How the kernels of each device were launched: how long they waited, and whether the device waited for the host.
 *
 *   host     |call|      |call|              a launch is an API call that launched a kernel; of a graph's many kernels
 *   stream         ▓▓▓▓        ▓▓▓▓▓         the first one counts
 *            |delay|     |delay|             the stream had run dry before the second call was through
 */
#ifndef FS_SUMMARIES_LAUNCHES_H
#define FS_SUMMARIES_LAUNCHES_H

#include "store/store.h"

/* X(name, how many of the number make one that is shown, prose). Times are in ns, shown in µs; NaN where there is
 * nothing to tell it from. */
#define FS_LAUNCH_LIST(X)                                                                                              \
    X(kernels, 1, "kernels whose API call was recorded")                                                               \
    X(launches, 1, "API calls that launched them; a graph is one launch of many kernels")                              \
    X(delay_min, 1000, "from when the call began to when its first kernel did: the least")                             \
    X(delay_median, 1000, "the median of that")                                                                        \
    X(delay_p95, 1000, "its 95th percentile")                                                                          \
    X(delay_max, 1000, "the largest")                                                                                  \
    X(negative_delays, 1,                                                                                              \
      "launches whose kernel began before their call: impossible, so the clocks of host and device disagree by at "    \
      "least -delay_min, and all delays are off by as much")                                                           \
    X(call_time_median, 1000, "median time of those calls on the host")                                                \
    X(queue_mean, 1, "earlier launches whose first kernel had not begun when a call began: the mean over the calls")   \
    X(queue_max, 1, "the most of that")                                                                                \
    X(launch_bound_pct, 1,                                                                                             \
      "of the launches onto a stream that had worked before, in percent: the stream had run dry before the call that " \
      "launched more returned")                                                                                        \
    X(idle_lost, 1000, "time in which the device had no work at all, until such a launch gave it some")

typedef struct {
    int device;
#define FS_LAUNCH_FIELD(name, divisor, prose) double name;
    FS_LAUNCH_LIST(FS_LAUNCH_FIELD)
#undef FS_LAUNCH_FIELD
} fs_launch_statistics;

/* A row per device that worked, ascending. FS_OUT_OF_MEMORY. Release the rows with fs_free. */
fs_status fs_launches_of(const fs_store *store, fs_launch_statistics **rows, uint32_t *count, fs_error *err);

#endif
